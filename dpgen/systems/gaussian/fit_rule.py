r"""The public rule that chooses sizes and shares from epsilon and the number of records, never from the records.

With :math:`\mu` the Gaussian-DP parameter of the budget, n a public or noisy number of records and k classes, the signal
of a moment matrix against its noise grows with :math:`\mu n`:

| choice | rule | MNIST, eps 1 | MNIST, eps 10 |
|---|---|---|---|
| axes | 60 (mu n / 16,000)^e, e = 1/2 below 16,000 and 1/8 above, at most d / 2 | 60 | 77 |
| sub-clusters of a class | mu n / (1,200 k), 1 to 10 | 1 | 10 |
| shares, one Gaussian per class | mean .02, axes .20, moments .78 | | |
| shares, sub-clusters | mean .02, axes .20, classes .10, k-means .08, moments .60 | | |
| shares, sub-clusters of one covariance per class | mean .02, axes .15, classes .63, k-means .20 | | |

The constants were set on training splits of MNIST and Fashion-MNIST, which no budget covers; for any other data they
are public.
"""

from dataclasses import dataclass
from typing import Literal

Covariance = Literal["full", "tied"]

SINGLE = {"mean": 0.02, "subspace": 0.20, "components": 0.78}
FULL = {"mean": 0.02, "subspace": 0.20, "classes": 0.10, "clusters": 0.08, "components": 0.60}
TIED = {"mean": 0.02, "subspace": 0.15, "classes": 0.63, "clusters": 0.20}
MARGINALS = 0.04
"""Share of `marginals` or `pairs`, beside the others, where they are released."""


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


def default_shares(*, subclusters: int, covariance: Covariance, extra: tuple[str, ...] = ()) -> dict[str, float]:
    """Shares of mu^2 by name; `extra` releases get `MARGINALS` each before normalisation."""
    base = SINGLE if subclusters == 1 else FULL if covariance == "full" else TIED
    return {**base, **dict.fromkeys(extra, MARGINALS)}
