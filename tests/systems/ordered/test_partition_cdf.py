"""The recommended estimator: what it charges, and an error close to that of the empirical CDF (from both sides)."""

import numpy as np
import pytest

from dpgen.data.toy import REFERENCE_MIXTURES, reference_mixture
from dpgen.evaluation.columns import empirical_error, kolmogorov_error
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.mechanisms import Relation
from dpgen.systems.ordered.model import PiecewiseCDF
from dpgen.systems.ordered.partition import PartitionCDF

N = 10**18


@pytest.mark.parametrize("name", REFERENCE_MIXTURES)
def test_the_error_is_that_of_the_empirical_cdf(name: str) -> None:
    """Three draws of 30,000 records; the goal is a ratio of mean errors <= 1.10 from 10^5 on, the room is for chance."""
    mixture, rng = reference_mixture(name), np.random.default_rng(0)  # type: ignore[arg-type]
    ours, plain = [], []
    for _ in range(3):
        x = np.sort(mixture.draw(30_000, N, rng))
        counts = PartitionCDF(epsilon=1.0, delta=1e-5).fit_counts(
            x, N=N, curator=Curator(Ledger(None, delta=1e-5, relation="replace_one"))
        )
        ours.append(kolmogorov_error(PiecewiseCDF.from_counts(counts), x, mixture))
        plain.append(empirical_error(x, mixture, N))
        assert kolmogorov_error(PiecewiseCDF.from_counts(counts), x) > 1e-4, "too good: the noise is missing"
    assert np.mean(ours) / np.mean(plain) < 1.35


@pytest.mark.parametrize(
    ("relation", "size", "notes"),
    [
        ("replace_one", None, ["partition: tree", "partition: prefix counts"]),
        ("add_remove", 4000, ["partition: tree", "partition: prefix counts"]),
        ("add_remove", None, ["number of records, discrete Laplace", "partition: tree", "partition: prefix counts"]),
    ],
)
def test_what_is_charged_fills_the_budget(relation: Relation, size: int | None, notes: list[str]) -> None:
    ledger = Ledger(Budget(1.0, 1e-6), relation=relation)
    PartitionCDF(epsilon=1.0, delta=1e-6, size=size).fit_counts(np.arange(4000), N=4096, curator=Curator(ledger))
    assert [entry.note for entry in ledger.entries()] == notes
    assert 0.995 < ledger.epsilon() <= 1.0


def test_one_leaf_and_ties_are_fine() -> None:
    def cdf(epsilon: float, values: np.ndarray, N: int) -> PiecewiseCDF:
        curator = Curator(Ledger(None, delta=1e-6, relation="replace_one"))
        return PiecewiseCDF.from_counts(PartitionCDF(epsilon=epsilon, delta=1e-6).fit_counts(values, N=N, curator=curator))

    assert cdf(0.01, np.array([3, 4]), 8).values[-1] == 1
    assert np.diff(cdf(2.0, np.full(5000, 77), 10**15).below([77, 78])) > 0.9
