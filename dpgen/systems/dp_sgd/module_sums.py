"""A LightningModule as a bank of one model: gradients of its `training_step` record by record; the sum of its losses."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import lightning as L
import torch
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, nll_loss
from torch.overrides import TorchFunctionMode
from torchmetrics import Metric

from dpgen.nets.one_by_one import Singles, records_of
from dpgen.nets.per_record import PerRecord, T, of_all_records, unseen
from dpgen.nets.trials import SameForEach, UnlikeAlone, require_codes, settle
from dpgen.privacy.clipping import RecordGradients
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.sampling import Held
from dpgen.systems.dp_sgd.people import of_people, records_of_people
from dpgen.systems.dp_sgd.plan import DPSGDConfig, DPSGDPlan
from dpgen.systems.dp_sgd.sums import UNIT

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
        """Where each parameter is in the vector of all, by the name that its author gave it."""
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
