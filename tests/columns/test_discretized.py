"""Public grids: every value goes there and back, 18 digits long, and what does not belong is refused."""

import math
from collections.abc import Callable
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

import numpy as np
import pytest
from refusals import refused

from dpgen.columns.discretized import DiscretizedColumn

FINE = DiscretizedColumn(low="0", high="1000000000", resolution="1e-9")


def test_18_digits_survive_as_text_decimals_and_integers() -> None:
    indices = np.random.default_rng(0).integers(0, 10**18, 2000)
    text = np.array([f"{v // 10**9}.{v % 10**9:09d}" for v in indices.tolist()], object)
    assert FINE.size == 10**18 + 1
    assert FINE.encode(text).tolist() == indices.tolist()
    values = FINE.decode(indices)
    assert isinstance(values[0], Decimal)
    assert FINE.encode(values).tolist() == indices.tolist()
    whole = DiscretizedColumn(low="-10", high=str(10**18))
    assert whole.decode(whole.encode(indices)).tolist() == indices.tolist()


@pytest.mark.parametrize(
    ("low", "high", "resolution", "size"),
    [("-5", "5", "0.25", 41), ("-5", "7", "3", 5), ("0.1", "0.9", "0.1", 9), ("0", "1", "0.3", 4), ("100", "300", "1", 201)],
)
def test_every_kind_of_number_goes_there_and_back(low: str, high: str, resolution: str, size: int) -> None:
    grid = DiscretizedColumn(low=low, high=high, resolution=resolution)
    indices = np.arange(size)
    values = grid.decode(indices)
    assert grid.size == size
    for form in (values, values.astype(float), [str(v) for v in values], [Decimal(str(v)) for v in values]):
        assert grid.encode(form).tolist() == indices.tolist()


def test_fast_and_exact_paths_agree() -> None:
    """The exact path takes numbers as fractions; floats, Arrow decimals and int64 arithmetic must give the same."""
    values = np.random.default_rng(1).uniform(0, 1000, 500)
    grid = DiscretizedColumn(low="0", high="1000", resolution="1e-6")
    slow = [min(max(int(Decimal(v) * 10**6 + Decimal("0.5")), 0), grid.size - 1) for v in values.tolist()]
    assert np.abs(grid.encode(values) - slow).max() == 0
    text = np.array([repr(v) for v in values.tolist()], object)
    assert grid.encode(text).tolist() == [int((Decimal(t) * 10**6).to_integral_value(ROUND_HALF_UP)) for t in text]
    long_text = ["1.23456789012345678901e-05", "999.9999999999999999999"]
    assert grid.encode(long_text).tolist() == [12, 10**9]


def test_dates() -> None:
    grid = DiscretizedColumn(kind="date", low="2020-01-01", high="2020-12-31", resolution="60")
    assert grid.size == 365 * 1440 + 1
    stamps = ["2020-01-01T00:01:00", "2020-02-01"]
    assert grid.encode(stamps).tolist() == [1, 31 * 1440]
    assert grid.encode([datetime(2020, 1, 1, 0, 1)]).tolist() == [1]
    assert grid.decode([1])[0] == np.datetime64("2020-01-01T00:01")
    assert grid.encode(grid.decode(np.arange(100))).tolist() == list(range(100))
    with refused("no ISO date"):
        grid.encode(["yesterday", "2020-01-01"])
    with refused("dates must be"):
        grid.encode(np.array([1, 2]))


def test_categories() -> None:
    grid = DiscretizedColumn(kind="category", categories=("low", "middle", "high"))
    assert grid.encode(["high", "low"]).tolist() == [2, 0]
    assert grid.decode([2, 0]).tolist() == ["high", "low"]
    with refused("value in row 2 is none of the 3 public categories"):
        grid.encode(["low", "none"])
    with refused("twice"):
        DiscretizedColumn(kind="category", categories=("a", "a"))


def test_outside_values_are_clamped_or_refused() -> None:
    grid = DiscretizedColumn(low="0", high="10")
    for values in ([-1, 11, 5], [-1.0, 11.0, 5.0], ["-1", "11", "5"], [Decimal(-1), Decimal(11), Decimal(5)]):
        indices, outside = grid.encode_clamped(values)
        assert indices.tolist() == [0, 10, 5]
        assert outside.tolist() == [True, True, False]
        with refused("value in row 1 is outside [0, 10]"):
            grid.encode(values)
    indices, outside = grid.encode_clamped(np.array([2**63 + 5, 3], np.uint64))
    assert (indices.tolist(), outside.tolist()) == ([10, 3], [True, False])


FORMS = [
    lambda v: v,
    lambda v: [str(x) for x in v],
    lambda v: [Decimal(x) for x in v],
    *(lambda v, t=t: np.array(v, t) for t in (np.int64, np.uint64, np.uint8, np.int16, np.float64, np.float32)),
]


@pytest.mark.parametrize("form", FORMS)
def test_the_last_cell_takes_what_is_left_below_high(form: Callable) -> None:
    """Bounds decide what is outside, not the last point of the grid, and alike for every type."""
    grid = DiscretizedColumn(low="0", high="14", resolution="5")
    indices, outside = grid.encode_clamped(form([0, 2, 3, 12, 13, 14, 15, 100]))
    assert indices.tolist() == [0, 0, 1, 2, 2, 2, 2, 2]
    assert outside.tolist() == [False] * 6 + [True] * 2
    assert grid.encode(form([13])).tolist() == [2]


def test_every_type_follows_the_definition() -> None:
    """Nearest point in exact arithmetic, halves up, ends clamped, on random grids."""
    rng = np.random.default_rng(3)
    for _ in range(150):
        low = Decimal(int(rng.integers(-50, 50))).scaleb(-int(rng.integers(0, 3)))
        step = Decimal(int(rng.integers(1, 13))).scaleb(-int(rng.integers(0, 3)))
        high = low + step * int(rng.integers(1, 9)) + Decimal(int(rng.integers(0, 30))).scaleb(-2)
        grid = DiscretizedColumn(low=str(low), high=str(high), resolution=str(step))

        def slow(values: list) -> list[tuple[int, bool]]:
            at = [math.floor((Fraction(v) - Fraction(low)) / Fraction(step) + Fraction(1, 2)) for v in values]  # noqa: B023
            return [(min(max(i, 0), grid.size - 1), not low <= v <= high) for i, v in zip(at, values)]  # noqa: B023

        values = [Decimal(int(v)).scaleb(-int(d)) for v, d in zip(rng.integers(-2000, 2000, 9), rng.integers(0, 5, 9))]
        values += [low, high, low - step / 2, low + step / 2, high + step / 2, high + Decimal("0.001")]
        for form in (values, [str(v) for v in values], np.array([float(v) for v in values])):
            assert [(i, o) for i, o in zip(*(part.tolist() for part in grid.encode_clamped(form)))] == slow(values)
        whole = list(range(130))
        for dtype in (np.int64, np.int16, np.uint64, np.uint8):
            found = grid.encode_clamped(np.array(whole, dtype))
            assert list(zip(*(part.tolist() for part in found))) == slow(whole)


def test_the_last_day_is_whole_on_a_grid_of_days() -> None:
    days = DiscretizedColumn(kind="date", low="2024-01-01", high="2024-12-31", resolution="86400")
    indices, outside = days.encode_clamped(["2024-12-31T13:00", "2024-12-31T23:59:59", "2025-01-01", "2023-12-31T23:00"])
    assert indices.tolist() == [365, 365, 365, 0]
    assert outside.tolist() == [False, False, True, True]
    hours = DiscretizedColumn(kind="date", low="2024-01-01", high="2024-12-31", resolution="3600")
    assert hours.encode_clamped(["2024-12-31T00:00", "2024-12-31T01:00"])[1].tolist() == [False, True]


@pytest.mark.parametrize("values", [[float("nan")], [float("inf")], ["x"], [None], ["nan"], [Decimal("nan")]])
def test_what_is_no_number_is_refused(values: list) -> None:
    with refused("in row 1 is not "):
        DiscretizedColumn(low="0", high="10").encode(values)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"low": "0", "high": "x"}, "high is 'x'"),
        ({"low": "nan", "high": "1"}, "low is 'nan'"),
        ({"low": "3", "high": "3"}, "N = 1 values"),
        ({"low": "5", "high": "1"}, "high is '1'"),
        ({"low": "0", "high": str(2**62)}, "N must be in [2, 2^62]"),
        ({"low": "0", "high": "1e300"}, "the domain has N = about 10^300 values"),
        ({"low": "0", "high": "1e999999999"}, "high is '1e999999999'"),
        ({"low": "0", "high": "1", "resolution": "0"}, "resolution is '0'"),
        ({"kind": "date", "low": "1x", "high": "2020-01-01"}, "low is '1x'"),
        ({"kind": "word", "low": "0", "high": "1"}, "kind is 'word'"),
        ({"kind": "category"}, "N = 0 values"),
    ],
)
def test_bad_grids_are_refused(options: dict, said: str) -> None:
    with refused(said):
        DiscretizedColumn(**options)


def test_files_and_plots() -> None:
    for grid in (FINE, DiscretizedColumn.integers(8), DiscretizedColumn(kind="category", categories=("a", "b"))):
        assert DiscretizedColumn.from_dict(grid.to_dict()) == grid
    assert FINE.as_float([10**9])[0] == pytest.approx(1.0)
    with refused("must be in [0, 7]"):
        DiscretizedColumn.integers(8).decode([8])
    with refused("one column"):
        FINE.encode(np.zeros((2, 2)))


def test_a_float_is_rounded_by_itself() -> None:
    grid = DiscretizedColumn(low="0", high="10000000", resolution="0.000001")
    alone = grid.encode(np.array([3.0000975]))
    assert grid.encode(np.array([3.0000975, 9_999_999.5]))[0] == alone[0] == 3_000_098
