r"""The private sums of a step: per-record gradients that depend on their own record alone, clipped, added up, with noise.

**Shapes of products.** A matrix product gives a row other last bits when the number of rows changes, for libraries choose
their kernels by shape. A record at a kink of its loss (ReLU) then has another gradient beside other records, and what is
charged for one record is not what one record moves. So the rows of a cluster are padded with zeros to whole multiples of
`unit` and multiplied at most `most` at a time, and before training the shapes that can occur are tried on random records: in
every shape, at every place, beside full and beside absent neighbours, a record must have the same gradient and norm. Kernels
choose the order of their sums by shape and place, not by value, so equal bits on random records mean the same order for all.

| case | what holds |
|---|---|
| all multiples of `unit` agree | one product per cluster, with less than `unit` rows of padding |
| they do not | every product has one shape, by the size that a cluster is expected to have, or `unit` |
| no shape agrees at several places | the same shapes of transposed products, in which every record is a column, or a product |
| nor do those | one record at a time, slowly; each has the same shape, place and neighbours: none |
| not even that | `fitting_shapes` refuses: the device is not deterministic |

Source: batch-invariant kernels, He et al. 2025 ("Defeating nondeterminism in LLM inference").
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import accumulate, cycle, pairwise
from typing import Any, ClassVar, NamedTuple

import lightning as L
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from dpgen.callbacks import Clipping
from dpgen.nets import ModelBank, RecordGradients
from dpgen.nets.bank import Noise
from dpgen.privacy.clipping import ROUNDED, SENSITIVITY, SHORT, clipped_sums, gradient_norms, sensitivity_of_people
from dpgen.privacy.curator import Curator, Draw
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.noise import to_device
from dpgen.privacy.sampling import Batch
from dpgen.systems.dp_sgd.partition import Partition
from dpgen.systems.dp_sgd.plan import NOT_CALIBRATED, DPSGDConfig, DPSGDPlan

_UNIT = 16
_MOST = 128
_ENTRIES = 2**20  # of gradients that are multiplied out: more rows would make them no faster
_NORMS = 64  # on which a policy of your own is tried
_TRIALS = 16  # at least, and two of every shape: one with all rows present, one with some


class Shapes(NamedTuple):
    """Rows of a cluster are padded to multiples of `unit` and multiplied `most` at a time.

    Arguments:
        alone: one call per record.
        transposed: affine maps multiply transposed records.
    """

    unit: int
    most: int
    alone: bool = False
    transposed: bool = False

    def bounds(self, present: Sequence[int]) -> list[int]:
        """First padded row of every cluster, and the end, (k + 1,).

        >>> Shapes(16, 128).bounds([3, 0, 17])
        [0, 16, 16, 48]
        """
        return [0, *accumulate(-(-n // self.unit) * self.unit for n in present)]

    def gradients(self, bank: ModelBank, x: Tensor, present: Sequence[int], noise: Noise) -> RecordGradients:
        """Gradients of padded rows x (b, d), `present` (k,) records first in every cluster, each from that record alone."""
        bounds = self.bounds(present)
        bank.most_rows, bank.transposed = self.most, self.transposed
        if not self.alone or bounds[-1] == 0:
            made = bank.gradients(x, bounds, noise)
        else:
            rows = (
                bank.gradients(x[r : r + 1], [0] * (c + 1) + [1] * (bank.k - c), noise)
                for c, (a, b) in enumerate(pairwise(bounds))
                for r in range(a, b)
            )
            made = _joined(list(rows))
        return made.full()._replace(bounds=bounds, present=present, most_rows=self.most)


def _joined(parts: Sequence[RecordGradients]) -> RecordGradients:
    columns = zip(*(part.factors for part in parts))
    factors = [
        column[0]._replace(
            outputs=torch.cat([f.outputs for f in column]),
            inputs=None if column[0].inputs is None else torch.cat([f.inputs for f in column if f.inputs is not None]),
        )
        for column in columns
    ]
    return parts[0]._replace(factors=factors)


def candidates(expected: float, most_rows: int) -> list[Shapes]:
    """Shapes to try, the fastest first, for clusters of `expected` records in a draw and at most so many rows at once.

    >>> [(s.unit, s.most) for s in candidates(60.0, 1024)]  # the last but two are transposed, the last one is alone
    [(16, 128), (80, 80), (16, 16), (16, 128), (16, 16), (1, 1)]
    """
    top = max(1, min(most_rows, _MOST))
    unit = min(_UNIT, 2 ** (top.bit_length() - 1))
    most = top // unit * unit
    fixed = min(most, max(1, math.ceil((expected + 2.0 * math.sqrt(expected)) / unit)) * unit)
    tried = [Shapes(unit, most), Shapes(fixed, fixed), Shapes(unit, unit)]
    transposed = [Shapes(unit, rows, transposed=True) for rows in (most, unit)]
    return list(dict.fromkeys([*tried, *transposed, Shapes(1, 1, alone=True)]))


def fitting_shapes(
    bank: ModelBank, d: int, *, categories: int = 0, expected: float, micro_batch: int, declared: bool = False
) -> Shapes:
    """The fastest shapes that pass the test on the device, in the precision and with the threads of this moment.

    Arguments:
        d: columns of a record.
        categories: how many of them, the last, are a one-hot label.
        expected: records of a cluster in a draw.
        micro_batch: most rows in one call.
        declared: in half precision it is an assumption that records do not depend on each other: where no shapes pass at
            once, the first ones are taken.

    Raises:
        ValueError: not even a record by itself has the same gradient twice.
    """
    generator = torch.Generator().manual_seed(0)  # public: random records of its own
    at_once = min(micro_batch, max(_UNIT, _ENTRIES // bank.p)) if bank.dense else micro_batch
    tried = candidates(expected, at_once)
    for shapes in tried:
        if declared and shapes.alone:
            return tried[0]
        if _Trials(bank, shapes, d, categories, generator).passed(max(micro_batch, shapes.unit)):
            if shapes.alone and micro_batch > 1:
                warnings.warn(
                    f"on this device a record of {type(bank).__name__} has another gradient beside other records, whatever the "
                    "shape of the batch: gradients are taken one record at a time, which is slow",
                    stacklevel=2,
                )
            return shapes
    raise ValueError(
        f"the gradient of a record of {type(bank).__name__} is not the same twice on {bank.theta.device}, so no sensitivity "
        "holds: use deterministic kernels (torch.use_deterministic_algorithms) or another device"
    )


class _Trials:
    """Random records with latent noise of their own, in many batches; their gradients' bits as one number each."""

    def __init__(self, bank: ModelBank, shapes: Shapes, d: int, categories: int, generator: torch.Generator) -> None:
        self.bank, self.shapes, self.generator, self.device = bank, shapes, generator, bank.theta.device
        x = torch.rand(shapes.most, d, generator=generator)
        if categories:
            x[:, -categories:] = 0.0
            x[torch.arange(len(x)), d - categories + torch.arange(len(x)) % categories] = 1.0
        self.x = x.to(self.device)
        self._latents: dict[int, Tensor] = {}
        self._offset = torch.randn(bank.theta.shape, generator=generator).to(self.device) if bank.has_offset else None

    def passed(self, most: int) -> bool:
        """Whether every record has the same bits in all batches of up to `most` rows, and a cluster's sum beside any other."""
        everybody = torch.arange(self.shapes.most)
        nobody = everybody[:0]
        k = self.bank.k
        alone = [self._bits([everybody if c == own else nobody for c in range(k)])[own] for own in range(k)]
        for chosen in self._batches(most):
            found = self._bits(chosen)
            if not all(torch.equal(own[rows], bits) for own, rows, bits in zip(alone, chosen, found)):
                return False
            fewer = [rows if c % 2 else nobody for c, rows in enumerate(chosen)]
            if not torch.equal(self._sums(chosen)[1::2], self._sums(fewer)[1::2]):
                return False
        return True

    def _batches(self, most: int) -> Iterator[list[Tensor]]:
        """Records of each cluster in the trials: every size is tried with all places taken, then with some, as often again."""
        sizes = range(self.shapes.unit, self.shapes.most + 1, self.shapes.unit)
        visits = max(2, -(-_TRIALS // len(sizes)))
        left = [(size, visit % 2 == 0) for visit in range(visits) for size in sizes]
        clusters = cycle(range(self.bank.k))
        while left:
            chosen, rows = [torch.arange(0)] * self.bank.k, 0
            for _ in range(self.bank.k):
                if left and (rows == 0 or rows + left[0][0] <= most):
                    size, full = left.pop(0)
                    n = (
                        size
                        if full
                        else int(torch.randint(max(1, size - self.shapes.unit + 1), size + 1, (), generator=self.generator))
                    )
                    chosen[next(clusters)] = torch.randperm(self.shapes.most, generator=self.generator)[:n]
                    rows += size
            next(clusters)
            yield chosen

    def _gradients(self, chosen: Sequence[Tensor]) -> RecordGradients:
        present = [len(rows) for rows in chosen]
        bounds = self.shapes.bounds(present)
        owner = torch.randint(self.shapes.most, (bounds[-1],), generator=self.generator)
        x = self.x.new_zeros(bounds[-1], self.x.shape[1])
        for start, rows in zip(bounds, chosen):
            owner[start : start + len(rows)] = rows
            x[start : start + len(rows)] = self.x[rows.to(self.device)]
        asked = 0

        def noise(*shape: int) -> Tensor:
            nonlocal asked
            b, width = shape
            if width not in self._latents:
                self._latents[width] = torch.randn(self.shapes.most, width, generator=self.generator)
            asked += b
            return self._latents[width][owner[asked - b : asked]].to(self.device)

        with torch.enable_grad():
            made = self.shapes.gradients(self.bank, x, present, noise)
        return made if self._offset is None else made._replace(offset=self._offset)

    def _bits(self, chosen: Sequence[Tensor]) -> list[Tensor]:
        """A number (n_c,) for every record of every cluster: of its factors and its norm."""
        made = self._gradients(chosen)
        parts = [v for f in made.factors for v in (f.outputs, f.inputs) if v is not None]
        total = sum(_hashed(v) for v in (*parts, gradient_norms(made)[:, None]))
        assert isinstance(total, Tensor)
        return [total[start : start + len(rows)] for start, rows in zip(made.bounds, chosen)]

    def _sums(self, chosen: Sequence[Tensor]) -> Tensor:
        made = self._gradients(chosen)
        norms = gradient_norms(made)
        weights = torch.zeros_like(norms)
        for start, n in zip(made.bounds, made.present or ()):
            own = norms[start : start + n]
            weights[start : start + n] = torch.where(torch.isfinite(own) & (own > 0), 1.0 / own, 0.0)  # as in training
        return clipped_sums(made, weights, torch.empty_like(self.bank.theta))


def _hashed(rows: Tensor) -> Tensor:
    """A number for each row (b, ...) that differs if a bit does; 0 and -0 are the same."""
    words = (rows.detach().flatten(1) + 0.0).view(torch.int32 if rows.dtype == torch.float32 else torch.int64).long()
    odd = torch.randint(2**62, (words.shape[1],), generator=torch.Generator().manual_seed(words.shape[1])) * 2 + 1
    return (words * odd.to(words.device)).sum(1)


def _require_length(what: str, values: Tensor, n: int, meaning: str) -> None:
    """Refuse what a clipping policy returns in another shape; broadcast, it would count for others.

    Raises:
        ValueError: naming the method and the shapes.
    """
    if not isinstance(values, Tensor):
        raise ValueError(f"{what}() is a {type(values).__name__}; it must be a tensor of shape ({n},), {meaning}")
    if values.shape != (n,):
        raise ValueError(f"{what}() has shape {tuple(values.shape)}; it must be ({n},), {meaning}")


def _require_own_norms(policy: Clipping, k: int, device: torch.device) -> None:
    """Try on random norms that a record of one of k clusters has the weight that it has alone.

    Raises:
        ValueError: it has another one, so what one record moves a sum by is more than its own term.
    """
    generator = torch.Generator().manual_seed(0)  # public
    norms = (3.0 * torch.randn(_NORMS, generator=generator)).exp().to(device)
    cluster = torch.randint(k, (_NORMS,), generator=generator).to(device)

    def weights(rows: slice) -> Tensor:
        return _weights_of(policy, norms[rows], cluster[rows])

    alone = torch.cat([weights(slice(i, i + 1)) for i in range(_NORMS)])
    if not torch.allclose(weights(slice(None)), alone, rtol=1e-4, atol=0.0, equal_nan=True):
        raise ValueError(
            f"{type(policy).__name__}.coefficients gives a record another weight beside other records; it must depend on the "
            "record's own norm and on released values alone"
        )


def _weights_of(policy: Clipping, norms: Tensor, cluster: Tensor) -> Tensor:
    given = policy.coefficients(norms, cluster)
    _require_length(f"{type(policy).__name__}.coefficients", given, len(norms), "one weight for each record")
    return given


class _Part(NamedTuple):
    """Some rows of a sorted draw: of every cluster a slice, maybe an empty one, and how many that is."""

    rows: Sequence[slice]
    present: Sequence[int]


class _Piece(NamedTuple):
    """Gradients of a part, their norms, clusters and shares; `places` are the records' rows among the padded ones."""

    gradients: RecordGradients
    norms: Tensor
    cluster: Tensor
    places: Tensor
    share: Tensor | None


class PrivateSums(L.LightningModule):
    r"""Per-cluster sums of clipped gradients of a Poisson draw, with noise: one Gaussian mechanism.

    Formal guarantees, whatever the bank computes, and whatever weight a clipping policy gives a record by its own norm:

    | case | what holds |
    |---|---|
    | any record | moves the sums by at most `SENSITIVITY`: 1 and what rounding adds; without a finite norm by nothing |
    | a person with k records | weighs each of them 1/k: their terms have norm at most 1 together, in any clusters |
    | a record among others | its gradient, norm and clipped term have the bits that they have alone (see the module) |
    | a cluster, a rank or everybody without records | releases noise like any other |
    | micro-batches | the same sums; one draw is split, never several joined |
    | several ranks | each adds its own draw's sums and histograms; the total gets its noise once |
    | autocast | norms and sums are float32, computed from the same factors |

    A subclass sets the five attributes below, `clip_by` and `serve`, and hands every draw of its curator to `noisy_sums`.

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
    _policy: Clipping
    _private_logs: bool = False
    _curator: Curator | None = None
    _shapes: Shapes | None = None

    def clip_by(self, policy: Clipping) -> None:
        """Let a policy that has begun decide how gradients are clipped.

        Raises:
            ValueError: one of your own gives a record another weight beside other records.
        """
        if policy.assumptions:
            _require_own_norms(policy, self.bank.k, self.bank.theta.device)
        self._policy = policy

    def released_values(self) -> dict[str, float]:
        """Clip bounds, if there are any."""
        bounds = self._policy.scale()
        return {} if bounds is None else {f"clip_bound_{c}": bound for c, bound in enumerate(bounds.tolist())}

    def released_histograms(self) -> dict[str, tuple[Tensor, Tensor]]:
        """The noisy histograms of gradient norms that an adaptive policy released last, by cluster."""
        released = self._policy.released_norms()
        return {} if released is None else {f"norms_{c}": (released[0], counts) for c, counts in enumerate(released[1])}

    def expected_records(self) -> float:
        """Expected records in a step, from noisy sizes."""
        return self.plan.sampling_rate * float(self.partition.counts.clamp_min(0.0).sum())

    def fuse(self) -> None:
        """Let `torch.compile` fuse what the networks compute entry by entry."""
        self.bank.fuse()

    def parts(self) -> dict[str, float]:
        """Releases of one step by name, with the noise multiplier of each: `Curator.draw` charges them as one event."""
        if self.plan.sigma_sgd is None:
            raise ValueError(NOT_CALIBRATED)
        adaptive = self._policy.noise_multiplier
        return ({} if adaptive is None else {"norms": adaptive}) | {"gradients": self.plan.sigma_sgd}

    def serve(self, curator: Curator) -> None:
        """Take secret latents from this curator; its draws are what steps release from."""
        self._curator = curator

    def noisy_sums(self, batch: Batch, draw: Draw, out: Tensor | None = None, *, averaged: bool = False) -> Tensor:
        """The private release of a step, `parts()`: clipped sums (k, p) in units of the clip bounds plus N(0, sigma_S^2).

        Arguments:
            out: where to write, (k, p).
            averaged: give out the gradients of the step instead, the noisy sums times `averaging()`.
        """
        self._fit_shapes(batch.x.shape[1])
        order, batch = self._sorted(batch)
        assert batch.sizes is not None
        parts = self._parts(batch.sizes)
        # A single part keeps its factors between the two passes; several are computed twice to save memory.
        kept = [self._piece(batch, order, part) for part in parts] if len(parts) == 1 else None
        if self._policy.noise_multiplier is not None:
            norms, clusters = zip(*(p[1:3] for p in kept or (self._piece(batch, order, part) for part in parts)))
            histogram = self._policy.histogram(torch.cat(norms), torch.cat(clusters))
            self._policy.observe(draw.gaussian("norms", histogram))
        sums = self._target(batch.sizes, out)
        for i, part in enumerate(parts):
            piece = kept[i] if kept else self._piece(batch, order, part)
            if self._private_logs and len(piece.norms):
                self.log("private/mean_gradient_norm", piece.norms.nanmean())
            weights = torch.zeros(piece.gradients.bounds[-1], device=piece.norms.device)
            weights[piece.places] = self._weights(piece)
            short = min(SHORT, self.config.micro_batch)
            clipped_sums(piece.gradients, weights, sums, accumulate=i > 0, drawn=batch.sizes, short=short)
        factor = self.averaging() if averaged else None
        noisy = draw.gaussian("gradients", self._bounded(sums, of_people=batch.share is not None), factor=factor)
        if noisy.dtype == self.bank.theta.dtype:
            return noisy
        return noisy.to(self.bank.theta.dtype) if out is None else out.copy_(noisy)

    def _bounded(self, sums: Tensor, *, of_people: bool) -> BoundedSum:
        """The sums with what a record moves them by, or a person whose records are averaged."""
        assert self._curator is not None
        clusters = min(self._curator.rows, self.bank.k)
        sensitivity = sensitivity_of_people(clusters) if of_people else SENSITIVITY
        return BoundedSum(sums, sensitivity, unit="clipped gradients", of_unit=of_people)

    def _weights(self, piece: _Piece) -> Tensor:
        """Coefficients (b,): whatever a policy says, no record weighs more than 1, or than its share of a person.

        One without a finite norm, or whose weight is NaN, weighs nothing: refused, it would show that it is there.
        """
        given = _weights_of(self._policy, piece.norms, piece.cluster)
        weights = given.clamp_min(0.0).minimum(1.0 / piece.norms)
        finite = torch.where(torch.isfinite(piece.norms) & ~weights.isnan(), weights, 0.0)
        return finite if piece.share is None else finite * piece.share

    def averaging(self) -> Tensor:
        """Factors (k,) from noisy sums to gradients: clip bounds over expected sizes, never over drawn ones."""
        bounds, sizes = self._policy.scale(), to_device(self.expected_sizes(), self.bank.theta.device)
        if bounds is not None:
            _require_length(f"{type(self._policy).__name__}.scale", bounds, len(sizes), "one bound for each cluster")
        return (1.0 if bounds is None else bounds.to(sizes.device)) / sizes

    def _target(self, sizes: Sequence[int], out: Tensor | None) -> Tensor:
        """Memory of the sums: float64 where float32 would add an error of its own, over ranks, parts or many records.

        Public numbers decide; a cluster that is drawn ten standard deviations above its noisy size is not left to chance.
        """
        assert self._curator is not None
        most, likely = min(ROUNDED, self.config.micro_batch), 0.0
        if self.partitioned:
            expected = float(self.expected_sizes().max())
            likely = self._curator.rows * (expected + 10.0 * math.sqrt(expected))
        exact = self._curator.ranks.count > 1 or self.config.micro_batch < SHORT or max(likely, *sizes) > most
        if exact:
            return torch.empty_like(self.bank.theta, dtype=torch.float64)
        return torch.empty_like(self.bank.theta) if out is None else out

    @abstractmethod
    def expected_sizes(self) -> Tensor:
        """Expected records per cluster in a draw, (k,), from noisy sizes."""

    def _sorted(self, batch: Batch) -> tuple[Tensor | None, Batch]:
        """The order of the draw's rows by cluster, None where `PoissonLoader` has sorted them, and the draw with its sizes."""
        if batch.sizes is not None:
            return None, batch
        cluster, order = batch.cluster.sort(stable=True)
        sizes = tuple(torch.bincount(cluster, minlength=self.bank.k).tolist())
        return order, batch._replace(cluster=cluster, sizes=sizes)

    def _parts(self, sizes: Sequence[int]) -> list[_Part]:
        """Parts of a sorted draw of at most `micro_batch` rows with their padding; at least one, maybe empty.

        A cluster that is larger has parts of its own, so that how it is cut does not depend on other clusters.
        """
        assert self._shapes is not None
        unit, most = self._shapes.unit, self.config.micro_batch
        empty = [slice(0, 0)] * len(sizes)
        rows, used, start = list(empty), 0, 0
        parts: list[list[slice]] = []
        for c, n in enumerate(sizes):
            padded = math.ceil(n / unit) * unit
            if n and n <= most:
                if used and used + padded > most:
                    parts, rows, used = [*parts, rows], list(empty), 0
                rows[c], used = slice(start, start + n), used + padded
            for first in range(start, start + n, most) if n > most else ():
                own = list(empty)
                own[c] = slice(first, min(first + most, start + n))
                parts.append(own)
            start += n
        if used or not parts:
            parts.append(rows)
        return [_Part(rows, [r.stop - r.start for r in rows]) for rows in parts]

    def _piece(self, batch: Batch, order: Tensor | None, part: _Part) -> _Piece:
        """Some records of a draw, padded so that each has the gradient that it would have alone, and their norms."""
        assert self._shapes is not None
        shapes = self._shapes
        bounds = shapes.bounds(part.present)
        places = torch.cat([torch.arange(start, start + n) for start, n in zip(bounds, part.present)])
        rows = torch.cat([torch.arange(r.start, r.stop) for r in part.rows])
        # Padding repeats the first record of the part: what stands beside a record does not matter, and weighs nothing.
        padded = rows[:1].repeat(bounds[-1]).index_copy_(0, places, rows)
        chosen, on_device = to_device(padded, batch.x.device), to_device(places, batch.x.device)
        chosen = chosen if order is None else order[chosen]
        x = batch.x[chosen]
        if self.categories:
            x = torch.cat([x, one_hot(batch.labels[chosen], self.categories).to(x)], 1)
        with torch.enable_grad():
            gradients = shapes.gradients(self.bank, x, part.present, self._latent)
        norms, own = gradient_norms(gradients)[on_device], to_device(rows, x.device)
        share = None if batch.share is None else batch.share[own if order is None else order[own]]
        return _Piece(gradients, norms, batch.cluster[own], on_device, share)

    def _fit_shapes(self, d: int, *, declared: bool = False) -> None:
        """Find the shapes of products for records of d columns, once for a training, by trying them.

        Arguments:
            declared: that records do not depend on each other is an assumption of the statement; what fails costs nothing.
        """
        if self._shapes is None:
            self._shapes = fitting_shapes(
                self.bank,
                d + self.categories,
                categories=self.categories,
                expected=max(1.0, self.expected_records() / self.bank.k) if self.partitioned else 1.0,
                micro_batch=self.config.micro_batch,
                declared=declared,
            )

    def _latent(self, *shape: int) -> Tensor:
        """Standard normal noise that acts on records, so it is secret."""
        assert self._curator is not None
        return to_device(self._curator.latents(*shape), self.device)
