"""Audits from the command line to the verdict."""

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from dpgen.auditing.audits import audit, canary_coins
from dpgen.auditing.engine import EngineAudit, Observed, train_watched
from dpgen.auditing.options import parse_audit

pytestmark = pytest.mark.usefixtures("quiet")

SCRIPT = Path(__file__).parents[2] / "scripts" / "audit.py"
QUIET = ("--progress_bar=false", "--workers=1")
SMALL = ("--steps=4", "--sampling_rate=0.5", *QUIET)


def modest(engine: EngineAudit, included: torch.Tensor) -> Observed:
    """A faulty variant: a training that claims a tenth of what it spent."""
    seen = train_watched(engine, included)
    return seen._replace(claimed=seen.claimed / 10)


def status(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *arguments])
    with pytest.raises(SystemExit, match=r"^\d$") as left:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    return int(left.value.code or 0)


def test_coins_are_fair_for_several_and_take_turns_for_one() -> None:
    coins = canary_coins(1000, trainings=3, seed=0)
    assert coins.shape == (3, 1000)
    assert 0.45 < coins.mean() < 0.55
    assert not np.array_equal(coins[0], coins[1])
    assert np.array_equal(coins, canary_coins(1000, trainings=3, seed=0))
    assert canary_coins(1, trainings=20, seed=0)[:, 0].tolist() == [True, False] * 20
    with pytest.raises(ValueError, match="trainings must be at least 20"):
        canary_coins(1, trainings=3, seed=0)
    with pytest.raises(ValueError, match="canaries must be at least 40"):
        canary_coins(10, trainings=2, seed=0)


def test_many_trainings_with_and_without_one_canary() -> None:
    options = ("--canaries=1", "--trainings=50", "--sampling_rate=1", "--steps=2", "--sigma_sgd=0.5", "--confidence=0.99")
    finding = audit(parse_audit([*QUIET, *options]))
    assert (finding.method, finding.trainings, finding.trials) == ("many runs", 100, 100)
    assert 0 < finding.lower_bound <= finding.claimed


def test_several_runs_with_several_canaries_each() -> None:
    finding = audit(parse_audit([*SMALL, "--canaries=50", "--trainings=4", "--sigma_sgd=0.5", "--model=dpgan"]))
    assert (finding.method, finding.trainings, finding.trials) == ("canaries in several runs", 4, 200)
    assert finding.audited.startswith("dpgan")


def test_exit_codes_and_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "finding.json"
    consistent = ("--canaries=40", "--sigma_sgd=0.3", f"--out={out}")
    assert status(*SMALL, *consistent, monkeypatch=monkeypatch) == 0
    assert "consistent" in capsys.readouterr().out
    assert json.loads(out.read_text())["verdict"] == "consistent"
    monkeypatch.setattr("dpgen.auditing.audits.train_watched", modest)
    assert status(*QUIET, "--steps=2", "--sampling_rate=1", "--canaries=400", "--sigma_sgd=0.3", monkeypatch=monkeypatch) == 1
    assert "VIOLATED" in capsys.readouterr().out
    assert status("--canaries=3", monkeypatch=monkeypatch) == 2
    said = capsys.readouterr()
    assert said.err.startswith("error: canaries")
    assert said.err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--canaries=1", "--workers=2"]])
def test_the_command_does_not_flag_the_engine(options: list[str]) -> None:
    torch.set_num_threads(1)
    assert not audit(parse_audit([*options, "--progress_bar=false"])).violated
