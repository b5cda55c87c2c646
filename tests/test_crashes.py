"""kill -9 at random moments of a run: nothing is forgotten, nothing is half written, and nearly nothing is paid twice."""

import errno
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

from dpgen.callbacks.checkpoint import SealedCheckpointIO
from dpgen.files import write_atomically
from dpgen.privacy.accountants import epsilon
from dpgen.privacy.ledger import Ledger
from dpgen.run import run
from dpgen.statement import PrivacyStatement
from dpgen.systems.registry import load

STEPS, EVERY = 30, 5
NUMBERS = (f"--steps={STEPS}", f"--checkpoint_every={EVERY}", "--sampling_rate=0.2")
NOISE = ("--epsilon=null", "--sigma_sgd=4", "--sigma_count=20")


class Killed:
    """A run that was shot at random moments and then ended; runs that ended before their shot lie beside it."""

    def __init__(self, directory: Path, shots: int) -> None:
        generator = random.Random(int.from_bytes(os.urandom(4), "big"))
        # Most of a run is start and evaluation: half of the shots aim at commits, so that training is hit as well.
        aims = [str(generator.randint(1, STEPS // EVERY)), f"{generator.uniform(0, 1.1):.3f}x"]
        self.moments = [aims[0], *(generator.choice([str(generator.randint(1, 3)), f"{generator.random():.3f}x"])
                                   for _ in range(shots - 2)), aims[1]]  # fmt: skip
        options = tiny.arguments(directory, *NUMBERS, *NOISE, *tiny.UNLABELLED)
        program = Path(__file__).parent / "helpers" / "killed_runs.py"
        command = [sys.executable, str(program), str(directory / "run"), ",".join(self.moments), "--", *options]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        ended = subprocess.run(command, capture_output=True, text=True, timeout=3000, env=environment)
        assert ended.returncode == 0, f"{self.moments}: {ended.stderr}"
        self.shots = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
        self.whole = Path(f"{directory / 'run'}.whole")
        self.runs = [path for path in directory.iterdir() if path.name.startswith("run") and path != self.whole]


@pytest.fixture(scope="module", params=[3, pytest.param(50, marks=pytest.mark.slow)])
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return Killed(tmp_path_factory.mktemp("killed"), request.param)


def spent(directory: Path) -> tuple[float, dict[str, int]]:
    """Epsilon and counts of everything in a ledger file, by the accountant itself."""
    with Ledger.open(directory / "ledger.jsonl") as ledger:
        entries = ledger.entries()
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.note] = counts.get(entry.note, 0) + entry.count
    return epsilon(ComposedDpEvent([SelfComposedDpEvent(e.event, e.count) for e in entries]), 1e-5), counts


def statement(directory: Path) -> PrivacyStatement:
    return PrivacyStatement.from_dict(json.loads((directory / "privacy.json").read_text()))


def test_epsilon_is_never_below_what_was_spent(killed: Killed) -> None:
    for directory in killed.runs:
        total, _ = spent(directory)
        assert statement(directory).epsilon >= total * (1 - 1e-6), killed.moments


def test_the_statement_is_an_uninterrupted_runs_or_higher(killed: Killed) -> None:
    least = statement(killed.whole).epsilon
    assert all(statement(directory).epsilon >= least * (1 - 1e-6) for directory in killed.runs), killed.moments


def test_every_run_ends_with_all_its_steps_and_pays_each_once(killed: Killed) -> None:
    for directory in killed.runs:
        trained = SealedCheckpointIO().load_checkpoint(directory / "last.ckpt")["global_step"]
        assert trained == STEPS
        assert spent(directory)[1] == spent(killed.whole)[1], killed.moments


def test_the_ledger_only_grows(killed: Killed) -> None:
    for before, after in zip(killed.shots, killed.shots[1:]):
        if before["alive"] and not before["finished"]:
            # A ledger without a charge may be begun again; what follows a finished run begins anew.
            assert after["commits"] >= before["commits"], killed.moments


def test_nothing_is_half_written_or_left_behind(killed: Killed) -> None:
    expected = {path.name for path in killed.whole.iterdir()}
    for directory in killed.runs:
        assert {path.name for path in directory.iterdir()} == expected, killed.moments
        assert len(load(directory / "model").samples(3).x) == 3
        for path in directory.rglob("*.json"):
            json.loads(path.read_text())
        assert not list(directory.rglob(".*"))


@pytest.mark.usefixtures("quiet")
def test_a_full_disk_ends_the_run_and_the_next_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Path] = []

    def full(path: Path, data: bytes) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write_atomically(path, data)

    job = tiny.job(tmp_path, *NUMBERS, *NOISE, *tiny.UNLABELLED)
    with monkeypatch.context() as patch:
        patch.setattr("dpgen.callbacks.checkpoint.write_atomically", full)
        with pytest.raises(OSError, match="No space left on device"):
            run(job)
    directory = tmp_path / "run"
    before, counts = spent(directory)
    assert counts["training steps"] == EVERY, "charged, and not forgotten"
    assert not (directory / "privacy.json").exists()
    assert run(job).release.statement.epsilon > before
