"""The best of a secret number of runs is released, and the choice paid for.

What a score asks is a function of the release, what it answers has the noise that it is charged for.
"""

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from other_records import DATA, release

import dpgen
from dpgen.cli.main import main
from dpgen.cli.select import MOST_QUERIES, price, queries, score
from dpgen.facts import Fact
from dpgen.privacy.accountants import epsilon
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.selection import SELECTION
from dpgen.privacy.shared_budget import SharedBudget
from dpgen.statement import PrivacyStatement

pytestmark = pytest.mark.usefixtures("quiet")

OF_NETWORKS = ("--hidden", "--latent", "--steps", "--sampling_rate")


def command(directory: Path, *extra: str, among: str = "epsilon=1,2", networks: bool = False) -> list[str]:
    unlabelled = ("--label_column=null", "--image_shape=null", *(("--clusters=none",) if networks else ()))
    left_out = ("--run_dir",) if networks else ("--run_dir", *OF_NETWORKS)
    own = [a for a in tiny.arguments(directory, *unlabelled) if not a.startswith(left_out)]
    chosen = {pair.partition("=")[0] for pair in among.split(";")}
    given = {} if "model" in chosen else {"--model": "dpgm" if networks else "gaussian"}
    given |= {"--select": among, "--run_dir": str(directory / "s"), "--select_runs": "3"}
    given |= dict(a.split("=", 1) for a in (*own, *extra) if "=" in a)
    options = [f"{name}={value}" for name, value in given.items() if name.removeprefix("--") not in chosen]
    return ["train", *options, *(a for a in extra if "=" not in a)]


def test_the_best_is_released_and_paid_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    SharedBudget.create(tmp_path / "b", Budget(20.0, 1e-5))
    assert main(command(tmp_path, f"--ledger={tmp_path / 'b'}", "--delta=1e-5", "--evaluation=none")) == 0
    out = capsys.readouterr().out
    directory = tmp_path / "s"
    assert f"{SELECTION} on tiny" in out
    assert not [p for p in directory.iterdir() if p.name.startswith("unreleased")], "other runs leave nothing"
    statement = PrivacyStatement.from_dict(json.loads((directory / "privacy.json").read_text()))
    with Ledger.open(directory / "ledger.jsonl") as ledger:
        [entry] = ledger.entries()
        once = epsilon(entry.event.event, 1e-5)
    assert entry.note == SELECTION
    assert statement.epsilon == epsilon(entry.event, 1e-5) > once > 2.0, "more than one run with its score"
    assert tiny.told(statement)[Fact.SELECTED]["names"] == "epsilon=1, epsilon=2"
    assert statement.shared is not None
    assert (statement.shared["runs"], statement.shared["payments"]) == (1, 1)
    assert len(dpgen.load(directory).samples(5)) == 5
    for after in (
        ["verify", str(directory)],
        ["evaluate", str(directory), "--evaluation=quick"],
        ["budget", str(tmp_path / "b")],
    ):
        assert main(after) == 0, capsys.readouterr()
    assert main(command(tmp_path, f"--ledger={tmp_path / 'b'}")) == 2
    assert "holds a finished run" in capsys.readouterr().err


def test_a_dry_run_says_the_price(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(tmp_path, "--dry_run")) == 0
    out = capsys.readouterr().out
    assert "  cost             epsilon" in out
    assert not (tmp_path / "s").exists()
    assert main(command(tmp_path, "--evaluation=none")) == 0
    stated = capsys.readouterr().out.split("privacy    ")[1].splitlines()[0]
    assert stated in out, "the price that was said"


@pytest.mark.parametrize("killed", [True, False])
def test_a_selection_that_ends_early(killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed, it has shown nothing and runs again; an error was shown, so it has paid."""
    error = type("Died", (BaseException if killed else Exception,), {})

    def die(*_: object, **__: object) -> None:
        raise error("gone")

    with monkeypatch.context() as patch:
        patch.setattr("dpgen.cli.select.score", die)
        with pytest.raises(error, match="gone") if killed else nullcontext():
            assert main(command(tmp_path, "--evaluation=none")) == 1
    with Ledger.open(tmp_path / "s" / "ledger.jsonl") as opened:
        assert [e.note for e in opened.entries()] == [] if killed else [SELECTION]
    assert main(command(tmp_path, "--evaluation=none")) == (0 if killed else 2)


def test_no_runs_release_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("dpgen.privacy.selection.draw_runs", lambda *_: 0)
    assert main(command(tmp_path)) == 2
    assert "the secret number of runs that was drawn is 0: nothing is released" in capsys.readouterr().err
    assert not (tmp_path / "s" / "model").exists()


@pytest.mark.parametrize(
    ("extra", "among", "match"),
    [
        *(([f"--{name}"], "epsilon=1,2", name.partition("=")[0]) for name in (
            "select_runs=1", "select_runs=many", "select_noise=0", "sweep_select=counts",
        )),
        (["--select_epsilon=1"], "epsilon=1,2", "budget epsilon 1 at delta 1e-05 .*: a plan of 1 x 'the best of"),
        ([], "delta=1e-5,1e-6", "delta=1e-6: delta is 1e-06"),
        ([], "relation=add_remove,replace_one", "relation is 'replace_one'"),
        ([], "test_fraction=0.1,0.2", "same data"),
        ([], "seed=0,1", "model and privacy"),
        ([], "epsilon=1,many", "epsilon=many: epsilon"),
        *(([], among, "select is") for among in ("epsilon", "=1,2", "epsilon=", "b-c=1;b_c=2")),
        (["--model=mwem", "--delta=0"], "rounds=2,3", "delta is 0"),
    ],
)  # fmt: skip
def test_what_is_refused(extra: list[str], among: str, match: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(tmp_path, *extra, among=among)) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert re.search(match, errors), errors
    assert not (tmp_path / "s" / "ledger.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--model=minimax", "--select=epsilon=1,2"], "0/1 records"),
        (["--select=epsilon=1,2", "--epsilon=1"], "select is"),
        (["--select_noise=3"], "select_noise needs --select"),
        (["--select=epsilon=1,2", "--print_config"], "print_config"),
    ],
)
def test_draws_are_not_selected(arguments: list[str], match: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *arguments, f"--run_dir={tmp_path / 's'}"]) == 2
    assert match in capsys.readouterr().err


def ask() -> tuple[Any, Any, Any]:
    """A release, the data that it is of, and other data."""
    data, others = (DATA["records"](other) for other in (False, True))
    return release("records", data), data, others


def test_queries_do_not_depend_on_the_records() -> None:
    """Private shares would be released with the choice."""
    model, data, others = ask()
    (asked, values), (same, other_values) = queries(model, data, seed=0), queries(model, others, seed=0)
    for one, two in zip(asked, same):
        assert torch.equal(one, two)
    assert 0 < len(asked.shares) <= MOST_QUERIES
    assert len(values) != len(other_values)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_a_score_costs_what_is_said_and_has_that_noise(relation: Any) -> None:
    model, data, _ = ask()
    found = []
    ledger = Ledger(None, delta=1e-6, relation=relation)
    for _ in range(300):
        found.append(score(model, data, Curator(ledger), noise=5.0, seed=0))
    asked, values = queries(model, data, seed=0)
    exact = -float(asked.errors(values).values) / 1024 / len(asked.shares)
    noise = torch.tensor(found).double() - exact
    assert float(noise.abs().mean()) == pytest.approx(5.0 * (2 / torch.pi) ** 0.5, rel=0.25)
    [line] = price(5.0, relation)
    assert {entry.event for entry in ledger.entries()} == {line.event}
    assert sum(entry.count for entry in ledger.entries()) == 300


def test_a_release_that_is_near_scores_higher_than_one_of_other_records() -> None:
    model, data, others = ask()
    curator = Curator(Ledger(None, delta=1e-6))
    near, far = (score(model, rows, curator, noise=0.01, seed=0) for rows in (data, others))
    assert near > far
