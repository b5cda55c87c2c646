r"""A public lattice of cells in a box, and private draws that pass a record's cell through a channel.

How much a round of boosting brought, proved and estimated. COMPUTED ON PRIVATE DATA, NOT FOR RELEASE.

The published bounds (Husain et al. 2020, Theorems 5 and 6; 2018, Theorems 6 and 7) do not hold as printed:
    - the low regime lacks a factor :math:`c^*`, the high regime needs :math:`c^* = \log 2`;
    - the lower bound on the total gain uses :math:`\Gamma(z) \ge z \log 2`, which is false for z < 1.
Both are here as published, for comparison; the chord bound is what holds.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import pandas as pd
import torch
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.events import pure_event
from dpgen.privacy.ledger import Planned
from dpgen.privacy.limits import require_whole
from dpgen.privacy.mechanisms import Secrets
from dpgen.release import Draws, PrivateDensity, PrivateSampler
from dpgen.statement import UNPROTECTED, PrivacyStatement
from dpgen.systems.mbde.densities import Box, Law, mollified
from dpgen.systems.mbde.plan import GRID_CELLS, LOG2, DrawPlan
from dpgen.systems.mbde.references import UniformReference
from dpgen.systems.plan import CHOSEN_BLIND, SECURE_NOISE
from dpgen.systems.private_data import PrivatePoints

# -- cells -------------------------------------------------------------------------------------------------------------


WORD = 2**52
"""Channels give every cell a whole number of this many equally likely words, so their law is exact."""


class Lattice:
    """Equal cells, `per_axis` on each axis of a public box (d, 2).

    Raises:
        ValueError: no whole number of cells in [2, 2^24] on an axis.
    """

    def __init__(self, bounds: Tensor, per_axis: int) -> None:
        require_whole("cells", per_axis, *GRID_CELLS)
        self.bounds, self.per_axis, self.reference = bounds.to(torch.float64), per_axis, UniformReference(bounds)

    @property
    def d(self) -> int:
        """Number of axes."""
        return len(self.bounds)

    def index(self, x: Tensor) -> Tensor:
        """Cell (n, d), int64, of points (n, d); points outside belong to the nearest cell."""
        low, high = self.bounds.unbind(1)
        return ((x - low) / (high - low) * self.per_axis).floor().clamp(0, self.per_axis - 1).to(torch.int64)

    def flat(self, index: Tensor) -> Tensor:
        """Number (n,) of cells (n, d) in row-major order."""
        powers = self.per_axis ** torch.arange(self.d - 1, -1, -1)
        return (index * powers).sum(1)

    def unflat(self, number: Tensor) -> Tensor:
        """Cells (n, d) of their numbers (n,)."""
        powers = self.per_axis ** torch.arange(self.d - 1, -1, -1)
        return number[:, None] // powers % self.per_axis

    def scatter(self, index: Tensor, secrets: Secrets) -> Tensor:
        """A uniform point (n, d) of each cell: independent of everything private but the cell."""
        low, high = self.bounds.unbind(1)
        return low + (high - low) * (index + secrets.uniform(*index.shape)) / self.per_axis


class CellLaw(PrivateDensity):
    """The law of a draw: a record's cell, sent through a channel. PRIVATE: it shows the data, only draws may leave.

    Arguments:
        x: private points (n, d) inside the box; of none the middle of the box stands in, for how many there are is private.
        lattice: public.
        epsilon: of one draw.
    """

    def __init__(self, x: Tensor, *, lattice: Lattice, epsilon: float) -> None:
        self.lattice, self.reference, self.epsilon = lattice, lattice.reference, epsilon
        self._cells = lattice.index(x if len(x) else lattice.bounds.mean(1)[None])

    def log_ratio(self, x: Tensor) -> Tensor:
        """Log density (m,) at points (m, d) relative to the reference; points outside count as the nearest ones inside."""
        return self._ratio(self.lattice.index(x)).log()

    @abstractmethod
    def _ratio(self, cells: Tensor) -> Tensor:
        """Density (m,) in cells (m, d), relative to the reference."""

    @abstractmethod
    def send(self, cells: Tensor, secrets: Secrets) -> Tensor:
        """The cells (k, d) that the channel makes of these (k, d), in an amount of work that does not depend on them."""

    def pick(self, k: int, secrets: Secrets) -> Tensor:
        """Cells (k, d) of k records, each drawn uniformly; any mixture of records keeps the guarantee."""
        return self._cells[(secrets.uniform(k) * len(self._cells)).to(torch.int64)]

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be saved, pickled or copied: it holds the cell of every record")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(epsilon={self.epsilon:g}, {self.lattice.per_axis}^{self.lattice.d} cells)"


class CellSampler(PrivateSampler):
    """Draws of a `CellLaw`."""

    def __init__(self, law: CellLaw, *, curator: Curator, note: str) -> None:
        super().__init__(epsilon=law.epsilon, curator=curator, note=note)
        self._law = law

    def draw(self, secrets: Secrets, count: int) -> Tensor:
        return self._law.lattice.scatter(self._law.send(self._law.pick(count, secrets), secrets), secrets)


def words(count: int, secrets: Secrets) -> Tensor:
    """Uniform whole numbers (count,), int64, in [0, WORD)."""
    return (secrets.uniform(count) * WORD).to(torch.int64)


def require_box(data: PrivatePoints) -> Tensor:
    """The public bounds (d, 2) of data whose points lie inside.

    Raises:
        ValueError: there are none, or a point lies outside.
    """
    if data.bounds is None:
        raise ValueError("bounds is None; this mechanism works in a public box: give bounds, such as [[0, 1], [-5, 5]]")
    low, high = data.bounds.unbind(1)
    if not bool(((data.x >= low) & (data.x <= high)).all()):
        raise ValueError("x has points outside its public bounds or NaN; clamp them before, or widen the bounds")
    return data.bounds


def release_draws(
    make: Callable[..., CellLaw], data: PrivatePoints, *, cells: int, plan: DrawPlan, curator: Curator, note: str
) -> Draws:
    """Declare and make the draws of a law, with their statement; the law stays with the release for evaluation.

    Arguments:
        make: the law of points x with `lattice` and `epsilon`.
        cells: of the lattice, on each axis.
        note: what the draws are called in the ledger.

    Raises:
        ValueError: points outside the public bounds, or numbers that the law cannot serve; nothing was declared.
        BudgetExceeded: the ledger does not allow the draws.
    """
    law = make(data.x, lattice=Lattice(require_box(data), cells), epsilon=plan.per_draw)
    curator.declare(Planned(pure_event(plan.per_draw), note, plan.draws))
    points = CellSampler(law, curator=curator, note=note).sample(plan.draws)
    table = pd.DataFrame(points.numpy(), columns=list(data.columns))
    statement = PrivacyStatement.from_ledger(curator.ledger, assumptions=(CHOSEN_BLIND, SECURE_NOISE))
    return Draws(table, statement=statement, origin=law)


# -- certificates ------------------------------------------------------------------------------------------------------


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
    """What one round is worth, from classifier values at private points and at public ones.

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
        """What the round brings at least, given these edges."""
        return chord_bound(self.theta, self.gamma_p, self.gamma_q)

    @property
    def published_drop(self) -> float:
        """What Theorem 5 claims, as printed."""
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


def plug_in_row(law: Law, x: Tensor, y: Tensor) -> dict[str, Any]:
    """Estimated gain of a plug-in mollification over the reference, beside its ceiling.

    Arguments:
        x: points of P (n, d).
        y: points of Q0 (m, d).
    """
    log_mean = float(torch.logsumexp(law.log_ratio(y), 0)) - math.log(len(y))
    drop = float(law.log_ratio(x).mean()) - log_mean
    return {"round": "all", "drop": drop, "ceiling": law.box.ceiling, "log_normaliser": log_mean, "note": NOTE}


@dataclass(frozen=True, kw_only=True)
class MollificationGap:
    """How far a density is from the best one in its box: likelihoods in nats, by quadrature (1-D and 2-D)."""

    nll: float
    optimal: float
    reference: float

    @classmethod
    def of(cls, log_p: Tensor, log_q0: Tensor, log_ratio: Tensor, *, volume: Tensor | float, box: Box) -> MollificationGap:
        """From log densities and the law's `log_ratio` at quadrature nodes (m,) with volumes (m,); all are normalised here."""
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
