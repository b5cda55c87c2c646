"""Fixtures that several test files share."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from fixed_source import fixed_entropy
from hypothesis import HealthCheck, settings

from dpgen.run import Outcome, run
from dpgen.runtime import quiet_training

torch.set_num_threads(1)  # the tensors are tiny: a second thread would only wait
collect_ignore = ["saved_0_5/make.py"]  # a script for a checkout of 0.5.0
UNCHECKED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=25, suppress_health_check=UNCHECKED)
settings.register_profile("nightly", deadline=None, max_examples=400, suppress_health_check=UNCHECKED)
settings.load_profile("fixed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run every test on randomness that its own name fixes, wherever its file is."""
    with fixed_entropy("doctest" if isinstance(item, pytest.DoctestItem) else item.name):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    """Set up every fixture on randomness that its own name fixes: whichever test asks for it first."""
    with fixed_entropy(fixturedef.argname):
        return (yield)


@pytest.fixture
def quiet() -> Iterator[None]:
    with quiet_training():
        yield


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """One finished run on tiny records, with the default budget."""
    with quiet_training():
        return run(tiny.job(tmp_path_factory.mktemp("finished")))


@pytest.fixture(scope="session")
def rank_results(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """What 2 and 3 gloo processes saw in `rank_checks.py`: {processes: {check: [value of rank 0, of rank 1, ...]}}.

    Of several workers of one test run the first one asks them, the others wait for it.
    """
    own = tmp_path_factory.getbasetemp()
    out = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "ranks.json"
    with out.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not out.with_suffix(".3.json").exists():
            command = [sys.executable, str(Path(__file__).parent / "helpers" / "rank_checks.py"), str(out), "2", "3"]
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=600, env=os.environ | {"OMP_NUM_THREADS": "1"}
            )
            assert ended.returncode == 0, ended.stderr
    results = {count: json.loads(out.with_suffix(f".{count}.json").read_text()) for count in (2, 3)}
    for checks in results.values():
        for name, values in checks.items():
            crashes = [v["crashed"] for v in values if isinstance(v, dict) and "crashed" in v]
            assert not crashes, f"{name}: {crashes[0]}"
    return results
