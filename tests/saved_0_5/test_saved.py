"""Releases, runs, ledgers and budgets that dpgen 0.5.0 wrote load, fit together, and give the samples that they gave."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import saved_networks

import dpgen
from dpgen.cli.evaluate import job_of
from dpgen.cli.main import main
from dpgen.privacy.ledger import Ledger, Planned
from dpgen.privacy.ledger_file import checksum
from dpgen.privacy.shared_budget import SharedBudget
from dpgen.release import Draws, ImageModel, PublicModel, Release
from dpgen.run import released

pytestmark = pytest.mark.usefixtures("quiet")
ARCHIVE = Path(__file__).with_name("saved.tar.xz")
PLACE, N, SEED = "/saved", 6, 7
"""What stands in the files for the folder that they are in; the number of samples, and the seed of them."""
NETWORKS = [getattr(saved_networks, f"Saved{name}") for name in ("Network", "Classifier", "Generator", "Module")]

with tarfile.open(ARCHIVE) as _archive:
    EXPECTED = json.loads(_archive.extractfile("expected.json").read())  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All files in a folder whose name stands in ledgers, budgets and settings."""
    directory = tmp_path_factory.mktemp("saved")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    for path in (directory / "shared.budget", *directory.rglob("ledger.jsonl")):
        document = json.loads(path.read_text().replace(PLACE, str(directory)))
        del document["sha256"]
        path.write_text(json.dumps(document | {"sha256": checksum(document)}))
    return directory


def rows(frame: pd.DataFrame) -> dict[str, Any]:
    """The first rows as JSON, columns included."""
    return json.loads(frame.head(N).to_json(orient="split", date_format="iso", double_precision=15, index=False))


def samples_of(release: Release) -> dict[str, Any]:
    """The first seeded samples; of modules that do not sample the sums of their weights."""
    if isinstance(release, Draws):
        return {"": rows(release.to_pandas())}
    if isinstance(release, PublicModel) and release.kind == "module":
        return {name: float(value.double().sum()) for name, value in release.weights.items()}
    made = release.samples(N, random_state=SEED)
    return {name: rows(table) for name, table in (made.tables if hasattr(made, "tables") else {"": made.to_pandas()}).items()}


def same(found: Any, stated: Any, steps: int = 0) -> bool:
    """Whether two JSON values are equal, numbers up to the rounding of another machine, whole ones up to so many `steps`."""
    if isinstance(found, dict):
        return found.keys() == stated.keys() and all(same(found[name], value, steps) for name, value in stated.items())
    if isinstance(found, list):
        return len(found) == len(stated) and all(same(own, value, steps) for own, value in zip(found, stated))
    if isinstance(stated, int) and steps:
        return isinstance(found, int) and abs(found - stated) <= steps
    return found == (pytest.approx(stated, rel=1e-4, abs=1e-6) if isinstance(stated, float) else stated)


def require_as_stated(release: Release, stated: dict[str, Any]) -> None:
    for name in ("epsilon", "delta", "relation", "unit", "also"):
        assert getattr(release.statement, name) == stated[name], name
    grey = int(isinstance(release, ImageModel))  # a grey value may be rounded to its neighbour
    assert same(found := samples_of(release), stated["samples"], grey), found


@pytest.mark.parametrize("name", EXPECTED["models"])
def test_a_model_of_0_5_loads_and_gives_its_samples(saved: Path, name: str) -> None:
    stated = EXPECTED["models"][name]
    model = dpgen.load(saved / "models" / name, networks=NETWORKS)
    assert model.kind == stated["kind"]
    require_as_stated(model, stated)
    assert model.sample(2) is not None if model.kind != "module" else model.module()


@pytest.mark.parametrize("name", EXPECTED["runs"])
def test_a_run_of_0_5_fits_and_gives_its_samples(saved: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(saved / "runs" / name)]) == 0, capsys.readouterr()
    release = released(saved / "runs" / name)
    assert release is not None
    require_as_stated(release, EXPECTED["runs"][name])
    job = job_of(saved / "runs" / name)  # by which it is evaluated again
    assert job.privacy.relation == release.statement.relation


def test_a_shared_budget_of_0_5_goes_on(saved: Path) -> None:
    stated, shared = EXPECTED["shared"], SharedBudget(saved / "shared.budget")
    spending = shared.spending()
    assert spending.epsilon < spending.filtered == pytest.approx(stated["epsilon"], rel=1e-9)
    assert (spending.runs, len(spending.payments)) == (stated["runs"], stated["payments"])
    first = spending.payments[0]
    shared.payer("again").pay(first.plan, first.budget)
    assert shared.spending().runs == stated["runs"] + 1


def test_a_ledger_of_an_unfinished_run_of_0_5_goes_on(saved: Path) -> None:
    stated = EXPECTED["unfinished"]
    with Ledger.open(saved / "unfinished" / "ledger.jsonl") as ledger:
        assert ledger.epsilon() == pytest.approx(stated["epsilon"], rel=1e-3)
        assert ledger.spent() == pytest.approx(stated["spent"], rel=1e-2)
        assert [[e.note, str(e.event), e.count] for e in ledger.entries()] == stated["entries"]
        plan = [Planned(line.event, line.note, line.count) for line in ledger.promised()]
        ledger.declare(plan)
        ledger.charge(plan[-1].event, note=plan[-1].note)
        assert ledger.epsilon() == pytest.approx(stated["epsilon"], rel=1e-3)
