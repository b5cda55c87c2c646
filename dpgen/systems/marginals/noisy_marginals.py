"""Independent noisy marginals: the plain baseline that every model of binary records must beat."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dpgen.privacy.accountants import calibrate_noise
from dpgen.privacy.curator import Curator, gaussian_price
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Budget, Planned
from dpgen.privacy.noise import PublicRandomness
from dpgen.runtime import Runtime
from dpgen.statement import PrivacyStatement
from dpgen.systems.marginals.model import ProductMixture
from dpgen.systems.marginals.plan import MarginalsConfig, MarginalsPlan
from dpgen.systems.plan import CHOSEN_BLIND, EXACT_INTEGERS, ONE_RECORD, SECURE_NOISE
from dpgen.systems.private_data import PrivateRecords

NOTE = "marginals"
ASSUMPTIONS = (ONE_RECORD, CHOSEN_BLIND, SECURE_NOISE, EXACT_INTEGERS)


def truncated(x: Tensor, max_items: int, public: PublicRandomness) -> Tensor:
    """Records (n, d) with at most `max_items` ones each: those that come first in a public random order of the columns.

    A function of each record alone, so one record still moves the sums by its own row.
    """
    order = torch.randperm(x.shape[1], generator=public.spawn("item order").generator)
    kept = [part[:, order] * (part[:, order].cumsum(1, dtype=torch.int32) <= max_items) for part in x.split(4096)]
    return torch.cat(kept)[:, order.argsort()].to(x.dtype)


@dataclass(frozen=True)
class Layout:
    r"""How records of d bits are added up in k rows: a record adds :math:`(w, s)` to its own row.

    s is :math:`2x - 1`, of norm :math:`\sqrt d`, or x itself where at most m = `max_items` ones count, of norm
    :math:`\sqrt m`, whichever is shorter about 0; w counts records, :math:`w^2 \approx .1 \|s\|^2`.
    """

    d: int
    k: int
    max_items: int | None = None

    @property
    def most(self) -> int:
        """m, the most ones of a record."""
        return self.d if self.max_items is None else min(self.max_items, self.d)

    @property
    def centred(self) -> bool:
        """Whether s is 2x - 1."""
        return self.most > self.d // 4

    @property
    def weight(self) -> int:
        """w."""
        return max(1, round(math.sqrt(0.1 * self._norm2)))

    @property
    def _norm2(self) -> int:
        return self.d if self.centred else self.most

    @property
    def sensitivity(self) -> float:
        r"""Add/remove: the L2 norm of :math:`(w, s)`."""
        return math.sqrt(self.weight**2 + self._norm2)

    @property
    def replaced(self) -> float:
        r"""Replace-one: the larger of a change of row, :math:`\sqrt 2` times the above for two disjoint rows, and of s in one.

        There :math:`|x - x'|^2` is the number of different bits, at most min(2m, d), and s moves by twice x if centred.
        """
        within = math.sqrt(min(2 * self.most, self.d)) * (2 if self.centred else 1)
        return max(within, math.sqrt(2) * self.sensitivity) if self.k > 1 else within

    def sums(self, x: Tensor, row: Tensor) -> BoundedSum:
        """Sums (k, 1 + d) of records x (n, d) in {0, 1}, at most `max_items` ones each, by their row (n,) in [0, k)."""
        counts = torch.bincount(row, minlength=self.k)
        ones = torch.stack([x[row == c].sum(0, dtype=torch.int64) for c in range(self.k)])
        values = 2 * ones - counts[:, None] if self.centred else ones
        joined = torch.cat([self.weight * counts[:, None], values], 1)
        return BoundedSum(joined, self.sensitivity, "ones", replaced=self.replaced)

    def probabilities(self, noisy: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities (k, d) and record counts (k,) from noisy sums (k, 1 + d)."""
        noisy = noisy.double()
        counts = noisy[:, 0] / self.weight
        mean = noisy[:, 1:] / counts.clamp_min(1.0)[:, None]
        return ((mean + 1) / 2 if self.centred else mean).clamp(0.0, 1.0), counts


def fit(
    data: PrivateRecords, *, plan: MarginalsPlan, config: MarginalsConfig, curator: Curator, runtime: Runtime
) -> ProductMixture:
    """Release noisy marginals, one row per class if there are labels.

    Raises:
        ValueError: values other than 0 and 1, labels out of range, or a budget too small for any noise.
        BudgetExceeded: the ledger allows less than the plan; nothing was released.
    """
    require_records(data)
    layout = Layout(data.x.shape[1], max(data.n_classes, 1), config.max_items)
    nobody = layout.sums(data.x[:0], torch.zeros(0, dtype=torch.int64))  # how far a record could move the sums is public
    sigma = calibrate_noise(
        lambda multiplier: gaussian_price(nobody, multiplier, curator.relation),
        Budget(plan.epsilon, plan.delta),
        relation=curator.relation,
    )
    curator.declare(Planned(gaussian_price(nobody, sigma, curator.relation), NOTE))
    x = data.x if config.max_items is None else truncated(data.x, config.max_items, PublicRandomness(runtime.seed))
    row = torch.zeros(len(x), dtype=torch.int64) if data.labels is None or not data.n_classes else data.labels.long()
    noisy = curator.gaussian(NOTE, layout.sums(x, row), sigma)
    probabilities, counts = layout.probabilities(noisy)
    statement = PrivacyStatement.from_ledger(curator.ledger, assumptions=ASSUMPTIONS)
    return ProductMixture(probabilities, counts, statement=statement, n_classes=data.n_classes, columns=data.columns)


def require_records(records: PrivateRecords) -> None:
    """The public schema of binary records: how many there are is private, and no reason to refuse them.

    Raises:
        ValueError: x is no finite 0/1 matrix, or labels are missing or out of range where there are classes.
    """
    x, labels = records.x, records.labels
    if x.ndim != 2:
        raise ValueError(f"records have shape {tuple(x.shape)}; it must be (n, d)")
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
