"""A mixture over groups of the codes of a table, and what it becomes given values of some columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpgen.columns.fields import LengthField
from dpgen.columns.forms import number
from dpgen.schema import Schema, nearest
from dpgen.systems.tables.marginals import Columns, Integers, Reals
from dpgen.systems.tables.mixture import Mixture
from dpgen.systems.tables.workload import quantiles

Given = Mapping[str, Any]
"""Values, lists of values and ranges by column."""


class CodedMixture:
    """Products over the groups of codes of a table, with the shares of codes inside each group; columns are in schema order.

    Of one table, of people, or of the rows of a table: see `TablesModel` and `LinkedMixture`.
    """

    def __init__(self, mixture: Mixture, columns: Columns, schema: Schema) -> None:
        self.mixture, self.columns, self.schema = mixture, columns, schema

    def _column(self, name: str) -> int:
        names = self.schema.domain.names
        if name not in names:
            raise ValueError(f"column is {name!r}; choose from {', '.join(names)}")
        return names.index(name)

    def _grouped(self, codes: Integers) -> Integers:
        return np.ascontiguousarray(self.columns.coarse.apply(codes).T)

    def joint(self, groups: Integers) -> Reals:
        """log w_k + sum of log p of the known groups, those >= 0: (n, K)."""
        logs = np.log(np.maximum(self.mixture.probabilities, 1e-30)).astype(np.float64)
        result = np.tile(np.log(np.maximum(self.mixture.weights, 1e-30)).astype(np.float64), (len(groups), 1))
        for c, offset in enumerate(self.mixture.offsets[:-1]):
            known = groups[:, c] >= 0
            result[known] += logs[offset + groups[known, c]]
        return result

    # -- conditions ----------------------------------------------------------------------------------------------------

    def inside(self, present: Sequence[bool] | None = None) -> list[Reals]:
        """Weights of the codes of every column, without those of missing values in columns (d,) that are to be present."""
        missing, present = self.schema.domain.missing, present or [False] * len(self.columns.shares)
        gaps = [code if wanted and code is not None else -1 for code, wanted in zip(missing, present)]
        return [share * (np.arange(len(share)) != gap) for share, gap in zip(self.columns.shares, gaps)]

    def restricted(self, inside: Sequence[Reals]) -> tuple[Mixture, npt.NDArray[np.float64]]:
        """The mixture given that codes are among those of weight > 0, and the log probability (d, K) of that by component."""
        blocks, chance = [], np.zeros((len(self.mixture.sizes), len(self.mixture.weights)))
        for c, (group, weight) in enumerate(zip(self.columns.coarse.groups, inside)):
            kept = np.bincount(group, weight) / np.bincount(group, self.columns.shares[c])
            block = self.mixture.block(c).astype(np.float64) * kept[:, None]
            total = block.sum(0)
            chance[c] = np.log(np.maximum(total, 1e-300))
            blocks.append(block / np.maximum(total, 1e-300))
        logs = np.log(np.maximum(self.mixture.weights, 1e-30)) + chance.sum(0)
        weights = np.exp(logs - logs.max())
        stacked = np.concatenate(blocks).astype(np.float32)
        return Mixture(stacked, (weights / weights.sum()).astype(np.float32), self.mixture.sizes), chance

    def inside_ranges(self, table: pd.DataFrame, given: Given) -> npt.NDArray[np.bool_]:
        """Which rows (n,) of values lie in the ranges that are given."""
        found = np.ones(len(table), bool)
        for name, value in given.items():
            if isinstance(value, Mapping):
                found &= _between(table[name].to_numpy(), *self._range(self._column(name), value))
        return found

    def conditioned(self, given: Given) -> tuple[Mixture, list[Reals]]:
        """The mixture given values of columns, and the weights of codes inside their groups."""
        inside = self.inside()
        for name, value in given.items():
            c = self._column(name)
            kept = np.zeros(len(inside[c]))
            if isinstance(self.schema.modelled[c], LengthField) and not isinstance(value, Mapping):
                kept[self._length_code(c, value, given)] = 1.0
            elif isinstance(value, Mapping):
                kept[: self.schema.modelled[c].size] = self._parts(c, *self._range(c, value))
            else:
                for one in value if isinstance(value, list) else [value]:
                    kept[self._code(c, one)] = 1.0
            if not kept.any():
                raise ValueError(f"given {name} is {value!r}; no value of the schema satisfies it")
            inside[c] = inside[c] * kept
        return (self.mixture if not given else self.restricted(inside)[0]), inside

    def _range(self, c: int, condition: Mapping[str, Any]) -> tuple[Any, Any]:
        """Least and greatest value of a condition, None where it has none."""
        field = self.schema.modelled[c]
        field.bounds()  # refuses a field that has no order
        if not condition or set(condition) - {"minimum", "maximum"}:
            raise ValueError(f"given {field.name} is {dict(condition)!r}; it must have minimum or maximum or both")
        dates = field.type in ("date", "datetime")
        try:
            found = {
                bound: field.parse(pd.Series([value])).to_numpy()[0] if dates else number(value)
                for bound, value in condition.items()
            }
        except ValueError as error:
            raise ValueError(f"given {field.name} is {dict(condition)!r}: {error}") from None
        return found.get("minimum"), found.get("maximum")

    def _parts(self, c: int, low: Any, high: Any) -> Reals:
        """Share (size,) of the values of every code that lie between two values, by the law of the field."""
        field = self.schema.modelled[c]
        first, last = field.bounds()
        if isinstance(field, LengthField):  # where a value lies is known when its base is drawn
            return (_between(last, low, None) & _between(first, None, high)).astype(np.float64)
        whole = _between(first, low, high) & _between(last, low, high)
        some = ~whole & _between(last, low, None) & _between(first, None, high)
        parts = whole.astype(np.float64)
        for code in np.flatnonzero(some):
            parts[code] = _between(quantiles(field, int(code), self.columns.shares[c]), low, high).mean()
        return parts

    def _length_code(self, c: int, value: Any, given: Given) -> int:
        """The code of a value beside its base, which must be given, too."""
        field = cast("LengthField", self.schema.modelled[c])
        base = given.get(field.base)
        if not isinstance(value, list) and (value is None or pd.isna(value)):
            return self._code(c, value)
        if isinstance(value, list) or base is None or isinstance(base, list | Mapping):
            raise ValueError(
                f"given {field.name} is {value!r}; {field.name} is modelled by its length from {field.base} on: give one value "
                f'of both, or {{"minimum": ..., "maximum": ...}} of {field.name}'
            )
        self._code(c, value)  # refuses what the schema does not allow
        pair = (pd.Series([self._exact(name, own)]) for name, own in ((field.name, value), (field.base, base)))
        return int(field.encode_beside(*pair)[0])

    def _exact(self, name: str, value: Any) -> Any:
        """A value that is given, in the type of samples; None: it is missing."""
        return None if value is None or pd.isna(value) else self.schema.by_name[name].parse(pd.Series([value])).iloc[0]

    def _code(self, c: int, value: Any) -> int:
        field, missing = self.schema.modelled[c], self.schema.domain.missing[c]
        if value is None or pd.isna(value):
            if missing is None:
                raise ValueError(f"given {field.name} is missing; the schema requires a value")
            return missing
        try:
            parsed = field.parse(pd.Series([value]))
            listed = getattr(field, "values", None)
            if listed is not None and parsed.iloc[0] not in listed:  # none of them stands for it here
                unknown = nearest("a value", str(value), [str(known) for known in listed[:20]])
                raise ValueError(f"{unknown}; these categories were bought") if field.source == "dp" else unknown
            return int(field.encode(parsed)[0])
        except (ValueError, TypeError) as error:
            rule = getattr(error, "rule", error)
            raise ValueError(f"given {field.name} is {value!r}; it is not in the schema: {rule}") from None


def _between(values: npt.NDArray[Any], low: Any, high: Any) -> npt.NDArray[np.bool_]:
    """Which values are in [low, high]; None: without this end."""
    found = np.ones(len(values), bool)
    found &= True if low is None else np.asarray(values >= low, bool)
    return found & (True if high is None else np.asarray(values <= high, bool))
