"""Two tables side by side, by their values: `compare(real, synthetic)`, for the output of any package.

No score looks at a model's own codes. Numbers are compared by their distribution functions, and pairs of columns by the
quantiles of the real ones. A part of the real rows is held out: every score stands beside the same score of these rows, which
is what other people of the same kind would reach. A column that is farther than three times its held-out rows is marked and
listed first. Runs of tables are evaluated by the same code.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from dpgen.containers import InMemory, in_memory
from dpgen.data import RawTable, Table
from dpgen.data.table_files import form_of, read_table, table_path
from dpgen.evaluation.column import Codes, Column, Reals
from dpgen.evaluation.rules import broken_rules, said
from dpgen.evaluation.scores import (
    FULL,
    HELD_OUT,
    QUICK,
    Effort,
    Evaluation,
    Score,
    Writer,
    beside,
    markdown_table,
    metrics_markdown,
    table_of,
    write_page,
)
from dpgen.facts import Fact, columns_of
from dpgen.figures import heat_maps, save_drawn
from dpgen.files import OVERLAYS, write_atomically
from dpgen.metrics import associations, marginal_errors
from dpgen.progress import report
from dpgen.samples import ColumnSamples
from dpgen.schema import Schema, read_descriptor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpgen.metrics.classification import Judge

Further = Callable[[Mapping[str, Column]], Iterable[Score]]
"""Further scores of the columns of a comparison."""

MOST = 50_000
"""Rows of a table that are compared: more are drawn at random."""
LEAST = 4
"""Real rows that a comparison needs."""
_MARGINALS, _MOST_ASSOCIATED = 300, 40  # sets of columns, and columns, that are compared
FAR = 3.0
"""Times the distance of its held-out rows from which on a column is marked."""
_CLOSEST = 500  # rows whose closest one is looked for, and of those that it is looked for among times twenty

COPIES = (
    "Copies and distances do not prove privacy: a row that stands alone may be told apart without being copied, and rows of "
    "whole numbers coincide by chance. Compare with the held-out rows."
)
LIMITS = (
    "Distances of columns, pairs and triples do not show that rare groups are right, or larger sets of columns.",
    "Associations show how strong a dependence is, not its form.",
    "The AUC is of one target: other questions can be answered worse.",
    COPIES,
)
"""Limits of the scores, in sentences."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Result of `compare`.

    `rules` has a row for each rule of the real rows that synthetic rows break, with the shares of both that do
    (`dpgen.evaluation.rules`), `columns` a row of scores for each column. `pictures` and `associations` draw figures;
    `left_out` are those that one of the tables lacks, `alone` those that scores of several columns leave out.
    """

    scores: list[Score]
    columns: pd.DataFrame
    rules: pd.DataFrame
    pictures: Mapping[str, Callable[[], Figure]]
    associations: Callable[[], Figure]
    left_out: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()

    @property
    def told(self) -> tuple[str, ...]:
        """Sentences on rules that are broken, on columns far from the real ones, and on those that scores leave out."""
        marked = self.columns.loc[self.columns["marked"] != "", ["column", "marked"]].to_numpy().tolist()
        lists = {
            f"Farther from the real rows than {FAR:g} times held-out rows": [f"{name} ({times})" for name, times in marked],
            "Not compared, for one of the tables lacks them": self.left_out,
            "Left out of scores of several columns, for most values are there once": self.alone,
        }
        return (*said(self.rules), *(f"{text}: {', '.join(names)}." for text, names in lists.items() if names))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences of `told`, and on what scores do not prove."""
        if not any(score.name.startswith("attack") for score in self.scores):
            return (*self.told, *LIMITS)
        from dpgen.evaluation.attacks import UNFOUND

        return (*self.told, *LIMITS, UNFOUND)

    def __str__(self) -> str:
        header, *rows = in_pairs(self.columns)
        table = markdown_table(header, rows)
        absurd = said(self.rules)
        notes = "\n".join(f"- {note}" for note in self.notes[len(absurd) :])
        return "\n\n".join([*absurd, metrics_markdown(self.scores), table, notes])

    def _repr_html_(self) -> str:
        header, *shown = in_pairs(self.columns)
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return f"{table_of(self.scores)}<ul>{notes}</ul>{pd.DataFrame(shown, columns=header).to_html(index=False)}"

    def save(self, path: Path | str) -> Path:
        """Write one page with all scores and a picture of every column; it shows real values and is not for publication."""
        drawn = {**self.pictures, "associations": self.associations}
        return write_page(Path(path), "Real and synthetic rows", drawn, self._repr_html_(), first=said(self.rules))


def in_pairs(columns: pd.DataFrame) -> list[list[str]]:
    """Scores of columns for people, header first, without quantiles: those of synthetic and of held-out rows in one cell.

    >>> in_pairs(pd.DataFrame({"range": ["0 to 1"], "range, synthetic": ["0 to 2"], "std ratio": [1.0]}))
    [['range', 'std ratio'], ['0 to 1 (synthetic 0 to 2)', '1']]
    """

    def text(value: Any) -> str:
        return "" if pd.isna(value) else f"{value:.2g}" if isinstance(value, float) else str(value)

    named = columns.rename(columns={"held-out": "KS or TV, held-out"})
    parts = {
        name: [n for n in named if n.startswith(f"{name}, ")] for name in named if ", " not in name and name != "quantiles"
    }

    def cell(row: Mapping[Hashable, Any], name: str) -> str:
        beside = "; ".join(f"{n.rpartition(', ')[2]} {text(row[n])}" for n in parts[name] if text(row[n]))
        return text(row[name]) + f" ({beside})" * bool(beside)

    return [list(parts), *([cell(row, name) for name in parts] for row in named.to_dict("records"))]


def compare(
    real: Any,
    synthetic: Any,
    schema: Mapping[str, Any] | Path | str | None = None,
    *,
    target: str | None = None,
    holdout: Any = None,
    attacks: bool = False,
    epsilon: float | None = None,
    delta: float = 0.0,
    sdmetrics: bool = False,
    seed: int = 0,
    **linked: Any,
) -> Any:
    """Scores of synthetic rows against real ones, by values; nothing in it is private, and nothing is spent.

    Of people and their rows, tables by name, it is a `LinkedComparison`, else a `Comparison`.

    Arguments:
        real: a table in memory, or the path of a csv, tsv or Parquet file.
        synthetic: rows with the same columns, of any package.
        schema: Table Schema that says which values are valid, and the column to predict (`dpgen:target`).
        target: column to predict, in place of the schema's.
        holdout: real rows that the synthetic ones were not made of; None: a part of the real rows is held out.
        attacks: whether attacks on the synthetic rows stand beside the scores (`dpgen.evaluation.attacks`); they need holdout.
        epsilon: of the release, for the bound beside each attack, in nats; None: there is none.
        delta: of the release.
        sdmetrics: whether SDMetrics' quality report of the same rows stands beside the scores; the extra `sdmetrics` brings it.
        seed: of what is held out and drawn.
        linked: of tables by name: `person`, `links`, `order`, `max_rows` as in `dpgen.fit`.

    Raises:
        ValueError: tables without common columns, or options of another kind of tables.

    >>> rows = pd.DataFrame({"x": np.arange(100.0), "c": ["a", "b"] * 50})
    >>> found = compare(rows, rows)
    >>> bool(found.columns["KS or TV"].max() < 0.3)
    True
    """
    if is_linked(real):
        return _of_people(real, synthetic, {"schema": schema, "target": target, "holdout": holdout}, seed, linked)
    if linked:
        raise ValueError(f"{next(iter(linked))} is of people and their rows; real must be tables by name, {{NAME: TABLE}}")
    described = read_descriptor(Path(schema)) if isinstance(schema, str | Path) else dict(schema or {})
    wished = target or described.get("dpgen:target")
    first, second = _table(real, "real"), _table(synthetic, "synthetic")
    names = _common(first, second, wished)
    held = None if holdout is None else _holdout(holdout, names)
    more = [*_attacks(attacks, held, epsilon, delta, seed), *_quality(sdmetrics)]
    found = compared(first[names], held, second[names], schema=described, target=wished, seed=seed, more=more)
    return replace(found, left_out=tuple(sorted({*first.columns, *second.columns} - {*names})))


def _attacks(attacks: bool, held: Any, epsilon: float | None, delta: float, seed: int) -> Iterator[Further]:
    """Scores of attacks, where they or their bound are asked for."""
    if attacks or epsilon is not None or delta:
        from dpgen.evaluation.attacks import attack_of  # here, because few comparisons attack

        yield attack_of(attacks, held, epsilon, delta, seed)


def _quality(sdmetrics: bool) -> Iterator[Further]:
    """Scores of SDMetrics' report, where it is asked for."""
    if sdmetrics:
        from dpgen.evaluation.quality import of_table, report_class

        yield partial(of_table, report_class("single_table"))


def _common(real: pd.DataFrame, synthetic: pd.DataFrame, target: str | None) -> list[str]:
    """Names of the common columns of two tables that can be compared."""
    names = [name for name in real.columns if name in synthetic.columns]
    if len(real) < LEAST or not len(synthetic) or not names:
        sizes = f"real has {len(real)} rows and synthetic {len(synthetic)}, with {len(names)} common columns"
        raise ValueError(f"{sizes}; there must be {LEAST} real rows, 1 synthetic one and 1 common column")
    if target is not None and target not in names:
        raise ValueError(f"target is {target!r}; it must be one of {', '.join(names)}")
    return names


def is_linked(data: Any) -> bool:
    """Whether data are tables by their names."""
    return isinstance(data, Mapping) and len(data) > 0 and all(hasattr(table, "columns") for table in data.values())


def _of_people(real: Any, synthetic: Any, others: Mapping[str, Any], seed: int, options: Mapping[str, Any]) -> Any:
    if given := next((name for name, value in others.items() if value is not None), None):
        raise ValueError(f"{given} must be left out: real are tables of people and their rows")
    if not is_linked(synthetic):
        raise ValueError(f"synthetic must be tables by name, as real: {', '.join(map(str, real))}")
    from dpgen.evaluation.linked import compare_linked

    return compare_linked(real, synthetic, seed=seed, **options)


def _parts(
    real: pd.DataFrame, held: pd.DataFrame | None, synthetic: pd.DataFrame, rng: np.random.Generator
) -> dict[str, pd.DataFrame]:
    """Real rows, rows that were held out and synthetic rows, at most `MOST` of each, the first and the last at random."""
    real, synthetic = (rows.iloc[rng.permutation(len(rows))[:MOST]].reset_index(drop=True) for rows in (real, synthetic))
    if held is None or not len(held):
        kept = len(real) - max(1, round(HELD_OUT * len(real)))
        real, held = real[:kept], real[kept:]
    return {"own": real, "held": held[:MOST], "made": synthetic}


def _by_column(parts: Mapping[str, pd.DataFrame], schema: Mapping[str, Any]) -> tuple[dict[str, Column], pd.DataFrame]:
    """The columns and their scores: those far from held-out rows first, those that name rows last."""
    columns = {name: Column.of({part: rows[name] for part, rows in parts.items()}) for name in parts["own"].columns}
    rules = {entry["name"]: entry.get("constraints", {}) for entry in schema.get("fields", [])}
    far = {name: column.times_held_out for name, column in columns.items()}
    order = sorted(columns, key=lambda name: (columns[name].names_rows, -far[name] if far[name] > FAR else 0.0))
    marked = {name: f"{far[name]:.2g} times" if far[name] > FAR else "" for name in order}
    scores = [{"column": name, "marked": marked[name]} | columns[name].scores(rules.get(name, {})) for name in order]
    return {name: columns[name] for name in order}, pd.DataFrame(scores)


def compared(
    real: pd.DataFrame,
    held: pd.DataFrame | None,
    synthetic: pd.DataFrame,
    *,
    schema: Mapping[str, Any],
    target: str | None,
    seed: int,
    most: int = MOST,
    more: Sequence[Further] = (),
) -> Comparison:
    """Comparison of tables with the same columns, and of real rows that were held out before; None: a part of them is.

    Classifiers learn from at most `most` rows; `more` are further scores of the columns.
    """
    rng = np.random.default_rng(seed)
    parts = _parts(real, held, synthetic, rng)
    columns, frame = _by_column(parts, schema)
    rules = broken_rules({name: columns[name].known for name in parts["own"].columns})
    columns, alone = _together(columns, target)
    codes = {part: np.stack([column.codes[part] for column in columns.values()], axis=1) for part in parts}
    scores = [*_prediction_scores(codes, columns, target, seed, most), *_joint_scores(codes, columns, seed)]
    scores += _copies(columns, rng)
    scores += [score for further in more for score in further(columns)]
    both = {label: torch.from_numpy(codes[part]) for part, label in (("own", "real"), ("made", "synthetic"))}
    pictures = {name: partial(column.picture, name) for name, column in columns.items()}
    return Comparison(scores, frame, rules, pictures, partial(_associations_picture, both, list(columns)), alone=alone)


def _together(columns: dict[str, Column], target: str | None) -> tuple[dict[str, Column], tuple[str, ...]]:
    """Columns that scores of several look at, all where there is no such one, and those that they leave out: they name rows."""
    alone = tuple(name for name, column in columns.items() if name != target and column.names_rows)
    return {name: column for name, column in columns.items() if name not in alone} or columns, alone


def _holdout(data: Any, names: Sequence[str]) -> pd.DataFrame:
    held = _table(data, "holdout")
    if lacks := [name for name in names if name not in held.columns]:
        raise ValueError(f"holdout lacks the column {lacks[0]!r}; it must have those of real: {', '.join(names)}")
    return held[list(names)]


def _table(data: Any, option: str) -> pd.DataFrame:
    if isinstance(data, pd.DataFrame):
        if twice := list(data.columns[data.columns.duplicated()]):
            raise ValueError(f"{option} has several columns called {twice[0]!r}: their names must differ")
        return data.rename(columns=str)
    source = data if isinstance(data, InMemory) else table_path(str(data)) if isinstance(data, str | Path) else in_memory(data)
    if form_of(source) == "npy":
        raise ValueError(f"{option} is an array; it must be a table, whose columns have names")
    return read_table(source)


def _joint_scores(codes: Mapping[str, Codes], columns: Mapping[str, Column], seed: int) -> Iterator[Score]:
    """Distances of columns, pairs and triples, and of associations, beside those of held-out rows and independent columns."""
    made, held = (max(column._distance(part) for column in columns.values()) for part in ("made", "held"))
    yield Score("largest KS or total variation of a column", made, real=held, better="lower")
    rows = {part: torch.from_numpy(found) for part, found in codes.items()}
    rng = np.random.default_rng(seed)
    rivals = {"value": rows["made"], "real": rows["held"]}
    rivals["chance"] = torch.from_numpy(np.stack([rng.permutation(column) for column in codes["own"].T], axis=1))
    yield from _set_scores(rows["own"], rivals, seed)
    if 1 < len(columns) <= _MOST_ASSOCIATED and min(map(len, rivals.values())) > 1:
        own = associations(rows["own"])
        errors = {rival: float((associations(x) - own).abs().mean()) for rival, x in rivals.items()}
        yield beside("associations (Cramér's V): mean absolute error", errors, "independent columns")


def _set_scores(own: torch.Tensor, rivals: Mapping[str, torch.Tensor], seed: int) -> Iterator[Score]:
    """Mean total variation distances of single columns, pairs and triples; `rivals` by their roles."""
    for ways, what in ((1, "single columns"), (2, "pairs of columns"), (3, "triples of columns")):
        if (sets := comb(own.shape[1], ways)) == 0:
            return
        marginals = partial(marginal_errors, own, k=ways, n_sets=_MARGINALS, seed=seed)
        errors = {rival: float(marginals(x).mean()) for rival, x in rivals.items() if rival != "chance" or ways > 1}
        sample = f"{_MARGINALS} of {sets:,}" if sets > _MARGINALS else ""
        yield beside(f"{what}: mean total variation", errors, "independent columns", sample)


def _prediction_scores(
    codes: Mapping[str, Codes], columns: Mapping[str, Column], target: str | None, seed: int, most: int
) -> Iterator[Score]:
    """Area under the curve of classifiers of the target that learn from synthetic or real rows, judged on held-out ones."""
    if target is None:
        return
    rows, place = {part: torch.from_numpy(found) for part, found in codes.items()}, list(columns).index(target)
    if len(rows["held"][:, place].unique()) < 2:
        return
    from dpgen.metrics import train_on_synthetic_auc  # here, because few tables have a target

    judges: tuple[tuple[Judge, str], ...] = (("boosting", "gradient boosting"), ("logistic", "logistic regression"))
    options: dict[str, Any] = {
        "sizes": [column.size for column in columns.values()],
        "ordered": [column.numeric for column in columns.values()],
        "seed": seed,
    }
    sample = f"{most:,} rows" if max(len(rows["made"]), len(rows["own"])) > most else ""
    for judge, name in judges:
        parts = (rows[part][:most] for part in ("made", "own"))
        made, own = (train_on_synthetic_auc(x, rows["held"], place, judge=judge, **options) for x in parts)
        label = f"train on synthetic, test on real: AUC of {target} by {name}"
        yield Score(label, made, real=own, chance=0.5, sample=sample, kind="prediction")


def _copies(columns: Mapping[str, Column], rng: np.random.Generator) -> list[Score]:
    """Rows that are there in the real ones, and the distance to the closest of these, by values; see `COPIES`."""
    rows = {part: np.stack([column.same[part] for column in columns.values()], axis=1) for part in ("own", "made", "held")}
    known = {row.tobytes() for row in rows["own"]}
    copied = {part: float(np.mean([row.tobytes() in known for row in rows[part]])) for part in ("made", "held")}
    points = {part: _points(part, columns) for part in rows}
    among = points["own"][rng.permutation(len(points["own"]))[: 20 * _CLOSEST]]
    near = {}  # mean difference over columns to the closest row, at most 1 a column
    for part in ("made", "held"):
        found = [np.minimum(np.abs(among - point), 1.0).mean(1).min() for point in points[part][:_CLOSEST]]
        near[part] = float(np.median(found))
    return [
        Score("rows that equal a real row", copied["made"], real=copied["held"], better="lower"),
        Score("median distance to the closest real row (0: the same, 1: the farthest)", near["made"], real=near["held"]),
    ]


def _points(part: str, columns: Mapping[str, Column]) -> Reals:
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


def _associations_picture(rows: Mapping[str, torch.Tensor], names: list[str]) -> Figure:
    """Associations of real and of synthetic rows, and their difference."""
    names = names[:_MOST_ASSOCIATED]
    panels = {f"{label} rows": associations(codes[:, : len(names)]).numpy() for label, codes in rows.items()}
    one, two = panels.values()
    styles, label = {"difference": ("RdBu_r", -0.5, 0.5)}, "association (Cramér's V)"
    both = panels | {"difference": two - one}
    return heat_maps(both, names, names, axes_names=("column", "column"), label=label, side=4.4, styles=styles)


# -- runs of tables ---------------------------------------------------------------------------------------------------


_MOST_OVERLAYS = 100


def evaluate(release: Any, data: Table | RawTable, *, seed: int, effort: Effort = FULL) -> Evaluation:
    """Scores of the synthetic rows that are released, beside test rows, or a part of the private ones where there are none.

    Numbers are compared as they were, whatever bins the model has; of tables that an engine keeps only codes are at hand, whose
    values are drawn inside of their bins. The number of synthetic rows is the release's own noisy size. Of fewer than four
    private rows there are no scores.
    """
    report(0.0, "sample")
    samples = drawn(release, seed)
    released = _files(release, samples)
    schema: Schema = release.schema if isinstance(data, RawTable) else data.schema
    private, test = (_values(data, schema, part, seed) for part in ("private", "test"))
    if len(private) < LEAST:
        return Evaluation([], released=released)
    report(0.1, "evaluate")
    described = schema.descriptor()
    synthetic = samples.to_pandas()[list(schema.domain.names)]
    most = min(MOST, effort.trained)
    found = compared(private, test, synthetic, schema=described, target=schema.target, seed=seed, most=most)
    missing = {entry["name"] for entry in data.draft["fields"]} if isinstance(data, RawTable) else set(schema.by_name)
    found = replace(found, left_out=tuple(sorted({*missing, *columns_of(data.facts, Fact.NOT_IN_SCHEMA)} - {*synthetic})))
    scores = list(found.scores)
    if _declared(data):
        codes = torch.from_numpy(schema.codes_of_samples(synthetic, strict=True))  # it refuses every other value
        valid = float(schema.admissible(codes).double().mean())
        scores.append(Score("rows that satisfy the schema and its constraints", valid, better="higher", private=False))
    overlays = list(found.pictures.values())[:_MOST_OVERLAYS]
    drawings = {f"{OVERLAYS}/{number:03d}.png": draw for number, draw in enumerate(overlays)}
    drawings["associations.png"] = found.associations
    listed = found.columns.to_csv(index=False)
    writers: dict[str, Writer] = {f"{OVERLAYS}.csv": lambda path: write_atomically(path, listed)}
    writers |= {name: partial(save_drawn, draw) for name, draw in drawings.items()}
    return Evaluation(scores, released=released, pictures=writers, notes=(*found.told, COPIES))


def _declared(data: Table | RawTable) -> bool:
    """Whether a schema says what rows are valid."""
    if isinstance(data, Table):
        return True
    stated = [entry.get("constraints", {}) for entry in data.draft["fields"]]
    return bool(data.draft.get("dpgen:constraints")) or any(rules.keys() - {"required"} for rules in stated)


def unscored(release: Any, *, seed: int) -> Evaluation:
    """The synthetic rows alone."""
    return Evaluation([], released=_files(release, drawn(release, seed)))


def drawn(release: Any, seed: int) -> ColumnSamples:
    """Synthetic rows, as many as the release says, with noise, that there were, at most 100,000."""
    size = max(1, min(int(getattr(release, "size", QUICK.trained)), 2 * MOST))  # never the private number of rows
    samples: ColumnSamples = release.samples(size, random_state=seed)
    return samples


def _files(release: Any, samples: ColumnSamples) -> dict[str, Callable[[], bytes]]:
    return {"samples.csv": partial(samples.for_files(getattr(release, "form", None)).encoded, ".csv")}


def _values(data: Table | RawTable, schema: Schema, part: str, seed: int) -> pd.DataFrame:
    """Modelled columns of the private or the test rows, in the types of synthetic ones."""
    if isinstance(data, RawTable):
        return schema.typed(data.rows.some(MOST, seed) if part == "private" else data.test)
    rows = data.rows if part == "private" else data.test_rows
    if rows is not None:
        return schema.typed(rows)
    generator = torch.Generator().manual_seed(seed)
    codes = data.some(MOST, generator) if part == "private" else data.test_codes
    return schema.decode(codes, generator)[list(schema.domain.names)]
