"""MBDE with a plain trainer: what it learns, what bounds it, and what it refuses."""

import math
import warnings
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from dpgen.systems.mbde.densities import GaussianReference, ModelReference
from dpgen.systems.mbde.fit import MBDE, Minibatches
from dpgen.systems.mbde.plan import LOG2, MBDEConfig, step_sizes

pytestmark = pytest.mark.usefixtures("quiet")


def points(n: int = 400, d: int = 1) -> Tensor:
    return 1.5 + 0.5 * torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def trained(module: MBDE, x: Tensor, **options: Any) -> MBDE:
    trainer = L.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **({"max_epochs": 1} | options),
    )
    trainer.fit(module, Minibatches(x, batch=100, length=module.total_steps))
    return module


def test_a_plain_trainer_with_a_plain_loader() -> None:
    module = MBDE(GaussianReference.standard(2), config=MBDEConfig(rounds=2, steps=6))
    loader = DataLoader(TensorDataset(points(64, 2).float()), batch_size=16, shuffle=True)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=10,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        log_every_n_steps=1,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not have many workers")
        trainer.fit(module, loader)
    assert trainer.global_step == module.total_steps == 12
    assert module.trained == 2


@pytest.mark.parametrize("d", [1, 8])
def test_it_learns_and_stays_within_its_bound(d: int) -> None:
    reference = GaussianReference.standard(d)
    module = trained(MBDE(reference, epsilon=1.0, config=MBDEConfig(rounds=2, steps=60)), points(d=d))
    with torch.no_grad():
        tilt, base = module(points(d=d)), module(reference.evaluation_points(4096))
    gain = float(tilt.mean()) - math.log(float(base.exp().mean()))
    assert 0.15 < gain < 0.5  # at most epsilon / 2
    assert float(torch.cat([tilt, base]).abs().max()) <= 0.25


def test_importance_weights_stand_for_samples_of_the_round() -> None:
    """Weighted points of Q0 have the mean of Q_(t-1), by quadrature."""
    module = MBDE(GaussianReference.standard(1), epsilon=5.0, config=MBDEConfig(rounds=3))
    module.classifiers[0] = nn.Linear(1, 1)
    with torch.no_grad():
        module.classifiers[0].weight.fill_(1.0)
        module.classifiers[0].bias.zero_()
        z = torch.linspace(-8, 8, 4001, dtype=torch.float64)[:, None]
        density = (-0.5 * z[:, 0] ** 2 + module.tilt(z, 1)).exp()
        exact = float((density * z[:, 0]).sum() / density.sum())
        y, log_weights = module.opponents(20_000, 1)
    weights = log_weights.exp()
    assert float(weights.mean()) == pytest.approx(1, abs=0.02)
    assert float((weights * y[:, 0]).mean()) == pytest.approx(exact, abs=0.05)
    assert abs(exact) > 0.2


def test_garbage_weights_tilt_nothing() -> None:
    module = MBDE(GaussianReference.standard(1), config=MBDEConfig(rounds=3))
    module.trained = 3
    x = torch.randn(20, 1)
    for value in (math.nan, math.inf, 1e30):
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.fill_(value)
            assert bool(torch.isfinite(module(x)).all())
            assert float(module(x).abs().max()) <= module.epsilon / 4


def test_a_reference_without_density() -> None:
    samples = ModelReference(lambda n, g: torch.randn(n, 1, generator=g))
    config = MBDEConfig(rounds=1, steps=3)
    assert trained(MBDE(samples, config=config), points())(points(5)).shape == (5,)


def test_the_seed_is_public_and_decides_the_weights() -> None:
    config = MBDEConfig(rounds=1, steps=3)
    runs = [trained(MBDE(GaussianReference.standard(1), config=config, seed=s), points())(points(5)) for s in (0, 0, 1)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_an_early_end_is_told() -> None:
    module = MBDE(GaussianReference.standard(1), config=MBDEConfig(rounds=3, steps=4))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trained(module, points(), max_epochs=-1, max_steps=5)
    assert any("5 of 12 steps: 2 of 3 classifiers" in str(w.message) for w in caught)


@pytest.mark.parametrize("batch", [torch.zeros(3), torch.zeros(3, 1), "x", [torch.zeros(3, 5)]])
def test_bad_batches(batch: Any) -> None:
    with pytest.raises(ValueError, match="batch"):
        MBDE(GaussianReference.standard(2)).training_step(batch, 0)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("rounds", [1, 3, 20])
def test_step_sizes_stay_within_the_budget(epsilon: float, rounds: int) -> None:
    used = 4 * LOG2 * math.fsum(step_sizes(epsilon, rounds))
    last = (epsilon / (epsilon + 4 * LOG2)) ** rounds
    assert used == pytest.approx(epsilon * (1 - last))
