"""Where a run executes: options are checked, the trainer logs and checkpoints where it should."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import tiny
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins.environments import SLURMEnvironment
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from refusals import refused

from dpgen.callbacks import PrivacyAccountant
from dpgen.callbacks.accountant import Preempted
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger, LedgerError
from dpgen.privacy.sampling import PoissonLoader
from dpgen.run import run
from dpgen.runtime import RUN_DIR, Runtime
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        *(({name: 0}, name) for name in ("devices", "num_nodes", "checkpoint_every", "threads")),
        *(({name: "some"}, name) for name in ("precision", "accelerator", "evaluation")),
        ({"fid_weights": Path("w.pth")}, "evaluation"),
        ({"fid_weights": Path("w.pth"), "evaluation": "full"}, "fid_weights"),
        *(({"seed": seed}, "seed") for seed in (-1, 2**32)),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], name: str) -> None:
    with refused(name):
        Runtime(**options)


@pytest.mark.parametrize(("accelerator", "gpus"), [("cpu", 200), ("auto", 0), ("auto", 3), ("gpu", 3)])
def test_more_devices_than_the_machine_has_are_refused_before_anything_is_spent(
    accelerator: str, gpus: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    if accelerator == "auto" and not gpus:
        with refused("accelerator"):
            Runtime(accelerator="gpu")
    Runtime(accelerator=accelerator, devices=3).begin()
    with refused("devices"):
        Runtime(accelerator=accelerator, devices=99).begin()
    with refused("devices"):
        run(tiny.job(tmp_path, f"--accelerator={accelerator}", "--devices=99"))
    assert list(tmp_path.glob("run*")) == []


def fit(runtime: Runtime, ledger: Ledger, steps: int, *callbacks: Callback) -> L.LightningModule:
    data = tiny.records()
    plan = DPGMPlan(sampling_rate=0.5, steps=steps, noise_multiplier=1.0, sigma_count=5.0)
    module = DPGM(d=tiny.D, plan=plan, config=DPGMConfig(hidden=3, latent=1), n_classes=tiny.CLASSES)
    loader = PoissonLoader(data.x, data.labels, sampling_rate=0.5)
    runtime.fit(module, loader, max_steps=steps, callbacks=[PrivacyAccountant(Curator(ledger)), *callbacks])
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
    with refused("checkpoint", error=LedgerError):
        fit(runtime, Ledger(None, delta=1e-5), 7)


@pytest.mark.parametrize(("options", "strategy"), [({}, SingleDeviceStrategy), ({"devices": 2}, DDPStrategy)])
def test_the_strategy(tmp_path: Path, options: dict[str, Any], strategy: type) -> None:
    trainer = Runtime(run_dir=tmp_path, accelerator="cpu", **options).trainer(max_steps=5, callbacks=[])
    assert isinstance(trainer.strategy, strategy)
    assert not trainer._accelerator_connector.use_distributed_sampler
    assert trainer.num_devices == options.get("devices", 1)


def test_half_precision(tmp_path: Path) -> None:
    runtime = Runtime(run_dir=tmp_path, accelerator="cpu", progress_bar=False, precision="bf16-mixed")
    assert fit(runtime, Ledger(None, delta=1e-5), 3).global_step == 3


def test_only_the_first_process_is_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert Runtime().first, "processes of runs of their own"
    follower = Runtime(devices=2, accelerator="cpu")
    assert not follower.first
    with refused("run_dir"):
        follower.directory  # noqa: B018
    monkeypatch.setenv(RUN_DIR, str(tmp_path))
    assert follower.directory == tmp_path
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert Runtime(devices=2).first


def test_under_slurm_lightning_does_not_requeue_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURM_NTASKS": "1", "SLURM_JOB_NAME": "train", "SLURM_NTASKS_PER_NODE": "1"}.items():
        monkeypatch.setenv(name, value)
    trainer = Runtime(run_dir=tmp_path, accelerator="cpu").trainer(max_steps=5, callbacks=[])
    environment = trainer._accelerator_connector.cluster_environment
    assert isinstance(environment, SLURMEnvironment)
    assert not environment.auto_requeue


class SignalAt(Callback):
    """Sends this process a signal after a step."""

    def __init__(self, step: int, number: signal.Signals) -> None:
        self.step, self.number = step, number

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_and_the_next_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr("dpgen.callbacks.accountant.subprocess.run", lambda command, **_: asked.append(command) or Done())
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    before = signal.getsignal(number)
    runtime = Runtime(run_dir=tmp_path, accelerator="cpu", progress_bar=False)
    ledger = Ledger(None, delta=1e-5, path=tmp_path / "ledger.jsonl")
    with refused("step 2 of 5", error=Preempted, paid=True):
        fit(runtime, ledger, 5, SignalAt(2, number))
    assert signal.getsignal(number) == before
    assert asked == ([["scontrol", "requeue", "42"]] if number == signal.SIGUSR1 else [])
    assert fit(runtime, ledger, 5).global_step == 5
    steps = sum(e.count for e in ledger.entries() if e.note == "training steps")
    assert steps == 5, "nothing is replayed"
    fit(runtime, ledger, 7, SignalAt(7, number))  # after the last step there is nothing to interrupt


class Done:
    returncode = 0


def test_what_is_not_released_leaves_no_logs(tmp_path: Path) -> None:
    runtime = Runtime(run_dir=tmp_path, accelerator="cpu", progress_bar=False)
    assert runtime.trainer(max_steps=3, released=False).loggers == []
    with refused("precision"):
        replace(runtime, precision="bf16-mixed").trainer(max_steps=3, released=False)
