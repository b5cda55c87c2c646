"""Public rows beside a private table: those that a fit starts from."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpgen.columns.forms import Violation
from dpgen.containers import InMemory
from dpgen.data.raw_tables import TEXT_TYPES, RawTable, type_of
from dpgen.data.table_files import MISSING, existing_file, header, read_table, require_columns
from dpgen.data.tables import Table
from dpgen.schema import Schema


def with_prior(data: Table | RawTable, prior: str) -> Table | RawTable:
    """The data with the rows of a public table of the same columns; with a release, which a fit reads itself, as they are.

    ValueError for a table that lacks a column, or has one of another type.
    """
    if not isinstance(prior, InMemory) and Path(prior).is_dir():
        return data
    known = data.draft["fields"] if isinstance(data, RawTable) else data.schema.descriptor()["fields"]
    fields = {str(given["name"]): given for given in known}
    if not isinstance(prior, InMemory):
        existing_file(prior, option="prior")
    found, schema = header(prior), None if isinstance(data, RawTable) else data.schema
    names = [name for name in fields if schema is None or name in schema.domain.names]
    require_columns("prior", names, found)
    for name in names:
        _require_type(name, fields[name], found[name])
    rows = read_table(prior, names, text=names, missing=MISSING if schema is None else schema.missing_values)
    if not len(rows):
        raise ValueError("prior has no rows; it must have one at least")
    if schema is not None:
        _require_values(schema, rows)
    return replace(data, prior=rows)


def _require_type(name: str, field: Mapping[str, Any], text: str) -> None:
    """Refuse a column whose public type is another one than that of the private table."""
    kind, own = type_of(text), str(field.get("type", "any"))
    alike = {frozenset(("integer", "number")), frozenset(("integer", "year")), frozenset(("date", "datetime"))}
    if text in (*TEXT_TYPES, "dictionary") or own in ("any", "string") or kind == own or frozenset((kind, own)) in alike:
        return
    raise ValueError(f"column {name!r} of prior is of type {kind}; it must be {own}, as in the private table")


def _require_values(schema: Schema, rows: Any) -> None:
    """Refuse a column none of whose values is one of the schema."""
    typed = schema.typed(rows)
    for given in schema.modelled:
        values = typed[given.name].dropna()
        if not len(values):
            if rows[given.name].notna().any():
                raise ValueError(f"column {given.name!r} of prior has no value of type {given.type}")
            continue
        try:
            fits = bool((given.encode(values) >= 0).any())
        except Violation:
            fits = False
        if not fits:
            raise ValueError(f"column {given.name!r} of prior has no value that the schema allows: {given.limits}")
