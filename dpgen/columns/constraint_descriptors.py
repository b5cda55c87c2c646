"""Constraints by their descriptors, as a schema has them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from dpgen.columns.constraints import (
    PARTS,
    Constraint,
    Dated,
    Depends,
    Follows,
    Forbidden,
    LessEqual,
    Missing,
    OneOf,
    Part,
    Product,
    Total,
)
from dpgen.columns.fields import nearest

Descriptor = Mapping[str, Any]

MOST_BROKEN = 0.1
"""Share of rows that may break a constraint, at most."""


def constraint_of(descriptor: Any) -> Constraint:
    if not isinstance(descriptor, Mapping) or not descriptor:
        raise ValueError(f"a constraint is {descriptor!r}; it must be a mapping with one of {', '.join(_FORMS)}")
    form = next((form for form in _FORMS if form in descriptor), "")
    if not form:
        raise nearest("a constraint", str(next(iter(descriptor))), list(_FORMS))
    way = _FORMS[form]
    if set(descriptor) - {"broken"} - way.more != {form} | way.keys:
        needed = ", ".join(sorted({form} | way.keys))
        raise ValueError(f"a constraint has the keys {', '.join(descriptor)}; {form} has {needed}")
    share = _broken(form, descriptor.get("broken", 0.0))
    if not way.fits(descriptor):
        raise ValueError(
            f"constraint {form} is {descriptor[form]!r}; its docstring in dpgen.columns.constraints has an example"
        )
    return replace(way.made(descriptor), broken=share)


def _broken(form: str, share: Any) -> float:
    """The share of rows that may break a constraint."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= MOST_BROKEN:
        raise ValueError(f"broken of constraint {form} is {share!r}; it must be a share of rows in [0, {MOST_BROKEN}]")
    return float(share)


def _flat(table: Any, depth: int) -> dict[tuple[str, ...], str | None]:
    """Values of a nested table by their keys, as texts."""
    if not depth:
        return {(): None if table is None else str(table)}
    if not isinstance(table, Mapping):
        raise ValueError(f"a table of constraint follows has {table!r}; it must have a level for each column of on")
    return {(str(key), *rest): value for key, own in table.items() for rest, value in _flat(own, depth - 1).items()}


class _Form(NamedTuple):
    """Keys beside its name that a constraint must have, and may have (`more`); which descriptors fit, and what they make."""

    keys: set[str]
    fits: Callable[[Descriptor], bool]
    made: Callable[[Descriptor], Constraint]
    more: frozenset[str] = frozenset()


def _is_list(name: str, least: int, most: float = math.inf) -> Callable[[Descriptor], bool]:
    return lambda given: isinstance(given[name], list) and least <= len(given[name]) <= most


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(map(str, values))


def _follows(given: Descriptor) -> Constraint:
    columns = _texts(given["on"] if isinstance(given["on"], list) else [given["on"]])
    return Follows(str(given["follows"]), columns, _flat(given["table"], len(columns)))


def _missing(given: Descriptor) -> Constraint:
    beside = None if given["value"] is None else str(given["value"])
    return Missing(str(given["missing"]), str(given["on"]), beside, bool(given["both"]))


def _product(given: Descriptor) -> Constraint:
    times, plus = float(given.get("times", 1)), float(given.get("plus", 0))
    return Product(
        _texts(given["product"]), str(given["total"]), int(given["places"]), _texts(given.get("over", [])), times, plus
    )


def _is_part(given: Descriptor) -> bool:
    return given["part"] in PARTS and isinstance(given["values"], Mapping | None)


def _part(on: Any, name: Any, given: Descriptor) -> Part:
    known = given["values"] and {int(number): own for number, own in given["values"].items()}
    return Part(str(on), str(given["part"]), str(name), known)


_FORMS = {
    "forbidden": _Form(
        set(),
        lambda given: isinstance(given["forbidden"], Mapping) and len(given["forbidden"]) > 0,
        lambda given: Forbidden(dict(given["forbidden"])),
    ),
    "less_equal": _Form(set(), _is_list("less_equal", 2, 2), lambda given: LessEqual(*_texts(given["less_equal"]))),
    "sum": _Form({"total"}, _is_list("sum", 1), lambda given: Total(_texts(given["sum"]), str(given["total"]))),
    "depends": _Form(
        {"on", "table"},
        lambda given: isinstance(given["table"], Mapping),
        lambda given: Depends(str(given["depends"]), str(given["on"]), {str(k): v for k, v in given["table"].items()}),
    ),
    "follows": _Form({"on", "table"}, lambda given: isinstance(given["table"], Mapping), _follows),
    "one_of": _Form(
        set(),
        _is_list("one_of", 2),
        lambda given: OneOf(_texts(given["one_of"]), bool(given.get("or_none", False))),
        frozenset({"or_none"}),
    ),
    "missing": _Form({"on", "value", "both"}, lambda given: True, _missing),
    "product": _Form(
        {"total", "places"},
        lambda given: _is_list("product", 1)(given) and isinstance(given.get("over", []), list),
        _product,
        frozenset({"over", "times", "plus"}),
    ),
    "part_of": _Form({"part", "total", "values"}, _is_part, lambda given: _part(given["part_of"], given["total"], given)),
    "dated": _Form({"on", "part", "values"}, _is_part, lambda given: Dated(_part(given["on"], given["dated"], given))),
}
