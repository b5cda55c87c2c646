"""Empirical lower bounds on epsilon, and the finding of an audit: claim and bound side by side.

Sampling can refute a claimed (epsilon, delta), never prove it.
"""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import beta, binom
from torch import Tensor

from dpgen.statement import rounded_up

FEWEST = 20
"""Values without which no bound is worth computing."""

_MOST_THRESHOLDS = 1000
_SHARES = (0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
_LARGEST_EPSILON = 60.0


class Bound(NamedTuple):
    """A lower confidence bound on epsilon in nats, and the column of the statistics that gave it."""

    epsilon: float
    attack: int


def _low(hits: Any, trials: int, miss: float) -> Any:
    """Clopper and Pearson's lower bound on a probability, which fails with probability `miss`."""
    return np.where(hits > 0, beta.ppf(miss, np.maximum(hits, 1), trials - hits + 1), 0.0)


def _high(hits: Any, trials: int, miss: float) -> Any:
    """The upper bound."""
    return np.where(hits < trials, beta.ppf(1 - miss, hits + 1, np.maximum(trials - hits, 1)), 1.0)


def _tail(values: Tensor, thresholds: Tensor) -> Tensor:
    """Share of the values above each of the (sorted) thresholds."""
    return 1.0 - torch.searchsorted(values.sort().values, thresholds, right=True) / values.numel()


def epsilon_lower_bound(first: Tensor, second: Tensor, delta: float, *, confidence: float = 0.95) -> Bound:
    r"""Lower confidence bound on the epsilon at `delta` of a mechanism, from outputs on two neighbouring data sets.

    `first` and `second` are independent values of a statistics, (m,) or (m, a), of the output on each. For every event A
    :math:`\epsilon \ge \log((P(A) - \delta) / Q(A))`, in both orders. Half of the values choose statistic, order, side and
    threshold, the other half bound both probabilities. A mechanism that is (epsilon, delta)-private gives more than epsilon
    with probability at most 1 - confidence.

    Source: Kairouz, Oh, Viswanath 2015 (hypothesis tests); Jagielski, Ullman, Oprea 2020 (confidence by Clopper-Pearson).
    """
    first, second = _matrix(first), _matrix(second)
    miss, best, found = (1 - confidence) / 2, -1.0, (0, 0.0, 0)
    for attack in range(first.shape[1]):
        a, b = first[0::2, attack], second[0::2, attack]
        thresholds = _thinned(torch.cat([a, b]).unique())
        for kind, event in enumerate(_events(a, b, thresholds)):
            bounds = _log_ratio(*event, delta, miss)
            if float(bounds.max()) > best:
                best, found = float(bounds.max()), (attack, float(thresholds[bounds.argmax()]), kind)
    attack, threshold, kind = found
    events = _events(first[1::2, attack], second[1::2, attack], torch.tensor([threshold], dtype=torch.float64))
    return Bound(float(_log_ratio(*events[kind], delta, miss)[0]), attack)


def _matrix(values: Tensor) -> Tensor:
    """Values (m, a) of one or more statistics, float64."""
    if len(values) < FEWEST:
        raise ValueError(f"trials are {len(values)}; there must be at least {FEWEST} of each data set")
    if bool(values.isnan().any()):
        raise ValueError("trials hold NaN: every statistic must be a number")
    return values.double().reshape(len(values), -1)


def _thinned(thresholds: Tensor) -> Tensor:
    """At most a thousand of sorted thresholds, the outermost among them."""
    places = torch.linspace(0, len(thresholds) - 1, min(len(thresholds), _MOST_THRESHOLDS), dtype=torch.float64)
    return thresholds[places.round().long()]


Event = tuple[np.ndarray, int, np.ndarray, int]


def _events(first: Tensor, second: Tensor, thresholds: Tensor) -> list[Event]:
    """(hits, trials, hits, trials) of the events "above" and "not above", each in both orders of the data sets."""
    n, m = len(first), len(second)
    above_first = (_tail(first, thresholds) * n).round().numpy()
    above_second = (_tail(second, thresholds) * m).round().numpy()
    above, below = (above_first, n, above_second, m), (n - above_first, n, m - above_second, m)
    return [event for hits, n, others, m in (above, below) for event in ((hits, n, others, m), (others, m, hits, n))]


def _log_ratio(hits: np.ndarray, n: int, others: np.ndarray, m: int, delta: float, miss: float) -> np.ndarray:
    """log((P - delta) / Q), at least 0, from confidence bounds on P and Q that fail with probability `miss` each."""
    return np.asarray(np.log(np.maximum((_low(hits, n, miss) - delta) / _high(others, m, miss), 1.0)))


def guesses_p_value(correct: int, guesses: int, canaries: int, *, epsilon: float, delta: float) -> float:
    r"""Largest probability that at least `correct` of `guesses` are right if the mechanism is (epsilon, delta)-private.

    Each of m canaries was included by a fair coin, and r of the coins are guessed from the output. With
    :math:`W \sim \text{Binomial}(r, e^\epsilon / (1 + e^\epsilon))`

    .. math:: P(\ge v \text{ correct}) \le P(W \ge v) + 2 m \delta \max_{i \le v} P(v > W \ge v - i) / i.

    Source: Steinke, Nasr, Jagielski 2023, Theorem 5.2.

    >>> round(guesses_p_value(9, 10, 10, epsilon=0.0, delta=0.0), 6) == round(11 / 1024, 6)
    True
    """
    chance = 1 / (1 + math.exp(-epsilon))
    p = float(binom.sf(correct - 1, guesses, chance))
    if delta and correct:
        below = binom.pmf(np.arange(correct - 1, -1, -1), guesses, chance).cumsum() / np.arange(1, correct + 1)
        p += 2 * canaries * delta * float(below.max())
    return min(1.0, p)


def one_run_lower_bound(scores: Tensor, included: Tensor, delta: float, *, confidence: float = 0.95) -> Bound:
    """Lower confidence bound on epsilon at `delta` from canaries that were included by fair coins, perhaps all in one run.

    `scores`, (m,) or (m, a) for a statistics, are large for included canaries; `included` are the coins (m,), bool. The
    highest scores are guessed to be included, the lowest not, and the rest is left open. Every other canary serves to choose
    statistic and numbers of guesses; the bound comes from those that remain, for whom the choice is fixed.

    Source: Steinke, Nasr, Jagielski 2023, Algorithm 1 and Theorem 5.2.
    """
    scores = _matrix(scores)
    best, found = -1.0, (0, 0.0, 0.0)
    for attack in range(scores.shape[1]):
        for top, bottom in [(a, b) for a in _SHARES for b in _SHARES if a + b]:
            correct, guesses = _guessed(scores[0::2, attack], included[0::2], top, bottom)
            low = float(_low(correct, guesses, 1 - confidence))
            if low > best:
                best, found = low, (attack, top, bottom)
    attack, top, bottom = found
    correct, guesses = _guessed(scores[1::2, attack], included[1::2], top, bottom)
    return Bound(_largest_refuted(correct, guesses, len(included[1::2]), delta, 1 - confidence), attack)


def _guessed(scores: Tensor, included: Tensor, top: float, bottom: float) -> tuple[int, int]:
    """(correct, all) guesses when these shares of the canaries, at least one where not 0, are called in and out."""
    order = included[scores.argsort(stable=True)]
    ins, outs = (max(1, int(share * len(order))) if share else 0 for share in (top, bottom))
    return int(order[len(order) - ins :].sum()) + int((~order[:outs]).sum()), ins + outs


def _largest_refuted(correct: int, guesses: int, canaries: int, delta: float, level: float) -> float:
    """The largest epsilon under which so many correct guesses have probability at most `level`; 0 if there is none."""
    low, high = 0.0, _LARGEST_EPSILON
    if guesses_p_value(correct, guesses, canaries, epsilon=low, delta=delta) > level:
        return 0.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        refuted = guesses_p_value(correct, guesses, canaries, epsilon=middle, delta=delta) <= level
        low, high = (middle, high) if refuted else (low, middle)
    return low


@dataclass(frozen=True, kw_only=True)
class Finding:
    """An empirical lower bound on epsilon beside the epsilon in nats that the ledger claims, both at `delta`.

    `lower_bound` holds with probability `confidence`; `attack` is the statistic that it comes from, `trainings` how often the
    system was fitted, and `trials` the number of values that the bound was computed from.
    """

    audited: str
    neighbours: str
    claimed: float
    delta: float
    relation: str
    unit: str
    lower_bound: float
    confidence: float
    method: str
    attack: str
    trainings: int
    trials: int
    seconds: float

    @property
    def violated(self) -> bool:
        """Whether the bound refutes the claim."""
        return self.lower_bound > self.claimed

    @property
    def verdict(self) -> str:
        """ "VIOLATED" or "consistent"; the latter proves nothing."""
        return "VIOLATED" if self.violated else "consistent"

    def to_text(self) -> str:
        """The finding as aligned lines for a terminal."""
        at = f"at delta {rounded_up(self.delta)}"
        rows = {
            "audited": self.audited,
            "neighbours": f"{self.neighbours} ({self.relation}, {self.unit})",
            "claimed": f"epsilon {rounded_up(self.claimed)} {at}, by the ledger",
            "lower bound": f"epsilon {self.lower_bound:.4f} {at}, with confidence {self.confidence:.10g}",
            "evidence": f"{self.method}: {self.trainings} trainings, {self.trials} trials, by the {self.attack}",
            "time": f"{self.seconds:.1f} s",
            "verdict": self.verdict + ("" if self.violated else " (no audit can prove a claim)"),
        }
        return "\n".join(f"{name:<12} {value}" for name, value in rows.items())

    def to_json(self) -> str:
        """The finding as a JSON object."""
        return json.dumps({**asdict(self), "verdict": self.verdict}, indent=2, allow_nan=False) + "\n"
