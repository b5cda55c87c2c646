"""Rows that name other people: `python benchmarks/names.py [--epsilons 1 3 10] [--people 1000]`.

Simulated people have 3 transfers on average, at most 10, of which .6 go to people of their own region. The error is the total
variation distance of transfers by the regions of both sides, one fit each, beside receivers at random.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from measuring import machine, store

import dpgen

RESULTS = Path(__file__).parent / "results" / "names.json"
MOST, MEAN, OWN = 10, 3, 0.6


def transfers(size: int, seed: int = 0) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    region = rng.choice([*"NESW"], size)
    sender = np.repeat(np.arange(size), np.minimum(rng.poisson(MEAN, size), MOST))
    receiver, near = rng.integers(0, size, len(sender)), rng.random(len(sender)) < OWN
    for own in "NESW":
        rows = np.flatnonzero(near & (region[sender] == own))
        receiver[rows] = rng.choice(np.flatnonzero(region == own), len(rows))
    day = np.datetime64("2023-01-01", "s") + rng.integers(0, 365, len(sender)) * np.timedelta64(1, "D")
    amount = rng.gamma(2, 50, len(sender)).round(2)
    age, kind = rng.integers(18, 90, size), rng.choice([*"ab"], size)
    people = pd.DataFrame({"pid": range(size), "region": region, "age": age, "kind": kind})
    return {"people": people, "transfers": pd.DataFrame({"sender": sender, "receiver": receiver, "day": day, "amount": amount})}


def regions(tables: dict[str, pd.DataFrame]) -> pd.Series:
    """Shares of transfers by the regions of both sides."""
    of, rows = tables["people"].set_index("pid")["region"], tables["transfers"].dropna(subset="receiver")
    both = pd.DataFrame({"from": of.loc[rows["sender"]].to_numpy(), "to": of.loc[rows["receiver"]].to_numpy()})
    return both.value_counts(normalize=True)


def error(real: dict[str, pd.DataFrame], other: dict[str, pd.DataFrame]) -> float:
    return float(0.5 * regions(real).sub(regions(other), fill_value=0).abs().sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.0, 10.0], help="budgets")
    parser.add_argument("--people", type=int, default=1_000, help="people")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of the results")
    given = parser.parse_args()
    torch.set_num_threads(1)
    real, links = transfers(given.people), {"transfers": {"sender": "people.pid", "receiver": "people.pid"}}
    anybody = np.random.default_rng(1).integers(0, given.people, len(real["transfers"]))
    dealt = real | {"transfers": real["transfers"].assign(receiver=anybody)}
    found = {"receivers at random": {"error": error(real, dealt)}}
    for epsilon in given.epsilons:
        start = time.process_time()
        release = dpgen.fit(real, epsilon=epsilon, links=links, order={"transfers": "day"}, max_rows=MOST)
        spent = time.process_time() - start
        found[f"epsilon {epsilon:g}"] = {"error": error(real, release.sample(random_state=0)), "cpu_s": round(spent, 1)}
        print(epsilon, found[f"epsilon {epsilon:g}"], flush=True)
    store(given.out, f"{given.people} people", found, machine=machine("pandas"))


if __name__ == "__main__":
    main()
