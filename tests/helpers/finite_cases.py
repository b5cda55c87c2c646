"""Priors, users and slow, obviously right twins that the tests of the finite samplers share."""

import math
from fractions import Fraction

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from dpgen.systems.local.fit import SAMPLERS
from dpgen.systems.local.model import FiniteSampler

EXCESS = 1e-12


def dirichlet(n: int, *, seed: int, sharpness: float = 1.0, rows: int | None = None) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (n,) if rows is None else (rows, n)
    weights = torch.rand(shape, generator=generator, dtype=torch.float64).log().neg() ** sharpness
    return weights / weights.sum(-1, keepdim=True)


def users(n: int, *, seed: int, rows: int = 20) -> Tensor:
    """Random users, then one for each single category (of up to 50), then the uniform one."""
    held = torch.arange(0, n, max(1, n // 50))
    corners = torch.zeros(len(held), n, dtype=torch.float64).scatter_(1, held[:, None], 1.0)
    flat = torch.full((1, n), 1 / n, dtype=torch.float64)
    return torch.cat([dirichlet(n, seed=seed, sharpness=4.0, rows=rows), corners, flat])


def sampler(name: str, epsilon: float, prior: Tensor) -> FiniteSampler:
    return SAMPLERS[name](epsilon, prior)


def explicit_kernel(q: Tensor, epsilon: float) -> Tensor:
    """Zamanlooy et al. 2025, Algorithm 1, as the recursion that it is, in exact arithmetic."""
    order = q.argsort(stable=True).tolist()
    ranked = _recursion([Fraction(float(q[j])) for j in order], Fraction(math.exp(epsilon)))
    kernel = torch.empty(len(order), len(order), dtype=torch.float64)
    for i, row in zip(order, ranked):
        for j, value in zip(order, row):
            kernel[i, j] = float(value)
    return kernel


def _recursion(q: list[Fraction], gain: Fraction) -> list[list[Fraction]]:
    total = sum(q)
    first, *rest = (x / total for x in q)
    if not rest:
        return [[Fraction(1)]]
    below = first / ((gain - 1) * first + 1)
    inner = [[(1 - below) * x for x in row] for row in _recursion(rest, gain)]
    # The only first row that leaves q as it is.
    top = [(x - sum(p * row[j] for p, row in zip(rest, inner))) / first for j, x in enumerate(rest)]
    return [[gain * below, *top], *([below, *row] for row in inner)]


def best_kernel_tv(q: Tensor, epsilon: float) -> float:
    """Least worst-case total variation of an epsilon-LDP kernel with qK = q, by a linear programme."""
    n, gain = len(q), math.exp(epsilon)
    rows, bounds = [], []

    def entry(i: int, j: int) -> int:
        return i * n + j

    for i in range(n):
        row = np.zeros(n * n + 1)
        row[entry(i, i)], row[-1] = -1, -1
        rows.append(row)
        bounds.append(-1.0)
    for j in range(n):
        for i in range(n):
            for other in range(n):
                row = np.zeros(n * n + 1)
                row[entry(i, j)] += 1
                row[entry(other, j)] -= gain
                rows.append(row)
                bounds.append(0.0)
    equal, right = [], []
    for i in range(n):
        row = np.zeros(n * n + 1)
        row[[entry(i, j) for j in range(n)]] = 1
        equal.append(row)
        right.append(1.0)
        row = np.zeros(n * n + 1)
        row[[entry(m, i) for m in range(n)]] = q.numpy()
        equal.append(row)
        right.append(float(q[i]))
    goal = np.zeros(n * n + 1)
    goal[-1] = 1
    return float(linprog(goal, A_ub=np.array(rows), b_ub=bounds, A_eq=np.array(equal), b_eq=right, method="highs").fun)


def rational_projection(p: Tensor, lower: Tensor, upper: Tensor) -> list[Fraction]:
    """clip(c P, l, u) with sum 1 in exact arithmetic: all breakpoints, then one linear equation."""
    ps, low, high = ([Fraction(float(x)) for x in values] for values in (p, lower, upper))

    def clipped(c: Fraction) -> list[Fraction]:
        return [min(max(c * x, lo), hi) for x, lo, hi in zip(ps, low, high)]

    points = sorted({end / x for x, lo, hi in zip(ps, low, high) if x for end in (lo, hi)})
    if sum(clipped(points[-1])) <= 1:
        room = sum(hi - lo for x, lo, hi in zip(ps, low, high) if not x)
        share = (1 - sum(clipped(points[-1]))) / room if room else Fraction(0)
        return [q if x else lo + share * (hi - lo) for q, x, lo, hi in zip(clipped(points[-1]), ps, low, high)]
    before, after = 0, len(points) - 1
    while after - before > 1:
        middle = (before + after) // 2
        before, after = (middle, after) if sum(clipped(points[middle])) <= 1 else (before, middle)
    start, end = points[before], points[after]
    at, to = sum(clipped(start)), sum(clipped(end))
    return clipped(start + (end - start) * (1 - at) / (to - at) if to > at else start)


def ldp_excess(outputs: Tensor, epsilon: float) -> float:
    """How far the largest log-ratio within a column of `outputs` (m, n) exceeds epsilon."""
    return float((outputs.amax(0).log() - outputs.amin(0).log()).amax()) - epsilon
