"""Properties of the table reader and of splits, on generated tables: as the csv module and pandas read them, or refused."""

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgen.data.table_files import read_table

CELLS = st.text('a"\n\r,0 N\té\u2028', max_size=4) | st.sampled_from(["NA", "007"])
NAMES = st.lists(st.text("abcé,\" '", min_size=1, max_size=3), min_size=1, max_size=4, unique=True)


def written(path: Path, names: list[str], rows: list[list[str]]) -> Path:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([names, *rows])
    path.write_bytes(text.getvalue().encode())
    return path


@given(names=NAMES, data=st.data())
def test_text_comes_back_as_the_csv_module_wrote_it(names: list[str], data: st.DataObject, tmp_path: Path) -> None:
    rows = data.draw(st.lists(st.lists(CELLS, min_size=len(names), max_size=len(names)), max_size=5))
    path = written(tmp_path / "t.csv", names, rows)
    table = read_table(path, text=None, missing=())
    assert (list(table.columns), table.to_numpy().tolist()) == (names, rows)


NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(width=64) | st.integers(-9, 9)


@given(column=st.lists(NUMBERS | st.sampled_from(["", "NA", "true", "x"]), min_size=1, max_size=6))
def test_types_are_those_of_pandas(column: list[object], tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", ["a", "b"], [[str(cell), "0"] for cell in column])
    expected = pd.read_csv(path, low_memory=False)["a"]
    found = read_table(path)["a"]
    if expected.dtype.kind in "iuf" and not expected.isna().all():
        np.testing.assert_allclose(found.to_numpy(np.float64), expected.to_numpy(np.float64), rtol=1e-15)
        whole = not expected.isna().any()
        assert found.dtype == expected.dtype or not whole
    else:
        assert found.isna().tolist() == expected.isna().tolist()


@given(width=st.integers(1, 4), above=st.integers(0, 3), fields=st.integers(1, 6), below=st.integers(0, 3))
def test_rows_of_another_width_are_refused(width: int, above: int, fields: int, below: int, tmp_path: Path) -> None:
    rows = [["1"] * width] * above + [["1"] * fields] + [["1"] * width] * below
    path = written(tmp_path / "t.csv", [f"c{i}" for i in range(width)], rows)
    if fields == width:
        assert len(read_table(path)) == len(rows)
    else:
        with pytest.raises(ValueError, match=f"row {above + 1} has {fields} fields, the header has {width}$"):
            read_table(path)
