"""The private release of a training step: clipped sums of one Poisson draw, over all ranks, and their noise."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import lightning as L
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from dpgen.callbacks import Clipping
from dpgen.nets import ModelBank, RecordGradients
from dpgen.privacy.clipping import ROUNDED, SENSITIVITY, SHORT, clipped_sums, gradient_norms
from dpgen.privacy.curator import Curator, Draw
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.noise_shares import to_device
from dpgen.privacy.sampling import Batch
from dpgen.systems.clusters.partition import Partition
from dpgen.systems.networks.dpgm_options import DPGMConfig, DPGMPlan
from dpgen.systems.networks.invariance import Shapes, fitting_shapes


class Part(NamedTuple):
    """Some rows of a sorted draw: of every cluster a slice, maybe an empty one, and how many that is."""

    rows: Sequence[slice]
    present: Sequence[int]


class Piece(NamedTuple):
    """Gradients of a part, their norms and clusters; `places` are the records' rows among the padded ones."""

    gradients: RecordGradients
    norms: Tensor
    cluster: Tensor
    places: Tensor


class PrivateSums(L.LightningModule):
    r"""Per-cluster sums of clipped gradients of a Poisson draw, with noise: one Gaussian mechanism.

    Formal guarantees, whatever the bank and the clipping policy compute:

    | case | what holds |
    |---|---|
    | any record | moves the sums by at most `SENSITIVITY`: 1 and what rounding adds; without a finite norm by nothing |
    | a record among others | its gradient, norm and clipped term have the bits that they have alone (`invariance`) |
    | a cluster, a rank or everybody without records | releases noise like any other |
    | micro-batches | the same sums; one draw is split, never several joined |
    | several ranks | each adds its own draw's sums and histograms; the total gets its noise once |
    | autocast | norms and sums are float32, computed from the same factors |

    A subclass sets the attributes below.
    """

    exact_sums: ClassVar[bool] = True
    """Norms and clipped sums are float32 also under autocast, so half precision elsewhere moves no sensitivity."""

    shards_records: ClassVar[bool] = True
    """Every rank draws from its own shard of the records, so that one step is one mechanism for all ranks."""

    bank: ModelBank
    config: DPGMConfig
    plan: DPGMPlan
    categories: int
    partition: Partition
    partitioned: bool = False
    _policy: Clipping
    _private_logs: bool
    _curator: Curator | None = None
    _shapes: Shapes | None = None

    def clip_by(self, policy: Clipping) -> None:
        """Let a policy that has begun decide how gradients are clipped."""
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
        """What a step releases of its draw, and the noise multiplier of each: `Curator.draw` charges them as one event."""
        if self.plan.sigma_sgd is None:
            raise ValueError("the plan's noise is not set: call calibrated() first")
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
        noisy = draw.gaussian("gradients", BoundedSum(sums, SENSITIVITY, unit="clipped gradients"), factor=factor)
        if noisy.dtype == self.bank.theta.dtype:
            return noisy
        return noisy.to(self.bank.theta.dtype) if out is None else out.copy_(noisy)

    def _weights(self, piece: Piece) -> Tensor:
        """Coefficients (b,): whatever a policy says, no record weighs more than 1; one without a finite norm weighs nothing."""
        weights = self._policy.coefficients(piece.norms, piece.cluster).clamp_min(0.0).minimum(1.0 / piece.norms)
        return torch.where(torch.isfinite(piece.norms), weights, 0.0)

    def averaging(self) -> Tensor:
        """What turns noisy sums into gradients, (k,): clip bounds over expected sizes, never over drawn ones."""
        bounds, sizes = self._policy.scale(), to_device(self._expected_sizes(), self.bank.theta.device)
        return (1.0 if bounds is None else bounds.to(sizes.device)) / sizes

    def _target(self, sizes: Sequence[int], out: Tensor | None) -> Tensor:
        """Where the sums go: float64 where float32 would add an error of its own, over ranks, parts or many records.

        Public numbers decide; a cluster that is drawn ten standard deviations above its noisy size is not left to chance.
        """
        assert self._curator is not None
        most, likely = min(ROUNDED, self.config.micro_batch), 0.0
        if self.partitioned:
            expected = float(self._expected_sizes().max())
            likely = expected + 10.0 * math.sqrt(expected)
        exact = self._curator.ranks.count > 1 or self.config.micro_batch < SHORT or max(likely, *sizes) > most
        if exact:
            return torch.empty_like(self.bank.theta, dtype=torch.float64)
        return torch.empty_like(self.bank.theta) if out is None else out

    @abstractmethod
    def _expected_sizes(self) -> Tensor:
        """Expected records per cluster in a draw, (k,), from noisy sizes."""

    def _sorted(self, batch: Batch) -> tuple[Tensor | None, Batch]:
        """The order of the draw's rows by cluster, None where `PoissonLoader` has sorted them, and the draw with its sizes."""
        if batch.sizes is not None:
            return None, batch
        cluster, order = batch.cluster.sort(stable=True)
        sizes = tuple(torch.bincount(cluster, minlength=self.bank.k).tolist())
        return order, batch._replace(cluster=cluster, sizes=sizes)

    def _parts(self, sizes: Sequence[int]) -> list[Part]:
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
        return [Part(rows, [r.stop - r.start for r in rows]) for rows in parts]

    def _piece(self, batch: Batch, order: Tensor | None, part: Part) -> Piece:
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
        return Piece(gradients, gradient_norms(gradients)[on_device], batch.cluster[to_device(rows, x.device)], on_device)

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
