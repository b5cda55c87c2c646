"""The synthetic users of Zamanlooy et al. (2025), section 5.2, as a data set that needs no file."""

import torch
from torch import Tensor

from dpgen.data.users import Users

PEAKED, NEAR = "peaked", "near the prior"


def load_synthetic_users(*, n_categories: int = 100, n_users: int = 200, data_seed: int = 0) -> Users:
    r"""Users in the two regimes that decide which sampler is better, and the public prior, all drawn by a public seed.

    The prior is `random_prior`. Half of the users are `PEAKED`: :math:`P = (p, \frac{1-p}{n-1}, \ldots)` with p on a
    grid from 1/n to 1 (Zamanlooy et al. 2025, section 5.2). The other half is `NEAR` the prior: :math:`P_j \propto q_j
    e^{z_j}` with normal z of std 0.3. The two groups carry these names.

    Arguments:
        n_categories: n >= 2.
        n_users: u >= 2.
        data_seed: public seed; synthetic users have nothing to hide.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> load_synthetic_users()
        Users('synthetic users': 200 users, 100 categories, 2 groups, prior: drawn at random)
    """
    for name, value in (("n_categories", n_categories), ("n_users", n_users)):
        if value < 2:
            raise ValueError(f"{name} is {value}: it must be >= 2")
    generator = torch.Generator().manual_seed(data_seed)
    prior = random_prior(n_categories, generator)
    peaks = torch.linspace(1 / n_categories, 1, n_users - n_users // 2, dtype=torch.float64)
    tilts = 0.3 * torch.randn(n_users // 2, n_categories, generator=generator, dtype=torch.float64)
    near = prior * tilts.exp()
    return Users(
        name="synthetic users",
        counts=torch.cat([peaked_users(peaks, n_categories), near / near.sum(1, keepdim=True)]),
        user_names=tuple(f"user {i + 1}" for i in range(n_users)),
        categories=tuple(f"category {j + 1}" for j in range(n_categories)),
        groups=(PEAKED,) * len(peaks) + (NEAR,) * len(near),
        prior=prior,
        prior_origin="drawn at random",
        notes=("the users are synthetic: nobody's data are in them",),
    )


def random_prior(n: int, generator: torch.Generator) -> Tensor:
    """A prior (n,) as in Zamanlooy et al. (2025), section 5.2: independent uniforms in (0, 1), normalised."""
    values = torch.rand(n, generator=generator, dtype=torch.float64).clamp_min(1e-12)
    return values / values.sum()


def peaked_users(peaks: Tensor, n: int) -> Tensor:
    """Distributions (u, n) with first entry ``peaks`` (u,) and equal other entries (Zamanlooy et al. 2025, section 5.2).

    Example:
        >>> peaked_users(torch.tensor([0.4], dtype=torch.float64), 3).tolist()
        [[0.4, 0.3, 0.3]]
    """
    rest = ((1 - peaks) / (n - 1)).unsqueeze(1).expand(-1, n - 1)
    return torch.cat([peaks.unsqueeze(1), rest], dim=1)
