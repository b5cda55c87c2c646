"""The Gaussian component: noisy moments of all records, of classes and clusters, marginals, sizes and items."""

import math
from typing import Any

import numpy as np
import torch
from conformance import Neighbours, SumRow, pairs_of, swapped
from torch import Tensor

from dpgen.privacy.exact_sums import BoundedSum
from dpgen.systems.gaussian.images import EVEN, ODD, Frequencies, image_sums
from dpgen.systems.gaussian.releases import (
    BORDER,
    NOTES,
    Batches,
    Location,
    centre_sums,
    centred_moments,
    gram_sums,
    location_sums,
    marginal_sums,
)
from dpgen.systems.gaussian.sets import FrequentItems, item_sums, size_bins, size_histogram

Rows = list[list[float]]


def batches(rows: Tensor) -> Batches:
    """Records (n, d + 1), the label in the last column, in uneven batches."""
    return [(part[:, :-1].float(), part[:, -1].long()) for part in rows.split(2)]


def as_they_are(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    assert labels is not None
    return x, labels


def records(values: Any, classes: int = 1) -> Neighbours:
    """Neighbouring pairs of records whose features `values(rng, n)` makes."""

    def rows(rng: np.random.Generator, n: int) -> Tensor:
        return torch.from_numpy(np.concatenate([values(rng, n), rng.integers(0, classes, (n, 1))], 1).astype(np.float64))

    return pairs_of(rows, least=0)


def uniform(d: int) -> Any:
    """Features in [0, 1], many of them at the ends."""
    return lambda rng, n: np.clip(rng.uniform(-0.7, 1.7, (n, d)), 0, 1)


def directions(d: int) -> Any:
    """Vectors of all lengths, most of them too long."""
    return lambda rng, n: rng.normal(size=(n, d)) * rng.choice([0.1, 0.5, 1.0, 100.0], (n, 1))


def bits(d: int) -> Any:
    """Bits, of sets of all sizes."""
    return lambda rng, n: rng.random((n, d)) < rng.random((n, 1))


def tight(common: list[float], added: list[float], instead: list[float]) -> Any:
    """A record is added beside another, or replaced; the label is the last entry."""
    return swapped(torch.tensor([common, added], dtype=torch.float64), torch.tensor([instead], dtype=torch.float64))


def row(name: str, neighbours: Neighbours, pair: Any, sums: Any) -> SumRow:
    return SumRow("dpgm", (NOTES[name],), neighbours, pair, sums=lambda rows: sums(batches(rows)))


MIDDLE = Location(10.0, torch.tensor([0.5, 0.5], dtype=torch.float64), 0.1)
CENTRES = torch.tensor([[[0.0, 0.0], [5.0, 5.0]], [[0.3, 0.1], [-0.4, 0.2]]], dtype=torch.float64)
OPPOSITE = math.sqrt(1 - BORDER**4)  # (-a^2, this) has norm 1, and its bordered vector is orthogonal to that of (1, 0)


def moments(k: int) -> Any:
    """Of k classes."""
    return lambda batches: gram_sums(batches, as_they_are, k=k, m=2, border=BORDER)


def item_row(clip: int) -> SumRow:
    """Sets of 4 and 3 of 7 items are both at or above the clip."""
    pair = tight([0.0] * 7 + [0], [1.0] * 4 + [0.0] * 4, [0.0] * 4 + [1.0] * 3 + [0])

    def sums(batches: Batches) -> BoundedSum:
        return item_sums(batches, 7, clip)

    return row("items", records(bits(7)), pair, sums)


def frequent_row(most: int) -> SumRow:
    """Of 7 frequent items and 2 others, sets of m and of 7 - m frequent items share no entry but the count."""
    layout = FrequentItems(torch.arange(7), size_bins(9), torch.tensor([0, 0, 1, 1, 2, 2, 2, 2, 2, 2]), most)
    one = [1.0] * most + [0.0] * (10 - most)
    other = [0.0] * most + [1.0] * (7 - most) + [1.0, 1.0, 0.0]
    return row("frequent", records(bits(9)), tight([0.0] * 10, one, other), layout.sums)


# -- images ------------------------------------------------------------------------------------------------------------

COLOUR, GREY = Frequencies((6, 6, 3), 12), Frequencies((6, 5, 1), 10, mirror=False)


def pixels(shape: tuple[int, ...]) -> Any:
    """Images of all contrasts and a class of two."""

    def rows(rng: np.random.Generator, n: int) -> Tensor:
        contrast = rng.choice([0, 1, 10, 127], (n, 1))
        values = 128 + np.round(rng.uniform(-1, 1, (n, math.prod(shape))) * contrast)
        return torch.from_numpy(np.concatenate([values, rng.integers(0, 2, (n, 1))], 1))

    return pairs_of(rows, least=0)


def faint_pair(map: Frequencies, even: float, odd: float) -> Any:
    """Images of two classes so faint that all log-radii are least, and both clips bind."""
    rng, found = np.random.default_rng(1), []
    while len(found) < 3:
        values = rng.choice([122, 133], map.shape)
        _, e, o = map.encode(torch.from_numpy(values[None]).byte())
        if float(e.square().sum()) >= even and float(o.square().sum()) >= odd:
            found.append([*values.flatten().tolist(), len(found) % 2])
    return tight(found[2], found[0], found[1])


def image_row(map: Frequencies, even: float, odd: float) -> SumRow:
    def sums(rows: Tensor) -> BoundedSum:
        return image_sums(rows[:, :-1].reshape(-1, *map.shape).byte(), rows[:, -1].long(), map, k=2)

    return SumRow("gaussian", (NOTES["images"],), pixels(map.shape), faint_pair(map, even, odd), sums=sums)


SIDES = tight([0.2, 0.3, 0], [1.0, 0.5, 0], [0.5, 1.0, 0])
TURNED = tight([0.2, 0.3, 0], [1.0, 0.0, 0], [-1.0, 0.0, 0])
TURNED_BITS = tight([0, 1, 1, 0, 0], [1, 1, 0, 1, 0], [0, 0, 1, 0, 0])
ROWS = [
    image_row(COLOUR, EVEN, ODD),
    image_row(GREY, 0.995, 0.0),
    row("mean", records(uniform(3)), tight([0.2] * 3 + [0], [1.0] * 3 + [0], [0.0] * 4), lambda b: location_sums(b, 3)),
    row("mean", records(uniform(1)), tight([0.2, 0], [1.0, 0], [0.0, 0]), lambda b: location_sums(b, 1)),
    *(
        row("subspace", records(uniform(2)), SIDES, lambda b, clip=clip: centred_moments(b, MIDDLE, clip))
        for clip in (0.1, 0.5)
    ),
    *(
        row(name, records(directions(2), 2), tight([0.2, 0.3, 1], [1.0, 0.0, 0], [0.0, 1.0, 1]), moments(2))
        for name in ("classes", "components")
    ),
    row("components", records(directions(2)), tight([0.2, 0.3, 0], [1.0, 0.0, 0], [-(BORDER**2), OPPOSITE, 0]), moments(1)),
    *(
        row("clusters", records(directions(2), k), TURNED, lambda b, k=k: centre_sums(b, as_they_are, CENTRES[:k]))
        for k in (1, 2)
    ),
    *(row("marginals", records(bits(4), k), TURNED_BITS, lambda b, k=k: marginal_sums(b, 4, k=k)) for k in (1, 2)),
    row("sizes", records(bits(9)), tight([0.0] * 10, [1.0] * 9 + [0], [0.0] * 10), lambda b: size_histogram(b, size_bins(9))),
    *map(item_row, (1, 2, 3)),
    *map(frequent_row, (2, 3)),
]
