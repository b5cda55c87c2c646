r"""Estimated and proved gains of the rounds of boosting. COMPUTED ON PRIVATE DATA, NOT FOR RELEASE.

The published bounds (Husain et al. 2020, Theorems 5 and 6; 2018, Theorems 6 and 7) do not hold as printed:
    - the low regime lacks a factor :math:`c^*`, the high regime needs :math:`c^* = \log 2`;
    - the lower bound on the total gain uses :math:`\Gamma(z) \ge z \log 2`, which is false for z < 1.
Both are here as published, for comparison; the chord bound holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dpgen.statement import UNPROTECTED
from dpgen.systems.mbde.densities import Box, Density, mollified
from dpgen.systems.mbde.plan import LOG2

NOTE = UNPROTECTED
_HIGH = 1 / 3


def chord_bound(theta: float, gamma_p: float, gamma_q: float, *, c_star: float = LOG2) -> float:
    r"""Least fall of KL(P, Q) in a round, valid in every regime.

    .. math:: \theta c^* \gamma_P - \log(\cosh(\theta c^*) - \gamma_Q \sinh(\theta c^*))

    A convex function lies below its chord: :math:`E_Q e^{\theta c} \le \cosh(\theta c^*) - \gamma_Q \sinh(\theta c^*)` for
    :math:`|c| \le c^*`. Equality if c takes the values :math:`\pm c^*` only.

    Arguments:
        theta: weight of the classifier.
        gamma_p: E_P[c] / c*.
        gamma_q: -E_Q[c] / c*, Q the density before the round.
        c_star: any bound on |c|, > 0; the gammas are relative to it.

    >>> round(chord_bound(1 / (1 + 4 * LOG2), 0.5, 0.5), 4)
    0.1703
    """
    reach = theta * c_star
    return reach * gamma_p - math.log(math.cosh(reach) - gamma_q * math.sinh(reach))


def gamma_function(z: float) -> float:
    """log(4 / (5 - 3 z)) (Husain et al. 2020, Theorem 5)."""
    return math.log(4 / (5 - 3 * z))


def published_drop(theta: float, gamma_p: float, gamma_q: float, *, c_star: float = LOG2) -> float:
    """The fall that Theorem 5 of Husain et al. 2020 claims, as printed; it can be above the true one."""
    if gamma_q >= _HIGH:
        return theta * (c_star * gamma_p + gamma_function(gamma_q))
    return theta * (gamma_p + gamma_q - c_star * theta / 2)


def corrected_drop(theta: float, gamma_p: float, gamma_q: float, *, c_star: float = LOG2) -> float:
    """Theorem 5 with the factors that its proof gives; holds, and is never above `chord_bound`'s truth."""
    if gamma_q >= _HIGH:
        return theta * (c_star * gamma_p + gamma_function(c_star * gamma_q / LOG2))
    return theta * c_star * (gamma_p + gamma_q - c_star * theta / 2)


def published_gain(epsilon: float, rounds: int, gamma_p: float, gamma_q: float) -> float:
    """The total gain that Theorem 6 of Husain et al. 2020 claims in the high regime, as printed; it can be above the truth."""
    last = (epsilon / (epsilon + 4 * LOG2)) ** rounds
    return epsilon / 2 * (gamma_p + gamma_q) / 2 * (1 - last)


@dataclass(frozen=True, kw_only=True)
class RoundCertificate:
    """Gain of one round, from classifier values at private points and at public ones.

    Attributes:
        round: from 1.
        theta: weight of the classifier.
        gamma_p, gamma_q: edges relative to c* = log 2.
        drop: estimated fall of KL(P, Q), theta E_P[c] - log E_Q[e^(theta c)].
        log_normaliser: estimated log E_Q[e^(theta c)].
    """

    round: int
    theta: float
    gamma_p: float
    gamma_q: float
    drop: float
    log_normaliser: float

    @classmethod
    def of(cls, round: int, theta: float, *, at_private: Tensor, at_public: Tensor, log_weights: Tensor) -> RoundCertificate:
        """Estimate from values c at points of P (n,) and of Q0 (m,), whose weights e^log_weights make them points of Q."""
        weights = torch.softmax(log_weights, 0)
        mean_p, mean_q = float(at_private.mean()), float((weights * at_public).sum())
        log_normaliser = float(torch.logsumexp(log_weights + theta * at_public, 0) - torch.logsumexp(log_weights, 0))
        return cls(
            round=round,
            theta=theta,
            gamma_p=mean_p / LOG2,
            gamma_q=-mean_q / LOG2,
            drop=theta * mean_p - log_normaliser,
            log_normaliser=log_normaliser,
        )

    @property
    def regime(self) -> str:
        """Of Theorem 5: "high", "low", or "none" when the weak learning assumption fails."""
        if min(self.gamma_p, self.gamma_q) <= 0:
            return "none"
        return "high" if self.gamma_q >= _HIGH else "low"

    @property
    def chord_bound(self) -> float:
        """Least gain of the round, given these edges."""
        return chord_bound(self.theta, self.gamma_p, self.gamma_q)

    @property
    def published_drop(self) -> float:
        """Claim of Theorem 5, as printed."""
        return published_drop(self.theta, self.gamma_p, self.gamma_q)

    def row(self) -> dict[str, Any]:
        """For a table."""
        own = {name: getattr(self, name) for name in ("round", "theta", "gamma_p", "gamma_q", "regime", "drop")}
        own |= {"chord_bound": self.chord_bound, "published_drop": self.published_drop}
        return own | {"log_normaliser": self.log_normaliser, "note": NOTE}

    def __str__(self) -> str:
        return (
            f"round {self.round}: gamma_P {self.gamma_p:.3f}, gamma_Q {self.gamma_q:.3f} ({self.regime} regime), drop "
            f"{self.drop:.4f} >= {self.chord_bound:.4f} nats ({NOTE})"
        )


def total_row(rows: list[RoundCertificate], box: Box) -> dict[str, Any]:
    """Sums over rounds beside the ceiling that no density in the box can pass."""
    return {
        "round": "all",
        "drop": sum(r.drop for r in rows),
        "chord_bound": sum(r.chord_bound for r in rows),
        "ceiling": box.ceiling,
        "log_normaliser": sum(r.log_normaliser for r in rows),
        "note": NOTE,
    }


def plug_in_row(density: Density, x: Tensor, y: Tensor) -> dict[str, Any]:
    """Estimated gain of a plug-in mollification over the reference, beside its ceiling.

    Arguments:
        x: points of P (n, d).
        y: points of Q0 (m, d).
    """
    log_mean = float(torch.logsumexp(density.log_ratio(y), 0)) - math.log(len(y))
    drop = float(density.log_ratio(x).mean()) - log_mean
    return {"round": "all", "drop": drop, "ceiling": density.box.ceiling, "log_normaliser": log_mean, "note": NOTE}


@dataclass(frozen=True, kw_only=True)
class MollificationGap:
    """Distance of a density from the best one in its box: likelihoods in nats, by quadrature (1-D and 2-D)."""

    nll: float
    optimal: float
    reference: float

    @classmethod
    def of(cls, log_p: Tensor, log_q0: Tensor, log_ratio: Tensor, *, volume: Tensor | float, box: Box) -> MollificationGap:
        """From log densities and `log_ratio` at quadrature nodes (m,) with volumes (m,); all are normalised here."""
        log_volume = torch.as_tensor(volume, dtype=torch.float64).log()
        p, log_start = torch.softmax(log_p + log_volume, 0), torch.log_softmax(log_q0 + log_volume, 0)
        best = log_start + mollified(log_p - log_q0, box, masses=log_start.exp()).log()
        log_q = torch.log_softmax(log_start + log_ratio, 0)
        nll, optimal, reference = (-float((p * (values - log_volume)).sum()) for values in (log_q, best, log_start))
        return cls(nll=nll, optimal=optimal, reference=reference)

    @property
    def share(self) -> float:
        """Of the best possible gain over the reference, in (-inf, 1]."""
        return (self.reference - self.nll) / (self.reference - self.optimal)

    def __str__(self) -> str:
        return f"NLL {self.nll:.4f}, at best {self.optimal:.4f}: {100 * self.share:.2f} % of the possible gain ({NOTE})"
