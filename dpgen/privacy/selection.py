r"""Exact private selection: the exponential mechanism, frequent values, categorical draws, and the best of several runs.

**Over domains far too large to list.** A candidate of score q is drawn with probability proportional to $e^{\lambda
q}$. Candidates come in blocks with a common ceiling on $\lambda q$. A ceiling rounded up to a power of two turns the
proposal into one uniform integer below $\sum_b \mathrm{size}_b 2^{e_b}$; the candidate is kept with probability
$e^{\lambda q} 2^{-e_b}$, and the whole draw is repeated otherwise. Every decision is settled in doubles, or with 320 bits
when they are too close. So draws are within $2^{-128}$ (total variation) of the exact distribution. Like every rejection
sampler it takes a time that depends on the scores; timing is not part of the guarantee.

**Over given weights.** Outcome j has probability $w_j / \sum_i w_i$ of the doubles given, with no error at all. A
draw is the inversion of a uniform real number whose binary digits are made as they are needed. Doubles settle it
unless the 64 first digits fall within the rounding error of a boundary; then the boundary is summed exactly, in
integers, and more digits are drawn until the two differ. So an outcome of probability $e^{-300}$ has that
probability, and a ratio of two probabilities, which is what pure epsilon bounds, is never lost in a grid of uniforms.

**The exponential mechanism as a part of a Gaussian.** With scores that one record moves by at most D and log-weights
:math:`\lambda q`, the log ratios of the probabilities of an outcome on neighbours lie in an interval of length :math:`e_0 = 2
\lambda D`, which the common factor of the normalisers shifts. A mechanism whose log ratios lie in :math:`[t - e_0, t]` is a
post-processing of the two coins :math:`P(A) = p, Q(A) = q` whose log ratios are the ends of that interval, so
:math:`\operatorname{logit} p - \operatorname{logit} q = e_0`: its likelihood ratio is below theirs in the convex order. These
coins are a post-processing of N(mu, 1) against N(0, 1) where :math:`\Phi^{-1}(p) - \Phi^{-1}(q) \le \mu`. With :math:`g =
\Phi^{-1} \circ \operatorname{sigmoid}`, odd and of falling slope above 0, :math:`g(u) - g(u - e_0)` is largest at :math:`u =
e_0 / 2`, where it is :math:`2 g(e_0 / 2)`. So

.. math:: e_0(\mu) = 2 \operatorname{logit} \Phi(\mu / 2)

is within :math:`\mu`-GDP. Under replace-one a score moves by 2 D, the interval is twice as long, and the ledger counts
:math:`2 \mu`: :math:`e_0` is convex above 0, so :math:`e_0(2 \mu) \ge 2 e_0(\mu)`.

**The best of a secret number of runs.** A base mechanism Q draws one of the public options, each as likely, runs it, and
scores what came out; whatever the score reads of private data is part of Q. K is Poisson of mean :math:`\mu`; where it is 0
nothing is released.

With :math:`R(\alpha)` the Renyi loss of Q, the selection loses at most :math:`R(\alpha) + \mu \delta + \log(\mu) / (\alpha -
1)` where Q is :math:`(\log(1 + 1/(\alpha - 1)), \delta)`-DP (Papernot and Steinke 2022, Theorem 6). It has no pure bound.

Why a mixture of options costs what the worst of them costs: the drawn option is part of the output, independent of the data,
so :math:`e^{(\alpha - 1) R}` is the mean over the options, and the same delta serves where each has at most that.

Why the first of the best runs may be kept: given K the runs are independent and alike, so of those with an equal score the
first one is a uniform one, as if a secret uniform number that each run draws settled it: a total order on outputs, which the
theorem needs. A run that fails ends the selection: failure stands above all scores in that order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from dpgen.privacy.composition import BudgetExceeded, LedgerItem, Planned
from dpgen.privacy.draws import Integers, Reals, Words, compiled, exact_context
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.mechanisms import (
    OneOfDpEvent,
    Relation,
    Secrets,
    approximate_event,
    gaussian_event,
    pure_event,
    repeated_event,
    require_positive,
    require_whole,
)
from dpgen.privacy.noise import require_secure

if TYPE_CHECKING:
    from dp_accounting import DpEvent

LogWeight = Callable[[int, int], Fraction | None]

_SPAN = 320  # classes of ceilings below the highest; the rest joins the lowest of them
_ROUNDING = 1e-6  # ceilings may be this much too low for rounding errors
_BITS = 192
_ROUNDED = 1.0 - 1e-12  # e_0 is computed in float64
_TRIES = 32  # proposals and coins drawn together

_compile = compiled()


def exponential_event(rate: float, sensitivity: float = 1.0, *, zcdp: bool = False) -> DpEvent:
    r"""Price of one draw of the exponential mechanism whose scores move by at most `sensitivity` between neighbours.

    Pure: :math:`2 \lambda \Delta` (McSherry and Talwar 2007). zCDP: :math:`\lambda^2 \Delta^2 / 2` (losses in a range of
    :math:`2 \lambda \Delta`: Dong, Durfee and Rogers 2020, Cesar and Rogers 2021).

    >>> exponential_event(0.25)
    ApproximateDpEvent(epsilon=0.5, delta=0.0)
    """
    from dp_accounting import ZCDpEvent

    scaled = rate * sensitivity
    return ZCDpEvent(scaled**2 / 2) if zcdp else pure_event(2 * scaled)


def uniform_integers(source: Secrets, below: int, count: int) -> list[int]:
    """`count` independent uniform integers in [0, below), exactly."""
    if below < 1:
        raise ValueError(f"below is {below!r}; it must be a whole number >= 1")
    width = ((below - 1).bit_length() + 7) // 8 or 1
    surplus = 8 * width - (below - 1).bit_length()
    found: list[int] = []
    while len(found) < count:
        stock = source.random_bytes(2 * width * (count - len(found)))
        numbers = (int.from_bytes(stock[i : i + width], "big") >> surplus for i in range(0, len(stock), width))
        found.extend(number for number in numbers if number < below)
    return found[:count]


def exponential_coin(source: Secrets, exponent: Fraction, *, halvings: int = 0, digits: int | None = None) -> bool:
    r"""True with probability $e^x 2^{-h} \le 1$, x any rational number, to within $2^{-192}$; `digits` are 192 uniform bits."""
    if digits is None:
        digits = int.from_bytes(source.random_bytes(_BITS // 8), "big")
    x = float(exponent) - halvings * math.log(2)
    margin = 1e-9 + 1e-15 * (abs(float(exponent)) + abs(halvings))
    if x > margin:
        raise ValueError(f"exponent is {float(exponent)!r} with {halvings} halvings; the probability must be at most 1")
    probability, uniform = math.exp(min(x, 0.0)), digits * 2.0**-_BITS
    if abs(uniform - probability) > margin:
        return uniform < probability
    context = exact_context()
    power = context.exp(context.mpf(exponent.numerator) / exponent.denominator) * context.mpf(2) ** -halvings
    return bool(context.mpf(2 * digits + 1) * context.mpf(2) ** -(_BITS + 1) < power)


@_compile
def _classes(ceilings: Reals, sizes: Words, top: int, exponents: Integers, totals: Words) -> None:
    """Round ceilings (nats) up to powers of two, count candidates in each power; exponents are below `top`, >= 0."""
    for b in range(ceilings.size):
        below = top - math.ceil(ceilings[b] * 1.4426950408889634 + 1e-6)
        exponents[b] = min(max(below, 0), totals.size - 1)
        totals[exponents[b]] += sizes[b]


@_compile
def _locate(exponents: Integers, sizes: Words, wanted: int, rank: np.uint64) -> tuple[int, np.uint64]:
    """Block of the candidate number `rank` among those of class `wanted`, and its number inside the block."""
    for b in range(exponents.size):
        if exponents[b] == wanted:
            if rank < sizes[b]:
                return b, rank
            rank -= sizes[b]
    return -1, rank


def exponential_mechanism(source: Secrets, sizes: Words, ceilings: Reals, log_weight: LogWeight) -> tuple[int, int]:
    r"""Draw one candidate with probability proportional to $e^{w}$, priced by `exponential_event`; its block and number there.

    Blocks have `sizes` (m,) candidates, uint64, together below 2^64, and finite upper bounds `ceilings` (m,) of w, to
    $10^{-6}$; `log_weight` is the exact w of a candidate (block, number), or None for a number that stands for no candidate.

    >>> from dpgen.privacy.noise import SecureSource
    >>> w = [Fraction(0), Fraction(-1000)]
    >>> exponential_mechanism(SecureSource(), np.ones(2, np.uint64), np.array([0.0, -1000.0]), lambda b, i: w[b])
    (0, 0)
    """
    require_secure(source)
    _require_blocks(sizes, ceilings)
    sizes = sizes.astype(np.uint64)
    top = math.ceil(float(ceilings[sizes > 0].max()) / math.log(2) + _ROUNDING)
    exponents, totals = np.empty(sizes.size, np.int64), np.zeros(_SPAN, np.uint64)
    _classes(ceilings, sizes, top, exponents, totals)
    counts = [int(total) for total in totals]
    mass = sum(count << (_SPAN - 1 - e) for e, count in enumerate(counts))
    while True:
        coins = source.random_bytes(_TRIES * _BITS // 8)
        for i, ticket in enumerate(uniform_integers(source, mass, _TRIES)):
            chosen, rank = _class_of(ticket, counts)
            block, number = _locate(exponents, sizes, chosen, np.uint64(rank))
            weight = log_weight(int(block), int(number))
            digits = int.from_bytes(coins[i * _BITS // 8 : (i + 1) * _BITS // 8], "big")
            if weight is not None and exponential_coin(source, weight, halvings=top - chosen, digits=digits):
                return int(block), int(number)


def _require_blocks(sizes: Words, ceilings: Reals) -> None:
    if sizes.shape != ceilings.shape or sizes.ndim != 1 or not sizes.any():
        raise ValueError(
            f"sizes and ceilings have shapes {sizes.shape} and {ceilings.shape}; they must be (m,) with a candidate"
        )
    if not np.isfinite(ceilings).all():
        raise ValueError("ceilings hold NaN or infinite entries; they must be finite")


def _class_of(ticket: int, counts: list[int]) -> tuple[int, int]:
    """The class of powers of two that a uniform ticket below their sum falls in, and the candidate's rank in it."""
    for e, count in enumerate(counts):
        width = count << (_SPAN - 1 - e)
        if ticket < width:
            break
        ticket -= width
    return e, ticket >> (_SPAN - 1 - e)


@dataclass(frozen=True, eq=False)
class ExponentialMechanism:
    r"""One of m listed candidates, i with probability proportional to :math:`e^{\lambda q_i}`, with its own price.

    q (m,) are whole numbers and private, lambda is the `rate`, and `event` is the price of one draw.

    >>> ExponentialMechanism.pure(np.array([0, 3]), Fraction(1, 4), 2).event
    ApproximateDpEvent(epsilon=1.0, delta=0.0)
    >>> ExponentialMechanism.gaussian(np.array([0, 3]), 2.0, 1).event
    GaussianDpEvent(noise_multiplier=2.0)
    """

    scores: Integers
    rate: Fraction
    event: DpEvent

    @classmethod
    def pure(cls, scores: Integers, rate: Fraction, sensitivity: int) -> ExponentialMechanism:
        r"""Priced by a pure epsilon; D is the sensitivity under the ledger's relation.

        Formal guarantee: a record that moves every score by at most D moves every log-weight by at most :math:`\lambda D` and
        the logarithm of their sum by as much, so a draw is :math:`2 \lambda D`-DP (McSherry, Talwar 2007).
        """
        return cls(scores, rate, pure_event(float(2 * rate * sensitivity)))

    @classmethod
    def gaussian(cls, scores: Integers, noise_multiplier: float, sensitivity: int) -> ExponentialMechanism:
        r"""Priced as a Gaussian of multiplier s: :math:`\lambda = e_0(1/s) / (2 D)`, rounded down.

        Formal guarantee: within :math:`1/s`-GDP, see the module. D is how far adding or removing a record moves a score at
        most; replacing one moves it by 2 D.
        """
        mu = 1.0 / require_positive("noise_multiplier", noise_multiplier)
        rate = Fraction(bounded_range(mu) * _ROUNDED) / (2 * sensitivity)
        return cls(scores, rate, gaussian_event(noise_multiplier))

    def log_probabilities(self) -> Reals:
        """log P(i) (m,) of the candidates, as private as the scores."""
        weights = self.scores.astype(np.float64) * float(self.rate)
        shifted = weights - weights.max()
        return np.asarray(shifted - np.log(np.exp(shifted).sum()))

    def draw(self, secrets: Secrets, count: int) -> Integers:
        """Candidates (count,), independent draws."""
        sizes, ceilings = np.ones(len(self.scores), np.uint64), self.scores.astype(np.float64) * float(self.rate)
        drawn = [
            exponential_mechanism(secrets, sizes, ceilings, lambda block, _: int(self.scores[block]) * self.rate)[0]
            for _ in range(count)
        ]
        return np.array(drawn, np.int64)


def bounded_range(mu: float) -> float:
    r"""Length e_0 of the interval of log ratios that a mechanism within :math:`\mu`-GDP may have, see the module.

    >>> round(bounded_range(1.0), 4), round(bounded_range(0.01) / 0.01, 4)
    (1.6139, 1.5958)
    """
    from scipy.special import log_ndtr

    return 2.0 * float(log_ndtr(mu / 2) - log_ndtr(-mu / 2))


@dataclass(frozen=True, eq=False)
class FrequentCounts:
    r"""All values v whose noisy count :math:`c_v + N(0, \sigma^2)` reaches t, with it; the noise is rounded to whole numbers.

    :math:`t = m + \lceil \sigma z \rceil + 1` with :math:`\Pr[N(0, 1) > z] = \delta / m`, for units of at most m rows.

    Formal guarantee: what :math:`(0, \delta)`-DP and the Gaussian mechanism of counts that a row moves by 1 cost together. Let
    A be the mechanism on D, G the same on those values that D and its neighbour both hold, and E the event that A releases
    some other value. Of these D has at most m rows, so each has a count of at most m, there are at most m of them, and
    :math:`q = \Pr[E] \le m \Pr[N(0, \sigma^2) \ge \sigma z] \le \delta`. Values have noise of their own, so given not E the law
    of A is that of G: :math:`A = (1 - q) G + q A_E`. The two G are post-processings of a Gaussian mechanism; whether E
    happens is a coin of chance q in each of the data sets, whose outcomes E differ: a (0, :math:`\max(q, q')`)-DP pair.
    So both are post-processings of the two mechanisms side by side, under add/remove and replace-one. `event` is the price of
    the Gaussian, in units of a row; `failure` that of E, of a whole unit.

    `counts` (k,), whole numbers, of the values that occur are private, and so is k; `noise_std` is in rows, delta in (0, 1/2].

    Source: Wilkins, Kifer, Zhang, Karrer 2024 (exact analysis of the Gaussian threshold mechanism), of which this is a bound.

    >>> FrequentCounts(np.array([900, 3]), 20.0, 1e-6).threshold
    98
    """

    counts: Integers
    noise_std: float
    delta: float
    rows: int = 1
    relation: Relation = "add_remove"

    def __post_init__(self) -> None:
        require_positive("noise_std", self.noise_std)
        require_whole("rows", self.rows)
        if not 0 < self.delta <= 0.5:
            raise ValueError(f"delta is {self.delta}; it must be in (0, 1/2]: without delta no unknown value can be released")
        if self.counts.min(initial=1) < 1:
            raise ValueError("counts hold a value that does not occur; counts must be at least 1")

    @property
    def event(self) -> DpEvent:
        """Price of the counts of one row: a replaced one moves them by sqrt(2), for which the ledger takes 2."""
        return gaussian_event(self.noise_std * (1.0 if self.relation == "add_remove" else math.sqrt(2.0)))

    @property
    def failure(self) -> DpEvent:
        """Price of the names of values."""
        return approximate_event(0.0, self.delta)

    @property
    def threshold(self) -> int:
        """The noisy count t at which a value is released."""
        from scipy.special import ndtri

        z = -float(ndtri(self.delta / self.rows)) * (1 + 1e-9)
        return self.rows + math.ceil(self.noise_std * z) + 1

    def log_probabilities(self) -> Reals:
        """log P(v is released) (k,); as private as the counts."""
        from scipy.special import log_ndtr

        return np.asarray(log_ndtr((self.counts.astype(np.float64) - self.threshold + 0.5) / self.noise_std))

    def draw(self, secrets: Secrets, count: int) -> list[tuple[Integers, Integers]]:
        """`count` independent releases: places in `counts` of the values, and their noisy counts.

        Places are in the order of `counts`, which is private: show the values in an order of their own.
        """
        found = []
        for _ in range(count):
            places, passing = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
            for first in range(0, len(self.counts), _AT_ONCE):
                own = self.counts[first : first + _AT_ONCE].astype(np.int64)
                own += secrets.rounded_normal(len(own), noise_std=self.noise_std).numpy()
                there = np.flatnonzero(own >= self.threshold)
                places.append(first + there)
                passing.append(own[there])
            found.append((np.concatenate(places), np.concatenate(passing)))
        return found


Boundary = Callable[[int], Fraction]

_AT_ONCE = 2**20  # counts whose noise is drawn at once: what is held beside them
_BLOCK = 1024
_HALF = np.int64(2**26)
_UNIT_ROUNDOFF = 2.0**-53


def running_sum(values: Tensor) -> Tensor:
    """Inclusive prefix sums along the last dimension, in blocks: the error grows like 1024 + n/1024, not like n."""
    n = values.shape[-1]
    if n <= 4 * _BLOCK:
        return values.cumsum(-1)
    inner = torch.nn.functional.pad(values, (0, -n % _BLOCK)).unflatten(-1, (-1, _BLOCK)).cumsum(-1)
    before = torch.nn.functional.pad(inner[..., :-1, -1].cumsum(-1), (1, 0))
    return (inner + before.unsqueeze(-1)).flatten(-2)[..., :n]


def scan_error(n: int) -> float:
    """Bound on the relative error of `running_sum` over n values >= 0, conversions of uniforms included."""
    return ((n if n <= 4 * _BLOCK else _BLOCK + n // _BLOCK) + 32) * _UNIT_ROUNDOFF


def exact_sum(values: Reals) -> Fraction:
    """The sum of n <= 2^26 doubles >= 0 without rounding."""
    fraction, exponent = np.frexp(np.asarray(values, np.float64))
    mantissa = (fraction * 2.0**53).astype(np.int64)
    shift = exponent.astype(np.int64) + 1074
    # Sums of 27-bit halves stay below 2^53, where doubles count exactly.
    high, low = (np.bincount(shift, half.astype(np.float64)) for half in (mantissa // _HALF, mantissa % _HALF))
    total = sum((int(h) * int(_HALF) + int(rest)) << s for s, (h, rest) in enumerate(zip(high, low)) if h or rest)
    return Fraction(total, 2 ** (1074 + 53))


def resolve(word: int, boundary: Boundary, n: int, *, guess: int, total: Fraction, source: Secrets) -> int:
    """Smallest j < n with $u T$ < boundary(j), for a uniform real u in [0, 1) that begins with the 64 digits of `word`.

    Boundaries are exact and increase to `total` T at j = n - 1. `guess` is where to look first: it changes the time that is
    taken, never the result. The source gives further digits of u where 64 do not settle a comparison.
    """
    digits, bits = word, 64

    def below(limit: Fraction) -> bool:
        nonlocal digits, bits
        while True:
            if (digits + 1) * total <= limit * 2**bits:
                return True
            if digits * total >= limit * 2**bits:
                return False
            digits, bits = digits << 64 | int.from_bytes(source.random_bytes(8), "big"), bits + 64

    low, high, step = 0, n - 1, 1
    if below(boundary(guess)):
        high = guess
        while high > low and below(boundary(max(high - step, 0))):
            high, step = max(high - step, 0), 2 * step
        low = max(high - step + 1, 0)
    else:
        low = guess + 1
        while low < high and not below(boundary(min(low + step, high) - 1)):
            low, step = min(low + step, high), 2 * step
        high = min(low + step - 1, high)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if below(boundary(middle)) else (middle + 1, high)
    return low


def draw_categorical(source: Secrets, weights: Tensor, *, k: int = 1) -> Tensor:
    """Draw k outcomes of each row of weights (u, n); int64 (k, u) on the CPU, exactly in proportion to the weights.

    Weights are float64, finite and >= 0, each row with a positive sum, which need not be 1. Only a `SecureSource` may draw.

    >>> from dpgen.privacy.noise import SecureSource
    >>> draw_categorical(SecureSource(), torch.tensor([[0.0, 1.0], [3.0, 0.0]], dtype=torch.float64), k=2).tolist()
    [[1, 0], [1, 0]]
    """
    weights = weights.detach().to("cpu", torch.float64).contiguous()
    if weights.ndim != 2 or weights.shape[1] < 1 or k < 0:
        raise ValueError(f"weights must have shape (u, n) with n >= 1 and k must be >= 0, got {tuple(weights.shape)} and {k}")
    u, n = weights.shape
    cumulative = running_sum(weights)
    totals = cumulative[:, -1:]
    if not bool(((weights.amin(1, keepdim=True) >= 0) & (totals > 0) & (totals < torch.inf)).all()):
        raise ValueError("weights must be finite and >= 0, with a positive sum in every row")
    words = require_secure(source).words(u * k)  # the first 64 digits of uniform reals, which doubles are at most 2^-53 below
    target = torch.from_numpy((words >> np.uint64(11)) * 2.0**-53).reshape(u, k) * totals
    guess = torch.searchsorted(cumulative, target, right=True).clamp_(max=n - 1)
    above = cumulative.gather(1, guess) - target
    below = target - cumulative.gather(1, (guess - 1).clamp_(min=0)).masked_fill_(guess == 0, -torch.inf)
    near = torch.minimum(above, below) <= scan_error(n) * totals
    for row, column in near.nonzero().tolist():
        values = weights[row].numpy()
        guess[row, column] = resolve(
            int(words[row * k + column]),
            lambda j, values=values: exact_sum(values[: j + 1]),  # type: ignore[misc]
            n,
            guess=int(guess[row, column]),
            total=exact_sum(values),
            source=source,
        )
    return guess.T.contiguous()


# -- the best of several runs ---------------------------------------------------------------------------------------------

SELECTION = "the best of a secret number of runs"
"""Note of a selection in the ledger."""


def draw_runs(mean: float, secrets: Secrets) -> int:
    """K, by inversion of 192 uniform bits with 320 bits of the Poisson law: within 2^-128 of it in total variation."""
    context = exact_context()
    uniform = context.mpf(2 * int.from_bytes(secrets.random_bytes(_BITS // 8), "big") + 1) * context.mpf(2) ** -(_BITS + 1)
    k, term = 0, context.exp(-context.mpf(mean))
    below = term
    while below <= uniform:
        k += 1
        term = term * mean / k
        below += term
    return k


class Granted(Ledger):
    """The ledger of one run of a selection that `whole` has been charged for: it grants its plan once, and nothing else."""

    def __init__(self, plan: Sequence[Planned], whole: Ledger) -> None:
        super().__init__(None, delta=whole.delta, **whole.terms)
        self._granted: Counter[str] | None = _counted(plan)

    def _pay(self, more: Counter[LedgerItem]) -> None:
        if _counted(item.line(count) for item, count in more.items()) != self._granted:
            names = ", ".join(f"{count} x {item.note!r}" for item, count in more.items())
            raise BudgetExceeded(f"a run of a selection asks for {names}, which the selection has not paid for")
        self._granted = None


def _counted(plan: Iterable[Planned]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line in plan:
        counts[line.key] += line.count
    return counts


def selection_event(trials: Sequence[Sequence[Planned]], priced: Sequence[Planned], mean: float) -> DpEvent:
    """Price of the best of K scored runs, `mean` of them expected in [2, 1000], of trials drawn at random, by their plans.

    It is that of the worst trial and one score (`priced`).
    """
    from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

    bases: list[DpEvent] = []
    for trial in trials:
        plan = [*trial, *priced]
        base = ComposedDpEvent([p.priced if p.count == 1 else SelfComposedDpEvent(p.priced, p.count) for p in plan])
        bases += [base] if base not in bases else []
    if not bases:
        raise ValueError("trials are empty; a selection needs at least one")
    return repeated_event(bases[0] if len(bases) == 1 else OneOfDpEvent(bases), mean)
