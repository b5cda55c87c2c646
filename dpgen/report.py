"""The report of a run or a release: one page for a person, that stands alone and asks for nothing outside.

Its pictures of a release are of samples or draws of it: post-processing, which needs no private data and costs nothing.
"""

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
import yaml
from torch import Tensor

from dpgen import __version__
from dpgen.data.table_files import name_of
from dpgen.evaluation.column import Numbers
from dpgen.evaluation.compare import in_pairs
from dpgen.evaluation.linked import associations_across
from dpgen.evaluation.scores import verdict
from dpgen.evaluation.timelines import LinkedFrames, pictures_of, timelines
from dpgen.facts import Section
from dpgen.figures import heat_maps, inline_svg, new_figure, show_images
from dpgen.files import DRAWS, METRICS, MODEL, OVERLAYS, RELEASED, STATEMENT, write_atomically
from dpgen.metrics import associations
from dpgen.privacy.ledger import Ledger
from dpgen.release import Draws, ImageModel, PublicModel, RecordModel, Release
from dpgen.samples import ImageSamples, LinkedSamples, PointSamples, RecordSamples
from dpgen.schema import Schema
from dpgen.statement import RELATIONS, UNPROTECTED, PrivacyStatement, collected, right_of_100, rounded_up
from dpgen.systems.registry import load

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REPORT = "report.html"
"""Name of a report beside what it reports on."""

_TEMPLATE = "report.html.jinja"
_MOST_ROWS = 24
_JUDGED = ("value", "real", "chance", "better", "baseline")
_LONG = re.compile(r"\d+\.\d{6,}(e-?\d+)?")
_FALSE_ALARMS = (0.1, 0.01, 0.001)

SAMPLES = 10_000
"""Synthetic records behind the pictures of a model."""

IMAGES = 1_000
"""Synthetic images behind those of a model of images."""

_SEED = 0
_MOST_BARS = 30
_MOST_CELLS = 24  # on a side of a heat map
_MOST_COLUMNS = 16
_MOST_DOTS = 2_000
_MOST_NAMES = 28  # characters of a name
_MOST_SCATTERED = 3
_IMAGES_A_ROW = 10
_SHOWN = (0.001, 0.999)  # quantiles that a histogram ends at
_WIDTH = 4.6  # inches, of every picture: readable on a narrow screen
_COLOUR = "#2a5d8f"


def detected(false_alarms: float, epsilon: float, delta: float) -> float:
    r"""Greatest share of the cases in which a test notices a record, if it suspects wrongly in a share f of the others.

    .. math:: \min(1,\; e^\epsilon f + \delta,\; 1 - e^{-\epsilon} (1 - \delta - f))

    Source: Wasserman and Zhou 2010, Theorem 2.4; Kairouz, Oh, Viswanath 2015, equation 2.

    >>> round(detected(0.01, 1.0, 0.0), 4), detected(0.01, 0.0, 0.0)
    (0.0272, 0.01)
    """
    grown = math.inf if epsilon > 700 else math.exp(epsilon) * false_alarms + delta
    return max(false_alarms, min(1.0, grown, 1.0 - math.exp(-epsilon) * (1.0 - delta - false_alarms)))


@dataclass(frozen=True)
class Panel:
    """A picture or a table of the page; `private`: computed on private records without noise."""

    title: str
    caption: str
    body: str = ""
    """An `<svg>` element, or the address of a picture that the page holds itself."""
    table: Sequence[Sequence[str]] = ()
    """Rows, header first."""
    private: bool = False
    whole: bool = False
    """Whether it takes the whole width of the page."""


@dataclass(frozen=True)
class Content:
    """Everything on the page, private parts included."""

    title: str
    release: Release
    spending: str = ""
    scores: Sequence[dict[str, Any]] = ()
    panels: Sequence[Panel] = ()
    files: Mapping[str, bool] = field(default_factory=dict)
    """Whether each file of the run may be shared."""
    facts: Sequence[tuple[str, str]] = ()

    def for_publication(self) -> "Content":
        """Without whatever was computed on private records without noise, and without what only concerns the holder."""
        return replace(
            self,
            spending="",
            scores=[score for score in self.scores if not score["status"]],
            panels=[panel for panel in self.panels if not panel.private],
            files={name: shared for name, shared in self.files.items() if shared},
        )

    @property
    def private(self) -> bool:
        """Whether any part is not for publication."""
        marked = [bool(score["status"]) for score in self.scores]
        return any([*marked, *(panel.private for panel in self.panels), *(not shared for shared in self.files.values())])


def _of_directory(directory: Path) -> Content:
    """Files that a run, or a released model, has left in its directory."""
    release = _released(directory)
    settings, ledger, metrics = (directory / name for name in ("config.yaml", "ledger.jsonl", METRICS))
    file, title = settings, f"{type(release).__name__} {directory.resolve().name}"
    try:  # a score that does not say what it looked at counts as private
        if file.is_file():
            title = _title(yaml.safe_load(file.read_bytes()))
        file = metrics
        scores = json.loads(file.read_bytes()) if file.is_file() else []
        scores = [{"status": UNPROTECTED} | s | {"verdict": verdict(*(s[name] for name in _JUDGED))} for s in scores]
    except (ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise ValueError(f"{file} is damaged: {' '.join(str(error).split())}") from error
    content = _of_release(release, release.statement.title or title)
    spending = _spending(ledger) if ledger.is_file() else ""
    panels = [*content.panels, *_private_panels(directory)]
    return replace(content, spending=spending, scores=scores, panels=panels, files=_files(directory))


def _released(directory: Path) -> Release:
    """The model or the draws in a directory, with the statement of the run where there is one."""
    if (directory / MODEL).is_dir() or (directory / "model.json").is_file():
        release: Release = load(directory)
        if (directory / STATEMENT).is_file():  # which has the checksums of all files
            release.statement = PrivacyStatement.read(directory / STATEMENT)
        return release
    if (directory / DRAWS).is_file() and (directory / STATEMENT).is_file():
        statement = PrivacyStatement.read(directory / STATEMENT)
        return Draws(pd.read_csv(directory / DRAWS), statement=statement)
    raise ValueError(f"run is {str(directory)!r}; it must be the directory of a finished run or of a released model")


def _spending(ledger: Path) -> str:
    """A sentence on what a ledger holds and its budget leaves."""
    with Ledger.open(ledger) as book:
        spent = book.epsilon()
        if book.budget is None:
            return f"The ledger holds epsilon {rounded_up(spent)} and enforces no budget."
        left = max(0.0, book.budget.epsilon - spent)
        rest = f"{left:.4g} left" if left > 1e-3 * book.budget.epsilon else "nothing is left"
        return f"Spent {rounded_up(spent)} of epsilon {book.budget.epsilon:.4g}, {rest}."


def _title(settings: dict[str, Any]) -> str:
    """Title of a report: the system, and the file or the data set.

    >>> _title({"model": {"name": "tables"}, "data": {"name": "table", "path": "data/customers.csv"}})
    'tables on customers'
    >>> _title({"model": {"name": "tables"}, "data": {"name": "sql", "path": "visits/*.parquet"}})
    'tables on visits'
    """
    data = settings["data"]
    return f"{settings['model']['name']} on {name_of(data.get('path') or data['name'])}"


def _of_release(release: Release, title: str) -> Content:
    facts = []
    if isinstance(release, PublicModel):
        released = f"a model of kind {release.kind}, from which anyone may draw any number of records for free"
        facts = [("released", released), ("SHA-256 of model, description and statement", release.sha256)]
    elif isinstance(release, Draws):
        paid = f"{len(release.to_pandas()):,} private draws"
        facts = [("released", f"{paid}; what drew them stays with the holder; more draws cost more")]
    return Content(title, release, panels=_own_panels(release), facts=facts)


def _own_panels(release: Release) -> list[Panel]:
    shown = [
        Panel(picture.title, picture.caption, body=inline_svg(picture.figure, f"picture{number}"))
        for number, picture in enumerate(pictures(release))
    ]
    if isinstance(release, Draws):
        shown.append(Panel("Draws", f"The first of {len(release.to_pandas()):,} rows.", table=_rows(release.to_pandas())))
    return shown


def _private_panels(directory: Path) -> Iterator[Panel]:
    """Pictures and tables that the evaluation left: all that is not released was computed on private records."""
    overlays = sorted((directory / OVERLAYS).glob("*.png"))
    names = pd.read_csv(directory / f"{OVERLAYS}.csv", dtype=str, keep_default_na=False)["column"] if overlays else ()
    for path, name in zip(overlays, names):
        yield Panel(name, "Real and synthetic values over each other.", body=_address(path), private=True)
    for path in sorted(directory.glob("*.png")):
        yield Panel(path.stem, "Of the evaluation.", body=_address(path), private=True, whole=True)
    for path in sorted(directory.glob("*.csv")):
        if path.name not in RELEASED:
            table = pd.read_csv(path)
            shown = in_pairs(table)[: _MOST_ROWS + 1] if path.name == f"{OVERLAYS}.csv" else _rows(table)
            yield Panel(path.stem, "Of the evaluation.", table=shown, private=True)


def _address(path: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def _rows(table: pd.DataFrame) -> list[list[str]]:
    def cell(value: Any) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    return [[str(name) for name in table.columns], *([cell(v) for v in row] for row in table[:_MOST_ROWS].to_numpy().tolist())]


def _files(directory: Path) -> dict[str, bool]:
    shown = [path for path in sorted(directory.iterdir()) if path.name != REPORT and not path.name.startswith(".")]
    known = {path: path.name in RELEASED or path.suffix == ".safetensors" or path.name == "model.json" for path in shown}
    return {path.name + "/" * path.is_dir(): shared for path, shared in known.items()}


def report(source: Path | str | Release, out: Path | str | None = None, *, public: bool = False) -> Path:
    """Write the report of a run, of a released model or of a release in memory: one HTML file; returns its path.

    It needs no private data: pictures of the release are drawn from its own samples, and what compares it with real data is
    what the evaluation wrote, marked as not for publication. `public` leaves that out, and what only concerns the holder.
    """
    if isinstance(source, Release):
        if out is None:
            raise ValueError("out is None; a release in memory needs a file to write the report to")
        content, target = _of_release(source, source.statement.title or type(source).__name__), Path(out)
    else:
        content, target = _of_directory(Path(source)), Path(out) if out is not None else Path(source) / REPORT
    write_atomically(target, page(content.for_publication() if public else content, public=public))
    return target


def page(content: Content, *, public: bool) -> str:
    """The HTML of a report."""
    from jinja2 import Environment, StrictUndefined

    statement = content.release.statement
    tests = [
        [f"{100 * share:g} % of the cases", _percent(most), rounded_up(most / share)]
        for share in _FALSE_ALARMS
        for most in [detected(share, statement.epsilon, statement.delta)]
    ]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "plain": lambda text: text.replace("`", ""),
        "up": rounded_up,
        "score": lambda v: "" if v is None else f"{v:.4g}",
    }
    template = environment.from_string(files("dpgen").joinpath(_TEMPLATE).read_text(encoding="utf-8"))
    return template.render(
        content=content,
        statement=statement,
        relation=RELATIONS.get(statement.relation, statement.relation),
        question=statement.question(),
        right=right_of_100(statement.epsilon, statement.delta),
        about=statement.about(),
        questions=statement.questions(),
        warned=statement.section(Section.WARNINGS),
        made=statement.section(Section.MADE),
        tests=tests,
        mechanisms=[
            [m["note"], _LONG.sub(lambda n: f"{float(n[0]):.6g}", m["event"]), m["count"], m.get("most", m["count"])]
            for m in collected(statement.mechanisms)
        ],
        mark=UNPROTECTED,
        public=public,
        version=__version__,
    )


def _percent(share: float) -> str:
    """A share in percent, four digits, never less than it is.

    >>> _percent(0.73105858), _percent(0.001), _percent(1.0)
    ('73.11 %', '0.1 %', '100 %')
    """
    return f"{rounded_up(100 * share)} %"


# -- pictures -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Picture:
    """A figure with its title, and a caption that says what it was made from."""

    title: str
    caption: str
    figure: "Figure"


def pictures(release: Release) -> list[Picture]:
    """Pictures of a release: images, or the distribution of each column and what belongs together.

    A model is shown by `SAMPLES` records or `IMAGES` images of its own under a public seed, draws are shown as they are.

    >>> from dpgen.statement import PrivacyStatement
    >>> paid = PrivacyStatement(epsilon=1.0, delta=0.0, relation="replace_one", unit="one record", accountant="exact")
    >>> draws = Draws(pd.DataFrame({"draw": [0, 0], "category": ["news", "sport"]}), statement=paid)
    >>> [picture.title for picture in pictures(draws)]
    ['Distribution of category']
    >>> pictures(draws)[0].caption.endswith("Epsilon 1 at delta 0 (replace one record).")
    True
    """
    if not isinstance(release, Draws | PublicModel):
        raise ValueError(f"release is {type(release).__name__}; it must be a PublicModel or Draws")
    paid = release.statement.in_words()
    return [replace(picture, caption=f"{picture.caption} {paid[0].upper()}{paid[1:]}.") for picture in _of(release)]


def _of_draws(table: pd.DataFrame) -> Iterator[Picture]:
    extra = [name for name in ("draw", "label", "user", "group") if name in table and table.shape[1] > 1]
    values, source = table.drop(columns=extra), f"{len(table):,} private draws"
    yield from (*_of_columns(values, source), *_scattered(values, source))


def _of(release: Draws | PublicModel) -> Iterator[Picture]:
    if isinstance(release, Draws):
        yield from _of_draws(release.to_pandas())
        return
    samples = release.samples(IMAGES if isinstance(release, ImageModel) else SAMPLES, random_state=_SEED)
    if isinstance(samples, ImageSamples):
        groups = {name: x.flatten(1) / 255 for name, x in samples.by_class().items()}
        yield from _of_images(groups, samples.x.shape[1:], "class", _drawn(len(samples), "image"))
    elif isinstance(samples, LinkedSamples):
        yield from _of_linked(samples, _drawn(SAMPLES, "person").replace("persons", "people"))
    elif isinstance(samples, RecordSamples):
        yield from _of_records(samples, release.image_shape if isinstance(release, RecordModel) else None)
    elif isinstance(schema := getattr(release, "schema", None), Schema):
        yield from _of_table(samples.to_pandas(), schema, _drawn(len(samples), "row"))
    else:
        table, source = samples.to_pandas(), _drawn(len(samples), "row")
        yield from (*_of_columns(table, source), *(_scattered(table, source) if isinstance(samples, PointSamples) else ()))


def _of_table(table: pd.DataFrame, schema: Schema, source: str) -> Iterator[Picture]:
    names = [field.name for field in schema.modelled]
    yield from (
        *_of_columns(table[names], source),
        *_associations(torch.from_numpy(schema.codes_of_samples(table)), names, source),
    )


def _drawn(n: int, what: str) -> str:
    return f"{n:,} synthetic {what}s drawn from the released model"


def _short(name: object) -> str:
    text = str(name)
    return text if len(text) <= _MOST_NAMES else f"{text[: _MOST_NAMES - 1]}…"


def _of_records(samples: RecordSamples, image_shape: tuple[int, int] | None) -> Iterator[Picture]:
    source = _drawn(len(samples), "record")
    if image_shape is not None:
        yield from _of_record_images(samples, image_shape, source)
        return
    ones = samples.x.double().mean(0)
    shown = (-samples.x.double().var(0)).argsort(stable=True)[:_MOST_BARS].sort().values
    names = [str(name) for name in samples.columns or range(len(ones))]
    rest = "" if len(shown) == len(names) else f" The {len(shown)} columns of {len(names)} that vary most."
    shares = pd.Series(ones[shown].numpy(), index=[names[i] for i in shown])
    yield Picture("Marginals", f"Share of ones of each column; {source}.{rest}", _bars(shares, "share of ones", "column"))
    yield from _associations(samples.x[:, shown].long(), [names[i] for i in shown], source)
    if samples.labels is not None:
        counts = pd.Series(samples.labels.numpy()).value_counts(normalize=True).sort_index()
        yield Picture("Labels", f"Share of each label; {source}.", _bars(counts, "share of the records", "label"))


def _of_record_images(samples: RecordSamples, image_shape: tuple[int, int], source: str) -> Iterator[Picture]:
    """Records as images, grey where they are, by their labels, or by clusters where they have none."""
    of, group = ("cluster", samples.cluster) if samples.labels is None else ("label", samples.labels)
    x = samples.x if samples.grey is None else samples.grey / 255
    yield from _of_images({f"{of} {c}": x[group == c] for c in group.unique().tolist()}, image_shape, of, source)


def _of_images(groups: Mapping[str, Tensor], shape: tuple[int, ...], of: str, source: str) -> Iterator[Picture]:
    """Some images of each group, the mean of all of them, and how many there are; values (n, d) are in [0, 1]."""
    names, rows = list(map(_short, groups))[:_MOST_BARS], list(groups.values())[:_MOST_BARS]
    yield Picture("Synthetic images", f"One row for each {of}; {source}.", _images(names, rows, shape))
    means = torch.stack([x.float().mean(0) for x in rows])
    yield Picture("Average images", f"Mean of each pixel, for each {of} in order; {source}.", _images([""], [means], shape))
    shares = pd.Series([len(x) for x in rows], index=names) / sum(map(len, groups.values()))
    yield Picture("Shares", f"Share of each {of}; {source}.", _bars(shares, "share of the images", of))


def _images(names: Sequence[str], rows: Sequence[Tensor], image_shape: tuple[int, ...]) -> "Figure":
    height, width = image_shape[:2]
    columns = min(_IMAGES_A_ROW, max(len(row) for row in rows))
    figure = new_figure(_WIDTH, max(0.6, (_WIDTH - 0.9) / columns * len(rows) * height / width))
    axes = figure.add_subplot()
    show_images(axes, rows, image_shape, columns)
    places = [(row + 0.5) * (height + 1) - 0.5 for row in range(len(rows))]
    axes.set_yticks(places, labels=names, fontsize=7)
    axes.set_xticks([])
    axes.tick_params(length=0)
    return figure


def _associations(codes: Tensor, columns: Sequence[str], source: str) -> Iterator[Picture]:
    """Cramér's V of the first columns of codes (n, d)."""
    names = list(map(_short, columns))[:_MOST_CELLS]
    if len(names) < 2 or len(codes) < 2:
        return
    rest = "" if len(names) == len(columns) else f" The first {len(names)} columns of {len(columns)}."
    values, label = associations(codes[:, : len(names)]).numpy(), "Cramér's V"
    figure = heat_maps({"": values}, names, names, axes_names=("column", "column"), label=label, side=_WIDTH)
    yield Picture("Pairwise associations", f"Association (Cramér's V) of every two columns; {source}.{rest}", figure)


def _bars(shares: "pd.Series[float]", label: str, of: str) -> "Figure":
    figure = new_figure(_WIDTH, 0.5 + 0.19 * max(3, len(shares)))
    axes = figure.add_subplot()
    axes.barh(range(len(shares)), shares.to_numpy(), color=_COLOUR)
    axes.set_yticks(range(len(shares)), labels=[_short(name) for name in shares.index], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlim(0, max(1e-9, 1.05 * float(shares.max())))
    _label(axes, label, of)
    return figure


def _label(axes: "Axes", x: str, y: str) -> None:
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.tick_params(labelsize=7)


def _of_columns(table: pd.DataFrame, source: str) -> Iterator[Picture]:
    """Histograms of numbers and dates, bars of the most frequent of other values."""
    for name in list(table.columns)[:_MOST_COLUMNS] if len(table) else ():
        title, values = f"Distribution of {_short(name)}", table[name].replace([np.inf, -np.inf], np.nan).dropna()
        gaps = "" if len(values) == len(table) else f" {100 * float(table[name].isna().mean()):.1f} % are missing."
        dates, kind = pd.api.types.is_datetime64_any_dtype(values), values.dtype
        if not dates and (pd.api.types.is_bool_dtype(kind) or not pd.api.types.is_numeric_dtype(kind)):
            counts = values.astype(str).value_counts(normalize=True)
            rest = "" if len(counts) <= _MOST_BARS else f" The {_MOST_BARS} most frequent of {len(counts)}."
            figure = _bars(counts.iloc[:_MOST_BARS], "share", _short(name))
            yield Picture(title, f"Share of the values that are there; {source}.{rest}{gaps}", figure)
        elif len(values):
            figure = _histogram(values, _short(name), dates=dates)
            yield Picture(title, f"Histogram between the .1 % and 99.9 % quantiles; {source}.{gaps}", figure)


def _histogram(values: pd.Series, name: str, *, dates: bool) -> "Figure":
    """Numbers or dates between the quantiles of `_SHOWN`."""
    low, high = (values.quantile(level) for level in _SHOWN)
    inside = values[(values >= low) & (values <= high)]
    figure = new_figure(_WIDTH, 2.6)
    axes = figure.add_subplot()
    axes.hist(inside if dates else inside.to_numpy(np.float64), bins=40, color=_COLOUR)
    _label(axes, name, "number")
    if dates:
        figure.autofmt_xdate()
    return figure


def _scattered(table: pd.DataFrame, source: str) -> Iterator[Picture]:
    """Every two of the first columns of numbers."""
    numbers, some = table.select_dtypes("number").columns[:_MOST_SCATTERED], table[:_MOST_DOTS]
    for left, right in combinations(numbers, 2) if len(table) else ():
        figure = new_figure(_WIDTH, _WIDTH * 0.85)
        axes = figure.add_subplot()
        axes.scatter(some[left], some[right], s=5, alpha=0.5, color=_COLOUR, linewidths=0, rasterized=len(some) > 200)
        _label(axes, _short(left), _short(right))
        yield Picture(f"{_short(left)} and {_short(right)}", f"The first {len(some):,} of {source}.", figure)


def _of_linked(samples: LinkedSamples, source: str) -> Iterator[Picture]:
    """Pictures of each table of rows: numbers of rows, timelines, first and next rows, associations across tables."""
    tables = [name for name in samples.tables if name in samples.links] or list(samples.tables)
    for number, name in enumerate(tables):
        yield from _of_rows(_frames_of(samples, name), f"{_short(name)}: " if number else "", source)


def _of_rows(part: LinkedFrames, prefix: str, source: str) -> Iterator[Picture]:
    """Pictures of one table of rows; titles of the first table have no prefix."""
    shown, told = {"synthetic": part}, _titles(part, first=not prefix)
    for picture, draw in pictures_of(shown).items():
        title, caption = told[picture]
        yield Picture(prefix + title, f"{caption}; {source}.", draw(shown))
        if picture == "rows_per_person" and part.above == "person" and len(part.befores):
            yield Picture(f"{prefix}Five people", f"Rows of the first five with two or more; of {source}.", timelines(part))
    if len(part.rows):
        caption = f"Of {part.all_above} with their {part.name}; {source}."
        yield Picture(f"{prefix}Associations across tables", caption, associations_across(shown))


def _titles(part: LinkedFrames, *, first: bool) -> Mapping[str, tuple[str, str]]:
    """Titles and captions of the pictures of a table of rows."""
    above, then = f"a {part.above}", "the next" if part.order else "another"
    rows = "Rows of a person" if first else f"Rows for each {part.above}"
    return {
        "rows_per_person": (rows, f"Share of {part.all_above} with each number of rows"),
        "over_time": ("Rows over time", "Share of the rows in each part of the time"),
        "gaps": ("Time between rows", f"From a row to the next one of {above}"),
        "first_rows": ("First rows", f"What the first row of {above} is"),
        "transitions": ("What follows what", f"A row, and {then} row of {above}"),
    }


def _times(values: pd.Series) -> pd.Series:
    """Numbers or dates of the column of the order."""
    if pd.api.types.is_numeric_dtype(values.dtype):
        return values
    way = Numbers.of(values) or Numbers("datetime")
    found = way.read(values)
    return pd.Series(found.astype("datetime64[s]") if way.kind == "datetime" else found)


def _frames_of(samples: LinkedSamples, name: str) -> LinkedFrames:
    """A table of rows, those of one person or row above after the other, and what they hang on."""
    rows, person = samples.tables[name], samples.person
    column, parent = samples.links.get(name, (person, name))
    above = samples.tables[parent] if parent != name else pd.DataFrame({person: rows[person].unique()})
    owner = pd.Index(above[column]).get_indexer(pd.Index(rows[column]))
    rows = rows.iloc[np.argsort(owner, kind="stable")].reset_index(drop=True)
    starts = np.r_[0, np.bincount(owner, minlength=len(above)).cumsum()].astype(np.int64)
    keys = [person, *(key for key, _ in samples.links.values()), *samples.others.get(name, ())]
    of_people, of_rows = (table.drop(columns=keys, errors="ignore") for table in (above, rows))
    order = samples.orders.get(name)
    order = order if order in rows else None
    times = _times(rows[order]) if order is not None else pd.Series(dtype=np.int64)
    called = "person" if parent in (name, next(iter(samples.tables))) else f"row of {parent}"
    timing = frozenset({order} if order else ())
    return LinkedFrames(of_people, of_rows, starts, order, times.to_numpy(), name, called, timing)
