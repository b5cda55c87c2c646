"""Records that stay in an engine, as batches: read one after the other, or added up by the executors of a cluster.

What a record adds to a sum is a function of this record alone, and sums are whole numbers: so it makes no difference who reads
which batch, and in which order. DuckDB hands its batches to this process. Spark runs the same code on its executors
(`mapInArrow`), where only the sum of a partition leaves; a partition that is read again, after an executor was lost, is counted
once.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from random import Random
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow
import torch
from pyarrow import compute
from torch import Tensor

from dpgen.columns.fields import LengthField
from dpgen.columns.forms import Different, tallied
from dpgen.data.engines import CHANGED, MEMORY, EngineTable, own_tables
from dpgen.data.split import People
from dpgen.data.table_files import frame_of

if TYPE_CHECKING:
    from dpgen.schema import Schema

Codes = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]
Part = Callable[[Iterable[Any]], Tensor]

ROWS = 2**16
"""Rows of a batch."""
_AT_ONCE = 2**20


@dataclass(frozen=True, eq=False)
class EngineBatches:
    """Rows of a table as batches, a source of records for `dpgen.privacy.exact_sums.totals`.

    `read` makes batches of records of batches of pyarrow, in any order, wherever the rows are. Rows with one value of the
    column `by` come one after the other. `count` is of all rows, None: not known.
    """

    table: EngineTable
    read: Callable[[Iterable[pyarrow.RecordBatch]], Iterator[Any]]
    by: str | None = None
    size: int = ROWS
    count: int | None = None

    def __iter__(self) -> Iterator[Any]:
        def all_rows() -> Iterator[pyarrow.RecordBatch]:
            seen = 0
            for batch in self.table.sorted(self.by).batches(self.size, "read"):
                seen += len(batch)
                yield batch
            self._require(seen)

        return self.read(all_rows())

    def _require(self, seen: int) -> None:
        if self.count not in (None, seen):
            raise ValueError(CHANGED.format(self.table.name))

    def each(self, change: Callable[[Any], Any]) -> "EngineBatches":
        """These rows, each batch of records changed."""
        read = self.read
        return replace(self, read=lambda batches: map(change, read(batches)))

    def totals(self, part: Part) -> Tensor:
        """See `dpgen.privacy.exact_sums.totals`."""
        if not self.table.spark:
            return part(self)
        total, seen = _added_up(self.table.sorted(self.by), self.read, part)
        self._require(seen)
        return total

    def some(self, share: float, seed: int) -> list[Any]:
        """Batches of a random choice of the rows; with `by`, of all rows of some values."""
        return list(self.read(self.table.sampled(share, seed, self.by).sorted(self.by).batches(self.size, "sample")))

    def different(self) -> "Different":
        """The different ones of the values that `read` makes: the engine counts texts, whole numbers are sorted in a file."""
        if self.table.spark:
            return _different(_counted_by_spark(self.table, self.read))
        arrays = iter(self)
        first = next(arrays)
        if first.dtype == np.int64:
            return _sorted(chain([first], arrays))
        return _different(_counted(self.table.name, _tallies(chain([first], arrays))))

    def kept(self, width: int, codes: int) -> "KeptCodes | SparkCodes":
        """Codes (b, width) below `codes` that `read` makes, kept so that they are read and made once."""
        dtype = np.min_scalar_type(codes)
        if not self.table.spark:
            return KeptCodes(self, width, dtype)
        return SparkCodes(self.table.sorted(self.by), self.read, width, dtype)


@dataclass(frozen=True, eq=False)
class GroupedColumn:
    r"""A column whose values an engine has grouped: different ones, PRIVATE, and how many rows have each; both in `groups`.

    What a row adds to a sum depends on its value alone. With :math:`b_j` the bit j of a number of rows, and g what `part` makes
    of values, a sum over the rows is :math:`\sum_j 2^j g(\{v : b_j(n_v) = 1\})`: exactly what reading all of them gives.
    """

    name: str
    groups: pyarrow.Table
    read: Callable[[Iterable[pyarrow.RecordBatch]], Iterator[Any]]

    def _of_bits(self) -> Iterator[tuple[int, list[pyarrow.RecordBatch]]]:
        values, counts = self.groups.select([0]), self.groups.column(1).to_numpy()
        for bit in range(int(counts.max(initial=0)).bit_length()):
            chosen = np.flatnonzero(counts >> bit & 1)
            if len(chosen):
                yield 2**bit, values.take(pyarrow.array(chosen)).combine_chunks().to_batches(ROWS)

    def totals(self, part: Part) -> Tensor:
        """See `dpgen.privacy.exact_sums.totals`."""
        return sum((times * part(self.read(batches)) for times, batches in self._of_bits()), part(()))

    def different(self) -> "Different":
        """See `EngineBatches.different`."""
        tallies = (_tallies(self.read(batches), times) for times, batches in self._of_bits())
        return _different(_counted(self.name, chain.from_iterable(tallies)))


class KeptCodes:
    """Codes (n, width), PRIVATE, in a temporary file without a name, which goes with the process."""

    def __init__(self, batches: Iterable[Codes], width: int, dtype: "np.dtype[Any]") -> None:
        n = 0
        with TemporaryFile(prefix="dpgen-") as file:
            for batch in batches:
                file.write(np.ascontiguousarray(batch, dtype).data)
                n += len(batch)
            file.flush()
            self._codes = np.memmap(file, dtype, "r", shape=(n, width)) if n else np.empty((0, width), dtype)

    def __len__(self) -> int:
        return len(self._codes)

    def __iter__(self) -> Iterator[Codes]:
        for start in range(0, len(self), ROWS):
            yield np.array(self._codes[start : start + ROWS])

    def totals(self, part: Part) -> Tensor:
        """See `dpgen.privacy.exact_sums.totals`."""
        return part(self)

    def ranks(self, column: int, size: int) -> "CodeRanks":
        """Ranks of a column of positions in [0, size), which are sorted in a temporary file of their own, 8 bytes each."""
        with TemporaryFile(prefix="dpgen-") as file:
            values = np.memmap(file, np.int64, "w+", shape=(len(self),))
        start = 0
        for batch in self:
            values[start : start + len(batch)] = batch[:, column]
            start += len(batch)
        values.sort()
        return CodeRanks(lambda cuts: np.searchsorted(values, cuts), lambda: values, len(self), size)

    def some(self, most: int, seed: int) -> Tensor:
        """At most so many of the codes, a random choice, int64 (m, width)."""
        chosen = np.sort(Random(seed).sample(range(len(self)), min(most, len(self))))
        return torch.from_numpy(self._codes[chosen].astype(np.int64))


def _below(batches: Iterable[Codes], cuts: Integers, column: int) -> Tensor:
    """Codes of a column below each of increasing cuts (m,)."""
    found = np.zeros(len(cuts) + 1, np.int64)
    for batch in batches:
        found += np.bincount(np.searchsorted(cuts, batch[:, column], side="right"), minlength=len(found))
    return torch.from_numpy(np.cumsum(found)[:-1])


_SPLIT = 20  # bits: cells of one question, at most 2^20
_FEWEST = 4  # bits that a question resolves in any case


@dataclass(frozen=True, eq=False)
class CodeRanks:
    """Ranks of kept positions, see `dpgen.columns.discretized.Ranks`.

    `below` counts the records below each position (m,), `in_order` gives all of them, sorted; all are below `size`, N.
    """

    below: Callable[[Any], Integers]
    in_order: Callable[[], Integers]
    n: int
    size: int

    def __len__(self) -> int:
        return self.n

    def outline(self, threshold: int, decay: int) -> tuple[Integers, Integers]:
        """See `Ranks.outline`: heavy cells are split until each is one position or light."""
        shift = (self.size - 1).bit_length()
        bits, cells, counts = shift, np.zeros(1, np.int64), np.array([self.n])
        found: list[tuple[Integers, Integers]] = []
        while True:
            heavy = (counts > max(threshold + (bits - shift - 1) * decay, 0)) & (shift > 0)
            found.append((cells[~heavy], counts[~heavy]))
            if not heavy.any():
                break
            step = min(shift, max(_SPLIT - int(heavy.sum() - 1).bit_length(), _FEWEST))
            starts = cells[heavy][:, None] + (np.arange(2**step + 1, dtype=np.int64) << (shift - step))
            counts = np.diff(self.below(starts.ravel()).reshape(starts.shape), axis=1).ravel()
            cells, shift = starts[:, :-1].ravel(), shift - step
            cells, counts = cells[counts > 0], counts[counts > 0]
        starts, counts = (np.concatenate(parts) for parts in zip(*found))
        order = np.argsort(starts)[counts[np.argsort(starts)] > 0]
        return starts[order], np.concatenate([[0], np.cumsum(counts[order])])


# -- different values --------------------------------------------------------------------------------------------------


def _different(table: EngineTable) -> Different:
    """Different values of a table of value and n."""

    def ordered(name: str, least: int) -> EngineTable:
        """One of the columns in the order of the values, of those with counts of `least` or more."""
        found = table.filtered(f"n >= {least}")
        rows = found.rows.orderBy("value") if found.spark else found.rows.order("value")
        return replace(found, rows=rows).columns([name])

    each = (batch.column(0).to_numpy() for batch in ordered("n", 0).batches(_AT_ONCE, "values"))
    counts = np.concatenate([np.zeros(0, np.uint8), *(own.astype(np.min_scalar_type(own.max(initial=0))) for own in each)])

    def named(places: Integers) -> npt.NDArray[Any]:
        least = min(map(int, counts[places]), default=2**62)  # of all that are at least as frequent, which come here
        found = ordered("value", least).fetch("values")["value"].to_numpy()
        return found[np.searchsorted(np.flatnonzero(counts >= least), places)]

    return Different(counts, named)


def _sorted(arrays: Iterable[Integers]) -> Different:
    """Different ones of whole numbers, PRIVATE, which are sorted in a temporary file without a name, 8 bytes each."""
    n = 0
    with TemporaryFile(prefix="dpgen-") as file:
        for own in arrays:
            file.write(np.ascontiguousarray(own).data)
            n += len(own)
        file.flush()
        values = np.memmap(file, np.int64, "r+", shape=(n,)) if n else np.empty(0, np.int64)
    values.sort()
    counts, begun = [np.zeros(0, np.uint8)], 0
    for first in range(0, n, _AT_ONCE):
        part = values[first : first + _AT_ONCE + 1]
        starts = first + 1 + np.flatnonzero(part[1:] != part[:-1])
        ends = starts if first + _AT_ONCE < n else np.append(starts, n)
        own = np.diff(ends, prepend=begun)
        begun = int(ends[-1]) if len(ends) else begun
        counts.append(own.astype(np.min_scalar_type(own.max(initial=0))))
    found = np.concatenate(counts)

    def named(places: Integers) -> Integers:
        rows, row, at = np.empty(len(places), np.int64), 0, 0
        for i in np.argsort(places):
            row, at = row + int(found[at : places[i]].sum(dtype=np.int64)), int(places[i])
            rows[i] = row
        return np.array(values[rows])

    return Different(found, named)


def _counted(name: str, tallies: Iterator[pyarrow.RecordBatch]) -> EngineTable:
    """Different values and their numbers of rows, of those of parts."""
    first = next(tallies)
    counted = "select value, cast(sum(n) as bigint) as n from rows group by value"
    return stored(name, first.schema, chain([first], tallies), counted)


def _counted_by_spark(table: EngineTable, read: Callable[..., Any]) -> EngineTable:
    """Values and counts of Spark's rows, made on its executors."""
    kind = next(_tallies(read([pyarrow.RecordBatch.from_pylist([], table.schema)]))).schema.field("value").type
    made = {"double": "double", "int64": "long"}.get(str(kind), "string")

    def change(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        return _tallies(read(batches))

    counted = replace(table, rows=table.rows.mapInArrow(change, f"value {made}, n long")).grouped(["value"], n="sum(n)")
    return replace(counted, rows=counted.rows.persist())


def _tallies(arrays: Iterable[npt.NDArray[Any]], times: int = 1) -> Iterator[pyarrow.RecordBatch]:
    """Different values of each array, and how often each is there, of an array that is there `times`."""
    for values in arrays:
        found, counts = tallied(values)
        counts = times * counts
        kind = pyarrow.string() if found.dtype.kind == "O" else None
        yield pyarrow.record_batch({"value": pyarrow.array(found, kind), "n": pyarrow.array(counts, pyarrow.int64())})


def bounded_rows(table: EngineTable, people: People) -> EngineTable:
    """The rows of a table that are used of its people, without their column, kept where the engine keeps what it makes."""
    sorted_rows = table.sorted(people.column)
    names = [name for name in table.schema.names if name != people.column]
    kept = pyarrow.schema([table.schema.field(name) for name in names])

    def bounded(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for rows in frames(batches, people):
            yield pyarrow.RecordBatch.from_pandas(people.bounded(rows)[0], kept, preserve_index=False)

    if table.spark:
        types = table.rows.select(*map(table.quoted, names)).schema
        return replace(table, rows=sorted_rows.rows.mapInArrow(bounded, types).persist())
    return stored(table.name, kept, bounded(sorted_rows.batches(ROWS, "read")))


def stored(
    name: str,
    schema: pyarrow.Schema,
    batches: Iterable[pyarrow.RecordBatch],
    query: str = "select * from rows",
    memory: str = MEMORY,
) -> EngineTable:
    """Batches, or a query of them, in a table of DuckDB, on disk where it is large; what they refuse is refused as they say."""
    failed: list[Exception] = []  # DuckDB would put it into an error of its own, with a traceback

    def given() -> Iterator[pyarrow.RecordBatch]:
        try:
            yield from batches
        except Exception as error:
            failed.append(error)
            raise

    connection = own_tables(memory)
    connection.register("rows", pyarrow.RecordBatchReader.from_batches(schema, given()))
    try:
        connection.execute(f"create temp table kept as {query}")
    except Exception:
        if not failed:
            raise
        if isinstance(failed[0], pyarrow.ArrowException):  # may quote a value
            raise ValueError(f"{name} has a value that does not fit the type of its column") from None
        raise failed[0] from None
    return EngineTable(name, connection.table("kept"), {}, True, connection)


# -- spark -------------------------------------------------------------------------------------------------------------


class SparkCodes:
    """Codes (n, width), PRIVATE, that executors of Spark made of batches of rows by `read`, and keep."""

    def __init__(self, table: EngineTable, read: Callable[..., Any], width: int, dtype: "np.dtype[Any]") -> None:
        def made(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            return _rows_or_error((np.ascontiguousarray(codes, dtype).tobytes(), len(codes)) for codes in read(batches))

        def again(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[Codes]:
            for batch in batches:
                for content, error in zip(batch["content"], batch["error"]):
                    if error.as_py():
                        raise ValueError(error.as_py())
                    yield np.frombuffer(content.as_buffer(), dtype).reshape(-1, width)

        self._table = replace(table, rows=table.rows.mapInArrow(made, _RESULT).persist())
        self._read, self._width = again, width
        self._n = int(self.totals(lambda batches: torch.tensor(sum(len(batch) for batch in batches))))

    def __len__(self) -> int:
        return self._n

    def totals(self, part: Part) -> Tensor:
        """See `dpgen.privacy.exact_sums.totals`."""
        return _added_up(self._table, self._read, part)[0]

    def ranks(self, column: int, size: int) -> "CodeRanks":
        """Ranks of a column of positions in [0, size): every question is one scan on the executors."""

        def below(cuts: Integers) -> Integers:
            distinct, back = np.unique(cuts, return_inverse=True)
            return self.totals(partial(_below, cuts=distinct, column=column)).numpy()[back]

        return CodeRanks(below, lambda: np.sort(self._rows(lambda codes, _: codes[:, [column]], 1)[:, 0]), self._n, size)

    def some(self, most: int, seed: int) -> Tensor:
        """At most so many of the codes, a random choice, int64 (m, width)."""
        share = min(1.0, most / max(1, self._n))
        return torch.from_numpy(self._rows(lambda codes, rng: codes[rng.random(len(codes)) < share], self._width, seed)[:most])

    def _rows(self, change: Callable[..., Codes], width: int, seed: int = 0) -> Integers:
        """Rows of codes here, changed one batch after the other with the help of public randomness."""
        read = self._read

        def chosen(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            from pyspark import TaskContext

            context = TaskContext.get()
            rng = np.random.default_rng([seed, 0 if context is None else int(context.partitionId())])
            picked = (change(codes, rng).astype(np.int64) for codes in read(batches))
            return _rows_or_error((codes.tobytes(), len(codes)) for codes in picked)

        found = _mapped(self._table, chosen, "sample")
        rows = [np.frombuffer(content.as_buffer(), np.int64) for content in found["content"]]
        return np.concatenate([*rows, np.empty(0, np.int64)]).reshape(-1, width)


_RESULT = "content binary, error string, rows long"


def _rows_or_error(rows: Iterable[tuple[bytes, int]]) -> Iterator[pyarrow.RecordBatch]:
    """Rows of the columns of `_RESULT`, and what was refused while they were made: an executor's error would be a page."""
    try:
        for content, count in rows:
            yield _result(content, "", count)
    except ValueError as error:
        yield _result(b"", str(error), 0)


def _result(content: bytes, text: str, rows: int) -> pyarrow.RecordBatch:
    columns = pyarrow.array([content], pyarrow.binary()), pyarrow.array([text], pyarrow.string()), pyarrow.array([rows])
    return pyarrow.record_batch(dict(zip(("content", "error", "rows"), columns)))


def _mapped(table: EngineTable, change: Callable[..., Any], stage: str) -> pyarrow.Table:
    """Rows of the columns of `_RESULT` that `change` makes of each partition, on the executors."""
    return replace(table, rows=table.rows.mapInArrow(change, _RESULT)).fetch(stage)


def _added_up(table: EngineTable, read: Callable[..., Iterable[Any]], part: Part) -> tuple[Tensor, int]:
    """The sum over partitions of what `part` makes of each, and how many rows they had."""

    def partial(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        seen = [0]

        def counted() -> Iterator[pyarrow.RecordBatch]:
            for batch in batches:
                seen[0] += len(batch)
                yield batch

        return _rows_or_error((part(each).numpy().tobytes(), seen[0]) for each in (read(counted()),))

    total = part(())  # zeros of its shape
    found = _mapped(table, partial, "sums of partitions")
    for content, error in zip(found["content"], found["error"]):
        if error.as_py():
            raise ValueError(error.as_py())
        total = total + torch.from_numpy(np.frombuffer(content.as_buffer(), np.int64).copy()).reshape(total.shape)
    return total, sum(found["rows"].to_pylist())


# -- tables ------------------------------------------------------------------------------------------------------------


def frames(batches: Iterable[pyarrow.RecordBatch], people: People | None = None) -> Iterator[pd.DataFrame]:
    """Batches as tables of pandas, typed as those of a parquet file, with all rows of a person in one of them."""
    tables = map(frame_of, batches)
    return tables if people is None else whole_groups(tables, people.column)


def whole_groups(tables: Iterable[pd.DataFrame], by: str) -> Iterator[pd.DataFrame]:
    """Rows cut so that those with one value of a column, which lie one behind the other, are in one table."""
    left: list[pd.DataFrame] = []  # rows of one value, whose others may follow
    for table in tables:
        if not len(table):
            continue
        values = table[by]
        if left and left[-1][by].iloc[-1] != values.iloc[0]:
            yield pd.concat(left, ignore_index=True)
            left = []
        last = int((values != values.iloc[-1]).to_numpy().nonzero()[0].max(initial=-1)) + 1  # where the last group begins
        if last:
            yield pd.concat([*left, table.iloc[:last]], ignore_index=True)
            left = []
        left.append(table.iloc[last:])
    if left:
        yield pd.concat(left, ignore_index=True)


# -- rows of mixed tables ----------------------------------------------------------------------------------------------

_MOST_VALUES = {True: 2**18, False: 2**22}  # of a column that DuckDB groups: texts, and others
_FEWEST_ROWS = 8  # of each of them on average
_PLAIN = re.compile("u?int|float|double|bool|date|timestamp|string|large_string")
_LARGE = 2**18  # rows of a batch whose different values are coded


class EngineRows:
    """Private rows of a table as they are, in an engine, which reads them anew for every sum.

    DuckDB groups a column whose values repeat, once: sums over the rows are made of its different values, see `GroupedColumn`.
    """

    def __init__(self, source: EngineTable) -> None:
        self.source = source
        self._n = source.count()
        self._groups = dict[str, pyarrow.Table]()

    def __len__(self) -> int:
        return self._n

    def _batches(self, names: list[str], change: Callable[[pd.DataFrame], npt.NDArray[Any]]) -> EngineBatches:
        return EngineBatches(self.source.columns(names), partial(_each, change=change), count=self._n)

    def column(self, name: str, read: Callable[[pd.Series], Codes]) -> EngineBatches | GroupedColumn:
        """The values of a column that count: `read` gets values (m,), and returns at most m, each of one of them."""
        if name in self._grouped:
            return GroupedColumn(self.source.name, self._of(name), partial(_each, change=lambda table: read(table[name])))
        return self._batches([name], lambda table: read(table[name]))

    @cached_property
    def _grouped(self) -> frozenset[str]:
        """Columns that DuckDB groups, by about how many different values they have; sums are the same either way."""
        if self.source.spark:
            return frozenset()
        plain = [field for field in self.source.schema if _PLAIN.match(str(field.type))]
        asked = {f"c{i}": f"approx_count_distinct({self.source.quoted(field.name)})" for i, field in enumerate(plain)}
        found = self.source.grouped([], **asked).fetch("different values").to_pylist()[0] if asked else {}
        most = {field.name: min(self._n // _FEWEST_ROWS, _MOST_VALUES["string" in str(field.type)]) for field in plain}
        return frozenset(field.name for field, about in zip(plain, found.values()) if about <= most[field.name])

    def _of(self, name: str) -> pyarrow.Table:
        """The different values of a column that is grouped, and how many rows have each."""
        if name not in self._groups:
            grouped = self.source.columns([name]).grouped([name], **{f"rows of {name}": "count(*)"})
            found = self._groups[name] = grouped.fetch("different values")
            if compute.sum(found.column(1)).as_py() != self._n:
                raise ValueError(CHANGED.format(self.source.name))
        return self._groups[name]

    def together(self, names: list[str], read: Callable[[pd.DataFrame], npt.NDArray[Any]]) -> EngineBatches:
        """Values that `read` makes of the rows (m,) of some columns: m values or rows of values at most, each of one row."""
        return self._batches(names, read)

    def require(self, schema: "Schema") -> None:
        """Refuse rows that contradict a schema, see `Schema.require`."""

        def checked(table: pd.DataFrame) -> npt.NDArray[Any]:
            schema.require(table, alone)
            return np.zeros(len(table), np.int64)

        names, single = [name for name in self.source.schema.names if name in schema.checked], self._grouped - schema.tied
        alone = [name for name in names if name in single]
        for name in alone:
            for table in frames(self._of(name).select([0]).to_batches(ROWS)):
                schema.require_values(name, table[name])
        if names := [name for name in names if name not in alone]:
            self._batches(names, checked).totals(lambda batches: torch.tensor(sum(map(len, batches))))

    def codes(self, schema: "Schema") -> "KeptCodes | SparkCodes":
        """Codes of a complete schema (n, d)."""
        names = [field.name for field in schema.modelled]
        read = partial(_coded, schema=schema)
        batches = EngineBatches(self.source.columns(names), read, size=_LARGE, count=self._n)
        return batches.kept(len(names), max(schema.domain.sizes))

    def some(self, most: int, seed: int) -> pd.DataFrame:
        """About so many of the rows at most, in memory."""
        found = EngineBatches(self.source, frames).some(min(1.0, most / max(1, self._n)), seed)
        return pd.concat(found, ignore_index=True) if found else self.source.schema.empty_table().to_pandas()


def _each(batches: Iterable[pyarrow.RecordBatch], change: Callable[[pd.DataFrame], Any]) -> Iterator[Any]:
    return map(change, frames(batches))


def _coded_alone(schema: "Schema") -> set[str]:
    """Columns whose codes depend on no other column."""
    fields = schema.modelled
    tied = {name for field in fields if isinstance(field, LengthField) for name in (field.name, field.base)}
    return {field.name for field in fields} - tied


def _coded(batches: Iterable[pyarrow.RecordBatch], schema: "Schema") -> Iterator[npt.NDArray[np.int64]]:
    """Codes (m, d) of the rows of each batch, as `Schema.codes` has them: different values of a column are coded once."""
    repeating = _coded_alone(schema)  # columns whose values repeat in batches
    for batch in batches:
        own = {name: batch[name].dictionary_encode("encode") for name in repeating if _PLAIN.match(str(batch[name].type))}
        yield _codes(batch, own, schema)
        repeating -= {name for name, found in own.items() if 2 * len(found.dictionary) > len(batch)}


def _codes(batch: pyarrow.RecordBatch, own: Mapping[str, Any], schema: "Schema") -> npt.NDArray[np.int64]:
    """Codes (m, d) of a batch, some of whose columns are dictionaries."""
    names = [field.name for field in schema.modelled]
    codes, rest = np.empty((len(batch), len(names)), np.int64, order="F"), list[int]()
    for c, name in enumerate(names):
        if name not in own:
            rest.append(c)
            continue
        values = frame_of(pyarrow.table({name: own[name].dictionary}))
        codes[:, c] = schema.codes_of([name], values)[own[name].indices.to_numpy(), 0]
    if rest:
        others = [names[c] for c in rest]
        codes[:, rest] = schema.codes_of(others, frame_of(batch.select(others)))
    return codes
