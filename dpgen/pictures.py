"""Pictures of a release, from its own samples or draws: post-processing, which needs no private data and costs nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from dpgen.evaluation.linked import LinkedFrames, associations_across, rows_per_person, timelines, transitions
from dpgen.fields import NumberField
from dpgen.figures import heat_maps, new_figure, show_images
from dpgen.metrics import associations
from dpgen.release import Draws, ImageModel, ImageSamples, LinkedSamples, PublicModel, RecordModel, RecordSamples, Release
from dpgen.schema import Schema
from dpgen.systems.ordered.model import OrderedDistribution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Reals = npt.NDArray[np.float64]

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
_MOST_PANELS = 4
_IMAGES_A_ROW = 10
_LEVELS = 500
_WIDTH = 4.6  # inches, of every picture: readable on a narrow screen
_COLOUR = "#2a5d8f"


@dataclass(frozen=True)
class Picture:
    """A figure with its title, and a caption that says what it was made from."""

    title: str
    caption: str
    figure: "Figure"


def pictures(release: Release) -> list[Picture]:
    """What a release looks like: marginals and associations, images, distribution functions, points, or draws.

    A model is shown by `SAMPLES` records or `IMAGES` images of its own under a public seed, draws are shown as they are.

    >>> from dpgen.statement import PrivacyStatement
    >>> paid = PrivacyStatement(epsilon=1.0, delta=0.0, relation="replace_one", unit="one record", accountant="exact")
    >>> draws = Draws(pd.DataFrame({"draw": [0, 0], "category": ["news", "sport"]}), statement=paid)
    >>> [picture.title for picture in pictures(draws)]
    ['Draws: category']
    >>> pictures(draws)[0].caption.endswith("Epsilon 1 at delta 0 (replace one record).")
    True
    """
    if not isinstance(release, Draws | PublicModel):
        raise ValueError(f"release is {type(release).__name__}; it must be a PublicModel or Draws")
    paid = release.statement.in_words()
    return [replace(picture, caption=f"{picture.caption} {paid[0].upper()}{paid[1:]}.") for picture in _of(release)]


def _of(release: Draws | PublicModel) -> list[Picture]:
    if isinstance(release, Draws):
        return list(_of_draws(release.to_pandas()))
    if isinstance(release, OrderedDistribution):
        return list(_of_columns(release))
    if isinstance(release, ImageModel):
        return list(_of_images(release.samples(IMAGES, random_state=_SEED), release.image_shape))
    samples = release.samples(SAMPLES, random_state=_SEED)
    if isinstance(samples, LinkedSamples):
        return list(_of_linked(samples, _drawn(SAMPLES, "person").replace("persons", "people")))
    if isinstance(samples, RecordSamples):
        return list(_of_records(samples, release.image_shape if isinstance(release, RecordModel) else None))
    if isinstance(schema := getattr(release, "schema", None), Schema):
        return list(_of_table(samples.to_pandas(), schema, _drawn(len(samples), "row")))
    return list(_of_points(samples.to_pandas(), _drawn(len(samples), "row")))


def _drawn(n: int, what: str) -> str:
    return f"{n:,} synthetic {what}s drawn from the released model"


def _short(name: object) -> str:
    text = str(name)
    return text if len(text) <= _MOST_NAMES else f"{text[: _MOST_NAMES - 1]}…"


def _of_records(samples: RecordSamples, image_shape: tuple[int, int] | None) -> Iterator[Picture]:
    source = _drawn(len(samples), "record")
    groups = _by_group(samples)
    if image_shape is not None:
        figure = _images(list(groups), list(groups.values()), image_shape)
        yield Picture("Synthetic images", f"One row for each {_group_name(samples)}; {source}.", figure)
        means = torch.stack([x.float().mean(0) for x in groups.values()])
        shown = "Mean grey value" if samples.grey is not None else "Share of ones"
        caption = f"{shown} of each pixel, one picture for each {_group_name(samples)} in order; {source}."
        yield Picture("Average images", caption, _images([""], [means], image_shape))
    else:
        x = samples.x.numpy().astype(np.float64)
        names = [_short(name) for name in samples.columns or range(x.shape[1])]
        yield _marginals(x, names, source)
        if x.shape[1] > 1:
            yield _associations(x, names, source)
    if samples.labels is not None:
        shares = pd.Series(samples.labels.numpy()).value_counts(normalize=True).sort_index()
        yield Picture("Labels", f"Share of each label; {source}.", _bars(shares, "share of the records", "label"))


def _of_images(samples: ImageSamples, image_shape: tuple[int, int, int]) -> Iterator[Picture]:
    source = _drawn(len(samples), "image")
    groups = {_short(name): x.flatten(1) / 255 for name, x in list(samples.by_class().items())[:_MOST_BARS]}
    yield Picture(
        "Synthetic images", f"One row for each class; {source}.", _images(list(groups), [*groups.values()], image_shape)
    )
    means = torch.stack([x.mean(0) for x in groups.values()])
    yield Picture("Average images", f"One for each class in order; {source}.", _images([""], [means], image_shape))
    shares = pd.Series({name: len(x) / len(samples) for name, x in groups.items()})
    yield Picture("Classes", f"Share of each class; {source}.", _bars(shares, "share of the images", "class"))


def _group_name(samples: RecordSamples) -> str:
    return "cluster" if samples.labels is None else "label"


def _by_group(samples: RecordSamples) -> dict[str, Tensor]:
    """Records of each label, or of each cluster where there are no labels."""
    group = samples.cluster if samples.labels is None else samples.labels
    x = samples.grey / 255 if samples.grey is not None else samples.x
    return {f"{_group_name(samples)} {c}": x[group == c] for c in group.unique().tolist()}


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


def _chosen(x: Reals, most: int) -> npt.NDArray[np.int64]:
    """Columns whose values vary most, at most so many, in their own order."""
    return np.sort(np.argsort(-x.var(0), kind="stable")[:most])


def _marginals(x: Reals, names: Sequence[str], source: str) -> Picture:
    shown = _chosen(x, _MOST_BARS)
    rest = "" if len(shown) == len(names) else f" The {len(shown)} columns of {len(names)} that vary most."
    shares = pd.Series(x[:, shown].mean(0), index=[names[i] for i in shown])
    return Picture("Marginals", f"Share of ones of each column; {source}.{rest}", _bars(shares, "share of ones", "column"))


def _associations(x: Reals, names: Sequence[str], source: str) -> Picture:
    shown = _chosen(x, _MOST_CELLS)
    values = x[:, shown] - x[:, shown].mean(0)
    scale = np.sqrt((values**2).mean(0))
    scale[scale == 0] = np.inf  # a constant column is associated with nothing
    phi = (values / scale).T @ (values / scale) / len(values)
    np.fill_diagonal(phi, 1.0)
    figure = _heat_map(phi, [names[i] for i in shown], "phi coefficient", ("RdBu_r", -1.0, 1.0))
    rest = "" if len(shown) == len(names) else f" The {len(shown)} columns of {len(names)} that vary most."
    return Picture("Pairwise associations", f"Correlation (phi coefficient) of every two columns; {source}.{rest}", figure)


def _heat_map(values: Reals, names: Sequence[str], label: str, style: tuple[str, float, float]) -> "Figure":
    return heat_maps({"": values}, names, names, axes_names=("column", "column"), label=label, side=_WIDTH, styles={"": style})


def _bars(shares: "pd.Series[float]", label: str, of: str) -> "Figure":
    figure = new_figure(_WIDTH, 0.5 + 0.19 * max(3, len(shares)))
    axes = figure.add_subplot()
    axes.barh(range(len(shares)), shares.to_numpy(), color=_COLOUR)
    axes.set_yticks(range(len(shares)), labels=[_short(name) for name in shares.index], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlim(0, max(1e-9, 1.05 * float(shares.max())))
    axes.set_xlabel(label, fontsize=8)
    axes.set_ylabel(of, fontsize=8)
    axes.tick_params(axis="x", labelsize=7)
    return figure


def _of_columns(release: OrderedDistribution) -> Iterator[Picture]:
    levels = (np.arange(_LEVELS) + 0.5) / _LEVELS
    for name, domain in release.domains.items():
        title = f"Distribution of {_short(name)}"
        if domain.kind == "category":
            masses = np.diff(release.cdfs[name].below(np.arange(domain.size + 1)))
            shares = pd.Series(masses, index=list(domain.categories)).iloc[:_MOST_BARS]
            yield Picture(title, "Released probability of each value.", _bars(shares, "probability", _short(name)))
            continue
        index = release.cdfs[name].inverse(levels)
        x = domain.decode(index) if domain.kind == "date" else domain.as_float(index)
        figure = new_figure(_WIDTH, 3.0)
        axes = figure.add_subplot()
        axes.step(x, levels, where="post", color=_COLOUR, linewidth=1.3)
        axes.set(ylim=(0, 1))
        _label(axes, _short(name), "P(X ≤ x)")
        if domain.kind == "date":
            figure.autofmt_xdate()
        yield Picture(title, "Released distribution function, exact between its .1 % and 99.9 % quantiles.", figure)


def _label(axes: "Axes", x: str, y: str) -> None:
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.tick_params(labelsize=7)


def _histogram(values: Any, bins: int, name: str, label: str, *, dates: bool = False) -> "Figure":
    figure = new_figure(_WIDTH, 2.6)
    axes = figure.add_subplot()
    axes.hist(values, bins=bins, color=_COLOUR)
    _label(axes, _short(name), label)
    if dates:
        figure.autofmt_xdate()
    return figure


def _of_table(table: pd.DataFrame, schema: Schema, source: str) -> Iterator[Picture]:
    """Bars of categories and histograms of numbers and dates, and the associations of all modelled columns."""
    for field in schema.modelled[:_MOST_COLUMNS]:
        values, title = table[field.name], f"Distribution of {_short(field.name)}"
        gaps = f" {100 * float(values.isna().mean()):.1f} % are missing." if field.nullable else ""
        if not isinstance(field, NumberField):
            counts = values.astype(object).map(str, na_action="ignore").value_counts(normalize=True).iloc[:_MOST_BARS]
            yield Picture(title, f"Share of the values that are there; {source}.{gaps}", _bars(counts, "share", "value"))
            continue
        present = values.dropna() if field.of_dates else values.dropna().to_numpy(np.float64)
        figure = _histogram(present, 40, field.name, "number of rows", dates=field.of_dates)
        yield Picture(title, f"Histogram; {source}.{gaps}", figure)
    names = [field.name for field in schema.modelled][:_MOST_CELLS]
    if len(names) > 1 and len(table) > 1:
        codes = schema.encode(table)[:, : len(names)]
        rest = "" if len(names) == len(schema.modelled) else f" The first {len(names)} columns of {len(schema.modelled)}."
        figure = _heat_map(associations(codes).numpy(), list(map(_short, names)), "Cramér's V", ("viridis", 0.0, 1.0))
        yield Picture("Pairwise associations", f"Association (Cramér's V) of every two columns; {source}.{rest}", figure)


def _of_linked(samples: LinkedSamples, source: str) -> Iterator[Picture]:
    """Numbers of rows, timelines, what follows what, and associations across the tables."""
    first, *_ = samples.tables
    rows_of = next((name for name, (column, _) in samples.links.items() if column == samples.person), first)
    rows = samples.tables[rows_of]
    people = samples.tables[first] if first != rows_of else pd.DataFrame({samples.person: rows[samples.person].unique()})
    counts = np.bincount(pd.Index(people[samples.person]).get_indexer(pd.Index(rows[samples.person])), minlength=len(people))
    keys = [samples.person, *(column for column, _ in samples.links.values())]
    of_people, of_rows = (table.drop(columns=keys, errors="ignore") for table in (people, rows))
    part = LinkedFrames(of_people, of_rows, np.r_[0, counts.cumsum()].astype(np.int64), samples.orders.get(rows_of))
    one = {"synthetic": part}
    yield Picture("Rows of a person", f"Share of people with each number of rows; {source}.", rows_per_person(one))
    if (np.diff(part.starts) > 1).any():
        yield Picture("Five people", f"Rows of the first five with two or more; of {source}.", timelines(part))
        yield Picture("What follows what", f"A row, and the next row of the same person; {source}.", transitions(one))
    if len(rows):
        yield Picture("Associations across tables", f"Of people with their rows; {source}.", associations_across(one))


def _of_points(table: pd.DataFrame, source: str) -> Iterator[Picture]:
    """Histogram of each column of numbers, bars of each other one, and pairs of the first few columns of numbers."""
    numbers = [name for name in table.columns if pd.api.types.is_numeric_dtype(table[name])]
    for name in list(table.columns)[:_MOST_PANELS]:
        title = f"Distribution of {_short(name)}"
        if name not in numbers:
            counts = table[name].astype(str).value_counts(normalize=True).iloc[:_MOST_BARS]
            yield Picture(title, f"Share of the most frequent values; {source}.", _bars(counts, "share", _short(name)))
            continue
        values = table[name].to_numpy(np.float64)
        figure = _histogram(values[np.isfinite(values)], min(60, max(5, len(values) // 20)), name, "number")
        yield Picture(title, f"Histogram; {source}.", figure)
    for left, right in combinations(numbers[: _MOST_PANELS - 1], 2):
        figure = new_figure(_WIDTH, _WIDTH * 0.85)
        axes = figure.add_subplot()
        some = table[:_MOST_DOTS]
        axes.scatter(some[left], some[right], s=5, alpha=0.5, color=_COLOUR, linewidths=0, rasterized=len(some) > 200)
        _label(axes, _short(left), _short(right))
        yield Picture(f"{_short(left)} and {_short(right)}", f"The first {len(some):,} of {source}.", figure)


def _of_draws(table: pd.DataFrame) -> Iterator[Picture]:
    if not len(table):
        return
    if "category" in table:
        counts = table["category"].astype(str).value_counts()
        shown = counts.iloc[:_MOST_BARS]
        rest = "" if len(shown) == len(counts) else f" The {len(shown)} most frequent of {len(counts)} that were drawn."
        caption = f"How often each category was drawn, {len(table):,} private draws.{rest}"
        yield Picture("Draws: category", caption, _bars(shown, "number of draws", "category"))
        return
    values = table.drop(columns=[name for name in ("draw", "label") if name in table and table.shape[1] > 1])
    yield from _of_points(values, f"{len(table):,} private draws")
