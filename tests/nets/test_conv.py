"""Convolutions and GroupNorm on a tape: gradients of one record at a time are the reference, whatever the geometry."""

from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from refusals import refused
from torch import Tensor, nn

from dpgen.nets import ConvVAEBank
from dpgen.nets import bank as banks
from dpgen.nets.bank import Geometry, ModelBank, Noise, OneModel, RecordGradients, Tape
from dpgen.nets.gan import ConvCriticBank, critic_loss
from dpgen.privacy.clipping import SENSITIVITY, clipped_sums, gradient_norms

BOUNDS = [0, 3, 3, 5]


class Convolutions(ModelBank):
    """One convolution and a GroupNorm, three models."""

    def __init__(self, geometry: Geometry, channels: tuple[int, int], kernel: tuple[int, int], groups: int) -> None:
        self.geometry, self.groups = geometry, groups
        a, b = channels if geometry.transposed else channels[::-1]
        shapes = {"conv.weight": (a, b // geometry.groups, *kernel), "conv.bias": (channels[1],)}
        super().__init__(3, shapes | {"norm.weight": (channels[1],), "norm.bias": (channels[1],)})
        self.theta.data.copy_(torch.randn(self.theta.shape, generator=torch.Generator().manual_seed(0)))

    def losses(self, layers: Any, x: Tensor) -> Tensor:
        y = layers.group_norm("norm", layers.convolution("conv", x, self.geometry), self.groups)
        return (y.sin() * torch.linspace(0.5, 1.5, y[0].numel()).view(y.shape[1:])).flatten(1).sum(1)

    def gradients(self, x: Tensor, bounds: Any, noise: Noise) -> RecordGradients:
        made = Tape(self, bounds)
        return made.gradients(self.losses(made, x))


def by_autograd(bank: ModelBank, x: Tensor, bounds: list[int], loss: Any) -> Tensor:
    """Gradients (b, p) of one record at a time, by the plain differentiable pass of its model."""
    rows = []
    for c, (start, stop) in enumerate(pairwise(bounds)):
        for r in range(start, stop):
            theta = bank.theta.detach().clone().requires_grad_()
            with patch.object(bank, "part", lambda name, values=None, t=theta: ModelBank.part(bank, name, t)):
                (gradient,) = torch.autograd.grad(loss(OneModel(bank, c), x[r : r + 1], r).sum(), theta)
            rows.append(gradient[c])
    return torch.stack(rows)


def require_equal(made: RecordGradients, slow: Tensor, theta: Tensor) -> None:
    """Norms are bounds of the reference's, a little above; sums are its weighted sums."""
    norms, exact = gradient_norms(made).double(), slow.double().norm(dim=1)
    torch.testing.assert_close(norms, exact, rtol=2e-3, atol=1e-5)
    assert bool((norms >= exact * (1 - 1e-5) - 1e-7).all())
    weights = torch.linspace(0.1, 1.0, len(slow))
    sums = clipped_sums(made, weights, torch.full_like(theta, torch.nan))
    parts = [(weights[a:b, None] * slow[a:b]).sum(0) for a, b in pairwise(made.bounds)]
    torch.testing.assert_close(sums, torch.stack(parts), rtol=1e-3, atol=1e-3 * float(slow.abs().max()))


geometries = st.builds(
    Geometry, stride=st.integers(1, 3), padding=st.integers(0, 2), dilation=st.integers(1, 2), groups=st.integers(1, 2),
    transposed=st.booleans(), scale=st.floats(0.25, 2.0),
)  # fmt: skip


@given(
    geometry=geometries,
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 3)),
    sides=st.tuples(st.integers(1, 7), st.integers(1, 6)),
    channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    ghost=st.booleans(),
)
def test_gradients_are_those_of_each_record(
    geometry: Geometry, kernel: tuple[int, int], sides: tuple[int, int], channels: tuple[int, int], ghost: bool
) -> None:
    sizes = (geometry.groups * channels[0], geometry.groups * channels[1])
    reach = [geometry.dilation * (k - 1) for k in kernel]
    pad = 2 * geometry.padding
    if geometry.transposed:
        made = [(side - 1) * geometry.stride - pad + r + 1 for side, r in zip(sides, reach)]
    else:
        made = [(side + pad - r - 1) // geometry.stride + 1 for side, r in zip(sides, reach)]
    assume(min(made) >= 1 and made[0] * made[1] * channels[1] > 1)
    bank = Convolutions(geometry, sizes, kernel, geometry.groups)
    x = torch.randn(5, sizes[0], *sides, generator=torch.Generator().manual_seed(1))
    with patch.object(banks, "_GHOST", 0 if ghost else 10**9):
        got = bank.gradients(x, BOUNDS, torch.randn)
    assert any(f.outputs.ndim == 3 for f in got.factors) == ghost
    require_equal(got, by_autograd(bank, x, BOUNDS, lambda layers, row, r: bank.losses(layers, row)), bank.theta)


def test_the_cheaper_way_to_a_norm_is_taken_layer_by_layer() -> None:
    """Early layers have many positions and few weights, late ones few positions and many weights."""
    bank = ConvCriticBank(1024, hidden=256, depth=4, image_shape=(32, 32))
    with torch.no_grad():
        bank.initialize(torch.Generator().manual_seed(0))
    factors = bank.gradients(torch.rand(2, 1024), [0, 2], torch.randn).factors
    kept = {part.start: f.outputs.ndim for f in factors for part in (f.weight, f.bias) if part is not None}
    assert [kept[bank.columns[f"{i}.weight"].start] for i in range(4)] == [2, 2, 3, 3]


# -- networks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "categories", "depth"), [((8, 12), 0, 2), ((3, 8, 8), 3, 3), ((4, 4), 2, 1)])
@pytest.mark.parametrize("real", [True, False])
def test_critics_have_the_gradients_of_each_record(shape: tuple[int, ...], categories: int, depth: int, real: bool) -> None:
    d = int(torch.tensor(shape).prod())
    bank = ConvCriticBank(d, categories=categories, hidden=64, depth=depth, image_shape=shape)
    with torch.no_grad():
        bank.initialize(torch.Generator().manual_seed(0))
        bank.theta.add_(0.05 * torch.randn(bank.theta.shape, generator=torch.Generator().manual_seed(2)))
    x = torch.rand(4, d, generator=torch.Generator().manual_seed(1))
    x = torch.cat([x, torch.eye(categories)[torch.arange(4) % categories]], 1) if categories else x
    made = bank.gradients(x, [0, 4], torch.randn) if real else bank.fake_gradients(x, [0, 4])

    def loss(layers: Any, row: Tensor, r: int) -> Tensor:
        return critic_loss(bank.scores(row, layers), real=real)

    require_equal(made, by_autograd(bank, x, [0, 4], loss), bank.theta)
    assert bank.score(x, [0, 4]).shape == (4,)
    again = ConvCriticBank(**bank.architecture())
    assert again.shapes == bank.shapes


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize(("shape", "categories"), [((8, 4), 0), ((3, 4, 8), 3)])
def test_autoencoders_have_the_gradients_of_each_record(shape: tuple[int, ...], categories: int, centred: bool) -> None:
    bits = int(torch.tensor(shape).prod())
    options: dict[str, Any] = {"image_shape": shape, "hidden": 16, "latent": 3, "categories": categories, "centred": centred}
    bank = ConvVAEBank(3, bits + categories, **options)
    public = torch.Generator().manual_seed(0)
    means = torch.rand(3, bits + categories, generator=public) * 0.8 + 0.1
    with torch.no_grad():
        bank.initialize(public)
        bank.begin_at(means, public)
    x = torch.rand(5, bits, generator=public).round()
    x = torch.cat([x, torch.eye(categories)[torch.arange(5) % categories]], 1) if categories else x
    z = torch.randn(5, 3, generator=public)
    made = bank.gradients(x, BOUNDS, lambda *shape: z)

    def loss(layers: Any, row: Tensor, r: int) -> Tensor:
        centre = 0.0 if bank.centre is None else layers.own(bank.centre)
        code, kl = bank.code(bank.encoded(layers, row - centre), z[r : r + 1])
        logits = bank.decoded(layers, code)
        lost = nn.functional.binary_cross_entropy_with_logits(logits[:, :bits], row[:, :bits], reduction="none").sum(1)
        return kl + lost - (logits[:, bits:].log_softmax(1) * row[:, bits:]).sum(1)

    require_equal(made, by_autograd(bank, x, BOUNDS, loss), bank.theta)
    again = ConvVAEBank(**bank.architecture())
    again.load_state_dict(bank.state_dict())
    samples = [b.sample(1, 6, torch.Generator().manual_seed(3)) for b in (bank, again)]
    assert torch.equal(*samples)
    assert samples[0].shape == (6, bits + categories)
    assert 0 <= float(samples[0].min()) <= float(samples[0].max()) <= 1


def test_autoencoders_begin_at_released_means() -> None:
    bank = ConvVAEBank(2, 64, image_shape=(8, 8), hidden=16, latent=2, centred=True)
    means = torch.rand(2, 64, generator=torch.Generator().manual_seed(0)) * 0.9 + 0.05
    with torch.no_grad():
        bank.initialize(torch.Generator().manual_seed(1))
        bank.begin_at(means, torch.Generator())
    samples = torch.stack([bank.sample(c, 200, torch.Generator().manual_seed(2)).mean(0) for c in range(2)])
    assert float((samples - means).abs().mean()) < 0.1


# -- rounding ------------------------------------------------------------------------------------------------------------


def positional(n: int, positions: int, cancelling: float) -> RecordGradients:
    """Random factors at many positions whose sum is much smaller than its parts."""
    generator = torch.Generator().manual_seed(0)
    g = torch.randn(n, positions, 4, generator=generator)
    a = torch.randn(n, positions, 5, generator=generator)
    half = positions // 2
    g[:, half : 2 * half] = -g[:, :half] * (1 + cancelling * torch.randn(n, half, 4, generator=generator))
    a[:, half : 2 * half] = a[:, :half]
    return RecordGradients([banks.Factor(g, a, slice(0, 20), None)], [0, n])


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
    made = RecordGradients([banks.Factor(rows, None, None, slice(0, 4100))], [0, n])
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
        gradient_norms(RecordGradients([banks.Factor(ones, ones, slice(0, 1), None)], [0, 1]))
    with refused("offset"):
        gradient_norms(positional(1, 2, 1.0)._replace(offset=torch.zeros(1, 20)))


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("image_shape", lambda: ConvCriticBank(16)),
        ("image_shape", lambda: ConvCriticBank(36, image_shape=(6, 6))),
        ("frequencies", lambda: ConvCriticBank(16, image_shape=(4, 4), frequencies=3)),
        ("image_shape", lambda: ConvVAEBank(2, 30, image_shape=(4, 8))),
    ],
)
def test_bad_shapes_are_refused(name: str, make: Any) -> None:
    with refused(name):
        make()
