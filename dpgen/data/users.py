"""Users that each hold a distribution over the same public categories, beside a public prior, and synthetic ones."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dpgen.containers import Form
from dpgen.facts import Fact, Said

# -- users -------------------------------------------------------------------------------------------------------------


UNIFORM = "uniform"
"""Origin of the prior when no public knowledge is used."""

PRIVATE = "private histogram"
"""Origin of a prior that has to be measured on the private users, by a mechanism that pays for it."""

SUM_TOLERANCE = 1e-6
"""A prior may miss the sum 1 by this much (it is renormalised); more is refused."""

MAX_CELLS = 2**29
"""Largest table (users x categories, eight bytes each) that is built."""


@dataclass(frozen=True, eq=False, repr=False)
class Users:
    r"""Event counts ``counts`` (u, n) of u users over n public categories; user i holds :math:`P_i = c_i / \sum_j c_{ij}`.

    Private is each user's whole row; the names of users and categories, the groups and the prior are public. The
    representation shows sizes only.

    Arguments:
        name: what the data are called in reports.
        counts: float64 >= 0 with a positive sum in every row, shape (u, n), n >= 2: events, clicks, sums of ratings.
        user_names: u different names.
        categories: n different names.
        groups: the public group of each user (age, region), or None.
        prior: PUBLIC distribution over the categories, shape (n,), or None: nothing is known beforehand.
        prior_origin: where the prior comes from, in words; `UNIFORM` or `PRIVATE` exactly when ``prior`` is None.
        facts: what a privacy statement says of them.
        form: in which draws are given back, a public fact; None: as a table of user, group, draw and category.

    Raises:
        ValueError: if a shape, a name or a value is outside the stated range.

    Example:
        >>> Users("tiny", torch.tensor([[3.0, 1.0]], dtype=torch.float64), ("ann",), ("tea", "milk"))
        Users('tiny': 1 users, 2 categories, no groups, prior: uniform)
    """

    name: str
    counts: Tensor
    user_names: tuple[str, ...]
    categories: tuple[str, ...]
    groups: tuple[str, ...] | None = None
    prior: Tensor | None = None
    prior_origin: str = UNIFORM
    facts: tuple[Fact | Said, ...] = ()
    form: Form | None = None

    def __post_init__(self) -> None:
        _require_counts(self.counts)
        _require_names("user_names", self.user_names, self.u)
        _require_names("categories", self.categories, self.n)
        if self.groups is not None and len(self.groups) != self.u:
            raise ValueError(f"groups has length {len(self.groups)}, there are {self.u} users: they must agree")
        if (self.prior is None) != (self.prior_origin in (UNIFORM, PRIVATE)):
            given = "given" if self.prior is not None else "missing"
            raise ValueError(f"prior is {given} but prior_origin is {self.prior_origin!r}: they contradict each other")
        if self.prior is not None:
            object.__setattr__(self, "prior", checked_prior(self.prior, n=self.n))

    def __repr__(self) -> str:
        groups = "no groups" if self.groups is None else f"{len(self.group_names)} groups"
        return f"Users({self.name!r}: {self.u} users, {self.n} categories, {groups}, prior: {self.prior_origin})"

    @property
    def u(self) -> int:
        """Number of users."""
        return len(self.counts)

    @property
    def n(self) -> int:
        """Number of categories."""
        return self.counts.shape[1]

    @property
    def distributions(self) -> Tensor:
        """Each user's distribution, float64, shape (u, n), rows that sum to 1."""
        return normalised(self.counts)

    @property
    def group_names(self) -> tuple[str, ...]:
        """The groups that occur, sorted; numbers in numeric order before names."""
        return tuple(sorted(set(self.groups or ()), key=natural_order))


def normalised(counts: Tensor) -> Tensor:
    """Rows of counts (u, n) divided by their sums, without overflow.

    Example:
        >>> normalised(torch.tensor([[1.0, 3.0]], dtype=torch.float64)).tolist()
        [[0.25, 0.75]]
    """
    scaled = counts / counts.amax(dim=-1, keepdim=True)
    return scaled / scaled.sum(dim=-1, keepdim=True)


def checked_prior(prior: Tensor, *, n: int, name: str = "prior") -> Tensor:
    """The prior (n,) in float64, renormalised."""
    if prior.shape != (n,):
        raise ValueError(f"{name} has shape {tuple(prior.shape)}: it must be ({n},), one probability for each category")
    values = prior.to(torch.float64)
    wrong = ~(torch.isfinite(values) & (values >= 0))
    if bool(wrong.any()):
        where = int(wrong.nonzero()[0])
        raise ValueError(f"{name} has {values[where]:g} in entry {where + 1}: it must be a finite number >= 0")
    total = float(values.sum())
    if abs(total - 1) > SUM_TOLERANCE:
        raise ValueError(f"{name} sums to {total:.8g}: it must sum to 1 within {SUM_TOLERANCE:g}")
    return values / total


def natural_order(name: str) -> tuple[int, int, str]:
    """Sorting key: numbers in numeric order, then names in alphabetical order.

    Example:
        >>> sorted(["10", "b", "9", "a"], key=natural_order)
        ['9', '10', 'a', 'b']
    """
    return (0, int(name), name) if name.isdecimal() and len(name) < 100 else (1, 0, name)


def _require_counts(counts: Tensor) -> None:
    if counts.ndim != 2 or counts.dtype != torch.float64:
        raise ValueError(
            f"counts has shape {tuple(counts.shape)} and {counts.dtype}: it must be (users, categories) of float64"
        )
    if counts.shape[1] < 2:
        raise ValueError(f"counts has {counts.shape[1]} categories: at least 2 are needed, one alone says nothing")
    wrong = ~(torch.isfinite(counts) & (counts >= 0))
    if bool(wrong.any()):
        row, column = wrong.nonzero()[0].tolist()
        raise ValueError(f"counts has another value in row {row + 1}, column {column + 1}: it must be finite and >= 0")
    empty = ~(counts > 0).any(dim=1)
    if bool(empty.any()):
        raise ValueError(f"counts has no events in row {int(empty.nonzero()[0]) + 1}: users without events must be left out")


def _require_names(what: str, names: Sequence[str], length: int) -> None:
    if len(names) != length:
        raise ValueError(f"{what} has length {len(names)}: it must have {length}, as counts has")
    if len(set(names)) != length:
        [(repeated, _)] = Counter(names).most_common(1)
        raise ValueError(f"{what} names {repeated!r} more than once")


# -- synthetic users ---------------------------------------------------------------------------------------------------


PEAKED, NEAR = "peaked", "near the prior"


def load_synthetic_users(*, n_categories: int = 100, n_users: int = 200, data_seed: int = 0) -> Users:
    r"""Users in the two regimes that decide which sampler is better, and the public prior, all drawn by a public seed.

    The prior is independent uniforms in (0, 1), normalised. Half of the users are `PEAKED`: :math:`P = (p, \frac{1-p}{n-1},
    \ldots)` with p on a grid from 1/n to 1 (both as in Zamanlooy et al. 2025, section 5.2). The other half is `NEAR` the
    prior: :math:`P_j \propto q_j e^{z_j}` with normal z of std 0.3. The two groups carry these names.

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
    uniforms = torch.rand(n_categories, generator=generator, dtype=torch.float64).clamp_min(1e-12)
    prior = uniforms / uniforms.sum()
    peaks = torch.linspace(1 / n_categories, 1, n_users - n_users // 2, dtype=torch.float64)[:, None]
    others = ((1 - peaks) / (n_categories - 1)).expand(-1, n_categories - 1)
    tilts = 0.3 * torch.randn(n_users // 2, n_categories, generator=generator, dtype=torch.float64)
    near = prior * tilts.exp()
    return Users(
        name="synthetic users",
        counts=torch.cat([torch.cat([peaks, others], dim=1), near / near.sum(1, keepdim=True)]),
        user_names=tuple(f"user {i + 1}" for i in range(n_users)),
        categories=tuple(f"category {j + 1}" for j in range(n_categories)),
        groups=(PEAKED,) * len(peaks) + (NEAR,) * len(near),
        prior=prior,
        prior_origin="drawn at random",
        facts=(Fact.SYNTHETIC,),
    )
