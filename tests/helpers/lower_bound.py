"""Optimistic privacy losses for tests: rounded down, so the result is below the truth by at most `count * step`."""

import math

import numpy as np
from scipy.fft import irfft, rfft
from scipy.stats import norm


def single(rate, sigma, step, *, add=False, reach=9.0):
    """Losses of one Poisson-sampled Gaussian, rounded down: (lowest index, masses)."""
    x = np.linspace(-reach * sigma, 1 + reach * sigma, 400_001)
    loss = np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * sigma**2))
    mixture = (1 - rate) * norm.cdf(x / sigma) + rate * norm.cdf((x - 1) / sigma)
    masses = np.diff(norm.cdf(x / sigma) if add else mixture)
    low = -loss[1:] if add else loss[:-1]  # the smaller end of each cell
    index = np.floor(low / step).astype(int)
    return index.min(), np.bincount(index - index.min(), masses)


def power(start, masses, count, *, longest=1 << 21):
    """Masses of the sum of `count` losses, by one FFT; a window about the mean when all of them would not fit."""
    full = (len(masses) - 1) * count + 1
    size = min(full, longest)
    composed = irfft(rfft(masses, max(size, len(masses))) ** count, max(size, len(masses)))[:size]
    if full <= longest:
        return start * count, np.maximum(composed, 0)
    offset = int(count * (masses @ np.arange(len(masses)))) - size // 3
    return start * count + offset, np.maximum(np.roll(composed, -offset), 0)


def lower_delta(start, masses, step, epsilon):
    losses = (start + np.arange(len(masses))) * step
    above = losses > epsilon
    return float(masses[above] @ -np.expm1(epsilon - losses[above]))


def lower_epsilon(rate, sigma, count, delta, *, step, add=False):
    """A lower bound on epsilon."""
    start, masses = power(*single(rate, sigma, step, add=add), count)
    low, high = 0.0, (start + len(masses)) * step
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if lower_delta(start, masses, step, middle) > delta else (low, middle)
    return low
