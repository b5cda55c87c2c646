"""Data of the papers' figures."""

from pathlib import Path
from typing import Literal

import movielens_files
import pandas as pd
import pytest
import torch

from papers import data
from papers.data import (
    GENRES,
    MEAN_TOWERS,
    MOST_TOWERS,
    NO_DEVICE,
    TOWERS,
    click_users,
    load_call_detail,
    load_cms,
    load_higgs,
    load_movielens,
    read_clicks,
)


def test_the_simulated_city_has_the_shape_of_the_table() -> None:
    records = load_call_detail(n_users=4000)
    x = torch.cat([records.x, records.test_x])
    sizes = x.sum(1, dtype=torch.int64).double()
    assert x.shape == (4000, TOWERS)
    assert 680 < len(records.test_x) < 920
    assert float(sizes.mean()) == pytest.approx(MEAN_TOWERS, abs=0.5)
    assert 1 <= float(sizes.min()) < float(sizes.max()) <= MOST_TOWERS
    users = x.sum(0, dtype=torch.int64).double()
    assert float(users.std() / users.mean()) == pytest.approx(50_911 / 38_817, rel=0.2), "spread of users over towers"
    assert 1 + (1 - data.size_edges()).sum() == pytest.approx(MEAN_TOWERS, abs=1e-6)
    share = x.double().mean(0)
    together = (x.float().T @ x.float()).double() / len(x) / (share[:, None] * share).clamp_min(1e-12)
    assert float(together.fill_diagonal_(0).max(1).values.median()) > 3, "near towers go together"


@pytest.mark.parametrize("version", ["100k", "1m"])
def test_ratings_are_summed_over_the_first_genre(tmp_path: Path, version: Literal["100k", "1m"]) -> None:
    movielens_files.write_100k(tmp_path, [*movielens_files.RATINGS, ("2", "9", 1)])
    movielens_files.write_1m(tmp_path)
    users = load_movielens(tmp_path, version)
    assert (users.user_names, users.groups) == (("1", "2", "3"), ("18-24", "50-55", "under 18"))
    found = [{GENRES[j]: float(row[j]) for j in row.nonzero().flatten()} for row in users.counts]
    first = {"Animation": 5.0, "Drama": 3.0, "Comedy": 2.0}
    assert found == [first, {"Drama": 4.0}, {"Comedy": 2.0, "Animation": 2.0}], "no genre, no count"


def test_devices_are_chosen_on_the_most_clicked_sites(tmp_path: Path) -> None:
    rows = [("x", "a", 1)] * 3 + [("x", "b", 1)] + [("y", "b", 1)] * 2 + [("z", "c", 1)] + [(NO_DEVICE, "c", 1)] * 9
    frame = pd.DataFrame([*rows, ("x", "a", 0)], columns=["device_id", "site_id", "click"]).assign(C18="2")
    frame.to_csv(tmp_path / "train.csv.gz", index=False)
    clicks = read_clicks(tmp_path / "train.csv.gz", "C18")
    users = click_users("tiny", clicks, top_sites=2, min_clicks=2)
    assert users is not None
    assert (users.user_names, users.categories, users.counts.tolist()) == (("x", "y"), ("a", "b"), [[3, 1], [0, 2]])
    assert users.prior is not None
    assert users.prior.tolist() == [0.375, 0.625]
    assert click_users("tiny", clicks, top_sites=1, min_clicks=1) is None


def test_momenta_keep_their_digits(tmp_path: Path) -> None:
    for folder, name, column in [("cms_lepton_pt", "cms_lepton_pt", "pt"), ("higgs_11k", "higgs", "lepton_pT")]:
        (tmp_path / folder).mkdir()
        pd.DataFrame({column: [4.26219, 4.369669999999999]}).to_csv(tmp_path / folder / f"{name}.csv.gz", index=False)
    for columns in (load_cms(data_root=str(tmp_path)), load_higgs(data_root=str(tmp_path))):
        assert next(iter(columns.values.values())).tolist() == [4262190000, 4369670000]
