"""Points: what is public about them is stated by somebody; tables of them with public bounds; what is refused."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from refusals import refused

from dpgen.data.points import Points, load_points, parse_bounds, place, split_points
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


def test_nothing_of_the_points_is_shown() -> None:
    points = split_points("a", cloud(), split=Split(key=b"B" * 32))
    assert repr(points) == "Points('a': 32 private and 8 test points in 2 dimensions, no bounds)"


def test_clamping_moves_points_to_the_border_and_refusing_names_them() -> None:
    x, box = torch.tensor([[-1.0, 0.5], [0.5, 3.0]]), torch.tensor([[0.0, 1.0], [0.0, 2.0]])
    assert place(x, box, "clamp").tolist() == [[0.0, 0.5], [0.5, 2.0]]
    with refused("column 'b' has a value in row 1 outside its bounds [0, 2]"):
        place(x[1:], box, "refuse", ("a", "b"))
    with refused("column 1 has a value in row 1"):
        place(x, box, "refuse")
    with refused("out_of_range is 'drop'"):
        place(x, box, "drop")  # type: ignore[arg-type]


def with_value(value: float) -> torch.Tensor:
    x = cloud()
    x[3, 1] = value
    return x


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"x": with_value(math.nan)}, "x has no finite value in row 4, column 2"),
        ({"x": with_value(math.inf)}, "in row 4"),
        ({"x": with_value(5.0), "bounds": BOX}, "column 'x1' has a value in row 4 outside its bounds"),
        ({"x": torch.zeros(2, 0)}, "x has shape (2, 0)"),
        ({"x": torch.zeros(20)}, "x has shape (20,)"),
        ({"test_x": cloud(3, 1)}, "test_x has 1 columns, x has 2"),
        ({"columns": ("a", "a")}, "columns is"),
        ({"bounds": torch.tensor([[0.0, 1.0]])}, "bounds is"),
        ({"bounds": torch.tensor([[0.0, 1.0], [2.0, 2.0]])}, "bounds is"),
        ({"bounds": torch.tensor([[0.0, 1.0], [0.0, math.inf]])}, "bounds is"),
        ({"scale": torch.ones(3)}, "scale is"),
        ({"scale": torch.zeros(2)}, "scale is"),
        ({"location": torch.tensor([math.nan, 0.0])}, "location is"),
    ],
)
def test_bad_points_are_refused(changes: dict[str, Any], match: str) -> None:
    with refused(match):
        Points("bad", **({"x": cloud(), "test_x": cloud(5)} | changes))


@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_few_points_and_equal_ones_are_points(n: int) -> None:
    points = split_points("few", torch.full((n, 2), 0.5), bounds=BOX)
    assert points.n + len(points.test_x) == n


def table(n: int = 30) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame({"age": rng.integers(18, 90, n), "income": rng.normal(30, 10, n), "name": ["x"] * n})


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet"])
def test_tables_round_trip(tmp_path: Path, form: str) -> None:
    path, frame = str(tmp_path / f"people.{form}"), table()
    frame.to_parquet(path) if form == "parquet" else frame.to_csv(path, index=False)
    points = load_points(path=path, columns="income,age", bounds="-100,200,0,120")
    assert (points.name, points.columns, points.n + len(points.test_x)) == ("people", ("income", "age"), 30)
    together = np.concatenate([points.x, points.test_x])
    assert np.allclose(np.sort(together[:, 1]), np.sort(frame["age"]))
    assert points.bounds is not None
    assert points.bounds.tolist() == [[-100.0, 200.0], [0.0, 120.0]]
    assert Fact.PUBLIC_BOUNDS in tiny.told(points)


def test_npy_and_clamping(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(50, 3)))
    options: dict[str, Any] = {"path": str(tmp_path / "x.npy"), "bounds": [[-0.5, 0.5]]}
    with refused("outside its bounds"):
        load_points(**options)
    points = load_points(**options, out_of_range="clamp")
    assert float(points.x.abs().max()) == 0.5
    assert Fact.CLAMPED_POINTS in tiny.told(points)


@pytest.mark.parametrize(
    ("bounds", "d", "expected"),
    [
        ("0,1", 1, [[0.0, 1.0]]),
        ("[[0, 1], [-5, 5]]", 2, [[0.0, 1.0], [-5.0, 5.0]]),
        ([[0, 1]], 2, [[0.0, 1.0], [0.0, 1.0]]),
        ("-1e3,1e3,0,2", 2, [[-1000.0, 1000.0], [0.0, 2.0]]),
    ],
)
def test_bounds_as_users_write_them(bounds: Any, d: int, expected: list[list[float]]) -> None:
    assert parse_bounds(bounds, d).tolist() == expected


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"columns": "age,height"}, "has no column 'height'"),
        ({"columns": "age,name"}, "column 'name' of "),
        ({"columns": []}, "columns is"),
        ({"bounds": "0,50"}, "outside its bounds"),
        ({"bounds": "wide"}, "bounds is"),
        ({"bounds": "0,1,2"}, "bounds has 3 numbers"),
        ({"bounds": "1,0"}, "bounds is"),
        ({"bounds": "0,NaN"}, "bounds is"),
        ({"out_of_range": "drop"}, "out_of_range is"),
        ({"path": "gap.parquet"}, "column 'age' has no value in row 4"),
        ({"path": "infinite.parquet"}, "x has no finite value in row 1"),
        ({"path": "none.parquet"}, "is empty"),
    ],
)
def test_bad_options_and_tables_are_refused(tmp_path: Path, changes: dict[str, Any], match: str) -> None:
    frame = table()
    frame.to_csv(tmp_path / "people.csv", index=False)
    frame.assign(age=frame["age"].where(frame.index != 3)).to_parquet(tmp_path / "gap.parquet")
    frame.assign(income=math.inf).to_parquet(tmp_path / "infinite.parquet")
    frame[:0].astype({"name": str}).to_parquet(tmp_path / "none.parquet")
    options: dict[str, Any] = {"path": "people.csv", "columns": ["age", "income"], "bounds": "-100,200"} | changes
    with refused(match):
        load_points(**options | {"path": str(tmp_path / options["path"])})
