"""Rows on disk: the same bits as the dense table, by row, by chunk, and in training."""

from pathlib import Path

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer

from dpgen.callbacks import PrivacyAccountant
from dpgen.data.sets import SparseRows, write_sparse_rows
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.sampling import PoissonLoader
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

N, D = 200, 13


@pytest.fixture
def dense() -> torch.Tensor:
    return (torch.rand(N, D, generator=torch.Generator().manual_seed(0)) < 0.2).to(torch.uint8)


@pytest.fixture
def rows(dense: torch.Tensor, tmp_path: Path) -> SparseRows:
    assert write_sparse_rows(tmp_path, (row.nonzero()[:, 0].numpy() for row in dense)) == N
    return SparseRows.open(tmp_path, d=D)


def test_rows_and_chunks_are_those_of_the_dense_table(rows: SparseRows, dense: torch.Tensor) -> None:
    order = torch.randperm(N, generator=torch.Generator().manual_seed(1))
    assert torch.equal(rows[order], dense[order])
    assert torch.equal(rows[order[:0]], dense[:0])
    assert torch.equal(torch.cat(list(rows.split(37))), dense)
    assert rows.shape == (N, D)
    assert isinstance(rows.items, np.memmap)


def test_the_loader_draws_from_them(rows: SparseRows, dense: torch.Tensor) -> None:
    loader = PoissonLoader(rows, sampling_rate=1.0)
    assert torch.equal(next(iter(loader)).x, dense.float())
    assert len(next(iter(PoissonLoader(rows, sampling_rate=0.3))).x) < N


@pytest.mark.usefixtures("quiet")
def test_a_model_trains_on_them(rows: SparseRows) -> None:
    plan = DPGMPlan(sampling_rate=0.5, steps=3, sigma_sgd=1.0, sigma_count=5.0)
    module = DPGM(d=D, plan=plan, config=DPGMConfig(clusters="none", hidden=3, latent=1))
    trainer = Trainer(
        max_steps=3, max_epochs=-1, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu",
        enable_model_summary=False, callbacks=[PrivacyAccountant(Curator(Ledger(None, delta=1e-5)))],
    )  # fmt: skip
    trainer.fit(module, PoissonLoader(rows, sampling_rate=0.5))
    assert module.global_step == 3
    assert abs(float(module.partition.counts[0]) - N) < 60


def test_fingerprints_tell_tables_apart(rows: SparseRows, dense: torch.Tensor, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_sparse_rows(other, (row.nonzero()[:, 0].numpy() for row in 1 - dense))
    assert rows.fingerprint() == SparseRows.open(tmp_path, d=D).fingerprint()
    assert rows.fingerprint() != SparseRows.open(other, d=D).fingerprint()
    assert (
        PoissonLoader(rows, sampling_rate=0.5).table.fingerprint() == PoissonLoader(rows, sampling_rate=0.1).table.fingerprint()
    )


@pytest.mark.parametrize(
    ("starts", "items", "match"),
    [
        ([0, 2], [0, D], r"items must be in \[0, 13\), got \[0, 13\]"),
        ([0, 2], [-1, 3], r"items must be in \[0, 13\)"),
        ([0, 3], [0, 1], "starts must rise from 0 to the number of items 2"),
        ([0, 2, 1, 2], [0, 1], "starts must rise"),
        ([0], [], "starts must rise"),
        ([0, 1], [0.5], "items must be whole numbers, got float64"),
    ],
)
def test_arrays_that_are_no_rows_are_refused(starts: list[int], items: list[float], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        SparseRows(np.array(starts), np.array(items), D)


def test_a_folder_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no sparse rows: starts\.npy is missing"):
        SparseRows.open(tmp_path, d=3)
