"""Fréchet distance against scipy's matrix square root, closed forms and torchmetrics' own FID."""

import math

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from torch import Tensor
from torchmetrics.image.fid import _compute_fid

from dpgen.metrics.fidelity import PLAIN, ImageFeatures, frechet_distance, gaussian_frechet_distance


def samples(n: int, d: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) @ torch.randn(d, d, generator=generator).double() + seed


def by_scipy(x: np.ndarray, y: np.ndarray) -> float:
    s, t = np.cov(x.T).reshape(x.shape[1], -1), np.cov(y.T).reshape(y.shape[1], -1)
    return float(((x.mean(0) - y.mean(0)) ** 2).sum() + np.trace(s + t - 2 * np.real(sqrtm(s @ t))))


@pytest.mark.parametrize("d", [1, 2, 8, 30])
def test_agrees_with_scipy_and_torchmetrics(d: int) -> None:
    real, synthetic = samples(100, d, 1), samples(60, d, 2)
    found = frechet_distance(real, synthetic)
    assert found.features == PLAIN
    assert found.distance == pytest.approx(by_scipy(real.numpy(), synthetic.numpy()), rel=1e-9)
    moments = [part for x in (real, synthetic) for part in (x.mean(0), x.T.cov().reshape(d, d))]
    assert found.distance == pytest.approx(float(_compute_fid(*moments)), rel=1e-9)


def test_commuting_covariances_have_a_closed_form() -> None:
    a, b = torch.tensor([0.0, 1.0, 4.0]), torch.tensor([9.0, 0.0, 1.0])
    found = gaussian_frechet_distance((torch.zeros(3), a.diag()), (torch.ones(3), b.diag()))
    assert found == pytest.approx(3 + float((a.sqrt() - b.sqrt()).square().sum()), abs=1e-12)


def test_fewer_samples_than_features() -> None:
    """Singular covariances, where a square root of their product loses half of the digits."""
    x = samples(5, 40, 0)
    assert frechet_distance(x, x.flip(0)).distance == pytest.approx(0, abs=1e-9)
    assert frechet_distance(x, x + 2).distance == pytest.approx(4 * 40, rel=1e-9)
    constant = torch.ones(2, 3)
    assert frechet_distance(constant, constant + 1).distance == pytest.approx(3)


def test_far_from_the_origin() -> None:
    x, y = samples(50, 4, 1), samples(50, 4, 2)
    assert frechet_distance(x + 1e6, y + 1e6).distance == pytest.approx(frechet_distance(x, y).distance, rel=1e-6)


def test_features_are_used_and_named() -> None:
    class Halves(ImageFeatures):
        description = "sums of halves"

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(len(x), 2, -1).double().sum(2)

    real, synthetic, features = samples(50, 6, 1), samples(40, 6, 2), Halves()
    found = frechet_distance(real, synthetic, features)
    assert found.features == "sums of halves"
    assert found.distance == pytest.approx(frechet_distance(features(real), features(synthetic)).distance, rel=1e-12)


X, ONE = torch.zeros(4, 2), (torch.zeros(2), torch.eye(2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: frechet_distance(X[:1], X), r"real has shape \(1, 2\): it must be \(n >= 2"),
        (lambda: frechet_distance(X, X[0]), r"synthetic has shape \(2,\)"),
        (lambda: frechet_distance(X, X * math.nan), "synthetic has a value that is not finite"),
        (lambda: frechet_distance(X, X[:, :1]), "synthetic has 1 features, real has 2"),
        (lambda: gaussian_frechet_distance(ONE, (torch.zeros(2), torch.eye(3))), r"synthetic has .* \(2,\) and \(3, 3\)"),
        (lambda: gaussian_frechet_distance(ONE, (ONE[0], -ONE[1])), "synthetic has a covariance with the eigenvalue -1"),
        (lambda: gaussian_frechet_distance((ONE[0], ONE[1].cumsum(0)), ONE), "real has a covariance that is not symmetric"),
        (lambda: gaussian_frechet_distance((ONE[0] / 0, ONE[1]), ONE), "real has a value that is not finite"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
