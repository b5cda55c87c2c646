"""MBDE with a plain trainer: what it learns, what bounds it, and what it refuses."""

import math
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import dpgen
from dpgen.data.points import Points
from dpgen.data.toy import gaussian_ring
from dpgen.metrics import Quadrature, negative_log_likelihood, optimal_mollification
from dpgen.privacy.curator import Curator
from dpgen.release import Draws
from dpgen.runtime import Runtime
from dpgen.systems.mbde.densities import GaussianReference, ModelReference, UniformReference, evaluated
from dpgen.systems.mbde.fit import MBDE, Minibatches, fit, reference_for, require_points, train
from dpgen.systems.mbde.plan import LOG2, DrawPlan, MBDEConfig, step_sizes

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


# -- fits --------------------------------------------------------------------------------------------------------------


SMALL = {"steps": 4, "batch": 32}
BOX = torch.tensor([[-9.0, 9.0], [-9.0, 9.0]])


def ring(n: int = 200, **options: Any) -> Points:
    target = gaussian_ring()
    x = target.sample(n + 20, generator=torch.Generator().manual_seed(0))
    return Points("ring", x[:n], x[n:], columns=("east", "north"), **options)


def run(data: Any, config: MBDEConfig, plan: DrawPlan | None = None, directory: Path | None = None, **options: Any) -> Draws:
    plan = plan or DrawPlan(epsilon=2.0, draws=2)
    runtime = Runtime(progress_bar=False, accelerator="cpu", run_dir=directory, **options)
    return fit(data, plan=plan, config=config, curator=Curator(plan.open_ledger()), runtime=runtime)


def test_a_boosted_density_is_drawn_as_it_is() -> None:
    plan, config = DrawPlan(epsilon=3.0, draws=6), MBDEConfig(rounds=3, **SMALL)
    law = train(ring().x, GaussianReference.standard(2), plan=plan, config=config)
    tilt = evaluated(law.function, ring().test_x)
    assert law.epsilon == 0.5
    assert float(tilt.abs().max()) <= 0.125
    constants = tilt - law.log_ratio(ring().test_x)
    assert float(constants.max() - constants.min()) < 1e-9, "nothing is clipped"


def test_one_classifier_serves_every_epsilon() -> None:
    def learned(epsilon: float) -> torch.Tensor:
        law = train(ring().x, GaussianReference.standard(2), plan=DrawPlan(epsilon=epsilon), config=MBDEConfig(**SMALL))
        with torch.no_grad():
            return law.function(ring().test_x)

    assert torch.equal(learned(0.1), learned(5.0))


def test_quality_on_the_ring() -> None:
    """Fast training reaches what the box allows: 99 % of the optimal gain at epsilon 1 (all of the table: benchmarks)."""
    target, reference = gaussian_ring(), GaussianReference.standard(2)
    x = target.sample(4000, generator=torch.Generator().manual_seed(1))
    law = train(x, reference, plan=DrawPlan(epsilon=1.0), config=MBDEConfig(steps=200))
    rule = Quadrature(torch.tensor([[-8.0, 8.0], [-8.0, 8.0]]), 121)
    log_p, log_q0 = (rule.normalised(q.log_prob(rule.nodes)) for q in (target, reference))
    log_q = rule.normalised(log_q0 + law.log_ratio(rule.nodes))
    best = optimal_mollification(log_p, log_q0, rule, low=law.box.low, high=law.box.high)
    plain, ours, optimal = (negative_log_likelihood(log_p, q, rule) for q in (log_q0, log_q, best))
    assert 0.99 < (plain - ours) / (plain - optimal) < 1.005
    assert plain - ours <= 0.5


def test_real_data_in_a_public_box() -> None:
    """Eight pixels of the digits, whose range [0, 16] is public: two sided, better than Q0 and no better than the ceiling."""
    x = torch.from_numpy(load_digits().data[:, 18:26])
    x = x + torch.rand(x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    data = Points("digits", x[:1500], x[1500:], bounds=torch.tensor([[0.0, 17.0]] * 8))
    config = MBDEConfig(reference="uniform", steps=100)
    law = train(data.x, reference_for(data, config), plan=DrawPlan(epsilon=2.0), config=config)
    gain = float(law.log_ratio(data.test_x).mean())
    assert 0.5 < gain < 1.05
    draws = run(data, config).to_pandas().to_numpy()
    assert draws.shape == (2, 8)
    assert ((draws >= 0) & (draws <= 17)).all()


def test_nothing_is_logged(tmp_path: Path) -> None:
    small = MBDEConfig(codebook=32, **SMALL)
    for name, target in (("private", None), ("synthetic", gaussian_ring())):
        assert run(ring(target=target), small, directory=tmp_path / name).statement.not_covered == ()
        assert not (tmp_path / name).exists()


GOOD = ring(20).x


@pytest.mark.parametrize("x", [GOOD[:, :1], GOOD.index_fill(0, torch.tensor([3]), math.nan), 20 * GOOD])
def test_bad_points(x: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="x h"):
        require_points(x, UniformReference(BOX))


@pytest.mark.parametrize("n", [0, 1, 9])
def test_few_points_or_equal_ones_are_no_reason_to_refuse(n: int) -> None:
    full, fields = ring(20), ("bounds", "columns", "location", "scale", "target", "test_x")
    few = SimpleNamespace(x=full.x[:1].repeat(n, 1), **{name: getattr(full, name) for name in fields})
    assert len(run(few, MBDEConfig(codebook=8, **SMALL)).to_pandas()) == 2


@pytest.mark.gpu
def test_a_gpu_trains_and_evaluates_the_classifier() -> None:
    plan = DrawPlan(epsilon=2.0, draws=2)
    config = MBDEConfig(codebook=32, **SMALL)
    runtime = Runtime(progress_bar=False, accelerator="gpu")
    draws = fit(ring(), plan=plan, config=config, curator=Curator(plan.open_ledger()), runtime=runtime)
    assert draws.origin.log_ratio(ring().test_x).device.type == "cpu"
    assert draws.to_pandas().shape == (2, 2)


def test_a_released_model_may_be_the_reference(tmp_path: Path) -> None:
    points = replace(ring(), bounds=BOX)
    dpgen.fit(points, "bernstein", epsilon=1.0, degree=6).save(tmp_path / "public")
    options = {"epsilon": 1.0, "draws": 2, "reference_path": str(tmp_path / "public"), "codebook": 8, **SMALL}
    with pytest.raises(ValueError, match="unit"):
        dpgen.fit(points, "mbde", **options)
    options["release_origin"] = "public"
    drawn = dpgen.fit(points, "mbde", **options)
    assert drawn.to_pandas().shape == (2, 2)
    with pytest.raises(ValueError, match="reference_path"):
        dpgen.fit(points, "mbde", **(options | {"reference_path": "absent"}))
    dpgen.fit("digits", "marginals", epsilon=1.0).save(tmp_path / "bits")
    with pytest.raises(ValueError, match="x has shape"):
        dpgen.fit(points, "mbde", **(options | {"reference_path": str(tmp_path / "bits")}))
