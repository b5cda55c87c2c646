"""Avazu logs in their own format."""

import gzip
from pathlib import Path

import pytest
import torch

from dpgen.data import ratings
from dpgen.data.ratings import NO_DEVICE, load_avazu, most_clicked, read_clicks

HEADER = (
    "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,device_ip,"
    "device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21"
)
SITES = ("1fbe01fe", "85f751fd", "NA")
ROWS = [
    ("d1", "1fbe01fe", 1, 2), ("d1", "1fbe01fe", 1, 2), ("d1", "85f751fd", 1, 0), ("d1", "NA", 0, 2),
    ("d2", "NA", 1, 2), ("d2", "85f751fd", 1, 2),
    ("d3", "85f751fd", 1, 2),
    ("d4", "NA", 0, 2),
    (NO_DEVICE, "NA", 1, 2),
]  # fmt: skip
"""device, site, click, C18"""


def write(path: Path, rows: list[tuple[str, str, int, int]] = ROWS) -> str:
    lines = [
        f"{i},{click},14102100,1005,0,{site},f3845767,28905ebd,ecad2386,7801e8d9,07d7df22,{device},ddd2926e,44956a24,1,2,"
        f"15706,320,50,1722,{c18},35,-1,79"
        for i, (device, site, click, c18) in enumerate(rows)
    ]
    text = "\n".join([HEADER, *lines]) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


@pytest.mark.parametrize("name", ["train.csv", "train.csv.gz"])
@pytest.mark.parametrize("chunk", [2, 1000])
def test_clicks_count_and_impressions_do_not(tmp_path: Path, name: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ratings, "CHUNK", chunk)
    users = load_avazu(path=write(tmp_path / name), min_clicks=2)
    assert users.categories == SITES
    assert users.user_names == ("d1", "d2")
    assert users.counts.tolist() == [[2, 1, 0], [0, 1, 1]]
    assert users.notes[-1].startswith("devices with fewer than 2 clicks"), "how many is private"
    assert users.skipped == 1, "d3; d4 has none and is not in the clicks"
    assert users.groups is None


def test_one_subcategory(tmp_path: Path) -> None:
    users = load_avazu(path=write(tmp_path / "train.csv"), min_clicks=2, value="2")
    assert users.counts.tolist() == [[2, 0, 0], [0, 1, 1]]
    assert users.name == "Avazu C18 = 2"


def test_what_was_chosen_on_the_clicks_is_said(tmp_path: Path) -> None:
    users = load_avazu(path=write(tmp_path / "train.csv"), min_clicks=1, top_sites=2)
    assert users.categories == ("1fbe01fe", "85f751fd")
    assert users.notes[0].startswith("the sites (the 2 most clicked, if there are so many) were chosen on the private clicks")
    few = load_avazu(path=write(tmp_path / "train.csv", ROWS[:4]), min_clicks=1, top_sites=2)
    assert few.notes == users.notes, "notes say the same whatever the clicks are"
    assert (users.skipped, few.skipped) == (0, 0)


def test_a_public_log_gives_sites_and_prior(tmp_path: Path) -> None:
    public = write(tmp_path / "day1.csv", [("p", "a", 1, 2), ("p", "b", 1, 2), ("p2", "b", 1, 2)])
    private = write(tmp_path / "day2.csv", [("d", "a", 1, 2), ("d", "elsewhere", 1, 2)])
    users = load_avazu(path=private, public_path=public, min_clicks=1)
    assert users.categories == ("a", "b")
    assert users.counts.tolist() == [[1, 0]]
    assert users.prior is not None
    assert users.prior.tolist() == [0.25, 0.75]
    assert not any("chosen on the private" in note for note in users.notes)


def test_a_file_of_sites_or_probabilities_is_the_domain(tmp_path: Path) -> None:
    path = write(tmp_path / "train.csv")
    (tmp_path / "sites.txt").write_text("85f751fd\n1fbe01fe\n")
    assert load_avazu(path=path, categories_path=str(tmp_path / "sites.txt"), min_clicks=1).categories[0] == "85f751fd"
    (tmp_path / "prior.csv").write_text("site_id,probability\n85f751fd,0.5\n1fbe01fe,0.5\n")
    users = load_avazu(path=path, prior_path=str(tmp_path / "prior.csv"), min_clicks=1)
    assert users.prior is not None
    torch.testing.assert_close(users.prior, torch.full((2,), 0.5, dtype=torch.float64))


def test_most_clicked_breaks_ties_by_name(tmp_path: Path) -> None:
    clicks = read_clicks(write(tmp_path / "train.csv", [("d", site, 1, 2) for site in ("b", "a", "c", "c")]), "C18")
    assert most_clicked(clicks, 2) == ("a", "c")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"attribute": "C2"}, "attribute is 'C2': it must be one of C1, C14"),
        ({"value": "9"}, "value is '9': attribute C18 of .* has 0, 2; take one of these, or another attribute"),
        ({"top_sites": 1}, "top_sites is 1: it must be >= 2"),
        ({"min_clicks": 0}, "min_clicks is 0: it must be >= 1"),
        ({"path": "absent.csv"}, "path is 'absent.csv': there is no such file"),
        ({"prior": "file"}, "prior_path must name its file"),
    ],
)
def test_options_out_of_range_are_refused(tmp_path: Path, options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        load_avazu(**({"path": write(tmp_path / "train.csv")} | options))  # type: ignore[arg-type]


def test_the_public_log_must_be_another_one_with_devices(tmp_path: Path) -> None:
    path = write(tmp_path / "train.csv")
    with pytest.raises(ValueError, match="a prior computed from them is not public"):
        load_avazu(path=path, public_path=path)
    with pytest.raises(ValueError, match="no device with min_clicks 50"):
        load_avazu(path=path, public_path=write(tmp_path / "other.csv"), min_clicks=50)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a,b\n1,2\n", "has no column 'device_id': its columns are a, b"),
        ("click,device_id,site_id,C18\n2,d,s,2\n", "has the click '2' in row 1: it must be 0 or 1"),
        ("click,device_id,site_id,C18\n0,d,s,2\n", "0 categories: at least 2 are needed"),
        ("click,device_id,site_id,C18\n", "is empty: it has no impression"),
        ("", "is empty"),
    ],
)
def test_malformed_logs_are_refused(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "train.csv").write_text(content)
    with pytest.raises(ValueError, match=said) as error:
        load_avazu(path=str(tmp_path / "train.csv"))
    assert "\n" not in str(error.value)


def test_how_many_devices_click_is_no_reason_to_refuse(tmp_path: Path) -> None:
    (tmp_path / "sites").write_text("a\nb\n")
    path = write(tmp_path / "train.csv", [("d", "a", 0, 2)])
    for options in ({}, {"min_clicks": 99}):
        assert load_avazu(path=path, categories_path=str(tmp_path / "sites"), **options).u == 0
