"""Questions of a workload: their real errors beside those that releases state, before and after consistency.

    python benchmarks/workload.py [--records 5000] [--epsilon 1] [--fits 50] [--components 64]

About 6 minutes on one core. Nothing of the simulated table is declared. Real errors are roots of mean squares over fits and
over cells of a table, or over means that have a stated error; the means of noisy counts are those of their groups. Ratios are
to the root of the mean of stated squares. Writes benchmarks/results/workload.json.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from measuring import machine, store

import dpgen
from dpgen.systems.tables.model import TablesModel
from dpgen.systems.tables.workload import Answer, expected, group_means

RESULTS = Path(__file__).parent / "results" / "workload.json"
QUESTIONS: list[Any] = [
    ["ward", "diagnosis"],
    ["age", "sex", "region"],
    {"mean": "cost", "by": ["ward"]},
    ["region"],
    ["ward", "season", "smoker", "therapy"],
    {"mean": "cost", "by": ["sex", "smoker", "season"]},
]
CLEAR = 5.0  # noise stds of the number of records of a mean that has a stated error
Reals = npt.NDArray[np.float64]


def patients(n: int) -> pd.DataFrame:
    """Wards of which diagnoses and a lognormal cost depend, ages of which sex and region do.

    Ward, season and smoker say the therapy of nine in ten, and no two of them say anything of it; sex, smoker and season raise
    the cost by half, and no two of them do.
    """
    rng = np.random.default_rng(0)
    ward = rng.choice(8, n, p=np.arange(8, 0, -1) / 36)
    diagnosis, age = (ward + rng.integers(0, 6, n)) % 12, rng.integers(0, 20, n)
    sex, region = rng.random(n) < 0.5 + 0.02 * (age - 10), (age // 5 + rng.integers(0, 2, n)) % 5
    smoker, season = rng.random(n) < 0.5, rng.integers(0, 4, n)
    therapy = np.where(rng.random(n) < 0.9, (ward + season + 2 * smoker) % 4, rng.integers(0, 4, n))
    high = (sex ^ smoker ^ (season > 1)).astype(float)
    cost = np.exp(rng.normal(5 + 0.15 * ward + 0.4 * high, 0.8, n)).round(2)
    table = {"ward": [f"W{w}" for w in ward], "diagnosis": [f"D{d:02}" for d in diagnosis], "age": age}
    table |= {"sex": np.where(sex, "f", "m"), "region": [f"R{x}" for x in region], "cost": cost}
    return pd.DataFrame(table | {"smoker": smoker, "season": [f"S{x}" for x in season], "therapy": [f"T{x}" for x in therapy]})


def counts_of(release: TablesModel, own: Answer, table: pd.DataFrame) -> tuple[Reals, Reals, Reals]:
    """Noisy counts of a question, those of the model, and real ones."""
    measured = release.measurements[own.measured]
    groups = release.columns.coarse.then(release.levels[measured.marginal.level]).apply(release.schema.encode(table).numpy())
    shape = measured.values.shape
    cells = np.ravel_multi_index(tuple(groups[c] for c in measured.marginal.columns), shape)
    real = np.bincount(cells, minlength=measured.values.size).reshape(shape)
    model = release.columns.n * expected(release.mixture, measured.marginal, release.levels)
    return measured.values, model, real.astype(np.float64)


def of_means(release: TablesModel, own: Answer, table: pd.DataFrame) -> tuple[Reals, Reals]:
    """Squared errors of means of noisy counts and of the model's answers, where they have a stated one."""
    mean = own.question.columns[-1]
    names, measured = release.schema.domain.names, release.measurements[own.measured]
    number = names.index(mean)
    noisy, model, _ = (np.moveaxis(x, measured.marginal.columns.index(number), -1) for x in counts_of(release, own, table))
    values = group_means(release.columns, release.schema, number, release.levels[measured.marginal.level])
    by, there = [c for c in measured.marginal.columns if c != number], np.isfinite(values)
    codes = release.schema.encode(table).numpy()
    cells = np.ravel_multi_index(tuple(codes[:, c] for c in by), noisy.shape[:-1])  # their groups are codes: columns are small
    sums, rows = (np.bincount(cells, x, noisy[..., 0].size) for x in (table[mean], None))
    wanted = (sums / np.where(rows > 0, rows, np.nan)).reshape(noisy.shape[:-1])
    clear = model[..., there].sum(-1) > CLEAR * float(np.mean(measured.noise_std)) * there.sum() ** 0.5
    kept = clear & np.isfinite(wanted)
    with np.errstate(divide="ignore"):  # in cells that are not kept
        found = noisy[..., there] @ values[there] / noisy[..., there].sum(-1)
    order = np.argsort([names.index(name) for name in own.question.columns[:-1]])
    answer = np.asarray(release._answer(own.question)).transpose(order)
    return (found[kept] - wanted[kept]) ** 2, (answer[kept] - wanted[kept]) ** 2


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=5_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--fits", type=int, default=50)
    parser.add_argument("--components", type=int, default=64)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    table = patients(given.records)
    found: dict[str, list[list[float]]] = {}
    for seed in range(given.fits):
        release = dpgen.fit(
            table, "tables", epsilon=given.epsilon, workload=QUESTIONS, dtypes="bought", seed=seed, components=given.components
        )
        assert isinstance(release, TablesModel)
        for own in release.answers:
            if own.question.mean is None:
                noisy, model, real = counts_of(release, own, table)
                before, after = (noisy - real) ** 2, (model - real) ** 2
            else:
                before, after = of_means(release, own, table)
            if own.noise_std is not None and own.model_std is not None and before.size:
                row = [float(before.mean()), float(after.mean()), own.noise_std**2, own.model_std**2, float(before.size)]
                found.setdefault(str(own.question), []).append(row)
    figures = {}
    for question, rows in found.items():
        before, after, noise, model, cells = np.mean(rows, axis=0).tolist()
        figures[question] = {
            "fits": len(rows),
            "cells": round(cells, 1),
            "before": round(before**0.5, 2),
            "before / stated": round((before / noise) ** 0.5, 3),
            "after": round(after**0.5, 2),
            "after / stated": round((after / model) ** 0.5, 3),
        }
        print(question, figures[question], flush=True)
    key = f"{given.records} records, epsilon {given.epsilon:g}, {given.fits} fits, {given.components} components"
    store(given.out, key, figures, machine=machine())


if __name__ == "__main__":
    main()
