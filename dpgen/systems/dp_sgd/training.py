"""One training by DP-SGD: its plan, its loader, its trainer."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from lightning.pytorch.callbacks import Callback

from dpgen.callbacks import Previews, PrivacyAccountant
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.sampling import PoissonLoader
from dpgen.release import PublicModel
from dpgen.systems.dp_sgd.engine import DPSGD
from dpgen.systems.dp_sgd.inputs import TrainingData

if TYPE_CHECKING:
    from dpgen.runtime import Runtime

M = TypeVar("M", bound=DPSGD)
R = TypeVar("R", bound=PublicModel)


def train(
    module: M,
    release: Callable[[M, Ledger], R],
    data: TrainingData,
    *,
    curator: Curator,
    runtime: Runtime,
) -> R:
    """Train a module within the budget, or go on with it, and release what it has become.

    Arguments:
        module: untrained.
        release: makes the public model of a trained module, with the statement of the ledger that counts.
        data: private records, images or points.

    Raises:
        ValueError: what the module refuses.
    """
    plan = module.plan
    people = data.people if plan.rows > 1 else None
    x, labels, white = data.inputs
    loader = PoissonLoader(x, labels, sampling_rate=plan.sampling_rate, people=people, rows=plan.rows, white=white)
    module.declare(curator)
    every = max(1, round(plan.steps * plan.sampling_rate / 10))  # epochs; ten pictures and tight values in a run
    accountant = PrivacyAccountant(curator, every=every)
    callbacks: list[Callback] = [accountant, module.config.clipping_callback(plan)]
    if data.image_shape is not None:
        callbacks.append(Previews(module.preview, image_shape=data.image_shape, every=every))
    runtime.fit(module, loader, max_steps=plan.steps, callbacks=callbacks)
    if module.global_step < plan.steps:
        warnings.warn(f"the budget ended training after {module.global_step} of {plan.steps} steps", stacklevel=3)
    return release(module, accountant.ledger)
