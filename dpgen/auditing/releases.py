"""Audit at the curator: the likelihood ratio, under two neighbouring data sets, of everything that a fit releases."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.noise import SecureSource
from dpgen.privacy.prefix_sums import prefix_sensitivity, toeplitz_product

if TYPE_CHECKING:
    from dpgen.privacy.exact_sums import BoundedSum
    from dpgen.privacy.mechanisms import Mechanism

CERTAIN = 60.0
"""A log-likelihood ratio that stands for certainty."""


class Seen(NamedTuple):
    """One release: its note, what was given out, and its log-likelihood under the data that it came from."""

    note: str
    outcome: Any
    likelihood: float


class _Enough(Exception):
    """All that the adversary looks at has been released; what follows is post-processing."""


class _Diverged(Exception):
    """A fit on the other data set asks for another release, although all that it has seen was the same."""


@dataclass
class _Watch:
    """Record of an adversary: what was released, or is read out again to a fit on another data set.

    Arguments:
        replay: what was written down during another fit; None: write down.
        most: releases after which the fit is stopped; None: never.
    """

    replay: list[Seen] | None = None
    most: int | None = None
    seen: list[Seen] = field(default_factory=list)
    ratio: float = 0.0  # log p / p' of what was replayed, p that of the fit that it was written down in

    def given(self, note: str, outcome: Any, likelihood: Callable[[Any], float]) -> Any:
        """Outcome that the fit is given: its own, or that of the other fit."""
        if self.replay is not None:
            other = self.replay[len(self.seen)] if len(self.seen) < len(self.replay) else Seen("", None, 0.0)
            if other.note != note or _shape(other.outcome) != _shape(outcome):
                raise _Diverged
            self.ratio += other.likelihood - likelihood(other.outcome)
            outcome = other.outcome
        self.seen.append(Seen(note, outcome, likelihood(outcome)))
        if len(self.seen) == self.most:
            raise _Enough
        return _copied(outcome)


class _WatchedCurator(Curator):
    """The real curator, every release of which goes through an adversary's hands."""

    def __init__(self, ledger: Ledger, watch: _Watch, *, source: SecureSource | None = None) -> None:
        super().__init__(ledger, source=source)
        self.watch = watch

    def gaussian(self, note: str, sums: BoundedSum, noise_multiplier: float, **more: Any) -> Tensor:
        values, std = sums.values.double().clone() * sums.step, noise_multiplier * sums.sensitivity * self._steps(sums)

        def likelihood(noisy: Tensor) -> float:
            return -float(((noisy.double() - values) / std).square().sum()) / 2

        noisy: Tensor = self.watch.given(note, super().gaussian(note, sums, noise_multiplier, **more), likelihood)
        return noisy

    def laplace(self, note: str, sums: BoundedSum, epsilon: float) -> Tensor:
        values, scale = sums.values.double() * sums.step, sums.under(self.relation) * self._steps(sums) / epsilon

        def likelihood(noisy: Tensor) -> float:
            return -float((noisy.double() - values).abs().sum()) / scale

        noisy: Tensor = self.watch.given(note, super().laplace(note, sums, epsilon), likelihood)
        return noisy

    def prefix_sums(self, note: str, cells: BoundedSum, noise_multiplier: float) -> tuple[np.ndarray, np.ndarray]:
        m = len(cells.values)
        std, below = noise_multiplier * self.rows * prefix_sensitivity(m, self.relation), cells.values.numpy().cumsum()
        k = np.arange(1, m)
        inverse = np.concatenate([[1.0], np.cumprod((2 * k - 3) / (2 * k))])  # (1 - z)^(1/2): the noise before its factor

        def likelihood(noisy: tuple[np.ndarray, np.ndarray]) -> float:
            return -float(np.square(toeplitz_product(inverse, noisy[0] - below) / std).sum()) / 2

        noisy: tuple[np.ndarray, np.ndarray] = self.watch.given(
            note, super().prefix_sums(note, cells, noise_multiplier), likelihood
        )
        return noisy

    def release(self, note: str, mechanism: Mechanism[Any], count: int = 1, **more: Any) -> Any:
        log_probabilities = getattr(
            mechanism, "log_probabilities", None
        )  # a mechanism without one tells this adversary nothing

        def likelihood(drawn: Any) -> float:
            return 0.0 if log_probabilities is None else float(log_probabilities()[drawn].sum())

        return self.watch.given(note, super().release(note, mechanism, count, **more), likelihood)


Fit = Callable[[Curator], Any]
"""A fit of a system on one data set."""


@dataclass(frozen=True)
class CuratorAudit:
    """Fits on two neighbouring data sets under the same watched curator.

    Formal guarantee: if the fits are (epsilon, delta)-private for the two data sets, every statistic of `losses` obeys that.
    The statistic is the likelihood ratio under the noise that is charged, the strongest there is.

    Arguments:
        fits: a fit on each of the two data sets.
        report: a ledger that only reports, new for each fit.
    """

    fits: tuple[Fit, Fit]
    report: Callable[[], Ledger]

    def losses(self, side: int, count: int, most: int) -> list[float]:
        """log p / p' of all releases of `count` fits on data set `side`, p of the first and p' of the second one."""
        return [self._loss(side, most) for _ in range(count)]

    def _loss(self, side: int, most: int) -> float:
        first = self._run(side, _Watch(most=most))
        try:
            other = self._run(1 - side, _Watch(replay=first.seen, most=len(first.seen)))
            ratio = other.ratio if len(other.seen) == len(first.seen) else CERTAIN
        except _Diverged:
            ratio = CERTAIN
        ratio = max(-CERTAIN, min(CERTAIN, ratio))
        return ratio if side == 0 else -ratio

    def _run(self, side: int, watch: _Watch) -> _Watch:
        with suppress(_Enough):
            self.fits[side](self._curator(watch))
        return watch

    def _curator(self, watch: _Watch) -> Curator:
        return _WatchedCurator(self.report(), watch)

    def releases(self) -> int:
        """Largest number of releases of a fit on either data set, as far as one fit of each shows."""
        return max(len(self._run(side, _Watch()).seen) for side in (0, 1))

    def leaks(self, numbers: Callable[[Any], Tensor]) -> bool:
        """Whether what comes out depends on the records beside what was paid for.

        All noisy values of a fit on the first data set are given to a fit on the second one. What is made of them must be the
        same, bit for bit: post-processing sees nothing else.

        Arguments:
            numbers: of what a fit returns.
        """
        watch = _Watch()
        first = numbers(self.fits[0](self._curator(watch)))
        other = _Watch(replay=watch.seen)
        try:
            second = numbers(self.fits[1](self._curator(other)))
        except _Diverged:
            return True
        return len(other.seen) != len(watch.seen) or not torch.equal(first, second)


def _shape(outcome: Any) -> Any:
    """Of sums; what a mechanism draws may have any shape."""
    if isinstance(outcome, tuple):
        return tuple(part.shape for part in outcome)
    return tuple(outcome.shape) if isinstance(outcome, Tensor) else None


def _copied(outcome: Any) -> Any:
    """A copy, which the fit may overwrite."""
    if isinstance(outcome, tuple):
        return tuple(_copied(part) for part in outcome)
    if isinstance(outcome, Tensor):
        return outcome.clone()
    return outcome.copy() if isinstance(outcome, np.ndarray) else outcome
