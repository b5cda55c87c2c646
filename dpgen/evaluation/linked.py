"""Evaluation of people and their rows: tables of two columns within people, within rows and across, beside no link at all."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from dpgen.columns.descriptors import dated
from dpgen.columns.forms import DAY
from dpgen.data.kinds import PACKAGE
from dpgen.data.linked import LinkedTables, arranged, load_linked
from dpgen.data.links import linked_package
from dpgen.data.table_files import read_table
from dpgen.evaluation.column import Column, Numbers, column_of
from dpgen.evaluation.rules import BROKEN, WORTH
from dpgen.evaluation.scores import HELD_OUT, Evaluation, Score, metrics_markdown, table_of, write_page
from dpgen.evaluation.timelines import (
    NO_LINK,
    Found,
    LinkedFrames,
    pictures_of,
    successive_rules,
    successive_scores,
    timeline_scores,
)
from dpgen.figures import heat_maps, save_drawn
from dpgen.metrics import associations
from dpgen.progress import report
from dpgen.schema import nearest
from dpgen.systems.relational.sums import SPANS, Block, Branch, Histories, Integers, Reals, Shape, instances, place_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpgen.samples import LinkedSamples

NAMED = {
    "people": "error of people's pairs of columns (total variation)",
    "both": "error of pairs of a person and a row",
    "row": "error of pairs in a row",
    "pair": "error of pairs of two rows of a person",
    "next": "error of pairs of successive rows",
}
_MOST = 20_000
_TIMES, _MORE = 3.0, 0.002  # by which more synthetic people than real ones break a rule that is listed


def evaluate(release: Any, data: LinkedTables, *, seed: int) -> Evaluation:
    """Mean total variation distance of tables of two columns, where every row counts once, beside held-out people.

    Private people are the measure. Where there are no people for evaluation, nothing stands for real data. The plain baseline
    has the private rows without noise, dealt to people at random: it knows all but whose a row is. Without a synthetic row
    there is nothing to compare.
    """
    report(0.0, "sample")
    samples, released = _drawn(release, seed)
    data = _compared(release, data, seed)
    if data.n < 4 or any(not t.starts[-1] or not len(samples.tables[t.name]) for t in data.tables):
        return Evaluation([], released=released)
    report(0.3, "evaluate")
    made = data.alike(samples.restored())
    pictures = {name: partial(save_drawn, draw) for name, draw in drawn(_beside("private", data, made)).items()}
    return Evaluation(_scored(data, made, seed), released=released, pictures=pictures)


def unscored(release: Any, *, seed: int) -> Evaluation:
    """The synthetic tables alone."""
    return Evaluation([], released=_drawn(release, seed)[1])


def _drawn(release: Any, seed: int) -> tuple[LinkedSamples, dict[str, Callable[[], bytes]]]:
    """Synthetic tables, of at most `_MOST` people, and their files."""
    samples: LinkedSamples = release.samples(max(1, min(release.size, _MOST)), random_state=seed)
    return samples, {f"synthetic/{name}": partial(bytes, content) for name, content in samples.package().items()}


def _compared(release: Any, data: LinkedTables, seed: int) -> LinkedTables:
    """The people who are compared, at most `_MOST` in memory, with as many rows as the release has used."""
    for number, table in enumerate(release.shown["rows"], 1):
        data = data.bounded(number, table["most"])
    if data.n <= _MOST and all(isinstance(table.rows, pd.DataFrame) for table in data.tables[:1]):
        return data
    return data.some(np.random.default_rng(seed).permutation(data.n) < _MOST)


@dataclass(frozen=True, eq=False)
class LinkedComparison:
    """Result of a comparison of people and their rows: scores, and the rules between successive rows that real people keep."""

    scores: list[Score]
    successive: list[Found]
    data: LinkedTables
    made: LinkedTables

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The rules with shares of people who keep them, as JSON; None where no synthetic person has what a rule is about."""
        shares = [(one, None if np.isnan(one.synthetic) else one.synthetic) for one in self.successive]
        return [{"rule": one.rule, "real": one.real, "synthetic": synthetic} for one, synthetic in shares]

    @property
    def unseen(self) -> tuple[str, ...]:
        """A sentence on rules of which no synthetic person shows anything, if there are any."""
        rules = "; ".join(line["rule"] for line in self.lines if line["synthetic"] is None)
        return (f"Kept by real people, and about what no synthetic person has: {rules}.",) if rules else ()

    def __str__(self) -> str:
        return "\n\n".join([metrics_markdown(self.scores), *self.unseen])

    def _repr_html_(self) -> str:
        return table_of(self.scores) + "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.unseen)

    def save(self, path: Path | str, *, first: Sequence[str] = ()) -> Path:
        """Write one page with all scores and pictures; it shows real values and is not for publication."""
        pictures = {name.removesuffix(".png"): draw for name, draw in drawn(_beside("real", self.data, self.made)).items()}
        return write_page(Path(path), "Real and synthetic people and their rows", pictures, self._repr_html_(), first=first)


def comparison(
    real: Path,
    synthetic: Path,
    *,
    seed: int,
    out: Path | None = None,
    holdout: Path | None = None,
    attack: Callable[[Mapping[str, Column]], Iterable[Score]] | None = None,
    quality: Callable[..., Iterable[Score]] | None = None,
) -> LinkedComparison:
    """Scores of the Data Package of synthetic tables against a real one, beside those of held-out people.

    These are people of the real package, or all of the package `holdout`. With `out` scores and pictures are written as one
    page. An `attack` sees people by what their rows come to. `quality` reads the files of the packages.
    """
    told: Sequence[str] = ()
    if attack is not None:
        from dpgen.evaluation.attacks import UNFOUND

        told = (UNFOUND,)
    data = load_linked(path=str(real), test_fraction=HELD_OUT if holdout is None else 0.0)
    if holdout is not None:
        data = replace(data, test=_alike(data, real, holdout))
    found = _beside_real(data, _alike(data, real, synthetic), seed)
    scores = [*found.scores, *([] if attack is None else attack(people_columns(data, found.made)))]
    scores += [] if quality is None else quality(real, synthetic, holdout, seed=seed)
    found = replace(found, scores=scores)
    if out is not None:
        found.save(out, first=told)
    return found


def compare_linked(real: Mapping[str, Any], synthetic: Mapping[str, Any], *, seed: int, **options: Any) -> LinkedComparison:
    """`dpgen.compare` of tables in memory by their names; a part of the real people is held out.

    Arguments:
        real: tables by name, as in `dpgen.fit`.
        synthetic: tables of the same names and columns.
        seed: of what is drawn.
        options: `person`, `links`, `order` and others of `load_linked` that say what hangs on what.
    """
    for name in real:
        if name not in synthetic:
            raise nearest("a table of synthetic", name, list(synthetic))
    first, person, beside = arranged(real, options)
    given: dict[str, Any] = {"test_fraction": HELD_OUT} | options | person | beside
    data = load_linked(path=first, **given)
    return _beside_real(data, data.alike(dict(synthetic)), seed)


def _beside_real(data: LinkedTables, made: LinkedTables, seed: int) -> LinkedComparison:
    """Scores and rules of synthetic tables beside real ones."""
    scores = [*broken_across(data, made), *_scored(data, made, seed)]
    return LinkedComparison(scores, successive_rules(data, made, seed), data, made)


def _alike(data: LinkedTables, real: Path, package: Path) -> LinkedTables:
    """The tables of another package, which must have those of the real one."""
    given = linked_package(package / PACKAGE if package.is_dir() else package)
    if given.person != data.person:
        raise ValueError(f"{package} links by {given.person!r}; it must be {data.person!r}, as in {real}")
    for name in data.names:
        if name not in given.files:
            raise nearest(f"a table of {package}", name, list(given.files))
    return data.alike({name: read_table(given.files[name]) for name in data.names})


def people_columns(data: LinkedTables, made: LinkedTables) -> Mapping[str, Column]:
    """Columns of private people, of those for evaluation and of synthetic ones, as attacks see them, see `by_person`."""
    from dpgen.evaluation.attacks import LEAST

    n = 0 if data.test is None else data.test.n
    if n < LEAST:
        raise ValueError(f"holdout has {n} people; attacks need at least {LEAST}")
    if not made.n:
        raise ValueError("synthetic has no people; attacks need 1")
    assert data.test is not None
    parts = {part: by_person(tables, data) for part, tables in (("own", data), ("held", data.test), ("made", made))}
    found = {name: Column.of({part: frame[name] for part, frame in parts.items()}) for name in parts["own"]}
    return {name: column for name, column in found.items() if not column.names_rows} or found


def by_person(data: LinkedTables, like: LinkedTables) -> pd.DataFrame:
    """A line for each person: own columns, and of each table of rows how many, means and largest numbers, most frequent values.

    What columns hold, numbers, dates or other values, is that of the tables that they are `like`.
    """
    found = {name: _as_numbers(column_of(data.frames[0], name), private)[0] for name, private in like.frames[0].items()}
    owners = [np.arange(data.n)]
    for number, table in enumerate(data.tables, 1):
        owners.append(np.repeat(owners[table.parent], np.diff(table.starts)))
        rows, owner, people = data.frames[number], owners[-1], pd.RangeIndex(data.n)
        if table.parent:
            found[f"{table.name}: rows"] = pd.Series(np.bincount(owner, minlength=data.n))
        for name, private in like.frames[number].items():
            values, numeric = _as_numbers(column_of(rows, name), private)
            if numeric:
                each = values.groupby(owner)
                found |= {f"{table.name}: {what} {name}": each.agg(what).reindex(people) for what in ("mean", "max")}
                continue
            counts = values.astype(str)[values.notna()].groupby(owner[values.notna().to_numpy()]).value_counts(sort=True)
            most = counts.reset_index(name="times").drop_duplicates("level_0").set_index("level_0").iloc[:, 0]
            found[f"{table.name}: most frequent {name}"] = most.reindex(people)
    return pd.DataFrame({str(name): values.reset_index(drop=True) for name, values in found.items()})


def _as_numbers(values: pd.Series, private: pd.Series) -> tuple[pd.Series, bool]:
    """A column as numbers where the private one holds numbers or dates, and whether it does."""
    way = Numbers.of(private)
    return (values, False) if way is None else (pd.Series(way.read(values)), True)


def _scored(data: LinkedTables, made: LinkedTables, seed: int) -> list[Score]:
    shape, coded = coder(data)
    private, synthetic = coded(data), coded(made)
    held = {} if data.test is None else errors(private, coded(data.test), shape)
    found, dealt = errors(private, synthetic, shape), errors(private, without_link(private, shape, seed), shape)
    scores = [
        Score(text, found[kind], real=held.get(kind), chance=dealt[kind], better="lower", baseline=NO_LINK)
        for kind, text in _named([table.name for table in data.tables]).items()
        if kind in found
    ]
    return [*scores, *timeline_scores(data, made, seed), *successive_scores(data, made, seed)]


def _named(tables: Sequence[str]) -> Mapping[str, str]:
    """Names of scores by kind; of further tables of rows with the names of the tables."""
    found = dict(NAMED)
    for number, name in enumerate(tables[1:], 2):
        found |= {f"{kind} {number}": f"{name}: {text}" for kind, text in NAMED.items() if kind not in ("people", "both")}
        for above in range(number):
            of = "people" if not above else tables[above - 1]
            found[f"both {above} {number}"] = f"{name}: error of pairs of a row and a column of {of}"
    return found


def drawn(parts: Mapping[str, LinkedTables]) -> Mapping[str, Callable[[], Any]]:
    """Pictures of people and their rows side by side, by the names of their files; made when they are called."""
    found: dict[str, Callable[[], Any]] = {}
    for number, table in enumerate(next(iter(parts.values())).tables, 1):
        shown = {label: LinkedFrames.of(data, number) for label, data in parts.items()}
        prefix = f"{table.name}_" if number > 1 else ""
        pictures = {**pictures_of(shown), "associations_across": associations_across}
        found |= {f"{prefix}{name}.png": partial(draw, shown) for name, draw in pictures.items()}
    return found


def _beside(label: str, data: LinkedTables, made: LinkedTables) -> Mapping[str, LinkedTables]:
    """Data sets that pictures show, by what legends call them: the `label`, held-out people if there are any, synthetic."""
    held = {} if data.test is None or not data.test.n else {"held-out": data.test}
    return {label: data, **held, "synthetic": made}


def coder(data: LinkedTables) -> tuple[Shape, Callable[[LinkedTables], Histories]]:
    """The shape of tables in at most 12 groups of values of each column, and how linked tables become codes of it.

    Groups are quantiles of the private numbers and dates, and the most frequent other values, whatever codes a model has.
    """
    counts = {(table.parent, table.count): table for table in data.tables}

    def coder_of(number: int, name: str, frame: pd.DataFrame) -> tuple[Callable[[pd.Series], Integers], int]:
        table = counts.get((number, name))
        if table is None:
            return groups_of(frame[name])
        least, last = table.least, table.most - table.least
        return (lambda values: np.clip(values.to_numpy(np.int64) - least, 0, last)), last + 1

    orders, groups, sizes = list[list[str]](), list[list[Any]](), list[tuple[int, ...]]()
    branches = list[Branch]()
    for number, frame in enumerate(data.frames):
        table = data.tables[number - 1] if number else None
        spans = {name: "all" if table is None else table.spans.get(name, "all") for name in frame}
        orders.append(sorted(frame, key=lambda name: SPANS.index(spans[name])))
        groups.append([coder_of(number, name, frame) for name in orders[-1]])
        sizes.append(tuple(size for _, size in groups[-1]))
        if table is not None:
            own, count = tuple(spans[name] for name in orders[-1]), orders[table.parent].index(table.count)
            branches.append(Branch(sizes[-1], own, table.most, table.parent, count))

    def coded(part: LinkedTables) -> Histories:
        found = [
            np.stack([code(column_of(frame, name)) for name, (code, _) in zip(order, own)], 1)
            for frame, order, own in zip(part.frames, orders, groups)
        ]
        return Histories(found[0], found[1:], [table.starts for table in part.tables])

    return Shape(sizes[0], tuple(branches)), coded


def errors(real: Histories, other: Histories, shape: Shape) -> Mapping[str, float]:
    """Mean total variation distance of all tables of two columns of each kind, where every instance counts once."""
    found: dict[str, list[float]] = {}
    for block in shape.blocks:
        kind, left, right = block
        if kind not in NAMED:
            continue
        (above, _), (number, _) = place_of(left), place_of(right)
        named = kind if number < 2 else f"{kind} {above} {number}" if kind == "both" else f"{kind} {number}"
        found.setdefault(named, []).extend(_variations(real, other, shape, block))
    return {kind: float(np.mean(values)) for kind, values in found.items() if values}


def _variations(real: Histories, other: Histories, shape: Shape, block: Block) -> Iterator[float]:
    """Total variation distances of the tables of two columns of one block."""
    kind, left, right = block
    both = [instances(data, shape, block) for data in (real, other)]
    same = kind in ("people", "row") and left == right
    for i, size in enumerate(shape.sizes(left)):
        for j, beside in [*enumerate(shape.sizes(right))][i + 1 if same else 0 :]:
            cells = [np.bincount(x.left[:, i] * beside + x.right[:, j], minlength=size * beside) for x in both]
            laws = [cell / max(1, cell.sum()) for cell in cells]
            yield 0.5 * float(np.abs(laws[0] - laws[1]).sum())


def without_link(data: Histories, shape: Shape, seed: int) -> Histories:
    """People and rows, each row at a random place; how many rows hang on it is that of the place."""
    generator, dealt = np.random.default_rng(seed), []
    for number, codes in enumerate(data.rows, 1):
        rows = generator.permutation(codes)
        counts = [branch.count for branch in shape.tables if branch.parent == number]
        rows[:, counts] = codes[:, counts]
        dealt.append(rows)
    return replace(data, rows=dealt)


MOST_GROUPS = 12
"""Groups of a column, by the private values, beside gaps and all others."""

_MOST_COLUMNS = 12  # of a table, in a heat map
_SIDE = 4.4  # inches of a panel


def associations_across(parts: Mapping[str, LinkedFrames]) -> Figure:
    """Association (Cramer's V) of each column of people, and of the number of rows, with each column of rows."""
    first = next(iter(parts.values()))
    people, rows = ([str(name) for name in list(frame)[:_MOST_COLUMNS]] for frame in (first.people, first.rows))
    groups = [[groups_of(frame[name]) for name in names] for frame, names in ((first.people, people), (first.rows, rows))]
    panels = {}
    for label, part in parts.items():
        codes = [code(column_of(part.people, name))[part.owner] for name, (code, _) in zip(people, groups[0])]
        codes += [np.diff(part.starts)[part.owner]]
        codes += [code(column_of(part.rows, name)) for name, (code, _) in zip(rows, groups[1])]
        found = (
            associations(torch.from_numpy(np.stack(codes, 1))) if len(part.rows) > 1 else torch.zeros(len(codes), len(codes))
        )
        panels[label] = found[: len(people) + 1, len(people) + 1 :].numpy()
    people = [*people, "number of rows"]
    axes, label = (f"columns of {first.name}", f"columns of {first.all_above}"), "Cram\u00e9r's V"
    figure = heat_maps(panels, people, rows, axes_names=axes, label=label, side=_SIDE)
    figure.suptitle(f"{first.name}: association with columns of {first.all_above}", fontsize=10)
    return figure


def groups_of(private: pd.Series) -> tuple[Callable[[pd.Series], Integers], int]:
    """A function from values of a column to groups, by its private values, and their number; gaps are the last one."""
    if (way := Numbers.of(private)) is not None:
        edges = np.unique(np.nanquantile(way.read(private), np.linspace(0, 1, MOST_GROUPS + 1)[1:-1]))

        def numbered(column: pd.Series) -> Integers:
            found = way.read(column)
            return np.where(np.isnan(found), len(edges) + 1, np.searchsorted(edges, found, side="right"))

        return numbered, len(edges) + 2
    named = private.dropna().astype(str).value_counts().index[: MOST_GROUPS - 1]

    def listed(column: pd.Series) -> Integers:
        place = pd.Index(named).get_indexer(pd.Index(column.astype(str)))
        return np.where(column.isna(), len(named) + 1, np.where(place < 0, len(named), place))

    return listed, len(named) + 2


# -- rules between people and their rows -------------------------------------------------------------------------------

Check = Callable[[LinkedTables, Any], npt.NDArray[np.bool_]]
"""Which people (n,) break a rule; those of another order, where one is given, have the values of people, or dates of rows."""
_SIDES = ((1, "before"), (-1, "after"))


def broken_across(data: LinkedTables, made: LinkedTables) -> list[Score]:
    """Shares of synthetic people who break rules that hold for the real ones, of those who break more, the worst first.

    A rule is an order of a date of people, or of a row, and the days of rows, a copy of a column of the same name, or a sum of
    numbers of rows. At most 1 % of the real people break it, and it would be broken by 2 % were rows dealt to people at random,
    or dates to rows.
    """
    found = list[Score]()
    other = np.random.default_rng(0).permutation(data.n)
    for number, table in enumerate(data.tables, 1):
        checks = [*_within(data, made, number)]
        if not table.parent and data.source is not None:
            checks += _checks(data, made, number)
        for name, check in checks:
            own, dealt = float(check(data, None).mean()), float(check(data, other).mean())
            synthetic = float(check(made, None).mean())
            if own <= BROKEN and dealt >= WORTH and synthetic > _TIMES * own + _MORE:
                called = f"people who break: {name}"
                found.append(Score(called, synthetic, real=own, chance=dealt, better="lower", baseline=NO_LINK))
    return sorted(found, key=lambda score: -score.value)


def _checks(data: LinkedTables, made: LinkedTables, number: int) -> Iterator[tuple[str, Check]]:
    """Rules that may hold between people and a table, of columns that synthetic ones have, too, and the check of each."""
    table, people, rows = data.tables[number - 1], _common(data, made, 0), _common(data, made, number)
    of_rows = {name: Numbers.of(rows[name]) for name in rows if name not in table.spans}
    for name in people.drop(columns=[table.count for table in data.tables], errors="ignore"):
        way = Numbers.of(people[name])
        if name in rows:
            yield f"{table.name}.{name} is {data.names[0]}.{name}", partial(_copy, number=number, name=name)
        if way is not None:
            values = partial(_people, name=name, way=way)
            numeric = way.kind == "number"
            yield from _sums(data, number, name, values, of_rows) if numeric else _in_order(data, number, name, values)


def _common(data: LinkedTables, made: LinkedTables, number: int) -> pd.DataFrame:
    """Columns of a table, or of people, that synthetic ones have, too."""
    own, other = data.frames[number], made.frames[number]
    return own[[name for name in own if name in other]]


def _in_order(data: LinkedTables, number: int, name: str, values: Callable[..., Reals]) -> Iterator[tuple[str, Check]]:
    """Rules of a date of people and the time of rows."""
    table = data.tables[number - 1]
    if table.order is not None and dated(table.order[1]):
        for sign, word in _SIDES:
            said = f"{table.name}.{table.order[0]} not {word} {data.names[0]}.{name}"
            yield said, partial(_order, number=number, values=values, sign=sign)


def _sums(
    data: LinkedTables, number: int, name: str, values: Callable[..., Reals], of_rows: Mapping[str, Numbers | None]
) -> Iterator[tuple[str, Check]]:
    """Rules of a number of people that is the sum of one of rows."""
    for part, way in of_rows.items():
        if way is not None and way.kind == "number":
            check = partial(_sum, number=number, values=values, part=part, way=way)
            yield f"{data.names[0]}.{name} is the sum of {data.tables[number - 1].name}.{part}", check


def _within(data: LinkedTables, made: LinkedTables, number: int) -> Iterator[tuple[str, Check]]:
    """Rules of the dates of a row and its own time."""
    table, rows = data.tables[number - 1], _common(data, made, number)
    if table.order is None or not dated(table.order[1]):
        return
    of_row, time = partial(_of_row, number=number), f"{table.name}.{table.order[0]}"
    for name in rows.drop(columns=[*table.in_time, *table.made], errors="ignore"):
        way = Numbers.of(rows[name])
        if way is not None and way.kind == "datetime":
            for sign, word in _SIDES:
                yield f"{table.name}.{name} not {word} {time}", partial(of_row, name=str(name), way=way, sign=sign)
    for own in table.distances:
        if own.made in rows:
            word = dict(_SIDES)[1 if own.sign > 0 else -1]
            yield f"{table.name}.{own.column} not {word} {time}", partial(of_row, name=own.made, way=None, sign=own.sign)


def _owner(data: LinkedTables, number: int) -> Integers:
    """The person of each row of a table (r,)."""
    owner = np.arange(data.n)
    for place in data.path(number):
        owner = np.repeat(owner, np.diff(data.tables[place - 1].starts))
    return owner


def _people(data: LinkedTables, other: Any, *, name: str, way: Numbers) -> Reals:
    """Numbers of people (n,), in another order where one is given."""
    values = way.read(data.frames[0][name])
    return values if other is None else values[other]


def _of_row(data: LinkedTables, other: Any, *, number: int, name: str, way: Numbers | None, sign: int) -> npt.NDArray[np.bool_]:
    """People (n,) with a row of which a date, or without a `way` a time `name` from the row on, is on the wrong side."""
    table, step = data.tables[number - 1], data.tables[number - 1].seconds(data.linking.time_unit) or 1
    times = np.floor_divide(table.times.astype("datetime64[s]").astype(np.int64), step)
    if way is None:
        values = times + sign * pd.to_numeric(data.frames[number][name]).to_numpy(np.float64)
    else:
        values = np.floor_divide(way.read(data.frames[number][name]), step)
    values = values if other is None else np.random.default_rng(0).permutation(values)
    return np.bincount(_owner(data, number), sign * (values - times) < 0, data.n) > 0


def _order(data: LinkedTables, other: Any, *, number: int, values: Callable[..., Reals], sign: int) -> npt.NDArray[np.bool_]:
    owner, days = _owner(data, number), data.tables[number - 1].times.astype("datetime64[D]").astype(np.float64)
    return np.bincount(owner, sign * (days - np.floor(values(data, other) / DAY)[owner]) < 0, data.n) > 0


def _copy(data: LinkedTables, other: Any, *, number: int, name: str) -> npt.NDArray[np.bool_]:
    owner, values = _owner(data, number), data.frames[0][name].astype(str).to_numpy(object)
    wrong = data.frames[number][name].astype(str).to_numpy(object) != (values if other is None else values[other])[owner]
    return np.bincount(owner, wrong, data.n) > 0


def _sum(
    data: LinkedTables, other: Any, *, number: int, values: Callable[..., Reals], part: str, way: Numbers
) -> npt.NDArray[np.bool_]:
    found = np.bincount(_owner(data, number), np.nan_to_num(way.read(data.frames[number][part])), data.n)
    return ~np.isclose(found, np.nan_to_num(values(data, other)), rtol=1e-9, atol=1e-6)
