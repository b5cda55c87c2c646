"""Exact output laws on finite codebooks, and the one question that all privacy tests of samplers ask."""

import math
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

SLACK = 1e-9


def worst_log_ratio(first: Sequence[Fraction], second: Sequence[Fraction]) -> float:
    """Largest |log p / p'| over outcomes that either law can produce; inf where only one of them can."""
    worst = 0.0
    for p, q in zip(first, second, strict=True):
        if p == q:
            continue
        if not (p and q):
            return math.inf
        ratio = p / q if p > q else q / p
        worst = max(worst, math.log1p(float(ratio - 1)))
    return worst


def is_private(laws: Sequence[Sequence[Fraction]], epsilon: float) -> bool:
    """Whether every pair of laws is within epsilon (1 + 1e-9)."""
    limit = epsilon * (1 + SLACK)
    return all(worst_log_ratio(a, b) <= limit for i, a in enumerate(laws) for b in laws[:i])


def fractions(row: Tensor) -> list[Fraction]:
    """Whole numbers (m,) as exact probabilities."""
    values = [int(v) for v in row]
    return [Fraction(v, sum(values)) for v in values]


def adversarial(m: int, *, rows: int = 40, seed: int = 0) -> Tensor:
    """Log-ratios (rows + 4, m) from tame to hostile: constant, one point against all, alternating extremes, huge spreads."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.tensor([1e-9, 0.1, 1.0, 10.0, 50.0], dtype=torch.float64).repeat(rows // 5 + 1)[:rows]
    random = torch.randn(rows, m, dtype=torch.float64, generator=generator) * spread[:, None]
    spike = torch.full((2, m), -50.0, dtype=torch.float64)
    spike[0, 0], spike[1, -1] = 50.0, 50.0
    alternating = 50.0 * (2.0 * (torch.arange(m, dtype=torch.float64) % 2) - 1)
    return torch.cat([random, spike, -spike, alternating[None], torch.zeros(1, m, dtype=torch.float64)]).clamp(-50, 50)
