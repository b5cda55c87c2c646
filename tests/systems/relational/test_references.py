"""Draws of the people whom rows name, from released sums."""

import numpy as np
import pytest

from dpgen.systems.relational.references import DEGREES, Named


@pytest.mark.parametrize("number", [0, 1], ids=["people", "rows"])
@pytest.mark.parametrize("columns", [0, 1])
def test_where_noise_hides_all_pairs_others_are_named_at_random(number: int, columns: int) -> None:
    n, degrees = 50, np.where(DEGREES == 4, 10.0, np.where(DEGREES == 0, 40.0, 0.0))
    pairs = {c: (np.full((2, 2), 0.1), 10.0) for c in range(columns)}
    named = Named(number, "other", [np.arange(2)] * columns, pairs, (degrees, 0.1))
    codes = np.arange(n)[:, None] % 2 * np.ones((1, columns), np.int64)
    owner = np.arange(n)
    found = named.drawn(codes, owner, np.random.default_rng(0))
    assert found.shape == (n,)
    assert (found != owner).all()
    assert (found >= 0).mean() > 0.5
