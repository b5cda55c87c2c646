"""What models sample, and its files."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from dpgen.release import ColumnSamples, GreySamples, PointSamples, RecordSamples


def samples(**options: Any) -> RecordSamples:
    x = torch.tensor([[0, 1, 1], [1, 0, 0]], dtype=torch.uint8)
    return RecordSamples(**{"x": x, "cluster": torch.tensor([2, 0]), "labels": torch.tensor([7, 8])} | options)


def test_npz(tmp_path: Path) -> None:
    samples().save(tmp_path / "s.npz")
    with np.load(tmp_path / "s.npz", allow_pickle=False) as arrays:
        assert arrays["x"].tolist() == [[0, 1, 1], [1, 0, 0]]
        assert arrays["cluster"].tolist() == [2, 0]
        assert arrays["labels"].tolist() == [7, 8]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("columns", [None, ("a", "b", "c")])
def test_tables(tmp_path: Path, ending: str, columns: tuple[str, ...] | None) -> None:
    path = tmp_path / f"s.{ending}"
    samples(columns=columns).save(path)
    table = pd.read_csv(path) if ending == "csv" else pd.read_parquet(path)
    assert list(table.columns) == [*(columns or ("x0", "x1", "x2")), "cluster", "label"]
    assert table.to_numpy().tolist() == [[0, 1, 1, 2, 7], [1, 0, 0, 0, 8]]


def test_without_labels_there_is_no_label_column(tmp_path: Path) -> None:
    samples(labels=None).save(tmp_path / "s.csv")
    assert list(pd.read_csv(tmp_path / "s.csv").columns) == ["x0", "x1", "x2", "cluster"]
    samples(labels=None).save(tmp_path / "s.npz")
    with np.load(tmp_path / "s.npz") as arrays:
        assert sorted(arrays) == ["cluster", "x"]


def test_other_endings_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path must end in one of \.npz, \.csv, \.parquet, got 's\.txt'"):
        samples().save(tmp_path / "s.txt")
    assert list(tmp_path.iterdir()) == []


def test_by_cluster_leaves_out_empty_ones() -> None:
    groups = samples().by_cluster()
    assert {name: x.tolist() for name, x in groups.items()} == {"cluster 0": [[1, 0, 0]], "cluster 2": [[0, 1, 1]]}


def test_a_data_column_called_label_keeps_its_name(tmp_path: Path) -> None:
    bits = torch.eye(2, dtype=torch.uint8)
    samples = RecordSamples(x=bits, cluster=torch.zeros(2).long(), labels=torch.tensor([1, 0]), columns=("label", "b"))
    samples.save(tmp_path / "s.csv")
    assert (tmp_path / "s.csv").read_text().splitlines()[0] == "label,b,cluster,label_"


def test_tables_have_no_column_of_the_only_cluster() -> None:
    assert list(samples(k=3).to_pandas().columns) == ["x0", "x1", "x2", "cluster", "label"]
    assert list(samples(k=1).to_pandas().columns) == ["x0", "x1", "x2", "label"]


def test_the_archive_keeps_bits_and_grey_values(tmp_path: Path) -> None:
    grey = torch.tensor([[0, 200], [130, 5]], dtype=torch.uint8)
    samples = GreySamples(x=(grey > 127).to(torch.uint8), cluster=torch.zeros(2).long(), grey=grey, labels=torch.ones(2).long())
    samples.save(tmp_path / "s.npz")
    samples.save(tmp_path / "s.csv")
    with np.load(tmp_path / "s.npz") as stored:
        assert stored["grey"].tolist() == grey.tolist()
        assert stored["x"].tolist() == [[0, 1], [1, 0]]
        assert stored["labels"].tolist() == [1, 1]


def test_points_keep_every_digit(tmp_path: Path) -> None:
    points = PointSamples(x=torch.tensor([[0.1, 1 / 3], [1e-9, 2.0]], dtype=torch.float64), columns=("a", "b"))
    for ending in ("csv", "parquet"):
        points.save(tmp_path / f"p.{ending}")
    points.save(tmp_path / "p.npz")
    assert pd.read_csv(tmp_path / "p.csv").to_numpy().tolist() == points.x.tolist()
    assert pd.read_parquet(tmp_path / "p.parquet").equals(points.to_pandas())
    with np.load(tmp_path / "p.npz") as stored:
        assert stored["x"].tolist() == points.x.tolist()


def test_columns_become_arrays_of_their_own_types(tmp_path: Path) -> None:
    values = pd.DataFrame({"day": [1, 2], "price": [0.5, 0.25], "name": ["é", "b"]})
    samples = ColumnSamples(values=values)
    samples.save(tmp_path / "c.npz")
    with np.load(tmp_path / "c.npz", allow_pickle=False) as stored:
        assert {name: stored[name].tolist() for name in stored} == values.to_dict("list")
    assert len(samples) == len(samples.to_pandas()) == 2
