"""Rules of simulated tables, found and kept: which were found, in how many samples they hold, and what it costs columns.

    python benchmarks/rules.py [--records 20000] [--epsilons .5 1 3] [--seeds 1] [--only hospital shop power independent linked]

Without options 20,000 records at epsilon 1: about 10 minutes on one core. Of each table one fit with rules and one without. Of
orders: the share of rows in which they hold, W1 of the length by its std, its mean by the real one, W1 / std of both columns.
Of dependencies the share of rows in which they hold. `independent` counts the fits of independent columns in which a rule is
found (50 searches without a model). `linked`, which runs alone where it is named, are people with the columns of `hospital` and
orders of `shop`, of which a person has up to 8; beside the shares there are the errors of all pairs of columns, as in
`linked.py`. Writes benchmarks/results/rules.json.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from measuring import machine, store
from scipy.stats import wasserstein_distance

import dpgen
from dpgen.containers import in_memory
from dpgen.data import load_linked
from dpgen.data.raw_tables import Rows, draft_of
from dpgen.evaluation.linked import coder, errors
from dpgen.facts import Fact
from dpgen.privacy.curator import Curator, GaussianBudget
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.systems.tables.discovery import Discovery, thresholds
from dpgen.systems.tables.rules import MOST_LENGTHS, Search

RESULTS = Path(__file__).parent / "results" / "rules.json"
Reals = npt.NDArray[np.float64]
ORDERS = {"hospital": [("admitted", "discharged"), ("ordered", "reported")], "shop": [("ordered", "shipped"), ("net", "gross")]}
DEPENDENCIES = {"hospital": [("ward", "department")], "shop": [("city", "region"), ("region", "code"), ("status", "number")]}
ON_TWO = {"power": [(["hour", "weekday"], "tariff"), (["zone", "fare"], "class")]}
TABLES = ("hospital", "shop", "power")
DAY = 86_400


def hospital(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Stays, whose length depends on the ward, and a laboratory test."""
    ward = rng.choice(["surgery", "trauma", "medicine", "geriatrics", "births"], n, p=[0.25, 0.1, 0.4, 0.15, 0.1])
    mean = pd.Series(ward).map({"surgery": 4.0, "trauma": 7.0, "medicine": 6.0, "geriatrics": 14.0, "births": 2.5}).to_numpy()
    admitted = pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 1096, n), unit="D")
    ordered = admitted + pd.to_timedelta(rng.integers(6 * 60, 20 * 60, n), unit="min")
    return pd.DataFrame(
        {
            "admitted": admitted.strftime("%Y-%m-%d"),
            "discharged": (admitted + pd.to_timedelta(np.floor(rng.gamma(1.3, mean / 1.3)), unit="D")).strftime("%Y-%m-%d"),
            "ordered": ordered,
            "reported": ordered + pd.to_timedelta(np.floor(rng.gamma(2.0, 70.0, n)), unit="min"),
            "ward": ward,
            "department": np.where(
                np.isin(ward, ["surgery", "trauma"]), "operative", np.where(ward == "births", "births", "ward")
            ),
            "age": np.clip(rng.normal(58, 19, n), 0, 103).astype(int),
        }
    )


def shop(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Orders of 39 cities in five regions, with codes."""
    regions = {
        f"{place}{i}": f"region {place[0]}"
        for place in ("Aa", "Ab", "Ac", "Bd", "Be", "Bf", "Cg", "Ch", "Ci", "Dj", "Dk", "Dl", "Em")
        for i in range(3)
    }
    shares = 1 / (np.arange(len(regions)) + 4.0)
    city = pd.Series(rng.choice([*regions], n, p=shares / shares.sum()))
    ordered = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 365 * 1440, n), unit="min")
    status, net = (
        pd.Series(rng.choice(["new", "paid", "sent", "back"], n, p=[0.1, 0.3, 0.5, 0.1])),
        rng.lognormal(4, 1, n).round(2),
    )
    return pd.DataFrame(
        {
            "ordered": ordered,
            "shipped": ordered + pd.to_timedelta(np.floor(rng.gamma(2, 1_080, n)), unit="min"),
            "city": city,
            "region": city.map(regions),
            "code": city.map(regions).map({f"region {r}": f"{r}{i:02d}" for i, r in enumerate("ABCDE")}),
            "status": status,
            "number": status.map({"new": 1, "paid": 2, "sent": 3, "back": 9}),
            "net": net,
            "gross": (net * rng.choice([1.07, 1.19], n, p=[0.3, 0.7])).round(2),
        }
    )


def power(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Meters, whose tariff follows from hour and weekday, and whose class from zone and fare."""
    zone, kind = rng.choice(5, n, p=[0.3, 0.25, 0.2, 0.15, 0.1]), rng.choice(3, n, p=[0.2, 0.5, 0.3])
    hour, day = rng.integers(0, 24, n), rng.choice(["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"], n)
    busy = ~np.isin(day, ["Sa", "Su"]) & (hour >= 7) & (hour < 20)
    return pd.DataFrame(
        {
            "zone": np.array([*"ABCDE"])[zone],
            "class": np.array(["first", "second", "third"])[kind],
            "fare": np.array([f"T{i}" for i in range(7)])[(3 * zone + 5 * kind) % 7],
            "hour": hour,
            "weekday": day,
            "tariff": np.where(busy, "high", "low"),
            "age": rng.normal(45, 12, n).round().astype(int),
            "kwh": rng.gamma(2, 3, n).round(2),
            "paid": rng.random(n) < 0.8,
        }
    )


def independent(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Independent columns of alike laws: dates, numbers, categories."""
    days = {name: pd.Timestamp("2020-01-01") + pd.to_timedelta(late + rng.integers(0, 900, n), unit="D") for name, late in
            (("first", 0), ("second", 90), ("third", 400))}  # fmt: skip
    numbers = {f"x{i}": rng.normal(i, 1, n).round(2) for i in range(4)} | {"k": rng.poisson(4, n), "m": rng.poisson(12, n)}
    texts = {"a": rng.choice([*"abcdefgh"], n), "b": rng.choice([*"uvw"], n, p=[0.5, 0.3, 0.2]), "c": rng.choice([*"yn"], n)}
    return pd.DataFrame(days | numbers | texts)


def linked(n: int, seed: int) -> dict[str, pd.DataFrame]:
    """Patients, and their orders."""
    rng = np.random.default_rng(seed)
    people = hospital(rng, n).drop(columns=["ordered", "reported"]).assign(patient=np.arange(n))
    owner = np.repeat(np.arange(n), rng.poisson(3, n).clip(0, 8))
    return {"patients": people, "orders": shop(rng, len(owner)).drop(columns="shipped").assign(patient=owner)}


def fits_of_linked(n: int, epsilon: float, seeds: int) -> dict[str, dict[str, float]]:
    """Shares of lines in which rules hold, and errors of pairs, with a search for rules and without one; means over seeds."""
    found: dict[str, dict[str, float]] = {}
    for rules in ("auto", "off"):
        for seed in range(seeds):
            real = linked(n, seed)
            private = {name: in_memory(table) for name, table in real.items()}
            for name, table in private.items():
                table.table = name
            paths: Any = {"path": private["orders"], "people_path": private["patients"]}
            data = load_linked(**paths, person="patient", order="ordered", max_rows=8, test_fraction=0.0)
            start, (shape, coded) = time.process_time(), coder(data)
            made = dpgen.fit(data, "relational", epsilon=epsilon, seed=seed, rules=rules).sample(n, random_state=seed)
            own = {"CPU s": time.process_time() - start} | errors(coded(data), coded(data.alike(made)), shape)
            for table, about in (("patients", "hospital"), ("orders", "shop")):
                held = judged(about, real[table], made[table])
                own |= {f"{table}: {rule}": values[0] for rule, values in held.items()}
            entry = found.setdefault(f"linked, rules {rules}", {})
            for key, value in own.items():
                entry[key] = round(entry.get(key, 0.0) + float(value) / seeds, 4)
    return found


def numbers(values: pd.Series) -> Reals:
    """Numbers, or seconds since 1970; NaN for gaps."""
    if values.dtype.kind in "iuf":
        return values.to_numpy(np.float64)
    times = pd.to_datetime(values)
    return np.where(times.isna(), np.nan, times.to_numpy("datetime64[s]").astype(np.int64).astype(np.float64))


def distance(one: Reals, other: Reals) -> float:
    """W1 by the std of the second."""
    one, other = one[~np.isnan(one)], other[~np.isnan(other)]
    return round(float(wasserstein_distance(one, other) / other.std()), 4)


def judged(name: str, real: pd.DataFrame, rows: pd.DataFrame) -> dict[str, list[float]]:
    """Figures of the rules of a table."""
    found = {}
    for a, b in [both for both in ORDERS.get(name, []) if {*both} <= {*real}]:
        (low, high), (own_low, own_high) = [[numbers(table[column]) for column in (a, b)] for table in (real, rows)]
        length, own = high - low, own_high - own_low
        held = float(np.mean(own[~np.isnan(own)] >= 0))
        mean = float(np.nanmean(own) / np.nanmean(length))
        apart = [distance(own, length), round(mean, 3), distance(own_low, low), distance(own_high, high)]
        found[f"{a} <= {b}"] = [round(held, 4), *apart]
    for a, b in DEPENDENCIES.get(name, []):
        table, there = real.groupby(a)[b].first(), rows[a].isin(real[a])
        found[f"{a} -> {b}"] = [round(float((rows[a][there].map(table) == rows[b][there]).mean()), 4)]
    for on, b in ON_TWO.get(name, []):
        likely = rows[on].apply(tuple, axis=1).map(real.groupby(on)[b].first().to_dict())
        there = likely.notna()
        found[f"{', '.join(on)} -> {b}"] = [round(float((likely[there] == rows[b][there]).mean()), 4)]
    return found


def searched(table: pd.DataFrame, epsilon: float) -> bool:
    """Whether a rule is found."""
    draft = draft_of(in_memory(table), None, target=None, key=None)
    whole = Budget(epsilon, 1e-6)
    budget = GaussianBudget(Curator(Ledger(whole)), whole, "all", thresholds=thresholds(draft) + MOST_LENGTHS)
    discovery = Discovery(Rows(table), draft, budget, float(len(table)))
    found = Search(Rows(table), discovery.run(), budget, float(len(table)), discovery.of_number).run()
    return any(fact.fact is Fact.RULES for fact in found.facts)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, nargs="+", default=[20_000])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--fits", type=int, default=50)
    parser.add_argument("--only", nargs="+", choices=(*TABLES, "independent", "linked"), default=[*TABLES, "independent"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    for n in given.records:
        for epsilon in given.epsilons:
            block = f"{n} records, epsilon {epsilon:g}"
            for name in given.only:
                if name == "independent":
                    hits = sum(searched(independent(np.random.default_rng(seed), n), epsilon) for seed in range(given.fits))
                    store(given.out, block, {name: {"fits with a rule": [hits, given.fits]}}, machine=machine())
                    print(block, name, hits, given.fits, flush=True)
                    continue
                if name == "linked":
                    entry = fits_of_linked(n, epsilon, given.seeds)
                    store(given.out, block, entry, machine=machine())
                    print(block, entry, flush=True)
                    continue
                for seed in range(given.seeds):
                    real = {"hospital": hospital, "shop": shop, "power": power}[name](np.random.default_rng(seed), n)
                    for rules in ("auto", "off"):
                        start = time.process_time()
                        release = dpgen.fit(real, epsilon=epsilon, delta=1e-6, rules=rules)
                        spent = round(time.process_time() - start, 1)
                        said = [fact.sentence for fact in release.statement.facts if fact.fact in (Fact.RULES, Fact.NO_RULES)]
                        figures = judged(name, real, release.sample(n, random_state=seed))
                        own = {f"{name}, seed {seed}, rules {rules}": figures | {"said": said, "CPU s": spent}}
                        store(given.out, block, own, machine=machine())
                        print(block, own, flush=True)


if __name__ == "__main__":
    main()
