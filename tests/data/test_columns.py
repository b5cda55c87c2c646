"""Columns: csv, parquet and npy give the same integers, with 18 digits; what is refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny
from refusals import refused

from dpgen.columns.discretized import DiscretizedColumn
from dpgen.data.columns import Columns, load_columns
from dpgen.facts import Fact

INDICES = np.random.default_rng(0).integers(0, 10**18, 500)
FINE = {"low": 0, "high": "1e9", "resolution": "1e-9"}


@pytest.fixture
def csv(tmp_path: Path) -> str:
    text = [f"{v // 10**9}.{v % 10**9:09d}" for v in INDICES.tolist()]
    days = [f"2024-01-{1 + i % 31:02d}" for i in range(500)]
    table = pd.DataFrame({"x": text, "day": days, "grade": [("low", "high")[i % 2] for i in range(500)], "k": range(500)})
    table.to_csv(tmp_path / "t.csv", index=False)
    return str(tmp_path / "t.csv")


def test_18_digits_survive(csv: str) -> None:
    assert load_columns(path=csv, columns="x", **FINE).values["x"].tolist() == INDICES.tolist()  # type: ignore[arg-type]


def test_values_outside_are_clamped_and_counted(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("age\n1\n2\n130\n-5\n7\n")
    data = load_columns(path=str(tmp_path / "people.csv"), columns="age", low=0, high=120, out_of_range="clamp")
    assert (data.values["age"].tolist(), data.clamped) == ([1, 2, 120, 0, 7], {"age": 2})
    assert repr(data) == "Columns('people': 5 records of age on 121 values)"
    assert Fact.CLAMPED_COLUMNS in tiny.told(data)


BIG = 2**53


@pytest.mark.parametrize("other", ["0", "1.0", "0.25e1", "9007199254740993"])
def test_how_others_write_numbers_changes_no_value(tmp_path: Path, other: str) -> None:
    """A column of text and numbers would be one of floats, which rounds above 2^53."""
    (tmp_path / "t.csv").write_text(f"x\n{BIG + 1}\n{other}\n")
    options = {"low": 0, "high": 2 * BIG, "resolution": 1}
    assert load_columns(path=str(tmp_path / "t.csv"), columns="x", **options).values["x"][0] == BIG + 1


def test_several_kinds_of_columns(csv: str) -> None:
    data = load_columns(path=csv, columns="k,day", low=[0, "2024-01-01"], high=[499, "2024-01-31"], resolution=[1, 86400])
    assert data.values["k"].tolist() == list(range(500))
    assert data.values["day"].tolist() == [i % 31 for i in range(500)]
    grades = load_columns(path=csv, columns="grade", categories=["low", "high"])
    assert grades.values["grade"].tolist() == [i % 2 for i in range(500)]


def test_parquet_and_npy_agree_with_csv(csv: str, tmp_path: Path) -> None:
    table = pd.read_csv(csv)
    table.to_parquet(tmp_path / "t.parquet")
    parquet = load_columns(path=str(tmp_path / "t.parquet"), columns="k", low=0, high=499)
    np.save(tmp_path / "t.npy", table.k.to_numpy())
    npy = load_columns(path=str(tmp_path / "t.npy"), columns="k", low=0, high=499)
    assert parquet.values["k"].tolist() == npy.values["k"].tolist() == list(range(500))
    np.save(tmp_path / "two.npy", np.array([[1.5, 2.0], [0.5, 3.0]]))
    two = load_columns(path=str(tmp_path / "two.npy"), columns=["a", "b"], low=0, high=4, resolution=0.5)
    assert two.values["a"].tolist() == [3, 1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"columns": "y", **FINE}, "has no column 'y'"),
        ({"columns": "x"}, "both must be given, as public bounds"),
        ({"columns": "x", "low": 0, "high": "1e9"}, "is no whole number"),
        ({"columns": "k", "low": 0, "high": 10}, "value in row 12 is outside [0, 10]"),
        ({"columns": "grade", "low": 0, "high": 10}, "value in row 1 is not a finite number"),
        ({"columns": "grade", "categories": ["low"]}, "N = 1 values"),
        ({"columns": "grade", "categories": ["low", "mid"]}, "none of the 2 public categories"),
        ({"columns": "k", "low": [0, 1], "high": 10}, "low has 2 entries for 1 columns"),
        ({"columns": [], "low": 0, "high": 10}, "name one or more"),
        ({"columns": "k", "low": 0, "high": 2**62}, "N must be in [2, 2^62]"),
        ({"columns": "k", "low": 0, "high": 0}, "N = 1 values"),
        ({"columns": "k", "low": 0, "high": 9, "out_of_range": "drop"}, "out_of_range is 'drop'"),
    ],
)
def test_bad_options(csv: str, options: dict, said: str) -> None:
    with refused(said):
        load_columns(**{"path": csv, **options})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x,y\n1,2\n,3\n", "column 'x' has no value in row 2"),
        ("x\n", "is empty: it has 1 columns and no record"),
    ],
)
def test_bad_files(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=said):
        load_columns(path=str(tmp_path / "t.csv"), columns="x", low=0, high=10)


def test_bad_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "nan.npy", np.array([1.0, np.nan]))
    with refused("column 'x' has no value in row 2"):
        load_columns(path=str(tmp_path / "nan.npy"), low=0, high=4)
    np.save(tmp_path / "wide.npy", np.zeros((3, 2)))
    with refused("columns has 1 names: "):
        load_columns(path=str(tmp_path / "wide.npy"), low=0, high=4)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "they must agree"),
        ({"age": np.array([3, 121])}, "must hold int64 in [0, 121)"),
        ({"age": np.array([3.0, 4.0])}, "must hold int64"),
        ({"a": np.array([1, 2]), "b": np.array([1, 2, 3])}, "equally long"),
    ],
)
def test_bad_columns(values: dict, said: str) -> None:
    with refused(said):
        Columns("bad", values, dict.fromkeys(values, DiscretizedColumn(low="0", high="120")))
