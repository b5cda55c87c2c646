"""Log-moments of Gaussian mechanisms, and the accountant of Acs et al. 2017 as published.

Notation: `alpha(lambda) = log E_P (P / Q)^lambda = lambda * RDP(lambda + 1)`, the worse of both directions.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

# Orders (lambda) at which moments are kept: fine where epsilon is decided, sparse at both ends.
ORDERS: tuple[float, ...] = tuple(
    float(f"{x:.4g}") for x in [*np.geomspace(1e-3, 0.9, 14), *np.geomspace(1, 64, 61), *np.geomspace(70, 2e4, 30)]
)
_SMALL = 0.25
_TERMS = 16


def _exp_remainder(u: Array) -> Array:
    """`e^u - 1 - u` without cancellation."""
    near = np.abs(u) < _SMALL
    v = np.where(near, u, 0.0)
    series = np.zeros_like(v)
    for n in range(_TERMS, 1, -1):
        series = (series + 1.0) * v / n
    return np.where(near, series * v, np.expm1(np.minimum(u, 700.0)) - u)


def _log_remainder(x: Array) -> Array:
    """`log(1 + x) - x` without cancellation, `x > -1`."""
    near = np.abs(x) < _SMALL
    v = np.where(near, x, 0.0)
    # log1p(x) = 2 artanh(x / (2 + x)); the odd series in s converges as 0.12^2n
    s = v / (2.0 + v)
    series = np.zeros_like(v)
    for n in range(_TERMS, 0, -1):
        series = (series + 1.0 / (2 * n + 1)) * s * s
    return np.where(near, 2.0 * s * series - s * v, np.log1p(x) - x)


def _grid(centre: float, noise_multiplier: float) -> tuple[Array, Array]:
    """Trapezoid nodes and log-weights of N(0, sigma^2), wide enough for a tilt that moves the mass to `centre`."""
    reach = 12.0 * noise_multiplier
    # the integrand is analytic up to |Im z| = pi sigma^2 (a zero of the mixture), the Gaussian asks for sigma / 3
    step = min(noise_multiplier / 4.0, noise_multiplier**2 / 2.5)
    low, high = min(0.0, centre) - reach, max(0.0, centre) + reach
    count = math.ceil((high - low) / step)
    if count > 4_000_000:
        raise ValueError(f"noise_multiplier is {noise_multiplier!r}; it is too small for order {centre:.3g}")
    z = low + step * np.arange(count + 1)
    return z, -0.5 * (z / noise_multiplier) ** 2 + math.log(step / (noise_multiplier * math.sqrt(2 * math.pi)))


def _ratio(z: Array, sampling_rate: float, noise_multiplier: float) -> tuple[Array, Array]:
    """`x = q (e^t - 1)` (capped) and `log(1 + x)` (not capped), with `t` the loss of the unsampled Gaussian at z."""
    t = (2.0 * z - 1.0) / (2.0 * noise_multiplier**2)
    x = sampling_rate * np.expm1(np.minimum(t, 700.0))
    kept = math.log1p(-sampling_rate) if sampling_rate < 1 else -math.inf
    far = np.logaddexp(kept, math.log(sampling_rate) + t)
    log_ratio = np.where(np.abs(x) < 0.5, np.log1p(np.clip(x, -0.5, 0.5)), far)  # 1 + x would cancel at x near -1
    return x, log_ratio


def _log_mean(log_weights: Array, exponent: Array, linear: Array) -> float:
    """`log(1 + sum w (e^u - 1 - u + r))` for nonnegative summands, in log space where `e^u` is large."""
    large = exponent > 30.0
    with np.errstate(divide="ignore"):
        small = np.log(np.maximum(np.where(large, 0.0, _exp_remainder(np.where(large, 0.0, exponent)) + linear), 0.0))
    log_terms = log_weights + np.where(large, exponent, small)
    top = float(log_terms.max())
    if top == -math.inf:
        return 0.0
    return float(np.logaddexp(0.0, top + math.log(float(np.exp(log_terms - top).sum()))))


def _power_moment(power: float, sampling_rate: float, noise_multiplier: float) -> float:
    """`log E (1 + x)^power` over `z ~ N(0, sigma^2)`: power lambda + 1 is removing a record, -lambda adding one."""
    z, log_weights = _grid(max(power, 0.0), noise_multiplier)
    x, log_ratio = _ratio(z, sampling_rate, noise_multiplier)
    return _log_mean(log_weights, power * log_ratio, power * np.where(power * log_ratio > 30, 0.0, _log_remainder(x)))


def _check(order: float, sampling_rate: float, noise_multiplier: float) -> None:
    if not (math.isfinite(order) and order > 0):
        raise ValueError(f"order is {order!r}; it must be a finite number > 0")
    if not 0 <= sampling_rate <= 1:
        raise ValueError(f"sampling_rate is {sampling_rate!r}; it must lie in [0, 1]")
    if not (math.isfinite(noise_multiplier) and noise_multiplier > 0):
        raise ValueError(f"noise_multiplier is {noise_multiplier!r}; it must be a finite number > 0")


@lru_cache(maxsize=4096)
def subsampled_gaussian_alpha(order: float, sampling_rate: float, noise_multiplier: float) -> float:
    """Log-moment `alpha(order)` of one Poisson-sampled Gaussian, any real order > 0, add/remove-one.

    `alpha = log E_z (1 + x)^(order + 1)`, `x = q (e^((2z - 1) / (2 sigma^2)) - 1)`, `z ~ N(0, sigma^2)`, by the
    trapezoid rule on `(1 + x)^a - 1 - a x` (nonnegative, and `E x = 0`), so that nothing cancels at small q or large
    sigma. Removing a record is the worse direction (Mironov, Talwar, Zhang 2019, Theorem 5).

    >>> round(subsampled_gaussian_alpha(3.0, 1.0, 2.0), 12) == 3 * 4 / (2 * 2.0**2)
    True
    """
    _check(order, sampling_rate, noise_multiplier)
    if sampling_rate == 0:
        return 0.0
    if sampling_rate == 1:
        return order * (order + 1) / (2 * noise_multiplier**2)
    return _power_moment(order + 1, sampling_rate, noise_multiplier)


@lru_cache(maxsize=4096)
def replaced_alpha(order: float, sampling_rate: float, noise_multiplier: float) -> float:
    """Log-moment for replace-one: `(1-q) N(0) + q N(-1)` against `(1-q) N(0) + q N(1)`, in units of the sensitivity."""
    _check(order, sampling_rate, noise_multiplier)
    if sampling_rate == 0:
        return 0.0
    if sampling_rate == 1:
        return 4 * order * (order + 1) / (2 * noise_multiplier**2)
    # at rates near 1 the ratio tilts the mass by order + 1 one way and by order the same way again
    z, log_weights = _grid(2 * order + 1, noise_multiplier)
    x, log_up = _ratio(z, sampling_rate, noise_multiplier)
    y, log_down = _ratio(-z, sampling_rate, noise_multiplier)
    exponent = (order + 1) * log_up - order * log_down
    linear = (order + 1) * _log_remainder(x) - order * _log_remainder(y)
    return _log_mean(log_weights, exponent, np.where(exponent > 30, 0.0, linear))


def rdp_epsilon(alphas: Array, delta: float, orders: Array) -> float:
    """Smallest `epsilon` that the log-moments `alphas` (t,) at `orders` (t,) prove at `delta`.

    `eps = min alpha / lambda + log(lambda / (lambda + 1)) - log(delta (lambda + 1)) / lambda`: Canonne, Kamath,
    Steinke 2020, Proposition 12, at Renyi order `lambda + 1`.

    >>> 0 < rdp_epsilon(np.array([0.1]), 1e-5, np.array([5.0])) < 3
    True
    """
    values = alphas / orders + np.log(orders / (orders + 1)) - (math.log(delta) + np.log(orders + 1)) / orders
    return max(0.0, float(np.min(np.where(np.isnan(values), np.inf, values))))


def rdp_delta(alphas: Array, epsilon: float, orders: Array) -> float:
    """Smallest `delta` that the log-moments prove at `epsilon`: the same proposition, solved for delta.

    >>> alphas, orders = np.array([0.1]), np.array([5.0])
    >>> round(rdp_delta(alphas, rdp_epsilon(alphas, 1e-5, orders), orders), 12)
    1e-05
    """
    logs = alphas - orders * epsilon + (orders + 1) * np.log(orders / (orders + 1)) - np.log(orders)
    return float(np.exp(min(0.0, float(np.min(np.where(np.isnan(logs), np.inf, logs))))))


_SHARES = tuple(j / 11 for j in range(1, 11))  # ten values, as the paper takes


def general_moments_epsilon(
    *,
    sampling_rate: float,
    steps: int,
    sigma_sgd: float,
    delta: float,
    sigma_norm: float | None = None,
    kmeans_rounds: int = 0,
    sigma_kmeans: float | None = None,
    sigma_count: float | None = None,
) -> float:
    """Epsilon of DPGM by Acs et al. 2017, Theorems 3 and 4: as published, not a guarantee.

    `alpha(l) = T_K l (l + 1) / 2 (1/sigma_count^2 + 1/sigma_kmeans^2) + T_S min_j [j a_C(l / j) + (1-j) a_S(l /
    (1-j))]`, `eps = min_l (alpha(l) - log delta) / l` over integers `l <= 100`, with `a_C`, `a_S` the moments of
    DPNorm and of the clipped sum, each Poisson-sampled. Sigmas are noise multipliers (std / add-remove sensitivity):
    the paper's `sigma` for SGD and `sqrt(2) sigma_K` for k-means, whose moments its Lemma 1 takes with `N(0, sqrt(2)
    sigma)`; None where there is none (`sigma_count`: as for the sums).

    Theorem 3 applies Hoelder to marginal losses where the chain rule needs conditional ones. Counterexample: A1
    releases a secret shared coin R, A2 releases R xor x; both moments are 0 and the pair reveals x. With `sigma_norm
    = sigma_sgd = 0.7`, q = 0.0017, 11,780 steps, delta 1e-5 it states 7.22 where no guarantee below 8.53 holds. The
    guarantee dpgen uses is `effective_multiplier`.
    """
    if steps < 0 or kmeans_rounds < 0:
        raise ValueError(f"steps is {steps!r} and kmeans_rounds is {kmeans_rounds!r}; both must be >= 0")
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta!r}; it must lie in (0, 1)")
    if kmeans_rounds and sigma_kmeans is None:
        raise ValueError(f"sigma_kmeans is None; {kmeans_rounds} k-means rounds need it")

    def alpha(order: int) -> float:
        total = 0.0
        if kmeans_rounds and sigma_kmeans is not None:
            total += kmeans_rounds * order * (order + 1) / 2 * ((sigma_count or sigma_kmeans) ** -2 + sigma_kmeans**-2)
        if steps:
            total += steps * _shared_draw_alpha(order, sampling_rate, sigma_norm, sigma_sgd)
        return total

    return min((alpha(order) - math.log(delta)) / order for order in range(1, 101))


def _shared_draw_alpha(order: int, sampling_rate: float, sigma_norm: float | None, sigma_sgd: float) -> float:
    """Theorem 3 for two mechanisms on one draw."""
    if sigma_norm is None:
        return subsampled_gaussian_alpha(order, sampling_rate, sigma_sgd)
    return min(
        j * subsampled_gaussian_alpha(order / j, sampling_rate, sigma_norm)
        + (1 - j) * subsampled_gaussian_alpha(order / (1 - j), sampling_rate, sigma_sgd)
        for j in _SHARES
    )
