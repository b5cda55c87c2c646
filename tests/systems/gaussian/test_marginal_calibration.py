"""Released marginals, and tilts towards them."""

import pytest
import torch
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.systems.gaussian.calibration import fit_tilt, pair_scores, release_marginals, release_pairs, tilted_choice
from dpgen.systems.gaussian.sums import RecordStream, Spending


def spending(scale: float) -> Spending:
    return Spending(Curator(Ledger(None, delta=1e-5)), scale, {"marginals": 0.5, "pairs": 0.5})


def bits(n: int = 3000) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, 5, generator=generator) < torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9])
    x[:, 1] = torch.where(torch.rand(n, generator=generator) < 0.8, x[:, 0], x[:, 1])
    return x.to(torch.uint8)


def test_without_noise_releases_are_exact_frequencies() -> None:
    x, labels = bits(), torch.arange(3000) % 3
    quiet = spending(1e-6)
    counts, p = release_marginals(RecordStream(x, labels), 5, k=3, spending=quiet)
    assert counts.tolist() == pytest.approx([1000.0] * 3, abs=0.1)
    assert torch.allclose(p[1], x[labels == 1].double().mean(0), atol=1e-4)
    pairs, noise_std = release_pairs(RecordStream(x, None), 5, spending=quiet)
    assert torch.allclose(pairs, x.double().T @ x.double() / 3000, atol=1e-4)
    assert 0 < noise_std < 1e-6


def test_the_noise_of_pairs_is_as_large_as_stated() -> None:
    x = torch.ones(4000, 40, dtype=torch.uint8)
    x[:, ::2] = 0
    pairs, noise_std = release_pairs(RecordStream(x, None), 40, spending=spending(5.0))
    above = torch.triu(torch.ones(20, 20), 1).bool()
    noise = (pairs[1::2, ::2] - 0.0)[above]  # of pairs that are never on together, half of it cut off at 0
    assert float((noise > 0).double().mean()) == pytest.approx(0.5, abs=0.15)
    assert float(noise[noise > 0].square().mean().sqrt()) == pytest.approx(noise_std, rel=0.25)


def test_scores_are_quadratic_forms() -> None:
    x, tilt = bits(10).double(), torch.randn(5, 5, generator=torch.Generator().manual_seed(1)).double()
    assert torch.allclose(pair_scores(x, tilt), torch.stack([row @ tilt @ row for row in x]))


def test_a_tilt_moves_independent_bits_to_the_released_pairs() -> None:
    x = bits(20_000)
    pairs = x.double().T @ x.double() / len(x)
    generator = torch.Generator().manual_seed(2)
    pilot = (torch.rand(20_000, 5, generator=generator) < x.double().mean(0)).to(torch.uint8)
    tilt = fit_tilt(pilot, pairs, noise_std=1e-3)
    chosen = pilot[tilted_choice(pilot, tilt, 4000, generator)].double()
    before = float((pilot.double().T @ pilot.double() / len(pilot) - pairs).abs().max())
    after = float((chosen.T @ chosen / len(chosen) - pairs).abs().max())
    assert after < 0.35 * before


def test_noise_is_not_fitted() -> None:
    x = bits(5000)
    pairs = x.double().T @ x.double() / len(x)
    assert float(fit_tilt(x, pairs, noise_std=0.05).abs().max()) < 0.1
