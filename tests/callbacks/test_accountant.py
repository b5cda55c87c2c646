"""The accountant callback: ask, record, then step; every line of its table of guarantees."""

import hashlib
import io
import os
import pickle
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from refusals import refused

from dpgen.callbacks import PrivacyAccountant
from dpgen.callbacks.accountant import Checkpoint, HeldTensorBoard, Preemption, SealedCheckpointIO, requeue
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.mechanisms import subsampled_gaussian_event
from dpgen.privacy.sampling import PoissonMask

STEP = subsampled_gaussian_event(0.1, 1.0)


def grant(accountant: PrivacyAccountant, note: str = "step") -> bool:
    """Whether a draw that costs `STEP` may be released."""
    return accountant.draw(note, PoissonMask(0.1), {"gradients": 1.0}) is not None


class Module:
    """Records what a callback logs."""

    exact_sums, shards_records = False, True

    def __init__(self) -> None:
        self.logged: dict[str, float] = {}

    def log(self, name: str, value: float, **_: Any) -> None:
        self.logged[name] = value


def trainer(**options: Any) -> Any:
    engine = SimpleNamespace(use_distributed_sampler=False)
    defaults = {
        "accumulate_grad_batches": 1, "precision": "32-true", "world_size": 1, "current_epoch": 0,
        "strategy": SingleDeviceStrategy(), "loggers": [], "_accelerator_connector": engine,
    }  # fmt: skip
    return SimpleNamespace(**defaults | options)


def test_a_step_is_charged_before_it_runs(tmp_path: Path) -> None:
    ledger = Ledger(Budget(3.0, 1e-5), path=tmp_path / "ledger.jsonl")
    accountant = PrivacyAccountant(Curator(ledger))
    assert grant(accountant)
    assert ledger.charges == 1
    assert not ledger.committed, "nothing is shown yet"
    assert ledger.entries()[0].count == 1


def test_once_exhausted_a_cheaper_step_is_not_slipped_in() -> None:
    accountant = PrivacyAccountant(Curator(Ledger(Budget(1.0, 1e-5))))
    assert accountant.draw("dear", PoissonMask(1.0), {"gradients": 0.1}) is None
    assert accountant.draw("cheap", PoissonMask(0.01), {"gradients": 50.0}) is None


def test_a_bare_ledger_is_refused() -> None:
    with refused("curator"):
        PrivacyAccountant(Ledger(None, delta=1e-5))  # type: ignore[arg-type]


SAMPLED = SimpleNamespace(use_distributed_sampler=True)
REFUSED: list[tuple[str, dict[str, Any], dict[str, bool]]] = [
    ("accumulate_grad_batches", {"accumulate_grad_batches": 4}, {}),
    ("precision", {"precision": "16-mixed"}, {}),
    ("precision", {"precision": "bf16-mixed"}, {}),
    ("precision", {"precision": "16-mixed"}, {"exact_sums": True}),
    ("strategy", {"world_size": 2}, {}),
    ("use_distributed_sampler", {"world_size": 2, "strategy": DDPStrategy(), "_accelerator_connector": SAMPLED}, {}),
    ("shards_records", {"world_size": 2}, {"shards_records": False}),
]


@pytest.mark.parametrize(("match", "options", "attributes"), REFUSED)
def test_trainers_that_break_accounting_are_refused(match: str, options: dict[str, Any], attributes: dict[str, bool]) -> None:
    accountant, module = PrivacyAccountant(Curator(Ledger(None, delta=1e-5))), Module()
    accountant.on_fit_start(trainer(), module)  # type: ignore[arg-type]
    module.exact_sums = True
    accountant.on_fit_start(trainer(precision="bf16-mixed"), module)  # type: ignore[arg-type]
    vars(module).update({"exact_sums": False} | attributes)
    with refused(match):
        accountant.on_fit_start(trainer(**options), module)  # type: ignore[arg-type]


@pytest.mark.parametrize("ledger", [Ledger(Budget(2.0, 1e-5)), Ledger(None, delta=1e-5)], ids=["budget", "report"])
def test_what_is_logged_bounds_the_truth(ledger: Ledger) -> None:
    accountant, module = PrivacyAccountant(Curator(ledger)), Module()
    for _ in range(5):
        grant(accountant)
        accountant.on_train_batch_end(trainer(), module, None, None, 0)  # type: ignore[arg-type]
    accountant.on_train_epoch_end(trainer(), module)  # type: ignore[arg-type]
    budget = {"privacy/remaining"} if ledger.budget else set()
    assert set(module.logged) == {"eps", "privacy/epsilon_rdp", "privacy/epsilon"} | budget
    assert module.logged["privacy/epsilon"] == ledger.epsilon()
    assert ledger.epsilon() <= module.logged["eps"] == module.logged["privacy/epsilon_rdp"]
    if ledger.budget:
        assert module.logged["eps"] <= ledger.budget.epsilon
        assert module.logged["privacy/remaining"] <= ledger.budget.epsilon - ledger.spent()


def test_state_is_the_ledger_position_and_replayed_steps_stay_counted(tmp_path: Path) -> None:
    ledger = Ledger(None, delta=1e-5, path=tmp_path / "ledger.jsonl")
    accountant = PrivacyAccountant(Curator(ledger))
    grant(accountant)
    state = accountant.state_dict()
    for _ in range(3):
        grant(accountant)
    spent = ledger.epsilon()
    ledger.close()
    resumed = PrivacyAccountant(Curator(Ledger.open(tmp_path / "ledger.jsonl")))
    resumed.load_state_dict(state)
    assert resumed.replayed == 3
    assert resumed.ledger.epsilon() == spent


def test_the_ledger_is_on_disk_before_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, calls = Ledger(None, delta=1e-5), []
    monkeypatch.setattr(ledger, "commit", lambda: calls.append("commit"))
    PrivacyAccountant(Curator(ledger)).on_save_checkpoint(trainer(), Module(), {})  # type: ignore[arg-type]
    assert calls == ["commit"]


def test_what_a_logger_may_show_at_once_is_committed_before_it_runs(tmp_path: Path) -> None:
    for loggers, commits in (([], 0), ([HeldTensorBoard(tmp_path)], 0), ([CSVLogger(tmp_path)], 1)):
        ledger = Ledger(Budget(3.0, 1e-5))
        accountant = PrivacyAccountant(Curator(ledger))
        accountant.on_fit_start(trainer(loggers=loggers), Module())  # type: ignore[arg-type]
        assert grant(accountant)
        assert ledger.commits == commits


def test_products_in_tensorfloat_are_refused() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        with refused("float32_matmul_precision"):
            PrivacyAccountant(Curator(Ledger(None, delta=1e-5))).on_fit_start(trainer(), Module())  # type: ignore[arg-type]
    finally:
        torch.set_float32_matmul_precision(before)


# -- checkpoints -------------------------------------------------------------------------------------------------------


STATE: dict[str, Any] = {"step": 7, "weights": torch.arange(6.0).view(2, 3), "ledger": {"lines": 3, "head": "ab"}}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "last.ckpt"
    SealedCheckpointIO().save_checkpoint(STATE, path)
    return path


@pytest.mark.parametrize("edit", [0.0, 0.5, 0.999, 0, 64, -1])
def test_a_cut_or_edited_checkpoint_is_refused(saved: Path, edit: float) -> None:
    content = bytearray(saved.read_bytes())
    if isinstance(edit, int):
        content[edit] ^= 1
    else:
        del content[int(edit * len(content)) :]
    saved.write_bytes(content)
    with refused("checksum"):
        SealedCheckpointIO().load_checkpoint(saved)


def test_a_sealed_pickle_is_not_executed(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "executed",)

    buffer = io.BytesIO()
    torch.save({"state": Bomb()}, buffer)
    body = buffer.getvalue()
    path = tmp_path / "last.ckpt"
    path.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        SealedCheckpointIO().load_checkpoint(path)
    assert not (tmp_path / "executed").exists()


def test_a_failed_save_keeps_the_last_checkpoint(saved: Path) -> None:
    with pytest.raises((AttributeError, pickle.PicklingError), match=r"local object|lambda"):
        SealedCheckpointIO().save_checkpoint({"state": lambda: None}, saved)
    loaded = SealedCheckpointIO().load_checkpoint(saved)
    assert torch.equal(loaded.pop("weights"), STATE["weights"])
    assert loaded == {name: value for name, value in STATE.items() if name != "weights"}
    assert [p.name for p in saved.parent.iterdir()] == ["last.ckpt"]


def test_saves_every_few_steps_and_at_the_end(tmp_path: Path) -> None:
    steps: list[int] = []
    trainer: Any = SimpleNamespace(callbacks=[], global_step=0, save_checkpoint=lambda path: steps.append(trainer.global_step))
    callback = Checkpoint(tmp_path / "last.ckpt", every=3)
    for trainer.global_step in range(1, 9):
        callback.on_train_batch_end(trainer, None, None, None, 0)  # type: ignore[arg-type]
    callback.on_train_end(trainer, None)  # type: ignore[arg-type]
    assert steps == [3, 6, 8]


# -- signals -----------------------------------------------------------------------------------------------------------


def started() -> tuple[Preemption, Any]:
    callback, trainer = Preemption(), SimpleNamespace(should_stop=False, global_step=0)
    callback.on_train_start(trainer, None)  # type: ignore[arg-type]
    return callback, trainer


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_training_stops_after_the_step(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    callback, trainer = started()
    try:
        callback.on_train_batch_end(trainer, None, None, None, 0)  # type: ignore[arg-type]
        assert not trainer.should_stop
        os.kill(os.getpid(), number)
        assert callback.received == number
        assert not trainer.should_stop, "not in the middle of a step"
        callback.on_train_batch_end(trainer, None, None, None, 1)  # type: ignore[arg-type]
        assert trainer.should_stop
        assert callback.stopped
    finally:
        callback.on_train_end(trainer, None)  # type: ignore[arg-type]
    assert signal.getsignal(number) == before


def test_handlers_go_when_training_fails() -> None:
    before = signal.getsignal(signal.SIGTERM)
    callback, trainer = started()
    assert signal.getsignal(signal.SIGTERM) != before
    callback.on_exception(trainer, None, RuntimeError())  # type: ignore[arg-type]
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    ("variables", "job"),
    [
        ({"SLURM_JOB_ID": "42"}, "42"),
        ({"SLURM_JOB_ID": "45", "SLURM_ARRAY_JOB_ID": "42", "SLURM_ARRAY_TASK_ID": "0"}, "42_0"),
    ],
)
def test_the_job_is_requeued(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], job: str) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], check: bool) -> Any:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr("dpgen.callbacks.accountant.subprocess.run", run)
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(name, raising=False)
    assert not requeue()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert requeue()
    assert asked == [["scontrol", "requeue", job]]
