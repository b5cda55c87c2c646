"""Records, sets and records on disk: what is refused, what is private, what is split, and their files."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from fixed_source import FixedKeySource
from refusals import refused

from dpgen.config import keyword_job
from dpgen.data import MappedRows, Records, load_mapped, load_records, load_sets
from dpgen.data.records import MAX_CLASSES, class_labels, read_baskets, split_records
from dpgen.data.split import Split
from dpgen.evaluation import evaluate
from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger

EYE = torch.eye(6, dtype=torch.uint8)
ONES = torch.ones(2, 6, dtype=torch.uint8)
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


def numbered(n: int, bits: int = 10) -> torch.Tensor:
    """Records that are all different: the binary digits of 0..n-1."""
    return ((torch.arange(n)[:, None] >> torch.arange(bits)) & 1).to(torch.uint8)


def as_numbers(x: torch.Tensor) -> list[int]:
    return (x.long() << torch.arange(x.shape[1])).sum(1).tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(6, dtype=torch.uint8)}, "x has shape (6,)"),
        ({"x": torch.zeros(3, 0, dtype=torch.uint8)}, "x has shape (3, 0)"),
        ({"x": EYE * 2}, "x has another value in row 1, column 1"),
        ({"x": EYE.float()}, "x has dtype torch.float32"),
        ({"test_x": ONES[:, :5]}, "test_x has 5 features, x has 6"),
        ({"test_x": ONES * 3}, "test_x has another value in row 1"),
        ({"labels": LABELS, "n_classes": 0, "test_labels": LABELS[:2]}, "n_classes is 0 with labels"),
        ({"labels": LABELS, "n_classes": 3}, "test_labels is missing but labels is given"),
        ({"labels": LABELS[:5], "test_labels": LABELS[:2], "n_classes": 3}, "labels has shape (5,)"),
        ({"labels": LABELS, "test_labels": LABELS[:2], "n_classes": 2}, "labels has a label outside [0, 1]"),
        ({"labels": -LABELS, "test_labels": LABELS[:2], "n_classes": 3}, "labels has a label outside [0, 2]"),
        ({"labels": LABELS.int(), "test_labels": LABELS[:2], "n_classes": 3}, "dtype torch.int32"),
        ({"n_classes": 3}, "n_classes is 3 without labels"),
        ({"image_shape": (2, 2)}, "image_shape 2 x 2 has 4 pixels, the records have 6"),
        ({"columns": ["a"]}, "columns has 1 names, the records have 6"),
        (
            {"columns": list("abcdef"), "x": EYE + torch.diag(torch.tensor([0, 0, 1, 0, 0, 0])).byte()},
            "x has another value in row 3, column 'c'",
        ),
        ({"labels": LABELS, "test_labels": LABELS[:2], "n_classes": 3, "class_names": ("a",)}, "class_names has 1 names"),
    ],
)
def test_records_refuse(changes: dict, message: str) -> None:
    with refused(message):
        Records(**{"name": "bad", "x": EYE, "test_x": ONES, **changes})


def test_representation_shows_no_record() -> None:
    text = repr(Records("six", EYE, ONES, labels=LABELS, test_labels=LABELS[:2], n_classes=3, image_shape=(2, 3)))
    assert text == "Records('six': 6 private, 2 test records of 6 binary features, 3 classes)"
    assert "tensor" not in text


def test_split_is_a_partition_and_keeps_labels() -> None:
    x = numbered(100)
    split = Split.public(5, 0.3)
    records = split_records("all", x, labels=torch.arange(100), n_classes=100, split=split)
    assert (records.n, len(records.test_x)) == (100 - int(split.test_rows(100).sum()), int(split.test_rows(100).sum()))
    assert sorted(as_numbers(records.x) + as_numbers(records.test_x)) == list(range(100))
    assert as_numbers(records.x) == records.labels.tolist()
    assert as_numbers(records.test_x) == records.test_labels.tolist()
    assert Fact.TEST_PART in tiny.told(records)


def test_split_refuses_wrong_labels_and_no_number_of_records() -> None:
    with refused("labels has length 3, x has 6"):
        split_records("a", EYE, labels=LABELS[:3], n_classes=3)
    for n in (0, 1, 2):
        records = split_records("a", EYE[:n], labels=LABELS[:n], n_classes=3)
        assert records.n + len(records.test_x) == n


def table(n: int = 20) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "a": rng.integers(0, 2, n),
            "flag": rng.integers(0, 2, n).astype(bool),
            "kind": rng.choice(["no", "yes"], n),
            "c": rng.integers(0, 2, n).astype(float),
        }
    )


def rows(records) -> list[list[int]]:
    return sorted(records.x.tolist() + records.test_x.tolist())


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet"])
def test_tables_round_trip(tmp_path: Path, form: str) -> None:
    path, frame = str(tmp_path / f"people.{form}"), table()
    frame.to_parquet(path) if form == "parquet" else frame.to_csv(path, index=False)
    records = load_records(path=path, label_column="kind")
    assert (records.name, records.columns, records.class_names) == ("people", ["a", "flag", "c"], ("no", "yes"))
    assert (records.n + len(records.test_x), records.n_classes) == (20, 2)
    everything = torch.cat([records.x, records.test_x])
    labels = torch.cat([records.labels, records.test_labels])
    expected = frame[["a", "flag", "c"]].astype(int).assign(kind=(frame["kind"] == "yes").astype(int))
    assert sorted(torch.cat([everything.long(), labels[:, None]], 1).tolist()) == sorted(expected.to_numpy().tolist())
    assert tiny.told(records)[Fact.READ_CLASSES] == {"k": 2}


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, bool])
def test_npy(tmp_path: Path, dtype: type) -> None:
    x = np.random.default_rng(0).integers(0, 2, (15, 6)).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    records = load_records(path=str(tmp_path / "x.npy"), image_shape=(2, 3))
    assert (rows(records), records.image_shape, records.labels) == (sorted(x.astype(int).tolist()), (2, 3), None)


@pytest.mark.parametrize(("dtype", "white"), [(np.uint8, 255), (np.int64, 255), (np.float32, 1)])
def test_grey_values(tmp_path: Path, dtype: type, white: int) -> None:
    grey = np.random.default_rng(0).integers(0, 256, (15, 6))
    np.save(tmp_path / "x.npy", (grey if white == 255 else grey / 255).astype(dtype))
    records = load_records(path=str(tmp_path / "x.npy"), grey_threshold=99, test_fraction=0.0)
    assert records.grey is not None
    assert records.form is not None
    assert (records.grey.tolist(), records.grey_threshold, records.form.white) == (grey.tolist(), 99, white)
    assert torch.equal(records.x, (records.grey > 99).to(torch.uint8))


@pytest.mark.parametrize("column", [4, -1])
def test_npy_label_column(tmp_path: Path, column: int) -> None:
    x = np.random.default_rng(0).integers(0, 2, (30, 5))
    x[:, 4] = np.arange(30) % 3 * 10
    np.save(tmp_path / "x.npy", x)
    records = load_records(path=str(tmp_path / "x.npy"), label_column=column)
    assert (records.d, records.n_classes, records.class_names) == (4, 3, ("0", "10", "20"))


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n", {}, "is empty"),
        ("a,b\n0,1\n1,39\n", {}, "column 'b' has another value in row 2: only 0 and 1 are supported"),
        ("a,b\n0,1\n1,0.5\n", {}, "column 'b' has another value in row 2"),
        ("a,b\n0,1\n1,inf\n", {}, "column 'b' has another value in row 2"),
        ("a,b\n0,x\n1,0\n", {}, "column 'b' has another value in row 1"),
        ("a,b\n0,\n1,0\n", {}, "column 'b' has no value in row 1: fill it, or choose missing=drop"),
        ("a,b\n0,1\n1,0\n", {"label_column": "c"}, "has no column 'c'"),
        ("a,b\n0,1\n1,\n", {"label_column": "b"}, "column 'b' has no value in row 2: "),
        ("b\n0\n1\n", {"label_column": "b"}, "has no 0/1 columns"),
        ("0,1,1\n1,0,0\n1,1,1\n", {}, "it has 2 columns called '1'"),
        ("0,1\n1,0\n", {}, "has no header"),
        ("a,b\n0,1\n1,1\n", {"image_shape": (3, 3)}, "image_shape 3 x 3 has 9 pixels"),
        ("a,b\n0,9\n1,256\n", {"grey_threshold": 127}, "column 'b' has another value in row 2: grey values are whole numbers"),
        ("a,b\n0,1\n1,1\n", {"grey_threshold": 127}, "no value above 1, and grey values go from 0 to 255"),
        ("a,b\n0,9\n1,1\n", {"grey_threshold": 255}, "grey_threshold is 255"),
    ],
)
def test_csv_is_refused(tmp_path: Path, text: str, options: dict, message: str) -> None:
    (tmp_path / "bad.csv").write_text(text)
    with refused(message):
        load_records(path=str(tmp_path / "bad.csv"), **options)


@pytest.mark.parametrize(
    ("array", "options", "message"),
    [
        (np.array([[0, 1], [np.nan, 1]]), {}, "column '0' has no value in row 2"),
        (np.array([[0, 1], [1, 2]]), {}, "column '1' has another value in row 2"),
        (np.array([{"a": 1}], dtype=object), {}, "cannot be read as npy"),
        ({"a": np.zeros((2, 2))}, {}, "it must hold one array"),
        (b"\x80\x02not it\xff", {}, "cannot be read as npy"),
    ],
)
def test_npy_is_refused(tmp_path: Path, array: Any, options: dict, message: str) -> None:
    path = tmp_path / ("bad.npz" if isinstance(array, dict) else "bad.npy")
    if isinstance(array, bytes):
        path.write_bytes(array)
    else:
        np.savez(path, **array) if isinstance(array, dict) else np.save(path, array, allow_pickle=True)
    with refused(message):
        load_records(path=str(path), **options)


def test_class_labels() -> None:
    codes, names = class_labels(pd.Series([30, 4, 30], name="y"))
    assert (codes.tolist(), names) == ([1, 0, 1], ("4", "30"))
    codes, names = class_labels(pd.Series(["b", 1, "b"], name="y", dtype=object))
    assert (codes.tolist(), names) == ([1, 0, 1], ("1", "b"))
    with pytest.raises(ValueError, match=f"label_column 'y' has {MAX_CLASSES + 1} distinct values: at most {MAX_CLASSES}"):
        class_labels(pd.Series(range(MAX_CLASSES + 1), name="y"))


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


X = np.random.default_rng(0).integers(0, 2, (300, 7)).astype(np.uint8)
MAPPED_LABELS = np.arange(300) % 3
NONE = torch.zeros(0, 7, dtype=torch.uint8)


@pytest.fixture
def shards(tmp_path: Path) -> str:
    for i, (part, kind) in enumerate(zip(np.split(X, [120, 120, 290]), (np.uint8, bool, np.float32, np.int64))):
        np.save(tmp_path / f"part{i}.npy", part.astype(kind))
    return str(tmp_path / "part*.npy")


def fitted(data: Any, **options: Any) -> Any:
    """The release of a fit under fixed noise."""
    job = keyword_job("gaussian", {"epsilon": 2.0, "progress_bar": False} | options, private=data)
    return job.fit(data, Curator(Ledger(job.privacy.budget), source=FixedKeySource(1)), job.runtime)


def test_rows_and_fits_are_those_of_the_array(shards: str) -> None:
    rows = MappedRows.open(shards)
    assert (rows.shape, rows.dtype, torch.equal(rows, torch.from_numpy(X))) == ((300, 7), torch.uint8, True)
    both = (load_mapped(path=shards), Records("memory", torch.from_numpy(X), NONE))
    found = [fitted(data, clusters="none").samples(50, random_state=0).x for data in both]
    assert torch.equal(*found)
    assert both[0].name == "part"


def test_labels_are_a_column_of_the_files(tmp_path: Path) -> None:
    for name, rows in (("left", slice(0, 200)), ("right", slice(200, 300))):
        np.save(tmp_path / f"{name}.npy", np.insert(X[rows], 2, MAPPED_LABELS[rows], axis=1))
    path = str(tmp_path / "[lr]*t.npy")
    data = load_mapped(path=path, test_path=path, label_column=2, image_shape=(1, 7))
    assert (data.n_classes, data.class_names, data.d, data.n_test) == (3, ("0", "1", "2"), 7, 300)
    assert data.labels is not None
    assert data.test_labels is not None
    assert data.labels.tolist() == data.test_labels.tolist() == MAPPED_LABELS.tolist()
    assert data.x.tolist() == data.test_x.tolist() == X.tolist()
    assert tiny.told(data)[Fact.READ_CLASSES] == {"k": 3}
    part = data.some(100)
    assert (part.n, part.n_test, part.image_shape) == (100, 100, (1, 7))
    assert part.labels is not None
    rows = {(*row, label) for row, label in zip(map(tuple, X.tolist()), MAPPED_LABELS.tolist())}
    assert {(*row, label) for row, label in zip(map(tuple, part.x.tolist()), part.labels.tolist())} <= rows


def test_an_evaluation_looks_at_a_public_choice(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load_mapped(path=shards, test_path=shards)
    monkeypatch.setattr("dpgen.evaluation.records.LOOKED_AT", 99)
    found = evaluate(fitted(data, clusters="none"), data, full=False)
    assert [note for note in found.notes if note.startswith("scores look at 99 of the records at most")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "bad.npy"}, "bad.npy has another value in row 24, column 4"),
        ({"path": "nan.npy"}, "nan.npy has another value in row 2, column 1"),
        ({"path": "[nb]a*.npy"}, "nan.npy has 2 columns"),
        ({"test_path": "none.npy"}, "none.npy'"),
        ({"test_path": "nan.npy"}, "another value"),
        ({"image_shape": (2, 3)}, "image_shape 2 x 3 has 6 pixels, the records have 7"),
        ({"path": "gaps.npy", "label_column": 6}, "gaps.npy has no label in row 1"),
        ({"test_path": "gaps.npy", "label_column": 6}, "gaps.npy has no label in row 1"),
        ({"label_column": 7}, "label_column is 7"),
        ({"label_column": "class"}, "label_column is class"),
    ],
)
def test_wrong_files_are_refused(shards: str, tmp_path: Path, options: dict[str, Any], said: str) -> None:
    bad = X.copy()
    bad[23, 3] = 7
    np.save(tmp_path / "bad.npy", bad)
    np.save(tmp_path / "nan.npy", np.array([[0.0, 1.0], [np.nan, 0.0]]))
    np.save(tmp_path / "gaps.npy", np.where(np.arange(7) == 6, np.nan, X))
    places = {name: str(tmp_path / str(value)) for name, value in options.items() if name.endswith("path")}
    with refused(said):
        load_mapped(**{"path": shards} | options | places)
