"""Points: what is public about them is stated by somebody, and everything else is refused."""

import math
from typing import Any

import pytest
import tiny
import torch
from sklearn.preprocessing import StandardScaler

from dpgen.data.points import Points, PublicScaling, place, split_points
from dpgen.data.split import Split
from dpgen.facts import Fact


def cloud(n: int = 40, d: int = 2) -> torch.Tensor:
    return torch.rand(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


BOX = torch.tensor([[0.0, 1.0], [0.0, 2.0]])


def test_a_split_is_disjoint_and_complete_and_by_its_key() -> None:
    x, split = cloud(), Split(0.25, b"P" * 32)
    points = split_points("cloud", x, bounds=BOX, columns=("a", "b"), split=split)
    assert (points.d, points.columns) == (2, ("a", "b"))
    assert torch.equal(points.test_x, x[split.test_rows(40)])
    together = torch.cat([points.x, points.test_x])
    assert sorted(together.tolist()) == sorted(x.tolist())
    assert not torch.equal(split_points("cloud", x).x, split_points("cloud", x).x), "fresh keys"
    assert tiny.told(points)[Fact.TEST_PART]["what"] == "points"


def test_the_scaling_comes_from_the_bounds_never_from_the_points() -> None:
    first = split_points("a", cloud(), bounds=BOX)
    second = split_points("b", 0.001 * cloud(), bounds=BOX)
    for points in (first, second):
        assert points.location.tolist() == [0.5, 1.0]
        assert points.scale.tolist() == [0.25, 0.5]
    free = split_points("c", 100 + cloud())
    assert (free.location.tolist(), free.scale.tolist(), free.bounds) == ([0.0, 0.0], [1.0, 1.0], None)


def test_a_fitted_scaler_is_refused() -> None:
    scaler: Any = StandardScaler().fit(cloud().numpy())
    with pytest.raises(ValueError, match="scaling is a StandardScaler: it must be a PublicScaling"):
        split_points("a", cloud(), scaling=scaler)


def test_nothing_of_the_points_is_shown() -> None:
    points = split_points("a", cloud(), split=Split(key=b"B" * 32))
    assert repr(points) == "Points('a': 32 private and 8 test points in 2 dimensions, no bounds)"


def test_clamping_moves_points_to_the_border_and_refusing_names_them() -> None:
    x, box = torch.tensor([[-1.0, 0.5], [0.5, 3.0]]), torch.tensor([[0.0, 1.0], [0.0, 2.0]])
    assert place(x, box, "clamp").tolist() == [[0.0, 0.5], [0.5, 2.0]]
    with pytest.raises(ValueError, match=r"column 'b' has a value in row 1 outside its bounds \[0, 2\]"):
        place(x[1:], box, "refuse", ("a", "b"))
    with pytest.raises(ValueError, match="column 1 has a value in row 1"):
        place(x, box, "refuse")
    with pytest.raises(ValueError, match="out_of_range is 'drop'"):
        place(x, box, "drop")  # type: ignore[arg-type]


def with_value(value: float) -> torch.Tensor:
    x = cloud()
    x[3, 1] = value
    return x


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"x": with_value(math.nan)}, "x has no finite value in row 4, column 2: it must be finite"),
        ({"x": with_value(math.inf)}, "in row 4"),
        ({"x": with_value(5.0), "bounds": BOX}, "column 'x1' has a value in row 4 outside its bounds"),
        ({"x": torch.zeros(2, 0)}, r"x has shape \(2, 0\)"),
        ({"x": torch.zeros(20)}, r"x has shape \(20,\)"),
        ({"test_x": cloud(3, 1)}, "test_x has 1 columns, x has 2"),
        ({"columns": ("a", "a")}, "2 different names"),
        ({"bounds": torch.tensor([[0.0, 1.0]])}, "it must be 2 pairs"),
        ({"bounds": torch.tensor([[0.0, 1.0], [2.0, 2.0]])}, "with low < high"),
        ({"bounds": torch.tensor([[0.0, 1.0], [0.0, math.inf]])}, "finite"),
        ({"scaling": PublicScaling.standard(3)}, "scaling has 3 coordinates"),
    ],
)
def test_bad_points_are_refused(changes: dict[str, Any], match: str) -> None:
    good: dict[str, Any] = {"x": cloud(), "test_x": cloud(5)}
    with pytest.raises(ValueError, match=match):
        Points("bad", **(good | changes))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((torch.zeros(2), torch.ones(3), "a file"), r"both must be \(d,\)"),
        ((torch.zeros(1), torch.zeros(1), "a file"), "scale > 0"),
        ((torch.tensor([math.nan]), torch.ones(1), "a file"), "finite"),
        ((torch.zeros(1), torch.ones(1), " "), "origin is empty"),
    ],
)
def test_bad_scalings_are_refused(arguments: tuple[Any, ...], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        PublicScaling(*arguments)


@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_few_points_and_equal_ones_are_points(n: int) -> None:
    points = split_points("few", torch.full((n, 2), 0.5), bounds=BOX)
    assert points.n + len(points.test_x) == n
