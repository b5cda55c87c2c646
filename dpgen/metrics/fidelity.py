"""How real synthetic samples look and how much of the real ones they reach: precision, recall, density and coverage."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from dpgen.metrics.sample_pair import SamplePair

_MOST_PAIRS = 2**24
_SLACK = 1e-12


class Fidelity(NamedTuple):
    """Shares, all in [0, 1] but the density, which can exceed 1 where the synthetic samples sit in dense places."""

    precision: float
    recall: float
    density: float
    coverage: float


def fidelity(real: Tensor, synthetic: Tensor, *, k: int = 5) -> Fidelity:
    r"""Precision, recall, density and coverage by balls B(x) around each x that reach to its k-th nearest neighbour.

    With n real x, m synthetic y, and every ball closed and made within its own sample (x itself is no neighbour):

    - precision: share of y in some B(x); recall: share of x in some B(y) (Kynkäänniemi et al. 2019, equations 1 and 2);
    - density: $\frac{1}{k m} \sum_{x, y} 1[y \in B(x)]$; coverage: share of B(x) that hold some y (Naeem et al. 2020, 3).

    The two papers use k = 3 and k = 5. Distances are Euclidean: give features where pixels mean little. Squares that differ
    by less than 1e-12 of the squared norms (of real samples about their mean) count as equal, so that ties are inside.

    Arguments:
        real: samples or features, (n, d), n > k.
        synthetic: the same, (m, d), m > k.
        k: neighbours, at least 1.

    Raises:
        ValueError: wrong shapes, values that are not finite, or not more than k samples.

    Example:
        >>> x = torch.arange(10.0)[:, None]
        >>> fidelity(x, x[:5], k=1)
        Fidelity(precision=1.0, recall=0.6, density=2.8, coverage=0.6)
    """
    _require_samples(real, synthetic, k)
    centre = real.double().mean(0)
    real, synthetic = real.double() - centre, synthetic.double() - centre
    real_radii, synthetic_radii = _squared_radii(real, k), _squared_radii(synthetic, k)
    hits, pairs = 0, 0
    covered, recalled = (torch.zeros(len(real), dtype=torch.bool, device=real.device) for _ in range(2))
    rows = max(1, _MOST_PAIRS // len(real))
    for part, radii in zip(synthetic.split(rows), synthetic_radii.split(rows)):
        distances = _squared_distances(part, real, slack=_SLACK)
        inside = distances <= real_radii
        hits, pairs = hits + int(inside.any(1).sum()), pairs + int(inside.sum())
        covered |= inside.any(0)
        recalled |= (distances <= radii[:, None]).any(0)
    m = len(synthetic)
    return Fidelity(hits / m, float(recalled.double().mean()), pairs / (k * m), float(covered.double().mean()))


class SampleFidelity(SamplePair):
    """`fidelity` over batches (b, d): a dictionary of precision, recall, density and coverage."""

    higher_is_better = True

    def __init__(self, k: int = 5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if k < 1:
            raise ValueError(f"k is {k}: it must be >= 1")
        self.k = k

    def _compare(self, real: Tensor, synthetic: Tensor) -> dict[str, float]:
        return fidelity(real, synthetic, k=self.k)._asdict()


def _squared_radii(x: Tensor, k: int) -> Tensor:
    """Squared distance (n,) of each row to its k-th nearest other row; the row itself is the nearest of the k + 1."""
    rows = max(1, _MOST_PAIRS // len(x))
    return torch.cat([_squared_distances(part, x).kthvalue(k + 1, dim=1).values for part in x.split(rows)])


def _squared_distances(x: Tensor, y: Tensor, *, slack: float = 0.0) -> Tensor:
    """Squared distances (a, b) of rows, less `slack` times both squared norms, to which the rounding is proportional."""
    norms = x.square().sum(1)[:, None] + y.square().sum(1)
    return norms.mul_(1 - slack).addmm_(x, y.T, alpha=-2)


def _require_samples(real: Tensor, synthetic: Tensor, k: int) -> None:
    if k < 1:
        raise ValueError(f"k is {k}: it must be >= 1")
    for name, x in (("real", real), ("synthetic", synthetic)):
        if x.ndim != 2 or x.shape[1] == 0 or len(x) <= k:
            raise ValueError(f"{name} has shape {tuple(x.shape)}: it must be (samples > k = {k}, features >= 1)")
        if not bool(torch.isfinite(x).all()):
            raise ValueError(f"{name} has a value that is not finite: every feature must be a number")
    if real.shape[1] != synthetic.shape[1]:
        raise ValueError(f"synthetic has {synthetic.shape[1]} features, real has {real.shape[1]}: they must agree")
