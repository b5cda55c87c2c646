"""Links of people to a public table: errors with its columns, with its keys alone, and of rows dealt at random.

    python benchmarks/public_tables.py [--people 3000] [--epsilons 1 5 10]

Simulated students take up to 5 of 40 courses, each six times as often of their own department and four times of their own year.
Half a minute for a fit on one core. Writes benchmarks/results/public_tables.json.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import machine, store

import dpgen

RESULTS = Path(__file__).parent / "results" / "public_tables.json"
COURSES = 40
MAJORS = ["art", "bio", "law", "math"]
PAIRS = (("cid",), ("major", "dept"), ("year", "level"), ("major", "cid"))


def simulated(n: int, seed: int) -> dict[str, pd.DataFrame]:
    """Students, courses, and which student takes which course."""
    rng = np.random.default_rng(seed)
    departments, levels = rng.permutation(np.repeat(MAJORS, COURSES // 4)), rng.integers(1, 4, COURSES)
    courses = pd.DataFrame({"cid": range(100, 100 + COURSES), "dept": departments, "level": levels})
    students = pd.DataFrame({"sid": range(n), "major": rng.choice(MAJORS, n), "year": rng.integers(1, 4, n)})
    popular, rows = rng.dirichlet(np.full(COURSES, 2.0)), list[tuple[int, int]]()
    for student in students.itertuples():
        weights = popular * np.where(departments == student.major, 6, 1) * np.where(levels == student.year, 4, 1)
        chosen = rng.choice(COURSES, rng.integers(0, 6), replace=False, p=weights / weights.sum())
        rows += [(student.Index, 100 + course) for course in chosen]
    taken = pd.DataFrame(rows, columns=["sid", "cid"])
    return {"students": students, "courses": courses, "taken": taken.assign(mark=rng.integers(1, 6, len(taken)))}


def errors(real: dict[str, pd.DataFrame], other: dict[str, pd.DataFrame]) -> dict[str, float]:
    """Total variation distances of rows by some columns of all three tables."""

    def joined(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
        rows = tables["taken"].dropna(subset="cid").astype({"cid": int})
        return rows.merge(tables["students"], on="sid").merge(real["courses"], on="cid")

    laws = [[joined(tables).groupby([*pair]).size() for pair in PAIRS] for tables in (real, other)]
    distances = [0.5 * float((a / a.sum()).sub(b / b.sum(), fill_value=0.0).abs().sum()) for a, b in zip(*laws)]
    return {" and ".join(pair): round(distance, 3) for pair, distance in zip(PAIRS, distances)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=3_000)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 5.0, 10.0])
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    real = simulated(given.people, 0)
    link = {"taken": {"sid": "students.sid", "cid": "courses.cid"}}
    dealt = real | {"taken": real["taken"].assign(cid=np.random.default_rng(1).permutation(real["taken"]["cid"]))}
    found = {"rows dealt at random, without noise": errors(real, dealt)}
    for epsilon in given.epsilons:
        for name, drop in {"public": [], "public, keys alone": ["courses.dept", "courses.level"]}.items():
            release = dpgen.fit(real, epsilon=epsilon, links=link, public=["courses"], drop=drop)
            found[f"{name}, epsilon {epsilon:g}"] = errors(real, release.sample(given.people, random_state=0))
            print(name, epsilon, found[f"{name}, epsilon {epsilon:g}"], flush=True)
    store(given.out, f"{given.people} students", found, machine=machine("pandas"))


if __name__ == "__main__":
    main()
