"""Noise drawn ahead: the right distribution, every draw given out once, nothing shared with a forked process."""

import math
import os

import pytest
import torch

from dpgen.privacy.distributed import NoiseAhead, Ranks, release_sum_
from dpgen.privacy.noise import PublicRandomness, SecureSource, grid_step

N = 200_001


@pytest.fixture
def ahead() -> NoiseAhead:
    return NoiseAhead(SecureSource(), torch.device("cpu"))


def test_draws_are_normal_and_never_the_same(ahead: NoiseAhead) -> None:
    draws = torch.stack([ahead.draw(N, noise_std=3.0).clone() for _ in range(4)]).double()
    assert float((draws.std(1) / 3.0 - 1.0).abs().max()) < 6 / math.sqrt(2 * N)
    assert float(draws.mean(1).abs().max()) < 6 * 3.0 / math.sqrt(N)
    correlation = (draws / 3.0) @ (draws / 3.0).T / N - torch.eye(4)
    assert float(correlation.fill_diagonal_(0).abs().max()) < 6 / math.sqrt(N)
    halves = draws[:, : N // 2] * draws[:, N // 2 : 2 * (N // 2)] / 9.0
    assert float(halves.mean(1).abs().max()) < 6 / math.sqrt(N // 2), "the threads' parts differ"


def test_draws_are_not_rounded_to_the_grid_of_the_sums(ahead: NoiseAhead) -> None:
    in_grid = ahead.draw(1000, noise_std=3.0, dtype=torch.float64) / grid_step(3.0)
    assert float((in_grid == in_grid.round()).double().mean()) < 0.01


def test_another_size_or_std_is_not_mixed_up(ahead: NoiseAhead) -> None:
    assert ahead.draw(10, noise_std=1.0).shape == (10,)
    assert ahead.draw(7, noise_std=1.0).shape == (7,)
    assert float(ahead.draw(10, noise_std=1e-9).abs().max()) < 1e-7
    assert ahead.draw(3, noise_std=1.0, dtype=torch.float64).dtype == torch.float64


def test_a_release_with_it_has_its_noise(ahead: NoiseAhead) -> None:
    ranks = Ranks(0, 2)
    object.__setattr__(ranks, "sum_", lambda values: values)  # the other rank has nothing
    sums = release_sum_(torch.zeros(2, N), noise_std=2.0, source=SecureSource(), ranks=ranks, ahead=ahead)
    assert abs(float(sums[0].std()) / 2.0 - 1.0) < 6 / math.sqrt(2 * N)
    assert float(sums[1].abs().max()) == 0.0


def test_a_forked_process_may_not_use_it(ahead: NoiseAhead, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead.draw(10, noise_std=1.0)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="cannot be used in a forked process"):
        ahead.draw(10, noise_std=1.0)


def test_closing_drops_what_is_ready(ahead: NoiseAhead) -> None:
    ahead.draw(10, noise_std=1.0)
    ahead.close()
    assert not ahead._ready


def test_public_randomness_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a SecureSource"):
        NoiseAhead(PublicRandomness(0), torch.device("cpu"))  # type: ignore[arg-type]
