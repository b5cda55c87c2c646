"""Evaluation of draws and of released densities on points: against closed forms, and clearly marked."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from dpgen.data import load_mixture_1d, load_ring
from dpgen.data.points import Points, split_points
from dpgen.data.split import Split
from dpgen.evaluation import points as module
from dpgen.evaluation.points import evaluate, kernel_density
from dpgen.evaluation.scores import Score
from dpgen.release import Draws, PrivateDensity, PublicModel
from dpgen.samples import PointSamples
from dpgen.statement import UNPROTECTED, PrivacyStatement
from dpgen.systems.mbde.boxes import BernsteinModel, BernsteinPlan, GridResponse
from dpgen.systems.mbde.densities import Box, GaussianReference
from dpgen.systems.mbde.plan import DrawPlan


class Law(PrivateDensity):
    """The exact plug-in mollification of a known target, or anything else."""

    def __init__(self, log_ratio: Any, d: int, *, epsilon: float | None = None) -> None:
        self.function, self.reference = log_ratio, GaussianReference.standard(d)
        if epsilon is not None:
            self.box = Box.of(epsilon)

    def log_ratio(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def normal_points() -> Points:
    """Points without a known density, in three dimensions."""
    x = torch.randn(1500, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).clamp(-5, 5)
    bounds = torch.tensor([-5.0, 5.0]).expand(3, 2)
    return split_points("normals", x, bounds=bounds, columns=("a", "b", "c"), split=Split.public(0))


def draws(points: Points, law: Any, *, epsilon: float = 1.0) -> Draws:
    table = pd.DataFrame(points.test_x[:3].numpy(), columns=list(points.columns or ()))
    statement = PrivacyStatement.from_ledger(DrawPlan(epsilon=epsilon).open_ledger())
    return Draws(table, statement=statement, origin=law)


def bernstein(points: Points) -> BernsteinModel:
    """A uniform density on the box of the points."""
    statement = PrivacyStatement.from_ledger(BernsteinPlan().open_ledger())
    assert points.bounds is not None
    return BernsteinModel(torch.full((4,), 0.25).double(), bounds=points.bounds, columns=("x0",), statement=statement)


def scores(release: Any, points: Points) -> dict[str, Score]:
    found = evaluate(release, points, seed=0).scores
    assert all("eps" in score.name for score in found), "the privacy model stands beside every row"
    private = isinstance(release, Draws)
    assert all(score.private for score in found if private or "test points" in score.name)
    return {score.name.split(" [")[0]: score for score in found}


def zero(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(len(x), dtype=torch.float64)


def test_q0_alone_has_its_closed_form_and_gains_nothing() -> None:
    points = load_mixture_1d(n_points=50, n_test=50)
    found = scores(draws(points, Law(zero, 1, epsilon=1.0)), points)
    assert found["negative log-likelihood, nats"].value == pytest.approx(1.0923, abs=1e-4)
    assert found["negative log-likelihood, nats"].chance == pytest.approx(found["negative log-likelihood, nats"].value)
    assert found["share of the optimal mollification's gain"].value == pytest.approx(0, abs=1e-9)


def test_the_exact_mollification_reaches_all_of_the_gain() -> None:
    points = load_ring(n_points=50, n_test=50)
    target: Any = points.target
    reference = GaussianReference.standard(2)
    public = reference.sample(100_000, generator=torch.Generator().manual_seed(0))
    low, high = -20.0, 20.0

    def log_ratio(x: torch.Tensor) -> torch.Tensor:
        return (target.log_prob(x) - reference.log_prob(x) + low).clamp(-0.5, 0.5)

    while high - low > 1e-6:  # the constant for which the mean of the ratio is 1
        before, low = low, (low + high) / 2
        if float(log_ratio(public).exp().mean()) > 1:
            low, high = before, low
    found = scores(draws(points, Law(log_ratio, 2, epsilon=1.0)), points)
    assert found["share of the optimal mollification's gain"].value == pytest.approx(1, abs=0.01)
    assert found["negative log-likelihood, nats"].value == pytest.approx(9.838, abs=0.01)
    assert found["mode coverage"].real == pytest.approx(0.95, abs=0.01)


def test_points_without_a_target_are_judged_by_test_points() -> None:
    points = normal_points()
    found = scores(draws(points, Law(zero, 3)), points)
    nll = -GaussianReference.standard(3).log_prob(points.test_x).mean()
    score = found["negative log-likelihood of test points, nats"]
    assert score.value == pytest.approx(float(nll), abs=0.02)
    assert score.value == pytest.approx(score.chance, abs=1e-9)
    # 95 % of a Gaussian in three dimensions lies within radius 2.795; counted directly
    inside = float((points.test_x.norm(dim=1) <= 2.795).double().mean())
    assert found["mode coverage of test points"].value == pytest.approx(inside, abs=0.02)


def test_an_unnormalised_ratio_is_normalised_in_every_dimension() -> None:
    for points in (load_mixture_1d(n_points=50, n_test=50), normal_points()):
        plain = scores(draws(points, Law(zero, points.d)), points)
        shifted = scores(draws(points, Law(lambda x: zero(x) + 7, points.d)), points)
        assert {k: s.value for k, s in plain.items()} == pytest.approx({k: s.value for k, s in shifted.items()})


def test_a_released_density_is_compared_with_the_uniform_one(tmp_path: Path) -> None:
    points = load_mixture_1d(n_points=50, n_test=50)
    model = bernstein(points)
    evaluation = evaluate(model, points, seed=0)
    assert points.bounds is not None
    width = float(points.bounds[0, 1] - points.bounds[0, 0])
    assert evaluation.scores[0].value == pytest.approx(math.log(width), abs=1e-6)
    assert evaluation.scores[0].chance == pytest.approx(math.log(width), abs=1e-6)
    assert set(evaluation.released) == {"samples.csv"}
    evaluation.write(tmp_path)
    assert len(pd.read_csv(tmp_path / "samples.csv")) == 10_000
    assert {path.name for path in tmp_path.iterdir()} == {"samples.csv", "density.png", "metrics.json", "METRICS.md"}


class Sampled(PublicModel):
    """A released model that can only be sampled."""

    def __init__(self, d: int) -> None:
        self.d, self.statement = d, PrivacyStatement.from_ledger(BernsteinPlan().open_ledger())

    def samples(self, n: int, *, random_state: Any = None) -> Any:
        generator = torch.Generator().manual_seed(random_state or 0)
        return PointSamples(x=torch.randn(n, self.d, generator=generator), columns=tuple(f"x{i}" for i in range(self.d)))

    def tensors(self) -> Any: ...

    def description(self) -> Any: ...

    @classmethod
    def rebuild(cls, *_: Any) -> Any: ...


def test_a_model_without_a_density_is_judged_by_its_samples() -> None:
    points = load_mixture_1d(n_points=50, n_test=50)
    assert scores(Sampled(1), points)["negative log-likelihood, nats"].value == pytest.approx(1.0923, abs=0.05)
    with pytest.raises(ValueError, match="samples"):
        evaluate(Sampled(2), points, seed=0)


def test_the_kernel_density_is_a_mean_of_gaussians() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, 2, dtype=torch.float64, generator=generator) for n in (7, 5))
    width = torch.tensor([0.3, 0.5], dtype=torch.float64)
    slow = [torch.distributions.Normal(centre, width).log_prob(y).sum(1).exp() for centre in x]
    assert torch.allclose(kernel_density(y, x, width).exp(), torch.stack(slow).mean(0))


def test_what_shows_no_density_is_refused() -> None:
    points = load_mixture_1d(n_points=50, n_test=50)
    with pytest.raises(ValueError, match="release"):
        evaluate(draws(points, None), points, seed=0)
    with pytest.raises(ValueError, match="bounds"):
        evaluate(Sampled(1), Points("free", points.x, points.test_x), seed=0)


def test_what_shows_private_data_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(module, "densities_figure", lambda densities, *_, **options: shown.append((list(densities), options)))
    synthetic = load_mixture_1d(n_points=50, n_test=50)
    real = Points("real", synthetic.x, synthetic.test_x, bounds=synthetic.bounds)
    model = bernstein(synthetic)
    for release, points, name, title in (
        (draws(real, Law(zero, 1)), real, "private_density.png", UNPROTECTED),
        (draws(synthetic, Law(zero, 1)), synthetic, "density.png", UNPROTECTED),
        (model, synthetic, "density.png", ""),
        (model, real, "density.png", ""),
    ):
        evaluation = evaluate(release, points, seed=0)
        assert [key for key in evaluation.pictures if key.endswith("png")] == [name]
        evaluation.pictures[name](tmp_path / name)
        names, options = shown.pop()
        assert "epsilon" in options["title"], "the noise level"
        assert (UNPROTECTED in options["title"]) == bool(title)
        assert ("density behind" in names[-1]) == bool(title)
        marked = [score.private for score in evaluation.scores]
        assert set(marked) == {release is not model or points is real}


@pytest.mark.parametrize("load", [load_ring, load_mixture_1d])
def test_more_cells_than_nodes_are_judged_by_test_points(load: Any) -> None:
    """They took one node in each of 4096^2 cells, and minutes."""
    points = load(n_points=50, n_test=50)
    law = GridResponse(points.x, bounds=points.bounds, per_axis=2 ** (24 // points.d), epsilon=1.0)
    evaluation = evaluate(draws(points, law), points, seed=0)
    assert evaluation.pictures == {}
    assert all("of test points" in score.name for score in evaluation.scores)
    volume = float((points.bounds[:, 1] - points.bounds[:, 0]).log().sum())
    assert evaluation.scores[0].value == pytest.approx(volume, abs=1e-3), "so many cells leave next to nothing of the points"
    # the mass of this one is in few cells, which no public point hits
    sharp = GridResponse(points.x, bounds=law.bounds, per_axis=law.per_axis, epsilon=20.0)
    background = -math.log(sharp.other / 2**52 * sharp.size)
    assert background > 2
    found = evaluate(draws(points, sharp), points, seed=0).scores[0]
    assert found.value == pytest.approx(volume + background, abs=1e-3)


def test_without_test_points_scores_are_of_the_private_ones() -> None:
    synthetic = load_mixture_1d(n_points=50, n_test=50)
    model = bernstein(synthetic)
    alone = Points("real", synthetic.x, synthetic.test_x[:0], bounds=synthetic.bounds)
    same = Points("real", synthetic.test_x, synthetic.x, bounds=synthetic.bounds)
    for score, other in zip(evaluate(model, alone, seed=0).scores, evaluate(model, same, seed=0).scores):
        assert "of private points" in score.name
        assert score.private
        assert score.value == other.value
    nobody = Points("real", synthetic.x[:0], synthetic.test_x[:0], bounds=synthetic.bounds)
    assert evaluate(model, nobody, seed=0).scores == []
