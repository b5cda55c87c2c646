"""Splits by independent coins: what a line more or less in a file tells, keys that are made once, and what is refused."""

import math
import os
import stat
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from dpgen.data.points import load_points
from dpgen.data.records import load_records, load_sets
from dpgen.data.split import KEY_BYTES, People, Split, SplitOptions, await_key, needs_key, secret_key
from dpgen.facts import Fact
from dpgen.files import remove_leftovers

KEY = b"key of the tests of the split..."


@given(n=st.integers(0, 300), fraction=st.floats(0, 1, exclude_max=True), key=st.binary(min_size=32, max_size=32))
def test_a_coin_depends_on_its_position_only(n: int, fraction: float, key: bytes) -> None:
    split = Split(fraction, key)
    rows = split.test_rows(n)
    assert rows.shape == (n,)
    assert torch.equal(split.test_rows(n + 7)[:n], rows)


def test_coins_are_as_likely_as_they_say_and_independent() -> None:
    n, fraction = 200_000, 0.2
    rows = Split(fraction, KEY).test_rows(n).double()
    spread = math.sqrt(fraction * (1 - fraction) / n)
    assert abs(float(rows.mean()) - fraction) < 5 * spread
    both = float((rows[1:] * rows[:-1]).mean())
    assert abs(both - fraction**2) < 5 * math.sqrt(fraction**2 / n)
    other = Split(fraction, KEY[::-1]).test_rows(n).double()
    assert abs(float((rows * other).mean()) - fraction**2) < 5 * math.sqrt(fraction**2 / n)


def test_the_ends_of_the_fraction() -> None:
    assert not Split(0.0).test_rows(1000).any(), "with 0 all records are private"
    assert Split(math.nextafter(1.0, 0.0)).test_rows(1000).all()
    assert Split(0.5).test_rows(0).shape == (0,)
    assert Split(held_out=2).test_rows(5).tolist() == [False, False, False, True, True]
    assert not Split(held_out=0).test_rows(5).any()


def test_without_a_key_every_split_is_another_one() -> None:
    assert not torch.equal(Split().test_rows(200), Split().test_rows(200))
    assert torch.equal(Split.public(3).test_rows(200), Split.public(3).test_rows(200))
    assert not torch.equal(Split.public(3).test_rows(200), Split.public(4).test_rows(200))


@pytest.mark.parametrize("fraction", [1.0, -0.1, 2.0, math.nan])
def test_bad_fractions_are_refused(fraction: float) -> None:
    for make in (Split, SplitOptions):
        with refused(": it must be in [0, 1)"):
            make(fraction)


@pytest.mark.parametrize(
    ("options", "said"), [({"key": b"abc"}, "key has 3 bytes"), ({"people": ["a"]}, "people has length 1")]
)
def test_other_bad_splits_are_refused(options: dict[str, Any], said: str) -> None:
    with refused(said):
        Split(**options).test_rows(2)


@pytest.mark.parametrize(
    ("split", "said"),
    [
        (Split(0.25, KEY), "secret hash of its position, with probability 0.25"),
        (Split(0.25, people=["a"]), "people join them by secret hashes, with probability 0.25"),
        (Split(held_out=3), "from a file of their own"),
        (Split.public(7), "public data, split by the public seed 7"),
    ],
)
def test_the_fact_says_how_and_never_how_many(split: Split, said: str) -> None:
    sentence = split.fact("points").sentence
    assert KEY.decode() not in repr(split)
    assert said in sentence
    assert "3" not in sentence
    assert KEY.decode() not in sentence
    assert split.fact().fact is Fact.TEST_PART
    assert Split(0.0).fact().fact is Fact.NO_TEST_PART


BITS, M = 6, 3


def people_file(path: Path, persons: range, *, seed: int, gaps: bool) -> Path:
    """One to five rows of each person, which hold the number of their person in binary; first rows may have gaps."""
    person = np.array([p for p in persons for _ in range(1 + p % 5)])
    table = pd.DataFrame({f"b{i}": (person >> i & 1).astype(float) for i in range(BITS)})
    first = np.diff(person, prepend=-1) != 0
    table.loc[gaps & first & (person % 5 > 0), "b0"] = np.nan
    table["who"] = [f"p{p}" for p in person]
    table.sample(frac=1, random_state=seed).to_csv(path, index=False)
    return path


def persons_of(rows: torch.Tensor) -> list[int]:
    return [int(number) for number in (rows.long() * 2 ** torch.arange(BITS)).sum(1)]


@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "with gaps"])
@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("loader", ["records", "points"])
def test_private_rows_belong_to_their_person_who_has_at_most_m_of_them(
    tmp_path: Path, loader: str, files: int, gaps: bool
) -> None:
    """Draws of people, and shares of a person's rows, rest on who is said to own them."""
    options: dict[str, Any] = {"people": People("who", M, KEY), "missing": "drop" if gaps else "error", "split_key": None}
    options |= {"test_fraction": 0.5} if files == 1 else {}
    held = range(0) if files == 1 else range(20, 64)  # some of whom are in both files
    path = people_file(tmp_path / "a.csv", range(40), seed=1, gaps=gaps)
    if files == 2:
        options["test_path"] = str(people_file(tmp_path / "b.csv", held, seed=2, gaps=gaps))
    load = load_records if loader == "records" else partial(load_points, bounds="0,1")
    data = load(path=str(path), **options)
    private, test = Counter(persons_of(data.x)), Counter(persons_of(data.test_x))
    pairs = set(zip(persons_of(data.x), data.people.tolist()))
    assert len(data.people) == len(data.x)
    assert len(pairs) == len({person for person, _ in pairs}) == len({number for _, number in pairs})
    assert len(private) > 5
    assert len(test) > 5
    for person, used in [*private.items(), *test.items()]:
        rows = 1 + person % 5
        assert used == min(M, rows - (gaps and rows > 1)), "of complete rows as many as there are, up to m"
    if files == 1:
        assert not set(private) & set(test)
        assert set(private) | set(test) == set(range(40))
    else:
        assert (set(private), set(test)) == (set(range(40)), set(held))


def permuted(n: int, seed: int) -> torch.Tensor:
    """The broken twin: a public shuffle of all positions, as every release up to 0.3 was split."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    rows = torch.zeros(n, dtype=torch.bool)
    rows[order[: round(0.2 * n)]] = True
    return rows


def moved(with_line: torch.Tensor, without: torch.Tensor, line: int) -> int:
    """Records beside the line itself that change their part."""
    rest = torch.cat([with_line[:line], with_line[line + 1 :]])
    return int((rest != without).sum())


def test_a_line_more_tells_everything_under_a_shuffle_and_nothing_under_secret_coins() -> None:
    """An adversary who knows all records but the first line sees one sum over the training part of the others.

    Under the shuffle the two sums are known numbers, one with that line in the file and one without: they always differ,
    and the adversary is always right. Under secret coins the sum has the same law with and without the line, given that
    the line is for training: the Kolmogorov distance of two samples stays below what chance exceeds once in a million.
    """
    n, trials = 60, 2000
    values = torch.arange(1, n).double().square()

    def seen(others: torch.Tensor) -> float:
        return float(values[~others].sum())

    sums = [(seen(permuted(n, seed)[1:]), seen(permuted(n - 1, seed))) for seed in range(200)]
    assert all(there != gone for there, gone in sums), "the broken twin: the adversary is right with every seed"
    assert all(moved(permuted(n, seed), permuted(n - 1, seed), 0) > 0 for seed in range(200))

    there: list[float] = []
    while len(there) < trials:
        rows = Split().test_rows(n)
        if not rows[0]:
            there.append(seen(rows[1:]))
    gone = [seen(Split().test_rows(n - 1)) for _ in range(trials)]
    at = np.sort(np.array(there + gone))
    first, second = (np.searchsorted(np.sort(part), at, side="right") / trials for part in (there, gone))
    # Dvoretzky-Kiefer-Wolfowitz with Massart's constant, for both samples.
    assert np.abs(first - second).max() < 2 * math.sqrt(math.log(4e6) / (2 * trials))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A table of ids, two bits that spell the row, and a class, in three formats; a second one of two rows for evaluation."""
    n = 64
    bits = {f"b{j}": [(i >> j) & 1 for i in range(n)] for j in range(6)}
    table = pd.DataFrame({"id": [f"{i:03d}" for i in range(n)], **bits, "kind": ["x", "y"] * (n // 2)})
    for name, part in (("all", table), ("held", table[:2])):
        part.to_csv(tmp_path / f"{name}.csv", index=False)
        part.to_parquet(tmp_path / f"{name}.parquet")
        np.save(tmp_path / f"{name}.npy", part.drop(columns=["id", "kind"]).assign(id=range(len(part))).to_numpy())
    return tmp_path


def numbers(x: torch.Tensor) -> list[int]:
    return (x[:, :6].long() << torch.arange(6)).sum(1).tolist()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_test_records_from_a_file_of_their_own(files: Path, ending: str) -> None:
    for name in ("all", "held"):
        table = pd.read_csv(files / f"{name}.csv").drop(columns="id")
        table = table[table.columns[::-1]] if name == "held" else table
        table.to_csv(files / f"{name}.csv", index=False)
        table.to_parquet(files / f"{name}.parquet")
    path, held = str(files / f"all.{ending}"), str(files / f"held.{ending}")
    records = load_records(path=path, test_path=held, label_column="kind")
    assert numbers(records.x) == list(range(64)), "all of the file is private"
    assert numbers(records.test_x) == [0, 1], "columns are found by their names"
    assert records.test_labels is not None
    assert records.test_labels.tolist() == [0, 1]


def test_sets_from_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1 2\n3\n")
    (tmp_path / "b").write_text("2 9\n\n1\n")
    baskets = load_sets(path=str(tmp_path / "a"), test_path=str(tmp_path / "b"))
    assert baskets.columns == ["1", "2", "3"], "the items are those of the private records"
    assert baskets.test_x.tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 0]]


def test_one_line_is_a_file_and_none_is_not(tmp_path: Path) -> None:
    """How many records there are is private; a file without any has no types that could fit a schema."""
    (tmp_path / "t.csv").write_text("a,b\n0,1\n")
    for _ in range(20):
        records = load_records(path=str(tmp_path / "t.csv"), test_fraction=0.5)
        assert records.n + len(records.test_x) == 1
        points = load_points(path=str(tmp_path / "t.csv"), bounds="0,1", test_fraction=0.5)
        assert points.n + len(points.test_x) == 1
    (tmp_path / "t.csv").write_text("a,b\n")
    for load in (load_records, load_points):
        with refused("is empty"):
            load(path=str(tmp_path / "t.csv"), **({"bounds": "0,1"} if load is load_points else {}))


REFUSED = [
    ({"test_path": "held.csv", "test_fraction": 0.5}, "test_fraction is 0.5 with a test_path"),
    ({"test_path": "absent.csv"}, "test_path is 'absent.csv'"),
    ({"test_path": "other.csv"}, "other.csv has no column 'id'"),
    ({"split_key": Path("short.key"), "missing": "drop"}, "split_key 'short.key' is damaged"),
    ({"split_key": Path("no/such.key"), "missing": "drop"}, "split_key 'no/such.key' cannot be used"),
]


@pytest.mark.parametrize(("options", "match"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_what_is_refused(files: Path, options: dict[str, object], match: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    table = pd.read_csv("all.csv", dtype={"id": str}).assign(hole=["x", None] * 32)
    table.to_csv("all.csv", index=False)
    table.to_csv("held.csv", index=False)
    table.drop(columns="id").to_csv("other.csv", index=False)
    Path("short.key").write_bytes(b"abc")
    with refused(match):
        load_records(path="all.csv", label_column="kind", **options)  # type: ignore[arg-type]


def test_a_key_is_made_once_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "split.key"
    key = secret_key(path)
    assert len(key) == KEY_BYTES
    assert secret_key(path) == path.read_bytes() == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["split.key"], "nothing else is left"


def test_of_many_writers_one_wins(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: secret_key(tmp_path / "split.key"), range(64)))
    assert len(keys) == 1


def test_a_writer_that_was_killed_leaves_no_key_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt("killed")

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", killed)
        patched.setattr(Path, "unlink", killed)  # a process that is killed tidies nothing up
        with pytest.raises(KeyboardInterrupt, match="killed"):
            secret_key(tmp_path / "split.key")
    assert not (tmp_path / "split.key").exists()
    assert len(os.listdir(tmp_path)) == 1
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == []
    assert len(secret_key(tmp_path / "split.key")) == KEY_BYTES


def test_a_key_that_may_not_be_made_is_missed_by_name(tmp_path: Path) -> None:
    with refused("split.key' cannot be used"):
        secret_key(tmp_path / "split.key", create=False)
    with refused("is missing"):
        await_key(tmp_path / "split.key", seconds=0.1)


def test_other_processes_wait_for_the_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(await_key, tmp_path / "split.key", seconds=60)
        key = secret_key(tmp_path / "split.key")
        waiting.result()
    assert secret_key(tmp_path / "split.key", create=False) == key


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({"split_key": None, "test_fraction": 0.2}, True),
        ({"split_key": None, "test_fraction": 0.2, "test_path": "f"}, False),
        ({"split_key": None, "test_fraction": 0}, False),
        ({"test_fraction": 0.2, "split_seed": 0}, False),
    ],
)
def test_who_needs_a_key(options: dict[str, object], needed: bool) -> None:
    assert needs_key(options) == needed
