"""Sets: levels of sizes and classes of frequent items from three releases."""

import math
from itertools import combinations
from typing import Any

import pytest
import tiny
import torch
from fixed_source import FixedKeySource
from torch import Tensor

from dpgen.metrics import independent_marginals, query_errors
from dpgen.privacy.curator import Curator, GaussianBudget
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.statement import PrivacyStatement
from dpgen.systems.gaussian import sets as of_sets
from dpgen.systems.gaussian.plan import allocated
from dpgen.systems.gaussian.releases import RecordStream
from dpgen.systems.gaussian.sets import (
    SHARES,
    Conjunctions,
    FrequentItems,
    SetMixture,
    binned_sizes,
    cleaned_histogram,
    fit_classes,
    fit_levels,
    held_shares,
    item_sums,
    release_sets,
    size_bins,
    size_histogram,
)
from dpgen.systems.marginals.model import ProductMixture


def baskets(n: int = 6000, d: int = 120) -> Tensor:
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
    assert float((binned_sizes(p, bins) - binned).abs().max()) < 0.01


def test_a_cleaned_histogram_is_one_and_ends_where_noise_begins() -> None:
    noisy = torch.cat([torch.tensor([900.0, 500.0, 100.0]), 5.0 * torch.randn(40, generator=torch.Generator().manual_seed(0))])
    cleaned = cleaned_histogram(noisy.double(), 5.0)
    assert float(cleaned.sum()) == pytest.approx(1.0)
    assert float(cleaned[10:].sum()) < 0.03
    assert cleaned_histogram(-torch.ones(4).double(), 5.0).tolist() == [1.0, 0.0, 0.0, 0.0]


def test_without_noise_the_fit_gives_items_and_sizes_back() -> None:
    x = baskets()
    bins, size = size_bins(120), x.sum(1)
    histogram = torch.bincount(torch.bucketize(size, bins, right=True) - 1, minlength=len(bins)).double()
    clip = 12.0
    counts = (x.double() * (clip / size.clamp_min(clip)).sqrt()[:, None]).sum(0)
    found = fit_levels(histogram / len(x), bins, counts, clip=clip, records=float(len(x)), held=0.0)
    marginals = found.weights @ found.probabilities
    assert float((marginals - x.double().mean(0)).abs().max()) < 0.02
    mean_square = found.weights @ found.probabilities.sum(1).square()
    assert float(mean_square) == pytest.approx(float(size.double().square().mean() - size.double().mean()), rel=0.1)


# -- frequent items ----------------------------------------------------------------------------------------------------


LAYOUT = FrequentItems(torch.tensor([1, 2, 4, 6, 7]), size_bins(9), torch.tensor([0, 0, 1, 1, 2, 2, 2, 2, 2, 2]), 3)


def slow_sums(x: Tensor, layout: FrequentItems) -> Tensor:
    """What the table of `FrequentItems` says, record by record."""
    total = torch.zeros(sum(math.prod(shape) for shape in layout.shapes), dtype=torch.float64)
    f, groups = len(layout.items), int(layout.groups.max()) + 1
    for row in x.tolist():
        held = [i for i, item in enumerate(layout.items.tolist()) if row[item]]
        others, h = sum(row) - len(held), len(held)
        share = [min(1.0, math.sqrt(math.comb(layout.most, o) / max(math.comb(h, o), 1))) for o in range(4)]
        bin_ = int((layout.bins <= others).sum()) - 1
        by_group = torch.zeros(f, groups).double()
        by_group[held, int(layout.groups[bin_])] = share[1] / 2
        parts = [[1.0], [2.0 * (b == bin_) for b in range(len(layout.bins))], [0.5**0.5 * (c == h) for c in range(f + 1)]]
        parts += [[share[1] * (i in held) for i in range(f)], by_group.flatten().tolist()]
        for o, a in ((2, 0.5**0.5), (3, 0.5)):
            parts.append([a * share[o] * (set(chosen) <= set(held)) for chosen in combinations(range(f), o)])
        total += torch.tensor([value for part in parts for value in part]).double()
    return total


def test_conjunctions_are_counted_as_the_slow_way_does() -> None:
    x = (torch.rand(50, 9, generator=torch.Generator().manual_seed(0)) < 0.4).to(torch.uint8)
    sums = LAYOUT.sums(RecordStream(x, None, batch_size=20))
    assert torch.allclose(sums.values.double() * sums.step, slow_sums(x, LAYOUT), atol=1e-5)


@pytest.mark.parametrize("f", [0, 1, 2, 5, 9])
def test_no_record_adds_more_than_the_norm(f: int) -> None:
    layout = FrequentItems(torch.arange(f), size_bins(9), torch.zeros(10, dtype=torch.int64), 3)
    longest = 0.0
    for held in range(f + 1):
        sums = layout.sums(RecordStream((torch.arange(9) < held).to(torch.uint8)[None], None))
        norm2 = sum(value**2 for value in sums.values.tolist()) * sums.step**2
        assert norm2 <= sums.sensitivity**2
        longest = max(longest, norm2)
    assert longest == pytest.approx(sums.sensitivity**2, rel=1e-6)


def test_parts_are_what_was_added_up() -> None:
    x = (torch.rand(50, 9, generator=torch.Generator().manual_seed(1)) < 0.2).to(torch.uint8)  # hardly any set is cut
    sums = LAYOUT.sums(RecordStream(x, None))
    found = LAYOUT.parted(sums.values.double() * sums.step, 1.0)
    y = x[:, LAYOUT.items].double()
    assert found.n == pytest.approx(50)
    assert float(found.others.sum()) == pytest.approx(50)
    assert float((found.by_group.sum(1) - found.items).abs().max()) < 1e-5
    assert torch.allclose(found.items, y.sum(0), atol=0.6)
    assert torch.allclose(found.held, torch.bincount(y.sum(1).long(), minlength=6).double(), atol=1e-5)
    assert found.stds == pytest.approx((1.0, 0.5, 2**0.5, 1.0, 2.0, 2**0.5, 2.0))


def test_the_number_of_items_that_are_held_is_exact() -> None:
    p = torch.rand(4, 6, generator=torch.Generator().manual_seed(0)).double()
    exact = torch.zeros(4, 7).double()
    for pattern in range(2**6):
        bits = torch.tensor([pattern >> i & 1 for i in range(6)])
        exact[:, int(bits.sum())] += torch.where(bits == 1, p, 1 - p).prod(1)
    assert torch.allclose(held_shares(p), exact)


# -- the whole fit -----------------------------------------------------------------------------------------------------


def fitted(x: Tensor, budget: GaussianBudget, weights: dict[str, float] = SHARES) -> SetMixture:
    generator, shares = torch.Generator().manual_seed(0), allocated(weights, budget.left)
    return release_sets(RecordStream(x, None), x.shape[1], budget=budget, shares=shares, generator=generator)


def of_epsilon(epsilon: float) -> GaussianBudget:
    budget = Budget(epsilon, 1e-5)
    return GaussianBudget(Curator(Ledger(budget)), budget, "fit")


def together(n: int = 8000, d: int = 120) -> Tensor:
    """Baskets in which the second item goes with the first, and the third never does."""
    x = baskets(n, d)
    x[:, 1] = x[:, 0]
    x[:, 2] = (torch.rand(n, generator=torch.Generator().manual_seed(1)) < 0.3) * (1 - x[:, 0])
    return x


def test_queries_beat_independent_marginals_even_exact_ones() -> None:
    x = together()
    found = fitted(x, of_epsilon(4.0))
    statement: PrivacyStatement = tiny.statement()
    model = ProductMixture(found.probabilities, found.weights * found.count, statement=statement)
    mine = query_errors(x, model.samples(len(x), random_state=0).x)
    exact = query_errors(x, independent_marginals(x, len(x), generator=torch.Generator().manual_seed(0)))
    assert sum(mine[f"any_{p}%"] < exact[f"any_{p}%"] for p in (20, 40, 60, 80, 100)) >= 4
    assert mine["all_2"] < 0.6 * exact["all_2"]
    assert mine["all_3"] < 0.6 * exact["all_3"]
    assert {0, 1, 2} <= set(found.frequent.tolist())
    assert model.conjunction([0, 1]) == pytest.approx(float(x[:, 0].double().mean()), rel=0.15)
    assert model.conjunction([0, 2]) < 0.25 * model.conjunction([0]) * model.conjunction([2])


@pytest.mark.parametrize(("n", "d"), [(0, 40), (300, 1), (300, 2)])
def test_few_records_and_few_items_make_a_model(n: int, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_sets, "_STEPS", 20)
    found = fitted(torch.ones(n, d, dtype=torch.uint8), of_epsilon(1.0))
    assert bool(found.probabilities.isfinite().all())
    assert float(found.weights.sum()) == pytest.approx(1.0)
    assert 0 <= float(found.probabilities.min()) <= float(found.probabilities.max()) <= 1


# -- noise --------------------------------------------------------------------------------------------------------------


def test_sets_are_cleaned_by_the_noise_that_they_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What clean-up and classes are told is the deviation of what they are given; the number of records is noisy, too."""
    told: dict[str, list[tuple[Tensor, float]]] = {"cleaned_histogram": [], "shrunken_counts": []}
    for name in told:
        clean = getattr(of_sets, name)

        def watched(noisy: Tensor, noise_std: float, name: str = name, clean: Any = clean) -> Tensor:
            told[name].append((noisy, noise_std))
            return clean(noisy, noise_std)  # type: ignore[no-any-return]

        monkeypatch.setattr(of_sets, name, watched)
    given: list[Conjunctions] = []

    def classes(found: Conjunctions, *args: Any, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
        given.append(found)
        return fit_classes(found, *args, **options)

    monkeypatch.setattr(of_sets, "fit_classes", classes)
    monkeypatch.setattr(of_sets, "_STEPS", 1)
    d, n, multiplier = 400, 3000, 20.0
    x = torch.zeros(n, d, dtype=torch.uint8)
    x[:, :4] = 1
    budget = GaussianBudget(Curator(Ledger(None, delta=1e-5), source=FixedKeySource()), multiplier, "fit")
    found = fitted(x, budget, {"sizes": 0.2, "items": 0.4, "frequent": 0.4})
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
    (blocks,) = given
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
        assert bool(cleaned_histogram(noisy, std)[20] > 0) is kept
