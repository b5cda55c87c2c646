"""The common interface of all samplers on n categories: public mechanisms that turn a private P into one private draw."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from dpgen.divergences import Divergence, perspective
from dpgen.files import TensorFiles, damaged, read_tensor_files
from dpgen.privacy.mechanisms import Secrets
from dpgen.privacy.selection import draw_categorical
from dpgen.release import PrivateSampler
from dpgen.systems.local.simplex import PRIOR_FLOOR, distributions, project_to_box, public_prior, require_epsilon, zero_atoms

if TYPE_CHECKING:
    from dpgen.privacy.curator import Curator

MOST_EXPLICIT = 4096


class FiniteSampler(ABC):
    r"""An $\epsilon$-private sampler: P to the distribution Q(P) of its one draw, with $Q_j(P) \le e^\epsilon Q_j(P')$.

    The definition is Husain et al. 2020, eq. 1. A sampler holds public numbers only, so it may be printed, saved and
    shared; together with a P it is private (`bind`).

    Formal guarantees:
        - Every entry of `apply` keeps the ratio to a relative 1e-12, for n to $10^6$ and epsilon in (0, 700].
        - `sample` draws exactly from the doubles that `apply` returns (`draw_categorical`).

    Arguments:
        epsilon: nats per draw, in (0, 700].
        prior: public distribution q (n,), n >= 2, or n for the uniform one.
        floor: atoms of q that are 0 are raised to floor / n (see `public_prior`).

    Raises:
        ValueError: an argument is out of its range.
    """

    kind: ClassVar[str]
    kinds: ClassVar[dict[str, type[FiniteSampler]]] = {}
    raised: int = 0  # atoms of the prior that were 0 and are at the floor

    def __init_subclass__(cls, *, kind: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind:
            cls.kind = kind
            FiniteSampler.kinds[kind] = cls

    def __init__(self, epsilon: float, prior: Tensor | int, *, floor: float = PRIOR_FLOOR) -> None:
        self.epsilon = require_epsilon(epsilon)
        self.prior = public_prior(prior, floor=floor)
        self.raised = zero_atoms(prior)
        self.n = self.prior.numel()

    def get_params(self) -> dict[str, Any]:
        """What the constructor needs to make the same sampler."""
        return {"epsilon": self.epsilon, "prior": self.prior}

    def apply(self, p: Tensor) -> Tensor:
        """Distribution Q of the draw for each P, same shape (n,) or (u, n), float64, on the device of P.

        Q is as private as P: only a draw from it may leave.

        Raises:
            ValueError: P is not made of distributions over the n public categories.
        """
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

        $D_f$ is jointly convex, and so is its least value over a convex set: the supremum is at a P that holds one
        category i, where it is $h f(1/h) + (1-h) f(0)$ with $h = Q_i$ the chance to keep it, decreasing in h
        (Zamanlooy et al. 2025, lemmas 1 and 2).

        Raises:
            ValueError: unknown divergence.
        """
        keeps = self.keeps()
        worst = keeps.argmin()
        keep, miss = keeps[worst], self.misses()[worst]
        one, f = torch.ones_like(miss), perspective(divergence)
        return float(f(one, keep) + f(torch.zeros_like(miss), miss))

    def sample(self, p: Tensor, *, secrets: Secrets, k: int = 1) -> Tensor:
        """k private draws for each P: int64 (k,) for P (n,), (k, u) for P (u, n). Each draw costs its user epsilon.

        Nothing is charged here: it is what the curator runs for `bind(p, curator).sample(k)`, which is the way to draw, on
        this machine or on the user's own.

        Arguments:
            p: private distributions (n,) or (u, n).
            secrets: secret randomness, as a curator hands it to a mechanism.
            k: draws of each.

        Raises:
            TypeError: `secrets` are no `SecureSource`.
            ValueError: P is not made of distributions, or k < 0.
        """
        q = self.apply(p)
        drawn = draw_categorical(secrets, q if q.ndim == 2 else q[None], k=k)
        return (drawn if q.ndim == 2 else drawn[:, 0]).to(q.device)

    def bind(self, p: Tensor, curator: Curator, *, note: str | None = None) -> BoundSampler:
        """The private sampler of the users with distributions P (n,) or (u, n): the curator charges every draw."""
        return BoundSampler(self, p, curator=curator, note=note or f"{self.kind} sampler, one draw")

    def save(self, directory: Path) -> None:
        """Write the mechanism, which is public; `mechanism.json` comes last and holds the checksum of all of it."""
        params = self.get_params()
        tensors = {name: value for name, value in params.items() if isinstance(value, Tensor)}
        options = {name: value for name, value in params.items() if name not in tensors}
        TensorFiles.of(self.kind, {"options": options}, tensors).write(directory, "mechanism")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(epsilon={self.epsilon:g}, n={self.n})"


class BoundSampler(PrivateSampler):
    r"""Draws of a public mechanism for users with distributions P; k draws of each user cost k epsilon.

    The unit of the ledger must be one user's whole distribution, under replace_one: one user is one record of it, and users
    are disjoint, so a draw of all of them together costs epsilon once.

    Arguments:
        mechanism: public sampler on n categories.
        p: private distributions (n,) or (u, n).
        curator: charges epsilon before each draw.
        note: name of the draws in the ledger.

    Raises:
        ValueError: P is not made of distributions, or the curator's relation is not replace_one.
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
    """The inverse of `FiniteSampler.save`.

    Raises:
        FileNotFoundError: no `mechanism.json` there.
        ValueError: unknown format or kind, or files that do not match their checksum.
    """
    card, tensors = read_tensor_files(directory, "mechanism", kinds=sorted(FiniteSampler.kinds))
    try:
        params: dict[str, Any] = card["options"] | tensors
        return FiniteSampler.kinds[card["kind"]](**params)
    except (KeyError, TypeError) as error:
        raise damaged(directory, "mechanism", error) from error


class LinearSampler(FiniteSampler):
    r"""Q = PK with a row-stochastic kernel K whose columns vary by at most $e^\epsilon$: one item drawn from P is enough."""

    @abstractmethod
    def _kernel(self) -> Tensor:
        """K (n, m)."""

    @abstractmethod
    def sample_items(self, items: Tensor, *, secrets: Secrets) -> Tensor:
        """One draw from row `items[...]` of K for each item, int64 of the same shape.

        Fed with a fresh draw of P it is distributed like `sample(P)`; the user's P itself is not needed.

        Arguments:
            items: private categories, any shape.
            secrets: secret randomness, as a curator hands it to a mechanism; nothing is charged here.

        Raises:
            TypeError: `secrets` are no `SecureSource`, or items are not integers.
            ValueError: an item outside [0, n).
        """

    def kernel(self) -> Tensor:
        """K (n, m) as a matrix.

        Raises:
            ValueError: n > 4096; `apply` and the draws never need the matrix.
        """
        if self.n > MOST_EXPLICIT:
            raise ValueError(f"kernel() has n * n entries and n is {self.n}; it must be <= {MOST_EXPLICIT} (use apply)")
        return self._kernel()

    def _checked_items(self, items: Tensor) -> Tensor:
        items = torch.as_tensor(items)
        if items.is_floating_point() or items.dtype == torch.bool:
            raise TypeError(f"items have dtype {items.dtype}; they must be integers")
        if items.numel() and not bool(((items >= 0) & (items < self.n)).all()):
            bad = items[(items < 0) | (items >= self.n)].reshape(-1)[0]
            raise ValueError(f"items hold {int(bad)}; they must be categories in [0, {self.n})")
        return items.detach().to("cpu", torch.int64).reshape(-1)


class BoxSampler(FiniteSampler):
    r"""Q = the nearest distribution to P in a public box $l \le Q \le u$, $u \le e^\epsilon l$ (see `project_to_box`).

    All distributions of such a box form an $\epsilon$-mollifier (Husain et al. 2020, definition 1), so a draw is
    $\epsilon$-private however Q was found in it (their lemma 2).
    """

    lower: Tensor
    upper: Tensor

    def box(self) -> tuple[Tensor, Tensor]:
        """The bounds (l, u), each (n,)."""
        return self.lower.clone(), self.upper.clone()

    def _apply(self, p: Tensor) -> Tensor:
        return project_to_box(p, self.lower.to(p.device), self.upper.to(p.device))

    def misses(self) -> Tensor:
        others = torch.nn.functional.pad(self.lower, (1, 1))
        before, after = others[:-2].cumsum(0), others[2:].flip(0).cumsum(0).flip(0)
        return torch.maximum(before + after, 1 - self.upper)

    def keeps(self) -> Tensor:
        return torch.minimum(self.upper, self.lower + (1 - self.lower.sum()).clamp_min(0))

    def best_tv(self, p: Tensor) -> Tensor:
        r"""Total variation to the nearest point, $\max(\sum (P-u)_+, \sum (l-P)_+)$, without finding it; one per row."""
        p = distributions(p, self.n)
        lower, upper = self.lower.to(p.device), self.upper.to(p.device)
        return torch.maximum((p - upper).clamp_min(0).sum(-1), (lower - p).clamp_min(0).sum(-1))
