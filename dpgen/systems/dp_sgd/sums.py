r"""The private sums of a step: per-record gradients that depend on their own record alone, clipped, added up, with noise.

**A record beside others.** A matrix product may give a row other last bits when the number of rows changes, for libraries
choose their kernels by shape; a unit that is at its kink (ReLU) then opens or closes. So the rows of a cluster are padded to
a multiple of `UNIT`, with which common kernels treat every row alike. What is left is measured when training begins:
:math:`\delta`, the largest change of a record's gradient beside other records, relative to its norm, over random records and
sizes. A clipped gradient changes by at most twice that. Ten times :math:`\delta` for each of the n records that a draw may
have is added to the sensitivity, :math:`1 + 2^{-10} + 10 \delta n`. It is a measurement, not a proof, and the statement says
so. Where it would add more than `ALLOWED`, as for a network that mixes records, training is refused.

**Layers** that are clipped apart have a :math:`\delta` each, relative to the norm of the record's gradient in that layer; the
largest one counts. A layer's clipped part, of norm at most :math:`s_l`, changes by at most :math:`2 \delta s_l`, and all parts
together by :math:`2 \delta`, since :math:`\sum_l s_l^2 \le 1`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from dpgen.callbacks import Clipping
from dpgen.facts import Fact, Said
from dpgen.nets import ModelBank, RecordGradients
from dpgen.nets.bank import Noise
from dpgen.privacy.clipping import (
    ROUNDED,
    SENSITIVITY,
    SHORT,
    Factor,
    Layer,
    by_layer,
    clipped_sums,
    gradient_norms,
    layer_norms,
    require_layers,
    sensitivity_of_people,
)
from dpgen.privacy.curator import Curator, Draw
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.noise import to_device
from dpgen.privacy.sampling import Batch
from dpgen.systems.dp_sgd.partition import Partition
from dpgen.systems.dp_sgd.plan import NOT_CALIBRATED, DPSGDConfig, DPSGDPlan

UNIT = 4
"""The rows of a cluster are padded to a multiple of this."""

ALLOWED = 0.1
"""The most that `Margin` may add to a sensitivity."""

_SAFETY = 10.0
_TRIED, COMPANY = 24, 512
"""Random records that are compared, and all that they may stand beside."""

_ENTRIES = 2**25  # of gradients that are in memory when they are compared
_NORMS = 64  # on which a policy of your own is tried


class Margin(NamedTuple):
    """Change of a record's gradient by the other records of a draw, as a share of its norm; see the module."""

    change: float  # the largest one that was measured
    records: int  # that a draw has at most: ten standard deviations above what released sizes say

    @property
    def each(self) -> float:
        """The change of each record that is charged for."""
        return _SAFETY * self.change

    @property
    def added(self) -> float:
        """Addition to the sensitivity of sums of clipped gradients."""
        return self.each * self.records

    @property
    def fact(self) -> Said:
        """Facts of the prior for a statement."""
        if not self.change:
            return Fact.SAME_GRADIENT()
        return Fact.GRADIENT_MARGIN(each=self.each, records=self.records, added=self.added)


def padded(present: Sequence[int]) -> list[int]:
    """First padded row of every cluster, and the end, (k + 1,).

    >>> padded([3, 0, 17])
    [0, 4, 4, 24]
    """
    return [0, *accumulate(-(-n // UNIT) * UNIT for n in present)]


def gradients_of(bank: ModelBank, x: Tensor, present: Sequence[int], noise: Noise) -> RecordGradients:
    """Float32 gradients of padded rows x (b, d), `present` (k,) records first in every cluster."""
    bounds = padded(present)
    return bank.gradients(x, bounds, noise).full()._replace(bounds=bounds, present=present)


def largest_change(
    bank: ModelBank,
    d: int,
    *,
    categories: int = 0,
    most: int = COMPANY,
    records: Any = None,
    layers: Sequence[Layer] = (),
) -> float:
    """The largest change of a random record's gradient beside others, relative to its norm; infinite where only one is finite.

    Of `layers` that are clipped apart the largest change of one, relative to the norm in this layer.
    Records have d columns, the last `categories` of them a one-hot label, or are the given `COMPANY` ones; at most `most` are
    tried at once.
    """
    generator = torch.Generator().manual_seed(0)  # public: random records of its own
    device, latents = bank.theta.device, dict[int, Tensor]()
    x = torch.rand(COMPANY, d, generator=generator)
    if categories:
        x[:, -categories:] = one_hot(torch.arange(COMPANY) % categories, categories).float()
    x = x.to(device) if records is None else records
    own = int(torch.randint(bank.k, (), generator=generator))

    def made(rows: Tensor, others: int) -> RecordGradients:
        """Gradients of these records of one cluster, beside so many of each other one; they come first."""
        chosen = [rows if c == own else torch.randint(COMPANY, (others,), generator=generator) for c in range(bank.k)]
        filled = torch.cat([torch.cat([r, r[:1].expand(-len(r) % UNIT)]) for r in chosen])

        def noise(*shape: int) -> Tensor:
            drawn = latents.setdefault(shape[1], torch.randn(COMPANY, shape[1], generator=generator))
            return drawn[filled].to(device)

        present = [len(r) for r in chosen]
        with torch.enable_grad():
            found = gradients_of(bank, x[filled.to(device)], present, noise)
        start = padded(present)[own]
        return _rows(found, own, torch.arange(start, start + len(rows)))

    first = made(torch.tensor([0]), 0)
    n = max(UNIT + 1, min(most, COMPANY, _ENTRIES // _entries(first)))
    tried = min(n, _TRIED)
    alone = [first, *(made(torch.tensor([r]), 0) for r in range(1, tried))]
    worst = 0.0
    for size in sorted({2, 3, UNIT + 1, n // 4, n // 2 + 1, n} - {0, 1}):
        rows = torch.randperm(n, generator=generator)[:size]
        among = made(rows, min(size, UNIT))
        for place, row in enumerate(rows.tolist()):
            if row < tried:
                both = (alone[row], _rows(among, own, torch.tensor([place])))
                worst = max(worst, *(_change(*pair) for pair in zip(*(_apart(found, layers) for found in both))))
    return worst


def _entries(gradients: RecordGradients) -> int:
    """Numbers that gradients have in memory."""
    return sum(v.numel() for f in gradients.factors for v in (f.outputs, f.inputs) if v is not None)


def _apart(gradients: RecordGradients, layers: Sequence[Layer]) -> list[RecordGradients]:
    """The gradients of every layer that has any; of none all as one."""
    if not layers:
        return [gradients]
    split, owner = by_layer(gradients, layers)
    return [split._replace(factors=[f for f, of in zip(split.factors, owner) if of == i]) for i in sorted({*owner})]


def _rows(gradients: RecordGradients, cluster: int, rows: Tensor) -> RecordGradients:
    """Gradients of some rows, all of one cluster."""
    rows = to_device(rows, gradients.factors[0].outputs.device)
    factors = [
        f._replace(outputs=f.outputs[rows], inputs=None if f.inputs is None else f.inputs[rows]) for f in gradients.factors
    ]
    k, least = len(gradients.bounds) - 1, None if gradients.least is None else gradients.least[rows]
    return gradients._replace(
        factors=factors, least=least, bounds=[0] * (cluster + 1) + [len(rows)] * (k - cluster), present=None
    )


def _change(alone: RecordGradients, among: RecordGradients) -> float:
    """The change of one record's gradient over its norm."""
    changes: dict[int, float] = {}  # by parameters: tied uses of the same ones may change alike
    for f, g in zip(alone.factors, among.factors):
        start = f.columns.start
        changes[start] = changes.get(start, 0.0) + _change_of_factor(f, g)
    norms = [float(gradient_norms(made)) for made in (alone, among)]
    if not all(map(math.isfinite, norms)):
        return 0.0 if not any(map(math.isfinite, norms)) else math.inf
    return math.hypot(*changes.values()) / norms[0]


def _change_of_factor(f: Factor, g: Factor) -> float:
    """|G a^T - G' a'^T| <= |G - G'| |a| + |G'| |a - a'|, over all positions."""
    (outputs, a), (others, b) = f[:2], g[:2]
    if a is None or b is None:
        return float(_length(outputs - others).sum())
    if not outputs.is_floating_point():  # codes, which are the record's own
        outputs = others = torch.ones_like(a[..., :1])
    size = (_length(a).square() + float(f.bias is not None)).sqrt()
    return float((_length(outputs - others) * size + _length(others) * _length(a - b)).sum())


def _length(values: Tensor) -> Tensor:
    return values.double().norm(dim=-1)


def _require_shape(what: str, values: Tensor, shape: tuple[int, ...], meaning: str) -> None:
    """Refuse what a clipping policy returns in another shape; broadcast, it would count for others."""
    if not isinstance(values, Tensor) or values.shape != shape:
        found = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(f"{what}() has {found}; it must be a tensor of shape {shape}, {meaning}")


def _require_own_norms(policy: Clipping, k: int, layers: int, device: torch.device) -> None:
    """Refuse a policy that gives a record of one of k clusters another weight beside other records; tried on random norms."""
    generator = torch.Generator().manual_seed(0)  # public
    shape = (_NORMS, layers) if layers else (_NORMS,)
    norms = (3.0 * torch.randn(shape, generator=generator)).exp().to(device)
    cluster = torch.randint(k, (_NORMS,), generator=generator).to(device)
    alone = torch.cat([_weights_of(policy, norms[i : i + 1], cluster[i : i + 1]) for i in range(_NORMS)])
    if not torch.allclose(_weights_of(policy, norms, cluster), alone, rtol=1e-4, atol=0.0, equal_nan=True):
        raise ValueError(
            f"{type(policy).__name__}.coefficients gives a record another weight beside other records; it must depend on the "
            "record's own norm and on released values alone"
        )


def _weights_of(policy: Clipping, norms: Tensor, cluster: Tensor) -> Tensor:
    given = policy.coefficients(norms, cluster)
    meaning = "one weight for each record" + " and layer" * (norms.ndim - 1)
    _require_shape(f"{type(policy).__name__}.coefficients", given, tuple(norms.shape), meaning)
    return given


def widened(sums: BoundedSum, added: float) -> BoundedSum:
    """Sums whose sensitivity is larger by what the other records of a draw add."""
    if not added:
        return sums
    replaced = None if sums.replaced is None else sums.replaced + added
    return replace(sums, sensitivity=sums.sensitivity + added, replaced=replaced)


class _Piece(NamedTuple):
    """Gradients of a part, their norms, clusters and shares; `places` are the records' rows among the padded ones.

    Of layers that are clipped apart norms are (b, layers), and `owner` is the layer of every factor.
    """

    gradients: RecordGradients
    norms: Tensor
    cluster: Tensor
    places: Tensor
    share: Tensor | None
    owner: Sequence[int] = ()


class PrivateSums:
    r"""Per-cluster sums of clipped gradients of a Poisson draw, with noise: one Gaussian mechanism.

    Formal guarantees, whatever the bank computes, and whatever weight a clipping policy gives a record by its own norm:

    | case | what holds |
    |---|---|
    | any record | moves the sums by at most `SENSITIVITY` and the margin; without a finite norm by nothing |
    | layers that are clipped apart | have bounds whose squares add up to at most 1: a record's term has norm at most 1 |
    | a person with k records | weighs each of them 1/k: their terms have norm at most 1 together, in any clusters |
    | a record among others | what they change of its gradient is measured and added to the sensitivity, see `Margin` |
    | a cluster, a rank or everybody without records | releases noise like any other |
    | micro-batches | the same sums; one draw is split, never several joined |
    | several ranks | each adds its own draw's sums and histograms; the total gets its noise once |
    | autocast | norms and sums are float32, computed from the same factors |

    A subclass sets the attributes below, calls `clip_by` and `serve`, and hands every draw of its curator to `noisy_sums`.

    Attributes:
        bank: the models.
        config: how gradients are clipped.
        plan: what may be spent, calibrated.
        partition: which of the models a record belongs to.
        categories: labels that are columns of the models, 0 for none.
        partitioned: whether the partition has been found, and its sizes are known.
    """

    exact_sums: ClassVar[bool] = True
    """Norms and clipped sums are float32 also under autocast, so half precision elsewhere moves no sensitivity."""

    shards_records: ClassVar[bool] = True
    """Every rank draws from its own shard of the records, so that one step is one mechanism for all ranks."""

    bank: ModelBank
    config: DPSGDConfig
    plan: DPSGDPlan[Any]
    categories: int = 0
    partition: Partition
    partitioned: bool = False
    policy: Clipping
    curator: Curator | None = None
    layers: tuple[Layer, ...] = ()
    _change: float | None = None

    def clip_by(self, policy: Clipping) -> None:
        """Let a policy that has begun decide how gradients are clipped; one of your own is tried on random norms."""
        layers = tuple(policy.layers(self.bank.columns))
        if layers:
            require_layers(layers, self.bank.p)
            if policy.noise_multiplier is not None:
                raise ValueError(f"{type(policy).__name__} has layers and a histogram of norms; it must have one of them")
        if policy.facts:
            _require_own_norms(policy, self.bank.k, len(layers), self.bank.theta.device)
        if layers != self.layers:
            self.layers, self._change = layers, None
        self.policy = policy

    def released_values(self) -> dict[str, float]:
        """Clip bounds, if there are any."""
        bounds = self.policy.scale()
        return {} if bounds is None else {f"clip_bound_{c}": bound for c, bound in enumerate(bounds.tolist())}

    def expected_records(self) -> float:
        """Expected records in a step, from noisy sizes."""
        return self.plan.sampling_rate * float(self.partition.counts.clamp_min(0.0).sum())

    def parts(self) -> dict[str, float]:
        """Releases of one step by name, with the noise multiplier of each: `Curator.draw` charges them as one event."""
        if self.plan.noise_multiplier is None:
            raise ValueError(NOT_CALIBRATED)
        adaptive = self.policy.noise_multiplier
        return ({} if adaptive is None else {"norms": adaptive}) | {"gradients": self.plan.noise_multiplier}

    def serve(self, curator: Curator) -> None:
        """Take secret latents from this curator; its draws are what steps release from."""
        self.curator = curator

    def noisy_sums(self, batch: Batch, draw: Draw, out: Tensor | None = None, *, averaged: bool = False) -> Tensor:
        """The private release of a step, `parts()`: clipped sums (k, p) in units of the clip bounds plus N(0, sigma_S^2).

        They may be written to `out`, (k, p); `averaged`, they are gradients: the noisy sums times `averaging()`.
        """
        assert self.curator is not None
        margin = self.measure(batch.x.shape[1])
        batch = self._sorted(batch)
        assert batch.sizes is not None
        parts = self.micro_batches(batch.sizes)
        # A single part keeps its factors between the two passes; several are computed twice to save memory.
        kept = [self._piece(batch, part) for part in parts] if len(parts) == 1 else None

        def pieces() -> Iterable[_Piece]:
            return kept or (self._piece(batch, part) for part in parts)

        if self.policy.noise_multiplier is not None:
            self._observe(pieces(), margin, draw)
        sums = self._target(batch.sizes, out)
        for i, piece in enumerate(pieces()):
            own = self._weights(piece)
            weights = torch.zeros(piece.gradients.bounds[-1], *own.shape[1:], device=own.device)
            weights[piece.places] = own
            short = min(SHORT, self.config.micro_batch)
            clipped_sums(piece.gradients, weights, sums, accumulate=i > 0, drawn=batch.sizes, short=short)
        factor = self.averaging() if averaged else None
        clusters, of_people = min(self.curator.rows, self.bank.k), batch.share is not None
        sensitivity = sensitivity_of_people(clusters) if of_people else SENSITIVITY
        bounded = BoundedSum(sums, sensitivity, unit="clipped gradients", of_unit=of_people)
        noisy = draw.gaussian("gradients", widened(bounded, margin.added), factor=factor)
        if noisy.dtype == self.bank.theta.dtype:
            return noisy
        return noisy.to(self.bank.theta.dtype) if out is None else out.copy_(noisy)

    def _observe(self, pieces: Iterable[_Piece], margin: Margin, draw: Draw) -> None:
        """Release the histogram of norms that an adaptive policy follows."""
        norms, clusters = zip(*(piece[1:3] for piece in pieces))
        histogram = self.policy.histogram(torch.cat(norms), torch.cat(clusters))
        moved = margin.each * self.policy.steepness + 2.0**-19 if margin.change else 0.0  # and rounding to 2^-20
        self.policy.observe(draw.gaussian("norms", widened(histogram, moved * margin.records)))

    def _weights(self, piece: _Piece) -> Tensor:
        """Weights (b,), or (b, factors) where layers are clipped apart: whatever a policy says, a record's term is bounded.

        No record weighs more than 1, or than the share of a layer, times its share of a person. One without a finite norm, or
        whose weight is NaN, weighs nothing, of layers in all: refused, it would show that it is there.
        """
        apart, norms = bool(self.layers), piece.norms
        most: Any = norms.new_tensor([layer.share for layer in self.layers]) if apart else 1.0
        weights = _weights_of(self.policy, norms, piece.cluster).clamp_min(0.0).minimum(most / norms)
        finite = torch.isfinite(norms) & ~weights.isnan()
        weights = torch.where(finite.all(1, keepdim=True) if apart else finite, weights, 0.0)
        if piece.share is not None:
            weights = weights * (piece.share[:, None] if apart else piece.share)
        return weights[:, to_device(torch.tensor(piece.owner), weights.device)] if apart else weights

    def averaging(self) -> Tensor:
        """Factors (k,) from noisy sums to gradients: clip bounds over expected sizes, never over drawn ones."""
        bounds, sizes = self.policy.scale(), to_device(self.expected_sizes(), self.bank.theta.device)
        if bounds is not None:
            _require_shape(f"{type(self.policy).__name__}.scale", bounds, (len(sizes),), "one bound for each cluster")
        return (1.0 if bounds is None else bounds.to(sizes.device)) / sizes

    def _target(self, sizes: Sequence[int], out: Tensor | None) -> Tensor:
        """Memory of the sums: float64 where float32 would add an error of its own, over ranks, parts or many records.

        Public numbers decide; a cluster that is drawn ten standard deviations above its noisy size is not left to chance.
        """
        assert self.curator is not None
        most, likely = min(ROUNDED, self.config.micro_batch), 0.0
        if self.partitioned:
            expected = float(self.expected_sizes().max())
            likely = self.curator.rows * (expected + 10.0 * math.sqrt(expected))
        exact = self.curator.ranks.count > 1 or self.config.micro_batch < SHORT or max(likely, *sizes) > most
        if exact:
            return torch.empty_like(self.bank.theta, dtype=torch.float64)
        return torch.empty_like(self.bank.theta) if out is None else out

    def expected_sizes(self) -> Tensor:
        """Expected records per cluster in a draw, (k,), from noisy sizes, at least 1; never the drawn number itself."""
        return (self.plan.sampling_rate * self.partition.counts).clamp_min(1.0)

    def _sorted(self, batch: Batch) -> Batch:
        """The draw sorted by cluster, with its sizes, as `PoissonLoader` gives it."""
        if batch.sizes is not None:
            return batch
        cluster, order = batch.cluster.sort(stable=True)
        sizes = tuple(torch.bincount(cluster, minlength=self.bank.k).tolist())
        share = None if batch.share is None else batch.share[order]
        return batch._replace(x=batch.x[order], cluster=cluster, labels=batch.labels[order], share=share, sizes=sizes)

    def micro_batches(self, sizes: Sequence[int]) -> list[list[slice]]:
        """Parts of a sorted draw, slices of all clusters, of at most `micro_batch` rows when padded; at least one, maybe empty.

        A cluster that is larger has parts of its own, so that how it is cut does not depend on other clusters.
        """
        most = self.config.micro_batch
        empty = [slice(0, 0)] * len(sizes)
        rows, used, start = list(empty), 0, 0
        parts: list[list[slice]] = []
        for c, n in enumerate(sizes):
            rounded = math.ceil(n / UNIT) * UNIT
            if n and n <= most:
                if used and used + rounded > most:
                    parts, rows, used = [*parts, rows], list(empty), 0
                rows[c], used = slice(start, start + n), used + rounded
            for first in range(start, start + n, most) if n > most else ():
                own = list(empty)
                own[c] = slice(first, min(first + most, start + n))
                parts.append(own)
            start += n
        if used or not parts:
            parts.append(rows)
        return parts

    def _piece(self, batch: Batch, part: Sequence[slice]) -> _Piece:
        """Some records of a draw, padded, and the norms of their gradients."""
        present = [rows.stop - rows.start for rows in part]
        bounds = padded(present)
        places = torch.cat([torch.arange(start, start + n) for start, n in zip(bounds, present)])
        rows = torch.cat([torch.arange(r.start, r.stop) for r in part])
        # Padding repeats the first record of the part: what stands beside a record does not matter, and weighs nothing.
        filled = rows[:1].repeat(bounds[-1]).index_copy_(0, places, rows)
        chosen, on_device = to_device(filled, batch.x.device), to_device(places, batch.x.device)
        x = batch.x[chosen]
        if self.categories:
            x = torch.cat([x, one_hot(batch.labels[chosen], self.categories).to(x)], 1)
        with torch.enable_grad():
            gradients = gradients_of(self.bank, x, present, self.latents)
        owner: Sequence[int] = ()
        if self.layers:
            gradients, owner = by_layer(gradients, self.layers)
        norms = layer_norms(gradients, owner, len(self.layers)) if self.layers else gradient_norms(gradients)
        own = to_device(rows, x.device)
        share = None if batch.share is None else batch.share[own]
        return _Piece(gradients, norms[on_device], batch.cluster[own], on_device, share, owner)

    def measure(self, d: int) -> Margin:
        """The margin for records of d columns, in the precision of this moment; measured once, refused above `ALLOWED`."""
        assert self.curator is not None
        if self._change is None:
            options: dict[str, Any] = {"categories": self.categories, "most": self.compared(), "layers": self.layers}
            self._change = largest_change(self.bank, d + self.categories, records=self.random_records(), **options)
        likely = self.expected_records() if self.partitioned else 1.0
        found = Margin(self._change, self.most_records() * math.ceil(likely + 10.0 * math.sqrt(likely) + 10.0))
        if not found.added <= ALLOWED:
            raise ValueError(
                f"{type(self.bank).__name__} gives a record another gradient beside other records: by {found.change:.1e} of "
                f"its norm, which for {found.records} records in a draw adds {found.added:.1e} to the sensitivity, and at most "
                f"{ALLOWED:g} is allowed: networks must not mix records (BatchNorm), and kernels must be deterministic"
            )
        return found

    def most_records(self) -> int:
        """Records that a unit has at most."""
        assert self.curator is not None
        return self.curator.rows

    def compared(self) -> int:
        """Most records that are taken at once, on which the margin is measured."""
        return self.config.micro_batch

    def random_records(self) -> Any:
        """Public records, `COMPANY` of them, on which the margin is measured; None: uniform ones, or bits of labels."""
        return None

    def latents(self, *shape: int) -> Tensor:
        """Standard normal noise that acts on records, so it is secret."""
        assert self.curator is not None
        return to_device(self.curator.latents(*shape), self.bank.theta.device)
