"""Random Fourier features: unit norm for every record, and the kernel they stand for."""

import math
from collections.abc import Callable

import mpmath
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from refusals import refused

from dpgen.systems.kmeans.fit import NORM, RandomFourierFeatures, circle_cosines


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
