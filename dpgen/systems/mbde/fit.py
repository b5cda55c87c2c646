"""MBDE: a density boosted from the public reference by bounded classifiers (Husain et al. 2018, 2020), and one run of it."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import lightning as L
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Planned
from dpgen.privacy.mechanisms import pure_event, require_within
from dpgen.privacy.noise import PublicRandomness
from dpgen.release import Draws
from dpgen.runtime import Runtime
from dpgen.statement import PrivacyStatement
from dpgen.systems.mbde.densities import (
    SIR_DRAWS,
    Box,
    ClippedDensity,
    GaussianReference,
    ModelReference,
    Reference,
    SIRSampler,
    UniformReference,
    bounded,
)
from dpgen.systems.mbde.plan import EPSILONS, LOG2, DrawPlan, MBDEConfig, step_sizes
from dpgen.systems.registry import released

if TYPE_CHECKING:
    from dpgen.data import Points


_HIDDEN, _RATE = (25, 25, 25), 0.02  # widths of the classifier, and the highest learning rate


def _classifier(d: int, *, generator: torch.Generator) -> nn.Sequential:
    r"""Tanh layers and one linear output: the logit (n, 1) of "x comes from P rather than Q" at points (n, d).

    Trained with the cross-entropy on equally weighted classes, the logit estimates :math:`\log P(x) / Q(x)`. The widths
    (25, 25, 25) are those of the paper; initial weights come from the public `generator`.

    Source: Husain et al. 2018, equation 14.
    """
    layers: list[nn.Module] = []
    for width, following in itertools.pairwise((d, *_HIDDEN)):
        layers += [nn.Linear(width, following), nn.Tanh()]
    network = nn.Sequential(*layers, nn.Linear(_HIDDEN[-1], 1))
    for layer in network:
        if isinstance(layer, nn.Linear):
            reach = 1 / math.sqrt(layer.in_features)
            for parameter in layer.parameters():
                nn.init.uniform_(parameter, -reach, reach, generator=generator)
    return network


_WARM_UP = 0.2
_NORMALISER_POINTS = 2**14


class MBDE(L.LightningModule):
    r"""Mollified boosted density estimation, :math:`Q_T \propto Q_0 \exp(\sum_t \theta_t c_t)`.

    Round t trains a classifier of P against :math:`Q_{t-1}`; :math:`c_t \in [-\log 2, \log 2]` is its logit, clipped.
    :math:`Q_{t-1}` is never sampled: points of :math:`Q_0` carry weights :math:`\exp f_{t-1}` in the cross-entropy. (The
    papers' listing trains against :math:`Q_t`, which does not exist yet; their text says :math:`Q_{t-1}`.)

    With a plain `lightning.Trainer`: any loader of private points, float tensors (b, d) alone or first in a tuple, in the
    user's units; training ends after `total_steps` steps. Nothing here is private: weights, losses and the density are
    secrets of this machine, and checkpoints hold them. Only draws of a sampler may leave.

    Source: Husain et al. 2020, Algorithm 1 and section 5.
    """

    def __init__(
        self,
        reference: Reference,
        *,
        epsilon: float = 1.0,
        config: MBDEConfig | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.reference, self.config = reference, config or MBDEConfig(rounds=3)
        self.epsilon = require_within("epsilon", epsilon, EPSILONS, " for one draw")
        self.thetas = step_sizes(self.epsilon, self.config.rounds)
        public = PublicRandomness(seed)
        weights = public.spawn("weights").generator
        self.classifiers = nn.ModuleList([_classifier(reference.d, generator=weights) for _ in self.thetas])
        self.trained = 0
        self._public = public.spawn("reference").generator
        self._log_normaliser = (0, 0.0)

    # -- the density -------------------------------------------------------------------------------------------------

    @property
    def total_steps(self) -> int:
        """Training steps of all rounds."""
        return len(self.thetas) * self.config.steps

    def logits(self, x: Tensor, t: int = 0) -> Tensor:
        """Log-odds of classifier t (from 0) at points (n, d) in the user's units, unclipped: log P/Q_t as learned."""
        device = next(iter(self.classifiers[t].parameters()), x).device
        values: Tensor = self.classifiers[t](self.reference.standardised(x).to(device))
        return values

    def classified(self, x: Tensor, t: int) -> Tensor:
        """Hard-clipped log-odds c_t (n,) in [-log 2, log 2]; NaN counts as 0."""
        return bounded(self.logits(x, t), len(x)).clamp(-LOG2, LOG2)

    def tilt(self, x: Tensor, rounds: int | None = None) -> Tensor:
        """f (n,) = sum of theta_t c_t over the first `rounds` rounds (None: all that are trained), within epsilon / 4 of 0."""
        total = torch.zeros(len(x), dtype=torch.float64)
        for t in range(self.trained if rounds is None else rounds):
            total += self.thetas[t] * self.classified(x, t)
        return total

    forward = tilt

    # -- training ----------------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """One optimizer; only the round's classifier has gradients, so the others rest."""
        return torch.optim.Adam(self.classifiers.parameters(), lr=_RATE, fused=True)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        if self.global_step >= self.total_steps:
            self.trainer.should_stop = True
            return -1
        t, step = divmod(self.global_step, self.config.steps)
        self.trained = t + 1
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = _RATE * _one_cycle(step / self.config.steps)
        return None

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Cross-entropy of private points against weighted points of the reference."""
        x, d = batch[0] if isinstance(batch, list | tuple) else batch, self.reference.d
        if not isinstance(x, Tensor) or x.ndim != 2 or x.shape[1] != d:
            raise ValueError(
                f"a batch holds {getattr(x, 'shape', type(x))}; it must be points (b, {d}), alone or first in a tuple"
            )
        t = self.trained - 1
        y, log_weights = self.opponents(len(x), t)
        points = torch.cat([x.to("cpu", torch.float64), y])
        logits = self.logits(points, t).reshape(-1)
        against = softplus(logits[len(x) :]) * log_weights.exp().to(logits)
        loss: Tensor = softplus(-logits[: len(x)]).mean() + against.mean()
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.global_step >= self.total_steps:
            self.trainer.should_stop = True

    def on_train_end(self) -> None:
        if self.global_step < self.total_steps:
            warnings.warn(
                f"training ended after {self.global_step} of {self.total_steps} steps: {self.trained} of {len(self.thetas)} "
                "classifiers are used; give the trainer more epochs or max_steps",
                stacklevel=2,
            )

    @torch.no_grad()
    def opponents(self, n: int, t: int) -> tuple[Tensor, Tensor]:
        """Points of Q0 (m, d) and log-weights (m,) of mean weight about 1, which make them points of Q_(t-1)."""
        y = self.reference.sample(n, generator=self._public)
        return y, self.tilt(y, t) - self._normaliser(t)

    def _normaliser(self, t: int) -> float:
        """log E_Q0[e^f] after t rounds, once a round."""
        if self._log_normaliser[0] != t:
            values = self.tilt(self.reference.sample(_NORMALISER_POINTS, generator=self._public), t)
            self._log_normaliser = (t, float(torch.logsumexp(values, 0)) - math.log(len(values)))
        return self._log_normaliser[1]


class Minibatches:
    """Private points (n, d) in a public order that starts anew when all have come, `length` batches; no worker processes."""

    def __init__(self, x: Tensor, *, batch: int, length: int, seed: int = 0) -> None:
        self.x, self.batch, self.length = x, min(batch, len(x)), length
        self._generator = PublicRandomness(seed).spawn("order").generator

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Tensor]:
        if self.batch == len(self.x):
            yield from itertools.repeat(self.x, self.length)
            return
        order = torch.empty(0, dtype=torch.int64)
        for _ in range(self.length):
            if len(order) < self.batch:
                order = torch.randperm(len(self.x), generator=self._generator)
            yield self.x[order[: self.batch]]
            order = order[self.batch :]


def _one_cycle(done: float) -> float:
    """Learning rate relative to its highest: up linearly over a fifth, then down along a cosine."""
    if done < _WARM_UP:
        return 0.04 + 0.96 * done / _WARM_UP
    return 0.5 * (1 + math.cos(math.pi * (done - _WARM_UP) / (1 - _WARM_UP)))


# -- one run -----------------------------------------------------------------------------------------------------------


_STAND_INS = 64
FACTS = (Fact.ANY_DATA, Fact.CHOSEN_BLIND, Fact.SECURE_NOISE, Fact.SECRET_REPETITION)
"""Facts of the statement."""


def fit(data: Points, *, plan: DrawPlan, config: MBDEConfig, curator: Curator, runtime: Runtime) -> Draws:
    """Train on the private points and release `plan.draws` draws, each charged before it is made.

    ValueError is raised before anything is charged for several devices, bad points, or a reference whose support does not hold
    them.
    """
    read = None if config.reference_path is None else released("reference_path", config.reference_path, curator)
    reference = reference_for(data, config) if read is None else ModelReference(read)
    x = require_points(data.x, reference)
    curator.declare(Planned(pure_event(plan.per_draw), SIR_DRAWS, plan.draws))
    density = train(x, reference, plan=plan, config=config, runtime=runtime)
    draws = SIRSampler(density, curator=curator, codebook=config.codebook).sample(plan.draws)
    statement = PrivacyStatement.from_ledger(curator.ledger, facts=FACTS)
    return Draws(pd.DataFrame(draws.numpy(), columns=list(data.columns)), statement=statement, origin=density)


def reference_for(data: Points, config: MBDEConfig) -> Reference:
    """The public reference of the configuration, in the user's units."""
    if config.reference == "uniform":
        if data.bounds is None:
            raise ValueError("bounds is None; reference='uniform' needs a public box: give bounds, or reference='gaussian'")
        return UniformReference(data.bounds)
    return GaussianReference(cast(Tensor, data.location), cast(Tensor, data.scale), bounds=data.bounds)


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
    trainer = runtime.trainer(max_steps=module.total_steps, released=False)
    trainer.fit(module, loader)
    module.to(trainer.strategy.root_device).eval()  # evaluated where it was trained; what decides about draws is on the CPU
    learned = module.tilt if config.rounds > 1 else module.logits
    return ClippedDensity(learned, reference, box=Box.of(plan.per_draw, config.alpha), epsilon=plan.per_draw)
