"""Sweeps: every combination in a directory of its own, finished ones left alone, and what they cost together."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
from refusals import refused

from dpgen.cli.sweep import Sweep, SweepOptions, run_sweep
from dpgen.cli.train import parse_command
from dpgen.config import parse_job
from dpgen.options import split_options
from dpgen.run import run
from dpgen.statement import UNPROTECTED


def swept(values: dict[str, list[Any]], fixed: dict[str, str], directory: Path) -> Sweep:
    return Sweep(values, fixed, SweepOptions(sweep="", sweep_dir=directory, sweep_jobs=2))


def tiny_options(directory: Path, *left_out: str) -> dict[str, str]:
    """Options of the smallest run by name, but for some."""
    return {name: value for name, value in split_options(tiny.arguments(directory)).items() if name not in left_out}


@pytest.mark.parametrize("form", ["text", "file"])
def test_every_combination_has_a_run(form: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text("epsilon: [1, 3]\nseed: [0, 1, 2]\n")
    what = "epsilon=1,3;seed=0,1,2" if form == "text" else str(path)
    sweep = parse_command(
        ["--model", "dpgm", "--sweep", what, "--steps=3", f"--sweep-dir={tmp_path}", "--sweep_jobs", "2"]
    ).sweep
    assert sweep is not None
    assert sweep.options.sweep_jobs == 2
    runs = dict(sweep.runs())
    assert len(runs) == 6
    job = parse_job(runs["epsilon=3,seed=2"])
    assert (job.privacy.epsilon, job.runtime.seed, job.privacy.steps) == (3.0, 2, 3)
    assert job.runtime.run_dir == tmp_path / "epsilon=3,seed=2"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--sweep", "epsilon"], "a list of values"),
        (["--sweep", "=1,2"], "a list of values"),
        (["--sweep", "epsilon="], "a list of values"),
        (["--sweep", "absent.yaml"], "sweep file 'absent.yaml' does not exist"),
        (["--sweep", "epsilon=1;epsilon=2"], "epsilon is given twice"),
        (["--sweep", "b-c=1;b_c=2"], "b_c is given twice"),
        (["--sweep", "epsilon=1,2", "--epsilon=1"], "epsilon"),
        (["--sweep=seed=1", "--sweep_jobs=0"], "sweep_jobs"),
        (["--sweep=seed=1", "--run_dir", "x"], "run_dir"),
        (["--sweep=run_dir=1"], "run_dir"),
        (["--sweep_jobs=2"], "sweep_jobs"),
    ],
)
def test_what_is_refused(arguments: list[str], word: str) -> None:
    with refused(word):
        parse_command(arguments)


def test_every_combination_is_read_before_the_first_starts(tmp_path: Path) -> None:
    def check(values: dict[str, list[object]]) -> None:
        swept(values, {"steps": "3"}, tmp_path).check(parse_job)

    check({"epsilon": [1, 2], "seed": [0]})
    for values, word in (
        ({"epsilon": [1, "many"]}, "epsilon=many: epsilon"),
        ({"epsilon": [1, 1]}, "epsilon=1 twice"),
    ):
        with refused(word):
            check(values)


def test_the_runs_of_a_sweep_split_by_one_key(tmp_path: Path) -> None:
    fixed = tiny_options(tmp_path, "run_dir", "split_key")
    shared = swept({"seed": [0, 1]}, fixed, tmp_path / "sweep").check(parse_job)
    jobs = [parse_job(options) for _, options in shared.runs()]
    assert {job.split_key(Path("x")) for job in jobs} == {tmp_path / "sweep" / "split.key"}
    for more in ({"split_key": "mine.key"}, {"split_column": "3"}, {"test_fraction": "0"}):
        own = swept({"seed": [0, 1]}, fixed | more, tmp_path / "sweep").check(parse_job)
        assert own.sharing == frozenset(), more
    assert swept({"seed": [0, 1]}, {}, tmp_path).check(parse_job).sharing == frozenset(), "digits are public"


@pytest.mark.usefixtures("quiet")
def test_finished_runs_are_left_alone_and_all_are_added_up(tmp_path: Path) -> None:
    left_out = ("run_dir", "hidden", "latent", "steps", "sampling_rate", "image_shape", "label_column")
    sweep = swept({"epsilon": [1, 2]}, {"model": "marginals"} | tiny_options(tmp_path, *left_out), tmp_path / "sweep")
    for _, options in sweep.runs():
        run(parse_job(options))
    text, code, _ = run_sweep(sweep, ("false",))
    assert code == 0, "a run that started would have failed"
    rows = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert [row["run"] for row in rows] == ["epsilon=1", "epsilon=2"]
    assert [row["exit"] for row in rows] == [0, 0]
    assert {row["status"] for row in rows} == {UNPROTECTED}
    assert f"\nscores: {UNPROTECTED}\n" in text
    single = [row["epsilon"] for row in rows]
    together = float(text.split("cost epsilon ")[1].split()[0])
    assert max(single) < together <= sum(single) * 1.01
    assert (tmp_path / "sweep" / "SWEEP.md").read_text() == text + "\n"


def test_a_run_that_fails_is_reported(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import sys\nsys.exit('no' if '--seed=1' in sys.argv else 0)\n")
    sweep = swept({"seed": [0, 1, 2]}, {}, tmp_path / "sweep")
    text, code, _ = run_sweep(sweep, (sys.executable, str(script)))
    assert code == 1
    assert "| seed=1 | 1 |" in text
    assert "nothing was spent" in text
    assert "no" in (tmp_path / "sweep" / "seed=1" / "output.log").read_text().splitlines()[-1]
