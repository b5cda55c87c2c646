"""Feature extractors: LeNet's layer against its classifier, Inception against torchvision."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dpgen.metrics.classification import trained_cnn
from dpgen.metrics.fidelity import INCEPTION_WEIGHTS, InceptionFeatures, LeNetFeatures, frechet_distance


def images(n: int, seed: int, side: int = 6) -> tuple[Tensor, Tensor]:
    """Bright above (class 0) or bright below (class 1)."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (n,), generator=generator)
    bright = (torch.arange(side * side) >= side * side // 2).long()
    return (torch.rand(n, side * side, generator=generator) < 0.2 + 0.6 * (bright == y[:, None])).to(torch.uint8), y


def test_lenet_gives_the_last_hidden_layer() -> None:
    x, y = images(60, 0)
    options = {"image_shape": (6, 6), "seed": 3, "epochs": 2}
    features = LeNetFeatures(x, y, **options)
    network = trained_cnn(x, y, **options)
    found = features(x)
    assert found.shape == (60, 128)
    assert torch.allclose(network[-1](found), network(x.float()), atol=1e-5)
    assert features.description == "last hidden layer of a LeNet trained on 60 test records"
    assert not found.requires_grad


def test_features_tell_good_samples_from_bad_ones() -> None:
    (x, y), (near, _) = images(100, 0), images(100, 1)
    collapsed = x[:1].repeat(99, 1)
    features = LeNetFeatures(x, y, image_shape=(6, 6), epochs=3)
    good, bad = (frechet_distance(x, other, features).distance for other in (near, collapsed))
    assert good < 0.5 * bad


def test_inception_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.models import inception_v3

    path = tmp_path / "checkpoints" / INCEPTION_WEIGHTS
    path.parent.mkdir()
    network = inception_v3(weights=None, init_weights=False)
    torch.save(network.state_dict(), path)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    features = InceptionFeatures(image_shape=(6, 6), white=255.0)
    path.unlink()  # 100 MB
    x = 255 * images(2, 0)[0]
    found = features(x)
    # Torchvision's own way in: normalised as for ImageNet, which the network turns back when told to.
    network.transform_input, network.fc = True, nn.Identity()
    large = nn.functional.interpolate(x.reshape(-1, 1, 6, 6) / 255, size=(299, 299), mode="bilinear").expand(-1, 3, -1, -1)
    mean, std = (torch.tensor(v)[:, None, None] for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    with torch.no_grad():
        expected = network.eval()((large - mean) / std)
    assert found.shape == (2, 2048)
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-7)
    assert features.description == f"torchvision Inception v3 ({INCEPTION_WEIGHTS})"


def test_inception_never_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(ValueError, match=f"weights is .*{INCEPTION_WEIGHTS}: no such file; put torchvision's"):
        InceptionFeatures(image_shape=(6, 6), white=1.0)


X = torch.zeros(4, 9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LeNetFeatures(X, torch.zeros(3, dtype=torch.int64), image_shape=(3, 3)), r"train_y is torch.int64 \(3,\)"),
        (
            lambda: LeNetFeatures(X, torch.zeros(4, dtype=torch.int64), image_shape=(3, 3)),
            r"image_shape is \(3, 3\): kind 'cnn'",
        ),
        (lambda: InceptionFeatures(image_shape=(3, 3), white=0.0), "white is 0.0: it must be > 0"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
