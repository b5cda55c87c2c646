"""Tables in DuckDB or Spark, through Ibis, as batches of Arrow: what a record counts as is computed from them, by one code.

| a source | read by | the table while it is read |
|---|---|---|
| DuckDB file | DuckDB, read-only | locked: one snapshot |
| parquet or csv files, by a glob | DuckDB | refused if a file changes between two scans |
| Ibis table, DuckDB relation, Spark DataFrame | their own engine | refused if counts of two scans differ |
"""

import glob
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from dpgen.containers import InMemory
from dpgen.data.table_files import MISSING, header, name_of, one_line, parquet_schema, require_columns
from dpgen.progress import rows_read, stage

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow

ENGINES = ("duckdb", "pyspark")
"""Names that Ibis has for the engines whose integers were tried against one process."""

MEMORY = "2GB"
"""Memory limit of DuckDB, beyond which it writes to disk."""

_PARQUET, _CSV = (".parquet", ".pq"), (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_MISSING = "data in an engine need ibis and duckdb: pip install 'dpgen[sql]'"

CHANGED = "{} has changed while it was read: read it from a snapshot, such as a copy or a closed DuckDB file"


@dataclass(frozen=True, eq=False)
class EngineTable:
    """A private table that an engine reads.

    Arguments:
        name: in messages.
        rows: the table, an Ibis expression.
        files: what is read, with size and time of change; empty where an engine keeps the table.
        snapshot: whether the engine promises that all scans read the same rows.
    """

    name: str
    rows: "ir.Table"
    files: Mapping[str, tuple[int, int]]
    snapshot: bool

    @cached_property
    def backend(self) -> Any:
        """The connection of Ibis."""
        [backend] = self.rows._find_backends()[0] or [None]
        return backend

    @cached_property
    def size(self) -> int | None:
        """Rows, where files tell them without a scan; for the bar of the run alone."""
        if not self.files or not all(file.lower().endswith(_PARQUET) for file in self.files):
            return None
        from pyarrow import parquet

        return sum(parquet.read_metadata(file).num_rows for file in self.files)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences of a statement."""
        if self.snapshot:
            return ()
        return ("the table was read more than once: that it did not change meanwhile is assumed where counts agreed",)

    def columns(self, names: Sequence[str]) -> "ir.Table":
        """These columns of the table.

        Raises:
            ValueError: one is not there.
        """
        require_columns(self.name, names, self.rows.columns)
        return self.rows.select(*names)

    def fetch(self, query: "ir.Table", stage: str) -> "pyarrow.Table":
        """The rows of a query, which are few: groups and their counts.

        Raises:
            ValueError: the engine refuses it, in one line, or the files have changed.
        """
        return self._run(lambda: self._arrow(query), stage)

    def _arrow(self, query: "ir.Table") -> "pyarrow.Table":
        if self.spark is not None:  # Ibis goes through pandas, where whole numbers beside a null become floats
            return self.frame(query).toArrow()
        return query.to_pyarrow()

    @property
    def spark(self) -> Any:
        """The session of Spark; None where another engine keeps the table."""
        return self.backend._session if self.backend.name == "pyspark" else None

    def frame(self, query: "ir.Table") -> Any:
        """A query as a DataFrame of Spark."""
        with _unfused():
            return self.spark.sql(self.backend.compile(query))

    def arrow(self, frame: Any, stage: str) -> "pyarrow.Table":
        """The rows of a DataFrame of Spark; errors as in `fetch`."""
        return self._run(frame.toArrow, stage)

    def batches(self, query: "ir.Table", rows: int, stage: str) -> Iterator["pyarrow.RecordBatch"]:
        """The rows of a query of DuckDB, at most so many at a time; errors as in `fetch`."""
        with self._refusing():
            found = self._run(lambda: self.backend.to_pyarrow_batches(query, chunk_size=rows), stage)
            yield from rows_read(found, self.size or 0, stage)
        self.require_same()

    def require_same(self) -> None:
        """Refuse files that are no longer those that were opened.

        Raises:
            ValueError: naming the first of them.
        """
        for file, seen in self.files.items():
            if _seen(file) != seen:
                raise ValueError(CHANGED.format(file))

    def _run(self, read: Callable[[], Any], stage: str) -> Any:
        self.require_same()
        with _watched(self, stage), _unfused(), _uncopied(self.spark), self._refusing():
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
            raise ValueError(f"{self.name} cannot be read by {self.backend.name}: {_said(error)}") from None


def open_table(
    source: str, table: str | None = None, *, text: Sequence[str] | None = (), missing: Sequence[str] = MISSING
) -> EngineTable:
    """The table of a DuckDB file, of parquet or csv files, or the one that a program handed over.

    Arguments:
        source: files, by a glob, or what was handed over.
        table: of a DuckDB file.
        text: columns of csv files whose values are texts even where they look like numbers; None: all of them.
        missing: texts of csv files that stand for no value.

    Raises:
        ValueError: no such file, table or engine, or files whose columns differ.
    """
    try:
        import ibis
    except ImportError:
        raise ValueError(_MISSING) from None
    ibis.options.interactive = False
    if isinstance(source, InMemory):
        return EngineTable(str(source), _ibis_table(source.content), {}, snapshot=False)
    files = sorted(glob.glob(source, recursive=True))
    if not files:
        raise ValueError(f"source is {source!r}: there is no such file")
    wrong = next((file for file in files if not Path(file).is_file()), None)
    if wrong is not None:
        raise ValueError(f"source is {source!r}: {wrong} is no file; name the files in it, as in {wrong}/*.parquet")
    seen = {file: _seen(file) for file in files}
    ending = "".join(Path(files[0]).suffixes[-2:]).lower()
    if ending.endswith(_PARQUET) or ending.endswith(_CSV):
        if table is not None:
            raise ValueError(f"table is {table!r}: it must be left out, {source} holds one table")
        connection = _duckdb(None)
        _require_one_schema(files, ending)
        if ending.endswith(_PARQUET):
            return EngineTable(source, _opened(lambda: connection.read_parquet(files), source), seen, snapshot=False)
        names = {name: "VARCHAR" for name in header(files[0]) if text is None or name in text}
        types = {"types": names} if names else {}
        csv = _opened(lambda: connection.read_csv(files, nullstr=list(missing), **types), source)
        return EngineTable(source, csv, seen, snapshot=False)
    if len(files) > 1:
        raise ValueError(f"source is {source!r}: {len(files)} files fit, and only parquet and csv files make one table")
    connection = _opened(lambda: _duckdb(files[0]), source)
    known = connection.list_tables()
    if table is None and len(known) == 1:
        [table] = known
    if table is None:
        raise ValueError(f"table is not given: {source} has the tables {', '.join(known) or '(none)'}")
    if table not in known:
        near = get_close_matches(table, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"table is {table!r}: the tables of {source} are {', '.join(known)}{hint}")
    return EngineTable(f"{name_of(source)}.{table}", connection.table(table), {}, snapshot=True)


def _ibis_table(data: Any) -> "ir.Table":
    """A table of Ibis, a DuckDB relation or a Spark DataFrame as one of Ibis.

    Raises:
        ValueError: another engine, or a relation of a connection that cannot be found.
    """
    import ibis

    name = f"dpgen_{uuid4().hex}"
    match type(data).__module__.partition(".")[0]:
        case "ibis":
            table = data
        case "pyspark":
            data.createOrReplaceTempView(name)
            table = ibis.pyspark.connect(data.sparkSession).table(name)
        case _:
            table = _of_relation(data, name)
    [backend] = table._find_backends()[0] or [None]
    if backend is None or backend.name not in ENGINES:
        engine = "none" if backend is None else backend.name
        raise ValueError(f"engine of the table is {engine}; it must be one of {', '.join(ENGINES)}, whose integers are tried")
    return table


def _of_relation(data: Any, name: str) -> "ir.Table":
    """A view of a DuckDB relation in the connection of the module `duckdb`; a relation does not tell its own."""
    import duckdb
    import ibis

    backend = ibis.duckdb.from_connection(duckdb.default_connection())
    with suppress(duckdb.Error):  # of a database that is read-only
        data.create_view(name)
        if name in backend.list_tables():
            return backend.table(name)
        data.query("unused", f"DROP VIEW {name}")
    raise ValueError("DuckDB relation is of another connection c: give ibis.duckdb.from_connection(c).table(NAME)")


def _duckdb(path: str | None) -> Any:
    """A connection of its own to a file, or to none, which writes what passes `MEMORY` to disk."""
    import ibis

    connection = ibis.duckdb.connect(path, read_only=True) if path else ibis.duckdb.connect()
    connection.raw_sql(f"SET memory_limit = '{MEMORY}'; SET preserve_insertion_order = false")
    connection.raw_sql("SET enable_progress_bar = true; SET enable_progress_bar_print = false")  # for `_watched`
    return connection


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


@contextmanager
def _unfused() -> Iterator[None]:
    """Every step of a query stays a query of its own: joined to one, an expression is repeated wherever it is used."""
    import ibis

    before = ibis.options.sql.fuse_selects
    ibis.options.sql.fuse_selects = False
    try:
        yield
    finally:
        ibis.options.sql.fuse_selects = before


@contextmanager
def _uncopied(spark: Any) -> Iterator[None]:
    """Spark infers no filters: it would copy the expression of a column into each, and of those that this is made of."""
    if spark is None:
        yield
        return
    option = "spark.sql.constraintPropagation.enabled"
    before = spark.conf.get(option)
    spark.conf.set(option, "false")
    try:
        yield
    finally:
        spark.conf.set(option, before)


@contextmanager
def _watched(table: EngineTable, name: str) -> Iterator[None]:
    """Reports how far a query of DuckDB is while it runs, and how many rows it reads a second."""
    with stage(name) as reported:
        progress = getattr(getattr(table.backend, "con", None), "query_progress", None)
        if reported is None or progress is None:
            yield
            return
        rows, done = table.size, Event()

        def watch() -> None:
            while not done.wait(0.5):
                part = max(progress(), 0.0) / 100
                reported(part, None if rows is None else rows * part)

        thread = Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
