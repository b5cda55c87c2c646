"""The secure source as mechanisms see it: golden draws, fresh noise everywhere, refusals."""

import copy
import io
import json
import multiprocessing
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lightning
import numpy as np
import pytest
import torch
from fixed_source import FixedKeySource
from scipy import stats

from dpgen.privacy.draws import Keystream
from dpgen.privacy.noise import DISCRETE_DELTA, PublicRandomness, SecureSource, grid_step, require_secure

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

GOLDEN: dict[str, Any] = {
    "normal": [0.7490234375, -0.16796875, -0.916015625, -0.4453125, -0.0634765625, -1.2744140625],
    "uniform": [0.322983402697942, 0.5279014645702534, 0.5156305385696963],
    "rounded_normal": [-10, -35, 37, -37, 5, 13, 8, -1],
    "discrete_laplace": [4, -25, -1, -33, 18, 88, 4, 46],
    "bernoulli_indices": [12, 14, 73, 79, 121, 132, 168, 184, 187, 196],
    "random_bytes": "b74465371a0e32d6",
}


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


def test_seeding_does_not_reach_the_source() -> None:
    seen = set()
    for _ in range(2):
        lightning.seed_everything(1, workers=True, verbose=False)
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        seen.add(fingerprint())
    assert len(seen) == 2


def test_no_draw_touches_public_generators() -> None:
    torch.manual_seed(3)
    expected = torch.randn(4)
    torch.manual_seed(3)
    fingerprint()
    assert torch.equal(torch.randn(4), expected)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_children_draw_fresh_noise() -> None:
    source = SecureSource()
    source.normal(10)
    with multiprocessing.get_context("fork").Pool(3) as pool:
        seen = pool.map(fingerprint, range(6), chunksize=1)
    assert len({*seen, fingerprint()}) == 7


def test_forked_source_draws_fresh_noise() -> None:
    source = SecureSource()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, source.random_bytes(32))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 32) != source.random_bytes(32)
    os.close(reading)
    os.close(writing)


def test_new_processes_draw_fresh_noise() -> None:
    program = (
        "import torch; torch.manual_seed(0); from dpgen.privacy.noise import SecureSource; s = SecureSource(); "
        "print(s.normal(20).tolist(), s.bernoulli_indices(100, probability=.5).tolist())"
    )
    seen = {subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True).stdout for _ in range(2)}
    assert len(seen) == 2


def test_threads_share_a_source() -> None:
    source = SecureSource()
    with ThreadPoolExecutor(8) as pool:
        draws = list(pool.map(lambda _: source.normal(5000), range(40)))
    assert len({tuple(draw.tolist()) for draw in draws}) == 40
    assert stats.kstest(torch.cat(draws).numpy(), "norm").pvalue > 1e-9


# Values


def test_golden_draws() -> None:
    source = FixedKeySource(7)
    np.testing.assert_allclose(source.normal(6).numpy(), GOLDEN["normal"], rtol=0, atol=1.01 * 2**-10)
    np.testing.assert_allclose(source.uniform(3).numpy(), GOLDEN["uniform"], rtol=1e-15)
    assert source.rounded_normal(8, noise_std=20.0).tolist() == GOLDEN["rounded_normal"]
    source.random_bytes(1)  # the rest was recorded after one more draw
    assert source.discrete_laplace(8, scale=20.0).tolist() == GOLDEN["discrete_laplace"]
    assert source.bernoulli_indices(200, probability=0.04).tolist() == GOLDEN["bernoulli_indices"]
    assert source.random_bytes(8).hex() == GOLDEN["random_bytes"]


def test_words_are_the_highest_bits_of_the_bytes() -> None:
    whole = np.frombuffer(FixedKeySource(7).random_bytes(48), np.uint64).reshape(2, 3)
    assert FixedKeySource(7).words(2, 3).tolist() == whole.tolist()
    assert FixedKeySource(7).words(2, 3, bits=62).tolist() == (whole >> np.uint64(2)).tolist()
    assert set(FixedKeySource(7).words(64, bits=1).tolist()) == {0, 1}
    with pytest.raises(ValueError, match=r"bits is 65; it must be in \[1, 64\]"):
        SecureSource().words(1, bits=65)


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


@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3, 4)])
def test_shapes(shape: tuple[int, ...]) -> None:
    source = SecureSource()
    assert source.normal(*shape).shape == shape
    assert source.uniform(*shape).shape == shape
    assert source.add_normal_(torch.zeros(shape), noise_std=1.0).shape == shape
    for integers in (
        source.rounded_normal(*shape, noise_std=2.0),
        source.discrete_laplace(*shape, scale=2.0),
    ):
        assert integers.shape == shape
        assert integers.dtype == torch.int64


def test_views_of_one_flat_buffer() -> None:
    flat = torch.zeros(100)
    weight, bias = flat[:80].view(8, 10), flat[80:]
    SecureSource().add_normal_(flat, noise_std=1.0)
    assert weight.count_nonzero() > 70
    assert bias.count_nonzero() > 15


def test_leaf_that_requires_grad() -> None:
    parameter = torch.nn.Parameter(torch.zeros(50))
    SecureSource().add_normal_(parameter, noise_std=1.0)
    assert parameter.detach().count_nonzero() > 40
    assert parameter.grad_fn is None


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


def test_discrete_delta() -> None:
    assert DISCRETE_DELTA == 2.0**-128


# Refusals


@pytest.mark.parametrize("act", [pickle.dumps, copy.copy, copy.deepcopy, lambda s: torch.save(s, io.BytesIO())])
def test_refuses_to_be_copied(act: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match="refuses to be copied, pickled or saved"):
        act(SecureSource())


def test_refuses_to_be_saved_inside_a_module() -> None:
    module = torch.nn.Linear(2, 2)
    module.source = SecureSource()
    assert set(module.state_dict()) == {"weight", "bias"}
    with pytest.raises(TypeError, match="refuses to be copied, pickled or saved"):
        copy.deepcopy(module)
    with pytest.raises(TypeError, match="refuses to be copied, pickled or saved"):
        module.source.state_dict()


def test_takes_no_seed_and_keeps_nothing() -> None:
    with pytest.raises(TypeError, match=r"takes 1 positional argument|no arguments|unexpected"):
        SecureSource(0)  # type: ignore[call-arg]
    source = SecureSource()
    source.normal(10)
    assert vars(source) == {}


@pytest.mark.parametrize("noise_std", [0.0, -1.0, 1e-21, 1e21, float("nan"), float("inf")])
def test_bad_noise_std(noise_std: float) -> None:
    for act in (
        SecureSource().normal,
        lambda noise_std: SecureSource().add_normal_(torch.ones(2), noise_std=noise_std),
    ):
        with pytest.raises(ValueError, match=r"noise_std must be in \[1e-20, 1e\+20\], got"):
            act(noise_std=noise_std)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_bad_dtype(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=r"must be torch.float32 or torch.float64, got torch"):
        SecureSource().normal(2, dtype=dtype)
    with pytest.raises(ValueError, match=r"must be torch.float32 or torch.float64, got torch"):
        SecureSource().add_normal_(torch.ones(2, dtype=dtype), noise_std=1.0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("stride", [1, 2])
def test_bad_values(bad: float, stride: int) -> None:
    values = torch.zeros(2000)
    values[1998] = bad
    with pytest.raises(ValueError, match="values must be finite before noise is added"):
        SecureSource().add_normal_(values[::stride], noise_std=1.0)


def test_bad_shape_and_count() -> None:
    with pytest.raises(ValueError, match="shape must have sizes >= 0, got"):
        SecureSource().normal(3, -1)
    with pytest.raises(ValueError, match="shape must have sizes >= 0, got"):
        SecureSource().bernoulli_indices(-1, probability=0.5)
    with pytest.raises(TypeError, match="float"):
        SecureSource().uniform(2.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("probability", [-0.1, 1.0001, float("nan")])
def test_bad_probability(probability: float) -> None:
    with pytest.raises(ValueError, match=r"probability must be in \[0, 1\], got"):
        SecureSource().bernoulli_indices(10, probability=probability)


@pytest.mark.parametrize("source", [None, 0, torch.Generator(), PublicRandomness(0), SecureSource])
def test_require_secure_refuses(source: object) -> None:
    with pytest.raises(TypeError, match=r"source must be a SecureSource, got .*can be replayed and gives no privacy"):
        require_secure(source)


def test_require_secure_accepts() -> None:
    source = SecureSource()
    assert require_secure(source) is source


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


def test_public_seed_must_be_an_integer() -> None:
    with pytest.raises(TypeError, match="float"):
        PublicRandomness(0.5)  # type: ignore[arg-type]
