"""Draw the pictures of the README and of the page on epsilon: `python benchmarks/pictures.py docs`; simulated data alone."""

import argparse
import math
from pathlib import Path

import numpy as np
import pandas as pd

import dpgen
from dpgen.figures import new_figure, save_figure
from dpgen.statement import guessed

N = 20_000


def customers() -> pd.DataFrame:
    """Customers as a shop may have them: half of them never paid, most were born around 1980, few towns are large."""
    rng = np.random.default_rng(0)
    paid = np.where(rng.random(N) < 0.5, 0.0, rng.lognormal(4.0, 1.2, N)).round(2)
    age = np.clip(rng.normal(45 - 6 * (paid > 0), 14, N), 18, 99).astype(int)
    town = rng.choice(["Ulm", "Bern", "Graz", "Linz", "Jena", "Como"], N, p=[0.35, 0.25, 0.16, 0.12, 0.08, 0.04])
    since = pd.Timestamp("2015-01-01") + pd.to_timedelta((3650 * rng.beta(2, 1, N)).astype(int), unit="D")
    gap = rng.random(N) < 0.1
    return pd.DataFrame({"paid": paid, "age": pd.Series(age, dtype="Int64").mask(gap), "town": town, "since": since})


def columns(path: Path) -> Path:
    """Real and synthetic columns over each other; nothing was said of the columns."""
    real = customers()
    release = dpgen.fit(real, epsilon=1.0)
    synthetic = release.sample(N)
    figure = new_figure(10.0, 2.6)
    title = f"Real and synthetic columns of {N:,} simulated customers: epsilon 1 in all, nothing said of the columns"
    figure.suptitle(title, fontsize=9)
    panels = figure.subplots(1, 4)
    start = pd.Timestamp("2015-01-01")
    styles = (("real", real, {"color": "0.75"}), ("synthetic", synthetic, {"histtype": "step", "color": "C3"}))
    bins = {"paid": [0.5, 0.62, *np.geomspace(1, 3000, 40)], "age": np.arange(18, 101, 2), "since": np.linspace(0, 3650, 41)}
    panels[0].set_xscale("log")
    for axes, name in zip(panels, bins):
        for label, frame, style in styles:
            values = frame[name].dropna()
            values = (values - start).dt.days if name == "since" else values.astype(float)
            if name == "paid":  # zeros are a bar of their own
                values = values.where(values > 0, 0.55).clip(0.5, 3000)
            axes.hist(values, bins=bins[name], weights=np.full(len(values), 100 / N), label=label, linewidth=1.3, **style)
    panels[0].set(title="paid (half are exactly 0)", xlabel="amount, log scale")
    panels[0].set_xticks([0.56, 10, 100, 1000], ["0", "10", "100", "1000"])
    panels[1].set(title="age (10 % gaps)", xlabel="years")
    panels[2].set(title="since", xlabel="days from 2015-01-01")
    towns = list(real["town"].value_counts().index)
    for shift, frame, color, label in ((-0.2, real, "0.75", "real"), (0.2, synthetic, "C3", "synthetic")):
        share = 100 * frame["town"].value_counts(normalize=True).reindex(towns).fillna(0)
        panels[3].bar(np.arange(len(towns)) + shift, share, 0.4, color=color, label=label)
    panels[3].set(title="town", xlabel="category")
    panels[3].set_xticks(range(len(towns)), towns)
    for axes in panels:
        axes.set_ylabel("% of rows", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.title.set_fontsize(9)
        axes.xaxis.label.set_fontsize(8)
    panels[3].legend(frameon=False, fontsize=8)
    return save_figure(figure, path)


def odds(path: Path) -> Path:
    """How often somebody who knows everything else guesses right, at every epsilon."""
    figure = new_figure(5.5, 3.2)
    axes = figure.add_subplot()
    at = np.geomspace(0.01, 20, 400)
    axes.plot(at, [100 * guessed(e, 0.0) for e in at], color="C3")
    for e in (0.1, 0.5, 1, 3, 8):
        most = 100 * guessed(e, 0.0)
        axes.plot([e], [most], "o", color="C3", markersize=4)
        said = f"{e:g}: {min(math.ceil(10 * most) / 10, 99.99):g}"
        axes.annotate(said, (e, most), textcoords="offset points", xytext=(-6, 4), ha="right", fontsize=8)
    axes.axhline(50, color="0.6", linewidth=0.8, linestyle=":")
    axes.annotate("a coin", (0.011, 47), fontsize=8, color="0.4")
    axes.set(
        xscale="log",
        ylim=(45, 105),
        xlabel="epsilon",
        ylabel="right guesses of 100, at most",
        title="Is this person among the data? The best guess there is",
    )
    axes.title.set_fontsize(10)
    return save_figure(figure, path)


def main() -> None:
    """Draw both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    print(columns(directory / "columns.png"))
    print(odds(directory / "odds.png"))


if __name__ == "__main__":
    main()
