"""The job files under a real Slurm: whatever ends a job, it is queued again, goes on, and pays for what it does.

`sbatch` has to be on the path, with the right to update jobs and nodes: CONTRIBUTING.md says how one machine gets it.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
STEPS = 1200
SMALL = ("--cpus-per-task=1", "--mem=1G", "--time=30")
TRAINING = ("--model", "dpgm", "--clusters", "none", "--k", "1", "--evaluation", "none")
PATIENCE = 400.0  # seconds for whatever is waited for


def slurm(*command: str) -> str:
    """Output of a command of Slurm."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout.strip()


def wait(reached: Callable[[], bool], what: Callable[[], str]) -> None:
    """Wait for something; `what` says afterwards why it did not come."""
    end = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < end, what()
        time.sleep(0.5)


@dataclass(frozen=True)
class Job:
    """A job of Slurm and the directory of its run."""

    number: str
    run_dir: Path

    def field(self, name: str) -> str:
        """What `scontrol show job` says."""
        words = slurm("scontrol", "--oneliner", "show", "job", self.number).split()
        return next(word.partition("=")[2] for word in words if word.startswith(f"{name}="))

    @property
    def charged(self) -> int:
        """Steps on the run's ledger."""
        return charged(self.run_dir)

    @property
    def ended(self) -> bool:
        return self.field("JobState") in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")

    def at_step(self, step: int) -> None:
        """Wait until training is there."""
        wait(lambda: self.charged >= step or self.ended, self.story)
        assert self.charged < STEPS, f"too fast to be stopped: {self.story()}"
        assert not self.ended, self.story()

    def again(self, times: int) -> None:
        """Wait until the job has been queued again so many times."""
        wait(lambda: int(self.field("Restarts")) >= times or self.ended, self.story)
        assert not self.ended, self.story()

    def finish(self) -> None:
        """Wait for the end, which has to be a good one."""
        wait(lambda: self.ended, self.story)
        assert self.field("JobState") == "COMPLETED", self.story()

    def story(self) -> str:
        """The job's state and its log."""
        logs = "\n".join(log.read_text() for log in self.run_dir.parent.glob("*.log"))
        return f"{slurm('scontrol', 'show', 'job', self.number)}\n{logs}"


def charged(run_dir: Path) -> int:
    """Steps on a run's ledger."""
    file = run_dir / "ledger.jsonl"
    written = file.read_text().splitlines(keepends=True) if file.exists() else []
    lines = [json.loads(line) for line in written if line.endswith("\n")]
    steps = {line["mechanism"] for line in lines if line.get("note") == "training steps"}
    return sum(line["count"] for line in lines if line.get("charge") in steps)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder from which job files find their Python and scripts, as from a checkout."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    return tmp_path


@pytest.fixture
def submit(checkout: Path) -> Iterator[Callable[..., Job]]:
    """Submits job files; what is left of the jobs afterwards is cancelled."""
    jobs = []

    def begin(file: str, *options: str, sbatch: tuple[str, ...] = SMALL, run_dir: str = "run") -> Job:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        command = ["sbatch", "--parsable", *sbatch, str(ROOT / "scripts" / "slurm" / file), run_dir, *TRAINING, *options]
        number = subprocess.run(command, check=True, capture_output=True, text=True, cwd=checkout, env=environment).stdout
        jobs.append(number.strip())
        return Job(number.strip(), checkout / run_dir)

    yield begin
    slurm("scancel", *jobs)


def require_whole(run_dir: Path, *, replayed: int = 0) -> None:
    """A finished run whose statement, ledger and model fit together, and which paid for at most so many steps twice."""
    assert subprocess.run([sys.executable, "-m", "dpgen", "verify", str(run_dir)], cwd=ROOT).returncode == 0
    assert json.loads((run_dir / "privacy.json").read_text())["epsilon"] <= 3
    assert STEPS <= charged(run_dir) <= STEPS + replayed


def run(submit: Callable[..., Job], *options: str, sbatch: tuple[str, ...] = SMALL) -> Job:
    return submit("one_machine.sbatch", "--steps", str(STEPS), *options, sbatch=sbatch)


def test_a_job_that_is_queued_again_twice_goes_on(submit: Callable[..., Job]) -> None:
    job = run(submit)
    for times, step in ((1, 300), (2, 600)):
        job.at_step(step)
        slurm("scontrol", "requeue", job.number)
        job.again(times)
    job.finish()
    require_whole(job.run_dir)


def test_a_job_that_is_pre_empted_goes_on(submit: Callable[..., Job], checkout: Path) -> None:
    job = run(submit)
    job.at_step(300)
    urgent = slurm("sbatch", "--parsable", "--partition=urgent", "--exclusive", "--chdir", str(checkout), "--wrap", "sleep 1")
    job.again(1)
    job.finish()
    assert Job(urgent, job.run_dir).field("JobState") == "COMPLETED"
    require_whole(job.run_dir)


def test_a_job_at_its_time_limit_asks_to_be_queued_again(submit: Callable[..., Job]) -> None:
    job = run(submit, sbatch=(*SMALL, "--signal=USR1@600"))
    job.at_step(300)
    slurm("scontrol", "update", f"JobId={job.number}", "TimeLimit=11")
    job.again(1)
    slurm("scontrol", "update", f"JobId={job.number}", "TimeLimit=60")
    job.finish()
    assert "requeued" in job.story()
    require_whole(job.run_dir)


def test_a_job_whose_node_fails_goes_on_at_its_checkpoint(submit: Callable[..., Job]) -> None:
    job = run(submit)
    job.at_step(350)
    node = job.field("NodeList")
    slurm("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=trial")
    try:
        job.again(1)
    finally:
        if slurm("sinfo", "--noheader", "--nodes", node, "--partition", "plain", "--format", "%T").startswith("down"):
            slurm("scontrol", "update", f"NodeName={node}", "State=RESUME")
    job.finish()
    require_whole(job.run_dir, replayed=100)


def test_tasks_of_an_array_share_one_budget(submit: Callable[..., Job], checkout: Path) -> None:
    """Three runs of epsilon .5 on a budget that two of them use up: one is refused, and has spent and written nothing."""
    command = [sys.executable, "-m", "dpgen", "budget", "all.budget", "--create", "--epsilon", "0.9", "--delta", "1e-5"]
    subprocess.run(command, check=True, cwd=checkout, env=os.environ | {"PYTHONPATH": str(ROOT)})
    job = submit("array.sbatch", "--steps", "50", "--ledger", "all.budget", sbatch=(*SMALL, "--array=0-2"), run_dir="runs")
    wait(lambda: not slurm("squeue", "--noheader", "--jobs", job.number), job.story)
    runs = [job.run_dir / f"epsilon=0.5,seed={seed}" for seed in range(3)]
    released = [(one / "privacy.json").exists() for one in runs]
    assert sum(released) == 2, "\n".join(log.read_text() for log in checkout.glob("*.log"))
    assert [charged(one) > 0 for one in runs] == released
    refused = [log.read_text() for log in checkout.glob("*.log") if "all.budget" in log.read_text()]
    assert len(refused) == 3
