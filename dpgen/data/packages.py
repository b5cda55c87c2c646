"""Data Packages (Frictionless) of people and their rows: which table hangs on which, and what everybody knows of them."""

import json
from pathlib import Path
from typing import Any

from dpgen.data.table_files import read_table

PACKAGE = "datapackage.json"


def linked_package(path: Path) -> tuple[dict[str, str], str, dict[str, str], dict[str, Any]]:
    """Files by table, people's first, the column of the person, what each table hangs on as TABLE.COLUMN, and schemas.

    A resource with "dpgen:public" is a table that everybody knows, such as one of drugs: its key is the domain of a column
    that refers to it, and nothing of it is private or modelled.
    """
    try:
        resources = json.loads(path.read_text(encoding="utf-8"))["resources"]
        by_name = {resource["name"]: resource for resource in resources}
        public = {name for name, resource in by_name.items() if resource.get("dpgen:public")}
        keys = [(resource, key) for resource in resources for key in resource.get("schema", {}).get("foreignKeys", [])]
        private, links, columns = [name for name in by_name if name not in public], dict[str, str](), dict[str, set[str]]()
        for resource, key in keys:
            above, name = key["reference"]["resource"], resource["name"]
            own, other = _column(path, key["fields"]), _column(path, key["reference"]["fields"])
            if above in public:
                continue
            if name in links:
                raise ValueError(
                    f"{path} has a table with two protected sides, {name!r}; its rows would be of two people, not of one"
                )
            if own != other or above == name or name in public:
                raise ValueError(f"{path} links {own!r} to {other!r}; the column must have one name in two protected tables")
            links[name] = f"{above}.{own}"
            for table in (by_name[above]["name"], name):
                columns.setdefault(table, set()).add(own)
        people = [name for name in private if name not in links]
        if len(people) != 1 or len(private) < 2:
            raise ValueError(
                f"{path} has {len(private)} tables that are not public, {len(links)} foreign keys between them; it must have "
                "one table of people without a foreign key, and every other one must have one that leads there"
            )
        [root], schemas = people, dict[str, Any]()
        persons = {link.removeprefix(f"{root}.") for link in links.values() if link.startswith(f"{root}.")}
        if len(persons) != 1:
            raise ValueError(f"{path} has {len(persons)} columns by which tables hang on {root!r}; it must be one")
        for name in private:
            known = dict(by_name[name].get("schema", {}))
            if not isinstance(known.get("dpgen:order", ""), str):
                raise TypeError
            fields = [field for field in known.pop("fields", []) if field.get("name") not in columns[name]]
            for _, reference in [(r, k) for r, k in keys if r["name"] == name and k["reference"]["resource"] in public]:
                fields = _of_public(path, reference, by_name[reference["reference"]["resource"]], fields)
            link = known.get("primaryKey") in (*columns[name], *([own] for own in columns[name]))
            kept = {k: value for k, value in known.items() if k != "foreignKeys" and not (link and k == "primaryKey")}
            schemas[name] = {**kept, "fields": [f for f in fields if set(f) - {"name"}], "fieldsMatch": "partial"}
        files = {name: str(path.parent / by_name[name]["path"]) for name in [root, *(n for n in private if n != root)]}
        return files, persons.pop(), links, schemas
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
