"""Points from tables with public bounds."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny

from dpgen.data.points import load_points, parse_bounds
from dpgen.facts import Fact


def table(n: int = 30) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame({"age": rng.integers(18, 90, n), "income": rng.normal(30, 10, n), "name": ["x"] * n})


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet"])
def test_tables_round_trip(tmp_path: Path, form: str) -> None:
    path, frame = str(tmp_path / f"people.{form}"), table()
    frame.to_parquet(path) if form == "parquet" else frame.to_csv(path, index=False)
    points = load_points(path=path, columns="income,age", bounds="-100,200,0,120")
    assert (points.name, points.columns, points.n + len(points.test_x)) == ("people", ("income", "age"), 30)
    together = np.concatenate([points.x, points.test_x])
    assert np.allclose(np.sort(together[:, 1]), np.sort(frame["age"]))
    assert points.bounds is not None
    assert points.bounds.tolist() == [[-100.0, 200.0], [0.0, 120.0]]
    assert Fact.PUBLIC_BOUNDS in tiny.told(points)


def test_npy_and_clamping(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(50, 3)))
    options: dict[str, Any] = {"path": str(tmp_path / "x.npy"), "bounds": [[-0.5, 0.5]]}
    with pytest.raises(ValueError, match="outside its bounds"):
        load_points(**options)
    points = load_points(**options, out_of_range="clamp")
    assert float(points.x.abs().max()) == 0.5
    assert Fact.CLAMPED_POINTS in tiny.told(points)


@pytest.mark.parametrize(
    ("bounds", "d", "expected"),
    [
        ("0,1", 1, [[0.0, 1.0]]),
        ("[[0, 1], [-5, 5]]", 2, [[0.0, 1.0], [-5.0, 5.0]]),
        ([[0, 1]], 2, [[0.0, 1.0], [0.0, 1.0]]),
        ("-1e3,1e3,0,2", 2, [[-1000.0, 1000.0], [0.0, 2.0]]),
    ],
)
def test_bounds_as_users_write_them(bounds: Any, d: int, expected: list[list[float]]) -> None:
    assert parse_bounds(bounds, d).tolist() == expected


@pytest.mark.parametrize(
    ("bounds", "match"),
    [("wide", "it must be numbers"), ("0,1,2", "bounds has 3 numbers"), ("1,0", "low < high"), ("0,NaN", "finite")],
)
def test_bad_bounds_are_refused(bounds: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        parse_bounds(bounds, 2)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"columns": "age,height"}, "has no column 'height': its columns are age, income, name"),
        ({"columns": "age,name"}, "column 'name' of .* is not numeric"),
        ({"columns": []}, r"columns is \[\]; it must name at least one"),
        ({"bounds": "0,50"}, "outside its bounds"),
        ({"path": "absent.csv"}, "there is no such file"),
        ({"test_fraction": 1.0}, "test_fraction is 1.0"),
        ({"out_of_range": "drop"}, "out_of_range is 'drop'"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, changes: dict[str, Any], match: str) -> None:
    path = str(tmp_path / "people.csv")
    table().to_csv(path, index=False)
    options: dict[str, Any] = {"path": path, "columns": ["age", "income"], "bounds": "-100,200"}
    with pytest.raises(ValueError, match=match):
        load_points(**(options | changes))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda t: t.assign(age=t["age"].where(t.index != 3)), "column 'age' has no value in row 4"),
        (lambda t: t.assign(income=math.inf), "x has no finite value in row 1"),
        (lambda t: t[:0].astype({"name": str}), "is empty: it has 2 columns and no record"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, change: Any, match: str) -> None:
    path = str(tmp_path / "people.parquet")
    change(table()).to_parquet(path)
    with pytest.raises(ValueError, match=match):
        load_points(path=path, columns="age,income", bounds="-100,200")


def test_files_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    for name in ("a.csv", "a.npy", "a.parquet"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match="is empty"):
        load_points(path=str(tmp_path / "a.csv"), bounds="0,1")
    (tmp_path / "a.npy").write_bytes(b"text")
    with pytest.raises(ValueError, match="cannot be read as npy"):
        load_points(path=str(tmp_path / "a.npy"), bounds="0,1")
    (tmp_path / "a.parquet").write_bytes(b"text")
    with pytest.raises(ValueError, match="cannot be read as parquet"):
        load_points(path=str(tmp_path / "a.parquet"), bounds="0,1")
    np.save(tmp_path / "b.npy", np.zeros(5))
    with pytest.raises(ValueError, match="one array of numbers"):
        load_points(path=str(tmp_path / "b.npy"), bounds="0,1")
