"""Engines: counts pushed down beside plain DuckDB, merr on files larger than memory, csv files, Spark beside DuckDB.

    python benchmarks/engines.py [--rows N] [--directory /tmp/engines] [--parts counts,merr,csv]

Each part runs in a process of its own, so that its peak memory is its own. The files that it reads are made first, where they
are not there yet: 2 GB for the 3 * 10^8 rows of `merr`, 7 GB for 10^9. Writes benchmarks/results/engines.json.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
from measuring import machine, store

from dpgen.data.engines import MEMORY, open_table
from dpgen.data.records import load_records
from dpgen.data.sql import load_sql_columns
from dpgen.privacy.curator import Curator
from dpgen.runtime import Runtime
from dpgen.systems.ordered.fit import fit
from dpgen.systems.ordered.plan import OrderedConfig, OrderedPlan

RESULTS = Path(__file__).parent / "results" / "engines.json"
SHARD = 10_000_000
Part = Callable[[Path, int], None]


def column_files(directory: Path, rows: int) -> str:
    """Parquet files of one skewed int64 column on about 10^12 values."""
    directory = directory / f"column_{rows}"
    directory.mkdir(exist_ok=True)
    for i in range(-(-rows // SHARD)):
        if not (path := directory / f"{i:03d}.parquet").exists():
            value = f"(hash(range * 7919 + {i}) >> 44)::bigint * (hash(range + {i * SHARD}) % 1000003)::bigint"
            _plain().execute(f"copy (select {value} as x from range({SHARD})) to '{path}'")
    return str(directory / "*.parquet")


def _plain() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(f"set memory_limit = '{MEMORY}'; set preserve_insertion_order = false")
    return connection


def scan(directory: Path, rows: int) -> None:
    """The reference of `merr`: DuckDB counts the column in 2^20 cells, and does nothing else."""
    files = column_files(directory, rows)
    _plain().execute(f"select x >> 20 as cell, count(*) from '{files}' group by cell").fetchall()


def merr(directory: Path, rows: int) -> None:
    """A release of the distribution of the column."""
    data = load_sql_columns(source=column_files(directory, rows), columns="x", low=0, high=1.1e12)
    plan = OrderedPlan(epsilon=1.0, delta=1e-9)
    release = fit(data, plan=plan, config=OrderedConfig(), curator=Curator(plan.open_ledger()), runtime=Runtime())
    print(f"{len(release.cdfs['x'].knots)} knots", file=sys.stderr)


def _narrow(directory: Path, rows: int) -> str:
    path = directory / "ten.parquet"
    if not path.exists():
        columns = ", ".join(f"((hash(range * 31 + {i}) >> 20) % {2 + i % 3})::utinyint as c{i}" for i in range(10))
        _plain().execute(f"copy (select {columns} from range({rows})) to '{path}'")
    return str(path)


def _ways() -> list[list[str]]:
    names = [f"c{i}" for i in range(10)]
    return [[name] for name in names] + [[a, b] for i, a in enumerate(names) for b in names[i + 1 :]]


def plain_counts(directory: Path, rows: int) -> None:
    """The reference of `counts`: DuckDB's own grouping sets."""
    sets = ", ".join(f"({', '.join(way)})" for way in _ways())
    _plain().execute(f"select count(*) from '{_narrow(directory, rows)}' group by grouping sets ({sets})").fetchall()


def counts(directory: Path, rows: int) -> None:
    """All 1- and 2-way counts of ten columns, in one scan."""
    open_table(_narrow(directory, rows)).counts(_ways())


def csv(directory: Path, rows: int) -> None:
    """A csv file of 20 bits and a label."""
    path = directory / "bits.csv"
    if not path.exists():
        bits = ", ".join(f"((hash(range * 31 + {i}) >> 20) % 3 = 0)::int as c{i}" for i in range(20))
        _plain().execute(f"copy (select {bits}, (hash(range + 7) % 5)::int as label from range({rows})) to '{path}' (header)")
    load_records(path=str(path), label_column="label")


PARTS: dict[str, tuple[Part, int]] = {
    "scan": (scan, 3 * 10**8),
    "merr": (merr, 3 * 10**8),
    "plain_counts": (plain_counts, 5 * 10**7),
    "counts": (counts, 5 * 10**7),
    "csv": (csv, 5 * 10**6),
}
"""Each part and its usual number of rows."""


def measure(name: str, directory: Path, rows: int) -> dict[str, float]:
    """Seconds of one run of a part, and its peak memory: of the whole process, and beside the libraries."""
    part, _ = PARTS[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start, cpu = time.perf_counter(), time.process_time()
    part(directory, rows)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "rows": rows,
        "seconds": round(time.perf_counter() - start, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "peak_mib": round(peak),
        "peak_beside_libraries_mib": round(peak - before),
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
        rows = int(options.rows or PARTS[name][1])
        command = [sys.executable, __file__, "--directory", str(options.directory), "--one", name, "--rows", str(rows)]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
        print(name, found)
        store(RESULTS, "parts", {name: found}, machine=machine("duckdb", "ibis-framework", "pyarrow"))


if __name__ == "__main__":
    main()
