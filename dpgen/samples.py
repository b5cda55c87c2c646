"""Synthetic samples and what they are written to: arrays, csv, Parquet, DuckDB, Data Packages."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import is_integer_dtype
from torch import Tensor
from torch.utils.data import TensorDataset

from dpgen.extras import extras
from dpgen.files import write_atomically, write_files

if TYPE_CHECKING:
    from dpgen.containers import Form

Arrays = dict[str, npt.NDArray[Any]]


class Samples(ABC):
    """Synthetic data that can be written to a file."""

    @abstractmethod
    def to_pandas(self) -> pd.DataFrame:
        """One row for each of them."""

    def in_form(self, form: Form) -> Any:
        """The samples in the container that private data came in, with its names and types."""
        return form.restore(self.to_pandas())

    @abstractmethod
    def arrays(self) -> Arrays:
        """Samples as named arrays; numbers keep their types."""

    def __len__(self) -> int:
        return len(self.to_pandas())

    def save(self, path: Path | str) -> None:
        """Write `arrays` as .npz, or `to_pandas` as .csv or .parquet, by the name's ending, or as FILE.duckdb::TABLE."""
        file, within, table = str(path).partition("::")
        if within:
            return write_duckdb(file, {table: self.to_pandas()})
        path = Path(path)
        if path.suffix not in (".npz", ".csv", ".parquet"):
            raise ValueError(f"path is {path.name!r}; it must end in .npz, .csv or .parquet, or be FILE.duckdb::TABLE")
        write_atomically(path, self.encoded(path.suffix))

    def encoded(self, suffix: str) -> bytes:
        """The bytes of a file of this ending."""
        if suffix == ".csv":
            return self.to_pandas().to_csv(index=False).encode()
        if suffix == ".parquet":
            return self.to_pandas().to_parquet(index=False)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **self.arrays())  # type: ignore[arg-type]
        return buffer.getvalue()


def write_duckdb(file: str, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write tables into a file of DuckDB, in place of those of the same names, all or none.

    Raises:
        ValueError: a table without a name, or a file that DuckDB cannot write now.
    """
    if "" in tables:
        raise ValueError(f"path is '{file}::'; a table must be named, as in {file}::visits")
    with extras():
        import duckdb
    try:
        with duckdb.connect(file) as connection:
            connection.begin()
            for name, rows in tables.items():
                connection.register("synthetic rows", rows)
                quoted = name.replace('"', '""')
                connection.execute(f'create or replace table "{quoted}" as select * from "synthetic rows"')
            connection.commit()
    except duckdb.Error as error:
        raise ValueError(f"path is {file!r}, which DuckDB cannot write: {str(error).splitlines()[0]}") from None


_STANDARD = ("name", "type", "format", "constraints", "categories", "categoriesOrdered", "trueValues", "falseValues")
"""The entry of a field in a Table Schema."""


def _standard(field_: Mapping[str, Any]) -> dict[str, Any]:
    """A field in the words of Table Schema."""
    found = {part: field_[part] for part in _STANDARD if part in field_}
    return _with_pattern(found, field_.get("dpgen:key", ""), unique=True)


def _type_of_key(values: pd.Series) -> str:
    return "integer" if is_integer_dtype(values) else "string"


def _with_pattern(field_: dict[str, Any], pattern: str, **rules: bool) -> dict[str, Any]:
    """A field of a key, whose values satisfy a pattern."""
    if not pattern:
        return field_
    from dpgen.columns.descriptors import regular_pattern

    return field_ | {"constraints": {**field_.get("constraints", {}), **rules, "pattern": regular_pattern(pattern)}}


def resource(name: str, columns: Sequence[Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Entry of a Data Package for a table, from what is known of some of its columns.

    >>> resource("visits", ["who", "day"], {"fields": [{"name": "day", "type": "date", "dpgen:source": "dp"}]})
    {'name': 'visits', 'path': 'visits.csv', 'schema': {'fields': [{'name': 'who'}, {'name': 'day', 'type': 'date'}]}}
    """
    known = {f["name"]: _standard(f) for f in schema.get("fields", ())}
    fields = [known.get(str(column), {"name": str(column)}) for column in columns]
    return {"name": name, "path": f"{name}.csv", "schema": {**schema, "fields": fields}}


def _foreign(column: str, above: str, other: str) -> dict[str, Any]:
    """A foreign key of a Table Schema; "" is the table itself."""
    return {"fields": column, "reference": {"resource": above, "fields": other}}


@dataclass(frozen=True, kw_only=True)
class RecordSamples(Samples):
    """Synthetic records: x (n, d) uint8, the cluster (n,) that each came from, labels (n,) if the model has them.

    Tables have no column of clusters where the model has a single one, `k` = 1. Where `grey` values (n, d), uint8 in [0, 255],
    are there, x are their bits, and so are tables.
    """

    x: Tensor
    cluster: Tensor
    labels: Tensor | None = None
    grey: Tensor | None = None
    columns: tuple[str, ...] | None = None
    k: int | None = None

    def __len__(self) -> int:
        return len(self.x)

    def by_cluster(self) -> dict[str, Tensor]:
        """The records of each cluster that has any."""
        return {f"cluster {c}": self.x[self.cluster == c] for c in self.cluster.unique().tolist()}

    def to_pandas(self) -> pd.DataFrame:
        """One row for each record: its bits, its cluster where there are several, and its label where there are labels."""
        columns = self._names()
        table = pd.DataFrame(self.x.numpy(), columns=list(columns))
        extra = ({"cluster": self.cluster} if self.k != 1 else {}) | ({"label": self.labels} if self.labels is not None else {})
        for name, value in extra.items():
            table[f"{name}_" if name in columns else name] = value.numpy()  # a data column keeps its name
        return table

    def in_form(self, form: Form) -> Any:
        table = pd.DataFrame(self._scaled(form.white), columns=list(self._names()))
        if form.label is not None and self.labels is not None:
            table[form.label] = np.array(form.categories[form.label], dtype=object)[self.labels.numpy()]
        return form.restore(table, levels=("0", "1"))

    def _scaled(self, white: int | None) -> npt.NDArray[Any]:
        """Values (n, d), of images in units whose white is `white`."""
        if white is None:
            return self.x.numpy()
        return self.x.numpy() * float(white) if self.grey is None else self.grey.numpy() * (white / 255)

    def _names(self) -> tuple[str, ...]:
        return self.columns or tuple(f"x{i}" for i in range(self.x.shape[1]))

    def arrays(self) -> Arrays:
        labels = {} if self.labels is None else {"labels": self.labels.numpy()}
        names = {} if self.columns is None else {"columns": np.array(self.columns)}
        grey = {} if self.grey is None else {"grey": self.grey.numpy()}
        return {"x": self.x.numpy(), "cluster": self.cluster.numpy()} | labels | names | grey


@dataclass(frozen=True, kw_only=True)
class ImageSamples(Samples):
    """Synthetic images x (n, h, w, c) uint8 of 1 or 3 channels, their labels (n,) and the names of the classes."""

    x: Tensor
    labels: Tensor
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.x)

    def by_class(self) -> dict[str, Tensor]:
        """The images of each class that has any, by its name."""
        return {name: self.x[self.labels == c] for c, name in enumerate(self.class_names) if (self.labels == c).any()}

    def to_pandas(self) -> pd.DataFrame:
        """One row for each image: its values, row by row and channel by channel, and the name of its class."""
        flat = self.x.flatten(1).numpy()
        table = pd.DataFrame(flat, columns=[f"x{i}" for i in range(flat.shape[1])])
        return table.assign(label=np.array(self.class_names, dtype=object)[self.labels.numpy()])

    def in_form(self, form: Form) -> Any:
        if form.container == "dataset":
            return TensorDataset(self.x, self.labels)
        return self.x.numpy() if form.container == "numpy" else self.x

    def arrays(self) -> Arrays:
        return {"x": self.x.numpy(), "labels": self.labels.numpy(), "class_names": np.array(self.class_names)}


def image_rows(x: Tensor) -> Tensor:
    """Images (n, h, w, c) as rows (n, c * h * w), channel by channel."""
    return x.permute(0, 3, 1, 2).flatten(1)


@dataclass(frozen=True, kw_only=True)
class PointSamples(Samples):
    """Synthetic points (n, d) and the names of their columns."""

    x: Tensor
    columns: tuple[str, ...]

    def to_pandas(self) -> pd.DataFrame:
        return pd.DataFrame(self.x.numpy(), columns=list(self.columns))

    def arrays(self) -> Arrays:
        return {"x": self.x.numpy(), "columns": np.array(self.columns)}


@dataclass(frozen=True, kw_only=True)
class ColumnSamples(Samples):
    """Synthetic values of each column, in the user's units; rows of a table, in the values of its `schema` (Table Schema)."""

    values: pd.DataFrame
    schema: Mapping[str, Any] = field(default_factory=dict)

    def to_pandas(self) -> pd.DataFrame:
        return self.values

    def for_files(self, form: Form | None) -> ColumnSamples:
        """The samples with the names, order and types of the data, for a file."""
        rows = self.values if form is None else self.in_form(form)
        frame = rows.to_frame() if isinstance(rows, pd.Series) else rows
        frame = frame if isinstance(frame, pd.DataFrame) else frame.to_pandas()
        return replace(self, values=frame.rename(columns=str))

    def save(self, path: Path | str) -> None:
        """Write samples to a file, or those of a table with a schema to a folder, which becomes a Data Package."""
        folder = Path(path)
        if folder.suffix or not self.schema:
            return super().save(path)
        about = {name: self.schema[name] for name in ("fields", "primaryKey") if name in self.schema}
        listed = json.dumps({"resources": [resource("rows", list(self.values), about)]}, indent=1)
        write_files(folder, {"datapackage.json": listed.encode(), "rows.csv": self.encoded(".csv")})

    def arrays(self) -> Arrays:
        columns = {str(name): column.to_numpy() for name, column in self.values.items()}
        return {name: column.astype(str) if column.dtype == object else column for name, column in columns.items()}


@dataclass(frozen=True, kw_only=True)
class LinkedSamples(Samples):
    """Synthetic tables whose keys match.

    `tables` are by name, people first where there is a table of them, `forms` containers, names and types of the data by table.
    `person` is the column of the key of people, `orders` are the columns by which the rows of tables are ordered, `links` those
    by which a table hangs on another one, beside that one. `fields` are descriptors (Table Schema) of columns, by table,
    `patterns` those of keys, see `GivenField`, `others` columns that name other people, by table.
    """

    tables: Mapping[str, pd.DataFrame]
    forms: Mapping[str, Form]
    person: str
    orders: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    fields: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    patterns: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, tables: Mapping[str, pd.DataFrame], forms: Mapping[str, dict[str, Any]], **names: Any) -> LinkedSamples:
        """From all columns of the tables and their forms as JSON, which say those that the data have."""
        from dpgen.containers import Form

        made = {name: Form.from_dict(form) for name, form in forms.items()}
        wanted = {name: [form.renamed.get(str(c), str(c)) for c in form.names] for name, form in made.items()}
        return cls(tables={name: table[wanted[name]] for name, table in tables.items()}, forms=made, **names)

    def to_pandas(self) -> pd.DataFrame:
        """One line for each row, with the columns of what it hangs on; people without rows have a line of gaps."""
        first, *more = self.tables
        found = self.tables[first]
        for name in more:
            suffixes = ("", f"_of_{'row' if len(more) == 1 else name}")
            found = found.merge(self.tables[name], on=self.links[name][0], how="left", suffixes=suffixes)
        return found

    def restored(self) -> Any:
        """The tables in the containers that the data came in; the rows alone where there was no table of people."""
        found = {name: self.forms[name].restore(table) for name, table in self.tables.items()}
        return found if len(found) > 1 else next(iter(found.values()))

    def arrays(self) -> Arrays:
        columns = {f"{name}.{column}": values for name, table in self.tables.items() for column, values in table.items()}
        return {name: np.asarray(v.astype(str) if v.dtype == object else v.to_numpy()) for name, v in columns.items()}

    def save(self, path: Path | str) -> None:
        """Write a folder of csv files with a `datapackage.json`, a .npz of all columns, or tables into a .duckdb."""
        path = Path(path)
        if path.suffix == ".npz":
            return super().save(path)
        if path.suffix == ".duckdb":
            return write_duckdb(str(path), {name: self._shown(name) for name in self.tables})
        if path.suffix:
            raise ValueError(f"path is {path.name!r}; it must name a folder, for a csv file of each table, .npz or .duckdb")
        write_files(path, self.package())

    def package(self) -> dict[str, bytes]:
        """The files of a Data Package of the tables, by name."""
        resources, files = [], {}
        keys = {above: column for column, above in self.links.values()}
        keys |= {self._people: self.person} if self.others else {}
        for name, table in self.tables.items():
            called = {new: old for old, new in self.forms[name].renamed.items()}
            schema = self._schema(name, keys.get(name), called)
            resources.append(resource(name, [called.get(column, column) for column in map(str, table)], schema))
            files[f"{name}.csv"] = self._shown(name).to_csv(index=False).encode()
        return {"datapackage.json": json.dumps({"resources": resources}, indent=1).encode()} | files

    def _schema(self, name: str, key: str | None, called: Mapping[str, str]) -> dict[str, Any]:
        """The Table Schema of a table, whose own key is `key`, and whose columns are `called` as in the data."""
        fields = [own | {"name": called.get(own["name"], own["name"])} for own in self._fields(name, key)]
        schema: dict[str, Any] = {"fields": fields} | ({} if key is None else {"primaryKey": key})
        foreign = [_foreign(called.get(column, column), above, other) for column, above, other in self._keys(name)]
        schema |= {"foreignKeys": foreign} if foreign else {}
        return schema | ({"dpgen:order": self.orders[name]} if self.orders.get(name) in self.tables[name] else {})

    @property
    def _people(self) -> str:
        return next(iter(self.tables))

    def _keys(self, table: str) -> Iterator[tuple[str, str, str]]:
        """Columns of a table that are keys, the table that each leads to, "" of its own, and the column there."""
        if table in self.links:
            column, above = self.links[table]
            yield column, above, column
        for column in self.others.get(table, ()):
            yield column, "" if table == self._people else self._people, self.person

    def _fields(self, name: str, key: str | None) -> list[dict[str, Any]]:
        """Descriptors of the columns of a table, whose own key is `key`; those of keys come last."""
        fields, table = [*map(dict, self.fields.get(name, ()))], self.tables[name]
        for own in fields:  # what is stated of a time is of a first one: later rows may lie beyond
            if own["name"] == self.orders.get(name):
                own.pop("constraints", None)
        for column in table.columns.intersection({self.person, key, *self.links.get(name, ())[:1]} & {*table}):
            of_links = {"name": column, "type": _type_of_key(table[column]), "constraints": {"required": True}}
            fields.append(_with_pattern(of_links, self.patterns.get(column, "")))
        for column in self.others.get(name, ()):
            other = {"name": column, "type": _type_of_key(self.tables[self._people][self.person])}
            fields.append(_with_pattern(other, self.patterns.get(self.person, "")))
        return fields

    def _shown(self, name: str) -> pd.DataFrame:
        """A table with the types of the data."""
        shown = self.forms[name].restore(self.tables[name])
        return shown if isinstance(shown, pd.DataFrame) else shown.to_pandas()
