"""Time and memory of the maximum error rule beside np.sort of the same array, one thread.

    python benchmarks/ordered_speed.py [--n 1e7] [--repeats 7]

Writes benchmarks/results/ordered_speed.json: fit / sort, medians of interleaved runs at epsilon 1,
delta 1 / n, replace-one, T = 20, on a Beta mixture over [10^18].
"""

import argparse
import json
import statistics
import tracemalloc
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from measuring import interleaved, machine

from dpgen.data.toy import reference_mixture
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.systems.ordered.merr import MERR

N = 10**18
STEPS = 20
GOALS = {"points": 1.5, "exponential": 2.0, "choosing": 7.0}
MEMORY_GOAL = 3.0
RESULTS = Path(__file__).parent / "results" / "ordered_speed.json"


def fit(selection: str, composition: str, values: np.ndarray) -> None:
    delta = 1 / values.size
    rule = MERR(epsilon=1.0, delta=delta, selection=selection, composition=composition, steps=STEPS)  # type: ignore[arg-type]
    rule.fit_counts(values, N=N, curator=Curator(Ledger(Budget(1.0, delta), relation="replace_one")))


def peak(selection: str, values: np.ndarray) -> float:
    """Largest memory of a fit, which sorts a copy of the values, the values included, in units of the values."""
    tracemalloc.start()
    fit(selection, "zcdp", values)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return 1 + most / values.nbytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=float, default=1e7)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    values = reference_mixture("betas").draw(int(arguments.n), N, np.random.default_rng(0))
    compositions: tuple[Literal["basic", "zcdp"], ...] = ("basic", "zcdp")
    jobs = {"sort": lambda: np.sort(values)} | {
        f"{selection} {composition}": lambda s=selection, c=composition: fit(s, c, values)
        for selection in GOALS
        for composition in compositions
    }
    interleaved(jobs, 2)
    seconds = interleaved(jobs, arguments.repeats)
    sort = statistics.median(seconds.pop("sort"))
    result = {"machine": machine(), "n": values.size, "steps": STEPS, "sort_seconds": sort, "ratios": {}, "peak_memory": {}}
    for name, times in seconds.items():
        goal = GOALS[name.split()[0]]
        result["ratios"][name] = statistics.median(times) / sort
        print(f"{name:20s} fit / sort {result['ratios'][name]:6.2f} (goal <= {goal:.1f})")
    for selection in GOALS:
        result["peak_memory"][selection] = peak(selection, values)
        print(f"{selection:20s} peak memory / input {result['peak_memory'][selection]:6.2f} (goal <= {MEMORY_GOAL:.1f})")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
