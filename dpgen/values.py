"""Values of a column as numbers, and as seconds: each by itself, or refused."""

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

LARGEST = 2**60
"""Whole numbers beyond it are taken for it."""
REPRESENTED = (-106_747 * 86_400, 106_747 * 86_400)
"""Seconds since 1970, whole days, that fit nanoseconds, from 1677 to 2262; times beyond them are taken for them."""


class Violation(ValueError):
    """A column breaks a rule of its field, in words."""


def as_numbers(values: pd.Series) -> npt.NDArray[Any]:
    """Numbers (n,) of values of which none is missing: int64 of whole numbers by type; else float64, NaN for no finite one.

    Whole numbers are those whose column has such a type, never those whose neighbours are whole: gaps of others, for which
    pandas takes objects, change nothing.
    """
    if values.dtype.kind in "iu":
        return values.to_numpy().clip(-LARGEST, LARGEST).astype(np.int64)
    if values.dtype == object and pd.api.types.infer_dtype(values, skipna=False) == "integer":
        return np.array([max(-LARGEST, min(LARGEST, int(value))) for value in values], np.int64)
    found = pd.to_numeric(values, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    return np.where(np.isfinite(found), found, np.nan)


def numbers_or_gaps(values: pd.Series) -> pd.Series:
    """The same of values of which some may be missing, under the same index: Int64 or float64."""
    present = values.dropna()
    found = as_numbers(present)
    return pd.Series(found, present.index, "Int64" if found.dtype.kind == "i" else "float64").reindex(values.index)


def times(values: pd.Series) -> npt.NDArray[np.float64]:
    """Whole seconds since 1970 (n,), NaN for what is no date."""
    if values.dtype.kind != "M":
        values = values.astype(object).map(lambda value: value if value is None else to_microseconds(str(value)))
    found = pd.to_datetime(values, errors="coerce", utc=True, format=None if values.dtype.kind == "M" else "ISO8601")
    stamps = found.dt.tz_localize(None).to_numpy("datetime64[s]")
    return np.where(np.isnat(stamps), np.nan, stamps.astype(np.int64).astype(np.float64))


def to_microseconds(text: str) -> str:
    """A time as text without what is finer: of one with nanoseconds pandas would read none of the others beyond 1677 to 2262.

    >>> to_microseconds("2024-02-29T10:30:00.123456789Z")
    '2024-02-29T10:30:00.123456Z'
    """
    return _FINER.sub(r"\1", text) if len(text) > _TO_MICROSECONDS else text


def numbers(values: pd.Series, *, whole: bool) -> pd.Series:
    """Values (n,), texts or numbers, as int64 or float64."""
    if pd.api.types.is_bool_dtype(values.dtype):
        raise Violation("it holds numbers")
    odd, values = np.zeros(len(values), bool), values.infer_objects()
    if not pd.api.types.is_numeric_dtype(values.dtype):
        texts = values.astype(object)
        # Python reads underscores, other scripts, hexadecimals and truth values as numbers.
        odd = np.array([isinstance(v, bool) or not NUMBER.fullmatch(str(v)) for v in texts], bool)
        plain = texts.where(~odd, "0")
        values = _exact(plain) if whole else pd.to_numeric(plain)
    found = values.to_numpy(np.float64) if whole is False or values.dtype.kind not in "iu" else values.to_numpy()
    finite = np.isfinite(found)
    if odd.any():
        raise Violation("it holds numbers")
    if not finite.all():
        raise Violation("it holds finite numbers")
    if not whole:
        return pd.Series(found)
    broken = (found != np.floor(found)) | (np.abs(found.astype(np.float64)) >= 2**62)
    if broken.any():
        raise Violation("it holds whole numbers")
    return pd.Series(found.astype(np.int64))


def _exact(texts: pd.Series) -> pd.Series:
    """Numbers, each by itself: pandas makes all of them floats where one has a point, and rounds whole ones above 2^53."""
    floats = texts.map(float).to_numpy(np.float64)
    refused = (np.abs(floats) >= 2**62) | (floats != np.floor(floats))
    if (np.abs(floats) < 2**53).all() or refused.any():
        return pd.Series(floats)
    digits = (str(text).strip() for text in texts)
    return pd.Series([int(text) if text.lstrip("+-").isdigit() else int(float(text)) for text in digits], dtype=np.int64)


_TO_MICROSECONDS = len("20240229T103000.123456")
_FINER = re.compile(r"([.,]\d{6})\d+")
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", re.ASCII)
