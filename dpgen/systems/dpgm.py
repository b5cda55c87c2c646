"""DPGM: a mixture of k generative networks on privately found clusters (Acs et al. 2017)."""

import warnings
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import torch
from dp_accounting import DpEvent
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn

from dpgen.callbacks import AutomaticClipping, Clipping, Previews, PrivacyAccountant
from dpgen.callbacks.checkpoint import Checkpoint
from dpgen.nets import ModelBank
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.noise import PublicRandomness, SecureSource
from dpgen.privacy.noise_ahead import NoiseAhead
from dpgen.privacy.noise_shares import to_device
from dpgen.privacy.ranks import Ranks
from dpgen.privacy.sampling import Batch, OneClusterSchedule, PoissonLoader
from dpgen.runtime import Runtime
from dpgen.statement import PrivacyStatement
from dpgen.systems.assumptions import CHOSEN_BLIND, EXACT_INTEGERS, ONE_RECORD, ROUNDED_FLOATS, SECURE_NOISE
from dpgen.systems.budget import GENERAL_MOMENTS, general_moments
from dpgen.systems.dpgm_options import DPGMConfig, DPGMPlan
from dpgen.systems.kmeans import DPKMeans
from dpgen.systems.mixture import MixtureModel
from dpgen.systems.partition import KMeansPartition, LabelPartition, Partition
from dpgen.systems.private_data import PrivateRecords
from dpgen.systems.private_sums import PrivateSums

ASSUMPTIONS = (
    ONE_RECORD,
    CHOSEN_BLIND,
    SECURE_NOISE,
    "so do sampling masks, and nobody sees the number of records in a draw",
    ROUNDED_FLOATS,
    EXACT_INTEGERS,
)
"""What the statement of a DPGM run rests on."""

SEVERAL_RANKS = "the processes that trained together, their machines and the network between them trust one another"
BFLOAT16 = (
    "networks ran in bfloat16: a record's gradient is taken not to depend on the other records of its draw, which holds up "
    "to how matrix products of another shape round; norms, clipping and noise were float32"
)


class DPGM(PrivateSums):
    r"""k component models trained together by DP-SGD on k disjoint clusters.

    Every step takes one Poisson(q) draw S over the whole data set; each record's gradient goes to its own cluster's model:

    .. math::
        \theta_c \leftarrow \text{step}\Big(\frac{C_c}{q \tilde n_c} \Big[
        \sum_{r \in S_c} \frac{\text{clip}(g_r, C_c)}{C_c} + N(0, \sigma_S^2 I)\Big]\Big)
        \quad \text{for every } c, \text{ also where } S_c \text{ is empty.}

    One record touches one cluster, so a step is one subsampled Gaussian of sensitivity 1 for all k models together.
    With a plain `lightning.Trainer`: callbacks `PrivacyAccountant` (required), a `Clipping` policy (default automatic);
    the loader must be a `PoissonLoader` with the plan's sampling rate.

    On several ranks (strategy "ddp") each draws from its own shard of the records; norm histograms and clipped sums are
    added over the ranks and get their noise once, so a step is the same mechanism whatever the number of ranks.

    Arguments:
        d: columns of a record, labels not counted.
        plan: what may be spent.
        config: the model.
        n_classes: number of labels, 0 without.
        public_x: public records for initial centres of k-means.
        seed: of public randomness.
        private_logs: also log the mean gradient norm of the drawn records, which the guarantee does not cover.
        bank: component models of your own; replaces `config.component`.

    Source: Acs et al. 2017, Algorithms 1 and 4. The published one-cluster-per-step schedule is charged what it costs: a
    cluster of share p_c runs about p_c T steps at rate q / p_c (its paper books it as rate q).
    """

    def __init__(
        self,
        *,
        d: int,
        plan: DPGMPlan,
        config: DPGMConfig | None = None,
        n_classes: int = 0,
        public_x: Tensor | None = None,
        seed: int = 0,
        private_logs: bool = False,
        bank: ModelBank | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.config = config = (config or DPGMConfig()).resolved(n_classes=n_classes)
        assert config.k is not None
        self.plan = config.calibrate(plan)
        self.categories = n_classes if config.clusters != "labels" else 0
        self.n_classes = n_classes
        public = PublicRandomness(seed)
        self.bank = bank if bank is not None else config.bank(d + self.categories, self.categories)
        with torch.no_grad():
            self.bank.initialize(public.spawn("weights").generator)
        self.partition = self._partition(public, public_x)
        self.partitioned = False
        self._public, self._private_logs = public, private_logs
        self._source = SecureSource()
        self._ranks = Ranks()
        self._authorised = False
        self._ledger: Ledger | None = None
        self._policy = AutomaticClipping()
        self._circumstances: list[str] = []

    def _partition(self, public: PublicRandomness, public_x: Tensor | None) -> Partition:
        config, plan = self.config, self.plan
        assert config.k is not None
        assert plan.sigma_count is not None
        if config.clusters != "kmeans":
            return LabelPartition(config.k, noise_count=plan.sigma_count, labelled=config.clusters == "labels")
        kmeans = DPKMeans(
            config.k,
            plan.kmeans_plan(),
            gamma=config.gamma,
            n_features=config.n_features,
            init=config.init,
            seed=public.spawn("kmeans"),
        )
        return KMeansPartition(kmeans, public_x=public_x)

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
            raise ValueError("DPGM trains only with dpgen's PrivacyAccountant among the trainer's callbacks")
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
        self._ranks = self._accountant.ranks
        self._require_equal_ranks(loader)
        loader.share(self._ranks)
        table = loader.table
        if not self.partitioned:
            self._find_partition(loader)
        loader.assign(self.partition.assign(table.x, table.labels), self.bank.k)
        if self.device.type == "cuda":
            loader.reside(self.device)
            self._ahead = NoiseAhead(self._source, self.device)
        published = self.config.schedule == "published"
        loader.poisson.follow(self._published_schedule() if published else None, start=self.global_step)
        for logger in self.loggers:
            logger.log_metrics({f"released/size_{c}": size for c, size in enumerate(self.partition.counts.tolist())}, 0)
        if checkpoint := self._callback(Checkpoint):
            checkpoint.save(self.trainer)

    def _find_partition(self, loader: PoissonLoader) -> None:
        """Rank 0 charges and releases the partition of all records; the others take over what it released."""

        def find() -> dict[str, Any]:
            table = loader.table
            self.partition.fit(table.x, table.labels, ledger=self._accountant.ledger, source=self._source)
            return self.partition.state_dict()

        released = self._ranks.first(find)
        if self._ranks.index:
            self.partition.load_state_dict(released)
        self._accountant.catch_up()
        self.partitioned = True

    def _require_equal_ranks(self, loader: PoissonLoader) -> None:
        """Shards are disjoint only if all ranks hold the same records in the same order."""
        met = {SEVERAL_RANKS: self._ranks.count > 1, BFLOAT16: self.trainer.precision == "bf16-mixed"}
        self._circumstances += [text for text, holds in met.items() if holds and text not in self._circumstances]
        if self._ranks.count > 1:
            self._ranks.require_same("the records", loader.table.fingerprint())
            settings = sha256(repr((self.plan, self.config, self.global_step, self.partitioned)).encode()).hexdigest()
            self._ranks.require_same("the plan, the configuration and the checkpoint", settings)

    def _require_ledger(self, ledger: Ledger) -> None:
        """One ledger for all that a module does with private records, and the plan's delta and relation in it."""
        if self._ledger is not None and ledger is not self._ledger:
            raise ValueError("the ledger must be the one that this module was trained under: another misses what was spent")
        if (ledger.delta, ledger.relation) != (self.plan.delta, self.plan.relation):
            raise ValueError(
                f"the ledger's delta and relation must be the plan's {self.plan.delta:g} and {self.plan.relation!r}, got "
                f"{ledger.delta:g} and {ledger.relation!r}"
            )
        if self.config.schedule == "published" and not self.partitioned and any(e.group for e in ledger.entries()):
            raise ValueError(
                "the ledger holds steps on the clusters of another partition, and clusters of two partitions overlap: "
                "schedule='published' needs a new ledger for a new partition"
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

    def _published_schedule(self) -> OneClusterSchedule:
        """Clusters in proportion to their noisy sizes, drawn publicly; cluster c's records at rate q n / n_c."""
        counts = self.partition.counts.clamp_min(1.0)
        shares = counts / counts.sum()
        generator = self._public.spawn("schedule").generator
        order = torch.multinomial(shares, self.plan.steps, replacement=True, generator=generator)
        return OneClusterSchedule(order.tolist(), (self.plan.sampling_rate / shares).clamp_max(1.0).tolist())

    # -- one step ----------------------------------------------------------------------------------------------------

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> int | None:
        """Ask the ledger; without its consent the epoch ends (-1) and training stops."""
        event, group = self._event(batch.group)
        self._authorised = self._accountant.authorise(event, note="training steps", group=group)
        if not self._authorised:
            self.trainer.should_stop = True
            return -1
        return None

    def _event(self, group: int) -> tuple[DpEvent, str | None]:
        if group < 0:
            return self.plan.step_event(adaptive=self.config.adaptive), None
        rate = self._loader().poisson.rate(group)
        return self.plan.step_event(adaptive=self.config.adaptive, rate=rate), f"cluster {group}"

    @torch.no_grad()
    def training_step(self, batch: Batch, batch_idx: int) -> None:
        if not self._authorised:
            raise RuntimeError("training_step was called without the ledger's consent: train through lightning.Trainer.fit")
        self._authorised = False
        with torch.autocast(self.device.type, enabled=False):
            self.bank.begin_step()
        sums = self.noisy_sums(batch, out=self._sums)
        self._descend(sums, batch.group)

    def _descend(self, sums: Tensor, group: int) -> None:
        bounds = self._policy.scale()
        sizes = to_device(self._expected_sizes(), sums.device)
        scale = (bounds.to(sums.device) if bounds is not None else 1.0) / sizes
        for c, (row, gradient) in enumerate(zip(self._rows, sums.mul_(scale[:, None]))):
            row.grad = gradient if group in (-1, c) else None
        optimizer = self.optimizers()
        assert not isinstance(optimizer, list)
        if self.config.lr_decay == "linear":
            for settings in optimizer.param_groups:
                settings["lr"] = self.config.lr * max(0.0, 1.0 - self.global_step / self.plan.steps)
        optimizer.step()

    def _expected_sizes(self) -> Tensor:
        """Expected records per cluster in a draw, (k,), from noisy sizes, at least 1; never the drawn number itself."""
        counts = self.partition.counts
        if self.config.schedule == "published":
            return torch.full_like(counts, max(1.0, self.plan.sampling_rate * float(counts.clamp_min(1.0).sum())))
        return (self.plan.sampling_rate * counts).clamp_min(1.0)

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """The draw on the device; the numbers that the host needs stay here."""
        x, cluster, labels = (to_device(part, device) if part.device != device else part for part in batch[:3])
        return Batch(x, cluster, labels, batch.group, batch.sizes)

    def on_train_end(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def preview(self, per_cluster: int = 8) -> Tensor:
        """Mean values (k, per_cluster, d) of samples of the released parameters, always from the same latent draws."""
        generator = self._public.spawn("preview").generator
        return torch.stack([self.bank.sample(c, per_cluster, generator) for c in range(self.bank.k)])

    # -- checkpoint and release --------------------------------------------------------------------------------------

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

    def release(self, ledger: Ledger, **shape: Any) -> MixtureModel:
        """The trained mixture as a public model with the statement of `ledger`, the one it was trained under.

        Arguments:
            shape: `image_shape` and `columns` of the records, if there are any.

        Raises:
            ValueError: another ledger, or nothing was trained.
        """
        self._require_ledger(ledger)
        if not self.partitioned:
            raise ValueError("there is nothing to release: the module has not been trained")
        statement = PrivacyStatement.from_ledger(
            ledger, also={GENERAL_MOMENTS: general_moments(self.plan, self.config)}, assumptions=self.assumptions
        ).extended((), private_logs=self._private_logs)
        labelled_by = "cluster" if self.config.clusters == "labels" else "columns" if self.categories else None
        return MixtureModel(
            self.bank,
            component=self.config.component,
            counts=self.partition.counts,
            statement=statement,
            n_classes=self.n_classes,
            labelled_by=labelled_by,
            kmeans=self.partition.kmeans if isinstance(self.partition, KMeansPartition) else None,
            **shape,
        )


def fit(
    records: PrivateRecords,
    *,
    plan: DPGMPlan,
    config: DPGMConfig,
    ledger: Ledger,
    runtime: Runtime,
    prepare: Callable[[DPGM], None] | None = None,
) -> MixtureModel:
    """Train DPGM on private records, or resume it, and release the mixture with its statement.

    `prepare` may set the parameters of the untrained module from public or released values.

    Raises:
        ValueError: fewer records than clusters, or what `DPGM` and its options refuse.
    """
    module = DPGM(
        d=records.x.shape[1],
        plan=plan,
        config=config,
        n_classes=records.n_classes,
        public_x=records.public_x,
        seed=runtime.seed,
        private_logs=runtime.private_logs,
    )
    if records.x.shape[0] < module.bank.k:
        raise ValueError(f"there must be at least k={module.bank.k} records, got {records.x.shape[0]}")
    if prepare is not None and not runtime.checkpoint.exists():
        prepare(module)
    loader = PoissonLoader(records.x, records.labels, sampling_rate=plan.sampling_rate)
    every = max(1, round(plan.steps * plan.sampling_rate / 10))  # epochs; ten pictures and tight values in a run
    accountant = PrivacyAccountant(ledger, every=every)
    callbacks: list[Callback] = [accountant, module.config.clipping_callback(module.plan)]
    if records.image_shape is not None:
        callbacks.append(Previews(module.preview, image_shape=records.image_shape, every=every))
    runtime.fit(module, loader, max_steps=plan.steps, callbacks=callbacks)
    if module.global_step < plan.steps:
        warnings.warn(f"the budget ended training after {module.global_step} of {plan.steps} steps", stacklevel=2)
    return module.release(accountant.ledger, image_shape=records.image_shape, columns=records.columns)
