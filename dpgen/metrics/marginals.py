"""How well synthetic records keep what few columns do together: k-way marginals and pairwise correlations."""

import math
from typing import Any

import torch
from torch import Tensor

from dpgen.metrics.queries import item_sets
from dpgen.metrics.sample_pair import SamplePair

_MOST_CELLS = 2**22


def marginal_errors(real: Tensor, synthetic: Tensor, k: int = 2, *, n_sets: int = 1000, seed: int = 0) -> Tensor:
    r"""Total variation $\frac12 \sum_c |P_S(c) - Q_S(c)|$ between the marginals of each set S of k columns.

    Their mean is the average variation distance of Zhang et al. (2014), section 6.1.

    Arguments:
        real: categories as integers >= 0, (n, d).
        synthetic: the same, (m, d).
        k: columns of a marginal, in [1, d].
        n_sets: at most so many sets of columns, drawn at random where there are more.
        seed: of that choice.

    Returns:
        float64 tensor (sets,), each in [0, 1].

    Raises:
        ValueError: wrong shapes, values that are no integers >= 0, k or n_sets out of range, or marginals of more than
            2^22 cells.

    Example:
        >>> x = torch.tensor([[0, 0], [1, 1]])
        >>> marginal_errors(x, torch.tensor([[0, 1], [1, 0]])).item(), marginal_errors(x, x.flip(0), 1).tolist()
        (1.0, [0.0, 0.0])
    """
    _require_categories(real, synthetic)
    d = real.shape[1]
    if not 1 <= k <= d:
        raise ValueError(f"k is {k}: it must be in [1, {d}]")
    if n_sets < 1:
        raise ValueError(f"n_sets is {n_sets}: it must be >= 1")
    sizes = torch.maximum(real.amax(0), synthetic.amax(0)).long().cpu() + 1
    sets = item_sets(d, k, n_sets=n_sets, generator=torch.Generator().manual_seed(seed))
    samples = [x.long().cpu().T.contiguous() for x in (real, synthetic)]
    return torch.stack([_marginal_error(samples, sizes, chosen) for chosen in sets])


def _marginal_error(samples: list[Tensor], sizes: Tensor, chosen: tuple[int, ...]) -> Tensor:
    """Total variation of the marginals of some columns in both samples, which are given as (d, n)."""
    cells = math.prod(sizes[list(chosen)].tolist())
    if cells > _MOST_CELLS:
        raise ValueError(f"columns {chosen} have a marginal of {cells} cells: at most {_MOST_CELLS} are counted")
    shares = []
    for columns in samples:
        cell = columns[chosen[0]]
        for j in chosen[1:]:
            cell = cell * sizes[j] + columns[j]
        shares.append(torch.bincount(cell, minlength=cells).double() / len(cell))
    return (shares[0] - shares[1]).abs().sum() / 2


def correlation_errors(real: Tensor, synthetic: Tensor) -> Tensor:
    r"""$|\rho_{ij} - \hat\rho_{ij}|$ of Pearson's correlations of all pairs of columns i < j; of binary columns, phi.

    A column that is constant in the real data correlates with nothing, and its pairs are left out. A column that is
    constant in the synthetic data alone has correlation 0 there.

    Arguments:
        real: numbers or bits, (n, d).
        synthetic: the same, (m, d).

    Returns:
        float64 tensor (pairs,), each in [0, 2].

    Raises:
        ValueError: wrong shapes, values that are not finite, or fewer than two real columns that vary.

    Example:
        >>> x = torch.tensor([[0, 0], [1, 1]])
        >>> correlation_errors(x, 1 - x).tolist(), round(correlation_errors(x, x[:1]).item(), 9)
        ([0.0], 1.0)
    """
    _require_pair(real, synthetic)
    for name, x in (("real", real), ("synthetic", synthetic)):
        if not bool(torch.isfinite(x).all()):
            raise ValueError(f"{name} has a value that is not finite: every value must be a number")
    varies = real.amax(0) > real.amin(0)
    d = int(varies.sum())
    if d < 2:
        raise ValueError(f"real has {d} columns that vary: at least 2 are needed")
    upper = torch.triu_indices(d, d, offset=1, device=real.device)
    own, other = (_correlations(x[:, varies])[upper[0], upper[1]] for x in (real, synthetic))
    return (own - other).abs()


def _correlations(x: Tensor) -> Tensor:
    """Pearson's correlations (d, d) of columns (n, d), 0 where a column is constant."""
    constant = x.amax(0) == x.amin(0)
    centred = x.double() - x.double().mean(0)
    centred[:, constant] = 0
    scaled = centred / centred.abs().amax(0).where(~constant, 1)
    scaled = scaled / scaled.norm(dim=0).where(~constant, 1)
    return (scaled.T @ scaled).clamp(-1, 1)


class MarginalError(SamplePair):
    """Mean of `marginal_errors` over batches of records (b, d).

    Arguments:
        k: columns of a marginal.
        n_sets: see `marginal_errors`.
        seed: of the choice of sets.
        kwargs: of `torchmetrics.Metric`.
    """

    higher_is_better = False

    def __init__(self, k: int = 2, *, n_sets: int = 1000, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.k, self.n_sets, self.seed = k, n_sets, seed

    def _compare(self, real: Tensor, synthetic: Tensor) -> float:
        return float(marginal_errors(real, synthetic, self.k, n_sets=self.n_sets, seed=self.seed).mean())


class CorrelationError(SamplePair):
    """Mean of `correlation_errors` over batches of records (b, d)."""

    higher_is_better = False

    def _compare(self, real: Tensor, synthetic: Tensor) -> float:
        return float(correlation_errors(real, synthetic).mean())


def _require_categories(real: Tensor, synthetic: Tensor) -> None:
    _require_pair(real, synthetic)
    for name, x in (("real", real), ("synthetic", synthetic)):
        if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
            raise ValueError(f"{name} has dtype {x.dtype}: categories must be integers")
        if int(x.min()) < 0:
            raise ValueError(f"{name} has {int(x.min())}: categories must be >= 0")


def _require_pair(real: Tensor, synthetic: Tensor) -> None:
    for name, x in (("real", real), ("synthetic", synthetic)):
        if x.ndim != 2 or x.numel() == 0:
            raise ValueError(f"{name} has shape {tuple(x.shape)}: it must be (records, columns), both at least 1")
    if real.shape[1] != synthetic.shape[1]:
        raise ValueError(f"synthetic has {synthetic.shape[1]} columns, real has {real.shape[1]}: they must agree")
