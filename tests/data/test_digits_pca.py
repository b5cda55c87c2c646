"""Digits in a public space."""

import pytest
import torch

from dpgen.data.points import load_digits_pca


def test_the_space_of_the_digits_comes_from_public_records_only() -> None:
    points = load_digits_pca(components=8)
    assert (points.n, len(points.test_x), points.d) == (1209, 288, 8)
    assert points.n + len(points.test_x) + 300 == 1797
    assert float(points.x.abs().max()) <= 5
    # Public standard deviations are those of 300 other digits: close to the private ones, but not equal.
    assert bool(((points.x.std(0) - 1).abs() < 0.25).all())
    assert bool(((points.x.std(0) - 1).abs() > 1e-6).all())
    other = load_digits_pca(components=3)
    assert torch.allclose(other.x, points.x[:, :3])
    assert any("300 records were declared public" in note for note in points.notes)


@pytest.mark.parametrize(("components", "public"), [(0, 300), (50, 300), (8, 5), (8, 1500)])
def test_bad_spaces_are_refused(components: int, public: int) -> None:
    with pytest.raises(ValueError, match=r"components must be in \[1, 40\]"):
        load_digits_pca(components=components, public_records=public)
