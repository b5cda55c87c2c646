"""Any LightningModule trained by DP-SGD: `make_private`, a plain `Trainer.fit`, `release`; all that cannot be done is refused
before anything is read.

The module keeps its optimizer, schedulers, callbacks, checkpoints. Its loader may have any records, each read once; public ones
of the same form are those on which code is tried.

| records | what code gets in training |
|---|---|
| tensors of one shape, in any container, put together by `default_collate` | all of them under vmap, each as a batch of one |
| any others: texts, several lengths, a `collate_fn` of one's own | one after the other: what the loader makes of one record |

Source: Abadi et al. 2016, Algorithm 1.
"""

import json
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import lightning as L
import torch
from lightning.pytorch.callbacks import BatchSizeFinder, GradientAccumulationScheduler, LearningRateFinder
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, TensorDataset, default_collate

from dpgen.callbacks import Clipping, PrivacyAccountant
from dpgen.nets.per_record import Singles, in_one_line
from dpgen.privacy.clipping import require_layers
from dpgen.privacy.curator import Curator
from dpgen.privacy.distributed import ShareDone, launched_rank
from dpgen.privacy.ledger import Ledger, Planned
from dpgen.privacy.mechanisms import Relation, Sampling, require_positive, require_whole
from dpgen.privacy.sampling import Held, PoissonLoader
from dpgen.statement import person
from dpgen.systems.dp_sgd.engine import callback_of
from dpgen.systems.dp_sgd.model import ReleasedModule
from dpgen.systems.dp_sgd.module_training import (
    TRAININGS,
    ModuleGradients,
    ModulePlan,
    ModuleTraining,
    grouped,
    require_no_clipping,
)
from dpgen.systems.dp_sgd.plan import NOTES, DPSGDConfig, DPSGDPlan
from dpgen.systems.dp_sgd.sums import COMPANY

M = TypeVar("M", bound=L.LightningModule)

_UNKNOWN = {"poisson": 1.0, "allocation": 0.5}
"""Rates that stand for one that is bought, until it is."""


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
    _require_positive(loss_noise=loss_noise, loss_bound=loss_bound, max_grad_norm=max_grad_norm)
    _require_same_book(module, ledger)
    policy = callback_of(trainer, Clipping)
    adaptive = getattr(policy, "noise_multiplier", None)
    data, whose = without_people(loader, people)
    most = None if people is None else require_whole("max_contributions", max_contributions)
    (records, public), gradients = read(data, loader.collate_fn, example), ModuleGradients(module, most)
    units = records if most is None else grouped(records, whose, most)
    gradients.settle(records, public, trainer, exemplary=example is not None)
    _require_policy(policy, gradients, people)
    unit, at_once = _unit(people, most), max(1, require_whole("micro_batch", micro_batch) // (most or 1))
    config = DPSGDConfig(clipping="fixed" if adaptive is None else "dpnorm", clip_bound=max_grad_norm, micro_batch=at_once)
    plan = ModulePlan(
        epsilon=epsilon,
        delta=delta,
        relation=relation,
        sampling_rate=_UNKNOWN[sampling] if sampling_rate is None else sampling_rate,
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


def _require_positive(**numbers: float | None) -> None:
    """Refuse numbers that are given and not above 0."""
    for name, value in numbers.items():
        if value is not None:
            require_positive(name, value)


def _require_same_book(module: nn.Module, ledger: Ledger | Path | str | None) -> None:
    """Refuse to train a module that another ledger has paid for."""
    earlier = TRAININGS.get(module)
    if earlier is not None and earlier.steps and not _same_book(earlier.accountant.ledger, ledger):
        raise ValueError("module was trained privately before, with another ledger: build it anew, or go on with that one")


def _unit(people: Any, most: int | None) -> str:
    """The unit of the guarantee: a record, or a person with `most` of them."""
    if most is None:
        return person(None, 1)
    return person(people if isinstance(people, str) else "people", most)


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


# -- settings ----------------------------------------------------------------------------------------------------------


def require_setting(module: Any, trainer: Any, sampling: Sampling, rate: float | None) -> None:
    """Refuse what DP-SGD cannot do, before anything is read."""
    for name, value, kind in (("module", module, L.LightningModule), ("trainer", trainer, L.Trainer)):
        if not isinstance(value, kind):
            raise TypeError(f"{name} is a {type(value).__name__}; it must be a {kind.__name__}")
    _require_module(module)
    _require_ranks(trainer, rate)
    _require_trainer(trainer, sampling)
    _require_callbacks(trainer.callbacks)


def _require_module(module: L.LightningModule) -> None:
    if not module.automatic_optimization:
        raise ValueError(
            "automatic_optimization is False; it must be True: one optimizer, one loss. Of a GAN the discriminator alone sees "
            "records, see the system dpgan"
        )
    for name in (*HOOKS, "train_dataloader", "backward"):
        if getattr(type(module), name) is not getattr(L.LightningModule, name):
            raise ValueError(f"module has a {name} of its own, which a private training goes around; do this in training_step")
    if not all(isinstance(value, Tensor) for value in module.state_dict().values()):
        raise ValueError("module has a get_extra_state of its own; it must have none: a release holds tensors alone")


def _require_trainer(trainer: Any, sampling: Sampling) -> None:
    if trainer.accumulate_grad_batches != 1:
        raise ValueError(
            f"accumulate_grad_batches is {trainer.accumulate_grad_batches}; it must be 1: draws that are joined are no Poisson "
            "draw. Raise the batch size and set micro_batch"
        )
    require_no_clipping(trainer)
    if trainer._detect_anomaly:
        raise ValueError("detect_anomaly is True; it must be False: its errors show what private records do to gradients")
    if trainer.overfit_batches:
        raise ValueError(f"overfit_batches is {trainer.overfit_batches}; it must be 0: it repeats the same batches")
    if sampling == "allocation" and trainer.limit_train_batches != 1.0:
        raise ValueError(
            f"limit_train_batches is {trainer.limit_train_batches}; it must be 1.0 with sampling='allocation', whose epochs "
            "are paid for as a whole"
        )
    if trainer.max_steps < 0 and trainer.max_epochs is not None and trainer.max_epochs < 0:
        raise ValueError("trainer has neither max_steps nor max_epochs: the number of steps must be known")


def _require_callbacks(callbacks: Sequence[L.Callback]) -> None:
    for callback in callbacks:
        if isinstance(callback, PrivacyAccountant):
            raise ValueError("trainer has been made private before; make a new one")
        if isinstance(callback, BatchSizeFinder | GradientAccumulationScheduler | LearningRateFinder):
            raise ValueError(
                f"callbacks hold a {type(callback).__name__}, which asks for other steps than those that are paid for"
            )


def _require_ranks(trainer: L.Trainer, rate: float | None) -> None:
    """Refuse processes that do not run the whole script, or hold parts of the parameters."""
    strategy, count = trainer.strategy, trainer.world_size
    if not isinstance(strategy, DDPStrategy | SingleDeviceStrategy):
        raise ValueError(
            f"strategy is {type(strategy).__name__}; it must be 'ddp', or that of one device: gradients of sharded parameters "
            "(FSDP, FSDP2, DeepSpeed) cannot be clipped"
        )
    if count == 1:
        return
    method = strategy._start_method if isinstance(strategy, DDPStrategy) else None
    if method not in (None, "popen"):
        raise ValueError(
            f"strategy is 'ddp_{method}' with devices * num_nodes {count}; it must be 'ddp', whose processes run your script "
            "from its beginning: a ledger and its secret numbers are not handed to another process"
        )
    if trainer._accelerator_connector.use_distributed_sampler:
        raise ValueError("use_distributed_sampler is True; it must be False with several devices: dpgen shares out the draws")
    if rate is None:
        raise ValueError("sampling_rate must be given with several devices: a rate that is bought is known to one process")


# -- records -----------------------------------------------------------------------------------------------------------


HOOKS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
"""Hooks of Lightning between a loader and a step."""


def loader_of(loader: Any, trainer: L.Trainer) -> "DataLoader[Any]":
    """The training loader that is given, or that a data module makes."""
    if isinstance(loader, L.LightningDataModule):
        for name in HOOKS:
            if getattr(type(loader), name) is not getattr(L.LightningDataModule, name):
                raise ValueError(
                    f"datamodule has a {name} of its own, which a private training goes around; do this in training_step"
                )
        loader.trainer = trainer
        loader.prepare_data()
        loader.setup("fit")
        loader = loader.train_dataloader()
    if not isinstance(loader, DataLoader):
        raise TypeError(
            f"loader is a {type(loader).__name__}; it must be a DataLoader, or a LightningDataModule that makes one"
        )
    if isinstance(loader.dataset, IterableDataset):
        raise ValueError("loader has an IterableDataset; it must have one of which any record can be drawn")
    if type(loader.sampler) not in (RandomSampler, SequentialSampler) or loader.batch_size is None:
        raise ValueError("loader has a sampler of its own; it must have a batch_size and none: records are drawn secretly")
    return loader


def read(data: Any, collate: Any, example: Any = None) -> tuple[Held, Held]:
    """All records of a data set, and `COMPANY` public ones: of the `example`, a record or a function, or random ones.

    Raises:
        ValueError: records of a form of which random ones cannot be made, without an example; or an example of another form.
    """
    rows, values = _all_of(data)
    if values is None and example is None:
        raise ValueError(
            "loader has records that do not stack, as tensors of one shape would: give example=, a public record as the data "
            "set has them, or a function that makes one"
        )
    if values is not None and collate is default_collate:
        held = Held(values)
        return held, held.random(COMPANY) if example is None else _alike(held, _examples(example))
    if example is not None:
        examples = _examples(example)
    else:
        leaves, form = tree_flatten(Held(values).random(COMPANY).values)
        examples = [tree_unflatten(list(one), form) for one in zip(*leaves)]
    return Held(Singles(rows or _rows(data), collate)), Held(Singles(examples, collate))


def _rows(data: Any) -> list[Any]:
    return [data[i] for i in range(len(data))]


def _all_of(data: Any) -> tuple[list[Any] | None, Any]:
    """The records of a data set where they have to be read one by one, and their values (n, ...) where these stack."""
    try:
        if type(data) is TensorDataset:
            return None, list(data.tensors)
        rows = _rows(data)
        return rows, _stacked(rows)
    except Exception as error:  # whose text may show a record
        raise ValueError(f"loader has records that cannot be read ({type(error).__name__})") from None


def _without(row: Any, value: str | int) -> Any:
    """A record without the value of this key, or at this place."""
    if isinstance(value, str):
        return {name: own for name, own in row.items() if name != value}
    return tuple(own for i, own in enumerate(row) if i != value)


def without_people(loader: "DataLoader[Any]", people: Any) -> tuple[Any, Any]:
    """The data set without the column, or the key, of people, and whose each record is; or as it is, with names (n,)."""
    data: Any = loader.dataset
    if not isinstance(people, str | int):
        return data, people
    try:
        if type(data) is TensorDataset:
            return TensorDataset(*_without(data.tensors, people)), data.tensors[cast(int, people)]
        rows = _rows(data)
        named, left = [row[people] for row in rows], [_without(row, people) for row in rows]
    except Exception as error:  # whose text may show a record
        problem = f"people is {people!r}; it must be a key of every record, or the place of one of its values"
        raise ValueError(f"{problem} ({type(error).__name__})") from None
    return left, [value.item() if isinstance(value, Tensor) else value for value in named]


def _stacked(rows: list[Any]) -> Any:
    """Values (n, ...) of rows that are tensors of one shape, in any container; None of others."""
    try:
        values = default_collate(rows)
    except (RuntimeError, TypeError, KeyError, ValueError, AttributeError):
        return None
    leaves = tree_leaves(values)
    return values if leaves and all(isinstance(leaf, Tensor) and len(leaf) == len(rows) for leaf in leaves) else None


def _examples(example: Any) -> list[Any]:
    """`COMPANY` public records: what a function makes, or one record whose real numbers are shrunk by random factors."""
    if callable(example) and not isinstance(example, Tensor):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            try:
                return [example() for _ in range(COMPANY)]
            except Exception as error:
                raise ValueError(f"example fails: {in_one_line(error)}") from error
    generator = torch.Generator().manual_seed(0)

    def shrunk(value: Any) -> Any:
        if isinstance(value, float):
            return value * float(0.5 + 0.5 * torch.rand((), generator=generator))
        if isinstance(value, Tensor) and value.is_floating_point():
            return value * (0.5 + 0.5 * torch.rand(value.shape, generator=generator)).to(value)
        return value

    return [tree_map(shrunk, example) for _ in range(COMPANY)]


def _alike(held: Held, examples: list[Any]) -> Held:
    """Examples that stack as the records do."""
    try:
        made = default_collate(examples)
    except Exception as error:
        raise ValueError(f"example is no record as the data set has them: {in_one_line(error)}") from error
    (found, form), (wanted, own) = tree_flatten(made), tree_flatten(held.values)
    if form != own and [type(made), len(found)] != [tuple, len(wanted)]:
        raise ValueError(
            f"example is a {type(examples[0]).__name__} of {len(found)} tensors; it must be like a record of the data set"
        )
    for place, (a, b) in enumerate(zip(found, wanted)):
        if a.shape[1:] != b.shape[1:] or a.dtype != b.dtype:
            raise ValueError(
                f"example has {tuple(a.shape[1:])} of {a.dtype} as tensor {place}; it must be {tuple(b.shape[1:])} of {b.dtype}"
            )
    return Held(tree_unflatten(found, own))


# -- release -----------------------------------------------------------------------------------------------------------


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
