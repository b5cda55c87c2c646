"""Public priors from files and tables."""

from pathlib import Path

import pytest

from dpgen.data.events import aligned_prior, chosen_prior, event_frame, prior_from_file, public_average


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, "uniform"),
        ({"prior": "uniform"}, "uniform"),
        ({"prior": "private"}, "private"),
        ({"prior_path": "p.csv"}, "file"),
        ({"prior": "file", "prior_path": "p.csv"}, "file"),
        ({"public_path": "t.csv"}, "public"),
    ],
)
def test_the_file_that_is_given_says_which_prior(options: dict[str, str], kind: str) -> None:
    given = {"prior": None, "prior_path": None, "public_path": None} | options
    assert chosen_prior(given.pop("prior"), private_path="x.csv", **given) == kind  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prior": "file"}, "prior is 'file': prior_path must name its file"),
        ({"prior": "public"}, "prior is 'public': public_path must name its file"),
        ({"prior": "uniform", "prior_path": "p.csv"}, "prior is 'uniform' but prior_path is 'p.csv': that is for prior=file"),
        ({"prior": "private", "public_path": "p.csv"}, "that is for prior=public"),
        ({"prior_path": "p.csv", "public_path": "t.csv"}, "give one of them"),
        ({"public_path": "a/../x.csv"}, "the table of the private users: .* use prior=private, which pays for it"),
    ],
)
def test_contradictions_are_refused(options: dict[str, str], said: str) -> None:
    given = {"prior": None, "prior_path": None, "public_path": None} | options
    with pytest.raises(ValueError, match=said):
        chosen_prior(given.pop("prior"), private_path="x.csv", **given)  # type: ignore[arg-type]


def test_a_file_of_probabilities(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("site,probability\nb,0.75\na,0.25\n")
    found = prior_from_file(str(tmp_path / "p.csv"), "site")
    assert list(found.items()) == [("b", 0.75), ("a", 0.25)]
    assert aligned_prior(found, ["a", "b", "c"], source="p.csv").tolist() == [0.25, 0.75, 0.0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("site,probability\na,0.5\na,0.5\n", "names category 'a' more than once"),
        ("site,probability\na,0.5\nb,0.4\n", "sums to 0.9: it must sum to 1"),
        ("site,probability\na,1.5\nb,-0.5\n", "weight in row 2"),
        ("site,share\na,1\n", "has no column 'probability'"),
    ],
)
def test_bad_files_of_probabilities(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "p.csv").write_text(content)
    with pytest.raises(ValueError, match=said):
        prior_from_file(str(tmp_path / "p.csv"), "site")


def test_an_unknown_category_of_a_prior_is_refused() -> None:
    with pytest.raises(ValueError, match=r"p.csv has the category 'z': it is none of the 2 public"):
        aligned_prior({"z": 1.0}, ["a", "b"], source="p.csv")


def test_the_average_counts_users_and_not_events() -> None:
    columns = {"user": ["busy"] * 3 + ["calm"], "category": ["x", "x", "x", "y"], "group": ["1", "1", "2", "1"]}
    assert public_average(event_frame(columns, source="t"), ["x", "y", "z"], source="t").tolist() == [0.5, 0.5, 0.0]
