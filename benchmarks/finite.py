"""Local samplers on a finite domain: implicit against explicit kernels, a million categories, batches, and utility.

    OMP_NUM_THREADS=1 python benchmarks/finite.py [--repeats 7]

Writes benchmarks/results/finite.json.
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import interleaved, machine
from scipy.optimize import brentq
from torch import Tensor

from dpgen.privacy.noise import SecureSource
from dpgen.systems.local.fit import SAMPLERS
from dpgen.systems.local.model import (
    FiniteSampler,
    MinimaxSampler,
    ProjectedKernel,
    QInvariantMinimax,
    RelativeMollifier,
    f_divergence,
)

RESULTS = Path(__file__).parent / "results" / "finite.json"
SIZES, EPSILONS = (10, 100, 1000), (1.0, 2.0, 5.0, 8.0)
REGIMES = ("near the prior", "random", "one category")
MILLION = 10**6
USERS, GENRES = 6040, 18
SECRETS = SecureSource()


def simplex(*shape: int, seed: int, sharpness: float = 1.0) -> Tensor:
    """Rows of normalised gamma-like weights; the larger the sharpness, the more uneven."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(shape, generator=generator, dtype=torch.float64).log().neg() ** sharpness
    return weights / weights.sum(-1, keepdim=True)


def explicit_apply(q: np.ndarray, p: np.ndarray, epsilon: float) -> np.ndarray:
    """PK with the matrix of Zamanlooy et al. 2025, Algorithm 1, filled level by level in O(n^2); q increasing."""
    n, gain = len(q), math.exp(epsilon)
    kernel = np.empty((n, n))
    tails = np.append(q[::-1].cumsum()[::-1], 0.0)
    scale = 1.0
    for k in range(n - 1):
        below = q[k] / ((gain - 1) * q[k] + tails[k])
        kernel[k, k] = scale * gain * below
        kernel[k + 1 :, k] = scale * below
        kernel[k, k + 1 :] = scale * below / q[k] * q[k + 1 :]
        scale *= 1 - below
    kernel[n - 1, n - 1] = scale
    return p @ kernel


def loop_of_brentq(p: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """The projection one user at a time, C by scipy's brentq."""
    rows = []
    for row in p:
        seen = row[row > 0]
        ends = math.log((lower[row > 0] / seen).min()), math.log((upper[row > 0] / seen).max())
        scale = brentq(lambda c, row=row: np.clip(math.exp(c) * row, lower, upper).sum() - 1, *ends, xtol=1e-14)
        rows.append(np.clip(math.exp(scale) * row, lower, upper))
    return np.array(rows)


def medians(jobs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    return {name: statistics.median(times) for name, times in interleaved(jobs, repeats).items()}


def against_explicit(repeats: int) -> dict[str, dict[str, float]]:
    """From prior and P to PK, beside the explicit matrix; `apply_s` is a further user under the same prior."""
    result = {}
    for n in (1000, 10_000):
        q, p = simplex(n, seed=0, sharpness=2.0).sort().values, simplex(n, seed=1)
        sampler = MinimaxSampler(1.0, q)
        assert np.allclose(explicit_apply(q.numpy(), p.numpy(), 1.0), sampler.apply(p), rtol=0, atol=1e-12)
        times = 100 if n == 1000 else 20
        jobs: dict[str, Callable[[], object]] = {
            "explicit_s": lambda q=q, p=p: explicit_apply(q.numpy(), p.numpy(), 1.0),  # type: ignore[misc]
            "implicit_s": lambda q=q, p=p, t=times: [MinimaxSampler(1.0, q).apply(p) for _ in range(t)],  # type: ignore[misc]
            "apply_s": lambda s=sampler, p=p, t=times: [s.apply(p) for _ in range(t)],  # type: ignore[misc]
        }
        seconds = medians(jobs, repeats if n == 1000 else 3)
        seconds["implicit_s"] /= times
        seconds["apply_s"] /= times
        seconds["ratio"] = seconds["explicit_s"] / seconds["implicit_s"]
        seconds["ratio_apply"] = seconds["explicit_s"] / seconds["apply_s"]
        result[str(n)] = seconds
    return result


def million(repeats: int) -> dict[str, dict[str, float]]:
    """Set-up, apply and a million draws at a million categories."""
    q, p = simplex(MILLION, seed=0, sharpness=2.0), simplex(MILLION, seed=1, sharpness=2.0)
    result = {}
    for cls in (MinimaxSampler, RelativeMollifier, ProjectedKernel, QInvariantMinimax):
        sampler: FiniteSampler = cls(1.0, q)
        jobs: dict[str, Callable[[], object]] = {
            "set_up_s": lambda cls=cls: cls(1.0, q),  # type: ignore[misc]
            "apply_s": lambda s=sampler: s.apply(p),  # type: ignore[misc]
            "million_draws_s": lambda s=sampler: s.sample(p, k=MILLION, secrets=SECRETS),  # type: ignore[misc]
        }
        result[sampler.kind] = medians(jobs, repeats)
        held = [value for value in vars(sampler).values() if isinstance(value, Tensor)]
        result[sampler.kind]["bytes_per_category"] = sum(t.numel() * t.element_size() for t in held) / MILLION
    return result


def batches(repeats: int) -> dict[str, float]:
    """6,040 users x 18 categories, projections in one call, beside a Python loop."""
    q, p = simplex(GENRES, seed=0, sharpness=2.0), simplex(USERS, GENRES, seed=1, sharpness=2.0)
    mollifier = RelativeMollifier(1.0, q)
    lower, upper = (bound.numpy() for bound in mollifier.box())
    assert np.allclose(loop_of_brentq(p[:50].numpy(), lower, upper), mollifier.apply(p[:50]), rtol=0, atol=1e-10)
    seconds = medians(
        {"loop_s": lambda: loop_of_brentq(p.numpy(), lower, upper), "batched_s": lambda: mollifier.apply(p)}, min(repeats, 5)
    )
    return {**seconds, "ratio": seconds["loop_s"] / seconds["batched_s"]}


def users_of(regime: str, q: Tensor, *, rows: int, seed: int) -> Tensor:
    """Users whose distribution is close to the prior, unrelated to it, or (80 %) one category."""
    n = q.numel()
    if regime == "near the prior":
        p = q * torch.exp(0.5 * torch.randn(rows, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))
        return p / p.sum(1, keepdim=True)
    p = simplex(rows, n, seed=seed, sharpness=2.0)
    if regime == "random":
        return p
    held = torch.randint(n, (rows, 1), generator=torch.Generator().manual_seed(seed))
    return (0.2 * p).scatter_add_(1, held, torch.full((rows, 1), 0.8, dtype=torch.float64))


def utility(sizes: tuple[int, ...] = SIZES, *, priors: int = 10, rows: int = 20) -> dict[str, dict[str, float]]:
    """Mean TV(P, Q) per regime, and the mean of the closed-form worst case, over random priors."""
    table: dict[str, dict[str, float]] = {}
    for n in sizes:
        for epsilon in EPSILONS:
            for regime in (*REGIMES, "worst case"):
                table[f"{n} | {epsilon:g} | {regime}"] = dict.fromkeys(SAMPLERS, 0.0)
            for seed in range(priors):
                q = simplex(n, seed=seed, sharpness=1.0)
                for name, make in SAMPLERS.items():
                    sampler = make(epsilon, q)
                    table[f"{n} | {epsilon:g} | worst case"][name] += sampler.worst_case() / priors
                    for regime in REGIMES:
                        p = users_of(regime, q, rows=rows, seed=1000 + seed)
                        distance = float(f_divergence(p, sampler.apply(p)).mean())
                        table[f"{n} | {epsilon:g} | {regime}"][name] += distance / priors
    return table


def show(result: dict[str, Any]) -> None:
    for n, row in result["against_explicit"].items():
        print(f"n = {n}: " + "  ".join(f"{key} {value:.4g}" for key, value in row.items()))
    for name, row in result["million"].items():
        print(f"n = 1e6, {name:18s}" + "".join(f" {key} {value:.3f}" for key, value in row.items()))
    print("6040 x 18: loop {loop_s:.3f} s, batched {batched_s:.4f} s, ratio {ratio:.0f}".format(**result["batches"]))
    print(f"{'mean TV: n | eps | users':32s}" + "".join(f"{name[:16]:>17s}" for name in SAMPLERS))
    for key, row in result["utility"].items():
        print(f"{key:32s}" + "".join(f"{row[name]:17.4f}" for name in SAMPLERS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {
        "machine": machine(),
        "goals": {
            "ratio_1000": 150,
            "ratio_10000": 1000,
            "set_up_s": 1,
            "apply_s": 0.2,
            "million_draws_s": 1,
            "batch_ratio": 20,
        },
        "against_explicit": against_explicit(arguments.repeats),
        "million": million(arguments.repeats),
        "batches": batches(arguments.repeats),
        "utility": utility(),
    }
    show(result)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
