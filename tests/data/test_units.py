"""Rows of people: which are used depends on what the person's own rows hold, and on nothing else."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from dpgen.data.columns import load_columns
from dpgen.data.points import load_points
from dpgen.data.records import load_records
from dpgen.data.split import People, texts
from dpgen.data.tables import load_table

KEY = b"k" * 32
TABLES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.sampled_from(["x", "y,", "\\"])), max_size=25)


def used(rows: list[tuple[str, int, str]], most: int = 2) -> Counter[tuple[str, int, str]]:
    """The rows that are used, whatever order they stand in."""
    table = pd.DataFrame(rows, columns=["who", "number", "text"])
    kept = People("who", most, KEY).kept(table["who"], table[["number", "text"]])
    return Counter(row for row, one in zip(rows, kept) if one)


@given(TABLES, st.randoms(use_true_random=False), st.integers(1, 4))
def test_the_position_of_rows_and_other_people_choose_nothing(rows: list[tuple[str, int, str]], random, most: int) -> None:
    shuffled = random.sample(rows, len(rows))
    assert used(shuffled, most) == used(rows, most)
    alone = [used([row for row in rows if row[0] == person], most) for person in "abc"]
    assert sum(alone, Counter()) == used(rows, most)
    assert [sum(one.values()) for one in alone] == [min(most, sum(row[0] == person for row in rows)) for person in "abc"]


def test_the_key_chooses_and_every_row_of_a_person_is_chosen_as_often() -> None:
    people, rows = pd.Series(["ann"] * 4), pd.DataFrame({"x": range(4)})
    counts = sum(People("who", 1, bytes([i, j]) * 16).kept(people, rows) for i in range(20) for j in range(20))
    assert counts.sum() == 400
    assert (abs(counts - 100) < 60).all()  # 7 standard deviations


def test_people_with_equal_rows_choose_on_their_own() -> None:
    people, rows = pd.Series(np.repeat(np.arange(400), 2)), pd.DataFrame({"x": np.tile([0, 1], 400)})
    ones = People("who", 1, KEY).kept(people, rows)[1::2].sum()
    assert abs(ones - 200) < 70  # 7 standard deviations


@pytest.mark.parametrize(
    "stored", [["1", "0"], [1, 0], [1.0, 0.0], [True, False], ["01", "0.0"], ["true", "False"], ["1e0", "0"]]
)
def test_how_a_value_is_stored_does_not_matter(stored: list) -> None:
    assert texts(pd.Series(stored)).tolist() == ["1", "0"]


def test_bad_people_are_refused() -> None:
    with refused("max_contributions is 0"):
        People("who", 0)
    with refused("key has 3 bytes"):
        People("who", 1, b"abc")


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    """Thirty people with one to five rows each."""
    who = [f"p{i}" for i in range(30) for _ in range(1 + i % 5)]
    table = pd.DataFrame({"who": who, "x": np.arange(len(who)) % 2, "y": np.arange(len(who)) // 2 % 2})
    table.to_csv(tmp_path / "visits.csv", index=False)
    return tmp_path / "visits.csv"


def test_clamped_values_are_counted_among_the_rows_that_are_used(tmp_path: Path) -> None:
    pd.DataFrame({"who": ["ann"] * 9 + ["bob"], "x": [7] * 10}).to_csv(tmp_path / "x.csv", index=False)
    path = str(tmp_path / "x.csv")
    columns = load_columns(path=path, columns="x", low=0, high=5, out_of_range="clamp", people=People("who", 3, KEY))
    assert (columns.n, columns.clamped) == (4, {"x": 4})


def test_rows_without_a_person_are_refused_or_dropped(tmp_path: Path) -> None:
    pd.DataFrame({"x": [1, 2], "who": ["ann", None]}).to_csv(tmp_path / "rows.csv", index=False)
    path, people = str(tmp_path / "rows.csv"), People("who", 1, KEY)
    with refused("column 'who' has no value in row 2"):
        load_columns(path=path, columns="x", low=0, high=9, people=people)
    assert load_columns(path=path, columns="x", low=0, high=9, missing="drop", people=people).n == 1
    with refused("unit 'who' has no value in row 2"):
        people.bounded(pd.read_csv(path))


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_people_are_told_apart_as_texts(tmp_path: Path, form: str) -> None:
    """A csv whose first 3,000 names are whole numbers; the names that follow would be the same numbers."""
    who = [*map(str, range(3_000)), "01", " 1", "1", "+1", "1.0", "1", "01"]
    table = pd.DataFrame({"who": who, "x": np.arange(len(who)) % 7})
    path = tmp_path / f"rows.{form}"
    table.to_csv(path, index=False) if form == "csv" else table.to_parquet(path)
    options: dict[str, Any] = {"columns": "x", "low": 0, "high": 6, "people": People("who", 1, KEY)}
    memory, engine = load_columns(path=str(path), **options), load_columns(path=str(path), engine=True, **options)
    assert memory.n == 3_004
    assert engine.values["x"].in_order().tolist() == np.sort(memory.values["x"]).tolist()


def test_missing_people_are_the_same_texts_everywhere(tmp_path: Path) -> None:
    pd.DataFrame({"who": ["NA", "null", "n"], "x": [0, 1, 2]}).to_csv(tmp_path / "x.csv", index=False)
    options: dict[str, Any] = {"columns": "x", "low": 0, "high": 6, "missing": "drop", "people": People("who", 1, KEY)}
    assert load_columns(path=str(tmp_path / "x.csv"), **options).n == 1
    assert load_columns(path=str(tmp_path / "x.csv"), engine=True, **options).n == 1


@pytest.mark.parametrize("named", [[1.0, 2.5], [True, False]])
def test_people_are_named_by_whole_numbers_or_texts(tmp_path: Path, named: list[Any]) -> None:
    pd.DataFrame({"who": named, "x": [0, 1]}).to_parquet(tmp_path / "x.parquet")
    path, people = str(tmp_path / "x.parquet"), People("who", 1, KEY)
    for engine in (False, True):
        with pytest.raises(ValueError, match=r"unit 'who' is (float64|bool|boolean); it must hold whole numbers or text"):
            load_columns(path=path, engine=engine, columns="x", low=0, high=1, people=people)
    named_by_categories = pd.DataFrame({"who": pd.Categorical(["a", "b", "a"]), "x": [0, 1, 1]})
    named_by_categories.to_parquet(tmp_path / "c.parquet")
    assert load_columns(path=str(tmp_path / "c.parquet"), columns="x", low=0, high=1, people=people).n == 2


BIG = 2**53


def rows_of_ann(path: Path, other: str, load: Callable[[Path, People], list[Any]]) -> list[list[Any]]:
    """What is used of a person with two great numbers, under keys that choose one or the other, beside somebody else's row."""
    path.write_text(f"who,x\nann,{BIG + 1}\nann,{BIG + 2}\nann,{BIG + 4}\nbob,{other}\n")
    return [load(path, People("who", 1, bytes([i]) * 32)) for i in range(12)]


def codes(path: Path, people: People) -> list[Any]:
    edges = [0, BIG + 1, BIG + 2, BIG + 4, 2 * BIG]
    field: dict[str, Any] = {"name": "x", "type": path.stem, "constraints": {"minimum": 0, "maximum": 2 * BIG}}
    field |= {"dpgen:bins": edges, "dpgen:rounding": 1 if path.stem == "integer" else 0.5}
    return load_table(path=str(path), schema={"fields": [field]}, people=people, test_fraction=0.0).codes[:-1].tolist()


def coordinates(path: Path, people: People) -> list[Any]:
    return load_points(path=str(path), bounds=f"0,{2 * BIG}", people=people, test_fraction=0.0).x[:-1].tolist()


def beside_test_rows(path: Path, people: People) -> list[Any]:
    others = path.with_name("test.csv")
    others.write_text("who,x\neve,1\n")
    return load_points(path=str(path), test_path=str(others), bounds=f"0,{2 * BIG}", people=people).x[:-1].tolist()


@pytest.mark.parametrize(
    ("kind", "other", "load"),
    [("integer", "1.0", codes), ("number", "0.5", codes), ("points", "0.5", coordinates), ("beside", "0.5", beside_test_rows)],
)
def test_how_others_write_numbers_chooses_no_rows(tmp_path: Path, kind: str, other: str, load: Any) -> None:
    path = tmp_path / f"{kind}.csv"
    assert rows_of_ann(path, other, load) == rows_of_ann(path, "1", load)


def test_what_would_choose_rows_is_refused(visits: Path, tmp_path: Path) -> None:
    people = People("who", 2, KEY)
    with refused("has no column 'whom': its columns are who, x, y; did you mean 'who'?"):
        load_records(path=str(visits), people=People("whom", 2, KEY))
    with refused("unit is 'x'"):
        load_columns(path=str(visits), columns="x", low=0, high=1, people=People("x", 2, KEY))
    np.save(tmp_path / "x.npy", np.zeros((3, 1)))
    with refused("unit is 'who'"):
        load_columns(path=str(tmp_path / "x.npy"), columns="x", low=0, high=1, people=people)
