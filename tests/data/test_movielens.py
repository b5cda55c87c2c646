"""MovieLens in its own formats."""

import gzip
from pathlib import Path

import movielens_files as files
import pytest
import torch

from dpgen.data.ratings import GENRES, load_movielens

EXPECTED = {
    "1": {"Animation": 5.0, "Drama": 3.0, "Comedy": 2.0},
    "2": {"Drama": 4.0},
    "3": {"Comedy": 2.0, "Animation": 2.0},
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files.write_100k(tmp_path, [*files.RATINGS, ("2", "9", 1)])
    files.write_1m(tmp_path)
    return tmp_path


@pytest.mark.parametrize("version", ["100k", "1m"])
def test_ratings_are_summed_over_the_primary_genre(root: Path, version: str) -> None:
    users = load_movielens(data_root=str(root), version=version)
    assert users.user_names == ("1", "2", "3")
    assert users.categories == GENRES
    for name, counts in zip(users.user_names, users.counts):
        assert {GENRES[j]: float(counts[j]) for j in counts.nonzero().flatten()} == EXPECTED[name], "no genre, no count"
    assert users.groups == ("18-24", "50-55", "under 18")
    assert users.skipped == 1
    for group, skipped in (("18-24", 0), ("25-34", 1)):
        assert (users.skipped_groups or ()).count(group) == skipped
    assert load_movielens(data_root=str(root), version=version, age_group="18-24").skipped == 0


def test_age_groups_agree_between_the_versions(root: Path) -> None:
    assert load_movielens(data_root=str(root), version="100k").groups == load_movielens(data_root=str(root)).groups


def test_the_other_version_is_the_public_prior(root: Path) -> None:
    users = load_movielens(data_root=str(root), prior="public")
    public = load_movielens(data_root=str(root), version="100k").distributions.mean(0)
    assert users.prior is not None
    torch.testing.assert_close(users.prior, public, rtol=0, atol=1e-15)
    assert users.prior_origin == "public table MovieLens 100K"
    one = load_movielens(data_root=str(root), prior="public", age_group="50-55")
    assert one.user_names == ("2",)
    assert one.prior is not None
    assert float(one.prior[GENRES.index("Drama")]) == 1.0


def test_compressed_files_and_the_environment_variable(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = root / "ml-1m" / "ratings.dat"
    path.with_name("ratings.dat.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    monkeypatch.setenv("DPGEN_DATA", str(root))
    assert load_movielens().u == 3


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("ratings.dat", "1::1::5\n", r"3 fields in line 1: it must have 4"),
        ("ratings.dat", "1::1::5::9\n1::2::3\n", r"3 fields in line 2"),
        ("ratings.dat", "1::7::5::9\n", r"line 1\) with movie '7'"),
        ("ratings.dat", "8::1::5::9\n", r"line 1\) with user '8'"),
        ("ratings.dat", "1::1::-5::9\n", r"weight '-5' in row 1"),
        ("ratings.dat", "1::1::nan::9\n", r"weight 'nan' in row 1"),
        ("ratings.dat", "", r"ratings.dat is empty"),
        ("users.dat", "1::F::old::10::48067\n", r"age 'old' for user 1"),
        ("movies.dat", "1::x::Jazz\n2::x::Drama\n3::x::War\n", r"category 'Jazz'"),
        ("movies.dat", "1|x|Drama\n", r"1 fields in line 1"),
    ],
)
def test_malformed_files_are_refused(root: Path, file: str, content: str, said: str) -> None:
    (root / "ml-1m" / file).write_text(content)
    with pytest.raises(ValueError, match=said) as error:
        load_movielens(data_root=str(root))
    assert "\n" not in str(error.value)


def test_flags_must_be_flags(root: Path) -> None:
    path = root / "ml-100k" / "u.item"
    path.write_bytes(path.read_bytes().replace(b"|1|", b"|2|"))
    with pytest.raises(ValueError, match="must be flags"):
        load_movielens(data_root=str(root), version="100k")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"age_group": "teen"}, "age_group is 'teen': it must be one of under 18, 18-24"),
        ({"age_group": "25-34"}, "must be one of 18-24, 50-55, under 18"),
        ({"age_group": "25-34", "prior": "public"}, "no public prior"),
        ({"prior": "public", "prior_path": "x.csv"}, "that is for prior=file"),
        ({"data_root": "absent"}, "ratings.dat is missing, plain and .gz"),
    ],
)
def test_options_out_of_range_are_refused(root: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        load_movielens(**({"data_root": str(root)} | options))


def test_a_folder_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPGEN_DATA", raising=False)
    with pytest.raises(ValueError, match="data_root is not set and neither is DPGEN_DATA"):
        load_movielens()


def test_ratings_of_movies_without_a_genre_are_of_nobody(root: Path) -> None:
    movies = "".join(f"{number}::x::(no genres listed)\n" for number in (1, 2, 3))
    (root / "ml-1m" / "movies.dat").write_text(movies)
    assert load_movielens(data_root=str(root)).u == 0
