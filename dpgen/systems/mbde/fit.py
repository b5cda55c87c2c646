"""One run of MBDE: learn in private, then make and charge the planned draws."""

from __future__ import annotations

import pandas as pd
import torch
from torch import Tensor

from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Planned
from dpgen.privacy.mechanisms import pure_event
from dpgen.release import Draws
from dpgen.runtime import Runtime
from dpgen.statement import PrivacyStatement
from dpgen.systems.mbde.densities import Box, ClippedDensity, GaussianReference, ModelReference, Reference, UniformReference
from dpgen.systems.mbde.model import MBDE, Minibatches
from dpgen.systems.mbde.plan import DrawPlan, MBDEConfig
from dpgen.systems.mbde.samplers import SIR_DRAWS, SIRSampler
from dpgen.systems.plan import PrivatePoints
from dpgen.systems.registry import released

_STAND_INS = 64
FACTS = (Fact.ANY_DATA, Fact.CHOSEN_BLIND, Fact.SECURE_NOISE, Fact.SECRET_REPETITION)
"""Facts of the statement."""


def fit(data: PrivatePoints, *, plan: DrawPlan, config: MBDEConfig, curator: Curator, runtime: Runtime) -> Draws:
    """Train on the private points and release `plan.draws` draws, each charged before it is made.

    Raises:
        ValueError: several devices, bad points, or a reference whose support does not hold them; nothing was charged.
        BudgetExceeded: the ledger does not allow the draws.
    """
    read = None if config.reference_path is None else released("reference_path", config.reference_path, curator)
    reference = reference_for(data, config) if read is None else ModelReference(read)
    x = require_points(data.x, reference)
    curator.declare(Planned(pure_event(plan.per_draw), SIR_DRAWS, plan.draws))
    density = train(x, reference, plan=plan, config=config, runtime=runtime)
    draws = SIRSampler(density, curator=curator, codebook=config.codebook).sample(plan.draws)
    statement = PrivacyStatement.from_ledger(curator.ledger, facts=FACTS)
    return Draws(pd.DataFrame(draws.numpy(), columns=list(data.columns)), statement=statement, origin=density)


def reference_for(data: PrivatePoints, config: MBDEConfig) -> Reference:
    """The public reference of the configuration, in the user's units."""
    if config.reference == "uniform":
        if data.bounds is None:
            raise ValueError("bounds is None; reference='uniform' needs a public box: give bounds, or reference='gaussian'")
        return UniformReference(data.bounds)
    return GaussianReference(data.location, data.scale, bounds=data.bounds)


def require_points(x: Tensor, reference: Reference) -> Tensor:
    """Private points (n, d) in float64, checked to lie in the support of the reference.

    How many there are is private and nothing to refuse; where there are none, points of the reference stand in for them.
    """
    if x.ndim != 2 or x.shape[1] != reference.d:
        raise ValueError(f"x has shape {tuple(x.shape)}; it must be (n, {reference.d})")
    x = x.to(torch.float64)
    if not bool(torch.isfinite(x).all()):
        raise ValueError("x holds NaN or infinite values; they must all be finite")
    bounds = reference.bounds
    if bounds is not None and bool(((x < bounds[:, 0]) | (x > bounds[:, 1])).any()):
        raise ValueError("x has points outside the bounds of the reference; clamp them or widen the bounds")
    return x if len(x) else reference.evaluation_points(_STAND_INS)


def train(
    x: Tensor, reference: Reference, *, plan: DrawPlan, config: MBDEConfig, runtime: Runtime | None = None
) -> ClippedDensity:
    """Learn the density of one draw from private points (n, d) inside the support of the reference; it stays here."""
    runtime = runtime or Runtime(progress_bar=False, accelerator="cpu")
    module = MBDE(reference, epsilon=plan.per_draw, config=config, seed=runtime.seed)
    loader = Minibatches(x, batch=config.batch, length=config.steps, seed=runtime.seed)
    trainer = runtime.private_trainer(max_steps=module.total_steps)
    trainer.fit(module, loader)
    module.to(trainer.strategy.root_device).eval()  # evaluated where it was trained; what decides about draws is on the CPU
    learned = module.tilt if config.rounds > 1 else module.logits
    return ClippedDensity(learned, reference, box=Box.of(plan.per_draw, config.alpha), epsilon=plan.per_draw)
