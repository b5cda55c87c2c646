"""Drafts of table schemas: from names and types alone, or from private values, which no budget covers."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpgen.containers import in_memory
from dpgen.data.table_files import csv_path, header, read_table

MOST_CATEGORIES = 1000
"""Texts with more different values are no categories: they are left for a person to decide."""

_DAY = np.timedelta64(1, "D")


def draft_schema(
    data: Any, *, from_private_values: bool = False, delimiter: str | None = None, encoding: str | None = None
) -> dict[str, Any]:
    """A schema of the columns of a table, with what is not known left blank: null, or an empty enum.

    Without `from_private_values` only names and types are looked at; a csv file has no types, so all of its columns are texts.

    Arguments:
        data: a DataFrame, a polars or pyarrow table, or the path of a csv, tsv or parquet file.
        from_private_values: read types, categories and ranges off the records, which no epsilon covers; fields then say so.
        delimiter: of a csv file, the one character between two fields, or "tab"; without it a comma, or of .tsv a tab.
        encoding: of a csv file, by its name in Python, as cp1252; without it UTF-8.

    Raises:
        ValueError: the file cannot be read.

    >>> draft_schema(pd.DataFrame({"age": [3]}))["fields"]
    [{'name': 'age', 'type': 'integer', 'constraints': {'required': False, 'minimum': None, 'maximum': None}}]
    """
    path = csv_path(
        data if isinstance(data, str) else str(data) if isinstance(data, Path) else in_memory(data), delimiter, encoding
    )
    types = header(path)
    if not from_private_values:
        return {"fields": [_blank(name, type_of(text)) for name, text in types.items()], "missingValues": ["", "NA"]}
    table = read_table(path)
    if not len(table):
        raise ValueError(f"{path} is empty: it has {len(table.columns)} columns and no record")
    return {"fields": [_read(name, table[name], types[name]) for name in types], "missingValues": ["", "NA"]}


def blanks(descriptor: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The fields of a draft whose domain is still to be filled in."""
    yield from (field for field in descriptor.get("fields", []) if is_blank(field, descriptor))


def is_blank(field: Mapping[str, Any], descriptor: Mapping[str, Any]) -> bool:
    """Whether the domain of a field is not known."""
    given = computed_names(descriptor) | {descriptor.get("primaryKey")}
    if field.get("type") == "boolean" or field.get("name") in given or "dpgen:key" in field:
        return False
    rules = field.get("constraints", {})
    listed = rules.get("enum") or field.get("categories")
    bounded = rules.get("minimum") is not None and rules.get("maximum") is not None
    return not listed and not (field.get("type", "string") not in ("string", "any") and (bounded or "dpgen:bins" in field))


def computed_names(descriptor: Mapping[str, Any]) -> set[Any]:
    """Names of the fields that constraints compute."""
    return {c.get("total", c.get("depends")) for c in descriptor.get("dpgen:constraints", []) if isinstance(c, Mapping)}


def type_of(text: str) -> str:
    """Type of the Table Schema of an Arrow type, by its name."""
    if text.startswith("date"):
        return "date"
    found = {"bool": "boolean", "int": "integer", "uint": "integer", "float": "number", "double": "number"}
    found |= {"halffloat": "number", "decimal": "number", "timestamp": "datetime"}
    return next((kind for start, kind in found.items() if text.startswith(start)), "string")


def _blank(name: str, kind: str) -> dict[str, Any]:
    empty: dict[str, Any] = {"string": {"enum": []}, "boolean": {}}
    return {
        "name": name,
        "type": kind,
        "constraints": {"required": False, **empty.get(kind, {"minimum": None, "maximum": None})},
    }


def _read(name: str, values: pd.Series, text: str) -> dict[str, Any]:
    """A field with the categories or the range that private values have."""
    present = values.dropna().infer_objects()
    kind = type_of(text) if text else _read_type(present)
    field = _blank(name, kind) | {"dpgen:source": "private"}
    rules = field["constraints"] | {"required": bool(values.notna().all())}
    if kind == "string":
        categories = sorted({str(value) for value in present})
        rules["enum"] = categories if len(categories) <= MOST_CATEGORIES else []
    elif kind != "boolean" and len(present):
        low, high = present.min(), present.max()
        if kind in ("date", "datetime"):
            rules |= {"minimum": pd.Timestamp(low).isoformat(), "maximum": pd.Timestamp(high).ceil("s").isoformat()}
        else:
            rules |= {"minimum": low.item(), "maximum": high.item()}
    return field | {"constraints": rules}


def _read_type(values: pd.Series) -> str:
    """Type of the values of a csv file."""
    kinds = {"b": "boolean", "i": "integer", "u": "integer", "f": "number"}
    if values.dtype.kind in kinds:
        return kinds[values.dtype.kind]
    return "string" if not len(values) or pd.to_datetime(values, errors="coerce", format="ISO8601").isna().any() else "date"
