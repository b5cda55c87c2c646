"""Run directories: one run, one configuration, one writer; damaged or finished ones are refused."""

from contextlib import suppress
from pathlib import Path

import pytest
import tiny
import torch
import yaml
from refusals import refused

from dpgen.config import parse_job
from dpgen.data.split import KEY_FILE
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Budget, LedgerError
from dpgen.privacy.mechanisms import gaussian_event
from dpgen.run import PACKAGES, open_run


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
