"""DP-SGD as a LightningModule: one Poisson draw, the ledger's consent, noisy sums of clipped gradients, one step.

The private release of a training step: clipped sums of one Poisson draw, over all ranks, and their noise.

DP-SGD as a LightningModule: one Poisson draw, the ledger's consent, noisy sums of clipped gradients, one step.
"""

import math
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, ClassVar, NamedTuple

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn
from torch.nn.functional import one_hot

from dpgen.callbacks import AutomaticClipping, Clipping, Previews, PrivacyAccountant
from dpgen.callbacks.checkpoint import Checkpoint
from dpgen.nets import ModelBank, RecordGradients
from dpgen.privacy.accountants import Relation
from dpgen.privacy.clipping import ROUNDED, SENSITIVITY, SHORT, clipped_sums, gradient_norms
from dpgen.privacy.curator import Curator, Draw
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Ledger, Planned
from dpgen.privacy.noise import PublicRandomness, to_device
from dpgen.privacy.sampling import Batch, OneClusterSchedule, PoissonLoader
from dpgen.release import RecordModel
from dpgen.runtime import Runtime
from dpgen.statement import PrivacyStatement
from dpgen.systems.dp_sgd.invariance import Shapes, fitting_shapes
from dpgen.systems.dp_sgd.partition import Partition
from dpgen.systems.dp_sgd.plan import NOT_CALIBRATED, DPSGDConfig, DPSGDPlan
from dpgen.systems.dp_sgd.warm_start import Start
from dpgen.systems.plan import CHOSEN_BLIND, EXACT_INTEGERS, ONE_RECORD, ROUNDED_FLOATS, SECURE_NOISE

# -- private sums ------------------------------------------------------------------------------------------------------


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
    config: DPSGDConfig
    plan: DPSGDPlan[Any]
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
        noisy = draw.gaussian("gradients", BoundedSum(sums, SENSITIVITY, unit="clipped gradients"), factor=factor)
        if noisy.dtype == self.bank.theta.dtype:
            return noisy
        return noisy.to(self.bank.theta.dtype) if out is None else out.copy_(noisy)

    def _weights(self, piece: Piece) -> Tensor:
        """Coefficients (b,): whatever a policy says, no record weighs more than 1; one without a finite norm weighs nothing."""
        weights = self._policy.coefficients(piece.norms, piece.cluster).clamp_min(0.0).minimum(1.0 / piece.norms)
        return torch.where(torch.isfinite(piece.norms), weights, 0.0)

    def averaging(self) -> Tensor:
        """Factors (k,) from noisy sums to gradients: clip bounds over expected sizes, never over drawn ones."""
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


# -- dp sgd ------------------------------------------------------------------------------------------------------------


STEPS = "training steps"
"""Note of training steps in the ledger."""

SAME_BITS = (
    "a record's gradient has the same bits beside any other records: products of the shapes that training uses were tried on "
    "random records when it began"
)
ASSUMPTIONS = (
    ONE_RECORD,
    CHOSEN_BLIND,
    SECURE_NOISE,
    "so do sampling masks, and nobody sees the number of records in a draw",
    ROUNDED_FLOATS,
    EXACT_INTEGERS,
    SAME_BITS,
)
"""What the statement of a training by DP-SGD rests on."""

SEVERAL_RANKS = "the processes that trained together, their machines and the network between them trust one another"
BFLOAT16 = (
    "networks ran in bfloat16: a record's gradient is taken not to depend on the other records of its draw, which holds up "
    "to how matrix products of another shape round; norms, clipping and noise were float32"
)


class DPSGD(PrivateSums):
    r"""Models in a bank, each with its own records, trained together by DP-SGD.

    A step takes one Poisson(q) draw S over the whole data set; each record's gradient goes to its own cluster's model:

    .. math::
        \theta_c \leftarrow \text{step}\Big(\frac{C_c}{q \tilde n_c} \Big[
        \sum_{r \in S_c} \frac{\text{clip}(g_r, C_c)}{C_c} + N(0, \sigma_S^2 I)\Big]\Big)
        \quad \text{for every } c, \text{ also where } S_c \text{ is empty.}

    One record touches one cluster, so a step is one subsampled Gaussian of sensitivity 1 for all models together. The
    ledger agrees before each step, and before the partition is found.

    Arguments:
        bank: the models, untrained.
        partition: which of them a record belongs to.
        plan: what may be spent, calibrated.
        config: how gradients are clipped and followed.
        n_classes: number of labels of the records, 0 without.
        categories: labels that are columns of the models, 0 for none.
        public: randomness of what is not private.
        private_logs: also log the mean gradient norm of the drawn records, which the guarantee does not cover.

    Source: Abadi et al. 2016, Algorithm 1, with Poisson draws.
    """

    def __init__(
        self,
        bank: ModelBank,
        partition: Partition,
        *,
        plan: DPSGDPlan[Any],
        config: DPSGDConfig,
        n_classes: int,
        categories: int,
        public: PublicRandomness,
        private_logs: bool = False,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.bank, self.partition, self.plan, self.config = bank, partition, plan, config
        self.n_classes, self.categories = n_classes, categories
        with torch.no_grad():
            self.bank.initialize(public.spawn("weights").generator)
        self.partitioned = False
        self._public, self._private_logs = public, private_logs
        self._draw: Draw | None = None
        self._declared = False
        self._ledger: Ledger | None = None
        self._policy = AutomaticClipping()
        self._circumstances: list[str] = []

    # -- before training ---------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """One optimizer over k rows that share memory with the parameter matrix, so that one model may rest."""
        self._rows = [nn.Parameter(row) for row in self.bank.theta.detach()]
        self._sums = torch.empty_like(self.bank.theta)
        if self.config.optimizer == "sgd":
            return torch.optim.SGD(self._rows, lr=self.config.lr)
        return torch.optim.Adam(self._rows, lr=self.config.lr, fused=True)

    def on_train_start(self) -> None:
        loader = self._loader()
        self._accountant = self._callback(PrivacyAccountant)
        if self._accountant is None:
            raise ValueError(f"{type(self).__name__} trains only with dpgen's PrivacyAccountant among the trainer's callbacks")
        self._require_ledger(self._accountant.ledger)
        # An adaptive policy has to be a callback of the trainer, which keeps its state in checkpoints.
        default = AutomaticClipping() if self.config.adaptive else self.config.clipping_callback(self.plan)
        self._policy = self._callback(Clipping) or default
        if (self._policy.noise_multiplier is not None) != self.config.adaptive or (
            self.config.adaptive and self._policy.noise_multiplier != self.plan.sigma_norm
        ):
            raise ValueError(
                f"the clipping callback {type(self._policy).__name__} has noise_multiplier {self._policy.noise_multiplier}, "
                f"but the plan was made for clipping={self.config.clipping!r} with sigma_norm={self.plan.sigma_norm}"
            )
        self._policy.begin(self.bank.k)
        self.serve(self._accountant.curator)
        self._require_equal_ranks(loader)
        loader.share(self._accountant.ranks)
        self._find_shapes(loader)
        table = loader.table
        if not self.partitioned:
            if not self._declared:
                self.declare(self._accountant.curator)
            self._find_partition(loader)
        loader.assign(self.partition.assign(table.x, table.labels), self.bank.k)
        if self.device.type == "cuda":
            loader.reside(self.device)
        loader.poisson.follow(self._schedule(), start=self.global_step)
        for logger in self.loggers:
            logger.log_metrics({f"released/size_{c}": size for c, size in enumerate(self.partition.counts.tolist())}, 0)
        if checkpoint := self._callback(Checkpoint):
            checkpoint.save(self.trainer)

    def planned(self, relation: Relation) -> tuple[Planned, ...]:
        """Everything that training releases, with its greatest count, as a ledger of this relation declares it."""
        step, steps = self.plan.step_event(self.config), self.plan.affordable_steps(self.config)
        return (*self.partition.planned(relation), Planned(step, STEPS, steps))

    def declare(self, curator: Curator, *before: Planned) -> None:
        """Declare the whole run, `before` included, before private records are touched."""
        curator.declare(*before, *self.planned(curator.relation))
        self._declared = True

    def _find_shapes(self, loader: PoissonLoader) -> None:
        """Shapes of products that keep a record's gradient, tried in the precision of training; see `invariance`."""
        self._shapes = None
        half = self.trainer.precision == "bf16-mixed"
        with self.trainer.precision_plugin.forward_context():
            self._fit_shapes(loader.table.x.shape[1], declared=half)

    def _find_partition(self, loader: PoissonLoader) -> None:
        """Rank 0 charges and releases the partition of all records; the others take over what it released."""
        curator, ranks = self._accountant.curator, self._accountant.ranks

        def find() -> dict[str, Any]:
            table = loader.table
            self.partition.fit(table.x, table.labels, curator=curator)
            return self.partition.state_dict()

        released = ranks.first(find)
        if ranks.index:
            self.partition.load_state_dict(released)
        curator.catch_up()
        self.partitioned = True

    def _require_equal_ranks(self, loader: PoissonLoader) -> None:
        """Shards are disjoint only if all ranks hold the same records in the same order."""
        ranks = self._accountant.ranks
        met = {SEVERAL_RANKS: ranks.count > 1, BFLOAT16: self.trainer.precision == "bf16-mixed"}
        self._circumstances += [text for text, holds in met.items() if holds and text not in self._circumstances]
        if ranks.count > 1:
            ranks.require_same("the records", loader.table.fingerprint())
            settings = sha256(repr((self.plan, self.config, self.global_step, self.partitioned)).encode()).hexdigest()
            ranks.require_same("the plan, the configuration and the checkpoint", settings)

    def _require_ledger(self, ledger: Ledger) -> None:
        """One ledger for all that a module does with private records, and the plan's delta and relation in it."""
        if self._ledger is not None and ledger is not self._ledger:
            raise ValueError("the ledger must be the one that this module was trained under: another misses what was spent")
        if (ledger.delta, ledger.relation) != (self.plan.delta, self.plan.relation):
            raise ValueError(
                f"the ledger's delta and relation must be the plan's {self.plan.delta:g} and {self.plan.relation!r}, got "
                f"{ledger.delta:g} and {ledger.relation!r}"
            )
        self._ledger = ledger

    def _callback(self, kind: type[Any]) -> Any:
        return next((c for c in self.trainer.callbacks if isinstance(c, kind)), None)  # type: ignore[attr-defined]

    def _loader(self) -> PoissonLoader:
        loader = self.trainer.train_dataloader
        if not isinstance(loader, PoissonLoader):
            raise ValueError(
                f"the training loader must be dpgen's PoissonLoader, got {type(loader).__name__}: shuffled or fixed-size "
                "batches are not Poisson samples and cost far more privacy than subsampled accounting says"
            )
        if loader.sampling_rate != self.plan.sampling_rate:
            raise ValueError(f"the loader's sampling_rate {loader.sampling_rate} is not the plan's {self.plan.sampling_rate}")
        if self.n_classes and loader.table.labels is None:
            raise ValueError(f"the loader needs labels: the model was made for n_classes={self.n_classes}")
        return loader

    def _schedule(self) -> OneClusterSchedule | None:
        """Which cluster each step draws from; None: every step draws from all of them."""
        return None

    def _charged_to(self, cluster: int) -> str | None:
        """The disjoint group of records that a step on one cluster (-1: on all) is charged to, if it is one."""
        return None

    # -- one step ----------------------------------------------------------------------------------------------------

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> int | None:
        """Ask for the draw's release; where the budget refuses it the epoch ends (-1) and training stops."""
        if batch.mask is None:
            raise ValueError("the batch has no mask of a Poisson draw: only those of dpgen's PoissonLoader may be released")
        self._draw = self._accountant.draw(STEPS, batch.mask, self.parts(), group=self._charged_to(batch.group))
        if self._draw is None:
            self.trainer.should_stop = True
            return -1
        return None

    @torch.no_grad()
    def training_step(self, batch: Batch, batch_idx: int) -> None:
        draw, self._draw = self._draw, None
        if draw is None:
            raise RuntimeError("training_step was called without the ledger's consent: train through lightning.Trainer.fit")
        with torch.autocast(self.device.type, enabled=False):
            self.bank.begin_step()
        with draw:
            gradients = self.noisy_sums(batch, draw, out=self._sums, averaged=True)
        self._descend(gradients, batch.group)

    def _descend(self, gradients: Tensor, group: int) -> None:
        for c, (row, gradient) in enumerate(zip(self._rows, gradients)):
            row.grad = gradient if group in (-1, c) else None
        optimizer = self.optimizers()
        assert not isinstance(optimizer, list)
        if self.config.lr_decay == "linear":
            for settings in optimizer.param_groups:
                settings["lr"] = self.config.lr * max(0.0, 1.0 - self.global_step / self.plan.steps)
        optimizer.step()

    def _expected_sizes(self) -> Tensor:
        """Expected records per cluster in a draw, (k,), from noisy sizes, at least 1; never the drawn number itself."""
        return (self.plan.sampling_rate * self.partition.counts).clamp_min(1.0)

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """The draw on the device; the numbers that the host needs stay here."""
        x, cluster, labels = (to_device(part, device) if part.device != device else part for part in batch[:3])
        return batch._replace(x=x, cluster=cluster, labels=labels)

    # -- checkpoint and statement ------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["partition"] = self.partition.state_dict() if self.partitioned else None
        checkpoint["circumstances"] = self._circumstances

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._circumstances = list(checkpoint["circumstances"])
        if checkpoint["partition"] is not None:
            self.partition.load_state_dict(checkpoint["partition"])
            self.partitioned = True

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a statement rests on, with what the hardware of this training adds."""
        return (*ASSUMPTIONS, *self._circumstances)

    def statement(self, ledger: Ledger, *, also: dict[str, float] | None = None) -> PrivacyStatement:
        """The statement of `ledger`, the one that the module was trained under.

        Raises:
            ValueError: another ledger, or nothing was trained.
        """
        if not self.partitioned:
            raise ValueError("there is nothing to release: the module has not been trained")
        self._require_ledger(ledger)
        statement = PrivacyStatement.from_ledger(ledger, also=also, assumptions=self.assumptions)
        return statement.extended((), private_logs=self._private_logs)

    @abstractmethod
    def preview(self, per_cluster: int = 8) -> Tensor:
        """Mean values (k, per_cluster, d) of released samples, always from the same latent draws."""

    @abstractmethod
    def learn_from(self, start: RecordModel, *, steps: int, generator: torch.Generator) -> None:
        """Learn from samples of a released model, without noise, before private records are seen."""


def train(
    module: DPSGD,
    loader: PoissonLoader,
    *,
    curator: Curator,
    runtime: Runtime,
    start: Start | None = None,
    image_shape: tuple[int, int] | None = None,
) -> Ledger:
    """Train within the budget, or go on with it; the ledger that counts, which on several ranks is a copy of the first's."""
    plan = module.plan
    module.declare(curator, *(start.planned if start else ()))
    if start is not None and start.prior is not None:
        start.prior.charged(curator)
    if start is not None and not runtime.checkpoint.exists():
        public = PublicRandomness(runtime.seed).spawn("warm start").generator
        module.learn_from(start.model, steps=start.steps, generator=public)
    every = max(1, round(plan.steps * plan.sampling_rate / 10))  # epochs; ten pictures and tight values in a run
    accountant = PrivacyAccountant(curator, every=every)
    callbacks: list[Callback] = [accountant, module.config.clipping_callback(plan)]
    if image_shape is not None:
        callbacks.append(Previews(module.preview, image_shape=image_shape, every=every))
    runtime.fit(module, loader, max_steps=plan.steps, callbacks=callbacks)
    if module.global_step < plan.steps:
        warnings.warn(f"the budget ended training after {module.global_step} of {plan.steps} steps", stacklevel=3)
    return accountant.ledger
