"""Warm start: component networks learn from samples of a released model, for free, before they see private records."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from dpgen.nets import ModelBank
from dpgen.privacy.clipping import clipped_sums
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.mechanisms import gaussian_event
from dpgen.release import RecordModel, Samples, load_model
from dpgen.systems.dpgm_options import DPGMConfig, DPGMPlan

NOTE = "warm start: the released model that the networks began from, paid for when it was fitted"
"""What the ledger calls the cost of the release."""

_SAMPLES = 60_000
_BATCH = 512
_RATE = 2e-3


def released_start(path: Path) -> RecordModel:
    """The released model in a directory (or in its `model/`).

    Raises:
        ValueError: it is no model of records.
        FileNotFoundError: there is none.
    """
    model = load_model(path / "model" if (path / "model").is_dir() else path)
    if not isinstance(model, RecordModel):
        raise ValueError(f"warm_start {str(path)!r} holds a {model.kind} model; it must be a model of binary records")
    return model


def with_prior(plan: DPGMPlan, config: DPGMConfig, start: RecordModel) -> DPGMPlan:
    """The plan with what `start` cost in it, unless it was fitted to public records: both fits are of the same people.

    Raises:
        ValueError: the cost of `start` is not known as that of one Gaussian.
    """
    if config.warm_start_origin == "public":
        return plan
    multiplier = getattr(start, "noise_multiplier", 0.0)
    if not multiplier:
        raise ValueError(
            f"warm_start is a {start.kind} model, whose cost is not that of one Gaussian and cannot be composed tightly; "
            "start from a Gaussian component, or set warm_start_origin=public if it was fitted to public records"
        )
    return replace(plan, prior_multiplier=multiplier)


def charge_prior(plan: DPGMPlan, ledger: Ledger) -> None:
    """Charge what the release cost, once for a run that may be resumed; another release in its place is charged, too."""
    if plan.prior_multiplier is None:
        return
    event = gaussian_event(plan.prior_multiplier)
    if all((entry.note, entry.event) != (NOTE, event) for entry in ledger.entries()):
        ledger.charge(event, note=NOTE)


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
    samples = start.sample(_SAMPLES, seed=int(torch.randint(2**31, (), generator=generator)))
    d = int(bank.architecture()["d"]) - categories
    if samples.x.shape[1] != d:
        raise ValueError(f"warm_start has records of {samples.x.shape[1]} features, these have {d}")
    _require_labels(samples, bank.k if by_label else categories)
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


def _require_labels(samples: Samples, wanted: int) -> None:
    if wanted and samples.labels is None:
        raise ValueError("warm_start has no labels, and these records' labels are used")
    if wanted and samples.labels is not None and int(samples.labels.max()) >= wanted:
        raise ValueError(f"warm_start has labels up to {int(samples.labels.max())}, these records have {wanted} classes")


def _batch(samples: Samples, chosen: Tensor, categories: int, by_label: bool, k: int) -> tuple[Tensor, Tensor]:
    """Records of a step sorted by network, and their networks."""
    labels = samples.labels[chosen] if samples.labels is not None else torch.zeros_like(chosen)
    cluster = labels if by_label and k > 1 else torch.arange(len(chosen)) % k
    cluster, order = cluster.sort(stable=True)
    x = samples.x[chosen[order]].float()
    if categories:
        x = torch.cat([x, one_hot(labels[order], categories).to(x)], 1)
    return x, cluster
