"""Keys between private tables: which table is of people, by which column, and keys that no model has yet; by public names.

Options of a loader name the keys, or a Data Package does. A row belongs to one person, so a table has one key to another
private table, its owner's. Further keys of the table to the same people, and one of people to people, name others:
`Keys.references`. `SHAPES` are the keys that this leaves out, with the line to type. Keys to public tables are columns of
their rows, see `public_tables`.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any, Self

from dpgen.columns.descriptors import stated_key
from dpgen.containers import InMemory
from dpgen.data.kinds import PACKAGE
from dpgen.schema import nearest

PERSON = "person"
"""The column of the person where neither `person` nor a link names another one."""

Links = Mapping[str, str | Mapping[str, str]]
Columns = Mapping[str, Collection[str]]


@dataclass(frozen=True)
class Key:
    """A column whose values are those of a column of another table."""

    table: str
    column: str
    above: str
    other: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column}" if self.table else self.column

    def named_in(self, columns: Collection[str]) -> bool:
        """Whether its column is one of these, by its name alone or with that of its table."""
        return bool({self.column, str(self)} & {*columns})


LINKS = "links={{'{a.table}': {{'{a.column}': '{a.above}.{a.other}'}}}}"
PACKAGE_KEYS = "the one foreign key of {a.table}, {a.column} to {a.above}.{a.other},"
PUBLIC = "public=['{b.above}']"
PACKAGE_PUBLIC = '"dpgen:public": true of {b.above}'
"""The line that keeps key a alone."""

SHAPES: tuple[tuple[Callable[[Key, Key], bool], str], ...] = (
    (
        lambda a, b: a.above == a.table,
        "{a} is a key to its own table, which no model has of a table that hangs on another one; leave its column out: "
        "drop=['{a}']",
    ),
    (
        lambda a, b: a is not b and a.above == b.above,
        "{a} and {b} are two keys to {a.above}, which hangs on another table, and a row belongs to one; {line} with "
        "drop=['{b}'] keeps the first one",
    ),
    (
        lambda a, b: a is not b,
        "{a} and {b} are keys to two private tables, and a row belongs to one; {line} with {public} protects "
        "{a.above} alone, where everybody may know {b.above}; one table of both, which {a} and {b} name, protects both",
    ),
)
"""Keys a and b of one table, or one key as both, that are refused, the first row that holds; and the sentence."""


def require_shapes(where: str, keys: Sequence[Key], line: str = LINKS, public: str = PUBLIC) -> None:
    """Refuse keys of `SHAPES`, in one sentence that begins with where they were given and has the line to type."""
    for refused, sentence in SHAPES:
        for a, b in combinations_with_replacement(keys, 2):
            if a.table == b.table and refused(a, b):
                lines = {"line": line.format(a=a), "public": public.format(b=b)}
                raise ValueError(f"{where}: {sentence.format(a=a, b=b, **lines)}")


@dataclass(frozen=True)
class Keys:
    """Keys of private tables to private and to public ones, and those that name other people."""

    private: tuple[Key, ...]
    public: tuple[Key, ...]
    references: tuple[Key, ...] = ()

    @property
    def of_people(self) -> str | None:
        """The table of people whose own key names people."""
        return next((key.table for key in self.references if key.above == key.table), None)

    @property
    def renamed(self) -> dict[str, dict[str, str]]:
        """By table, the owners' keys that have another name than the column above, and that name."""
        return {key.table: {key.column: key.other} for key in self.private if key.column != key.other}

    @classmethod
    def of(cls, links: Links, columns: Columns, drop: Collection[str] = (), public: Collection[str] = ()) -> Self:
        """The keys that links name, TABLE.COLUMN by table, or by column of a table; of a dropped column there is none.

        A table in `public` that no link names is that of a column which one private table alone has, too.

        Raises:
            ValueError: a table or a column that is not there, keys of `SHAPES`, or a public table without a key to it.
        """
        for name in public:
            if name not in columns:
                raise nearest("a table of public", name, list(columns))
        named = [key for key in _named(links, columns) if key.column == key.other or not key.named_in(drop)]
        for key in named:
            if key.table in public:
                raise ValueError(f"links[{key.table!r}] is of a public table; keys must be of private tables")
        private, references = apart(without_implied([key for key in named if key.above not in public]))
        require_shapes("links", private)
        _require_names(private, columns)
        return cls(tuple(private), _to_public(named, columns, public), tuple(references))


def hung_in(keys: Iterable[Key]) -> set[str]:
    """Tables that have a key."""
    return {key.table for key in keys}


def apart(keys: Sequence[Key]) -> tuple[list[Key], list[Key]]:
    """Owners' keys, and those that name other people: people's own, and all but the first one of a table to people."""
    hung = {key.table for key in keys if key.above != key.table}
    owners, others = list[Key](), list[Key]()
    for key in keys:
        own = key.above == key.table and key.table not in hung
        more = key.above not in hung and any((key.table, key.above) == (one.table, one.above) for one in owners)
        (others if own or more else owners).append(key)
    return owners, others


def require_own(references: Sequence[Key], people: str | None) -> None:
    """Refuse keys that name others than the people who are protected."""
    for key in references:
        if key.above != people:
            what = SHAPES[0][1] if key.above == key.table else SHAPES[1][1]
            line = LINKS.format(a=key)
            raise ValueError(f"links: {what.format(a=key, b=key, line=line)}")


def _require_names(keys: Sequence[Key], columns: Columns) -> None:
    """Refuse a key of another name than the column above, where its table has a column of that name, too."""
    for key in keys:
        if key.column != key.other and key.other in columns.get(key.table, ()):
            raise ValueError(
                f"links: {key} is a key to {key.above}.{key.other}, and {key.table} has another column {key.other!r}; rename it"
            )


NO_KEYS = Keys((), ())


def without_implied(keys: Sequence[Key]) -> list[Key]:
    """Keys without those to people of rows that hang on other rows of people, where they say the same once more.

    Prescriptions of a visit may name the patient, too: the reader requires that it is the patient of the visit.
    """

    hung = hung_in(keys)

    def implied(key: Key) -> bool:
        if key.column != key.other or key.above in hung:
            return False
        others = {own.above for own in keys if own.table == key.table and own != key} - {key.table}
        rows = _with_above(others, keys)
        return any(own.table in rows and (own.above, own.other) == (key.above, key.other) for own in keys)

    return [key for key in keys if not implied(key)]


def _with_above(tables: Collection[str], keys: Sequence[Key]) -> set[str]:
    """Tables, and all those that they hang on."""
    found = {*tables}
    while more := {key.above for key in keys if key.table in found} - found:
        found |= more
    return found


def _to_public(named: Sequence[Key], columns: Columns, public: Collection[str]) -> tuple[Key, ...]:
    """The keys to public tables: those that links name, and to each other table the one of its column's name."""
    found = [key for key in named if key.above in public]
    others = [name for name in public if name not in {key.above for key in found}]
    return (*found, *(_by_name(name, columns, public) for name in others))


def _by_name(name: str, columns: Columns, public: Collection[str]) -> Key:
    """The key to a public table: the one column that a private table has, too."""
    shared = [
        (table, column) for table, own in columns.items() if table not in public for column in own if column in columns[name]
    ]
    if len(shared) != 1:
        which = f"the columns {', '.join(map('.'.join, shared))}" if shared else "no column"
        line = f"links={{TABLE: {{COLUMN: '{name}.{next(iter(columns[name]), 'COLUMN')}'}}}}"
        raise ValueError(f"public table {name!r} has {which} of private tables; {line} must name the key to it")
    [(table, column)] = shared
    return Key(table, column, name, column)


def _texts(links: Any) -> dict[str, dict[str, str]]:
    """TABLE.COLUMN by table and by its column, "" where one name stands for both."""
    if not isinstance(links, Mapping):
        raise ValueError(f"links is {links!r}; it must be {{TABLE: 'TABLE.COLUMN'}}")
    made = {table: {"": given} if isinstance(given, str) else given for table, given in links.items()}
    for table, given in made.items():
        if not isinstance(given, Mapping) or not all(isinstance(text, str) for text in (*given, *given.values())):
            raise ValueError(f"links[{table!r}] is {given!r}; it must be 'TABLE.COLUMN', or {{COLUMN: 'TABLE.COLUMN'}}")
    return made


def _named(links: Links, columns: Columns) -> Iterator[Key]:
    for table, given in _texts(links).items():
        if table not in columns:
            raise nearest("a table of links", table, list(columns))
        for column, target in given.items():
            above, _, other = target.rpartition(".")
            key, option = Key(table, column or other, above, other), f"links[{table!r}]"
            if above not in columns:
                raise nearest(f"the table of {option}", above, [name for name in columns if name != table])
            if other not in columns[above]:
                raise nearest(f"the column of {option} in {above}", other, list(columns[above]))
            if key.column not in columns[table]:
                raise ValueError(
                    f"{option} is {target!r}, and {table} has no column {key.column!r}; it has {', '.join(columns[table])}: "
                    f"its key must be named in links={{{table!r}: {{COLUMN: {target!r}}}}}"
                )
            yield key


def _is_key(declared: Any) -> bool:
    """Whether a foreign key of a schema has columns on both sides."""
    sides = (declared, declared.get("reference")) if isinstance(declared, Mapping) else (None,)
    return all(isinstance(side, Mapping) and isinstance(side.get("fields"), str | list) for side in sides)


def own_keys(table: str, schema: Mapping[str, Any], gone: Collection[str] = ()) -> tuple[Mapping[str, Any], list[Key]]:
    """The schema of a table without its foreign keys to the table itself, and these but for those of columns that are gone."""
    rest, left, keys = dict(schema), list[Any](), list[Key]()
    for declared in rest.pop("foreignKeys", []):
        if _is_key(declared) and declared["reference"].get("resource", "") in ("", table):
            keys += [Key(table, own, table, other) for own, other in _pairs(declared)]
        else:  # of another table, or one that the schema refuses
            left.append(declared)
    kept = [key for key in keys if not key.named_in(gone)]
    return ({**rest, "foreignKeys": left} if left else rest), kept


def _pairs(declared: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The columns of a foreign key, each with that which it names."""
    sides = declared["fields"], declared["reference"]["fields"]
    return zip(*([names] if isinstance(names, str) else names for names in sides))


def without_keys(table: str, schema: Mapping[str, Any], gone: Collection[str] = ()) -> Mapping[str, Any]:
    """The schema of a table that is modelled alone, without its foreign keys to itself; columns that are not gone have none."""
    left, keys = own_keys(table, schema, gone)
    for key in keys:
        raise ValueError(
            f"schema: {key} is a key to its own table, which the model of one table does not keep; "
            f"dpgen.fit({{'rows': data}}, links={{'rows': {{{key.column!r}: 'rows.{key.other}'}}}}) does, or leave its column "
            f"out: drop=['{key}']"
        )
    return left


@dataclass(frozen=True)
class Roles:
    """The column of the person, the table of people and the first one of their rows; None: there is none."""

    person: str
    people: str | None
    rows: str | None


def person_of(keys: Sequence[Key], people: str | None, person: str | None) -> str:
    """The column of the person: the given one, else that by which tables hang on the table of people."""
    named = list(dict.fromkeys(key.other for key in keys if key.above == people))
    if len(named) > 1:
        raise ValueError(f"links name {' and '.join(named)} as keys of {people}; tables must hang on people by one column")
    if named and person not in (None, *named):
        first = next(key for key in keys if key.above == people)
        raise ValueError(f"links[{first.table!r}] is '{people}.{first.other}'; tables hang on people by {person!r}")
    return named[0] if named else person or PERSON


def _root(columns: Columns, keys: Sequence[Key], person: str | None) -> str | None:
    """The table of people by links: all keys lead to it, it has no key, and no other table can be above it."""
    tops = _tops(columns, keys, person or PERSON)
    if len(tops) != 1 or not (person is None or person in columns[next(iter(tops))]):
        return None
    [(root, column)] = tops.items()
    hung = hung_in(keys)
    others = [own for name, own in columns.items() if name not in (root, *hung) and column not in own]
    return None if any({*own} & {*columns[root]} for own in others) else root


def _tops(columns: Columns, keys: Sequence[Key], wanted: str) -> dict[str, str]:
    """Tables that others hang on and that hang on none, and by which column: the wanted one where they have it."""
    hung = hung_in(keys)
    tops = [key for key in keys if key.above not in hung]
    return {key.above: key.other for key in tops if key.other == wanted or wanted not in columns[key.above]}


def roles_of(columns: Columns, given: Keys, person: str | None, timed: Collection[str]) -> Roles:
    """Which tables are of people and of their rows, by links, else by the column of the person.

    Without a link to people, tables of `timed` are of rows; people's is the first other one that has the column.

    Raises:
        ValueError: no table has the column of the person.
    """
    if (people := given.of_people) is not None:
        require_own(given.references, people if person in (None, given.references[0].other) else "")
        named = person_of([*given.private, *given.references], people, person)
        return Roles(named, people, next((name for name in columns if name != people), None))
    if (people := _root(columns, given.private, person)) is not None:
        rows = next(key.table for key in given.private if key.above == people)
        return Roles(person_of(given.private, people, person), people, rows)
    return _roles_by_name(columns, hung_in(given.private), person or PERSON, timed)


def _roles_by_name(columns: Columns, hung: Collection[str], person: str, timed: Collection[str]) -> Roles:
    """Which tables are of people and of their rows, by the column of the person."""
    able = [name for name, own in columns.items() if name not in hung and person in own]
    people = next((name for name in able if name not in timed), None) if len(able) > 1 else None
    rows = next((name for name in able if name != people), None)
    if rows is None:
        raise _nameless(columns, person)
    return Roles(person, people, rows)


def _nameless(columns: Columns, person: str) -> ValueError:
    """The error of tables none of which has the column of the person."""
    first, *more = columns
    line = f", or links={{{more[-1]!r}: '{first}.COLUMN'}} the one that they share" if more else ""
    return ValueError(f"data has no table with the column {person!r}; person='COLUMN' names it{line}")


# -- Data Packages (Frictionless) --------------------------------------------------------------------------------------

ORDER = "dpgen:order"


def is_package(path: Any) -> bool:
    """Whether this is the path of a Data Package."""
    return not isinstance(path, InMemory) and Path(path).name == PACKAGE


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
    keys = _keys(path, _foreign_keys(path, resources, public), public, drop)
    columns = _columns_of_keys((*keys.private, *keys.references), by_name)
    root, person = _people(path, private, keys)
    private.sort(key=lambda name: name != root)
    files = {name: str(path.parent / by_name[name]["path"]) for name in (*private, *(key.above for key in keys.public))}
    schemas = {name: _schema(by_name[name].get("schema", {}), columns.get(name, set())) for name in private}
    return LinkedPackage(files, person, keys, schemas)


def _columns_of_keys(keys: Collection[Key], by_name: Mapping[str, Any]) -> dict[str, set[str]]:
    """By table, the columns of keys on both sides."""
    columns = dict[str, set[str]]()
    for link in keys:
        columns.setdefault(by_name[link.above]["name"], set()).add(link.other)
        columns.setdefault(link.table, set()).add(link.column)
    return columns


def _people(path: Path, private: Collection[str], keys: Keys) -> tuple[str, str]:
    """The one table without a key to another private one, and the column by which tables hang on it."""
    hung = hung_in(keys.private)
    people = [name for name in private if name not in hung]
    if len(people) != 1 or (len(private) < 2 and not keys.references):
        raise ValueError(
            f"{path} has {len(private)} tables that are not public, {len(keys.private)} foreign keys between them; it must "
            "have one table of people without a foreign key, and every other one must have one that leads there"
        )
    [root] = people
    persons = {link.other for link in (*keys.private, *keys.references) if link.above == root}
    if len(persons) != 1:
        raise ValueError(f"{path} has {len(persons)} columns by which tables hang on {root!r}; it must be one")
    return root, persons.pop()


def _schema(stated: dict[str, Any], keys: set[str]) -> dict[str, Any]:
    """The schema of a table without its keys to private tables, but for their patterns."""
    known = dict(stated)
    if not isinstance(known.get(ORDER, ""), str):
        raise TypeError
    known.pop("foreignKeys", None)
    if known.get("primaryKey") in (*keys, *([own] for own in keys)):
        del known["primaryKey"]
    listed = known.pop("fields", [])
    keyed = [field for field in listed if field.get("name") in keys]
    others = [field for field in listed if field not in keyed and set(field) - {"name"}]
    return {**known, "fields": [*others, *_generated(keyed)], "fieldsMatch": "partial"}


def _foreign_keys(path: Path, resources: Collection[Any], public: set[str]) -> list[Key]:
    """The foreign keys of all tables but those between public ones."""
    found = list[Key]()
    for resource in resources:
        for key in resource.get("schema", {}).get("foreignKeys", []):
            table, above = resource["name"], str(key["reference"].get("resource") or resource["name"])  # "" is its own
            if not {table, above} <= public:
                found.append(Key(table, _column(path, key["fields"]), above, _column(path, key["reference"]["fields"])))
    return found


def _kept(keys: Collection[Key], drop: Collection[str]) -> list[Key]:
    """Different keys of columns that are not dropped."""
    return [key for key in dict.fromkeys(keys) if not key.named_in(drop)]


def _keys(path: Path, declared: Collection[Key], public: set[str], drop: Collection[str]) -> Keys:
    """Foreign keys but those between public tables: an owner's of each private table at most."""
    found = [key for key in declared if key.above not in public]
    for key in found:
        if key.table in public:
            raise ValueError(f"{path} has the key {key} of a public table to one that is not public; it must have none")
    kept, others = apart(without_implied(_kept(found, drop)))
    require_shapes(str(path), kept, PACKAGE_KEYS, PACKAGE_PUBLIC)
    return Keys(tuple(kept), tuple(_kept([key for key in declared if key.above in public], drop)), tuple(others))


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
