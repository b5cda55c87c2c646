"""Counting queries on sets of items: DPGM beside MWEM and noisy marginals at equal budgets (Acs et al. 2017, Figure 5).

    OMP_NUM_THREADS=1 python benchmarks/queries.py --data_root DIR [--only NAME ...] [--methods NAME ...]
        [--stream_users 4427486]

Mean relative errors of the five length classes (any item of a random set) and of conjunctions of 1-3 frequent items, at eps
.5, 1 and 2, delta 1e-5, add/remove-one, one run each; about 80 CPU seconds for Gowalla and for the simulated city, 190 for
retail. `--methods` runs some of the methods; those left out keep what was measured of them before, on another split of the
records. `--stream_users` also fits the Gaussian component to so many simulated users that are never in
memory together. Settings that were tuned by hand are named in the result.

Writes benchmarks/results/queries.json.
"""

import argparse
import itertools
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from measuring import add_data_root, machine, store

from dpgen.metrics.queries import SANITY, answers, random_queries
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.systems.gaussian.fit import Inputs, fit_inputs
from dpgen.systems.gaussian.plan import GaussianOptions
from dpgen.systems.marginals.model import ProductMixture

sys.path.insert(0, str(Path(__file__).parents[1]))

from papers.acs2017 import (
    CONJUNCTIONS,
    DELTA,
    FITS,
    LENGTHS,
    OURS,
    QUERY_EPSILONS,
    TUNED,
    Effort,
    compare,
    set_data,
    wins,
)
from papers.data import TOWERS, CallDetail

RESULTS = Path(__file__).parent / "results" / "queries.json"


def streamed(n_users: int, epsilon: float) -> dict[str, Any]:
    """The Gaussian component on a stream: its errors in the five length classes, from its closed-form answers."""
    city, start = CallDetail(n_users), time.process_time()

    class Users:
        """Reads the city again each time."""

        def __iter__(self) -> Any:
            return city.batches()

    users = Users()
    inputs = Inputs(values=users, bits=users, d=TOWERS, options=GaussianOptions(form="sizes"))
    budget = Budget(epsilon, DELTA)
    model = fit_inputs(inputs, budget=budget, curator=Curator(Ledger(budget)))
    assert isinstance(model, ProductMixture)
    fitted = time.process_time() - start
    queries = random_queries(TOWERS, 422, generator=torch.Generator().manual_seed(0), n_queries=250)
    flat = list(itertools.chain(*queries))
    totals = torch.zeros(len(flat), dtype=torch.float64)
    for visits in city:
        x = visits.dense()
        totals += answers(x, flat) * len(x)
    truth = totals / n_users
    claimed = torch.tensor([model.disjunction(items.tolist()) for items in flat], dtype=torch.float64)
    errors = ((claimed - truth).abs() / truth.clamp(min=SANITY)).split([len(part) for part in queries])
    measured = {kind: float(part.mean()) for kind, part in zip(LENGTHS, errors)}
    return {"users": n_users, "epsilon": model.statement.epsilon, "fit CPU seconds": round(fitted, 1), "errors": measured}


def nested(table: pd.DataFrame) -> dict[str, Any]:
    """{query: {method: {epsilon: error}}}."""
    found: dict[str, Any] = {}
    for row in table.to_dict("records"):
        found.setdefault(row["query"], {}).setdefault(row["method"], {})[f"{row['epsilon']:g}"] = round(row["error"], 5)
    return found


def merged(new: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """New errors beside those of methods that were left out."""
    return {query: before.get(query, {}) | methods for query, methods in new.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_root(parser, "retail/ and gowalla/")
    parser.add_argument("--only", nargs="+", choices=("retail", "gowalla", "call detail"), help="data sets to run")
    parser.add_argument("--methods", nargs="+", choices=list(FITS), default=list(FITS), help="methods to run")
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(QUERY_EPSILONS))
    parser.add_argument("--stream_users", type=int, help="also fit a stream of so many simulated users, at eps 1")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    effort = Effort()
    for name in set(FITS) - set(options.methods):
        del FITS[name]
    about = {"machine": machine(), "delta": DELTA, "effort": asdict(effort), "tuned": TUNED}
    for records in set_data(options.data_root, seed=0):
        if options.only and records.name not in options.only:
            continue
        start = time.process_time()
        table = compare(records, tuple(options.epsilons), effort, seed=0)
        sizes = records.x.sum(1, dtype=torch.int64)
        shape = {"records": records.n, "items": records.d, "mean": float(sizes.double().mean()), "most": int(sizes.max())}
        entry: dict[str, Any] = {**shape, "CPU seconds": round(time.process_time() - start, 1)}
        for method in (method for method in OURS if method in FITS):
            for name, kinds in (("length classes", LENGTHS), ("conjunctions", CONJUNCTIONS)):
                cells, lost = wins(table, method, kinds)
                entry[f"{name} not won by {method}"] = lost
                print(f"{records.name}: {method} beats MWEM and DP marginals in {cells - len(lost)} of {cells} cells of {name}")
        before = json.loads(options.out.read_text())["data"].get(records.name, {}) if options.out.is_file() else {}
        left_out = {key: value for key, value in before.items() if key not in entry and "not won by" in key}
        errors = merged(nested(table), before.get("errors", {}))
        store(options.out, "data", {records.name: entry | left_out | {"errors": errors}}, **about)
        print(table.pivot_table(index=["query", "epsilon"], columns="method", values="error").round(3).to_string(), flush=True)
    if options.stream_users:
        found = streamed(options.stream_users, 1.0)
        store(options.out, "streamed", found, **about)
        print(f"streamed: {found}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
