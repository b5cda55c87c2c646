"""The loader of mixed tables that stay in an engine: its rows as codes of a public schema, made where they are read."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow
import torch

from dpgen.containers import Form, InMemory
from dpgen.data.batches import EngineBatches, frames, whole_groups
from dpgen.data.engines import EngineTable, open_table
from dpgen.data.split import Split
from dpgen.data.tables import Table, form_of_samples
from dpgen.data.units import People
from dpgen.schema import Schema


def load_sql_table(
    *,
    source: str,
    table: str | None = None,
    schema: dict[str, Any] | str | None = None,
    show_values: bool = False,
    people: People | None = None,
) -> Table:
    """A table in DuckDB, of parquet or csv files larger than memory, or in Spark, whose values satisfy a public schema.

    It is read once. What is kept are codes, one or two bytes a value: of DuckDB in a temporary file, of Spark on its
    executors. No rows are held out for evaluation.

    Arguments:
        source: a DuckDB file, or parquet or csv files, as in "visits/*.parquet".
        table: of the DuckDB file; it may be left out where there is one.
        schema: file of the public Table Schema in JSON or YAML, or the schema itself; `dpgen schema FILE` drafts one.
        show_values: whether an error shows the first private value that the schema forbids.

    Raises:
        ValueError: no such source, table or column, no schema, or values outside of it.
    """
    if schema is None:
        raise ValueError("schema is None; it must be the public schema of the table; dpgen schema FILE drafts one from a file")
    public = Schema.from_descriptor(schema)
    opened = open_table(source, table, text=None, missing=public.missing_values)
    given = {field.name for field in public.fields if field not in public.modelled}
    columns = opened.schema.names
    wanted = [name for name in columns if name in given] + [field.name for field in public.modelled]
    if people is not None and people.column in wanted:
        raise ValueError(f"unit is {people.column!r}; it must be no field of the schema")
    rows = opened.columns(wanted if people is None else [*wanted, people.column])
    read = partial(_codes, schema=public, show=show_values, people=people)
    batches = EngineBatches(rows, read, by=None if people is None else people.column)
    codes = batches.kept(len(public.modelled), max(public.domain.sizes))
    if not len(codes):
        raise ValueError(f"{opened.name} is empty: it has {len(columns)} columns and no record")
    return Table(
        name=opened.name,
        codes=codes,
        schema=public,
        test_codes=torch.empty(0, len(public.modelled), dtype=torch.int64),
        facts=(*public.facts, *opened.kept_facts, Split(0.0).fact("rows")),
        form=_form(opened, public, [name for name in columns if name in wanted]),
    )


def _codes(
    batches: Iterable[pyarrow.RecordBatch], schema: Schema, show: bool, people: People | None
) -> Iterator[npt.NDArray[np.int64]]:
    """Codes of the rows of each batch that are used."""
    encode = partial(schema.encode, show=show, numbered=False)
    if people is None:
        for table in frames(batches):
            yield encode(table).numpy()
        return
    for table in whole_groups(frames(batches), people.column):
        codes = pd.DataFrame(encode(table.drop(columns=people.column)).numpy())
        yield people.bounded(codes.assign(**{people.column: table[people.column]}))[0].to_numpy()


def _form(table: EngineTable, schema: Schema, names: list[str]) -> Form:
    """The form of samples, by the types of the columns."""
    empty = table.schema.empty_table()
    types = tuple(map(str, empty.to_pandas().dtypes))
    form = Form(container="pandas", names=tuple(empty.column_names), types=types)
    return form_of_samples(InMemory(table.name, empty, form), schema, names)
