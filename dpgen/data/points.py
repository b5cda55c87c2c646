"""Points in a public box: private continuous records with the public facts that a sampler may use, and their files."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpgen.containers import Form
from dpgen.data.split import TEST_FRACTION, People, Split, SplitOptions, people_of
from dpgen.data.table_files import Missing, column_names, name_of, require_columns, sample_form, table_path
from dpgen.data.toy import GaussianMixture, Reading, gaussian_ring, mixture_1d
from dpgen.facts import Fact, Said

OutOfRange = Literal["clamp", "refuse"]

_SHARE_OF_WIDTH = 0.25
_GAUSSIAN_REACH = 4.0


@dataclass(frozen=True, eq=False, repr=False)
class Points:
    """Private points ``x`` in R^d, and points for evaluation, in the user's units.

    Bounds, location, scale and the names of the columns are public: they were stated by somebody, never read off the records.
    The representation shows sizes only.

    x is float64, finite and inside the `bounds` (d, 2), None: all of R^d. `columns` are d names, x0, x1, ... without them;
    `target` is the exact density of synthetic points; `location` and `scale` > 0, (d,), are of a sampler's reference: without
    them centre and a quarter of the width of the bounds, or 0 and 1. `form` is that of samples, None: points. `people` numbers
    the person of each private point (n,), int64, where people may have several; None: a point each.

    >>> Points("line", torch.arange(10.0)[:, None], torch.ones(2, 1))
    Points('line': 10 private and 2 test points in 1 dimension, no bounds)
    """

    name: str
    x: Tensor
    test_x: Tensor
    bounds: Tensor | None = None
    columns: tuple[str, ...] = ()
    target: GaussianMixture | None = None
    location: Tensor | None = None
    scale: Tensor | None = None
    facts: tuple[Fact | Said, ...] = ()
    form: Form | None = None
    people: Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("x", "test_x"):
            object.__setattr__(self, name, require_points(getattr(self, name), name=name))
        if self.test_x.shape[1] != self.d:
            raise ValueError(f"test_x has {self.test_x.shape[1]} columns, x has {self.d}: they must agree")
        columns = tuple(self.columns) or tuple(f"x{i}" for i in range(self.d))
        if len(set(columns)) != self.d:
            raise ValueError(f"columns is {columns}: it must have {self.d} different names")
        object.__setattr__(self, "columns", columns)
        low, high = torch.full((self.d,), -2.0), torch.full((self.d,), 2.0)
        if self.bounds is not None:
            object.__setattr__(self, "bounds", require_bounds(self.bounds, self.d))
            low, high = self.bounds.unbind(1)
            for part in (self.x, self.test_x):
                place(part, self.bounds, "refuse", self.columns)
        location = (low + high) / 2 if self.location is None else self.location
        scale = _SHARE_OF_WIDTH * (high - low) if self.scale is None else self.scale
        object.__setattr__(self, "location", _numbers("location", location, self.d))
        object.__setattr__(self, "scale", _numbers("scale", scale, self.d, above=0.0))

    def __repr__(self) -> str:
        box = "no bounds" if self.bounds is None else "in a public box"
        sizes = f"{self.n} private and {len(self.test_x)} test points in {self.d} dimension{'s' * (self.d > 1)}"
        return f"Points({self.name!r}: {sizes}, {box})"

    @property
    def n(self) -> int:
        """Number of private points."""
        return len(self.x)

    @property
    def d(self) -> int:
        """Number of coordinates."""
        return self.x.shape[1]


def _numbers(name: str, given: Tensor, d: int, *, above: float = -torch.inf) -> Tensor:
    """One finite number for each of d coordinates, float64."""
    values = torch.as_tensor(given).detach().to(torch.float64)
    if values.shape != (d,) or not bool((torch.isfinite(values) & (values > above)).all()):
        raise ValueError(f"{name} is {values.tolist()}: it must be {d} finite numbers, those of scale > 0")
    return values


def require_points(x: Tensor, *, name: str = "x") -> Tensor:
    """A finite matrix of points, as float64; it may have no rows."""
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"{name} has shape {tuple(x.shape)}: it must be (points, coordinates), with a coordinate")
    x = x.detach().to(torch.float64)
    wrong = (~torch.isfinite(x)).nonzero()
    if len(wrong):
        row, column = wrong[0].tolist()
        raise ValueError(f"{name} has no finite value in row {row + 1}, column {column + 1}: it must be finite")
    return x


def require_bounds(bounds: Tensor | Sequence[Sequence[float]], d: int) -> Tensor:
    """A finite box (d, 2) with low < high in every row, as float64."""
    box = torch.as_tensor(bounds, dtype=torch.float64)
    if box.shape != (d, 2) or not bool(torch.isfinite(box).all()) or not bool((box[:, 0] < box[:, 1]).all()):
        raise ValueError(f"bounds is {box.tolist()}: it must be {d} pairs (low, high), finite, with low < high")
    return box


def place(x: Tensor, bounds: Tensor, out_of_range: OutOfRange, columns: Sequence[str] | None = None) -> Tensor:
    """Points inside the box (d, 2): moved to its border, or refused.

    Each point is moved by public numbers alone, so clamping costs no privacy.

    >>> place(torch.tensor([[3.0]]), torch.tensor([[0.0, 1.0]]), "clamp").item()
    1.0
    """
    if out_of_range not in ("clamp", "refuse"):
        raise ValueError(f"out_of_range is {out_of_range!r}: it must be one of 'clamp', 'refuse'")
    low, high = bounds.unbind(1)
    if out_of_range == "clamp":
        return x.clamp(low, high)
    outside = ((x < low) | (x > high)).nonzero()
    if len(outside):
        row, i = outside[0].tolist()
        name = f"column {i + 1}" if columns is None else f"column {columns[i]!r}"
        raise ValueError(
            f"{name} has a value in row {row + 1} outside its bounds [{low[i]:g}, {high[i]:g}]: widen the public "
            "bounds or choose out_of_range=clamp"
        )
    return x


def split_points(
    name: str,
    x: Tensor,
    *,
    bounds: Tensor | None = None,
    columns: tuple[str, ...] | None = None,
    split: Split | None = None,
    facts: tuple[Fact | Said, ...] = (),
    form: Form | None = None,
) -> Points:
    """Splits points (n, d) into a private and a test part, without ``split`` by fresh secret coins of probability .2."""
    split = Split() if split is None else split
    test = split.test_rows(len(x))
    return Points(
        name=name,
        x=x[~test],
        test_x=x[test],
        bounds=bounds,
        columns=columns or (),
        facts=(*facts, split.fact("points")),
        form=form,
        people=split.owners(~test),
    )


def load_points(
    *,
    path: str,
    bounds: list[list[float]] | str,
    columns: list[str] | str | None = None,
    out_of_range: OutOfRange = "refuse",
    test_fraction: float = TEST_FRACTION,
    test_path: str | None = None,
    split_key: Path | None = None,
    missing: Missing = "error",
    delimiter: str | None = None,
    encoding: str | None = None,
    people: People | None = None,
) -> Points:
    """Columns of numbers of a csv (plain or .gz), parquet or npy file.

    Arguments:
        path: file to read, of a form that `table_files` recognises.
        bounds: public low and high of each column in its own unit, "low,high,low,high" or `[[low, high], ...]`; one pair
            serves all columns.
        columns: names of the columns to use, a list or "x,y"; without it all of them. Those of an npy file are x0, x1, ...
        out_of_range: "refuse" a point outside the bounds, or "clamp" it to them.
        test_fraction: probability of each point to be kept for evaluation, in [0, 1).
        test_path: file of the test points, with the same columns; then all of ``path`` is private.
        split_key: file of the secret key of the split, made if it is not there; a run has its own without it.
        missing: "error", or "drop" points with a missing coordinate; "category" is refused, for points have none.
        delimiter: of a csv file, the one character between two fields, or "tab"; without it the one of the header line.
        encoding: of a csv file, by its name in Python, as cp1252; without it UTF-8, of other lines cp1252.
    """
    path = table_path(path, delimiter, encoding)
    wanted = None if columns is None else column_names(columns)
    if wanted == []:
        raise ValueError("columns is []; it must name at least one: a point needs a coordinate")
    options = SplitOptions(test_fraction, test_path, split_key, missing, people_of(path, people, "x"))
    table, split = options.read(path, wanted, prefix="x", contents=_coordinates)
    names = list(table.columns) if wanted is None else wanted
    require_columns(path, names, table.columns)
    for name in names:
        if table[name].dtype.kind not in "iufb":
            raise ValueError(f"column {name!r} of {path} is not numeric: give the numeric ones in columns")
    if not names:
        raise ValueError(f"{path} has no column but the one of people: a point needs a coordinate")
    box = parse_bounds(bounds, len(names))
    x = place(require_points(torch.from_numpy(np.array(table[names], dtype=np.float64))), box, out_of_range, names)
    return split_points(
        name_of(path),
        x,
        bounds=box,
        columns=tuple(names),
        split=split,
        facts=(Fact.PUBLIC_BOUNDS(bounds=str(box.tolist())), *((Fact.CLAMPED_POINTS,) if out_of_range == "clamp" else ())),
        form=sample_form(path, names, csv="float64"),
    )


def _coordinates(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows as float64, where they are numbers: whole ones come as int64 where no other row has a fraction."""
    return rows.apply(lambda values: values.astype(np.float64) if values.dtype.kind in "iufb" else values)


def parse_bounds(bounds: list[list[float]] | str, d: int) -> Tensor:
    """Public box (d, 2) of what a user wrote; one pair serves all columns.

    >>> parse_bounds("-1,1", 2).tolist()
    [[-1.0, 1.0], [-1.0, 1.0]]
    """
    try:
        value = json.loads(f"[{bounds}]") if isinstance(bounds, str) else bounds
        numbers = np.asarray(value, dtype=np.float64).ravel()
    except (ValueError, TypeError) as error:
        raise ValueError(f"bounds is {bounds!r}: it must be numbers such as [[0, 1], [-5, 5]] or 0,1,-5,5") from error
    if len(numbers) not in (2, 2 * d):
        raise ValueError(f"bounds has {len(numbers)} numbers: 2 are needed, or {2 * d} for {d} columns")
    rows = numbers.reshape(-1, 2).tolist()
    return require_bounds(rows * d if len(rows) == 1 else rows, d)


def load_ring(*, n_points: int = 10_000, n_test: int = 2_000, data_seed: int = 0) -> Points:
    """Eight Gaussians on a circle, see `gaussian_ring`, the default that needs no file; bounds are 6 stds around.

    Arguments:
        n_points: private points to draw.
        n_test: points for evaluation.
        data_seed: of the draw.

    >>> load_ring(n_points=100)
    Points('ring': 100 private and 2000 test points in 2 dimensions, in a public box)
    """
    return synthetic_points("ring", gaussian_ring(), n_points, n_test, data_seed)


def load_mixture_1d(
    *, n_points: int = 10_000, n_test: int = 2_000, reading: Reading = "variance", data_seed: int = 0
) -> Points:
    """The three Gaussians on a line of Husain et al. 2018, section 5, in either reading of N(m, s).

    Arguments:
        n_points: private points to draw.
        n_test: points for evaluation.
        reading: whether s is the variance or the standard deviation.
        data_seed: of the draw.
    """
    return synthetic_points(f"mixture_1d ({reading})", mixture_1d(reading), n_points, n_test, data_seed)


def synthetic_points(name: str, target: GaussianMixture, n: int, n_test: int, seed: int) -> Points:
    """Points of a known target with the standard Gaussian as public scaling.

    The bounds hold 6 standard deviations of the target and 4 of the standard Gaussian.
    """
    generator = torch.Generator().manual_seed(seed)
    x, test_x = target.sample(n, generator=generator), target.sample(n_test, generator=generator)
    bounds = target.box()
    bounds = torch.stack([bounds[:, 0].clamp_max(-_GAUSSIAN_REACH), bounds[:, 1].clamp_min(_GAUSSIAN_REACH)], dim=1)
    return Points(
        name=name,
        x=x.clamp(bounds[:, 0], bounds[:, 1]),
        test_x=test_x.clamp(bounds[:, 0], bounds[:, 1]),
        bounds=bounds,
        target=target,
        location=torch.zeros(target.d),
        scale=torch.ones(target.d),
        facts=(Fact.KNOWN_TARGET,),
    )
