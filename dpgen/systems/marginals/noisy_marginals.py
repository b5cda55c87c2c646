"""Independent noisy marginals: the plain baseline that every model of binary records must beat."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dpgen.privacy.accountants import Relation
from dpgen.privacy.calibration import calibrate_noise
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.limits import require_whole
from dpgen.privacy.mechanisms import GaussianMechanism, gaussian_event
from dpgen.privacy.noise import PublicRandomness, SecureSource
from dpgen.runtime import Runtime
from dpgen.statement import PrivacyStatement
from dpgen.systems.assumptions import CHOSEN_BLIND, EXACT_INTEGERS, ONE_RECORD, SECURE_NOISE
from dpgen.systems.marginals.product_mixture import ProductMixture
from dpgen.systems.plan import Plan
from dpgen.systems.private_data import PrivateRecords

ASSUMPTIONS = (ONE_RECORD, CHOSEN_BLIND, SECURE_NOISE, EXACT_INTEGERS)


@dataclass(frozen=True, kw_only=True)
class MarginalsPlan(Plan):
    """What noisy marginals may spend: one Gaussian release.

    Arguments:
        epsilon: budget in nats.
        delta: of the (epsilon, delta) guarantee, in (0, 1).
        relation: neighbouring relation, "add_remove" or "replace_one".
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    relation: Relation = "add_remove"
    gaussian: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class MarginalsConfig:
    """Public choices.

    Arguments:
        max_items: most ones of a record that count; of more, those that come first in a public random order of the
            columns. None: all of them.
    """

    max_items: int | None = None

    def __post_init__(self) -> None:
        if self.max_items is not None:
            require_whole("max_items", self.max_items)


def truncated(x: Tensor, max_items: int, public: PublicRandomness) -> Tensor:
    """Records (n, d) with at most `max_items` ones each: those that come first in a public random order of the columns.

    A function of each record alone, so one record still moves the sums by its own row.
    """
    order = torch.randperm(x.shape[1], generator=public.spawn("item order").generator)
    kept = [part[:, order] * (part[:, order].cumsum(1, dtype=torch.int32) <= max_items) for part in x.split(4096)]
    return torch.cat(kept)[:, order.argsort()].to(x.dtype)


def noisy_marginals(
    x: Tensor,
    row: Tensor,
    k: int,
    *,
    ledger: Ledger,
    noise_multiplier: float,
    source: SecureSource,
    max_items: int | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Probabilities (k, d) and record counts (k,) of k disjoint rows, from one Gaussian release of integers.

    A record adds :math:`(w, s)` to its row: w to the count, and :math:`s = 2x - 1` (norm :math:`\sqrt d`), or x itself
    where at most m ones count (norm :math:`\sqrt m`). With :math:`w^2 \approx .1 \|s\|^2` the L2 sensitivity under add/remove
    is :math:`\sqrt{w^2 + \|s\|^2}`.

    Arguments:
        x: records (n, d) in {0, 1}, at most `max_items` ones each if that is given.
        row: where each record counts, (n,) in [0, k).
        noise_multiplier: noise std / sensitivity.
    """
    d = x.shape[1]
    centred = max_items is None or max_items > d // 4
    norm2 = d if centred else max_items
    assert norm2 is not None
    weight = max(1, round(math.sqrt(0.1 * norm2)))
    mechanism = GaussianMechanism(noise_multiplier, sensitivity=math.sqrt(weight**2 + norm2))
    counts = torch.bincount(row, minlength=k)
    ones = torch.stack([x[row == c].sum(0, dtype=torch.int64) for c in range(k)])
    sums = 2 * ones - counts[:, None] if centred else ones
    ledger.charge(mechanism.event, note="marginals")
    noisy = mechanism.release(torch.cat([weight * counts[:, None], sums], 1), source).double()
    noisy_counts = noisy[:, 0] / weight
    size = noisy_counts.clamp_min(1.0)[:, None]
    mean = (noisy[:, 1:] / size + 1) / 2 if centred else noisy[:, 1:] / size
    return mean.clamp(0.0, 1.0), noisy_counts


def fit(
    data: PrivateRecords, *, plan: MarginalsPlan, config: MarginalsConfig, ledger: Ledger, runtime: Runtime
) -> ProductMixture:
    """Release noisy marginals, one row per class if there are labels.

    Raises:
        ValueError: no records, values other than 0 and 1, labels out of range, or a budget too small for any noise.
    """
    require_records(data)
    k = max(data.n_classes, 1)
    row = data.labels if data.n_classes else torch.zeros(len(data.x), dtype=torch.int64)
    assert row is not None
    sigma = calibrate_noise(gaussian_event, Budget(plan.epsilon, plan.delta), relation=plan.relation)
    x = data.x if config.max_items is None else truncated(data.x, config.max_items, PublicRandomness(runtime.seed))
    probabilities, counts = noisy_marginals(
        x, row, k, ledger=ledger, noise_multiplier=sigma, source=SecureSource(), max_items=config.max_items
    )
    statement = PrivacyStatement.from_ledger(ledger, assumptions=ASSUMPTIONS)
    return ProductMixture(probabilities, counts, statement=statement, n_classes=data.n_classes, columns=data.columns)


def require_records(records: PrivateRecords, *, least: int = 1) -> None:
    """Raises ValueError unless x is a finite 0/1 matrix of `least` rows, with labels in range where there are classes."""
    x, labels = records.x, records.labels
    if x.ndim != 2 or len(x) < least:
        raise ValueError(f"there must be at least {least} records, got {tuple(x.shape)}")
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise ValueError("records must be finite, got NaN or infinite values")
    if not bool(((x == 0) | (x == 1)).all()):
        raise ValueError("records must be 0 or 1")
    if not records.n_classes:
        return
    if labels is None:
        raise ValueError(f"n_classes={records.n_classes} needs labels, got none")
    if labels.shape != (len(x),):
        raise ValueError(f"labels must have shape ({len(x)},), got {tuple(labels.shape)}")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < records.n_classes:
        raise ValueError(f"labels must be in [0, {records.n_classes}), got [{int(labels.min())}, {int(labels.max())}]")
