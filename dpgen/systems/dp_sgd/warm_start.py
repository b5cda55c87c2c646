"""Warm start: component networks learn from samples of a released model, for free, before they see private records."""

import warnings
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from dpgen.files import write_atomically
from dpgen.nets import ModelBank, VAEBank
from dpgen.privacy.clipping import clipped_sums
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger, Planned
from dpgen.privacy.mechanisms import Secrets, gaussian_event
from dpgen.release import RecordModel, RecordSamples
from dpgen.runtime import Runtime
from dpgen.statement import guarantee, rounded_up
from dpgen.systems.dp_sgd.plan import DPSGDPlan, WarmStartedPlan
from dpgen.systems.registry import load

P = TypeVar("P", bound=DPSGDPlan[Any])

NOTE = "warm start: the released model that the networks began from, paid for when it was fitted"
"""What the ledger calls the cost of the release."""

FINGERPRINT = "warm_start.sha256"
"""File of a run directory with the checksum of the release that the run began from."""

_REMEDY = "give the release that the run began from, or another run_dir"
_SHRINK = 0.1
_SAMPLES = 60_000
_LOOKED_AT = 1000
_BATCH = 512
_RATE = 2e-3


def released_start(path: Path) -> RecordModel:
    """The released model in a directory (or in its `model/`).

    Raises:
        ValueError: it is no model of records.
        FileNotFoundError: there is none.
    """
    model = load(path)
    if not isinstance(model, RecordModel):
        raise ValueError(f"warm_start {str(path)!r} holds a {model.kind} model; it must be a model of binary records")
    return model


class StartOptions(Protocol):
    """What a configuration says about its start."""

    @property
    def warm_start(self) -> Path | None: ...
    @property
    def warm_start_origin(self) -> str: ...
    @property
    def warm_start_steps(self) -> int: ...


def with_prior(plan: P, config: StartOptions, start: RecordModel) -> P:
    """The plan with what `start` cost in it, unless it was fitted to public records: both fits are of the same people.

    Raises:
        ValueError: the cost of `start` is not known as that of one Gaussian.
    """
    if config.warm_start_origin == "public":
        return plan
    multiplier = start.noise_multiplier
    if not multiplier:
        raise ValueError(
            f"warm_start is a {start.kind} model, whose cost is not that of one Gaussian and cannot be composed tightly; "
            "start from a Gaussian component, or set warm_start_origin=public if it was fitted to public records"
        )
    return cast(P, plan.warm_started(multiplier))


class Prior:
    """A released model as a mechanism that has been drawn: what it cost is charged to whoever goes on from it."""

    def __init__(self, model: RecordModel, noise_multiplier: float) -> None:
        self.model, self.event = model, gaussian_event(noise_multiplier)
        self.note = f"{NOTE} (sha256 {model.sha256})"

    def draw(self, secrets: Secrets, count: int) -> RecordModel:
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


class Start(NamedTuple):
    """What networks begin from, how long they learn from it, and what it cost where its records are these."""

    model: RecordModel
    steps: int
    prior: Prior | None

    @property
    def public(self) -> bool:
        """Whether it was declared to be of other, public records."""
        return self.prior is None

    @property
    def planned(self) -> tuple[Planned, ...]:
        """What the plan of the run holds for it."""
        return () if self.prior is None else (Planned(self.prior.event, self.prior.note),)


def begin(
    plan: P, config: StartOptions, curator: Curator, runtime: Runtime, *, d: int, n_classes: int
) -> tuple[Start | None, P]:
    """The start of a run, if it has one, and the plan with its cost; resumed, it must be the same.

    Arguments:
        d: columns of the records that the run is about.
        n_classes: of their labels, 0 without.

    Raises:
        ValueError: no model of such records, one whose cost is not known, or another one than the run began from.
    """
    plan.require_use(config)
    if config.warm_start is None:
        return None, plan
    start = released_start(config.warm_start)
    plan = with_prior(plan, config, start)
    start_samples(start, d=d, labels=n_classes, generator=torch.Generator(), n=_LOOKED_AT)  # refused before it is charged
    if runtime.first:
        _require_same(runtime.directory / FINGERPRINT, start, resumed=bool(curator.ledger.entries()))
    prior = Prior(start, plan.start_multiplier) if isinstance(plan, WarmStartedPlan) else None
    if prior is not None:
        prior.require_same(curator.ledger)
    if config.warm_start_origin == "public" and start.statement.mechanisms:
        warnings.warn(
            f"warm_start_origin=public, but the statement of the release names {len(start.statement.mechanisms)} charged "
            f"mechanisms (epsilon {rounded_up(start.statement.epsilon)}): if any of its records is private here, set "
            "warm_start_origin=records, or this run's epsilon is too small",
            stacklevel=2,
        )
    return Start(start, config.warm_start_steps, prior), plan


def _require_same(path: Path, start: RecordModel, *, resumed: bool) -> None:
    if not resumed or not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, start.sha256 + "\n")
    elif (before := path.read_text().strip()) != start.sha256:
        raise ValueError(f"warm_start has changed: the run began from sha256 {before}, now it is {start.sha256}: {_REMEDY}")


def not_covered(start: Start | None) -> tuple[str, ...]:
    """What a statement says about a start that is not in its ledger."""
    if start is None or not start.public:
        return ()
    own = start.model.statement
    return (
        f"the networks began from a released model (sha256 {start.model.sha256}) declared to be of public records: its "
        f"records are covered by its own statement only, {guarantee(own.epsilon, own.delta, own.relation, own.unit)}, which "
        "is not part of this epsilon",
    )


@torch.no_grad()
def begin_at_marginals(bank: VAEBank, samples: RecordSamples, *, categories: int, by_label: bool) -> None:
    """Set output biases to the logits of the samples' frequencies and shrink the last weights: sparse bits are there at once.

    From random weights a few hundred steps leave items of sparse sets near p = .2.
    """
    last = f"decoder.{bank.depth}"
    bank.part(f"{last}.weight").mul_(_SHRINK)
    for c in range(bank.k):
        own = samples.labels == c if by_label and bank.k > 1 and samples.labels is not None else slice(None)
        count, sums = len(samples.x[own]), samples.x[own].double().sum(0)
        logits = ((sums + 0.01) / (count + 0.02)).logit()
        if categories:
            assert samples.labels is not None
            sizes = torch.bincount(samples.labels[own], minlength=categories).double()
            logits = torch.cat([logits, ((sizes + 0.5) / (count + 0.5 * categories)).log()])
        bank.part(f"{last}.bias")[c] = logits.to(bank.theta)


def pretrain(
    bank: ModelBank, start: RecordModel, *, categories: int, by_label: bool, steps: int, generator: torch.Generator
) -> None:
    """Train the networks on samples of a released model by plain Adam: post-processing, nothing is charged.

    Arguments:
        bank: k component networks, changed in place.
        start: the released model.
        categories: label columns of a record, 0 for none.
        by_label: whether network c is that of class c; otherwise all of them learn from all samples.
        steps: of 512 samples, at least 0.
        generator: public randomness.

    Raises:
        ValueError: the samples have other columns than the networks, or no labels where these are needed.
    """
    d = int(bank.architecture()["d"]) - categories
    samples = start_samples(start, d=d, labels=bank.k if by_label else categories, generator=generator)
    if isinstance(bank, VAEBank):
        begin_at_marginals(bank, samples, categories=categories, by_label=by_label)
    device = bank.theta.device
    parameters = nn.Parameter(bank.theta.detach())
    optimizer = torch.optim.Adam([parameters], lr=_RATE)

    def noise(*shape: int, **_: object) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    for step in range(steps):
        chosen = torch.randint(len(samples.x), (_BATCH,), generator=generator)
        x, cluster = _batch(samples, chosen, categories, by_label, bank.k)
        sizes = torch.bincount(cluster, minlength=bank.k)
        bounds = [0, *sizes.cumsum(0).tolist()]
        bank.begin_step()
        with torch.enable_grad():
            gradients = bank.gradients(x.to(device), bounds, noise)
        weights = (1.0 / sizes.clamp_min(1).float())[cluster].to(device)
        with torch.no_grad():
            parameters.grad = clipped_sums(gradients, weights, torch.empty_like(bank.theta))
        optimizer.param_groups[0]["lr"] = _RATE * (1.0 - step / steps)
        optimizer.step()


def start_samples(start: RecordModel, *, d: int, labels: int, generator: torch.Generator, n: int = _SAMPLES) -> RecordSamples:
    """Samples of a released model to learn from.

    Raises:
        ValueError: they have not d columns, or none of the `labels` classes that are needed (0: none).
    """
    samples = start.samples(n, random_state=int(torch.randint(2**31, (), generator=generator)))
    if samples.x.shape[1] != d:
        raise ValueError(f"warm_start has records of {samples.x.shape[1]} features, these have {d}")
    _require_labels(samples, labels)
    return samples


def _require_labels(samples: RecordSamples, wanted: int) -> None:
    if wanted and samples.labels is None:
        raise ValueError("warm_start has no labels, and these records' labels are used")
    if wanted and samples.labels is not None and int(samples.labels.max()) >= wanted:
        raise ValueError(f"warm_start has labels up to {int(samples.labels.max())}, these records have {wanted} classes")


def _batch(samples: RecordSamples, chosen: Tensor, categories: int, by_label: bool, k: int) -> tuple[Tensor, Tensor]:
    """Records of a step sorted by network, and their networks."""
    labels = samples.labels[chosen] if samples.labels is not None else torch.zeros_like(chosen)
    cluster = labels if by_label and k > 1 else torch.arange(len(chosen)) % k
    cluster, order = cluster.sort(stable=True)
    x = samples.x[chosen[order]].float()
    if categories:
        x = torch.cat([x, one_hot(labels[order], categories).to(x)], 1)
    return x, cluster
