"""Public grids on generated bounds: there and back, halves up, and the same index whatever type a value arrives in."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dpgen.columns.discretized import DiscretizedColumn


@st.composite
def grids(draw: st.DrawFn) -> DiscretizedColumn:
    digits = draw(st.integers(0, 9))
    low, step = draw(st.integers(-(10**15), 10**15)), draw(st.integers(1, 10**4))
    size = draw(st.integers(2, 20) | st.integers(2, 10**14))
    as_text = [str(Decimal(units).scaleb(-digits)) for units in (low, step, low + step * (size - 1))]
    return DiscretizedColumn(low=as_text[0], resolution=as_text[1], high=as_text[2])


@given(grid=grids(), share=st.lists(st.integers(0, 10**6), min_size=1, max_size=5))
def test_indices_come_back(grid: DiscretizedColumn, share: list[int]) -> None:
    indices = np.array([(grid.size - 1) * part // 10**6 for part in share], np.int64)
    values = grid.decode(indices)
    assert grid.encode(values).tolist() == indices.tolist()
    assert grid.encode([str(value) for value in values.tolist()]).tolist() == indices.tolist()
    assert DiscretizedColumn.from_dict(grid.to_dict()).size == grid.size


@given(grid=grids(), units=st.integers(-(10**16), 10**16), digits=st.integers(0, 12))
def test_text_goes_to_the_nearest_point(grid: DiscretizedColumn, units: int, digits: int) -> None:
    value = Decimal(units).scaleb(-digits)
    low, high, step = (Fraction(Decimal(text)) for text in (grid.low, grid.high, grid.resolution))
    [index], [outside] = grid.encode_clamped([str(value)])
    assert bool(outside) == (not low <= Fraction(value) <= high)
    inside = min(max(Fraction(value), low), high)
    assert index == min(math.floor((inside - low) / step + Fraction(1, 2)), grid.size - 1)


@given(low=st.integers(-(2**40), 2**40), size=st.integers(2, 2**40), value=st.integers(-(2**50), 2**50))
def test_types_agree_on_whole_numbers(low: int, size: int, value: int) -> None:
    grid = DiscretizedColumn(low=str(low), high=str(low + size - 1))
    arrivals = [np.array([value]), np.array([float(value)]), [str(value)], [Decimal(value)]]
    found = [grid.encode_clamped(arrival) for arrival in arrivals]
    assert {(int(index[0]), bool(outside[0])) for index, outside in found} == {
        (min(max(value - low, 0), size - 1), not low <= value < low + size)
    }
