"""Files of tables: every reader refuses what is malformed, and none reads a wrong column."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from refusals import refused

from dpgen.data import draft_schema, load_columns, load_events, load_points, load_records, load_table, table_files
from dpgen.data.table_files import (
    column_name,
    column_names,
    dialect_of,
    form_of,
    header,
    read_npy,
    read_table,
    require_columns,
    table_path,
)

Load = Callable[[str], Any]

READERS: dict[str, Load] = {
    "records": lambda path: load_records(path=path).x,
    "columns": lambda path: load_columns(path=path, columns="click", low=0, high=10).values["click"],
    "points": lambda path: load_points(path=path, columns="click", bounds="-1,11", test_fraction=0.5).x,
    "events": lambda path: load_events(path=path, user="device_id", category="site_id").counts,
}
"""The loaders of csv files, of which some use a few columns only."""

HEADER = "click,device_id,site_id,C18"
ROWS = [f"{i % 2},{(i // 2) % 2},{(i // 4) % 2},{i % 2}" for i in range(40)]


def with_row(number: int, row: str) -> str:
    return "\n".join([HEADER, *ROWS[:number], row, *ROWS[number + 1 :]]) + "\n"


MALFORMED = {
    "a comma after every row": ("\n".join([HEADER, *(f"{row}," for row in ROWS)]), "row 1 has 5 fields, the header has 4"),
    "an open quote": (with_row(30, '1,"1,1,1'), "cannot be read as"),
    "a zero byte": (with_row(30, "1,1,1\0,1"), "it holds zero bytes"),
    "an empty file": ("", "t.csv is empty"),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_regular_file_is_read(reader: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n".join([HEADER, *ROWS]))
    assert len(READERS[reader](str(tmp_path / "t.csv"))) > 1


@pytest.mark.parametrize("fault", MALFORMED)
def test_what_is_malformed_is_refused(fault: str, tmp_path: Path) -> None:
    text, said = MALFORMED[fault]
    for ending, content in ((".csv", text.encode()), (".csv.gz", gzip.compress(text.encode()) if text else b"")):
        path = tmp_path / f"t{ending}"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=said if text else "is empty") as error:
            read_table(path, ["click"])
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("reader", READERS)
def test_every_loader_refuses_what_is_malformed_damaged_or_absent(reader: str, tmp_path: Path) -> None:
    packed = bytearray(gzip.compress("\n".join([HEADER, *ROWS]).encode()))
    changed = packed[:40] + bytes([packed[40] ^ 255]) + packed[41:]
    for name, content in (("cut.csv.gz", packed[:-9]), ("changed.csv.gz", changed), ("t.csv", with_row(30, "1,1,1").encode())):
        (tmp_path / name).write_bytes(content)
        with refused("cannot be read as"):
            READERS[reader](str(tmp_path / name))
    for absent in ("absent.csv", "."):
        with pytest.raises(ValueError, match=rf"^path is '{re.escape(absent)}': "):
            READERS[reader](absent)


def test_the_column_that_is_named_is_read(tmp_path: Path) -> None:
    """A surplus comma made pandas take the first column for an index, and the second for the first."""
    (tmp_path / "t.csv").write_text("x,y,\n5,0,\n5,1,\n")
    data = load_columns(path=str(tmp_path / "t.csv"), columns="x", low=0, high=10)
    assert data.values["x"].tolist() == [5, 5]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('x,y\n"a\nb","c,d"\n', [["a\nb", "c,d"]]),
        ('x,y\r\n"say ""a""",1\r\n\r\n', [['say "a"', "1"]]),
        ("\ufeffx,y\n1,2", [["1", "2"]]),
        ("\nx,y\n\n1,2\n\n", [["1", "2"]]),
        ("x,y\n", []),
    ],
)
def test_quotes_line_ends_and_blank_lines_are_no_faults(text: str, expected: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(text.encode())
    table = read_table(tmp_path / "t.csv", text=None)
    assert (table.columns.tolist(), table.to_numpy().tolist()) == (["x", "y"], expected)


def test_of_one_column_every_line_is_a_record(tmp_path: Path) -> None:
    """Were an empty one left out, somebody without a value would change how many records there are."""
    (tmp_path / "t.csv").write_text("x\n1\n\n3\n\n")
    assert read_table(tmp_path / "t.csv")["x"].isna().tolist() == [False, True, False, True]
    (tmp_path / "t.csv").write_text("\nx\n1\n")
    with refused("begins with an empty line"):
        read_table(tmp_path / "t.csv")


def test_columns_are_chosen_by_name(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": range(10), "b": [f"{i}.5" for i in range(10)], "c": 0}).set_index("c")
    table.to_csv(tmp_path / "t.csv")
    table.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        found = read_table(tmp_path / name, ["b", "c"], text=["b"])
        assert (found["b"].tolist(), found["c"].tolist()) == (table["b"].tolist(), [0] * 10)
        with pytest.raises(ValueError, match=r"has no column 'd': its columns are (c, a, b|a, b, c)$"):
            read_table(tmp_path / name, ["a", "d"])
    np.save(tmp_path / "t.npy", np.arange(20).reshape(10, 2))
    assert read_table(tmp_path / "t.npy", ["x1"], prefix="x")["x1"].tolist() == list(range(1, 20, 2))


def test_names_of_columns_are_text(tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_text("nothing")
    with refused("bad.parquet cannot be read as parquet"):
        read_table(tmp_path / "bad.parquet")
    pd.DataFrame({"1": [0]}).rename(columns={"1": 1}).to_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").columns.tolist() == ["1"]
    pd.DataFrame({"a": [1, 2]}, index=[5, 7]).to_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").to_numpy().tolist() == [[1], [2]], "an index of pandas is no column"
    assert column_names("a, b") == column_names(["a", "b"]) == ["a", "b"]
    require_columns("t", ["1"], [1, 2])
    with refused("t has no column '25'"):
        require_columns("t", ["25"], range(25))
    with refused("its columns are age, income; did you mean 'income'?"):
        require_columns("t", ["incme"], ["age", "income"])


def test_forms_are_recognised(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 3)))
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "t.parquet")
    for name, form in (("a.npy", "npy"), ("t.parquet", "parquet")):
        assert form_of((tmp_path / name).rename(tmp_path / form)) == form, "by their first bytes"
    for name, form in (("t.csv", "csv"), ("t", "csv"), ("t.npz", "npy"), ("t.parquet", "parquet")):
        (tmp_path / name).write_text("x")
        assert form_of(tmp_path / name) == form, "by their endings"


def test_columns_of_arrays_have_numbers(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 3)))
    names = [column_name("key", column, tmp_path / "a.npy", "x") for column in (None, 0, "2", -1, "x1")]
    assert names == [None, "x0", "x2", "x2", "x1"]
    for wrong in (3, -4, "id"):
        with pytest.raises(ValueError, match=rf"^key is {wrong}: it must be in \[0, 2\]$"):
            column_name("key", wrong, tmp_path / "a.npy", "x")
    (tmp_path / "t.csv").write_text("3\n")
    assert column_name("key", 3, tmp_path / "t.csv") == "3"


def test_arrays_are_read_and_others_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(6))
    assert read_npy(path, vectors=True).tolist() == [[i] for i in range(6)]
    with refused("holds int64 (6,)"):
        read_npy(path)
    np.save(path, np.zeros((0, 5)))
    assert read_npy(path).shape == (0, 5)
    for other in (np.zeros((1, 1, 1)), np.array([["a"]])):
        np.save(path, other)
        with refused("it must hold one array"):
            read_npy(path, vectors=True)


def test_a_line_that_is_not_utf8_is_cp1252_whatever_the_others_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "é,y".encode("cp1252"),
        "ü,Ã¼".encode(),
        "ü,€".encode("cp1252"),
        b"\x81,1",
        '"a\nß",2'.encode("cp1252"),
        "ß,3".encode(),
    ]
    expected = [["ü", "Ã¼"], ["ü", "€"], ["\x81", "1"], ["a\nß", "2"], ["ß", "3"]]
    for block in (2**16, 3):
        monkeypatch.setattr(table_files, "_BLOCK", max(64, block))
        (tmp_path / "t.csv").write_bytes(b"\n".join(lines) + b"\n" * (block > 3))
        table = read_table(tmp_path / "t.csv", text=None)
        assert list(table) == ["é", "y"]
        assert table.to_numpy().tolist() == expected
    with refused("is not in the encoding"):
        read_table(table_path(str(tmp_path / "t.csv"), encoding="utf-8"))


HEADERS = [
    (b"a;b\n1,5;2\n", ";", ["a", "b"]),
    ("\ufeffä\tb\n1\t2\n".encode(), "\t", ["ä", "b"]),
    (b"a|b,c|d\n1|2|3\n", "|", ["a", "b,c", "d"]),
    ("ä;b\n1;2\n".encode("utf-16"), ";", ["ä", "b"]),
    ("a;b\n1;2\n".encode("utf-16-le"), ";", ["a", "b"]),
    (b"sep=;\r\na;b\r\n1;2\r\n", ";", ["a", "b"]),
    (b"sep=|\na|b;c\n1|2\n", "|", ["a", "b;c"]),
    (b"a;b;\n1;2;\n", ";", ["a", "b"]),
    (b'"a;b",c\n1,2\n', ",", ["a;b", "c"]),
]


@pytest.mark.parametrize(("content", "delimiter", "names"), HEADERS, ids=[str(names) for *_, names in HEADERS])
def test_the_header_line_shows_how_a_file_is_written(content: bytes, delimiter: str, names: list[str], tmp_path: Path) -> None:
    for ending, written in ((".csv", content), (".csv.gz", gzip.compress(content))):
        path = tmp_path / f"x{ending}"
        path.write_bytes(written)
        assert dialect_of(path).delimiter == delimiter
        assert list(header(path)) == names
        assert len(read_table(path, names)) == 1


@pytest.mark.parametrize("column", ["0 1 1 0", "0 1 9 5", "0 1 10 0", "0 1 x 0", "0 1 NA 0", "1 0 1 0.5", "0 1 007 1"])
def test_single_digits_are_read_like_any_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str) -> None:
    values = column.split()
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "".join(f"{value},7\n" for value in values * 20))
    whole = read_table(path)
    assert read_table(path, text=None)["a"].fillna("NA").tolist() == values * 20
    monkeypatch.setattr(table_files, "_BLOCK", 64)  # blocks that hold digits alone beside others
    for narrow in (False, True):
        pieces = read_table(path, narrow=narrow)
        assert pieces.dtypes["b"] == (np.uint8 if narrow else np.int64)
        pd.testing.assert_frame_equal(pieces, whole, check_dtype=not narrow)
    assert read_table(path, text=["a"])["a"].fillna("NA").tolist() == values * 20


DIALECTS = [(";", None), ("tab", "cp1252"), ("|", "utf-16"), (None, "latin-1"), (None, "utf-8-sig")]

LOADERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "records": ("é,label\n1,ä\n0,ö\n1,ä\n", lambda path, **o: load_records(path=path, label_column="label", **o)),
    "columns": ("é,y\n1,2\n0,3\n", lambda path, **o: load_columns(path=path, columns="é", low=0, high=9, **o)),
    "points": ("é,y\n1,2\n0,3\n", lambda path, **o: load_points(path=path, bounds="0,9", **o)),
    "events": ("user,category\nä,ö\né,è\n", lambda path, **o: load_events(path=path, **o)),
    "draft": ("é,y\nä,2\n", lambda path, **o: draft_schema(path, **o)),
    "table": (
        "é,y\nä,2\nö,3\n",
        lambda path, **o: load_table(
            path=path, schema={"fields": [{"name": "é", "type": "string", "constraints": {"enum": ["ä", "ö"]}}]}, **o
        ),
    ),
}


@pytest.mark.parametrize("loader", LOADERS)
def test_a_file_in_any_dialect_is_the_same_data(loader: str, tmp_path: Path) -> None:
    text, load = LOADERS[loader]
    options = {"test_fraction": 0.0} if loader in ("records", "points", "table") else {}
    plain = tmp_path / "x.csv"
    plain.write_text(text)
    expected = str(contents(load(str(plain), **options)))
    for number, (delimiter, encoding) in enumerate(DIALECTS):
        written = text.replace(",", {"tab": "\t", None: ","}.get(delimiter, str(delimiter))).encode(encoding or "utf-8")
        for ending, content in ((".csv", written), (".csv.gz", gzip.compress(written))):
            (tmp_path / str(number)).mkdir(exist_ok=True)
            other = tmp_path / str(number) / f"x{ending}"
            other.write_bytes(content)
            assert str(contents(load(str(other), delimiter=delimiter, encoding=encoding, **options))) == expected


def contents(data: Any) -> dict[str, Any]:
    return data if isinstance(data, dict) else {name: getattr(data, name) for name in data.__dataclass_fields__}


@pytest.mark.parametrize(
    "options", [{"delimiter": ";;"}, {"delimiter": '"'}, {"encoding": "utf-99"}, {"encoding": "base64"}], ids=str
)
def test_a_dialect_that_is_none_is_refused(options: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("x\n1\n")
    with pytest.raises(ValueError, match=f"^{next(iter(options))} is "):
        table_path(str(tmp_path / "x.csv"), **options)


def test_only_a_csv_file_has_a_dialect_and_test_records_have_it_too(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("x;y\n1;0\n")
    records = load_records(path=str(tmp_path / "a.csv"), test_path=str(tmp_path / "b.csv"), delimiter=";")
    assert records.columns == ["x", "y"]
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "x.parquet")
    with refused("delimiter"):
        load_records(path=str(tmp_path / "x.parquet"), delimiter=";")


def test_a_column_without_a_name_is_refused_before_its_columns_are_bought(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(",a\n1,2\n")
    with refused("without a name"):
        load_table(path=str(tmp_path / "x.csv"))
