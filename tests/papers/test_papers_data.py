"""Data of the papers' figures."""

from pathlib import Path
from typing import Literal

import movielens_files
import numpy as np
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
    CallDetail,
    click_users,
    load_call_detail,
    load_cms,
    load_higgs,
    load_movielens,
    read_clicks,
)


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.cat([visits.dense() for visits in CallDetail(16_384)])


def test_it_has_the_shape_of_the_table(x: torch.Tensor) -> None:
    sizes = x.sum(1, dtype=torch.int64).double()
    assert x.shape == (16_384, TOWERS)
    assert float(sizes.mean()) == pytest.approx(MEAN_TOWERS, abs=0.5)
    assert float(sizes.min()) >= 1
    assert float(sizes.max()) <= MOST_TOWERS
    users = x.sum(0, dtype=torch.int64).double()
    assert float(users.std() / users.mean()) == pytest.approx(50_911 / 38_817, rel=0.15), "spread of users over towers"


def test_the_law_of_sizes_has_the_mean_and_the_maximum_of_the_table() -> None:
    assert 1 + (1 - data._size_edges()).sum() == pytest.approx(MEAN_TOWERS, abs=1e-6)
    capped = 1 - data._size_edges()[-1]
    assert 10 < capped * data.USERS < 1000, "some of all users reach the cap"


def test_near_towers_go_together(x: torch.Tensor) -> None:
    share = x.double().mean(0)
    together = (x.float().T @ x.float()).double() / len(x) / (share[:, None] * share).clamp_min(1e-12)
    city = CallDetail()
    distance = torch.from_numpy(np.linalg.norm(city.positions[:, None] - city.positions, axis=2))
    near, far = ((distance > low) & (distance < high) for low, high in ((0, 0.5), (4, 20)))
    assert float(together[near].mean()) > 2 * float(together[far].mean())


def test_a_stream_can_be_read_again_and_begins_like_a_longer_one() -> None:
    city = CallDetail(17_000)
    first, again, longer = (list(CallDetail(n)) for n in (17_000, 17_000, 18_000))
    assert [len(visits.offsets) - 1 for visits in first] == [16_384, 616]
    for one, other in zip(first, again):
        assert torch.equal(one.towers, other.towers)
    assert torch.equal(first[0].towers, longer[0].towers)
    assert torch.equal(longer[1].dense()[:616], first[1].dense())
    dense, labels = next(iter(city.batches()))
    assert labels is None
    assert dense.dtype == torch.float32
    assert not torch.equal(next(iter(CallDetail(17_000, seed=1))).towers[:100], first[0].towers[:100])


def test_distinct_keeps_the_first_towers_of_every_user() -> None:
    generator = np.random.default_rng(0)
    user, tower = generator.integers(5, size=60), generator.integers(8, size=60)
    wanted = np.array([1, 2, 3, 8, 0])
    kept: dict[int, list[int]] = {u: [] for u in range(5)}
    for u, t in zip(user.tolist(), tower.tolist()):
        if t not in kept[u] and len(kept[u]) < wanted[u]:
            kept[u].append(t)
    users, towers = data._distinct(user, tower, wanted)
    assert list(zip(users.tolist(), towers.tolist())) == [(u, t) for u in range(5) for t in kept[u]]


def test_records_in_memory() -> None:
    records = load_call_detail(n_users=500)
    assert (records.n + len(records.test_x), records.d) == (500, TOWERS)
    assert 60 < len(records.test_x) < 140


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
