"""Mixed tables at equal budgets: `python benchmarks/tables.py --data_root DIR [--only adult higgs large laws coverage]`.

Adult (32,561 train rows, 15 columns) and HIGGS (7,689 train rows, 28 numbers and a label), numbers in public bins that stand
here. Mean total variation of 1-, 2- and 3-way marginals against the train part, area under the curve of classifiers that are
trained on the synthetic rows and judged on the test part, and CPU seconds of fit and matched rows on one thread. The public
constants of the model were tuned on Adult and HIGGS with these scores in view, on other seeds. Beside it: the train rows
themselves, a bootstrap of them, and, at every epsilon, independent columns from released marginals. `large` is not scored: CPU
seconds of fit and independent rows for Adult's rows, for 10^6 draws from them, and for 300 columns. `coverage`: how often
`dpgen.intervals` cover the truth of a known law, beside intervals of one synthetic table that is taken for real.

Tables that nothing was tuned on: `--csv diamonds.csv ...` in the place of `--only` (`--no_target`: fits that do not know what
is predicted), each under the schema of its name in
`schemas/`: seven of R's data sets, as the package pydataset 0.2 has them, written by `to_csv(index=False)`; `--ranges` also
fits them without the bins of their schemas.

Rows of other packages are scored beside ours: `--export codes.npz` writes codes and sizes of Adult, and `--rows mst.npz --name
"MST, eps 1" --seconds 117` scores what another environment has made of them. With `pip install dpmm==0.1.9` there:

    model = MSTPipeline(epsilon=1, delta=1e-5, n_jobs=1, disable_processing=True)
    # or AIMPipeline(..., max_model_size=4, gen_kwargs={"rounds": 60, "n_iters": 300})
    model.fit(frame, domain={name: size ...})
    numpy.savez("mst.npz", S=model.generate(n_records=len(frame)))
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from measuring import add_data_root, machine, store
from scipy.stats import ks_2samp
from torch import Tensor

import dpgen
from dpgen import Runtime
from dpgen.metrics import marginal_errors, train_on_synthetic_auc
from dpgen.privacy.curator import Curator
from dpgen.schema import Schema
from dpgen.systems.plan import SumsPlan
from dpgen.systems.tables.fit import fit
from dpgen.systems.tables.model import TablesModel
from dpgen.systems.tables.plan import Method, TablesConfig

ADULT = {
    "age": np.arange(16.5, 92, 2),
    "workclass": None,
    "fnlwgt": np.geomspace(1e4, 1.5e6, 33),
    "education": None,
    "education-num": np.arange(0.5, 17),
    "marital-status": None,
    "occupation": None,
    "relationship": None,
    "race": None,
    "sex": None,
    "capital-gain": np.r_[-1, 0.5, np.geomspace(100, 1e5, 33)],
    "capital-loss": np.r_[-1, 0.5, np.linspace(100, 4500, 23)],
    "hours-per-week": np.r_[0.5, np.arange(4.5, 99, 5), 99.5],
    "native-country": None,
    "income": None,
}
"""Edges of the bins of numbers; None: categories."""

_RANGES = {"phi": (-1.75, 1.75), "eta": (-3.0, 3.0), "btag": (0.0, 3.2)}
BINS = {"btag": 4}
"""Equal bins of HIGGS's columns, 20 of those that are not named."""


@dataclass(frozen=True, eq=False)
class Case:
    """Codes of train and test rows under a public schema."""

    codes: Tensor
    test: Tensor
    schema: Schema


def coded(train: np.ndarray, test: np.ndarray, names: list[str], sizes: list[int], kinds: list[str], target: str) -> Case:
    """Codes as a table; kinds are "number", "category", and "gaps" where the last code is a missing value."""
    fields: list[dict[str, Any]] = []
    for name, size, kind in zip(names, sizes, kinds):
        listed = [f"v{i}" for i in range(size - (kind == "gaps"))]
        bounds = {"minimum": 0, "maximum": size - 1} if kind == "number" else {"enum": listed}
        of = "integer" if kind == "number" else "string"
        fields.append({"name": name, "type": of, "constraints": {"required": kind != "gaps", **bounds}})
    schema = Schema.from_descriptor({"fields": fields, "dpgen:target": target})
    assert schema.domain.sizes == tuple(sizes)
    return Case(torch.from_numpy(train), torch.from_numpy(test), schema)


def adult_rows(root: Path) -> list[pd.DataFrame]:
    """Train and test rows of UCI Adult, "?" where there is no value."""
    files = [("adult.data.gz", 0), ("adult.test.gz", 1)]
    options: dict[str, Any] = {"header": None, "names": list(ADULT), "skipinitialspace": True, "keep_default_na": False}
    train, test = (pd.read_csv(root / "adult" / name, skiprows=skip, **options) for name, skip in files)
    test["income"] = test["income"].str.rstrip(".")
    return [train, test]


def adult(root: Path, *others: pd.DataFrame) -> Case:
    """UCI Adult in the bins above; other rows of the same columns take the place of the train rows."""
    train, test = adult_rows(root)
    values_of = {name: sorted({*train[name], *test[name]} - {"?"}) for name, edges in ADULT.items() if edges is None}
    gaps = {name for name in values_of if (train[name] == "?").any()}
    train = others[0] if others else train
    codes, sizes, kinds = [], [], []
    for name, edges in ADULT.items():
        if edges is not None:
            codes.append([np.searchsorted(edges[1:-1], x[name], side="right") for x in (train, test)])
            sizes.append(len(edges) - 1)
            kinds.append("number")
            continue
        values = values_of[name] + ["?"] * (name in gaps)
        last = len(values) - 1  # of a released rest, which has no place of its own
        codes.append([pd.Categorical(x[name], categories=values).codes.astype(np.int64) % (last + 1) for x in (train, test)])
        sizes.append(len(values))
        kinds.append("gaps" if "?" in values else "category")
    stacked = [np.stack([pair[i] for pair in codes], axis=1) for i in (0, 1)]
    return coded(*stacked, list(ADULT), sizes, kinds, "income")


def as_it_is(root: Path, epsilon: float, seed: int) -> dict[str, float]:
    """Scores of a release of Adult's rows of which nothing is said but the target, in the bins above and by values."""
    train, _ = (rows.mask(rows == "?") for rows in adult_rows(root))
    start = time.process_time()
    release = dpgen.fit(train, "tables", epsilon=epsilon, target="income", seed=seed)
    drawn = release.samples(release.size, random_state=seed, rows="matched").in_form(release.form)
    seconds = time.process_time() - start
    found = scores(adult(root), adult(root, drawn.fillna("?")).codes)
    distances = {
        name: float(ks_2samp(train[name], drawn[name]).statistic) for name, edges in ADULT.items() if edges is not None
    }
    worst = max(distances, key=lambda name: distances[name])
    print({name: round(value, 4) for name, value in distances.items()})
    return found | {"worst KS": round(distances[worst], 4), "CPU seconds": round(seconds, 1)}


def higgs(root: Path) -> Case:
    """The rows of the HIGGS subset, 70 % of them for training, in equal bins of public ranges."""
    frame = pd.read_csv(root / "higgs_11k" / "higgs.csv.gz")
    columns, sizes = [], []
    for name in frame.columns:
        part = next((key for key in _RANGES if key in name), "")
        low, high = _RANGES.get(part, (0.0, 3.5))
        bins = 2 if name == "label" else BINS.get(part, 20)
        scaled = frame[name] if name == "label" else (frame[name] - low) / (high - low) * bins
        columns.append(np.clip(scaled.to_numpy().astype(np.int64), 0, bins - 1))
        sizes.append(bins)
    codes = np.stack(columns, axis=1)[np.random.default_rng(0).permutation(len(frame))]
    return coded(codes[:7689], codes[7689:], list(frame.columns), sizes, ["number"] * len(sizes), "label")


def fresh(path: Path) -> Case:
    """A csv file under the schema of its name in `schemas/`, 70 % of its rows for training."""
    schema = Schema.from_descriptor(Path(__file__).parent / "schemas" / f"{path.stem}.json")
    codes = schema.encode(pd.read_csv(path))
    codes = codes[torch.randperm(len(codes), generator=torch.Generator().manual_seed(0))]
    cut = round(0.7 * len(codes))
    return Case(codes[:cut], codes[cut:], schema)


def from_ranges(path: Path, epsilon: float, seed: int) -> dict[str, float]:
    """Scores, under the schema with its bins, of a release that was told of numbers their ranges alone."""
    schema = json.loads((Path(__file__).parent / "schemas" / f"{path.stem}.json").read_text())
    case, frame = fresh(path), pd.read_csv(path)[[field["name"] for field in schema["fields"]]]
    train = frame.iloc[torch.randperm(len(frame), generator=torch.Generator().manual_seed(0))[: len(case.codes)].numpy()]
    fields = [{key: value for key, value in field.items() if key != "dpgen:bins"} for field in schema["fields"]]
    start = time.process_time()
    release = dpgen.fit(train, "tables", epsilon=epsilon, schema=schema | {"fields": fields}, seed=seed)
    drawn = release.samples(release.size, random_state=seed, rows="matched").to_pandas()
    seconds = time.process_time() - start
    numbers = [name for name in drawn if pd.api.types.is_numeric_dtype(train[name])]
    distances = {name: float(ks_2samp(train[name].dropna(), drawn[name].dropna()).statistic) for name in numbers}
    found = scores(case, case.schema.encode(drawn))
    return found | {"worst KS": round(max(distances.values()), 4), "CPU seconds": round(seconds, 1)}


def scores(case: Case, synthetic: Tensor) -> dict[str, float]:
    """Total variation of all marginals of one to three columns, and areas under the curve."""
    domain = case.schema.domain
    found = {
        f"TV {k}": float(marginal_errors(case.codes, synthetic, k, n_sets=100_000 if k < 3 else 1000).mean()) for k in (1, 2, 3)
    }
    assert domain.target is not None
    for judge in ("boosting", "logistic"):
        options: dict[str, Any] = {"sizes": domain.sizes, "ordered": domain.ordered, "judge": judge, "seed": 0}
        found[f"AUC {judge}"] = train_on_synthetic_auc(synthetic, case.test, domain.target, **options)
    return {name: round(value, 4) for name, value in found.items()}


def released(case: Case, epsilon: float, seed: int, method: Method = "auto") -> TablesModel:
    """A model of the train rows."""
    plan, runtime = SumsPlan(epsilon=epsilon), Runtime(seed=seed, progress_bar=False)
    return fit(case, plan=plan, config=TablesConfig(method=method), curator=Curator(plan.open_ledger()), runtime=runtime)


def untargeted(case: Case) -> Case:
    """The same rows under a schema that names no column to predict."""
    described = {key: value for key, value in case.schema.descriptor().items() if key != "dpgen:target"}
    return Case(case.codes, case.test, Schema.from_descriptor(described))


def ours(case: Case, epsilon: float, seed: int, method: Method = "auto", *, target: bool = True) -> dict[str, float]:
    """Scores of one release, and its CPU seconds; without `target` the fit does not know what is predicted."""
    start = time.process_time()
    model = released(case if target else untargeted(case), epsilon, seed, method)
    table = model.samples(model.size, random_state=seed, rows="matched").to_pandas()
    seconds = time.process_time() - start
    return scores(case, case.schema.encode(table)) | {"CPU seconds": round(seconds, 1)}


def large(case: Case) -> Iterator[tuple[str, dict[str, float]]]:
    """CPU seconds of the fit and of as many independent rows, at epsilon 1, of one table after the other."""
    rng = np.random.default_rng(0)
    million = case.codes[torch.from_numpy(rng.integers(0, len(case.codes), 10**6))]
    wide = rng.integers(0, 8, (len(case.codes), 300)) * (rng.random((len(case.codes), 1)) < 0.5)
    names = [f"c{i}" for i in range(wide.shape[1])]
    cases = {
        "Adult": case,
        "Adult, 10^6 draws": Case(million, case.test, case.schema),
        "300 columns": coded(wide, wide[:1], names, [8] * wide.shape[1], ["number"] * wide.shape[1], "c0"),
    }
    for name, given in cases.items():
        start = time.process_time()
        model = released(given, 1.0, 0)
        middle = time.process_time()
        model.samples(len(given.codes), random_state=0)
        seconds = {"fit": middle - start, "rows": time.process_time() - middle}
        yield name, {key: round(value, 1) for key, value in seconds.items()}


def large_raw() -> Iterator[tuple[str, dict[str, float]]]:
    """CPU seconds of the fit of large tables of which nothing is said, at epsilon 1."""
    rng, n = np.random.default_rng(0), 10**6
    mixed: dict[str, Any] = {f"n{i}": rng.lognormal(3, 1, n).round(2) for i in range(5)}
    mixed |= {f"i{i}": rng.integers(0, 100, n) for i in range(5)}
    mixed |= {f"t{i}": rng.choice(list("abcde"), n) for i in range(7)}
    mixed |= {"day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")}
    mixed |= {"gaps": pd.Series(rng.normal(0, 1, n)).mask(rng.random(n) < 0.2), "truth": rng.random(n) < 0.3}
    frames = {
        "10^6 different texts, raw": pd.DataFrame(
            {"text": [f"w{i:x}" for i in rng.permutation(n)], "x": rng.integers(0, 9, n)}
        ),
        "300 columns, raw": pd.DataFrame({f"c{i}": rng.integers(0, 8, 5000) for i in range(300)}),
        "10^6 rows of 20 columns, raw": pd.DataFrame(mixed),
    }
    for name, frame in frames.items():
        start = time.process_time()
        dpgen.fit(frame, "tables", epsilon=1.0, seed=1)
        yield name, {"fit": round(time.process_time() - start, 1)}


def laws(root: Path) -> dict[str, dict[str, float]]:
    """Kolmogorov-Smirnov distances of values from those that 20 equal bins and their exact shares give back, by law."""
    frames = {
        "Adult": pd.read_csv(root / "adult" / "adult.data.gz", header=None, names=list(ADULT), skipinitialspace=True)[
            ["age", "fnlwgt", "hours-per-week"]
        ],
        "HIGGS": pd.read_csv(root / "higgs_11k" / "higgs.csv.gz").drop(columns="label"),
    }
    found: dict[str, dict[str, float]] = {}
    for source, frame in frames.items():
        for name in frame.columns[frame.nunique() > 20]:
            values = frame[name].to_numpy(np.float64)
            rules = {"minimum": float(values.min()), "maximum": float(values.max()), "required": True}
            found[f"{source}, {name}"] = {law: round(_distance(values, rules, law), 4) for law in ("linear", "uniform")}
        own = [found[key] for key in found if key.startswith(source)]
        found[f"{source}, mean"] = {law: round(float(np.mean([o[law] for o in own])), 4) for law in ("linear", "uniform")}
    return found


def _distance(values: np.ndarray, rules: dict[str, Any], law: str) -> float:
    field = {"name": "x", "type": "number", "constraints": rules, "dpgen:bins": {"equal": 20}, "dpgen:law": law}
    schema = Schema.from_descriptor({"fields": [field]})
    codes = schema.encode(pd.DataFrame({"x": values}))
    shares = np.bincount(codes[:, 0].numpy(), minlength=schema.domain.sizes[0]) / len(values)
    drawn = schema.decode(codes, torch.Generator().manual_seed(0), [shares])["x"]
    return float(ks_2samp(values, drawn).statistic)


VISITS = {
    "fields": [
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 19, "required": True}},
        {"name": "smoker", "type": "boolean", "constraints": {"required": True}},
        {"name": "ward", "type": "string", "constraints": {"enum": ["a", "b", "c"], "required": True}},
        {"name": "cost", "type": "integer", "constraints": {"minimum": 0, "maximum": 39, "required": True}},
    ]
}


def visits(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Rows of a known law: the cost grows with age, by .6 for each step, and with smoking, by 4."""
    age = rng.integers(0, 20, n)
    smoker = rng.random(n) < np.where(age < 8, 0.2, 0.4)
    ward = np.where(rng.random(n) < 0.2 + 0.03 * age, "a", np.where(rng.random(n) < 0.3, "c", "b"))
    cost = np.clip(np.round(6 + 0.6 * age + 4 * smoker + rng.normal(0, 4, n)), 0, 39).astype(int)
    return pd.DataFrame({"age": age, "smoker": smoker, "ward": ward, "cost": cost})


def asked(rows: pd.DataFrame) -> pd.DataFrame:
    """Means, shares and coefficients of least squares, with the standard errors that they would have of private rows."""
    x = np.stack([np.ones(len(rows)), rows["age"], rows["smoker"]], axis=1).astype(float)
    inverse = np.linalg.inv(x.T @ x)
    beta = inverse @ x.T @ rows["cost"].to_numpy(float)
    variance = ((rows["cost"] - x @ beta) ** 2).mean() * np.diag(inverse)
    found = {f"coefficient of {name}": (beta[i], variance[i] ** 0.5) for i, name in enumerate(("age", "smoker"), 1)}
    smokers = (rows["ward"] == "a")[rows["smoker"]]
    for name, values in {"mean age": rows["age"], "smokers": rows["smoker"], "ward a of smokers": smokers}.items():
        found[name] = (values.mean(), values.std() / len(values) ** 0.5)
    return pd.DataFrame(found, index=["value", "error"]).T


def coverage(tables: int, n: int, replicates: int) -> dict[str, dict[str, float]]:
    """Shares of 95 % intervals that cover, of `intervals` and of one synthetic table taken for real, at epsilon 1."""
    truth, found, start = asked(visits(2_000_000, np.random.default_rng(0)))["value"], list[pd.DataFrame](), time.process_time()
    for i in range(tables):
        frame = visits(n, np.random.default_rng(1000 + i))
        release = dpgen.fit(frame, "tables", epsilon=1.0, delta=1e-5, schema=VISITS, seed=i)
        own = dpgen.intervals(release, lambda rows: asked(rows)["value"], replicates=replicates, random_state=i)
        one = asked(release.sample(n, random_state=i))
        covered = {"covered": own["lower"].le(truth) & own["upper"].ge(truth), "half width": (own["upper"] - own["lower"]) / 2}
        half = 1.96 * one["error"]
        taken = {"one table taken for real": (one["value"] - truth).abs() < half, "its half width": half}
        found.append(pd.DataFrame(covered | taken).astype(float))
    mean = sum(found[1:], found[0]) / tables
    print(f"{tables} tables of {n} rows: {time.process_time() - start:.0f} CPU seconds")
    return {str(name): {key: round(value, 3) for key, value in row.items()} for name, row in mean.iterrows()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_data_root(parser, "adult/ and higgs_11k/")
    parts = ["adult", "higgs", "raw", "large", "laws", "coverage"]
    parser.add_argument("--only", nargs="+", choices=parts, default=["adult", "higgs"])
    parser.add_argument("--csv", nargs="+", type=Path, default=[], help="other tables, each with a schema in schemas/, instead")
    parser.add_argument("--ranges", action="store_true", help="also fit these from the ranges of their numbers, without bins")
    parser.add_argument("--no_target", action="store_true", help="only fits that are not told the column to predict")
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 1.0, 3.0, 10.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[101, 102, 103])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "tables.json")
    parser.add_argument("--export", type=Path, help="write codes and sizes of Adult for other packages, and stop")
    parser.add_argument("--rows", type=Path, help="rows that another package has made of Adult, an array S of codes")
    parser.add_argument("--name", default="", help="of these rows")
    parser.add_argument("--seconds", type=float, help="CPU seconds that they took")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases: dict[str, Any] = {"adult": adult, "higgs": higgs}
    for path in options.csv:
        cases[path.stem] = lambda _, path=path: fresh(path)
    if options.export or options.rows:
        case = fresh(options.csv[0]) if options.csv else adult(options.data_root)
        if options.export:
            np.savez(options.export, codes=case.codes.numpy(), sizes=np.array(case.schema.domain.sizes))
            return
        found = scores(case, torch.from_numpy(np.load(options.rows)["S"].astype(np.int64)))
        store(
            options.out,
            f"{options.csv[0].stem if options.csv else 'adult'}, others",
            {options.name: found | {"CPU seconds": options.seconds}},
        )
        return
    for name in [path.stem for path in options.csv] or options.only:
        if name == "large":
            for table, seconds in chain(large(adult(options.data_root)), large_raw()):
                store(options.out, name, {table: seconds}, machine=machine("scikit-learn", "scipy"))
                print(table, seconds, flush=True)
            continue
        if name == "raw":
            for epsilon in options.epsilons:
                runs = {f"eps {epsilon:g}, seed {seed}": as_it_is(options.data_root, epsilon, seed) for seed in options.seeds}
                store(options.out, name, runs, machine=machine("scikit-learn", "scipy"))
            continue
        if name == "laws":
            store(options.out, name, laws(options.data_root))
            continue
        if name == "coverage":
            store(options.out, name, {"4,000 rows": coverage(30, 4_000, 10)})
            continue
        case = cases[name](options.data_root)
        if options.no_target:
            for epsilon in options.epsilons:
                runs = {f"seed {seed}": ours(case, epsilon, seed, target=False) for seed in options.seeds}
                store(options.out, name, {f"eps {epsilon:g}, no target": runs})
                print(name, epsilon, runs, flush=True)
            continue
        again = case.codes[torch.randint(len(case.codes), (len(case.codes),), generator=torch.Generator().manual_seed(0))]
        plain = {"real train rows": scores(case, case.codes), "bootstrap of them": scores(case, again)}
        store(options.out, name, plain, machine=machine("scikit-learn", "scipy"))
        for epsilon in options.epsilons:
            alone = ours(case, epsilon, options.seeds[0], "independent")
            runs = [ours(case, epsilon, seed) for seed in options.seeds]
            mean = {key: round(float(np.mean([run[key] for run in runs])), 4) for key in runs[0]}
            found = {f"eps {epsilon:g}": {"mean": mean, "runs": runs}, f"eps {epsilon:g}, independent columns": alone}
            if options.ranges:
                path = next(path for path in options.csv if path.stem == name)
                found[f"eps {epsilon:g}, ranges alone"] = {
                    f"seed {seed}": from_ranges(path, epsilon, seed) for seed in options.seeds
                }
            store(options.out, name, found)
            print(name, epsilon, mean, alone, flush=True)


if __name__ == "__main__":
    main()
