"""Where a run executes: options are checked, the trainer logs and checkpoints where it should."""

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import tiny
import torch
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.loggers import TensorBoardLogger

from dpgen.callbacks import PrivacyAccountant
from dpgen.callbacks.checkpoint import Checkpoint, SealedCheckpointIO
from dpgen.privacy.ledger import Ledger, LedgerError
from dpgen.privacy.sampling import PoissonLoader
from dpgen.runtime import Runtime
from dpgen.systems import DPGM, DPGMConfig, DPGMPlan

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"devices": 0}, "devices must be at least 1, got 0"),
        ({"num_nodes": 0}, "num_nodes must be at least 1, got 0"),
        ({"devices": 2}, "devices and num_nodes must be 1, got 2 and 1"),
        ({"num_nodes": 2}, "devices and num_nodes must be 1, got 1 and 2"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1, got 0"),
        ({"accelerator": "tpu"}, "accelerator must be one of 'auto', 'cpu', 'gpu', got 'tpu'"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"seed": -1}, r"seed must be in \[0, 2\^32\), got -1"),
        ({"seed": 2**32}, r"seed must be in \[0, 2\^32\), got 4294967296"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Runtime(**options)


def test_a_gpu_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="sees no GPU here; use 'auto' or 'cpu'"):
        Runtime(accelerator="gpu")


def test_the_directory_must_have_been_chosen() -> None:
    with pytest.raises(ValueError, match="run_dir has not been set"):
        Runtime().directory  # noqa: B018


def test_the_trainer(tmp_path: Path) -> None:
    runtime = Runtime(run_dir=tmp_path, accelerator="cpu", checkpoint_every=7)
    trainer = runtime.trainer(max_steps=5, callbacks=[])
    assert any(isinstance(c, Checkpoint) for c in trainer.callbacks)  # type: ignore[attr-defined]
    assert isinstance(trainer.progress_bar_callback, TQDMProgressBar)
    assert isinstance(trainer.strategy.checkpoint_io, SealedCheckpointIO)
    assert isinstance(trainer.logger, TensorBoardLogger)
    assert Path(trainer.logger.log_dir) == tmp_path / "tensorboard"
    assert trainer.max_steps == 5
    assert runtime.checkpoint == tmp_path / "last.ckpt"
    silent = Runtime(run_dir=tmp_path, accelerator="cpu", progress_bar=False).trainer(max_steps=5, callbacks=[])
    assert silent.progress_bar_callback is None


def fit(runtime: Runtime, ledger: Ledger, steps: int) -> L.LightningModule:
    data = tiny.records()
    plan = DPGMPlan(sampling_rate=0.5, steps=steps, sigma_sgd=1.0, sigma_count=5.0)
    module = DPGM(d=tiny.D, plan=plan, config=DPGMConfig(hidden=3, latent=1), n_classes=tiny.CLASSES)
    loader = PoissonLoader(data.x, data.labels, sampling_rate=0.5)
    runtime.fit(module, loader, max_steps=steps, callbacks=[PrivacyAccountant(ledger)])
    return module


def test_fit_resumes_from_the_checkpoint_of_its_own_run(tmp_path: Path) -> None:
    runtime = Runtime(run_dir=tmp_path, accelerator="cpu", progress_bar=False)
    ledger = Ledger(None, delta=1e-5, path=tmp_path / "ledger.jsonl")
    first = fit(runtime, ledger, 3)
    assert first.global_step == 3
    second = fit(runtime, ledger, 5)
    assert second.global_step == 5
    steps = sum(e.count for e in ledger.entries() if e.note == "training steps")
    assert steps == 5, "two more, none twice"
    with pytest.raises(LedgerError, match="checkpoint"):
        fit(runtime, Ledger(None, delta=1e-5), 7)


def test_a_cut_checkpoint_is_refused(tmp_path: Path) -> None:
    runtime = Runtime(run_dir=tmp_path, accelerator="cpu", progress_bar=False)
    runtime.checkpoint.write_bytes(b"cut")
    with pytest.raises(ValueError, match=r"last\.ckpt does not match its checksum"):
        fit(runtime, Ledger(None, delta=1e-5), 3)
