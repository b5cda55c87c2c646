"""DP-MERF: sums of random Fourier features of classes, with their counts."""

from typing import Any

import numpy as np
import torch
from conformance import SumRow, pairs_of, swapped

from dpgen.privacy.exact_sums import BoundedSum
from dpgen.systems.dp_sgd.model import Inputs
from dpgen.systems.kmeans.fit import RandomFourierFeatures
from dpgen.systems.merf.fit import NOTE, embeddings

D, K = 3, 2
FEATURES = RandomFourierFeatures(D, 40, gamma=0.3, generator=torch.Generator().manual_seed(0))
ONE_PAIR = RandomFourierFeatures(1, 2, gamma=1e-4, generator=torch.Generator().manual_seed(0), largest=255)
GREYS = torch.arange(256, dtype=torch.uint8)[:, None]


def of(x: np.ndarray, features: RandomFourierFeatures = FEATURES) -> BoundedSum:
    """Of records whose first column is their class."""
    return embeddings(Inputs(torch.from_numpy(x[:, 1:]), torch.from_numpy(x[:, 0] % K)), K, features)


def opposite() -> Any:
    """Two shades of a class whose features of one frequency are opposite: half a turn apart."""
    phases = ONE_PAIR.whole(GREYS)
    one, other = divmod(int(torch.cdist(phases, phases).argmax()), 256)
    return swapped(np.array([[0, 7], [0, one]], np.uint8), np.array([[0, other]], np.uint8))


REMOVED = swapped(np.array([[0, 0, 0, 0], [1, 1, 0, 1]], np.uint8), np.array([[0, 0, 1, 0]], np.uint8))
ROWS = [
    SumRow(
        "merf", (NOTE,), pairs_of(lambda rng, n: rng.integers(0, 2, (n, 1 + D)).astype(np.uint8)), REMOVED, sums=of,
        reaches=0.6, why="no two records have opposite features at a frequency each of their own",
    ),
    SumRow(
        "merf", (NOTE,), pairs_of(lambda rng, n: rng.integers(0, 256, (n, 2)).astype(np.uint8)), opposite(),
        sums=lambda x: of(x, ONE_PAIR),
    ),
]  # fmt: skip
