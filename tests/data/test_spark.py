"""The same columns, users and released bits from Spark as from memory: `python -m pytest -m spark tests/data/test_spark.py`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_engines import GRIDS, events, frame, released

from dpgen.containers import in_memory
from dpgen.data.columns import load_columns
from dpgen.data.events import load_events
from dpgen.data.sql import load_sql_columns, load_sql_events
from dpgen.data.units import People

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]
KINDS = ["whole numbers by seven", "floats by thirds", "float32", "clamped whole", "decimals by 0.04", "categories"]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    options = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1", "spark.driver.memory": "1g"}
    session = SparkSession.builder.master("local[1]").config(map=options).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spark") / "all.parquet"
    frame().drop(columns=["when", "small"]).to_parquet(path)
    return path


def both(spark: Any, path: Path, name: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    memory = load_columns(path=str(path), columns=name, **options)
    return memory, load_sql_columns(source=in_memory(spark.read.parquet(str(path))), columns=name, **options)


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
    engine = load_sql_events(source=rows, category="site", weight="times")
    assert (engine.user_names, engine.categories) == (memory.user_names, memory.categories)
    assert engine.counts.tolist() == memory.counts.tolist()


def test_values_outside_are_refused(spark: Any, tmp_path: Path) -> None:
    pd.DataFrame({"x": [1, 20]}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"Spark DataFrame column 'x' has 1 values outside \[0, 9\]"):
        load_sql_columns(source=in_memory(spark.read.parquet(str(tmp_path / "x.parquet"))), columns="x", low=0, high=9)
