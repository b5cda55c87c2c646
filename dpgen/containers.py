"""Containers of data in memory - DataFrames, tables, arrays, tensors, sets - as loaders read them, and back for samples."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow
import torch
from torch.utils.data import Dataset, TensorDataset

from dpgen.columns.forms import texts_of
from dpgen.columns.votes import CELLS, votes
from dpgen.columns.writings import writing_of

Container = Literal[
    "pandas", "series", "polars", "arrow", "rows", "lists", "objects", "numpy", "torch", "dataset", "sparse", "sets"
]
Dtypes = Literal["bought", "public"]
"""Types of the columns of data in memory: bought inside the budget, or public because their owner says so."""
FileForm = Literal["parquet", "npy", "sets", "images", "sql"]

ACCEPTED = (
    "a pandas, polars or pyarrow table, a list of mappings, a mapping of lists, a NumPy array, a tensor, a torch Dataset with "
    "a length, a data set of images, a SciPy sparse matrix, a list of sets, or a table of DuckDB or Spark"
)
_ARRAYS = ("numpy", "torch", "dataset", "sparse")

# -- form --------------------------------------------------------------------------------------------------------------


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
        own: Sequence[str | int] = names if self.container in _ARRAYS else self.names
        kept = [(i, name) for i, name in enumerate(own) if str(name) in names]
        types = self.types if len(self.types) == 1 else tuple(self.types[i] for i, _ in kept)
        return replace(self, names=tuple(name for _, name in kept), types=types, label=label, categories=dict(categories or {}))

    def restore(self, table: pd.DataFrame, levels: Sequence[str] = ()) -> Any:
        """Samples, a table with columns of these names, as the data came; columns that are not modelled are left out.

        Categorical columns have the categories that the form names, else `levels`, else those that were drawn.
        """
        table = table.rename(columns={other: name for name, other in self.renamed.items()})
        types = self.types * len(self.names) if len(self.types) == 1 else self.types
        kept = {name: dtype for name, dtype in zip(self.names, types) if str(name) in table}
        if self.container == "sets":
            items = np.array(table.columns if self.types != ("int64",) else list(map(int, table.columns)), dtype=object)
            return [set(items[row.astype(bool)].tolist()) for row in table.to_numpy()]
        if self.names and not kept:
            raise ValueError(
                f"samples have the columns {', '.join(table.columns[:3])} ...; they must bear the names of the data's columns, "
                f"{', '.join(map(str, self.names[:3]))} ..."
            )
        if self.container in ("polars", "arrow"):
            return self._arrow(table, kept, levels)
        listed = self.categories
        values = {name: as_type(table[str(name)], dtype, listed.get(str(name), levels)) for name, dtype in kept.items()}
        if self.container in _ARRAYS:
            return self._array(values)
        frame = pd.DataFrame(values, index=pd.RangeIndex(len(table)))
        if self.container in ("rows", "lists", "objects"):
            return self._of_python(frame)
        return frame.iloc[:, 0] if self.container == "series" else frame

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
            numpy = "" if dtype is None else str(dtype.to_pandas_dtype().__name__) if _plain(dtype) else "object"
            numpy = f"object[{found[2]}]" if (found := _WRITTEN_AS.fullmatch(text)) else numpy
            listed = self.categories.get(str(name), levels)
            array = _arrow_array(as_type(table[str(name)], numpy, listed), dtype)
            columns[str(name)] = _as_dictionary(array, text, listed) if text.startswith("dictionary") else array
        made = pyarrow.table(columns)
        if self.container == "arrow":
            return made
        import polars

        orders = [name for name, text in kept.items() if "ordered=1" in text and str(name) in self.categories]
        enums = {str(name): polars.Enum(self.categories[str(name)]) for name in orders}
        return polars.DataFrame(polars.from_arrow(made)).cast(enums)  # type: ignore[arg-type]


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
        if writing := re.fullmatch(r"=(.+);(\d+)", found[2]):
            return _as_texts(values, found[1], *writing.groups())
        if found[2] == "decimal":
            values = values.astype(object).map(lambda value: None if pd.isna(value) else Decimal(repr(float(value))))
        else:
            values = values.dt.date if found[2] == "date" else values.dt.strftime(found[2])
        return values.astype(found[1])
    if dtype == "object":
        return values.astype(object).where(values.notna(), None)
    try:
        arrow = _arrow_type(dtype.removesuffix("[pyarrow]")) if dtype.endswith("[pyarrow]") else None
        target: Any = pd.api.types.pandas_dtype(dtype) if arrow is None else pd.ArrowDtype(arrow)
        numeric = pd.api.types.is_numeric_dtype(target) or pd.api.types.is_bool_dtype(target)
        if isinstance(target, pd.ArrowDtype) and pyarrow.types.is_decimal(target.pyarrow_dtype):
            return pd.Series(pd.arrays.ArrowExtensionArray(_arrow_array(values, target.pyarrow_dtype)))
        if numeric and not pd.api.types.is_numeric_dtype(values.dtype):
            values = pd.to_numeric(values.astype(str).replace({"True": "1", "False": "0"}))
        if pd.api.types.is_bool_dtype(target):
            return values.round().clip(0, 1).astype(target)
        if pd.api.types.is_integer_dtype(target):
            limits = np.iinfo(str(target).lower().removesuffix("[pyarrow]"))
            exact = values if pd.api.types.is_integer_dtype(values.dtype) else values.round()
            return exact.clip(limits.min, limits.max).astype(target)
        if isinstance(target, pd.DatetimeTZDtype):
            return pd.to_datetime(values).dt.tz_localize("UTC").dt.tz_convert(target.tz).astype(target)
        return values.astype(target)
    except (ValueError, TypeError, OverflowError, pyarrow.ArrowException):
        return values


def natural(names: Iterable[Any]) -> str:
    """The type of NumPy of what public names say, "" of texts.

    >>> natural(["1", "20"]), natural(["0.5", "1"]), natural(["no", "1"])
    ('int64', 'float64', '')
    """
    cells = votes(pd.Series(list(names), dtype=object), "any")
    needed = {CELLS[cell][1] if cell < len(CELLS) else "string" for cell in cells}
    if needed == {"boolean"}:
        return "bool"
    return "" if not needed or not needed <= {"integer", "number"} else "float64" if "number" in needed else "int64"


def _as_texts(values: pd.Series, dtype: str, format: str, decimals: str) -> pd.Series:
    """Values as texts of a writing (`dpgen.columns.writings`)."""
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


# -- data in memory ----------------------------------------------------------------------------------------------------


class Pictures(NamedTuple):
    """Images in memory, their classes (n,) if they have any, and the public names of these if the data set knows them."""

    images: Sequence[Any]
    labels: Sequence[int] | None = None
    class_names: tuple[str, ...] | None = None


class InMemory(str):
    """Private data in memory; loaders take them where they take the path of a file, and errors call them by this text."""

    content: Any
    """A table, an array (n, d), the items of each set, or pictures, as a file would give them; or the table of an engine."""
    form: Form
    like: FileForm
    """The form of a file that is read so."""
    types: Mapping[str, str]
    """Public types of the columns of a table, in the words of Arrow; "" where nobody says it: then they are private."""
    own_types: tuple[str, ...]
    """The container's own types, public or not, by which loaders read arrays."""
    orders: Mapping[str, Sequence[str]]
    """The declared order of the categories of each column whose type has one; which of them occur is private."""
    index_names: tuple[str, ...]
    """Names of the index of a DataFrame, which is no data."""
    table: str = ""
    """Its name among linked tables."""

    def __new__(
        cls,
        name: str,
        content: Any,
        form: Form,
        *,
        engine: bool = False,
        types: Mapping[str, str] | None = None,
        own_types: tuple[str, ...] = (),
        orders: Mapping[str, Sequence[str]] | None = None,
        index_names: tuple[str, ...] = (),
    ) -> "InMemory":
        made = super().__new__(cls, name)
        made.content, made.form, made.orders, made.index_names = content, form, orders or {}, index_names
        made.types, made.own_types = types or {}, own_types or form.types
        of_array: FileForm = "images" if isinstance(content, Pictures) else "npy"
        of_form: FileForm = "sets" if form.container == "sets" else of_array if form.container in _ARRAYS else "parquet"
        made.like = "sql" if engine else of_form
        return made


def in_memory(data: Any, dtypes: Dtypes = "bought") -> InMemory:
    """Data of one of the containers that `ACCEPTED` lists; others are a TypeError, wrong names or shapes a ValueError.

    `dtypes`: whether the types of the columns of a table are public. A container derives most of them from all values
    together, so a gap or a text among numbers changes them: then nothing may depend on them. Categories are declared.
    """
    if dtypes not in get_args(Dtypes):
        raise ValueError(f"dtypes is {dtypes!r}; it must be one of {', '.join(get_args(Dtypes))}")
    public = dtypes == "public"
    if isinstance(data, np.ma.MaskedArray):  # NumPy would show what lies under the mask
        raise ValueError("array is masked; fill it (data.filled(...)), or give a DataFrame, in which values may be missing")
    if isinstance(data, pd.DataFrame):
        return _from_pandas(data, public=public)
    if isinstance(data, pd.Series):
        return _from_pandas(data.to_frame("x" if data.name is None else data.name), "series", public=public)
    if (engine := _ENGINES.get(type(data).__module__.partition(".")[0])) and hasattr(data, "columns"):
        names = _checked_names(engine, data.columns)
        form = Form(container="pandas", names=names)
        return InMemory(engine, data, form, engine=True, types=dict.fromkeys(map(str, names), "public" if public else ""))
    array = isinstance(data, np.ndarray | torch.Tensor)
    if array and str(data.dtype).endswith("uint8") and data.shape[3:] == (_COLOURS,):  # images in colour, (n, h, w, 3)
        container: Container = "numpy" if isinstance(data, np.ndarray) else "torch"
        images = data if isinstance(data, np.ndarray) else data.detach().cpu().numpy()
        return InMemory("array" if container == "numpy" else "tensor", Pictures(list(images)), Form(container=container))
    if _is_pictures(data):
        return _from_pictures(data)
    if hasattr(data, "__arrow_c_stream__"):
        return _from_arrow(data, public=public)
    if isinstance(data, np.ndarray) and data.dtype == object and data.ndim in (1, 2):
        form = Form(container="objects", shape=None if data.ndim == 2 else ())
        return _of_objects("array of objects", pd.DataFrame(data.reshape(len(data), -1)), form)
    if array:
        return _from_array(data) if isinstance(data, np.ndarray) else _from_tensor(data)
    if type(data).__module__.startswith("scipy.sparse"):
        return _from_array(data.toarray(), "sparse", "sparse matrix")
    if isinstance(data, Dataset):
        return _from_dataset(data)
    if is_columns(data):
        if len({len(values) for values in data.values()}) > 1:
            raise ValueError("mapping of lists has lists of several lengths; they must be equally long, None for a gap")
        columns = {name: pd.Series(list(values), dtype=object) for name, values in data.items()}
        return _of_objects("mapping of lists", pd.DataFrame(columns), Form(container="lists"))
    if isinstance(data, list | tuple) and len(data):
        if all(isinstance(items, set | frozenset) for items in data):
            return _from_sets(data)
        if all(isinstance(row, Mapping) for row in data):
            if any(row.keys() != data[0].keys() for row in data):
                raise ValueError("list of mappings has mappings of several keys; all must have the same ones, None for a gap")
            frame = pd.DataFrame([list(row.values()) for row in data], columns=list(data[0]), dtype=object)
            return _of_objects("list of mappings", frame, Form(container="rows"))
        try:
            found = _from_array(np.asarray(data))
        except ValueError as error:  # rows of unequal lengths
            raise TypeError(f"data is {article(type(data).__name__)} of no one shape; it must be {ACCEPTED}") from error
        form = found.form if public else replace(found.form, types=("",))  # NumPy has seen all numbers of a list
        return InMemory(found, found.content, form, own_types=found.own_types)
    raise TypeError(f"data is {article(type(data).__name__)}; it must be {ACCEPTED}")


def is_columns(data: Any) -> bool:
    """Whether data are a mapping of columns: of lists or arrays of single values, where linked tables would be of tables."""
    if not isinstance(data, Mapping) or not data:
        return False
    listed = all(isinstance(values, list | tuple | np.ndarray | pd.Series) and np.ndim(values) == 1 for values in data.values())
    return listed and not any(isinstance(value, Mapping) for values in data.values() for value in values)


def article(name: str) -> str:
    """A name after its article."""
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _from_pandas(frame: pd.DataFrame, container: Container = "pandas", *, public: bool = False) -> InMemory:
    what = "Series" if container == "series" else "DataFrame"
    names = _checked_names(what, frame.columns)
    columns, orders, types, known = dict[str, pd.Series](), {}, list[str](), dict[str, str]()
    for i, name in enumerate(names):
        column = frame.iloc[:, i].reset_index(drop=True)
        if isinstance(column.dtype, pd.SparseDtype):
            column = column.sparse.to_dense()
        if isinstance(column.dtype, pd.CategoricalDtype) and isinstance(column.dtype.categories, pd.IntervalIndex):
            column = column.cat.rename_categories(str)
        dtype = column.dtype
        if isinstance(dtype, pd.CategoricalDtype):  # which categories occur is private, and so is their type
            types.append(f"{'ordered ' * bool(dtype.ordered)}category[{dtype.categories.dtype if public else ''}]")
            known[str(name)] = "dictionary"
            if dtype.ordered:
                orders[str(name)] = texts_of(dtype.categories.to_series()).tolist()
        else:
            types.append(str(dtype) if public else "")
            known[str(name)] = _arrow_name(column) if public else ""
        columns[str(name)] = _as_parquet(column)
    index = tuple(str(name) for name in frame.index.names if name is not None)
    form, own = Form(container=container, names=names, types=tuple(types)), tuple(map(str, frame.dtypes))
    table = pd.DataFrame(columns, index=pd.RangeIndex(len(frame)))
    return InMemory(what, table, form, types=known, own_types=own, orders=orders, index_names=index)


def _arrow_name(column: pd.Series) -> str:
    """The type that Arrow makes of a column whose type is public; "" where its values are of several."""
    try:
        found = pyarrow.Array.from_pandas(column if pd.api.types.is_object_dtype(column.dtype) else column.iloc[:0]).type
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError):
        return ""
    return "" if pyarrow.types.is_null(found) else str(found)


def _as_parquet(column: pd.Series) -> pd.Series:
    """A column in the types of pandas that a Parquet file gives: of NumPy where nothing is missing, else objects."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.astype(object)
    if isinstance(column.dtype, np.dtype | pd.StringDtype | pd.DatetimeTZDtype):
        return column
    if column.dtype.kind in "iufb" and not column.isna().any():
        return column.astype(str(column.dtype).lower().removesuffix("[pyarrow]").replace("boolean", "bool"))
    return column.astype(object).where(column.notna(), None)


def _of_objects(what: str, frame: pd.DataFrame, form: Form) -> InMemory:
    """A table of values of Python, whose columns have no types."""
    names = _checked_names(what, frame.columns)
    table = frame.set_axis([str(name) for name in names], axis=1).astype(object)
    return InMemory(what, table, replace(form, names=names, types=("",) * len(names)), types=dict.fromkeys(table.columns, ""))


def _checked_names(what: str, names: Iterable[Any]) -> tuple[str | int, ...]:
    """Names of columns, as text or whole numbers; another kind of name, or one twice, is refused."""
    found: list[str | int] = []
    for name in names:
        if isinstance(name, bool) or not isinstance(name, str | int | np.integer):
            raise ValueError(f"{what} has a column called {name!r}; names must be texts or whole numbers")
        found.append(name if isinstance(name, str) else int(name))
    texts = [str(name) for name in found]
    if twice := next((text for text in texts if texts.count(text) > 1), None):
        raise ValueError(f"{what} has {texts.count(twice)} columns called {twice!r}: their names must differ")
    return tuple(found)


def _from_arrow(data: Any, *, public: bool = False) -> InMemory:
    container: Container = "polars" if type(data).__module__.partition(".")[0] == "polars" else "arrow"
    what = "polars DataFrame" if container == "polars" else "Table"
    if container == "polars":  # which takes 128 bits where a number is long, and Arrow has no such integers
        import polars

        data = data.cast({name: polars.String for name, kind in data.schema.items() if "Int128" in str(kind)})
    try:
        table = pyarrow.table(data)
    except (pyarrow.ArrowException, TypeError, ValueError):
        raise TypeError(f"{what} cannot be read through Arrow: its columns must be of types that Arrow has") from None
    names = _checked_names(what, table.column_names)
    known = {field.name: str(field.type) if public or _declared(field.type) else "" for field in table.schema}
    form = Form(container=container, names=names, types=tuple(known.values()))
    orders = {
        field.name: list(map(str, table[field.name].unify_dictionaries().chunk(0).dictionary.to_pylist()))
        for field in table.schema
        if pyarrow.types.is_dictionary(field.type) and field.type.ordered and table[field.name].num_chunks
    }
    own = tuple(str(field.type) for field in table.schema)
    return InMemory(what, table, form, types=known, own_types=own, orders=orders)


def _declared(dtype: pyarrow.DataType) -> bool:
    """Whether no single value changes a type: categories, and what holds several values, which is refused."""
    if pyarrow.types.is_dictionary(dtype):
        return "string" in str(dtype.value_type)
    return bool(pyarrow.types.is_nested(dtype))


def _from_array(array: npt.NDArray[Any], container: Container = "numpy", what: str = "array", dtype: str = "") -> InMemory:
    """An array (n, d), (n,) or (n, height, width) of numbers or dates, whose one type is public."""
    if array.dtype.kind not in "biufM" or array.ndim == 0:
        raise TypeError(f"{what} is {array.dtype} {array.shape}; it must hold numbers or dates, one row for each record")
    shape = None if array.ndim == 2 else array.shape[1:]
    flat = array if array.ndim == 2 else array.reshape(len(array), int(np.prod(array.shape[1:])))
    return InMemory(what, flat, Form(container=container, types=(dtype or str(array.dtype),), shape=shape))


def _from_tensor(data: torch.Tensor) -> InMemory:
    tensor = data.detach().cpu()
    dtype = str(tensor.dtype).removeprefix("torch.")
    if not hasattr(np, dtype):
        raise TypeError(f"tensor has dtype {tensor.dtype}; it must be one that NumPy has")
    return _from_array(tensor.numpy(), "torch", "tensor")


def _from_dataset(data: Any) -> InMemory:
    """Records of a map-style data set, and their labels as a last column where it has pairs."""
    if not hasattr(data, "__len__"):
        raise TypeError(f"data is {article(type(data).__name__)} without a length; it must be a map-style data set")
    items = [data[i] for i in range(len(data))]
    if not items:
        raise ValueError("data set is empty: it has no record")
    pairs = isinstance(items[0], tuple | list)
    try:
        x = np.stack([np.asarray(item[0] if pairs else item) for item in items])
        y = np.array([int(item[1]) for item in items]) if pairs and len(items[0]) > 1 else None
        if y is not None and any(int(item[1]) != item[1] for item in items):
            raise ValueError("a label is no whole number")
    except (TypeError, ValueError, IndexError):
        raise TypeError("data set has no records of one shape with whole labels") from None
    found = _from_array(x, "dataset", "data set")
    if y is None:
        return found
    whole = np.result_type(found.content.dtype, np.min_scalar_type(y.min()), np.min_scalar_type(y.max()))
    content = np.concatenate([found.content, y[:, None]], axis=1, dtype=whole, casting="unsafe")
    types = (*found.form.types * found.content.shape[1], "int64")
    return InMemory(found, content, replace(found.form, types=types))


def _from_sets(data: Any) -> InMemory:
    kinds = {isinstance(item, str) for items in data for item in items}
    for row, items in enumerate(data, start=1):
        wrong = [item for item in items if isinstance(item, bool) or not isinstance(item, str | int | np.integer)]
        if wrong:
            raise TypeError(f"list of sets has an item of type {type(wrong[0]).__name__} in row {row}; it must be text or int")
    if len(kinds) > 1:
        raise TypeError("list of sets has items that are texts and items that are integers; they must be of one type")
    content = [[str(item) for item in items] for items in data]
    return InMemory("list of sets", content, Form(container="sets", types=("str" if True in kinds else "int64",)))


_ENGINES = {"duckdb": "DuckDB relation", "_duckdb": "DuckDB relation", "pyspark": "Spark DataFrame"}

_COLOURS = 3


def _is_pictures(data: Any) -> bool:
    """Whether the items of a data set are images in colour, with or without a class, or columns one of which is images."""
    if not (isinstance(data, Dataset) or hasattr(data, "features")) or not hasattr(data, "__len__") or not len(data):
        return False
    first = data[0]
    if isinstance(first, Mapping):
        return _image_column(first) is not None
    image = first[0] if isinstance(first, tuple | list) else first
    return getattr(image, "mode", "L") not in ("1", "L") if is_picture(image) else _COLOURS in _channels(image)


def is_picture(image: Any) -> bool:
    """Whether this is an image of Pillow, without importing it."""
    return isinstance(getattr(image, "mode", None), str) and hasattr(image, "convert")


def _channels(image: Any) -> tuple[int, ...]:
    """Channels of an image as an array: of uint8 the last side, of floating point the first."""
    shape = tuple(getattr(image, "shape", ()))
    if len(shape) != _COLOURS:
        return ()
    return shape[:1] if "float" in str(image.dtype) else shape[2:]


def _image_column(item: Mapping[str, Any]) -> str | None:
    """Name of the first column of images of a data set whose items are mappings."""
    return next((name for name, value in item.items() if is_picture(value)), None)


def _from_pictures(data: Any) -> InMemory:
    items, names = [data[i] for i in range(len(data))], getattr(data, "classes", None)
    labels: list[Any] | None = None
    if isinstance(items[0], Mapping):
        column = _image_column(items[0])
        whole = [name for name, value in items[0].items() if isinstance(value, int | np.integer) and name != column]
        label = next((name for name in whole if "label" in name), whole[0] if len(whole) == 1 else None)
        images = [item[column] for item in items]
        labels = None if label is None else [item[label] for item in items]
        names = getattr(data.features.get(label), "names", None) if hasattr(data, "features") else None
    elif isinstance(items[0], tuple | list):
        images, labels = [item[0] for item in items], [item[1] for item in items] if len(items[0]) > 1 else None
    else:
        images = items
    if labels is not None:
        wrong = next((value for value in labels if not isinstance(value, int | np.integer | torch.Tensor)), None)
        if wrong is not None:
            raise TypeError(f"data set has a label of type {type(wrong).__name__}; labels of images must be whole numbers")
    classes = None if labels is None else [int(value) for value in labels]
    known = None if names is None or labels is None else tuple(map(str, names))
    return InMemory("data set", Pictures([_eight_bits(image) for image in images], classes, known), Form(container="dataset"))


def _eight_bits(image: Any) -> Any:
    """An image of floating point (c, h, w) in [0, 1] as uint8 (h, w, c); any other as it is."""
    if "float" not in str(getattr(image, "dtype", "")):
        return image
    values = np.asarray(image, dtype=np.float64)
    if not (values >= 0).all() or not (values <= 1).all():
        raise ValueError("data set has an image whose values are not in [0, 1]: give images without normalisation")
    return np.moveaxis(np.rint(values * 255).astype(np.uint8), 0, -1)
