"""Secure noise beside torch's: time of draw + add + round on one thread, and the tails at 1e9 draws.

    python benchmarks/noise.py [--repeats 41] [--tail_draws 1e9]

Writes benchmarks/results/noise.json.
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from measuring import interleaved, machine
from scipy.special import ndtr

from dpgen.privacy.noise import SecureSource, grid_step

SIZE = 3_200_000
GOAL = 1.0
RESULTS = Path(__file__).parent / "results" / "noise.json"


def speed(repeats: int) -> dict[str, float]:
    """Median milliseconds and their ratio to `torch.normal_` + add."""
    source, values, noise = SecureSource(), torch.zeros(SIZE), torch.empty(SIZE)
    doubles = torch.zeros(SIZE, dtype=torch.float64)
    jobs: dict[str, Callable[[], object]] = {
        "torch_normal_add": lambda: values.add_(noise.normal_(0.0, 1.3)),
        "secure_draw_add_round": lambda: source.add_normal_(values, noise_std=1.3),
        "secure_draw_add_round_float64": lambda: source.add_normal_(doubles, noise_std=1.3),
        "poisson_mask_1e7": lambda: source.bernoulli_indices(10_000_000, probability=0.0017),
        "rounded_normal_3000": lambda: source.rounded_normal(3000, noise_std=50.0),
        "discrete_laplace_3000": lambda: source.discrete_laplace(3000, scale=50.0),
    }
    interleaved(jobs, 3)
    seconds = interleaved(jobs, repeats)
    result = {f"{name}_ms": 1e3 * statistics.median(times) for name, times in seconds.items()}
    pairs = zip(seconds["secure_draw_add_round"], seconds["torch_normal_add"])
    result["ratio"] = statistics.median(secure / plain for secure, plain in pairs)
    return result


def tails(draws: int) -> list[dict[str, float]]:
    """Counts of |z| beyond 5 and 6 (half-way between grid points) and their distance from the exact ones."""
    source, chunk = SecureSource(), torch.empty(10_000_000)
    step = grid_step(1.0)
    levels = {level: (level / step + 0.5) * step for level in (5, 6)}
    counts = dict.fromkeys(levels, 0)
    rounds = max(1, draws // chunk.numel())
    for _ in range(rounds):
        beyond = source.add_normal_(chunk.zero_(), noise_std=1.0).abs_()
        for level, edge in levels.items():
            counts[level] += int((beyond > edge).sum())
    rows = []
    for level, edge in levels.items():
        expected = 2 * rounds * chunk.numel() * float(ndtr(-edge))
        standard_errors = (counts[level] - expected) / math.sqrt(expected)
        rows.append({"beyond": level, "count": counts[level], "expected": expected, "standard_errors": standard_errors})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=41)
    parser.add_argument("--tail_draws", type=float, default=1e9)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result = {"machine": machine("scipy"), "values": SIZE, "goal": GOAL, **speed(arguments.repeats)}
    result["tail_draws"], result["tails"] = arguments.tail_draws, tails(int(arguments.tail_draws))
    print(f"secure draw + add + round / torch normal_ + add: {result['ratio']:.2f} (goal <= {GOAL:.2f}), one thread")
    for name, value in result.items():
        if name.endswith("_ms"):
            print(f"  {name.removesuffix('_ms'):32s} {value:8.2f} ms")
    for row in result["tails"]:
        print("  |z| > {beyond}: {count} draws, {expected:.1f} expected, {standard_errors:+.1f} standard errors".format(**row))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
