"""Releases of k-means and of clusters that labels make."""

import numpy as np
import torch
from conformance import SumRow, pairs_of, swapped
from torch import Tensor

from dpgen.privacy.exact_sums import BoundedSum, size_sums
from dpgen.systems.dp_sgd.partition import SIZES, LabelPartition
from dpgen.systems.kmeans.fit import Centres, FeatureSpace, RandomFourierFeatures, round_sums
from dpgen.systems.kmeans.plan import COUNTS, ROUND, KMeansPlan

M = 3
LINEAR = FeatureSpace(norm_bound=2.0)
FOURIER = FeatureSpace(RandomFourierFeatures(M, 40, gamma=0.3, generator=torch.Generator().manual_seed(0), largest=4.0), 1.0)
SPOTS = torch.tensor([[0.0, 0.0, 0.0], [0.0, 3.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
"""Centres: the first is nearest to what lies around it, the last two coincide, and the others tie at half a step."""


def records(rng: np.random.Generator, n: int) -> Tensor:
    """Long and short ones on a coarse grid, where distances to centres tie."""
    return torch.from_numpy(rng.normal(0.0, rng.choice([0.5, 3.0]), (n, M)) * 4).round() / 4


def of_round(space: FeatureSpace, noise_count: float) -> SumRow:
    weight = KMeansPlan(noise_count=noise_count, noise_sum=1.0).weight
    centres = Centres.cut(SPOTS if space is LINEAR else space(SPOTS), space.norm_bound)

    def sums(x: Tensor) -> BoundedSum:
        return round_sums(space.chunks(x), centres, weight)

    # A long record beside another; replaced by its opposite in its cluster, or by one in another cluster.
    long, far, other = 2.0 * torch.eye(M)[2], 40.0 * torch.eye(M)[1], torch.ones(M) / 8
    tight = swapped(torch.stack([other, long]), (far if weight > 1 or space is FOURIER else -long)[None])
    # records are long in a feature space where opposite features cannot be reached: a bound under replace_one
    loose = {"reaches": 0.6, "why": "no two records have opposite features of the RBF kernel"} if space is FOURIER else {}
    return SumRow("dpgm", (ROUND,), pairs_of(records), tight, sums=sums, **loose)  # type: ignore[arg-type]


def final_counts(x: Tensor) -> BoundedSum:
    centres = Centres.cut(SPOTS, LINEAR.norm_bound)
    return size_sums((centres.nearest(z) for z in LINEAR.chunks(x)), len(SPOTS))


SHORT_AND_LONG = torch.stack([torch.full((M,), 0.1), 3.0 * torch.eye(M)[1]])
APART = swapped(SHORT_AND_LONG, SHORT_AND_LONG[:1])
"""Two records of two clusters, one of them removed or replaced by the other."""


def labels(rng: np.random.Generator, n: int) -> Tensor:
    return torch.from_numpy(rng.integers(0, 3, n))


def sizes(label: Tensor) -> BoundedSum:
    return size_sums([LabelPartition(3, noise_count=1.0).assign(label[:, None], label)], 3)


ROWS = [
    of_round(LINEAR, noise_count=5.0),
    of_round(LINEAR, noise_count=0.3),
    of_round(FOURIER, noise_count=5.0),
    SumRow("dpgm", (COUNTS,), pairs_of(records), APART, sums=final_counts),
    SumRow("dpgm", (SIZES,), pairs_of(labels), swapped(torch.tensor([0, 2]), torch.tensor([1])), sums=sizes),
]
