"""Thresholds of coins against the exact tails of integer Laplace noise."""

from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp, mpf

from dpgen.privacy.draws import reach_thresholds


@pytest.mark.parametrize(("scale", "most"), [(0.05, 3), (0.7, 2), (13.3, 11), (13.3, 3000)])
def test_thresholds_are_exact_to_128_bits(scale: float, most: int) -> None:
    rows, least = reach_thresholds(scale, most)
    assert len(rows) == most - least + 1
    assert least <= 0
    mp.prec = 400
    ratio = mp.exp(-1 / mpf(scale))
    for k in {least, least + 1, 0, 1, most, max(least, -5), min(most, 5)} - {least - 1}:
        if not least <= k <= most:
            continue
        exact = ratio**k / (1 + ratio) if k >= 0 else 1 - ratio ** (1 - k) / (1 + ratio)
        found = Fraction((int(rows[k - least, 0]) << 64) + int(rows[k - least, 1]), 2**128)
        assert abs(mpf(found.numerator) / found.denominator - exact) < mpf(2) ** -126
    assert 1 - (1 - ratio ** (2 - least) / (1 + ratio)) < mpf(2) ** -120, "below the table heads are certain"


def test_thresholds_fall() -> None:
    rows, _ = reach_thresholds(5.0, 40)
    values = [(int(high) << 64) + int(low) for high, low in rows]
    assert values == sorted(values, reverse=True)
    assert rows.dtype == np.uint64


@pytest.mark.parametrize(("scale", "most", "said"), [(0.0, 3, "scale is 0.0"), (1.0, 0, "most is 0"), (1e9, 3, "scale is")])
def test_out_of_range(scale: float, most: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        reach_thresholds(scale, most)
