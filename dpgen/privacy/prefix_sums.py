r"""Private prefix sums by correlated Gaussian noise: the square root of the all-ones triangle as factor on both sides.

The mechanism is B x + z with :math:`z \sim N(0, \sigma^2 \Delta^2 I)`, B the square root of the prefix-sum matrix A and
:math:`\Delta` the largest :math:`\|B (x - x')\|`; A x + B z = B (B x + z) follows from it. The error of a prefix sum has std
:math:`\sigma \Delta \|row\|`, both factors about :math:`(1 + \ln(m) / \pi)^{1/2}`: better than a tree's :math:`\log_2 m` nodes.

**Exact in the private part.** B x in floating point is no function of that form: a fast Fourier transform rounds every entry
by what all others are, so one record would move cells that it is not in. Here no count enters a floating-point number:

1. A x is a cumulative sum of int64, exact, so neighbours differ by exactly A (x - x').
2. w = B z is computed from noise alone. Its rounding errors are part of the noise, the same for every data set.
3. What is released is A x + round(w) on a grid g, a power of two at most 1. A x is a whole multiple of g, hence
   A x + round(w) = round(A x + w) entry by entry: the post-processing of A x + B z, which is the post-processing of B x + z.

Source: Fichtenberger, Henzinger, Upadhyay 2023, Theorem 1; Henzinger, Upadhyay, Upadhyay 2023.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from scipy.fft import next_fast_len

from dpgen.privacy.draws import Integers, Reals
from dpgen.privacy.mechanisms import Relation, require_positive, require_relation
from dpgen.privacy.noise import SecureSource, grid_step, require_secure


@lru_cache(maxsize=16)
def square_root_factor(m: int) -> Reals:
    r"""First column f (m,) of the lower triangular Toeplitz matrix B with B B = A, the matrix of prefix sums.

    .. math:: f_0 = 1, \qquad f_k = f_{k-1} \frac{2k - 1}{2k}, \qquad \textstyle\sum_k f_k z^k = (1 - z)^{-1/2}

    >>> square_root_factor(3).tolist()
    [1.0, 0.5, 0.375]
    """
    if m < 1:
        raise ValueError(f"m is {m!r}; it must be at least 1")
    k = np.arange(1, m)
    factor = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
    factor.setflags(write=False)
    return factor


@lru_cache(maxsize=64)
def prefix_sensitivity(m: int, relation: Relation) -> float:
    r"""L2 distance by which one record moves B x, x (m,) being counts of disjoint cells.

    Add/remove moves one cell by 1: the longest column, squared :math:`\sum_k f_k^2`. Replace-one moves it d cells on, or out
    of a last cell that is left out because n is public: squared, the larger of that and
    :math:`\max_d \sum_{k<d} f_k^2 + \sum_{k<m-d} (f_k - f_{k+d})^2`, all d at once by one autocorrelation.

    >>> round(prefix_sensitivity(2, "add_remove") ** 2, 6), round(prefix_sensitivity(2, "replace_one") ** 2, 6)
    (1.25, 1.25)
    """
    factor = square_root_factor(m)
    total = float(factor @ factor)
    if require_relation(relation) == "add_remove":
        return math.sqrt(total) * (1 + 1e-9)  # never below the exact value for its rounding
    head = np.concatenate([[0.0], np.cumsum(factor**2)])  # head[d] = sum of the first d squares
    spectrum = np.fft.rfft(factor, 2 * m)
    lagged = np.fft.irfft(spectrum * spectrum.conj(), 2 * m)[: m + 1]
    lags = np.arange(1, m + 1)
    squared = head[lags] + head[m - lags] + (total - head[lags]) - 2 * lagged[lags]
    return math.sqrt(max(total, float(squared.max()))) * (1 + 1e-9)


def toeplitz_product(factor: Reals, x: Reals) -> Reals:
    """The lower triangular Toeplitz matrix with first column `factor` (m,), times x (m,), by FFT; for noise, not for counts.

    >>> toeplitz_product(np.array([1.0, 1.0, 1.0]), np.array([1.0, 2.0, 3.0])).round(9).tolist()
    [1.0, 3.0, 6.0]
    """
    size = next_fast_len(2 * len(x), real=True)
    return np.fft.irfft(np.fft.rfft(factor, size) * np.fft.rfft(x, size), size)[: len(x)]


def noisy_prefix_sums(
    cells: Integers, *, noise_multiplier: float, relation: Relation, source: SecureSource
) -> tuple[Reals, Reals]:
    """Prefix sums (m,) of cell counts with the privacy of one Gaussian of this multiplier, and their noise variances (m,).

    The ledger must have been charged before.

    Arguments:
        cells: (m,) int64, records of disjoint cells, private; under replace_one the last cell of all may be left out when n
            is public.
        noise_multiplier: noise std / L2 sensitivity under `relation` itself.

    Raises:
        TypeError: `source` is not a secure source, or the cells are not int64.
        ValueError: no cells, or a multiplier that is not > 0.
    """
    source = require_secure(source)
    if cells.dtype != np.int64 or cells.ndim != 1:
        raise TypeError(f"cells are {cells.dtype} of shape {cells.shape}; they must be int64 counts (m,)")
    m = len(cells)
    factor = square_root_factor(m)
    std = require_positive("noise_multiplier", noise_multiplier) * prefix_sensitivity(m, relation)
    noise = toeplitz_product(factor, source.unrounded_normal(m, noise_std=std, dtype=torch.float64).numpy())
    grid = min(1.0, grid_step(std))
    released = np.cumsum(cells) * int(1 / grid) + np.rint(noise / grid).astype(np.int64)
    return np.asarray(released * grid, np.float64), std**2 * np.cumsum(factor**2)
