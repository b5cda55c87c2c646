"""Comparisons: one table, guarantees beside scores, and no ranking across different guarantees."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
from refusals import refused

from dpgen.cli.evaluate import Comparison, Entry, compare_runs
from dpgen.config import parse_job
from dpgen.data.split import KEY_FILE
from dpgen.evaluation.scores import Score
from dpgen.run import run
from dpgen.statement import UNPROTECTED


def entry(name: str, value: float, **statement: object) -> Entry:
    own = replace(tiny.statement(), **statement)  # type: ignore[arg-type]
    return Entry(name, own, [Score("accuracy", value, real=0.9, chance=0.1), Score("error_%", 1 - value, better="lower")])


def test_at_equal_guarantees_the_best_is_starred() -> None:
    made = Comparison("tiny", [entry("a", 0.5), entry("b", 0.8)])
    rows = {row[0]: row[1:] for row in made.rows()}
    assert rows["accuracy (higher)"] == ["0.5", "0.8*"]
    assert rows["error_% (lower)"] == ["0.5", "0.2*"]
    assert rows["epsilon"] == ["1.25", "1.25"]
    assert "at equal guarantees" in made.to_text()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"relation": "replace_one"}, "relation: add_remove, replace_one"),
        ({"unit": "one user"}, "unit: one record, one user"),
        ({"delta": 0.0}, "delta: 0.0, 1e-05"),
        ({"epsilon": 2.0}, "epsilon: 1.25, 2"),
    ],
    ids=["relation", "unit", "delta", "epsilon"],
)
def test_different_guarantees_are_not_ranked_without_saying_so(change: dict[str, object], said: str) -> None:
    made = Comparison("tiny", [entry("a", 0.5), entry("b", 0.8, **change)])
    text = made.to_text()
    assert f"not a ranking, the guarantees differ in {said}" in text
    assert "*" not in text


def test_a_measure_that_a_run_lacks_is_left_open() -> None:
    other = replace(entry("b", 0.8), scores=[])
    rows = {row[0]: row[1:] for row in Comparison("tiny", [entry("a", 0.5), other]).rows()}
    assert rows["accuracy (higher)"] == ["0.5", "-"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root, made = tmp_path_factory.mktemp("runs"), []
    for name in ("marginals", "mwem"):
        data = [a for a in tiny.arguments(root) if a.startswith(("--data", "--path", "--split_key"))]
        small = ["--rounds=2"] if name == "mwem" else []
        options = ["--epsilon=2", "--label_column=null", "--progress_bar=false", f"--run_dir={root / name}"]
        run(parse_job([f"--model={name}", *data, *small, *options]))
        made.append(root / name)
    return made


def test_runs_on_the_same_data_are_compared(runs: list[Path]) -> None:
    made = compare_runs(runs, progress_bar=False)
    assert UNPROTECTED in made.to_text()
    assert [e.name for e in made.entries] == ["marginals (marginals)", "mwem (mwem)"]
    assert made.data == "tiny"
    assert made.entries[0].scores
    assert len(made.rows()[0]) == 3


def test_runs_with_different_secret_splits_are_not_compared(tmp_path: Path) -> None:
    for name in ("a", "b"):
        data = [a for a in tiny.arguments(tmp_path) if a.startswith(("--data", "--path"))]
        options = ["--epsilon=2", "--label_column=null", "--progress_bar=false", f"--run_dir={tmp_path / name}"]
        run(parse_job(["--model=marginals", *data, *options]))
    assert (tmp_path / "a" / KEY_FILE).exists()
    with refused("different secret keys", "--split_key"):
        compare_runs([tmp_path / "a", tmp_path / "b"], progress_bar=False)
    assert compare_runs([tmp_path / "a"], progress_bar=False).entries[0].scores
    config = tmp_path / "b" / "config.yaml"  # the key beside a shared budget is not that of all runs
    (tmp_path / "b" / KEY_FILE).rename(tmp_path / "budget.key")
    config.write_text(re.sub("ledger: .*", f"ledger: {tmp_path / 'budget'}", config.read_text()))
    for pair in (["b", "a"], ["a", "b"]):
        with refused("different secret keys"):
            compare_runs([tmp_path / name for name in pair], progress_bar=False)
    (tmp_path / "a" / KEY_FILE).unlink()
    with refused("split_key"):
        compare_runs([tmp_path / "a"], progress_bar=False)


def test_what_cannot_be_compared_is_refused(runs: list[Path], tmp_path: Path) -> None:
    with refused("runs"):
        compare_runs([])
    with refused("config.yaml is missing"):
        compare_runs([tmp_path])
    for name in ("config.yaml", "privacy.json"):
        (tmp_path / name).write_bytes((runs[0] / name).read_bytes())
    with refused("draws"):
        compare_runs([tmp_path])
    text = (tmp_path / "config.yaml").read_text().replace("tiny.npy", "other.npy")
    (tmp_path / "config.yaml").write_text(text)
    with refused("data"):
        compare_runs([runs[0], tmp_path])
