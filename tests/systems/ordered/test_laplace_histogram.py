"""Theorem 3: exact hockey-stick of the counts, the printed scale rejected, projection, normalisation."""

import numpy as np
import pytest

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.mechanisms import Relation
from dpgen.privacy.noise import SecureSource
from dpgen.systems.ordered.counts import NO_RECORDS, cell_counts
from dpgen.systems.ordered.histogram import LaplaceHistogram


def pmf(scale: float, reach: int = 200) -> np.ndarray:
    k = np.arange(-reach, reach + 1)
    weights = np.exp(-np.abs(k) / scale)
    return weights / weights.sum()


def noise_scale(epsilon: float, relation: Relation) -> float:
    """What the curator draws for counts of disjoint cells."""
    return cell_counts(NO_RECORDS, np.array([0, 1]), norm="l1").under(relation) / epsilon


def hockey_stick(scale: float, epsilon: float, relation: Relation) -> float:
    """delta(epsilon) of two counts with integer Laplace noise, one record inserted or moved from one to the other."""
    base = pmf(scale)
    first = np.multiply.outer(base, base)
    second = np.multiply.outer(np.roll(base, 1), base if relation == "add_remove" else np.roll(base, -1))
    inner = slice(2, -2)
    return float(np.maximum(first - np.exp(epsilon) * second, 0)[inner, inner].sum())


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_the_scale_is_private_and_not_wasteful(epsilon: float, relation: Relation) -> None:
    assert hockey_stick(noise_scale(epsilon, relation), epsilon, relation) < 1e-12
    assert hockey_stick(noise_scale(epsilon, relation), 0.95 * epsilon, relation) > 1e-4


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_the_printed_scale_is_rejected_under_replace_one(epsilon: float) -> None:
    """Laplace(1 / (epsilon n)) on shares is Laplace(1 / epsilon) on counts: it costs 2 epsilon."""
    assert hockey_stick(1 / epsilon, epsilon, "replace_one") > 0.01
    assert hockey_stick(1 / epsilon, 2 * epsilon, "replace_one") < 1e-12


@pytest.mark.parametrize(("relation", "scale"), [("add_remove", 2.0), ("replace_one", 4.0)])
def test_the_fit_draws_noise_of_that_scale(relation: Relation, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, source = [], SecureSource()
    draw = source.discrete_laplace
    monkeypatch.setattr(
        source, "discrete_laplace", lambda *shape, scale: (asked.append((shape, scale)), draw(*shape, scale=scale))[1]
    )
    ledger = Ledger(Budget(0.5, 1e-9), relation=relation)
    LaplaceHistogram(epsilon=0.5).fit(np.array([0, 1, 1]), N=5, curator=Curator(ledger, source=source))
    assert asked == [((5,), scale)]
    assert ledger.epsilon() == pytest.approx(0.5, rel=1e-3)
    assert ledger.entries()[0].event.epsilon == 0.5


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_counts_are_near_the_truth_and_noisy(relation: Relation) -> None:
    values = np.repeat(np.arange(10), 1000)
    counts = LaplaceHistogram(epsilon=1.0).fit_counts(
        values, N=10, curator=Curator(Ledger(None, delta=1e-9, relation=relation))
    )
    masses = np.diff(counts.counts)
    assert np.abs(masses - 1000).max() < 100
    assert np.abs(masses - 1000).max() > 0


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_the_total_is_noisy_where_it_is_private(relation: Relation) -> None:
    """The sum of ten noisy counts is n with a chance of about 1/8: all of twelve with 1e-11."""
    values, totals = np.repeat(np.arange(10), 1000), set()
    for _ in range(12):
        curator = Curator(Ledger(None, delta=1e-9, relation=relation))
        totals.add(LaplaceHistogram(epsilon=1.0).fit_counts(values, N=10, curator=curator).counts[-1])
    assert totals == {10_000.0} if relation == "replace_one" else len(totals) > 1
    assert all(abs(total - 10_000) < 200 for total in totals)


def test_large_domains_are_refused() -> None:
    with pytest.raises(ValueError, match="N is"):
        LaplaceHistogram(epsilon=1.0).fit(np.array([0, 1]), N=2**25, curator=Curator(Ledger(None, delta=1e-9)))
