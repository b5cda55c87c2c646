"""Refusals of all that a private training of a module cannot do, before anything is read."""

from collections.abc import Sequence
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import BatchSizeFinder, GradientAccumulationScheduler, LearningRateFinder
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor

from dpgen.callbacks import PrivacyAccountant
from dpgen.privacy.mechanisms import Sampling
from dpgen.systems.dp_sgd.own_records import HOOKS


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


def require_no_clipping(trainer: L.Trainer) -> None:
    """Refuse a trainer that clips, which would be taken for the clipping of records."""
    if trainer.gradient_clip_val:
        raise ValueError(
            f"gradient_clip_val is {trainer.gradient_clip_val}; it must be None: it would clip noisy sums. max_grad_norm clips "
            "the gradient of every record"
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
