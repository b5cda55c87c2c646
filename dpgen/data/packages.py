"""Data Packages (Frictionless) of people and their rows: which table hangs on which, and what everybody knows of them."""

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpgen.columns.descriptors import stated_key
from dpgen.data.links import PACKAGE_KEYS, PACKAGE_PUBLIC, Key, Keys, apart, require_shapes, without_implied

ORDER = "dpgen:order"


@dataclass(frozen=True)
class LinkedPackage:
    """Tables of a package, and the keys between them.

    Arguments:
        files: by table, people's first; those of public tables come last.
        person: column of the person.
        keys: of each table to another private one, and of all to public ones.
        schemas: by private table.
    """

    files: Mapping[str, str]
    person: str
    keys: Keys
    schemas: Mapping[str, Any]

    @property
    def private(self) -> tuple[str, ...]:
        """Names of private tables, people's first."""
        public = {key.above for key in self.keys.public}
        return tuple(name for name in self.files if name not in public)


def linked_package(path: Path, drop: Collection[str] = ()) -> LinkedPackage:
    """The tables of a package, and their keys; a column in `drop` is no key.

    A resource with "dpgen:public" is a table that everybody knows, such as one of drugs, see `public_tables`.
    """
    try:
        return _linked(path, json.loads(path.read_text(encoding="utf-8"))["resources"], drop)
    except (OSError, KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"path {str(path)!r} is no Data Package: {type(error).__name__}") from error


def _linked(path: Path, resources: list[Any], drop: Collection[str]) -> LinkedPackage:
    by_name = {resource["name"]: resource for resource in resources}
    public = {name for name, resource in by_name.items() if resource.get("dpgen:public")}
    private = [name for name in by_name if name not in public]
    keys = _foreign_keys(path, resources, public)
    found, others = _private_keys(path, keys, public, drop)
    columns = _columns_of_keys((*found, *others), by_name)
    root, person = _people(path, private, found, others)
    to_public = tuple(_kept([key for key in keys if key.above in public and key.table in private], drop))
    named = [root, *(name for name in private if name != root), *(key.above for key in to_public)]
    files = {name: str(path.parent / by_name[name]["path"]) for name in named}
    schemas = {name: _schema(by_name[name].get("schema", {}), columns.get(name, set())) for name in private}
    return LinkedPackage(files, person, Keys(found, to_public, others), schemas)


def _columns_of_keys(keys: Collection[Key], by_name: Mapping[str, Any]) -> dict[str, set[str]]:
    """By table, the columns of keys on both sides."""
    columns = dict[str, set[str]]()
    for link in keys:
        columns.setdefault(by_name[link.above]["name"], set()).add(link.other)
        columns.setdefault(link.table, set()).add(link.column)
    return columns


def _people(path: Path, private: Collection[str], found: Collection[Key], others: Collection[Key]) -> tuple[str, str]:
    """The one table without a key to another private one, and the column by which tables hang on it."""
    hung = {link.table for link in found}
    people = [name for name in private if name not in hung]
    if len(people) != 1 or (len(private) < 2 and not others):
        raise ValueError(
            f"{path} has {len(private)} tables that are not public, {len(found)} foreign keys between them; it must have "
            "one table of people without a foreign key, and every other one must have one that leads there"
        )
    [root] = people
    persons = {link.other for link in (*found, *others) if link.above == root}
    if len(persons) != 1:
        raise ValueError(f"{path} has {len(persons)} columns by which tables hang on {root!r}; it must be one")
    return root, persons.pop()


def _schema(stated: dict[str, Any], keys: set[str]) -> dict[str, Any]:
    """The schema of a table without its keys to private tables, but for their patterns."""
    known = dict(stated)
    if not isinstance(known.get(ORDER, ""), str):
        raise TypeError
    listed = known.pop("fields", [])
    keyed = [field for field in listed if field.get("name") in keys]
    fields = [field for field in listed if field not in keyed]
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


def _foreign_keys(path: Path, resources: Collection[Any], public: set[str]) -> list[Key]:
    """The foreign keys of all tables but those between public ones."""
    declared = [(resource, key) for resource in resources for key in resource.get("schema", {}).get("foreignKeys", [])]
    return [_key(path, *one) for one in declared if not {one[0]["name"], _above(*one)} <= public]


def _key(path: Path, resource: Any, key: Any) -> Key:
    """A foreign key."""
    columns = _column(path, key["fields"]), _column(path, key["reference"]["fields"])
    return Key(resource["name"], columns[0], _above(resource, key), columns[1])


def _kept(keys: Collection[Key], drop: Collection[str]) -> list[Key]:
    """Different keys of columns that are not dropped."""
    return [key for key in dict.fromkeys(keys) if not key.named_in(drop)]


def _private_keys(
    path: Path, keys: Collection[Key], public: set[str], drop: Collection[str]
) -> tuple[tuple[Key, ...], tuple[Key, ...]]:
    """Foreign keys between tables that are not public, an owner's of each table at most, and those that name other people."""
    found = [key for key in keys if key.above not in public]
    for key in found:
        if key.table in public:
            raise ValueError(f"{path} has the key {key} of a public table to one that is not public; it must have none")
    kept, others = apart(without_implied(_kept(found, drop)))
    require_shapes(str(path), kept, PACKAGE_KEYS, PACKAGE_PUBLIC)
    return tuple(kept), tuple(others)


def _generated(keys: list[Any]) -> list[dict[str, str]]:
    """Fields that state the patterns of keys, of those that can be generated by theirs."""
    found = []
    for field in keys:
        with suppress(ValueError):  # another pattern, such as that of a UUID
            found.append({"name": field["name"], "type": "string", "dpgen:key": stated_key(field)})
    return [field for field in found if field["dpgen:key"]]


def _column(path: Path, names: str | list[str]) -> str:
    """The column of a foreign key."""
    [name, *more] = [names] if isinstance(names, str) else names or [""]
    if more or not name:
        raise ValueError(
            f"{path} has a foreign key of {len(more) + bool(name)} columns; it must be of one: join them into one column of "
            "texts in both tables"
        )
    return name
