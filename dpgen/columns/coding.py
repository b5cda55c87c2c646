"""Values of a field as its codes: checked by themselves, and coded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.columns.fields import Field, LengthField
from dpgen.columns.forms import Violation

Columns: TypeAlias = "Mapping[Any, pd.Series] | pd.DataFrame"
"""Parsed columns by name."""
Integers = npt.NDArray[np.int64]


def checked(given: Field, values: pd.Series, *, strict: bool) -> pd.Series:
    """Values of a field in its type, each checked by itself; `strict`: also where its domain was bought."""
    own, found = strict or given.source != "dp", given.read(values)
    if values.isna().any() and not given.nullable and given.fill is None:
        raise breach(given.name, "it is required")
    if own and given.strange(values, found).any():
        raise breach(given.name, given.rule)
    if own and (given.encode(found.dropna()) < 0).any():
        raise breach(given.name, given.limits)
    return found


def placed(given: Field, column: pd.Series) -> tuple[Integers, pd.Series, Integers]:
    """Rows (m,) of the values of a field that have a place in its domain, these values parsed, and their codes.

    Nulls have none. Of a domain that was bought others may have none, but not all; elsewhere a ValueError is raised for them.
    """
    there = np.flatnonzero(column.notna().to_numpy())
    values = column.iloc[there].reset_index(drop=True)
    if given.source == "dp":
        read = given.read(values)
        parsed = read[read.notna()]
        codes = np.asarray(given.encode(parsed))
        inside = codes >= 0
        if len(values) and not inside.any():
            rules = "; ".join(filter(None, (given.rule, given.limits)))
            raise ValueError(f"column {given.name!r} breaks a rule of the schema in all rows: {rules}")
        return there[parsed.index.to_numpy()[inside]], parsed[inside], codes[inside]
    try:
        parsed = given.parse(values)
        codes = np.asarray(given.encode(parsed))
        if (codes < 0).any():
            raise Violation(given.limits)
    except Violation as error:
        raise ValueError(f"column {given.name!r} breaks a rule of the schema: {error}") from None
    return there, parsed, codes


def codes_of(fields: Sequence[Field], parsed: Columns, *, strict: bool) -> Integers:
    """Codes (n, k) of modelled fields, as `column_codes` has them."""
    found = np.empty((len(parsed[fields[0].name]) if fields else 0, len(fields)), np.int64, order="F")
    for own, given in zip(found.T, fields):
        own[:] = column_codes(given, parsed, strict=strict)
    return np.ascontiguousarray(found)


def column_codes(given: Field, parsed: Columns, *, strict: bool) -> Integers:
    """Codes (n,) of a modelled field; `strict`: values outside of its domain are refused, else they are missing."""
    there = parsed[given.name].notna().to_numpy()
    own = np.full(len(there), given.gap, np.int64)
    own[there] = coded(given, parsed, there)
    if strict and (own < 0).any():
        raise breach(given.name, given.limits)
    own[own < 0] = max(given.gap, 0)
    return own


def coded(given: Field, parsed: Columns, there: npt.NDArray[np.bool_]) -> Integers:
    """Codes of the values of a field that are there."""
    own = parsed[given.name][there]
    return given.encode_beside(own, parsed[given.base][there]) if isinstance(given, LengthField) else given.encode(own)


def lengths(given: LengthField, found: Mapping[str, pd.Series]) -> Integers:
    """Codes (n,) of a length from values with gaps, -1 where it or its base is missing."""
    both = (found[given.name].notna() & found[given.base].notna()).to_numpy()
    codes = np.full(len(both), -1, np.int64)
    typed = {name: found[name][both].infer_objects() for name in (given.name, given.base)}
    codes[both] = coded(given, typed, np.ones(both.sum(), bool))
    return codes


def breach(name: str, rule: str) -> ValueError:
    return ValueError(f"column {name!r} breaks a rule of the schema: {rule} (which row and value is private)")
