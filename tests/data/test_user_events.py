"""Users from logs."""

from pathlib import Path

import pytest
import tiny

from dpgen.data.events import load_events, read_categories
from dpgen.facts import Fact

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
    assert users.skipped == 1
    assert users.prior is None
    assert users.facts == (Fact.READ_CATEGORIES,)
    for only, skipped in (("young", 0), ("old", 1)):
        part = load_events(path=path, user="user_id", category="site", weight="n", group="age", only_group=only)
        assert part.skipped == skipped, "c is old"


def test_public_categories_need_no_note(path: str, tmp_path: Path) -> None:
    (tmp_path / "sites.txt").write_text("shop\n\nmail\nnews\n")
    users = load_events(path=path, user="user_id", category="site", categories_path=str(tmp_path / "sites.txt"))
    assert users.categories == ("shop", "mail", "news")
    assert users.counts.tolist() == [[1, 0, 1], [0, 0, 1], [1, 0, 0]]
    assert Fact.READ_CATEGORIES not in tiny.told(users)


def test_an_unknown_category_is_an_error(path: str, tmp_path: Path) -> None:
    (tmp_path / "sites.txt").write_text("shop\nmail\n")
    with pytest.raises(ValueError, match="none of the 2 public"):
        load_events(path=path, user="user_id", category="site", categories_path=str(tmp_path / "sites.txt"))


def test_the_prior_of_a_public_table_of_one_group(path: str, tmp_path: Path) -> None:
    (tmp_path / "survey.csv").write_text("user_id,site,n,age\np,news,1,old\nq,shop,1,young\nr,mail,1,old\n")
    options = {"user": "user_id", "category": "site", "weight": "n", "group": "age"}
    users = load_events(path=path, public_path=str(tmp_path / "survey.csv"), **options)
    assert users.categories == ("mail", "news", "shop")
    assert users.prior is not None
    assert users.prior.tolist() == pytest.approx([1 / 3] * 3)
    assert users.prior_origin == "public table survey.csv"
    with pytest.raises(ValueError, match="has no events of only_group 'teen'"):
        load_events(path=path, public_path=str(tmp_path / "survey.csv"), only_group="teen", **options)
    (tmp_path / "sites.txt").write_text("shop\nmail\nnews\n")
    options |= {"categories_path": str(tmp_path / "sites.txt"), "only_group": "old"}
    users = load_events(path=path, public_path=str(tmp_path / "survey.csv"), **options)
    assert users.user_names == ("b",)
    assert users.prior is not None
    assert users.prior.tolist() == [0.0, 0.5, 0.5]


def test_a_file_of_probabilities_is_prior_and_domain(path: str, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("site,probability\nshop,0.75\nnews,0.25\n")
    users = load_events(path=path, user="user_id", category="site", prior_path=str(tmp_path / "p.csv"))
    assert users.categories == ("shop", "news")
    assert users.prior is not None
    assert users.prior.tolist() == [0.75, 0.25]
    assert users.prior_origin == "file p.csv"


def test_a_private_prior_is_left_to_who_can_pay(path: str) -> None:
    users = load_events(path=path, user="user_id", category="site", prior="private")
    assert (users.prior, users.prior_origin) == (None, "private histogram")


def test_a_prior_from_the_private_table_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="a prior computed from them is not public"):
        load_events(path=path, user="user_id", category="site", public_path=path)


def test_one_group_needs_groups(path: str) -> None:
    with pytest.raises(ValueError, match="only_group is 'old' but group names no column"):
        load_events(path=path, user="user_id", category="site", only_group="old")


def test_one_category_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("user,category\na,x\n")
    with pytest.raises(ValueError, match="1 categories: at least 2 are needed"):
        load_events(path=str(tmp_path / "e.csv"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"one\n", "names 1 categories: at least 2"),
        (b"one\ntwo\none\n", "names category 'one' more than once"),
        (b"\xff\xfe", "byte 0 is not UTF-8"),
    ],
)
def test_bad_files_of_categories(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "sites.txt").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_categories(str(tmp_path / "sites.txt"))
    with pytest.raises(ValueError, match="categories_path is 'absent'"):
        read_categories("absent")
