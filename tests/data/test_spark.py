"""The same columns, users and released bits from Spark as from memory: `python -m pytest -m spark tests/data/test_spark.py`."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from contracts.test_refusals import CONTRADICTED, contradicting, unpaid
from test_engine_records import bits
from test_engine_records import released as released_records
from test_engine_tables import bought, same_bits, visits
from test_engine_tables import released as released_table
from test_engines import GRIDS, events, frame, released
from test_linked import key, require_same_bits  # noqa: F401  (fixtures)
from three_tables import three_tables

from dpgen.api import job_of
from dpgen.containers import in_memory
from dpgen.data import load_records, load_table
from dpgen.data.columns import load_columns
from dpgen.data.split import People
from dpgen.data.stored import load_streamed
from dpgen.data.tables import VISITS
from dpgen.data.toy import simulated_patients
from dpgen.data.users import load_events
from dpgen.privacy.exact_sums import totals

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]
KINDS = ["whole numbers by seven", "floats by thirds", "float32", "clamped whole", "decimals by 0.04", "categories"]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    options = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYSPARK_PYTHON", sys.executable)  # executors need its packages
        session = SparkSession.builder.master("local[2]").config(map=options).getOrCreate()
        yield session
        session.stop()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spark") / "all.parquet"
    frame().drop(columns=["when", "small"]).to_parquet(path)
    return path


def both(spark: Any, path: Path, name: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    memory = load_columns(path=str(path), columns=name, **options)
    return memory, load_columns(path=in_memory(spark.read.parquet(str(path))), columns=name, **options)


@pytest.mark.parametrize("grid", KINDS)
def test_counts_are_those_of_the_column_in_memory(spark: Any, path: Path, grid: str) -> None:
    name, options = GRIDS[grid]
    memory, engine = both(spark, path, name, options)
    ordered, ranks, N = np.sort(memory.values[name]), engine.values[name], memory.domains[name].size
    assert engine.clamped == memory.clamped
    asked = np.concatenate([ordered[::500], ordered[::500] + 1, [0, N // 3, N]])
    assert ranks.below(asked).tolist() == np.searchsorted(ordered, asked).tolist()


def test_released_bits_are_those_of_the_column_in_memory(spark: Any, path: Path) -> None:
    options: dict[str, Any] = {"low": 0, "high": [10**6, 10**13], "resolution": ["1e-9", "1"]}
    memory, engine = both(spark, path, ["skewed", "spiked"], options)
    assert released(engine, "partition", "add_remove") == released(memory, "partition", "add_remove")


def test_the_rows_of_people_are_those_that_memory_keeps(spark: Any, path: Path) -> None:
    options: dict[str, Any] = {"low": -50, "high": 10**6, "people": People("site", 30, bytes(32))}
    memory, engine = both(spark, path, ["whole"], options)
    assert engine.values["whole"].in_order().tolist() == np.sort(memory.values["whole"]).tolist()


def test_users_are_those_of_events_in_memory(spark: Any, tmp_path: Path) -> None:
    events().to_parquet(tmp_path / "e.parquet")
    memory = load_events(path=str(tmp_path / "e.parquet"), category="site", weight="times")
    rows = in_memory(spark.read.parquet(str(tmp_path / "e.parquet")))
    engine = load_events(path=rows, category="site", weight="times")
    assert (engine.user_names, engine.categories) == (memory.user_names, memory.categories)
    assert engine.counts.tolist() == memory.counts.tolist()


def test_values_outside_are_refused(spark: Any, tmp_path: Path) -> None:
    pd.DataFrame({"x": [1, 20]}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"Spark DataFrame column 'x': value in a row is outside \[0, 9\]"):
        load_columns(path=in_memory(spark.read.parquet(str(tmp_path / "x.parquet"))), columns="x", low=0, high=9)


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("visits")
    frame = visits().drop(columns=["admitted", "discharged"])
    for number, part in enumerate(np.array_split(np.arange(len(frame)), 3)):
        frame.iloc[part].to_parquet(folder / f"{number}.parquet")
    return folder


FIELDS = [field for field in VISITS["fields"] if field["name"] not in ("admitted", "discharged")]
RULES = [rule for rule in VISITS["dpgen:constraints"] if "less_equal" not in rule]
SCHEMA = {**VISITS, "fields": FIELDS, "dpgen:constraints": RULES}


@pytest.mark.parametrize("people", [None, People("hospital", 3, bytes(32))], ids=["rows", "people"])
def test_tables_release_the_bits_of_memory(spark: Any, visited: Path, people: People | None) -> None:
    frame = pd.concat([pd.read_parquet(visited / f"{i}.parquet") for i in range(3)])
    memory = load_table(path=in_memory(frame), schema=SCHEMA, test_fraction=0.0, people=people)
    engine = load_table(path=in_memory(spark.read.parquet(str(visited))), schema=SCHEMA, people=people)
    assert engine.n == memory.n
    expected, found = released_table(memory).tensors(), released_table(engine).tensors()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())
    chosen = {tuple(row) for row in engine.some(50, torch.Generator().manual_seed(0)).tolist()}
    assert chosen <= {tuple(row) for row in memory.codes.tolist()}


@pytest.mark.parametrize("people", [None, People("hospital", 3, bytes(32))], ids=["rows", "people"])
def test_tables_as_they_are_release_the_bits_of_memory(
    spark: Any, visited: Path, tmp_path: Path, people: People | None
) -> None:
    pd.concat([pd.read_parquet(visited / f"{i}.parquet") for i in range(3)]).to_parquet(tmp_path / "all.parquet")
    memory = load_table(
        path=str(tmp_path / "all.parquet"), test_fraction=0.0, people=people
    )  # a file: any column may have gaps
    engine = load_table(path=in_memory(spark.read.parquet(str(visited)), "public"), people=people)  # types, as a file's are
    assert engine.n == memory.n
    assert same_bits(bought(engine), bought(memory))


@pytest.mark.parametrize("tables", [simulated_patients(100), three_tables(60)], ids=["two tables", "a tree of three"])
def test_people_and_their_rows_release_the_bits_of_memory(
    spark: Any,
    tmp_path: Path,
    tables: dict[str, pd.DataFrame],
    require_same_bits: Callable[..., None],  # noqa: F811
) -> None:
    for name, table in tables.items():
        table.to_parquet(tmp_path / f"{name}.parquet")
    frames = {name: spark.read.parquet(str(tmp_path / f"{name}.parquet")) for name in tables}
    require_same_bits(tables, 2, data=frames, person="patient")


def test_what_an_executor_refuses_is_one_line(spark: Any, tmp_path: Path) -> None:
    visits().drop(columns=["admitted", "discharged"]).assign(age=123).to_parquet(tmp_path / "w.parquet")
    data = in_memory(spark.read.parquet(str(tmp_path / "w.parquet")))
    with pytest.raises(ValueError, match=r"^column 'age' breaks a rule of the schema: minimum is 0 .* \(which row and"):
        load_table(path=data, schema=SCHEMA)


@pytest.mark.parametrize("case", CONTRADICTED)
def test_what_contradicts_a_schema_is_free(spark: Any, case: str, tmp_path: Path) -> None:
    schema, _ = CONTRADICTED[case]
    data = spark.createDataFrame(contradicting(case).astype(str).replace("None", None))
    given = {"epsilon": 1.0, "method": "independent", "schema": schema | {"fieldsMatch": "partial"}}
    assert unpaid(tmp_path, lambda **more: job_of("tables", data, given | more))


@pytest.mark.parametrize("model", ["marginals", "mwem", "gaussian"])
def test_records_release_the_bits_of_memory_and_duckdb(spark: Any, tmp_path: Path, model: str) -> None:
    frame = bits().drop(columns="who")
    frame.to_parquet(tmp_path / "b.parquet")
    memory = load_records(path=str(tmp_path / "b.parquet"), label_column="kind", test_fraction=0.0)
    duck = load_streamed(path=str(tmp_path / "b.parquet"), label_column="kind")
    rows = in_memory(spark.read.parquet(str(tmp_path / "b.parquet")).repartition(3))
    engine = load_streamed(path=rows, label_column="kind")
    assert 30 < engine.some(100).n < 200
    expected = released_records(model, memory)
    for data in (duck, engine):
        found = released_records(model, data)
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_grey_values_are_those_of_duckdb(spark: Any, tmp_path: Path) -> None:
    pd.DataFrame({"scan": [bytes([i, 2 * i]) for i in range(90)]}).to_parquet(tmp_path / "s.parquet")

    def added(batches: Any) -> torch.Tensor:
        return sum(((x * 255).round().long().sum(0)[:2] for x, _ in batches), torch.zeros(2, dtype=torch.int64))

    path = str(tmp_path / "s.parquet")
    sources = (path, in_memory(spark.read.parquet(path)))
    both = [load_streamed(path=source, width=2, grey_threshold=50) for source in sources]
    assert torch.equal(*(totals(data.stream(grey=True), added) for data in both))
    assert both[0].n == both[1].n
