"""Records on disk: fits are those of the same records in memory, whatever shards and types they come in; what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from fixed_source import FixedKeySource
from refusals import refused

from dpgen.config import keyword_job
from dpgen.data import MappedRows, Records, load_mapped
from dpgen.evaluation import evaluate
from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger

X = np.random.default_rng(0).integers(0, 2, (300, 7)).astype(np.uint8)
LABELS = np.arange(300) % 3
NONE = torch.zeros(0, 7, dtype=torch.uint8)


@pytest.fixture
def shards(tmp_path: Path) -> str:
    for i, (part, kind) in enumerate(zip(np.split(X, [120, 120, 290]), (np.uint8, bool, np.float32, np.int64))):
        np.save(tmp_path / f"part{i}.npy", part.astype(kind))
    return str(tmp_path / "part*.npy")


def fitted(data: Any, **options: Any) -> Any:
    """The release of a fit under fixed noise."""
    job = keyword_job("gaussian", {"epsilon": 2.0, "progress_bar": False} | options, private=data)
    return job.fit(data, Curator(Ledger(job.privacy.budget), source=FixedKeySource(1)), job.runtime)


def test_rows_and_fits_are_those_of_the_array(shards: str) -> None:
    rows = MappedRows.open(shards)
    assert (rows.shape, rows.dtype, torch.equal(rows, torch.from_numpy(X))) == ((300, 7), torch.uint8, True)
    both = (load_mapped(path=shards), Records("memory", torch.from_numpy(X), NONE))
    found = [fitted(data, clusters="none").samples(50, random_state=0).x for data in both]
    assert torch.equal(*found)
    assert both[0].name == "part"


def test_labels_are_a_column_of_the_files(tmp_path: Path) -> None:
    for name, rows in (("left", slice(0, 200)), ("right", slice(200, 300))):
        np.save(tmp_path / f"{name}.npy", np.insert(X[rows], 2, LABELS[rows], axis=1))
    path = str(tmp_path / "[lr]*t.npy")
    data = load_mapped(path=path, test_path=path, label_column=2, image_shape=(1, 7))
    assert (data.n_classes, data.class_names, data.d, data.n_test) == (3, ("0", "1", "2"), 7, 300)
    assert data.labels is not None
    assert data.test_labels is not None
    assert data.labels.tolist() == data.test_labels.tolist() == LABELS.tolist()
    assert data.x.tolist() == data.test_x.tolist() == X.tolist()
    assert tiny.told(data)[Fact.READ_CLASSES] == {"k": 3}
    part = data.some(100)
    assert (part.n, part.n_test, part.image_shape) == (100, 100, (1, 7))
    assert part.labels is not None
    rows = {(*row, label) for row, label in zip(map(tuple, X.tolist()), LABELS.tolist())}
    assert {(*row, label) for row, label in zip(map(tuple, part.x.tolist()), part.labels.tolist())} <= rows


def test_an_evaluation_looks_at_a_public_choice(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load_mapped(path=shards, test_path=shards)
    monkeypatch.setattr("dpgen.evaluation.records.LOOKED_AT", 99)
    found = evaluate(fitted(data, clusters="none"), data, full=False)
    assert [note for note in found.notes if note.startswith("scores look at 99 of the records at most")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "bad.npy"}, "bad.npy has another value in row 24, column 4"),
        ({"path": "nan.npy"}, "nan.npy has another value in row 2, column 1"),
        ({"path": "[nb]a*.npy"}, "nan.npy has 2 columns"),
        ({"test_path": "none.npy"}, "none.npy'"),
        ({"test_path": "nan.npy"}, "another value"),
        ({"image_shape": (2, 3)}, "image_shape 2 x 3 has 6 pixels, the records have 7"),
        ({"path": "gaps.npy", "label_column": 6}, "gaps.npy has no label in row 1"),
        ({"test_path": "gaps.npy", "label_column": 6}, "gaps.npy has no label in row 1"),
        ({"label_column": 7}, "label_column is 7"),
        ({"label_column": "class"}, "label_column is class"),
    ],
)
def test_wrong_files_are_refused(shards: str, tmp_path: Path, options: dict[str, Any], said: str) -> None:
    bad = X.copy()
    bad[23, 3] = 7
    np.save(tmp_path / "bad.npy", bad)
    np.save(tmp_path / "nan.npy", np.array([[0.0, 1.0], [np.nan, 0.0]]))
    np.save(tmp_path / "gaps.npy", np.where(np.arange(7) == 6, np.nan, X))
    places = {name: str(tmp_path / str(value)) for name, value in options.items() if name.endswith("path")}
    with refused(said):
        load_mapped(**{"path": shards} | options | places)
