"""The secure source as mechanisms see it: golden draws, fresh noise everywhere, refusals."""

import copy
import io
import json
import math
import multiprocessing
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lightning
import numpy as np
import pytest
import torch
from fixed_source import FixedKeySource
from scipy import stats

from dpgen.privacy.curator import Curator
from dpgen.privacy.draws import Keystream
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.mechanisms import Relation
from dpgen.privacy.noise import (
    DeviceSource,
    PublicRandomness,
    SecureSource,
    device_normal,
    grid_step,
    noisy_prefix_sums,
    philox,
    prefix_sensitivity,
    require_secure,
    square_root_factor,
    toeplitz_product,
)
from dpgen.runtime import Runtime

STD = 3.0
STEP = 2.0**-9  # the grid of noise_std in [2, 4)

DRAWS: dict[str, Callable[[SecureSource], torch.Tensor]] = {
    "normal": lambda source: source.normal(64),
    "add_normal_": lambda source: source.add_normal_(torch.zeros(64), noise_std=STD),
    "strided": lambda source: source.add_normal_(torch.zeros(64, 2)[:, 0], noise_std=STD),
    "uniform": lambda source: source.uniform(64),
    "rounded_normal": lambda source: source.rounded_normal(64, noise_std=STD),
    "discrete_laplace": lambda source: source.discrete_laplace(64, scale=STD),
    "bernoulli_indices": lambda source: source.bernoulli_indices(1000, probability=0.1),
    "random_bytes": lambda source: torch.tensor(list(source.random_bytes(32))),
    "words": lambda source: torch.from_numpy(source.words(8, bits=62).astype(np.int64)),
}
every_draw = pytest.mark.parametrize("draw", DRAWS.values(), ids=list(DRAWS))


def fingerprint(_: object = None) -> str:
    """Everything a new source draws, as text."""
    source = SecureSource()
    return json.dumps([draw(source).tolist() for draw in DRAWS.values()])


# Freshness


@every_draw
def test_draws_never_repeat(draw: Callable[[SecureSource], torch.Tensor]) -> None:
    source = SecureSource()
    seen = [tuple(draw(s).tolist()) for s in (source, source, SecureSource())]
    assert len(set(seen)) == 3


@every_draw
def test_every_call_takes_a_fresh_key(draw: Callable[[SecureSource], torch.Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = os.urandom
    source = SecureSource()
    monkeypatch.setattr(os, "urandom", lambda count: asked.append(count) or real(count))
    draw(source)
    draw(source)
    assert asked == [32, 32]


def test_public_generators_and_the_source_leave_each_other_alone() -> None:
    seen = set()
    for _ in range(2):
        lightning.seed_everything(1, workers=True, verbose=False)
        seen.add(fingerprint())
        assert torch.equal(torch.randn(4), torch.randn(4, generator=torch.Generator().manual_seed(1)))
    assert len(seen) == 2


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_children_draw_fresh_noise() -> None:
    SecureSource().normal(10)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        seen = pool.map(fingerprint, range(4), chunksize=1)
    assert len({*seen, fingerprint()}) == 5


def test_threads_share_a_source() -> None:
    source = SecureSource()
    with ThreadPoolExecutor(8) as pool:
        draws = list(pool.map(lambda _: source.normal(5000), range(40)))
    assert len({tuple(draw.tolist()) for draw in draws}) == 40
    assert stats.kstest(torch.cat(draws).numpy(), "norm").pvalue > 1e-9


# Values


def test_words_are_the_highest_bits_of_the_bytes() -> None:
    whole = np.frombuffer(FixedKeySource(7).random_bytes(48), np.uint64).reshape(2, 3)
    assert FixedKeySource(7).words(2, 3).tolist() == whole.tolist()
    assert FixedKeySource(7).words(2, 3, bits=62).tolist() == (whole >> np.uint64(2)).tolist()
    assert set(FixedKeySource(7).words(64, bits=1).tolist()) == {0, 1}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("noise_std", [1e-20, 1e-3, 0.999, 1.0, 50.0, 1e20])
def test_results_are_on_the_grid(noise_std: float, dtype: torch.dtype) -> None:
    step = grid_step(noise_std)
    assert 2.0**-11 < step / noise_std <= 2.0**-10
    source = SecureSource()
    plain = source.normal(3000, noise_std=noise_std, dtype=dtype)
    summed = source.add_normal_(noise_std * torch.randn(3000, dtype=dtype), noise_std=noise_std)
    strided = source.add_normal_((noise_std * torch.randn(3000, 2, dtype=dtype))[:, 1], noise_std=noise_std)
    for values in (plain, summed, strided):
        multiples = values.double() / step
        assert values.dtype == dtype
        assert torch.equal(multiples, multiples.round())
        assert len(multiples.unique()) > 1000
    off_grid = noise_std * torch.randn(3000, dtype=dtype) / step
    assert not torch.equal(off_grid, off_grid.round())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_factor_multiplies_what_is_released(dtype: torch.dtype) -> None:
    """Powers of two change no bit of a single row; other factors are rounded once; strided values come out alike."""
    values, factor = torch.randn(1, 5000, dtype=dtype), torch.tensor([0.3])
    released = FixedKeySource(5).add_normal_(values.clone(), noise_std=2.0)
    assert torch.equal(FixedKeySource(5).add_normal_(values.clone(), noise_std=2.0, factor=torch.tensor([0.25])), released / 4)
    scaled = FixedKeySource(5).add_normal_(values.clone(), noise_std=2.0, factor=factor)
    assert torch.allclose(scaled, released * factor.to(dtype), rtol=1e-6, atol=0)
    rows = torch.zeros(3, 2000, dtype=dtype)
    for target in (rows.clone(), rows.T.contiguous().T):
        spread = SecureSource().add_normal_(target, noise_std=1.0, factor=torch.tensor([1.0, 10.0, 100.0])).std(1)
        assert torch.allclose(spread, torch.tensor([1.0, 10.0, 100.0], dtype=dtype), rtol=0.15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", ["contiguous", "strided"])
def test_sum_has_the_stated_noise(dtype: torch.dtype, layout: str) -> None:
    values = torch.arange(-50, 50, dtype=dtype).repeat(1000, 2)
    target = values.clone() if layout == "contiguous" else values.clone().t()
    result = FixedKeySource(1).add_normal_(target, noise_std=STD)
    assert result is target
    noise = ((result if layout == "contiguous" else result.t()) - values).double().flatten() / STD
    cells = np.bincount(np.minimum((stats.norm.cdf(noise + STEP / STD / 2) * 50).astype(int), 49), minlength=50)
    assert stats.chisquare(cells).pvalue > 1e-6
    assert abs(noise.mean()) * noise.numel() ** 0.5 < 5
    assert abs(noise.var() - 1) * (noise.numel() / 2) ** 0.5 < 5
    assert abs((1.02 * noise).var() - 1) * (noise.numel() / 2) ** 0.5 > 5


@pytest.mark.parametrize("columns", [1, 2])
def test_rounding_the_sum_is_post_processing(columns: int) -> None:
    """Values between grid points move the distribution smoothly; rounding values and noise apart would not."""
    low, high = (
        FixedKeySource(2).add_normal_(torch.full((400_000, columns), v * STEP)[:, 0], noise_std=STD) for v in (0.0, 0.3)
    )
    moved = (high - low) / STEP
    assert set(moved.unique().tolist()) == {0.0, 1.0}
    assert abs(moved.mean().item() - 0.3) < 0.01


def test_uniform() -> None:
    values = FixedKeySource(3).uniform(200_000)
    assert values.dtype == torch.float64
    assert 0 < values.min() < values.max() < 1
    assert stats.kstest(values.numpy(), "uniform").pvalue > 1e-6
    assert stats.kstest(values.numpy() ** 1.05, "uniform").pvalue < 1e-6


def test_uniforms_are_strictly_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SecureSource()
    for byte, end in ((0, 0.0), (255, 1.0)):
        words = np.full(3, byte, np.uint8).repeat(8).view(np.uint64)
        monkeypatch.setattr(Keystream, "words", lambda self, count, dtype, words=words: words[:count])
        assert float(source.uniform(3).min()) > 0
        assert float(source.uniform(3).max()) < 1
        assert float(source.uniform(3)[0]) == pytest.approx(end, abs=1e-15)


# Refusals


@pytest.mark.parametrize(
    "act",
    [
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        lambda source: torch.save(source, io.BytesIO()),
        lambda source: source.state_dict(),
        lambda source: copy.deepcopy(holding(source)),
    ],
)
def test_refuses_to_be_copied(act: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match="refuses to be copied"):
        act(SecureSource())


def holding(source: SecureSource) -> torch.nn.Module:
    module = torch.nn.Linear(2, 2)
    module.source = source
    assert set(module.state_dict()) == {"weight", "bias"}
    return module


NAN, INF, SPARSE = float("nan"), float("inf"), torch.zeros(2000, 2)[:, 0]


@pytest.mark.parametrize(
    ("act", "values", "name"),
    [
        (lambda s, value: s.normal(noise_std=value), (0.0, -1.0, 1e-21, 1e21, NAN, INF), "noise_std"),
        (lambda s, value: s.add_normal_(torch.ones(2), noise_std=value), (0.0, -1.0, 1e-21, 1e21, NAN, INF), "noise_std"),
        (lambda s, value: s.normal(2, dtype=value), (torch.float16, torch.int64), "dtype"),
        (lambda s, value: s.add_normal_(torch.ones(2, dtype=value), noise_std=1.0), (torch.bfloat16, torch.int64), "dtype"),
        (lambda s, value: s.add_normal_(torch.tensor([0.0] * 2000 + [value]), noise_std=1.0), (NAN, INF), "finite"),
        (lambda s, value: s.add_normal_(SPARSE + value, noise_std=1.0), (NAN, INF), "finite"),
        (lambda s, value: s.normal(3, value), (-1,), "shape"),
        (lambda s, value: s.bernoulli_indices(value, probability=0.5), (-1,), "shape"),
        (lambda s, value: s.bernoulli_indices(10, probability=value), (-0.1, 1.0001, NAN), "probability"),
        (lambda s, value: s.words(1, bits=value), (0, 65), "bits"),
    ],
)
def test_what_is_out_of_range_is_refused(
    act: Callable[[SecureSource, Any], object], values: tuple[Any, ...], name: str
) -> None:
    for value in values:
        with pytest.raises(ValueError, match=name):
            act(SecureSource(), value)


@pytest.mark.parametrize("source", [None, 0, torch.Generator(), PublicRandomness(0), SecureSource])
def test_only_a_secure_source_makes_private_noise(source: object) -> None:
    with pytest.raises(TypeError, match="SecureSource"):
        require_secure(source)


def test_takes_no_seed_and_keeps_nothing() -> None:
    with pytest.raises(TypeError, match=r"takes 1 positional argument|no arguments|unexpected"):
        SecureSource(0)  # type: ignore[call-arg]
    source = SecureSource()
    source.normal(10)
    assert vars(source) == {}


# Public randomness


def test_public_randomness_is_reproducible() -> None:
    def draw(public: PublicRandomness) -> list[float]:
        return torch.randn(4, generator=public.generator).tolist()

    assert draw(PublicRandomness(5)) == draw(PublicRandomness(5))
    assert draw(PublicRandomness(5).spawn("a")) == draw(PublicRandomness(5).spawn("a"))
    used = PublicRandomness(5)
    draw(used)
    assert draw(used.spawn("a")) == draw(PublicRandomness(5).spawn("a"))
    streams = [PublicRandomness(5), PublicRandomness(6), PublicRandomness(5 + 7 * 2**32), PublicRandomness(-5)]
    streams += [
        PublicRandomness(5).spawn("a"),
        PublicRandomness(5).spawn("b"),
        PublicRandomness(5).spawn("a").spawn("a"),
    ]
    assert len({tuple(draw(public)) for public in streams}) == 7


# -- noise on devices --------------------------------------------------------------------------------------------------


DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
KNOWN = [  # of Random123, counter, key, words
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers(counter, key, words, device):
    first = torch.tensor([counter[0], 7], device=device)
    found = philox((first, *counter[1:]), key)
    assert tuple(int(word[0]) for word in found) == words
    assert all(int(word[0]) != int(word[1]) for word in found)


@pytest.mark.parametrize("device", DEVICES)
def test_draws_are_normal_and_never_the_same(device):
    one, two = (device_normal(torch.device(device), 200_001).cpu() for _ in range(2))
    assert len(one) == len(one.unique()) == 200_001
    for draw in (one, two):
        assert stats.kstest(draw.numpy(), "norm").pvalue > 1e-7
        assert 3.5 < float(draw.abs().max()) < 9.5
    assert float((one == two).double().mean()) < 1e-3
    assert abs(float(torch.corrcoef(torch.stack([one, two]))[0, 1])) < 0.02
    half = 100_000
    assert abs(float(torch.corrcoef(torch.stack([one[:half], one[-half:]]))[0, 1])) < 0.02, "of a pair, too"


def test_every_word_of_the_system_moves_a_draw(monkeypatch):
    def drawn(changed: int) -> torch.Tensor:
        words = iter(7 + (place == changed) for place in range(5))
        monkeypatch.setattr("os.urandom", lambda count: next(words).to_bytes(count, "big"))
        return device_normal(torch.device("cpu"), 4)

    assert len(torch.stack([drawn(changed) for changed in range(6)]).unique(dim=0)) == 6


def test_noise_of_a_device_is_made_there_and_that_of_a_cpu_is_aes(monkeypatch):
    source = DeviceSource()
    drawn = []
    monkeypatch.setattr(SecureSource, "unrounded_normal", lambda self, *shape, **_: drawn.append(shape) or torch.zeros(shape))
    assert source.normal_on(torch.device("meta"), 7, noise_std=1.0).device.type == "meta"
    assert drawn == []
    monkeypatch.setattr("dpgen.privacy.noise.device_normal", lambda device, n: torch.arange(n).double())
    assert source.normal_on(torch.device("meta"), 3, noise_std=2.5).tolist() == [0.0, 2.5, 5.0]
    source.normal_on(torch.device("cpu"), 7, noise_std=1.0)
    assert drawn == [(7,)]


@pytest.mark.parametrize("noise_source", ["host", "device"])
def test_the_curator_of_a_run_draws_where_it_was_told_to(noise_source):
    curator = Curator(Ledger(None, delta=1e-5), source=Runtime(noise_source=noise_source).source())
    assert curator.draws_on_device == (noise_source == "device")


@pytest.mark.parametrize("options", [{"noise_source": "gpu"}, {"noise_source": "device", "accelerator": "cpu"}])
def test_what_cannot_be_is_refused(options):
    with pytest.raises(ValueError, match="noise_source"):
        Runtime(**options)


# -- prefix sums -------------------------------------------------------------------------------------------------------


def matrix(m: int) -> np.ndarray:
    factor = square_root_factor(m)
    return np.array([[factor[i - j] if i >= j else 0.0 for j in range(m)] for i in range(m)])


@pytest.mark.parametrize("m", [1, 2, 7, 40])
def test_the_factor_squares_to_prefix_sums(m: int) -> None:
    assert matrix(m) @ matrix(m) == pytest.approx(np.tri(m))
    x = np.random.default_rng(0).normal(size=m)
    assert toeplitz_product(square_root_factor(m), x) == pytest.approx(matrix(m) @ x)


def moves(m: int, relation: Relation) -> list[np.ndarray]:
    """Every difference of the counts of neighbours; under replace-one the last cell may be left out."""
    cells = [*np.eye(m), np.zeros(m)]
    if relation == "add_remove":
        return cells[:-1]
    return [a - b for i, a in enumerate(cells) for j, b in enumerate(cells) if i != j]


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("m", [1, 2, 3, 5, 16, 33])
def test_the_sensitivity_is_that_of_the_worst_neighbours(m: int, relation: Relation) -> None:
    B = matrix(m)
    worst = max(float(np.linalg.norm(B @ move)) for move in moves(m, relation))
    assert worst <= prefix_sensitivity(m, relation) <= worst * (1 + 1e-6)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_a_twin_that_forgets_the_factor_is_rejected(relation: Relation) -> None:
    """Sensitivity 1 (or sqrt 2), as of plain counts, would move B x by more than the noise multiplier allows."""
    B, plain = matrix(64), 1.0 if relation == "add_remove" else math.sqrt(2)
    assert max(float(np.linalg.norm(B @ move)) for move in moves(64, relation)) > 1.15 * plain


def test_noise_has_the_stated_variance_and_not_less() -> None:
    """400 runs of 30 correlated sums: mean squares within 35 % (more than 6 standard errors of the slowest)."""
    counts = np.arange(30)
    runs = np.array(
        [noisy_prefix_sums(counts, noise_multiplier=3.0, relation="replace_one", source=SecureSource())[0] for _ in range(400)]
    )
    _, variances = noisy_prefix_sums(counts, noise_multiplier=3.0, relation="replace_one", source=SecureSource())
    B, std = matrix(30), 3.0 * prefix_sensitivity(30, "replace_one")
    assert variances == pytest.approx(std**2 * (B**2).sum(1))
    ratio = ((runs - np.cumsum(counts)) ** 2).mean(0) / variances
    assert ratio.min() > 0.55
    assert ratio.max() < 1.65


def fast_product(cells: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The broken twin: counts and noise through the same fast Fourier transform."""
    factor = square_root_factor(len(cells))
    return toeplitz_product(factor, toeplitz_product(factor, cells.astype(float)) + noise)


@pytest.mark.parametrize("multiplier", [1e-3, 0.3, 40.0, 1e7])
def test_a_record_moves_what_is_released_by_whole_numbers_below_it_alone(multiplier: float) -> None:
    """Same noise, one record more in cell 500 of 1000: sums before it keep every bit, those after it grow by exactly 1."""
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 10**6, 1000)
    more = cells.copy()
    more[500] += 1
    first, second = (
        noisy_prefix_sums(x, noise_multiplier=multiplier, relation="add_remove", source=FixedKeySource(1))[0]
        for x in (cells, more)
    )
    grid = min(1.0, grid_step(multiplier * prefix_sensitivity(1000, "add_remove")))
    assert (first / grid == np.rint(first / grid)).all()
    assert (second - first).tolist() == [0.0] * 500 + [1.0] * 500
    assert (first != np.cumsum(cells)).any()
    twin = fast_product(more, np.zeros(1000)) - fast_product(cells, np.zeros(1000))
    assert (twin[:500] != 0).any(), "in floating point every sum moves"
