"""Columns of rows that are modelled as times from their own row's time, such as a discharge from the admission.

A row's time follows from the rows before it, so that `admitted <= discharged` has no place in the model of a row. The time from
the admission to the discharge is one number of this row alone, at least 0.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.columns.forms import REPRESENTED, Reals, floats


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
