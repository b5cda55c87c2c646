"""Single numbers of known laws, bought and drawn again: how far samples are, beside a bootstrap and 64 public bins with noise.

    python benchmarks/laws.py [--records 1000 4000 40000] [--epsilons .5 1 3 10] [--seeds 3] [--only together alone]

Without options all of these: about half an hour on one core. A run that was stopped goes on where it was. `numbers.py` runs it.

`alone` fits a table of one column with all of the budget, `together` tables of eight light laws. Figures are means over seeds:
W1 / std, std and range of samples as a ratio to the real ones, and the distance of their 1 and 99 % quantiles by the real std.
The histogram knows the range of the law but for a thousandth at either end, and spends everything on its 64 equal bins.
Writes benchmarks/results/laws.json, with the number of seeds of each mean.
"""

import argparse
import json
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from measuring import machine, store

import dpgen
from dpgen.privacy.curator import Curator, GaussianBudget
from dpgen.systems.plan import SumsPlan

RESULTS = Path(__file__).parent / "results" / "laws.json"
Reals = npt.NDArray[np.float64]
Law = Callable[[np.random.Generator, int], npt.NDArray[np.generic]]


def _heaped(rng: np.random.Generator, n: int) -> npt.NDArray[np.int64]:
    value, kind = rng.normal(46, 17, n).clip(16, 99).astype(np.int64), rng.random(n)
    value = np.where(kind < 0.2, (value + 5) // 10 * 10, value)
    return np.where((kind > 0.2) & (kind < 0.4), (value + 2) // 5 * 5, value)


LAWS: dict[str, Law] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "shifted normal": lambda rng, n: rng.normal(1e6, 1, n),
    "uniform": lambda rng, n: rng.uniform(0, 1, n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "gamma": lambda rng, n: rng.gamma(2, 5, n),
    "Pareto 1.5": lambda rng, n: rng.pareto(1.5, n) + 1,
    "Pareto 2.5": lambda rng, n: rng.pareto(2.5, n) + 1,
    "lognormal 1": lambda rng, n: rng.lognormal(0, 1, n),
    "lognormal 2": lambda rng, n: rng.lognormal(0, 2, n),
    "t, 3 df": lambda rng, n: rng.standard_t(3, n),
    "Cauchy": lambda rng, n: rng.standard_cauchy(n),
    "two bumps": lambda rng, n: rng.choice([-20.0, 20.0], n) + rng.normal(size=n),
    "half zeros": lambda rng, n: np.where(rng.random(n) < 0.5, 0.0, rng.lognormal(3, 1, n)),
    "heaped": _heaped,
    "ages": lambda rng, n: (100 * rng.beta(1.3, 2.2, n)).astype(np.int64),
    "counts": lambda rng, n: rng.negative_binomial(1.2, 0.2, n),
    "years": lambda rng, n: 2003 - rng.gamma(2, 6, n).clip(0, 50).astype(np.int64),
    "dates": lambda rng, n: np.datetime64("2010-01-01", "s") + (4000 * rng.beta(2, 1, n)).astype(np.int64) * 86_400,
    "times of day": lambda rng, n: (
        np.datetime64("2024-01-01", "s")
        + 86_400 * rng.integers(0, 365, n)
        + (3600 * rng.normal(14, 3, n).clip(0, 23)).astype(int)
    ),
    "prices .99": lambda rng, n: np.floor(rng.lognormal(3, 1, n)) + 0.99,
    "latitudes": lambda rng, n: rng.choice([52.5, 48.1, 53.6, 50.1, 51.3], n) + rng.normal(0, 0.3, n),
}
TOGETHER = ("normal", "exponential", "t, 3 df", "lognormal 1", "ages", "uniform", "two bumps", "half zeros")


def as_reals(values: pd.Series) -> Reals:
    """Numbers, or seconds of times, that are there."""
    values = values.dropna()
    return values.to_numpy("datetime64[s]").astype(np.float64) if values.dtype.kind == "M" else values.to_numpy(np.float64)


def distances(real: Reals, drawn: Reals) -> list[float]:
    """W1 / std, ratios of std and range, and distances of the 1 and 99 % quantiles by the real std."""
    std, share = real.std(), (np.arange(4000) + 0.5) / 4000
    gaps = np.abs(np.quantile(real, share) - np.quantile(drawn, share))
    ends = [float(np.quantile(drawn, q) - np.quantile(real, q)) / std for q in (0.01, 0.99)]
    return [float(gaps.mean() / std), float(drawn.std() / std), float(np.ptp(drawn) / np.ptp(real)), *ends]


def of_histogram(real: Reals, mu: float, rng: np.random.Generator) -> Reals:
    """Draws from one noisy histogram of 64 equal public bins."""
    edges = np.linspace(*np.quantile(real, [0.001, 0.999]), 65)
    counts = np.histogram(real.clip(edges[0], edges[-1]), edges)[0] + rng.normal(0, 1 / mu, 64)
    cell = rng.choice(64, len(real), p=counts.clip(1e-9) / counts.clip(1e-9).sum())
    return edges[cell] + rng.random(len(real)) * np.diff(edges)[cell]


def measured(names: tuple[str, ...], n: int, epsilon: float, seed: int) -> dict[str, dict[str, list[float]]]:
    """Figures of every column of a table of these laws, of a bootstrap, and of a histogram."""
    plan = SumsPlan(epsilon=epsilon)
    assert plan.budget is not None
    mu = GaussianBudget(Curator(plan.open_ledger()), plan.budget, "histogram").mu
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({name: LAWS[name](rng, n) for name in names})
    rows = dpgen.fit(frame, "tables", epsilon=epsilon).sample(n, random_state=seed)
    found = dict[str, dict[str, list[float]]]()
    for name in names:
        real = as_reals(frame[name])
        drawn = {"samples": as_reals(rows[name]), "bootstrap": rng.choice(real, n)}
        drawn["histogram"] = of_histogram(real, mu, rng)
        found[name] = {kind: distances(real, values) for kind, values in drawn.items()}
    return found


def joined(before: dict[str, Any], found: dict[str, list[float]], seed: int) -> dict[str, Any]:
    """Means over `seeds` with one more."""
    means = {kind: (np.array(before.get(kind, 0.0)) * seed + figures) / (seed + 1) for kind, figures in found.items()}
    return {kind: np.round(mean, 5).tolist() for kind, mean in means.items()} | {"seeds": seed + 1}


def main() -> None:
    """Measure, print and write what is not yet in the file: a run that was stopped goes on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, nargs="+", default=[1000, 4000, 40_000])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1.0, 3.0, 10.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=("alone", "together"), default=["together", "alone"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    tables: dict[str, list[tuple[str, ...]]] = {"alone": [(name,) for name in LAWS], "together": [TOGETHER]}
    for seed, kind, epsilon, n in product(range(given.seeds), given.only, given.epsilons, given.records):
        block = f"{kind}, {n} records, epsilon {epsilon:g}"
        for names in tables[kind]:
            known = json.loads(given.out.read_text()).get(block, {}) if given.out.exists() else {}
            if known.get(names[0], {}).get("seeds", 0) != seed:
                continue
            entries = {name: joined(known.get(name, {}), of, seed) for name, of in measured(names, n, epsilon, seed).items()}
            store(given.out, block, entries, machine=machine())
            given.out.write_text(
                re.sub(r"\[\s+([^][{}]*?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", given.out.read_text())
            )
            print(block, seed, {name: entries[name]["samples"][:3] for name in names}, flush=True)


if __name__ == "__main__":
    main()
