"""The parts of DP k-means against slow twins: exact features, sums and assignments, shrinking, splitting, seeding."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dpgen.systems.kmeans import fit
from dpgen.systems.kmeans.fit import (
    NORM,
    Centres,
    FeatureSpace,
    RandomFourierFeatures,
    cluster_sums,
    split_largest,
    update_centres,
)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fourier(m: int = 784) -> RandomFourierFeatures:
    return RandomFourierFeatures(m, 200, gamma=0.01, generator=torch.Generator().manual_seed(0))


# -- features and assignment -------------------------------------------------------------------------------------------


def test_features_never_exceed_the_bound_and_short_ones_are_untouched() -> None:
    x = torch.cat([normal(500, 7).float() * 100, torch.zeros(1, 7), 0.1 * torch.eye(7)])
    space = FeatureSpace(norm_bound=1.5)
    whole, z = space.whole(x), space(x)
    assert z.dtype == torch.float64
    assert torch.equal(whole, whole.trunc())
    assert all(sum(int(v) ** 2 for v in row) <= 2**46 for row in whole.tolist())
    torch.testing.assert_close(z[500:], x[500:].double(), atol=1.5 / NORM, rtol=0)
    direction = torch.nn.functional.cosine_similarity(z[:500], x[:500].double())
    torch.testing.assert_close(direction, torch.ones(500, dtype=torch.float64))


def test_nearest_is_brute_force() -> None:
    x, centres = normal(300, 5), normal(4, 5, seed=1)
    found = Centres.cut(centres, 20.0).nearest(FeatureSpace(norm_bound=20.0).whole(x))
    assert torch.equal(found, torch.cdist(x, centres).argmin(1))


@pytest.mark.parametrize("size", [0.0, 1e-300, 1e-6, 1.0, 1e6, 1e30])
def test_centres_of_any_size_are_cut_to_exact_products(size: float) -> None:
    cut = Centres.cut(size * normal(4, 200), 1.0)
    assert torch.equal(cut.rows, cut.rows.trunc())
    assert bool(torch.isfinite(cut.half_squares).all())
    assert all(sum(int(v) ** 2 for v in row) <= 2**56 for row in cut.rows.tolist())


def test_of_coinciding_centres_the_first_wins_whatever_the_batch() -> None:
    z, centre = FeatureSpace(norm_bound=1.0).whole(normal(257, 200)), normal(1, 200, seed=1)
    cut = Centres.cut(torch.cat([5 * centre, centre.expand(10, -1)]), 1.0)
    whole = cut.nearest(z)
    assert whole.unique().tolist() in ([1], [0, 1])
    assert torch.equal(whole[3:], cut.nearest(z[3:]))


@settings(max_examples=12, deadline=None)
@given(
    n=st.integers(0, 900),
    m=st.integers(1, 30),
    k=st.integers(1, 6),
    kernel=st.sampled_from(["rbf", "linear"]),
    seed=st.integers(0, 2**30),
    entries=st.integers(1, 9000),
    threads=st.sampled_from([1, 2]),
)
def test_sums_have_the_same_bits_in_any_order_chunks_threads_and_shards(
    n: int, m: int, k: int, kernel: str, seed: int, entries: int, threads: int
) -> None:
    """Centres lie on records and between them, so that there are ties to break."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, m, generator=generator).mul(3).round() / 3
    space = FeatureSpace(fourier(m) if kernel == "rbf" else None)
    spots = space(torch.rand(2 * k, m, generator=generator).mul(3).round() / 3)
    centres = Centres.cut(torch.cat([spots[:k], (spots[:k] + spots[k:]) / 2]), 1.0)
    expected = cluster_sums(space.chunks(x), centres)
    assert int(expected[:, 0].sum()) == n
    before, size, order = torch.get_num_threads(), fit._CHUNK_ENTRIES, torch.randperm(n, generator=generator)
    try:
        torch.set_num_threads(threads)
        fit._CHUNK_ENTRIES = entries
        assert torch.equal(cluster_sums(space.chunks(x[order]), centres), expected)
        shards = [cluster_sums(space.chunks(part), centres) for part in (x[: n // 3], x[n // 3 :])]
        assert torch.equal(shards[0] + shards[1], expected)
    finally:
        torch.set_num_threads(before)
        fit._CHUNK_ENTRIES = size


def test_totals_are_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal(101, 6).float()
    space = FeatureSpace(norm_bound=2.0)
    centres = torch.cat([normal(3, 6, seed=2), torch.full((1, 6), 50.0, dtype=torch.float64)])
    expected = torch.zeros(4, 7, dtype=torch.int64)
    for row in x:
        c = int((space(row[None])[0] - centres).square().sum(1).argmin())
        expected[c, 0] += 1
        expected[c, 1:] += space.whole(row[None])[0].long()
    for entries in (6, 42, 10**6):
        monkeypatch.setattr(fit, "_CHUNK_ENTRIES", entries)
        assert torch.equal(cluster_sums(space.chunks(x), Centres.cut(centres, 2.0)), expected)
    assert expected[3, 0] == 0


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_devices_agree_bit_for_bit(kernel: str) -> None:
    x = torch.rand(5000, 784, generator=torch.Generator().manual_seed(0))
    found = []
    for device in ("cpu", "cuda"):
        space = FeatureSpace(fourier().to(device) if kernel == "rbf" else None, 1.0 if kernel == "rbf" else 9.0)
        rows = x.to(device)
        centres = Centres.cut(torch.cat([space(x.to(device)[:6]), space(x.to(device)[:3])]), space.norm_bound)
        sums = cluster_sums(space.chunks(rows), centres)
        assert torch.equal(sums, cluster_sums(space.chunks(rows.flip(0)), centres))
        assert torch.equal(space.whole(rows[:7]), space.whole(rows)[:7])
        found.append((space.whole(rows).cpu(), sums))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


# -- post-processing ---------------------------------------------------------------------------------------------------


def test_update_without_shrinking_is_the_mean_above_the_floor() -> None:
    centres, sums = normal(3, 2), normal(3, 2, seed=1)
    counts = torch.tensor([10.0, 2.0, -4.0], dtype=torch.float64)
    new = update_centres(centres, counts, sums, sum_std=1.0, floor=3.0, shrink=False)
    torch.testing.assert_close(new[0], sums[0] / 10)
    assert torch.equal(new[1:], centres[1:])


def test_shrinking_vanishes_without_noise_and_is_total_without_signal() -> None:
    centres, sums = normal(3, 50), 100 * normal(3, 50, seed=1)
    counts = torch.tensor([100.0, 150.0, 80.0], dtype=torch.float64)
    exact = update_centres(centres, counts, sums, sum_std=1e-9, floor=1.0, shrink=True)
    torch.testing.assert_close(exact, sums / counts[:, None])
    drowned = update_centres(centres, counts, sums, sum_std=1e9, floor=1.0, shrink=True)
    torch.testing.assert_close(drowned, (sums.sum(0) / counts.sum()).expand(3, -1))


def test_shrinking_lowers_the_error_of_noisy_centres() -> None:
    truth = 0.5 * normal(1, 200) / 200**0.5 + 0.3 * normal(8, 200, seed=1) / 200**0.5
    counts = torch.full((8,), 1000.0, dtype=torch.float64)
    error = {}
    for shrink in (False, True):
        error[shrink] = 0.0
        for seed in range(20):
            sums = 1000 * truth + 40.0 * normal(8, 200, seed=10 + seed)
            new = update_centres(truth, counts, sums, sum_std=40.0, floor=1.0, shrink=shrink)
            error[shrink] += float((new - truth).square().sum())
    assert error[True] < 0.35 * error[False]


def test_starving_clusters_take_part_of_the_largest_ones() -> None:
    centres, nudges = normal(4, 3), normal(4, 3, seed=1)
    counts = torch.tensor([50.0, 2.0, 90.0, -7.0], dtype=torch.float64)
    new = split_largest(centres, counts, nudges, floor=3.0)
    torch.testing.assert_close(new[1], centres[2] + nudges[1])
    torch.testing.assert_close(new[2], centres[2] - nudges[1])
    torch.testing.assert_close(new[3], centres[0] + nudges[3])
    torch.testing.assert_close(new[0], centres[0] - nudges[3])


def test_splitting_leaves_everything_when_nobody_or_everybody_starves() -> None:
    centres, nudges, counts = normal(2, 3), normal(2, 3, seed=1), torch.tensor([5.0, 9.0], dtype=torch.float64)
    assert torch.equal(split_largest(centres, counts, nudges, floor=3.0), centres)
    assert torch.equal(split_largest(centres, counts, nudges, floor=30.0), centres)
