"""Norms and sums of gradients that are sums over positions, as convolutions have."""

import pytest
import torch
from refusals import refused
from torch import Tensor

from dpgen.nets import Factor, RecordGradients
from dpgen.privacy.clipping import SENSITIVITY, clipped_sums, gradient_norms


def positional(n: int, positions: int, cancelling: float) -> RecordGradients:
    """Random factors at many positions whose sum is much smaller than its parts."""
    generator = torch.Generator().manual_seed(0)
    g = torch.randn(n, positions, 4, generator=generator)
    a = torch.randn(n, positions, 5, generator=generator)
    half = positions // 2
    g[:, half : 2 * half] = -g[:, :half] * (1 + cancelling * torch.randn(n, half, 4, generator=generator))
    a[:, half : 2 * half] = a[:, :half]
    return RecordGradients([Factor(g, a, slice(0, 20), None)], [0, n])


@pytest.mark.parametrize("cancelling", [1.0, 1e-2, 1e-4, 1e-7, 0.0])
@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_no_norm_is_understated_where_positions_cancel(cancelling: float, scale: float) -> None:
    made = positional(50, 16, cancelling)
    factor = made.factors[0]._replace(outputs=made.factors[0].outputs * scale)
    assert factor.inputs is not None
    exact = (factor.outputs.double().mT @ factor.inputs.double()).flatten(1).norm(dim=1)
    norms = gradient_norms(made._replace(factors=[factor])).double()
    assert bool((norms >= exact).all())


@pytest.mark.parametrize("n", [88, 300])
def test_a_record_moves_the_sum_by_no_more_than_the_sensitivity(n: int) -> None:
    made = positional(n, 16, 0.3)
    weights = 1.0 / gradient_norms(made)
    whole = clipped_sums(made, weights, torch.empty(1, 20, dtype=torch.float64))
    for r in (0, n // 2, n - 1):
        others = [i for i in range(n) if i != r]
        f = made.factors[0]
        assert f.inputs is not None
        fewer = RecordGradients([f._replace(outputs=f.outputs[others], inputs=f.inputs[others])], [0, n - 1])
        moved = float((whole - clipped_sums(fewer, weights[others], torch.empty(1, 20, dtype=torch.float64))).norm())
        assert 0.9 < moved <= SENSITIVITY


@pytest.mark.parametrize("n", [3, 100])
def test_wide_gradients_are_bounded_and_weighed_to_their_ends(n: int) -> None:
    rows = torch.randn(n, 4100, generator=torch.Generator().manual_seed(0))
    rows[:, -1] = 1000.0
    made = RecordGradients([Factor(rows, None, None, slice(0, 4100))], [0, n])
    norms, exact = gradient_norms(made).double(), rows.double().norm(dim=1)
    assert bool(((norms >= exact) & (norms <= exact * (1 + 1e-4))).all())
    weights = torch.linspace(0.0, 1.0, n)
    rows[0] = torch.nan  # of weight 0
    sums = clipped_sums(made, weights, torch.full((1, 4100), torch.nan))
    torch.testing.assert_close(sums[0], weights[1:] @ rows[1:], rtol=1e-4, atol=1e-4)


def test_records_of_weight_zero_add_nothing_where_they_are_not_finite() -> None:
    made = positional(4, 6, 1.0)
    made.factors[0].outputs[1, 2, 3] = torch.nan
    norms = gradient_norms(made)
    assert norms.isnan().tolist() == [False, True, False, False]
    weights = torch.tensor([0.5, 0.0, 1.0, 0.0])
    sums = clipped_sums(made, weights, torch.full((1, 20), torch.nan))
    f = made.factors[0]
    assert f.inputs is not None
    expected = sum(w * f.outputs[r].T @ f.inputs[r] for r, w in ((0, 0.5), (2, 1.0)))
    assert isinstance(expected, Tensor)
    torch.testing.assert_close(sums[0], expected.flatten())


def test_many_positions_are_multiplied_out() -> None:
    ones = torch.ones(1, 5000, 1)
    with refused("5000 positions"):
        gradient_norms(RecordGradients([Factor(ones, ones, slice(0, 1), None)], [0, 1]))
    with refused("offset"):
        gradient_norms(positional(1, 2, 1.0)._replace(offset=torch.zeros(1, 20)))
