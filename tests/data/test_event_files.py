"""Reading and counting events."""

import gzip
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpgen.data import events as module
from dpgen.data.events import EventColumns, count_events, event_frame, read_events

COLUMNS = EventColumns("who", "site", "clicks", "age")
ROWS = [("007", "NA", 2, "old"), ("7", "news", 0.5, "young"), ("007", "news", 1, "old")]
EXPECTED = [["007", "NA", "old", 2.0], ["7", "news", "young", 0.5], ["007", "news", "old", 1.0]]


def write(path: Path) -> str:
    table = pd.DataFrame(ROWS, columns=["who", "site", "clicks", "age"])
    name = path.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        table.to_parquet(path)
    elif name.endswith(".jsonl"):
        table.to_json(path, orient="records", lines=True)
    else:
        separator = {".csv": ",", ".tsv": "\t"}.get(Path(name).suffix, " ")
        table.to_csv(path, sep=separator, index=False)
    return str(path)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "log", "txt", "txt.gz", "jsonl", "jsonl.gz", "parquet"])
def test_every_format_gives_the_same_events(tmp_path: Path, ending: str) -> None:
    events = read_events(write(tmp_path / f"e.{ending}"), COLUMNS)
    assert events[["user", "category", "group", "weight"]].to_numpy().tolist() == EXPECTED


def test_events_count_one_each_without_a_weight(tmp_path: Path) -> None:
    events = read_events(write(tmp_path / "e.csv"), EventColumns("who", "site"))
    assert events.columns.tolist() == ["user", "category", "weight"]
    assert events["weight"].tolist() == [1.0, 1.0, 1.0]


def test_whole_numbers_as_ids_are_text(tmp_path: Path) -> None:
    pd.DataFrame({"who": [7, 8], "site": [1, 2]}).to_parquet(tmp_path / "e.parquet")
    events = read_events(str(tmp_path / "e.parquet"), EventColumns("who", "site"))
    assert events["user"].tolist() == ["7", "8"]


def test_counts_agree_with_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    users, sites = rng.integers(0, 30, 500).astype(str), rng.choice(["a", "b", "c"], 500)
    weights = rng.random(500)
    found = count_events(event_frame({"user": users, "category": sites, "weight": weights}, source="s"), "cab", source="s")
    expected: dict[tuple[str, str], float] = {}
    for user, site, weight in zip(users, sites, weights):
        expected[user, site] = expected.get((user, site), 0.0) + weight
    assert found.users == tuple(sorted(set(users), key=int))
    for i, user in enumerate(found.users):
        for j, site in enumerate("cab"):
            assert found.counts[i, j] == pytest.approx(expected.get((user, site), 0.0))


def test_users_without_weight_are_left_out_with_their_groups() -> None:
    columns = {"user": ["a", "b", "c"], "category": ["x", "x", "y"], "weight": [1, 0, 2], "group": ["1", "2", "3"]}
    found = count_events(event_frame(columns, source="s"), ["x", "y"], source="s")
    assert (found.users, found.groups) == (("a", "c"), ("1", "3"))


def test_events_of_nobody() -> None:
    nothing = event_frame({"user": ["a", "b"], "category": ["x", "y"], "weight": [0, 0]}, source="s")
    found = count_events(nothing, ["x", "y"], source="s")
    assert (found.users, found.counts.shape) == ((), (0, 2))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"category": ["x", "z", "y"]}, "s has a category that is none of the 2 public ones"),
        ({"group": ["1", "2", "1"]}, "puts a user into two groups"),
        ({"weight": [1e308, 1e308, 1]}, "add up to infinity"),
    ],
)
def test_events_that_cannot_be_counted(columns: dict[str, list[object]], said: str) -> None:
    given = {"user": ["a", "a", "b"], "category": ["x", "x", "y"]} | columns
    with pytest.raises(ValueError, match=said):
        count_events(event_frame(given, source="s"), ["x", "y"], source="s")


def test_tables_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CELLS", 3)
    events = event_frame({"user": ["a", "b"], "category": ["x", "y"]}, source="s")
    with pytest.raises(ValueError, match="2 users x 2 categories: at most 3 cells fit"):
        count_events(events, ["x", "y"], source="s")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"user": ["a", None]}, "s has no user in row 2"),
        ({"category": [float("nan"), "x"]}, "s has no category in row 1"),
        ({"category": ["x", "  "]}, "s has no category in row 2"),
        ({"user": ["a", {"id": 1}]}, r"a user of another type in row 2: it must be text or a number"),
        ({"user": [["a"], "a"]}, r"a user of another type in row 1: it must be text or a number"),
        ({"category": [b"x", b"y"]}, "a category of another type in row 1: it must be text or a number"),
        ({"group": ["a", None]}, "s has no group in row 2"),
        ({"weight": [1, None]}, "weight in row 2"),
        ({"weight": [1, "many"]}, "weight in row 2"),
        ({"weight": [-1, 1]}, "weight in row 1"),
        ({"weight": ["inf", 1]}, "weight in row 1"),
    ],
)
def test_bad_entries_are_named(columns: dict[str, list[object]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        event_frame({"user": ["a", "b"], "category": ["x", "x"]} | columns, source="s")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("e.csv", b"", "e.csv is empty"),
        ("e.csv", b"who,site,clicks,age\n", "holds no events, only a header"),
        ("e.csv", b"1,2,3\n4,5,6\n", "has no column 'who': its columns are 1, 2, 3"),
        ("e.csv", b"who,site\na,b\n", "has no column 'clicks': its columns are who, site"),
        ("e.csv", b"who,site,clicks,age\na,b,1,x,9\n", "cannot be read as csv"),
        ("e.csv", b"who,site,clicks,age\na,,1,x\n", "column 'site' has no value in row 1"),
        ("e.csv", b"\xff\xfe\x00w", "cannot be read as csv"),
        ("e.csv.gz", gzip.compress(b"who,site,clicks,age\na,b,1,x\n", mtime=0)[:-9], "cannot be read as csv"),
        ("e.jsonl", b'{"who": {"id": 1}, "site": "x", "clicks": 1, "age": 1}\n', "has a user .* it must be text or a number"),
        ("e.jsonl", b"{nonsense", "cannot be read as jsonl"),
        ("e.parquet", b"nonsense", "cannot be read as parquet"),
        ("e.xlsx", b"nonsense", "must end in one of .csv, .tsv, .log, .txt, .jsonl, .parquet"),
        ("e", b"nonsense", "cannot be read as events"),
    ],
)
def test_malformed_files_are_refused_in_one_line(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=said) as error:
        read_events(str(tmp_path / name), COLUMNS)
    assert "\n" not in str(error.value)


def test_missing_files_and_columns_named_twice() -> None:
    with pytest.raises(ValueError, match=r"path is 'absent.csv': there is no such file"):
        read_events("absent.csv", COLUMNS)
    with pytest.raises(ValueError, match="column 'who' is named for more than one of user, category"):
        read_events("absent.csv", EventColumns("who", "who"))


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_blanks_around_names_do_not_make_new_ones(tmp_path: Path, ending: str) -> None:
    table = pd.DataFrame([["ann", " x"], [" ann", "x"], ["ann ", "y z\t"]], columns=["who", "site"])
    path = tmp_path / f"e.{ending}"
    {"csv": table.to_csv, "jsonl": partial(table.to_json, orient="records", lines=True), "parquet": table.to_parquet}[ending](
        path
    )
    events = read_events(str(path), EventColumns("who", "site"))
    assert events[["user", "category"]].to_numpy().tolist() == [["ann", "x"], ["ann", "x"], ["ann", "y z"]]


def test_numbers_and_texts_are_names() -> None:
    events = event_frame({"user": pd.Series([7, "7", 1.5], dtype=object), "category": ["x"] * 3}, source="s")
    assert events["user"].tolist() == ["7", "7", "1.5"]
