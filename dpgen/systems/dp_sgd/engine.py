"""A private training: one Poisson draw, the ledger's consent, noisy sums of clipped gradients, one step."""

import warnings
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn

from dpgen.callbacks import AutomaticClipping, Clipping, PrivacyAccountant
from dpgen.callbacks.accountant import Checkpoint
from dpgen.facts import Fact, Said, said
from dpgen.nets import ModelBank
from dpgen.privacy.curator import Curator, Draw
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.noise import PublicRandomness, to_device
from dpgen.privacy.sampling import Batch, PoissonLoader
from dpgen.release import PublicModel
from dpgen.statement import PrivacyStatement
from dpgen.systems.dp_sgd.model import TrainingData
from dpgen.systems.dp_sgd.partition import Partition, release_means
from dpgen.systems.dp_sgd.plan import NOTES, DPSGDConfig, DPSGDPlan
from dpgen.systems.dp_sgd.sums import PrivateSums

if TYPE_CHECKING:
    from dpgen.runtime import Runtime

FACTS = (
    Fact.ONE_RECORD,
    Fact.CHOSEN_BLIND,
    Fact.SECURE_NOISE,
    Fact.SECRET_SAMPLING,
    Fact.ROUNDED_FLOATS,
    Fact.EXACT_INTEGERS,
)
"""Facts of the statement of a training by DP-SGD, see `facts_of`."""


def facts_of(plan: DPSGDPlan[Any], *more: Fact | Said) -> tuple[Said, ...]:
    """Facts of the statement of a training by a plan, and more."""
    other = {} if plan.sampling == "poisson" else {Fact.SECRET_SAMPLING: Fact.SECRET_ALLOCATION}
    return said((*(other.get(fact, fact) for fact in FACTS), *more))


def keep_epochs_whole(plan: DPSGDPlan[Any], checkpoint: dict[str, Any]) -> None:
    """Let an epoch of random allocation follow where training ended: Lightning takes the last one for unfinished."""
    batches = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    ended = batches["total"]["completed"] == batches["total"]["processed"]  # a checkpoint within training it reads rightly
    if ended and plan.together > 1 and checkpoint["global_step"] % plan.together == 0:
        batches["current"].update(dict.fromkeys(batches["current"], 0))


class PrivateTraining(PrivateSums):
    """The steps that every private training takes, whoever owns the network: `DPSGD` and `ModuleTraining` call them.

    | call | what happens |
    |---|---|
    | `begin` | the ledger is checked, a clipping policy tried, the margin measured, all declared, the partition released |
    | `granted` | the ledger agrees to a draw, or training ends |
    | `noisy_sums` | the release of a draw, see `PrivateSums` |
    | `stated` | the statement of all that was planned, with the facts of this training |
    """

    means: Tensor | None = None
    """Released means (k, d) of the clusters, where networks begin at them."""

    means_of_labels: ClassVar[bool] = True
    """Whether these have the labels that are columns, too."""

    white: int = 1
    accountant: PrivacyAccountant
    _declared: bool = False
    _ledger: Ledger | None = None
    _circumstances: tuple[Said, ...] = ()

    def _policy_of(self, trainer: L.Trainer) -> Clipping:
        """The policy that was paid for: a callback of the trainer, which keeps the state of an adaptive one in checkpoints."""
        default = AutomaticClipping() if self.config.adaptive else self.config.clipping_callback(self.plan)
        policy = callback_of(trainer, Clipping) or default
        if policy.noise_multiplier != (self.plan.sigma_norm if self.config.adaptive else None):
            raise ValueError(
                f"the clipping callback {type(policy).__name__} has noise_multiplier {policy.noise_multiplier}, "
                f"but the plan was made for clipping={self.config.clipping!r} with sigma_norm={self.plan.sigma_norm}"
            )
        return policy

    def begin(self, trainer: L.Trainer, loader: PoissonLoader, accountant: PrivacyAccountant) -> None:
        """Everything that comes before the first step; a checkpoint brings the partition, and what was released stays."""
        self.accountant, curator, ranks, table = accountant, accountant.curator, accountant.ranks, loader.table
        self._require_ledger(accountant.ledger)
        self.policy = self._policy_of(trainer)
        self.policy.begin(self.bank.k)
        self.clip_by(self.policy)
        self._assume(*self.policy.facts)
        self.serve(curator)
        if trainer.lightning_module.device.type != "cpu" and curator.draws_on_device:
            self._assume(Fact.DEVICE_NOISE)
        if trainer.precision == "bf16-mixed":
            self._assume(Fact.BFLOAT16)
        if ranks.count > 1:  # shards are disjoint only if all ranks hold the same records in the same order
            self._assume(Fact.SEVERAL_RANKS)
            ranks.require_same("the records", table.fingerprint())
            settings = sha256(repr((self.plan, self.config, trainer.global_step, self.partitioned)).encode()).hexdigest()
            ranks.require_same("the plan, the configuration and the checkpoint", settings)
        loader.share(ranks)
        self._change, changes = None, torch.zeros(ranks.count, dtype=torch.float64)
        with trainer.precision_plugin.forward_context(), self.trying(trainer):
            changes[ranks.index] = self.measure(table.x.shape[1]).change
        self._change = float(ranks.sum_(changes).max())  # of several ranks, the most
        if not self.partitioned:
            if not self._declared:
                self.declare(curator)
            self._find_partition(loader)
            self.partition_found()
        self._assume(self.measure(table.x.shape[1]).fact)

    def trying(self, trainer: L.Trainer) -> AbstractContextManager[None]:
        """In which gradients of public records are taken, to measure what they change of each other."""
        return nullcontext()

    def declare(self, curator: Curator) -> None:
        """Declare the whole run, before private records are touched."""
        curator.declare(*self.plan.planned(self.config))
        self._declared = True

    def _find_partition(self, loader: PoissonLoader) -> None:
        """Rank 0 charges and releases the partition of all records; the others take over what it released."""
        curator, ranks, table = self.accountant.curator, self.accountant.ranks, loader.table

        def find() -> dict[str, Any]:
            share = None if table.owners is None else table.owners.share
            self.partition.fit(table.x, table.labels, curator=curator, share=share)
            if self.config.releases_means:
                self.means = release_means(
                    self.partition,
                    table.x,
                    table.labels,
                    curator=curator,
                    noise_multiplier=cast(float, self.plan.sigma_means),
                    categories=self.categories if self.means_of_labels else 0,
                    share=share,
                    white=self.white,
                )
            return self._found()

        released = ranks.first(find)
        if ranks.index:
            self._take_over(released)
        curator.catch_up()
        self.partitioned = True

    def _found(self) -> dict[str, Any]:
        return {"clusters": self.partition.state_dict(), "means": self.means}

    def _take_over(self, released: dict[str, Any]) -> None:
        self.partition.load_state_dict(released["clusters"])
        self.means, self.partitioned = released["means"], True

    def partition_found(self) -> None:
        """Called once, on every rank, when the partition has been released: what the models may begin at."""

    def granted(self, batch: Batch) -> Draw | None:
        """The ledger's consent to a draw's release; None where the budget refuses it, and training has to end."""
        if batch.mask is None:
            raise ValueError("the batch has no mask of a Poisson draw: only those of dpgen's PoissonLoader may be released")
        return self.accountant.draw(NOTES[self.plan.sampling], batch.mask, self.parts())

    def _assume(self, *facts: Fact | Said) -> None:
        """Add to what the statement says, once each."""
        self._circumstances = said((*self._circumstances, *facts))

    def _require_ledger(self, ledger: Ledger) -> None:
        """One ledger for all that a module does with private records, and the plan's delta and relation in it."""
        if self._ledger is not None and ledger is not self._ledger:
            raise ValueError("the ledger must be the one that this module was trained under: another misses what was spent")
        if ledger.delta < self.plan.delta or ledger.relation != self.plan.relation:  # above: an earlier release has a part
            raise ValueError(
                f"the ledger's delta and relation must be the plan's {self.plan.delta:g} and {self.plan.relation!r}, got "
                f"{ledger.delta:g} and {ledger.relation!r}"
            )
        self._ledger = ledger

    @property
    def facts(self) -> tuple[Said, ...]:
        """Facts of the statement, with those that the networks and the hardware of this training add."""
        return facts_of(self.plan, *self.bank.facts, *self._circumstances)

    def stated(self, ledger: Ledger, steps: int) -> PrivacyStatement:
        """The statement of `ledger`, the one that the module was trained under for so many steps."""
        if not self.partitioned:
            raise ValueError("there is nothing to release: the module has not been trained")
        self._require_ledger(ledger)
        untrained = () if steps else (Fact.UNTRAINED,)
        return PrivacyStatement.from_ledger(ledger, facts=(*self.facts, *untrained))


def callback_of(trainer: L.Trainer, kind: type[Any]) -> Any:
    """The one callback of a kind among a trainer's; None where there is none."""
    found = [c for c in trainer.callbacks if isinstance(c, kind)]  # type: ignore[attr-defined]
    if len(found) > 1:
        names = ", ".join(type(c).__name__ for c in found)
        raise ValueError(f"callbacks hold {len(found)} of {kind.__name__} ({names}); they must hold one")
    return found[0] if found else None


class DPSGD(PrivateTraining, L.LightningModule):
    r"""Models in a bank, each with its own records, trained together by DP-SGD.

    A step takes one Poisson(q) draw S over the whole data set; each record's gradient goes to its own cluster's model:

    .. math::
        \theta_c \leftarrow \text{step}\Big(\frac{C_c}{q \tilde n_c} \Big[
        \sum_{r \in S_c} \frac{\text{clip}(g_r, C_c)}{C_c} + N(0, \sigma_S^2 I)\Big]\Big)
        \quad \text{for every } c, \text{ also where } S_c \text{ is empty.}

    One record touches one cluster, so a step is one subsampled Gaussian of sensitivity 1 for all models together; of people see
    `PrivateSums`. The ledger agrees before each step, and before the partition is found.

    Arguments:
        bank: the models, untrained.
        partition: which of them a record belongs to.
        plan: what may be spent, calibrated.
        config: how gradients are clipped and followed.
        n_classes: number of labels of the records, 0 without.
        categories: labels that are columns of the models, 0 for none.
        public: randomness of what is not private.
        white: value of records that counts as 1, 255 of images; that of the loader.

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
        white: int = 1,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.bank, self.partition, self.plan, self.config = bank, partition, plan, config
        self.n_classes, self.categories = n_classes, categories
        bank.settle()
        with torch.no_grad():
            bank.initialize(public.spawn("weights").generator)
        self._public, self.white = public, white
        self._draw: Draw | None = None
        self.policy, self._in_bounds = AutomaticClipping(), False

    # -- before training ---------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """One optimizer over k rows that share memory with the parameter matrix, so that one model may rest."""
        self._rows = [nn.Parameter(row) for row in self.bank.theta.detach()]
        self._sums = torch.empty_like(self.bank.theta)
        own = self.bank.descent if self.config.optimizer == "auto" else None
        self._rate, self._in_bounds = self.config.lr * (1.0 if own is None else own.rate), own is not None
        if own is None and self.config.optimizer != "sgd":
            return torch.optim.Adam(self._rows, lr=self._rate, fused=True)
        return torch.optim.SGD(self._rows, lr=self._rate, momentum=0.0 if own is None else own.momentum)

    def on_train_start(self) -> None:
        loader, accountant = self._loader(), callback_of(self.trainer, PrivacyAccountant)
        if accountant is None:
            raise ValueError(f"{type(self).__name__} trains only with dpgen's PrivacyAccountant among the trainer's callbacks")
        rows, table = accountant.curator.rows, loader.table
        if rows > 1 and table.owners is None:
            raise ValueError(f"the loader needs people, the person of each record: the unit has up to {rows} of them")
        self.begin(self.trainer, loader, accountant)
        loader.assign(self.partition.assign(table.x, table.labels), self.bank.k)
        if self.device.type == "cuda":
            loader.reside(self.device)
        for logger in self.loggers:
            logger.log_metrics({f"released/size_{c}": size for c, size in enumerate(self.partition.counts.tolist())}, 0)
        if checkpoint := callback_of(self.trainer, Checkpoint):
            checkpoint.save(self.trainer)

    @property
    def steps_together(self) -> int:
        """Steps that checkpoints do not come between."""
        return self.plan.together

    @torch.no_grad()
    def partition_found(self) -> None:
        """Called once, on every rank, when the partition has been released: what the models may begin at."""
        if self.means is not None:
            self.bank.begin_at(self.means.to(self.bank.theta), self._public.spawn("means").generator)

    def _loader(self) -> PoissonLoader:
        loader = self.trainer.train_dataloader
        if not isinstance(loader, PoissonLoader):
            raise ValueError(
                f"the training loader must be dpgen's PoissonLoader, got {type(loader).__name__}: shuffled or fixed-size "
                "batches are not Poisson samples and cost far more privacy than subsampled accounting says"
            )
        for name in ("sampling_rate", "sampling"):
            if (found := getattr(loader, name)) != (planned := getattr(self.plan, name)):
                raise ValueError(f"the loader's {name} {found!r} is not the plan's {planned!r}")
        if self.n_classes and loader.table.labels is None:
            raise ValueError(f"the loader needs labels: the model was made for n_classes={self.n_classes}")
        return loader

    # -- one step ----------------------------------------------------------------------------------------------------

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> int | None:
        """Ask for the draw's release; where the budget refuses it the epoch ends (-1) and training stops."""
        self._draw = self.granted(batch)
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
        self.descend(gradients)

    def descend(self, gradients: Tensor) -> None:
        for row, gradient in zip(self._rows, gradients):
            row.grad = gradient
        optimizer = self.optimizers()
        assert not isinstance(optimizer, list)
        for settings in optimizer.param_groups:
            settings["lr"] = self._rate * max(0.0, 1.0 - self.global_step / self.plan.steps)
        optimizer.step()

    def averaging(self) -> Tensor:
        """Factors (k,) of gradients for `Descent`, whose rate is for those of norm at most 1 in units of the clip bounds."""
        if not self._in_bounds:
            return super().averaging()
        return 1.0 / to_device(self.expected_sizes(), self.bank.theta.device)

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """The draw on the device; the numbers that the host needs stay here."""
        x, cluster, labels = (to_device(part, device) if part.device != device else part for part in batch[:3])
        share = None if batch.share is None else to_device(batch.share, device)
        return batch._replace(x=x, cluster=cluster, labels=labels, share=share)

    # -- checkpoint and statement ------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["partition"] = self._found() if self.partitioned else None
        checkpoint["circumstances"] = [fact.to_dict() for fact in self._circumstances]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._circumstances = tuple(Said.from_dict(fact) for fact in checkpoint["circumstances"])
        if checkpoint["partition"] is not None:
            self._take_over(checkpoint["partition"])
        keep_epochs_whole(self.plan, checkpoint)

    def statement(self, ledger: Ledger) -> PrivacyStatement:
        """The statement of `ledger`, the one that the module was trained under."""
        return self.stated(ledger, self.global_step)

    @abstractmethod
    def preview(self, per_cluster: int = 8) -> Tensor:
        """Mean values (k, per_cluster, d) of released samples, always from the same latent draws."""


M = TypeVar("M", bound=DPSGD)
R = TypeVar("R", bound=PublicModel)


def train(module: M, release: Callable[[M, Ledger], R], data: TrainingData, *, curator: Curator, runtime: "Runtime") -> R:
    """Train a module within the budget, or go on with it, and let `release` make a public model of it and its ledger."""
    plan = module.plan
    people = data.people if plan.rows > 1 else None
    x, labels, white = data.inputs
    loader = PoissonLoader(x, labels, people=people, rows=plan.rows, white=white, **plan.drawn)
    module.declare(curator)
    every = max(1, round(plan.steps * plan.sampling_rate / 10))  # epochs; ten pictures and tight values in a run
    accountant = PrivacyAccountant(curator, every=every)
    callbacks: list[Callback] = [accountant, module.config.clipping_callback(plan)]
    if data.image_shape is not None:
        from dpgen.callbacks import Previews

        callbacks.append(Previews(module.preview, image_shape=data.image_shape, every=every))
    runtime.fit(module, loader, max_steps=plan.steps, callbacks=callbacks)
    if module.global_step < plan.steps:
        warnings.warn(f"the budget ended training after {module.global_step} of {plan.steps} steps", stacklevel=3)
    return release(module, accountant.ledger)
