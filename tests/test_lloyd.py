"""The parts of DP k-means against slow twins: bounded features, sums, shrinking, splitting, seeding."""

import math

import pytest
import torch
from torch import Tensor

from dpgen.systems.clusters import lloyd
from dpgen.systems.clusters.lloyd import (
    FeatureSpace,
    cluster_totals,
    identity,
    kmeans_plus_plus,
    nearest,
    require_records,
    split_largest,
    update_centres,
)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# -- features and assignment -------------------------------------------------------------------------------------------


def test_features_never_exceed_the_bound_and_short_ones_are_untouched() -> None:
    x = torch.cat([normal(500, 7).float() * 100, torch.zeros(1, 7), 0.1 * torch.eye(7)])
    z = FeatureSpace(identity, 1.5)(x)
    assert z.dtype == torch.float64
    assert float(z.norm(dim=1).max()) <= 1.5 * (1 + 1e-15)
    assert torch.equal(z[500:], x[500:].double())
    direction = torch.nn.functional.cosine_similarity(z[:500], x[:500].double())
    torch.testing.assert_close(direction, torch.ones(500, dtype=torch.float64))


def test_features_must_be_finite_rows() -> None:
    with pytest.raises(ValueError, match=r"features have shape \(3, 2\); they must be finite and \(3, d\)"):
        FeatureSpace(lambda x: x / 0.0, 1.0)(torch.ones(3, 2))
    with pytest.raises(ValueError, match=r"features have shape \(2,\); they must be finite and \(3, d\)"):
        FeatureSpace(lambda x: x.sum(0), 1.0)(torch.ones(3, 2))


def test_nearest_is_brute_force() -> None:
    z, centres = normal(300, 5), normal(4, 5, seed=1)
    assert torch.equal(nearest(z, centres), torch.cdist(z, centres).argmin(1))


def test_of_coinciding_centres_the_first_wins_whatever_the_batch() -> None:
    z, centre = normal(257, 200), normal(1, 200, seed=1)
    centres = torch.cat([5 * centre, centre.expand(10, -1)])
    assert nearest(z, centres).unique().tolist() in ([1], [0, 1])
    whole = nearest(z, centres)
    assert torch.equal(whole[3:], nearest(z[3:], centres))


def test_totals_are_loops_and_do_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal(101, 6).float()
    space = FeatureSpace(identity, 2.0)
    centres = torch.cat([normal(3, 6, seed=2), torch.full((1, 6), 50.0, dtype=torch.float64)])
    counts, sums = torch.zeros(4, dtype=torch.int64), torch.zeros(4, 6, dtype=torch.float64)
    for row in x:
        z = space(row[None])[0]
        c = int((z - centres).square().sum(1).argmin())
        counts[c] += 1
        sums[c] += z
    for entries in (6, 42, 10**6):
        monkeypatch.setattr(lloyd, "_CHUNK_ENTRIES", entries)
        found = cluster_totals(space.chunks(x), centres)
        assert torch.equal(found[0], counts)
        torch.testing.assert_close(found[1], sums, rtol=1e-13, atol=1e-13)
    assert counts[3] == 0


@pytest.mark.parametrize("bound", [0.5, 3.0])
def test_one_record_moves_the_totals_by_one_and_by_at_most_the_bound(bound: float) -> None:
    x, centres, space = normal(40, 6).float(), normal(3, 6, seed=3), FeatureSpace(identity, bound)
    counts, sums = cluster_totals(space.chunks(x), centres)
    for i in range(40):
        fewer, less = cluster_totals(space.chunks(torch.cat([x[:i], x[i + 1 :]])), centres)
        assert int((counts - fewer).abs().sum()) == 1
        assert float((sums - less).norm()) <= bound * (1 + 1e-12)


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


# -- seeding and records -----------------------------------------------------------------------------------------------


def test_seeding_weighs_by_squared_distance() -> None:
    z = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
    second = torch.zeros(3)
    for seed in range(4000):
        chosen = kmeans_plus_plus(z, 2, torch.Generator().manual_seed(seed))
        if chosen[0] == 0:
            second[chosen[1]] += 1
    share = float(second[2] / second.sum())
    assert share == pytest.approx(0.9, abs=4 * (0.09 / float(second.sum())) ** 0.5)
    assert second[0] == 0


def test_seeding_survives_identical_records() -> None:
    chosen = kmeans_plus_plus(torch.ones(4, 2, dtype=torch.float64), 4, torch.Generator().manual_seed(0))
    assert sorted(chosen) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(5), r"x has shape \(5,\); it must be \(n, m\) with n >= 1 and m >= 1"),
        (torch.ones(0, 5), r"x has shape \(0, 5\); it must be \(n, m\) with n >= 1 and m >= 1"),
        (torch.tensor([[0.0, math.nan]]), "x holds NaN or infinite entries; they must all be finite"),
        (torch.tensor([[0.0, -math.inf]]), "x holds NaN or infinite entries; they must all be finite"),
        (torch.tensor([[0, 255]], dtype=torch.uint8), r"x has entries from 0 to 255; value_range is \(0.0, 1.0\)"),
    ],
)
def test_records_are_checked(x: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        require_records("x", x, (0.0, 1.0))


def test_records_may_be_boolean_or_bytes() -> None:
    for dtype in (torch.bool, torch.uint8, torch.int64, torch.float32, torch.float64):
        assert require_records("x", torch.ones(2, 2, dtype=dtype), (0.0, 1.0)).dtype == dtype
