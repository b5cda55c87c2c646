"""Data in memory - DataFrames, tables, arrays, tensors, sets - as loaders read them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow
import torch
from torch.utils.data import Dataset

from dpgen.containers.forms import ARRAYS, Container, Form

Dtypes = Literal["bought", "public"]
"""Types of the columns of data in memory: bought inside the budget, or public because their owner says so."""
FileForm = Literal["parquet", "npy", "sets", "images", "sql"]

ACCEPTED = (
    "a pandas, polars or pyarrow table, a list of mappings, a mapping of lists, a NumPy array, a tensor, a torch Dataset with "
    "a length, a data set of images, a SciPy sparse matrix, a list of sets, or a table of DuckDB or Spark"
)


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
        of_form: FileForm = "sets" if form.container == "sets" else of_array if form.container in ARRAYS else "parquet"
        made.like = "sql" if engine else of_form
        return made


def in_memory(data: Any, dtypes: Dtypes = "bought") -> InMemory:
    """Data of one of the containers that `ACCEPTED` lists; others are a TypeError, wrong names or shapes a ValueError.

    `dtypes`: whether the types of the columns of a table are public. A container derives most of them from all values
    together, so a gap or a text among numbers changes them: then nothing may depend on them. Categories are declared.
    """
    if dtypes not in get_args(Dtypes):
        raise ValueError(f"dtypes is {dtypes!r}; it must be one of {', '.join(get_args(Dtypes))}")
    for is_one, read in _KINDS:
        if is_one(data):
            return read(data, public=dtypes == "public")
    raise TypeError(f"data is {article(type(data).__name__)}; it must be {ACCEPTED}")


def with_names(source: InMemory, names: Mapping[str, str]) -> InMemory:
    """A table in memory with other names of some columns; samples have the old ones."""
    content = source.content
    if isinstance(content, pd.DataFrame):
        content = content.rename(columns=names)
    else:
        content = content.rename_columns([names.get(name, name) for name in content.column_names])
    types = {names.get(name, name): value for name, value in source.types.items()}
    orders = {names.get(name, name): value for name, value in source.orders.items()}
    form = replace(source.form, names=tuple(names.get(str(name), name) for name in source.form.names))
    made = InMemory(
        str(source), content, form, types=types, own_types=source.own_types, orders=orders, index_names=source.index_names
    )
    made.like, made.table = source.like, source.table
    return made


def is_columns(data: Any) -> bool:
    """Whether data are a mapping of columns: of lists or arrays of single values, where linked tables would be of tables."""
    if not isinstance(data, Mapping) or not data:
        return False
    listed = all(isinstance(values, list | tuple | np.ndarray | pd.Series) and np.ndim(values) == 1 for values in data.values())
    return listed and not any(isinstance(value, Mapping) for values in data.values() for value in values)


def article(name: str) -> str:
    """A name after its article."""
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _dense(column: pd.Series) -> pd.Series:
    """A column that is not sparse, with intervals among categories as texts."""
    if isinstance(column.dtype, pd.SparseDtype):
        column = column.sparse.to_dense()
    if isinstance(column.dtype, pd.CategoricalDtype) and isinstance(column.dtype.categories, pd.IntervalIndex):
        return column.cat.rename_categories(str)
    return column


def _quiet(column: pd.Series) -> pd.Series:
    """A column whose decimals that signal on being looked at, which pandas cannot, are missing as other NaN are."""
    try:
        column.isna()
    except InvalidOperation:
        return column.map(lambda value: None if isinstance(value, Decimal) and value.is_snan() else value)
    return column


def _from_pandas(frame: pd.DataFrame, container: Container = "pandas", *, public: bool = False) -> InMemory:
    what = "Series" if container == "series" else "DataFrame"
    names = _checked_names(what, frame.columns)
    columns, orders, types, known = dict[str, pd.Series](), {}, list[str](), dict[str, str]()
    for i, name in enumerate(names):
        column = _quiet(_dense(frame.iloc[:, i].reset_index(drop=True)))
        dtype = column.dtype
        if isinstance(dtype, pd.CategoricalDtype):  # which categories occur is private, and so is their type
            types.append(f"{'ordered ' * bool(dtype.ordered)}category[{dtype.categories.dtype if public else ''}]")
            known[str(name)] = "dictionary"
            if dtype.ordered:
                from dpgen.columns.forms import texts_of

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
    table = frame.set_axis([str(name) for name in names], axis=1).astype(object).apply(_quiet)
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


def _without_long(data: Any) -> Any:
    """A table of polars, which takes 128 bits where a number is long: these as texts, for Arrow has no such integers."""
    import polars

    return data.cast({name: polars.String for name, kind in data.schema.items() if "Int128" in str(kind)})


def _from_arrow(data: Any, *, public: bool = False) -> InMemory:
    container: Container = "polars" if type(data).__module__.partition(".")[0] == "polars" else "arrow"
    what = "polars DataFrame" if container == "polars" else "Table"
    data = _without_long(data) if container == "polars" else data
    try:
        table = pyarrow.table(data)
    except (pyarrow.ArrowException, TypeError, ValueError):
        raise TypeError(f"{what} cannot be read through Arrow: its columns must be of types that Arrow has") from None
    names = _checked_names(what, table.column_names)
    known = {field.name: str(field.type) if public or _declared(field.type) else "" for field in table.schema}
    form = Form(container=container, names=names, types=tuple(known.values()))
    own = tuple(str(field.type) for field in table.schema)
    return InMemory(what, table, form, types=known, own_types=own, orders=_orders(table))


def _orders(table: pyarrow.Table) -> dict[str, list[str]]:
    """Values of the columns whose categories are in order."""
    return {
        field.name: list(map(str, table[field.name].unify_dictionaries().chunk(0).dictionary.to_pylist()))
        for field in table.schema
        if pyarrow.types.is_dictionary(field.type) and field.type.ordered and table[field.name].num_chunks
    }


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
    try:
        x, y = _records_of(items)
    except (TypeError, ValueError, IndexError):
        raise TypeError("data set has no records of one shape with whole labels") from None
    found = _from_array(x, "dataset", "data set")
    if y is None:
        return found
    whole = np.result_type(found.content.dtype, np.min_scalar_type(y.min()), np.min_scalar_type(y.max()))
    content = np.concatenate([found.content, y[:, None]], axis=1, dtype=whole, casting="unsafe")
    types = (*found.form.types * found.content.shape[1], "int64")
    return InMemory(found, content, replace(found.form, types=types))


def _records_of(items: Sequence[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    """The records of a data set in one array, and their labels (n,), if they have any."""
    records, labels = _of_pairs(items)
    x = np.stack([*map(np.asarray, records)])
    if labels is None:
        return x, None
    if any(int(label) != label for label in labels):
        raise ValueError("a label is no whole number")
    return x, np.array([*map(int, labels)])


def _require_items(data: Any) -> None:
    for row, items in enumerate(data, start=1):
        wrong = [item for item in items if isinstance(item, bool) or not isinstance(item, str | int | np.integer)]
        if wrong:
            raise TypeError(f"list of sets has an item of type {type(wrong[0]).__name__} in row {row}; it must be text or int")


def _from_sets(data: Any) -> InMemory:
    kinds = {isinstance(item, str) for items in data for item in items}
    _require_items(data)
    if len(kinds) > 1:
        raise TypeError("list of sets has items that are texts and items that are integers; they must be of one type")
    content = [[str(item) for item in items] for items in data]
    return InMemory("list of sets", content, Form(container="sets", types=("str" if True in kinds else "int64",)))


# -- images ------------------------------------------------------------------------------------------------------------


COLOURS = 3
"""Channels of an image in colour."""


class Pictures(NamedTuple):
    """Images in memory, their classes (n,) if they have any, and the public names of these if the data set knows them."""

    images: Sequence[Any]
    labels: Sequence[int] | None = None
    class_names: tuple[str, ...] | None = None


def is_pictures(data: Any) -> bool:
    """Whether the items of a data set are images in colour, with or without a class, or columns one of which is images."""
    if not (isinstance(data, Dataset) or hasattr(data, "features")) or not hasattr(data, "__len__") or not len(data):
        return False
    first = data[0]
    if isinstance(first, Mapping):
        return _image_column(first) is not None
    image = first[0] if isinstance(first, tuple | list) else first
    return getattr(image, "mode", "L") not in ("1", "L") if is_picture(image) else COLOURS in _channels(image)


def is_picture(image: Any) -> bool:
    """Whether this is an image of Pillow, without importing it."""
    return isinstance(getattr(image, "mode", None), str) and hasattr(image, "convert")


def _channels(image: Any) -> tuple[int, ...]:
    """Channels of an image as an array: of uint8 the last side, of floating point the first."""
    shape = tuple(getattr(image, "shape", ()))
    if len(shape) != COLOURS:
        return ()
    return shape[:1] if "float" in str(image.dtype) else shape[2:]


def _image_column(item: Mapping[str, Any]) -> str | None:
    """Name of the first column of images of a data set whose items are mappings."""
    return next((name for name, value in item.items() if is_picture(value)), None)


def pictures_of(data: Any) -> Pictures:
    """Images and classes of a data set for which `is_pictures` holds."""
    items = [data[i] for i in range(len(data))]
    if isinstance(items[0], Mapping):
        images, labels, names = _of_mappings(items, getattr(data, "features", {}))
    else:
        images, labels = _of_pairs(items)
        names = getattr(data, "classes", None)
    classes = None if labels is None else [_class(value) for value in labels]
    known = None if names is None or labels is None else tuple(map(str, names))
    return Pictures([_eight_bits(image) for image in images], classes, known)


def _of_pairs(items: Sequence[Any]) -> tuple[list[Any], list[Any] | None]:
    """Records and labels of pairs of both; of records alone there are no labels."""
    if not isinstance(items[0], tuple | list):
        return [*items], None
    return [item[0] for item in items], [item[1] for item in items] if len(items[0]) > 1 else None


def _class(label: Any) -> int:
    if not isinstance(label, int | np.integer | torch.Tensor):
        raise TypeError(f"data set has a label of type {type(label).__name__}; labels of images must be whole numbers")
    return int(label)


def _of_mappings(items: Sequence[Mapping[str, Any]], features: Mapping[str, Any]) -> tuple[list[Any], list[Any] | None, Any]:
    """Images of items with names, the whole numbers beside them that are their classes, and the names of these, if any."""
    column = _image_column(items[0])
    assert column is not None
    whole = [name for name, value in items[0].items() if isinstance(value, int | np.integer) and name != column]
    label = next((name for name in whole if "label" in name), whole[0] if len(whole) == 1 else None)
    labels = None if label is None else [item[label] for item in items]
    return [item[column] for item in items], labels, getattr(features.get(label or ""), "names", None)


def _eight_bits(image: Any) -> Any:
    """An image of floating point (c, h, w) in [0, 1] as uint8 (h, w, c); any other as it is."""
    if "float" not in str(getattr(image, "dtype", "")):
        return image
    values = np.asarray(image, dtype=np.float64)
    if not (values >= 0).all() or not (values <= 1).all():
        raise ValueError("data set has an image whose values are not in [0, 1]: give images without normalisation")
    return np.moveaxis(np.rint(values * 255).astype(np.uint8), 0, -1)


# -- kinds of containers -----------------------------------------------------------------------------------------------

_ENGINES = {"duckdb": "DuckDB relation", "_duckdb": "DuckDB relation", "pyspark": "Spark DataFrame"}


def _engine(data: Any) -> str:
    """The words for a table of an engine; "" of other data."""
    return _ENGINES.get(type(data).__module__.partition(".")[0], "") if hasattr(data, "columns") else ""


def _from_engine(data: Any, *, public: bool) -> InMemory:
    names = _checked_names(_engine(data), data.columns)
    form = Form(container="pandas", names=names)
    return InMemory(_engine(data), data, form, engine=True, types=dict.fromkeys(map(str, names), "public" if public else ""))


def _refuse_masked(data: Any, *, public: bool) -> InMemory:
    """A refusal of arrays of which NumPy would show what lies under the mask."""
    raise ValueError("array is masked; fill it (data.filled(...)), or give a DataFrame, in which values may be missing")


def _from_series(data: pd.Series, *, public: bool) -> InMemory:
    return _from_pandas(data.to_frame("x" if data.name is None else data.name), "series", public=public)


def _is_array(data: Any) -> bool:
    return isinstance(data, np.ndarray | torch.Tensor)


def _in_colour(data: Any) -> bool:
    """Whether an array holds images in colour, uint8 (n, h, w, 3)."""
    return _is_array(data) and str(data.dtype).endswith("uint8") and data.shape[3:] == (COLOURS,)


def _from_colours(data: Any, *, public: bool) -> InMemory:
    plain = isinstance(data, np.ndarray)
    images = Pictures(list(data if plain else data.detach().cpu().numpy()))
    return InMemory("array" if plain else "tensor", images, Form(container="numpy" if plain else "torch"))


def _of_values(data: Any) -> bool:
    """Whether an array has values of Python, one or several for each record."""
    return isinstance(data, np.ndarray) and data.dtype == object and data.ndim in (1, 2)


def _from_values(data: Any, *, public: bool) -> InMemory:
    form = Form(container="objects", shape=None if data.ndim == 2 else ())
    return _of_objects("array of objects", pd.DataFrame(data.reshape(len(data), -1)), form)


def _from_columns(data: Mapping[Any, Any], *, public: bool) -> InMemory:
    if len({len(values) for values in data.values()}) > 1:
        raise ValueError("mapping of lists has lists of several lengths; they must be equally long, None for a gap")
    columns = {name: pd.Series(list(values), dtype=object) for name, values in data.items()}
    return _of_objects("mapping of lists", pd.DataFrame(columns), Form(container="lists"))


def _listed(data: Any, *kinds: type) -> bool:
    """Whether data are a list of items of these kinds, one at least."""
    return isinstance(data, list | tuple) and len(data) > 0 and all(isinstance(item, kinds) for item in data)


def _from_mappings(data: Sequence[Mapping[Any, Any]], *, public: bool) -> InMemory:
    if any(row.keys() != data[0].keys() for row in data):
        raise ValueError("list of mappings has mappings of several keys; all must have the same ones, None for a gap")
    frame = pd.DataFrame([list(row.values()) for row in data], columns=list(data[0]), dtype=object)
    return _of_objects("list of mappings", frame, Form(container="rows"))


def _from_list(data: Sequence[Any], *, public: bool) -> InMemory:
    """Lists of numbers, of which NumPy finds one type: it has seen all of them."""
    try:
        found = _from_array(np.asarray(data))
    except ValueError as error:  # rows of unequal lengths
        raise TypeError(f"data is {article(type(data).__name__)} of no one shape; it must be {ACCEPTED}") from error
    form = found.form if public else replace(found.form, types=("",))
    return InMemory(found, found.content, form, own_types=found.own_types)


_KINDS: tuple[tuple[Callable[[Any], bool], Callable[..., InMemory]], ...] = (
    (lambda data: isinstance(data, np.ma.MaskedArray), _refuse_masked),
    (lambda data: isinstance(data, pd.DataFrame), _from_pandas),
    (lambda data: isinstance(data, pd.Series), _from_series),
    (lambda data: _engine(data) != "", _from_engine),
    (_in_colour, _from_colours),
    (is_pictures, lambda data, public: InMemory("data set", pictures_of(data), Form(container="dataset"))),
    (lambda data: hasattr(data, "__arrow_c_stream__"), _from_arrow),
    (_of_values, _from_values),
    (lambda data: isinstance(data, np.ndarray), lambda data, public: _from_array(data)),
    (_is_array, lambda data, public: _from_tensor(data)),
    (
        lambda data: type(data).__module__.startswith("scipy.sparse"),
        lambda data, public: _from_array(data.toarray(), "sparse", "sparse matrix"),
    ),
    (lambda data: isinstance(data, Dataset), lambda data, public: _from_dataset(data)),
    (is_columns, _from_columns),
    (lambda data: _listed(data, set, frozenset), lambda data, public: _from_sets(data)),
    (lambda data: _listed(data, Mapping), _from_mappings),
    (lambda data: _listed(data, object), _from_list),
)
"""Kinds of data, the first one that holds, and the reader of each; `public`: types of columns are."""
