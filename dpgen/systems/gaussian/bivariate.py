"""Upper tails of the normal and the bivariate normal distribution, vectorised."""

import math

import numpy as np
import torch
from torch import Tensor

_NODES, _WEIGHTS = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(64))


def upper_tail(h: Tensor) -> Tensor:
    """P(Z > h) of a standard normal."""
    return torch.special.ndtr(-h.double())


def orthant(h: Tensor, k: Tensor, correlation: Tensor) -> Tensor:
    r"""P(X > h, Y > k) of standard normals with a correlation, all (m,), to about 1e-9.

    .. math:: \Phi(-h)\Phi(-k) + \frac{1}{2\pi} \int_0^{\arcsin \rho}
        \exp\Big(-\frac{h^2 + k^2 - 2 h k \sin\theta}{2 \cos^2\theta}\Big) d\theta

    Source: Plackett 1954; Drezner, Wesolowsky 1990. 64 Gauss-Legendre nodes; correlations are kept within 1 - 1e-9.

    >>> orthant(torch.zeros(1), torch.zeros(1), torch.tensor([0.5])).item()
    0.33333...
    """
    h, k = h.double(), k.double()
    angle = torch.arcsin(correlation.double().clamp(-1 + 1e-9, 1 - 1e-9))
    theta = angle[:, None] * (_NODES + 1.0) / 2.0
    square = (h.square() + k.square())[:, None] - 2.0 * (h * k)[:, None] * theta.sin()
    exponent = -square / (2.0 * theta.cos().square())
    integral = (exponent.exp() @ _WEIGHTS) * angle / 2.0
    return (upper_tail(h) * upper_tail(k) + integral / (2.0 * math.pi)).clamp(0.0, 1.0)
