"""Columns of rows that are modelled as times from their own row's time, such as a discharge from the admission.

A row's time follows from the rows before it, so that `admitted <= discharged` has no place in the model of a row. The time from
the admission to the discharge is one number of this row alone, at least 0.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.columns.constraints import constraint_of
from dpgen.columns.descriptors import dated, written_as
from dpgen.columns.forms import REPRESENTED, Reals, floats

TimeUnit = Literal["day", "second"]
Rule = Mapping[str, Any]
Descriptor = dict[str, Any]


@dataclass(frozen=True)
class Distance:
    """A column that is never before the order of its row (`sign` 1), or never after it (-1).

    Arguments:
        column: its name.
        made: the column of the model, whole units of time between both, at least 0.
        sign: whether it comes after the order, or before.
        type: of its values, "date" or "datetime", or "number" where the order is no time.
        format: of these by a schema; "": ISO 8601.
        found: whether noisy counts say so, not a schema: a value on the other side is at the row's own time.
    """

    column: str
    made: str
    sign: int
    type: str
    format: str = ""
    found: bool = False

    def read(self, values: pd.Series, path: str) -> Reals:
        """The column as numbers (n,), dates in seconds, NaN where there is none; a `ValueError` for what is neither."""
        found = floats(values, "number" if self.type == "number" else "datetime", self.format)
        if not self.found and (np.isnan(found) & values.notna().to_numpy()).any():
            what = "number" if self.type == "number" else f"date{f' of the format {self.format}' if self.format else ''}"
            raise ValueError(
                f"{path} has a row whose {self.column!r} is no {what}; its schema orders it by the time of the row"
            )
        return found

    def of(self, values: pd.Series, at: npt.NDArray[Any], step: int, path: str) -> Reals:
        """Whole units (n,) from the order of each row, `at`, in steps of so many seconds; NaN where there is no value."""
        away = np.asarray(self.sign * (np.floor_divide(self.read(values, path), step) - at), np.float64)
        return np.maximum(away, 0.0) if self.found else away

    def shown(self) -> dict[str, Any]:
        """The distance as JSON, for a released model."""
        return asdict(self)


def restored(rows: pd.DataFrame, order: str, shown: Mapping[str, Any], seconds: int, most: int | None = None) -> pd.Series:
    """The column of a distance, `shown`, from an order in units of so many seconds, if it is one of times.

    Distances are `most` units at most: no column ends later after its row than all rows are apart.
    """
    own, at = Distance(**shown), rows[order]
    away = pd.to_numeric(rows[own.made]).to_numpy(np.float64).round()
    there, limit = np.isfinite(away), 2 * REPRESENTED[1] // seconds if most is None else most
    whole = own.sign * np.where(there, np.clip(away, 0, limit), 0.0).astype(np.int64)
    if own.type == "number":
        found = pd.Series(at.to_numpy(np.int64) + whole, index=rows.index)
        return found if there.all() else found.where(there)
    low, high = (np.datetime64(bound, "s") for bound in REPRESENTED)
    moments = np.clip(at.to_numpy("datetime64[s]") + whole * np.timedelta64(seconds, "s"), low, high)
    return pd.Series(np.where(there, moments, np.datetime64("NaT", "s")), index=rows.index).astype(at.dtype)


# -- by the constraints of a schema, or by noisy counts ------------------------------------------------------------------


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
    for rule in _of_distances(rules, order, by_name) if alone else _on(name, rules):
        other = _beside(name, rule)
        if other not in by_name or other in {name, *found}:
            raise ValueError(
                f"a constraint of the schema is on {name!r}; with max_rows above 1 none may be on the order of rows but one "
                f"less_equal for each other column, as in {{'less_equal': [{name!r}, COLUMN]}}"
            )
        found[other] = _distance(by_name[other], order, 1 if constraint_of(rule).names[0] == name else -1, unit, new)
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
    of_order = _on(name, rules)
    for rule in of_order:
        other = _beside(name, rule)
        if other in by_name and len(_on(other, of_order)) == 1 and _is_alike(by_name[other], order):
            found[other] = rule
    others = [rule for rule in rules if rule not in of_order]
    while left := {*found} & _apart(others, name, found):
        found = {other: rule for other, rule in found.items() if other not in left}
    return list(found.values())


def _on(name: str, rules: Sequence[Rule]) -> list[Rule]:
    """The constraints on a column."""
    return [rule for rule in rules if name in constraint_of(rule).names]


def _beside(name: str, rule: Rule) -> str:
    """The column whose order with this one is a constraint; "": it is another constraint."""
    if set(rule) != {"less_equal"}:
        return ""
    return next((own for own in constraint_of(rule).names if own != name), name)


def _apart(rules: Sequence[Rule], name: str, found: Mapping[str, Rule]) -> set[str]:
    """Columns of rules other than an order of two that are both after a row's own time, or both before, by those found."""
    after = {other: constraint_of(rule).names[0] == name for other, rule in found.items()}
    apart = set[str]()
    for rule in rules:
        names = constraint_of(rule).names
        if set(rule) != {"less_equal"} or {after.get(own) for own in names} not in ({True}, {False}):
            apart |= {*names}
    return apart


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
