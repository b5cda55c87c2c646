"""The noise of a Gaussian fit is in what it releases, and post-processing takes it for what it is. Checks have two sides."""

import math
from typing import Any

import pytest
import torch
from fixed_source import FixedKeySource
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.systems.gaussian import sets as of_sets
from dpgen.systems.gaussian.calibration import fit_tilt, release_marginals
from dpgen.systems.gaussian.components import (
    Moments,
    pooled,
    release_centres,
    release_moments,
    shrunken,
)
from dpgen.systems.gaussian.sets import Classes, Conjunctions, fit_classes, release_sets
from dpgen.systems.gaussian.subspace import (
    Location,
    release_location,
    release_subspace,
)
from dpgen.systems.gaussian.sums import BORDER, MEAN_BORDER, MEAN_SQUARE, RecordStream, Spending

GRAM = 1.0 + BORDER**2
"""Sensitivity of a bordered matrix."""
VECTOR = math.sqrt(GRAM)
"""Sensitivity of a bordered vector."""


def spending(name: str, multiplier: float, seed: int = 0) -> Spending:
    return Spending(Curator(Ledger(None, delta=1e-5), source=FixedKeySource(seed)), multiplier, {name: 1.0})


def encode(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    return x, torch.zeros(len(x), dtype=torch.int64) if labels is None else labels


def spread(values: list[float]) -> float:
    return float(torch.tensor(values).double().std())


# -- mean, axes, radius ------------------------------------------------------------------------------------------------


def test_location_carries_its_noise_and_gives_its_bias_back() -> None:
    """The spread is that around the noisy mean: noise adds to |mean|^2 what the spread would lose, and as much again."""
    n, d, multiplier, runs = 600, 100, 6.0, 100
    stream = RecordStream(torch.rand(n, d, generator=torch.Generator().manual_seed(0)), None)
    found = [release_location(stream, d, spending=spending("mean", multiplier, seed)) for seed in range(runs)]
    noise_std = multiplier * math.sqrt(1 + MEAN_BORDER**2 + MEAN_SQUARE**2)
    assert spread([f.count for f in found]) == pytest.approx(noise_std / MEAN_BORDER, rel=0.25)
    means = torch.stack([f.mean for f in found])
    assert float(means.std(0).mean()) == pytest.approx(noise_std * math.sqrt(d) / 2 / n, rel=0.1)
    spreads = torch.tensor([f.spread for f in found]).double()
    given_back = 2 * d * (noise_std * math.sqrt(d) / 2 / n) ** 2
    assert float(spreads.mean()) == pytest.approx(d / 12 + given_back / 2, abs=0.4 * given_back)
    assert float(spreads.std()) == pytest.approx(noise_std / MEAN_SQUARE * d / 4 / n, rel=0.25)


def subspace(x: Tensor, count: float, multiplier: float, clip: float = 1.0, axes: int = 4, **options: float) -> Any:
    location = Location(count, torch.full((x.shape[1],), 0.5).double(), 1.0)
    chosen = {"radius": 1.0} | options
    paid = spending("subspace", multiplier)
    return release_subspace(RecordStream(x, None), location, axes=axes, clip=clip, spending=paid, **chosen)  # type: ignore[arg-type]


@pytest.mark.parametrize("clip", [0.5, 2.0])
def test_the_edge_is_where_noise_alone_ends(clip: float) -> None:
    found = subspace(torch.full((50, 80), 0.5), 50.0, 3.0, clip)
    assert 0.85 < float(found.eigenvalues[0]) / found.edge < 1.1
    assert found.edge == pytest.approx(3.0 * math.sqrt(2 * 80) * clip**2 / 50.0)


def test_axes_that_noise_hides_are_not_magnified() -> None:
    """Their eigenvalues, below 0 here, count as .3 of the edge."""
    found = subspace(torch.full((50, 80), 0.5), 50.0, 3.0, axes=60)
    assert float(found.eigenvalues[-1]) < 0
    assert float(found.scales.max() / found.scales.min()) == pytest.approx((1 / 0.3) ** 0.25, rel=0.15)


def test_clip_radii_leave_out_what_noise_adds_to_an_axis() -> None:
    """A spike of size s beside noise of edge e = 1.6 s shows up as s + e^2 / 4 s, 1.64 s; the radius is that of s."""
    n, d = 2000, 60
    x = torch.full((n, d), 0.5)
    x[:, 0] += torch.where(torch.arange(n) % 2 == 0, 0.3, -0.3)
    spike = 0.09
    multiplier = 1.6 * spike * n / math.sqrt(2 * d)
    found = subspace(x, float(n), multiplier, axes=1)
    assert float(found.eigenvalues[0]) == pytest.approx(1.64 * spike, rel=0.1)
    assert float(found.scales[0]) == pytest.approx(spike**0.5, rel=0.1)


# -- moments -----------------------------------------------------------------------------------------------------------


def moments(n: int, m: int, multiplier: float, *, k: int = 1, seed: int = 0) -> Moments:
    """Of n records, all at 0 and in the first of k classes."""
    stream = RecordStream(torch.zeros(n, m), torch.zeros(n, dtype=torch.int64))
    return release_moments(stream, encode, k=k, m=m, name="components", spending=spending("components", multiplier, seed))


def test_moments_carry_their_noise_and_know_it() -> None:
    found = moments(400, 80, 3.0)
    assert found.noise_std == pytest.approx(3.0 * GRAM)
    assert 0.85 < float(torch.linalg.eigvalsh(found.covariances[0])[-1]) / float(found.edges[0]) < 1.15
    counts = [float(moments(400, 1, 3.0, seed=seed).counts) for seed in range(60)]
    assert spread(counts) == pytest.approx(3.0 * GRAM / BORDER**2, rel=0.25)


def test_a_component_is_heard_from_four_deviations_on() -> None:
    std = 2.0 * GRAM / BORDER**2
    found = moments(0, 1, 2.0, k=3)
    for deviations, detected in ((3.9, False), (4.1, True)):
        counts = torch.full((3,), deviations * std).double()
        assert Moments(counts, found.means, found.covariances, found.noise_std).detected.tolist() == [detected] * 3


def test_pooled_moments_have_the_noise_of_all_components() -> None:
    """Their edge is where the largest eigenvalue of pure noise is, for many components and not for one only."""
    k, m = 16, 60
    stream = RecordStream(torch.zeros(k * 200, m), torch.arange(k * 200) % k)
    found = release_moments(stream, encode, k=k, m=m, name="components", spending=spending("components", 2.0))
    whole = pooled(found)
    assert whole.noise_std == pytest.approx(found.noise_std * 4.0)
    assert 0.8 < float(torch.linalg.eigvalsh(whole.covariances[0])[-1]) / float(whole.edges[0]) < 1.2


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_shrinkage_weighs_a_distance_by_the_noise_that_explains_it(factor: float) -> None:
    m, noise_std = 40, 0.01
    noise = torch.randn(m, m, generator=torch.Generator().manual_seed(0)).double() * noise_std
    target = torch.eye(m).double()
    covariance = target + factor * (noise + noise.T) / 2  # std noise_std on the diagonal, / sqrt 2 elsewhere
    moved = torch.linalg.eigvalsh(covariance)[-1] - 1
    left = float((shrunken(covariance, target, noise_std).eigenvalues[0] - 1) / moved)
    assert left == pytest.approx(max(0.0, 1 - factor**-2), abs=0.12)


# -- clusters, marginals, sizes ----------------------------------------------------------------------------------------


def test_centres_carry_their_noise_and_know_it() -> None:
    start = torch.tensor([[[0.5, 0.0], [-0.5, 0.0]]]).double()
    x = start[0].float().repeat(400, 1)
    multiplier, rounds = 4.0, 2
    found = [
        release_centres(RecordStream(x, None), encode, start, spending=spending("clusters", multiplier, seed), rounds=rounds)
        for seed in range(60)
    ]
    noise_std = multiplier * math.sqrt(rounds) * VECTOR
    assert found[0].sum_std == pytest.approx(noise_std)
    assert spread([float(f.counts[0, 0]) for f in found]) == pytest.approx(noise_std / BORDER, rel=0.25)
    assert spread([float(f.centres[0, 0, 1]) for f in found]) == pytest.approx(noise_std / 400, rel=0.25)


@pytest.mark.parametrize(("deviations", "moves"), [(2.0, False), (4.5, True)])
def test_a_centre_moves_from_three_deviations_on(deviations: float, moves: bool) -> None:
    multiplier = 20.0
    n = round(deviations * multiplier * VECTOR / BORDER)
    start = torch.zeros(1, 1, 2).double()
    moved = [
        bool(
            release_centres(
                RecordStream(torch.full((n, 2), 0.5), None),
                encode,
                start,
                spending=spending("clusters", multiplier, seed),
                rounds=1,
            ).centres.any()
        )
        for seed in range(20)
    ]
    assert (sum(moved) > 15) if moves else (sum(moved) < 6)


def test_marginals_carry_their_noise() -> None:
    n, d, multiplier = 500, 64, 5.0
    stream = RecordStream((torch.arange(d) % 2).byte().repeat(n, 1), None)
    found = [release_marginals(stream, d, k=1, spending=spending("marginals", multiplier, seed)) for seed in range(40)]
    assert spread([float(counts) for counts, _ in found]) == pytest.approx(multiplier * VECTOR / BORDER, rel=0.3)
    off = torch.stack([p[0, ::2] for _, p in found])  # clamped at 0
    assert float(off[off > 0].square().mean().sqrt()) == pytest.approx(multiplier * VECTOR * math.sqrt(d) / 2 / n, rel=0.15)


def test_a_tilt_leaves_pairs_as_wrong_as_their_noise() -> None:
    """At the optimum a pair is wrong by s |theta|: more noise, smaller tilts, in proportion."""
    generator = torch.Generator().manual_seed(0)
    bits = (torch.rand(20_000, 6, generator=generator) < 0.5).double()
    pairs = bits.T @ bits / len(bits)
    pairs[0, 1] = pairs[1, 0] = pairs[0, 1] + 0.05
    for noise_std in (0.1, 0.4):
        theta = fit_tilt(bits, pairs, noise_std=noise_std)
        weights = torch.softmax(((bits @ theta) * bits).sum(1), 0)
        left = float(pairs[0, 1] - (bits[:, 0] * bits[:, 1] * weights).sum())
        assert left == pytest.approx(noise_std * float(theta[0, 1]), rel=0.15)


def test_sets_are_cleaned_by_the_noise_that_they_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What clean-up and classes are told is the deviation of what they are given; the number of records is noisy, too."""
    told: dict[str, list[tuple[Tensor, float]]] = {"cleaned_histogram": [], "shrunken_counts": []}
    for name in told:
        clean = getattr(of_sets, name)

        def watched(noisy: Tensor, noise_std: float, name: str = name, clean: Any = clean) -> Tensor:
            told[name].append((noisy, noise_std))
            return clean(noisy, noise_std)  # type: ignore[no-any-return]

        monkeypatch.setattr(of_sets, name, watched)
    fitted: list[Conjunctions] = []

    def classes(found: Conjunctions, *args: Any, **options: Any) -> Classes:
        fitted.append(found)
        return fit_classes(found, *args, **options)

    monkeypatch.setattr(of_sets, "fit_classes", classes)
    d, n, multiplier = 400, 3000, 20.0
    x = torch.zeros(n, d, dtype=torch.uint8)
    x[:, :4] = 1
    shares = {"sizes": 0.2, "items": 0.4, "frequent": 0.4}
    paid = Spending(Curator(Ledger(None, delta=1e-5), source=FixedKeySource()), multiplier, shares)
    found = release_sets(RecordStream(x, None), d, spending=paid, generator=torch.Generator().manual_seed(0))
    whole = multiplier / math.sqrt(0.4)
    (noisy, std), (others, others_std) = told["cleaned_histogram"]
    exact = torch.zeros(len(noisy)).double()
    exact[4] = n
    assert std == pytest.approx(multiplier / math.sqrt(0.2))
    assert float((noisy - exact).std()) == pytest.approx(std, rel=0.35)
    assert others_std == pytest.approx(whole * norm() / 2)
    assert float((others - n * torch.eye(len(others))[0]).std()) == pytest.approx(others_std, rel=0.35)
    ((noisy, std),) = told["shrunken_counts"]
    assert std == pytest.approx(whole * 5**0.5), "the clip is the size above all"
    assert float((noisy - n * x[0].double()).std()) == pytest.approx(std, rel=0.1)
    (blocks,) = fitted
    held = torch.isin(found.frequent, torch.arange(4)).double()
    assert found.count == blocks.n
    assert blocks.stds[5:] == pytest.approx((whole * norm() * 2**0.5, whole * norm() * 2.0))
    for values, std, order in ((blocks.pairs, blocks.stds[5], 2), (blocks.triples, blocks.stds[6], 3)):
        every = torch.combinations(held, order).prod(1)
        assert float((values - n * every).std()) == pytest.approx(std, rel=0.25)


def norm() -> float:
    """Of what one record adds for 16 frequent items, of which it holds 5: count, bins, held, items twice, pairs, triples."""
    return math.sqrt(1 + 4 + 0.5 + 5 + 5 / 4 + 10 / 2 + 10 / 4)


def test_histograms_end_where_what_is_left_could_be_noise() -> None:
    """At three deviations of the sum of all bins that are left, neither at two nor at five."""
    bins, std = 50, 10.0
    for deviations, kept in ((2.0, False), (5.0, True)):
        noisy = torch.zeros(bins).double()
        noisy[0], noisy[20] = 1000.0, deviations * std * math.sqrt(bins - 20)
        assert bool(of_sets.cleaned_histogram(noisy, std)[20] > 0) is kept
