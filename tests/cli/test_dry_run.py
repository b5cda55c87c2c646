"""A dry run says what a run declares and costs, and spends nothing."""

import re
import shutil
from pathlib import Path

import pytest
import tiny
from refusals import refused

from dpgen.cli.train import dry_run
from dpgen.config import parse_job
from dpgen.privacy.ledger import Budget
from dpgen.privacy.shared_budget import SharedBudget
from dpgen.run import run

pytestmark = pytest.mark.usefixtures("quiet")

SMALL = ("--hidden=3", "--latent=1", "--steps=7", "--sampling_rate=0.1")


def test_the_plan_and_the_price_are_those_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = parse_job(tiny.closed_form(tmp_path, "gaussian", "--epsilon=2", "--evaluation=none"))
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    text = dry_run(job).text
    assert sorted(tmp_path.rglob("*")) == before, "nothing is written"
    statement = run(job).release.statement
    assert text.endswith(f"cost             {statement.in_words()}")
    for mechanism in statement.mechanisms:
        assert f"{mechanism['most']} x {mechanism['note']}: {mechanism['event']}\n" in text if "most" in mechanism else True
    assert "  epsilon          2.0\n" in text


def test_noise_without_a_budget_is_priced() -> None:
    text = dry_run(parse_job([*SMALL, "--epsilon=null", "--noise_multiplier=1"])).text
    found = re.search(r"cost +epsilon (\S+)", text)
    assert found
    again = re.search(
        r"7 x training steps: .*noise_multiplier=([\d.]+)", dry_run(parse_job([*SMALL, f"--epsilon={found[1]}"])).text
    )
    assert again
    assert float(again[1]) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("model", ["mollifier", "mbde", "merr", "tables"])
def test_other_systems_tell_their_plan(model: str) -> None:
    assert re.search(r"plan\n  \d+ x .*\n  cost +epsilon", dry_run(parse_job(["--model", model])).text, re.DOTALL)


def test_wrong_data_are_refused(tmp_path: Path) -> None:
    with refused("test_fraction"):
        dry_run(tiny.job(tmp_path, "--test_fraction=2"))


def test_what_is_left_of_a_shared_budget_is_told(tmp_path: Path) -> None:
    shared = SharedBudget.create(tmp_path / "data.budget", Budget(2.0, 1e-5))
    options = tiny.closed_form(
        tmp_path, "gaussian", f"--ledger={shared.path}", "--epsilon=1", "--delta=1e-5", "--evaluation=none"
    )
    found = re.search(
        r"data\.budget: it would bring all runs to epsilon (\S+): it fits, 2 times$", dry_run(parse_job(options)).text
    )
    assert found
    assert shared.spending().runs == 0
    run(parse_job(options))
    assert float(found[1]) == pytest.approx(shared.spending().epsilon, rel=1e-3)
    shutil.rmtree(tmp_path / "run")
    assert dry_run(parse_job(options)).text.endswith("it fits, 1 time")
    run(parse_job(options))
    assert dry_run(parse_job(options)).text.endswith("refused, it does not fit")
    with refused("relation"):
        dry_run(parse_job([*options, "--relation=replace_one"]))
