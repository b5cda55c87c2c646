"""Data Packages (Frictionless) of people and their rows: which table hangs on which, and what everybody knows of them."""

import json
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from dpgen.columns.descriptors import stated_key
from dpgen.data.links import PACKAGE_KEYS, Key, require_shapes
from dpgen.data.table_files import read_table

PACKAGE, ORDER = "datapackage.json", "dpgen:order"


def linked_package(path: Path, drop: Collection[str] = ()) -> tuple[dict[str, str], str, tuple[Key, ...], dict[str, Any]]:
    """Files by table, people's first, the column of the person, the key of each table to another one, and schemas.

    A resource with "dpgen:public" is a table that everybody knows, such as one of drugs: its key is the domain of a column
    that refers to it, and nothing of it is private or modelled. A column in `drop` is no key.
    """
    try:
        resources = json.loads(path.read_text(encoding="utf-8"))["resources"]
        by_name = {resource["name"]: resource for resource in resources}
        public = {name for name, resource in by_name.items() if resource.get("dpgen:public")}
        keys = [(resource, key) for resource in resources for key in resource.get("schema", {}).get("foreignKeys", [])]
        private, columns = [name for name in by_name if name not in public], dict[str, set[str]]()
        found = _private_keys(path, keys, public, drop)
        for link in found:
            for table in (by_name[link.above]["name"], link.table):
                columns.setdefault(table, set()).add(link.column)
        people = [name for name in private if name not in {link.table for link in found}]
        if len(people) != 1 or len(private) < 2:
            raise ValueError(
                f"{path} has {len(private)} tables that are not public, {len(found)} foreign keys between them; it must have "
                "one table of people without a foreign key, and every other one must have one that leads there"
            )
        [root], schemas = people, dict[str, Any]()
        persons = {link.other for link in found if link.above == root}
        if len(persons) != 1:
            raise ValueError(f"{path} has {len(persons)} columns by which tables hang on {root!r}; it must be one")
        to_public = [(r, k) for r, k in keys if _above(r, k) in public]
        for name in private:
            wanted = [(k, by_name[k["reference"]["resource"]]) for r, k in to_public if r["name"] == name]
            schemas[name] = _schema(path, by_name[name].get("schema", {}), columns[name], wanted)
        files = {name: str(path.parent / by_name[name]["path"]) for name in [root, *(n for n in private if n != root)]}
        return files, persons.pop(), found, schemas
    except (OSError, KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"path {str(path)!r} is no Data Package: {type(error).__name__}") from error


def _schema(path: Path, stated: dict[str, Any], keys: set[str], public: list[tuple[Any, Any]]) -> dict[str, Any]:
    """The schema of a table without its keys, but for their patterns; `public` are foreign keys to tables that are public."""
    known = dict(stated)
    if not isinstance(known.get(ORDER, ""), str):
        raise TypeError
    listed = known.pop("fields", [])
    keyed = [field for field in listed if field.get("name") in keys]
    fields = [field for field in listed if field not in keyed]
    for key, table in public:
        fields = _of_public(path, key, table, fields)
    linked = known.get("primaryKey") in (*keys, *([own] for own in keys))
    kept = {k: value for k, value in known.items() if k != "foreignKeys" and not (linked and k == "primaryKey")}
    return {
        **kept,
        "fields": [*(field for field in fields if set(field) - {"name"}), *_generated(keyed)],
        "fieldsMatch": "partial",
    }


def _above(resource: Any, key: Any) -> str:
    """The table that a foreign key refers to; "" and none at all are its own."""
    return str(key["reference"].get("resource") or resource["name"])


def _private_keys(path: Path, declared: list[Any], public: set[str], drop: Collection[str]) -> tuple[Key, ...]:
    """Foreign keys between tables that are not public, one of each table at most."""
    found = list[Key]()
    for resource, key in declared:
        if (above := _above(resource, key)) in public:
            continue
        found.append(Key(resource["name"], _column(path, key["fields"]), above, _column(path, key["reference"]["fields"])))
        if resource["name"] in public:
            raise ValueError(f"{path} has the key {found[-1]} of a public table to one that is not public; it must have none")
    kept = [key for key in dict.fromkeys(found) if not {key.column, str(key)} & {*drop}]
    require_shapes(str(path), kept, PACKAGE_KEYS)
    return tuple(kept)


def _generated(keys: list[Any]) -> list[dict[str, str]]:
    """Fields that state the patterns of keys, of those that can be generated by theirs."""
    found = []
    for field in keys:
        with suppress(ValueError):  # another pattern, such as that of a UUID
            found.append({"name": field["name"], "type": "string", "dpgen:key": stated_key(field)})
    return [field for field in found if field["dpgen:key"]]


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
