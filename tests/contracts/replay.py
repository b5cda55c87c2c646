"""What one unit moves of a whole fit: a neighbouring data set is fitted with the released values of the first one.

The fit of D is recorded. At every release the fit of D' is handed what D released, so all that it chooses along the way is the
same, and what is left is what the unit moves: of exact sums, in units of the noise that was drawn, and of the laws of choices.

| case | what `compare` asks for |
|---|---|
| plans, order, number and notes of releases | the same: no data decide about them |
| shapes, grids, sensitivities, multipliers, noise scales, rates, factors | the same |
| a Gaussian of multiplier s, also in parts that share a draw | together they move by 1 / s noise stds (replace-one: 2 / s) |
| Laplace noise | moves by epsilon noise scales in L1 |
| a choice | log-probabilities move by epsilon; at the price of a Gaussian or of zCDP their moves have a bounded range |
| all of a fit | what the releases did move costs at most what the statement says |
| the release, its statement, warnings | the same: they are made of released values alone |

Common units are drawn alike in every Poisson draw, who differs is in all of them, and latents are the same for everybody.
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
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.mechanisms import ApproximateDpEvent, pure_event
from dpgen.privacy.noise import SecureSource, square_root_factor, toeplitz_product
from dpgen.privacy.selection import FrequentCounts
from dpgen.release import PrivateDensity, Release
from dpgen.systems.local.model import FiniteSampler


@dataclass(frozen=True)
class Step:
    """One release.

    Arguments:
        public: its note, and all else that must be the same for neighbours.
        charge: its number; the parts of a Poisson draw share one.
        event: what was charged.
        norm: in which moves are measured, "law" of log-probabilities.
        values: what is private, sums or log-probabilities, as far as these are known.
        outcome: what was given out.
        scale: of the noise, in units of the values.
        sums: what noise was added to.
        part: of a Poisson draw, its name.
    """

    public: tuple[Any, ...]
    charge: int
    event: DpEvent
    norm: str
    values: Tensor | None
    outcome: Any
    scale: float = 1.0
    sums: BoundedSum | None = None
    part: str = ""

    @property
    def note(self) -> str:
        """What the ledger calls it."""
        return str(self.public[0])


@dataclass
class Tape:
    """All that the curators of one fit gave out.

    Arguments:
        common: units that neighbours share, the first ones: drawn alike, with equal latents; None: all draws are as they come.
        earlier: the tape of a neighbour, whose values are given out again.
    """

    common: int | None = None
    earlier: "Tape | None" = None
    steps: list[Step] = field(default_factory=list)
    declared: list[Any] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)  # that noise was asked with
    charges: list[DpEvent] = field(default_factory=list)
    masks: int = 0
    law: Tensor | None = None
    relation: Any = None
    release: Any = None
    said: list[str] = field(default_factory=list)

    def declare(self, plan: Any) -> None:
        """What is asked for before anything is released."""
        self.declared.append(plan)
        if self.earlier is not None:
            assert self.earlier.declared[: len(self.declared)] == self.declared, f"the plan depends on the data: {plan}"

    def charge(self, curator: Curator) -> None:
        """The latest charge of a curator."""
        self.charges.append(curator.ledger.entries()[-1].event)
        self.relation = curator.relation

    def given(
        self, public: tuple[Any, ...], norm: str, values: Callable[[Any], Tensor | None], outcome: Any, **more: Any
    ) -> Any:
        """What the fit is given: its own outcome, or its neighbour's."""
        if self.earlier is not None:
            before = self.earlier.steps[len(self.steps) :][:1]
            assert before, f"{public[0]}: one release more"
            assert before[0].public == public, f"{public[0]}: how it is released depends on the data"
            outcome = copy.deepcopy(before[0].outcome)
        kept = copy.deepcopy(outcome)
        self.steps.append(Step(public, len(self.charges), self.charges[-1], norm, values(outcome), kept, **more))
        return outcome

    def noisy(self, note: str, sums: BoundedSum, ask: Callable[[], Any], public: Any, space: Any = None, part: str = "") -> Any:
        """Sums with noise, which `ask` charges and draws; in `space` its entries are independent."""
        sums, before = replace(sums, values=sums.values.clone()), len(self.scales)
        outcome = ask()
        [scale] = self.scales[before:]
        grid = tuple(sums.values.shape), sums.values.dtype, sums.step, sums.norm, sums.sensitivity, sums.replaced, sums.of_unit
        values = sums.values if space is None else space(sums.values)
        public = (note, part, *grid, scale, public)
        return self.given(public, sums.norm, lambda _: values, outcome, scale=scale, sums=sums, part=part)


def factored(cells: Tensor) -> Tensor:
    """Counts of cells where noise is added to them in the proof: through the square root of prefix sums."""
    return torch.from_numpy(toeplitz_product(square_root_factor(len(cells)), cells.double().numpy()))


def law(mechanism: Any, outcome: Any) -> Tensor | None:
    """Log-probabilities of all that a mechanism may draw, or of what was drawn; None: they are not known here."""
    if hasattr(mechanism, "log_probabilities"):
        return torch.from_numpy(mechanism.log_probabilities())
    if type(mechanism).__name__ == "PointSelection":
        scores = np.array([float(mechanism.score(x, mechanism.model)) for x in range(1, mechanism.N)])
        return torch.from_numpy(mechanism.rate * scores).log_softmax(0)
    if type(mechanism).__name__ == "PrivateTree":
        return torch.tensor([math.fsum(tree_terms(mechanism, outcome[0].tolist()))], dtype=torch.float64)
    return None


def tree_terms(tree: Any, ends: list[int]) -> Iterator[float]:
    """Log-probabilities of the splits of a tree on 2^k values whose leaves end there."""
    cells = [(0, tree.N, 0)]
    while cells:
        start, stop, depth = cells.pop()
        if stop - start == 1:
            continue
        chance = tree.rule.split_chance(int(((tree.values >= start) & (tree.values < stop)).sum()), depth)
        split, middle = any(start < end < stop for end in ends), (start + stop) // 2
        yield math.log(chance if split else 1 - chance)
        cells += [(start, middle, depth + 1), (middle, stop, depth + 1)] if split else []


@contextmanager
def watched(tape: Tape) -> Iterator[Tape]:
    """All curators write on the tape, or read from its neighbour's what they give out."""
    part, released, drawn = Draw.gaussian, Curator.release, Curator.draw
    declared, applied = Curator.declare, FiniteSampler.apply

    def declare(curator: Curator, *plan: Any) -> None:
        tape.declare(plan)
        declared(curator, *plan)

    def summing(verb: Callable[..., Any], space: Any = None) -> Callable[..., Any]:
        def summed(curator: Curator, note: str, sums: BoundedSum, price: float, **more: Any) -> Any:
            def ask() -> Any:
                outcome = verb(curator, note, sums, price, **more)
                tape.charge(curator)
                return outcome

            return tape.noisy(note, sums, ask, (price, more), space)

        return summed

    def release(curator: Curator, note: str, mechanism: Any, count: int = 1, **more: Any) -> Any:
        tape.law = None
        outcome = released(curator, note, mechanism, count, **more)
        tape.charge(curator)
        own, public = tape.law, (note, count, type(mechanism), mechanism.event, more)
        if isinstance(mechanism, FrequentCounts):  # its names are paid for apart, by delta
            counts = torch.from_numpy(np.sort(mechanism.counts)[::-1].copy())
            return tape.given(public, "l2", lambda _: counts, outcome, scale=mechanism.noise_std)

        def values(given: Any) -> Tensor | None:
            return own if own is not None or tape.common is None else law(mechanism, given)

        return tape.given(public, "law", values, outcome)

    def draw(curator: Curator, note: str, mask: Any, parts: Any, **more: Any) -> Draw | None:
        tape.declare((note, mask.rate, mask.rows, dict(parts), more))
        granted = drawn(curator, note, mask, parts, **more)
        tape.charge(curator)
        return granted

    def summed(granted: Draw, name: str, sums: BoundedSum, *, factor: Tensor | None = None) -> Any:
        note, public = tape.declared[-1][0], None if factor is None else factor.tolist()
        return tape.noisy(note, sums, lambda: part(granted, name, sums, factor=factor), public, part=name)

    def apply(sampler: FiniteSampler, p: Tensor) -> Tensor:
        q = applied(sampler, p)
        tape.law = q.log()
        return q

    def asking(ask: Callable[..., Tensor], scale: str) -> Callable[..., Tensor]:
        def asked(source: SecureSource, *arguments: Any, **more: Any) -> Tensor:
            tape.scales.append(more[scale])
            return ask(source, *arguments, **more)

        return asked

    def mask(source: SecureSource, n: int, *, probability: float) -> Tensor:
        tape.masks += 1
        taken = np.random.default_rng(tape.masks).random(max(n, tape.common or 0)) < probability
        taken[tape.common :] = True
        return torch.from_numpy(taken[:n].nonzero()[0])

    def latents(curator: Curator, *shape: int) -> Tensor:
        return torch.linspace(-1.0, 1.0, shape[1]).repeat(shape[0], 1)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("gaussian", "laplace"):
            patch.setattr(Curator, name, summing(getattr(Curator, name)))
        patch.setattr(Curator, "prefix_sums", summing(Curator.prefix_sums, factored))
        for verb in (declare, release, draw):
            patch.setattr(Curator, verb.__name__, verb)
        patch.setattr(Draw, "gaussian", summed)
        patch.setattr(FiniteSampler, "apply", apply)
        for name in ("unrounded_normal", "rounded_normal", "add_normal_", "discrete_laplace"):
            scale = "scale" if name == "discrete_laplace" else "noise_std"
            patch.setattr(SecureSource, name, asking(getattr(SecureSource, name), scale))
        if tape.common is not None:
            patch.setattr(SecureSource, "bernoulli_indices", mask)
            patch.setattr(Curator, "latents", latents)
        yield tape


def recorded(fit: Callable[[], Release], *, common: int, earlier: Tape | None = None) -> Tape:
    """A fit under secrets that all fits share: keys of splits, salts of people, seeds."""
    with fixed_entropy("replay"), watched(Tape(common, earlier)) as tape, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tape.release = fit()
    tape.said = [str(warning.message) for warning in said]
    origin = getattr(tape.release, "origin", None)
    if isinstance(origin, PrivateDensity):
        points = origin.reference.sample(200, generator=torch.Generator().manual_seed(0))
        tape.steps = [replace(step, values=origin.log_ratio(points)) for step in tape.steps]
    return tape


def allowed(event: DpEvent, relation: str, kind: str) -> float:
    """The most that a charge allows its release to move."""
    if isinstance(event, PoissonSampledDpEvent):
        event = event.event
    if isinstance(event, ApproximateDpEvent) and not event.delta:
        return event.epsilon
    if isinstance(event, ZCDpEvent) and not event.xi:
        return math.sqrt(8 * event.rho)  # the range of the losses of an exponential mechanism
    assert isinstance(event, GaussianDpEvent), event
    mu = (1.0 if relation == "add_remove" else 2.0) / event.noise_multiplier
    return mu if kind != "law" else 2 * float(norm.logcdf(mu / 2) - norm.logsf(mu / 2))


def moved(one: Step, two: Step) -> float:
    """How far a release moved, in the terms of its charge."""
    if one.values is None or two.values is None:
        raise AssertionError(f"{one.note}: its law is not known")
    longest = max(one.values.numel(), two.values.numel())
    if "frequent" in one.note:  # sorted counts are no farther from each other than those of one value each
        first, second = (torch.nn.functional.pad(step.values, (0, longest - step.values.numel())) for step in (one, two))
        one, two = replace(one, values=first), replace(two, values=second)
    difference = torch.where(one.values == two.values, 0, one.values - two.values).double().flatten()  # -inf may stay -inf
    if one.norm != "law":
        return float(torch.linalg.vector_norm(difference, ord=1 if one.norm == "l1" else 2)) / one.scale
    pure = isinstance(one.event, ApproximateDpEvent)
    return float(difference.abs().max() if pure else difference.max() - difference.min())


def compare(one: Tape, two: Tape) -> dict[str, float]:
    """By the note of each release, how far it moved at most as a share of what was charged.

    Raises:
        AssertionError: naming the release that moved farther, or what else differs.
    """
    assert len(two.steps) == len(one.steps), f"{one.steps[len(two.steps)].note}: one release less"
    assert two.declared == one.declared, "the plan depends on the data"
    shares, losses, stated = dict[str, float](), list[DpEvent](), one.release.statement
    for charge in dict.fromkeys(step.charge for step in one.steps):
        pairs = [(a, b) for a, b in zip(one.steps, two.steps) if a.charge == charge]
        step = pairs[0][0]
        assert all(a.event == b.event for a, b in pairs), f"{step.note}: its price depends on the data"
        far, most = math.hypot(*(moved(a, b) for a, b in pairs)), allowed(step.event, one.relation, step.norm)
        assert far <= most * (1 + SLACK), f"{step.note}: it moves by {far:.6g}, charged is {most:.6g}"
        shares[step.note] = max(shares.get(step.note, 0.0), far / most)
        losses += [loss(step, far / most)] * (step.public[1] if step.norm == "law" else 1) if far else []
    if losses and not any(isinstance(event, PoissonSampledDpEvent) for event in losses):
        epsilon = accountants.epsilon(ComposedDpEvent(losses), stated.delta, relation=one.relation)
        assert epsilon <= stated.epsilon * (1 + 1e-6), f"all of it costs epsilon {epsilon:.6g}, stated is {stated.epsilon:.6g}"
    content = [next(iter(tape.release.files().values())) for tape in (one, two)]
    assert content[0] == content[1], "the release shows what no noise covers"
    assert two.release.statement == stated, "the statement shows what no noise covers"
    assert two.said == one.said, "warnings show what no noise covers"
    return shares


def loss(step: Step, share: float) -> DpEvent:
    """What a release that moves by a share of what was charged for it costs."""
    if step.norm == "l2" and isinstance(step.event, GaussianDpEvent):
        return GaussianDpEvent(step.event.noise_multiplier / share)
    return pure_event(step.event.epsilon * share) if isinstance(step.event, ApproximateDpEvent) else step.event
