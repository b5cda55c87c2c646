"""Loaders of tables that stay in an engine: columns as ranks, events as counts of users, records as bytes on disk."""

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd

from dpgen.containers import Form
from dpgen.data.columns import Bound, ColumnReader, Columns, OutOfRange, column_facts, column_readers
from dpgen.data.engines import CHANGED, EngineRanks, EngineTable, group_cells, open_table
from dpgen.data.events import EventColumns, Known, PriorName, named_events, users_from_events
from dpgen.data.split import Split
from dpgen.data.table_files import MISSING_CATEGORY, Missing, column_names
from dpgen.data.units import People
from dpgen.data.users import Users
from dpgen.discretized import DECIMAL, DiscretizedColumn

if TYPE_CHECKING:
    import ibis.expr.types as ir

_MOST_CATEGORIES = 4096
_MICROSECONDS = 10**6
_ABSENT, _BROKEN, _BELOW, _ABOVE = 1, 2, 3, 4  # marks of values that are not on the grid; the bounds are, of the last two

# -- columns -----------------------------------------------------------------------------------------------------------


def load_sql_columns(
    *,
    source: str,
    table: str | None = None,
    columns: list[str] | str = "x",
    low: Bound = None,
    high: Bound = None,
    resolution: Bound = None,
    categories: list[str] | None = None,
    out_of_range: OutOfRange = "refuse",
    missing: Missing = "error",
    people: People | None = None,
) -> Columns:
    """Columns of a table in DuckDB, of parquet or csv files larger than memory, or in Spark, which the engine counts.

    Arguments:
        source: a DuckDB file, or parquet or csv files, as in "visits/*.parquet".
        table: of the DuckDB file; it may be left out where there is one.
        columns: names of the columns to use, a list or "x,y".
        low: public lower bound, a number or an ISO date; or one for each column.
        high: public upper bound, likewise.
        resolution: public step of the grid, for dates in seconds; without it numbers must be whole.
        categories: all names in their order, for categorical columns; bounds are not used then.
        out_of_range: "refuse" values outside the bounds, or "clamp" them and release their noisy number.
        missing: "error", or "drop" records with a missing value, or let it be a "category" behind the others.

    Raises:
        ValueError: no such source, table or column, a value that is missing, not on the grid or outside the bounds, bad bounds,
            or a table that changed while it was read.
    """
    if missing not in get_args(Missing):
        raise ValueError(f"missing is {missing!r}; it must be one of {', '.join(get_args(Missing))}")
    if missing == "category" and categories is not None and MISSING_CATEGORY not in categories:
        categories = [*categories, MISSING_CATEGORY]
    names = column_names(columns)
    readers = column_readers(names, low=low, high=high, resolution=resolution, categories=categories, out_of_range=out_of_range)
    opened = open_table(source, table, text=[] if people is None else [people.column])
    types = opened.columns(names).schema()
    placed = _on_grids(opened, readers, missing, people)
    ranks = [_ranks(opened, placed, i, reader, missing) for i, reader in enumerate(readers)]
    if people is not None:
        bounded = opened.kept(_of_people(placed, readers, people), f"rows of {people.column}")
        ranks = [_ranks(opened, bounded, i, reader, missing) for i, reader in enumerate(readers)]
    clamped = {reader.name: reader.clamped for reader in readers} if out_of_range == "clamp" else None
    if len({len(found) for found in ranks}) > 1:
        raise ValueError(CHANGED.format(opened.name))
    named = {} if categories is None else dict.fromkeys(names, tuple(categories))
    form = Form(container="pandas", names=tuple(names), types=tuple(_pandas_type(types[name]) for name in names))
    return Columns(
        name=opened.name,
        values=dict(zip(names, ranks)),
        domains={reader.name: reader.domain for reader in readers},
        clamped=clamped,
        facts=(*column_facts(out_of_range == "clamp"), *opened.facts, Split(0.0).fact("rows")),
        form=form.of_columns(names, categories=named),
    )


def _pandas_type(kind: Any) -> str:
    return str(kind).lstrip("!") if kind.is_integer() or kind.is_floating() else ""


def _absent(value: "ir.Column") -> Any:
    return value.isnull() | value.isnan() if value.type().is_floating() else value.isnull()


def _on_grids(table: EngineTable, readers: list[ColumnReader], missing: Missing, people: People | None) -> "ir.Table":
    """The i-th column as `position i`, null where it has none, and 0 or what is wrong as `mark i`; outside of the bounds
    positions are those of the bounds.

    With people, theirs is the column `person`.

    Raises:
        ValueError: of the schema, or a row has no person.
    """
    names = [reader.name for reader in readers]
    whose = [] if people is None else [people.column]
    if set(whose) & set(names):
        raise ValueError(f"unit is {whose[0]!r}: it must be none of the columns {', '.join(names)}")
    rows = table.columns([*names, *whose])
    if missing == "drop":
        rows = rows.filter(*(~_absent(rows[name]) for name in rows.columns))
    for name in whose:
        lacking = table.fetch(rows.aggregate(rows=rows[name].isnull().sum()), f"check of {name}")["rows"][0].as_py()
        if lacking:
            raise ValueError(f"unit {name!r} has no value in {lacking} rows of {table.name}: every row needs its person")
    owner = {} if people is None else {"person": rows[people.column]}
    made = rows.select(**{f"column {i}": rows[name] for i, name in enumerate(names)}, **owner)
    for i, reader in enumerate(readers):
        value = made[f"column {i}"]
        if reader.domain.kind == "category" and missing == "category":
            value = value.cast("string").fill_null(MISSING_CATEGORY)
        kept = made.columns
        made = _placed(made.mutate(value=value, absent=_absent(value)), reader, table.backend.name)
        outside = made.outside.ifelse((made.position > 0).ifelse(_ABOVE, _BELOW), 0)
        mark = made.absent.ifelse(_ABSENT, made.broken.ifelse(_BROKEN, outside))
        position = (made.absent | made.broken).ifelse(None, made.position)
        made = made.select(*kept, **{f"position {i}": position.cast("int64"), f"mark {i}": mark.cast("int64")})
    return made


def _of_people(placed: "ir.Table", readers: list[ColumnReader], people: People) -> "ir.Table":
    """The rows with the smallest hashes of each person, as `People.kept` chooses them; persons are told apart by their texts.

    Raises:
        ValueError: persons are no whole numbers and no texts.
    """
    import ibis

    kind = placed.person.type()
    people.require_kind(kind, names=kind.is_integer() or kind.is_string())
    text = placed.person.cast("string").replace("\\", "\\\\").replace(",", "\\,")
    for i, reader in enumerate(readers):
        outside = (placed[f"mark {i}"] >= _BELOW).ifelse(1, 0)
        for part in (placed[f"position {i}"], *([outside] if reader.out_of_range == "clamp" else [])):
            text = text + "," + part.cast("string")
    hashed = placed.mutate(rank=(ibis.literal(f"{people.salt},") + text).hexdigest("sha256"))
    ordered = hashed.mutate(place=ibis.row_number().over(group_by=hashed.person, order_by=hashed["rank"]))
    names = [f"{what} {i}" for i in range(len(readers)) for what in ("position", "mark")]
    return ordered.filter(ordered.place < people.most).select(*names)


def _ranks(table: EngineTable, placed: "ir.Table", i: int, reader: ColumnReader, missing: Missing) -> EngineRanks:
    """The first scan of the i-th column: its values checked, and their counts in at most 2^20 cells.

    Raises:
        ValueError: a value is missing, not on the grid or outside the bounds.
    """
    rows = placed.select(position=placed[f"position {i}"], mark=placed[f"mark {i}"])
    bits = (reader.domain.size - 1).bit_length()
    cells, marks = group_cells(table, rows, max(bits - 20, 0), f"check of {reader.name}")
    _require_usable(table, reader, marks, missing)
    reader.clamped = marks[_BELOW] + marks[_ABOVE]
    if not len(cells.keys) and not marks[_ABSENT]:
        raise ValueError(f"{table.name} is empty: it has no record")
    return EngineRanks(table, rows.select("position"), reader.domain.size, cells)


def _require_usable(table: EngineTable, reader: ColumnReader, marks: Counter[int], missing: Missing) -> None:
    where = f"{table.name} column {reader.name!r}"
    absent, broken, outside = marks[_ABSENT], marks[_BROKEN], marks[_BELOW] + marks[_ABOVE]
    if absent:
        if missing == "category":
            raise ValueError(f"{where} has no value in {absent} rows and holds no categories: choose missing=drop")
        choices = "drop or category" if reader.domain.kind == "category" else "drop"
        raise ValueError(f"{where} has no value in {absent} rows: fill them, or choose missing={choices}")
    if broken:
        if reader.domain.kind == "category":
            raise ValueError(f"{where} has {broken} values that are none of the {reader.domain.size} public categories")
        wanted = (
            "no whole numbers: give the public resolution of the column" if reader.whole else "not finite: remove them first"
        )
        raise ValueError(f"{where} has {broken} values that are {wanted}")
    if outside and reader.out_of_range == "refuse":
        bounds = f"[{reader.domain.low}, {reader.domain.high}]"
        raise ValueError(
            f"{where} has {outside} values outside {bounds}: widen the public bounds, or choose out_of_range='clamp'"
        )


# -- events ------------------------------------------------------------------------------------------------------------


def load_sql_events(
    *,
    source: str,
    table: str | None = None,
    user: str = "user",
    category: str = "category",
    weight: str | None = None,
    group: str | None = None,
    only_group: str | None = None,
    categories_path: str | None = None,
    prior: PriorName | None = None,
    prior_path: str | None = None,
    public_path: str | None = None,
    missing: Missing = "error",
) -> Users:
    """Users from a table of events in DuckDB, in parquet or csv files, or in Spark, which the engine adds up.

    One row for each pair of user and category leaves the engine. Categories and prior are as for events of a file.

    Arguments:
        source: a DuckDB file, or parquet or csv files, as in "clicks/*.parquet".
        table: of the DuckDB file; it may be left out where there is one.
        user: column of the user's id, read as text.
        category: column of the category.
        weight: column of how much an event counts, whole numbers >= 0; 1 each without.
        group: column of the user's public group.
        only_group: keep the users of this group.
        categories_path: file of public category names, one a line.
        prior: uniform, file, public or private; without it, the path that is given decides.
        prior_path: file of probabilities.
        public_path: table of public users, a file.
        missing: "error", or "drop" events with a missing value, or let it be a "category", of categories and groups.

    Raises:
        ValueError: no such source, table or column, a category is unknown, or the options contradict each other.
    """
    columns = EventColumns(user, category, weight, group)
    known = Known.of(
        columns,
        private_path=source,
        only_group=only_group,
        categories_path=categories_path,
        prior=prior,
        prior_path=prior_path,
        public_path=public_path,
        missing=missing,
    )
    opened = open_table(source, table, text=[name for name in columns.wanted if name != columns.weight], missing=[""])
    events = named_events(_event_sums(opened, columns, missing), replace(columns, weight=_SUM), missing, source=opened.name)
    users = users_from_events(opened.name, events, known, source=opened.name)
    return users if only_group is None else users.of_group(only_group)


_SUM = "sum of weights"


def _event_sums(table: EngineTable, columns: EventColumns, missing: Missing) -> pd.DataFrame:
    """Sums of weights by user, category and group; whole numbers, so that no order of rows moves them.

    Raises:
        ValueError: the weights are no whole numbers, or one of them is negative or missing.
    """
    import ibis

    rows = table.columns(columns.wanted)
    names = [name for name in columns.wanted if name != columns.weight]
    rows = rows.mutate(**{_SUM: ibis.literal(1) if columns.weight is None else rows[columns.weight]})
    weight = rows[_SUM]
    if not weight.type().is_integer():
        raise ValueError(f"{table.name} column {columns.weight!r} is {weight.type()}; an engine adds up whole numbers only")
    if missing == "drop":
        rows = rows.filter(rows[_SUM].notnull())
        weight = rows[_SUM]
    found = table.fetch(
        rows.group_by(names).aggregate(
            **{_SUM: weight.sum().cast("int64"), "least": weight.min(), "absent": weight.isnull().ifelse(1, 0).sum()}
        ),
        "sums of users",
    ).to_pandas(integer_object_nulls=True)
    if len(found) and (found["absent"].sum() or found["least"].min() < 0):
        raise ValueError(f"{table.name} column {columns.weight!r} has a value that is missing or negative: it must be >= 0")
    return found[[*names, _SUM]]


# -- positions on a grid -----------------------------------------------------------------------------------------------
# The arithmetic of `DiscretizedColumn.encode_clamped`, in expressions that every engine rounds alike: comparisons, integers,
# and floor, sum and product of float64. Each step is a column of its own: a query that repeats it grows with every use.


def _placed(rows: "ir.Table", reader: ColumnReader, engine: str) -> "ir.Table":
    """Rows of a column `value` with its `position` on the grid, moved to the bounds; whether it was `outside` of them; and
    whether it is `broken`: the grid does not hold it at all, nor a missing value.

    Raises:
        ValueError: values of this type are not on a grid of this kind.
    """
    import ibis

    domain, kind = reader.domain, rows.value.type()
    if domain.kind == "category":
        return _category(rows, domain)
    if domain.kind == "date":
        if engine != "duckdb" or not (kind.is_timestamp() or kind.is_date()):
            raise ValueError(f"column {reader.name!r} is {kind} in {engine}; dates must be timestamps in duckdb")
        micros = rows.mutate(broken=ibis.literal(False), value=_epoch_us(rows.value.cast("timestamp")))
        return _whole(micros, domain, _MICROSECONDS)
    if kind.is_integer():
        return _whole(rows.mutate(broken=ibis.literal(False)), domain, 1)
    if kind.is_decimal():
        scale = 10 ** (kind.scale or 0)
        broken = rows.value != rows.value.floor() if reader.whole and scale > 1 else ibis.literal(False)
        return _whole(rows.mutate(broken=broken, value=rows.value * scale), domain, scale)
    if kind.is_floating():
        return _float(rows, reader)
    raise ValueError(f"column {reader.name!r} is {kind}; it must hold numbers: cast it in a view, or give its categories")


def _epoch_us(value: Any) -> Any:
    import ibis

    @ibis.udf.scalar.builtin(name="epoch_us", signature=((ibis.dtype("timestamp"),), ibis.dtype("int64")))
    def epoch_us(_: Any) -> Any: ...

    return epoch_us(value)


def _category(rows: "ir.Table", domain: DiscretizedColumn) -> "ir.Table":
    import ibis

    if domain.size > _MOST_CATEGORIES:
        raise ValueError(f"categories has {domain.size} names; an engine counts at most {_MOST_CATEGORIES}")
    numbered = ((name, number) for number, name in enumerate(domain.categories))
    rows = rows.mutate(position=rows.value.cast("string").cases(*numbered, else_=-1).cast("int64"))
    return rows.mutate(outside=ibis.literal(False), broken=rows.position < 0)


def _whole(rows: "ir.Table", domain: DiscretizedColumn, per: int) -> "ir.Table":
    """Positions of `value / per`, whole numbers."""
    rule = domain.rounding(per)
    if not rule.fits:
        raise ValueError(
            f"the grid from {domain.low} to {domain.high} by {domain.resolution} does not fit 64 bits in units of 1/{per}"
        )
    rows = rows.mutate(below=rows.value < rule.first, above=rows.value > rule.last)
    rows = rows.mutate(outside=rows.below | rows.above)
    rows = rows.mutate(inside=rows.outside.ifelse(rule.first, rows.value).cast("int64"))
    if rule.width == 1:  # every unit from the first to the last is a point of the grid
        rows = rows.mutate(position=rows.inside * rule.times - rule.origin)
    else:
        rows = _nearest(rows.mutate(units=rows.inside * rule.times - rule.origin), rule.width, domain.size)
    return rows.mutate(position=rows.outside.ifelse(rows.below.ifelse(0, domain.size - 1), rows.position))


def _float(rows: "ir.Table", reader: ColumnReader) -> "ir.Table":
    """Positions of floats; those that are not finite, or not whole where they must be, are broken."""
    domain, kind = reader.domain, rows.value.type()
    native = np.float32 if kind.nbytes == 4 else np.float64
    low, high = domain.float_bounds(native)
    if not domain.fits_floats(low, high):
        raise ValueError(f"column {reader.name!r} is {kind}; on a grid of {domain.size} values it must be decimal or whole")
    rows = rows.mutate(value=rows.value.cast("float64"))
    rows = rows.mutate(broken=rows.value.isinf() | rows.value.isnan(), below=rows.value < low, above=rows.value > high)
    rows = rows.mutate(inside=(rows.below | rows.broken).ifelse(low, rows.above.ifelse(high, rows.value)))
    rows = rows.mutate(whole=rows.inside.floor().cast("int64"))
    if reader.whole:
        rows = rows.mutate(broken=rows.broken | (~rows.below & ~rows.above & (rows.inside != rows.whole.cast("float64"))))
    q, start, step = domain.units
    rows = rows.mutate(rest=(rows.inside - rows.whole.cast("float64")) * float(q))
    rows = rows.mutate(
        slack=(rows.inside.abs() * float(q) + 1.0) * (4 * float(np.finfo(native).eps)),
        halves=(rows.rest * 2.0 + 0.5).floor().cast("float64") * 0.5,
    )
    rows = rows.mutate(
        rest=((rows.slack < DECIMAL) & ((rows.rest - rows.halves).abs() <= rows.slack)).ifelse(rows.halves, rows.rest)
    )
    rows = rows.mutate(part=rows.rest.floor().cast("int64"))
    units = rows.whole * q - start + rows.part
    if step % 2:  # cells of an odd number of units end between two units
        units = units + (rows.rest - rows.part.cast("float64") >= 0.5).ifelse(1, 0)
    return _nearest(rows.mutate(units=units, outside=rows.below | rows.above), step, domain.size)


def _nearest(rows: "ir.Table", step: int, size: int) -> "ir.Table":
    rows = rows.mutate(position=rows.units)
    if step > 1:
        rows = divided(rows.mutate(units=rows.units + step // 2), step)
    position = (rows.position < 0).ifelse(0, (rows.position > size - 1).ifelse(size - 1, rows.position))
    return rows.mutate(position=position)


def divided(rows: "ir.Table", step: int) -> "ir.Table":
    """The column `position`, `units` over a step rounded down, exactly: engines divide floats, which remainders correct."""
    if step & (step - 1) == 0:
        return rows.mutate(position=rows.units >> (step.bit_length() - 1))
    rows = rows.mutate(quotient=(rows.units.cast("float64") / float(step)).floor().cast("int64"))
    rows = rows.mutate(over=rows.units - rows.quotient * step)
    rows = rows.mutate(more=(rows.over.cast("float64") / float(step)).floor().cast("int64"))
    rows = rows.mutate(over=rows.over - rows.more * step)
    return rows.mutate(position=rows.quotient + rows.more + (rows.over >= step).ifelse(1, (rows.over < 0).ifelse(-1, 0)))
