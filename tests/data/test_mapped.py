"""Records on disk: rows, draws and a training are those of the same records in memory, and a draw reads its own rows only."""

from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pyarrow as pa
import pytest
import torch
from fixed_source import FixedKeySource

from dpgen.callbacks import PrivacyAccountant
from dpgen.cli.command import quiet_training
from dpgen.data.mapped import MappedRows
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.sampling import PoissonLoader
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

X = np.random.default_rng(0).integers(0, 2, (300, 7)).astype(np.uint8)


@pytest.fixture
def shards(tmp_path: Path) -> str:
    for i, part in enumerate(np.split(X, [120, 120, 290])):
        np.save(tmp_path / f"part{i}.npy", part)
    return str(tmp_path / "part*.npy")


def arrow(path: Path) -> pa.ChunkedArray:
    """Rows of an Arrow file that is mapped into memory, in two batches."""
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 7)
    table = pa.table({"x": lists})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=200)
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all().column("x")


def test_rows_are_those_of_the_array(shards: str, tmp_path: Path) -> None:
    chosen = torch.tensor([0, 299, 119, 120, 289, 290, 5, 5])
    for rows in (MappedRows.open(shards), MappedRows.of_arrow(arrow(tmp_path / "x.arrow"))):
        assert (rows.shape, rows.ndim, len(rows), rows.dtype) == ((300, 7), 2, 300, torch.uint8)
        assert rows[chosen].tolist() == X[chosen.numpy()].tolist()
        assert torch.cat(list(rows.split(64))).tolist() == X.tolist()
        assert len(rows[chosen[:0]]) == 0
    assert MappedRows.open(shards).fingerprint() == MappedRows([X]).fingerprint() != MappedRows([1 - X]).fingerprint()


def test_arrow_is_not_copied(tmp_path: Path) -> None:
    before = pa.total_allocated_bytes()
    column = arrow(tmp_path / "x.arrow")
    rows = MappedRows.of_arrow(column)
    starts = [chunk.flatten().buffers()[1].address for chunk in column.chunks]
    assert [shard.ctypes.data for shard in rows._shards] == starts
    assert pa.total_allocated_bytes() - before < X.nbytes


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


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: MappedRows([]), "shards is \\[\\]; there must be at least one"),
        (lambda: MappedRows([X, X[:, :3]]), "shard 1 has uint8 \\(300, 3\\); all of them must be uint8 \\(n, d\\)"),
        (lambda: MappedRows([X, X.astype(np.float32)]), "shard 1 has float32"),
        (lambda: MappedRows([X[0]]), "shard 0 has uint8 \\(7,\\)"),
        (lambda: MappedRows([X.astype(np.int64)]), "shards have dtype int64; it must be bool, uint8 or floating point"),
        (lambda: MappedRows.open("/nowhere/*.npy"), "path is '/nowhere/\\*.npy': there is no such file"),
        (lambda: MappedRows.open(__file__), "cannot be read as npy"),
        (lambda: MappedRows.of_arrow(pa.chunked_array([[[1, 2], [3]]])), "column has type list<item: int64>"),
        (
            lambda: MappedRows.of_arrow(pa.chunked_array([[[1.0], None]], pa.list_(pa.float32(), 1))),
            "column has missing rows or values",
        ),
    ],
)
def test_what_is_no_table_of_numbers_is_refused(made: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        made()
