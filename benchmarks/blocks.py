"""Blocks of columns: in how many rows of a release a parity holds, and what a forest learns of it.

    python benchmarks/blocks.py [--records 20000] [--epsilon 1] [--orders 2 3 4 5 6]

The target is the parity of the first k of 16 columns of two values, so k + 1 columns depend on each other; beside them are
four normal columns, two of which depend on each other, one on the target, one on a column of two values. Nothing is declared.
Accuracy is that of a forest of 100 trees on 20,000 other rows, after rows of the release and after the real ones. Less than a
minute for an order on one core. Writes benchmarks/results/blocks.json.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import machine, store
from sklearn.ensemble import RandomForestClassifier

import dpgen

RESULTS = Path(__file__).parent / "results" / "blocks.json"
WIDTH = 16


def parity(columns: int, n: int, seed: int) -> pd.DataFrame:
    """Rows whose target y is the parity of so many columns."""
    rng = np.random.default_rng(seed)
    x, z = rng.integers(0, 2, (n, WIDTH)), rng.normal(size=(n, 4))
    y = x[:, :columns].sum(1) % 2
    z += np.stack([0 * y, 0.8 * z[:, 0], 0.7 * y, x[:, 5]], axis=1)
    bits = pd.DataFrame(x.astype(bool), columns=[f"x{i}" for i in range(WIDTH)])
    return bits.assign(**{f"z{i}": z[:, i].round(3) for i in range(4)}, y=y.astype(bool))


def learnt(rows: pd.DataFrame, test: pd.DataFrame) -> float:
    """Accuracy of a forest on other rows."""
    forest = RandomForestClassifier(100, random_state=0).fit(rows.drop(columns="y").astype(float), rows["y"].astype(bool))
    return round(float(forest.score(test.drop(columns="y").astype(float), test["y"])), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--orders", type=int, nargs="+", default=[2, 3, 4, 5, 6])
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    found = {}
    for columns in given.orders:
        real, test = (parity(columns, n, seed) for n, seed in ((given.records, 0), (20_000, 99)))
        release = dpgen.fit(real, "tables", epsilon=given.epsilon, target="y")
        rows = release.sample(given.records, random_state=0).dropna()
        kept = rows[[f"x{i}" for i in range(columns)]].astype(int).sum(axis=1) % 2 == rows["y"].astype(int)
        found[f"parity of {columns}"] = {
            "rows that keep it": round(float(kept.mean()), 3),
            "forest, rows of the release": learnt(rows, test),
            "forest, real rows": learnt(real, test),
        }
        print(columns, found[f"parity of {columns}"], flush=True)
    store(given.out, f"{given.records} records, epsilon {given.epsilon:g}", found, machine=machine("pandas", "scikit-learn"))


if __name__ == "__main__":
    main()
