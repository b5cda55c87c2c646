"""Precision, recall, density and coverage against loops over scikit-learn's neighbours."""

import math
import sys

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from dpgen.metrics import fidelity as package_name
from dpgen.metrics.fidelity import _MOST_PAIRS, Fidelity, fidelity

MODULE = sys.modules["dpgen.metrics.fidelity"]


def by_loops(real: np.ndarray, synthetic: np.ndarray, k: int) -> list[float]:
    """The definitions, ball by ball."""

    def balls(x: np.ndarray) -> list[float]:
        found = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(x)
        return [float(row[-1]) for row in found.kneighbors()[0]]  # without arguments no point is its own neighbour

    def inside(y: np.ndarray, x: np.ndarray, radius: float) -> bool:
        return float(((y - x) ** 2).sum()) <= radius**2 * (1 + 1e-10) + 1e-20

    real_balls, synthetic_balls = balls(real), balls(synthetic)
    held = [[inside(y, x, r) for x, r in zip(real, real_balls)] for y in synthetic]
    recalled = [any(inside(x, y, r) for y, r in zip(synthetic, synthetic_balls)) for x in real]
    covered = [any(row[i] for row in held) for i in range(len(real))]
    density = sum(map(sum, held)) / (k * len(synthetic))
    return [np.mean([any(row) for row in held]), np.mean(recalled), density, np.mean(covered)]


def samples(n: int, d: int, seed: int, kind: str) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator)
    bits, grey = (x > 0).to(torch.uint8), (60 * x + 128).clamp(0, 255).to(torch.uint8)
    return {"real": x, "far": x + 1e6, "binary": bits, "grey": grey}[kind]


@pytest.mark.parametrize("kind", ["real", "far", "binary", "grey"])
@pytest.mark.parametrize(("n", "m", "k"), [(30, 40, 1), (60, 25, 3), (6, 6, 5)])
def test_agrees_with_loops(n: int, m: int, k: int, kind: str) -> None:
    real, synthetic = samples(n, 4, 0, kind), samples(m, 4, 1, kind)
    expected = by_loops(real.double().numpy(), synthetic.double().numpy(), k)
    assert list(fidelity(real, synthetic, k=k)) == pytest.approx(expected, abs=1e-9)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    real, synthetic = samples(50, 3, 0, "real"), samples(70, 3, 1, "real")
    whole = fidelity(real, synthetic)
    monkeypatch.setattr(MODULE, "_MOST_PAIRS", 170)
    assert fidelity(real, synthetic) == whole
    assert _MOST_PAIRS > 170
    assert package_name is fidelity


def test_what_the_four_tell_apart() -> None:
    real, near = samples(400, 2, 0, "real"), samples(400, 2, 1, "real")
    collapsed, wild = 0.05 * near, 9 * near
    assert min(fidelity(real, near)) > 0.85
    found = fidelity(real, collapsed)
    assert found.precision == 1
    assert max(found.recall, found.coverage) < 0.2
    found = fidelity(real, wild)
    assert max(found.precision, found.density) < 0.3
    assert found.recall > 0.9, "few wide balls reach everything: why recall alone is no proof"


def test_degenerate_samples() -> None:
    same, other = torch.ones(8, 2), torch.zeros(7, 2)
    assert fidelity(same, same[:6]) == Fidelity(1, 1, 8 / 5, 1), "balls of radius 0 hold their own copies"
    assert fidelity(same, other) == Fidelity(0, 0, 0, 0)
    outlier = torch.cat([samples(20, 2, 0, "real"), torch.tensor([[1e8, 0.0]])])
    assert fidelity(outlier, outlier, k=2)[:2] == (1, 1)


X = torch.zeros(8, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fidelity(X[:5], X), r"real has shape \(5, 2\): it must be \(n >= 6"),
        (lambda: fidelity(X, X[:, :0]), r"synthetic has shape \(8, 0\)"),
        (lambda: fidelity(X, X[0]), r"synthetic has shape \(2,\)"),
        (lambda: fidelity(X, X[:, :1]), "synthetic has 1 columns, real has 2"),
        (lambda: fidelity(X, X * math.nan), "synthetic has a value that is not finite"),
        (lambda: fidelity(X, X, k=0), "k is 0: it must be >= 1"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
