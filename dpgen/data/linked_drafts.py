"""Drafts of linked tables: by their columns and names alone, which tables there are and what is known of their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dpgen.columns.constraints import constraint_of
from dpgen.columns.descriptors import dated, stated_key, written_as
from dpgen.columns.distances import Distance, TimeUnit, distances
from dpgen.columns.votes import CELLS, cells_of_digits, votes
from dpgen.containers import InMemory
from dpgen.data.linked_reader import MOST_ROWS, Drafted, with_called
from dpgen.data.linked_tables import LinkedRows, LinkedTables, Linking
from dpgen.data.public_tables import with_keys
from dpgen.data.raw_tables import Chosen, descriptor_of, draft_of, type_of, types_of
from dpgen.data.split import SplitOptions
from dpgen.data.table_files import read_table
from dpgen.schema import nearest

if TYPE_CHECKING:
    from dpgen.data.linked_reader import Source


@dataclass(frozen=True)
class Spec:
    """A table of rows as it was named: what it hangs on, 0 are people, by which column, and its own key."""

    name: str
    source: Source
    schema: Any
    parent: int
    link: str
    key: str | None
    order: str | None
    most: int | None

    def __post_init__(self) -> None:
        if self.most is not None and (type(self.most) is not int or not 1 <= self.most <= MOST_ROWS):
            raise ValueError(f"max_rows is {self.most!r}; it must be a whole number in [1, {MOST_ROWS}], or None: it is bought")

    @property
    def order_alone(self) -> Any:
        """The part of its schema on the order: how it is written, and what comes after or before it; None: there is none."""
        given = descriptor_of(self.schema)
        rules = self._ordered(given)
        names = {self.order}.union(*(constraint_of(rule).names for rule in rules))
        stated = [field for field in given["fields"] if field.get("name") in names and (written_as(field) or rules)]
        kept = [{key: field[key] for key in ("name", "type", "format") if key in field} for field in stated]
        return {"fieldsMatch": "partial", "fields": kept, "dpgen:constraints": rules} if [*kept, *rules] else None

    def _ordered(self, given: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The constraints of a schema that order a column and the order of the rows."""
        rules = [rule for rule in given.get("dpgen:constraints", []) if "less_equal" in rule]
        return [rule for rule in rules if self.order in constraint_of(rule).names]


@dataclass(frozen=True)
class Reader:
    """Reads all tables by the options of `load_linked`."""

    linking: Linking
    specs: tuple[Spec, ...]

    def of(self, sources: Mapping[str, Source], most: Sequence[int]) -> LinkedTables:
        """Other tables of the same names and columns; of each table of rows at most so many."""
        renamed, people = self.linking.renamed, self.linking.people
        sources = {n: with_called(own, renamed[n]) if n in renamed else own for n, own in sources.items()}
        specs = [replace(s, source=sources[s.name], schema=s.order_alone, most=m) for s, m in zip(self.specs, most)]
        reader = Reader(replace(self.linking, orphans="drop", public={}), tuple(specs))
        drafted = reader._drafted(None if people is None else sources[people], None, SplitOptions(0.0))
        # Tables of others may break the constraints of these: that is for scores to say.
        drafted = replace(drafted, tables=tuple(replace(t, draft=_unbounded(t)) for t in drafted.tables))
        return drafted.read(most)

    def read(self, people_path: Source | None, people_schema: Any, options: SplitOptions) -> LinkedTables:
        """All tables; `people_path` is that of people, None: there is none.

        Raises:
            ValueError: a column that is not there, a schema that is none, or values that contradict it.
        """
        return self._drafted(people_path, people_schema, options).read([spec.most for spec in self.specs])

    def _drafted(self, people_path: Source | None, people_schema: Any, options: SplitOptions) -> Drafted:
        """All tables, whose rows are not read yet."""
        for option, name, source in self._named(people_path):
            if name is not None and name not in types_of(source):
                raise nearest(option, name, list(types_of(source)))
        linking, names = self.linking, self.linking.tables
        people_schema, rules = across(people_schema, linking.people, names)
        people_schema, patterns = _without_patterns(people_schema, {linking.person})
        people_draft = self._of_people(people_path, people_schema)
        tables = list[LinkedRows]()
        for spec in self.specs:
            schema, own = _without_patterns(spec.schema, {linking.person, spec.link, spec.key})
            patterns = own | patterns
            schema, more = across(schema, spec.name, names)
            made = self._table(replace(spec, schema=schema), people_path, tables)
            tables.append(replace(made, pattern=own.get(spec.key or "", "")))
            rules = [*rules, *more]
        people_draft, *of_rows = self._with_rules(rules, people_draft, tables)
        return Drafted(
            replace(linking, pattern=patterns.get(linking.person, "")),
            people_path,
            people_draft,
            tuple(replace(table, draft=draft) for table, draft in zip(tables, of_rows)),
            options.split(),
            rules,
            self.of,
        )

    def _named(self, people_path: Source | None) -> Iterator[tuple[str, str | None, Source]]:
        """Columns that options name, and the tables that must have them."""
        person, references = self.linking.person, self.linking.others(self.linking.people)
        for spec in self.specs:
            yield from (("person", None if spec.parent else person, spec.source), ("order", spec.order, spec.source))
        if people_path is not None:
            yield "person", person, people_path
            yield from (("links", name, people_path) for name in references)

    def _of_people(self, path: Source | None, schema: Any) -> dict[str, Any]:
        """The draft of the table of people, which may have no column but keys where there are rows."""
        linking, draft = self.linking, dict[str, Any](fields=[])
        keys: set[str | None] = {linking.person, *linking.others(linking.people)}
        kept = set[str]() if path is None else {*types_of(path)} - {*linking.drop.get(linking.people or "", ())}
        if path is not None and (schema is not None or kept != keys):
            draft = self._draft(linking.people or "", path, schema, keys)
        if not self.specs and not draft["fields"]:
            raise ValueError(f"table {linking.people!r} has no column but keys; it must have one more")
        return draft

    def _with_rules(
        self, rules: Sequence[Mapping[str, Any]], people: dict[str, Any], tables: Sequence[LinkedRows]
    ) -> list[dict[str, Any]]:
        """Drafts of people and of all tables, without the columns that constraints on several tables compute."""
        linking = self.linking
        drafts = {linking.people or "": people} | {table.name: table.draft for table in tables}
        orders = {table.name: table.order[1] for table in tables if table.order is not None}
        paths = {name: self._path(name) for name in linking.tables}
        for rule in rules:
            Drafts({name: draft["fields"] for name, draft in drafts.items()}, orders, paths).require(rule)
            drafts = {n: {**draft, "fields": modelled([rule], n, draft["fields"])} for n, draft in drafts.items()}
        return [*drafts.values()]

    def _path(self, table: str) -> list[str]:
        """A table, and those that it hangs on."""
        spec = next((spec for spec in self.specs if spec.name == table), None)
        above = "" if spec is None else self.specs[spec.parent - 1].name if spec.parent else self.linking.people or ""
        return [table, *(self._path(above) if above else [])]

    def _table(self, spec: Spec, people_path: Source | None, tables: Sequence[LinkedRows]) -> LinkedRows:
        """A table of rows whose rows are not read yet."""
        above = tables[spec.parent - 1] if spec.parent else None
        made = self._made(spec, above, people_path)
        schema, of_gap = _without(spec.schema, made.gap)
        schema, of_since = _without(schema, made.since)
        keys = {self.linking.person, spec.link, spec.key, *self.linking.others(spec.name)}
        draft = self._draft(spec.name, spec.source, schema, keys, spec.order)
        if not draft["fields"] and spec.order is None and spec.key is None:
            raise ValueError(f"table {spec.name!r} has no column but keys; it must have one more")
        order, spans, away = None, dict[str, str](), tuple[Distance, ...]()
        if spec.order is not None:
            order = spec.order, self._date(draft, spec.order, spec.source)
            if made.since is not None and dated(order[1]) != dated(above.order[1]):  # type: ignore[union-attr, index]
                made = replace(made, since=None)
            spans, away = made.spans(spec), made.add_to(draft, spec, order[1], self.linking.time_unit, (of_gap, of_since))
        return LinkedRows(
            name=spec.name,
            parent=spec.parent,
            rows=pd.DataFrame(),
            starts=np.zeros(1, np.int64),
            sample=pd.DataFrame(),
            draft=draft,
            spans=spans,
            most=0,
            least=int(people_path is None and not spec.parent),
            buys_most=spec.most is None,
            link=spec.link,
            key=spec.key,
            pattern="",
            count=made.count,
            order=order,
            gap=made.gap,
            since=made.since,
            source=spec.source,
            distances=away,
        )

    def _made(self, spec: Spec, above: LinkedRows | None, people_path: Source | None) -> _Made:
        """Columns that the model of a table adds, under names that no column has."""
        present = {*types_of(spec.source), *types_of(above.source if above else people_path or spec.source)}

        def new(name: str) -> str:
            return name if name not in present else f"{name} of the model"

        since = None
        if above is not None and above.order is not None and spec.order is not None:
            since = new(f"{self.linking.time_unit}s since {above.name}")
        return _Made(new(f"number of {spec.name}"), new(f"{self.linking.time_unit}s since the last"), since, new)

    def _draft(self, table: str, path: Source, schema: Any, keys: set[str | None], order: str | None = None) -> dict[str, Any]:
        types = {} if order is None else {order: self._type(path, order)}
        drop = self.linking.drop.get(table, ())
        stated = with_keys(schema, self.linking.public.get(table, ()))
        draft = draft_of(path, stated, Chosen(drop=drop), unit=self.linking.person, types=types)
        if "dpgen:privacy" in draft:
            raise ValueError(
                "schema has domains that were bought for single rows; leave them out: the fit buys them for people"
            )
        if any(field["name"] == self.linking.person for field in draft["fields"]):
            raise ValueError(f"person is {self.linking.person!r}; it must be no field of the schema")
        fields = [field for field in draft["fields"] if field["name"] not in keys]
        return {k: v for k, v in draft.items() if k != "primaryKey" or v not in keys} | {"fields": fields}

    def _type(self, path: Source, order: str) -> str:
        """The type of the order, in the words of Arrow: a date or a whole number, which is public, for all rows must be so."""
        of_dates = {"day": "date32[day]", "second": "timestamp[s]"}[self.linking.time_unit]
        return types_of(path)[order] or ("int64" if _is_counted(path, order) else of_dates)

    def _date(self, draft: dict[str, Any], order: str, path: Source) -> dict[str, Any]:
        """The field of the order: a date by day, a time by second, or a whole number."""
        field = next((field for field in draft["fields"] if field["name"] == order), None)
        if field is None:  # a schema that states all of its fields leaves others out, but not this one
            field = {"name": order, "type": type_of(self._type(path, order)), "dpgen:blank": True}
            draft["fields"] = [*draft["fields"], field]
        if field["type"] in ("any", "string", "date", "datetime"):
            field["type"] = {"day": "date", "second": "datetime"}[self.linking.time_unit]
        elif field["type"] not in ("integer", "year"):
            raise ValueError(f"order is {order!r}, a {field['type']}; it must hold dates, times or whole numbers")
        field["constraints"] = field.get("constraints", {}) | {"required": True}
        return field


@dataclass(frozen=True)
class _Made:
    """Columns that the model adds: the number of rows, the time since the row before, and that since the row above."""

    count: str
    gap: str
    since: str | None
    new: Callable[[str], str]

    def spans(self, spec: Spec) -> dict[str, str]:
        """Columns of time that the first row alone has, and those of later rows alone."""
        return {self.since or str(spec.order): "first"} | ({self.gap: "later"} if spec.most != 1 else {})

    def add_to(
        self, draft: dict[str, Any], spec: Spec, order: Mapping[str, Any], unit: TimeUnit, stated: tuple[Any, Any]
    ) -> tuple[Distance, ...]:
        """Add the columns of time to the draft of an ordered table, with what its schema says of them; its distances.

        `stated` are fields of the schema for the time since the row before, and for that since the row above.
        """
        (of_gap, of_since), added = stated, list[dict[str, Any]]()
        blank = {"type": "integer", "constraints": {"required": True}, "dpgen:blank": True}
        if self.since is not None:
            added.append(of_since or {"name": self.since, **blank})
        if spec.most != 1:
            added.append(of_gap or {"name": self.gap, **blank, "constraints": {"required": True, "minimum": 0}})
        if added:
            _require_free(draft, self.gap)
        fields, rules, away = distances(draft, order, unit, self.new, alone=not added)
        if "dpgen:constraints" in draft:
            draft["dpgen:constraints"] = rules
        if self.since is not None:  # it stands for the order
            fields = [field for field in fields if field["name"] != spec.order]
        draft["fields"] = [*fields, *added]
        return away


def _require_free(draft: dict[str, Any], gap: str) -> None:
    """Refuse constraints on times between rows: they follow from other rows."""
    if any(gap in constraint_of(rule).names for rule in draft.get("dpgen:constraints", [])):
        raise ValueError(
            f"a constraint of the schema is on {gap!r}; with max_rows above 1 none may be on the time between rows, which "
            "follows from other rows"
        )


def _unbounded(table: LinkedRows) -> dict[str, Any]:
    """The draft of a table without constraints on the order of its rows, and on what comes before or after it."""
    away = {own.made for own in table.distances}
    fields = [{**field, "constraints": {}} if field["name"] in away else field for field in table.draft["fields"]]
    return {**{key: value for key, value in table.draft.items() if key != "dpgen:constraints"}, "fields": fields}


def _is_counted(source: Source, order: str) -> bool:
    """Whether a column of an order holds whole numbers, not dates."""
    if not isinstance(source, str):
        return str(source.schema.field(order).type).startswith(("int", "uint"))
    if not isinstance(source, InMemory):
        return False
    whole = [CELLS.index(("number", "integer")), *cells_of_digits()]
    return bool(np.isin(votes(read_table(source, [order])[order], "any"), whole).all())


def _without_patterns(schema: Any, keys: set[str | None]) -> tuple[Any, dict[str, str]]:
    """A schema without the keys whose pattern it states, and these patterns."""
    given = descriptor_of(schema)
    own = [field for field in given["fields"] if field.get("name") in keys]
    found = {field["name"]: stated_key(field) for field in own if stated_key(field)}
    if not found:
        return schema, {}
    left = {**given, "fields": [field for field in given["fields"] if field.get("name") not in found]}
    if left.get("primaryKey") in [*found]:
        del left["primaryKey"]
    return left, found


def _without(schema: Any, name: str | None) -> tuple[Any, dict[str, Any] | None]:
    """A schema without a field that no column has, and this field, if it is there."""
    if schema is None or name is None:
        return schema, None
    given = descriptor_of(schema)
    found = next((field for field in given["fields"] if field.get("name") == name), None)
    if found is not None:  # no row is without it
        found = {**found, "constraints": {**found.get("constraints", {}), "required": True}}
    return {**given, "fields": [field for field in given["fields"] if field.get("name") != name]}, found


# -- constraints on columns of several tables ----------------------------------------------------------------------------

Rule = Mapping[str, Any]


def across(schema: Any, own: str | None, tables: Sequence[str]) -> tuple[Any, list[Rule]]:
    """A schema without its constraints on columns of several tables, and these, with the name of its own table."""
    if len(tables) < 2:
        return schema, []
    given = descriptor_of(schema)
    known, rules = {str(field.get("name")) for field in given["fields"]}, given.get("dpgen:constraints", [])

    def elsewhere(name: str) -> bool:
        return name.startswith(tuple(f"{table}." for table in tables)) and name not in known

    both = [rule for rule in rules if any(map(elsewhere, constraint_of(rule).names))]
    if not both:
        return schema, []
    for rule in both:
        if "broken" in rule:
            raise ValueError(f"a constraint is on {', '.join(constraint_of(rule).names)}, of several tables; leave out broken")

    def full(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {full(name): condition for name, condition in value.items()}
        if isinstance(value, list):
            return [full(name) for name in value]
        return value if elsewhere(value) else f"{own}.{value}"

    def named(rule: Rule) -> Rule:
        return {key: full(value) for key, value in rule.items()}

    return {**given, "dpgen:constraints": [rule for rule in rules if rule not in both]}, [*map(named, both)]


@dataclass(frozen=True)
class Drafts:
    """Known facts of the columns of all tables.

    Arguments:
        fields: of each table, those of its draft.
        orders: the field of the order of each table that has one.
        paths: each table, and those that it hangs on.
    """

    fields: Mapping[str, Sequence[Mapping[str, Any]]]
    orders: Mapping[str, Mapping[str, Any]]
    paths: Mapping[str, Sequence[str]]

    def place(self, name: str) -> tuple[str, str]:
        """The table of a column TABLE.COLUMN, and its type."""
        table = next(own for own in self.fields if name.startswith(f"{own}."))
        column, fields = name.removeprefix(f"{table}."), [*self.fields[table]]
        fields += [self.orders[table]] if table in self.orders else []
        field = next((field for field in fields if field["name"] == column), None)
        if field is None:
            raise nearest(f"a column of a constraint on {table}", column, [f["name"] for f in fields])
        return table, field["type"]

    def require(self, rule: Rule) -> None:
        """Refuse a constraint on several tables that no sample could satisfy."""
        names = constraint_of(rule).names
        places = {name: self.place(name) for name in names}
        self._require_types(rule, {name: kind for name, (_, kind) in places.items()})
        tables = {table for table, _ in places.values()}
        lowest = max(tables, key=lambda table: len(self.paths[table]))
        if not tables <= {*self.paths[lowest]}:
            raise ValueError(f"a constraint is on {' and '.join(names)}; one of these rows must hang on the other")
        if "sum" in rule:
            self._require_sum(rule, names, places, lowest)

    def _require_types(self, rule: Rule, types: Mapping[str, str]) -> None:
        """Refuse columns of unknown types, and a comparison of dates and numbers."""
        unknown = [name for name, kind in types.items() if kind == "any"]
        if unknown and "forbidden" not in rule:
            raise ValueError(f"a constraint is on {unknown[0]!r}; the schema must state its type")
        dates = {kind in ("date", "datetime") for kind in types.values()}
        if "depends" in rule or ("less_equal" in rule and len(dates) > 1):
            raise ValueError(
                f"a constraint is on {' and '.join(types)}; it must be forbidden, less_equal of alike types, or sum"
            )

    def _require_sum(self, rule: Rule, names: Sequence[str], places: Mapping[str, tuple[str, str]], lowest: str) -> None:
        """Refuse a sum that is not of one number of rows for a number of those above."""
        total = rule["total"]
        above = places[total][0] if total in places else lowest
        alike = len(names) == 2 and places[names[0]][0] == lowest != above
        if not alike or not {kind for _, kind in places.values()} <= {"integer", "number"}:
            raise ValueError(f"a constraint is the sum {total!r}; it must be of one number of rows, for a number of people")


def modelled(rules: Sequence[Rule], table: str, fields: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fields of a table but those that constraints compute of rows below: these are no column of the model."""
    totals = {rule["total"] for rule in rules if "sum" in rule}
    return [field for field in fields if f"{table}.{field['name']}" not in totals]
