"""Nothing that is refused is paid for: the file of a shared budget has the same bytes before and after."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
from data.test_private_values import FILES, TEXT, marked, written
from refusals import refused
from systems.tables.test_raw_tables import BAD

import dpgen
from dpgen.api import job_of
from dpgen.config import RunConfig, keyword_job
from dpgen.data.kinds import KINDS
from dpgen.data.raw_tables import RawTable
from dpgen.privacy.ledger import Budget
from dpgen.privacy.shared_budget import SharedBudget
from dpgen.run import run
from dpgen.schema import Schema
from dpgen.systems.registry import systems

MODELS = {
    "records": "marginals",
    "columns": "merr",
    "points": "grid_response",
    "users": "projected_kernel",
    "table": "tables",
    "streams": "gaussian",
}
NAMES = {loader.path.split(":")[1]: (kind, name) for kind in MODELS for name, loader in KINDS[kind].loaders.items()}


def shared(path: Path, job: Callable[..., RunConfig]) -> tuple[RunConfig, Path]:
    """A job that pays from a budget of its own kind, and the budget's file."""
    plan, file = job().privacy, path / "shared.budget"
    SharedBudget.create(file, Budget(9.0, plan.resolved_delta), relation=plan.relation, unit=plan.protected)
    return job(ledger=file, run_dir=path / "run"), file


def unpaid(path: Path, job: Callable[..., RunConfig]) -> bool:
    """Whether a refused job leaves the budget as it is, and no run behind."""
    made, file = shared(path, job)
    before = file.read_bytes()
    with refused(paid=True):  # the bytes of the file say it here
        run(made)
    return file.read_bytes() == before and not (path / "run").exists()


def read_by(loader: Any, source: str, options: dict[str, Any], **more: Any) -> RunConfig:
    kind, name = NAMES[loader.__name__]
    return keyword_job(MODELS[kind], {"epsilon": 1.0, "path": source, "progress_bar": False} | options | more, data=name)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("case", FILES)
def test_files_that_are_refused_are_free(case: str, ending: str, tmp_path: Path) -> None:
    (tmp_path / "names").write_text("b\nc\n")
    loader, given = FILES[case]
    options = {name: v.format(folder=tmp_path) if isinstance(v, str) else v for name, v in given.items()}
    path = written(tmp_path, marked(TEXT), ending)
    assert unpaid(tmp_path, lambda **more: read_by(loader, path, options, **more))


@pytest.mark.parametrize("case", [case for case in BAD if case != "no epsilon"])
def test_tables_that_are_refused_are_free(case: str, tmp_path: Path) -> None:
    table, options, _ = BAD[case]
    file = SharedBudget.create(tmp_path / "shared.budget", Budget(9.0, 1e-5)).path
    before = file.read_bytes()
    with refused():
        dpgen.fit(table, "tables", **({"epsilon": 1.0, "ledger": file} | options))
    assert file.read_bytes() == before


N = 60
DAYS = [f"{1 + i % 28:02d}.{1 + i % 12:02d}.2020" for i in range(N)]
GOOD: dict[str, list[Any]] = {"day": DAYS, "n": [i % 9 for i in range(N)], "m": [i % 9 + 5 for i in range(N)]}
GOOD |= {"c": ["u", "v"] * (N // 2), "who": [i // 2 for i in range(N)]}
DAY: dict[str, Any] = {"name": "day", "type": "date", "format": "%d.%m.%Y"}
YEAR = {"minimum": "2020-01-01", "maximum": "2020-12-31"}

# what is declared of a column whose domain is bought, and a value that contradicts it
CONTRADICTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a date in another format": ({"fields": [DAY | {"constraints": YEAR}]}, {"day": "2020/01/02"}),
    "a date beyond its bounds": ({"fields": [DAY | {"constraints": YEAR}]}, {"day": "01.01.2021"}),
    "a date below its bound": ({"fields": [DAY | {"constraints": {"minimum": "2020-01-01"}}]}, {"day": "01.01.2019"}),
    "no date": ({"fields": [DAY]}, {"day": "unknown"}),
    "a text for a number": ({"fields": [{"name": "n", "type": "integer"}]}, {"n": "x"}),
    "a fraction for a whole number": ({"fields": [{"name": "n", "type": "integer"}]}, {"n": 0.5}),
    "a number below its bound": ({"fields": [{"name": "n", "type": "number", "constraints": {"minimum": 0}}]}, {"n": -1}),
    "a gap where none may be": ({"fields": [{"name": "c", "constraints": {"required": True}}]}, {"c": None}),
    "a value that is not listed": ({"fields": [{"name": "c", "constraints": {"enum": ["u", "v"]}}]}, {"c": "w"}),
    "no truth value": ({"fields": [{"name": "c", "type": "boolean", "trueValues": ["u"], "falseValues": ["v"]}]}, {"c": "w"}),
    "a broken constraint": (
        {
            "fields": [{"name": name, "type": "number"} for name in "nm"],
            "dpgen:constraints": [{"less_equal": ["n", "m"]}],
        },
        {"n": 90},
    ),
}


def contradicting(case: str | None) -> pd.DataFrame:
    frame = pd.DataFrame(GOOD, dtype=object)
    for name, value in (CONTRADICTED[case][1] if case else {}).items():
        frame.loc[7, name] = value
    return frame


def declared(container: str, folder: Path, frame: pd.DataFrame, schema: dict[str, Any], **more: Any) -> RunConfig:
    """A job on the table in a container, of which a part is declared."""
    given: dict[str, Any] = {"epsilon": 1.0, "progress_bar": False, "method": "independent"} | more
    given["schema"] = schema | {"fieldsMatch": "partial"}
    path = folder / "table.csv"
    frame.to_csv(path, index=False)
    if container == "DataFrame":
        return job_of("tables", frame, given)
    if container == "people":
        given |= {"unit": "who", "max_contributions": 2}
    if container == "DuckDB":
        return keyword_job("tables", given | {"path": str(path), "engine": True}, data="table")
    return keyword_job("tables", given | {"path": str(path)}, data="table")


PLACES = ["DataFrame", "csv", "people", "DuckDB"]


@pytest.mark.parametrize("case", CONTRADICTED)
@pytest.mark.parametrize("container", PLACES)
def test_what_contradicts_a_schema_is_refused_before_anything_is_bought(container: str, case: str, tmp_path: Path) -> None:
    schema, _ = CONTRADICTED[case]
    assert unpaid(tmp_path, lambda **more: declared(container, tmp_path, contradicting(case), schema, **more))


def declared_of(which: str, engine: bool, frame: pd.DataFrame, schema: dict[str, Any], **more: Any) -> RunConfig:
    """A job on people and their rows, of one of which a part is declared."""
    plain = {"who": range(N // 2), "size": [i % 7 for i in range(N // 2)]}
    tables = {"people": pd.DataFrame(plain), "visits": frame}
    if which == "people":
        tables = {"people": frame.assign(who=range(N)), "visits": pd.DataFrame({"who": range(N), "cost": range(N)})}
    given: dict[str, Any] = {"epsilon": 1.0, "person": "who", "max_rows": 2, "progress_bar": False} | more
    given["people_schema" if which == "people" else "schema"] = schema | {"fieldsMatch": "partial"}
    made = {name: table.astype(object) for name, table in tables.items()}
    return job_of("relational", {name: duckdb.from_df(f.astype(str)) for name, f in made.items()} if engine else made, given)


@pytest.mark.parametrize("case", CONTRADICTED)
@pytest.mark.parametrize(("which", "engine"), [("people", False), ("visits", False), ("people", True), ("visits", True)])
def test_linked_tables_that_contradict_a_schema_are_free(which: str, engine: bool, case: str, tmp_path: Path) -> None:
    schema, _ = CONTRADICTED[case]
    assert unpaid(tmp_path, lambda **more: declared_of(which, engine, contradicting(case), schema, **more))


@pytest.mark.parametrize("engine", [False, True], ids=["in memory", "DuckDB"])
def test_linked_tables_that_satisfy_it_are_bought(engine: bool, tmp_path: Path) -> None:
    schema = {"fields": [DAY | {"constraints": YEAR}]}
    made, file = shared(tmp_path, lambda **more: declared_of("visits", engine, contradicting(None), schema, **more))
    before = file.read_bytes()
    run(made)
    assert file.read_bytes() != before


@pytest.mark.parametrize("container", PLACES)
def test_what_satisfies_a_schema_is_bought(container: str, tmp_path: Path) -> None:
    """Dates in a format of their own as well: samples have it."""
    schema = {"fields": [DAY | {"constraints": YEAR}, {"name": "n", "type": "integer", "constraints": {"minimum": 0}}]}
    made, file = shared(tmp_path, lambda **more: declared(container, tmp_path, contradicting(None), schema, **more))
    before = file.read_bytes()
    drawn = run(made).release.sample(20, random_state=0)["day"].dropna()
    assert len(drawn)
    assert drawn.str.fullmatch(r"\d\d\.\d\d\.2020").all()
    assert file.read_bytes() != before


@pytest.mark.parametrize("case", ["a date in another format", "a number below its bound"])
def test_a_check_after_the_purchase_is_found(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: private values are checked when they are coded, in the domains that were bought."""
    schema, _ = CONTRADICTED[case]
    of_before = Schema.require

    def later(self: RawTable, found: Schema) -> Any:
        of_before(Schema.from_descriptor(self.draft), self.rows.some(N, 0))
        return self.table_of(found, self.rows.codes(found), found.codes(self.test))

    monkeypatch.setattr(Schema, "require", lambda *_: None)
    monkeypatch.setattr(RawTable, "coded", later)
    assert not unpaid(tmp_path, lambda **more: declared("csv", tmp_path, contradicting(case), schema, **more))


def test_each_kind_of_data_has_a_system() -> None:
    assert all(kind in systems()[model].kinds for kind, model in MODELS.items())
