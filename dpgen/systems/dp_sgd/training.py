"""One training by DP-SGD: its start, its plan, its trainer.

A warm start lets networks learn from samples of a released model, for free, before they see private records.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.nn.functional import one_hot

from dpgen.callbacks import Previews, PrivacyAccountant
from dpgen.files import write_atomically
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger, Planned
from dpgen.privacy.mechanisms import Secrets, gaussian_event
from dpgen.privacy.noise import PublicRandomness
from dpgen.privacy.sampling import PoissonLoader
from dpgen.release import ImageModel, PublicModel, RecordModel
from dpgen.statement import UNTRAINED, rounded_up
from dpgen.systems.dp_sgd.choice import CHOICE, trained_is_better
from dpgen.systems.dp_sgd.engine import DPSGD, Start
from dpgen.systems.dp_sgd.inputs import Inputs, TrainingData, channels_first
from dpgen.systems.dp_sgd.plan import DPSGDPlan, WarmStartedPlan
from dpgen.systems.registry import load

if TYPE_CHECKING:
    from dpgen.runtime import Runtime

P = TypeVar("P", bound=DPSGDPlan[Any])
M = TypeVar("M", bound=DPSGD)
R = TypeVar("R", bound=PublicModel)

NOTE = "warm start: the released model that the networks began from, paid for when it was fitted"
"""Note of the cost of the release."""

FINGERPRINT = "warm_start.sha256"
"""File of a run directory with the checksum of the release that the run began from."""

KEPT = (
    "training did not make the release that it began from better: that release is given out again, and a noisy sum over the "
    "records decided it"
)
"""Of the statement of a run whose start is its release."""

_REMEDY = "give the release that the run began from, or another run_dir"
_SAMPLES = 60_000
_LOOKED_AT = 1000


def released_start(path: Path) -> Start:
    """The released model in a directory (or in its `model/`).

    Raises:
        ValueError: it is no model of records or images.
        FileNotFoundError: there is none.
    """
    model = load(path)
    if not isinstance(model, RecordModel | ImageModel):
        raise ValueError(f"warm_start {str(path)!r} holds a {model.kind} model; it must be a model of binary records or images")
    return model


class _StartOptions(Protocol):
    """Options of a warm start."""

    @property
    def warm_start(self) -> Path | None: ...
    @property
    def warm_start_origin(self) -> str: ...
    @property
    def warm_start_steps(self) -> int: ...
    @property
    def warm_start_keep(self) -> str: ...


def with_prior(plan: P, config: _StartOptions, start: Start) -> P:
    """The plan with what `start` cost, unless it was fitted to public records, and what choosing between the two will.

    Raises:
        ValueError: the cost of `start` is not known as that of one Gaussian, or a person has several rows.
    """
    multiplier = None if config.warm_start_origin == "public" else start.noise_multiplier
    if multiplier is not None and plan.rows > 1:
        raise ValueError(
            f"warm_start_origin is {config.warm_start_origin!r}; it must be 'public' where a person has up to {plan.rows} rows"
        )
    if multiplier is not None and not multiplier:
        raise ValueError(
            f"warm_start is a {start.kind} model, whose cost is not that of one Gaussian and cannot be composed tightly; "
            "start from a Gaussian component, or set warm_start_origin=public if it was fitted to public records"
        )
    return cast(P, plan.warm_started(multiplier, choose=config.warm_start_keep == "better"))


class Prior:
    """A released model as a mechanism that has been drawn: what it cost is charged to whoever goes on from it."""

    def __init__(self, model: Start, noise_multiplier: float) -> None:
        self.model, self.event = model, gaussian_event(noise_multiplier)
        self.note = f"{NOTE} (sha256 {model.sha256})"

    def draw(self, secrets: Secrets, count: int) -> Start:
        """The model: it has been released before, and no randomness is left."""
        return self.model

    def require_same(self, ledger: Ledger) -> None:
        """Refuse a ledger that names another release.

        Raises:
            ValueError: another release was charged in its place.
        """
        charged = [(entry.note, entry.event) for entry in ledger.entries() if entry.note.startswith(NOTE)]
        if charged not in ([], [(self.note, self.event)]):
            raise ValueError(f"warm_start has changed: the ledger holds {charged[0][0]!r}, now it is {self.note!r}: {_REMEDY}")

    def charged(self, curator: Curator) -> None:
        """Charge what the release cost, once for a run that may be resumed."""
        if not any(entry.note == self.note for entry in curator.ledger.entries()):
            curator.release(self.note, self)


class _Start(NamedTuple):
    """A released model that networks begin from, the steps of learning, and what it and the choice after training cost."""

    model: Start
    steps: int
    prior: Prior | None
    choice: float | None

    @property
    def public(self) -> bool:
        """Whether it was declared to be of other, public records."""
        return self.prior is None

    @property
    def planned(self) -> tuple[Planned, ...]:
        """Its part of the plan of the run."""
        prior = () if self.prior is None else (Planned(self.prior.event, self.prior.note),)
        return prior if self.choice is None else (*prior, Planned(gaussian_event(self.choice), CHOICE))

    @property
    def not_covered(self) -> tuple[str, ...]:
        """Of the statement: a start that is not in its ledger."""
        if not self.public:
            return ()
        own = self.model.statement
        return (
            f"the networks began from a released model (sha256 {self.model.sha256}) declared to be of public records: its "
            f"records are covered by its own statement only, {own.in_words()}, "
            "which is not part of this epsilon",
        )


def begin(plan: P, config: _StartOptions, curator: Curator, runtime: Runtime, data: TrainingData) -> tuple[_Start | None, P]:
    """The start of a run, if it has one, and the plan with its cost; resumed, it must be the same.

    Raises:
        ValueError: no model of such records, one whose cost is not known, or another one than the run began from.
    """
    plan.require_use(config)
    if config.warm_start is None:
        return None, plan
    start = released_start(config.warm_start)
    if config.warm_start_origin == "records" and start.statement.unit != curator.ledger.unit:
        raise ValueError(
            f"warm_start is a release whose unit is {start.statement.unit!r}; it must be {curator.ledger.unit!r}, that of the "
            "run which pays for it"
        )
    plan = with_prior(plan, config, start)
    _require_shape(start, data.pixels)
    generator = torch.Generator()
    start_samples(start, d=data.d, labels=data.n_classes, generator=generator, n=_LOOKED_AT)  # refused before it is charged
    if runtime.first:
        _require_same(runtime.directory / FINGERPRINT, start, resumed=bool(curator.ledger.entries()))
    assert isinstance(plan, WarmStartedPlan)
    prior = None if plan.start_multiplier is None else Prior(start, plan.start_multiplier)
    if prior is not None:
        prior.require_same(curator.ledger)
    if config.warm_start_origin == "public" and start.statement.mechanisms:
        warnings.warn(
            f"warm_start_origin=public, but the statement of the release names {len(start.statement.mechanisms)} charged "
            f"mechanisms (epsilon {rounded_up(start.statement.epsilon)}): if any of its records is private here, set "
            "warm_start_origin=records, or this run's epsilon is too small",
            stacklevel=2,
        )
    return _Start(start, config.warm_start_steps, prior, plan.choice_multiplier), plan


def _require_shape(start: Start, pixels: tuple[int, ...] | None) -> None:
    """Refuse a model of records for images, of images for records, or of other images."""
    own = channels_first(start.image_shape) if isinstance(start, ImageModel) else None
    if own != pixels:
        what, wanted = (
            "binary records" if shape is None else f"images (channels, height, width) {shape}" for shape in (own, pixels)
        )
        raise ValueError(f"warm_start is a model of {what}; these data are {wanted}")


def _require_same(path: Path, start: Start, *, resumed: bool) -> None:
    if not resumed or not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, start.sha256 + "\n")
    elif (before := path.read_text().strip()) != start.sha256:
        raise ValueError(f"warm_start has changed: the run began from sha256 {before}, now it is {start.sha256}: {_REMEDY}")


def start_samples(start: Start, *, d: int, labels: int, generator: torch.Generator, n: int = _SAMPLES) -> Inputs:
    """Samples of a released model to learn from.

    Raises:
        ValueError: they have not d columns, or none of the `labels` classes that are needed (0: none).
    """
    samples = Inputs.of(start.samples(n, random_state=int(torch.randint(2**31, (), generator=generator))))
    if samples.x.shape[1] != d:
        raise ValueError(f"warm_start has records of {samples.x.shape[1]} features, these have {d}")
    _require_labels(samples, labels)
    return samples


def _require_labels(samples: Inputs, wanted: int) -> None:
    if wanted and samples.labels is None:
        raise ValueError("warm_start has no labels, and these records' labels are used")
    if wanted and samples.labels is not None and int(samples.labels.max()) >= wanted:
        raise ValueError(f"warm_start has labels up to {int(samples.labels.max())}, these records have {wanted} classes")


def labelled_batch(samples: Inputs, size: int, *, categories: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Records (size, d + categories) out of samples, their one-hot labels appended, and the labels (size,), 0 without."""
    chosen = torch.randint(len(samples.x), (size,), generator=generator)
    labels = samples.labels[chosen] if samples.labels is not None else torch.zeros_like(chosen)
    x = samples.values(chosen)
    return (torch.cat([x, one_hot(labels, categories).to(x)], 1) if categories else x), labels


def train(
    make: Callable[[P], M],
    release: Callable[[M, Ledger], R],
    data: TrainingData,
    *,
    plan: P,
    config: _StartOptions,
    curator: Curator,
    runtime: Runtime,
) -> R | Start:
    """Train a module within the budget, or go on with it, and release what it has become, or the start if that is better.

    Arguments:
        make: builds the untrained module for the plan with the cost of its start.
        release: makes the public model of a trained module, with the statement of the ledger that counts.
        data: private records, images or points.

    Raises:
        ValueError: what `begin` and the module refuse.
    """
    start, plan = begin(plan, config, curator, runtime, data)
    module = make(plan)
    people = data.people if plan.rows > 1 else None
    x, labels, white = data.inputs
    loader = PoissonLoader(x, labels, sampling_rate=plan.sampling_rate, people=people, rows=plan.rows, white=white)
    module.declare(curator, *(start.planned if start else ()))
    if start is not None:
        module.not_covered = start.not_covered
        module.begin_from(start.model)
        if start.prior is not None:
            start.prior.charged(curator)
        if not runtime.checkpoint.exists():
            public = PublicRandomness(runtime.seed).spawn("warm start").generator
            module.learn_from(start.model, steps=start.steps, generator=public)
    every = max(1, round(plan.steps * plan.sampling_rate / 10))  # epochs; ten pictures and tight values in a run
    accountant = PrivacyAccountant(curator, every=every)
    callbacks: list[Callback] = [accountant, module.config.clipping_callback(module.plan)]
    if data.image_shape is not None:
        callbacks.append(Previews(module.preview, image_shape=data.image_shape, every=every))
    runtime.fit(module, loader, max_steps=plan.steps, callbacks=callbacks)
    if module.global_step < plan.steps:
        warnings.warn(f"the budget ended training after {module.global_step} of {plan.steps} steps", stacklevel=3)
    if not module.global_step:
        module.not_covered = (UNTRAINED, *module.not_covered)
    made = release(module, accountant.ledger)
    if start is None or start.choice is None or not runtime.first:
        return made
    assert isinstance(made, RecordModel | ImageModel)
    better = trained_is_better(
        made,
        start.model,
        data.inputs,
        n_classes=data.n_classes,
        noise_multiplier=start.choice,
        curator=accountant.curator,
        generator=PublicRandomness(runtime.seed).spawn("choice").generator,
    )
    made = release(module, accountant.ledger)
    return made if better else _kept(start.model, made)


def _kept(start: Start, made: PublicModel) -> Start:
    """The start as the release of a run whose statement is that of what it made; its cost is not of one Gaussian any more."""
    kept = copy(start)
    kept.statement, kept.noise_multiplier = made.statement.extended((KEPT,)), 0.0
    return kept
