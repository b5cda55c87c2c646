"""Linked tables by size: `python benchmarks/linked_size.py [--people 2000 20000 200000]`.

People with an age and a region, and about ten rows each: a date, a ward of five, and a cost that grows with age. Nothing is
declared but the links and the order, `max_rows` is 20, epsilon 3. Each size has a process of its own, on one thread: CPU
seconds and peak memory of the fit and of as many synthetic people, beside those of reading the same two CSV files into pandas.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from measuring import machine, store

RESULTS = Path(__file__).parent / "results" / "linked_size.json"


def tables(size: int) -> dict[str, pd.DataFrame]:
    """People and their rows."""
    rng = np.random.default_rng(0)
    age = np.clip(rng.normal(50, 18, size), 1, 95).astype(int)
    who = np.repeat(np.arange(size), np.clip(rng.poisson(6 + age / 12), 0, 20))
    day = np.datetime64("2020-01-01", "s") + rng.integers(0, 1100, len(who)) * np.timedelta64(86400, "s")
    cost = np.exp(3 + 0.012 * age[who] + rng.normal(0, 0.55, len(who))).round(2)
    people = pd.DataFrame({"pid": np.arange(size), "age": age, "region": rng.choice(list("nesw"), size)})
    ward = np.array(["general", "surgery", "heart", "lung", "eye"])[np.minimum(rng.geometric(0.4, len(who)) - 1, 4)]
    return {"people": people, "visits": pd.DataFrame({"pid": who, "day": day, "ward": ward, "cost": cost})}


def measured(folder: Path, *, fit: bool) -> dict[str, float]:
    """CPU seconds and MiB of reading two files, and of a fit to them if wanted."""
    given = {
        name: pd.read_csv(folder / f"{name}.csv", parse_dates=["day"] * (name == "visits")) for name in ("people", "visits")
    }
    found: dict[str, Any] = {"rows": len(given["visits"])}
    if fit:
        import torch

        import dpgen

        torch.set_num_threads(1)
        start = time.process_time()
        release = dpgen.fit(given, links={"visits": "people.pid"}, order="day", max_rows=20, epsilon=3.0)
        found["fit"] = time.process_time() - start
        made = release.sample(len(given["people"]), random_state=0)
        found["correlation of age and log cost"] = correlation(made)
        found["real"] = correlation(given)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found | {"CPU seconds": time.process_time(), "peak MiB": peak}


def correlation(of: dict[str, pd.DataFrame]) -> float:
    """Correlation of age and the logarithm of costs above 0, over rows."""
    joined = of["visits"].merge(of["people"], on="pid")
    return float(np.corrcoef(joined["age"], np.log(joined["cost"].clip(lower=0.01)))[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, nargs="+", default=[2_000, 20_000, 200_000])
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--fit", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder is not None:
        print(json.dumps(measured(options.folder, fit=options.fit)))
        return
    for size in options.people:
        with TemporaryDirectory() as place:
            for name, table in tables(size).items():
                table.to_csv(Path(place) / f"{name}.csv", index=False)
            command, found = [sys.executable, __file__, "--folder", place], dict[str, dict[str, float]]()
            for name, more in (("reading", []), ("all", ["--fit"])):
                done = subprocess.run([*command, *more], check=True, capture_output=True, text=True)
                found[name] = json.loads(done.stdout.splitlines()[-1])
        print(size, {name: {key: round(value, 3) for key, value in own.items()} for name, own in found.items()}, flush=True)
        store(RESULTS, str(size), found, machine=machine())


if __name__ == "__main__":
    main()
