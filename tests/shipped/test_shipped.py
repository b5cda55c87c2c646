"""Everything that is shipped runs: configurations, scripts, notebooks, benchmarks."""

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
import tiny
import yaml
from nbclient import NotebookClient

from dpgen.config import parse_job
from dpgen.run import Outcome, run

pytestmark = pytest.mark.usefixtures("quiet")

ROOT = Path(__file__).parents[2]
CONFIGS = sorted(ROOT.glob("configs/*.yaml"))
SCRIPTS = sorted(ROOT.glob("scripts/*.py"))
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))
BRIEF = ("tour.ipynb",)
"""Notebooks that run with every change; the others run at night."""
BENCHMARKS = sorted(path for path in ROOT.glob("benchmarks/*.py") if path.stem != "measuring")  # which others share


def name(path: Path) -> str:
    return path.name


"""Options that make a run of each kind of data small."""


SMOKE = {
    "points": ["--data=ring", "--n_points=60", "--n_test=40", "--steps=2"],
    "columns": ["--data=mixture", "--n_records=2000"],
    "table": ["--components=8", "--rounds=1", "--picks=2"],
    "users": ["--data=synthetic_users", "--n_users=12", "--n_categories=5", "--prior_epsilon=null"],
}
"""Options that make a run of each kind of data small, but of records."""


# -- configurations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", CONFIGS, ids=name)
def test_every_configuration_parses_as_it_is(path: Path) -> None:
    job, text = parse_job(["--config", str(path)]), yaml.safe_load(path.read_text())
    assert path.stem.startswith(f"{job.model.name}_{job.data.name}")
    for block, options in text.items():
        assert job.settings[block].items() >= options.items(), "every key arrives"


@pytest.mark.parametrize("path", CONFIGS, ids=name)
def test_every_configuration_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The classifier of the evaluation has its own tests and would be most of the time.
    monkeypatch.setattr(sys.modules["dpgen.evaluation.records"], "train_on_synthetic_accuracy", lambda *_, **__: 0.5)
    usual = parse_job(["--config", str(path)])
    small = ["--progress_bar=false", *SMOKE.get(usual.system.kinds[0], [])]
    if usual.system.kinds[0] == "records":
        trained = usual.system.module(usual.model.options) is not None
        left_out = ("--sampling", "--latent", "--run", *(() if trained else ("--hidden", "--steps")))
        small = [argument for argument in tiny.arguments(tmp_path) if not argument.startswith(left_out)]
    outcome = run(parse_job(["--config", str(path), *small, f"--run_dir={tmp_path / 'run'}"]))
    spend = yaml.safe_load(path.read_text())["privacy"]
    assert outcome.release.statement.epsilon <= spend.get("epsilon", 3.0)
    assert (outcome.directory / "privacy.json").exists()


# -- scripts ---------------------------------------------------------------------------------------------------------


class Result:
    """Exit status and output of a script that ran in this process."""

    def __init__(self, path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        with pytest.raises(SystemExit, match=r"^\d+$") as end:
            runpy.run_path(str(path), run_name="__main__")
        self.status = end.value.code
        captured = capsys.readouterr()
        self.out, self.errors = captured.out, captured.err.splitlines()


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_every_script_explains_itself(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    result = Result(path, ["--help"], monkeypatch, capsys)
    assert result.status == 0
    assert "usage" in result.out
    assert result.errors == []


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
@pytest.mark.parametrize("arguments", [["--stepz=3"], ["--epsilon=much", "--n=much"]], ids=["flag", "value"])
def test_every_script_refuses_in_one_line(
    path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = Result(path, arguments, monkeypatch, capsys)
    assert result.status == 2
    assert len(result.errors) == 1
    assert result.errors[0].startswith("error: ")
    assert result.out == ""


@pytest.mark.parametrize("ending", ["npz", "csv", "parquet"])
def test_sample_draws_from_a_run_or_from_its_model(
    ending: str, finished: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, contents = tmp_path / f"s.{ending}", []
    for source in (finished.directory, finished.directory / "model"):
        arguments = [str(source), "--n=7", f"--out={out}", "--clusters", "1", "--seed=3"]
        result = Result(ROOT / "scripts" / "sample.py", arguments, monkeypatch, capsys)
        assert (result.status, result.errors) == (0, [])
        assert "7 records in" in result.out
        assert "already paid" in result.out
        contents.append(out.read_bytes())
    assert contents[0] == contents[1]
    if ending == "npz":
        with np.load(out) as arrays:
            assert arrays["x"].shape == (7, tiny.D)
            assert set(arrays["cluster"].tolist()) == {1}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["absent"], "holds no model"),
        (["RUN", "--n=-1"], "n is -1; it must be a whole number in"),
        (["RUN", "--clusters", "9"], "numbers in [0, 2), got [9]"),
        (["RUN", "--out=s.txt"], "must end in one of .npz, .csv, .parquet"),
        (["RUN", "--out=absent/s.csv"], "absent"),
        ([], "model"),
    ],
    ids=["model", "n", "clusters", "ending", "folder", "nothing"],
)
def test_sample_refuses_in_one_line(
    arguments: list[str],
    said: str,
    finished: Outcome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [str(finished.directory) if argument == "RUN" else argument for argument in arguments]
    result = Result(ROOT / "scripts" / "sample.py", arguments, monkeypatch, capsys)
    assert result.status == 2
    [line] = result.errors
    assert line.startswith("error: ")
    assert said in line
    assert list(tmp_path.iterdir()) == []


# -- notebooks and benchmarks ----------------------------------------------------------------------------------------


def kinds(cell: nbformat.NotebookNode) -> list[tuple[str, ...]]:
    """What a cell leaves: its pictures, tables and texts in order, printed lines together, hints of libraries left out."""
    left: list[tuple[str, ...]] = []
    for output in cell.get("outputs", []):
        kind = ("stdout",) if output.output_type == "stream" else (output.output_type, *sorted(output.get("data", {})))
        if output.get("name") != "stderr" and not (kind == ("stdout",) and left[-1:] == [kind]):
            left.append(kind)
    return left


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=() if path.name in BRIEF else pytest.mark.slow) for path in NOTEBOOKS], ids=name
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_notebook_runs_and_leaves_what_it_was_committed_with(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPGEN_SMOKE", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    committed, notebook = nbformat.read(path, as_version=4), nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert list(tmp_path.iterdir()) == [], "a notebook leaves nothing beside itself"
    assert list(map(kinds, committed.cells)) == list(map(kinds, notebook.cells))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_every_notebook_is_committed_with_its_outputs(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), "run once, from the top"
    outputs = [output for cell in cells for output in cell.outputs]
    assert {"image/png", "text/plain"} <= {mime for output in outputs for mime in output.get("data", {})}
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert path.stat().st_size < 300_000


@pytest.mark.parametrize("path", BENCHMARKS, ids=name)
def test_every_benchmark_says_how_to_run_it_and_waits_to_be_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(path.parent)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    tree = ast.parse(path.read_text())
    assert f"python benchmarks/{path.name}" in (ast.get_docstring(tree) or "")
    names = runpy.run_path(str(path), run_name="imported")
    assert "main" in names


def test_sample_works_in_a_process_of_its_own(finished: Outcome, tmp_path: Path) -> None:
    """In this process every kind of model is known already; a new one has to find it."""
    command = [sys.executable, str(ROOT / "scripts" / "sample.py"), str(finished.directory), "--out", str(tmp_path / "s.csv")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "s.csv").exists()
