"""What one unit moves of a whole fit: the fit of a neighbouring data set is handed the released values of the first one.

The fit of D is recorded. At every release the fit of D' is given what D released, so all that it chooses along the way is the
same, and what is left is what the unit moves: of exact sums, in units of the noise that was drawn, and of the laws of choices.

| case | what `compare` wants |
|---|---|
| plans, order, number and notes of releases | the same: data decide nothing about them |
| shapes, grids, sensitivities, multipliers, noise scales, rates, factors | the same |
| a Gaussian of multiplier s, also in parts that share a draw | the parts move by at most 1 / s noise stds together, 2 / s under replace-one |
| Laplace noise | moves by at most epsilon noise scales in L1 |
| a choice | log-probabilities move by at most epsilon; priced as a Gaussian or by zCDP, the range of their moves is bounded |
| all of a fit | costs at most what the statement says, with what each release did move in place of what it may move |
| the release, its statement, warnings | the same: they are made of released values alone |

Common records are drawn alike in every Poisson draw, whoever differs is in all of them, and latents are the same for everybody.
"""

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from conformance import SLACK
from dp_accounting import ComposedDpEvent, DpEvent, GaussianDpEvent, PoissonSampledDpEvent, ZCDpEvent
from fixed_source import fixed_entropy
from scipy.stats import norm
from torch import Tensor

from dpgen.privacy import accountants
from dpgen.privacy.curator import Curator, Draw
from dpgen.privacy.events import ApproximateDpEvent, pure_event
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Planned
from dpgen.privacy.noise import SecureSource
from dpgen.privacy.prefix_sums import square_root_factor, toeplitz_product
from dpgen.privacy.sampling import PoissonMask
from dpgen.release import PrivateDensity, PrivateSampler, Release
from dpgen.systems.local.model import FiniteSampler


@dataclass(frozen=True)
class Step:
    """One release.

    Arguments:
        public: all that must be the same for neighbours.
        charge: its number; the parts of a Poisson draw share one.
        event: what was charged.
        norm: in which moves are measured.
        values: what is private: sums, or log-probabilities ("law").
        scale: of the noise, in units of the values.
        outcome: what was given out.
    """

    public: tuple[Any, ...]
    charge: int
    event: DpEvent
    norm: str
    values: Tensor
    scale: float
    outcome: Any


@dataclass
class Tape:
    """All that the curators of one fit gave out; of `earlier` everything is given out again.

    Arguments:
        earlier: of the neighbour.
        common: units that both data sets have, the first ones.
    """

    earlier: "Tape | None" = None
    common: int = 0
    steps: list[Step] = field(default_factory=list)
    declared: list[tuple[Planned, ...]] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)  # that noise was asked with
    said: list[str] = field(default_factory=list)
    charges: int = 0
    masks: int = 0
    event: DpEvent | None = None
    law: Tensor | None = None
    relation: Any = "add_remove"
    release: Any = None

    def given(self, public: tuple[Any, ...], norm: str, values: Callable[[Any], Tensor], outcome: Any, scale: float) -> Any:
        """What the fit is given: its own outcome, or that of the neighbour's."""
        if self.earlier is not None:
            before = self.earlier.steps[len(self.steps) :][:1]
            assert before, f"{public[0]}: one release more"
            assert before[0].public == public, f"{public[0]}: it depends on the data how it is released"
            outcome = copy.deepcopy(before[0].outcome)
        assert self.event is not None
        self.steps.append(Step(public, self.charges, self.event, norm, values(outcome), scale, copy.deepcopy(outcome)))
        return outcome

    def noisy(self, note: str, sums: BoundedSum, ask: Callable[[], Tensor], *public: Any, event: Callable[[], DpEvent]) -> Tensor:
        """Sums with noise."""
        kept, before = sums.values.clone(), len(self.scales)
        outcome = ask()
        [scale] = self.scales[before:]
        self.event = event()
        grid = (tuple(kept.shape), kept.dtype, sums.step, sums.norm, sums.sensitivity, sums.replaced, sums.of_unit, scale)
        return self.given((note, *grid, *public), sums.norm, lambda _: kept, outcome, scale)


def law(tape: Tape, mechanism: Any, outcome: Any) -> Tensor:
    """Log-probabilities of all that a mechanism may draw, or of what was drawn."""
    if tape.law is not None:
        return tape.law
    if hasattr(mechanism, "log_probabilities"):
        return torch.from_numpy(mechanism.log_probabilities())
    match type(mechanism).__name__:
        case "_PointDraw":
            chosen = mechanism.selection
            scores = [float(chosen.score(x, mechanism.model)) for x in range(1, chosen.N)]
            return torch.log_softmax(chosen.rate * torch.tensor(scores, dtype=torch.float64), 0)
        case "PrivateTree":
            return torch.tensor([math.fsum(tree_terms(mechanism, outcome[0].tolist()))], dtype=torch.float64)
    assert isinstance(mechanism, PrivateSampler), f"the law of {type(mechanism).__name__} is not known"
    return torch.zeros(0)  # its density comes with the release


def tree_terms(tree: Any, ends: list[int]) -> Iterator[float]:
    """Log-probabilities of the splits that make a tree with leaves that end so."""
    levels = (tree.N - 1).bit_length()
    cells = [(0, 0)]
    while cells:
        start, depth = cells.pop()
        stop = start + (1 << levels - depth)
        if depth == levels or start >= tree.N:
            continue
        chance = tree.rule.split_chance(int(((tree.values >= start) & (tree.values < stop)).sum()), depth)
        split = any(start < end < min(stop, tree.N) for end in ends)
        yield math.log(chance if split else 1 - chance)
        cells += [(start, depth + 1), ((start + stop) // 2, depth + 1)] if split else []


@contextmanager
def watched(tape: Tape) -> Iterator[None]:
    """All curators write on the tape, or read what they give out from its neighbour's."""
    real = {name: getattr(Curator, name) for name in ("declare", "gaussian", "laplace", "prefix_sums", "release", "draw")}
    part, apply = Draw.gaussian, FiniteSampler.apply

    def charged(curator: Curator) -> DpEvent:
        tape.charges, tape.relation = tape.charges + 1, curator.relation
        return curator.ledger.entries()[-1].event

    def declare(curator: Curator, *plan: Planned) -> None:
        tape.declared.append(plan)
        real["declare"](curator, *plan)

    def summing(name: str) -> Callable[..., Tensor]:
        def summed(curator: Curator, note: str, sums: BoundedSum, price: float, **more: Any) -> Tensor:
            ask = lambda: real[name](curator, note, sums, price, **more)  # noqa: E731
            return tape.noisy(note, sums, ask, price, more, event=lambda: charged(curator))

        return summed

    def prefix_sums(curator: Curator, note: str, cells: BoundedSum, price: float) -> Any:
        before, outcome = len(tape.scales), real["prefix_sums"](curator, note, cells, price)
        [scale], tape.event = tape.scales[before:], charged(curator)
        m, counts = len(cells.values), cells.values.double().numpy()
        factored = torch.from_numpy(toeplitz_product(square_root_factor(m), counts))
        return tape.given((note, m, price, cells.sensitivity, scale), "l2", lambda _: factored, outcome, scale)

    def release(curator: Curator, note: str, mechanism: Any, count: int = 1, **more: Any) -> Any:
        tape.law = None
        outcome = real["release"](curator, note, mechanism, count, **more)
        tape.event = charged(curator)
        public = (note, type(mechanism), mechanism.event, count, more)
        return tape.given(public, "law", lambda given: law(tape, mechanism, given), outcome, 1.0)

    def draw(curator: Curator, note: str, mask: PoissonMask, parts: Any, **more: Any) -> Draw | None:
        granted = real["draw"](curator, note, mask, parts, **more)
        tape.event = charged(curator)
        tape.declared.append((note, mask.rate, mask.rows, dict(parts), more, granted is None))  # type: ignore[arg-type]
        return granted  # type: ignore[no-any-return]

    def of_draw(granted: Draw, name: str, sums: BoundedSum, *, factor: Tensor | None = None) -> Tensor:
        public = None if factor is None else factor.tolist()
        return tape.noisy(name, sums, lambda: part(granted, name, sums, factor=factor), public, event=lambda: tape.event)  # type: ignore[arg-type, return-value]

    def asking(ask: Callable[..., Tensor], scale: str) -> Callable[..., Tensor]:
        def asked(source: SecureSource, *arguments: Any, **more: Any) -> Tensor:
            tape.scales.append(more[scale])
            return ask(source, *arguments, **more)

        return asked

    def mask(source: SecureSource, n: int, *, probability: float) -> Tensor:
        tape.masks += 1
        coins = np.random.default_rng(tape.masks).random(tape.common) < probability
        return torch.from_numpy(np.append(coins, np.ones(max(0, n - tape.common), bool))[:n].nonzero()[0])

    def applied(sampler: FiniteSampler, p: Tensor) -> Tensor:
        q = apply(sampler, p)
        tape.law = q.log()
        return q

    with pytest.MonkeyPatch.context() as patch:
        for name, replacement in {
            **{"declare": declare, "prefix_sums": prefix_sums, "release": release, "draw": draw},
            **{name: summing(name) for name in ("gaussian", "laplace")},
            "latents": lambda curator, *shape: torch.linspace(-1.0, 1.0, shape[1]).repeat(shape[0], 1),
        }.items():
            patch.setattr(Curator, name, replacement)
        patch.setattr(Draw, "gaussian", of_draw)
        patch.setattr(FiniteSampler, "apply", applied)
        patch.setattr(SecureSource, "bernoulli_indices", mask)
        for name in ("unrounded_normal", "rounded_normal", "add_normal_"):
            patch.setattr(SecureSource, name, asking(getattr(SecureSource, name), "noise_std"))
        patch.setattr(SecureSource, "discrete_laplace", asking(SecureSource.discrete_laplace, "scale"))
        yield


def recorded(fit: Callable[[], Release], *, common: int, earlier: Tape | None = None) -> Tape:
    """A fit under secrets that all fits share: keys of splits, salts of people, seeds."""
    tape = Tape(earlier, common)
    with fixed_entropy("replay"), watched(tape), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tape.release = fit()
    tape.said = [str(warning.message) for warning in said]
    origin = getattr(tape.release, "origin", None)
    if isinstance(origin, PrivateDensity):
        points = origin.reference.sample(200, generator=torch.Generator().manual_seed(0))
        [step] = tape.steps
        tape.steps = [replace(step, values=origin.log_ratio(points))]
    return tape


def allowed(event: DpEvent, relation: str, kind: str) -> float:
    """The most that a charge allows its release to move."""
    if isinstance(event, PoissonSampledDpEvent):
        event = event.event
    if isinstance(event, ApproximateDpEvent) and not event.delta:
        return event.epsilon
    if isinstance(event, ZCDpEvent) and not event.xi:
        return math.sqrt(8 * event.rho)  # an exponential mechanism whose losses have this range
    assert isinstance(event, GaussianDpEvent), event
    mu = (1.0 if relation == "add_remove" else 2.0) / event.noise_multiplier
    return mu if kind != "law" else 2 * float(norm.logcdf(mu / 2) - norm.logsf(mu / 2))


def moved(one: Step, two: Step) -> float:
    """How far a release moved, in the terms of its charge."""
    difference = (one.values - two.values).double().flatten() / one.scale
    difference = torch.where(one.values.flatten() == two.values.flatten(), 0.0, difference)  # -inf, too
    if one.norm == "law":
        pure = isinstance(one.event, ApproximateDpEvent)
        return float(difference.abs().max() if pure else difference.max() - difference.min())
    return float(torch.linalg.vector_norm(difference, ord=1 if one.norm == "l1" else 2))


def compare(one: Tape, two: Tape) -> dict[str, float]:
    """By the note of each release, how far it moved at most as a share of what was charged.

    Raises:
        AssertionError: naming the release that moved farther, or what else differs.
    """
    assert one.declared == two.declared, "the plan depends on the data"
    assert len(two.steps) == len(one.steps), f"{one.steps[len(two.steps)].public[0]}: one release less"
    shares, losses = dict[str, float](), list[DpEvent]()
    for charge in dict.fromkeys(step.charge for step in one.steps):
        both = [(a, b) for a, b in zip(one.steps, two.steps) if a.charge == charge]
        first = both[0][0]
        assert all(a.event == b.event for a, b in both), f"{first.public[0]}: its price depends on the data"
        far, most = math.hypot(*(moved(a, b) for a, b in both)), allowed(first.event, one.relation, first.norm)
        assert far <= most * (1 + SLACK), f"{first.public[0]}: it moves by {far:.6g}, charged is {most:.6g}"
        shares[first.public[0]] = max(shares.get(first.public[0], 0.0), far / most)
        losses += [loss(first, far / most)] if far else []
    stated = one.release.statement
    if losses and not any(isinstance(event, PoissonSampledDpEvent) for event in losses):
        epsilon = accountants.epsilon(ComposedDpEvent(losses), stated.delta, relation=one.relation)
        assert epsilon <= stated.epsilon * (1 + 1e-6), f"all of it moves by epsilon {epsilon:.6g}, stated is {stated.epsilon:.6g}"
    assert two.release.content() == one.release.content(), "the release shows what no noise covers"
    assert two.release.statement == stated, "the statement shows what no noise covers"
    assert two.said == one.said, "warnings show what no noise covers"
    return shares


def loss(step: Step, share: float) -> DpEvent:
    """What a release that moves by a share of what was charged for it costs."""
    if step.norm == "l2" and isinstance(step.event, GaussianDpEvent):
        return GaussianDpEvent(step.event.noise_multiplier / share)
    return pure_event(step.event.epsilon * share) if isinstance(step.event, ApproximateDpEvent) else step.event
