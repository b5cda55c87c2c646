"""White-box audit of private training: the real engine on a worst-case problem.

Canaries have orthogonal gradients, and the adversary sees every released sum.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import lightning as L
import torch
from torch import Tensor

from dpgen.callbacks import PrivacyAccountant
from dpgen.nets.bank import Factor, ModelBank, Noise, RecordGradients
from dpgen.privacy.curator import Curator, Draw
from dpgen.privacy.sampling import Batch, PoissonLoader
from dpgen.runtime import quiet_training
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

STEEPNESS = 1e6
"""Gradients are so large that every clipping policy cuts them to its bound."""


class CanaryBank(ModelBank):
    r"""k linear models with loss :math:`10^6 \langle \theta, x \rangle`: the gradient of a record is the record itself.

    Records along different axes have orthogonal gradients, so one coordinate of a released sum tells of one record alone.
    """

    def __init__(self, k: int, d: int) -> None:
        super().__init__(k, {"direction": (d,)})

    def architecture(self) -> dict[str, Any]:
        return {"d": self.p}

    def initialize(self, generator: torch.Generator) -> None:
        self.theta.zero_()

    def gradients(self, x: Tensor, bounds: Sequence[int], noise: Noise) -> RecordGradients:
        return RecordGradients([Factor(STEEPNESS * x, None, None, slice(0, self.p))], bounds)

    def sample(self, cluster: int, n: int, generator: torch.Generator) -> Tensor:
        return torch.full((n, self.p), 0.5)


class _WatchedDPGM(DPGM):
    """The real engine, whose releases an adversary writes down; canaries of the cluster `target` are coordinates from 1 on."""

    released = False  # sums alone are, no model

    def __init__(self, *, target: int, **options: Any) -> None:
        super().__init__(**options)
        self.target = target
        self.seen: list[Tensor] = []

    def noisy_sums(self, batch: Batch, draw: Draw, out: Tensor | None = None, *, averaged: bool = False) -> Tensor:
        released = super().noisy_sums(batch, draw, out, averaged=averaged)
        self.seen.append(released[self.target, 1:].double() / (self.averaging()[self.target] if averaged else 1.0))
        return released


ATTACKS = ("likelihood ratio", "sum of all steps", "differences of steps")
"""Statistics of the adversary for each canary; which of them serves best is chosen on canaries that are not counted."""

_OTHERS = 200  # further records in the canaries' cluster
_EVERY = 10**9  # epochs between tight values: only the last one is wanted


class Watched(NamedTuple):
    """Scores (m, a) that one training gave to its canaries, and the epsilon that it claimed."""

    scores: Tensor
    claimed: float


def train_watched(plan: DPGMPlan, config: DPGMConfig, included: Tensor, *, seed: int = 0) -> Watched:
    """One training of DPGM's engine with the canaries that `included` (m,) names; the others are absent, or reversed.

    They are reversed under replace_one. Networks are replaced by the worst case. Clusters are found by label, and the canaries
    are in the last one. Where people have several rows a canary has all of them, and all are equal.
    """
    k, canaries = config.k or 1, len(included)
    size = _OTHERS + canaries // 2  # of each cluster, on average over the coins
    others = torch.cat([torch.arange(size * (k - 1)) % max(1, k - 1), torch.full((_OTHERS,), k - 1)])
    signs = torch.where(included, 1, -1 if plan.relation == "replace_one" else 0).to(torch.int8)
    here = signs.nonzero()[:, 0].repeat_interleave(plan.rows)
    x = torch.zeros(len(others) + len(here), 1 + canaries, dtype=torch.int8)
    x[: len(others), 0] = 1
    x[torch.arange(len(others), len(x)), 1 + here] = signs[here]
    labels = torch.cat([others, torch.full_like(here, k - 1)]) if k > 1 else None
    module = _WatchedDPGM(
        d=x.shape[1],
        plan=plan,
        config=replace(config, clusters="labels" if k > 1 else "none", k=k, centred=False),  # steps are audited, no means
        n_classes=k if k > 1 else 0,
        seed=seed,
        bank=CanaryBank(k, x.shape[1]),
        target=k - 1,
    )
    ids = torch.cat([torch.arange(len(others)), len(others) + here])
    people = ids if plan.rows > 1 else None
    loader = PoissonLoader(x, labels, sampling_rate=plan.sampling_rate, people=people, rows=plan.rows)
    accountant = PrivacyAccountant(Curator(module.plan.open_ledger()), every=_EVERY)
    with quiet_training():
        trainer = L.Trainer(
            max_steps=module.plan.steps,
            max_epochs=-1,
            accelerator="cpu",
            callbacks=[accountant, module.config.clipping_callback(module.plan)],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
        trainer.fit(module, loader)
    seen = torch.stack(module.seen) if module.seen else torch.zeros(1, canaries, dtype=torch.float64)
    return Watched(attack_scores(seen, module.plan), accountant.ledger.epsilon())


def attack_scores(y: Tensor, plan: DPGMPlan) -> Tensor:
    r"""Statistics (m, a) of the canaries' coordinates :math:`y_t`, (t, m), of the released sums, large for present canaries.

    The likelihood ratio of Poisson sampling is :math:`\sum_t \log(1 - q + q e^{(y_t - 1/2) / \sigma^2})`, minus the same
    of :math:`-y_t` where an absent canary is a reversed one. Differences, largest minus smallest :math:`y_t`, see noise that
    repeats.
    """
    assert plan.sigma_sgd is not None
    q, sigma = torch.tensor(plan.sampling_rate, dtype=torch.float64), plan.sigma_sgd

    def log_mixture(y: Tensor) -> Tensor:
        return torch.logaddexp(torch.log1p(-q), q.log() + (y - 0.5) / sigma**2)

    ratio = log_mixture(y) - (log_mixture(-y) if plan.relation == "replace_one" else 0.0)
    return torch.stack([ratio.sum(0), y.sum(0), y.amax(0) - y.amin(0)], 1)
