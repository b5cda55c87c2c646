"""Audits from the command line to the verdict."""

import json
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from dpgen.auditing.audits import audit, canary_coins, train_watched
from dpgen.auditing.options import QUICK, SIGMA, TRAINED, parse_audit
from dpgen.cli.main import main
from dpgen.systems.registry import systems

pytestmark = pytest.mark.usefixtures("quiet")

QUIET = ("--progress_bar=false", "--workers=1")
SMALL = ("--steps=4", "--sampling_rate=0.5", *QUIET)


def modest(*given: Any) -> tuple[Any, float]:
    """A faulty variant: a training that claims a tenth of what it spent."""
    scores, claimed = train_watched(*given)
    return scores, claimed / 10


def test_coins_are_fair_and_each_training_has_its_own() -> None:
    coins = canary_coins(1000, trainings=3, seed=0)
    assert 0.45 < coins.double().mean() < 0.55
    assert not coins[0].equal(coins[1])


def test_several_runs_with_several_canaries_each() -> None:
    finding = audit(parse_audit([*SMALL, "--canaries=50", "--trainings=4", "--noise_multiplier=0.5", "--model=dpgan"]))
    assert (finding.method, finding.trainings, finding.trials) == ("canaries in several runs", 4, 200)
    assert finding.audited.startswith("dpgan")


def test_exit_codes_and_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "finding.json"
    assert main(["audit", *SMALL, "--canaries=40", "--noise_multiplier=0.3", f"--out={out}"]) == 0
    assert "consistent" in capsys.readouterr().out
    assert json.loads(out.read_text())["verdict"] == "consistent"
    monkeypatch.setattr("dpgen.auditing.audits.train_watched", modest)
    assert main(["audit", *QUIET, "--steps=2", "--sampling_rate=1", "--canaries=400", "--noise_multiplier=0.3"]) == 1
    assert "VIOLATED" in capsys.readouterr().out
    assert main(["audit", "--canaries=3"]) == 2
    said = capsys.readouterr().err
    assert (said[:15], said.count("\n")) == ("error: canaries", 1)


@pytest.mark.slow
def test_the_command_does_not_flag_the_engine() -> None:
    assert not audit(parse_audit(["--trainings=2", "--workers=2", "--progress_bar=false"])).violated


def test_quick_options_give_way_to_given_ones() -> None:
    plan = parse_audit(["--steps=7"]).plan
    assert (plan.steps, plan.sampling_rate, plan.noise_multiplier) == (7, float(TRAINED["sampling_rate"]), float(SIGMA))
    assert parse_audit(["--epsilon=2"]).plan.noise_multiplier is None
    assert set(QUICK) <= set(systems())


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--model=nobody"], "model"),
        (["--stepz=3"], "'steps'"),
        (["--trainings=0"], "trainings"),
        (["--out=/"], "out"),
        (["--confidence=1"], "confidence"),
        (["--seed=-1"], "seed"),
        (["--config=c.yaml"], "config"),
        (["--model=minimax", "--canaries=3"], "canaries"),
    ],
)
def test_bad_arguments_are_refused(arguments: list[str], word: str) -> None:
    with refused(word):
        parse_audit(arguments)
