"""Binary records, and sets of items as bits, with a private training part and a test part, and their files."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpgen.columns.forms import floats, natural_order, texts_of
from dpgen.containers import Form, InMemory
from dpgen.data.split import TEST_FRACTION, People, Split, SplitOptions, people_of, rows_of
from dpgen.data.table_files import (
    Missing,
    column_name,
    form_of,
    name_of,
    read_bytes,
    read_npy,
    require_columns,
    sample_form,
    table_path,
)
from dpgen.facts import Fact, Said

PIXEL_THRESHOLD = 127
"""Grey values 0..255 above this become 1 by default."""

WHITE = 255
"""Grey value of a white pixel."""

MAX_CLASSES = 1000
"""A label column with more distinct values than this is refused: it is a quantity or a key, not a class."""

_CHUNK = 2**22  # values that a pass over files holds at once


@dataclass(frozen=True, eq=False, repr=False)
class Records:
    """Binary records ``x`` in {0, 1}^(n, d) that are to be protected, beside records that are not.

    Only ``x`` and ``labels`` are private. ``test_x`` and ``test_labels`` serve evaluation and are never trained on;
    ``facts`` are those that a privacy statement has to repeat. Parts may be empty: how many records there are is private.
    The representation shows sizes only, never values.

    Bits are uint8, ``labels`` int64 in [0, n_classes), `image_shape` is (height, width) with height * width = d, `class_names`
    are as in the source. `grey` are the same records as uint8 grey values, of which ``x`` are those above `grey_threshold`, for
    models and evaluations that want more than bits. `form` is that of samples, None: bits and labels. `people` numbers the
    person of each private record (n,), int64, where people may have several; None: a record each.

    >>> Records("tiny", torch.eye(3, dtype=torch.uint8), torch.ones(1, 3, dtype=torch.uint8))
    Records('tiny': 3 private, 1 test records of 3 binary features, no labels)
    """

    name: str
    x: Tensor
    test_x: Tensor
    labels: Tensor | None = None
    test_labels: Tensor | None = None
    n_classes: int = 0
    image_shape: tuple[int, int] | None = None
    columns: list[str] | None = None
    class_names: tuple[str, ...] | None = None
    facts: tuple[Fact | Said, ...] = ()
    grey: Tensor | None = None
    test_grey: Tensor | None = None
    grey_threshold: int = PIXEL_THRESHOLD
    form: Form | None = None
    people: Tensor | None = None

    def __post_init__(self) -> None:
        self._require_records("x", self.x, "labels", self.labels)
        self._require_records("test_x", self.test_x, "test_labels", self.test_labels)
        require_threshold(self.grey_threshold)
        if (self.grey is None) != (self.test_grey is None):
            raise ValueError(f"test_grey is {_presence(self.test_grey)} but grey is {_presence(self.grey)}")
        self._require_grey("grey", self.grey, self.x)
        self._require_grey("test_grey", self.test_grey, self.test_x)
        if self.labels is None and self.n_classes != 0:
            raise ValueError(f"n_classes is {self.n_classes} without labels: it must be 0")
        if self.image_shape is not None and self.image_shape[0] * self.image_shape[1] != self.d:
            height, width = self.image_shape
            raise ValueError(f"image_shape {height} x {width} has {height * width} pixels, the records have {self.d}")
        if self.columns is not None and len(self.columns) != self.d:
            raise ValueError(f"columns has {len(self.columns)} names, the records have {self.d} features")
        if self.class_names is not None and len(self.class_names) != self.n_classes:
            raise ValueError(f"class_names has {len(self.class_names)} names, n_classes is {self.n_classes}")

    def _require_records(self, name: str, x: Tensor, labels_name: str, labels: Tensor | None) -> None:
        """Refuse bits and labels of a part that are not those of the private part in form."""
        if x.shape[1:] != self.x.shape[1:]:
            raise ValueError(f"{name} has {x.shape[1]} features, x has {self.d}: they must agree")
        require_binary(x, name=name, columns=self.columns)
        if (labels is None) != (self.labels is None):
            raise ValueError(f"{labels_name} is {_presence(labels)} but labels is {_presence(self.labels)}")
        if labels is not None:
            require_labels(labels, n=len(x), n_classes=self.n_classes, name=labels_name)

    def _require_grey(self, name: str, grey: Tensor | None, x: Tensor) -> None:
        """Refuse grey values whose bits are not ``x``."""
        if grey is None:
            return
        if grey.dtype != torch.uint8 or grey.shape != x.shape:
            raise ValueError(f"{name} has {grey.dtype} {tuple(grey.shape)}: it must be uint8 of shape {tuple(x.shape)}")
        if not torch.equal(x, (grey > self.grey_threshold).to(torch.uint8)):
            raise ValueError(f"{name} does not give the bits: they must be 1 exactly above {self.grey_threshold}")

    def __repr__(self) -> str:
        labels = f"{self.n_classes} classes" if self.n_classes else "no labels"
        counts = f"{self.n} private, {self.n_test} test records"
        return f"{type(self).__name__}({self.name!r}: {counts} of {self.d} binary features, {labels})"

    @property
    def n(self) -> int:
        """Number of private records."""
        return len(self.x)

    @property
    def n_test(self) -> int:
        """Number of test records."""
        return len(self.test_x)

    @property
    def d(self) -> int:
        """Number of binary features of a record."""
        return int(self.x.shape[1])


def require_binary(x: Tensor, *, name: str = "x", columns: list[str] | None = None) -> None:
    """Refuse anything but a uint8 matrix of zeros and ones; the row and column are named."""
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"{name} has shape {tuple(x.shape)}: it must be (records, features) with at least one feature")
    if x.dtype != torch.uint8:
        raise ValueError(f"{name} has dtype {x.dtype}: it must be torch.uint8")
    if len(x) and int(x.max()) > 1:
        row, i = (x > 1).nonzero()[0].tolist()
        column = f"column {i + 1}" if columns is None else f"column {columns[i]!r}"
        raise ValueError(f"{name} has another value in row {row + 1}, {column}: only 0 and 1 are supported")


def split_records(
    name: str,
    x: Tensor,
    *,
    split: Split | None = None,
    labels: Tensor | None = None,
    n_classes: int = 0,
    image_shape: tuple[int, int] | None = None,
    columns: list[str] | None = None,
    class_names: tuple[str, ...] | None = None,
    facts: tuple[Fact | Said, ...] = (),
    form: Form | None = None,
    grey_threshold: int | None = None,
) -> Records:
    """Splits ``x`` (n, d) into private and test part.

    With ``grey_threshold`` ``x`` are grey values, and the records are 1 where they are above it.

    Without ``split`` every record is for evaluation by a fresh secret coin of probability .2, see `Split`.

    >>> split_records("tiny", torch.eye(10, dtype=torch.uint8), split=Split(key=b"K" * 32))
    Records('tiny': 8 private, 2 test records of 10 binary features, no labels)
    """
    if labels is not None and len(labels) != len(x):
        raise ValueError(f"labels has length {len(labels)}, x has {len(x)} records: they must agree")
    split = Split() if split is None else split
    test = split.test_rows(len(x))
    grey = None if grey_threshold is None else x
    x = x if grey_threshold is None else (x > grey_threshold).to(torch.uint8)
    return Records(
        name=name,
        x=x[~test],
        labels=rows_of(labels, ~test),
        test_x=x[test],
        test_labels=rows_of(labels, test),
        n_classes=n_classes,
        image_shape=image_shape,
        columns=columns,
        class_names=class_names,
        facts=(*facts, split.fact()),
        grey=rows_of(grey, ~test),
        test_grey=rows_of(grey, test),
        grey_threshold=PIXEL_THRESHOLD if grey_threshold is None else grey_threshold,
        form=form,
        people=split.owners(~test),
    )


def require_labels(labels: Tensor, *, n: int, n_classes: int, name: str) -> None:
    """Refuse labels that are not int64 (n,) in [0, n_classes)."""
    if n_classes < 1:
        raise ValueError(f"n_classes is {n_classes} with labels: it must be at least 1")
    if labels.shape != (n,):
        raise ValueError(f"{name} has shape {tuple(labels.shape)}: it must be ({n},), one label for each record")
    if labels.dtype != torch.int64:
        raise ValueError(f"{name} has dtype {labels.dtype}: it must be torch.int64")
    if n and not 0 <= int(labels.min()) <= int(labels.max()) < n_classes:
        raise ValueError(f"{name} has a label outside [0, {n_classes - 1}], the classes")


def _presence(labels: Tensor | None) -> str:
    return "missing" if labels is None else "given"


def load_records(
    *,
    path: str,
    label_column: str | int | None = None,
    image_shape: tuple[int, int] | None = None,
    test_fraction: float = TEST_FRACTION,
    test_path: str | None = None,
    split_key: Path | None = None,
    missing: Missing = "error",
    grey_threshold: int | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    people: People | None = None,
) -> Records:
    """A csv (plain or .gz), parquet or npy file whose columns are all 0/1, or grey values, but ``label_column``.

    Arguments:
        path: file to read, of a form that `table_files` recognises.
        label_column: column with the class of each record, of any type; the classes are sorted. Columns of an npy file are
            numbered from 0.
        image_shape: (height, width) when the columns are the pixels of an image, row by row.
        test_fraction: probability of each record to be kept for evaluation, in [0, 1).
        test_path: file of the test records, with the same columns; then all of ``path`` is private.
        split_key: file of the secret key of the split, made if it is not there; a run has its own without it.
        missing: "error", or "drop" records with a missing value, or let it be a "category" of its own, of the label alone.
        grey_threshold: columns hold grey values, whole numbers from 0 to 255, or from 0 to 1 where their type is floating
            point; those above this number of 255 are ones for systems that work on bits. None: columns are bits.
        delimiter: of a csv file, the one character between two fields, or "tab"; without it the one of the header line.
        encoding: of a csv file, by its name in Python, as cp1252; without it UTF-8, of other lines cp1252.
    """
    path = table_path(path, delimiter, encoding)
    label = column_name("label_column", label_column, path)
    options = SplitOptions(test_fraction, test_path, split_key, missing, people_of(path, people))
    table, split = options.read(path, categorical=() if label is None else (label,), narrow=True)
    features = [name for name in table.columns if name != label]
    _require_header(path, list(table.columns))
    labels: Tensor | None = None
    categories = dict[str, tuple[str, ...]]()
    facts: tuple[Fact | Said, ...] = (Fact.PUBLIC_NAMES,)
    class_names: tuple[str, ...] = ()
    if label is not None:
        require_columns(path, [label], table.columns)
        labels, class_names = class_labels(table[label])
        categories[label] = class_names
        facts += (Fact.READ_CLASSES(k=len(class_names)),)
    form = sample_form(path, list(table.columns), csv="int64", label=label, categories=categories)
    if grey_threshold is not None:
        require_threshold(grey_threshold)
        form = replace(form, white=_white(path, form, label))
    x = pixels(table[features], path, white=form.white)
    if grey_threshold is not None:
        require_grey(path, bits=form.white == WHITE and int(x.max() if x.numel() else 0) <= 1)
    del table  # as large as x, which is copied next
    return split_records(
        name_of(path),
        x,
        grey_threshold=grey_threshold,
        split=split,
        labels=labels,
        n_classes=len(class_names),
        image_shape=image_shape,
        columns=features,
        class_names=class_names or None,
        facts=facts,
        form=form,
    )


def _require_header(path: str, names: list[str]) -> None:
    """Refuse a csv file whose first line is a record."""
    if form_of(path) == "csv" and len(names) > 1 and {name.split(".")[0] for name in names} <= {"0", "1"}:
        raise ValueError(f"{path} has no header: its first line holds bits where names belong")


def _white(path: str, form: Form, label: str | None) -> int:
    """Grey value of white by the types of features, public or not: the owner says that they are grey."""
    own = path.own_types if isinstance(path, InMemory) else form.types
    return white_of([dtype for name, dtype in zip(form.names, own) if name != label] or own)


# -- on disk -----------------------------------------------------------------------------------------------------------


class MappedRows:
    """Rows (n, d) of 0 and 1 that stay on disk: a tensor whose pages the system reads when rows are drawn."""

    @staticmethod
    def open(path: str) -> Tensor:
        """Rows of npy files (n, d), several by a glob, in the order of their names."""
        return _on_disk(path, label=None, option="path")[0]


@dataclass(frozen=True, eq=False, repr=False)
class MappedRecords(Records):
    """`Records` on disk, with labels in memory."""

    def some(self, most: int) -> Records:
        """At most so many private and test records in memory, by a public choice."""
        chosen = dict(vars(self))
        for part in ("", "test_"):
            rows = np.random.default_rng(0).permutation(len(chosen[f"{part}x"]))[:most]
            at = torch.from_numpy(np.sort(rows))
            chosen |= {name: rows_of(chosen[name], at) for name in (f"{part}x", f"{part}labels")}
        return Records(**chosen)


def _shards(path: str, option: str) -> tuple[str, list[np.ndarray]]:
    """The first of the npy files that a pattern stands for, and the arrays of all, which have as many columns."""
    files = sorted(glob(path, recursive=True))
    if not files:
        raise ValueError(f"{option} is {path!r}: there is no such file")
    shards = [read_npy(file) for file in files]
    for file, shard in zip(files, shards):
        if shard.shape[1] != shards[0].shape[1]:
            raise ValueError(f"{file} has {shard.shape[1]} columns, {files[0]} has {shards[0].shape[1]}: they must agree")
    return files[0], shards


def _on_disk(path: str, *, label: str | int | None, option: str) -> tuple[Tensor, pd.Series]:
    """Rows of npy files in a temporary file without a name, which goes with the process, and values of their label column."""
    first, shards = _shards(path, option)
    column = [] if label is None else [int(str(column_name("label_column", label, first)))]
    n, d = sum(map(len, shards)), shards[0].shape[1] - len(column)
    with TemporaryFile(prefix="dpgen-") as kept:
        x = np.memmap(kept, np.uint8, "w+", shape=(n, d)) if n else np.empty((0, d), np.uint8)
    start, labels = 0, []
    for shard in shards:
        size = max(1, _CHUNK // shard.shape[1])
        for part in (shard[i : i + size] for i in range(0, len(shard), size)):
            labels.append(part[:, column])
            part = np.delete(part, column, 1)
            wrong = np.argwhere((part != 0) & (part != 1))
            if len(wrong):
                row, i = start + wrong[0, 0] + 1, wrong[0, 1] + 1
                raise ValueError(f"{path} has another value in row {row}, column {i}: only 0 and 1 are supported")
            x[start : start + len(part)] = part
            start += len(part)
    values = np.concatenate(labels).ravel() if labels else np.empty(0)
    return torch.from_numpy(x), pd.Series(values, name=label)


def load_mapped(
    *,
    path: str,
    label_column: str | int | None = None,
    test_path: str | None = None,
    image_shape: tuple[int, int] | None = None,
) -> MappedRecords:
    """Arrays of NumPy whose values are all 0/1: they are copied to a temporary file, and memory does not grow with them.

    Arguments:
        path: npy files, each an array (n, d) of bool, uint8 or floats, as in "shards/*.npy".
        label_column: number, from 0, of the column with the class of each record; the classes are sorted.
        test_path: files of the test records, of the same form; without them there are none, and all of `path` is private.
        image_shape: (height, width) when the columns are the pixels of an image, row by row.
    """
    x, values = _on_disk(path, label=label_column, option="path")
    test, test_values = _on_disk(test_path, label=label_column, option="test_path") if test_path else (x[:0], values[:0])
    split, found = Split(0.0, held_out=len(test) if test_path else None), dict[str, Any]()
    if label_column is not None:
        for where, own in ((path, values), (test_path, test_values)):
            if own.isna().any():
                raise ValueError(f"{where} has no label in row {int(own.isna().argmax()) + 1}: every record needs one")
        labels, names = class_labels(pd.concat([values, test_values], ignore_index=True))
        found = {"labels": labels[: len(x)], "test_labels": labels[len(x) :], "n_classes": len(names), "class_names": names}
    facts = (Fact.READ_CLASSES(k=found["n_classes"]),) if found else ()
    form, name = Form(container="numpy", types=("uint8",)), name_of(path)
    return MappedRecords(name, x, test, image_shape=image_shape, facts=(*facts, split.fact()), form=form, **found)


def white_of(types: Sequence[str]) -> int:
    """Grey value of a white pixel, by the types of the columns."""
    return 1 if all(dtype.startswith(("float", "double", "halffloat")) for dtype in types) else WHITE


def require_threshold(threshold: int) -> None:
    """Refuse a grey value that is not in [0, 254]."""
    if not 0 <= threshold < WHITE:
        raise ValueError(f"grey_threshold is {threshold}: it must be in [0, {WHITE - 1}]")


def require_grey(name: str, *, bits: bool) -> None:
    """Refuse bits in place of grey values."""
    if bits:
        raise ValueError(
            f"{name} has no value above 1, and grey values go from 0 to {WHITE}: for bits leave grey_threshold out (in memory: "
            "give them as bool)"
        )


def pixels(table: pd.DataFrame, name: str = "table", *, white: int | None = None, numbered: bool = True) -> Tensor:
    """Matrix (n, d) of uint8 of a table: 0 and 1 or, with `white`, grey values in [0, white] on the scale of [0, 255].

    `numbered`: errors show the number of the row.

    >>> pixels(pd.DataFrame({"a": [0, 1], "b": [True, False]})).tolist()
    [[0, 1], [1, 0]]
    """
    if not table.shape[1]:
        raise ValueError(f"{name} has no {'0/1' if white is None else 'grey'} columns: at least one is needed")
    if (ready := _ready(table, white)) is not None:
        return ready
    found = np.empty(table.shape, np.uint8)
    for i, (column, values) in enumerate(table.items()):
        right, numbers = values.isin([0, 1]).to_numpy(), values
        if white is not None:  # grey values, on the scale of [0, 255]
            given = pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64)
            right = (given >= 0) & (given <= white) & ((white == 1) | (given == np.floor(given)))
            numbers = np.rint(given * (WHITE / white))
        if not right.all():
            where = f"row {int((~right).argmax()) + 1}" if numbered else "a row"
            wanted = f"grey values are {'numbers' if white == 1 else 'whole numbers'} from 0 to {white}"
            wanted = "only 0 and 1 are supported" if white is None else wanted
            raise ValueError(f"{name} column {column!r} has another value in {where}: {wanted}")
        found[:, i] = numbers
    return torch.from_numpy(found)


def _ready(table: pd.DataFrame, white: int | None) -> Tensor | None:
    """The values of a table that are all in the range of their bytes; None: they are not."""
    if white == 1 or not (table.dtypes == np.uint8).all():
        return None
    whole = table.to_numpy()
    if white != WHITE and int(whole.max(initial=0)) > 1:
        return None
    return torch.from_numpy(np.require(whole, requirements=("C", "W")))


def class_labels(values: pd.Series) -> tuple[Tensor, tuple[str, ...]]:
    """Classes 0..c-1 of a column, in sorted order, and their names.

    >>> class_labels(pd.Series(["no", "yes", "no"], name="label"))
    (tensor([0, 1, 0]), ('no', 'yes'))
    """
    if values.nunique() > MAX_CLASSES:
        raise ValueError(f"label_column {values.name!r} has {values.nunique()} distinct values: at most {MAX_CLASSES} classes")
    named = texts_of(values)  # 1 and 1.0 are one class: a gap makes floats of whole numbers
    _, different = pd.factorize(named)
    read = floats(pd.Series(different, dtype=object), "number")
    names = different[
        np.lexsort((different.astype(str), np.nan_to_num(read) if np.isfinite(read).all() else np.zeros(len(read))))
    ]
    return torch.from_numpy(pd.Index(names).get_indexer(pd.Index(named)).astype(np.int64)), tuple(map(str, names))


# -- records of items: places visited, items of a basket ----------------------------------------------------------------

MAX_CELLS = 4 * 2**30
"""Largest table (records x items, one byte each) that is built."""


def load_sets(
    *,
    path: str,
    top_items: int | None = None,
    items_path: str | None = None,
    items: list[str] | None = None,
    test_fraction: float = TEST_FRACTION,
    test_path: str | None = None,
    split_key: Path | None = None,
) -> Records:
    """One record per line, item ids separated by blanks, plain or gzipped; feature j is 1 when item j is in the record.

    Which items are kept must not depend on private records. ``items`` or ``items_path`` name them from outside. Otherwise
    they are read from the records themselves - all of them, or the ``top_items`` most frequent - and ``facts`` say that
    epsilon does not cover this choice. An empty line is a record without items.

    Arguments:
        path: file of records.
        top_items: number of most frequent items to keep (ties: the smaller id).
        items_path: file of item ids, separated by blanks or lines, that are public.
        items: these ids themselves.
        test_fraction: probability of each record to be kept for evaluation, in [0, 1).
        test_path: file of the test records, of the same form; then all of ``path`` is private.
        split_key: file of the secret key of the split, made if it is not there; a run has its own without it.
    """
    options = SplitOptions(test_fraction, test_path, split_key=split_key)
    baskets = read_baskets(path)
    test = [] if test_path is None else read_baskets(test_path)
    universe, facts = _universe(baskets, top_items=top_items, items_path=items_path, items=items)
    baskets = [*baskets, *test]
    if len(baskets) * len(universe) > MAX_CELLS:
        raise ValueError(f"{path} has {len(baskets)} records x {len(universe)} items: at most {MAX_CELLS} fit; lower top_items")
    form = path.form if isinstance(path, InMemory) else Form(container="sets", types=("str",))
    return split_records(
        name_of(path),
        indicator_matrix(baskets, universe),
        split=options.split(held_out=None if test_path is None else len(test)),
        columns=universe,
        facts=facts,
        form=replace(form, names=tuple(universe)),
    )


def read_baskets(path: Path | str) -> list[list[str]]:
    """Item ids of each line of a file."""
    if isinstance(path, InMemory):
        found: list[list[str]] = path.content
        return found
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file: byte {error.start} is not UTF-8") from error
    if not text.strip():
        raise ValueError(f"{path} holds no items")
    if "\x00" in text:
        raise ValueError(f"{path} is not a text file: it holds zero bytes")
    baskets = [line.split() for line in text.removesuffix("\n").split("\n")]
    for number, basket in enumerate(baskets, start=1):
        for item in basket:
            if "," in item or ";" in item:
                raise ValueError(f"{path} line {number} has an item with , or ; in it: item ids must be separated by blanks")
    return baskets


def indicator_matrix(baskets: list[list[str]], items: list[str]) -> Tensor:
    """Matrix (len(baskets), len(items)) of uint8: 1 where the basket holds the item; other items are left out.

    >>> indicator_matrix([["3", "7"], [], ["7", "9"]], ["7", "3"]).tolist()
    [[1, 1], [0, 0], [1, 0]]
    """
    position = {item: column for column, item in enumerate(items)}
    x = np.zeros((len(baskets), len(items)), dtype=np.uint8)
    for row, basket in enumerate(baskets):
        x[row, [position[item] for item in basket if item in position]] = 1
    return torch.from_numpy(x)


def _require_one(**options: Any) -> None:
    given = [f"{name} is {value!r}" for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"{given[0]} and {given[1]}: give one of them")


def _universe(
    baskets: list[list[str]], *, top_items: int | None, items_path: str | None, items: list[str] | None
) -> tuple[list[str], tuple[Said, ...]]:
    _require_one(top_items=top_items, items_path=items_path, items=items)
    if items is not None:
        return _different("items", items), ()
    if items_path is not None:
        return _different(items_path, [item for basket in read_baskets(items_path) for item in basket]), ()
    if top_items is not None and top_items < 1:
        raise ValueError(f"top_items is {top_items}: it must be at least 1")
    counts = Counter(item for basket in baskets for item in set(basket))
    if top_items is None:
        return sorted(counts, key=natural_order), (Fact.READ_ITEMS(how="all of them"),)
    kept = sorted(counts, key=lambda item: (-counts[item], natural_order(item)))[:top_items]
    return sorted(kept, key=natural_order), (Fact.READ_ITEMS(how=f"the {top_items} most frequent"),)


def _different(source: str, items: list[str]) -> list[str]:
    """The items, once it is known that there are some and that no two are the same."""
    if not items:
        raise ValueError(f"{source} names no item: at least one is needed")
    if repeated := [item for item, count in Counter(items).items() if count > 1]:
        raise ValueError(f"{source} names item {repeated[0]!r} more than once: each item is a column of its own")
    return items
