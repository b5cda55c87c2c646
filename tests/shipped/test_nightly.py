"""The job for every night survives a kill: one release, paid once, and a second start changes nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dpgen.privacy.ledger import Budget
from dpgen.privacy.shared_budget import SharedBudget

SCRIPT = Path(__file__).parents[2] / "scripts" / "nightly.sh"


@pytest.mark.slow
def test_a_killed_job_ends_with_one_release_that_is_paid_once(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("town,age\n" + "Ulm,30\nBern,41\n" * 50)
    command = tmp_path / "dpgen"
    command.write_text(f'#!/bin/sh\necho $$ >> pids\nexec {sys.executable} -m dpgen "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "WAIT": "0", "DAY": "day"}
    SharedBudget.create(tmp_path / "b", Budget(3.0, 1e-5))
    job = subprocess.Popen([SCRIPT, "a.csv", "b", "--epsilon", "1"], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    while not (tmp_path / "runs" / "day" / "ledger.jsonl").exists():
        time.sleep(0.01)
    os.kill(int((tmp_path / "pids").read_text().split()[0]), signal.SIGKILL)
    assert job.wait(timeout=120) == 0
    assert len((tmp_path / "pids").read_text().split()) == 2
    said = (tmp_path / "runs" / "day.json").read_text()
    assert json.loads(said)["epsilon"] <= 1.0
    spent = SharedBudget(tmp_path / "b").spending().epsilon
    assert (
        subprocess.run([SCRIPT, "a.csv", "b", "--epsilon", "1"], cwd=tmp_path, env=environment, capture_output=True).returncode
        == 2
    )
    assert (tmp_path / "runs" / "day.json").read_text() == said
    assert SharedBudget(tmp_path / "b").spending().epsilon == spent <= 1.001
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["day", "day.json"]
