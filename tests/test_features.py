"""Random Fourier features: unit norm for every record, and the kernel they stand for."""

import math
from collections.abc import Callable

import pytest
import torch

from dpgen.nets.features import RandomFourierFeatures


def features(n_inputs: int = 784, n_features: int = 200, gamma: float = 0.01, seed: int = 0) -> RandomFourierFeatures:
    return RandomFourierFeatures(n_inputs, n_features, gamma=gamma, generator=torch.Generator().manual_seed(seed))


def cosines(x: torch.Tensor, n_features: int, gamma: float, generator: torch.Generator) -> torch.Tensor:
    """The published map, sqrt(2/d) cos(xW + b)."""
    w = torch.randn(x.shape[1], n_features, generator=generator) * math.sqrt(2 * gamma)
    b = torch.rand(n_features, generator=generator) * 2 * math.pi
    return math.sqrt(2 / n_features) * (x @ w + b).cos()


def sparse_records(n: int) -> torch.Tensor:
    return (torch.rand(n, 784, generator=torch.Generator().manual_seed(5)) < 0.13).float()


def test_norm_is_one_for_any_record() -> None:
    x = torch.cat([sparse_records(500), 255 * sparse_records(10), torch.zeros(1, 784), torch.ones(1, 784)])
    assert (features()(x).norm(dim=1) - 1).abs().max() < 1e-6
    double = features().double()(x)
    assert double.dtype == torch.float64
    assert (double.norm(dim=1) - 1).abs().max() < 1e-14


def test_published_map_exceeds_norm_one() -> None:
    norms = cosines(sparse_records(500), 200, 0.01, torch.Generator().manual_seed(1)).norm(dim=1)
    assert (norms > 1).float().mean() > 0.2


def test_layout_is_cosines_then_sines() -> None:
    one, x = features(3, 4), torch.tensor([[0.5, -1.0, 2.0]])
    phases = x @ one.frequencies
    expected = torch.cat([phases.cos(), phases.sin()], dim=1) / math.sqrt(2)
    torch.testing.assert_close(one(x), expected)


def test_frequencies_have_variance_two_gamma() -> None:
    w = features(2000, 200, gamma=0.3).frequencies
    assert float(w.var()) == pytest.approx(0.6, rel=0.02)  # 2e5 draws: standard error .3 %


def test_kernel_error_is_the_closed_form_and_below_that_of_shifted_cosines() -> None:
    r"""Over W, Var z(x)z(y) = (1 - k^2)^2 / d for pairs and (1 - k^2 + k^4 / 2) / d for the published map."""
    x = sparse_records(1)
    y = x.clone()
    y[0, :64] = 1 - y[0, :64]  # distance^2 is 64: the typical kernel value .53 of handwritten digits
    both, kernel, draws = torch.cat([x, y]), math.exp(-0.64), 250

    def rmse(z: Callable[[int], torch.Tensor]) -> float:
        errors = torch.stack([torch.dot(*z(seed)) - kernel for seed in range(draws)])
        return float(errors.square().mean().sqrt())

    pairs = rmse(lambda s: features(seed=s)(both))
    shifted = rmse(lambda s: cosines(both, 200, 0.01, torch.Generator().manual_seed(s)))
    assert pairs == pytest.approx(0.051, rel=0.16)  # 250 draws: standard error 4.5 %
    assert shifted == pytest.approx(0.061, rel=0.16)
    assert rmse(lambda s: features(seed=s, gamma=2 * 0.01**2)(both)) > 0.3  # standard deviation 2 gamma, as printed


def test_same_generator_seed_same_map() -> None:
    assert torch.equal(features(seed=3).frequencies, features(seed=3).frequencies)
    assert not torch.equal(features(seed=3).frequencies, features(seed=4).frequencies)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_inputs": 0}, "n_inputs is 0; it must be a whole number >= 1"),
        ({"n_features": 3}, "n_features is 3; it must be an even number >= 2"),
        ({"gamma": 0.0}, "gamma is 0.0; it must be a finite number > 0"),
        ({"gamma": math.nan}, "gamma is nan; it must be a finite number > 0"),
    ],
)
def test_refuses(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        features(**change)
