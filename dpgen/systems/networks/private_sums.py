"""The private release of a training step: clipped sums of one Poisson draw, over all ranks, and their noise."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import ClassVar

import lightning as L
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from dpgen.callbacks import Clipping
from dpgen.nets import ModelBank, RecordGradients
from dpgen.privacy.clipping import clipped_sums, gradient_norms
from dpgen.privacy.mechanisms import GaussianMechanism
from dpgen.privacy.noise import SecureSource
from dpgen.privacy.noise_ahead import NoiseAhead
from dpgen.privacy.noise_shares import release_sum_, to_device
from dpgen.privacy.ranks import Ranks
from dpgen.privacy.sampling import Batch
from dpgen.systems.clusters.partition import Partition
from dpgen.systems.networks.dpgm_options import DPGMConfig, DPGMPlan


class PrivateSums(L.LightningModule):
    r"""Per-cluster sums of clipped gradients of a Poisson draw, with noise: one Gaussian mechanism of sensitivity 1.

    Formal guarantees, whatever the bank and the clipping policy compute:

    | case | what holds |
    |---|---|
    | any record | its term has L2 norm at most 1 in float32; without a finite norm it is zero |
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
    _policy: Clipping
    _source: SecureSource
    _ranks: Ranks
    _private_logs: bool
    _ahead: NoiseAhead | None = None

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

    def noisy_sums(self, batch: Batch, out: Tensor | None = None) -> Tensor:
        """The private release of a step: clipped sums (k, p) in units of the clip bounds plus N(0, sigma_S^2)."""
        batch, parts = self._sorted(batch), self._parts(batch)
        # A single part keeps its factors between the two passes; several are computed twice to save memory.
        kept = list(self._pieces(batch, parts)) if len(parts) == 1 else None
        if self._policy.noise_multiplier is not None:
            histograms = (self._policy.histogram(gradient_norms(g), c) for c, g in kept or self._pieces(batch, parts))
            histogram = self._ranks.sum_(torch.stack(list(histograms)).sum(0))
            if self._ranks.index == 0:
                histogram = GaussianMechanism(self._policy.noise_multiplier).release(histogram, self._source)
            self._policy.observe(self._ranks.broadcast_(histogram))
        sums = torch.empty_like(self.bank.theta) if out is None else out
        for i, (cluster, gradients) in enumerate(kept or self._pieces(batch, parts)):
            norms = gradient_norms(gradients)
            if self._private_logs and cluster.numel():
                self.log("private/mean_gradient_norm", norms.nanmean())
            # Whatever a policy says, no record may weigh more than 1; one without a finite norm weighs nothing.
            coefficients = self._policy.coefficients(norms, cluster).clamp_min(0.0).minimum(1.0 / norms)
            coefficients = torch.where(torch.isfinite(norms), coefficients, 0.0)
            clipped_sums(gradients, coefficients, sums, accumulate=i > 0)
        assert self.plan.sigma_sgd is not None
        return release_sum_(sums, noise_std=self.plan.sigma_sgd, source=self._source, ranks=self._ranks, ahead=self._ahead)

    def _sorted(self, batch: Batch) -> Batch:
        """The draw with its rows sorted by cluster; `PoissonLoader` has done so before a device got it."""
        if batch.sizes is not None:
            return batch
        cluster, order = batch.cluster.sort(stable=True)
        sizes = tuple(torch.bincount(cluster, minlength=self.bank.k).tolist())
        return Batch(batch.x[order], cluster, batch.labels[order], batch.group, sizes)

    def _parts(self, batch: Batch) -> Sequence[slice]:
        """Rows of a sorted draw, at most `micro_batch` in a part; at least one part, maybe empty."""
        b, most = batch.x.shape[0], self.config.micro_batch
        return [slice(start, min(b, start + most)) for start in range(0, max(b, 1), most)]

    def _pieces(self, batch: Batch, parts: Sequence[slice]) -> Iterator[tuple[Tensor, RecordGradients]]:
        batch = self._sorted(batch)
        return (self._piece(batch, part) for part in parts)

    def _piece(self, batch: Batch, part: slice) -> tuple[Tensor, RecordGradients]:
        """Some records of a sorted draw: their clusters and gradients, as float32 whatever they were computed in."""
        assert batch.sizes is not None
        x, labels = batch.x[part], batch.labels[part]
        if self.categories:
            x = torch.cat([x, one_hot(labels, self.categories).to(x)], 1)
        bounds = [min(max(end, part.start), part.stop) - part.start for end in accumulate(batch.sizes, initial=0)]
        with torch.enable_grad():
            return batch.cluster[part], self.bank.gradients(x, bounds, self._latent).full()

    def _latent(self, *shape: int) -> Tensor:
        """Standard normal noise that acts on records, so it is secret."""
        return to_device(self._source.normal(*shape), self.device)
