"""Constraints of linked tables on columns of several of them, and on the order of rows; those that no sample could satisfy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpgen.columns.constraint_descriptors import constraint_of
from dpgen.columns.descriptors import written_as
from dpgen.columns.distances import Distance
from dpgen.data.linked_rows import TimeUnit, dated
from dpgen.data.raw_tables import descriptor_of
from dpgen.schema import nearest

Rule = Mapping[str, Any]
Descriptor = dict[str, Any]


def across(schema: Any, own: str | None, tables: Sequence[str]) -> tuple[Any, list[Rule]]:
    """A schema without its constraints on columns of several tables, and these, with the name of its own table."""
    if schema is None or len(tables) < 2:
        return schema, []
    given, prefixes = descriptor_of(schema), tuple(f"{table}." for table in tables)
    known, rules = {str(field.get("name")) for field in given["fields"]}, given.get("dpgen:constraints", [])

    def elsewhere(name: str) -> bool:
        return name.startswith(prefixes) and name not in known

    both = [rule for rule in rules if any(map(elsewhere, constraint_of(rule).names))]
    if shared := next((rule for rule in both if "broken" in rule), None):
        raise ValueError(f"a constraint is on {', '.join(constraint_of(shared).names)}, of several tables; leave out broken")
    if not both:
        return schema, []

    def full(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {full(name): condition for name, condition in value.items()}
        if isinstance(value, list):
            return [full(name) for name in value]
        return value if elsewhere(value) else f"{own}.{value}"

    left = {**given, "dpgen:constraints": [rule for rule in rules if rule not in both]}
    return left, [{key: full(value) for key, value in rule.items()} for rule in both]


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
        unknown = next((name for name, (_, kind) in places.items() if kind == "any"), None)
        if unknown and "forbidden" not in rule:
            raise ValueError(f"a constraint is on {unknown!r}; the schema must state its type")
        both, dates = " and ".join(names), {kind in ("date", "datetime") for _, kind in places.values()}
        if "depends" in rule or ("less_equal" in rule and len(dates) > 1):
            raise ValueError(f"a constraint is on {both}; it must be forbidden, less_equal of alike types, or sum")
        lowest = max((table for table, _ in places.values()), key=lambda table: len(self.paths[table]))
        if not {table for table, _ in places.values()} <= {*self.paths[lowest]}:
            raise ValueError(f"a constraint is on {both}; one of these rows must hang on the other")
        if "sum" in rule:
            self._require_sum(rule, names, places, lowest)

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


# -- on the order of rows ----------------------------------------------------------------------------------------------


def distances(
    draft: Descriptor, order: Mapping[str, Any], unit: TimeUnit, new: Callable[[str], str], *, alone: bool = False
) -> tuple[list[Descriptor], list[Any], tuple[Distance, ...]]:
    """Fields and constraints of a draft in which columns that are ordered by `order`, a field, are times from there.

    `new` makes a name of a column that no table has. Where rows are `alone`, one of each person, their order is a column of the
    model: other constraints stay as they are.

    Raises:
        ValueError: a constraint on the order, or on such a column, that has no place in the model.
    """
    name, fields, rules = order["name"], list(draft["fields"]), list(draft.get("dpgen:constraints", []))
    by_name, found = {field["name"]: field for field in fields}, dict[str, Distance]()
    for rule in _of_distances(rules, order, by_name) if alone else [r for r in rules if name in constraint_of(r).names]:
        pair = constraint_of(rule).names
        other = next((own for own in pair if own != name), name)
        if set(rule) != {"less_equal"} or other not in by_name or other in {name, *found}:
            raise ValueError(
                f"a constraint of the schema is on {name!r}; with max_rows above 1 none may be on the order of rows but one "
                f"less_equal for each other column, as in {{'less_equal': [{name!r}, COLUMN]}}"
            )
        found[other] = _distance(by_name[other], order, 1 if pair[0] == name else -1, unit, new)
        rules.remove(rule)
    rules = [_between(rule, found) for rule in rules]
    return [_field(field, found.get(field["name"])) for field in fields], rules, tuple(found.values())


def with_found(
    draft: Descriptor, order: Mapping[str, Any], unit: TimeUnit, signs: Mapping[str, int]
) -> tuple[list[Descriptor], tuple[Distance, ...]]:
    """Fields of a draft in which some columns, after the order (1) or before it (-1) by noisy counts, are times from there.

    Where nobody states how their dates are written it is as those of the order.
    """
    names = {field["name"] for field in draft["fields"]} | {order["name"]}

    def new(name: str) -> str:
        return name if name not in names else f"{name} of the model"

    by_name, form, found = {field["name"]: field for field in draft["fields"]}, written_as(order), dict[str, Distance]()
    for name, sign in signs.items():
        made = _distance(by_name[name], order, sign, unit, new)
        found[name] = replace(made, format=made.format or form, found=True)
    return [_field(field, found.get(field["name"])) for field in draft["fields"]], tuple(found.values())


def _of_distances(rules: Sequence[Rule], order: Mapping[str, Any], by_name: Mapping[str, Descriptor]) -> list[Rule]:
    """The constraints on the order for which distances can stand, whatever other constraints are on these columns."""
    name, found = order["name"], dict[str, Rule]()
    pairs = [(rule, constraint_of(rule).names) for rule in rules]
    of_order = [(rule, pair) for rule, pair in pairs if name in pair]
    for rule, pair in of_order:
        other = next((own for own in pair if own != name), name)
        once = sum(other in names for _, names in of_order) == 1
        if set(rule) == {"less_equal"} and once and other in by_name and _is_alike(by_name[other], order):
            found[other] = rule
    others = [(rule, names) for rule, names in pairs if name not in names]
    while left := {*found} & _apart(others, {other: constraint_of(rule).names[0] == name for other, rule in found.items()}):
        found = {other: rule for other, rule in found.items() if other not in left}
    return list(found.values())


def _apart(rules: Sequence[tuple[Rule, Sequence[str]]], after: Mapping[str, bool]) -> set[str]:
    """Columns of constraints other than an order of two columns that are both `after` a row's own time, or both before it."""
    fits = [set(rule) == {"less_equal"} and {after.get(own) for own in names} in ({True}, {False}) for rule, names in rules]
    return {own for (_, names), fit in zip(rules, fits) if not fit for own in names}


def _is_alike(field: Mapping[str, Any], order: Mapping[str, Any]) -> bool:
    """Whether a column may hold times as the order does, or numbers as it does."""
    return field.get("type", "any") in ("any", "string", *(("date", "datetime") if dated(order) else ("integer", "year")))


def _distance(field: Mapping[str, Any], order: Mapping[str, Any], sign: int, unit: TimeUnit, new: Any) -> Distance:
    ends = (order["name"], field["name"])[::sign]
    kind, of_dates = field.get("type", "any"), dated(order)
    if not _is_alike(field, order):
        raise ValueError(f"a constraint of the schema is on {' and '.join(ends)}; both must be dates or both whole numbers")
    made = new(f"{f'{unit}s ' if of_dates else ''}from {ends[0]} to {ends[1]}")
    if not of_dates:
        return Distance(field["name"], made, sign, "number")
    return Distance(field["name"], made, sign, kind if dated(field) else order["type"], written_as(field))


def _field(field: Descriptor, distance: Distance | None) -> Descriptor:
    """A field, or that of a distance in its place: whether a value is missing is as it was."""
    if distance is None:
        return field
    known = {key: value for key, value in field.get("constraints", {}).items() if key == "required"}
    return {"name": distance.made, "type": "integer", "constraints": known | {"minimum": 0}, "dpgen:blank": True}


def _between(rule: Mapping[str, Any], found: Mapping[str, Distance]) -> Mapping[str, Any]:
    """A constraint without the order: of two columns that come after it, by their distances."""
    names = constraint_of(rule).names
    if not {*names} & {*found}:
        return rule
    signs = {found[name].sign if name in found else 0 for name in names}
    if set(rule) != {"less_equal"} or signs not in ({1}, {-1}):
        raise ValueError(
            f"a constraint of the schema is on {' and '.join(names)}; of columns that a constraint orders by the time of their "
            "row there may be less_equal of two on the same side of it, and no other one"
        )
    left, right = (found[name].made for name in names)
    return {"less_equal": [left, right] if signs == {1} else [right, left]}
