"""Everything that is shipped runs: configurations, scripts, examples, notebooks, benchmarks."""

import ast
import runpy
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import nbformat
import pandas as pd
import pytest
import tiny
import yaml
from nbclient import NotebookClient

from dpgen.config import parse_job
from dpgen.run import run

pytestmark = pytest.mark.usefixtures("quiet")

ROOT = Path(__file__).parents[2]
CONFIGS = sorted(ROOT.glob("configs/*.yaml"))
SCRIPTS = sorted(ROOT.glob("scripts/*.py"))
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))
BRIEF = ("tour.ipynb",)
"""Notebooks that run with every change; the others run at night."""
BENCHMARKS = sorted(path for path in ROOT.glob("benchmarks/*.py") if path.stem != "measuring")  # which others share


def name(path: Path) -> str:
    return path.name


SMOKE = {
    "points": ["--data=ring", "--n_points=60", "--n_test=40", "--steps=2"],
    "columns": ["--data=mixture", "--n_records=2000"],
    "table": ["--components=8", "--rounds=1", "--picks=2"],
    "users": ["--data=synthetic_users", "--n_users=12", "--n_categories=5"],
}
"""Options that make a run of each kind of data small, but of records."""


@pytest.mark.parametrize("path", CONFIGS, ids=name)
def test_every_configuration_parses_as_it_is(path: Path) -> None:
    job, text = parse_job(["--config", str(path)]), yaml.safe_load(path.read_text())
    assert path.stem.startswith(f"{job.model.name}_{job.data.name}")
    for block, options in text.items():
        assert job.settings[block].items() >= options.items(), "every key arrives"


@pytest.mark.parametrize("path", CONFIGS, ids=name)
def test_every_configuration_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The classifier of the evaluation has its own tests and would be most of the time.
    monkeypatch.setattr(import_module("dpgen.evaluation.records"), "train_on_synthetic_accuracy", lambda *_, **__: 0.5)
    usual = parse_job(["--config", str(path)])
    small = ["--progress_bar=false", *SMOKE.get(usual.system.kinds[0], [])]
    if usual.system.kinds[0] == "records":
        trained = bool(usual.system.module_path)
        left_out = ("--sampling", "--latent", "--run", *(() if trained else ("--hidden", "--steps")))
        small = [argument for argument in tiny.arguments(tmp_path) if not argument.startswith(left_out)]
    outcome = run(parse_job(["--config", str(path), *small, f"--run_dir={tmp_path / 'run'}"]))
    assert outcome.release.statement.epsilon <= (usual.privacy.epsilon or 3.0)
    assert (outcome.directory / "privacy.json").exists()


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
@pytest.mark.parametrize("argument", ["--help", "--stepz=3"])
def test_every_script_explains_itself_and_refuses_in_one_line(
    path: Path, argument: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(path), argument])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(path), run_name="__main__")
    out, errors = capsys.readouterr()
    if argument == "--help":
        assert (end.value.code, "usage" in out, errors) == (0, True, "")
    else:
        assert (end.value.code, out, errors[:7], errors.count("\n")) == (2, "", "error: ", 1)


@pytest.mark.parametrize("path", EXAMPLES, ids=name)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_example_is_short_and_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(path.read_text().splitlines()) <= 60
    assert f"[{path.name}]({path.name})" in (path.parent / "README.md").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(path)])
    left = runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out
    if path.name == "nightly.py":
        assert "age" in {change["column"] for change in left["drift"]["changes"]}
        assert left["left"]["runs_left"] == 2
    if path.name == "table.py":
        dates = left["rows"][["admitted", "discharged"]].apply(pd.to_datetime, format="%d.%m.%Y").dropna()
        assert (dates["admitted"] <= dates["discharged"]).all()


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
    assert not (path.parents[1] / "tests" / "helpers" / path.name).exists(), "two modules of one name"
    tree = ast.parse(path.read_text())
    assert f"python benchmarks/{path.name}" in (ast.get_docstring(tree) or "")
    names = runpy.run_path(str(path), run_name="imported")
    assert "main" in names
