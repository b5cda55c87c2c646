"""People and their rows: `python benchmarks/linked.py [--epsilons 1 10] [--seeds 2]`, on simulated patients.

Mean total variation distance of all tables of two columns (of people, of people and their rows, in a row, of two rows of a
person, of successive rows; every row counts once), the area under the curve of a classifier of a person's label by the other
columns and means over the rows, trained on synthetic people and judged on others, and CPU seconds of the fit on one thread.
Beside it: other patients of the same rule, a bootstrap, rows dealt to people at random without noise, and two tables apart. The
constants of the model were set on patients of seed 0 with these figures in view.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from measuring import machine, store

import dpgen
from dpgen.data.linked import load_linked
from dpgen.data.patients import simulated_patients
from dpgen.evaluation.linked import coder, errors, without_link
from dpgen.systems.relational.sums import Histories

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


def bootstrap(data: Histories) -> Histories:
    """People drawn with replacement, with their rows."""
    counts = np.diff(data.starts)
    drawn = np.random.default_rng(0).integers(0, len(counts), len(counts))
    rows = [data.rows[data.starts[i] : data.starts[i + 1]] for i in drawn]
    return Histories(data.people[drawn], np.concatenate(rows), np.r_[0, counts[drawn].cumsum()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    real, other, data = simulated_patients(), simulated_patients(seed=1), load_linked(test_fraction=0.0, max_rows=MOST)
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
    for name, histories in (("other patients", coded(data.alike(other))), ("bootstrap", bootstrap(private))):
        rows.append({"name": name, **errors(private, histories, shape)})
    dealt = real["visits"].assign(patient=np.random.default_rng(0).permutation(real["visits"]["patient"].to_numpy()))
    score = {"auc": auc(real | {"visits": dealt}, other)}
    rows.append({"name": "no link", **errors(private, without_link(private, 0), shape), **score})
    rows.append({"name": "real patients", "auc": auc(real, other)})
    means = pd.DataFrame(rows).groupby("name", sort=False).mean().round(4)
    print(means.to_string())
    entries = {str(name): dict(row.dropna()) for name, row in means.iterrows()}
    store(RESULTS, "patients", entries, machine=machine())


if __name__ == "__main__":
    main()
