"""Loaders of points: synthetic targets, digits in a public space, and tables with public bounds."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpgen.data.points import OutOfRange, Points, PublicScaling, place, require_bounds, require_points, split_points
from dpgen.data.toy import GaussianMixture, Reading, gaussian_ring, mixture_1d, random_gaussians

_CLAMPED = "points outside the public bounds were moved to them"
_DIGITS_REACH = 5.0
_GAUSSIAN_REACH = 4.0


def load_ring(
    *,
    n_points: int = 10_000,
    n_test: int = 2_000,
    modes: int = 8,
    radius: float = 4.0,
    variance: float = 0.5,
    data_seed: int = 0,
) -> Points:
    """Gaussians on a circle (Husain et al. 2018, section 5), the default that needs no file; bounds are 6 stds around.

    Args:
        n_points: private points to draw.
        n_test: points for evaluation.
        modes: number of Gaussians.
        radius: of the circle.
        variance: of every coordinate of a Gaussian.
        data_seed: of the draw.

    Example:
        >>> load_ring(n_points=100)
        Points('ring': 100 private and 2000 test points in 2 dimensions, in a public box)
    """
    return synthetic_points("ring", gaussian_ring(modes, radius=radius, variance=variance), n_points, n_test, data_seed)


def load_mixture_1d(
    *, n_points: int = 10_000, n_test: int = 2_000, reading: Reading = "variance", data_seed: int = 0
) -> Points:
    """The three Gaussians on a line of Husain et al. 2018, section 5, in either reading of N(m, s)."""
    return synthetic_points(f"mixture_1d ({reading})", mixture_1d(reading), n_points, n_test, data_seed)


def load_random_gaussians(
    *,
    n_points: int = 10_000,
    n_test: int = 2_000,
    k: int = 5,
    d: int = 1,
    variance: float = 0.01,
    low: float = 0.0,
    high: float = 1.0,
    data_seed: int = 0,
) -> Points:
    """k Gaussians with means uniform in [low, high]^d (Husain et al. 2018, section 5); `data_seed` places and draws."""
    target = random_gaussians(k, d=d, variance=variance, low=low, high=high, seed=data_seed)
    return synthetic_points(f"{k} random Gaussians", target, n_points, n_test, data_seed)


def synthetic_points(name: str, target: GaussianMixture, n: int, n_test: int, seed: int) -> Points:
    """Points of a known target with the standard Gaussian as public scaling.

    The bounds hold 6 standard deviations of the target and 4 of the standard Gaussian.

    Raises:
        ValueError: n below 10 or n_test below 1.
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
        scaling=PublicScaling.standard(target.d),
        notes=("the points are synthetic and their bounds come from the known target",),
    )


def load_digits_pca(
    *, components: int = 8, public_records: int = 300, test_fraction: float = 0.2, split_seed: int = 0
) -> Points:
    """scikit-learn's 1,797 digits in the first principal components of records that are declared public.

    Mean, components and standard deviations come from the public records; coordinates are in public standard deviations,
    clamped to [-5, 5].

    Args:
        components: coordinates kept, in [1, 64] and below public_records.
        public_records: records declared public, which then are left out.
        test_fraction: share of the rest kept for evaluation.
        split_seed: public seed of both choices.

    Raises:
        ValueError: options out of range.

    Example:
        >>> load_digits_pca(components=2)
        Points('digits_pca': 1198 private and 299 test points in 2 dimensions, in a public box)
    """
    from sklearn.datasets import load_digits

    x = torch.from_numpy(load_digits().data).to(torch.float64)
    if not 2 <= public_records <= len(x) // 2 or not 1 <= components <= min(40, public_records - 1):
        raise ValueError(
            f"components is {components}, public_records {public_records}: components must be in [1, 40] and below "
            f"public_records, public_records in [2, {len(x) // 2}]"
        )
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(2 * split_seed + 1))
    public, rest = x[order[:public_records]], x[order[public_records:]]
    _, values, rows = torch.linalg.svd(public - public.mean(0), full_matrices=False)
    rows = rows * torch.where(rows.sum(1) >= 0, 1.0, -1.0)[:, None]  # the sign of a component is a convention
    std = values[:components] / (public_records - 1) ** 0.5
    z = (rest - public.mean(0)) @ rows[:components].T / std
    bounds = torch.tensor([-_DIGITS_REACH, _DIGITS_REACH]).expand(components, 2)
    return split_points(
        "digits_pca",
        z.clamp(-_DIGITS_REACH, _DIGITS_REACH),
        bounds=bounds,
        columns=tuple(f"pc{i + 1}" for i in range(components)),
        scaling=PublicScaling(torch.zeros(components), torch.ones(components), f"{public_records} public records"),
        test_fraction=test_fraction,
        split_seed=split_seed,
        notes=(f"{public_records} records were declared public; components and scale come from them", _CLAMPED),
    )


def load_points_csv(
    *,
    path: str,
    bounds: list[list[float]] | str,
    columns: list[str] | str | None = None,
    out_of_range: OutOfRange = "refuse",
    test_fraction: float = 0.2,
    split_seed: int = 0,
) -> Points:
    """A csv file with a header line and columns of numbers.

    Args:
        path: file to read.
        bounds: public low and high of each column in its own unit, `[[low, high], ...]` or "low,high,low,high"; one pair
            serves all columns.
        columns: names of the columns to use, a list or "x,y"; None: all of them.
        out_of_range: "refuse" a point outside the bounds, or "clamp" it to them.
        test_fraction: share of points kept for evaluation, in (0, 1).
        split_seed: public seed of the split.

    Raises:
        ValueError: the file is missing or unreadable, a column absent, not numeric or constant, a value missing, not
            finite or out of range, or fewer than 10 private points.
    """
    try:
        table = pd.read_csv(_existing(path), low_memory=False, index_col=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path} cannot be read as csv: {' '.join(str(error).split())[:200]}") from error
    return _from_table(table, path, bounds, columns, out_of_range, test_fraction, split_seed)


def load_points_parquet(
    *,
    path: str,
    bounds: list[list[float]] | str,
    columns: list[str] | str | None = None,
    out_of_range: OutOfRange = "refuse",
    test_fraction: float = 0.2,
    split_seed: int = 0,
) -> Points:
    """A parquet file with columns of numbers; arguments and errors as in `load_points_csv`."""
    try:
        table = pd.read_parquet(_existing(path))
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read as parquet: {' '.join(str(error).split())[:200]}") from error
    return _from_table(table, path, bounds, columns, out_of_range, test_fraction, split_seed)


def load_points_npy(
    *,
    path: str,
    bounds: list[list[float]] | str,
    out_of_range: OutOfRange = "refuse",
    test_fraction: float = 0.2,
    split_seed: int = 0,
) -> Points:
    """A numpy file with one array (n, d) of numbers; arguments and errors as in `load_points_csv`, no pickles."""
    try:
        array = np.load(_existing(path), allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path} cannot be read as npy: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "iuf":
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else "an archive of arrays"
        raise ValueError(f"{path} holds {found}: it must hold one array of numbers of shape (points, columns)")
    table = pd.DataFrame(array, columns=[f"x{i}" for i in range(array.shape[1])])
    return _from_table(table, path, bounds, None, out_of_range, test_fraction, split_seed)


def parse_bounds(bounds: list[list[float]] | str, d: int) -> Tensor:
    """Public box (d, 2) of what a user wrote; one pair serves all columns.

    Raises:
        ValueError: not numbers, or neither 2 nor 2 d of them, or low >= high.

    Example:
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


def _from_table(
    table: pd.DataFrame,
    path: str,
    bounds: list[list[float]] | str,
    columns: list[str] | str | None,
    out_of_range: OutOfRange,
    test_fraction: float,
    split_seed: int,
) -> Points:
    table.columns = pd.Index([str(name) for name in table.columns])
    if columns is None:
        names = list(table.columns)
    else:
        names = [name.strip() for name in columns.split(",")] if isinstance(columns, str) else list(columns)
    for name in names:
        if name not in table.columns:
            raise ValueError(f"columns has {name!r}: {path} has the columns {', '.join(table.columns[:20])}")
        if table[name].dtype.kind not in "iufb":
            raise ValueError(f"column {name!r} of {path} is not numeric: give the numeric ones in columns")
    if not names or not len(table):
        raise ValueError(f"{path} has {len(table)} points and {len(names)} columns: it is empty")
    box = parse_bounds(bounds, len(names))
    x = place(require_points(torch.from_numpy(np.array(table[names], dtype=np.float64))), box, out_of_range, names)
    return split_points(
        Path(path).name.split(".")[0],
        x,
        bounds=box,
        columns=tuple(names),
        test_fraction=test_fraction,
        split_seed=split_seed,
        notes=(
            f"the columns and the bounds {box.tolist()} are public: they must have been chosen without looking at the records",
            *((_CLAMPED,) if out_of_range == "clamp" else ()),
        ),
    )


def _existing(path: str) -> Path:
    if not Path(path).is_file():
        raise ValueError(f"path is {path!r}: there is no such file")
    if Path(path).stat().st_size == 0:
        raise ValueError(f"{path} is empty")
    return Path(path)
