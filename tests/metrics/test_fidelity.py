"""Features of images, Fréchet distance, inception score, precision and recall, against slow or other versions."""

import math
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from refusals import refused
from scipy.linalg import sqrtm
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn
from torchmetrics.image.fid import FrechetInceptionDistance
from torchmetrics.image.inception import InceptionScore

from dpgen.metrics.classification import trained_cnn
from dpgen.metrics.fidelity import (
    Fidelity,
    InceptionFeatures,
    LeNetFeatures,
    fidelity,
    frechet_distance,
    inception_network,
    inception_score,
)


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
    return [np.mean([any(row) for row in held]), np.mean(recalled)]


def samples(n: int, d: int, seed: int, kind: str = "real") -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator)
    bits, grey = (x > 0).to(torch.uint8), (60 * x + 128).clamp(0, 255).to(torch.uint8)
    return {"real": x, "far": x + 1e6, "binary": bits, "grey": grey}[kind]


@pytest.mark.parametrize("kind", ["real", "far", "binary", "grey"])
@pytest.mark.parametrize(("n", "m", "k"), [(30, 40, 1), (60, 25, 3), (6, 6, 5)])
def test_neighbourhoods_agree_with_loops(n: int, m: int, k: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, synthetic = samples(n, 4, 0, kind), samples(m, 4, 1, kind)
    found = fidelity(real, synthetic, k=k)
    assert list(found) == pytest.approx(by_loops(real.double().numpy(), synthetic.double().numpy(), k), abs=1e-9)
    monkeypatch.setattr(import_module("dpgen.metrics.fidelity"), "_MOST_PAIRS", 170)
    assert fidelity(real, synthetic, k=k) == found, "chunks change nothing"


def test_what_the_two_tell_apart() -> None:
    real, near = samples(400, 2, 0), samples(400, 2, 1)
    collapsed, wild = 0.05 * near, 9 * near
    assert min(fidelity(real, near)) > 0.85
    found = fidelity(real, collapsed)
    assert found.precision == 1
    assert found.recall < 0.2
    found = fidelity(real, wild)
    assert found.precision < 0.3
    assert found.recall > 0.9, "few wide balls reach everything: why recall alone is no proof"


def test_degenerate_samples() -> None:
    same, other = torch.ones(8, 2), torch.zeros(7, 2)
    assert fidelity(same, same[:6]) == Fidelity(1, 1), "balls of radius 0 hold their own copies"
    assert fidelity(same, other) == Fidelity(0, 0)
    outlier = torch.cat([samples(20, 2, 0), torch.tensor([[1e8, 0.0]])])
    assert fidelity(outlier, outlier, k=2) == (1, 1)


def mixed(n: int, d: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) @ torch.randn(d, d, generator=generator).double() + seed


def by_scipy(x: np.ndarray, y: np.ndarray) -> float:
    s, t = np.cov(x.T).reshape(x.shape[1], -1), np.cov(y.T).reshape(y.shape[1], -1)
    return float(((x.mean(0) - y.mean(0)) ** 2).sum() + np.trace(s + t - 2 * np.real(sqrtm(s @ t))))


class Features(nn.Identity):
    """Features that were computed before, as a network of torchmetrics."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.num_features = d


@pytest.mark.parametrize("d", [1, 2, 8, 30])
def test_the_distance_agrees_with_scipy_and_torchmetrics(d: int) -> None:
    real, synthetic = mixed(100, d, 1), mixed(60, d, 2)
    found = frechet_distance(real, synthetic)
    assert found == pytest.approx(by_scipy(real.numpy(), synthetic.numpy()), rel=1e-9)
    network = Features(d)
    theirs = FrechetInceptionDistance(feature=network)
    theirs.update(real, real=True)
    theirs.update(synthetic, real=False)
    assert found == pytest.approx(float(theirs.compute()), rel=1e-6)


def test_fewer_samples_than_features_and_samples_far_from_the_origin() -> None:
    """Singular covariances, where a square root of their product loses half of the digits."""
    x, y = mixed(5, 40, 0), mixed(50, 4, 1)
    assert frechet_distance(x, x.flip(0)) == pytest.approx(0, abs=1e-9)
    assert frechet_distance(x, x + 2) == pytest.approx(4 * 40, rel=1e-9)
    assert frechet_distance(torch.ones(2, 3), torch.ones(2, 3) + 1) == pytest.approx(3)
    assert frechet_distance(y + 1e6, 2 * y + 1e6) == pytest.approx(frechet_distance(y, 2 * y), rel=1e-6)


@pytest.mark.filterwarnings("ignore:Metric `InceptionScore` will save", "ignore:std\\(\\)")
@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 30.0, 1e4])
def test_the_inception_score_agrees_with_torchmetrics_and_its_formula(scale: float) -> None:
    logits = scale * mixed(60, 7, 3)
    theirs = InceptionScore(feature=nn.Identity(), splits=1)
    theirs.update(logits)
    found = inception_score(logits)
    assert found == pytest.approx(float(theirs.compute()[0]), rel=1e-9)
    shares = logits.softmax(1)
    each = [(p * (p / shares.mean(0)).log())[p > 0].sum() for p in shares]
    assert found == pytest.approx(math.exp(sum(each) / len(each)), rel=1e-6)
    assert 1 - 1e-12 <= found <= 7
    assert inception_score(logits.repeat(3, 1).flip(0)) == pytest.approx(found), "neither order nor number matters"


def images(n: int, seed: int, side: int = 6) -> tuple[Tensor, Tensor]:
    """Bright above (class 0) or bright below (class 1)."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (n,), generator=generator)
    bright = (torch.arange(side * side) >= side * side // 2).long()
    return (torch.rand(n, side * side, generator=generator) < 0.2 + 0.6 * (bright == y[:, None])).to(torch.uint8), y


def test_lenet_gives_the_last_hidden_layer_which_tells_good_samples_from_bad_ones() -> None:
    (x, y), (near, _) = images(100, 0), images(100, 1)
    options = {"image_shape": (6, 6), "seed": 3, "epochs": 3}
    features, network = LeNetFeatures(x, y, **options), trained_cnn(x, y, **options)
    found = features(x)
    assert found.shape == (100, 128)
    assert torch.allclose(features.logits(found), network(x.float()), atol=1e-5)
    assert not found.requires_grad
    good, bad = (frechet_distance(found, features(other)) for other in (near, x[:1].repeat(99, 1)))
    assert good < 0.5 * bad


def test_inception_from_a_file(tmp_path: Path) -> None:
    from torchvision.models import inception_v3

    path, network = tmp_path / "weights.pth", inception_v3(weights=None, init_weights=False)
    with pytest.raises(ValueError, match="no such file"):
        inception_network(path)
    torch.save(network.state_dict(), path)
    features = InceptionFeatures(inception_network(path), image_shape=(6, 6))
    path.unlink()  # 100 MB
    x = images(2, 0)[0]
    found = features(x)
    # Torchvision's own way in: normalised as for ImageNet, which the network turns back when told to.
    network.transform_input, head, network.fc = True, network.fc, nn.Identity()
    large = nn.functional.interpolate(x.reshape(-1, 1, 6, 6).float(), size=(299, 299), mode="bilinear").expand(-1, 3, -1, -1)
    mean, std = (torch.tensor(v)[:, None, None] for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    with torch.no_grad():
        expected = network.eval()((large - mean) / std)
    assert found.shape == (2, 2048)
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-7)
    assert torch.allclose(features.logits(found), head(found), atol=1e-6)


X, Y = torch.zeros(8, 2), torch.zeros(8, dtype=torch.int64)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: fidelity(X[:5], X), "real"),
        (lambda: fidelity(X, X[:, :0]), "synthetic"),
        (lambda: fidelity(X, X * math.nan), "synthetic"),
        (lambda: fidelity(X, X, k=0), "k is 0"),
        (lambda: frechet_distance(X[:1], X), "real"),
        (lambda: frechet_distance(X, X[:, :1]), "synthetic"),
        (lambda: inception_score(X[:0]), "logits"),
        (lambda: inception_score(X * math.nan), "logits"),
        (lambda: LeNetFeatures(X, Y[:3], image_shape=(1, 2)), "train_y"),
        (lambda: LeNetFeatures(X, Y, image_shape=(1, 2)), "image_shape"),
    ],
)
def test_bad_input(call, name: str) -> None:
    with refused(name):
        call()
