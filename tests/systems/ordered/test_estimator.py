"""What every estimator of a column keeps: privacy before noise, any order of records, refusals; the noisy histogram."""

import numpy as np
import pytest
from fixed_source import FixedKeySource
from refusals import refused

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.mechanisms import Relation
from dpgen.systems.ordered.estimator import LaplaceHistogram, OrderedEstimator, sorted_values
from dpgen.systems.ordered.merr import MERR
from dpgen.systems.ordered.model import PiecewiseCDF
from dpgen.systems.ordered.partition import PartitionCDF

ALL: list[type[OrderedEstimator]] = [PartitionCDF, LaplaceHistogram, MERR]
VALUES = np.random.default_rng(0).integers(0, 300, 5000)


def estimator(kind: type[OrderedEstimator], **options: float) -> OrderedEstimator:
    return kind(**{"epsilon": 1.0, "delta": 0.0 if kind is LaplaceHistogram else 1e-6, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("kind", ALL)
def test_it_spends_its_epsilon_and_finds_the_distribution(kind: type[OrderedEstimator], relation: Relation) -> None:
    ledger = Ledger(Budget(1.0, 1e-6), relation=relation)
    cdf = PiecewiseCDF.from_counts(estimator(kind).fit_counts(VALUES, N=300, curator=Curator(ledger)))
    assert 0.98 < ledger.epsilon() <= 1.0
    error = np.abs(cdf.below(np.arange(1, 301)) - (np.arange(300) + 1) / 300).max()
    assert 0 < error < 0.08, "noise is there, and it is no more than that"


@pytest.mark.parametrize(
    ("option", "value"), [("epsilon", 0.0), ("epsilon", float("nan")), ("delta", 1.0), ("size", 0), ("rows", 0)]
)
def test_bad_options(option: str, value: float) -> None:
    with refused(option):
        estimator(LaplaceHistogram, **{option: value})
    with refused("delta"):
        PartitionCDF(epsilon=1.0)


@pytest.mark.parametrize(
    ("values", "N", "name"),
    [
        *((np.array(values), 8, "values") for values in ([], [1.5, 2.0], [[1, 2]], [0, 8], [-1, 3])),
        (np.array([0, 2**63], np.uint64), 2**62, "values"),
        *((np.array([0, 0]), N, "N is") for N in (1, 2**62 + 1)),
    ],
)
def test_bad_values(values: np.ndarray, N: int, name: str) -> None:
    ledger = Ledger(Budget(1.0, 1e-6))
    with refused(name):
        estimator(LaplaceHistogram).fit_counts(values, N=N, curator=Curator(ledger))
    assert ledger.entries() == []


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("kind", ALL)
def test_how_many_records_there_are_is_no_reason_to_refuse(kind: type[OrderedEstimator], n: int, relation: Relation) -> None:
    ledger = Ledger(Budget(1.0, 1e-6), relation=relation)
    counts = estimator(kind).fit_counts(np.full(n, 17), N=300, curator=Curator(ledger))
    assert PiecewiseCDF.from_counts(counts).values[-1] == 1
    assert 0.98 < ledger.epsilon() <= 1.0


def test_the_private_array_is_left_alone_and_uint64_is_fine() -> None:
    values = np.array([5, 1, 3], np.uint64)
    assert sorted_values(values, N=8).tolist() == [1, 3, 5]
    assert sorted_values(values, N=8).dtype == np.int64
    assert values.tolist() == [5, 1, 3]


@pytest.mark.parametrize("kind", ALL)
def test_the_order_of_the_values_does_not_matter(kind: type[OrderedEstimator]) -> None:
    """Counts are differences of ranks among sorted values, whatever order they come in."""
    found = []
    for values in (VALUES, VALUES[::-1]):
        curator = Curator(Ledger(None, delta=1e-6), source=FixedKeySource())
        found.append(estimator(kind).fit_counts(values, N=300, curator=curator).counts.tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_the_total_is_noisy_where_it_is_private(relation: Relation) -> None:
    """The sum of ten noisy counts is n with a chance of about 1/8: all of twelve with 1e-11."""
    values, totals = np.repeat(np.arange(10), 1000), set()
    for _ in range(12):
        curator = Curator(Ledger(None, delta=1e-9, relation=relation))
        totals.add(LaplaceHistogram(epsilon=1.0).fit_counts(values, N=10, curator=curator).counts[-1])
    assert totals == {10_000.0} if relation == "replace_one" else len(totals) > 1
    assert all(abs(total - 10_000) < 200 for total in totals)
