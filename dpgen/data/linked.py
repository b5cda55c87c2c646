r"""People and their rows: linked tables, or one long table of histories, with all that belongs to a person together.

| what | how |
|---|---|
| which rows are whose | a column of one name links rows to people, or to rows of another table: a tree of tables |
| order | by the column `order`; rows of one time by a keyed hash of their contents, never by their position |
| at most m rows | of a person, or a row above, with more a window of m successive ones; a keyed hash of the person begins it |
| the time of a row | that of the first row, for later ones the time since the row before; below a row in time all since that |
| one row of each person, for domains that are bought | a keyed hash of the person chooses it |

Each of these is a function of that person's rows alone, under a secret key; keys of rows decide nothing else. People without
rows stay people; without a table of people those who have rows are all there are. An engine sorts rows by person and hands
them over some people at a time; what is used of them is kept on disk, so the same code reads files and engines. Of several
tables of rows all are in memory while they are read, without columns that are not released, and afterwards those that are
used: rows of one table order those of another one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from dpgen.columns.distances import TimeUnit
from dpgen.containers import Dtypes, InMemory, in_memory
from dpgen.data.linked_drafts import Reader, Spec
from dpgen.data.linked_reader import MEMORY, MOST_BOUGHT, with_called
from dpgen.data.linked_tables import LinkedTables, Linking, Orphans
from dpgen.data.links import (
    NO_KEYS,
    ORDER,
    PERSON,
    Key,
    Keys,
    Links,
    Roles,
    apart,
    is_package,
    linked_package,
    own_keys,
    person_of,
    require_own,
    require_shapes,
    roles_of,
)
from dpgen.data.public_tables import PublicKey
from dpgen.data.raw_tables import descriptor_of, types_of
from dpgen.data.split import SplitOptions
from dpgen.data.table_files import MISSING, column_names, in_engine, is_source, name_of, table_path
from dpgen.schema import nearest

if TYPE_CHECKING:
    from dpgen.data.engines import EngineTable

_T = TypeVar("_T")

MOST_TOGETHER = 3600
"""Rows of a person in one table, at most."""


def load_linked(
    *,
    path: str | None = None,
    people_path: str | None = None,
    tables: dict[str, str] | None = None,
    links: dict[str, str | dict[str, str]] | None = None,
    person: str | None = None,
    order: str | dict[str, str] | None = None,
    max_rows: int | dict[str, int | None] | None = 10,
    schema: dict[str, Any] | str | None = None,
    people_schema: dict[str, Any] | str | None = None,
    schemas: dict[str, Any] | None = None,
    time_unit: TimeUnit = "day",
    orphans: Orphans = "error",
    test_fraction: float | None = None,
    split_key: Path | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    drop: list[str] | None = None,
    public: list[str] | None = None,
    engine: bool = False,
) -> LinkedTables:
    """Rows of people in order of time, and a table of these people: of files, of an engine, or of a Data Package.

    What no public schema says of their columns the fit buys inside of its budget. DuckDB and Spark sort rows by person; the
    rows that are used are kept in a temporary folder, and people are held in memory. Several tables of rows are held in
    memory while they are read.

    Arguments:
        path: file of the rows, or FILE.duckdb::TABLE, or parquet or csv files larger than memory, as in "visits/*.parquet", or
            a `datapackage.json` of tables with foreign keys; without it simulated patients.
        people_path: the same of the people, one line for each; without it people are those who have rows.
        tables: files of further rows, by the names of their tables. One with the column of the person hangs on people, another
            one on the rows of the one table with which it shares a column, its key.
        links: by what a table hangs on people or on another one: {"prescriptions": "visits.visit"}, the column has this name
            in both; {"visits": {"patient": "patients.patient"}} is the same with both names. Further keys of a table to people
            name others: {"transfers": {"sender": "people.pid", "receiver": "people.pid"}}, {"emp": {"boss": "emp.id"}}.
        person: column that names the person, in both files; it is no data. None: that of a link to people, else "person".
        order: column of a date, a time or a whole number by which the rows of a person are ordered; None: they have no order.
            Of several tables of rows a column for each, {"visits": "date"}, or the name where one table has it.
        max_rows: m, rows of a person, or of a row above, that are used, in [1, 200]; of more a window of successive ones. None:
            it is bought, in [1, 60], the least m that 95 % of noisy people keep to. Of several tables one for each, too.
        schema: file of the public Table Schema of the rows, or the schema itself; every part of it may be missing.
        people_schema: the same of the people.
        schemas: the same of further tables, by name.
        time_unit: in which dates and times are modelled, "day" or "second"; times of a day are left out of samples by day.
        orphans: rows of nobody in the file of people are an "error", or "drop" them.
        test_fraction: probability of each person to be kept for evaluation, in [0, 1). None: .2 of files, 0 in an engine.
        split_key: file of the secret key of the split, made if it is not there; a run has its own without it.
        delimiter: of csv files, the one character between two fields, or "tab"; without it the one of the header line.
        encoding: of csv files, by its name in Python, as cp1252; without it UTF-8, of other lines cp1252.
        drop: columns that are not released, and cost nothing, as TABLE.COLUMN, or COLUMN where one table has it.
        public: tables that everybody knows, of `tables`, such as one of courses: their keys are categories of the rows that
            name them in `links`, or by a column of one name, and their columns help to model these rows.
        engine: DuckDB reads single files, too, which are larger than memory.

    Raises:
        ValueError: a file is missing or malformed, a person is missing or listed twice, a row has no time or belongs to nobody,
            tables hang on each other in a circle or on several others, or values outside of the schema.
    """
    links, drop, public = links or {}, drop or [], public or []
    if path is None:
        given = _simulated(people_path, tables, links, schema, people_schema, schemas, delimiter, encoding, public, engine)
    elif is_package(path):
        _require_alone(path, person, people_path, tables, links, public)
        given = _packaged(Path(path), order, drop)
    else:
        given = _files(path, people_path, tables or {}, {"people": people_schema, "rows": schema}, schemas or {})
        given = replace(given, person=person, order=order)
    known_to_all = {*public, *(key.above for key in given.keys.public)}
    far = given.far(engine, known_to_all)
    given = given.opened(known_to_all) if far else given.written(delimiter, encoding)
    given = given.linked(links, drop, public).apart(drop).stated(drop).renamed(far).with_person(schemas)
    specs = _specs(given, max_rows)
    reader = Reader(given.linking(specs, time_unit, orphans, drop), specs)
    options = SplitOptions.of(test_fraction, None, split_key, engine=far)
    return reader.read(*given.of_people, options)


@dataclass(frozen=True)
class _Given:
    """Tables by name, people's first where there is one, and what their owner says of them."""

    sources: Mapping[str, Any]
    people: str | None
    schemas: Mapping[str, Any]
    person: str | None = None
    order: str | Mapping[str, str] | None = None
    keys: Keys = NO_KEYS
    public: tuple[PublicKey, ...] = ()

    @property
    def columns(self) -> dict[str, list[str]]:
        """Names of the columns of all tables."""
        return {name: list(types_of(source)) for name, source in self.sources.items()}

    @property
    def of_people(self) -> tuple[Any, Any]:
        """The table of people and its schema; None: there is none."""
        return (self.sources[self.people], self.schemas.get(self.people)) if self.people else (None, None)

    def far(self, engine: bool, but: Collection[str]) -> bool:
        """Whether tables are read in an engine, but for some of them."""
        return any(in_engine(own, engine) for name, own in self.sources.items() if name not in but)

    def with_person(self, schemas: Mapping[str, Any] | None) -> Self:
        """These tables with the column of the person, where `schemas` are of known tables."""
        require_own(self.keys.references, self.people)
        if schemas and (unknown := [name for name in self.schemas if name not in self.sources]):
            raise nearest("a table of schemas", unknown[0], list(self.sources))
        return replace(self, person=person_of([*self.keys.private, *self.keys.references], self.people, self.person))

    def linking(self, specs: Sequence[Spec], time_unit: TimeUnit, orphans: Orphans, drop: Sequence[str]) -> Linking:
        """Names of the tables, and the keys between them."""
        columns, person = self.columns, self.person or PERSON
        of_public = {key.key.above for key in self.public}
        own_drop = [name for name in drop if name.partition(".")[0] not in of_public]
        return Linking(
            person,
            self.people,
            tuple(spec.name for spec in specs),
            time_unit,
            orphans,
            drop=_dropped(own_drop, columns, person, specs),
            public=_by_table((key.key.table, key) for key in self.public),
            references=_by_table((key.table, key.column) for key in self.keys.references),
            renamed=self.keys.renamed,
        )

    def linked(self, links: Links, drop: Sequence[str], public: Sequence[str]) -> Self:
        """These tables with the keys that links name."""
        if not links and not public:
            return self
        for name in public:
            if name in self.sources and is_source(self.sources[name]):
                raise TypeError(f"public table {name!r} is in an engine; it must be in memory or in a file")
        rows = next((name for name in self.sources if name != self.people), "")
        if named := {self.people, rows} & {*public}:
            raise ValueError(f"public has {named.pop()!r}, the table of people or of their rows; they must be private")
        keys = Keys.of(links, self.columns, drop, public)
        return replace(self, keys=keys, people=self.people or keys.of_people)

    def stated(self, drop: Sequence[str]) -> Self:
        """These tables with the keys of people to people that a schema of theirs declares."""
        known, keys = dict(self.schemas), list[Key]()
        for name, schema in self.schemas.items():
            if schema is not None:
                known[name], found = own_keys(name, descriptor_of(schema), drop)
                keys += [key for key in found if key not in self.keys.references]
        if not keys:
            return replace(self, schemas=known)
        _, more = apart([*self.keys.private, *keys])
        require_shapes("schema", [key for key in keys if key not in more])
        made = replace(self.keys, references=(*self.keys.references, *more))
        return replace(self, schemas=known, keys=made, people=self.people or made.of_people)

    def renamed(self, far: bool) -> Self:
        """These tables with owners' keys called as the column above them, which samples undo."""
        if far and (key := next((key for key in self.keys.private if key.column != key.other), None)):
            raise ValueError(
                f"{key} is a key to {key.above}.{key.other}, and in an engine both must have one name: "
                f"rename {key.column} to {key.other}, then links={{{key.table!r}: '{key.above}.{key.other}'}} is enough"
            )
        if far and (key := next(iter(self.keys.references), None)):
            raise ValueError(
                f"{key} names other people of {key.above}, which tables in an engine have no model of; read them into memory, "
                f"or leave the column out: drop=['{key}']"
            )
        made = {name: with_called(self.sources[name], names) for name, names in self.keys.renamed.items()}
        for name, table in made.items():
            table.table = name
        return replace(self, sources={name: made.get(name, source) for name, source in self.sources.items()})

    def apart(self, drop: Sequence[str]) -> Self:
        """The private tables, and the keys to public ones."""
        found = tuple(PublicKey.of(key, self.sources[key.above], drop) for key in self.keys.public)
        names = {key.above for key in self.keys.public}
        return replace(self, sources={n: own for n, own in self.sources.items() if n not in names}, public=found)

    def opened(self, but: Collection[str]) -> Self:
        """These tables in an engine, but for some of them."""
        made = {n: own if n in but else _opened(n, own, self.schemas.get(n)) for n, own in self.sources.items()}
        return replace(self, sources=made)

    def written(self, delimiter: str | None, encoding: str | None) -> Self:
        """These tables, read from csv files of this form."""
        if delimiter is None and encoding is None:
            return self
        return replace(self, sources={name: table_path(own, delimiter, encoding) for name, own in self.sources.items()})


def _by_table(pairs: Iterable[tuple[str, _T]]) -> dict[str, tuple[_T, ...]]:
    """Values that belong to each table, by its name."""
    found = dict[str, tuple[_T, ...]]()
    for table, one in pairs:
        found[table] = (*found.get(table, ()), one)
    return found


def _require_alone(path: str, person: str | None, *stated: Any) -> None:
    """Refuse options that say what a package says."""
    if any(stated) or (person and person != PERSON):
        raise ValueError(
            f"path is {str(path)!r}; people_path, tables, links, public and person must be left out: the package says them"
        )


def _simulated(*stated: Any) -> _Given:
    from dpgen.data.toy import PATIENTS, VISITS, simulated_patients  # here: files and tables in memory need none of it

    if about := next(filter(None, stated), None):
        raise ValueError(f"path is None and {about!r} is given; path must name the table of rows that it is about")
    sources = {name: in_memory(table, "public") for name, table in simulated_patients().items()}
    known = {"patients": dict(PATIENTS), "visits": dict(VISITS)}
    return _Given(sources, "patients", known, "patient", {"visits": "date"})


def _packaged(path: Path, order: str | Mapping[str, str] | None, drop: Sequence[str]) -> _Given:
    package = linked_package(path, drop)
    people, *rows = (name for name in package.files if name in package.schemas)
    known = {name: dict(package.schemas[name]) for name in (people, *rows)}
    named = {name: known[name].pop(ORDER) for name in rows if ORDER in known[name]}
    return _Given(package.files, people, known, package.person, named if order is None else order, package.keys)


def _files(
    path: str, people_path: str | None, tables: Mapping[str, str], two: Mapping[str, Any], schemas: Mapping[str, Any]
) -> _Given:
    """Files by name; `two` are schemas of people and of the first rows."""
    first = [source for source in (people_path, path) if source is not None]
    names = _names(first)
    own = dict(zip(names, [two["people"], two["rows"]][-len(names) :]))
    known = dict(schemas) | {name: given for name, given in own.items() if given is not None or name not in schemas}
    return _Given(_by_name(names, first, tables), names[0] if people_path is not None else None, known)


def _dropped(
    drop: Sequence[str], columns: Mapping[str, Sequence[str]], person: str, specs: Sequence[Spec]
) -> dict[str, list[str]]:
    """Columns that are not released by table; keys and the order of rows must be kept."""
    keys = {spec.name: {person, spec.link, spec.key, spec.order} for spec in specs}
    found = dict[str, list[str]]()
    for wanted in drop:
        table, column = _place(wanted, columns)
        if column in keys.get(table, {person}):
            raise ValueError(f"drop has {wanted!r}, by which tables are linked or rows are ordered; it must be kept")
        found.setdefault(table, []).append(column)
    return found


def _place(wanted: str, columns: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """The table and the column of COLUMN or TABLE.COLUMN."""
    full = {f"{table}.{column}": (table, column) for table, own in columns.items() for column in own}
    named = [(table, wanted) for table, own in columns.items() if wanted in own]
    named += [full[wanted]] if wanted in full else []
    if not named:
        raise nearest("drop", wanted, list(full))
    if len(named) > 1:
        raise ValueError(f"drop has {wanted!r}, of {len(named)} tables; write {named[0][0]}.{wanted}")
    return named[0]


def _opened(name: str, source: str, schema: Any) -> "EngineTable":
    """A table in an engine."""
    if isinstance(source, InMemory) and not is_source(source):
        raise TypeError(f"table {name!r} is in memory, another one in an engine; all must be in one of both")
    from dpgen.data.engines import open_table  # here: data in memory need no engine

    missing = MISSING if schema is None else descriptor_of(schema).get("missingValues", [""])
    return open_table(source, text=None, missing=missing, memory=MEMORY)


def _names(sources: Sequence[Any]) -> tuple[str, ...]:
    """Names of tables in samples: their own, or those of their files, of many in a folder that of the folder; rows."""
    stems = ["rows" if isinstance(source, InMemory) else name_of(source) for source in sources]
    return tuple(getattr(source, "table", None) or stem for source, stem in zip(sources, stems))


def _by_name(names: Sequence[str], first: Sequence[Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Sources of all tables by their names, which must differ."""
    sources = dict(zip(names, first))
    if len(names) > len(sources):
        raise ValueError(f"both tables are called {names[0]!r}; people and rows must have two names")
    for name, source in more.items():
        if name in sources:
            raise ValueError(f"tables has {name!r}, which is the name of another table; each must have its own")
        sources[name] = source
    return sources


def _specs(given: _Given, max_rows: int | Mapping[str, int | None] | None) -> tuple[Spec, ...]:
    """All tables of rows, each after the one that it hangs on, by public names alone."""
    links, columns = {key.table: key for key in given.keys.private}, given.columns
    names = [name for name in given.sources if name != given.people]
    _require_tables(names, links=links, order=given.order, max_rows=max_rows)
    orders = _orders(given.order, names, columns)
    hung = _hung(given, names, columns, links)
    _require_one_of_people(given, hung)
    numbers = {name: number for number, name in enumerate(hung, 1)}
    keys = _keys(hung)
    specs = list[Spec]()
    for name, (table, column) in hung.items():
        most, source = max_rows.get(name, 10) if isinstance(max_rows, Mapping) else max_rows, given.sources[name]
        key, schema = keys.get(name), given.schemas.get(name)
        specs.append(Spec(name, source, schema, numbers.get(table, 0), column, key, orders.get(name), most))
    _require_together(specs)
    return tuple(specs)


def _require_tables(names: Sequence[str], **options: Any) -> None:
    """Refuse options by table that name no table of rows."""
    for option, own in options.items():
        for name in own if isinstance(own, Mapping) else ():
            if name not in names:
                raise nearest(f"a table of {option}", name, names)


def _keys(hung: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """The key of each table that others hang on."""
    keys = dict[str, str]()
    for name, (table, column) in hung.items():
        if table and keys.setdefault(table, column) != column:
            raise ValueError(f"table {name!r} hangs on {table!r} by {column!r}, another one by {keys[table]!r}; use one column")
    return keys


def _require_together(specs: Sequence[Spec]) -> None:
    """Refuse more rows of a person than fit in memory, and in exact sums."""
    together = [1]
    for spec in specs:
        together.append(together[spec.parent] * (MOST_BOUGHT if spec.most is None else spec.most))
        if together[-1] > MOST_TOGETHER:
            raise ValueError(
                f"max_rows allow {together[-1]} rows of {spec.name} for a person; it must be {MOST_TOGETHER} at most"
            )


def _orders(
    given: str | Mapping[str, str] | None, names: Sequence[str], columns: Mapping[str, Sequence[str]]
) -> Mapping[str, str]:
    """The column of the order of each table that has one."""
    if not isinstance(given, str):
        return given or {}
    having = [name for name in names if given in columns[name]] if len(names) > 1 else names
    if len(having) != 1:
        where = f"{len(having)} tables have it" if having else "no table has it"
        raise ValueError(f"order is {given!r}, and {where}; write {{TABLE: COLUMN}} of {', '.join(having or names)}")
    return {having[0]: given}


def _hung(
    given: _Given, names: Sequence[str], columns: Mapping[str, Sequence[str]], links: Mapping[str, Key]
) -> dict[str, tuple[str, str]]:
    """The table that each one hangs on, "" are people, and the column; a table comes after the one that it hangs on."""
    waiting, hung, person = list(names), dict[str, tuple[str, str]](), given.person or PERSON
    while waiting:
        above = {name: _above(name, columns, hung, given.people, person, links) for name in waiting}
        if not (found := {name: place for name, place in above.items() if place is not None}):
            raise ValueError(
                f"table {waiting[0]!r} hangs on nothing: keys must lead to people, without a circle. It needs the column "
                f"{person!r}, or one that a table which hangs on people has; links={{{waiting[0]!r}: 'TABLE.COLUMN'}} names it"
            )
        hung |= found
        waiting = [name for name in waiting if name not in hung]
    return hung


def _require_one_of_people(given: _Given, hung: Mapping[str, tuple[str, str]]) -> None:
    """Refuse several tables of rows of people whom no table lists."""
    of_people = [name for name, (table, _) in hung.items() if not table]
    if given.people is None and len(of_people) > 1:
        raise ValueError(f"tables {', '.join(of_people)} are of people; data must have a table of these people, too")


def _above(
    name: str,
    columns: Mapping[str, Sequence[str]],
    hung: Mapping[str, tuple[str, str]],
    people: str | None,
    person: str,
    links: Mapping[str, Key],
) -> tuple[str, str] | None:
    """The table that one hangs on, "" are people, and the column; None where none is known yet."""
    if name in links:
        above, column = links[name].above, links[name].other
        return ("", column) if above == people else (above, column) if above in hung else None
    if person in columns[name] or len(columns) - (people is not None) == 1:  # a single one without it is refused later
        return "", person
    found = [(above, column) for above in hung for column in columns[above] if column in columns[name]]
    return _one_place(name, found)


def _one_place(name: str, found: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """The one column that a table shares with another one; None: there is none."""
    if len(found) > 1:
        listed = ", ".join(f"{above}.{column}" for above, column in found)
        raise ValueError(f"table {name!r} can hang on {listed}; say which: links={{{name!r}: {'.'.join(found[0])!r}}}")
    return found[0] if found else None


def arranged(
    data: Mapping[str, Any], options: Mapping[str, Any], dtypes: Dtypes = "bought"
) -> tuple[InMemory, dict[str, str], dict[str, Any]]:
    """Tables in memory by name as `load_linked` takes them: that of rows, the option `person`, and the tables beside the first.

    Which is which, public names and the options `person`, `links`, `order`, `public` and `drop` say, see `roles_of`. Tables
    that `order` names hold rows; of two tables without an order the last one does.
    """
    tables = {name: in_memory(table, dtypes) for name, table in data.items()}
    for name, table in tables.items():
        table.table = name
    roles = _roles(tables, options)
    first = roles.rows or str(roles.people)
    beside: dict[str, Any] = {} if roles.people in (None, first) else {"people_path": tables[roles.people]}
    if more := {name: table for name, table in tables.items() if name not in (roles.people, first)}:
        beside["tables"] = more
    return tables[first], {} if roles.person == PERSON else {"person": roles.person}, beside


def _roles(tables: Mapping[str, InMemory], options: Mapping[str, Any]) -> Roles:
    """Roles of tables in memory, by their columns and the options."""
    public = column_names(options.get("public") or [])
    timed = _timed(options.get("order"), [name for name in tables if name not in public])
    columns = {name: list(table.types if is_source(table) else types_of(table)) for name, table in tables.items()}
    keys = Keys.of(options.get("links") or {}, columns, column_names(options.get("drop") or []), public)
    private = {name: own for name, own in columns.items() if name not in public}
    return roles_of(private, keys, options.get("person"), timed)


def _timed(order: Any, names: list[str]) -> list[str]:
    """Tables of rows by their order: those that it names, else the last one of two."""
    timed = list(order) if isinstance(order, Mapping) else names[-1:] if len(names) < 3 else []
    for name in timed:
        if name not in names:
            raise ValueError(f"order is {dict(order or {})!r}; it must be {{TABLE: COLUMN}} of {', '.join(map(repr, names))}")
    return timed
