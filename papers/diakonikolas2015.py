r"""Diakonikolas, Hardt and Schmidt (2015): Figure 2, the maximum error rule to the letter; Figures 1 and 3, its error and time.

Each of T steps of `published_rule` selects a dyadic interval where the model of the counts is wrong, by the choosing mechanism
of Beimel, Nissim and Stemmer (2013), and adds noisy counts of the records left of the interval and inside it. As printed it is
not private, for two reasons:

- UPDATE adds Laplace(1/(2n)) to shares, scale 1/2 in records, whatever epsilon and T are. Replacing a record moves the two
  counts by 2 together: a step's answers cost 4, and a run (4 T + 1/2) epsilon at epsilon = 1. `corrected_scale` is what half
  of the budget buys.
- The choosing mechanism needs scores that are 0 without records and only grow with them; |count - model| does neither.

It runs in NumPy's floats on public draws, for the figures; `dpgen train --model merr` is what private data need.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import isotonic_regression
from tqdm.auto import tqdm

from dpgen.data.toy import OrderedMixture, reference_mixture
from dpgen.evaluation.columns import empirical_error, kolmogorov_error
from dpgen.figures import new_figure, save_figure
from dpgen.privacy import Curator, Ledger
from dpgen.statement import PrivacyStatement
from dpgen.systems import OrderedConfig, OrderedDistribution, ordered_estimator
from papers.common import main, write_table
from papers.data import load_cms, load_higgs

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

EPSILON = 1.0
STEPS = (4, 8, 12, 16, 20)
SIZES = (10**3, 10**4, 10**5, 10**6, 10**7)
N = 10**18
BETA = 0.1
"""Failure probability of a choosing mechanism."""
MOST_PUBLISHED = 10**5
"""Records with which `published_rule` is run: it lists all intervals with a record."""
_STYLES = {"published": ":", "points": "--"}


# -- Figure 2 ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """A piecewise linear count: `counts` (m,) records lie below `positions` (m,), from 0 to N."""

    positions: Integers
    counts: Reals

    def at(self, x: Integers) -> Reals:
        """Records below x."""
        return np.interp(x, self.positions, self.counts)

    @classmethod
    def fitted(cls, knots: list[int], answers: list[float], *, N: int, size: int) -> "Model":
        """The monotone counts that fit noisy answers best; answers at 0 and N are dropped."""
        inside = [(knot, answer) for knot, answer in zip(knots, answers) if 0 < knot < N]
        positions, groups = np.unique([knot for knot, _ in inside], return_inverse=True)
        repeats = np.bincount(groups).astype(np.float64)
        means = np.bincount(groups, [answer for _, answer in inside]) / repeats
        fitted = isotonic_regression(means, weights=repeats).x.clip(0, size) if len(means) else means
        return cls(np.array([0, *positions, N], np.int64), np.array([0.0, *fitted, size]))


def dyadic_intervals(x: Integers, model: Model, *, N: int) -> tuple[Integers, Integers, Reals]:
    """Starts, widths and scores |count - model| of all dyadic intervals with a score of at least 1; x is sorted."""
    depth = (N - 1).bit_length()
    starts, found = np.zeros(1, np.int64), list[tuple[Integers, Integers, Reals]]()
    for level in range(depth + 1):
        width = 1 << (depth - level)
        ends = np.minimum(starts + width, N)
        counts = np.diff(np.searchsorted(x, [starts, ends]), axis=0)[0]
        masses = model.at(ends) - model.at(starts)
        scores, lives = np.abs(counts - masses), np.maximum(counts, masses) >= 1  # what is below 1 has no heavier part
        found.append((starts[scores >= 1], ends[scores >= 1], scores[scores >= 1]))
        starts = np.concatenate([starts[lives], starts[lives] + width // 2])
        starts = np.sort(starts[starts < N])
    first, last, errors = (np.concatenate(parts) for parts in zip(*found))
    return first, last, errors


def choose(scores: Reals, rng: np.random.Generator, *, epsilon: float, delta: float) -> int | None:
    """The choosing mechanism on scores >= 1 that a record moves few of (growth bound 2): one of them, or None to stop."""
    least = 8 / epsilon * math.log(8 / (BETA * epsilon * delta))
    if not len(scores) or scores.max() + rng.laplace(0, 4 / epsilon) < least:
        return None
    return int(np.argmax(epsilon * scores / 4 + rng.gumbel(size=len(scores))))  # with probability ~ exp(epsilon score / 4)


def published_rule(
    x: Integers, *, N: int, steps: int, epsilon: float, delta: float, scale: float, rng: np.random.Generator
) -> Model:
    """Figure 2 on sorted x: T choices of epsilon / (2 T) and delta / T each, answers with Laplace noise of `scale` records."""
    knots, answers = list[int](), list[float]()
    model = Model.fitted(knots, answers, N=N, size=len(x))
    for _ in range(steps):
        first, last, scores = dyadic_intervals(x, model, N=N)
        chosen = choose(scores, rng, epsilon=epsilon / (2 * steps), delta=delta / steps)
        if chosen is None:
            break
        ends = np.array([first[chosen], last[chosen]])
        prefixes = np.cumsum(np.diff(np.searchsorted(x, ends), prepend=0) + rng.laplace(0, scale, 2))
        knots += ends.tolist()
        answers += prefixes.tolist()
        model = Model.fitted(knots, answers, N=N, size=len(x))
    return model


PRINTED_SCALE = 0.5
"""Of the Laplace noise in UPDATE, in records."""


def corrected_scale(steps: int, epsilon: float) -> float:
    """Scale of Laplace noise, in records, at which all answers cost epsilon / 2: a replaced record moves 2 counts by 1."""
    return 4 * steps / epsilon


# -- Figures 1 and 3 ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A data set: draws of a known mixture, or the first n of a file's records, measured against all of them."""

    name: str
    mixture: OrderedMixture | None = None
    records: Integers | None = None

    @property
    def most(self) -> int:
        """Records there are."""
        return SIZES[-1] if self.records is None else len(self.records)

    @cached_property
    def everything(self) -> Integers:
        """All records of a file, sorted."""
        assert self.records is not None
        return np.sort(self.records)

    @property
    def domain(self) -> int:
        """Values of the grid; that of the files includes both bounds."""
        return N if self.records is None else N + 1

    def first(self, n: int, rng: np.random.Generator) -> Integers:
        """n records."""
        if self.mixture is not None:
            return self.mixture.draw(n, N, rng)
        assert self.records is not None
        return self.records[:n]

    def error(self, cdf: Any, x: Integers) -> float:
        """Kolmogorov error to the truth: the mixture, or all records."""
        if self.mixture is not None:
            return kolmogorov_error(cdf, x[:: max(1, len(x) // 20_000)], self.mixture)
        return kolmogorov_error(cdf, self.everything)

    def empirical(self, x: Integers) -> float:
        """The same of the empirical CDF of sorted x, which is not private."""
        if self.mixture is not None:
            return empirical_error(x, self.mixture, N) if len(x) <= 10**5 else _thinned(x, self.mixture)
        everything = self.everything
        places = np.unique(np.concatenate([everything, everything + 1]))
        gaps = np.searchsorted(x, places) / len(x) - np.searchsorted(everything, places) / len(everything)
        return float(np.abs(gaps).max())


def _thinned(x: Integers, mixture: OrderedMixture) -> float:
    """Largest gap at 10^5 of the records: what is missed is below 10^-5."""
    some = np.arange(0, len(x), max(1, len(x) // 10**5))
    return float(np.abs(mixture.below(x[some], N) - some / len(x)).max())


def targets(data_root: Path | None) -> list[Target]:
    """Three synthetic mixtures always, and the two files of particle physics where they are."""
    found = [Target(name, mixture=reference_mixture(name)) for name in ("gaussians", "betas", "gammas")]
    files: list[tuple[str, str, Any]] = [
        ("cms", "cms_lepton_pt/cms_lepton_pt.csv.gz", load_cms),
        ("higgs", "higgs_11k/higgs.csv.gz", load_higgs),
    ]
    for name, path, loader in files:
        if data_root is not None and (data_root / path).is_file():
            [values] = loader(data_root=str(data_root)).values.values()
            found.append(Target(name, records=values[np.random.default_rng(0).permutation(len(values))]))
    return found


Fit = Callable[[Integers, int, float], Any]
"""Sorted records, N and delta to a piecewise CDF."""


def _cdf(counts: Any, curator: Curator) -> Any:
    statement = PrivacyStatement.from_ledger(curator.ledger)
    return OrderedDistribution.from_counts(counts, statement=statement).cdfs["x"]


def _released(config: OrderedConfig) -> Fit:
    def fit(x: Integers, domain: int, delta: float) -> Any:
        curator = Curator(Ledger(None, delta=delta, relation="replace_one"))
        return _cdf(ordered_estimator(config, EPSILON, delta, None).fit_counts(x, N=domain, curator=curator), curator)

    return fit


def _published(steps: int, rng: np.random.Generator) -> Fit:
    def fit(x: Integers, domain: int, delta: float) -> Any:
        scale = corrected_scale(steps, EPSILON)
        model = published_rule(x, N=domain, steps=steps, epsilon=EPSILON, delta=delta, scale=scale, rng=rng)
        return _cdf(model, Curator(Ledger(None, delta=delta)))

    return fit


def methods(steps: tuple[int, ...], n: int, rng: np.random.Generator) -> Iterator[tuple[str, Fit]]:
    """Every method for n records, with its label."""
    if n <= MOST_PUBLISHED:
        yield from ((f"published, m = {m}", _published(m, rng)) for m in steps)
    yield from ((f"points, m = {m}", _released(OrderedConfig(method="points", steps=m))) for m in steps)
    yield "partition", _released(OrderedConfig())


def _measure(target: Target, n: int, steps: tuple[int, ...], rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    raw, delta = target.first(n, rng), 1 / n
    start = time.perf_counter()
    x = np.sort(raw)
    sorting = time.perf_counter() - start
    row = {"data": target.name, "n": n, "sort_seconds": sorting}
    yield row | {"method": "empirical (not private)", "error": target.empirical(x), "seconds": sorting}
    for label, fit in methods(steps, n, rng):
        start = time.perf_counter()
        cdf = fit(x, target.domain, delta)
        seconds = sorting + time.perf_counter() - start
        yield row | {"method": label, "error": target.error(cdf, x), "seconds": seconds}


def reproduce(out: Path, *, data_root: Path | None = None, quick: bool = False, seed: int = 0) -> str:
    """Kolmogorov error and run time against n for m = 4 ... 20 steps and for `partition` (Figure 3), and Figure 1.

    Parameters of the paper: epsilon 1, delta 1/n (weak: a default run takes n^-1.1), replace-one, N = 10^18. The noise of the
    published rule is the corrected one. The paper's 11 million HIGGS records are not shipped: CMS
    momenta and a subset stand in.

    Arguments:
        out: directory for figure1.png, figure3_<data>.png, figure3.csv.
        data_root: directory with `cms_lepton_pt` and `higgs_11k`, optional.
        quick: two sizes up to 1,000 and two numbers of steps, seconds. In full it takes a few minutes.
        seed: of the synthetic draws.

    Returns:
        Error and time of each method at the largest n.
    """
    out.mkdir(parents=True, exist_ok=True)
    sizes, steps = ((300, 1000), (4, 8)) if quick else (SIZES, STEPS)
    rng, rows, found = np.random.default_rng(seed), list[dict[str, Any]](), targets(data_root)
    jobs = [(target, n) for target in found for n in sizes if n <= target.most]
    for _, fit in methods(steps, 100, rng):  # untimed: the first run compiles
        fit(np.sort(found[0].first(100, rng)), N, 0.01)
    with tqdm(jobs, desc="diakonikolas") as bar:
        for target, n in bar:
            bar.set_postfix_str(f"{target.name}, n = {n}")
            rows += _measure(target, n, steps, rng)
    table = pd.DataFrame(rows)
    write_table(table, out / "figure3.csv")
    for name, part in table.groupby("data"):
        _figure3(part, str(name), out / f"figure3_{name}.png")
    figure1(found[0], out / "figure1.png", n=1000 if quick else 10**6, rng=rng)
    return _summary(table)


def _summary(table: pd.DataFrame) -> str:
    largest = table[table.n == table.groupby("data").n.transform("max")].copy()
    largest["of"] = largest.method.str.split(",").str[0]
    by_data = largest.groupby(["data", "n", "of"], sort=False)
    error, seconds = by_data.error.min().unstack("of"), by_data.seconds.max().unstack("of")
    lines = [
        f"Kolmogorov error at the largest n, eps {EPSILON:g}, delta 1/n; of the maximum error rule the best number of steps, "
        "which is known only where the truth is:",
        error.round(5).to_string(),
        "seconds, sorting included (the empirical CDF: sorting alone), most of all numbers of steps:",
        seconds.round(3).to_string(),
    ]
    return "\n".join(lines)


def _figure3(table: pd.DataFrame, name: str, path: Path) -> None:
    figure = new_figure(9.0, 4.4)
    axes = figure.subplots(1, 2)
    for label, part in table.groupby("method", sort=False):
        kind, _, steps = str(label).partition(", m = ")
        colour = f"C{STEPS.index(int(steps))}" if steps else "C5" if kind == "partition" else "black"
        for axis, column in zip(axes, ("error", "seconds")):
            style, width = _STYLES.get(kind, "-"), 1.0 if steps else 1.8
            axis.loglog(part.n, part[column], style, color=colour, marker=".", linewidth=width, label=label)
    axes[0].set(xlabel="n", ylabel="Kolmogorov error")
    axes[1].set(xlabel="n", ylabel="seconds, sorting included")
    for axis in (scale for panel in axes for scale in (panel.xaxis, panel.yaxis)):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    figure.suptitle(f"{name}: eps {EPSILON:g}, delta 1/n, replace-one, one run each", fontsize=9)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=6, frameon=False)
    save_figure(figure, path)


def figure1(target: Target, path: Path, *, n: int, rng: np.random.Generator) -> None:
    """CDF approximations after T = 0, 1, 2, 3 steps of the rule on n records (each run has its own budget)."""
    x = np.sort(target.first(n, rng))
    places = np.array([N * i // 500 for i in range(501)], np.int64)
    figure = new_figure(10.0, 2.8)
    for steps, axis in enumerate(figure.subplots(1, 4, sharey=True)):
        knots, values = np.array([0, N]), np.array([0.0, 1.0])
        if steps:
            released = _released(OrderedConfig(method="points", steps=steps))(x, N, 1 / n)
            knots, values = released.knots, released.values
        axis.plot(places / N, np.searchsorted(x, places) / n, label="empirical")
        axis.plot(knots / N, values, marker="o", markersize=3, label="released")
        axis.set(title=f"T = {steps}", xlabel="x / N", ylabel="" if steps else "share of records below x")
    axis.legend(frameon=False)
    figure.suptitle(f"{target.name}: n = {n}, eps {EPSILON:g} and delta 1/n for each panel, points selection", fontsize=9)
    save_figure(figure, path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], name="diakonikolas"))
