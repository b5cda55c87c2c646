"""Quadrature of densities: closed forms, the reference table, a linear programme and the corrected mode coverage."""

import math

import numpy as np
import pytest
import torch
from refusals import refused
from scipy.optimize import minimize

from dpgen.data.toy import gaussian_ring, mixture_1d
from dpgen.metrics.densities import Quadrature, mode_coverage, negative_log_likelihood, optimal_mollification


def standard_normal(x: torch.Tensor) -> torch.Tensor:
    return -0.5 * x.square().sum(1)


def densities(target, per_axis: int) -> tuple[torch.Tensor, torch.Tensor, Quadrature]:
    rule = Quadrature(torch.tensor([[-9.0, 9.0]] * target.d), per_axis)
    nodes = rule.nodes
    return rule.normalised(target.log_prob(nodes)), rule.normalised(standard_normal(nodes)), rule


LINE, RING = densities(mixture_1d(), 4001), densities(gaussian_ring(), 241)
SYMMETRIC = {"line": (1.092, (0.971, 0.639, 0.376, 0.205)), "ring": (10.338, (10.213, 9.838, 9.338, 7.853))}
BUDGETS = (0.25, 1.0, 2.0, 5.0)


@pytest.mark.parametrize(("name", "case"), [("line", LINE), ("ring", RING)])
def test_the_reference_table_of_q0_and_the_optimal_mollification(name: str, case) -> None:
    log_p, log_q0, rule = case
    start, optima = SYMMETRIC[name]
    assert negative_log_likelihood(log_p, log_q0, rule) == pytest.approx(start, abs=0.001)
    for epsilon, expected in zip(BUDGETS, optima):
        log_q = optimal_mollification(log_p, log_q0, rule, low=math.exp(-epsilon / 2), high=math.exp(epsilon / 2))
        assert negative_log_likelihood(log_p, log_q, rule) == pytest.approx(expected, abs=0.001)
        assert float(rule.log_integral(log_q)) == pytest.approx(0, abs=1e-12)
        assert float((log_q - log_q0).abs().max()) <= epsilon / 2 * (1 + 1e-9)


def test_the_optimum_is_the_one_of_a_general_solver() -> None:
    """Ten cells, all their probabilities free: minimise the cross-entropy within the box."""
    rule = Quadrature(torch.tensor([[0.0, 1.0]]), 10)
    generator = torch.Generator().manual_seed(0)
    log_p, log_q0 = (rule.normalised(2 * torch.randn(10, generator=generator, dtype=torch.float64)) for _ in range(2))
    found = optimal_mollification(log_p, log_q0, rule, low=0.5, high=1.8)
    p, q0 = (values.exp().numpy() * rule.weight for values in (log_p, log_q0))
    solved = minimize(
        lambda q: -float(p @ np.log(q)),
        q0,
        jac=lambda q: -p / q,
        bounds=list(zip(0.5 * q0, 1.8 * q0)),
        constraints={"type": "eq", "fun": lambda q: q.sum() - 1},
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-14},
    )
    assert np.allclose(found.exp().numpy() * rule.weight, solved.x, atol=1e-5)


def test_mode_coverage_of_a_model_is_its_level_and_dense_models_cover_more() -> None:
    rule = Quadrature(torch.tensor([[-20.0, 20.0]]), 8001)
    x = rule.nodes[:, 0]
    wide, narrow = (rule.normalised(-0.5 * (x / std) ** 2) for std in (2.0, 1.0))
    assert mode_coverage(narrow, narrow, rule) == pytest.approx(0.95, abs=0.002)
    # {q >= t} of N(0, 1) is |x| <= 1.96, of N(0, 4) it is |x| <= 3.92
    assert mode_coverage(wide, narrow, rule) == pytest.approx(math.erf(1.96 / 2 / math.sqrt(2)), abs=0.002)
    assert mode_coverage(narrow, wide, rule) == pytest.approx(math.erf(3.92 / math.sqrt(2)), abs=1e-4)


def test_a_model_without_mass_where_the_target_has_some_is_infinitely_bad() -> None:
    rule = Quadrature(torch.tensor([[0.0, 1.0]]), 100)
    log_p = torch.zeros(100, dtype=torch.float64)
    half = torch.where(rule.nodes[:, 0] < 0.5, math.log(2), -math.inf)
    assert negative_log_likelihood(log_p, half, rule) == math.inf
    assert negative_log_likelihood(half, half, rule) == pytest.approx(-math.log(2))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Quadrature(torch.zeros(3, 2), 10), "bounds"),
        (lambda: Quadrature(torch.tensor([[1.0, 0.0]]), 10), "bounds"),
        (lambda: Quadrature(torch.tensor([[0.0, 1.0]]), 1), "per_axis"),
        (lambda: mode_coverage(LINE[0], LINE[1], LINE[2], level=1.0), "level"),
        (lambda: optimal_mollification(*LINE, low=0.0, high=2.0), "low"),
        (lambda: negative_log_likelihood(LINE[0], LINE[1][:3], LINE[2]), "log_q"),
        (lambda: negative_log_likelihood(LINE[0], LINE[1] * math.nan, LINE[2]), "log_q"),
    ],
)
def test_bad_arguments_are_refused(make, name: str) -> None:
    with refused(name):
        make()
