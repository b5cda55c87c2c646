"""Synthetic data: what `sample` of a released model returns, and its files."""

import io
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from torch import Tensor

from dpgen.files import write_atomically

Arrays = dict[str, npt.NDArray[Any]]


class Samples(ABC):
    """Synthetic data that can be written to a file."""

    @property
    @abstractmethod
    def table(self) -> pd.DataFrame:
        """One row for each of them."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """The same as named arrays; numbers keep their types."""

    def __len__(self) -> int:
        return len(self.table)

    def save(self, path: Path) -> None:
        """Write `arrays` as .npz, or `table` as .csv or .parquet, by the name's ending.

        Raises:
            ValueError: another ending.
        """
        writers = {".npz": self._npz, ".csv": self._csv, ".parquet": self._parquet}
        if path.suffix not in writers:
            raise ValueError(f"path must end in one of {', '.join(writers)}, got {path.name!r}")
        write_atomically(path, writers[path.suffix]())

    def _npz(self) -> bytes:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **self.arrays())  # type: ignore[arg-type]
        return buffer.getvalue()

    def _csv(self) -> bytes:
        return self.table.to_csv(index=False).encode()

    def _parquet(self) -> bytes:
        return self.table.to_parquet(index=False)


@dataclass(frozen=True, kw_only=True)
class RecordSamples(Samples):
    """Synthetic records: x (n, d) uint8, the cluster (n,) that each came from, labels (n,) if the model has them."""

    x: Tensor
    cluster: Tensor
    labels: Tensor | None = None
    columns: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def by_cluster(self) -> dict[str, Tensor]:
        """The records of each cluster that has any."""
        return {f"cluster {c}": self.x[self.cluster == c] for c in self.cluster.unique().tolist()}

    @property
    def table(self) -> pd.DataFrame:
        columns = self.columns or tuple(f"x{i}" for i in range(self.x.shape[1]))
        table = pd.DataFrame(self.x.numpy(), columns=list(columns))
        extra = {"cluster": self.cluster} | ({"label": self.labels} if self.labels is not None else {})
        for name, value in extra.items():
            table[f"{name}_" if name in columns else name] = value.numpy()  # a data column keeps its name
        return table

    def arrays(self) -> Arrays:
        labels = {} if self.labels is None else {"labels": self.labels.numpy()}
        return {"x": self.x.numpy(), "cluster": self.cluster.numpy()} | labels


@dataclass(frozen=True, kw_only=True)
class GreySamples(RecordSamples):
    """Records whose grey values (n, d), uint8 in [0, 255], are there too; `x` are the bits, and so are tables."""

    grey: Tensor

    def arrays(self) -> Arrays:
        return super().arrays() | {"grey": self.grey.numpy()}


@dataclass(frozen=True, kw_only=True)
class PointSamples(Samples):
    """Synthetic points (n, d) and the names of their columns."""

    x: Tensor
    columns: tuple[str, ...]

    @property
    def table(self) -> pd.DataFrame:
        return pd.DataFrame(self.x.numpy(), columns=list(self.columns))

    def arrays(self) -> Arrays:
        return {"x": self.x.numpy()}


@dataclass(frozen=True, kw_only=True)
class ColumnSamples(Samples):
    """Synthetic values of each column, in the user's units."""

    values: pd.DataFrame

    @property
    def table(self) -> pd.DataFrame:
        return self.values

    def arrays(self) -> Arrays:
        columns = {str(name): column.to_numpy() for name, column in self.values.items()}
        return {name: column.astype(str) if column.dtype == object else column for name, column in columns.items()}
