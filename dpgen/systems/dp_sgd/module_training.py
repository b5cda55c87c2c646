r"""Training of anybody's LightningModule by DP-SGD: gradients of its `training_step`, of records or of people, and the steps.

While a module is fitted, `training_step` is called for a Poisson draw, the gradient of every record's own loss is taken
(`dpgen.nets.per_record`), and what reaches the optimizer is

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

**People** as units: gradients of a person's records are added up, and clipped together. With the records r of a person u,
m of which are used at most, and the bound C,

.. math:: g_u = \sum_{r \in u} g_r, \qquad N_u = \max\Big(|g_u|, \frac{1}{m} \sum_{r \in u} |g_r|\Big), \qquad
    \text{term of } u = \frac{g_u}{\max(N_u, C)} .

| case | what holds |
|---|---|
| a person, with any records | a term of norm at most 1, for :math:`|g_u| \le N_u`: one unit of `PrivateSums` |
| a record that others change by :math:`\delta |g_r|` | its person's term moves by :math:`2 m \delta` at most |
| a record without a finite gradient | counts for nothing; the others of its person stay |
| a person with k > m records | m of them are used, evenly spaced in their own order, whatever others have |

**The margin.** Beside others :math:`|g_u' - g_u| \le \delta \sum_r |g_r| \le \delta m N_u`, and so with N. The weight is at
most :math:`1 / N_u`, so each of the two moves the term by :math:`\delta m` at most, where a record by itself is moved by
:math:`2 \delta`: a person stands for m records in `Margin`. Without the second part of N gradients that cancel would be
changed by any multiple of their sum.

Records are positions of a layer: :math:`\sum_r g_r a_r^\top` is one factor, like that of a sequence (`dpgen.nets.per_record`).

Source: Abadi et al. 2016, Algorithm 1; McMahan et al. 2018 (clipping by user); Chua et al. 2024 (user-level DP-SGD).
"""

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Self, cast
from weakref import WeakKeyDictionary

import lightning as L
import numpy as np
import pandas as pd
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, nll_loss
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map
from torchmetrics import Metric

from dpgen.facts import Fact, Said
from dpgen.nets.per_record import PerRecord, Singles, T, joined_uses, of_all_records, records_of, unseen
from dpgen.nets.trials import SameForEach, UnlikeAlone, choose, marks, moved, require_codes, settle
from dpgen.privacy.clipping import Factor, RecordGradients, gradient_norms
from dpgen.privacy.curator import Draw
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.sampling import Batch, Held, PoissonLoader
from dpgen.statement import PrivacyStatement
from dpgen.systems.dp_sgd.engine import PrivateTraining, keep_epochs_whole
from dpgen.systems.dp_sgd.partition import LabelPartition
from dpgen.systems.dp_sgd.plan import DPSGDConfig, DPSGDPlan
from dpgen.systems.dp_sgd.sums import COMPANY, UNIT, Margin, widened

LOSS = "released/loss"
"""Name under which a noisy training loss is logged."""


# -- people ------------------------------------------------------------------------------------------------------------


def grouped(records: Held, people: Any, most: int) -> Held:
    """A row for each person, of at most `most` of its records, from a name (n,) for the person of each record."""
    person, _ = pd.factorize(np.asarray(people).reshape(-1) if isinstance(people, Tensor) else pd.array(list(people)))
    if len(person) != len(records):
        raise ValueError(f"people has length {len(person)}; it must be {len(records)}, one for each record")
    if (person < 0).any():
        raise ValueError("people has a missing value; every record must have a person")
    order, counts = np.argsort(person, kind="stable"), np.bincount(person)
    first, slots = np.cumsum(counts) - counts, np.arange(most)
    spaced = np.where(counts[:, None] > most, slots * counts[:, None] // most, slots)
    there = slots < counts[:, None]
    return _of_rows(
        records.values, torch.from_numpy(order[first[:, None] + np.where(there, spaced, 0)]), torch.from_numpy(there)
    )


def each_a_person(records: Held, most: int) -> Held:
    """People with one record each, in the same form."""
    there = (torch.arange(most) < 1).expand(len(records), most).clone()
    return _of_rows(records.values, torch.arange(len(records))[:, None].expand(-1, most), there)


def _of_rows(values: Any, index: Tensor, there: Tensor) -> Held:
    """Values of records by index (people, most), of which only those that are `there` are some."""

    def rows(value: Any) -> Any:
        if not isinstance(value, Singles):
            return value[index]
        own = [[value.records[i] for i in row[used].tolist()] for row, used in zip(index, there)]
        return Singles(own, value.collate, value.device)

    return Held([tree_map(rows, values), there])


def records_of_people(people: Held, unit: int) -> tuple[Held, Tensor]:
    """All records of people, padded to a multiple of `unit` with the first one, and their n places among (people, most)."""
    values, there = people.values
    places = there.flatten().nonzero()[:, 0]
    if isinstance(values, Singles):
        return Held(Singles([row for own in values.records for row in own], values.collate, values.device)), places
    filled = torch.cat([places, places[:1].expand(-len(places) % unit)])
    return Held(tree_map(lambda v: v.flatten(0, 1)[filled], values)), places


def of_people(factors: Sequence[Factor], places: Tensor, there: Tensor, bounds: Sequence[int]) -> RecordGradients:
    """Gradients of people from factors of their records, n of them at their places, and pads behind."""
    n = len(places)
    own = [f._replace(outputs=f.outputs[:n], inputs=None if f.inputs is None else f.inputs[:n]) for f in factors]
    norms = gradient_norms(RecordGradients(own, [0, n])) if n else torch.zeros(0, device=there.device)
    finite = torch.isfinite(norms)

    def at_places(values: Tensor) -> Tensor:  # (n, ...) -> (people, most, ...)
        left = torch.where(finite.view(-1, *[1] * (values.ndim - 1)), values, torch.zeros((), dtype=values.dtype))
        return values.new_zeros(there.numel(), *values.shape[1:]).index_copy(0, places, left).unflatten(0, there.shape)

    found: dict[int, list[Factor]] = {}
    for part in (part for f in own for part in _added_up(f, at_places)):
        found.setdefault(part.columns.start, []).append(part)
    made = [f for uses in found.values() for f in joined_uses(uses)]
    return RecordGradients(made, bounds, least=at_places(norms).sum(1) / there.shape[1])


def _added_up(f: Factor, at_places: Callable[[Tensor], Tensor]) -> list[Factor]:
    """Factors of the sums over the records of each person."""
    g = at_places(f.outputs)
    if f.inputs is None:
        return [f._replace(outputs=g.sum(1))]
    a, bias = at_places(f.inputs), f.bias
    if f.inputs.ndim == 3:
        g, a = g.flatten(1, 2), a.flatten(1, 2)
    return [Factor(g, a, f.weight, None), *([] if bias is None else [Factor(g.sum(1), None, None, bias)])]


# -- gradients ---------------------------------------------------------------------------------------------------------


_SIGNATURES = {loss: inspect.signature(loss) for loss in (cross_entropy, nll_loss)}


_TRIED = 17
"""Public records of a trial."""


class _ByTarget(TorchFunctionMode):
    """Takes the mean of class losses over all targets, for the number that is not ignored, and the weights, are a batch's.

    They are taken of all records at once: torch keeps rows apart where it takes no mean, and its rule for vmap is slow.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _SIGNATURES:
            return func(*args, **(kwargs or {}))
        given = _SIGNATURES[func].bind(*args, **(kwargs or {})).arguments
        mean = given.get("reduction", "mean") == "mean" and False not in (given.get("reduce"), given.get("size_average"))
        if not mean and given.get("reduction") != "none":
            return func(**given)
        given |= {"reduction": "none", "reduce": None, "size_average": None}
        scores, target = given.pop("input"), given.pop("target")
        made = of_all_records(lambda x, y: func(x, y, **given), scores, target, shared=given.get("weight"))
        return made.mean() if mean else made


class WithLoss(L.LightningModule):
    """An nn.Module whose `training_step` is a function of it and a batch, see `dpgen.systems.private_steps`."""

    def __init__(self, plain: nn.Module, loss: Callable[[Any, Any], Tensor]) -> None:
        super().__init__()
        self.plain, self.loss, self.used = plain, loss, list[Any]()
        if inspect.isfunction(loss):  # what it could keep records in, see `marks`
            found = inspect.getclosurevars(loss)
            self.used = [*found.nonlocals.values(), *found.globals.values()]

    @property
    def device(self) -> torch.device:
        return next((value.device for value in self.plain.parameters()), torch.device("cpu"))

    def training_step(self, batch: Any) -> Tensor:
        return self.loss(self.plain, batch)


class ModuleGradients:
    """Gradients of a module's `training_step` as those of a bank with one model."""

    k, facts = 1, ()

    def __init__(self, module: L.LightningModule, most: int | None = None) -> None:
        self.most = most  # records of a person, where people are units
        self.module, self.step, self.index, self.trying = module, module.training_step, 0, False
        self.author, self.code = (module.plain, "loss") if isinstance(module, WithLoss) else (module, "training_step")
        self.logs = self.live = False
        self.mixes: str | None = None
        self.more = is_param_in_hook_signature(module.training_step, "batch_idx", min_args=2)
        self.per_record = PerRecord(module)
        self.per_record.apart = False
        self.p = self.per_record.p

    @property
    def columns(self) -> dict[str, slice]:
        """Place of each parameter in the vector of all, by the name that its author gave it."""
        prefix = "plain." if isinstance(self.module, WithLoss) else ""
        return {name.removeprefix(prefix): part for name, part in self.per_record.columns.items()}

    @property
    def theta(self) -> Tensor:
        return torch.empty(1, self.p, device=self.module.device)

    def total(self, values: Any) -> Tensor:
        """The sum of the losses of records, from their mean."""
        batch = values.batch() if isinstance(values, Singles) else values
        with _ByTarget():
            made = self.step(batch, self.index) if self.more else self.step(batch)
        made = made["loss"] if isinstance(made, dict) else made
        if not isinstance(made, Tensor) or made.numel() != 1 or not made.is_floating_point():
            found = f"shape {tuple(made.shape)} of {made.dtype}" if isinstance(made, Tensor) else type(made).__name__
            raise ValueError(f"its loss is {found}; it must be a mean, one number")
        return made.reshape(()) * records_of(values)

    def gradients(self, x: Held, bounds: Sequence[int], noise: Any) -> Any:
        with SameForEach() if self.trying else self.secretly(noise):
            if self.most is None:
                return RecordGradients(self.taken(self.per_record.factors, x), bounds)
            records, places = records_of_people(x, UNIT)
            return of_people(self.taken(self.per_record.factors, records), places, x.values[1], bounds)

    def losses(self, x: Held) -> Tensor:
        """Losses (b,) of records, or the mean losses of people."""
        if not len(x):
            return torch.zeros(0)
        if self.most is None:
            return self.taken(self.per_record.losses, x)
        (records, places), there = records_of_people(x, UNIT), x.values[1]
        made = self.taken(self.per_record.losses, records)[: len(places)]
        return made.new_zeros(there.shape).flatten().index_copy(0, places, made).view(there.shape).sum(1) / there.sum(1)

    def taken(self, way: Callable[..., T], x: Held) -> T:
        """Factors or losses of records, private ones while training is `live`."""
        if self.live:
            return self.per_record.of_private(way, self.code, self.total, x.values)
        return way(self.total, x.values)

    @contextmanager
    def secretly(self, noise: Any) -> Iterator[None]:
        """Let PyTorch's own random numbers come from secret ones."""
        seed = int.from_bytes(sha256(noise(1, 16).numpy().tobytes()).digest()[:7], "big")
        device = self.module.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            (torch.manual_seed if device.type == "cuda" else torch.default_generator.manual_seed)(seed)
            yield

    @contextmanager
    def quiet(self, trainer: L.Trainer) -> Iterator[None]:
        """Drop what the module logs or prints, and let it see the trainer but no logger."""
        loggers, before = trainer.loggers, self.module._trainer
        own = vars(self.module)
        try:
            trainer.loggers, self.module._trainer = [], trainer
            own["log"] = own["log_dict"] = self._drop
            with unseen(), self._without_metrics():
                yield
        finally:
            trainer.loggers, self.module._trainer = loggers, before
            del own["log"], own["log_dict"]

    @contextmanager
    def _without_metrics(self) -> Iterator[None]:
        """Let metrics of torchmetrics see nothing, and be no number: a loss that is made of one is refused."""
        metrics = [part for part in self.module.modules() if isinstance(part, Metric)]
        before = [dict(vars(metric)) for metric in metrics]
        try:
            for metric in metrics:
                vars(metric).update(dict.fromkeys(("forward", "update", "compute"), self._no_number))
            yield
        finally:
            for metric, own in zip(metrics, before):
                vars(metric).clear()
                vars(metric).update(own)

    def _no_number(self, *_: Any, **__: Any) -> Tensor:
        self.logs = True
        return torch.tensor(torch.nan, device=self.module.device)

    def _drop(self, *_: Any, **__: Any) -> None:
        self.logs = True

    @property
    def warnings(self) -> list[str]:
        """Sentences on what is otherwise than the code of a module says."""
        found = list[str]()
        if self.mixes:
            found.append(
                f"{self.code} mixes records, with {self.mixes} in the batch: in training it gets one record at a time, "
                "and the loss is the mean of those"
            )
        if self.logs:
            found.append(
                f"what {self.code} logs is left out, for it looks at private records; loss_noise=10 releases a noisy loss"
            )
        if self.per_record.apart:
            found.append(
                "records are taken one after the other, which is slow: they do not stack, or torch.func cannot take "
                f"{self.code}"
            )
        return found

    def settle(self, records: Held, public: Held, trainer: L.Trainer, *, exemplary: bool = False) -> None:
        """Refuse a module whose gradients cannot be taken record by record, and records that its code fails for."""
        name = type(self.author).__name__
        if not self.p:
            raise ValueError(f"module is {name}; it has no parameter that needs a gradient: there is nothing to train")
        self.per_record.apart = isinstance(records.values, Singles)
        with self.quiet(trainer):
            try:
                self.mixes = settle(self.per_record, self.total, public[torch.arange(_TRIED)].values)
                require_codes(self.per_record, self.total, records.values)
            except ValueError as error:
                random = isinstance(error, UnlikeAlone) and error.of_code and not exemplary
                told = "; where random records are not like yours, give example=" if random else ""
                raise ValueError(f"module is {name}; its {self.code} {error}{told}") from error


# -- steps -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ModulePlan(DPSGDPlan[DPSGDConfig]):
    """Budget of the training of a module; with `sigma_loss` every step releases its loss, too."""

    sigma_loss: float | None = None

    def multipliers(self, config: DPSGDConfig) -> tuple[float, ...]:
        return super().multipliers(config) + (() if self.sigma_loss is None else (self.sigma_loss,))


def loss_sum(losses: Tensor) -> BoundedSum:
    """The sum (1,) of losses (b,) cut to [0, 1], float64; one that is not finite counts 0. 2^-20 is for its rounding."""
    total = torch.where(torch.isfinite(losses), losses.double().clamp(0.0, 1.0), 0.0).sum()[None]
    return BoundedSum(total, 1.0 + 2.0**-20, "losses", replaced=1.0 + 2.0**-20)


def require_no_clipping(trainer: L.Trainer) -> None:
    """Refuse a trainer that clips, which would be taken for the clipping of records."""
    if trainer.gradient_clip_val:
        raise ValueError(
            f"gradient_clip_val is {trainer.gradient_clip_val}; it must be None: it would clip noisy sums. max_grad_norm clips "
            "the gradient of every record"
        )


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
