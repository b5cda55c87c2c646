"""Theorem 3: exact hockey-stick of the counts, the printed scale rejected, projection, normalisation."""

import numpy as np
import pytest

from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.privacy.noise import SecureSource
from dpgen.privacy.parallel import Relation
from dpgen.systems.ordered.laplace_histogram import LaplaceHistogram, noise_scale


def pmf(scale: float, reach: int = 200) -> np.ndarray:
    k = np.arange(-reach, reach + 1)
    weights = np.exp(-np.abs(k) / scale)
    return weights / weights.sum()


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
    LaplaceHistogram(epsilon=0.5).fit(np.array([0, 1, 1]), N=5, ledger=ledger, source=source)
    assert asked == [((5,), scale)]
    assert ledger.epsilon() == pytest.approx(0.5, rel=1e-3)
    assert ledger.entries()[0].event.epsilon == 0.5


def test_nothing_is_drawn_when_the_ledger_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SecureSource()
    monkeypatch.setattr(source, "discrete_laplace", lambda *_, **__: pytest.fail("drew before the ledger agreed"))
    with pytest.raises(BudgetExceeded, match=r"budget epsilon 0\.4"):
        LaplaceHistogram(epsilon=0.5).fit(np.array([0, 1]), N=5, ledger=Ledger(Budget(0.4, 1e-9)), source=source)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_counts_are_near_the_truth_and_noisy(relation: Relation) -> None:
    values = np.repeat(np.arange(10), 1000)
    counts = LaplaceHistogram(epsilon=1.0).fit_counts(
        values, N=10, ledger=Ledger(None, delta=1e-9, relation=relation), source=SecureSource()
    )
    masses = np.diff(counts.counts)
    assert np.abs(masses - 1000).max() < 100
    assert np.abs(masses - 1000).max() > 0
    assert (counts.counts[-1] == 10_000) == (relation == "replace_one") or counts.counts[-1] == pytest.approx(10_000, abs=200)


def test_large_domains_are_refused() -> None:
    with pytest.raises(ValueError, match="needs N <= 16777216"):
        LaplaceHistogram(epsilon=1.0).fit(np.array([0, 1]), N=2**25, ledger=Ledger(None, delta=1e-9), source=SecureSource())
