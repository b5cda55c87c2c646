"""Two tables side by side, by their values: `compare(real, synthetic)`, for the output of any package.

No score looks at a model's own codes. Numbers are compared by their distribution functions, and pairs of columns by the
quantiles of the real ones. A part of the real rows is held out: every score stands beside the same score of these rows, which
is what other people of the same kind would reach.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from dpgen.containers import InMemory, in_memory
from dpgen.data.table_files import form_of, read_table
from dpgen.evaluation.scores import Score, markdown_table, metrics_markdown, number
from dpgen.figures import new_figure
from dpgen.files import write_atomically
from dpgen.metrics import associations, marginal_errors, train_on_synthetic_auc
from dpgen.schema import read_descriptor
from dpgen.values import as_numbers, times

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Codes = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

HELD_OUT = 0.3
"""Share of the real rows that the others are compared with, too."""
MOST = 50_000
"""Rows of a table that are compared: more are drawn at random."""
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_BINS, _LISTED, _SPIKES = 10, 30, 3
_CLOSEST = 2_000  # rows whose closest one is looked for, and of those that it is looked for among times ten

COPIES = (
    "Copies and distances do not prove privacy: a row that stands alone may be told apart without being copied, and rows of "
    "whole numbers coincide by chance. Compare with the held-out rows."
)


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `compare` found.

    Arguments:
        scores: of the whole table.
        columns: a row for each column: its scores.
        pictures: figure of each column by name.
    """

    scores: list[Score]
    columns: pd.DataFrame
    pictures: Mapping[str, Figure]

    def __str__(self) -> str:
        rows = self.columns.astype(object).where(self.columns.notna(), "-").to_numpy().tolist()
        return "\n\n".join([metrics_markdown(self.scores), markdown_table(list(self.columns.columns), rows), COPIES])

    def _repr_html_(self) -> str:
        rows = [[score.name, score.better, number(score.value), number(score.real)] for score in self.scores]
        table = pd.DataFrame(rows, columns=["measure", "better", "synthetic", "held-out real rows"])
        shown = self.columns.map(lambda value: number(value) if isinstance(value, float) else value)
        return f"{table.to_html(index=False)}<p>{html.escape(COPIES)}</p>{shown.to_html(index=False)}"

    def save(self, path: Path | str) -> Path:
        """Write one page with all scores and a picture of every column; it shows real values and is not for publication."""
        title = "Real and synthetic rows"
        pictures = "".join(_shown(name, figure) for name, figure in self.pictures.items())
        style = "body{font-family:sans-serif;margin:2em}table{border-collapse:collapse}td,th{padding:.2em .6em}"
        head = f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{title}</title><style>{style}</style></head>"
        mark = "<p><b>Computed on real rows without noise: not for publication.</b></p>"
        body = f"<body><h1>{title}</h1>{mark}{pictures}<h2>Scores</h2>{self._repr_html_()}</body></html>"
        write_atomically(Path(path), head + body + "\n")
        return Path(path)


def _shown(name: str, figure: Figure) -> str:
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=110)
    source = base64.b64encode(data.getvalue()).decode()
    return f"<img alt='{html.escape(name, quote=True)}' src='data:image/png;base64,{source}'>"


def compare(
    real: Any, synthetic: Any, schema: Mapping[str, Any] | Path | str | None = None, *, target: str | None = None, seed: int = 0
) -> Comparison:
    """Scores of synthetic rows against real ones, by values; nothing in it is private, and nothing is spent.

    Arguments:
        real: a table in memory, or the path of a csv, tsv or Parquet file.
        synthetic: rows with the same columns, of any package.
        schema: Table Schema that says which values are valid, and the column to predict (`dpgen:target`).
        target: column to predict, in place of the schema's.
        seed: of what is held out and drawn.

    Raises:
        ValueError: fewer than four real rows, no synthetic ones, no common column, or an unknown target.

    Example:
        >>> rows = pd.DataFrame({"x": np.arange(100.0), "c": ["a", "b"] * 50})
        >>> found = compare(rows, rows)
        >>> bool(found.columns["KS or TV"].max() < 0.3)
        True
    """
    described = read_descriptor(Path(schema)) if isinstance(schema, str | Path) else dict(schema or {})
    wished = target or described.get("dpgen:target")
    first, second = _table(real, "real"), _table(synthetic, "synthetic")
    names = [name for name in first.columns if name in second.columns]
    if len(first) < 4 or not len(second) or not names:
        raise ValueError(f"real has {len(first)} rows and synthetic {len(second)}, with {len(names)} common columns: too few")
    if wished is not None and wished not in names:
        raise ValueError(f"target is {wished!r}; it must be one of {', '.join(names)}")
    rng = np.random.default_rng(seed)
    first = first.iloc[rng.permutation(len(first))[:MOST]]
    kept = len(first) - max(1, round(HELD_OUT * len(first)))
    parts = {"own": first[:kept], "held": first[kept:], "made": second.iloc[rng.permutation(len(second))[:MOST]]}
    columns = {name: _Column.of({part: rows[name] for part, rows in parts.items()}) for name in names}
    rules = {entry["name"]: entry.get("constraints", {}) for entry in described.get("fields", [])}
    frame = pd.DataFrame([{"column": name} | column.scores(rules.get(name, {})) for name, column in columns.items()])
    codes = {part: np.stack([column.codes[part] for column in columns.values()], axis=1) for part in parts}
    sizes = [column.size for column in columns.values()]
    scores = list(_joint_scores(codes, columns, sizes, wished, seed))
    scores += _copies({part: rows[names] for part, rows in parts.items()}, columns, rng)
    return Comparison(scores, frame, {name: column.picture(name) for name, column in columns.items()})


def _table(data: Any, option: str) -> pd.DataFrame:
    if isinstance(data, pd.DataFrame):
        return data.rename(columns=str)
    source = data if isinstance(data, InMemory) else str(data) if isinstance(data, str | Path) else in_memory(data)
    if form_of(source) == "npy":
        raise ValueError(f"{option} is an array; it must be a table, whose columns have names")
    return read_table(source)


@dataclass(frozen=True, eq=False)
class _Column:
    """One column of the three tables: as numbers, or as texts, and in groups by the values of the real rows."""

    values: Mapping[str, npt.NDArray[Any]]  # without gaps
    absent: Mapping[str, npt.NDArray[np.bool_]]
    strange: float  # share of synthetic values that are of another type
    codes: Mapping[str, Codes]
    size: int
    numeric: bool

    @classmethod
    def of(cls, series: Mapping[str, pd.Series]) -> _Column:
        own = series["own"].dropna()
        dates = own.dtype.kind == "M"
        numeric = dates or (pd.api.types.is_numeric_dtype(own.dtype) and not pd.api.types.is_bool_dtype(own.dtype))
        absent = {part: values.isna().to_numpy() for part, values in series.items()}
        read = {part: _read(values, dates=dates, numeric=numeric) for part, values in series.items()}
        there = {part: ~absent[part] & ~pd.isna(read[part]) for part in series}
        values = {part: read[part][there[part]] for part in series}
        strange = float((~absent["made"] & ~there["made"]).mean())
        known = values["own"]
        if numeric and len(np.unique(known)) > _LISTED:
            edges = np.unique(np.quantile(known.astype(np.float64), np.linspace(0, 1, _BINS + 1)[1:-1]))
            size, place = len(edges) + 1, lambda x: np.searchsorted(edges, x.astype(np.float64), side="right")
        else:
            listed = pd.Index(pd.Series(known).value_counts().index[:_LISTED])
            size, place = len(listed) + 1, lambda x: np.where((found := listed.get_indexer(x)) < 0, len(listed), found)
        codes = {}
        for part in series:
            codes[part] = np.full(len(read[part]), size, np.int64)
            codes[part][there[part]] = place(values[part])
        return cls(values, absent, strange, codes, size + 1, numeric)

    def scores(self, rules: Mapping[str, Any]) -> dict[str, Any]:
        """Scores of this column, and for most the same of the held-out rows."""
        found: dict[str, Any] = {
            "KS or TV": self._distance("made"),
            "held-out": self._distance("held"),
            "gaps": float(self.absent["own"].mean()),
            "gaps, synthetic": float(self.absent["made"].mean()),
            "invalid": self.strange + self._invalid(rules),
        }
        spikes = pd.Series(self.values["own"]).value_counts(normalize=True)[:_SPIKES]
        made = pd.Series(self.values["made"]).value_counts(normalize=True)
        found["largest shares"] = ", ".join(f"{share:.3f}" for share in spikes)
        found["largest shares, synthetic"] = ", ".join(f"{float(made.get(value, 0.0)):.3f}" for value in spikes.index)
        if self.numeric:
            for part, word in (("own", "quantiles"), ("made", "quantiles, synthetic")):
                x = self.values[part].astype(np.float64)
                found[word] = ", ".join(f"{q:.4g}" for q in np.quantile(x, _QUANTILES)) if len(x) else "-"
        return found

    def _distance(self, part: str) -> float:
        """Largest distance of distribution functions of numbers, total variation of other values."""
        one, two = self.values["own"], self.values[part]
        if not len(one) or not len(two):
            return float(len(one) != len(two))
        if not self.numeric:
            shares = [pd.Series(x).value_counts(normalize=True) for x in (one, two)]
            return float(shares[0].sub(shares[1], fill_value=0.0).abs().sum() / 2)
        grid = np.unique(np.concatenate([one, two]))
        below = [np.searchsorted(np.sort(x), grid, side="right") / len(x) for x in (one, two)]
        return float(np.abs(below[0] - below[1]).max())

    def _invalid(self, rules: Mapping[str, Any]) -> float:
        """Share of synthetic values that the schema forbids."""
        made = pd.Series(self.values["made"])
        wrong = np.zeros(len(made), bool)
        if rules.get("enum"):
            wrong |= ~made.astype(str).isin(map(str, rules["enum"])).to_numpy()
        for bound, beyond in (("minimum", np.less), ("maximum", np.greater)):
            if isinstance(rules.get(bound), int | float) and self.numeric:
                wrong |= beyond(made.to_numpy(np.float64), rules[bound])
        gaps = float(self.absent["made"].mean()) if rules.get("required") else 0.0
        return float(wrong.mean()) * (1 - gaps) + gaps if len(made) else gaps

    def picture(self, name: str) -> Figure:
        """Both distributions over each other."""
        figure = new_figure(5.2, 3.0)
        axes = figure.add_subplot(1, 1, 1)
        shown = (("own", "real", "0.6"), ("made", "synthetic", "C0"))
        if self.numeric:
            for part, label, colour in shown:
                x = np.sort(self.values[part].astype(np.float64))
                axes.step(x, np.arange(1, len(x) + 1) / max(len(x), 1), where="post", label=label, color=colour)
            axes.set(xlabel=name, ylabel="share of rows up to here")
            known = self.values["own"].astype(np.float64)
            if len(known) and known.max() > 0 and np.quantile(known, 0.99) > 50 * max(np.quantile(known, 0.5), 1e-12):
                axes.set_xscale("symlog", linthresh=max(1e-9, float(np.quantile(known, 0.75)) or 1.0))
        else:
            listed = pd.Series(self.values["own"]).value_counts(normalize=True).index[:12]
            for place, (part, label, colour) in enumerate(shown):
                shares = pd.Series(self.values[part]).value_counts(normalize=True).reindex(listed, fill_value=0.0)
                axes.barh(np.arange(len(listed)) + 0.4 * place, shares, 0.4, label=label, color=colour)
            axes.set_yticks(np.arange(len(listed)) + 0.2, labels=[str(value)[:20] for value in listed], fontsize=6)
            axes.set(xlabel="share of rows", ylabel=name)
        axes.set_title(name, fontsize=9)
        axes.legend(fontsize=7)
        return figure


def _read(values: pd.Series, *, dates: bool, numeric: bool) -> npt.NDArray[Any]:
    if dates:
        return times(values)
    if numeric:
        return as_numbers(values).astype(np.float64)
    return values.astype(object).map(str).where(values.notna(), None).to_numpy(object)


def _joint_scores(
    codes: Mapping[str, Codes], columns: Mapping[str, _Column], sizes: list[int], target: str | None, seed: int
) -> Iterator[Score]:
    rows = {part: torch.from_numpy(found) for part, found in codes.items()}
    worst = {part: max(column._distance(part) for column in columns.values()) for part in ("made", "held")}
    yield Score("largest KS or total variation of a column", worst["made"], real=worst["held"], better="lower")
    for ways, what in ((1, "single columns"), (2, "pairs of columns"), (3, "triples of columns")):
        if ways <= len(sizes):
            errors = {part: marginal_errors(rows["own"], rows[part], ways, n_sets=500, seed=seed) for part in ("made", "held")}
            made, held = float(errors["made"].mean()), float(errors["held"].mean())
            yield Score(f"{what} by quantiles: mean total variation", made, real=held, better="lower")
    if len(sizes) > 1:
        own, made_v, held_v = (associations(rows[part]) for part in ("own", "made", "held"))
        made, held = (float((x - own).abs().mean()) for x in (made_v, held_v))
        yield Score("associations (Cramér's V): mean absolute error", made, real=held, better="lower")
    if target is None:
        return
    place = list(columns).index(target)
    if len(rows["held"][:, place].unique()) < 2:
        return
    for judge, name in (("boosting", "gradient boosting"), ("logistic", "logistic regression")):
        options: dict[str, Any] = {
            "sizes": sizes,
            "ordered": [column.numeric for column in columns.values()],
            "judge": judge,
            "seed": seed,
        }
        areas = [train_on_synthetic_auc(rows[part], rows["held"], place, **options) for part in ("made", "own")]
        yield Score(f"train on synthetic, test on real: AUC of {target} by {name}", areas[0], real=areas[1])


def _copies(parts: Mapping[str, pd.DataFrame], columns: Mapping[str, _Column], rng: np.random.Generator) -> list[Score]:
    """Rows that are there in the real ones, and the distance to the closest of these, by values."""
    texts = {part: pd.Series(["\x1f".join(map(str, row)) for row in rows.to_numpy(object)]) for part, rows in parts.items()}
    known = set(texts["own"])
    copied = {part: float(texts[part].isin(known).mean()) for part in ("made", "held")}
    points = {part: _points(part, columns) for part in parts}
    among = points["own"][rng.permutation(len(points["own"]))[: 10 * _CLOSEST]]
    near = {part: float(np.median(_closest(points[part][:_CLOSEST], among))) for part in ("made", "held")}
    return [
        Score("synthetic rows that equal a real row", copied["made"], real=copied["held"], better="lower"),
        Score("median distance to the closest real row (0: the same, 1: the farthest)", near["made"], real=near["held"]),
    ]


def _points(part: str, columns: Mapping[str, _Column]) -> Reals:
    """Rows as points: numbers by the share of real ones below, other values by their group."""
    points = []
    for column in columns.values():
        if not column.numeric:
            points.append(column.codes[part].astype(np.float64) + 2.0)
            continue
        place = np.full(len(column.codes[part]), -1.0)
        known = np.sort(column.values["own"])
        there = column.codes[part] < column.size - 1
        place[there] = np.searchsorted(known, column.values[part]) / max(len(known), 1)
        points.append(place)
    return np.stack(points, axis=1)


def _closest(points: Reals, among: Reals) -> Reals:
    """Mean difference over columns to the closest row, at most 1 a column."""
    found = [np.minimum(np.abs(among - point), 1.0).mean(1).min() for point in points]
    return np.array(found)
