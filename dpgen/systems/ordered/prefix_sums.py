"""Private prefix sums by correlated Gaussian noise: the square root of the all-ones triangle as factor on both sides."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from scipy.fft import next_fast_len

from dpgen.privacy.noise import SecureSource, require_secure
from dpgen.privacy.parallel import Relation
from dpgen.systems.ordered.knots import Reals
from dpgen.systems.ordered.sensitivities import prefix_factor_l2


@lru_cache(maxsize=16)
def square_root_factor(m: int) -> Reals:
    r"""First column f (m,) of the lower triangular Toeplitz matrix B with B B = A, the matrix of prefix sums.

    .. math:: f_0 = 1, \qquad f_k = f_{k-1} \frac{2k - 1}{2k}, \qquad \textstyle\sum_k f_k z^k = (1 - z)^{-1/2}

    Source: Fichtenberger, Henzinger, Upadhyay 2023, Theorem 1; Henzinger, Upadhyay, Upadhyay 2023.

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
    """L2 distance by which one record moves B x, x being counts of m cells."""
    return prefix_factor_l2(square_root_factor(m), relation)


def toeplitz_product(factor: Reals, x: Reals) -> Reals:
    """The lower triangular Toeplitz matrix with first column `factor` (m,), times x (m,), by FFT.

    >>> toeplitz_product(np.array([1.0, 1.0, 1.0]), np.array([1.0, 2.0, 3.0])).round(9).tolist()
    [1.0, 3.0, 6.0]
    """
    size = next_fast_len(2 * len(x), real=True)
    return np.fft.irfft(np.fft.rfft(factor, size) * np.fft.rfft(x, size), size)[: len(x)]


def noisy_prefix_sums(
    counts: npt.ArrayLike, *, noise_multiplier: float, relation: Relation, source: SecureSource
) -> tuple[Reals, Reals]:
    r"""Prefix sums (m,) of counts (m,) with the privacy of one Gaussian of this multiplier, and their noise variances.

    B x + z with :math:`z \sim N(0, \sigma^2 \Delta^2 I)` is the Gaussian mechanism; A x + B z = B (B x + z) follows from it.
    The error of a prefix sum has std :math:`\sigma \Delta \|row\|`, both factors about
    :math:`(1 + \ln(m) / \pi)^{1/2}`: better than a tree's :math:`\log_2 m` noisy nodes.

    Arguments:
        counts: records of disjoint cells, private; under replace_one the last cell may be left out when n is public.
        noise_multiplier: noise std / L2 sensitivity under `relation`.
        relation: neighbouring relation.
        source: secure noise. The ledger must have been charged before.
    """
    source = require_secure(source)
    cells = np.asarray(counts, np.float64)
    m = len(cells)
    factor = square_root_factor(m)
    std = noise_multiplier * prefix_sensitivity(m, relation)
    half = torch.from_numpy(toeplitz_product(factor, cells))
    noisy = source.add_normal_(half, noise_std=std).numpy()
    return toeplitz_product(factor, noisy), std**2 * np.cumsum(factor**2)
