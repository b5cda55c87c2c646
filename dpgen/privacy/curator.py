r"""The curator: ledger, secure noise and ranks in one object, through which every release passes.

A system computes what its records add up to and by how much one record can move it (`BoundedSum`). The curator writes the
charge down, adds the noise that this charge pays for, and gives back noisy values. Nobody else draws private noise and
nobody else charges, so nobody can pay for one noise and add another, forget a charge, or state a sensitivity in one place and
use it in another.

**People, not rows.** The ledger says how many rows m a unit has at most. A neighbour is reached in at most m steps, each of
which adds, removes or (under replace_one) replaces one row, so sums move by at most m times as much, by the triangle
inequality, in any norm; the curator adds m times the noise for the same charge. Mechanisms with a price of their own are
charged for m steps (`for_rows`). Sums in which the rows of a unit are averaged say so (`BoundedSum.of_unit`), and get the
noise of one.

Formal guarantees:

| case | what holds |
|---|---|
| any release | it is counted before its noise is drawn; where the ledger refuses (`BudgetExceeded`), nothing is drawn |
| a Gaussian of multiplier s | noise std s * sensitivity, charged as `Gaussian(s)`; under replace_one by the exact factor |
| a unit of at most m rows | noise m times as large, mechanisms at their price for m rows; a draw must be of units |
| values that are NaN or infinite | refused before anything is charged |
| a mechanism that draws | its own event is charged, once for each draw |
| releases that share a Poisson draw | one event, `Poisson(q, Gaussian(sigma_eff))`, with the rate of the mask itself |
| draws of one random allocation | one event for all of them, `Allocated(t, Gaussian(sigma_eff))`, with the first |
| a mask used twice, a part released twice, undeclared or left out | refused |
| several processes | rank 0 charges, others repeat what it recorded; sums are added over ranks and get their noise once |
| rank 0 cannot record a plan or a charge | all ranks stop; rank 0 raises the ledger's error |
| the best of several runs | charged before the first; each run gets no more than its plan |
| pickling, copying | refused: two curators would forget each other's charges |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import torch
from torch import Tensor

from dpgen.privacy.accountants import calibrate_noise
from dpgen.privacy.distributed import NoiseAhead, Ranks, release_sum_
from dpgen.privacy.draws import Integers, Reals
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import BudgetExceeded, Ledger, Planned
from dpgen.privacy.mechanisms import (
    Budget,
    Mechanism,
    approximate_event,
    effective_multiplier,
    for_rows,
    gaussian_event,
    pure_event,
    require_positive,
    require_whole,
)
from dpgen.privacy.noise import DeviceSource, SecureSource, noisy_prefix_sums, place, require_secure, to_device

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpgen.privacy.mechanisms import Relation
    from dpgen.privacy.sampling import Epoch, PoissonMask

T = TypeVar("T")


class Curator:
    """Charges, then releases: `ledger` is asked, `ranks` are the processes that release together, alone by default.

    >>> from dpgen.privacy.ledger import Budget, Ledger
    >>> curator = Curator(Ledger(Budget(1.0, 1e-5)))
    >>> noisy = curator.gaussian("number of records", BoundedSum(torch.tensor([1000]), 1.0), 10.0)
    >>> noisy.dtype, curator.ledger.entries()[0].note
    (torch.int64, 'number of records')
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        ranks: Ranks | None = None,
        source: SecureSource | None = None,
    ) -> None:
        self._source = SecureSource() if source is None else require_secure(source)
        self._ahead: NoiseAhead | None = None
        self._earlier: list[Planned] = []
        self._epoch: tuple[Epoch | None, tuple[str, float]] = None, ("", 0.0)
        self.built_on: set[str] = set()
        """Checksums of the releases that the run may read."""
        self.ledger, self.ranks = ledger, Ranks()
        """The ledger of rank 0, on other ranks a copy of what it has recorded; and the processes that release together."""
        self.join(ranks or self.ranks)

    @property
    def relation(self) -> Relation:
        """The neighbouring relation that sensitivities are taken under."""
        return self.ledger.relation

    @property
    def rows(self) -> int:
        """Most rows of a unit."""
        return self.ledger.rows

    @property
    def keeps_size(self) -> bool:
        """Whether the number of rows is public, see `mechanisms.keeps_size`."""
        return self.ledger.keeps_size

    def __reduce__(self) -> NoReturn:
        raise TypeError("a curator cannot be pickled or copied: two copies would forget each other's charges")

    def join(self, ranks: Ranks, device: torch.device | None = None) -> None:
        """Release together with other processes from now on, and prepare noise ahead for a CUDA device; called by all ranks."""
        self.ranks = ranks
        if ranks.count > 1:
            copy = ranks.first(self.ledger.copy)
            if ranks.index:
                self.ledger = Ledger.follower(copy)
        if device is not None and device.type == "cuda" and not self.draws_on_device:
            self._ahead = NoiseAhead(self._source, device)

    @property
    def draws_on_device(self) -> bool:
        """Whether real noise on accelerators is drawn there, see `noise.DeviceSource`."""
        return isinstance(self._source, DeviceSource)

    def leave(self) -> None:
        """Drop what was prepared ahead."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def catch_up(self) -> None:
        """Let all ranks count what rank 0 has charged by itself; called by all of them."""
        if self.ranks.count > 1:
            copy = self.ranks.first(self.ledger.copy)
            if self.ranks.index:
                self.ledger.follow(copy)

    def build_on(self, sha256: str, price: Planned | None) -> None:
        """Let the run read an earlier release, whose price is declared and charged with the plan; None: it has none here."""
        self.built_on.add(sha256)
        self._earlier += [] if price is None else [price]

    def declare(self, *plan: Planned) -> None:
        """Record the whole plan of a run, and what it is built on, before private data are touched; called by all ranks."""
        earlier, self._earlier = self._earlier, []

        def record() -> None:
            self.ledger.declare([*earlier, *plan])
            for line in earlier:
                if not any(entry.note == line.note for entry in self.ledger.entries()):
                    self.ledger.charge(line.event, note=line.note)

        if self.ranks.count == 1:
            return record()
        self.ranks.first(record)
        self.catch_up()

    # -- releases of one process -------------------------------------------------------------------------------------

    def gaussian(self, note: str, sums: BoundedSum, noise_multiplier: float, *, of: str | None = None) -> Tensor:
        r"""`sums` plus :math:`N(0, (s m \Delta)^2 I)`, s the multiplier, :math:`\Delta` the add/remove sensitivity of a row.

        Integers get an exact rounded normal (floor(S + Z + 1/2) is post-processing of S + Z); floats are rounded to the grid of
        `grid_step`. int64 of step 1 come back as int64, of another step as float64, floats in their dtype. s > 0 is noise std /
        add-remove sensitivity of a unit (m times a row's) under either relation; `of` is the declared divisible Gaussian that
        the release is a part of, if any.

        Source: Dwork and Roth 2014, Appendix A; accounted by the exact curve of Balle and Wang 2018.
        """
        require_positive("noise_multiplier", noise_multiplier)
        _require(sums, "l2")
        sums = self._of_rows(sums)
        self.ledger.charge(gaussian_price(sums, noise_multiplier, self.relation), note=note, of=of)
        return place(self.noisy(sums, noise_multiplier * sums.sensitivity * self._steps(sums)), sums.values.device)

    def _steps(self, sums: BoundedSum) -> int:
        """Steps of the sums' sensitivity to a neighbour."""
        return 1 if sums.of_unit else self.rows

    def _of_rows(self, sums: BoundedSum) -> BoundedSum:
        """The sums with the most that a step of one row moves them: where n is private, a replaced unit's rows come or go."""
        if self.keeps_size or sums.under("replace_one") >= sums.sensitivity:
            return sums
        return replace(sums, replaced=sums.sensitivity)

    def noisy(self, sums: BoundedSum, noise_std: float) -> Tensor:
        values = sums.values.detach()
        if values.dtype != torch.int64:
            return self._source.add_normal_(values.clone(memory_format=torch.contiguous_format), noise_std=noise_std)
        noise = self._source.rounded_normal(*values.shape, noise_std=noise_std / sums.step)
        return _real(values + to_device(noise, values.device), sums.step)

    def laplace(self, note: str, sums: BoundedSum, epsilon: float) -> Tensor:
        r"""Integer `sums` plus discrete Laplace noise of scale :math:`m \Delta_1 / \epsilon`; epsilon-DP, exact to 2^-128.

        :math:`\Delta_1` is the L1 sensitivity under the ledger's relation.

        Source: Ghosh, Roughgarden, Sundararajan 2012.
        """
        require_positive("epsilon", epsilon)
        _require(sums, "l1")
        if sums.values.dtype != torch.int64:
            raise ValueError(f"sums have dtype {sums.values.dtype}; discrete Laplace noise needs whole numbers (torch.int64)")
        scale = self._steps(sums) * self._of_rows(sums).under(self.relation) / (epsilon * sums.step)
        self.ledger.charge(pure_event(epsilon), note=note)
        noise = self._source.discrete_laplace(*sums.values.shape, scale=scale)
        return place(_real(sums.values + to_device(noise, sums.values.device), sums.step), sums.values.device)

    def prefix_sums(self, note: str, cells: BoundedSum, noise_multiplier: float) -> tuple[Reals, Reals]:
        r"""Prefix sums (m,) of counts of disjoint cells with correlated Gaussian noise, and the noise variances (m,).

        `cells` are int64 counts (m,): a record is in one cell at most, which it moves by 1; all cells, unless all neighbours
        have equally many records. s > 0 is noise std / L2 sensitivity of the factored counts under the ledger's own relation.
        """
        _require(cells, "l2")
        if not (cells.values.dtype == torch.int64 and cells.step == cells.sensitivity == 1.0 and cells.values.dim() == 1):
            raise ValueError(
                f"cells are {cells.values.dtype} of sensitivity {cells.sensitivity}; they must be int64 counts (m,)"
            )
        moved = 1 if self.relation == "add_remove" else 2  # the ledger doubles Gaussians under replace_one
        self.ledger.charge(gaussian_event(require_positive("noise_multiplier", noise_multiplier) * moved), note=note)
        return noisy_prefix_sums(
            cells.values.numpy(), noise_multiplier=noise_multiplier * self.rows, relation=self.relation, source=self._source
        )

    def select(
        self,
        note: str,
        trials: Sequence[Sequence[Planned]],
        mean: float,
        *,
        run: Callable[[int, Curator], T],
        score: Callable[[T, Curator], float],
        priced: Sequence[Planned] = (),
    ) -> T | None:
        """The best of a secret number of runs of trials drawn at random, charged as a whole before the first; see `selection`.

        Neither `run` nor `score` may look at private data but through its curator, and what they do beside that must not
        outlive the call: only the best result is released, or None where the number that was drawn is 0.

        `trials` are plans of the public options, `mean` runs in [2, 1000] are expected. `run` is given the number of a trial,
        and a curator that grants its plan and nothing else; `score`, the higher the better, one that grants `priced`.

        `BudgetExceeded` is raised before anything is drawn, or where a run asks for more than its plan: nothing is released.
        """
        from dpgen.privacy.selection import Granted, draw_runs, selection_event, uniform_integers

        self.ledger.charge(selection_event(trials, priced, mean), note=note)
        best: tuple[float, T] | None = None
        for trial in uniform_integers(self._source, len(trials), draw_runs(mean, self._source)):
            result = run(trial, Curator(Granted(trials[trial], self.ledger), source=self._source))
            scorer = Curator(Granted(priced, self.ledger), source=self._source)
            scorer.declare(*priced)
            value = score(result, scorer)
            if best is None or value > best[0]:
                best = value, result
        return None if best is None else best[1]

    def release(self, note: str, mechanism: Mechanism[T], count: int = 1, *, of: str | None = None) -> T:
        """`count` draws of a mechanism that carries its own price, of one row; each is charged, for m rows, before any is made.

        ValueError is raised where m > 1 and no price for m rows is known.
        """
        count, event = require_whole("count", count), for_rows(mechanism.event, self.rows)
        self.ledger.charge(event, count, note=note, of=of)
        return mechanism.draw(self._source, count)

    # -- releases of one Poisson draw, by all ranks --------------------------------------------------------------------

    def latents(self, *shape: int) -> Tensor:
        """Secret standard normals, float32 on the CPU, that act on records before they are summed; nothing is released."""
        return self._source.normal(*shape)

    def draw(self, note: str, mask: PoissonMask, parts: Mapping[str, float]) -> Draw | None:
        r"""Charge one event for everything that is released of one Poisson draw; None when the budget refuses it; by all ranks.

        All parts together are one Gaussian on the draw (`effective_multiplier`). Charging the parts apart would add up less
        than that: at q = .01, T = 1000, both multipliers 1 it states 2.58 for 4.48.

        The mask is of whole units: rows that are drawn one by one earn no amplification for people (ValueError). It serves once
        (else RuntimeError), and its own rate is what is charged. Of random allocation the first draw charges for its epoch;
        others of it are free on the same terms (else ValueError). `parts` are noise multipliers by name.
        """
        if self.rows > mask.rows:
            raise ValueError(f"the draw is of units of {mask.rows} rows; they must be whole units, of up to {self.rows} rows")
        terms = (note, effective_multiplier(*parts.values()))
        event = mask.price(terms[-1])
        if mask.epoch is None or mask.epoch is not self._epoch[0]:
            if not self._authorise(event, note):
                return None
            self._epoch = mask.epoch, terms
        elif terms != self._epoch[1]:
            raise ValueError(f"the draw is {terms}; its epoch was paid for as {self._epoch[1]} (note, multiplier)")
        return Draw(self, dict(parts))

    def _authorise(self, event: DpEvent, note: str) -> bool:
        """Charge one run of `event`, for all ranks together; False when the budget would be exceeded."""

        def charged() -> bool:
            try:
                self.ledger.charge(event, note=note)
            except BudgetExceeded:
                return False
            return True

        granted = self.ranks.first(charged)
        if self.ranks.index and granted:
            self.ledger.repeat(event, note=note)
        return granted


class Draw:
    """The releases that one charge for a Poisson draw has paid for: every declared part once, no other; see `Curator.draw`."""

    def __init__(self, curator: Curator, parts: dict[str, float]) -> None:
        self.curator, self.multipliers = curator, parts

    def __enter__(self) -> Draw:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self.multipliers:
            left = ", ".join(self.multipliers)
            raise RuntimeError(f"declared and not released: {left}; a draw releases what it has paid for")

    def gaussian(self, name: str, sums: BoundedSum, *, factor: Tensor | None = None) -> Tensor:
        """The sums of all ranks with their noise, once, the same bits on every rank; floats are overwritten.

        `factor` (k,), public, multiplies the k rows of released floats in the pass that adds the noise.
        """
        if name not in self.multipliers:
            left = ", ".join(self.multipliers) or "none"
            raise ValueError(f"part {name!r} is not declared or has been released; open: {left}")
        if sums.norm != "l2":
            raise ValueError(f"sums are bounded in {sums.norm}; Gaussian noise needs an l2 bound")
        noise_std = self.multipliers.pop(name) * sums.sensitivity * self.curator._steps(sums)
        source, ranks, ahead = self.curator._source, self.curator.ranks, self.curator._ahead
        if sums.values.dtype != torch.int64:
            return release_sum_(sums.values, noise_std=noise_std, source=source, ranks=ranks, ahead=ahead, factor=factor)
        total = ranks.sum_(sums.values.clone())
        if ranks.index == 0:
            noise = source.rounded_normal(*total.shape, noise_std=noise_std / sums.step)
            total = total + to_device(noise, total.device)
        return _real(ranks.broadcast_(total), sums.step)


def gaussian_price(sums: BoundedSum, noise_multiplier: float, relation: Relation) -> DpEvent:
    """Event that `Curator.gaussian` charges, whose sensitivity the ledger doubles under replace_one.

    >>> gaussian_price(BoundedSum(torch.zeros(2, dtype=torch.int64), 1.0, replaced=1.0), 3.0, "replace_one")
    GaussianDpEvent(noise_multiplier=6.0)
    """
    factor = 1.0 if relation == "add_remove" else 2.0 * sums.sensitivity / sums.under(relation)
    return gaussian_event(noise_multiplier * factor)


def _real(values: Tensor, step: float) -> Tensor:
    return values if step == 1.0 else values.double() * step


def _require(sums: Any, norm: str) -> None:
    """Refuse what has no bound in this norm, and values that are not finite."""
    if not isinstance(sums, BoundedSum):
        raise TypeError(f"sums are {type(sums).__name__}; they must be a BoundedSum, made by the code that adds up records")
    if sums.norm != norm:
        raise ValueError(f"sums are bounded in {sums.norm}; this noise needs an {norm} bound")
    if sums.values.is_floating_point() and not bool(torch.isfinite(sums.values).all()):
        raise ValueError("sums hold NaN or infinite entries; they must all be finite")


# -- one Gaussian, spent in parts -------------------------------------------------------------------------------------------

THRESHOLD = "names of frequent values"
_FAILURES = 0.1  # share of delta for all thresholds of unknown values
_PRICED = 1.0 + 1e-8  # the ledger takes a divisible Gaussian to be larger by what rounding of its parts may add


def _priced(others: Sequence[DpEvent], scale: float) -> DpEvent:
    """Cost of the whole Gaussian beside these events."""
    from dp_accounting import ComposedDpEvent

    gaussian = gaussian_event(scale / _PRICED)
    return ComposedDpEvent([gaussian, *others]) if others else gaussian


class GaussianBudget:
    r"""One declared Gaussian, spent in parts that are chosen as a fit goes: sums with noise, and exponential mechanisms.

    A Gaussian of multiplier s costs :math:`\mu = 1/s`, and parts of :math:`\mu_i` cost :math:`\mu^2 = \sum_i \mu_i^2` together,
    also where each is chosen in the light of the earlier ones (Dong, Roth, Su 2022; adaptively, Smith and Thakurta 2022). So
    one event stands in the plan, and its exact curve is what the release states.

    `budget` is epsilon and delta of the whole Gaussian, or its multiplier; `frequent` may release so many lists of frequent
    values (`thresholds`), whose names a tenth of delta pays for.

    >>> gaussian = GaussianBudget(Curator(Ledger(Budget(1.0, 1e-5))), Budget(1.0, 1e-5), "all of a fit")
    >>> round(gaussian.left**0.5, 3)
    0.268
    """

    def __init__(self, curator: Curator, budget: Budget | float, note: str, *, thresholds: int = 0) -> None:
        self.curator = curator
        delta = budget.delta if isinstance(budget, Budget) else 0.0
        if thresholds and not delta:
            raise ValueError("delta is 0; it must be in (0, 1): values that nobody knows cannot be named at delta 0")
        self._failure = _FAILURES * delta / max(1, thresholds) * (1 - 1e-9)
        failing, scale = approximate_event(0.0, self._failure), budget
        if isinstance(scale, Budget):
            others = [failing] * thresholds
            scale = calibrate_noise(partial(_priced, others), scale, relation=curator.relation, low=1e-3, high=1e6)
        names = [Planned(failing, THRESHOLD, count=thresholds)] if thresholds else []
        self.note = f"{note} (multiplier {scale:.10g})"
        curator.declare(Planned(gaussian_event(scale), note=self.note, divisible=True), *names)
        planned = sum(line.count for line in curator.ledger.promised() if line.note == self.note)
        spent = sum(e.count * e.event.noise_multiplier**-2 for e in curator.ledger.entries() if e.of == self.note)
        self.whole = planned * scale**-2
        self.left = self.whole - spent

    @property
    def mu(self) -> float:
        """1 / noise std of counts that one row moves by 1, sqrt(2) under replace-one, that had all that is left."""
        return 1.0 / self.noise_std(self.left)

    def noise_std(self, share: float) -> float:
        """Noise std of counts that one row moves by 1, sqrt(2) under replace-one, that get this share of 1 / s^2."""
        return self.curator.rows / math.sqrt(share * (1.0 if self.curator.relation == "add_remove" else 2.0))

    def _part(self, share: float) -> float:
        """Multiplier of a part of 1 / s^2."""
        if not 0 < share <= self.left * (1 + 1e-9):
            raise ValueError(f"share is {share!r}; it must lie in (0, {self.left!r}], what is left of {self.note!r}")
        self.left = max(0.0, self.left - share)
        return share**-0.5

    def sums(self, note: str, sums: BoundedSum, share: float) -> tuple[Tensor, float]:
        """Sums with noise as float64, and the noise std of every entry, for a share of 1 / s^2."""
        multiplier = self._part(share)
        if self.curator.relation == "replace_one":  # events count in units of twice the add/remove sensitivity there
            multiplier *= sums.under("replace_one") / (2.0 * sums.sensitivity)
        noisy = self.curator.gaussian(note, sums, multiplier, of=self.note)
        return noisy.double(), multiplier * sums.sensitivity * self.curator.rows

    def frequent(self, note: str, counts: Integers, share: float) -> tuple[Integers, Integers, float, int]:
        """Values whose noisy count passes the threshold, see `FrequentCounts`; of more lists than declared, `BudgetExceeded`.

        `counts` (k,) are of the values that occur; a row counts for one of them. Returns places in `counts`, noisy counts,
        their noise std, and the threshold.
        """
        from dpgen.privacy.selection import FrequentCounts

        relation, rows = self.curator.relation, self.curator.rows
        noise_std = self._part(share) * rows / (1.0 if relation == "add_remove" else math.sqrt(2.0))
        mechanism = FrequentCounts(counts, noise_std, self._failure, rows, relation)
        self.curator.ledger.charge(mechanism.failure, note=THRESHOLD)
        [(places, noisy)] = self.curator.release(note, mechanism, of=self.note)
        return places, noisy, noise_std, mechanism.threshold

    def select(self, note: str, scores: Integers, sensitivity: int, share: float) -> int:
        """The number of one candidate, the higher its score the likelier, see `ExponentialMechanism`."""
        from dpgen.privacy.selection import ExponentialMechanism

        multiplier = self._part(share) * self.curator.rows  # for one row; the curator charges for all of a person's
        chosen = self.curator.release(note, ExponentialMechanism.gaussian(scores, multiplier, sensitivity), of=self.note)
        return int(chosen[0])
