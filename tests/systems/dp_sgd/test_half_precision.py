"""Half precision in the networks moves no sensitivity: norms bound exactly what is summed, whatever autocast does."""

import itertools
from typing import Any

import pytest
import tiny
import torch
from own_networks import Rectified
from torch import Tensor

from dpgen.callbacks import AutomaticClipping
from dpgen.nets import ModelBank, OwnBank, RBMBank, RecordGradients, VAEBank
from dpgen.privacy.clipping import clipped_sums, gradient_norms
from dpgen.privacy.sampling import Batch
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

D, K, B = 64, 2, 10
BOUNDS = [0, 4, 10]


def half() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


def bank(name: str) -> ModelBank:
    generator = torch.Generator().manual_seed(0)
    made: ModelBank
    if name == "own":
        made = OwnBank(K, D, network=Rectified, network_options={"hidden": 8})
    else:
        made = VAEBank(K, D, hidden=16, latent=2) if name == "vae" else RBMBank(K, D, hidden=16, chains=7)
    with torch.no_grad():
        made.initialize(generator)
        made.theta.add_(0.1 * torch.randn(made.theta.shape, generator=generator))
    made.begin_step()
    return made


def gradients(name: str, *, precise: bool = False) -> RecordGradients:
    x = (torch.rand(B, D, generator=torch.Generator().manual_seed(1)) < 0.4).float()
    z = torch.randn(B, 2, generator=torch.Generator().manual_seed(2))
    made = bank(name)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not precise):
        return made.gradients(x, BOUNDS, lambda *shape: z[: shape[0]]).full()


def bank_width(factors: RecordGradients) -> int:
    return max(part.stop for f in factors.factors for part in (f.weight, f.bias) if part is not None)


def materialised(factors: RecordGradients) -> Tensor:
    """Every record's gradient (b, p), multiplied out in float64."""
    return tiny.one_by_one(factors, K, bank_width(factors))


NAMES = ["vae", "rbm", "own"]


@pytest.mark.parametrize("name", NAMES)
def test_norms_under_autocast_bound_what_is_summed(name: str) -> None:
    with half():
        factors = gradients(name)
        norms = gradient_norms(factors)
    true = materialised(factors).norm(dim=1)
    assert bool((norms.double() >= true).all()), "a norm is understated"
    assert torch.allclose(norms.double(), true, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_sums_under_autocast_are_float32_sums(name: str) -> None:
    with half():
        factors = gradients(name)
        coefficients = 1.0 / gradient_norms(factors)
        sums = clipped_sums(factors, coefficients, torch.zeros(K, bank_width(factors)))
    rows = materialised(factors) * coefficients[:, None].double()
    expected = torch.stack([rows[a:b].sum(0) for a, b in itertools.pairwise(BOUNDS)])
    assert float((sums - expected).norm()) < 1e-5
    assert float(rows.norm(dim=1).max()) <= 1 + 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_norms_would_understate(name: str) -> None:
    """The twin: norms of factors that were rounded to bfloat16, as autocast would round what they are computed from."""
    factors = gradients(name, precise=True)
    rounded = [f._replace(outputs=f.outputs.bfloat16().float()) for f in factors.factors]
    understated = gradient_norms(factors._replace(factors=rounded))
    assert float((understated.double() / materialised(factors).norm(dim=1)).min()) < 1 - 2e-5


@pytest.mark.parametrize("name", NAMES)
def test_the_networks_do_run_in_half_precision(name: str) -> None:
    rough, precise = materialised(gradients(name)), materialised(gradients(name, precise=True))
    error = float((rough - precise).norm() / precise.norm())
    assert 1e-5 < error < 0.3


@pytest.mark.parametrize("component", ["vae", "rbm"])
@pytest.mark.parametrize("labelled", [False, True])
def test_one_record_moves_a_step_by_at_most_one_under_autocast(component: Any, labelled: bool) -> None:
    plan = DPGMPlan(sampling_rate=0.5, noise_multiplier=1e-6, sigma_count=5.0, sigma_sum=5.0)
    clusters = "labels" if labelled else "kmeans"
    own: dict[str, Any] = {"latent": 2} if component == "vae" else {}
    config = DPGMConfig(component=component, hidden=16, clusters=clusters, k=K, **own)
    module = DPGM(d=D, plan=plan, config=config, n_classes=K)
    module.policy = AutomaticClipping(stability=1e-6)
    # The same latent noise for a record with and without the one that is removed, the last of its cluster.
    module.latents = lambda b, width: torch.ones(b, width)  # type: ignore[method-assign]
    x = (torch.rand(B, D, generator=torch.Generator().manual_seed(1)) < 0.4).float()
    cluster = torch.tensor([0] * 4 + [1] * 6)
    module.bank.begin_step()
    with half():
        everybody = tiny.released(module, Batch(x, cluster, cluster))
        without = tiny.released(module, Batch(x[:-1], cluster[:-1], cluster[:-1]))
    assert everybody.dtype == torch.float32
    moved = float((everybody - without).double().norm())
    assert 0.97 < moved < 1.03, "up to float32 sums of the other records, whose bf16 products may round by batch shape"
