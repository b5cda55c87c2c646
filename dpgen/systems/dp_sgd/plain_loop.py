"""A plain loop around a plain `nn.Module`: the private steps of `make_private`, without a Trainer that takes them.

| case | what holds |
|---|---|
| the plan | the whole of it is declared before the first step, and what the release states |
| a step | it is charged, in the file of the ledger too, before its gradients are in `.grad` |
| `break`, an error, a kill | what was charged stays charged; the release states the whole plan |
| `zero_grad()` in the body | is not needed; where no optimizer has used a step, a warning says so |
| `backward()` in the body | refused: it would add gradients without noise to those of the step |
| several processes | refused: `make_private` has them |
"""

import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from typing import Any, NoReturn

import lightning as L
import torch.distributed as dist
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.fabric.utilities import move_data_to_device
from lightning.fabric.wrappers import _FabricDataLoader, _FabricModule
from torch import Tensor, nn
from torch.utils.data import DataLoader

from dpgen.callbacks import Clipping
from dpgen.privacy.mechanisms import require_whole
from dpgen.privacy.sampling import Batch
from dpgen.runtime import quiet_training
from dpgen.systems.dp_sgd.module_training import WithLoss
from dpgen.systems.dp_sgd.own_module import TRAININGS, ModuleTraining, make_private


class PrivateSteps:
    """Steps of a private training: each writes noisy gradients into `.grad` and gives its loss; made by `private_steps`.

    Attributes:
        per_epoch: steps of an epoch, 1 / the sampling rate.
    """

    def __init__(self, training: ModuleTraining, trainer: L.Trainer) -> None:
        self._training, self._trainer = training, trainer
        self.per_epoch = len(training.loader)
        self._batches: Iterator[tuple[int, Batch]] = chain.from_iterable(map(enumerate, repeat(training.loader)))

    def __len__(self) -> int:
        """Steps of the whole plan, also of those that were taken."""
        return self._training.plan.steps

    def __iter__(self) -> Generator[Tensor]:
        """The steps that are left: of each the noisy loss that `loss_noise` pays for, or 0."""
        training = self._training
        values = training.bank.per_record.values.values()
        with self._open():
            while training.steps < len(self):
                index, batch = next(self._batches)
                loss = training.released(move_data_to_device(batch, training.module.device), index, self._trainer)
                if loss is None:
                    return
                training.backward(loss)
                before = [value._version for value in values]
                with self._alone():
                    yield loss
                if before == [value._version for value in values]:
                    said = f"no weight was changed in step {training.steps}, which was paid for"
                    warnings.warn(f"{said}: call optimizer.step() in every step, and no zero_grad() before it", stacklevel=2)
                if training.module.device.type == "cpu" or index + 1 == self.per_epoch:
                    training.require_finite()

    def state_dict(self) -> dict[str, Any]:
        """The state with which a training goes on with its ledger, beside those of the module and the optimizer."""
        return {"steps": self._training.state_dict(), "accountant": self._training.accountant.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there: steps that were charged since then stay charged, so as many are lost."""
        self._training.accountant.load_state_dict(state_dict["accountant"])
        self._training.load_state_dict(state_dict["steps"])

    @contextmanager
    def _open(self) -> Iterator[None]:
        """The calls of `Trainer.fit` before the first step and after the last one."""
        training, trainer = self._training, self._trainer
        trainer.strategy.connect(training.module)
        accountant = training.accountant
        accountant.setup(trainer, training.module, "fit")
        accountant.on_fit_start(trainer, training.module)
        try:
            training.open(trainer)
            yield
        finally:
            accountant.on_train_end(trainer, training.module)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuse other gradients than those of the step while its optimizer has not used them."""
        hooks = [value.register_hook(_refuse) for value in self._training.bank.per_record.values.values()]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def _refuse(_: Tensor) -> NoReturn:
    raise ValueError("backward() in a loop over private steps would add gradients without noise to theirs: leave it out")


def private_steps(
    module: nn.Module,
    loader: "DataLoader[Any]",
    loss: Callable[[Any, Any], Tensor],
    *,
    epochs: int | None = None,
    steps: int | None = None,
    clipping: Clipping | None = None,
    **options: Any,
) -> PrivateSteps:
    """Private steps of a loop of your own, without a Trainer: `for _ in private_steps(...): optimizer.step()`.

    They are those of `dpgen.make_private`, with the same guarantee and refusals. `dpgen.release(module, directory)` writes the
    weights afterwards. The module is on its device, and in training mode or not, as you put it.

    Arguments:
        module: any nn.Module.
        loader: see `dpgen.make_private`.
        loss: the mean loss of a batch, `loss(module, batch)`, a batch being what the loader makes.
        epochs: how often every record is expected in a draw; or
        steps: how many draws.
        clipping: a policy in the place of `max_grad_norm`.
        options: those of `dpgen.make_private`, `epsilon` first of all.

    Raises:
        ValueError: in one line, what cannot be bounded record by record, or is not covered; nothing was spent.
        BudgetExceeded: the ledger allows less.

    Source: Abadi et al. 2016, Algorithm 1.
    """
    _require(module, loader, loss, epochs, steps)
    module = getattr(module, "_orig_mod", module)
    own = WithLoss(module, loss)
    if module in TRAININGS:
        TRAININGS[own] = TRAININGS[module]  # which says with what ledger
    device = own.device
    with quiet_training():
        trainer = L.Trainer(
            accelerator=device.type,
            devices=1 if device.type == "cpu" else [device.index or 0],
            max_epochs=-1 if epochs is None else epochs,
            max_steps=-1 if steps is None else steps,
            callbacks=[] if clipping is None else [clipping],
            plugins=[LightningEnvironment()],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
    make_private(own, loader, trainer, **options)
    TRAININGS[module] = TRAININGS[own]
    return PrivateSteps(TRAININGS[own], trainer)


def _require(module: Any, loader: Any, loss: Any, epochs: Any, steps: Any) -> None:
    """Refuse what no loop can do, before anything is read."""
    if isinstance(module, _FabricModule) or isinstance(loader, _FabricDataLoader):
        raise ValueError(
            "module and loader must be those that Fabric was not given: model.to(fabric.device), then private_steps(model, "
            "loader, loss, ...) and optimizer = fabric.setup_optimizers(optimizer)"
        )
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        raise ValueError(
            "private_steps has one process; several need dpgen.make_private with L.Trainer(devices=2, strategy='ddp', "
            "use_distributed_sampler=False)"
        )
    if not isinstance(module, nn.Module):
        raise TypeError(f"module is a {type(module).__name__}; it must be an nn.Module")
    if not callable(loss) or isinstance(loss, nn.Module):
        raise TypeError(f"loss is a {type(loss).__name__}; it must be a function loss(module, batch) that gives the mean loss")
    _require_length(epochs, steps)


def _require_length(epochs: Any, steps: Any) -> None:
    for name, value in (("epochs", epochs), ("steps", steps)):
        if value is not None:
            require_whole(name, value)
    if (epochs is None) == (steps is None):
        raise ValueError(f"epochs is {epochs} and steps is {steps}; exactly one must be given")
