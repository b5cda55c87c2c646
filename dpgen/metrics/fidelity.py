"""Fidelity of synthetic samples: Fréchet distance of features, inception score, precision and recall."""

import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dpgen.extras import extras
from dpgen.metrics.classification import in_parts, trained_cnn
from dpgen.metrics.queries import require_samples

_SIDE = 299
_BATCH = 32


class LeNetFeatures:
    """The last hidden layer (128 units) of the small convolutional classifier, trained on records (n, height * width).

    `y` are their classes (n,), `image_shape` is (height, width) or (channels, height, width), sides at least 4; `seed` and
    `epochs`, and what is refused, are those of `train_on_synthetic_accuracy`.
    """

    def __init__(self, x: Tensor, y: Tensor, *, image_shape: tuple[int, ...], seed: int = 0, epochs: int | None = None) -> None:
        self.d = x.shape[1]
        whole = trained_cnn(x, y, image_shape=image_shape, seed=seed, epochs=epochs)
        self.network, self._last = whole[:-1], whole[-1]

    def __call__(self, x: Tensor) -> Tensor:
        """Features (n, 128) of images (n, pixels)."""
        _require_images(x, self.d)
        return in_parts(self.network, x.cpu())

    def logits(self, features: Tensor) -> Tensor:
        """Logits (n, classes) of the network from features (n, 128)."""
        return in_parts(self._last, features)


def inception_network(weights: Path | str) -> nn.Module:
    """Torchvision's Inception v3, its last layer apart as `head`, with weights of a file: its own `.pth`, or `.safetensors`.

    Only tensors are read, and no code of the file runs; nothing is downloaded.
    """
    from safetensors.torch import load_file

    with extras():
        from torchvision.models import inception_v3
    path = Path(weights)
    if not path.is_file():
        raise ValueError(f"weights is {path}: no such file; put torchvision's inception_v3_google-0cc3c7bd.pth there")
    network = inception_v3(weights=None, init_weights=False, transform_input=False)
    try:
        safe = path.suffix == ".safetensors"
        network.load_state_dict(load_file(path) if safe else torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:
        line = " ".join(str(error).split())[:120]
        raise ValueError(f"weights is {path}; it must hold the tensors of torchvision's inception_v3: {line}") from error
    network.head, network.fc = network.fc, nn.Identity()
    return network.eval().requires_grad_(False)


class InceptionFeatures:
    """The 2,048 pooled features of torchvision's Inception v3, as `inception_network` reads it.

    Published FID figures use another port of the network's weights: they are near these distances, not equal. `network` is of
    `inception_network`, `image_shape` (height, width) or (channels, height, width) of 1 or 3 channels; white is 1.
    """

    def __init__(self, network: nn.Module, *, image_shape: tuple[int, ...], device: torch.device | str = "cpu") -> None:
        self.network, self.image_shape, self.device = network.to(device), image_shape, device

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Features (n, 2048) of images (n, pixels)."""
        _require_images(x, math.prod(self.image_shape))
        found = []
        for part in x.split(_BATCH):  # as 299 x 299 pixels in [-1, 1] of three channels, by which the network was trained
            images = part.to(self.device).float().reshape(len(part), -1, *self.image_shape[-2:]) * 2 - 1
            large = nn.functional.interpolate(images, size=(_SIDE, _SIDE), mode="bilinear", align_corners=False)
            found.append(self.network(large.expand(-1, 3, -1, -1)).cpu())
        return torch.cat(found)

    @torch.no_grad()
    def logits(self, features: Tensor) -> Tensor:
        """Logits (n, 1000) of ImageNet's classes from features (n, 2048)."""
        head = self.network.head
        assert isinstance(head, nn.Module)
        return torch.cat([head(part.to(self.device)).cpu() for part in features.split(_BATCH)])


def _require_images(x: Tensor, d: int) -> None:
    require_samples(x=x)
    if x.shape[1] != d:
        raise ValueError(f"x has shape {tuple(x.shape)}: it must be (images, {d})")


def frechet_distance(real: Tensor, synthetic: Tensor) -> float:
    r"""Squared Wasserstein-2 distance of Gaussians, $|\mu - \nu|^2 + \mathrm{tr}(S + T - 2 (S^{1/2} T S^{1/2})^{1/2})$.

    Their moments are the means and unbiased covariances of the samples; of Inception features it is FID. It shrinks with more
    samples: compare distances from equal numbers, and by the same features, only. Samples or features are (n, k) and (m, k), n,
    m >= 2.

    Source: Dowson and Landau 1982; Heusel et al. 2017, equation 6.

    >>> x = torch.tensor([[0.0], [2.0]])
    >>> frechet_distance(x, x + 3)
    9.0
    """
    require_samples(2, real=real, synthetic=synthetic)
    (mean, covariance), (other_mean, other) = _moments(real), _moments(synthetic)
    # Singular values of S^(1/2) T^(1/2): roots of eigenvalues near 0 would lose half of the digits.
    cross = torch.linalg.svdvals(_root(covariance).T @ _root(other)).sum()
    apart = (mean - other_mean).square().sum() + covariance.trace() + other.trace() - 2 * cross
    return max(0.0, float(apart))


def _root(covariance: Tensor) -> Tensor:
    """R with R R^T the covariance."""
    values, vectors = torch.linalg.eigh(covariance)
    return vectors * values.clamp_min(0).sqrt()


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (k,) and unbiased covariance (k, k) of samples (n, k)."""
    mean = x.double().mean(0)
    centred = x.double() - mean
    return mean, centred.T @ centred / (len(x) - 1)


def inception_score(logits: Tensor) -> float:
    r"""Exponential of the mean over images of $\mathrm{KL}(p(y | x) \,\|\, p(y))$, in [1, number of classes].

    p(y | x) is the softmax of the logits (n, classes) of a classifier, p(y) its mean over all n images, which are not divided
    into parts. It is large where each image shows one class and all classes are shown; it sees neither wrong labels nor images
    that are alike within a class. Published figures use the classes of ImageNet.

    Source: Salimans et al. 2016, Section 4.

    >>> round(inception_score(100.0 * torch.eye(4)), 6), inception_score(torch.zeros(5, 4))
    (4.0, 1.0)
    """
    require_samples(logits=logits)
    each = logits.double().log_softmax(1)
    mean = each.logsumexp(0) - math.log(len(each))
    return float((each.exp() * (each - mean)).sum(1).mean().exp())


_MOST_PAIRS = 2**24
_SLACK = 1e-12


class Fidelity(NamedTuple):
    """Shares in [0, 1]."""

    precision: float
    recall: float


def fidelity(real: Tensor, synthetic: Tensor, *, k: int = 5) -> Fidelity:
    r"""Precision and recall by balls B(x) around each x that reach to its k-th nearest neighbour.

    With real x, synthetic y, and every ball closed and made within its own sample (x itself is no neighbour): precision is the
    share of y in some B(x), recall that of x in some B(y) (Kynkäänniemi et al. 2019, equations 1 and 2, with k = 3).

    Distances are Euclidean: give features where pixels mean little. Squares that differ by less than 1e-12 of the squared norms
    (of real samples about their mean) count as equal, so that ties are inside. Both are (n, d) with more than k samples.

    >>> x = torch.arange(10.0)[:, None]
    >>> fidelity(x, x[:5], k=1)
    Fidelity(precision=1.0, recall=0.6)
    """
    if k < 1:
        raise ValueError(f"k is {k}: it must be >= 1")
    require_samples(k + 1, real=real, synthetic=synthetic)
    centre = real.double().mean(0)
    real, synthetic = real.double() - centre, synthetic.double() - centre
    real_radii, synthetic_radii = _squared_radii(real, k), _squared_radii(synthetic, k)
    hits, recalled = 0, torch.zeros(len(real), dtype=torch.bool, device=real.device)
    rows = max(1, _MOST_PAIRS // len(real))
    for part, radii in zip(synthetic.split(rows), synthetic_radii.split(rows)):
        distances = _squared_distances(part, real, slack=_SLACK)
        hits += int((distances <= real_radii).any(1).sum())
        recalled |= (distances <= radii[:, None]).any(0)
    return Fidelity(hits / len(synthetic), float(recalled.double().mean()))


def _squared_radii(x: Tensor, k: int) -> Tensor:
    """Squared distance (n,) of each row to its k-th nearest other row; the row itself is the nearest of the k + 1."""
    rows = max(1, _MOST_PAIRS // len(x))
    return torch.cat([_squared_distances(part, x).kthvalue(k + 1, dim=1).values for part in x.split(rows)])


def _squared_distances(x: Tensor, y: Tensor, *, slack: float = 0.0) -> Tensor:
    """Squared distances (a, b) of rows, less `slack` times both squared norms, to which the rounding is proportional."""
    norms = x.square().sum(1)[:, None] + y.square().sum(1)
    return norms.mul_(1 - slack).addmm_(x, y.T, alpha=-2)
