"""Rejection in constant work: its exact law for known proposals, the marginal law, and twins that are not private."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from enumeration import adversarial, is_private, worst_log_ratio
from fixed_source import FixedKeySource
from test_sir import Scripted, curator, three_points
from torch import Tensor

from dpgen.systems.mbde.densities import GaussianReference, ModelReference, TiltedDensity, evaluated
from dpgen.systems.mbde.samplers import RejectionSampler, acceptance_words, first_accepted, tries_for

EPSILONS = [1e-6, 0.25, 1.0, 5.0]
WORDS = 2**62


def ordered_law(chances: list[Fraction], order: tuple[int, ...]) -> list[Fraction]:
    """Law of the first accepted proposal in a known order, the last one always accepted."""
    law, reached = [Fraction(0)] * len(chances), Fraction(1)
    for place, i in enumerate(order):
        law[i] = reached * (chances[i] if place < len(order) - 1 else 1)
        reached *= 1 - chances[i]
    return law


def secret_law(chances: list[Fraction]) -> list[Fraction]:
    """The same averaged over all orders."""
    orders = list(itertools.permutations(range(len(chances))))
    laws = [ordered_law(chances, order) for order in orders]
    return [sum((law[i] for law in laws), Fraction(0)) / len(orders) for i in range(len(chances))]


def chances(tilt: Tensor, epsilon: float) -> list[list[Fraction]]:
    words = acceptance_words(tilt, epsilon / 4)
    return [[Fraction(int(w), WORDS) for w in row] for row in words]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("r", [2, 3, 5])
def test_the_law_is_private_for_every_set_of_proposals(epsilon: float, r: int) -> None:
    laws = [secret_law(c) for c in chances(adversarial(r, rows=15), epsilon)]
    assert all(sum(law) == 1 for law in laws)
    assert is_private(laws, epsilon)


def test_the_code_draws_this_law() -> None:
    """Every pattern of coins and every order of three proposals, through `first_accepted` itself."""
    tilt = torch.tensor([[0.25, -0.1, -0.25]], dtype=torch.float64)
    words = acceptance_words(tilt, 0.25)
    accept = chances(tilt, 1.0)[0]
    law = [Fraction(0)] * 3
    for coins in itertools.product([True, False], repeat=3):
        weight = math.prod((c if coin else 1 - c for coin, c in zip(coins, accept)), start=Fraction(1))
        scripted = [int(w) - 1 if coin else min(int(w), WORDS - 1) for coin, w in zip(coins, words[0])]
        if any(not coin and int(w) == WORDS for coin, w in zip(coins, words[0])):
            assert weight == 0
            continue
        for order in itertools.permutations(range(3)):
            keys = [0, 0, 0]
            for place, i in enumerate(order):
                keys[i] = place
            source = Scripted([w << 2 for w in scripted + keys])
            law[int(first_accepted(words, source))] += weight / 6
    assert law == secret_law(accept)


def test_the_marginal_law_is_the_mixture_that_is_claimed() -> None:
    """Three atoms, R = 2: (1 - w) Q + w Q0 exactly, inside [e^-2B, e^2B] Q0."""
    bound, tilt = 0.5, torch.tensor([[0.5, 0.0, -0.5]], dtype=torch.float64)
    accept = chances(tilt, 2.0)[0]
    law = [Fraction(0)] * 3
    for book in itertools.product(range(3), repeat=3):
        for place, share in enumerate(secret_law([accept[i] for i in book])):
            law[book[place]] += share / 27
    mean = sum(accept, Fraction(0)) / 3
    fallback = (1 - mean) ** 2
    assert law == [(1 - fallback) * c / (3 * mean) + fallback / 3 for c in accept]
    assert all(math.exp(-2 * bound) <= float(3 * p) <= math.exp(2 * bound) for p in law)


def test_a_known_order_is_rejected() -> None:
    """Twin: proposals looked at as they come. One data set never reaches the second."""
    laws = [ordered_law(c, (0, 1, 2)) for c in chances(adversarial(3, rows=10), 1.0)]
    assert not is_private(laws, 1.0)


def test_unclipped_tilts_are_rejected() -> None:
    """Twin: acceptance e^(f - max f) without the clip."""
    tilt = adversarial(3, rows=10)
    accept = (tilt - tilt.amax(1, keepdim=True)).exp().clamp_min(1e-15)
    assert not is_private([secret_law([Fraction(float(a)) for a in row]) for row in accept], 1.0)


def test_a_visible_count_of_tries_is_rejected() -> None:
    """Twin: unbounded rejection whose number of tries can be seen. Outcomes: the number, up to 20, and more than 20."""

    def counts(mean: Fraction) -> list[Fraction]:
        law = [(1 - mean) ** n * mean for n in range(20)]
        return [*law, 1 - sum(law, Fraction(0))]

    epsilon = 5.0
    most, least = (Fraction(int(w), WORDS) for w in acceptance_words(torch.tensor([1.25, -1.25]), epsilon / 4))
    assert not is_private([counts(most), counts(least)], epsilon)
    # not even between tilts that are 0 almost everywhere and extreme on the rest: P(N > 20) is 0.18 against 1e-13
    assert worst_log_ratio(counts(Fraction(3, 4)), counts(least)) > 2 * epsilon
    assert 0.15 < float(counts(least)[-1]) < 0.25


def test_acceptance_is_bounded_whatever_the_tilt() -> None:
    garbage = torch.tensor([math.nan, math.inf, -math.inf, 1e30, -1e30])
    values = evaluated(lambda x: garbage, torch.zeros(5, 1), 0.25)
    words = acceptance_words(values, 0.25)
    assert int(words.max()) == WORDS
    assert int(words.min()) >= math.exp(-0.5) * WORDS
    assert is_private([secret_law([Fraction(int(w), WORDS) for w in words]), secret_law([Fraction(1, 2) + 0 * WORDS] * 5)], 1.0)


def law(function: object = None, *, epsilon: float = 2.0, reference: object = None) -> TiltedDensity:
    q0 = reference or GaussianReference.standard(2)
    return TiltedDensity(function or (lambda x: x[:, 0]), q0, bound=epsilon / 4, epsilon=epsilon)  # type: ignore[arg-type]


def test_draws_follow_the_boosted_density() -> None:
    scores = torch.tensor([0.5, 0.0, -0.5], dtype=torch.float64)
    exact = torch.softmax(scores, 0)
    sampler = RejectionSampler(law(lambda x: scores[x[:, 0].long()], reference=ModelReference(three_points)), curator=curator())
    drawn = torch.bincount(sampler.sample(20_000)[:, 0].long(), minlength=3) / 20_000
    assert ((drawn - exact).abs() < 6 * (exact * (1 - exact) / 20_000).sqrt()).all()


def test_work_does_not_depend_on_the_data() -> None:
    def counted(function: object) -> list[int]:
        rows: list[int] = []

        def watched(x: Tensor) -> Tensor:
            rows.append(len(x))
            return function(x)  # type: ignore[operator]

        RejectionSampler(law(watched), curator=curator()).sample(100)
        return rows

    assert counted(lambda x: 0 * x[:, 0] + 1) == counted(lambda x: 0 * x[:, 0] - 1) == counted(lambda x: x[:, 0] * math.nan)
    assert sum(counted(lambda x: x[:, 0])) == 100 * (1 + tries_for(0.5))


def test_more_tries_than_are_ever_made_are_refused() -> None:
    with pytest.raises(ValueError, match="tries"):
        RejectionSampler(law(epsilon=40.0), curator=curator())


def test_where_nobody_is_accepted_anybody_may_be_the_last() -> None:
    index = first_accepted(torch.zeros(4000, 4, dtype=torch.int64), FixedKeySource(5))
    assert float((torch.bincount(index, minlength=4) / 1000.0 - 1.0).abs().max()) < 0.15
