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

import numpy as np
import torch
from measuring import interleaved, machine

from dpgen.data.toy import reference_mixture
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.systems.ordered.merr import MERR

N = 10**18
STEPS = 20
GOAL = 1.5
MEMORY_GOAL = 3.0
RESULTS = Path(__file__).parent / "results" / "ordered_speed.json"


def fit(values: np.ndarray) -> None:
    delta = 1 / values.size
    curator = Curator(Ledger(Budget(1.0, delta), relation="replace_one"))
    MERR(epsilon=1.0, delta=delta, steps=STEPS).fit_counts(values, N=N, curator=curator)


def peak(values: np.ndarray) -> float:
    """Largest memory of a fit, which sorts a copy of the values, the values included, in units of the values."""
    tracemalloc.start()
    fit(values)
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
    jobs = {"sort": lambda: np.sort(values), "points zcdp": lambda: fit(values)}
    interleaved(jobs, 2)
    seconds = {name: statistics.median(times) for name, times in interleaved(jobs, arguments.repeats).items()}
    ratio, memory = seconds["points zcdp"] / seconds["sort"], peak(values)
    print(f"fit / sort {ratio:6.2f} (goal <= {GOAL:.1f}); peak memory / input {memory:6.2f} (goal <= {MEMORY_GOAL:.1f})")
    result = {"machine": machine(), "n": values.size, "steps": STEPS, "sort_seconds": seconds["sort"]}
    result |= {"ratios": {"points zcdp": ratio}, "peak_memory": {"points": memory}}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
