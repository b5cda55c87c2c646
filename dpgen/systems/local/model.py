r"""Finite samplers: public mechanisms on n categories that turn a private distribution P into one private draw.

They are linear ones, Q = PK (the minimax kernel, randomised response), or projections of P into a public box. What they
lose is told by f-divergences $D_f(P \| Q) = \sum_j Q_j f(P_j / Q_j)$, f convex with f(1) = 0, by their perspective q f(p / q).
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dpgen.facts import Fact
from dpgen.files import TensorFiles, damaged, read_tensor_files, write_files
from dpgen.privacy.draws import compiled
from dpgen.privacy.mechanisms import Secrets, require_within
from dpgen.privacy.selection import draw_categorical, running_sum
from dpgen.release import PrivateSampler
from dpgen.systems.local.plan import NEIGHBOURHOODS

if TYPE_CHECKING:
    from dpgen.privacy.curator import Curator


# -- f-divergences -----------------------------------------------------------------------------------------------------


Perspective = Callable[[Tensor, Tensor], Tensor]


def _kl(p: Tensor, q: Tensor) -> Tensor:
    return torch.where(p > 0, p * (p / q).log(), 0.0)


DIVERGENCES: dict[str, Perspective] = {
    "tv": lambda p, q: (p - q).abs() / 2,
    "kl": _kl,
    "reverse_kl": lambda p, q: _kl(q, p),
    "chi2": lambda p, q: torch.where(p == q, 0.0, (p - q) ** 2 / q),
    "hellinger": lambda p, q: (p.sqrt() - q.sqrt()) ** 2 / 2,
    "js": lambda p, q: (_kl(p, (p + q) / 2) + _kl(q, (p + q) / 2)) / 2,
}
"""Total variation, Kullback-Leibler, its reverse, chi-square, squared Hellinger distance (in [0, 1]), Jensen-Shannon (nats)."""

Divergence = str | Callable[[Tensor], Tensor]


def perspective(divergence: Divergence) -> Perspective:
    """q f(p / q) of a name in `DIVERGENCES` or of a convex function f itself, which is taken to grow faster than t."""
    if callable(divergence):
        f = divergence
        return lambda p, q: torch.where(q > 0, q * f(p / q.clamp_min(5e-324)), torch.where(p > 0, torch.inf, 0.0))
    if divergence not in DIVERGENCES:
        raise ValueError(f"divergence is {divergence!r}; choose one of {sorted(DIVERGENCES)} or give a function f")
    return DIVERGENCES[divergence]


def f_divergence(p: Tensor, q: Tensor, divergence: Divergence = "tv") -> Tensor:
    r"""$D_f(P \| Q)$ of distributions (n,) or (u, n) (broadcast), one value per row; see `perspective`.

    >>> f_divergence(torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75])).item()
    0.25
    """
    return perspective(divergence)(p.to(torch.float64), q.to(torch.float64)).sum(-1)


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


# -- mechanisms --------------------------------------------------------------------------------------------------------


Reals = npt.NDArray[np.float64]
Ranks = npt.NDArray[np.int64]

MOST_EXPLICIT = 4096
_BLOCK = 1023  # sums are taken in blocks of 1024, so that errors grow like 1024 + n / 1024


class MinimaxSampler(FiniteSampler, kind="minimax"):
    r"""The kernel that is minimax optimal, for every f-divergence, among those that leave the public prior q as it is.

    With q sorted increasingly, $E = e^\epsilon - 1$ and $S_k = \sum_{j \ge k} q_j$, the recursion of Zamanlooy et al. 2025,
    Algorithm 1, unrolls to $K_{ij} = a_{\min(i,j)} q_j$ off the diagonal and $K_{ii} = e^\epsilon a_i q_i$ on it:

    $$ a_1 = \frac{1}{E q_1 + 1}, \qquad \frac{a_{k+1}}{a_k} = \frac{E q_k + S_{k+1}}{E q_{k+1} + S_{k+1}} . $$

    K is row-stochastic, qK = q, and the worst user holds the rarest category: total variation $(1 - q_1) / (E q_1 + 1)$
    (theorem 1). As $K_{ii} \ge q_i$, all $a_i \ge e^{-\epsilon}$: nothing underflows. K is never formed: O(n) for `apply`.
    One item that is drawn from P is enough for a draw: its one-hot code in place of P.

    >>> MinimaxSampler(1.0, torch.tensor([0.01, 0.99])).kernel()[1].tolist()
    [0.00983..., 0.99016...]
    """

    def __init__(self, epsilon: float, prior: Tensor | int) -> None:
        super().__init__(epsilon, prior)
        # q: sorted prior; a: the scales of the kernel; order: category of each rank; rank: its inverse.
        self._q, self._order = torch.sort(self.prior, stable=True)
        self._gain = math.exp(self.epsilon)
        self._tail = _after(self._q)
        self._a = _scales(self._q, self._tail, math.expm1(self.epsilon))

    @cached_property
    def _rank(self) -> Tensor:
        rank = torch.empty_like(self._order)
        rank[self._order] = torch.arange(self.n)
        return rank

    def _apply(self, p: Tensor) -> Tensor:
        rows = p.cpu().contiguous().numpy()
        mixed = mix_rows(rows, self._order.numpy(), self._q.numpy(), self._a.numpy(), self._gain)
        return torch.from_numpy(mixed).to(p.device)

    def misses(self) -> Tensor:
        missed = _before(self._a * self._q) + self._a * self._tail
        return torch.empty_like(missed).scatter_(0, self._order, missed)

    def keeps(self) -> Tensor:
        kept = self._gain * self._a * self._q
        return torch.empty_like(kept).scatter_(0, self._order, kept)

    def lower(self) -> Tensor:
        """Least entry (n,) of each column of K: row n has it, and in the last column row n - 1."""
        scale = torch.cat([self._a[:-1], self._a[-2:-1]])
        return torch.empty_like(scale).scatter_(0, self._order, scale * self._q)

    def kernel(self) -> Tensor:
        """K (n, n) as a matrix, n <= 4096; `apply` and the draws never need it."""
        if self.n > MOST_EXPLICIT:
            raise ValueError(f"kernel() has n * n entries and n is {self.n}; it must be <= {MOST_EXPLICIT} (use apply)")
        ranks = torch.arange(self.n)
        k = self._a[torch.minimum(ranks[:, None], ranks)] * self._q
        k.fill_diagonal_(0.0).diagonal().add_(self._gain * self._a * self._q)
        rank = self._rank
        return k[rank][:, rank]


class RandomizedResponse(MinimaxSampler, kind="randomized_response"):
    r"""k-ary randomised response (Warner 1965): the category itself with probability $e^\epsilon / (e^\epsilon + n - 1)$.

    It is the minimax kernel of the uniform prior (Zamanlooy et al. 2025, corollary 2); of `prior` only n is used.

    >>> round(RandomizedResponse(1.0, 2).kernel()[0, 0].item(), 4)
    0.7311
    """

    def __init__(self, epsilon: float, prior: Tensor | int) -> None:
        super().__init__(epsilon, prior if isinstance(prior, int) else int(torch.as_tensor(prior).numel()))


def _before(values: Tensor) -> Tensor:
    """Exclusive prefix sums."""
    result = torch.zeros_like(values)
    result[..., 1:] = running_sum(values[..., :-1])
    return result


def _after(values: Tensor) -> Tensor:
    """Exclusive suffix sums."""
    return _before(values.flip(-1)).flip(-1)


def _scales(q: Tensor, tail: Tensor, gap: float) -> Tensor:
    """a (n,) of increasing q, the sums `tail` after each entry and E.

    $a_k = R_k / (E q_k + S_k)$ with $R_{k+1} / R_k = 1 - q_k / (E q_k + S_k)$, what rows 1 to k - 1 leave over: each loss is at
    most 1/2, so the logarithms of R lose no digits at any epsilon.
    """
    whole = gap * q + (q + tail)
    return _before(torch.log1p(-q / whole)).exp() / whole


@compiled(error_model="numpy")
def mix_rows(p: Reals, order: Ranks, q: Reals, a: Reals, gain: float) -> Reals:
    r"""Rows $q_j (\sum_{i<j} a_i P_i + a_j \sum_{i>j} P_i + a_j e^\epsilon P_j)$ of P (u, n), j by rank, in place of j =
    order.
    """
    u, n = p.shape
    result = np.empty_like(p)
    for row in range(u):
        blocks, block = 0.0, 0.0
        for k in range(n):
            if k & _BLOCK == 0:
                blocks, block = blocks + block, 0.0
            result[row, order[k]] = blocks + block
            block += a[k] * p[row, order[k]]
        blocks, block = 0.0, 0.0
        for done in range(n):
            if done & _BLOCK == 0:
                blocks, block = blocks + block, 0.0
            k = n - 1 - done
            held = p[row, order[k]]
            result[row, order[k]] = q[k] * (result[row, order[k]] + a[k] * ((blocks + block) + gain * held))
            block += held
    return result


# -- projection into a box ---------------------------------------------------------------------------------------------


_STEPS = 300
_LEAST = 1e-300  # probabilities below it are treated as 0: u / P stays finite
_CLOSE = 4e-16
_PATIENCE = 12
_EXACT = 1e-13  # error that a row's sum may have


class BoxSampler(FiniteSampler):
    r"""Q = the nearest distribution to P in a public box $l \le Q \le e^\epsilon l$.

    Such a box is an $\epsilon$-mollifier (Husain et al. 2020, definition 1): a draw is $\epsilon$-private however Q was found
    in it (lemma 2). With $\sum l \le 1 \le \sum u$ the distribution

    $$ Q_j = \min(\max(P_j / C, l_j), u_j), \qquad C \text{ such that } \sum_j Q_j = 1 $$

    minimises $D_f(P \| Q)$ over the box for *every* convex f (Husain et al. 2020, eq. 8, has f = t log t and a relative
    mollifier). Proof: $Q_j f(P_j / Q_j)$ is convex in $Q_j$, with slope $f(t) - t f'(t)$ at $t = P_j / Q_j$, which does not
    increase with t; free coordinates have t = C, those at l have $t \le C$ and so slopes at least as high, those at u
    have $t \ge C$: moving mass between any two coordinates cannot gain. Total variation needs no linear programme (Zamanlooy
    et al. 2025, appendix A.8). Atoms with P = 0 cost $Q_j f(0)$, linear in their mass: when the positive atoms at u leave mass
    over, no finite 1/C exists and every way to fill the empty atoms is optimal.
    """

    def __init__(self, epsilon: float, prior: Tensor | int) -> None:
        super().__init__(epsilon, prior)
        self.lower = self._least()
        self.upper = math.exp(self.epsilon) * self.lower

    @abstractmethod
    def _least(self) -> Tensor:
        """The bound l (n,)."""

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


class RelativeMollifier(BoxSampler, kind="mollifier"):
    r"""Nearest distribution in $b q \le Q \le e^\epsilon b q$ around the prior, $b = \frac{\gamma + 1}{\gamma + e^\epsilon}$.

    It is the sampler of least worst case for the P with $q / \gamma \le P \le \gamma q$ and any f-divergence, where q has
    events of probability $1 / (\gamma + 1)$ (Ghoukasian, Lee, Asoodeh 2025, arXiv 2510.09485). The default is
    $\gamma = e^{\epsilon/2}$, where $b = e^{-\epsilon/2}$: the relative mollifier of Husain et al. 2020 (eqs. 5 and 8). The
    box of `ProjectedKernel` is another one from three categories on: its bounds are no multiple of q.

    gamma (`neighbourhood`) >= 1 is public and moves no privacy.

    >>> RelativeMollifier(1.0, torch.tensor([0.01, 0.99])).apply(torch.tensor([0.05, 0.95])).tolist()
    [0.01648..., 0.98351...]
    """

    def __init__(self, epsilon: float, prior: Tensor | int, neighbourhood: float | None = None) -> None:
        if neighbourhood is not None:
            require_within("neighbourhood", neighbourhood, NEIGHBOURHOODS)
        self.neighbourhood = neighbourhood
        super().__init__(epsilon, prior)

    def get_params(self) -> dict[str, Any]:
        return super().get_params() | ({} if self.neighbourhood is None else {"neighbourhood": self.neighbourhood})

    def _least(self) -> Tensor:
        if self.neighbourhood is None:
            return math.exp(-self.epsilon / 2) * self.prior
        return (self.neighbourhood + 1) / (self.neighbourhood + math.exp(self.epsilon)) * self.prior


class ProjectedKernel(BoxSampler, kind="projected_kernel"):
    r"""Projection into the smallest box of ratio $e^\epsilon$ around all that the minimax kernel K releases.

    With $l_j = \min_i K_{ij}$ the box is $l \le Q \le e^\epsilon l$. It is never worse than K: K is epsilon-LDP, so
    $l_j \le K_{ij} \le e^\epsilon l_j$ for every row, and every PK, a mixture of rows, lies in the box; the projection is the
    nearest point of it in every f-divergence. It needs P itself, not one draw of it.
    """

    def _least(self) -> Tensor:
        kernel = MinimaxSampler(self.epsilon, self.prior)
        self._kept = kernel.keeps()
        return kernel.lower()

    def keeps(self) -> Tensor:
        """Never less than the kernel keeps, which is known without cancellation."""
        return torch.maximum(super().keeps(), self._kept)


class QInvariantMinimax(BoxSampler, kind="q_invariant"):
    r"""The sampler of least worst case, for every f-divergence, among all that release q itself for P = q.

    Projection into $l \le Q \le e^\epsilon l$ with $l_j = \min(\max(\tau, e^{-\epsilon} q_j), q_j)$, where $\tau$ solves
    $E \tau = 1 - \sum_j l_j$, $E = e^\epsilon - 1$ (the left side increases, the right side decreases in $\tau$). The
    box is an epsilon-mollifier that contains q. Proof of optimality: for any epsilon-private sampler with Q(q) = q let
    $l'_j = \inf_P Q_j(P)$. Then $e^{-\epsilon} q \le l' \le q$, and who holds category i only is given it with
    probability $h_i \le \min(e^\epsilon l'_i, 1 - \sum_{j \ne i} l'_j)$; a box attains this bound, and by the closed form
    of `worst_case` the least h decides. Let 1 be the rarest category. If $q_1 \le \tau$, the box has
    $\min h = e^\epsilon q_1$ and no $l'_1$ can exceed $q_1$. Otherwise $l \ge \tau$, $l_1 = \tau$ (were
    $e^{-\epsilon} q_1 > \tau$, so were all and $E \tau = 1 - e^{-\epsilon}$, $\tau = e^{-\epsilon} \ge e^{-\epsilon} q_1$) and
    $\min h = e^\epsilon \tau$. A sampler with all $h_i > e^\epsilon \tau$ has $l' > \tau$ and $l' \ge e^{-\epsilon} q$, so
    $l' \ge l$ and $h_1 \le 1 - \sum_{j > 1} l_j = E \tau + l_1 = e^\epsilon \tau$, a contradiction.

    For the uniform prior it is `ParkSampler`.
    """

    def _least(self) -> Tensor:
        q, gap = self.prior, math.expm1(self.epsilon)
        least = math.exp(-self.epsilon) * q
        # E tau + sum clip(tau, e^-eps q, q) = 1 is a projection of (1, ..., 1, E), its last coordinate free.
        ones = torch.nn.functional.pad(torch.ones_like(q), (0, 1), value=gap)
        ends = torch.nn.functional.pad(least, (0, 1)), torch.nn.functional.pad(q, (0, 1), value=torch.inf)
        tau = project_to_box(ones[None], *ends)[0, -1] / gap
        return torch.clamp(tau, least, q)


class ParkSampler(BoxSampler, kind="park"):
    r"""The minimax sampler without a prior (Park et al. 2024): $Q = \max(P / r, 1 / (e^\epsilon + n - 1))$.

    Of `prior` only n is used.

    >>> ParkSampler(1.0, 2).apply(torch.tensor([0.05, 0.95])).tolist()
    [0.26894..., 0.73105...]
    """

    def __init__(self, epsilon: float, prior: Tensor | int) -> None:
        super().__init__(epsilon, prior if isinstance(prior, int) else int(torch.as_tensor(prior).numel()))

    def _least(self) -> Tensor:
        return torch.full_like(self.prior, 1 / (math.exp(self.epsilon) + self.n - 1))


def project_to_box(p: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Nearest rows (u, n) to `p` (u, n) in the box lower <= Q <= upper, both (n,), Q summing to 1 to rounding error.

    Draws follow Q / sum(Q), so privacy asks for both, entries in the box and the sum. Neither depends on the accuracy of C:
    entries are clipped last, and a row whose sum misses 1 by more than 1e-13 is moved within the box until it does not. The
    solver keeps a bracket of 1/C and takes Newton steps on the piecewise linear sum, geometric bisection where they are slow.

    Each row of p, float64 >= 0, has a positive entry; a positive factor on it changes nothing.
    """
    p = torch.where(p >= _LEAST, p, 0.0)
    seen = p > 0
    at_most = torch.where(seen, upper, lower).sum(1)
    result = torch.empty_like(p)
    full = at_most <= 1
    if bool(full.any()):
        result[full] = _filled(seen[full], lower, upper)
    open_rows = (~full).nonzero()[:, 0]
    if open_rows.numel():
        rest = p if open_rows.numel() == p.shape[0] else p[open_rows]
        result[open_rows] = torch.clamp(rest * inverse_scale(rest, lower, upper)[:, None], lower, upper)
    off = (result.sum(1) - 1).abs() > _EXACT
    if bool(off.any()):
        result[off] = _moved(result[off], lower, upper)
    return result


def _moved(q: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Rows of the box whose sums are off, moved towards its lower or upper end until they are 1."""
    excess = (q.sum(1) - 1)[:, None]
    down, up = q - lower, (upper.clamp_max(1.0) - q).clamp_min(0.0)
    less = down * (excess / down.sum(1, keepdim=True).clamp_min(_LEAST)).clamp(0, 1)
    more = up * (-excess / up.sum(1, keepdim=True).clamp_min(_LEAST)).clamp(0, 1)
    return torch.clamp(torch.where(excess > 0, q - less, q + more), lower, upper)


def _filled(seen: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Positive atoms at their upper bound, empty ones at l + t (u - l): there is no finite C."""
    least = torch.where(seen, upper, lower)
    room = torch.where(seen, 0.0, upper - lower)
    share = (1 - least.sum(1)) / room.sum(1).clamp_min(_LEAST)
    return least + share.clamp(0, 1)[:, None] * room


def inverse_scale(p: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """1/C (u,) of rows for which it exists."""
    low = torch.where(p > 0, lower / p, torch.inf).amin(1).clamp_min(_LEAST)
    high = torch.where(p > 0, upper.clamp_max(1.0) / p, 0.0).amax(1).clamp_min(low)
    scale = (1 / p.sum(1)).clamp(low, high)
    result = scale.clone()
    rows = torch.arange(p.shape[0], device=p.device)
    for step in range(_STEPS):
        free = p * scale[:, None]
        clipped = torch.clamp(free, lower, upper)
        result[rows] = scale
        excess, slope = clipped.sum(1) - 1, torch.where(clipped == free, p, 0.0).sum(1)
        low, high, scale, done = _narrowed(low, high, scale, excess, slope, step=step)
        if bool(done.any()):
            keep = ~done
            if not bool(keep.any()):
                break
            p, low, high, scale, rows = (x[keep] for x in (p, low, high, scale, rows))
    return result


def _narrowed(
    low: Tensor, high: Tensor, scale: Tensor, excess: Tensor, slope: Tensor, *, step: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The bracket with `scale` as an end, the next scale, and whether this one is the solution."""
    low, high = torch.where(excess <= 0, scale, low), torch.where(excess >= 0, scale, high)
    move = torch.where(slope > 0, excess / slope, torch.inf)
    done = (excess.abs() <= _CLOSE) | (move.abs() <= _CLOSE * scale) | (high <= low * (1 + _CLOSE))
    newton = scale - move
    # Newton may cycle, for the sum is neither convex nor concave: bisection in between bounds the number of steps.
    usable = (newton > low) & (newton < high) if step < _PATIENCE or step % 3 else torch.zeros_like(done)
    return low, high, torch.where(usable, newton, low.sqrt() * high.sqrt()), done
