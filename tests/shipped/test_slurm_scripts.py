"""The Slurm scripts are valid shell, and what they run is a job that dpgen understands."""

import os
import subprocess
from pathlib import Path

import pytest

from dpgen.config import parse_job

SCRIPTS = sorted((Path(__file__).parents[2] / "scripts" / "slurm").glob("*.sbatch"))
SLURM = {"SLURM_NTASKS_PER_NODE": "2", "SLURM_JOB_NUM_NODES": "3", "SLURM_CPUS_PER_TASK": "4", "SLURM_ARRAY_TASK_ID": "7"}


def commanded(script: Path, tmp_path: Path, *arguments: str, gpus: str = "0") -> list[str]:
    """Arguments that the script gives to `srun`, which here only writes them down, where Slurm has granted these GPUs."""
    fake = tmp_path / "srun"
    fake.write_text('#!/bin/bash\nprintf "%s\\n" "$@" > "$OUT"\n')
    fake.chmod(0o755)
    given = {"SLURM_JOB_GPUS": gpus, "PATH": f"{tmp_path}:{os.environ['PATH']}", "OUT": str(tmp_path / "seen")}
    environment = os.environ | SLURM | given
    subprocess.run(["bash", str(script), *arguments], check=True, env=environment)
    return (tmp_path / "seen").read_text().splitlines()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.name)
def test_it_runs_a_job_that_can_be_parsed(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    python, program, *rest = commanded(script, tmp_path, "out", "--model", "dpgm", "--steps", "3")
    assert (python, program) == (".venv/bin/python", "scripts/train.py")
    job = parse_job(rest)
    assert job.privacy.steps == 3
    assert job.runtime.accelerator == "gpu"
    assert str(job.runtime.run_dir).startswith("out")
    assert job.runtime.processes == (6 if script.stem == "several_nodes" else 1)
    assert parse_job(commanded(script, tmp_path, "out", "--model", "dpgm", gpus="")[2:]).runtime.accelerator == "cpu"
    if script.stem == "array":
        assert (job.privacy.epsilon, job.runtime.seed) == (3.0, 1)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.name)
def test_it_is_warned_before_its_limit_and_may_be_queued_again(script: Path) -> None:
    text = script.read_text()
    assert "#SBATCH --signal=USR1@120" in text
    assert "#SBATCH --requeue" in text
    assert "--run_dir" in text, "what resumes has to know where"


def test_all_three_are_there() -> None:
    assert [script.stem for script in SCRIPTS] == ["array", "one_machine", "several_nodes"]
