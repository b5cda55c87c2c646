"""Empirical lower bounds on what a mechanism leaks: sampling can refute a claimed (epsilon, delta), never prove it."""

import math

import torch
from scipy.stats import beta
from torch import Tensor


def delta_lower_bound(first: Tensor, second: Tensor, epsilon: float, *, confidence: float = 1 - 1e-6) -> float:
    r"""Lower confidence bound on :math:`\sup_t P(X > t) - e^\epsilon P(Y > t)`, the hockey-stick divergence of two outputs.

    `first` and `second` (m,) are independent values of one statistic of the output on two neighbouring data sets. Half of
    them choose the threshold t, the other half bound both probabilities (Clopper-Pearson, union bound), so the result is
    valid for any statistic. A mechanism that is (epsilon, delta)-private gives more than delta with probability at most
    1 - confidence, for either order of the two data sets.

    Raises:
        ValueError: fewer than 100 values, or confidence outside (0, 1).

    Source: hypothesis-testing view of differential privacy, Kairouz, Oh, Viswanath 2015.
    """
    if min(first.numel(), second.numel()) < 100:
        raise ValueError(f"first and second must hold at least 100 values, got {first.numel()} and {second.numel()}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    choose_first, test_first = first.double()[0::2], first.double()[1::2]
    choose_second, test_second = second.double()[0::2], second.double()[1::2]
    thresholds = torch.cat([choose_first, choose_second]).unique()
    gains = _tail(choose_first, thresholds) - math.exp(epsilon) * _tail(choose_second, thresholds)
    threshold = thresholds[gains.argmax()]
    miss = (1 - confidence) / 2
    hits, trials = int((test_first > threshold).sum()), test_first.numel()
    low = float(beta.ppf(miss, hits, trials - hits + 1)) if hits else 0.0
    hits, trials = int((test_second > threshold).sum()), test_second.numel()
    high = float(beta.ppf(1 - miss, hits + 1, trials - hits)) if hits < trials else 1.0
    return max(0.0, low - math.exp(epsilon) * high)


def _tail(values: Tensor, thresholds: Tensor) -> Tensor:
    """Share of the values above each of the (sorted) thresholds."""
    return 1.0 - torch.searchsorted(values.sort().values, thresholds, right=True) / values.numel()
