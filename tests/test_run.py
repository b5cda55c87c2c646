"""One run from data to release: its directory, what it leaves behind, how it refuses, and where it goes on.

Directories belong to one run, one configuration and one writer; damaged or finished ones are refused.
"""

import base64
import json
import os
import re
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import tiny
import torch
import yaml
from refusals import refused
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dpgen.callbacks.accountant import Checkpoint
from dpgen.cli.main import main
from dpgen.config import RunConfig, parse_job
from dpgen.data.split import KEY_FILE
from dpgen.evaluation.scores import Score
from dpgen.facts import Fact
from dpgen.files import is_finished
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Budget, Ledger, LedgerError
from dpgen.privacy.mechanisms import gaussian_event
from dpgen.run import PACKAGES, Outcome, open_run, run, summary
from dpgen.statement import UNPROTECTED, PrivacyStatement

pytestmark = pytest.mark.usefixtures("quiet")

LEFT = {"config.yaml", "versions.yaml", "ledger.jsonl", "last.ckpt", "tensorboard", "model", "samples.npz", "samples.png",
        "metrics.json", "METRICS.md", "PRIVACY.md", "privacy.json"}  # fmt: skip


def test_the_run_directory_is_complete(finished: Outcome) -> None:
    assert {p.name for p in finished.directory.iterdir()} == LEFT
    assert any((finished.directory / "tensorboard").iterdir())


def test_the_statement_is_the_ledger_and_within_the_budget(finished: Outcome) -> None:
    statement = PrivacyStatement.from_dict(json.loads((finished.directory / "privacy.json").read_text()))
    with Ledger.open(finished.directory / "ledger.jsonl") as ledger:
        assert 2.9 < statement.epsilon <= 3.0
        assert statement.epsilon == pytest.approx(ledger.epsilon(), abs=1e-4)
        assert {e.note: e.count for e in ledger.entries()} == {"cluster sizes": 1, "cluster means": 1, "training steps": 3}
    assert statement == finished.release.statement
    assert (finished.directory / "PRIVACY.md").read_text() == statement.to_markdown()
    assert statement.says(Fact.TEST_PART), "the loader's facts are repeated"


def test_samples_and_metrics_are_kept(finished: Outcome) -> None:
    with np.load(finished.directory / "samples.npz") as samples:
        assert samples["x"].shape[1] == tiny.D
        assert samples["x"].shape[0] == samples["labels"].shape[0] > 0
        assert set(samples["labels"].tolist()) <= {0, 1}
    names = [score.name for score in finished.scores]
    assert "train on synthetic, test on real: accuracy" in names
    assert any("counting queries" in name for name in names)
    assert (finished.directory / "metrics.json").read_text().count('"value"') == len(names)


def test_scores_are_marked_wherever_they_are(finished: Outcome) -> None:
    """The broken twin is any writer that leaves the mark out: every text file with a score has it."""
    score = finished.scores[0]
    texts = [path for path in finished.directory.rglob("*") if path.suffix in (".json", ".md", ".csv", ".txt")]
    found = [path for path in texts if score.name in path.read_text()]
    assert {path.name for path in found} == {"metrics.json", "METRICS.md"}
    assert all(UNPROTECTED in path.read_text() for path in found)
    assert UNPROTECTED in finished.summary
    events = EventAccumulator(str(finished.directory / "tensorboard"))
    events.Reload()
    final = [tag for tag in events.Tags()["scalars"] if tag.startswith("final")]
    assert len(final) == len(finished.scores)
    assert all(UNPROTECTED in tag for tag in final)


def test_the_summary_never_rounds_epsilon_down() -> None:
    made = replace(tiny.statement(), epsilon=2.99961, also={"replace_one": 5.8301})
    scores = [Score("utility", 0.71, 0.944, 0.142), Score("pairs", 0.25, 0.18, 0.43, "lower", "independent")]
    options: dict[str, Any] = {"notes": ["test records", "public records"], "settings": Path("configs/a.yaml")}
    assert summary("run", made, released=["model", "m.npz"], directory="runs/7", scores=scores, **options).splitlines() == [
        "run",
        "settings   configs/a.yaml",
        "privacy    epsilon 3 at delta 1e-05 (add or remove one record)",
        "           replace one: 5.831",
        "released   model, m.npz",
        "where      runs/7",
        "how good   utility  0.71    (real data 0.944; chance 0.142; higher is better)",
        "           pairs    0.25    (real data 0.18; independent 0.43; lower is better)",
        f"           {UNPROTECTED}",
        "note       test records",
        "           public records",
    ]
    assert "released   nothing" in summary("run", replace(made, epsilon=1.00001), released=[], directory=".")


REFUSED = [
    ("--k=5", "k must be 2"),
    ("--epsilon=1e-5", "raise epsilon"),
    ("--noise_multiplier=0.01", "steps of the given noise cost"),
    *((f"--{text}", text.partition("=")[0]) for text in ("hidden=0", "n_features=3", "label_column=99", "image_shape=[3,3]")),
    ("--clip_bound=-1", "bound"),
    ("--path=absent.npy", "absent.npy"),
]
MORE = {
    "--noise_multiplier=0.01": ["--epsilon=1"],
    "--n_features=3": ["--clusters=kmeans", "--k=2"],
    "--clip_bound=-1": ["--clipping=fixed"],
}


@pytest.mark.parametrize(("argument", "word"), REFUSED, ids=[argument for argument, _ in REFUSED])
def test_a_refused_run_spends_nothing_and_binds_nobody(tmp_path: Path, argument: str, word: str) -> None:
    with refused(word):
        run(tiny.job(tmp_path, argument, *MORE.get(argument, [])))
    directory = tmp_path / "run"
    assert not (directory / "privacy.json").exists()
    assert not (directory / "model").exists()
    if directory.exists():
        with Ledger.open(directory / "ledger.jsonl") as ledger:
            assert ledger.entries() == []


@pytest.mark.parametrize("value", [np.nan, 2])
def test_bad_records_are_refused_before_anything_is_written(tmp_path: Path, value: float) -> None:
    np.save(tmp_path / "tiny.npy", np.full((9, 17), value))
    with refused("row 1" if value != 2 else "0 and 1"):
        run(tiny.job(tmp_path))
    assert not (tmp_path / "run").exists()


def test_the_key_of_the_split_is_in_its_own_file_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    directory = run(tiny.job(tmp_path, *tiny.UNLABELLED, "--split_key=null")).directory
    key = (directory / KEY_FILE).read_bytes()
    assert stat.S_IMODE((directory / KEY_FILE).stat().st_mode) == 0o600
    shown = [p for p in directory.rglob("*") if p.is_file() and p.name != KEY_FILE]
    for form in (key, key.hex().encode(), base64.b64encode(key)):
        assert not [p.name for p in shown if form in p.read_bytes()]
    assert key.hex() not in "".join(capfd.readouterr())
    assert {p.name for p in directory.iterdir()} == LEFT | {KEY_FILE}


def test_without_an_evaluation_none_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no samples today")

    monkeypatch.setattr(import_module("dpgen.run"), "unscored", broken)
    outcome = run(records(tmp_path, "--evaluation=none"))
    assert re.fullmatch(
        r"the release in .* is complete, but drawing its samples failed: .*no samples today.*; dpgen sample .* draws them",
        outcome.problem,
    )
    assert outcome.notes == ("no samples were written",)


def test_a_failed_evaluation_does_not_lose_what_was_paid_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no picture today")

    monkeypatch.setattr(import_module("dpgen.evaluation.records"), "query_errors", broken)
    job = records(tmp_path)
    outcome = run(job)
    assert re.match(
        r"the release in .* is complete, but its evaluation failed: .*no picture today.*; dpgen evaluate", outcome.problem
    )
    names = {path.name for path in outcome.directory.iterdir()}
    assert {"model", "PRIVACY.md", "privacy.json"} <= names
    assert outcome.scores == []
    assert "metrics.json" not in names
    monkeypatch.undo()
    before = (outcome.directory / "ledger.jsonl").read_bytes()
    again = run(job)
    assert again.problem == ""
    assert replace(again.release.statement, files=outcome.release.statement.files) == outcome.release.statement
    assert again.scores
    assert (outcome.directory / "ledger.jsonl").read_bytes() == before, "evaluating is free"


def records(directory: Path, *extra: str) -> RunConfig:
    return parse_job(tiny.closed_form(directory, "marginals", *extra))


def points(directory: Path, *extra: str) -> RunConfig:
    data = ("--data=mixture_1d", "--n_points=40", "--n_test=20", "--cells=4", "--progress_bar=false")
    return parse_job(["--model=grid_response", *data, f"--run_dir={directory / 'run'}", *extra])


def test_a_run_that_is_not_evaluated_can_be_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = records(tmp_path, "--evaluation=none")
    outcome = run(job)
    assert job.settings["data"]["test_fraction"] == 0
    assert records(tmp_path, "--evaluation=none", "--test_fraction=0.1").settings["data"]["test_fraction"] == 0.1
    assert outcome.release.statement.says(Fact.NO_TEST_PART)
    assert not (outcome.directory / "metrics.json").exists()
    assert "not evaluated; dpgen evaluate" in outcome.summary
    with refused("run_dir", "finished"):
        run(job)
    before = (outcome.directory / "ledger.jsonl").read_bytes()
    for _ in range(2):  # at any time, as often as somebody likes
        assert main(["evaluate", str(outcome.directory), "--evaluation=quick"]) == 0
        assert "counting queries" in capsys.readouterr().out
        assert is_finished(outcome.directory)
    assert (outcome.directory / "ledger.jsonl").read_bytes() == before


def test_private_draws_are_evaluated_by_the_run_that_made_them_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = run(points(tmp_path)).directory
    metrics = (directory / "metrics.json").read_bytes()
    assert main(["evaluate", str(directory)]) == 2
    assert "never kept" in capsys.readouterr().err
    assert (directory / "metrics.json").read_bytes() == metrics


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("evaluator", "interrupted before anything was spent"),
        ("_publish", "is what any release of this run states; the same command with --run_dir .* goes on"),
        ("_evaluated", "while evaluating: the release in .* is complete .*, or dpgen evaluate .*, finishes it"),
    ],
)
def test_ctrl_c_says_where_the_run_stands(place: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("dpgen.run"), place, interrupt)
    with pytest.raises(KeyboardInterrupt, match=said):
        run(records(tmp_path))
    assert (tmp_path / "run").exists() == (place != "evaluator")


def test_ctrl_c_while_training_saves_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = tiny.arguments(tmp_path, *tiny.UNLABELLED, "--steps=6", "--evaluation=none")
    save = Checkpoint.on_train_batch_end

    def press(self: Checkpoint, trainer: L.Trainer, *rest: Any) -> None:
        save(self, trainer, *rest)
        if trainer.global_step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "on_train_batch_end", press)
        assert main(["train", *arguments]) == 130
    errors = capsys.readouterr().err.splitlines()
    assert errors[-1].startswith("interrupted: eps ")
    assert f"the same command with --run_dir {tmp_path / 'run'} goes on" in errors[-1]
    assert main(["train", *arguments]) == 0
    with Ledger.open(tmp_path / "run" / "ledger.jsonl") as ledger:
        assert {e.note: e.count for e in ledger.entries()}["training steps"] == 6, "no step twice"


def begin(directory: Path, *extra: str) -> None:
    """A run that dies after its first charge."""
    with open_run(tiny.job(directory, *extra)) as (_, _, curator):
        curator.ledger.charge(gaussian_event(20.0), note="cluster sizes")


def test_a_new_directory_holds_settings_versions_and_a_ledger(tmp_path: Path) -> None:
    job = tiny.job(tmp_path, "--epsilon=2")
    with open_run(job) as (directory, runtime, curator):
        assert directory == runtime.directory == tmp_path / "run"
        assert curator.ledger.budget == Budget(2.0, 1e-5)
        assert curator.ledger.path == directory / "ledger.jsonl"
    assert yaml.safe_load((directory / "config.yaml").read_text()) == job.settings
    assert set(yaml.safe_load((directory / "versions.yaml").read_text())) == {"python", "dpgen", *PACKAGES}


def test_an_unfinished_run_is_resumed_with_what_it_spent(tmp_path: Path) -> None:
    begin(tmp_path)
    with open_run(tiny.job(tmp_path, "--checkpoint_every=5", "--threads=1")) as (_, _, curator):
        assert [(e.note, e.count) for e in curator.ledger.entries()] == [("cluster sizes", 1)]


@pytest.mark.parametrize("change", ["--epsilon=9", "--hidden=5", "--seed=1", "--test_fraction=0.5"])
def test_other_settings_are_refused(tmp_path: Path, change: str) -> None:
    begin(tmp_path)
    key = change[2:].split("=")[0]
    with refused("run_dir", f".{key}="), open_run(tiny.job(tmp_path, change)):
        pass


def test_a_refused_run_takes_its_folders_away_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    for place, left in (("new/deep", "new"), ("old/deep", "old/deep")):
        with suppress(RuntimeError), open_run(tiny.job(tmp_path, f"--run_dir={tmp_path / place / 'run'}")):
            raise RuntimeError("refused")
        assert not (tmp_path / left).exists()
    assert (tmp_path / "old").is_dir()


def test_a_run_that_spent_nothing_binds_nobody(tmp_path: Path) -> None:
    with suppress(RuntimeError), open_run(tiny.job(tmp_path, "--epsilon=9")):
        raise RuntimeError("refused")
    with open_run(tiny.job(tmp_path, "--epsilon=2")) as (directory, _, curator):
        assert curator.ledger.budget == Budget(2.0, 1e-5)
    assert yaml.safe_load((directory / "config.yaml").read_text())["privacy"]["epsilon"] == 2


def test_two_runs_in_one_directory(tmp_path: Path) -> None:
    for charged in (False, True):
        with open_run(tiny.job(tmp_path)) as (_, _, curator):
            if charged:
                curator.ledger.charge(gaussian_event(20.0), note="cluster sizes")
            with refused("another process", error=LedgerError), open_run(tiny.job(tmp_path)):
                pass
    begin(tmp_path)  # the lock is gone with the run


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with refused("run_dir", "Not a directory"), open_run(tiny.job(tmp_path, f"--run_dir={tmp_path / 'file' / 'run'}")):
        pass


def test_a_run_makes_the_key_of_its_split_once(tmp_path: Path) -> None:
    path = tmp_path / "run" / KEY_FILE
    with open_run(tiny.job(tmp_path, "--split_key=null")) as (_, _, curator):
        key = path.read_bytes()
        curator.ledger.charge(gaussian_event(20.0), note="cluster sizes")
    with open_run(tiny.job(tmp_path, "--split_key=null")):
        assert path.read_bytes() == key
    path.unlink()
    with refused("split.key is missing"), open_run(tiny.job(tmp_path, "--split_key=null")):
        pass
    assert not path.exists(), "no other one takes its place"


@pytest.mark.parametrize("option", ["--test_fraction=0", "--test_path=tiny.npy"])
def test_a_run_that_draws_no_coins_has_no_key(tmp_path: Path, option: str) -> None:
    with open_run(tiny.job(tmp_path, "--split_key=null", option)) as (directory, _, _):
        assert not (directory / KEY_FILE).exists()


def test_other_processes_of_a_run_read_the_key_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = tiny.job(tmp_path, "--split_key=null", "--devices=2")
    with open_run(job) as (directory, _, _):
        first = job.load(directory)
        monkeypatch.setenv("LOCAL_RANK", "1")
        assert not job.runtime.first
        with open_run(job) as (shared, _, _):
            second = job.load(shared)
    assert torch.equal(first.x, second.x)
    assert torch.equal(first.test_x, second.test_x)


@pytest.mark.parametrize("content", [None, "", "a: [", "privacy: 3"])
def test_a_damaged_config_is_refused(tmp_path: Path, content: str | None) -> None:
    with open_run(tiny.job(tmp_path)) as (directory, _, curator):
        curator.ledger.charge(gaussian_event(30.0), note="something")
    (directory / "config.yaml").unlink()
    if content is not None:
        (directory / "config.yaml").write_text(content)
    with refused("config"), open_run(tiny.job(tmp_path)):
        pass


def test_a_checkpoint_without_its_ledger_is_refused(tmp_path: Path) -> None:
    with open_run(tiny.job(tmp_path)) as (directory, _, _):
        pass
    (directory / "ledger.jsonl").unlink()
    (directory / "last.ckpt").write_bytes(b"x")
    with refused("checkpoint"), open_run(tiny.job(tmp_path)):
        pass


@pytest.mark.parametrize("model", ["--model=marginals", "--model=gaussian"])
def test_a_closed_form_that_was_killed_begins_again_for_free_with_fresh_noise(tmp_path: Path, model: str) -> None:
    job = parse_job([*model.split(), f"--run_dir={tmp_path / 'run'}"])
    noisy = []
    for _ in range(3):
        with suppress(KeyboardInterrupt), open_run(job) as (_, _, curator):
            noisy.append(float(curator.gaussian("counts", BoundedSum(torch.tensor([5.0]), 1.0), 20.0)))
            assert curator.ledger.charges == 1
            raise KeyboardInterrupt
    assert len(set(noisy)) == 3


def test_an_error_is_paid_for_before_it_is_shown(tmp_path: Path) -> None:
    job = parse_job(["--model=marginals", f"--run_dir={tmp_path / 'run'}"])
    with suppress(ZeroDivisionError), open_run(job) as (_, _, curator):
        noisy = curator.gaussian("counts", BoundedSum(torch.tensor([5]), 1.0), 20.0)
        raise ZeroDivisionError(noisy)
    with refused("run_dir"), open_run(job):
        pass


SCRIPT = """
import sys
from pathlib import Path
import dpgen

if __name__ == "__main__":
    out = Path(sys.argv[1])
    runtime = {"devices": 2, "accelerator": "cpu", "run_dir": str(out / "run"), "evaluation": "none", "progress_bar": False}
    model = {"name": "dpgm", "component": "rbm", "hidden": 4, "clusters": "labels"}
    try:
        outcome = dpgen.run(dpgen.RunConfig(model, "digits", {"epsilon": 3.0, "steps": 2}, runtime))
    except dpgen.privacy.ShareDone:
        (out / "other").write_text("done")
        raise
    (out / "first").write_text(str(outcome.release.epsilon))
"""


def test_the_first_process_releases_and_the_other_one_ends(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path)]
    subprocess.run(command, check=True, timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True)
    assert float((tmp_path / "first").read_text()) <= 3.0
    assert (tmp_path / "other").read_text() == "done"
