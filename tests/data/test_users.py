"""Users and their distributions; users from logs: events of every format, counts, public priors, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from refusals import refused

from dpgen.columns.forms import natural_order
from dpgen.data import users as module
from dpgen.data.users import (
    NEAR,
    PEAKED,
    UNIFORM,
    EventColumns,
    Users,
    count_events,
    event_frame,
    load_events,
    load_synthetic_users,
    normalised,
    public_average,
    read_events,
)
from dpgen.facts import Fact


def users(**changes: Any) -> Users:
    given: dict[str, Any] = {
        "name": "tiny",
        "counts": torch.tensor([[1.0, 3.0, 0.0], [0.0, 0.0, 2.0]], dtype=torch.float64),
        "user_names": ("ann", "bob"),
        "categories": ("a", "b", "c"),
        "groups": ("old", "young"),
    }
    return Users(**(given | changes))


def test_rows_are_distributions() -> None:
    assert users().distributions.tolist() == [[0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]
    assert (users().u, users().n) == (2, 3)


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e308])
def test_counts_of_any_size_are_normalised(scale: float) -> None:
    counts = torch.tensor([[1.0, 1.0, 0.5]], dtype=torch.float64) * scale
    torch.testing.assert_close(normalised(counts), torch.tensor([[0.4, 0.4, 0.2]], dtype=torch.float64))


def test_the_representation_shows_no_value_and_no_name() -> None:
    assert repr(users()) == "Users('tiny': 2 users, 3 categories, 2 groups, prior: uniform)"


def test_a_prior_is_renormalised_and_may_have_zeros() -> None:
    prior = users(prior=torch.tensor([0.5 + 5e-7, 0.5, 0.0]), prior_origin="file").prior
    assert prior is not None
    assert prior.dtype == torch.float64
    assert float(prior.sum()) == pytest.approx(1, abs=1e-15)


def test_how_many_users_there_are_is_no_reason_to_refuse() -> None:
    nobody = users(counts=torch.zeros(0, 3, dtype=torch.float64), user_names=(), groups=())
    assert (nobody.u, nobody.distributions.shape) == (0, (0, 3))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"counts": torch.zeros(2, 3)}, "torch.float32"),
        ({"counts": torch.zeros(3, dtype=torch.float64)}, "shape (3,)"),
        ({"counts": torch.ones(2, 1, dtype=torch.float64)}, "1 categories"),
        ({"counts": torch.tensor([[1.0, 1, 1], [1, -2, 1]], dtype=torch.float64)}, "row 2, column 2"),
        ({"counts": torch.tensor([[1.0, 1, 1], [1, 1, float("nan")]], dtype=torch.float64)}, "row 2, column 3"),
        ({"counts": torch.tensor([[1.0, 1, 1], [0, 0, 0]], dtype=torch.float64)}, "no events in row 2"),
        ({"user_names": ("ann",)}, "user_names has length 1"),
        ({"user_names": ("ann", "ann")}, "user_names names 'ann' more than once"),
        ({"categories": ("a", "b", "b")}, "categories names 'b' more than once"),
        ({"groups": ("old",)}, "groups has length 1, there are 2 users"),
        ({"prior_origin": "file"}, "prior is missing but prior_origin is 'file'"),
        ({"prior": torch.ones(3) / 3, "prior_origin": UNIFORM}, "prior is given but prior_origin is 'uniform'"),
        ({"prior": torch.ones(2) / 2, "prior_origin": "file"}, "prior has shape (2,)"),
        ({"prior": torch.ones(3), "prior_origin": "file"}, "prior sums to 3"),
        ({"prior": torch.tensor([0.5, 0.5 + 1.1e-6, 0]).double(), "prior_origin": "file"}, "must sum to 1"),
        ({"prior": torch.tensor([1.5, -0.5, 0]), "prior_origin": "file"}, "prior has -0.5 in entry 2"),
        ({"prior": torch.tensor([1.0, float("nan"), 0]), "prior_origin": "file"}, "prior has nan in entry 2"),
        ({"prior": torch.tensor([float("inf"), 0, 0]), "prior_origin": "file"}, "prior has inf in entry 1"),
    ],
)
def test_bad_users_are_refused_in_one_line(changes: dict[str, Any], said: str) -> None:
    with refused(said):
        users(**changes)


def test_names_in_natural_order() -> None:
    names = ["10", "9", "b", "²", "1" * 200, "a"]
    assert sorted(names, key=natural_order) == ["9", "10", "1" * 200, "a", "b", "²"]


def test_the_two_regimes() -> None:
    users = load_synthetic_users(n_categories=20, n_users=31)
    assert users.prior is not None
    distance = 0.5 * (users.distributions - users.prior).abs().sum(1)
    far = distance[[group == PEAKED for group in users.groups or ()]]
    near = distance[[group == NEAR for group in users.groups or ()]]
    assert (len(far), len(near)) == (16, 15)
    assert far[-1] == pytest.approx(1 - float(users.prior[0]))
    assert near.max() < far[8:].min()


def test_the_same_seed_gives_the_same_users() -> None:
    first, second, other = (load_synthetic_users(data_seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.counts, second.counts)
    assert not torch.equal(first.counts, other.counts)


@pytest.mark.parametrize("option", ["n_categories", "n_users"])
def test_at_least_two_of_each(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} is 1: it must be >= 2"):
        load_synthetic_users(**{option: 1})


COLUMNS = EventColumns("who", "site", "clicks", "age")
ROWS = [("007", "NA", 2, "old"), ("7", "news", 0.5, "young"), ("007", "news", 1, "old")]
EXPECTED = [["007", "NA", "old", 2.0], ["7", "news", "young", 0.5], ["007", "news", "old", 1.0]]


def write(path: Path) -> str:
    table = pd.DataFrame(ROWS, columns=["who", "site", "clicks", "age"])
    name = path.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        table.to_parquet(path)
    else:
        separator = {".csv": ",", ".tsv": "\t"}.get(Path(name).suffix, " ")
        table.to_csv(path, sep=separator, index=False)
    return str(path)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "parquet"])
def test_every_format_gives_the_same_events(tmp_path: Path, ending: str) -> None:
    events = read_events(write(tmp_path / f"e.{ending}"), COLUMNS)
    assert events[["user", "category", "group", "weight"]].to_numpy().tolist() == EXPECTED


def test_events_count_one_each_without_a_weight_and_ids_are_text(tmp_path: Path) -> None:
    pd.DataFrame({"who": [7, 8], "site": [1, 2]}).to_parquet(tmp_path / "e.parquet")
    events = read_events(str(tmp_path / "e.parquet"), EventColumns("who", "site"))
    assert events.to_dict("list") == {"user": ["7", "8"], "category": ["1", "2"], "weight": [1.0, 1.0]}
    mixed = event_frame({"user": pd.Series([7, "7", 1.5], dtype=object), "category": ["x"] * 3}, source="s")
    assert mixed["user"].tolist() == ["7", "7", "1.5"]


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
    nobody = count_events(event_frame(columns | {"weight": [0, 0, 0]}, source="s"), ["x", "y"], source="s")
    assert (nobody.users, nobody.counts.shape) == ((), (0, 2))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"category": ["x", "z", "y"]}, "s has a category that is none of the 2 public ones"),
        ({"group": ["1", "2", "1"]}, "puts a user into two groups"),
        ({"weight": [1e308, 1e308, 1]}, "add up to infinity"),
    ],
)
def test_events_that_cannot_be_counted(columns: dict[str, list[object]], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"user": ["a", "a", "b"], "category": ["x", "x", "y"]} | columns
    with refused(said):
        count_events(event_frame(given, source="s"), ["x", "y"], source="s")
    monkeypatch.setattr(module, "MAX_CELLS", 3)
    with refused("2 users x 2 categories"):
        count_events(event_frame({"user": ["a", "b"], "category": ["x", "y"]}, source="s"), ["x", "y"], source="s")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"user": ["a", None]}, "s has no user in row 2"),
        ({"category": [float("nan"), "x"]}, "s has no category in row 1"),
        ({"category": ["x", "  "]}, "s has no category in row 2"),
        ({"user": ["a", {"id": 1}]}, "a user of another type in row 2"),
        ({"user": [["a"], "a"]}, "a user of another type in row 1"),
        ({"category": [b"x", b"y"]}, "a category of another type in row 1"),
        ({"group": ["a", None]}, "s has no group in row 2"),
        ({"weight": [1, None]}, "weight in row 2"),
        ({"weight": [1, "many"]}, "weight in row 2"),
        ({"weight": [-1, 1]}, "weight in row 1"),
        ({"weight": ["inf", 1]}, "weight in row 1"),
    ],
)
def test_bad_entries_are_named(columns: dict[str, list[object]], said: str) -> None:
    with refused(said):
        event_frame({"user": ["a", "b"], "category": ["x", "x"]} | columns, source="s")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_blanks_around_names_do_not_make_new_ones(tmp_path: Path, ending: str) -> None:
    table = pd.DataFrame([["ann", " x"], [" ann", "x"], ["ann ", "y z\t"]], columns=["who", "site"])
    path = tmp_path / f"e.{ending}"
    {"csv": table.to_csv, "parquet": table.to_parquet}[ending](path)
    events = read_events(str(path), EventColumns("who", "site"))
    assert events[["user", "category"]].to_numpy().tolist() == [["ann", "x"], ["ann", "x"], ["ann", "y z"]]


LOG = "user_id,site,n,age\nb,news,1,old\na,shop,3,young\na,news,1,young\nc,shop,0,old\n"


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "clicks.csv").write_text(LOG)
    return str(tmp_path / "clicks.csv")


def test_users_with_groups_and_weights(path: str) -> None:
    users = load_events(path=path, user="user_id", category="site", weight="n", group="age")
    assert (users.name, users.user_names, users.categories) == ("clicks", ("a", "b"), ("news", "shop"))
    assert users.distributions.tolist() == [[0.25, 0.75], [1.0, 0.0]]
    assert users.groups == ("young", "old")
    assert users.prior is None
    assert users.facts == (Fact.READ_CATEGORIES,)


def test_public_categories_need_no_note(path: str, tmp_path: Path) -> None:
    (tmp_path / "sites.txt").write_text("shop\n\nmail\nnews\n")
    users = load_events(path=path, user="user_id", category="site", categories_path=str(tmp_path / "sites.txt"))
    assert users.categories == ("shop", "mail", "news")
    assert users.counts.tolist() == [[1, 0, 1], [0, 0, 1], [1, 0, 0]]
    assert Fact.READ_CATEGORIES not in tiny.told(users)


def test_the_prior_of_a_public_table(path: str, tmp_path: Path) -> None:
    (tmp_path / "survey.csv").write_text("user_id,site,n,age\np,news,1,old\nq,shop,1,young\nr,mail,1,old\n")
    options = {"user": "user_id", "category": "site", "weight": "n", "group": "age"}
    users = load_events(path=path, public_path=str(tmp_path / "survey.csv"), **options)
    assert users.categories == ("mail", "news", "shop")
    assert users.prior is not None
    assert users.prior.tolist() == pytest.approx([1 / 3] * 3)
    assert users.prior_origin == "public table survey.csv"


def test_a_file_of_probabilities_is_prior_and_domain(path: str, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("site,probability\nshop,0.75\nnews,0.25\n")
    users = load_events(path=path, user="user_id", category="site", prior_path=str(tmp_path / "p.csv"))
    assert users.categories == ("shop", "news")
    assert users.prior is not None
    assert users.prior.tolist() == [0.75, 0.25]
    assert users.prior_origin == "file p.csv"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"public_path": "a/../clicks.csv"}, "a prior computed from them is not public"),
        ({"prior_path": "p.csv", "public_path": "t.csv"}, "give one of them"),
        ({"user": "site"}, "column 'site' is named for more than one of user, category"),
        ({"path": "one.csv"}, "1 categories"),
        ({"categories_path": "sites.txt"}, "none of the 2 public"),
        ({"categories_path": "absent"}, "categories_path is 'absent'"),
        ({"categories_path": "one.txt"}, "one.txt names 1 categories"),
        ({"categories_path": "twice.txt"}, "twice.txt names category 'shop' more than once"),
        ({"categories_path": "bytes.txt"}, "byte 0 is not UTF-8"),
        ({"prior_path": "twice.csv"}, "twice.csv names category 'a' more than once"),
        ({"prior_path": "few.csv"}, "few.csv sums to 0.9"),
        ({"prior_path": "negative.csv"}, "weight in row 2"),
        ({"prior_path": "share.csv"}, "share.csv has no column 'probability'"),
        ({"prior_path": "prior.csv", "categories_path": "sites.txt"}, "prior.csv has the category 'z'"),
    ],
)
def test_what_is_wrong_is_refused(
    path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, rows in (
        ("twice", ["a,0.5", "a,0.5"]),
        ("few", ["a,0.5", "b,0.4"]),
        ("negative", ["a,1.5", "b,-0.5"]),
        ("prior", ["z,1"]),
    ):
        Path(f"{name}.csv").write_text("\n".join(["site,probability", *rows]))
    Path("share.csv").write_text("site,share\na,1\n")
    Path("one.csv").write_text("user_id,site\na,x\n")
    for name, content in (("sites", b"shop\nmail\n"), ("one", b"shop\n"), ("twice", b"shop\nshop\n"), ("bytes", b"\xff\xfe")):
        Path(f"{name}.txt").write_bytes(content)
    with refused(said):
        load_events(**{"path": "clicks.csv", "user": "user_id", "category": "site"} | options)


def test_the_average_counts_users_and_not_events() -> None:
    columns = {"user": ["busy"] * 3 + ["calm"], "category": ["x", "x", "x", "y"], "group": ["1", "1", "2", "1"]}
    assert public_average(event_frame(columns, source="t"), ["x", "y", "z"], source="t").tolist() == [0.5, 0.5, 0.0]
