"""One sentence for every number that is refused."""

import math
from typing import Any

import numpy as np
import pytest

from dpgen.privacy.mechanisms import require_positive, require_whole


@pytest.mark.parametrize(("value", "low", "high"), [(1, 1, None), (10**30, 1, None), (0, 0, None), (2, 2, 5), (5, 2, 5)])
def test_whole_numbers_in_range_come_back(value: int, low: int, high: int | None) -> None:
    assert require_whole("rounds", value, low, high) == value


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "3", None, math.nan])
def test_what_is_no_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^rounds is {value!r}; it must be a whole number >= 1$"):
        require_whole("rounds", value)


@pytest.mark.parametrize("value", [1, 6, 2.5])
def test_the_range_is_named(value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^cells is {value!r}; it must be a whole number in \[2, 5\]$"):
        require_whole("cells", value, 2, 5)


@pytest.mark.parametrize("value", [1, 0.5, 5e-324, 1e308, np.float64(2.0)])
def test_positive_numbers_come_back(value: float) -> None:
    assert require_positive("epsilon", value) == value
    assert type(require_positive("epsilon", value)) is float or isinstance(value, np.float64)


@pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan, True, "1", None])
def test_what_is_not_positive_and_finite_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^epsilon is {value!r}; it must be a finite number > 0$"):
        require_positive("epsilon", value)
