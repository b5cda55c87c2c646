"""The released distribution: CDF, quantiles, histograms, samples in the user's units; files; refusals."""

import numpy as np
import pytest
import tiny
from refusals import refused

from dpgen.columns.discretized import DiscretizedColumn
from dpgen.data.toy import reference_mixture
from dpgen.evaluation.columns import total_variation
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.systems.ordered.estimator import MonotoneCounts
from dpgen.systems.ordered.model import OrderedDistribution, PiecewiseCDF, piecewise_polynomial
from dpgen.systems.ordered.partition import PartitionCDF


def curved() -> PiecewiseCDF:
    knots, values = np.array([0, 10, 40]), np.array([0.0, 0.25, 1.0])
    return PiecewiseCDF(knots, values, slopes=np.array([0.5, -0.3]), curves=np.array([0.0, 0.4]))


def release(columns: int = 1) -> OrderedDistribution:
    cdfs = {"price": curved(), "day": PiecewiseCDF(np.array([0, 31]), np.array([0.0, 1.0]))}
    domains = {
        "price": DiscretizedColumn(low="0", high="3.9", resolution="0.1"),
        "day": DiscretizedColumn(kind="date", low="2024-01-01", high="2024-01-31", resolution="86400"),
    }
    names = list(cdfs)[:columns]
    return OrderedDistribution(
        {n: cdfs[n] for n in names}, {n: domains[n] for n in names}, statement=tiny.statement(), notes={"method": "partition"}
    )


def test_the_cdf_is_the_integral_of_the_density() -> None:
    cdf = curved()
    for i, (low, high) in enumerate([(0, 10), (10, 40)]):
        t = np.linspace(0, 1, 20001)
        density = 1 + cdf.slopes[i] * (2 * t - 1) + cdf.curves[i] * (6 * t**2 - 6 * t + 1)  # type: ignore[index]
        integral = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2) / 20000])
        mass = cdf.values[i + 1] - cdf.values[i]
        p = np.arange(low, high + 1)
        assert cdf.below(p) == pytest.approx(cdf.values[i] + mass * np.interp((p - low) / (high - low), t, integral), abs=1e-7)


def test_quantiles_invert_the_cdf() -> None:
    for cdf in (curved(), PiecewiseCDF(np.array([0, 3, 10**18]), np.array([0.0, 0.5, 1.0]))):
        levels = np.linspace(0, 1, 101)
        x = cdf.inverse(levels)
        assert (cdf.below(x + 1) >= levels).all()
        assert (cdf.below(x)[x > 0] < levels[x > 0]).all()
    with pytest.raises(ValueError, match="probabilities"):
        curved().inverse([1.5])


def test_positions_near_10_to_the_18_are_not_rounded() -> None:
    base = 10**18 - 1000
    cdf = PiecewiseCDF(np.array([0, base, 10**18]), np.array([0.0, 0.0, 1.0]))
    assert cdf.below([base + 1, base + 500]).tolist() == [0.001, 0.5]
    assert cdf.inverse([0.001, 0.5]).tolist() == [base, base + 499]


@pytest.mark.parametrize(
    "cdf", [curved(), PiecewiseCDF(np.array([0, 4, 40]), np.array([0.0, 0.7, 1.0]))], ids=["curved", "flat"]
)
def test_draws_follow_the_masses(cdf: PiecewiseCDF) -> None:
    """Fixed seed; 39 degrees of freedom."""
    n = 40_000
    expected = n * np.diff(cdf.below(np.arange(41)))
    seen = np.bincount(cdf.draw(n, np.random.default_rng(0)), minlength=40)
    # rejection compares with the density at the middle of a cell, which is off by 1 / 12 of its curvature
    assert ((seen - expected) ** 2 / expected).sum() < 90


def test_the_release_speaks_the_users_units() -> None:
    model = release()
    assert model.cdf([0.9, 3.9, -1.0, 5.0]).tolist() == [0.25, 1.0, 0.0, 1.0]
    assert model.quantile([0.25])[0] == pytest.approx(0.9)
    assert model.histogram([0.0, 1.0, 4.0]).tolist() == [0.25, 0.75]
    table = model.samples(5, random_state=1).to_pandas()
    assert table.equals(model.samples(5, random_state=1).to_pandas())
    assert ((table.price * 10).round(9) % 1 == 0).all()
    assert len(model.samples(0)) == 0
    two = release(2)
    assert two.cdf(["2024-01-31"], "day").tolist() == [1.0]
    assert str(two.quantile(0.5, "day")[0])[:10] == "2024-01-16"
    assert list(two.samples(3, random_state=0).to_pandas().columns) == ["price", "day"]


def test_counts_become_a_cdf() -> None:
    counts = MonotoneCounts(np.array([0, 4, 8]), np.array([0.0, 30.0, 40.0]))
    assert OrderedDistribution.from_counts(counts, statement=tiny.statement()).cdf([3, 7]).tolist() == [0.75, 1.0]
    empty = MonotoneCounts(np.array([0, 4, 8]), np.zeros(3))
    assert PiecewiseCDF.from_counts(empty).below([4]).tolist() == [0.5]


@pytest.mark.parametrize(
    ("knots", "values", "shapes"),
    [
        ([0], [0.0], {}),
        ([1, 2], [0.0, 1.0], {}),
        ([0, 2, 2], [0.0, 0.5, 1.0], {}),
        ([0, 2], [0.0, 0.9], {}),
        ([0, 2, 4], [0.0, 1.2, 1.0], {}),
        ([0, 2], [0.0, 1.0], {"slopes": np.array([1.2])}),
        ([0, 2], [0.0, 1.0], {"curves": np.array([2.5])}),
        ([0, 2], [0.0, 1.0], {"slopes": np.zeros(2)}),
    ],
)
def test_what_is_no_cdf_is_refused(knots: list, values: list, shapes: dict) -> None:
    with pytest.raises(ValueError, match=r"knots|values|slopes"):
        PiecewiseCDF(np.array(knots), np.array(values), **shapes)


def test_bad_questions() -> None:
    model = release(2)
    for ask, said in [
        (lambda: model.cdf([1.0]), "column"),
        (lambda: model.quantile([0.5], "x"), "column"),
        (lambda: model.histogram([2.0, 1.0], "price"), "edges"),
        (lambda: model.samples(-1), "n is"),
        (lambda: OrderedDistribution({}, {}, statement=tiny.statement()), "cdfs"),
        (lambda: OrderedDistribution({"x": curved()}, {"x": DiscretizedColumn.integers(8)}, statement=tiny.statement()), "CDF"),
    ]:
        with refused(said):
            ask()


# -- polynomials -------------------------------------------------------------------------------------------------------


N = 2**40


def cells_of(cdf: PiecewiseCDF, m: int, n: float = 1e6) -> MonotoneCounts:
    """Prefix counts of an exact distribution at m equal cells."""
    positions = np.array([cdf.size * i // m for i in range(m + 1)], np.int64)
    return MonotoneCounts(positions, n * cdf.below(positions))


def test_a_histogram_is_found_exactly() -> None:
    truth = PiecewiseCDF(np.array([0, N // 4, N // 2, N]), np.array([0.0, 0.5, 0.6, 1.0]))
    found = piecewise_polynomial(cells_of(truth, 256), degree=0)
    assert found.knots.tolist() == truth.knots.tolist()
    assert found.values == pytest.approx(truth.values)


@pytest.mark.parametrize("degree", [1, 2])
def test_a_polynomial_is_one_piece(degree: int) -> None:
    curves = np.array([0.3]) if degree == 2 else None
    truth = PiecewiseCDF(np.array([0, N]), np.array([0.0, 1.0]), slopes=np.array([0.4]), curves=curves)
    found = piecewise_polynomial(cells_of(truth, 300), degree=degree)
    assert len(found.knots) == 2
    assert found.slopes == pytest.approx([0.4], abs=1e-6)
    if degree == 2:
        assert found.curves == pytest.approx([0.3], abs=1e-6)


@pytest.mark.parametrize(("n", "most"), [(100_000, 0.02)])
def test_degree_2_is_close_to_smooth_targets(n: int, most: float) -> None:
    """The goals are .013 and .0045; the room is for chance. Degree 2 beats the private cells by far."""
    mixture = reference_mixture("betas")
    x = np.sort(mixture.draw(n, 10**18, np.random.default_rng(0)))
    ledger = Ledger(None, delta=1 / n, relation="replace_one")
    counts = PartitionCDF(epsilon=1.0, delta=1 / n).fit_counts(x, N=10**18, curator=Curator(ledger))
    smooth = total_variation(piecewise_polynomial(counts, degree=2), mixture)
    assert smooth < most
    assert smooth < 0.5 * total_variation(PiecewiseCDF.from_counts(counts), mixture)


def test_densities_stay_above_zero() -> None:
    counts = MonotoneCounts(np.array([0, 1, 2, 3, 100]), np.array([0.0, 90.0, 90.0, 90.0, 100.0]))
    for degree in (0, 1, 2):
        assert piecewise_polynomial(counts, degree=degree).lowest_density() >= -1e-9


def test_nothing_to_fit() -> None:
    empty = MonotoneCounts(np.array([0, 4, 8]), np.zeros(3))
    assert piecewise_polynomial(empty).below([4]).tolist() == [0.5]
