"""Ordered columns: PartitionCDF beside the empirical CDF, total variation of pieces, time beside sorting, memory.

    OMP_NUM_THREADS=1 python benchmarks/ordered.py [--data_root DIR] [--repeats 15] [--most 1e6]

Writes benchmarks/results/ordered.json. Epsilon 1, delta 1/n, replace-one, N = 10^18.
"""

import argparse
import json
import math
import os
import statistics
import time
import tracemalloc
from pathlib import Path

import numpy as np
import torch
from measuring import interleaved, machine

from dpgen.data.columns import load_columns
from dpgen.data.toy import REFERENCE_MIXTURES, OrderedMixture, reference_mixture
from dpgen.evaluation.columns import kolmogorov_error, total_variation
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.systems.ordered.estimator import MonotoneCounts
from dpgen.systems.ordered.fit import ordered_estimator
from dpgen.systems.ordered.model import PiecewiseCDF, piecewise_polynomial
from dpgen.systems.ordered.plan import OrderedConfig

N = 10**18
RESULTS = Path(__file__).parent / "results" / "ordered.json"


def released(x: np.ndarray, config: OrderedConfig | None = None, domain: int = N) -> MonotoneCounts:
    """One private fit of x, which sorts a copy."""
    estimator = ordered_estimator(config or OrderedConfig(), 1.0, 1 / len(x), None)
    curator = Curator(Ledger(None, delta=1 / len(x), relation="replace_one"))
    return estimator.fit_counts(x, N=domain, curator=curator)


def errors(mixture: OrderedMixture, n: int, repeats: int) -> dict[str, float]:
    """Mean Kolmogorov errors (searched at 20,000 of the records, the knots and a grid) on the same draws."""
    rng, ours, plain, variation = np.random.default_rng(0), [], [], []
    for _ in range(repeats):
        x = np.sort(mixture.draw(n, N, rng))
        some = np.arange(0, n, max(1, n // 20_000))
        counts = released(x)
        ours.append(kolmogorov_error(PiecewiseCDF.from_counts(counts), x[some], mixture))
        truth = mixture.below(x[some], N)
        plain.append(max(np.abs(truth - some / n).max(), np.abs(truth - (some + 1) / n).max()))
        variation.append(total_variation(piecewise_polynomial(counts, degree=2), mixture))
    means = {"partition": statistics.mean(ours), "empirical": statistics.mean(plain), "degree_2_tv": statistics.mean(variation)}
    return means | {"ratio": means["partition"] / means["empirical"]}


def time_ratio(n: int, repeats: int = 25) -> float:
    """Median of PartitionCDF / sort of the same array, in turns."""
    raw = reference_mixture("gaussians").draw(n, N, np.random.default_rng(0))
    jobs = {"sort": lambda: np.sort(raw), "fit": lambda: released(raw)}
    interleaved(jobs, 3)
    seconds = interleaved(jobs, repeats)
    return statistics.median(fit / sort for fit, sort in zip(seconds["fit"], seconds["sort"]))


def peak_memory(n: int) -> float:
    """Peak of what a fit allocates, and the input, in units of the input."""
    raw = reference_mixture("gaussians").draw(n, N, np.random.default_rng(0))
    released(raw[:10_000])
    tracemalloc.start()
    released(raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return 1 + peak / raw.nbytes


def cms_error(data_root: Path, repeats: int) -> float:
    """Mean error to all 138,556 momenta from 100,000 of them."""
    path = data_root / "cms_lepton_pt" / "cms_lepton_pt.csv.gz"
    everything = np.sort(load_columns(path=str(path), columns="pt", low=0, high=1e9, resolution=1e-9).values["pt"])
    rng, found = np.random.default_rng(0), []
    for _ in range(repeats):
        x = np.sort(rng.permutation(everything)[:100_000])
        found.append(kolmogorov_error(PiecewiseCDF.from_counts(released(x, domain=N + 1)), everything))
    return statistics.mean(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_root", type=Path, default=os.environ.get("DPGEN_DATA"))
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--most", type=float, default=1e6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    started, rows = time.time(), []
    for n in [n for n in (10**3, 10**4, 10**5, 10**6, 10**7) if n <= options.most]:
        repeats = options.repeats if n < 10**6 else max(2, options.repeats // 5)
        for name in REFERENCE_MIXTURES:
            rows.append({"n": n, "mixture": name, **errors(reference_mixture(name), n, repeats)})
        part = rows[-len(REFERENCE_MIXTURES) :]
        means = {
            k: math.exp(statistics.mean(math.log(float(r[k])) for r in part)) for k in ("partition", "empirical", "degree_2_tv")
        }
        print(
            n,
            {k: f"{v:.5f}" for k, v in means.items()},
            "largest ratio",
            f"{max(float(r['ratio']) for r in part):.3f}",
            flush=True,
        )
    result = {
        "errors": rows,
        "partition_time_ratio": {str(n): time_ratio(n) for n in (10**5, 10**6, 10**7)},
        "peak_memory": peak_memory(10**7),
        "cms_100000": cms_error(options.data_root, options.repeats) if options.data_root else None,
        "machine": machine(),
        "seconds": time.time() - started,
    }
    print(json.dumps({k: v for k, v in result.items() if k != "errors"}, indent=1))
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
