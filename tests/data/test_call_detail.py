"""The simulated city: Table I's shape, near towers together, the same users in chunks of any stream."""

import numpy as np
import pytest
import torch

from dpgen.data import call_detail
from dpgen.data.call_detail import MEAN_TOWERS, MOST_TOWERS, TOWERS, CallDetail, load_call_detail


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
    assert 1 + (1 - call_detail._size_edges()).sum() == pytest.approx(MEAN_TOWERS, abs=1e-6)
    capped = 1 - call_detail._size_edges()[-1]
    assert 10 < capped * call_detail.USERS < 1000, "some of all users reach the cap"


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
    users, towers = call_detail._distinct(user, tower, wanted)
    assert list(zip(users.tolist(), towers.tolist())) == [(u, t) for u in range(5) for t in kept[u]]


def test_records_in_memory() -> None:
    records = load_call_detail(n_users=500, public_records=10)
    assert (records.n, len(records.test_x), records.d) == (394, 96, TOWERS)
    assert "simulated" in records.notes[0]


@pytest.mark.parametrize("n_users", [0, call_detail.USERS + 1])
def test_too_few_or_too_many_users(n_users: int) -> None:
    with pytest.raises(ValueError, match=f"n_users is {n_users}: it must be in"):
        CallDetail(n_users)


def test_more_than_a_table_holds() -> None:
    with pytest.raises(ValueError, match="read CallDetail in chunks"):
        load_call_detail(n_users=4_000_000)
