"""The audit of private training: the real engine passes, and each of its broken twins is caught."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dpgen.auditing.audits import ATTACKS, STEEPNESS, CanaryBank, attack_scores, train_watched
from dpgen.auditing.lower_bounds import one_run_lower_bound
from dpgen.privacy.clipping import clipped_sums, flat_coefficients, gradient_norms
from dpgen.privacy.noise import SecureSource, multiply_rows_
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

SURE = {"delta": 1e-10, "confidence": 1 - 1e-6}
"""Of audits that must not raise an alarm: delta is so small that the theorem's correction leaves that confidence."""


def answered(plan: dict[str, Any], config: dict[str, Any] | None = None, *, canaries: int) -> tuple[Tensor, float, Tensor]:
    """Scores and claim of one training, and the coins of its canaries."""
    included = torch.rand(canaries, generator=torch.Generator().manual_seed(5)) < 0.5
    noise = {} if "epsilon" in plan else {"noise_multiplier": 1.0}
    scores, claimed = train_watched(DPGMPlan(**noise | plan), DPGMConfig(**config or {}), included)
    return torch.from_numpy(scores), claimed, included


def test_the_gradient_of_a_record_is_the_record_and_clipping_gives_it_its_own_coordinate() -> None:
    x = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]])
    slow = torch.autograd.functional.jacobian(lambda theta: STEEPNESS * (theta * x).sum(1), torch.zeros(2, 3))
    found = CanaryBank(2, 3).gradients(x, [0, 1, 2], torch.randn).factors[0].outputs
    assert torch.equal(found, torch.stack([slow[r, r] for r in range(2)]))
    gradients = CanaryBank(1, 3).gradients(torch.eye(3), [0, 3], torch.randn)
    coefficients = flat_coefficients(gradient_norms(gradients), torch.tensor(10.0))
    sums = clipped_sums(gradients, coefficients, torch.empty(1, 3))
    assert sums[0].tolist() == pytest.approx([1.0, 1.0, 1.0], abs=1e-4)


@pytest.mark.filterwarnings("ignore:DPNorm")
@pytest.mark.parametrize("clipping", ["auto", "fixed", "dpnorm"])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_without_noise_a_canary_is_seen_exactly(clipping: Any, relation: Any) -> None:
    plan = {"noise_multiplier": 1e-3, "sampling_rate": 1.0, "steps": 2, "relation": relation}
    scores, _, included = answered(plan, {"clipping": clipping}, canaries=6)
    total = scores[:, ATTACKS.index("sum of all steps")]
    absent = -2.0 if relation == "replace_one" else 0.0
    assert torch.allclose(total, torch.where(included, 2.0, absent).double(), atol=0.02)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_the_likelihood_ratio_is_that_of_one_value_at_a_time(relation: Any) -> None:
    seen = torch.tensor([[0.2, 1.4], [-0.5, 0.9]])
    plan = DPGMPlan(noise_multiplier=0.7, sampling_rate=0.3, steps=2, relation=relation)

    def density(y: float, sign: float) -> float:
        bells = [math.exp(-((y - centre) ** 2) / (2 * 0.7**2)) for centre in (0.0, sign)]
        return 0.7 * bells[0] + 0.3 * bells[1]

    absent = -1.0 if relation == "replace_one" else 0.0
    slow = [sum(math.log(density(y, 1.0) / density(y, absent)) for y in canary) for canary in seen.T.tolist()]
    assert attack_scores(seen.double(), plan)[:, 0].tolist() == pytest.approx(slow)


def bound(plan: dict[str, Any], config: dict[str, Any] | None = None) -> tuple[float, float, str]:
    """Lower bound, claim and attack of one training with 2000 canaries."""
    scores, claimed, included = answered(plan | {"delta": SURE["delta"]}, config, canaries=2000)
    found = one_run_lower_bound(scores, included, **SURE)
    return found.epsilon, claimed, ATTACKS[found.attack]


@pytest.mark.filterwarnings("ignore:DPNorm")
@pytest.mark.parametrize(
    ("plan", "config"),
    [
        ({"sampling_rate": 1.0, "steps": 4, "noise_multiplier": 2.0}, {}),
        ({"sampling_rate": 0.5, "steps": 20, "noise_multiplier": 2.0}, {}),
        ({"sampling_rate": 0.5, "steps": 20, "epsilon": 5.0}, {"clipping": "dpnorm"}),
        ({"sampling_rate": 0.5, "steps": 10, "noise_multiplier": 3.0, "relation": "replace_one"}, {"k": 3}),
    ],
    ids=["full batch", "Poisson", "adaptive", "replaced"],
)
def test_the_real_engine_is_not_flagged(plan: dict[str, Any], config: dict[str, Any]) -> None:
    """A false alarm has probability at most 1e-6; the same audit sees the canaries, so it is not blind."""
    found, claimed, _ = bound(plan, config)
    assert 0.1 < found <= claimed


class ReusedNoise(SecureSource):
    """The faulty variant of the secure source: one draw of noise for all sums of a shape."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[int, ...], Tensor] = {}

    def add_normal_(self, values: Tensor, *, noise_std: float, factor: Tensor | None = None) -> Tensor:
        shape = tuple(values.shape)
        if shape not in self.kept:
            self.kept[shape] = self.unrounded_normal(*shape, noise_std=noise_std, dtype=values.dtype)
        return multiply_rows_(values.add_(self.kept[shape]), factor)


def test_reused_noise_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {"sampling_rate": 0.2, "steps": 20, "noise_multiplier": 4.0}
    with monkeypatch.context() as patch:
        patch.setattr("dpgen.privacy.curator.SecureSource", ReusedNoise)
        found, claimed, attack = bound(plan)
    assert found > claimed
    assert attack == "differences of steps"
