"""Descriptors of fields of the Frictionless Table Schema, as their owner writes them, and the fields that they declare."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from string import Formatter
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd

from dpgen.columns.axes import Axis, axis_of
from dpgen.columns.density import Density, Integers, digits_of, logs_of
from dpgen.columns.fields import (
    ANY,
    TRUTHS,
    CategoryField,
    DensityField,
    Field,
    GivenField,
    Law,
    LengthField,
    NumberField,
    OpenField,
    Source,
    Type,
    nearest,
)
from dpgen.columns.forms import DAY, NUMBER
from dpgen.columns.forms import read as values_of
from dpgen.columns.writings import writing_of
from dpgen.columns.writings.codes import is_pattern

if TYPE_CHECKING:
    from dpgen.columns.discretized import DiscretizedColumn

Descriptor = Mapping[str, Any]

_BINS = 32
EXACT = 64  # a grid of at most so many values has a bin for each
_BESIDE = pd.Timedelta(days=2)
_DIGITS = 6  # decimal places of a number without a rounding, below the leading one of its range
_PLAIN_KEYS = {"name", "type", "format", "constraints", "title", "description", "example", "rdfType", "trueValues"}
_PLAIN_KEYS |= {"falseValues", "missingValues", "categories", "categoriesOrdered"}
_OWN_KEYS = {"dpgen:bins", "dpgen:law", "dpgen:rounding", "dpgen:source", "dpgen:key", "dpgen:outside", "dpgen:fill"}
_OWN_KEYS |= {"dpgen:blank", "dpgen:density", "dpgen:least", "dpgen:check", "dpgen:patterns", "dpgen:length"}
_OF_STRINGS = ("email", "uri", "binary", "uuid")
_ISO = re.compile(r"\d{4}(-\d\d){0,2}([T ].*)?$")
_CONSTRAINTS = {"required", "unique", "enum", "minimum", "maximum"}
_OF_KEYS = re.compile(r"\^?((?:[^\\\[\](){}.*+?|^$]|\\[\W_])*)(?:\[0-9\]|\\d)(?:\{(\d+),?\}|\+)\$?")


def field_of(descriptor: Descriptor, *, key: bool = False, computed: bool = False) -> Field:
    """The field that a descriptor of the Table Schema declares.

    `key`: its values are generated; `computed`: a constraint computes them.

    >>> age = field_of({"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 99}})
    >>> age.size, age.nullable
    (32, True)
    """
    _require_descriptor(descriptor)
    name, kind, is_open = descriptor["name"], descriptor.get("type", "string"), bool(descriptor.get("dpgen:blank"))
    rules, source = descriptor.get("constraints", {}), descriptor.get("dpgen:source", "public")
    if kind in ("date", "datetime"):
        rules = {**rules, **_stated_dates(name, kind, descriptor, rules)}
    common: dict[str, Any] = {"name": name, "type": kind, "nullable": not rules.get("required", False), "source": source}
    common["fill"] = descriptor.get("dpgen:fill")
    common["format"] = _format_of(name, descriptor)
    if key or computed:
        return GivenField(**common, pattern=stated_key(descriptor))
    if rules.get("unique"):
        raise ValueError(f"unique of field {name!r} is true; it must be the primaryKey, whose values are generated")
    if is_open:
        return _open_field(common, descriptor, rules)
    listed, in_order = _listed(name, descriptor, rules)
    if kind == "boolean":
        return _truth_field(common, descriptor, listed, in_order)
    if listed is not None:
        outside = descriptor.get("dpgen:outside")
        of: dict[str, Any] = {"in_order": in_order, "outside": outside}
        of["patterns"] = _patterns(name, descriptor.get("dpgen:patterns", []))
        return CategoryField(**common, values=_typed_values(name, kind, listed), **of)
    if kind == "string":
        raise ValueError(f"field {name!r} has no domain: a string needs constraints.enum, its public categories")
    if "dpgen:density" in descriptor:
        return _density_field(common, descriptor)
    return _number_field(common, descriptor, rules)


def _require_descriptor(descriptor: Descriptor) -> None:
    """Refuse a field without a name, of an unknown type or source, and keys and constraints that no field has."""
    name = descriptor.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"name of a field is {name!r}; it must be a text")
    kind, is_open = descriptor.get("type", "string"), bool(descriptor.get("dpgen:blank"))
    if kind not in get_args(Type) and not (is_open and kind == ANY):
        raise nearest(f"type of field {name!r}", str(kind), get_args(Type))
    _require_known(f"a key of field {name!r}", descriptor, _PLAIN_KEYS | _OWN_KEYS)
    rules = descriptor.get("constraints", {})
    if not isinstance(rules, Mapping):
        raise ValueError(f"constraints of field {name!r} are {rules!r}; they must be a mapping")
    _require_known(f"a constraint of field {name!r}", rules, _CONSTRAINTS)
    source = descriptor.get("dpgen:source", "public")
    if source not in get_args(Source):
        raise nearest(f"dpgen:source of field {name!r}", str(source), get_args(Source))


def _require_known(what: str, found: Iterable[Any], known: Collection[str]) -> None:
    for name in found:
        if name not in known:
            raise nearest(what, str(name), sorted(known))


def stated_key(descriptor: Descriptor) -> str:
    """The pattern by which a schema says that keys are generated, as `dpgen:key` or as the constraint `pattern`; "": none.

    >>> stated_key({"name": "id", "type": "string", "constraints": {"pattern": "C[0-9]{6}"}})
    'C{:06d}'
    """
    name, pattern = descriptor.get("name"), descriptor.get("dpgen:key", "")
    regular = descriptor.get("constraints", {}).get("pattern")
    if not pattern and regular is not None:
        if is_pattern(str(regular)):
            return str(regular)
        found = _OF_KEYS.fullmatch(str(regular))
        if found is None:
            rule = "of a key it must be a text, then digits, as C[0-9]{6}, or be left out"
            raise ValueError(f"pattern of field {name!r} is {regular!r}; {rule}")
        pattern = key_pattern(re.sub(r"\\(.)", r"\1", found[1]), int(found[2] or 1))
    if isinstance(pattern, str) and is_pattern(pattern):
        return pattern
    if pattern and not _tells_rows_apart(pattern):
        raise ValueError(
            f"dpgen:key of field {name!r} is {pattern!r}; it must be a text with {{}} or {{:06d}} for the row, or with \\d"
        )
    return str(pattern)


def _tells_rows_apart(pattern: Any) -> bool:
    try:
        return bool(pattern.format(1) != pattern.format(2))
    except (ValueError, IndexError, KeyError, AttributeError):
        return False


def with_key(descriptor: Any, *, key: bool) -> Any:
    """The descriptor of a field; of a key, or of values that are unique, with its `pattern` as `dpgen:key`."""
    rules = descriptor.get("constraints") if isinstance(descriptor, Mapping) else None
    if not isinstance(rules, Mapping) or "pattern" not in rules or not (key or rules.get("unique")):
        return descriptor
    left = {name: rule for name, rule in rules.items() if name not in ("pattern", "unique")}
    return {**descriptor, "constraints": left, "dpgen:key": stated_key(descriptor)}


def key_pattern(start: str, digits: int) -> str:
    """The pattern of keys that are a text and a number of so many digits, or more where numbers are greater."""
    return f"{start.replace('{', '{{').replace('}', '}}')}{{:0{digits}d}}"


def regular_pattern(pattern: str) -> str:
    """The regular expression that a key of a pattern satisfies.

    >>> regular_pattern("C{:06d}"), regular_pattern("{}-x")
    ('C[0-9]{6,}', '[0-9]+-x')
    """
    if is_pattern(pattern):
        return pattern
    parts = []
    for text, name, form, _ in Formatter().parse(pattern):
        digits = re.search("[1-9][0-9]*", form or "")
        number = f"[0-9]{{{digits[0]},}}" if digits else "[0-9]+"
        parts.append(re.sub(r"([\[\](){}.*+?|^$\\])", r"\\\1", text) + ("" if name is None else number))
    return "".join(parts)


def _patterns(name: str, patterns: Any) -> tuple[str, ...]:
    if not isinstance(patterns, list | tuple) or not all(isinstance(text, str) and is_pattern(text) for text in patterns):
        raise ValueError(
            f"dpgen:patterns of field {name!r} is {patterns!r}; it must list texts with \\d, [A-Z] or [a-z] for each place"
        )
    return tuple(patterns)


def _listed(name: str, descriptor: Descriptor, rules: Descriptor) -> tuple[tuple[Any, ...] | None, bool]:
    """The values that a field lists, in `enum` or in `categories`, and whether they are in order."""
    values, in_order = rules.get("enum"), bool(descriptor.get("categoriesOrdered", False))
    if values is None and (categories := descriptor.get("categories")) is not None:
        values = [entry["value"] if isinstance(entry, Mapping) else entry for entry in categories]
    if values is not None and not isinstance(values, list | tuple):
        raise ValueError(f"enum of field {name!r} is {values!r}; it must be a list")
    return None if values is None else tuple(values), in_order


def _typed_values(name: str, kind: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    if kind == "string":
        if wrong := [value for value in values if not isinstance(value, str)]:
            raise ValueError(f"enum of field {name!r} lists {wrong[0]!r}; a string lists texts (in quotes, in YAML)")
        return values
    if kind in ("date", "datetime"):
        raise ValueError(f"enum of field {name!r} lists dates; a {kind} needs minimum and maximum instead")
    _, found = values_of(pd.Series(values, dtype=object), kind, strict=True)
    if len(found) < len(values):
        raise ValueError(f"enum of field {name!r} lists {list(values)[:3]!r} ...; it must hold values of the type {kind}")
    return tuple(found.tolist())


def _open_field(common: dict[str, Any], descriptor: Descriptor, rules: Descriptor) -> Field:
    """A field whose domain is bought: all that is stated of it has to be possible, whatever is bought."""
    name, kind = common["name"], common["type"]
    bounds = {rule: rules.get(rule) for rule in ("minimum", "maximum")}
    _bins_of(name, descriptor.get("dpgen:bins"))
    if kind not in (ANY, "string"):
        known = {key: value for key, value in descriptor.items() if key != "dpgen:bins"}
        step = descriptor.get("dpgen:rounding", 1)
        if kind == "datetime" and _is_number(step) and float(step) > DAY:
            raise ValueError(
                f"dpgen:rounding of field {name!r} is {step!r}; it must be {DAY} seconds at most where bins are bought"
            )
        _number_field(common, known, bounds | _beside(kind, bounds, step))
    clamp = descriptor.get("dpgen:outside") == "clamp"
    limits: dict[str, Any] = {} if clamp else bounds
    return OpenField(**common, **limits)


def _beside(kind: str, bounds: Mapping[str, Any], step: Any) -> dict[str, Any]:
    """Bounds in the place of those that are not known, with which a field can be made."""
    low, high = bounds["minimum"], bounds["maximum"]
    if kind in ("date", "datetime"):
        return _dates_beside(low, high)
    known = next((float(bound) for bound in (low, high) if bound is not None and _is_number(bound)), 0.0)
    width = 2 * float(step) if _is_number(step) else 1.0
    whole = kind in ("integer", "year")
    least, most = (math.floor(known - width), math.ceil(known + width)) if whole else (known - width, known + width)
    return {"minimum": least if low is None else low, "maximum": most if high is None else high}


def _dates_beside(low: Any, high: Any) -> dict[str, Any]:
    known = low or high or "2000-01-01"
    if (low and high) or not _is_date(known):
        return {}  # refused as it is
    near = pd.Timestamp(known)
    return {"minimum": low or str(near - _BESIDE), "maximum": high or str(near + _BESIDE)}


def _is_date(text: Any) -> bool:
    try:
        return pd.notna(pd.Timestamp(text))
    except (ValueError, TypeError):
        return False


def written_as(field: Mapping[str, Any]) -> str:
    """The format of dates or numbers that a field states; "": ISO 8601, or plain numbers."""
    form = str(field.get("format", ""))
    return "" if form in ("any", "default") else form


def dated(field: Mapping[str, Any]) -> bool:
    """Whether a field holds dates or times."""
    return field.get("type") in ("date", "datetime")


def _format_of(name: str, descriptor: Descriptor) -> str:
    """The form in which texts show the values: "" where nothing is said of it."""
    form, kind = str(descriptor.get("format", "any")), descriptor.get("type", "string")
    if form in ("any", "default") or (kind == "string" and form in _OF_STRINGS):
        return "default" if form == "default" and dated(descriptor) else ""
    _require_format(name, form, kind)
    return form


def _require_format(name: str, form: str, kind: str) -> None:
    """Refuse a format that is none, or none of a type."""
    writing = writing_of(form)
    if writing is None and not ("%" in form and kind in (ANY, "date", "datetime")):
        raise ValueError(
            f"format of field {name!r} is {form!r}; it must be a pattern of dates such as %d.%m.%Y, a number such as "
            "1.234,50 €, or default: ISO 8601"
        )
    if writing is not None and kind != ANY and writing.kind != kind and (kind, writing.kind) != ("integer", "number"):
        raise ValueError(f"format of field {name!r} is {form!r}, of a {writing.kind}; its type is {kind}")


def _stated_dates(name: str, kind: str, descriptor: Descriptor, rules: Descriptor) -> dict[str, str]:
    """Bounds by ISO 8601 of those that are written in the format of the values."""
    form, found = _format_of(name, descriptor), dict[str, str]()
    for rule in ("minimum", "maximum"):
        given = rules.get(rule)
        if not isinstance(given, str) or _ISO.match(given):
            continue
        try:
            moment = datetime.strptime(given, form)
        except ValueError:
            also = f", or of the format {form}" if "%" in form else ""
            raise ValueError(f"{rule} of field {name!r} is {given!r}; it must be a {kind} such as 2020-01-31{also}") from None
        found[rule] = moment.date().isoformat() if kind == "date" else moment.isoformat(sep=" ")
    return found


def _truth_field(common: dict[str, Any], descriptor: Descriptor, listed: Any, in_order: bool) -> Field:
    true, false = (tuple(descriptor.get(f"{truth}Values", words)) for truth, words in zip(("true", "false"), TRUTHS))
    values = (False, True) if listed is None else listed
    return CategoryField(**common, values=values, in_order=in_order, true=true, false=false)


def _number_field(common: dict[str, Any], descriptor: Descriptor, rules: Descriptor) -> Field:
    name, kind = common["name"], common["type"]
    count, edges, logarithmic = _bins_of(name, descriptor.get("dpgen:bins"))
    first, last = (edges[0], edges[-1]) if edges else (None, None)
    low, high = rules.get("minimum", first), rules.get("maximum", last)
    if low is None or high is None:
        raise ValueError(f"field {name!r} has no domain: {kind} needs a public minimum and maximum in constraints")
    if kind not in ("date", "datetime") and str(low) == str(high):
        [value] = _typed_values(name, kind, (low,))
        return CategoryField(**common, values=(value,), outside=value if descriptor.get("dpgen:outside") == "clamp" else None)
    grid = _grid(name, kind, low, high, descriptor.get("dpgen:rounding"))
    starts = _edge_starts(name, grid, edges) if edges else _starts(name, grid, count, logarithmic=logarithmic)
    outside = descriptor.get("dpgen:outside")
    if outside not in (None, "clamp"):
        raise ValueError(f"dpgen:outside of field {name!r} is {outside!r}; of a {kind} it must be 'clamp' or left out")
    law = _law(name, kind, descriptor)
    return NumberField(
        **common,
        grid=grid,
        starts=tuple(starts),
        logarithmic=logarithmic or law == "log",
        clamp=outside == "clamp",
        law=law,
    )


def _law(name: str, kind: str, descriptor: Descriptor) -> Law:
    """The law of a number inside of its bins."""
    law: Law = descriptor.get("dpgen:law", "linear" if kind == "number" else "uniform")  # whole numbers and dates have spikes
    if law not in get_args(Law):
        raise nearest(f"dpgen:law of field {name!r}", str(law), get_args(Law))
    return law


def described(axis: Axis, starts: Integers, density: Density) -> dict[str, Any]:
    """Keys of a descriptor that say the codes and the density of a number, the inverse of which `field_of` reads.

    The last edge is the last value of the range, others are the first ones of their parts.
    """

    def labels(units: Integers) -> list[Any]:
        return [axis.label(unit) for unit in (*units[:-1].tolist(), int(units[-1]) - 1)]

    law: dict[str, Any] = {"edges": labels(density.edges), "logs": density.heights()}
    if density.digits is not None:
        digits = density.digits
        law["digits"] = {"period": digits.period, "offset": digits.offset, "weights": digits.weights.round(4).tolist()}
    return {"dpgen:bins": {"edges": labels(starts)}, "dpgen:density": law}


def _density_field(common: dict[str, Any], descriptor: Descriptor) -> Field:
    name, law = common["name"], descriptor["dpgen:density"]
    axis = axis_of(common["type"], descriptor.get("dpgen:rounding"))

    def units(labels: Any) -> Integers:
        found = [axis.unit(label) for label in labels]
        return np.array([*found[:-1], found[-1] + 1], np.int64)

    try:
        starts, edges = units(descriptor["dpgen:bins"]["edges"]), units(law["edges"])
        left, right = logs_of(law["logs"])
        digits = digits_of(law["digits"]) if "digits" in law else None
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise ValueError(f"dpgen:density of field {name!r} is not as dpgen wrote it: {error}") from None
    if not (np.diff(edges) > 0).all() or len(left) != len(edges) - 1 or not np.isin(starts, edges).all():
        raise ValueError(f"dpgen:density of field {name!r} is not as dpgen wrote it: its edges are not in order")
    density = Density(edges, left, right, axis, digits)
    known: dict[str, Any] = {**common, "axis": axis, "starts": tuple(starts.tolist()), "density": density}
    return _length_field(known, descriptor["dpgen:length"]) if "dpgen:length" in descriptor else DensityField(**known)


def _length_field(known: dict[str, Any], given: Any) -> Field:
    """A field that is coded by how much it is more than another one."""
    own = {"name": known["name"], "type": "", "nullable": False, "source": known["source"]}
    try:
        length = _density_field(own | {"type": given["type"]}, given)
        assert isinstance(length, DensityField)
        return LengthField(**known, base=str(given["from"]), length=length, unit=int(given.get("unit", 1)))
    except (KeyError, TypeError) as error:
        raise ValueError(f"dpgen:length of field {known['name']!r} is not as dpgen wrote it: it lacks {error}") from None


def _bins_of(name: str, bins: Any) -> tuple[int | None, list[Any], bool]:
    """Number of bins, their edges, and whether they are logarithmic, of `{"equal": 20}`, `{"log": 20}` or a list of edges."""
    match {"edges": bins} if isinstance(bins, list) else bins:
        case None:
            return None, [], False
        case {"edges": list(edges), **others} if len(edges) >= 2 and not others:
            return None, edges, False
        case {"equal": count, **others} | {"log": count, **others} if type(count) is int and count >= 1 and not others:
            return count, [], "log" in bins
    raise ValueError(f'dpgen:bins of field {name!r} is {bins!r}; it must be {{"equal": N}}, {{"log": N}} or {{"edges": [...]}}')


def _grid(name: str, kind: Type, low: Any, high: Any, rounding: Any) -> DiscretizedColumn:
    from dpgen.columns.discretized import DiscretizedColumn  # here: a domain that is bought has another axis

    dates = kind in ("date", "datetime")
    if bool in (type(low), type(high)) or not (dates or (_is_number(low) and _is_number(high))):
        raise ValueError(f"minimum and maximum of field {name!r} are {low!r} and {high!r}; they must be of type {kind}")
    step = _step(kind, low, high) if rounding is None else str(rounding)
    if rounding is not None and kind not in ("number", "datetime", "integer"):
        raise ValueError(f"dpgen:rounding of field {name!r} is {rounding!r}; a {kind} has none")
    try:
        return DiscretizedColumn(kind="date" if dates else "number", low=str(low), high=str(high), resolution=step)
    except ValueError as error:
        raise ValueError(f"field {name!r}: {error}") from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | str) and NUMBER.fullmatch(str(value)) is not None


def _step(kind: Type, low: Any, high: Any) -> str:
    """The usual step of values: a day, a second, 1, or `_DIGITS` digits below the first one of the range."""
    width = Decimal(str(high)) - Decimal(str(low)) if kind == "number" else Decimal(0)
    if width > 0:
        return str(Decimal(1).scaleb(width.adjusted() - _DIGITS))
    return "86400" if kind == "date" else "1"


def _begins(index: Any) -> Iterator[int]:
    """Beginnings of the bins between edges at these places; an edge that stands twice is a bin of this one value."""
    atom = False
    for i in range(len(index) - 1):
        start, last = int(index[i]) + atom, i == len(index) - 2
        if not (atom and not last and start == index[i + 1]):  # between a value alone and the next one there is none
            yield start
        atom = bool(index[i] == index[i + 1]) and not atom


def _edge_starts(name: str, grid: DiscretizedColumn, edges: list[Any]) -> list[int]:
    """First grid index of each bin [e_i, e_(i+1)); an edge that stands twice is a bin of this one value."""
    try:
        index, outside = grid.encode_clamped([str(edge) for edge in edges])
    except ValueError as error:
        raise ValueError(f"edges of field {name!r}: {error}") from None
    if outside.any() or index[0] != 0 or index[-1] != grid.size - 1:
        raise ValueError(f"edges of field {name!r} reach from {edges[0]} to {edges[-1]}; they must go from minimum to maximum")
    starts = [*_begins(index), grid.size]
    if any(left >= right for left, right in pairwise(starts)):
        raise ValueError(
            f"edges of field {name!r} hold {edges[_misplaced(index)]!r} out of order; they must increase by at least the "
            "rounding, a value at most twice"
        )
    return starts


def _misplaced(index: Integers) -> int:
    """Place of the first edge that is below the one before it, or is there for the third time; else the last place."""
    places = range(1, len(index))
    return next((i for i in places if index[i] < index[i - 1] or (i > 1 and index[i] == index[i - 2])), -1)


def _starts(name: str, grid: DiscretizedColumn, count: int | None, *, logarithmic: bool) -> list[int]:
    """Bins of equal numbers of grid points, or of equal ratio."""
    if logarithmic:
        return _log_starts(name, grid, count or _BINS)
    count = min(count or (grid.size if grid.size <= EXACT else _BINS), grid.size)
    return [i * grid.size // count for i in range(count + 1)]


def _log_starts(name: str, grid: DiscretizedColumn, count: int) -> list[int]:
    """Bins of equal ratio of the values above 0, and of those below it; 0 has a bin of its own."""
    if grid.kind == "date":
        raise ValueError(f"dpgen:bins of field {name!r} are logarithmic; dates have equal bins or edges")
    step, (low, high) = float(Decimal(grid.resolution)), grid.as_float([0, grid.size - 1])
    sides = [(start if start > 0 else step, end) for start, end in ((low, high), (-high, -low))]  # distances from 0
    decades = [math.log(max(far / near, 1.0)) for near, far in sides]
    starts = {0, grid.size, *_at_zero(low, high, step)}
    for sign, (near, far), own in zip((1, -1), sides, decades):
        if own:
            bins = max(1, round(count * own / sum(decades)))
            edges = (sign * near * (far / near) ** (np.arange(1, bins) / bins) - low) / step
            starts |= {*map(int, np.ceil(edges - 1e-9) if sign > 0 else np.floor(edges + 1e-9) + 1)}
    return sorted(i for i in starts if 0 <= i <= grid.size)


def _at_zero(low: float, high: float, step: float) -> tuple[int, ...]:
    """Beginning of the values from 0 on, and behind 0 if it is on the grid; (): all are on one side of it."""
    if not low <= 0 <= high:
        return ()
    zero = math.ceil(-low / step - 1e-9)
    return (zero, zero + 1) if abs(low + zero * step) < 1e-9 * step else (zero,)
