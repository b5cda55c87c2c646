"""Features of images for the Fréchet distance: learnt from public records, or Inception where its weights are at hand."""

from abc import ABC, abstractmethod
from pathlib import Path

import torch
from torch import Tensor, nn

from dpgen.metrics.classification import in_parts, trained_cnn

INCEPTION_WEIGHTS = "inception_v3_google-0cc3c7bd.pth"
"""File name of torchvision's weights of Inception v3."""

_SIDE = 299
_BATCH = 32


class ImageFeatures(ABC):
    """Features of images, with `description`: what made them, for distances by other features are not comparable."""

    description: str

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """Features (n, k) of images (n, pixels)."""


class PCAFeatures(ImageFeatures):
    """Coordinates on the first k principal components of public records.

    Arguments:
        x: public records, such as the test part, (n, d), n >= 2.
        k: components, in [1, min(n - 1, d)].
        origin: what the records are, for the description.

    Raises:
        ValueError: wrong shape, values that are not finite, or k out of range.

    Example:
        >>> features = PCAFeatures(torch.tensor([[0.0, 0.0], [3.0, 4.0]]), k=1)
        >>> features(torch.tensor([[1.5, 2.0]])).abs().item(), features.description
        (0.0, '1 principal component of 2 test records')
    """

    def __init__(self, x: Tensor, *, k: int = 64, origin: str = "test records") -> None:
        _require_images(x, "x")
        most = min(len(x) - 1, x.shape[1])
        if not 1 <= k <= most:
            raise ValueError(f"k is {k}: it must be in [1, {most}] for {len(x)} records of {x.shape[1]} features")
        self.mean = x.double().mean(0)
        centred = x.double() - self.mean
        self.components = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)[:, :k]
        self.description = f"{k} principal component{'s' if k > 1 else ''} of {len(x)} {origin}"

    def __call__(self, x: Tensor) -> Tensor:
        _require_images(x, "x", d=len(self.mean))
        return (x.double() - self.mean) @ self.components


class LeNetFeatures(ImageFeatures):
    """The last hidden layer (128 units) of the small convolutional classifier, trained on public records.

    Arguments:
        x: public records, such as the test part, (n, height * width).
        y: their classes (n,).
        image_shape: (height, width), both at least 4.
        seed: of the training.
        epochs: passes over the records; see `train_on_synthetic_accuracy`.
        origin: what the records are, for the description.

    Raises:
        ValueError: as `train_on_synthetic_accuracy`.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        *,
        image_shape: tuple[int, int],
        seed: int = 0,
        epochs: int | None = None,
        origin: str = "test records",
    ) -> None:
        self.d = x.shape[1]
        self.network = trained_cnn(x, y, image_shape=image_shape, seed=seed, epochs=epochs)[:-1]
        self.description = f"last hidden layer of a LeNet trained on {len(x)} {origin}"

    def __call__(self, x: Tensor) -> Tensor:
        _require_images(x, "x", d=self.d)
        return in_parts(self.network, x.cpu())


class InceptionFeatures(ImageFeatures):
    """The 2,048 pooled features of torchvision's Inception v3, from weights that are on this machine; nothing is downloaded.

    Published FID figures use another port of the network's weights: they are near these distances, not equal.

    Arguments:
        image_shape: (height, width) of grey images.
        white: value of a white pixel: 1 for bits, 255 for grey values.
        weights: file of torchvision's weights; by default `INCEPTION_WEIGHTS` in torch's hub folder.

    Raises:
        ValueError: there is no such file, or white is not positive.
    """

    def __init__(self, *, image_shape: tuple[int, int], white: float, weights: Path | str | None = None) -> None:
        from torchvision.models import inception_v3

        if not white > 0:
            raise ValueError(f"white is {white}: it must be > 0")
        path = Path(weights or Path(torch.hub.get_dir()) / "checkpoints" / INCEPTION_WEIGHTS)
        if not path.is_file():
            raise ValueError(f"weights is {path}: no such file; put torchvision's {INCEPTION_WEIGHTS} there or use PCAFeatures")
        self.network = inception_v3(weights=None, init_weights=False, transform_input=False)
        self.network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        self.network.fc = nn.Identity()
        self.network.eval()
        self.image_shape, self.white = image_shape, white
        self.description = f"torchvision Inception v3 ({path.name})"

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        height, width = self.image_shape
        _require_images(x, "x", d=height * width)
        return torch.cat([self.network(self._enlarged(part)) for part in x.cpu().split(_BATCH)])

    def _enlarged(self, x: Tensor) -> Tensor:
        """Three equal channels of 299 x 299 pixels in [-1, 1], as the network was trained."""
        images = x.float().reshape(-1, 1, *self.image_shape) / self.white * 2 - 1
        large = nn.functional.interpolate(images, size=(_SIDE, _SIDE), mode="bilinear", align_corners=False)
        return large.expand(-1, 3, -1, -1)


def _require_images(x: Tensor, name: str, *, d: int | None = None) -> None:
    if x.ndim != 2 or x.numel() == 0 or (d is not None and x.shape[1] != d):
        raise ValueError(f"{name} has shape {tuple(x.shape)}: it must be (images, {'pixels' if d is None else d}), not empty")
    if not bool(torch.isfinite(x).all()):
        raise ValueError(f"{name} has a value that is not finite: every pixel must be a number")
