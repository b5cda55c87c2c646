"""Samplers that project P into a public box: the relative mollifier, and better boxes for the minimax problem."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from dpgen.divergences import Divergence, perspective
from dpgen.systems.local.kernels import MinimaxSampler
from dpgen.systems.local.sampler import BoxSampler
from dpgen.systems.local.simplex import PRIOR_FLOOR, project_to_box


class RelativeMollifier(BoxSampler, kind="mollifier"):
    r"""Nearest distribution with $e^{-\epsilon/2} \le Q / q \le e^{\epsilon/2}$ (Husain et al. 2020, eqs. 5 and 8).

    The paper takes KL; the projection is the nearest one in every f-divergence (see `project_to_box`).

    >>> RelativeMollifier(1.0, torch.tensor([0.01, 0.99])).apply(torch.tensor([0.05, 0.95])).tolist()
    [0.01648..., 0.98351...]
    """

    def __init__(self, epsilon: float, prior: Tensor | int, *, floor: float = PRIOR_FLOOR) -> None:
        super().__init__(epsilon, prior, floor=floor)
        self.lower = math.exp(-self.epsilon / 2) * self.prior
        self.upper = math.exp(self.epsilon / 2) * self.prior


class ProjectedKernel(BoxSampler, kind="projected_kernel"):
    r"""Projection into the smallest box of ratio $e^\epsilon$ around all that the minimax kernel K releases.

    With $l_j = \min_i K_{ij}$ the box is $l \le Q \le e^\epsilon l$. Proof that it is never worse than K: K is
    epsilon-LDP, so $l_j \le K_{ij} \le e^\epsilon l_j$ for every row, and every PK, being a mixture of rows, lies in the
    box - so does q = qK. The box is an epsilon-mollifier, so projecting is as private; the projection is the nearest
    point in every f-divergence, so no further from P than PK, for any P and any f. It needs P itself, not one draw of it.
    """

    def __init__(self, epsilon: float, prior: Tensor | int, *, floor: float = PRIOR_FLOOR) -> None:
        super().__init__(epsilon, prior, floor=floor)
        kernel = MinimaxSampler(self.epsilon, self.prior)
        self.lower, self._kept = kernel.lower(), kernel.keeps()
        self.upper = math.exp(self.epsilon) * self.lower

    def keeps(self) -> Tensor:
        """Never less than the kernel keeps, which is known without cancellation."""
        return torch.maximum(super().keeps(), self._kept)


class QInvariantMinimax(BoxSampler, kind="q_invariant"):
    r"""The sampler of least worst case, for every f-divergence, among all that release q itself for P = q.

    Projection into $l \le Q \le e^\epsilon l$ with $l_j = \min(\max(\tau, e^{-\epsilon} q_j), q_j)$, where $\tau$ solves
    $E \tau = 1 - \sum_j l_j$, $E = e^\epsilon - 1$ (the left side increases, the right side decreases in $\tau$). The
    box is an epsilon-mollifier that contains q. Proof of optimality: for any epsilon-private sampler with Q(q) = q let
    $l'_j = \inf_P Q_j(P)$. Then $e^{-\epsilon} q \le l' \le q$, and who holds category i only is given it with
    probability $h_i \le \min(e^\epsilon l'_i, 1 - \sum_{j \ne i} l'_j)$; a box attains this bound, and by the closed form
    of `worst_case` the least h decides. Let 1 be the rarest category. If $q_1 \le \tau$, the box has
    $\min h = e^\epsilon q_1$ and no $l'_1$ can exceed $q_1$. Otherwise $l \ge \tau$, $l_1 = \tau$ (were
    $e^{-\epsilon} q_1 > \tau$, so were all and $E \tau = 1 - e^{-\epsilon}$, $\tau = e^{-\epsilon} \ge e^{-\epsilon} q_1$) and
    $\min h = e^\epsilon \tau$. A sampler with all $h_i > e^\epsilon \tau$ has $l' > \tau$ and $l' \ge e^{-\epsilon} q$, so
    $l' \ge l$ and $h_1 \le 1 - \sum_{j > 1} l_j = E \tau + l_1 = e^\epsilon \tau$, a contradiction.

    For the uniform prior it is `ParkSampler`.
    """

    def __init__(self, epsilon: float, prior: Tensor | int, *, floor: float = PRIOR_FLOOR) -> None:
        super().__init__(epsilon, prior, floor=floor)
        q, gap = self.prior, math.expm1(self.epsilon)
        least = math.exp(-self.epsilon) * q
        # E tau + sum clip(tau, e^-eps q, q) = 1 is a projection of (1, ..., 1, E), its last coordinate free.
        ones = torch.nn.functional.pad(torch.ones_like(q), (0, 1), value=gap)
        ends = torch.nn.functional.pad(least, (0, 1)), torch.nn.functional.pad(q, (0, 1), value=torch.inf)
        tau = project_to_box(ones[None], *ends)[0, -1] / gap
        self.lower = torch.clamp(tau, least, q)
        self.upper = math.exp(self.epsilon) * self.lower


class ParkSampler(BoxSampler, kind="park"):
    r"""The minimax sampler without a prior (Park et al. 2024): $Q = \max(P / r, 1 / (e^\epsilon + n - 1))$.

    With `density_bounds` $(c_1, c_2)$ it is their sampler for $c_1 \mu \le P \le c_2 \mu$, with the prior as $\mu$:
    $Q = \mathrm{clip}(P / r, b \mu, e^\epsilon b \mu)$, $a = (1 - c_1) / (c_2 - c_1)$, $b = 1 / (a e^\epsilon + 1 - a)$ -
    the form for continuous domains, here on cells of any size. Without it only the number n of categories counts.

    Arguments:
        density_bounds: public $0 \le c_1 < 1 < c_2$ that users' P / mu keep; a P that breaks them loses utility, not privacy.

    >>> ParkSampler(1.0, 2).apply(torch.tensor([0.05, 0.95])).tolist()
    [0.26894..., 0.73105...]
    """

    def __init__(
        self,
        epsilon: float,
        prior: Tensor | int,
        *,
        density_bounds: tuple[float, float] | None = None,
        floor: float = PRIOR_FLOOR,
    ) -> None:
        size = prior if isinstance(prior, int) else int(torch.as_tensor(prior).numel())
        super().__init__(epsilon, size if density_bounds is None else prior, floor=floor)
        gain = math.exp(self.epsilon)
        self.density_bounds: tuple[float, float] | None = None
        if density_bounds is None:
            self.lower = torch.full_like(self.prior, 1 / (gain + self.n - 1))
        else:
            low, high = require_density_bounds(density_bounds)
            self.density_bounds = low, high
            share = (1 - low) / (high - low)
            self.lower = self.prior / (share * gain + 1 - share)
        self.upper = gain * self.lower

    def get_params(self) -> dict[str, Any]:
        return super().get_params() | {"density_bounds": self.density_bounds}

    def worst_case(self, divergence: Divergence = "tv") -> float:
        r"""As for every sampler; with `density_bounds` over $c_1 \mu \le P \le c_2 \mu$ only, 0 if $c_2 \le e^\epsilon c_1$.

        There the worst P is $c_2 \mu$ on a set of mass a and $c_1 \mu$ elsewhere; if no categories have that mass
        together it is an upper bound, for P is then one of the densities that are constant on cells.
        """
        if self.density_bounds is None:
            return super().worst_case(divergence)
        low, high = self.density_bounds
        gain, share = math.exp(self.epsilon), (1 - low) / (high - low)
        if high <= gain * low:
            return 0.0
        f, base = perspective(divergence), 1 / (share * gain + 1 - share)
        pairs = torch.tensor(
            [[share * high, share * gain * base], [(1 - share) * low, (1 - share) * base]], dtype=torch.float64
        )
        return float(f(pairs[:, 0], pairs[:, 1]).sum())


def require_density_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    """Bounds (c1, c2) on a density P / mu that some P other than mu has.

    Raises:
        ValueError: not 0 <= c1 < 1 < c2 < infinity.
    """
    if len(bounds) != 2 or not 0 <= bounds[0] < 1 < bounds[1] < math.inf:
        raise ValueError(f"density_bounds are {bounds!r}; they must be 0 <= c1 < 1 < c2, finite")
    return float(bounds[0]), float(bounds[1])
