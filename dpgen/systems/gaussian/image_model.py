"""The released Gaussians of classes of images: draws, the classifier that they are, files."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dpgen.release import ImageModel, ImageSamples, RandomState, draw_components, sampling_generator
from dpgen.statement import PrivacyStatement
from dpgen.systems.gaussian.frequencies import Frequencies

_AT_ONCE = 4096


class GaussianImages(ImageModel, kind="gaussian_images"):
    """Per class N(mean, even) of log-radii and even directions and N(0, odd) of odd ones, and texture above them.

    Arguments:
        map: between images and coordinates, public.
        means: (k, p), released.
        even: (k, p, p), positive definite.
        odd: (k, q, q), positive definite.
        counts: noisy numbers of images (k,).
        class_names: k public names.
        statement: what the model cost.
        declared: what was done, in sentences.
    """

    def __init__(
        self,
        map: Frequencies,
        means: Tensor,
        even: Tensor,
        odd: Tensor,
        *,
        counts: Tensor,
        class_names: Sequence[str],
        statement: PrivacyStatement,
        declared: Sequence[str] = (),
    ) -> None:
        self.map, self.means, self.even, self.odd = map, means, even, odd
        self.counts, self.class_names, self.image_shape = counts.double(), tuple(class_names), map.shape
        self.statement, self.declared = statement, tuple(declared)

    def samples(self, n: int, *, random_state: RandomState = None, clusters: Sequence[int] | None = None) -> ImageSamples:
        generator = sampling_generator(n, random_state)
        labels = draw_components(self.weights, n, clusters, generator)
        roots = [torch.linalg.cholesky(covariances).float() for covariances in (self.even, self.odd)]
        x = torch.empty(n, *self.image_shape, dtype=torch.uint8)
        for c in labels.unique().tolist():
            for rows in (labels == c).nonzero().flatten().split(_AT_ONCE):
                even, odd = (torch.randn(len(rows), root.shape[1], generator=generator) @ root[c].T for root in roots)
                even += self.means[c].float()
                blocks = len(self.map.block_sizes)
                x[rows] = self.map.decode(even[:, :blocks], even[:, blocks:], odd, generator)
        return ImageSamples(x=x, labels=labels, class_names=self.class_names)

    def classify(self, x: Tensor) -> Tensor:
        """The likeliest class (n,) of images (n, h, w, c) uint8 under the released Gaussians."""
        parts = []
        for images in x.split(_AT_ONCE):
            logs, even, odd = self.map.encode(images)
            scores = _log_densities(torch.cat([logs, even], 1), self.means, self.even)
            scores += _log_densities(odd, torch.zeros(len(self.odd), odd.shape[1], dtype=torch.float64), self.odd)
            parts.append((scores + self.weights.clamp_min(1e-12).log()).argmax(1))
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)

    def tensors(self) -> dict[str, Tensor]:
        return {"means": self.means, "even": self.even, "odd": self.odd, "counts": self.counts}

    def description(self) -> dict[str, Any]:
        return {
            "shape": self.map.shape,
            "frequencies": self.map.luma,
            "mirror": self.map.mirror,
            "class_names": self.class_names,
            "declared": self.declared,
        }

    @classmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> "GaussianImages":
        height, width, channels = description["shape"]
        map = Frequencies((height, width, channels), description["frequencies"], description["mirror"])
        told = {name: description[name] for name in ("class_names", "declared")}
        return cls(map, statement=statement, **told | tensors)


def _log_densities(x: Tensor, means: Tensor, covariances: Tensor) -> Tensor:
    """log N(x; mean_c, S_c) (n, k) up to a constant, for rows x (n, m)."""
    columns = []
    for mean, root in zip(means, torch.linalg.cholesky(covariances)):
        white = torch.linalg.solve_triangular(root, (x - mean).T, upper=False)
        columns.append(-0.5 * white.square().sum(0) - root.diagonal().log().sum())
    return torch.stack(columns, 1)
