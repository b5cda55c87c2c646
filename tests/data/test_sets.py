"""Set-valued records."""

import gzip
from pathlib import Path

import pytest
import tiny
from refusals import refused

from dpgen.data import load_sets
from dpgen.data.records import read_baskets
from dpgen.facts import Fact

LINES = "10 2 30\n2 30\n2\n\n30 2 2 7\n9 10\n"


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "baskets.dat").write_text(LINES)
    return str(tmp_path / "baskets.dat")


def everything(records) -> list[list[int]]:
    return sorted(records.x.tolist() + records.test_x.tolist())


def test_all_items_in_numeric_order(path: str) -> None:
    records = load_sets(path=path)
    assert records.columns == ["2", "7", "9", "10", "30"]
    assert everything(records) == sorted(
        [[1, 0, 0, 1, 1], [1, 0, 0, 0, 1], [1, 0, 0, 0, 0], [0] * 5, [1, 1, 0, 0, 1], [0, 0, 1, 1, 0]]
    )
    assert (records.name, records.labels) == ("baskets", None)
    assert tiny.told(records)[Fact.READ_ITEMS] == {"how": "all of them"}


@pytest.mark.parametrize(
    ("top", "columns"),
    [(1, ["2"]), (2, ["2", "30"]), (3, ["2", "10", "30"]), (4, ["2", "7", "10", "30"]), (99, ["2", "7", "9", "10", "30"])],
)
def test_top_items_count_records_not_repetitions(path: str, top: int, columns: list[str]) -> None:
    records = load_sets(path=path, top_items=top)
    assert records.columns == columns
    assert tiny.told(records)[Fact.READ_ITEMS] == {"how": f"the {top} most frequent"}


def test_public_items_leave_no_note(path: str, tmp_path: Path) -> None:
    (tmp_path / "items").write_text("30\n2 99\n")
    records = load_sets(path=path, items_path=str(tmp_path / "items"))
    assert records.columns == ["30", "2", "99"]
    assert everything(records)[-1] == [1, 1, 0]
    assert Fact.READ_ITEMS not in tiny.told(records)


def test_words_packed(tmp_path: Path) -> None:
    file = tmp_path / "words.txt.gz"
    file.write_bytes(gzip.compress("milk bread\r\nbread\tègg\n12 bread\nmilk\n".encode()))
    records = load_sets(path=str(file))
    assert records.columns == ["12", "bread", "milk", "ègg"]
    assert records.n + len(records.test_x) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_items": 0}, "top_items is 0"),
        ({"top_items": 2, "items_path": "x"}, "top_items is 2 and items_path is 'x'"),
        ({"items": ["2", "30", "2"]}, "items names item '2' more than once"),
        ({"items": []}, "items names no item"),
        ({"items_path": "/nowhere/x"}, "path is '/nowhere/x'"),
    ],
)
def test_options_are_refused(path: str, options: dict, message: str) -> None:
    with refused(message):
        load_sets(path=path, **options)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n \n", "holds no items"),
        (b"1 2\n3,4\n", ": item ids must be separated by blanks"),
        (b"1;2\n", "line 1 has an item"),
        (b"1 2\n\xff\xfe\n", "is not a text file"),
        (b"1 2\n\x00\x01\n3\n", "is not a text file"),
        (gzip.compress(b"1 2\n" * 50, mtime=0)[:-5], "is a damaged gzip file"),
    ],
)
def test_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "bad").write_bytes(content)
    with refused(message):
        read_baskets(tmp_path / "bad")


def test_a_line_more_is_one_record_more(tmp_path: Path) -> None:
    """Empty lines before the end were left out together, with the last set that has an item."""
    for lines in (["1 2", "", "", "3"], ["1 2", "", ""], ["1 2", ""], ["1 2"]):
        for end in ("", "\n"):
            (tmp_path / "sets").write_text("\n".join(lines) + end)
            if lines[-1] or end:
                assert read_baskets(tmp_path / "sets") == [line.split() for line in lines]


def test_table_too_large_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpgen.data.records.MAX_CELLS", 29)
    with refused("6 records x 5 items"):
        load_sets(path=path)
