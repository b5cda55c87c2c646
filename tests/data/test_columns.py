"""Columns: what they check, chunks, whole numbers."""

import numpy as np
import pytest
import tiny

from dpgen.data.columns import ColumnReader, Columns, assemble_columns, require_whole
from dpgen.discretized import DiscretizedColumn
from dpgen.facts import Fact

AGE = DiscretizedColumn(low="0", high="120")


def test_chunks_become_one_column() -> None:
    reader = ColumnReader("age", AGE, out_of_range="clamp", whole=True)
    for part in (np.array([1, 2]), np.array([130]), np.array([], np.int64), np.array([-5, 7])):
        reader.add(part)
    data = assemble_columns("people", [reader])
    assert data.values["age"].tolist() == [1, 2, 120, 0, 7]
    assert data.clamped == {"age": 2}
    assert repr(data) == "Columns('people': 5 records of age on 121 values)"
    assert Fact.CLAMPED_COLUMNS in tiny.told(data)


def test_refusing_says_where() -> None:
    reader = ColumnReader("age", AGE, out_of_range="refuse", whole=True)
    reader.add(np.array([1, 2]))
    with pytest.raises(ValueError, match=r"column 'age' after row 2: value in row 1 is outside \[0, 120\]"):
        reader.add(np.array([121]))
    with pytest.raises(ValueError, match="out_of_range is 'drop'"):
        ColumnReader("age", AGE, out_of_range="drop", whole=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [np.array([1.0, 2.5]), np.array(["1", "2.5"], object)])
def test_numbers_without_a_resolution_must_be_whole(values: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"value in row 2 is no whole number: give the public resolution"):
        require_whole(values)
    require_whole(np.array([1.0, 2.0]))
    require_whole(np.array(["1", "2.0"], object))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "they must agree"),
        ({"age": np.array([3, 121])}, r"must hold int64 in \[0, 121\)"),
        ({"age": np.array([3.0, 4.0])}, "must hold int64"),
    ],
)
def test_bad_columns(values: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Columns("bad", values, dict.fromkeys(values, AGE))


def test_columns_are_equally_long() -> None:
    with pytest.raises(ValueError, match="equally long"):
        Columns("bad", {"a": np.array([1, 2]), "b": np.array([1, 2, 3])}, {"a": AGE, "b": AGE})
    with pytest.raises(ValueError, match="is empty: it has 1 columns and no record"):
        assemble_columns("none", [ColumnReader("age", AGE, out_of_range="refuse", whole=True)])
