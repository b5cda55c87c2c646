r"""Public tables beside private ones: those that keys name (courses, drugs, airports), and rows that a fit starts from.

A row of a private table has a key to a public table, so the domain of the key is known. Each attribute of the public table
groups the keys, and a fit may measure a column beside these groups in place of single keys:

| attribute | groups |
|---|---|
| numbers and dates of more than `MOST` values | `QUANTILES` ranges that hold about equally many lines of the public table |
| other values | the most frequent ones in the public table; the others together are one |
| one value for each line, or one for all | left out: it says no more than the key, or nothing |

**Privacy.** The key is a column of the row, and a group of keys is a function of it and of public data: what is proved of
columns of people and of rows, and of groups of their codes, holds. The public table has no private line.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from dpgen.columns.forms import Violation, texts_of
from dpgen.containers import InMemory
from dpgen.data.links import Key
from dpgen.data.raw_tables import TEXT_TYPES, RawTable, descriptor_of, is_blank, type_of
from dpgen.data.table_files import MISSING, existing_file, header, read_table, require_columns
from dpgen.data.tables import Table
from dpgen.schema import Schema

MOST, QUANTILES = 16, 8


@dataclass(frozen=True)
class PublicKey:
    """A key of a private table to a public one.

    Arguments:
        key: its columns.
        type: "integer" or "string".
        values: of the key, one for each line of the public table.
        groups: numbers of groups, one for each line, by attribute.
    """

    key: Key
    type: str
    values: tuple[Any, ...]
    groups: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, key: Key, source: str, drop: Collection[str] = ()) -> PublicKey:
        """Read the public table of a key; columns in `drop`, as TABLE.COLUMN, group nothing.

        ValueError is raised where the key names no line, or several.
        """
        table = read_table(source, text=[key.other])
        column = table[key.other]
        if not len(table) or column.isna().any() or not column.is_unique:
            raise ValueError(f"public table {key.above!r} must have lines, and each its own {key.other!r}")
        whole = pd.api.types.is_integer_dtype(column)
        values = tuple(map(int, column)) if whole else tuple(texts_of(column))
        named = (name for name in table.columns.drop(key.other) if f"{key.above}.{name}" not in drop)
        groups = {name: of for name in named if (of := groups_of(table[name]))}
        return cls(key, "integer" if whole else "string", values, groups)

    @property
    def field(self) -> dict[str, Any]:
        """The field of the key."""
        return {"name": self.key.column, "type": self.type, "constraints": {"required": True, "enum": list(self.values)}}


def with_keys(schema: Any, public: Sequence[PublicKey]) -> Any:
    """A schema that states the keys to public tables, which are in every row unless it says that they are not required."""
    if not public:
        return schema
    given = descriptor_of(schema)
    stated = {field.get("name"): field for field in given["fields"]}
    for key in public:
        own, field = stated.get(key.key.column, {}), key.field
        rules = {**field["constraints"], **own.get("constraints", {}), "enum": field["constraints"]["enum"]}
        stated[key.key.column] = {**own, **field, "constraints": rules}
    whole = bool(given["fields"]) and all("type" in own and not is_blank(own, given) for own in given["fields"])
    return {"fieldsMatch": "subset" if whole else "partial", **given, "fields": [*stated.values()]}


def groups_of(values: pd.Series) -> tuple[int, ...]:
    """The number of the group of each value of an attribute; empty where none tell lines apart.

    >>> groups_of(pd.Series(["b", "a", "b", None])), groups_of(pd.Series(["a", "b", "c"]))
    ((0, 1, 0, 2), ())
    """
    known = values.dropna()
    distinct = known.nunique()
    number = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    if (number or pd.api.types.is_datetime64_any_dtype(values)) and distinct > MOST:
        found = pd.qcut(values.rank(), QUANTILES, labels=False, duplicates="drop").fillna(QUANTILES)
    elif distinct == len(values):
        return ()
    else:
        texts = pd.Series(texts_of(known), index=known.index, dtype=object)
        often = {text: i for i, text in enumerate(texts.value_counts().index[: MOST - (distinct > MOST)])}
        found = texts.map(lambda text: often.get(text, MOST)).reindex(values.index, fill_value=MOST + 1)
    numbers, _ = pd.factorize(found)
    return tuple(map(int, numbers)) if len({*numbers}) > 1 else ()


# -- public rows that a fit starts from --------------------------------------------------------------------------------


def with_prior(data: Table | RawTable, prior: str) -> Table | RawTable:
    """The data with the rows of a public table of the same columns; with a release, which a fit reads itself, as they are.

    ValueError for a table that lacks a column, or has one of another type.
    """
    if not isinstance(prior, InMemory):
        if Path(prior).is_dir():
            return data
        existing_file(prior, option="prior")
    fields, found = _fields(data), header(prior)
    require_columns("prior", fields, found)
    for name, field in fields.items():
        _require_type(name, field, found[name])
    missing = MISSING if isinstance(data, RawTable) else data.schema.missing_values
    rows = read_table(prior, [*fields], text=[*fields], missing=missing)
    if not len(rows):
        raise ValueError("prior has no rows; it must have one at least")
    if isinstance(data, Table):
        _require_values(data.schema, rows)
    return replace(data, prior=rows)


def _fields(data: Table | RawTable) -> dict[str, Mapping[str, Any]]:
    """Descriptors of the modelled columns by name."""
    if isinstance(data, RawTable):
        return {str(given["name"]): given for given in data.draft["fields"]}
    own = {str(given["name"]): given for given in data.schema.descriptor()["fields"]}
    return {name: given for name, given in own.items() if name in data.schema.domain.names}


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
