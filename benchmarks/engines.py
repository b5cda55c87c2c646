"""Engines and records on disk: merr on files larger than memory, csv files,
tables, moments, networks; counts of a column on a Spark cluster of one and of two executors.

    python benchmarks/engines.py [--rows N] [--directory /tmp/engines] [--parts merr,csv,tables,orders,gaussian,mapped,spark_1]

Each part runs in a process of its own, so that its peak memory is its own. The files that it reads are made first, where they
are not there yet: 1.2 GB for the 3 * 10^8 rows of `merr`, 4 GB for 10^9. Writes benchmarks/results/engines.json, and
of `orders`, with `--rows 1e8` a Parquet file of 1.7 GB, benchmarks/results/orders.json.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import combinations
from os import getloadavg
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from unittest.mock import patch
from urllib.request import urlopen

import duckdb
import numpy as np
import pyarrow
import pyarrow.parquet
from measuring import machine, store

import dpgen
from dpgen.config import keyword_job
from dpgen.data.columns import load_columns
from dpgen.data.engines import MEMORY
from dpgen.data.records import MappedRecords, load_mapped, load_records
from dpgen.data.stored import load_streamed
from dpgen.data.tables import load_table
from dpgen.privacy.curator import Curator
from dpgen.privacy.noise import SecureSource
from dpgen.runtime import Runtime, quiet_training
from dpgen.systems.gaussian.fit import fit as fit_gaussian
from dpgen.systems.gaussian.plan import GaussianConfig, GaussianPlan
from dpgen.systems.ordered.fit import fit
from dpgen.systems.ordered.plan import OrderedConfig, OrderedPlan
from dpgen.systems.plan import SumsPlan
from dpgen.systems.tables.fit import fit as fit_tables
from dpgen.systems.tables.fit import record_count
from dpgen.systems.tables.marginals import Coarsening, Counts, Marginal
from dpgen.systems.tables.plan import TablesConfig

RESULTS = Path(__file__).parent / "results" / "engines.json"
ORDERS = RESULTS.with_name("orders.json")
SHARD = 10_000_000
Part = Callable[[Path, int], dict[str, float] | None]


def column_files(directory: Path, rows: int) -> str:
    """Parquet files of one skewed column of whole numbers below 2^31, 4 bytes each."""
    directory = directory / f"column_{rows}"
    directory.mkdir(exist_ok=True)
    for i in range(-(-rows // SHARD)):
        if not (path := directory / f"{i:03d}.parquet").exists():
            hashed = f"select hash(range + {i * SHARD}) as h from range({SHARD})"
            value = "((h >> 44)::bigint * ((h >> 20) & 2047)::bigint)::integer"
            _plain().execute(f"copy (select {value} as x from ({hashed})) to '{path}'")
    return str(directory / "*.parquet")


def _plain() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(f"set memory_limit = '{MEMORY}'; set preserve_insertion_order = false")
    return connection


def scan(directory: Path, rows: int) -> None:
    """The reference of `merr`: DuckDB counts the column in 2^20 cells, and does nothing else."""
    files = column_files(directory, rows)
    _plain().execute(f"select x >> 11 as cell, count(*) from '{files}' group by cell").fetchall()


def merr(directory: Path, rows: int) -> None:
    """A release of the distribution of the column."""
    data = load_columns(path=column_files(directory, rows), columns="x", low=0, high=2**31 - 1)
    plan = OrderedPlan(epsilon=1.0, delta=1e-9)
    release = fit(data, plan=plan, config=OrderedConfig(), curator=Curator(plan.open_ledger()), runtime=Runtime())
    print(f"{len(release.cdfs['x'].knots)} knots", file=sys.stderr)


def csv(directory: Path, rows: int) -> None:
    """A csv file of 20 bits and a label."""
    load_records(path=_csv_file(directory, rows), label_column="label")


def _csv_file(directory: Path, rows: int) -> str:
    path = directory / "bits.csv"
    if not path.exists():
        bits = ", ".join(f"((hash(range * 31 + {i}) >> 20) % 3 = 0)::int as c{i}" for i in range(20))
        _plain().execute(f"copy (select {bits}, (hash(range + 7) % 5)::int as label from range({rows})) to '{path}' (header)")
    return str(path)


def bit_files(directory: Path, rows: int) -> str:
    """Records of 100 bits in npy files, a byte for each bit."""
    directory, rng = directory / f"bits_{rows}", np.random.default_rng(0)
    directory.mkdir(exist_ok=True)
    for start in range(0, rows, SHARD // 10):
        if not (path := directory / f"{start:010d}.npy").exists():
            np.save(path, rng.integers(0, 2, (min(rows - start, SHARD // 10), 100), np.uint8))
    return str(directory / "*.npy")


def mapped(directory: Path, rows: int) -> dict[str, float]:
    """200 steps of 100 records on disk; the process's own memory, pages of files apart; draws by skips and by coins."""
    data = load_mapped(path=bit_files(directory, rows))
    rate = 100 / rows
    _train(data, rate, steps=2)  # whatever is loaded on first use
    own, done, before = [_own_memory()], Event(), time.process_time()

    def watch() -> None:
        while not done.wait(0.05):
            own.append(_own_memory())

    thread = Thread(target=watch)
    thread.start()
    _train(data, rate, steps=200)
    trained = time.process_time() - before
    done.set()
    thread.join()
    skips = _draws(rows, rate)
    with patch("dpgen.privacy.draws._RARE", 0.0):
        coins = _draws(rows, rate)
    return {
        "training_cpu_seconds": round(trained, 2),
        "own_mib": round((max(own) - own[0]) / 1024),
        "draw_by_skips_ms": round(1e3 * skips, 3),
        "draw_by_coins_ms": round(1e3 * coins, 3),
    }


def _train(data: MappedRecords, rate: float, steps: int) -> None:
    options = {"clusters": "none", "sampling_rate": rate, "steps": steps, "delta": 1e-9, "progress_bar": False}
    job = keyword_job("dpgm", options, private=data)
    with TemporaryDirectory() as scratch, quiet_training():
        job.fit(data, Curator(job.open_ledger()), replace(job.runtime, run_dir=Path(scratch)))


def _visit_file(directory: Path, rows: int) -> str:
    path = directory / f"visits_{rows}.parquet"
    if not path.exists():
        value = "(hash(range * 31 + {}) >> 20)"
        names = ", ".join(f"'c' || ({value.format(i)} % {3 + 4 * i}) as name{i}" for i in range(5))
        numbers = ", ".join(f"({value.format(9 + i)} % {10 ** (i + 1)}) / {2 ** (i % 3)} as number{i}" for i in range(5))
        _plain().execute(f"copy (select {names}, {numbers} from range({rows})) to '{path}'")
    return str(path)


def tables(directory: Path, rows: int) -> dict[str, float]:
    """A release of a table of five columns of categories and five of numbers."""
    rules = [{"required": True, "enum": [f"c{j}" for j in range(3 + 4 * i)]} for i in range(5)]
    limits = [{"required": True, "minimum": 0, "maximum": 10 ** (i + 1) / 2 ** (i % 3)} for i in range(5)]
    fields = [{"name": f"name{i}", "type": "string", "constraints": rule} for i, rule in enumerate(rules)]
    fields += [{"name": f"number{i}", "type": "number", "constraints": rule} for i, rule in enumerate(limits)]
    path, before = _visit_file(directory, rows), time.process_time()
    data = load_table(path=path, engine=True, schema={"fields": fields})
    read = time.process_time()
    record_count(data.codes)
    Counts.of(data.codes, [Marginal(way, 0) for way in combinations(range(10), 2)], [Coarsening.full(data.schema.domain.sizes)])
    counted = time.process_time()
    plan = SumsPlan(epsilon=1.0, delta=1e-9)
    fit_tables(data, plan=plan, config=TablesConfig(), curator=Curator(plan.open_ledger()), runtime=Runtime())
    return {
        "load_cpu_seconds": round(read - before, 2),
        "pairs_cpu_seconds": round(counted - read, 2),
        "fit_cpu_seconds": round(time.process_time() - counted, 2),
    }


def _order_file(directory: Path, rows: int) -> str:
    """Orders in a Parquet file: three columns of texts, four of numbers, floats with gaps, a date, a truth value."""
    path = directory / f"orders_{rows}.parquet"
    if not path.exists():
        uniform = ", ".join(f"(hash(range * 31 + {i}) >> 11) / 9007199254740992.0 as u{i}" for i in range(10))
        pieces, price = "(1 - floor(ln(1 - u4) * (1 + 6 * u1)))", "exp(1 + 3 * u2 + 0.8 * (u5 + u6 + u7 - 1.5))"
        columns = {
            "city": "'city ' || lpad((floor(60 * u0 * u0))::int::varchar, 2, '0')",
            "channel": "['web', 'shop', 'phone', 'agent'][1 + least(3, floor(4 * u1 * (0.4 + u0)))::int]",
            "product": "'P' || (100 + floor(300 * u2 * u2 * (0.5 + u0 / 2)))::int",
            "age": "(18 + floor(50 * u3 + 25 * u3 * u0))::int",
            "pieces": f"{pieces}::int",
            "price": f"round({price}, 2)",
            "paid": f"round({pieces} * {price} * (1 - 0.2 * floor(u8 * 1.5)), 2)",
            "weight": "case when u9 < 0.03 then null else exp(0.5 * (u3 + u5 + u9 - 1.5)) * (2 + u4) end",
            "day": "date '2021-01-01' + (floor(1460 * (1 - u8 * u8 * u0)))::int",
            "returned": "(u9 < 0.05 + 0.2 * u1)",
        }
        made = ", ".join(f"{value} as {name}" for name, value in columns.items())
        query = f"select {made} from (select {uniform} from range({rows}))"
        _plain().execute(f"copy ({query}) to '{path}' (format parquet, compression zstd)")
    return str(path)


def orders(directory: Path, rows: int) -> dict[str, float]:
    """A release of a table of ten columns of which nothing is known: what `dpgen train orders.parquet --engine` fits."""
    path, peak, done = _order_file(directory, rows), [_own_memory()], Event()

    def watch() -> None:
        while not done.wait(0.2):
            peak.append(_own_memory())

    thread = Thread(target=watch)
    thread.start()
    load = getloadavg()[0]
    release = dpgen.fit(path, "tables", engine=True, epsilon=1.0, delta=1e-10)
    done.set()
    thread.join()
    print(release.statement, file=sys.stderr)
    size = Path(path).stat().st_size / 2**20
    return {"file_mib": round(size), "own_mib": round(max(peak) / 1024), "load_before": round(load, 1)}


_SIDE = 28


def _scans(directory: Path, rows: int) -> str:
    """Parquet files of grey images, 784 bytes each in one value, of a few directions and noise."""
    directory, rng = directory / f"scans_{rows}", np.random.default_rng(0)
    directory.mkdir(exist_ok=True)
    axes = rng.normal(0, 40, (10, _SIDE**2)).astype(np.float32)
    for start in range(0, rows, SHARD // 200):
        if not (path := directory / f"{start:010d}.parquet").exists():
            n = min(rows - start, SHARD // 200)
            values = (rng.normal(0, 1, (n, 10)).astype(np.float32) @ axes + 128).clip(0, 255).astype(np.uint8)
            offsets = pyarrow.py_buffer(np.arange(n + 1, dtype=np.int32) * _SIDE**2)
            scan = pyarrow.Array.from_buffers(pyarrow.binary(), n, [None, offsets, pyarrow.py_buffer(values.tobytes())])
            pyarrow.parquet.write_table(pyarrow.table({"scan": scan}), path, compression="none", use_dictionary=False)
    return str(directory / "*.parquet")


def gaussian(directory: Path, rows: int) -> dict[str, float]:
    """A release of grey images, after one pass of float64 X.T @ X over the same batches, and a pass that only reads them."""
    source, times = _scans(directory, rows), [time.process_time()]
    data = load_streamed(path=source, image_shape=(_SIDE, _SIDE), grey_threshold=127)
    times.append(time.process_time())
    total = np.zeros((_SIDE**2, _SIDE**2))
    spent = 0.0
    for x, _ in data.rows:
        values, before = x.numpy().astype(np.float64), time.process_time()
        total += values.T @ values
        spent += time.process_time() - before
    times.append(time.process_time())
    plan = GaussianPlan(epsilon=1.0, delta=1e-9)
    config = GaussianConfig(clusters="none", subclusters=1)
    fit_gaussian(data, plan=plan, config=config, curator=Curator(plan.open_ledger()), runtime=Runtime())
    times.append(time.process_time())
    names = ("load_cpu_seconds", "gram_and_read_cpu_seconds", "fit_cpu_seconds")
    return {name: round(float(t), 2) for name, t in zip(names, np.diff(times))} | {"gram_cpu_seconds": round(spent, 2)}


def spark(executors: int, directory: Path, rows: int) -> dict[str, float]:
    """The column of `merr`, counted by executors of one core each: seconds of their tasks, of the busiest and of all."""
    from pyspark.sql import SparkSession

    from dpgen.containers import in_memory

    options = {"spark.executor.memory": "512m", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "8"}
    builder = SparkSession.builder.master(f"local-cluster[{executors},1,1024]").config(map=options)
    session = builder.getOrCreate()
    try:
        frame = session.read.parquet(str(Path(column_files(directory, rows)).parent))
        load_columns(path=in_memory(frame), columns="x", low=0, high=2**31 - 1)
        spent = _task_seconds(f"{session.sparkContext.uiWebUrl}/api/v1/applications/{session.sparkContext.applicationId}")
    finally:
        session.stop()
    wall, cpu = ([seconds[i] for seconds in spent.values()] for i in range(2))
    return {
        "executors": len(spent),
        "busiest_task_seconds": round(max(wall), 2),
        "all_task_seconds": round(sum(wall), 2),
        "busiest_task_cpu_seconds": round(max(cpu), 2),
        "all_task_cpu_seconds": round(sum(cpu), 2),
    }


def _task_seconds(application: str) -> dict[str, tuple[float, float]]:
    """Seconds and CPU seconds of the tasks of each executor."""
    spent: dict[str, tuple[float, float]] = {}
    with urlopen(f"{application}/stages") as answer:
        stages = [f"{application}/stages/{stage['stageId']}/{stage['attemptId']}" for stage in json.load(answer)]
    for stage in stages:
        with urlopen(f"{stage}/taskList?length=100000") as answer:
            for task in json.load(answer):
                wall, cpu = spent.get(task["executorId"], (0.0, 0.0))
                metrics = task.get("taskMetrics", {})
                wall, cpu = wall + metrics.get("executorRunTime", 0) / 1e3, cpu + metrics.get("executorCpuTime", 0) / 1e9
                spent[task["executorId"]] = wall, cpu
    return spent


def _own_memory() -> int:
    """KiB of this process that are no pages of files."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1])


def _draws(n: int, rate: float, times: int = 20) -> float:
    """CPU seconds of a Poisson draw."""
    source = SecureSource()
    source.bernoulli_indices(n, probability=rate)
    before = time.process_time()
    for _ in range(times):
        source.bernoulli_indices(n, probability=rate)
    return (time.process_time() - before) / times


PARTS: dict[str, tuple[Part, Callable[[Path, int], str], int]] = {
    "scan": (scan, column_files, 3 * 10**8),
    "merr": (merr, column_files, 3 * 10**8),
    "csv": (csv, _csv_file, 5 * 10**6),
    "tables": (tables, _visit_file, 5 * 10**6),
    "orders": (orders, _order_file, 10**7),
    "gaussian": (gaussian, _scans, 10**6),
    "mapped": (mapped, bit_files, 10**7),
    "mapped_few": (mapped, bit_files, 10**5),
    "spark_1": (partial(spark, 1), column_files, 10**7),
    "spark_2": (partial(spark, 2), column_files, 10**7),
}
"""Each part, the files that it reads, and its usual number of rows."""


def measure(name: str, directory: Path, rows: int) -> dict[str, float]:
    """Seconds of one run of a part, and its peak memory: of the whole process, and beside the libraries."""
    part, files, _ = PARTS[name]
    files(directory, rows)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start, cpu = time.perf_counter(), time.process_time()
    more = part(directory, rows) or {}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "rows": rows,
        "seconds": round(time.perf_counter() - start, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "peak_mib": round(peak),
        "peak_beside_libraries_mib": round(peak - before),
        **more,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("/tmp/engines"))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--rows", type=float, help="of every part, instead of its usual number")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    if options.one:
        print(json.dumps(measure(options.one, options.directory, int(options.rows))))
        return
    for name in options.parts.split(","):
        rows = int(options.rows or PARTS[name][2])
        command = [sys.executable, __file__, "--directory", str(options.directory), "--one", name, "--rows", str(rows)]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
        print(name, found)
        path, block, key = (ORDERS, "rows", str(rows)) if name == "orders" else (RESULTS, "parts", name)
        store(path, block, {key: found}, machine=machine("duckdb", "pyarrow"))


if __name__ == "__main__":
    main()
