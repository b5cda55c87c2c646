"""Tables of zeros and ones."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny
import torch

from dpgen.data import load_records
from dpgen.data.records import MAX_CLASSES, class_labels, pixels
from dpgen.facts import Fact


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
    records = load_records(path=path, label_column="kind", public_records=3)
    assert (records.name, records.columns, records.class_names) == ("people", ["a", "flag", "c"], ("no", "yes"))
    assert (records.n + len(records.test_x), len(records.public_x), records.n_classes) == (17, 3, 2)
    everything = torch.cat([records.x, records.test_x, records.public_x])
    labels = torch.cat([records.labels, records.test_labels, records.public_labels])
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


def test_tables_without_labels_have_no_classes(tmp_path: Path) -> None:
    table().drop(columns="kind").to_csv(tmp_path / "t.csv", index=False)
    records = load_records(path=str(tmp_path / "t.csv"))
    assert (records.n_classes, records.labels, records.d) == (0, None, 3)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "is empty"),
        ("a,b\n", {}, "is empty: it has 2 columns and no record"),
        ("a,b\n0,1\n1,39\n", {}, r"column 'b' has another value in row 2: only 0 and 1 are supported$"),
        ("a,b\n0,1\n1,-1\n", {}, r"column 'b' has another value in row 2"),
        ("a,b\n0,1\n1,0.5\n", {}, r"column 'b' has another value in row 2"),
        ("a,b\n0,1\n1,inf\n", {}, r"column 'b' has another value in row 2"),
        ("a,b\n0,x\n1,0\n", {}, r"column 'b' has another value in row 1"),
        ("a,b\n0,\n1,0\n", {}, r"column 'b' has no value in row 1: fill it, or choose missing=drop$"),
        ("a,b\n0,1\n1,0\n", {"label_column": "c"}, r"has no column 'c': its columns are a, b$"),
        ("a,b\n0,1\n1,\n", {"label_column": "b"}, r"column 'b' has no value in row 2: .* missing=drop or category"),
        ("b\n0\n1\n", {"label_column": "b"}, r"has no 0/1 columns"),
        ("a,b\n0,1,1\n1,0,1\n", {}, r"cannot be read as csv: row 1 has 3 fields, the header has 2"),
        ("a,b\n1,1,1\n1,0,1\n", {}, r"cannot be read as csv: row 1 has 3 fields, the header has 2"),
        ("a,b\n1,1\n1,0,1\n", {}, r"cannot be read as csv: row 2 has 3 fields"),
        ("a,b\n0,1\n1,0,1,1\n", {}, r"cannot be read as csv: row 2 has 4 fields"),
        ("0,1,1\n1,0,0\n1,1,1\n", {}, "it has 2 columns called '1'"),
        ("a,b\n0,1\n1,1\n", {"image_shape": (3, 3)}, r"image_shape 3 x 3 has 9 pixels"),
        ("a,b\n0,9\n1,256\n", {"grey_threshold": 127}, r"column .b. has another value in row 2: grey values are whole numbers"),
        ("a,b\n0,1\n1,1\n", {"grey_threshold": 127}, r"no value above 1, and grey values go from 0 to 255"),
        ("a,b\n0,9\n1,1\n", {"grey_threshold": 255}, r"grey_threshold is 255: it must be in \[0, 254\]"),
        ("a,b\n0,1\n1,1\n", {"test_fraction": 1.0}, r"test_fraction is 1.0: it must be in \[0, 1\)"),
    ],
)
def test_csv_is_refused(tmp_path: Path, text: str, options: dict, message: str) -> None:
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        load_records(path=str(tmp_path / "bad.csv"), **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("form", ["csv", "parquet", "npy"])
def test_not_of_that_form(form: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path is .*absent.*': there is no such file"):
        load_records(path=str(tmp_path / f"absent.{form}"))
    (tmp_path / f"bad.{form}").write_bytes(b"\x80\x02not it\xff" * 20)
    with pytest.raises(ValueError, match=f"cannot be read as {form}: "):
        load_records(path=str(tmp_path / f"bad.{form}"))


@pytest.mark.parametrize(
    ("array", "options", "message"),
    [
        (np.zeros(5), {}, r"holds float64 \(5,\): it must hold one array of numbers or dates of shape \(records, columns\)"),
        (np.zeros((0, 5)), {}, "is empty: it has 5 columns and no record"),
        (np.array([["0", "1"]] * 3), {}, r"holds <U1 \(3, 2\)"),
        (np.array([[0, 1], [np.nan, 1]]), {}, r"column '0' has no value in row 2"),
        (np.array([[0, 1], [1, 2]]), {}, r"column '1' has another value in row 2"),
        (np.zeros((4, 2)), {"label_column": 2}, r"label_column is 2: it must be in \[0, 1\]"),
    ],
)
def test_npy_is_refused(tmp_path: Path, array: np.ndarray, options: dict, message: str) -> None:
    np.save(tmp_path / "bad.npy", array)
    with pytest.raises(ValueError, match=message):
        load_records(path=str(tmp_path / "bad.npy"), **options)


def test_pickled_and_packed_arrays_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "pickle.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"cannot be read as npy: .*Python objects"):
        load_records(path=str(tmp_path / "pickle.npy"))
    np.savez(tmp_path / "two.npz", a=np.zeros((2, 2)))
    with pytest.raises(ValueError, match="holds an archive of arrays"):
        load_records(path=str(tmp_path / "two.npz"))


def test_pixels_takes_every_spelling_of_zero_and_one() -> None:
    frame = pd.DataFrame(
        {"i": [0, 1], "f": [0.0, 1.0], "b": [False, True], "o": pd.Series([0, True], dtype=object), "n": [0, 1]}
    ).astype({"n": "Int64"})
    assert pixels(frame).tolist() == [[0] * 5, [1] * 5]


def test_class_labels() -> None:
    codes, names = class_labels(pd.Series([30, 4, 30], name="y"))
    assert (codes.tolist(), names) == ([1, 0, 1], ("4", "30"))
    codes, names = class_labels(pd.Series(["b", 1, "b"], name="y", dtype=object))
    assert (codes.tolist(), names) == ([1, 0, 1], ("1", "b"))
    with pytest.raises(ValueError, match=f"label_column 'y' has {MAX_CLASSES + 1} distinct values: at most {MAX_CLASSES}"):
        class_labels(pd.Series(range(MAX_CLASSES + 1), name="y"))
