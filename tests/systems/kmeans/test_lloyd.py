"""The parts of DP k-means against slow twins: exact features, sums and assignments, shrinking, splitting, seeding."""

import math
from collections.abc import Callable

import mpmath
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from refusals import refused
from torch import Tensor

from dpgen.systems.kmeans import fit
from dpgen.systems.kmeans.fit import (
    NORM,
    Centres,
    FeatureSpace,
    RandomFourierFeatures,
    circle_cosines,
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


# -- random features ---------------------------------------------------------------------------------------------------


def features(
    n_inputs: int = 784, n_features: int = 200, gamma: float = 0.01, seed: int = 0, largest: float = 1.0
) -> RandomFourierFeatures:
    generator = torch.Generator().manual_seed(seed)
    return RandomFourierFeatures(n_inputs, n_features, gamma=gamma, generator=generator, largest=largest)


def cosines(x: torch.Tensor, n_features: int, gamma: float, generator: torch.Generator) -> torch.Tensor:
    """The published map, sqrt(2/d) cos(xW + b)."""
    w = torch.randn(x.shape[1], n_features, generator=generator) * math.sqrt(2 * gamma)
    b = torch.rand(n_features, generator=generator) * 2 * math.pi
    return math.sqrt(2 / n_features) * (x @ w + b).cos()


def sparse_records(n: int) -> torch.Tensor:
    return (torch.rand(n, 784, generator=torch.Generator().manual_seed(5)) < 0.13).float()


def test_norm_is_one_for_any_record() -> None:
    x = torch.cat([sparse_records(500), 255 * sparse_records(10), torch.zeros(1, 784), torch.ones(1, 784)])
    for module in (features(), features().double(), features().half()):
        assert module(x).dtype == torch.float64
        assert (module(x).norm(dim=1) - 1).abs().max() < 4 * 200**0.5 / NORM
        assert torch.equal(module(x), features()(x))


@pytest.mark.parametrize("pairs", [1, 2, 3, 100, 1000, 30_000])
def test_the_table_stays_within_its_circle_and_is_the_truth_cut_towards_zero(pairs: int) -> None:
    cosines, radius = circle_cosines(pairs).long(), math.isqrt(2**46 // pairs)
    sines = cosines.roll(1 << 14)
    assert int((cosines**2 + sines**2).max()) * pairs <= 2**46
    with mpmath.workdps(30):
        for j in (0, 1, 100, 8191, 16383, 16384, 16385, 40_000, 65_535):
            true = radius * mpmath.cos(2 * mpmath.pi * j / 65536)
            assert 0 <= abs(true) - abs(int(cosines[j])) <= 1 + 2**-6
            assert int(cosines[j]) * true >= 0


@given(
    m=st.integers(1, 60),
    pairs=st.integers(1, 20),
    gamma=st.floats(1e-8, 1e3),
    largest=st.floats(1e-6, 1e6),
    seed=st.integers(0, 2**30),
)
def test_no_row_of_whole_numbers_exceeds_the_norm_and_phases_are_right(
    m: int, pairs: int, gamma: float, largest: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    assume(largest * math.sqrt(2 * gamma) * m < 2**30)
    map_ = RandomFourierFeatures(m, 2 * pairs, gamma=gamma, generator=generator, largest=largest)
    x = largest * (2 * torch.rand(5, m, generator=generator, dtype=torch.float64) - 1)
    x[0], x[1] = largest, 10 * largest  # one beyond the range
    whole = map_.whole(x)
    assert torch.equal(whole, whole.trunc())
    assert all(sum(int(v) ** 2 for v in row) <= 2**46 for row in whole.tolist())
    bits = map_.grid.tolist()
    assert bits[2] * int(map_.turns.abs().sum(0).max()) < 2**53
    phases = x.clamp(-largest, largest) @ map_.frequencies
    expected = torch.cat([phases.cos(), phases.sin()], 1) / math.sqrt(pairs)
    rounding = 2 * math.pi * (2.0**-17 + m * (2.0 ** -bits[0] * 4 * math.sqrt(2 * gamma) + 2.0 ** -bits[1] * largest))
    assert (map_(x) - expected).abs().max() < rounding + 1e-6


@given(
    n=st.integers(1, 400),
    m=st.integers(1, 100),
    seed=st.integers(0, 2**30),
    start=st.integers(0, 400),
    threads=st.sampled_from([1, 2]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.uint8]),
)
def test_a_record_has_its_own_features_bit_for_bit(
    n: int, m: int, seed: int, start: int, threads: int, dtype: torch.dtype
) -> None:
    one = features(m, 20, gamma=0.5)
    x = torch.rand(n, m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).mul(2).to(dtype)
    whole, before = one.whole(x), torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(one.whole(x[order]), whole[order])
        assert torch.equal(one.whole(x[start:]), whole[start:])
        assert torch.equal(torch.cat([one.whole(row[None]) for row in x[:5]]), whole[:5])
    finally:
        torch.set_num_threads(before)


def test_whole_numbers_of_any_dtype_have_the_same_features() -> None:
    bits = sparse_records(50).bool()
    expected = features()(bits)
    for dtype in (torch.uint8, torch.int64, torch.float32, torch.float64):
        assert torch.equal(features()(bits.to(dtype)), expected)
    assert torch.equal(features()(7 * bits.to(torch.uint8)), expected), "beyond the range"
    assert torch.equal(features()(-7 * bits.to(torch.int16)), features()(-bits.double()))


def test_published_map_exceeds_norm_one() -> None:
    norms = cosines(sparse_records(500), 200, 0.01, torch.Generator().manual_seed(1)).norm(dim=1)
    assert (norms > 1).float().mean() > 0.2


def test_kernel_error_is_the_closed_form_and_below_that_of_shifted_cosines() -> None:
    r"""Over W, Var z(x)z(y) = (1 - k^2)^2 / d for pairs and (1 - k^2 + k^4 / 2) / d for the published map."""
    x = sparse_records(1)
    y = x.clone()
    y[0, :64] = 1 - y[0, :64]  # distance^2 is 64: the typical kernel value .53 of handwritten digits
    both, kernel, draws = torch.cat([x, y]), math.exp(-0.64), 250

    def rmse(z: Callable[[int], torch.Tensor]) -> float:
        errors = torch.stack([torch.dot(*z(seed)) - kernel for seed in range(draws)])
        return float(errors.square().mean().sqrt())

    pairs = rmse(lambda s: features(seed=s)(both))
    shifted = rmse(lambda s: cosines(both, 200, 0.01, torch.Generator().manual_seed(s)))
    assert pairs == pytest.approx(0.051, rel=0.16)  # 250 draws: standard error 4.5 %
    assert shifted == pytest.approx(0.061, rel=0.16)
    assert rmse(lambda s: features(seed=s, gamma=2 * 0.01**2)(both)) > 0.3  # standard deviation 2 gamma, as printed


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_inputs", 0), ("n_features", 3), ("gamma", 0.0), ("gamma", 1e20), ("largest", 0.0), ("gamma", math.nan)],
)
def test_what_is_out_of_range_is_refused(name: str, value: float) -> None:
    with refused(name):
        features(**{name: value})  # type: ignore[arg-type]
