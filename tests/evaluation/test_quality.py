"""SDMetrics' quality report beside the scores of `compare`: its own figures, of one table and of linked tables."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from documented_output import answered
from linked_packages import saved
from refusals import refused

import dpgen
from dpgen.cli.main import main
from dpgen.data.toy import simulated_patients

PREFIX = "SDMetrics quality report: "


def rows(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    when = pd.Timestamp("2020-01-01") + pd.to_timedelta((100 * x).astype(int), unit="D")
    frame = pd.DataFrame({"x": x, "c": np.where(x > rng.normal(size=n), "more", "less"), "when": when})
    return frame.assign(gap=frame["x"].where(rng.random(n) < 0.8), id=[f"C{i:06d}" for i in range(n)])


OWN, HELD, MADE = rows(600, 0), rows(200, 1), rows(400, 2)
KINDS = {"x": "numerical", "c": "categorical", "when": "datetime", "gap": "numerical"}


def quality(scores: Any) -> dict[str, Any]:
    return {score.name.removeprefix(PREFIX): score for score in scores if score.name.startswith(PREFIX)}


def by_its_own(real: pd.DataFrame, synthetic: pd.DataFrame) -> dict[str, float]:
    """As its users call it."""
    from sdmetrics.reports.single_table import QualityReport

    report, metadata = QualityReport(), {"columns": {name: {"sdtype": kind} for name, kind in KINDS.items()}}
    report.generate(real[list(KINDS)], synthetic[list(KINDS)], metadata, verbose=False)
    parts = report.get_properties()
    return {"overall": report.get_score(), **dict(zip(parts["Property"], parts["Score"]))}


def test_figures_are_those_of_the_package() -> None:
    pytest.importorskip("sdmetrics")
    found = quality(dpgen.compare(OWN, MADE, holdout=HELD, sdmetrics=True).scores)
    assert {name: score.value for name, score in found.items()} == pytest.approx(by_its_own(OWN, MADE))
    assert {name: score.real for name, score in found.items()} == pytest.approx(by_its_own(OWN, HELD))
    assert list(found) == ["overall", "Column Shapes", "Column Pair Trends"]
    assert not quality(dpgen.compare(OWN, MADE, holdout=HELD).scores), "only where it is asked for"


def test_columns_apart_have_their_shapes_and_lose_their_trends() -> None:
    pytest.importorskip("sdmetrics")
    rng = np.random.default_rng(0)
    apart = pd.DataFrame({name: rng.permutation(MADE[name].to_numpy()) for name in MADE})
    found = quality(dpgen.compare(OWN, apart, holdout=HELD, sdmetrics=True).scores)
    assert found["Column Shapes"].value > 0.9
    assert found["Column Pair Trends"].value < 0.75 < 0.85 < found["Column Pair Trends"].real
    alone = quality(dpgen.compare(OWN[["x"]], apart[["x"]], holdout=HELD, sdmetrics=True).scores)
    assert list(alone) == ["overall", "Column Shapes"], "one column has no pairs"


def test_linked_tables_have_trends_between_tables_which_rows_at_random_lose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sdmetrics")
    tables = simulated_patients(240, seed=0)
    real, other = saved(tmp_path / "real", tables), saved(tmp_path / "other", simulated_patients(240, seed=2))
    dealt = np.random.default_rng(0).permutation(tables["visits"]["patient"])
    found = {}
    for name, visits in (("same", tables["visits"]), ("dealt", tables["visits"].assign(patient=dealt))):
        saved(tmp_path / name, tables | {"visits": visits})
        scores = answered(capsys, "compare", real, tmp_path / name, "--holdout", other, "--sdmetrics")["scores"]
        found[name] = {s["name"].removeprefix(PREFIX): s for s in scores if s["name"].startswith(PREFIX)}
    assert list(found["same"]) == ["overall", "Column Shapes", "Column Pair Trends", "Cardinality", "Intertable Trends"]
    assert all(score["value"] == pytest.approx(1.0) for score in found["same"].values())
    assert found["dealt"]["Column Shapes"]["value"] == pytest.approx(1.0)
    assert found["dealt"]["Intertable Trends"]["value"] < 0.95, "by which it is still above other people"
    assert all(0.5 < score["real"] < 1 for score in found["same"].values())
    scores = answered(capsys, "compare", real, tmp_path / "same", "--sdmetrics")["scores"]
    split = [score for score in scores if score["name"].startswith(PREFIX)]
    assert all(0.5 < score["real"] < 1 for score in split), "a part of the people is held out"


def test_the_multi_table_report_reads_a_release_without_a_change() -> None:
    pytest.importorskip("sdmetrics")
    from sdmetrics.reports.multi_table import QualityReport

    tables = simulated_patients(300)
    release = dpgen.fit(tables, links={"visits": "patients.patient"}, order="date", epsilon=20.0, delta=1e-5)
    made = release.sample(300)
    kinds = {"f": "numerical", "i": "numerical", "u": "numerical", "M": "datetime"}
    metadata: dict[str, Any] = {"tables": {}}
    for name, table in made.items():
        sdtypes = {column: kinds.get(table[column].dtype.kind, "categorical") for column in table}
        metadata["tables"][name] = {"columns": {c: {"sdtype": "id" if c == "patient" else k} for c, k in sdtypes.items()}}
    metadata["tables"]["patients"]["primary_key"] = "patient"
    link = {"parent_table_name": "patients", "parent_primary_key": "patient"}
    metadata["relationships"] = [link | {"child_table_name": "visits", "child_foreign_key": "patient"}]
    report = QualityReport()
    report.generate({name: tables[name][list(made[name])] for name in made}, dict(made), metadata, verbose=False)
    scores = dict(zip(*report.get_properties().to_numpy().T))
    assert min(scores.values()) > 0.6
    assert scores["Column Shapes"] > 0.8


def test_without_the_package_nothing_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sdmetrics", None)
    for name in [name for name in sys.modules if name.startswith("sdmetrics.")]:
        monkeypatch.delitem(sys.modules, name)
    with refused("sdmetrics"):
        dpgen.compare(OWN, MADE, sdmetrics=True)
    real = saved(tmp_path / "real", simulated_patients(60))
    assert main(["compare", str(real), str(tmp_path / "real"), "--sdmetrics"]) == 2
