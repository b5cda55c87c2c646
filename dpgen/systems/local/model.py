"""Finite samplers: public mechanisms on n categories that turn a private distribution P into one private draw."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from dpgen.facts import Fact
from dpgen.files import TensorFiles, damaged, read_tensor_files, write_files
from dpgen.privacy.mechanisms import Secrets, require_within
from dpgen.privacy.selection import draw_categorical
from dpgen.release import PrivateSampler
from dpgen.systems.local.divergences import Divergence, perspective

if TYPE_CHECKING:
    from dpgen.privacy.curator import Curator

EPSILON = (0.0, 700.0)
"""Range of epsilon of one draw, in nats: beyond, e^eps leaves the range of doubles."""

SUM_TOLERANCE = 1e-6  # rows may miss the sum 1 by this much
PRIOR_FLOOR = 1e-6  # atoms of a prior that are 0 are raised to this over n
ROUNDING = 1e-14  # sums this close to 1 are left as they are
_LEAST_ATOM = 1e-100  # far above what e^-eps could take out of the range of doubles


class FiniteSampler(ABC):
    r"""An $\epsilon$-private sampler: P to the distribution Q(P) of its one draw, with $Q_j(P) \le e^\epsilon Q_j(P')$.

    The definition is Husain et al. 2020, eq. 1. A sampler holds public numbers only, so it may be printed, saved and
    shared; together with a P it is private (`bind`).

    Formal guarantees:
        - Every entry of `apply` keeps the ratio to a relative 1e-12, for n to $10^6$ and epsilon in (0, 700].
        - `sample` draws exactly from the doubles that `apply` returns (`draw_categorical`).

    epsilon is of a draw, in (0, 700] nats; prior is q (n,), n >= 2, or n for the uniform one, see `public_prior`.
    """

    kind: ClassVar[str]
    kinds: ClassVar[dict[str, type[FiniteSampler]]] = {}

    def __init_subclass__(cls, *, kind: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind:
            cls.kind = kind
            FiniteSampler.kinds[kind] = cls

    def __init__(self, epsilon: float, prior: Tensor | int) -> None:
        self.epsilon = require_within("epsilon", epsilon, EPSILON, " nats")
        self.prior, self.raised = public_prior(prior)
        self.n = self.prior.numel()

    def get_params(self) -> dict[str, Any]:
        """Arguments of the constructor that make the same sampler."""
        return {"epsilon": self.epsilon, "prior": self.prior}

    def apply(self, p: Tensor) -> Tensor:
        """Distribution Q (float64) of the draw for each P, (n,) or (u, n); as private as P."""
        rows = distributions(p, self.n)
        return self._apply(rows) if rows.ndim == 2 else self._apply(rows[None])[0]

    @abstractmethod
    def _apply(self, p: Tensor) -> Tensor:
        """Rows (u, n) of Q for checked rows of P."""

    @abstractmethod
    def misses(self) -> Tensor:
        """Probability (n,) that a user who holds only category i releases another one, summed without cancellation."""

    @abstractmethod
    def keeps(self) -> Tensor:
        """Probability (n,) that a user who holds only category i releases it, without cancellation where it is tiny."""

    def worst_case(self, divergence: Divergence = "tv") -> float:
        r"""$\sup_P D_f(P \| Q(P))$ in closed form, for any f.

        $D_f$ is jointly convex, and so is its least value over a convex set: the supremum is at a P that holds one category i,
        where it is $h f(1/h) + (1-h) f(0)$ with $h = Q_i$, decreasing in h (Zamanlooy et al. 2025, lemmas 1 and 2).
        """
        keeps = self.keeps()
        worst = keeps.argmin()
        keep, miss = keeps[worst], self.misses()[worst]
        one, f = torch.ones_like(miss), perspective(divergence)
        return float(f(one, keep) + f(torch.zeros_like(miss), miss))

    def sample(self, p: Tensor, *, secrets: Secrets, k: int = 1) -> Tensor:
        """k private draws for each P: int64 (k,) for P (n,), (k, u) for P (u, n). Each draw costs its user epsilon.

        Nothing is charged here: `bind(p, curator).sample(k)` is the way to draw.
        """
        q = self.apply(p)
        drawn = draw_categorical(secrets, q if q.ndim == 2 else q[None], k=k)
        return (drawn if q.ndim == 2 else drawn[:, 0]).to(q.device)

    def bind(self, p: Tensor, curator: Curator, *, note: str | None = None) -> _BoundSampler:
        """The private sampler of the users with distributions P (n,) or (u, n): the curator charges every draw."""
        return _BoundSampler(self, p, curator=curator, note=note or f"{self.kind} sampler, one draw")

    def files(self) -> dict[str, bytes]:
        """The files of the mechanism, which is public; `mechanism.json` comes last and holds the checksum of all of it."""
        params = self.get_params()
        tensors = {name: value for name, value in params.items() if isinstance(value, Tensor)}
        options = {name: value for name, value in params.items() if name not in tensors}
        return TensorFiles.of(self.kind, {"options": options}, tensors).files("mechanism")

    def save(self, directory: Path) -> None:
        """Write its files."""
        write_files(directory, self.files())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(epsilon={self.epsilon:g}, n={self.n})"


class _BoundSampler(PrivateSampler):
    """Draws of a public mechanism for users with distributions P (n,) or (u, n).

    One user's whole distribution is one record of the ledger, and users are disjoint: a draw of all of them costs epsilon once.
    """

    def __init__(self, mechanism: FiniteSampler, p: Tensor, *, curator: Curator, note: str) -> None:
        if curator.relation != "replace_one":
            raise ValueError(f"the ledger has the relation {curator.relation!r}; a local sampler needs 'replace_one'")
        self._p = distributions(p, mechanism.n)
        super().__init__(epsilon=mechanism.epsilon, curator=curator, note=note)
        self.mechanism = mechanism

    def draw(self, secrets: Secrets, count: int) -> Tensor:
        return self.mechanism.sample(self._p, k=count, secrets=secrets)


def load_mechanism(directory: Path) -> FiniteSampler:
    """The inverse of `FiniteSampler.save`; ValueError where the files are not those of a mechanism."""
    card, tensors = read_tensor_files(directory, "mechanism", kinds=sorted(FiniteSampler.kinds))
    try:
        params: dict[str, Any] = card["options"] | tensors
        return FiniteSampler.kinds[card["kind"]](**params)
    except (KeyError, TypeError) as error:
        raise damaged(directory, "mechanism", error) from error


def distributions(p: Tensor, n: int, *, name: str = "P") -> Tensor:
    """`p` as float64 rows that sum to 1, (n,) or (u, n); sums off by up to 1e-6 are normalised, all else is a ValueError."""
    p = torch.as_tensor(p, dtype=torch.float64).detach()
    if p.ndim not in (1, 2) or p.shape[-1] != n:
        raise ValueError(f"{name} has shape {tuple(p.shape)}; it must be ({n},) or (u, {n}), one column per public category")
    if p.numel() == 0:
        return p.clone()
    least, total = float(p.min()), p.sum(-1, keepdim=True)
    if not least >= 0:
        raise ValueError(f"{name} has an entry {least!r}; entries must be numbers >= 0")
    worst = float((total - 1).abs().max())
    if not worst <= SUM_TOLERANCE:
        raise ValueError(f"{name} has a row whose sum is off 1 by {worst:.3g}; it must be within {SUM_TOLERANCE:g}")
    return p / total


def public_prior(prior: Tensor | int) -> tuple[Tensor, int]:
    """The public prior q (n,) that the samplers use, and how many of its atoms were raised; an int n: the uniform one.

    An atom that is 0 (or below 1e-100) would forbid every user a category: it is raised to 1e-6 / n with a warning.

    >>> public_prior(4)[0].tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    if isinstance(prior, bool):
        raise ValueError(f"prior is {prior!r}; it must be a distribution (n,) or a number of categories n >= 2")
    if isinstance(prior, int):
        prior = torch.full((max(prior, 0),), 1.0 / max(prior, 1), dtype=torch.float64)
    given = torch.as_tensor(prior).detach().to("cpu", torch.float64, copy=True)
    if given.ndim != 1 or given.numel() < 2:
        raise ValueError(f"prior has shape {tuple(given.shape)}; it must be (n,) with n >= 2 categories")
    n = given.numel()
    q = distributions(given, n, name="prior")
    empty = q < _LEAST_ATOM
    count = int(empty.sum())
    if not count:
        return (given if math.fabs(float(given.sum()) - 1) <= ROUNDING else q), 0
    told = Fact.RAISED_PRIOR(count=count, n=n, floor=PRIOR_FLOOR).sentence
    # Without a place in the code: it is about the data, and a line of Python beside it explains nothing.
    warnings.warn_explicit(f"{told} Pass a smoothed prior if that is not meant.", UserWarning, filename="prior", lineno=0)
    return torch.where(empty, PRIOR_FLOOR / n, q * (1 - count * PRIOR_FLOOR / n)), count
