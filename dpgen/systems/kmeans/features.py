"""Random Fourier features: a finite feature map whose inner products approximate the RBF kernel."""

import math

import torch
from torch import Tensor, nn

NORM = 2.0**23
"""Whole numbers of `RandomFourierFeatures.whole` in a norm of 1: float32 holds them, and float64 their products."""
_TABLE_BITS = 16
_EXACT_BITS = 52  # products and partial sums stay below 2^53, where float64 holds every whole number
_MOST_PHASE_BITS = 60  # shifts of int64


class RandomFourierFeatures(nn.Module):
    r"""Maps records to d features with :math:`z(x)^\top z(y) \approx \exp(-\gamma |x - y|^2)` and norm at most 1.

    .. math:: z(x) = \sqrt{2/d} \, [\cos(x W), \sin(x W)], \quad W_{ij} \sim N(0, 2 \gamma), \ W \in R^{m \times d/2}

    Acs et al. 2017 (Algorithm 2) use :math:`\sqrt{2/d} \cos(x W + b)`, whose norm is 1 in expectation only (their
    Theorem 2): single records exceed it, so it bounds no sensitivity. Pairs have :math:`\cos^2 + \sin^2 = 1` for every
    record and approximate the kernel better (root mean square error .051 against .061 at d = 200).
    The paper's kernel width needs *variance* :math:`2\gamma`, not standard deviation :math:`2\gamma`.

    Formal guarantees, on any device, for any batch, number of threads and order of summation:
        - A record's features are a function of that record alone, bit for bit. Entries of x and of :math:`W / 2\pi` are
          whole multiples of :math:`2^{-g}` and :math:`2^{-h}`, so coarse that every partial sum of xW is a whole number
          of :math:`2^{-g-h}` turns below :math:`2^{53}`: float64 products are exact, whichever kernel computes them. The
          phase is reduced modulo a turn by integer arithmetic and looked up in a table of :math:`2^{16}` angles.
        - Norms are at most 1, exactly: table entries are :math:`R \cos, R \sin` cut towards zero to whole numbers with
          :math:`R = \lfloor 2^{23} \sqrt{2/d} \rfloor`, so :math:`\sum c^2 + s^2 \le (d/2) R^2 \le 2^{46}`.

    | case | what holds |
    |---|---|
    | norms | between 1 - 4 sqrt(d) 2^-23 and 1 |
    | phases | right to 2^-17 of a turn: features to 5e-5 of their size, a thousandth of the kernel's own error |
    | an entry beyond `largest` | counts as `largest` |
    | a NaN | an arbitrary phase of that record; no other record is touched |

    `n_inputs` is m, `n_features` d, even; gamma is in units of 1 / distance^2; `largest` bounds the absolute value of entries
    and is public, and so are the frequencies, which are independent of the data.

    Source: Rahimi and Recht 2007.

    >>> features = RandomFourierFeatures(784, 200, gamma=0.01, generator=torch.Generator().manual_seed(0))
    >>> z = features(torch.ones(3, 784))
    >>> bool((z.norm(dim=1) <= 1).all()), round(float(z[0].norm()), 4)
    (True, 1.0)
    """

    turns: Tensor
    grid: Tensor
    cosines: Tensor

    def __init__(
        self, n_inputs: int, n_features: int, *, gamma: float, generator: torch.Generator, largest: float = 1.0
    ) -> None:
        super().__init__()
        if n_inputs < 1:
            raise ValueError(f"n_inputs is {n_inputs!r}; it must be a whole number >= 1")
        if n_features < 2 or n_features % 2:
            raise ValueError(f"n_features is {n_features!r}; it must be an even number >= 2 (pairs of cosine and sine)")
        if not 0 < gamma < math.inf:
            raise ValueError(f"gamma is {gamma!r}; it must be a finite number > 0")
        if not 0 < largest < math.inf:
            raise ValueError(f"largest is {largest!r}; it must be a finite number > 0")
        spread = math.sqrt(2 * gamma) / (2 * math.pi)
        weights = spread * torch.randn(n_inputs, n_features // 2, generator=generator).double()
        self._place(*_on_grids(weights, largest, spread))

    @classmethod
    def restored(cls, turns: Tensor, grid: Tensor) -> "RandomFourierFeatures":
        """The features whose `turns` and `grid` were saved."""
        features = cls.__new__(cls)
        nn.Module.__init__(features)
        features._place(turns, grid)
        return features

    def _place(self, turns: Tensor, grid: Tensor) -> None:
        """Whole numbers: changes of a module's floating-point dtype leave them alone."""
        self.register_buffer("turns", turns)
        self.register_buffer("grid", grid)
        self.register_buffer("cosines", circle_cosines(turns.shape[1]).to(turns.device), persistent=False)

    @property
    def frequencies(self) -> Tensor:
        """W (m, d/2), float64."""
        return self.turns.double() * (2 * math.pi * 0.5 ** int(self.grid[1]))

    def whole(self, x: Tensor) -> Tensor:
        """Features (n, d) of records (n, m) as whole numbers of 2^-23, float64; no row is longer than 2^23."""
        entry_bits, turn_bits, most = self.grid.tolist()
        scale = 2.0**entry_bits
        if x.is_floating_point() or scale < 1:
            phases = (x.double() * scale).round_().clamp_(-most, most) @ self.turns.double()
        else:  # whole already
            largest = int(most / scale)
            x = x if x.dtype == torch.bool or (x.dtype == torch.uint8 and largest >= 255) else x.clamp(max=largest)
            x = x.clamp(min=-largest) if x.dtype.is_signed else x
            phases = x.double() @ (self.turns.double() * scale)
        excess = entry_bits + turn_bits - _TABLE_BITS
        steps = phases.to(torch.int64).add_(1 << (excess - 1)).bitwise_right_shift_(excess)
        last, quarter = (1 << _TABLE_BITS) - 1, 1 << (_TABLE_BITS - 2)
        angles = torch.cat([steps, steps - quarter], dim=1).bitwise_and_(last)
        return self.cosines.index_select(0, angles.flatten()).view(angles.shape).double()

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, d) of records (n, m), float64."""
        return self.whole(x) / NORM


def _on_grids(weights: Tensor, largest: float, spread: float) -> tuple[Tensor, Tensor]:
    """Frequencies in whole numbers of 2^-h turns, and (g, h, largest entry in 2^-g), so that products are exact.

    What rounding costs in phase is the same for entries and frequencies: 2^-g spread = 2^-h largest.
    """
    reach = largest * float(weights.abs().sum(0).max())
    total = min(_MOST_PHASE_BITS, math.floor(_EXACT_BITS - math.log2(reach)))
    if total <= _TABLE_BITS:
        raise ValueError(
            f"gamma and the range of entries are so large that phases reach {reach:.3g} turns; at most 2^35 are exact"
        )
    entry_bits = round((total - math.log2(largest / spread)) / 2)
    while True:
        turn_bits, most = total - entry_bits, math.ceil(largest * 2.0**entry_bits)
        turns = (weights * 2.0**turn_bits).round().to(torch.int64)
        if most * int(turns.abs().sum(0).max()) < 2**53:
            return turns, torch.tensor([entry_bits, turn_bits, most])
        total -= 1


def circle_cosines(pairs: int) -> Tensor:
    """floor(2^23 / sqrt(pairs)) cos(2 pi j / 2^16), cut towards zero, int32.

    What is cut is lowered by 2^-30 of itself first, more than a library's cosine is wrong by, so that no entry exceeds
    the truth: c^2 + s^2 <= R^2.
    """
    radius = math.isqrt(2**46 // pairs)
    angles = torch.arange(1 << _TABLE_BITS, dtype=torch.float64) * (2 * math.pi / (1 << _TABLE_BITS))
    return (angles.cos() * (radius * (1.0 - 2.0**-30))).trunc().to(torch.int32)
