"""Data Packages (Frictionless) of people and their rows: which table is which, and what everybody knows of them."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

from dpgen.data.table_files import read_table

PACKAGE = "datapackage.json"


def linked_package(path: Path) -> tuple[str, str, str, tuple[Any, Any]]:
    """Files of people and of rows of a Data Package, the column that links them, and the schemas of both.

    A resource with "dpgen:public" is a table that everybody knows, such as one of drugs: its key is the domain of a column
    that refers to it, and nothing of it is private or modelled.
    """
    try:
        resources = json.loads(path.read_text(encoding="utf-8"))["resources"]
        by_name = {resource["name"]: resource for resource in resources}
        public = {name for name, resource in by_name.items() if resource.get("dpgen:public")}
        keys = [(resource, key) for resource in resources for key in resource.get("schema", {}).get("foreignKeys", [])]
        linked = [(resource, key) for resource, key in keys if key["reference"]["resource"] not in public]
        private = [name for name in by_name if name not in public]
        (rows, key), *more = linked or [(None, None)]
        if more and any(first is second for (first, _), (second, _) in combinations(linked, 2)):
            raise ValueError(f"{path} has a table with two protected sides: its rows would be of two people, not of one")
        if rows is None or more or len(private) != 2:
            raise ValueError(
                f"{path} has {len(private)} tables that are not public and {len(linked)} foreign keys between them; it must "
                "have two tables, of which one has a foreign key to the other (tables of more levels are not modelled)"
            )
        people = by_name[key["reference"]["resource"]]
        own, other = _column(path, key["fields"]), _column(path, key["reference"]["fields"])
        if own != other or people is rows or rows["name"] in public:
            raise ValueError(f"{path} links {own!r} to {other!r}; the column must have one name in two protected tables")
        schemas = []
        for resource in (people, rows):
            known = dict(resource.get("schema", {}))
            if not isinstance(known.get("dpgen:order", ""), str):
                raise TypeError
            fields = [field for field in known.pop("fields", []) if field.get("name") != own]
            for _, reference in [(r, k) for r, k in keys if r is resource and k["reference"]["resource"] in public]:
                fields = _of_public(path, reference, by_name[reference["reference"]["resource"]], fields)
            link = known.get("primaryKey") in (own, [own])
            kept = {k: value for k, value in known.items() if k != "foreignKeys" and not (link and k == "primaryKey")}
            schemas.append({**kept, "fields": [f for f in fields if set(f) - {"name"}], "fieldsMatch": "partial"})
        return str(path.parent / people["path"]), str(path.parent / rows["path"]), own, (schemas[0], schemas[1])
    except (OSError, KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"path {str(path)!r} is no Data Package: {type(error).__name__}") from error


def _of_public(path: Path, key: Any, table: Any, fields: list[Any]) -> list[Any]:
    """Fields of which one refers to a public table, whose keys are its values."""
    own, other = _column(path, key["fields"]), _column(path, key["reference"]["fields"])
    values = read_table(str(path.parent / table["path"]), [other], text=[other])[other].dropna().unique().tolist()
    known: dict[str, Any] = next((dict(field) for field in fields if field.get("name") == own), {"name": own})
    rules = {**known.get("constraints", {}), "enum": values}
    return [*(field for field in fields if field.get("name") != own), {**known, "type": "string", "constraints": rules}]


def _column(path: Path, names: str | list[str]) -> str:
    """The column of a foreign key."""
    [name, *more] = [names] if isinstance(names, str) else names or [""]
    if more or not name:
        raise ValueError(f"{path} has a foreign key of {len(more) + bool(name)} columns; it must be of one")
    return name
