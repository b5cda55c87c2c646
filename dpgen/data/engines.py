"""Tables in DuckDB or Spark as batches of Arrow: what a record counts as is computed from them, by one code.

| a source | read by | the table while it is read |
|---|---|---|
| DuckDB file, FILE.duckdb::TABLE | DuckDB, read-only | locked: one snapshot |
| parquet or csv files, by a glob | DuckDB | refused if a file changes between two scans |
| DuckDB relation, Spark DataFrame | their own engine | refused if counts of two scans differ |
"""

import fcntl
import glob
import os
import shutil
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import TYPE_CHECKING, Any

from dpgen.containers import Form, InMemory
from dpgen.data.table_files import MISSING, dialect_of, header, name_of, one_line, parquet_schema, require_columns
from dpgen.extras import extras
from dpgen.facts import Fact, Said
from dpgen.progress import report, rows_read

if TYPE_CHECKING:
    import pyarrow

MEMORY = "2GB"
"""Memory limit of DuckDB, beyond which it writes to disk."""

_PARQUET, _CSV = (".parquet", ".pq"), (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_GROUPS = 2**20
_SPILLED, _FRESH = "dpgen-engine-", 60.0  # seconds in which a folder gets its lock

CHANGED = "{} has changed while it was read: read it from a snapshot, such as a copy or a closed DuckDB file"


@dataclass(frozen=True, eq=False)
class EngineTable:
    """A private table that an engine reads.

    `rows` is a relation of DuckDB or a DataFrame of Spark; `files` are those that are read, with size and time of change;
    `snapshot`: all scans read the same rows; the `connection` of DuckDB ends with its last reference. `declared`: the types of
    the columns are those of a table in a database, or of Parquet files, not of a query or of csv files.
    """

    name: str
    rows: Any
    files: Mapping[str, tuple[int, int]]
    snapshot: bool
    connection: Any = None
    declared: bool = True

    @property
    def spark(self) -> bool:
        """Whether Spark keeps the table."""
        return hasattr(self.rows, "mapInArrow")

    @property
    def of_texts(self) -> bool:
        """Whether all values are texts of csv files; only of one that was opened with `text` None."""
        return any(file.lower().endswith(_CSV) for file in self.files)

    @cached_property
    def schema(self) -> "pyarrow.Schema":
        """Names and types of the columns."""
        return replace(self, rows=self.rows.limit(0)).fetch("schema").schema

    @cached_property
    def size(self) -> int:
        """Rows, where files tell them without a scan, else 0; for the bar of the run alone."""
        if not self.files or not all(file.lower().endswith(_PARQUET) for file in self.files):
            return 0
        from pyarrow import parquet

        return sum(parquet.read_metadata(file).num_rows for file in self.files)

    @property
    def facts(self) -> tuple[Said, ...]:
        """Facts of a privacy statement: whether the rows are read more than once, without a snapshot."""
        return () if self.snapshot else (Fact.READ_AGAIN(),)

    @property
    def kept_facts(self) -> tuple[Said, ...]:
        """`facts` of a table whose codes are kept after one scan: none but in Spark, which reads again for a lost executor."""
        return self.facts if self.spark else ()

    def quoted(self, name: str) -> str:
        """The name of a column in an expression."""
        mark = "`" if self.spark else '"'
        return mark + name.replace(mark, 2 * mark) + mark

    def columns(self, names: Sequence[str]) -> "EngineTable":
        """These columns of the table."""
        require_columns(self.name, names, self.rows.columns)
        if self.spark:
            return replace(self, rows=self.rows.select(*map(self.quoted, names)))
        return replace(self, rows=self.rows.project(", ".join(map(self.quoted, names))))

    def filtered(self, condition: str) -> "EngineTable":
        """The rows that satisfy a condition."""
        return replace(self, rows=self.rows.filter(condition))

    def form(self, names: Sequence[str]) -> Form:
        """The form of samples of these columns, by their types; without public types, and of decimals, as they are drawn."""
        if not self.declared:
            return Form(container="pandas", names=tuple(names))
        empty = self.schema.empty_table().select(list(names))
        drawn = [str(field.type).startswith("decimal") for field in empty.schema]
        types = tuple("" if as_drawn else str(dtype) for as_drawn, dtype in zip(drawn, empty.to_pandas().dtypes))
        return Form(container="pandas", names=tuple(names), types=types)

    def complete(self) -> "EngineTable":
        """The rows without a missing value."""
        found = self
        for field in self.schema:
            name = self.quoted(field.name)
            floats = str(field.type) in ("float", "double")
            found = found.filtered(f"{name} is not null" + (f" and not isnan({name})" if floats else ""))
        return found

    def grouped(self, names: Sequence[str], **sums: str) -> "EngineTable":
        """One row for each group of values of columns, with expressions of sums."""
        if not sums:
            return replace(self, rows=self.columns(names).rows.distinct())
        if self.spark:
            from pyspark.sql.functions import expr

            parts = [expr(sql).alias(name) for name, sql in sums.items()]
            return replace(self, rows=self.rows.groupBy(*map(self.quoted, names)).agg(*parts))
        group = ", ".join(map(self.quoted, names))
        parts = [f"{sql} as {self.quoted(name)}" for name, sql in sums.items()]
        return replace(self, rows=self.rows.aggregate(", ".join([*filter(None, [group]), *parts]), group))

    def sorted(self, by: str | None) -> "EngineTable":
        """The rows in any order that keeps those with one value of a column together; of Spark, in one partition."""
        if by is None:
            return self
        name = self.quoted(by)
        if self.spark:
            return replace(self, rows=self.rows.repartition(name).sortWithinPartitions(name))
        return replace(self, rows=self.rows.order(name))

    def sampled(self, share: float, seed: int, by: str | None) -> "EngineTable":
        """About a share of the rows, with `by` all rows of some of its values; `seed` is Spark's, DuckDB draws without one."""
        if share >= 1:
            return self
        if by is not None:
            hashed = "pmod(xxhash64({}), {})" if self.spark else "hash({}) % {}"
            return self.filtered(f"{hashed.format(self.quoted(by), _GROUPS)} < {int(share * _GROUPS)}")
        return replace(self, rows=self.rows.sample(share, seed)) if self.spark else self.filtered(f"random() < {share}")

    def count(self) -> int:
        """Number of rows."""
        return int(self.grouped([], n="count(*)").fetch("number of rows")["n"][0].as_py())

    def fetch(self, stage: str) -> "pyarrow.Table":
        """All rows, where they are few."""
        return self._run(self.rows.toArrow if self.spark else self.rows.to_arrow_table, stage)

    def batches(self, rows: int, stage: str) -> Iterator["pyarrow.RecordBatch"]:
        """The rows, at most so many at a time, in this process; errors as in `fetch`."""
        if self.spark:
            yield from self.fetch(stage).to_batches(rows)
            return
        with self._refusing():
            yield from rows_read(self._run(lambda: self.rows.fetch_arrow_reader(rows), stage), self.size, stage)
        self.require_same()

    def require_same(self) -> None:
        """Refuse files that are no longer those that were opened."""
        for file, seen in self.files.items():
            if _seen(file) != seen:
                raise ValueError(CHANGED.format(file))

    def _run(self, read: Callable[[], Any], name: str) -> Any:
        self.require_same()
        report(None, name)
        with self._refusing():
            found = read()
        self.require_same()
        return found

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # of any engine, which has classes of its own
            if isinstance(error, MemoryError) or type(error).__module__.partition(".")[0] in ("builtins", "dpgen"):
                raise
            engine = "spark" if self.spark else "duckdb"
            raise ValueError(f"{self.name} cannot be read by {engine}: {_said(error)}") from None


def open_table(
    path: str, *, text: Sequence[str] | None = (), missing: Sequence[str] = MISSING, memory: str = MEMORY
) -> EngineTable:
    """The table of a DuckDB file, FILE.duckdb::TABLE, of parquet or csv files, or the one that a program handed over.

    Columns in `text` of csv files are texts even where they look like numbers, None: all of them; texts in `missing` stand for
    no value.
    """
    if isinstance(path, InMemory):
        return EngineTable(str(path), path.content, {}, snapshot=False, declared=any(path.types.values()))
    with extras():
        import duckdb
    source, _, table = str(path).partition("::")
    files = _files(path, source)
    seen = {file: _seen(file) for file in files}
    ending = "".join(Path(files[0]).suffixes[-2:]).lower()
    of_files = ending.endswith((*_PARQUET, *_CSV))
    if not of_files and len(files) > 1:
        raise ValueError(f"path is {path!r}: {len(files)} files fit, and only parquet and csv files make one table")
    if of_files and table:
        raise ValueError(f"path is {path!r}: ::{table} must be left out, {source} holds one table")
    opened = (lambda: duckdb.connect()) if of_files else (lambda: duckdb.connect(files[0], read_only=True))
    connection = _opened(opened, source)
    _spilling(connection, memory)
    connection.execute("SET preserve_insertion_order = false")
    if not of_files:
        return _table_of(connection, path, source, table)
    _require_one_schema(files, ending)
    if ending.endswith(_PARQUET):
        return EngineTable(source, _opened(lambda: connection.read_parquet(files), source), seen, False, connection)
    form = _csv_form(files[0], text)
    csv = _opened(lambda: connection.read_csv(files, na_values=list(missing), **form), source)
    return EngineTable(source, csv, seen, False, connection, declared=False)


def _files(path: str, source: str) -> list[str]:
    """The files that a path stands for."""
    files = sorted(glob.glob(source, recursive=True))
    if not files:
        raise ValueError(f"path is {path!r}: there is no such file")
    wrong = next((file for file in files if not Path(file).is_file()), None)
    if wrong is not None:
        raise ValueError(f"path is {path!r}: {wrong} is no file; name the files in it, as in {wrong}/*.parquet")
    return files


def _csv_form(file: str, text: Sequence[str] | None) -> dict[str, Any]:
    """Options by which DuckDB reads a csv file, with columns in `text` as texts: it would guess them from the rows.

    One row with \\" in it made another text of all that hold a backslash.
    """
    dialect = dialect_of(file)
    form: dict[str, Any] = {"sep": dialect.delimiter, "quotechar": '"', "escapechar": '"', "header": True}
    form |= {"encoding": "utf-16"} if dialect.encoding.startswith("utf-16") else {}
    names = {name: "VARCHAR" for name in header(file) if text is None or name in text}
    form |= {"dtype": names} if names else {}
    return form | {"skiprows": int(dialect.announced), "comment": ""}


def _table_of(connection: Any, path: str, source: str, table: str) -> EngineTable:
    """A table of a DuckDB file, "" the one that it holds."""
    listed = connection.execute("select table_name, table_type from information_schema.tables").fetchall()
    known = sorted(name for name, _ in listed)
    if not table and len(known) == 1:
        [table] = known
    if table not in known:
        near = get_close_matches(table, known, n=1)
        holds = f"it holds {', '.join(known)}" if known else "it holds no table"
        hint = f"; did you mean {near[0]!r}?" if near else f"; write {source}::{known[0]}" if known else ""
        raise ValueError(f"path is {path!r}: {holds}{hint}")
    name = table.replace('"', '""')
    rows, declared = connection.sql(f'select * from "{name}"'), dict(listed)[table] == "BASE TABLE"
    return EngineTable(f"{name_of(source)}.{table}", rows, {}, True, connection, declared=declared)


def own_tables(memory: str = MEMORY) -> Any:
    """A connection of DuckDB with tables of its own."""
    with extras():
        import duckdb

    connection = duckdb.connect()
    _spilling(connection, memory)
    connection.execute("SET threads = 1")
    return connection


def _spilling(connection: Any, memory: str) -> None:
    """Limit the memory of DuckDB; the rest goes to a folder, deleted with the connection, or by the next one after a kill."""
    for left in Path(gettempdir()).glob(f"{_SPILLED}*"):
        with suppress(OSError), ExitStack() as opened:
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            opened.callback(os.close, descriptor)
            state = os.fstat(descriptor)
            if state.st_uid == os.geteuid() and time.time() - state.st_mtime > _FRESH:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
    folder = mkdtemp(prefix=_SPILLED)
    held = os.open(folder, os.O_RDONLY)
    with suppress(OSError):  # a file system without locks, where nobody gets one
        fcntl.flock(held, fcntl.LOCK_EX)
    weakref.finalize(connection, _removed, folder, held)
    connection.execute(f"SET memory_limit = '{memory}'; SET temp_directory = '{folder}'")


def _removed(folder: str, held: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(held)


def _opened(read: Callable[[], Any], source: str) -> Any:
    try:
        return read()
    except Exception as error:
        raise ValueError(f"{source} cannot be read by duckdb: {_said(error)}") from None


_PUBLIC_ERRORS = ("IOException", "CatalogException", "BinderException", "OutOfMemoryException", "AnalysisException")


def _said(error: Exception) -> str:
    """An engine's error of files, tables and columns; of others, which may quote a row, the type alone."""
    name = type(error).__name__
    return one_line(error) if name in _PUBLIC_ERRORS else f"{name}, whose text is private"


def _seen(file: str) -> tuple[int, int]:
    try:
        state = Path(file).stat()
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from None
    return state.st_size, state.st_mtime_ns


def _require_one_schema(files: Sequence[str], ending: str) -> None:
    """Refuse parquet files whose columns have not the same types: an engine would convert some of them."""
    if not ending.endswith(_PARQUET):
        return
    first = None
    for file in files:
        types = {field.name: field.type for field in parquet_schema(file)}
        first = types if first is None else first
        for name in {**first, **types}:
            if first.get(name) != types.get(name):
                was, now = (str(part.get(name, "not there")) for part in (first, types))
                raise ValueError(f"{file} column {name!r} is {now}; it must be {was}, as in {files[0]}")
