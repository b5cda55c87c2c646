"""Tables in DuckDB or Spark, through Ibis: an engine counts and adds up whole numbers, and nothing else leaves it.

Counts are whole numbers and sums are exact, so it makes no difference who adds them up: an engine on this machine or a cluster
gives the bits that one process would. What a group of records is, is said to the engine in comparisons and integer
arithmetic alone, which all engines do alike.

| a source | read by | the table while it is read |
|---|---|---|
| DuckDB file | DuckDB, read-only | locked: one snapshot |
| parquet or csv files, by a glob | DuckDB | refused if a file changes between two scans |
| Ibis table, DuckDB relation, Spark DataFrame | their own engine | refused if counts of two scans differ |
"""

import glob
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from dpgen.containers import InMemory
from dpgen.data.table_files import MISSING, header, name_of, one_line, parquet_schema, require_columns
from dpgen.facts import Fact
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
    def facts(self) -> tuple[Fact, ...]:
        """What a statement says of them."""
        return () if self.snapshot else (Fact.READ_AGAIN,)

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

    def memory(self, **columns: npt.NDArray[np.int64]) -> "ir.Table":
        """A table of public or counted numbers that queries join with."""
        import ibis
        import pyarrow

        if self.spark is None:
            return ibis.memtable(pyarrow.table(columns))
        name = f"dpgen_{uuid4().hex}"
        self.spark.createDataFrame(pyarrow.table(columns)).createOrReplaceTempView(name)
        return self.backend.table(name)

    def kept(self, query: "ir.Table", stage: str) -> "ir.Table":
        """The rows of a query in a temporary table of DuckDB, which goes with the connection; elsewhere the query."""
        if self.backend.name != "duckdb":
            return query
        return self._run(lambda: self.backend.create_table(f"dpgen_{uuid4().hex}", query, temp=True), stage)

    def counts(self, keys: Sequence[Sequence[str]], stage: str = "counts") -> list[dict[tuple[Any, ...], int]]:
        """Records by their values in each group of columns, all groups in one scan.

        Raises:
            ValueError: as `fetch`.
        """
        names = list(dict.fromkeys(name for group in keys for name in group))
        cells = self.columns(names).group_by(names).aggregate(count=lambda table: table.count())
        table = self.fetch(cells, stage)
        count = table["count"].to_numpy()
        found = []
        for group in keys:
            sums: dict[tuple[Any, ...], int] = {}
            for values, n in zip(zip(*(table[name].to_pylist() for name in group)), count.tolist()):
                sums[values] = sums.get(values, 0) + n
            found.append(sums)
        return found

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


# -- counts along a grid -----------------------------------------------------------------------------------------------

Integers = npt.NDArray[np.int64]
_GROUPS = 22  # bits: groups of one query, at most 2^22 of 32 bytes
_FEWEST = 4  # bits that a query resolves in any case


@dataclass(frozen=True)
class _Cells:
    """Records by position without its last `shift` bits: (m,) increasing keys, counts, least and last positions."""

    shift: int
    keys: Integers
    counts: Integers
    lows: Integers
    highs: Integers

    def __getitem__(self, rows: Any) -> "_Cells":
        return _Cells(self.shift, self.keys[rows], self.counts[rows], self.lows[rows], self.highs[rows])

    def coarser(self, bits: int) -> "_Cells":
        """Groups without so many more bits, of rows in the order of their keys."""
        keys, first = np.unique(self.keys >> bits, return_index=True)
        reduced = [
            reduce.reduceat(column, first) if len(first) else column
            for reduce, column in ((np.add, self.counts), (np.minimum, self.lows), (np.maximum, self.highs))
        ]
        return _Cells(self.shift + bits, keys, *reduced)

    def tells_of(self, others: "_Cells", keys: Integers) -> bool:
        """Whether these groups, found again under `keys`, are the others: as many records, between the same positions."""
        pairs = ((self.keys, keys), (self.counts, others.counts), (self.lows, others.lows), (self.highs, others.highs))
        return all(np.array_equal(mine, theirs) for mine, theirs in pairs)


class EngineRanks:
    """Ranks of the records of one column that an engine counts, see `dpgen.discretized.Ranks`.

    A scan groups records by the leading bits of their position, and tells of every group how many records it has, its
    least and its last position. Groups that are asked about, and hold more than one position, are split by the next
    scan. What a scan finds must add up to what the one before found, or the table has changed.

    Arguments:
        table: where the records are.
        positions: an Ibis table with the column `position`, int64 in [0, N).
        N: size of the grid.
        cells: what the first scan found.
    """

    def __init__(self, table: EngineTable, positions: "ir.Table", N: int, cells: _Cells) -> None:
        self._table, self._positions, self._bits = table, positions, (N - 1).bit_length()
        self._levels = [cells]

    def __len__(self) -> int:
        return sum(int(level.counts.sum()) for level in self._levels)

    def _atoms(self) -> tuple[Integers, Integers, Integers]:
        """Least and last positions (m,) of all groups, increasing, and the ranks (m + 1,) of their starts and the end."""
        lows, highs, counts = (
            np.concatenate([getattr(level, name) for level in self._levels]) for name in ("lows", "highs", "counts")
        )
        order = np.argsort(lows, kind="stable")
        return lows[order], highs[order], np.concatenate([[0], np.cumsum(counts[order])]).astype(np.int64)

    def outline(self, threshold: int, decay: int) -> tuple[Integers, Integers]:
        """See `Ranks.outline`: heavy groups are split until each is one position or light."""
        while True:
            for number, level in enumerate(self._levels):
                least = threshold + (self._bits - level.shift - 1) * decay
                heavy = (level.counts > max(least, 0)) & (level.lows < level.highs)
                if heavy.any():
                    self._split(number, heavy)
                    break
            else:
                lows, _, ranks = self._atoms()
                return lows, ranks

    def below(self, positions: npt.ArrayLike) -> Integers:
        """See `Ranks.below`: one scan of the groups in which positions lie, for each level of them."""
        asked = np.asarray(positions, np.int64)
        lows, highs, ranks = self._atoms()
        group = np.searchsorted(lows, asked, side="left") - 1  # the last one that begins below
        found = ranks[group + 1]
        inside = (group >= 0) & (asked <= highs[group])
        if inside.any():
            cuts = np.unique(asked[inside])
            found[inside] = (ranks[np.searchsorted(lows, cuts) - 1] + self._within(cuts))[np.searchsorted(cuts, asked[inside])]
        return found

    def in_order(self) -> Integers:
        """See `Ranks.in_order`."""
        lows, ranks = self.outline(0, 0)
        return np.repeat(lows, np.diff(ranks))

    def _within(self, cuts: Integers) -> Integers:
        """Records below each cut (m,) in the group around it."""
        found = np.zeros(len(cuts), np.int64)
        for level in self._levels:
            row = np.searchsorted(level.keys, cuts >> level.shift)
            row[row == len(level.keys)] = 0
            mine = np.flatnonzero((level.keys[row] == cuts >> level.shift) & (level.lows[row] < cuts)) if len(row) else row
            if not len(mine):
                continue
            asked = self._table.memory(cell=cuts[mine] >> level.shift, cut=cuts[mine])
            rows = self._positions.mutate(cell=_shifted(self._positions.position, level.shift)).join(asked, "cell")
            lower = (rows.position < rows.cut).ifelse(1, 0).sum().cast("int64")
            sums = rows.group_by(cell="cut").aggregate(
                lower=lower, count=rows.count(), low=rows.position.min(), high=rows.position.max()
            )
            table = self._table.fetch(sums, "counts at cell ends").sort_by("cell")
            self._require(_cells(table, level.shift).tells_of(level[row[mine]], cuts[mine]))
            found[mine] = table["lower"].to_numpy()
        return found

    def _split(self, number: int, heavy: npt.NDArray[np.bool_]) -> None:
        """Replace groups of one level by finer ones."""
        level = self._levels[number]
        chosen = level[heavy]
        spread = int(np.bitwise_xor(chosen.lows, chosen.highs).max()).bit_length()  # bits that they still differ in
        room = max(_GROUPS - (len(chosen.keys) - 1).bit_length(), _FEWEST)
        shift = max(spread - room, 0)
        rows = self._positions.mutate(parent=_shifted(self._positions.position, level.shift))
        if len(chosen.keys) < len(level.keys) or len(self._levels) > 1:
            rows = rows.semi_join(self._table.memory(parent=chosen.keys), "parent")
        finer, _ = group_cells(self._table, rows, shift, f"counts of 2^{self._bits - shift} cells")
        self._require(finer.coarser(level.shift - shift).tells_of(chosen, chosen.keys))
        self._levels[number] = level[~heavy]
        self._levels.append(finer)

    def _require(self, same: bool) -> None:
        if not same:
            raise ValueError(CHANGED.format(self._table.name))


def _shifted(position: Any, shift: int) -> Any:
    return position >> shift if shift else position


def group_cells(table: EngineTable, rows: "ir.Table", shift: int, stage: str) -> tuple[_Cells, Counter[int]]:
    """Groups of the column `position` that agree in all but `shift` bits, and how many rows have each `mark` above 0, if any.

    Rows of a mark are a group of the scan, so marks cost no sums beside; where these have a position, it is one for all, and
    they count in its cell.
    """
    cell = _shifted(rows.position, shift)
    if "mark" in rows.columns:
        cell = (rows.mark == 0).ifelse(cell, -rows.mark)
    sums = rows.group_by(cell=cell).aggregate(count=rows.count(), low=rows.position.min(), high=rows.position.max())
    found = table.fetch(sums, stage)
    cells = found["cell"].to_numpy(zero_copy_only=False)
    marks = Counter({int(-mark): count for mark, count in zip(cells[cells < 0], found["count"].to_numpy()[cells < 0].tolist())})
    placed = _cells(found.filter(found["low"].is_valid()), shift)
    if (placed.keys < 0).any():
        keys = np.where(placed.keys < 0, placed.lows >> shift, placed.keys)
        placed = _Cells(shift, keys, placed.counts, placed.lows, placed.highs)[np.argsort(keys, kind="stable")].coarser(0)
    return placed, marks


def _cells(found: "pyarrow.Table", shift: int) -> _Cells:
    columns = [found[name].to_numpy().astype(np.int64, copy=False) for name in ("cell", "count", "low", "high")]
    order = np.argsort(columns[0], kind="stable")
    return _Cells(shift, *(column[order] for column in columns))
