"""Texts in each writing, bought and drawn again: whether they come back in it, and how far their law is.

    python benchmarks/texts.py [--records 8000] [--epsilon 3] [--columns 1] [--seeds 1]
    python benchmarks/texts.py --time [--records 1000000]

Tables of so many columns, every one in another writing. Amounts are lognormal, a quarter of them below 0; dates are of four
years with more of them in winter and on working days; times of day are around 14:00. Figures are W1 / std, and the total
variation of days of the week and quarters of dates, beside the same of a bootstrap of the data. `--time` measures the CPU
seconds for reading and the votes of a csv file of 15 columns of texts. Writes benchmarks/results/texts.json.
"""

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from measuring import machine, store
from scipy.stats import wasserstein_distance

import dpgen
from dpgen.columns.votes import votes
from dpgen.columns.writings import writing_of
from dpgen.data import load_table

RESULTS = Path(__file__).parent / "results" / "texts.json"
Reals = npt.NDArray[np.float64]

NUMBERS = """1234,50|1234,5|1.234,50|1,234.50|1 234,50|1\u202f234,50|1'234.50|1.234,50-|(1,234.50)|−1234,50
$1,234.50|($1,234.50)|£1,234.50|1.234,50 €|1 234,50\u00a0€|€ 1.234,50|1.234,50 EUR|CHF 1'234.50|USD 1,234.50|1234.50%|1234,50 %
1234.50 mg|1234.50 kWh"""
DATES = """%d.%m.%Y|%-d.%-m.%Y|%d.%m.%y|%d/%m/%Y|%m/%d/%Y|%-m/%-d/%Y|%-m/%-d/%y|%d-%m-%Y|%d %m %Y|%Y/%m/%d|%Y.%m.%d|%Y%m%d
%d %b %Y (en)|%-d-%b-%y (en)|%d%b%Y (en, small)|%d-%b-%Y (EN)|%B %-d, %Y (en)|%-d. %B %Y (de)|%-d %B %Y (fr)|%d %b %Y (es)"""
MOMENTS = """%d.%m.%Y %H:%M|%m/%d/%Y %-I:%M %p|%d/%m/%Y, %H:%M:%S|%Y%m%d%H%M%S|%Y-%m-%dT%H:%M:%SZ|%Y-%m-%dT%H:%M:%S.000+0000"""
PERIODS = "%m/%Y|%b %Y (en)|%B %Y (de)|%Y-%m|%YQ%q|Q%q %Y|%G-W%V"
CLOCKS = "%H:%M|%H:%M:%S|%-I:%M %p|%Hh%M|[h]:%M:%S|PT1M|PT160M"
DAY = 86_400


def _days(rng: np.random.Generator, n: int) -> npt.NDArray[np.int64]:
    """Days since 1970 of four years."""
    days = np.arange(17_532, 17_532 + 1461)
    weight = (1.5 + np.cos(2 * np.pi * days / 365.25)) * np.where((days + 4) % 7 < 5, 1.0, 0.3)
    return rng.choice(days, n, p=weight / weight.sum())


def _values(format: str, rng: np.random.Generator, n: int) -> Reals:
    kind = next(kind for kind, of in KINDS.items() if format in of)
    if kind == "number":
        return np.round(rng.lognormal(5, 1.1, n), 2) * rng.choice([1, 1, 1, -1], n)
    days, seconds = _days(rng, n), (3600 * rng.normal(14, 3, n).clip(0, 23.9)).astype(np.int64)
    if kind == "clock":
        return (seconds if "S" in format else seconds // 60).astype(np.float64)
    if kind == "period":
        stamps = pd.to_datetime(days, unit="D")
        quarters, weeks = 4 * stamps.year + stamps.quarter - 1, (days + 719_162) // 7
        found = quarters if "q" in format else weeks if "V" in format else 12 * stamps.year + stamps.month - 1
        return np.asarray(found, np.float64)
    return (days * DAY + (seconds // 60 * 60 if "%S" not in format else seconds) * (kind == "moment")).astype(np.float64)


KINDS = {
    kind: [format for line in text.split("\n") for format in line.split("|")]
    for kind, text in (("number", NUMBERS), ("date", DATES), ("moment", MOMENTS), ("period", PERIODS), ("clock", CLOCKS))
}


def _far(real: Reals, made: Reals, *, dates: bool) -> list[float]:
    """W1 / std, and of dates the total variation of days of the week and of quarters."""
    found = [float(wasserstein_distance(real, made) / real.std())]
    for part in ("day_of_week", "quarter") if dates else ():
        shares = [getattr(pd.to_datetime(pd.Series(x), unit="s").dt, part).value_counts(normalize=True) for x in (real, made)]
        found.append(float(shares[0].sub(shares[1], fill_value=0.0).abs().sum() / 2))
    return [round(figure, 4) for figure in found]


def measured(formats: list[str], n: int, epsilon: float, seed: int) -> dict[str, Any]:
    """Figures of one table, a column for each format."""
    rng = np.random.default_rng(seed)
    real = {format: _values(format, rng, n) for format in formats}
    writings: dict[str, Any] = {format: writing_of(format) for format in formats}
    frame = pd.DataFrame({format: writings[format].write(values, 2) for format, values in real.items()})
    drawn = dpgen.fit(frame, "tables", epsilon=epsilon, method="independent").sample(n, random_state=seed)
    found = {}
    for format, values in real.items():
        texts = drawn[format].fillna("").astype(str).to_numpy(object) if format in drawn else np.array([], object)
        read = writings[format].read(texts)
        dates = writings[format].kind in ("date", "datetime")
        again = rng.choice(values, n)
        own = _far(values, read.values[read.there], dates=dates) if read.there.any() else None
        found[format] = {"in the writing": float(read.there.mean()) if len(texts) else 0.0, "samples": own}
        found[format]["bootstrap"] = _far(values, again, dates=dates)
    return found


def timed(n: int) -> dict[str, float]:
    """CPU seconds of a csv file of 15 columns."""
    rng = np.random.default_rng(0)
    formats = [of[i] for of in KINDS.values() for i in (0, 2, 4)]
    frame = pd.DataFrame({f"{i} {f}": writing_of(f).write(_values(f, rng, n), 2) for i, f in enumerate(formats)})  # type: ignore[union-attr]
    with TemporaryDirectory() as folder:
        path = f"{folder}/a.csv"
        frame.to_csv(path, index=False)
        began = time.process_time()
        table: Any = load_table(path=path, test_fraction=0.0)
        read = time.process_time() - began
        for name in frame:
            table.rows.column(str(name), lambda values: votes(values, "any")).totals(lambda parts: torch.tensor(0))
    return {"rows": n, "reading": round(read, 1), "votes": round(time.process_time() - began - read, 1)}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int)
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--columns", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.time:
        figures = timed(given.records or 1_000_000)
        print(figures)
        return store(given.out, "time, 15 columns", figures, machine=machine())
    n, formats = given.records or 8000, [format for of in KINDS.values() for format in of]
    for seed in range(given.seeds):
        entries: dict[str, Any] = {}
        for start in range(0, len(formats), given.columns):
            entries |= measured(formats[start : start + given.columns], n, given.epsilon, seed)
            for format in formats[start : start + given.columns]:
                print(format, entries[format], flush=True)
        store(
            given.out,
            f"{n} records, epsilon {given.epsilon:g}, {given.columns} columns, seed {seed}",
            entries,
            machine=machine(),
        )


if __name__ == "__main__":
    main()
