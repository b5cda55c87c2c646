"""Forms of data in memory: their container, names and types, by which samples are given back as data came."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow
import torch
from torch.utils.data import TensorDataset

Container = Literal[
    "pandas", "series", "polars", "arrow", "rows", "lists", "objects", "numpy", "torch", "dataset", "sparse", "sets"
]
ARRAYS = ("numpy", "torch", "dataset", "sparse")
"""Containers whose values all have one type."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """Container, names, order and public types of data, by which samples are given back as data came.

    `names` are in order, of sets the items. `types` are the container's own words, one for all of an array; "" leaves values as
    they are drawn, where a type is not public. `label` is the column of classes, `categories` the names of values by column,
    `shape` that of one record where it is not (d,), `renamed` other names of columns of samples by these names, `white` the
    value of a white pixel (None: values are bits, or no images).
    """

    container: Container
    names: tuple[str | int, ...] = ()
    types: tuple[str, ...] = ("",)
    label: str | None = None
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shape: tuple[int, ...] | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    white: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The form as JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Form":
        """The inverse of `to_dict`."""
        lists = {key: tuple(values[key]) for key in ("names", "types")}
        shape = None if values["shape"] is None else tuple(values["shape"])
        categories = {name: tuple(names) for name, names in values["categories"].items()}
        return cls(**{**values, **lists, "shape": shape, "categories": categories})

    def of_columns(
        self, names: Sequence[str], *, label: str | None = None, categories: Mapping[str, tuple[str, ...]] | None = None
    ) -> "Form":
        """The form of the columns that were read; those of arrays have the names that their loader gave them."""
        own: Sequence[str | int] = names if self.container in ARRAYS else self.names
        kept = [(i, name) for i, name in enumerate(own) if str(name) in names]
        types = self.types if len(self.types) == 1 else tuple(self.types[i] for i, _ in kept)
        return replace(self, names=tuple(name for _, name in kept), types=types, label=label, categories=dict(categories or {}))

    @property
    def dtypes(self) -> dict[str | int, str]:
        """The type of each column, in the container's own words."""
        return dict(zip(self.names, self.types * len(self.names) if len(self.types) == 1 else self.types))

    def restore(self, table: pd.DataFrame, levels: Sequence[str] = ()) -> Any:
        """Samples, a table with columns of these names, as the data came; columns that are not modelled are left out.

        Categorical columns have the categories that the form names, else `levels`, else those that were drawn.
        """
        table = table.rename(columns={other: name for name, other in self.renamed.items()})
        if self.container == "sets":
            items = np.array(table.columns if self.types != ("int64",) else list(map(int, table.columns)), dtype=object)
            return [set(items[row.astype(bool)].tolist()) for row in table.to_numpy()]
        kept = self._kept(table)
        if self.container in ("polars", "arrow"):
            return self._arrow(table, kept, levels)
        listed = self.categories
        values = {name: as_type(table[str(name)], dtype, listed.get(str(name), levels)) for name, dtype in kept.items()}
        if self.container in ARRAYS:
            return self._array(values)
        frame = pd.DataFrame(values, index=pd.RangeIndex(len(table)))
        if self.container in ("rows", "lists", "objects"):
            return self._of_python(frame)
        return frame.iloc[:, 0] if self.container == "series" else frame

    def _kept(self, table: pd.DataFrame) -> dict[str | int, str]:
        """Types of the columns that samples have, by the names of the data's columns."""
        kept = {name: dtype for name, dtype in self.dtypes.items() if str(name) in table}
        if self.names and not kept:
            raise ValueError(
                f"samples have the columns {', '.join(table.columns[:3])} ...; they must bear the names of the data's columns, "
                f"{', '.join(map(str, self.names[:3]))} ..."
            )
        return kept

    def _of_python(self, frame: pd.DataFrame) -> Any:
        """Values of Python, None where there is none."""
        plain = frame.astype(object).where(frame.notna(), None)
        if self.container == "rows":
            return plain.to_dict("records")
        if self.container == "lists":
            return plain.to_dict("list")
        return plain.to_numpy(object) if self.shape is None else plain.to_numpy(object).reshape(len(plain), *self.shape)

    def _array(self, values: dict[str | int, pd.Series]) -> Any:
        y = values.pop(self.label) if self.container == "dataset" and self.label in values else None
        x = np.stack([column.to_numpy() for column in values.values()], axis=1)
        if self.shape is not None:
            x = x.reshape(len(x), *self.shape)
        if self.container == "numpy":
            return x
        if self.container == "sparse":
            from scipy.sparse import csr_matrix

            return csr_matrix(x)
        tensors = [torch.from_numpy(np.array(part)) for part in (x, *(() if y is None else (y,)))]
        return tensors[0] if self.container == "torch" else TensorDataset(*tensors)

    def _arrow(self, table: pd.DataFrame, kept: Mapping[str | int, str], levels: Sequence[str]) -> Any:
        columns = {}
        for name, text in kept.items():
            dtype = _arrow_type(text)
            listed = self.categories.get(str(name), levels)
            array = _arrow_array(as_type(table[str(name)], _before_arrow(text, dtype), listed), dtype)
            columns[str(name)] = _as_dictionary(array, text, listed) if text.startswith("dictionary") else array
        made = pyarrow.table(columns)
        if self.container == "arrow":
            return made
        import polars

        orders = [name for name, text in kept.items() if "ordered=1" in text and str(name) in self.categories]
        enums = {str(name): polars.Enum(self.categories[str(name)]) for name in orders}
        return polars.DataFrame(polars.from_arrow(made)).cast(enums)  # type: ignore[arg-type]


def _before_arrow(text: str, dtype: Any) -> str:
    """The type of values that Arrow turns into those of its own type."""
    if found := _WRITTEN_AS.fullmatch(text):
        return f"object[{found[2]}]"
    return "" if dtype is None else str(dtype.to_pandas_dtype().__name__) if _plain(dtype) else "object"


def as_type(values: pd.Series, dtype: str, categories: Sequence[str] = ()) -> pd.Series:
    """Values of this type: rounded and kept in range where it holds whole numbers; as they are where it cannot hold them.

    >>> as_type(pd.Series([0.2, 300.0]), "uint8").tolist(), as_type(pd.Series(["True", "False"]), "bool").tolist()
    ([0, 255], [True, False])
    """
    if found := re.fullmatch(r"(ordered )?category\[(.*)\]", dtype):
        kind = found[2] or natural(categories or values.dropna().unique())
        plain = as_type(values, kind)
        levels = (as_type(pd.Series(categories), kind) if categories else plain).dropna().drop_duplicates()
        return pd.Series(pd.Categorical(plain, categories=levels, ordered=bool(found[1])))
    if not dtype:
        return values
    if found := _WRITTEN_AS.fullmatch(dtype):
        return _as_written(values, *found.groups())
    if dtype == "object":
        return values.astype(object).where(values.notna(), None)
    try:
        arrow = _arrow_type(dtype.removesuffix("[pyarrow]")) if dtype.endswith("[pyarrow]") else None
        return _cast(values, pd.api.types.pandas_dtype(dtype) if arrow is None else pd.ArrowDtype(arrow))
    except (ValueError, TypeError, OverflowError, pyarrow.ArrowException):
        return values


def _as_written(values: pd.Series, dtype: str, way: str) -> pd.Series:
    """Values as texts of a writing, dates, decimals, or times by a format of `strftime`, in a column of the type `dtype`."""
    if writing := re.fullmatch(r"=(.+);(\d+)", way):
        return _as_texts(values, dtype, *writing.groups())
    if way == "decimal":
        return values.astype(object).map(lambda value: None if pd.isna(value) else Decimal(repr(float(value)))).astype(dtype)
    return (values.dt.date if way == "date" else values.dt.strftime(way)).astype(dtype)


def _cast(values: pd.Series, target: Any) -> pd.Series:
    """Values in a type of pandas, whole numbers and truth values by the nearest value that the type has."""
    if isinstance(target, pd.ArrowDtype) and pyarrow.types.is_decimal(target.pyarrow_dtype):
        return pd.Series(pd.arrays.ArrowExtensionArray(_arrow_array(values, target.pyarrow_dtype)))
    truth = pd.api.types.is_bool_dtype(target)
    if (truth or pd.api.types.is_numeric_dtype(target)) and not pd.api.types.is_numeric_dtype(values.dtype):
        values = pd.to_numeric(values.astype(str).replace({"True": "1", "False": "0"}))
    if truth:
        return values.round().clip(0, 1).astype(target)
    if pd.api.types.is_integer_dtype(target):
        limits = np.iinfo(str(target).lower().removesuffix("[pyarrow]"))
        exact = values if pd.api.types.is_integer_dtype(values.dtype) else values.round()
        return exact.clip(limits.min, limits.max).astype(target)
    if isinstance(target, pd.DatetimeTZDtype):
        return pd.to_datetime(values).dt.tz_localize("UTC").dt.tz_convert(target.tz).astype(target)
    return values.astype(target)


def natural(names: Iterable[Any]) -> str:
    """The type of NumPy of what public names say, "" of texts.

    >>> natural(["1", "20"]), natural(["0.5", "1"]), natural(["no", "1"])
    ('int64', 'float64', '')
    """
    from dpgen.columns.votes import CELLS, votes  # here, because arrays without names need none of it

    cells = votes(pd.Series(list(names), dtype=object), "any")
    needed = {CELLS[cell][1] if cell < len(CELLS) else "string" for cell in cells}
    if needed == {"boolean"}:
        return "bool"
    return "" if not needed or not needed <= {"integer", "number"} else "float64" if "number" in needed else "int64"


def _as_texts(values: pd.Series, dtype: str, format: str, decimals: str) -> pd.Series:
    """Values as texts of a writing (`dpgen.columns.writings`)."""
    from dpgen.columns.writings import writing_of  # here: few columns are written so

    writing, there = writing_of(format), values.notna().to_numpy()
    assert writing is not None
    known = values[there]
    plain = known.to_numpy("datetime64[s]").astype(np.int64) if known.dtype.kind == "M" else known.to_numpy(object)
    texts = np.full(len(values), None, object)
    texts[there] = writing.write(plain, int(decimals))
    return pd.Series(texts, values.index).astype(dtype)


_WRITTEN_AS = re.compile(r"(\w+)\[(date|decimal|[%=].+)\]")
"""A type of columns whose values are written so: dates and decimals of Python, or texts in a format."""


def _arrow_type(text: str) -> pyarrow.DataType | None:
    if found := re.fullmatch(r"timestamp\[(\w+), tz=(.+)\]", text):
        return pyarrow.timestamp(found[1], found[2])
    if found := re.fullmatch(r"decimal(128|256)\((\d+), (-?\d+)\)", text):
        made = pyarrow.decimal128 if found[1] == "128" else pyarrow.decimal256
        return made(int(found[2]), int(found[3]))
    inner = re.match(r"dictionary<values=(\w+)", text) or _WRITTEN_AS.fullmatch(text)
    try:
        return pyarrow.type_for_alias(inner[1] if inner else text)
    except ValueError:
        return None


def _plain(dtype: pyarrow.DataType) -> bool:
    return bool(pyarrow.types.is_integer(dtype) or pyarrow.types.is_floating(dtype) or pyarrow.types.is_boolean(dtype))


def _arrow_array(values: pd.Series, dtype: pyarrow.DataType | None) -> pyarrow.Array:
    try:
        if dtype is not None and pyarrow.types.is_decimal(dtype):
            return pyarrow.Array.from_pandas(values.astype("Float64")).cast(dtype)
        if dtype is not None and pyarrow.types.is_timestamp(dtype) and dtype.tz is not None:
            values = pd.to_datetime(values).dt.tz_localize("UTC")
        return pyarrow.Array.from_pandas(values, type=dtype)
    except (pyarrow.ArrowException, TypeError, ValueError):
        return pyarrow.Array.from_pandas(values)


def _as_dictionary(array: pyarrow.Array, text: str, levels: Sequence[str]) -> pyarrow.Array:
    """Values as categories of the index type that the text names, and in their order where it says so."""
    ordered, width = "ordered=1" in text, re.search(r"indices=(u?int\d+)", text)
    found = array.dictionary_encode()
    if ordered and levels:
        places = pd.Index(levels).get_indexer(found.dictionary.to_pandas().astype(str))
        codes = pyarrow.array(places, pyarrow.int32()).take(found.indices)
        found = pyarrow.DictionaryArray.from_arrays(codes, pyarrow.array(levels, found.type.value_type), ordered=True)
    index = pyarrow.type_for_alias(width[1]) if width else found.type.index_type
    return found.cast(pyarrow.dictionary(index, found.type.value_type, ordered))
