"""Projecting samplers: their boxes, what they are best at, and what is proved about them."""

import math

import mpmath
import pytest
import torch
from finite_cases import EXCESS, dirichlet, ldp_excess, rational_projection, sampler, users
from scipy.optimize import linprog
from torch import Tensor

from dpgen.systems.local import model as boxes
from dpgen.systems.local.model import (
    DIVERGENCES,
    BoxSampler,
    MinimaxSampler,
    ParkSampler,
    ProjectedKernel,
    QInvariantMinimax,
    RelativeMollifier,
    f_divergence,
    project_to_box,
)

BOXES = {
    "mollifier": RelativeMollifier,
    "projected_kernel": ProjectedKernel,
    "q_invariant": QInvariantMinimax,
    "park": ParkSampler,
}


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 700.0])
@pytest.mark.parametrize("name", list(BOXES))
@pytest.mark.parametrize("n", [2, 50, 10**4])
def test_privacy_and_invariance(name: str, epsilon: float, n: int) -> None:
    q = dirichlet(n, seed=n, sharpness=4.0)
    box: BoxSampler = BOXES[name](epsilon, q)
    lower, upper = box.box()
    assert float(lower.min()) > 1e-310, "nothing underflows"
    assert float((upper.log() - lower.log()).max()) - epsilon <= EXCESS
    assert float(lower.sum()) <= 1 + EXCESS
    assert float(upper.sum()) >= 1 - EXCESS
    p = users(n, seed=3, rows=3)[:6]
    out = box.apply(p)
    assert ldp_excess(out, epsilon) <= EXCESS
    assert bool(((out >= lower) & (out <= upper)).all())
    assert float((out.sum(1) - 1).abs().max()) <= EXCESS
    if name != "park":
        assert torch.allclose(box.apply(q), q, rtol=0, atol=EXCESS)


@pytest.mark.parametrize("name", list(BOXES))
def test_a_box_one_percent_wider_is_seen(name: str) -> None:
    box: BoxSampler = BOXES[name](1.0, dirichlet(6, seed=0))
    lower, upper = box.box()
    corners = torch.eye(6, dtype=torch.float64)
    assert ldp_excess(project_to_box(corners, lower, upper), 1.0) <= EXCESS
    assert ldp_excess(project_to_box(corners, lower / 1.01, 1.01 * upper), 1.0) > 1e-3


def best_tv(p: Tensor, box: BoxSampler) -> Tensor:
    """Total variation to the nearest point of the box, without finding it."""
    lower, upper = box.box()
    return torch.maximum((p - upper).clamp_min(0).sum(-1), (lower - p).clamp_min(0).sum(-1))


@pytest.mark.parametrize("divergence", [*DIVERGENCES, lambda t: (t - 1).abs() ** 3])
@pytest.mark.parametrize("name", list(BOXES))
@pytest.mark.parametrize("epsilon", [0.5, 6.0])
def test_worst_case(name: str, divergence: str, epsilon: float) -> None:
    box: BoxSampler = BOXES[name](epsilon, dirichlet(7, seed=5, sharpness=2.0))
    p = users(7, seed=2, rows=500)
    out = box.apply(p)
    assert float(f_divergence(p, out, divergence).max()) == pytest.approx(box.worst_case(divergence), rel=1e-9)
    assert torch.allclose(f_divergence(p, out), best_tv(p, box), rtol=0, atol=1e-14)
    kept = box.apply(torch.eye(7, dtype=torch.float64)).diagonal()
    assert torch.allclose(kept, 1 - box.misses(), rtol=0, atol=1e-14)
    assert torch.allclose(kept, box.keeps(), rtol=1e-13, atol=0)


@pytest.mark.parametrize("name", [*BOXES, "minimax"])
def test_worst_case_where_a_category_is_all_but_impossible(name: str) -> None:
    """At q_1 = 1e-12 the chance to keep it is as small; taken as 1 - miss it has four digits left, and so has KL."""
    rare, epsilon = 1e-12, 1.0
    made = {**BOXES, "minimax": MinimaxSampler}[name](epsilon, torch.tensor([rare, 1 - rare], dtype=torch.float64))
    with mpmath.workdps(40):
        gain, q = mpmath.exp(epsilon), mpmath.mpf(rare)
        keep = {"mollifier": mpmath.exp(mpmath.mpf(epsilon) / 2) * q, "park": gain / (gain + 1)}.get(name)
        keep = gain * q / ((gain - 1) * q + 1) if name in ("minimax", "projected_kernel") else keep or gain * q
        expected = -mpmath.log(keep)
    assert made.worst_case("kl") == pytest.approx(float(expected), rel=1e-14)
    broken = -math.log(1 - float(made.misses().max()))
    assert name == "park" or abs(broken / float(expected) - 1) > 1e-9, "the cancelling form is noticed"


def test_published_example() -> None:
    q, p = torch.tensor([0.01, 0.99]).double(), torch.tensor([0.05, 0.95]).double()
    found = {name: float(f_divergence(p, sampler(name, 1.0, q).apply(p))) for name in [*BOXES, "minimax"]}
    expected = {"park": 0.2189, "minimax": 0.0393, "mollifier": 0.0335, "projected_kernel": 0.0233, "q_invariant": 0.0228}
    assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("gamma", "epsilon"), [(1.0, 0.5), (3.0, 1.0), (9.0, 2.0), (4.0, 2 * math.log(4.0))])
def test_no_other_multiple_of_the_prior_is_better_in_its_neighbourhood(gamma: float, epsilon: float) -> None:
    """Ghoukasian et al. 2025: b = (gamma + 1) / (gamma + e^eps), where q has events of probability 1 / (gamma + 1).

    The worst P of a neighbourhood is gamma q on such an event and q / gamma elsewhere.
    """
    n = round(gamma) + 1
    q = torch.full((n,), 1 / n, dtype=torch.float64)
    p = torch.full((n,), 1 / (gamma * n), dtype=torch.float64)
    p[0] = gamma / n
    chosen = RelativeMollifier(epsilon, q, neighbourhood=gamma)
    for name in ("tv", "kl", "hellinger"):
        far = project_to_box(p[None], q, math.exp(epsilon) * q)[0]
        worst = float(f_divergence(p, chosen.apply(p), name))
        for b in torch.linspace(math.exp(-epsilon), 1, 40).tolist():
            other = project_to_box(p[None], b * q, math.exp(epsilon) * b * q)[0]
            assert worst <= float(f_divergence(p, other, name)) + 1e-12
        assert gamma == 1 or worst < float(f_divergence(p, far, name)) - 1e-3, "the least box of all is worse"
    if gamma**2 == pytest.approx(math.exp(epsilon)):
        assert torch.allclose(chosen.lower, RelativeMollifier(epsilon, q).lower, rtol=1e-14, atol=0)
    assert ldp_excess(chosen.apply(torch.cat([torch.eye(n).double(), p[None], q[None]])), epsilon) <= EXCESS


def test_the_projected_kernel_is_not_a_multiple_of_the_prior() -> None:
    q = torch.tensor([0.1, 0.3, 0.6]).double()
    ratios = ProjectedKernel(1.0, q).lower / q
    assert float(ratios.max() / ratios.min()) > 1.01


def test_the_projected_kernel_is_never_worse_than_the_kernel() -> None:
    gains = []
    for seed in range(200):
        n, epsilon = 2 + seed % 12, (0.1, 1.0, 2.0, 5.0, 12.0)[seed % 5]
        q = dirichlet(n, seed=seed, sharpness=1.0 + seed % 4)
        p = dirichlet(n, seed=10_000 + seed, sharpness=1.0 + seed % 3)
        kernel, projected = MinimaxSampler(epsilon, q).apply(p), ProjectedKernel(epsilon, q).apply(p)
        response, park = MinimaxSampler(epsilon, n).apply(p), ParkSampler(epsilon, n).apply(p)  # of the uniform prior
        for name in ("tv", "kl", "chi2", "hellinger"):
            assert float(f_divergence(p, projected, name) - f_divergence(p, kernel, name)) <= 1e-13
            assert float(f_divergence(p, park, name) - f_divergence(p, response, name)) <= 1e-13
        gains.append(float(f_divergence(p, projected) / f_divergence(p, kernel)))
    assert sum(gains) / 200 < 0.8


def best_kept(q: Tensor, epsilon: float) -> float:
    """Largest min_i min(e^eps l_i, 1 - sum_{j != i} l_j) over e^-eps q <= l <= q: the linear programme behind the proof."""
    n, gain = len(q), math.exp(epsilon)
    eye = torch.eye(n).double()
    rows = torch.cat([torch.cat([-gain * eye, torch.ones(n, 1)], 1), torch.cat([1 - eye, torch.ones(n, 1)], 1)])
    ends = [*((float(x) / gain, float(x)) for x in q), (0, 1)]
    found = linprog([0.0] * n + [-1.0], A_ub=rows.numpy(), b_ub=[0.0] * n + [1.0] * n, bounds=ends, method="highs")
    return -float(found.fun)


@pytest.mark.parametrize("epsilon", [0.05, 0.7, 2.0, 6.0])
def test_no_sampler_that_keeps_q_has_a_smaller_worst_case(epsilon: float) -> None:
    ratios = []
    for seed in range(25):
        q = dirichlet(2 + seed % 9, seed=seed, sharpness=1.0 + seed % 3)
        best = QInvariantMinimax(epsilon, q)
        assert 1 - best.worst_case() == pytest.approx(best_kept(q, epsilon), abs=1e-8)
        for rival in (MinimaxSampler(epsilon, q), RelativeMollifier(epsilon, q), ProjectedKernel(epsilon, q)):
            assert best.worst_case() <= rival.worst_case() + 1e-13
        ratios.append(best.worst_case() / MinimaxSampler(epsilon, q).worst_case())
    assert min(ratios) < 1


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 9.0])
def test_park(epsilon: float) -> None:
    n = 11
    park, uniform = ParkSampler(epsilon, n), QInvariantMinimax(epsilon, n)
    for mine, same in zip(park.box(), uniform.box()):
        assert torch.allclose(mine, same, rtol=1e-12, atol=0)
    assert park.worst_case() == pytest.approx((n - 1) / (math.exp(epsilon) + n - 1), rel=1e-13)
    least = 1 / (math.exp(epsilon) + n - 1)
    p = dirichlet(n, seed=0, sharpness=3.0)
    out = park.apply(p)
    scale = (p / out)[out > least * (1 + 1e-9)]
    assert float(scale.max() / scale.min()) == pytest.approx(1, rel=1e-12), "Q = max(P / r, least), no upper bound"


# -- the projection ----------------------------------------------------------------------------------------------------


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
