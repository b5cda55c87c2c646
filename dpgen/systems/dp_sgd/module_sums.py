"""The private sums of a LightningModule: gradients of its `training_step` record by record, clipped, and its losses."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, cast

import lightning as L
import torch
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch import Tensor
from torch.nn.functional import cross_entropy, nll_loss
from torch.overrides import TorchFunctionMode

from dpgen.nets.per_record import PerRecord, T, of_all_records, records_of, unseen
from dpgen.nets.trials import SameForEach, require_codes, settle
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.sampling import Held
from dpgen.systems.dp_sgd.partition import LabelPartition
from dpgen.systems.dp_sgd.plan import DPSGDConfig, DPSGDPlan
from dpgen.systems.dp_sgd.sums import COMPANY, PrivateSums, widened

_SIGNATURES = {loss: inspect.signature(loss) for loss in (cross_entropy, nll_loss)}


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


class ModuleGradients:
    """Gradients of a module's `training_step` as those of a bank with one model."""

    k, facts = 1, ()

    def __init__(self, module: L.LightningModule) -> None:
        self.module, self.step, self.index, self.trying = module, module.training_step, 0, False
        self.logs = self.live = False
        self.mixes: str | None = None
        self.more = is_param_in_hook_signature(module.training_step, "batch_idx", min_args=2)
        self.per_record = PerRecord(module)
        self.p = self.per_record.p

    @property
    def theta(self) -> Tensor:
        return torch.empty(1, self.p, device=self.module.device)

    def total(self, values: Any) -> Tensor:
        """The sum of the losses of records, from their mean."""
        with _ByTarget():
            made = self.step(values, self.index) if self.more else self.step(values)
        made = made["loss"] if isinstance(made, dict) else made
        if not isinstance(made, Tensor) or made.numel() != 1 or not made.is_floating_point():
            found = f"shape {tuple(made.shape)} of {made.dtype}" if isinstance(made, Tensor) else type(made).__name__
            raise ValueError(f"its loss is {found}; it must be a mean, one number")
        return made.reshape(()) * records_of(values)

    def gradients(self, x: Held, bounds: Sequence[int], noise: Any) -> Any:
        from dpgen.nets import RecordGradients

        with SameForEach() if self.trying else self.secretly(noise):
            return RecordGradients(self.taken(self.per_record.factors, x), bounds)

    def taken(self, way: Callable[..., T], x: Held) -> T:
        """Factors or losses of records, private ones while training is `live`."""
        if self.live:
            return self.per_record.of_private(way, "training_step", self.total, x.values)
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
            with unseen():
                yield
        finally:
            trainer.loggers, self.module._trainer = loggers, before
            del own["log"], own["log_dict"]

    def _drop(self, *_: Any, **__: Any) -> None:
        self.logs = True

    def settle(self, records: Held, trainer: L.Trainer) -> None:
        """Refuse a module whose gradients cannot be taken record by record, and records that its code fails for."""
        name = type(self.module).__name__
        if not self.p:
            raise ValueError(f"module is {name}; it has no parameter that needs a gradient: there is nothing to train")
        with self.quiet(trainer):
            try:
                self.mixes = settle(self.per_record, self.total, records.random(5).values)
                require_codes(self.per_record, self.total, records.values)
            except ValueError as error:
                raise ValueError(f"module is {name}; its training_step {error}") from error


@dataclass(frozen=True, kw_only=True)
class ModulePlan(DPSGDPlan[DPSGDConfig]):
    """What the training of a module may spend; with `sigma_loss` every step releases its loss, too."""

    sigma_loss: float | None = None

    def multipliers(self, config: DPSGDConfig) -> tuple[float, ...]:
        return super().multipliers(config) + (() if self.sigma_loss is None else (self.sigma_loss,))


def loss_sum(losses: Tensor) -> BoundedSum:
    """The sum (1,) of losses (b,) cut to [0, 1], float64; one that is not finite counts 0. 2^-20 is for its rounding."""
    total = torch.where(torch.isfinite(losses), losses.double().clamp(0.0, 1.0), 0.0).sum()[None]
    return BoundedSum(total, 1.0 + 2.0**-20, "losses", replaced=1.0 + 2.0**-20)


class ModuleSums(PrivateSums):
    """The sums of a module's clipped gradients, and of its losses cut to [0, `most`]; see `PrivateSums`."""

    plan: ModulePlan
    bank: Any

    def __init__(self, gradients: ModuleGradients, records: Held, plan: ModulePlan, config: DPSGDConfig, most: float) -> None:
        super().__init__()
        self.bank, self.plan, self.config = cast(Any, gradients), plan, config
        self.records, self._random, self._most = cast(Any, records), records.random(COMPANY), most
        self._loss_change: float | None = None
        assert plan.sigma_count is not None
        self.partition = LabelPartition(1, noise_count=plan.sigma_count, labelled=False)

    def expected_sizes(self) -> Tensor:
        return (self.plan.sampling_rate * self.partition.counts).clamp_min(1.0)

    def random_records(self) -> Held:
        return self._random.to(self.bank.theta.device)

    def parts(self) -> dict[str, float]:
        return super().parts() | ({} if self.plan.sigma_loss is None else {"losses": self.plan.sigma_loss})

    def measure(self, d: int) -> Any:
        trying, self.bank.trying = self.bank.trying, True
        try:
            return super().measure(d)
        finally:
            self.bank.trying = trying

    def losses(self, x: Held) -> Tensor:
        """Losses (b,) of records, in units of the bound."""
        with torch.no_grad():
            made = self.bank.taken(self.bank.per_record.losses, x) if len(x) else torch.zeros(0)
        return made.double() / self._most

    def latents(self, *shape: int) -> Tensor:
        """Secret numbers, of which PyTorch's seed is made: on the host, which would have to wait for them elsewhere."""
        assert self.curator is not None
        return self.curator.latents(*shape)

    def noisy_loss(self, x: Held, draw: Any) -> Tensor:
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
