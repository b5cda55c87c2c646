"""Public choices of the Gaussian component, as fields of the DPGM configuration."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dpgen.systems.gaussian.fit_rule import Covariance

Form = Literal["auto", "latent", "sizes", "independent"]


@dataclass(frozen=True, kw_only=True)
class GaussianOptions:
    """What a Gaussian fit looks like; None means the public rule of `fit_rule`. Nothing here is learnt from records.

    Arguments:
        form: "latent" (Gaussians on principal axes), "sizes" (independent items given the size of the set),
            "independent" (independent marginals of each class), or "auto": "sizes" for unlabelled records of more than
            256 features that are not images, else "latent".
        axes: principal axes.
        subclusters: Gaussians per class; with clusters="kmeans" k says it.
        covariance: of sub-clusters, "full" or one per class, "tied".
        whitening: p, axis i is divided by eigenvalue^(p/2), in [0, 1].
        radius: clip radius of records on the axes, in units of their released root mean square, above 0.
        clip: clip norm of centred records: a public number above 0, "moments" (their released root mean square) or
            "quantile" (the 80 % quantile of a noisy histogram, which is paid for).
        cut: eigenvalues below this many noise edges are cut, at least 0.
        fill: give draws the mean of the cut eigenvalues where they were cut.
        warp: strength of the random affine warp of images; None: 0.8 with labels, else 0.
        codec: "none", "shear" or "distance": public change of coordinates of images.
        calibration: make bits agree with released marginals: "none", "thresholds" (one-way), "pairs" (two-way, at most 256
            features), or "auto": thresholds for images, pairs for tables of at most 128 features.
        grey: use grey values of images where the data have them.
        shares: share of mu^2 of each release, by name; None: the rule.
    """

    form: Form = "auto"
    axes: int | None = None
    subclusters: int | None = None
    covariance: Covariance = "full"
    whitening: float = 0.5
    radius: float = 1.0
    clip: float | Literal["moments", "quantile"] = "moments"
    cut: float = 0.6
    fill: bool = True
    warp: float | None = None
    codec: Literal["none", "shear", "distance"] = "none"
    calibration: Literal["auto", "none", "thresholds", "pairs"] = "auto"
    grey: bool = True
    shares: Mapping[str, float] | None = None

    def require_gaussian(self) -> None:
        """Refuse numbers out of range.

        Raises:
            ValueError: naming the option, its value and what is allowed.
        """
        for name in ("axes", "subclusters"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not 0 <= self.whitening <= 1:
            raise ValueError(f"whitening must be in [0, 1], got {self.whitening}")
        for name in ("radius", "clip"):
            value = getattr(self, name)
            if not isinstance(value, str) and not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value}")
        for name in ("cut", "warp"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite, got {value}")
