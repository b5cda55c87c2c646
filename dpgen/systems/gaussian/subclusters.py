"""DP k-means inside every class, in the coordinates of the subspace, from initial centres that cost nothing."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dpgen.privacy.exact_sums import BoundedSum, clipped, row_squares
from dpgen.systems.gaussian.gram_sums import Encode, vector_sums
from dpgen.systems.gaussian.record_stream import Batches
from dpgen.systems.gaussian.spending import BORDER, Spending

ROUNDS = 4
"""Rounds of k-means; more make each round noisier, four were as good as any on the training splits."""

_BITS = 34  # of a product with a coordinate of 18 bits, in the 53 of float64
_STARVING = 3.0  # noise stds of a count below which a centre is not moved


@dataclass(frozen=True)
class Centres:
    """Released centres (k, s, m) of s sub-clusters of each of k classes, and their noisy sizes (k, s) a round earlier."""

    centres: Tensor
    counts: Tensor
    sum_std: float

    def assign(self, u: Tensor, classes: Tensor) -> Tensor:
        """Component (b,) = class * s + nearest centre of the class, for clipped coordinates u (b, m)."""
        s, m = self.centres.shape[1:]
        # Clipped coordinates lie on a grid; with centres on another one float64 products are exact, and ties fall the same
        # way in any batch.
        reach = max(float(self.centres.abs().max()) * m**0.5, 2.0**-20)
        grid = 2.0 ** (_BITS - math.ceil(math.log2(reach)))
        result = torch.empty(len(u), dtype=torch.int64, device=u.device)
        for c in classes.unique().tolist():
            chosen = classes == c
            centres = (self.centres[c].to(u.device) * grid).round() / grid
            # |u|^2 is the same for all centres of a record
            distances = row_squares(centres) - 2.0 * (u[chosen].double() @ centres.T)
            result[chosen] = c * s + distances.argmin(1)
        return result


def centre_sums(batches: Batches, encode: Encode, centres: Centres) -> BoundedSum:
    """(count, sum) of the records nearest to every centre of their own class, (k s, m + 1)."""
    k, s, m = centres.centres.shape

    def nearest(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        u, classes = encode(x, labels)
        u = clipped(u)
        return u, centres.assign(u, classes)

    return vector_sums(batches, nearest, k=k * s, m=m, border=BORDER)


def release_centres(batches: Batches, encode: Encode, initial: Tensor, *, spending: Spending, rounds: int = ROUNDS) -> Centres:
    """Lloyd's rounds with noisy (counts, sums) of every class at once; one record is in one class, so one Gaussian a round.

    Arguments:
        batches: private records.
        encode: records to (coordinates, class).
        initial: centres (k, s, m) from released values, as draws of the released Gaussian of each class.
        spending: pays for "clusters", for all rounds together.
        rounds: T.
    """
    k, s, m = initial.shape
    found = Centres(initial.clone(), torch.zeros(k, s, dtype=torch.float64), 0.0)
    for _ in range(rounds):
        noisy, noise_std = spending.release("clusters", centre_sums(batches, encode, found), rounds)
        noisy = noisy.reshape(k, s, m + 1)
        counts = noisy[..., 0] / BORDER
        moved = noisy[..., 1:] / counts.clamp_min(1.0)[..., None]
        heard = counts > _STARVING * noise_std / BORDER
        found = Centres(torch.where(heard[..., None], moved, found.centres), counts, noise_std)
    return found
