"""Records on disk: rows, draws and a training are those of the same records in memory, and a draw reads its own rows only."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import tiny
import torch
from fixed_source import FixedKeySource
from refusals import refused

from dpgen.callbacks import PrivacyAccountant
from dpgen.config import keyword_job
from dpgen.data.records import Records
from dpgen.data.stored import MappedRows, load_mapped
from dpgen.evaluation import evaluate
from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.sampling import PoissonLoader
from dpgen.runtime import quiet_training
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

X = np.random.default_rng(0).integers(0, 2, (300, 7)).astype(np.uint8)


@pytest.fixture
def shards(tmp_path: Path) -> str:
    for i, part in enumerate(np.split(X, [120, 120, 290])):
        np.save(tmp_path / f"part{i}.npy", part)
    return str(tmp_path / "part*.npy")


def test_rows_are_those_of_the_array(shards: str) -> None:
    chosen = torch.tensor([0, 299, 119, 120, 289, 290, 5, 5])
    rows = MappedRows.open(shards)
    assert (rows.shape, rows.ndim, len(rows), rows.dtype) == ((300, 7), 2, 300, torch.uint8)
    assert rows[chosen].tolist() == X[chosen.numpy()].tolist()
    assert torch.cat(list(rows.split(64))).tolist() == X.tolist()
    assert len(rows[chosen[:0]]) == 0
    assert MappedRows.open(shards).fingerprint() == MappedRows([X]).fingerprint() != MappedRows([1 - X]).fingerprint()


def test_a_training_has_the_bits_of_one_in_memory(shards: str) -> None:
    plan = DPGMPlan(epsilon=2.0, steps=3, sampling_rate=0.05, sigma_count=20.0)
    found = []
    for x in (MappedRows.open(shards), torch.from_numpy(X)):
        module = DPGM(d=7, plan=plan, config=DPGMConfig(clusters="none", k=1, hidden=3, latent=1))
        curator = Curator(Ledger(Budget(2.0, 1e-5)), source=FixedKeySource(1))
        options: dict[str, Any] = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False)
        trainer = L.Trainer(
            max_steps=3,
            max_epochs=-1,
            accelerator="cpu",
            callbacks=[PrivacyAccountant(curator)],
            use_distributed_sampler=False,
            enable_model_summary=False,
            **options,
        )
        with quiet_training():
            trainer.fit(module, PoissonLoader(x, sampling_rate=0.05, source=FixedKeySource(2)))
        found.append(module.bank.theta.detach().clone())
    assert torch.equal(*found)


def fitted(model: str, data: Any, **options: Any) -> Any:
    """The release of a fit under fixed noise."""
    job = keyword_job(model, {"epsilon": 2.0, "progress_bar": False} | options, private=data)
    curator = Curator(Ledger(job.privacy.budget), source=FixedKeySource(1))
    return job.fit(data, curator, job.runtime)


@pytest.mark.parametrize("subclusters", [1, 2])
def test_gaussians_have_the_bits_of_records_in_memory(shards: str, subclusters: int) -> None:
    mapped, none = load_mapped(path=shards), torch.zeros(0, 7, dtype=torch.uint8)
    options = {"clusters": "none"} if subclusters == 1 else {"clusters": "kmeans", "k": 2}
    found = [fitted("gaussian", data, **options) for data in (mapped, Records("memory", torch.from_numpy(X), none))]
    samples = [release.samples(50, random_state=0).x for release in found]
    assert torch.equal(*samples)
    assert found[0].statement.says(Fact.UNCHANGED_FILES)


LABELS = np.arange(300) % 3


def test_labels_are_a_column_of_the_files(shards: str, tmp_path: Path) -> None:
    for name, rows in (("left", slice(0, 200)), ("right", slice(200, 300))):
        np.save(tmp_path / f"{name}.npy", np.insert(X[rows], 2, LABELS[rows], axis=1))
    memory = Records(
        "memory",
        torch.from_numpy(X),
        torch.zeros(0, 7, dtype=torch.uint8),
        labels=torch.from_numpy(LABELS),
        test_labels=torch.zeros(0, dtype=torch.int64),
        n_classes=3,
    )
    expected = fitted("gaussian", memory, clusters="labels").samples(40, random_state=0)
    path = str(tmp_path / "[lr]*t.npy")
    data = load_mapped(path=path, test_path=path, label_column=2)
    assert (data.n_classes, data.class_names, data.d, data.n_test) == (3, ("0", "1", "2"), 7, 300)
    assert data.labels is not None
    assert data.test_labels is not None
    assert data.labels.tolist() == data.test_labels.tolist() == LABELS.tolist()
    assert data.x[:300].tolist() == X.tolist()
    assert tiny.told(data)[Fact.READ_CLASSES] == {"k": 3}
    part = data.some(100)
    assert part.labels is not None
    rows = {(*row, label) for row, label in zip(map(tuple, X.tolist()), LABELS.tolist())}
    assert {(*row, label) for row, label in zip(map(tuple, part.x.tolist()), part.labels.tolist())} <= rows
    found = fitted("gaussian", data, clusters="labels").samples(40, random_state=0)
    assert torch.equal(found.x, expected.x)
    assert torch.equal(found.labels, expected.labels)


def test_networks_learn_from_labels_on_disk(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.column_stack([X, LABELS.astype(np.uint8)]))
    data = load_mapped(path=str(tmp_path / "x.npy"), label_column=-1)
    job = keyword_job("dpgm", {"hidden": 3, "latent": 1, "steps": 2, "sampling_rate": 0.2, "epsilon": 5.0}, private=data)
    with quiet_training():
        release = job.fit(data, Curator(job.open_ledger()), replace(job.runtime, run_dir=tmp_path / "run"))
    assert set(release.samples(60, random_state=0).labels.tolist()) <= {0, 1, 2}


def test_an_evaluation_looks_at_a_public_choice(shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "held.npy", X[:100])
    data = load_mapped(path=shards, test_path=str(tmp_path / "held.npy"), image_shape=(1, 7))
    part = data.some(50)
    assert (part.n, len(part.test_x), part.image_shape) == (50, 50, (1, 7))
    assert {tuple(row) for row in part.x.tolist()} <= {tuple(row) for row in X.tolist()}
    np.save(tmp_path / "ones.npy", np.ones((9, 7), np.uint8))
    assert load_mapped(path=shards, test_path=str(tmp_path / "ones.npy")).some(50).test_x.tolist() == [[1] * 7] * 9
    monkeypatch.setattr("dpgen.evaluation.records.LOOKED_AT", 99)
    found = evaluate(fitted("gaussian", data, clusters="none"), data, full=False)
    assert [note for note in found.notes if note.startswith("scores look at 99 of the records at most")]
    assert not any("private" in score.name for score in found.scores)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "bad.npy"}, "x has another value in row 24, column 4"),
        ({"path": "nan.npy"}, "x has another value in row 2, column 1"),
        ({"test_path": "none.npy"}, "none.npy'"),
        ({"test_path": "nan.npy"}, "test_x has 2 features, x has 7"),
        ({"test_path": "bad.npy"}, "test_x has another value in row 24"),
        ({"image_shape": (2, 3)}, "image_shape 2 x 3 has 6 pixels, the records have 7"),
        ({"label_column": 6, "test_path": "other.npy"}, "other.npy has a label in row 1 "),
        ({"path": "gaps.npy", "label_column": 6}, "gaps.npy column 6 has no value in row 1"),
        ({"label_column": 7}, "label_column is 7"),
        ({"label_column": "class"}, "label_column is class"),
    ],
)
def test_wrong_files_of_a_command_are_refused(shards: str, tmp_path: Path, options: dict[str, Any], said: str) -> None:
    bad = X.copy()
    bad[23, 3] = 7
    np.save(tmp_path / "bad.npy", bad)
    np.save(tmp_path / "nan.npy", np.array([[0.0, 1.0], [np.nan, 0.0]]))
    np.save(tmp_path / "other.npy", X[:, [0, 1, 2, 3, 4, 5, 6]] + 5 * (np.arange(7) == 6).astype(np.uint8))
    np.save(tmp_path / "gaps.npy", np.where(np.arange(7) == 6, np.nan, X))
    places = {name: str(tmp_path / str(value)) for name, value in options.items() if name.endswith("path")}
    with refused(said):
        load_mapped(**{"path": shards} | options | places)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: MappedRows([]), "shards is []"),
        (lambda: MappedRows([X, X[:, :3]]), "shard 1 has uint8 (300, 3)"),
        (lambda: MappedRows([X, X.astype(np.float32)]), "shard 1 has float32"),
        (lambda: MappedRows([X[0]]), "shard 0 has uint8 (7,)"),
        (lambda: MappedRows([X.astype(np.int64)]), "shards have dtype int64"),
        (lambda: MappedRows.open("/nowhere/*.npy"), "path is '/nowhere/*.npy'"),
        (lambda: MappedRows.open(__file__), "cannot be read as npy"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused(made: Any, said: str) -> None:
    with refused(said):
        made()
