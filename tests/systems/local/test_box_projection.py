"""The projection against rational arithmetic, a linear programme, and rivals in the box."""

import math

import pytest
import torch
from finite_cases import dirichlet, rational_projection
from torch import Tensor

from dpgen.systems.local import model as boxes
from dpgen.systems.local.model import DIVERGENCES, f_divergence, project_to_box


def box(n: int, epsilon: float, seed: int, sharpness: float = 3.0) -> tuple[Tensor, Tensor]:
    q = dirichlet(n, seed=seed, sharpness=sharpness)
    return math.exp(-epsilon / 2) * q, math.exp(epsilon / 2) * q


def hard_inputs(n: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    decades = 10.0 ** (-60 * torch.rand(n, generator=generator, dtype=torch.float64))
    holes = torch.where(torch.rand(n, generator=generator) < 0.5, 0.0, decades)
    holes[0] = 1.0
    corner = torch.zeros(n, dtype=torch.float64)
    corner[seed % n] = 1.0
    near = dirichlet(n, seed=seed, sharpness=3.0) * (1 + 1e-13 * torch.rand(n, generator=generator, dtype=torch.float64))
    ties = torch.full((n,), 1 / n, dtype=torch.float64)
    least = torch.where(torch.arange(n) % 2 == 0, 1e-320, decades)
    rows = torch.stack([decades, holes, corner, near, ties, least])
    return rows / rows.sum(1, keepdim=True)


@pytest.mark.parametrize("epsilon", [1e-9, 1.0, 20.0, 700.0])
@pytest.mark.parametrize("n", [2, 17, 60])
def test_rational_twin(n: int, epsilon: float) -> None:
    for seed in range(2):
        lower, upper = box(n, epsilon, seed)
        rows = hard_inputs(n, seed)
        projected = project_to_box(rows, lower, upper)
        assert bool(((projected >= lower) & (projected <= upper)).all()), "privacy: never outside the box, not by an ulp"
        assert float((projected.sum(1) - 1).abs().max()) <= 4e-15
        for row, q in zip(rows, projected):
            exact = rational_projection(torch.where(row >= 1e-300, row, 0.0), lower, upper)
            assert max(abs(float(x) - y) for x, y in zip(exact, q.tolist())) <= 1e-12


@pytest.mark.parametrize("name", list(DIVERGENCES))
def test_no_rival_in_the_box_is_nearer_in_any_divergence(name: str) -> None:
    lower, upper = box(8, 1.0, 0)
    p = dirichlet(8, seed=5, sharpness=2.0, rows=50)
    found = project_to_box(p, lower, upper)
    best = f_divergence(p, found, name)
    for other in (dirichlet(8, seed=6, sharpness=2.0, rows=50), p.roll(1, 0), p.sqrt(), p**2):
        for share in (1e-4, 0.01, 1.0):
            rival = found + share * (project_to_box(other, lower, upper) - found)
            assert bool((f_divergence(p, rival, name) >= best - 1e-13).all())


def test_batches_are_rows() -> None:
    lower, upper = box(20, 2.0, 3)
    rows = hard_inputs(20, 7)
    alone = torch.cat([project_to_box(row[None], lower, upper) for row in rows])
    assert torch.allclose(project_to_box(rows, lower, upper), alone, rtol=0, atol=1e-15)
    assert torch.allclose(project_to_box(1e3 * rows, lower, upper), alone, rtol=0, atol=1e-14)
    assert project_to_box(rows[:0], lower, upper).shape == (0, 20)


def test_a_million_categories_stay_accurate() -> None:
    n = 10**6
    lower, upper = box(n, 1.0, 0)
    p = hard_inputs(n, 1)[:2]
    found = project_to_box(p, lower, upper)
    assert float((found.sum(1) - 1).abs().max()) <= 1e-13
    best = torch.maximum((p - upper).clamp_min(0).sum(1), (lower - p).clamp_min(0).sum(1))
    assert torch.allclose(f_divergence(p, found), best, rtol=0, atol=1e-12)


@pytest.mark.parametrize("factor", [0.5, 1 - 1e-6, 1 + 1e-6, 3.0])
def test_a_solver_that_fails_costs_no_privacy(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws divide by the sum, so a box alone would not do."""
    right = boxes.inverse_scale
    monkeypatch.setattr(boxes, "inverse_scale", lambda p, lower, upper: factor * right(p, lower, upper))
    for epsilon in (1e-6, 1.0, 20.0):
        lower, upper = box(5, epsilon, 0)
        rows = torch.cat([hard_inputs(5, 1), torch.eye(5, dtype=torch.float64), dirichlet(5, seed=2, rows=200)])
        found = project_to_box(rows, lower, upper)
        assert bool(((found >= lower) & (found <= upper)).all())
        drawn = found / found.sum(1, keepdim=True)
        assert float((drawn.amax(0) / drawn.amin(0)).log().max()) <= epsilon + 1e-12
    open_above = torch.tensor([1.0, 1.0, torch.inf], dtype=torch.float64)
    assert float(project_to_box(torch.ones(1, 3, dtype=torch.float64), 0.1 * torch.ones(3), open_above).sum()) == pytest.approx(
        1
    )
