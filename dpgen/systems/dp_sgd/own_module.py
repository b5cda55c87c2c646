r"""Any LightningModule trained by DP-SGD: `make_private`, a plain `Trainer.fit`, `release`.

The module keeps its optimizer, schedulers, callbacks, checkpoints. While it is fitted, `training_step` is called for a Poisson
draw, the gradient of every record's own loss is taken (`dpgen.nets.per_record`), and what reaches the optimizer is

.. math:: \frac{1}{q \tilde n} \Big[ \sum_{r \in S} \text{clip}(g_r, C) + N(0, (s \Delta C)^2 I) \Big],

with a noisy number of records :math:`\tilde n` and the sensitivity :math:`\Delta` of `PrivateSums`.

| case | what holds |
|---|---|
| a step | it is charged before its noise is drawn; checkpoints and loggers see it when the charge is committed |
| random numbers of `training_step` | from a secret seed, new in every step: a public one would tell who stands where |
| what `training_step` logs, prints or returns | is dropped: it looks at records |
| hooks and other callbacks | get one zero in the place of a batch |
| `cross_entropy`, `nll_loss` | their mean is over all targets, ignored ones too: a batch's number of others mixes records |
| a loss or gradient that is not finite | its record counts for nothing; weights that are not finite end the training |
| parameters that come, go or are frozen in between | refused |

Source: Abadi et al. 2016, Algorithm 1.
"""

import json
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, TypeVar, cast
from weakref import WeakKeyDictionary

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn
from torch.utils.data import DataLoader

from dpgen.callbacks import Clipping, PrivacyAccountant
from dpgen.facts import Fact, Said
from dpgen.nets.trials import SameForEach, choose, marks, moved
from dpgen.privacy.clipping import require_layers
from dpgen.privacy.curator import Curator, Draw
from dpgen.privacy.distributed import ShareDone, launched_rank
from dpgen.privacy.ledger import Ledger, Planned
from dpgen.privacy.mechanisms import Relation, Sampling, require_positive, require_whole
from dpgen.privacy.sampling import Batch, Held, PoissonLoader
from dpgen.statement import PrivacyStatement, person
from dpgen.systems.dp_sgd.engine import PrivateTraining, callback_of, keep_epochs_whole
from dpgen.systems.dp_sgd.model import ReleasedModule
from dpgen.systems.dp_sgd.module_sums import ModuleGradients, ModulePlan, loss_sum
from dpgen.systems.dp_sgd.own_records import loader_of, read, without_people
from dpgen.systems.dp_sgd.partition import LabelPartition
from dpgen.systems.dp_sgd.people import each_a_person, grouped
from dpgen.systems.dp_sgd.plan import NOTES, DPSGDConfig, DPSGDPlan
from dpgen.systems.dp_sgd.settings import require_no_clipping, require_setting
from dpgen.systems.dp_sgd.sums import COMPANY, UNIT, Margin, widened

M = TypeVar("M", bound=L.LightningModule)

LOSS = "released/loss"
"""Name under which a noisy training loss is logged."""


# -- training ------------------------------------------------------------------------------------------------------------

TRAININGS: "WeakKeyDictionary[nn.Module, ModuleTraining]" = WeakKeyDictionary()
"""Modules that have been made private, and how."""


class ModuleTraining(PrivateTraining, Callback):
    """Puts private gradients in the place of a module's own while it is fitted; made by `make_private`.

    Each step also releases its loss, cut to [0, `most`], where the plan has noise for it.
    """

    plan: ModulePlan
    bank: Any
    loader: PoissonLoader
    _declared = True  # by `make_private`

    def __init__(
        self,
        bank: ModuleGradients,
        records: Held,
        public: Held,
        trainer: L.Trainer,
        *,
        plan: ModulePlan,
        config: DPSGDConfig,
        most: float,
    ) -> None:
        self.bank, self.trainer, self.plan, self.config = bank, trainer, plan, config
        self.records: Any = records
        self.module, self.steps, self._random, self._most = bank.module, 0, public, most
        self._loss_change: float | None = None
        self._gradient: Tensor | None = None
        self._batch: Batch | None = None
        self._fixed = self._others()
        assert plan.sigma_count is not None
        self.partition = LabelPartition(1, noise_count=plan.sigma_count, labelled=False)

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # copies of a module, as of averaged weights, are not trained

    def _others(self) -> dict[str, str]:
        """Hashes of what is not trained."""
        trained = {id(value) for value in self.bank.per_record.values.values()}
        fixed = {n: v.detach() for n, v in self.module.state_dict(keep_vars=True).items() if id(v) not in trained}
        flat = {name: value.cpu().reshape(-1).contiguous().view(torch.uint8) for name, value in fixed.items()}
        return {name: sha256(value.numpy().data).hexdigest() for name, value in flat.items()}

    # -- before training -----------------------------------------------------------------------------------------------

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if stage == "fit":
            if pl_module is not self.module:
                raise ValueError("module is another one; it must be the one that make_private was given")
            own = {"training_step": self.step, "backward": self.backward, "configure_optimizers": self.one_optimizer}
            vars(pl_module).update(own, exact_sums=True, shards_records=True)
            # Lightning asks a data module for this first.
            vars(getattr(trainer, "datamodule", None) or pl_module).update(on_after_batch_transfer=self.hide)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        own = ("training_step", "backward", "configure_optimizers", "exact_sums", "shards_records", "on_after_batch_transfer")
        for name in own:
            vars(pl_module).pop(name, None)
        if (datamodule := getattr(trainer, "datamodule", None)) is not None:
            vars(datamodule).pop("on_after_batch_transfer", None)

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self.teardown(trainer, pl_module, "fit")

    def one_optimizer(self) -> Any:
        """In the place of `configure_optimizers`, which may make one."""
        made = type(self.module).configure_optimizers(self.module)
        several = made[0] if isinstance(made, tuple) and made and isinstance(made[0], list) else made
        if isinstance(several, list | tuple) and len(several) > 1 and not isinstance(several[1], list):
            raise ValueError(
                f"configure_optimizers makes {len(several)} optimizers; it must make one: give it groups of parameters, "
                "each with its own learning rate"
            )
        return made

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.train_dataloader is not self.loader:
            raise ValueError("the training loader must be the one that make_private returned: others draw in another way")
        require_no_clipping(trainer)  # may be set since make_private
        if any(isinstance(optimizer, torch.optim.LBFGS) for optimizer in trainer.optimizers):
            raise ValueError("optimizer is LBFGS, which asks for several gradients of a draw; it must ask for one")
        self.open(trainer)

    def open(self, trainer: L.Trainer) -> None:
        """The start of a training before its first step, see `begin`; this module is named in the statement."""
        self.begin(trainer, self.loader, self.accountant)
        self._assume(Fact.PUBLIC_MODULE)
        if self.bank.most is not None:
            self._assume(Fact.ONE_PERSON_TRAINED(rows=self.bank.most))
        if self.plan.sigma_loss is not None:
            self._assume(Fact.RELEASED_LOSS)
        if trainer.val_dataloaders is not None:
            self._assume(Fact.VALIDATION_PART)
        kind = type(self.bank.author)
        self._assume(Fact.OWN_NETWORK(path=f"{kind.__module__}:{kind.__qualname__}"))

    @contextmanager
    def trying(self, trainer: L.Trainer) -> Iterator[None]:
        with self.bank.quiet(trainer):
            choose(self.bank.per_record, self.bank.total, self._random.to(self.bank.theta.device)[torch.arange(5)].values)
            yield

    def random_records(self) -> Held:
        most = self.bank.most
        return (self._random if most is None else each_a_person(self._random, most)).to(self.bank.theta.device)

    def most_records(self) -> int:
        return self.bank.most or 1

    def compared(self) -> int:
        return min(self.config.micro_batch, 2 * UNIT) if self.bank.per_record.apart else self.config.micro_batch

    def measure(self, d: int) -> Margin:
        trying, self.bank.trying = self.bank.trying, True
        try:
            return super().measure(d)
        finally:
            self.bank.trying = trying

    # -- a step --------------------------------------------------------------------------------------------------------

    def hide(self, batch: Any, dataloader_idx: int) -> Any:
        """Keep a draw for `step`: hooks, other callbacks and means of what they log would show its records and their number."""
        if not isinstance(batch, Batch):
            return batch
        self._batch = batch
        return torch.zeros(1)

    def step(self, _: Any, batch_idx: int) -> Tensor | None:
        """In the place of `training_step`: a loss that says nothing, or the noisy one."""
        batch, self._batch = self._batch, None
        trainer = self.module.trainer
        if batch is None:
            raise ValueError("the optimizer asks for several gradients of a draw; it must ask for one")
        loss = self.released(batch, batch_idx, trainer)
        if loss is None:
            trainer.should_stop = True
            return None
        if self.plan.sigma_loss is not None:
            self.module.log(LOSS, loss, prog_bar=True, on_step=False, on_epoch=True, batch_size=1)
        return loss.to(torch.float32).requires_grad_()

    def released(self, batch: Batch, index: int, trainer: L.Trainer) -> Tensor | None:
        """The loss of a draw, 0 or a noisy one, when its gradients are released; None where the budget refuses them."""
        found = {n: v for n, v in self.module.named_parameters() if v.requires_grad}
        kept = self.bank.per_record.values
        for name in {**found, **kept}:
            if found.get(name) is not kept.get(name):
                raise ValueError(f"parameter {name!r} is trained in some steps only; freeze or add it before make_private")
        draw = self.granted(batch)
        if draw is None:
            warnings.warn(f"the budget ended training after {self.steps} steps", stacklevel=3)
            return None
        self.bank.index, self.bank.live, before = index, True, marks(self.module)
        loss = torch.zeros((), device=self.module.device)
        with draw, self.bank.quiet(trainer):
            self._gradient = self.noisy_sums(batch, draw, averaged=True)[0]
            if self.plan.sigma_loss is not None:
                loss = self.noisy_loss(cast(Any, batch.x), draw)
        if name := moved(before, marks(self.module)):
            raise ValueError(f"{self.bank.code} changes {name}, which would carry records into the release")
        self.steps += 1
        return loss

    def parts(self) -> dict[str, float]:
        return super().parts() | ({} if self.plan.sigma_loss is None else {"losses": self.plan.sigma_loss})

    def latents(self, *shape: int) -> Tensor:
        """Secret numbers, of which PyTorch's seed is made: on the host, which would have to wait for them elsewhere."""
        assert self.curator is not None
        return self.curator.latents(*shape)

    def losses(self, x: Held) -> Tensor:
        """Losses (b,) of records, in units of the bound."""
        with torch.no_grad():
            return self.bank.losses(x).double() / self._most

    def noisy_loss(self, x: Held, draw: Draw) -> Tensor:
        """The mean loss of a draw with noise: a sum of sensitivity 1 and what other records change of a loss, measured."""
        if self._loss_change is None:
            records = self.random_records()
            with SameForEach():
                alone = torch.cat([self.losses(records[torch.arange(i, i + 1)]) for i in range(8)])
                among = [self.losses(records[torch.arange(n)])[:8] for n in (8, 9, 64, COMPANY)]
            self._loss_change = 10.0 * max(float((found - alone).abs().max()) for found in among)
        with self.bank.secretly(self.latents):
            sums = loss_sum(self.losses(x))
        noisy = draw.gaussian("losses", widened(sums, self._loss_change * self.measure(1).records))
        made: Tensor = noisy[0] * (self._most / float(self.expected_sizes()))
        return made

    def backward(self, loss: Tensor, *args: Any, **options: Any) -> None:
        """In the place of `backward`: the gradients that were released."""
        assert self._gradient is not None
        for name, value in self.bank.per_record.values.items():
            part = self._gradient[self.bank.per_record.columns[name]]
            value.grad = part.view_as(value).to(value.dtype)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if pl_module.device.type == "cpu":
            self.require_finite()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.require_finite()

    def require_finite(self) -> None:
        """End a training whose weights are lost, where a device may be waited for."""
        if not all(bool(torch.isfinite(value).all()) for value in self.bank.per_record.values.values()):
            raise ValueError(f"weights are not finite after step {self.steps}: lower the learning rate")

    # -- state ---------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        sizes = self.partition.state_dict() if self.partitioned else None
        facts = [fact.to_dict() for fact in self._circumstances]
        return {"sizes": sizes, "facts": facts, "steps": self.steps, "fixed": self._fixed}

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        keep_epochs_whole(self.plan, checkpoint)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._circumstances, self.steps = tuple(map(Said.from_dict, state_dict["facts"])), state_dict["steps"]
        self._fixed = state_dict["fixed"]  # a checkpoint brings its own
        if state_dict["sizes"] is not None:
            self._take_over({"clusters": state_dict["sizes"], "means": None})

    def statement(self) -> PrivacyStatement:
        """The guarantee of everything that was planned."""
        other: L.Trainer | None = self.module._trainer
        if other is not None and other is not self.trainer and other.global_step:
            raise ValueError("module was trained by another trainer than that of make_private: nobody has paid for it")
        stated = self.stated(self.accountant.ledger, self.steps)
        if (now := self._others()) != self._fixed:
            changed = sorted(n for n in {**now, **self._fixed} if now.get(n) != self._fixed.get(n))
            raise ValueError(f"{changed[0]} is not trained and was changed since make_private: nobody has paid for it")
        return stated.of_records(float(self.partition.counts.clamp_min(0.0).sum()))


def make_private(
    module: M,
    loader: "DataLoader[Any] | L.LightningDataModule",
    trainer: L.Trainer,
    *,
    example: Any = None,
    people: Any = None,
    max_contributions: int = 8,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    delta: float = 1e-5,
    sampling_rate: float | None = None,
    sampling: Sampling = "poisson",
    max_grad_norm: float = 1.0,
    micro_batch: int = 1024,
    loss_noise: float | None = None,
    loss_bound: float = 10.0,
    relation: Relation = "add_remove",
    ledger: Ledger | Path | str | None = None,
) -> tuple[M, Any, L.Trainer]:
    """The module, a loader of private draws in place of its own, and the trainer, whose `fit` is then (epsilon, delta) private.

    `training_step` returns the mean of losses that each need one record. A clipping policy among the trainer's callbacks
    replaces `max_grad_norm`.

    Arguments:
        module: any LightningModule.
        loader: of a map-style data set in any order; `batch_size` is the expected number of records in a draw. Or a data module
            with such a loader, which then comes back with private draws.
        example: a public record as the data set has them, or a function that makes one each time, on which code is tried; for
            records that are no tensors of one shape, or that random numbers and codes in {0, 1} are not like.
        trainer: with `max_steps` or `max_epochs`; an epoch is 1 / sampling_rate draws. Of one device, or of several with
            `strategy="ddp", use_distributed_sampler=False` and a public `sampling_rate`; every process runs the whole script.
        people: whose each record is, so that people are protected, each with all of their records: a key of the records, or the
            place of a value in them, which the module then does not get; or the names (n,) of all records' people. Then
            `batch_size` is the expected number of people in a draw. None: a record is protected.
        max_contributions: most records of a person that are used.
        epsilon: budget of the whole training, in nats.
        noise_multiplier: noise std / `max_grad_norm`, in place of epsilon; needs `sampling_rate`. The release says epsilon.
        delta: of the guarantee.
        sampling_rate: chance of a record to be in a draw, in (0, 1]; a public number. None: the batch size over a noisy number
            of records, which is paid for; the noise of the steps is then about a tenth larger, for it is chosen later.
        sampling: "poisson", or "allocation": each record is in one step of an epoch, drawn by itself; under add_remove only,
            at a rate of 1 / the steps of an epoch. A training that goes on inside of an epoch loses the rest of it.
        max_grad_norm: bound C of a record's gradient.
        micro_batch: most records in memory at once; the sums are the same.
        loss_noise: noise std / `loss_bound` of a training loss that every step releases as "released/loss"; None: no loss.
        loss_bound: losses are cut to [0, loss_bound].
        relation: of neighbouring data sets.
        ledger: the file of the charges, which `trainer.fit(ckpt_path=)` needs to go on; or a ledger. None: in memory.

    Raises:
        ValueError: in one line, what cannot be bounded record by record, or is not covered; nothing was spent.
        BudgetExceeded: the ledger allows less.

    Source: Abadi et al. 2016; Yousefpour et al. 2021 (the interface of opacus).
    """
    module = getattr(module, "_orig_mod", module)  # what torch.compile was given
    require_setting(module, trainer, sampling, sampling_rate)
    datamodule, loader = loader, loader_of(loader, trainer)
    _require_budget(epsilon, noise_multiplier, sampling_rate)
    for name, value in (("loss_noise", loss_noise), ("loss_bound", loss_bound), ("max_grad_norm", max_grad_norm)):
        if value is not None:
            require_positive(name, value)
    earlier = TRAININGS.get(module)
    if earlier is not None and earlier.steps and not _same_book(earlier.accountant.ledger, ledger):
        raise ValueError("module was trained privately before, with another ledger: build it anew, or go on with that one")
    policy = callback_of(trainer, Clipping)
    adaptive = None if policy is None else policy.noise_multiplier
    data, whose = (loader.dataset, None) if people is None else without_people(loader, people)
    most = None if people is None else require_whole("max_contributions", max_contributions)
    (records, public), gradients = read(data, loader.collate_fn, example), ModuleGradients(module, most)
    units = records if most is None else grouped(records, whose, most)
    gradients.settle(records, public, trainer, exemplary=example is not None)
    _require_policy(policy, gradients, people)
    if most is not None:
        micro_batch = max(1, require_whole("micro_batch", micro_batch) // most)
    unit = person(None if most is None else people if isinstance(people, str) else "people", most or 1)
    config = DPSGDConfig(clipping="fixed" if adaptive is None else "dpnorm", clip_bound=max_grad_norm, micro_batch=micro_batch)
    plan = ModulePlan(
        epsilon=epsilon,
        delta=delta,
        relation=relation,
        sampling_rate=(0.5 if sampling == "allocation" else 1.0) if sampling_rate is None else sampling_rate,
        sampling=sampling,
        noise_multiplier=noise_multiplier,
        sigma_loss=loss_noise,
        sigma_norm=DPSGDPlan.sigma_norm if adaptive is None else adaptive,
    )
    book = _opened(ledger, plan, unit, trainer.world_size > 1)
    curator = Curator(book)
    plan = plan._with_cluster_noise(config)
    training = ModuleTraining(gradients, units, public, trainer, plan=plan, config=config, most=loss_bound)
    with _kept_if_declared(book, ledger):
        _declare(training, curator, cast(int, loader.batch_size), sampling_rate)
    training.loader = private = PoissonLoader(cast(Any, units), **training.plan.drawn)
    private.assign(private.table.cluster, 1)
    training.accountant = PrivacyAccountant(curator, at_once=True)
    TRAININGS[module] = training
    trainer.callbacks += [training.accountant, training]  # type: ignore[attr-defined]
    for warning in gradients.warnings:
        warnings.warn(warning, stacklevel=2)
    if datamodule is loader:
        return module, private, trainer
    vars(datamodule)["train_dataloader"] = lambda: private
    return module, datamodule, trainer


def _require_budget(epsilon: float | None, noise_multiplier: float | None, sampling_rate: float | None) -> None:
    """Refuse a training of no budget, or of two."""
    if (epsilon is None) == (noise_multiplier is None):
        raise ValueError(f"epsilon is {epsilon} and noise_multiplier is {noise_multiplier}; exactly one must be given")
    if noise_multiplier is not None and sampling_rate is None:
        raise ValueError("noise_multiplier needs sampling_rate: without a budget a rate cannot be bought")


def _require_policy(policy: Clipping | None, gradients: ModuleGradients, people: Any) -> None:
    """Refuse bounds of layers that leave parameters out, and such bounds for people."""
    if policy is None or not (layers := policy.layers(gradients.columns)):
        return
    require_layers(layers, gradients.p)
    if people is not None:
        raise ValueError(f"people must be left out with {type(policy).__name__}: gradients of a person are clipped as a whole")


@contextmanager
def _kept_if_declared(book: Ledger, given: Any) -> Iterator[None]:
    """A ledger that was opened for a training is left as it was found, where the training cannot be paid for."""
    try:
        yield
    except BaseException:
        if book is not given:
            book.drop()
            if book.path is not None and not book.committed:
                book.path.unlink()
        raise


def _declare(training: ModuleTraining, curator: Curator, batch: int, rate: float | None) -> None:
    """Complete the plan and declare it; a rate that is not given is bought first, of a ledger that goes on it is known."""
    plan, config, book, trainer = training.plan, training.config, curator.ledger, training.trainer
    sizes = plan.clusters(config)
    if (book.relation, book.rows) != (plan.relation, 1) or book.delta < plan.delta:
        raise ValueError(
            f"ledger has relation {book.relation!r}, delta {book.delta:g} and {book.rows} rows of a unit; they must be "
            f"{plan.relation!r}, {plan.delta:g} and 1"
        )
    before = _promised_steps(book, plan.sampling)
    if rate is not None:
        training.plan = replace(plan, steps=_most_steps(trainer, rate)).calibrated(config)
    elif before is not None:
        training.plan = _resumed(plan, before)
        training.partition.load_state_dict({"counts": torch.tensor([batch / training.plan.sampling_rate])})
        training.partitioned = True
    elif book.budget is None:
        raise ValueError("ledger has no budget; it must have one, or sampling_rate be given: what is bought decides the noise")
    else:
        curator.declare(*sizes)
        training.partition.fit(training.records, None, curator=curator)
        book.commit()  # the rate shows what was released
        training.partitioned = True
        size = max(1.0, float(training.partition.counts))
        rate = min(1.0, batch / size) if plan.sampling == "poisson" else 1.0 / max(2, round(size / batch))
        training.plan = _bought(replace(plan, sampling_rate=rate, steps=_most_steps(trainer, rate)), config, book, sizes)
        return curator.declare(training.plan.steps_planned(config))
    steps = training.plan.steps_planned(config)
    if before is not None and before != steps:
        raise ValueError(
            f"ledger has a plan of other steps ({before.count} x {before.event}): go on with the same noise and steps"
        )
    if rate is None:
        curator.declare(*sizes)
        return curator.declare(steps)
    curator.declare(*sizes, steps)


def _promised_steps(book: Ledger, sampling: Sampling) -> Planned | None:
    """The steps in the plan of a ledger that goes on; None in a new one."""
    before = next((line for line in book.promised(later=False) if line.note in NOTES.values()), None)
    if before is not None and before.note != NOTES[sampling]:
        raise ValueError(f"sampling is {sampling!r}; it must be that of the ledger, whose plan has {before.note}")
    return before


def _most_steps(trainer: L.Trainer, rate: float) -> int:
    epoch = math.ceil(1.0 / rate - 1e-9)
    limit = trainer.limit_train_batches
    epoch = min(epoch, limit) if isinstance(limit, int) else epoch
    by_epochs = trainer.max_epochs * epoch if trainer.max_epochs is not None and trainer.max_epochs >= 0 else math.inf
    return int(min(by_epochs, trainer.max_steps if trainer.max_steps >= 0 else math.inf))


def _same_book(book: Ledger, ledger: Ledger | Path | str | None) -> bool:
    if ledger is None or isinstance(ledger, Ledger):
        return book is ledger
    return book.path is not None and Path(book.path).resolve() == Path(ledger).resolve()


def _opened(ledger: Ledger | Path | str | None, plan: ModulePlan, unit: str, several: bool) -> Ledger:
    """The ledger that is given, that of a file, or a new one; of several processes the first one has the file."""
    if isinstance(ledger, Ledger):
        return _of_unit(ledger, unit)
    path = None if ledger is None or (several and launched_rank()) else Path(ledger)
    if path is not None and path.exists():
        book = _of_unit(Ledger.open(path), unit)
        if book.committed:
            book.resume()
        return book
    return Ledger(plan.budget, delta=None if plan.budget else plan.delta, relation=plan.relation, unit=unit, path=path)


def _of_unit(book: Ledger, unit: str) -> Ledger:
    if book.unit != unit:
        raise ValueError(f"ledger has the unit {book.unit!r}; it must be {unit!r}, as people and max_contributions say")
    return book


def _bought(plan: ModulePlan, config: DPSGDConfig, ledger: Ledger, sizes: Sequence[Planned]) -> ModulePlan:
    """The plan with the least noise that its budget, and the ledger's filter beside what it has counted, grant."""
    own = Ledger(plan.budget, relation=plan.relation)
    own.declare(sizes)
    books, low, high = [ledger, *[own] * (ledger.budget != own.budget)], 0.05, 1e5
    while high > low * 1.0005:
        middle = math.sqrt(low * high)
        event = replace(plan, noise_multiplier=middle).step_event(config)
        low, high = (low, middle) if all(book.allowance(event) >= plan.events for book in books) else (middle, high)
    return replace(plan, noise_multiplier=high)


def _resumed(plan: ModulePlan, line: Planned) -> ModulePlan:
    """The plan of a ledger whose rate was bought."""
    if plan.sigma_loss is not None:
        raise ValueError("loss_noise needs sampling_rate where a ledger is gone on with")
    event: Any = line.event
    inner, together = getattr(event, "event", event), getattr(event, "steps", 1)
    rate = getattr(event, "sampling_probability", 1.0 / together)
    return replace(plan, sampling_rate=rate, steps=line.count * together, noise_multiplier=inner.noise_multiplier)


# -- release -------------------------------------------------------------------------------------------------------------


def release(module: nn.Module, directory: Path | str) -> ReleasedModule:
    """Write the weights of a privately trained module with their statement; `dpgen.load` reads them.

    Raises:
        ValueError: a module that `make_private` has not seen, that was not trained, or that was changed elsewhere.
        ShareDone: in all processes but the first, which ends them.
    """
    module = getattr(module, "_orig_mod", module)
    training = TRAININGS.get(module)
    if training is not None and training.trainer.world_size > 1 and launched_rank():
        raise ShareDone
    if training is None:
        raise ValueError(f"module is {type(module).__name__}, which make_private was not given: nobody knows what it has seen")
    options = {}
    for name, value in getattr(module, "hparams_initial", {}).items():
        with_json = _json(value)
        if with_json is not None:
            options[name] = with_json[0]
    kind = type(module)
    made = ReleasedModule(
        {name: value.detach().cpu().clone() for name, value in module.state_dict().items()},
        f"{kind.__module__}:{kind.__qualname__}",
        options,
        training.statement(),
    )
    training.accountant.ledger.commit()
    made.save(directory)
    return made


def _json(value: Any) -> tuple[Any] | None:
    """A value as JSON has it; None where it cannot."""
    try:
        return (json.loads(json.dumps(value, allow_nan=False)),)
    except (TypeError, ValueError, RecursionError):
        return None
