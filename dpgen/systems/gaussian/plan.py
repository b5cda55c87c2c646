r"""Privacy plan and configuration of a Gaussian fit, and the public rule that chooses sizes and shares.

The rule knows epsilon and a number of records, never the records. With :math:`\mu` the Gaussian-DP parameter of the budget,
n a public or noisy number of records and k classes, the signal of a moment matrix against its noise grows with :math:`\mu n`:

| choice | rule | MNIST, eps 1 | MNIST, eps 10 |
|---|---|---|---|
| axes | 60 (mu n / 16,000)^e, e = 1/2 below 16,000 and 1/8 above, at most d / 2 | 60 | 77 |
| frequencies that axes of images from 20 x 20 pixels are found in | twice the axes, the lowest ones | 120 | 154 |
| sub-clusters of a class | mu n / (1,200 k), 1 to 10 | 1 | 10 |
| shares, one Gaussian per class | mean .02, axes .20, moments .78 | | |
| shares, sub-clusters | mean .02, axes .20, classes .10, k-means .08, moments .60 | | |
| shares, sets | sizes .05, items .55, frequent items .40 | | |

The constants were set on training splits of MNIST and Fashion-MNIST, those of sets on retail, Gowalla and a simulated city,
which no budget covers; for any other data they are public.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

from dpgen.systems.plan import ClusterOptions, SumsPlan

SINGLE = {"mean": 0.02, "subspace": 0.20, "components": 0.78}
FULL = {"mean": 0.02, "subspace": 0.20, "classes": 0.10, "clusters": 0.08, "components": 0.60}
MARGINALS = 0.04
"""Share of the marginals of bits, beside the others."""


@dataclass(frozen=True)
class Sizes:
    """Principal axes, and sub-clusters of a class."""

    axes: int
    subclusters: int


def sizes(mu: float, n: float, *, d: int, k: int) -> Sizes:
    """Axes and sub-clusters for a budget of Gaussian-DP parameter `mu`, n records of d features and k classes.

    >>> sizes(0.268, 60_000, d=784, k=10), sizes(2.0, 60_000, d=784, k=10)
    (Sizes(axes=60, subclusters=1), Sizes(axes=77, subclusters=10))
    """
    signal = mu * max(n, 1.0)
    ratio = signal / 16_000.0
    axes = round(60.0 * ratio ** (0.5 if ratio < 1.0 else 0.125))
    return Sizes(axes=max(1, min(axes, d // 2)), subclusters=max(1, min(10, int(signal / (1_200.0 * k)))))


def default_shares(*, subclusters: int, grey: bool) -> dict[str, float]:
    """Shares of mu^2 by name; the mean of bits is their marginals, those of grey values are a release of their own."""
    shares = dict(SINGLE if subclusters == 1 else FULL)
    return shares | ({"marginals": MARGINALS} if grey else {"mean": shares["mean"] + MARGINALS})


def allocated(weights: Mapping[str, float], left: float) -> dict[str, float]:
    """Parts of what is left of 1 / s^2, by the weights of the releases to come: what will not be made costs nothing.

    >>> allocated({"axes": 1.0, "moments": 3.0}, 2.0)
    {'axes': 0.5, 'moments': 1.5}
    """
    unit = left / sum(weights.values())
    return {name: weight * unit for name, weight in weights.items()}


Form = Literal["auto", "latent", "sizes"]


@dataclass(frozen=True, kw_only=True)
class GaussianPlan(SumsPlan):
    """Privacy budget of a Gaussian fit."""

    epsilon: float = 3.0


@dataclass(frozen=True, kw_only=True)
class GaussianConfig(ClusterOptions):
    """Clusters, form, sizes and post-processing of a Gaussian fit; None means the public rule.

    `frequencies` and `mirror` are for images that are given as images; all others are for records of 0 and 1.

    Arguments:
        form: "latent" (Gaussians on principal axes), "sizes" (of sets: classes of sizes and of the most frequent items), or
            "auto": "sizes" for unlabelled records of more than 256 features that are not images, else "latent".
        axes: principal axes.
        subclusters: Gaussians per class; with clusters="kmeans" k says it.
        radius: clip radius of records on the axes, in units of their released root mean square, above 0.
        cut: eigenvalues below this many noise edges are cut, at least 0.
        warp: strength of the random affine warp of images; None: 0.8 with labels, else 0.
        grey: use grey values of images where the data have them.
        frequencies: of an image's brightness that are modelled, the lowest ones; of each of its two colours .4 of that.
        mirror: whether an image's mirror image is as likely, which costs nothing; not for digits and text.

    Raises:
        ValueError: a number out of its range.
    """

    form: Form = "auto"
    axes: int | None = None
    subclusters: int | None = None
    radius: float = 1.0
    cut: float = 0.6
    warp: float | None = None
    grey: bool = True
    frequencies: int = 100
    mirror: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("axes", "subclusters"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not 0 < self.radius < math.inf:
            raise ValueError(f"radius must be positive and finite, got {self.radius}")
        for name in ("cut", "warp"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite, got {value}")
        if not 4 <= self.frequencies <= 1000:
            raise ValueError(f"frequencies is {self.frequencies}; it must lie in [4, 1000]")

    def require_for(self, data: Literal["images", "records"]) -> None:
        """Refuse options that data of this kind would ignore."""
        for field in fields(self):
            value, of_images = getattr(self, field.name), field.name in ("frequencies", "mirror")
            if of_images != (data == "images") and value != field.default:
                raise ValueError(f"{field.name} is {value!r}; it must be left out, for the data are {data}")
