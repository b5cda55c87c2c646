"""Releases: public models that may be sampled for free, private draws that are charged one by one, and synthetic samples."""

import io
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from dpgen.files import TensorFiles, damaged, read_tensor_files, write_atomically
from dpgen.privacy.events import pure_event
from dpgen.privacy.limits import require_whole
from dpgen.statement import PrivacyStatement

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpgen.privacy.curator import Curator
    from dpgen.privacy.mechanisms import Secrets

# -- samples -----------------------------------------------------------------------------------------------------------


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


# -- release -----------------------------------------------------------------------------------------------------------


MOST_SAMPLES = 2**31
"""Samples that are drawn at once at most."""

Rounding = Literal["bernoulli", "threshold"]


class Release(ABC):
    """Result of a fit: all of it has been paid for, and the statement says what it cost."""

    statement: PrivacyStatement

    @abstractmethod
    def write(self, directory: Path) -> list[str]:
        """Write the released files into `directory`; returns their names."""

    def report(self, path: Path | str) -> Path:
        """Write a page about this release for people: `dpgen.report`; returns its path."""
        return resolve_name("dpgen.report:report")(self, path)  # by name: the report knows releases, not the other way round


class Draws(Release):
    """Private draws: each row was charged when it was drawn; what drew them stays behind.

    Arguments:
        table: the draws, one a row.
        statement: what they cost.
        origin: what made them, public mechanism or private sampler; never written, for evaluation on this machine only.
    """

    def __init__(self, table: pd.DataFrame, *, statement: PrivacyStatement, origin: Any = None) -> None:
        self.table, self.statement, self.origin = table, statement, origin

    def __reduce__(self) -> NoReturn:
        raise TypeError("Draws cannot be pickled or copied: their origin may hold private data; use write() or .table")

    def __repr__(self) -> str:
        return f"Draws({len(self.table)} rows, columns {list(self.table.columns)})"

    def write(self, directory: Path) -> list[str]:
        write_atomically(directory / "draws.csv", self.table.to_csv(index=False).encode())
        return ["draws.csv"]


class PrivateDensity(ABC):
    """Density behind private draws, relative to a public reference: private, for evaluation on this machine only.

    Attributes:
        reference: public distribution Q0 on R^d with `log_prob(x)` and `sample(n, generator=)`.
        box: public bounds `low` and `high` of the density ratio Q/Q0, where there are some.
        lattice: public lattice with `per_axis` cells on each axis in which the density is constant, where there is one; the
            density then integrates to 1 as it is.
    """

    reference: Any
    box: Any = None
    lattice: Any = None

    @abstractmethod
    def log_ratio(self, x: Tensor) -> Tensor:
        """log dQ/dQ0 (n,) at points (n, d)."""

    def certificates(self) -> list[dict[str, Any]]:
        """Certified quality, a row for each round: computed on private data, not for release."""
        return []

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be saved, pickled or copied: it is not private, only draws are")


class PrivateSampler(ABC):
    """A mechanism bound to private data and a curator: every draw costs `epsilon` and is charged before it is made.

    What it holds is not private, so it refuses to be saved, pickled or copied, and shows no density.

    Arguments:
        epsilon: cost of one draw in nats, a pure guarantee under the ledger's relation and unit.
        curator: charges, and hands secret randomness to `draw`.
        note: what the draws are called in the ledger.

    Source: Husain et al. 2020 (a sampler is private, its density is not); k draws cost k epsilon.
    """

    def __init__(self, *, epsilon: float, curator: "Curator", note: str) -> None:
        self._event, self._curator, self._note = pure_event(epsilon), curator, note

    @property
    def epsilon(self) -> float:
        """Cost of one draw, in nats."""
        return self._event.epsilon

    @property
    def event(self) -> "DpEvent":
        """Cost of one draw, as the ledger writes it."""
        return self._event

    def sample(self, k: int = 1) -> Tensor:
        """k fresh draws, first dimension k; costs k epsilon.

        Raises:
            ValueError: k below 1.
            BudgetExceeded: the ledger does not allow k draws; none was made.
        """
        return self._curator.release(self._note, self, require_whole("k", k))

    @abstractmethod
    def draw(self, secrets: "Secrets", count: int) -> Tensor:
        """`count` independent draws; the curator calls it once they are charged."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be saved, pickled or copied: the density inside it is not private")

    def state_dict(self) -> NoReturn:
        """Refused: the state is private."""
        self.__reduce__()

    def save(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: only draws may leave."""
        self.__reduce__()

    def __repr__(self) -> str:
        spent = sum(e.count for e in self._curator.ledger.entries() if e.note == self._note)
        return f"{type(self).__name__}(epsilon={self.epsilon:g} a draw, {spent} charged)"


class PublicModel(Release):
    """A released generative model: everything in it has been paid for, so it may be saved, shared and sampled for free.

    Subclasses name their `kind`, list their tensors and a JSON description, and rebuild themselves from both. Files are
    `model.safetensors` and `model.json`; nothing is unpickled on loading.
    """

    kind: ClassVar[str]
    _kinds: ClassVar[dict[str, type["PublicModel"]]] = {}

    def __init_subclass__(cls, *, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:  # None: an abstract family of kinds
            cls.kind = kind
            PublicModel._kinds[kind] = cls

    @abstractmethod
    def sample(self, n: int, *, seed: int | None = None) -> Samples:
        """n synthetic records, free of further privacy cost.

        Arguments:
            n: number of records, at least 0.
            seed: for reproducible draws; None takes one from the operating system.
        """

    def write(self, directory: Path) -> list[str]:
        self.save(directory / "model")
        return ["model/"]

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the model, by name."""

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """Everything but the tensors that `rebuild` needs, as JSON."""

    @classmethod
    @abstractmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> "PublicModel":
        """The inverse of `tensors` and `description`."""

    def save(self, directory: Path) -> None:
        """Write the model and its statement; `model.json` comes last and holds the checksum of all of it."""
        self._files().write(directory, "model")

    @property
    def sha256(self) -> str:
        """The checksum that `model.json` holds, over tensors, description and statement."""
        return str(self._files().card["sha256"])

    def _files(self) -> TensorFiles:
        content = {"description": self.description(), "statement": asdict(self.statement)}
        return TensorFiles.of(self.kind, content, self.tensors())


class DensityModel(PublicModel):
    """A released model of points whose density is known."""

    @abstractmethod
    def log_prob(self, x: Tensor) -> Tensor:
        """Log density (n,) at points (n, d); -inf outside of the support."""


class RecordModel(PublicModel):
    """A released model of binary records: a mixture, perhaps of one component."""

    counts: Tensor
    """Noisy number of records of each component (k,)."""
    noise_multiplier: float = 0.0
    """Of the one Gaussian mechanism that the whole fit is, under add/remove; 0: it is none."""
    image_shape: tuple[int, int] | None = None
    """(height, width), if records are images."""

    @abstractmethod
    def sample(self, n: int, *, seed: int | None = None, clusters: Sequence[int] | None = None) -> RecordSamples:
        """n synthetic records, free of further privacy cost; `clusters`: draw from these components only."""

    @property
    def size(self) -> int:
        """A released (noisy) estimate of how many records the model was trained on, at least 0."""
        return round(float(self.counts.clamp_min(0.0).sum()))

    @property
    def weights(self) -> Tensor:
        """Mixture weights (k,), summing to 1."""
        positive = self.counts.clamp_min(0.0)
        total = positive.sum()
        return positive / total if total > 0 else torch.full_like(positive, 1.0 / len(positive))

    def assign(self, x: Tensor) -> Tensor | None:
        """Component (n,) of each record of x (n, d), where the model says; None where it does not."""
        return None


def read_model(directory: Path) -> PublicModel:
    """A released model from its directory, or from that of its run; of the kinds whose modules have been imported.

    Raises:
        FileNotFoundError: no `model.json` there.
        ValueError: unknown format or kind, or files that do not match their checksum.
    """
    nested = directory / "model"
    directory = nested if nested.is_dir() else directory
    card, tensors = read_tensor_files(directory, "model", kinds=sorted(PublicModel._kinds))
    try:
        statement = PrivacyStatement.from_dict(card["statement"])
        return PublicModel._kinds[card["kind"]].rebuild(card["description"], tensors, statement)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise damaged(directory, "model", error) from error


def sampling_generator(n: int, seed: int | None) -> torch.Generator:
    """Public randomness for n samples: of a seed, or of one that the operating system gives.

    Raises:
        ValueError: n below 0 or above 2^31.
    """
    if n < 0:
        raise ValueError(f"n must be at least 0, got {n}")
    if n > MOST_SAMPLES:
        raise ValueError(f"n must be at most {MOST_SAMPLES}, got {n}")
    return torch.Generator().manual_seed(secrets.randbits(31) if seed is None else seed)


def round_bits(mean: Tensor, rounding: Rounding, generator: torch.Generator) -> Tensor:
    """Mean values in [0, 1] to bits, (n, d) uint8: independent draws, or the nearer of 0 and 1."""
    if rounding == "threshold":
        return (mean > 0.5).to(torch.uint8)
    return (torch.rand(mean.shape, generator=generator) < mean.cpu()).to(torch.uint8)


def draw_components(weights: Tensor, n: int, chosen: Sequence[int] | None, generator: torch.Generator) -> Tensor:
    """Components (n,) drawn by weight, of those in `chosen` if given.

    Raises:
        ValueError: a component that is not there.
    """
    k = len(weights)
    allowed = list(range(k)) if chosen is None else list(chosen)
    if not allowed or not all(0 <= c < k for c in allowed):
        raise ValueError(f"clusters must be a non-empty list of numbers in [0, {k}), got {allowed}")
    masked = torch.zeros(k, dtype=torch.float64)
    masked[allowed] = weights[allowed].double() + 1e-12
    return torch.multinomial(masked, n, replacement=True, generator=generator) if n else torch.zeros(0, dtype=torch.int64)
