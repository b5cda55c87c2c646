"""The projection onto the simplex, by its optimality condition."""

import numpy as np
import pytest

from dpgen.systems.simplex_projection import project_to_simplex


@pytest.mark.parametrize("seed", range(5))
def test_projection_is_the_nearest_point(seed: int) -> None:
    """Optimality: the projection minimises the distance to any other point of the simplex (variational inequality)."""
    rng = np.random.default_rng(seed)
    v, total = rng.normal(0, 3, 20), 5.0
    p = project_to_simplex(v, total)
    assert p.min() >= 0
    assert p.sum() == pytest.approx(total)
    for corner in np.eye(20) * total:
        assert (v - p) @ (corner - p) <= 1e-9
    with pytest.raises(ValueError, match="total is 0"):
        project_to_simplex(v, 0.0)


def test_a_vector_of_the_simplex_is_its_own_projection() -> None:
    assert project_to_simplex(np.array([0.25, 0.75, 0.0])).tolist() == [0.25, 0.75, 0.0]
