"""A Spark cluster of two executors: the bits of one process, also where an executor is lost: `python -m pytest -m spark`."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_engines import released

from dpgen.containers import in_memory
from dpgen.data.columns import load_columns

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]
PARTS, ROWS = 24, 24_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.sql.adaptive.enabled": "false",
    }
    session = SparkSession.builder.master("local-cluster[2,1,1024]").config(map=options).getOrCreate()
    yield session
    session.stop()


def executors(session: Any) -> list[int]:
    """Processes of the executors, which are children of the driver's."""
    driver, found = session._jvm.java.lang.ProcessHandle.current().pid(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            command = (process / "cmdline").read_text()
        except OSError:  # it has ended meanwhile
            continue
        if parent == driver and "CoarseGrainedExecutorBackend" in command:
            found.append(int(process.name))
    return found


def slow_rows(session: Any) -> Any:
    """The whole numbers below `ROWS`, squared modulo 10007, in `PARTS` parts that take a while each."""

    def squares(batches: Any) -> Any:
        import time as clock

        import pyarrow

        for batch in batches:
            clock.sleep(0.15)
            values = batch.column(0).to_numpy()
            yield pyarrow.RecordBatch.from_pydict({"x": values * values % 10007})

    return session.range(0, ROWS, 1, PARTS).mapInArrow(squares, "x long")


def squared() -> np.ndarray:
    return np.sort(np.arange(ROWS, dtype=np.int64) ** 2 % 10007)


def test_a_lost_executor_doubles_no_totals(cluster: Any) -> None:
    """One of two executors is killed when it has done some of the tasks of the first scan: Spark repeats those."""
    end, found = time.monotonic() + 120, []
    while len(first := executors(cluster)) < 2 and time.monotonic() < end:  # the second starts while the first is at work
        time.sleep(0.1)
    assert len(first) == 2
    tracker, rows = cluster.sparkContext.statusTracker(), in_memory(slow_rows(cluster))

    def load() -> None:
        found.append(load_columns(path=rows, columns="x", low=0, high=10_006))

    thread = Thread(target=load)
    thread.start()
    end, done = time.monotonic() + 120, 0
    while time.monotonic() < end and not 4 <= done < PARTS:
        infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        done = max((info.numCompletedTasks for info in infos if info is not None and info.numTasks == PARTS), default=0)
        time.sleep(0.05)
    assert 4 <= done < PARTS
    os.kill(first[0], signal.SIGKILL)
    thread.join(180)
    [columns] = found
    ranks, wanted = columns.values["x"], squared()
    assert len(ranks) == ROWS
    asked = [0, 1, 17, 5000, 10_006]
    assert ranks.below(asked).tolist() == np.searchsorted(wanted, asked).tolist()
    assert first[0] not in executors(cluster)


def test_released_bits_are_those_of_one_process(cluster: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pd.DataFrame({"x": squared()}).to_parquet(path, row_group_size=5000)
    options: dict[str, Any] = {"columns": "x", "low": 0, "high": 10_006}
    engine = load_columns(path=in_memory(cluster.read.parquet(str(path))), **options)
    memory = load_columns(path=str(path), **options)
    for relation in ("add_remove", "replace_one"):
        assert released(engine, "partition", relation) == released(memory, "partition", relation)
