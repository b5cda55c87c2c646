"""Ten nights by the lines of the page on jobs: tables, people, linked tables, DuckDB; what a monitor reads of their budget.

All ten are run of a small table; of the others the first and the last one, and those between are paid for as the first was.
"""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from documented_output import answered

from dpgen.cli.main import main
from dpgen.data.toy import simulated_patients
from dpgen.facts import Fact
from dpgen.privacy.ledger import Budget, Ledger, Planned
from dpgen.privacy.mechanisms import gaussian_event
from dpgen.privacy.shared_budget import SharedBudget

pytestmark = pytest.mark.usefixtures("quiet")

PAGE = Path(__file__).parents[2] / "docs" / "tasks" / "pipeline.md"
SMALL = {"table": ["--method=independent"], "linked": ["--method=independent", "--rounds=1", "--steps=1", "--classes=2"]}
"""Settings that make a night short; none of them is of the budget."""


def visits() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    ward = rng.choice(["A", "B"], 90)
    return pd.DataFrame({"customer": rng.integers(0, 40, 90), "age": rng.integers(20, 60, 90), "ward": ward})


def linked(folder: Path) -> None:
    for name, table in simulated_patients(40).items():
        table.to_csv(folder / f"{name}.csv", index=False)


def warehouse(folder: Path) -> None:
    frame = visits()  # noqa: F841  (the name that DuckDB reads)
    with duckdb.connect(str(folder / "warehouse.duckdb")) as connection:
        connection.execute("create table visits as select * from frame")


PLACES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "visits": (lambda folder: visits().to_parquet(folder / "visits.parquet"), SMALL["table"]),
    "customers": (lambda folder: visits().to_parquet(folder / "visits.parquet"), SMALL["table"]),
    "clinic": (linked, SMALL["linked"]),
    "warehouse": (warehouse, SMALL["table"]),
}
"""By the name of the budget: the data, and the settings that make a night short."""


def lines(name: str) -> list[list[str]]:
    """The lines of the page about one budget, without `dpgen`."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    [block] = [block for block in blocks if f"{name}.budget --create" in block]
    return [shlex.split(line)[1:] for line in block.splitlines()]


def said(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> dict[str, Any]:
    """The JSON object of a command, however it ends."""
    return answered(capsys, *arguments, code=None)


def paid_again(budget: Path) -> None:
    """One more run that pays what the first one has paid, and commits."""
    shared = SharedBudget(budget)
    first, payer = shared.spending().payments[0], shared.payer("another night")
    payer.pay(first.plan, first.budget)
    payer.stand(1, "its release")


@pytest.mark.parametrize("name", PLACES)
def test_the_lines_of_the_page_work_for_ten_nights(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made, small = PLACES[name]
    made(tmp_path)
    create, night, look = lines(name)
    create[create.index("--runs") + 1] = "10"
    assert said(capsys, create)["runs_left"] == 10
    for number in range(10):
        if name != "visits" and 0 < number < 9:
            paid_again(Path(f"{name}.budget"))
            continue
        directory = f"runs/{number}"
        ended = said(capsys, [*(part.replace("runs/monday", directory) for part in night), *small])
        assert (ended["exit_code"], ended["problem"]) == (0, None)
        assert ended["epsilon"] <= 10
        assert ended["delta"] == 1e-6
        last = [fact["code"] for fact in ended["warnings"] if fact["code"] == Fact.NO_SECOND_RUN.name]
        assert bool(last) == (number == 9)
        left = said(capsys, look)
        assert (left["runs"], left["runs_left"], left["reservations"]) == (number + 1, 9 - number, [])
        assert left["spent"] <= 10
        assert left["delta_left"] == pytest.approx(1e-5 - 1e-6 * (number + 1), abs=1e-9)
    refused = said(capsys, [*(part.replace("runs/monday", "runs/more") for part in night), *small])
    assert refused["exit_code"] == 2
    assert "the shared budget" in refused["problem"]
    assert not Path("runs/more").exists()


def test_a_run_of_another_unit_is_told_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    visits().to_parquet("visits.parquet")
    for name in ("visits", "customers"):
        said(capsys, lines(name)[0])
    of_people = ["--unit", "customer", "--max_contributions", "5"]
    for budget, given, run, made in (
        ("customers", [], "give the run --unit customer --max_contributions 5,", ""),
        ("visits", of_people, "give the run no --unit and no --person,", " --unit customer --max_contributions 5"),
    ):
        refused = said(capsys, ["train", "visits.parquet", "--ledger", f"{budget}.budget", *given])
        assert refused["exit_code"] == 2
        assert run in refused["problem"]
        assert refused["problem"].endswith(f"by dpgen budget FILE --create --epsilon 10 --delta 1e-05{made}")
    other = shlex.split(refused["problem"].rpartition("by dpgen ")[2].replace("FILE", "other.budget"))
    assert said(capsys, other)["unit"] == SharedBudget(Path("customers.budget")).unit
    assert said(capsys, ["budget", "wrong.budget", "--create", "--epsilon", "1", "--max_contributions", "5"])["exit_code"] == 2


def test_what_a_run_does_not_name_is_its_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "b"
    share = said(capsys, ["budget", str(file), "--create", "--epsilon", "10", "--delta", "1e-5", "--runs", "30"])["share"]
    hundredth = SharedBudget.create(tmp_path / "hundredth", Budget(10.0, 1e-5)).share
    assert (share["runs"], share["delta"], hundredth.delta) == (30, 3.333e-07, 1e-7)

    def settings(ledger: Path, *given: str) -> tuple[float, float]:
        found = said(capsys, ["train", "--model", "tables", "--ledger", str(ledger), "--print_config", *given])
        return found["settings"]["privacy"]["epsilon"], found["settings"]["privacy"]["delta"]

    assert settings(file) == (share["epsilon"], share["delta"])
    assert settings(file, "--epsilon=2") == (2.0, share["delta"])
    assert settings(file, "--delta=1e-6") == (share["epsilon"], 1e-6)
    assert settings(tmp_path / "hundredth") == (1.0, 1e-7)
    assert settings(tmp_path / "hundredth", "--delta=1e-5") == (1.0, 1e-5)
    assert settings(tmp_path / "none") == (1.0, 1e-5)


def test_reservations_say_who_holds_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared = SharedBudget.create(tmp_path / "b", Budget(1.0, 1e-5))
    ledgers = []
    for name in ("running", "dead", "committed"):
        (tmp_path / name).mkdir()
        payer = shared.payer("test", directory=tmp_path / name)
        ledgers.append(Ledger(Budget(1.0, 1e-6), path=tmp_path / name / "ledger.jsonl", payer=payer))
        ledgers[-1].declare([Planned(gaussian_event(20.0), "counts")])
    ledgers[1]._file.close()  # as the system does when it ends a process
    ledgers[2].charge(gaussian_event(20.0), note="counts")
    ledgers[2].close()
    shared.payer("memory").pay([Planned(gaussian_event(20.0), "counts")], None)
    found = said(capsys, ["budget", str(shared.path)])["reservations"]
    assert [one["state"] for one in found] == ["running", "dead", "unknown"]
    assert [Path(one["run"]).name for one in found] == ["running", "dead", ""]
    assert all(0 <= one["age"] < 600 for one in found)
    assert main(["budget", str(shared.path)]) == 0
    text = capsys.readouterr().out
    assert re.findall(r"^reserved: by (\w{16}) \(", text, re.MULTILINE) == [one["id"] for one in found]
    assert f"--release {found[0]['id']}" not in text
    assert said(capsys, ["budget", str(shared.path), "--release", found[1]["id"]])["runs"] == 3
    ledgers[0].drop()
