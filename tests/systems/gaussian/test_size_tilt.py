"""Sets: sizes and items from two releases."""

import pytest
import tiny
import torch

from dpgen.metrics import independent_marginals, query_errors
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.statement import PrivacyStatement
from dpgen.systems.gaussian.calibration import (
    SHARES,
    _binned_sizes,
    cleaned_histogram,
    fit_size_tilt,
    item_sums,
    release_size_tilt,
    shrunken_counts,
    size_bins,
    size_histogram,
    tilts,
)
from dpgen.systems.gaussian.sums import RecordStream, Spending
from dpgen.systems.marginals.model import ProductMixture


def baskets(n: int = 6000, d: int = 120) -> torch.Tensor:
    """Sets of very different sizes over items of very different frequency."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.arange(1, d + 1).float() ** -0.8
    size = torch.rand(n, 1, generator=generator) ** 4 * 40 + 1
    return (torch.rand(n, d, generator=generator) < size * weight / weight.sum()).to(torch.uint8)


def test_one_record_weighs_at_most_its_bound() -> None:
    """The items' sensitivity is sqrt(c), exactly and for records of every size."""
    d, clip = 64, 10
    for size in (0, 1, 9, 10, 11, 64):
        x = (torch.arange(d) < size).to(torch.uint8)[None]
        sums = item_sums(RecordStream(x, None), d, clip)
        assert sum(value**2 for value in sums.values.tolist()) <= clip * round(1 / sums.step) ** 2
        assert float(sums.values.double().norm()) * sums.step == pytest.approx(min(size, clip) ** 0.5, rel=1e-6)
        assert size_histogram(RecordStream(x, None), size_bins(d)).values.sum() == 1


def test_bins_cover_every_size_once() -> None:
    bins = size_bins(1000)
    assert bins[0] == 0
    assert bool((bins.diff() > 0).all())
    assert int(bins[-1]) <= 1000


def test_tilts_reach_the_sizes() -> None:
    log_odds = torch.randn(50, generator=torch.Generator().manual_seed(0)).double()
    sizes = torch.tensor([0.02, 3.0, 40.0]).double()
    reached = torch.sigmoid(log_odds + tilts(log_odds, sizes)[:, None]).sum(1)
    assert torch.allclose(reached, sizes, rtol=1e-6)


def test_size_distributions_are_near_the_exact_ones() -> None:
    p = torch.rand(3, 40, generator=torch.Generator().manual_seed(0)).double() * torch.tensor([[0.05], [0.3], [0.9]])
    exact = torch.zeros(3, 41).double()
    exact[:, 0] = 1.0
    for j in range(40):  # the distribution of a sum of independent bits, bit by bit
        exact[:, 1:] = exact[:, 1:] * (1 - p[:, j : j + 1]) + exact[:, :-1] * p[:, j : j + 1]
        exact[:, 0] *= 1 - p[:, j]
    bins = size_bins(40)
    owner = torch.bucketize(torch.arange(41), bins, right=True) - 1
    binned = torch.zeros(3, len(bins)).double().index_add_(1, owner, exact)
    assert float((_binned_sizes(p, bins) - binned).abs().max()) < 0.06


def test_a_cleaned_histogram_is_one_and_ends_where_noise_begins() -> None:
    noisy = torch.cat([torch.tensor([900.0, 500.0, 100.0]), 5.0 * torch.randn(40, generator=torch.Generator().manual_seed(0))])
    cleaned = cleaned_histogram(noisy.double(), 5.0)
    assert float(cleaned.sum()) == pytest.approx(1.0)
    assert float(cleaned[10:].sum()) < 0.03
    assert cleaned_histogram(-torch.ones(4).double(), 5.0).tolist() == [1.0, 0.0, 0.0, 0.0]


def test_shrinking_is_better_than_taking_noise_at_its_word() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = 2000.0 * torch.arange(1, 301).double() ** -1.2
    noisy = truth + 10.0 * torch.randn(300, generator=generator).double()
    assert float((shrunken_counts(noisy, 10.0) - truth).square().mean()) < 0.6 * float((noisy - truth).square().mean())


def test_without_noise_the_fit_gives_items_and_sizes_back() -> None:
    x = baskets()
    bins, size = size_bins(120), x.sum(1)
    histogram = torch.bincount(torch.bucketize(size, bins, right=True) - 1, minlength=len(bins)).double()
    clip = 12.0
    counts = (x.double() * (clip / size.clamp_min(clip)).sqrt()[:, None]).sum(0)
    found = fit_size_tilt(histogram / len(x), bins, counts, clip=clip, records=float(len(x)))
    marginals = found.weights @ found.probabilities
    assert float((marginals - x.double().mean(0)).abs().max()) < 0.02
    mean_square = found.weights @ found.probabilities.sum(1).square()
    assert float(mean_square) == pytest.approx(float(size.double().square().mean() - size.double().mean()), rel=0.15)


def test_subset_queries_beat_independent_marginals_even_exact_ones() -> None:
    x = baskets()
    ledger = Ledger(Budget(4.0, 1e-5))
    spending = Spending.within(Curator(ledger), Budget(4.0, 1e-5), SHARES)
    found = release_size_tilt(RecordStream(x, None), 120, spending=spending)
    statement: PrivacyStatement = tiny.statement()
    model = ProductMixture(found.probabilities, found.weights * found.count, statement=statement)
    mine = query_errors(x, model.samples(len(x), random_state=0).x)
    exact = query_errors(x, independent_marginals(x, len(x), generator=torch.Generator().manual_seed(0)))
    assert sum(mine[f"any_{p}%"] < exact[f"any_{p}%"] for p in (20, 40, 60, 80, 100)) >= 4
    assert 3.9 < ledger.epsilon() <= 4.0
