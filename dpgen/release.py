"""Releases: public models that may be sampled for free, and private draws that are charged one by one."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpgen.files import DRAWS, MODEL, TensorFiles, damaged, read_tensor_files
from dpgen.privacy.mechanisms import pure_event, require_whole
from dpgen.samples import ImageSamples, RecordSamples, Samples
from dpgen.statement import PrivacyStatement

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpgen.containers import Form
    from dpgen.privacy.curator import Curator
    from dpgen.privacy.mechanisms import Secrets


MOST_SAMPLES = 2**31
"""Samples that are drawn at once at most."""

Rounding = Literal["bernoulli", "threshold"]
RandomState = int | np.random.Generator | np.random.RandomState | None
"""Public randomness of samples, by scikit-learn's rule: fresh, of a seed, or drawn from a generator."""


_NOT_COVERED = "not covered"


class Release(ABC):
    """Result of a fit: all of it has been paid for, and the statement says what it cost."""

    statement: PrivacyStatement
    """Guarantee, assumptions, and what is not covered."""
    form: "Form | None" = None
    """Container, names and types of the data it was fitted to, in which samples come back; None: of no container."""

    @property
    def epsilon(self) -> float:
        """Guarantee of the statement, in nats."""
        return self.statement.epsilon

    @property
    def delta(self) -> float:
        """Delta of the guarantee."""
        return self.statement.delta

    @property
    def size(self) -> int | None:
        """A released (noisy) estimate of how many records there were, at least 0; None: none was released."""
        return None

    def __repr__(self) -> str:
        width = "" if self.form is None else f"{len(self.form.names)} columns, "
        return f"{type(self).__name__}({width}{self.statement.in_words()})"

    def __str__(self) -> str:
        """A short text: the price in odds, what was bought and left out, what is not covered, what may be shared."""
        lines = (f"Not covered: {text}" if name == _NOT_COVERED else text for name, text in self._told())
        return "\n".join([repr(self), *lines])

    def _repr_html_(self) -> str:
        """The text of the release as a table in HTML."""
        left, before, lines = "style='text-align: left; vertical-align: top'", "", list[str]()
        for name, text in [("guarantee", self.statement.in_words()), *self._told()]:
            head = "" if name == before else name
            lines.append(f"<tr><th {left}>{head}</th><td {left}>{escape(text)}</td></tr>")
            before = name
        return f"<table><caption>{escape(type(self).__name__)}</caption>{''.join(lines)}</table>"

    _shared = "What save(DIR) writes, the release and its statement,"

    def _told(self) -> list[tuple[str, str]]:
        """Sentences on the release that people should know, under headings."""
        statement = self.statement
        return [
            ("in odds", statement.odds()),
            *(("about the data", text) for text in statement.told),
            *((_NOT_COVERED, text) for text in statement.not_covered),
            ("may be shared", f"{self._shared} may be shared."),
        ]

    size_std: float | None = None
    """Standard deviation of the noise of `size`, where a fit says so."""

    @abstractmethod
    def sample(self, n: int, random_state: RandomState = None) -> Any:
        """n synthetic rows as the data came: the same container, names, order and types."""

    @abstractmethod
    def files(self) -> dict[str, bytes]:
        """The released files by their names; what is released, `model.safetensors` or `draws.csv`, comes first."""

    def report(self, path: Path | str) -> Path:
        """Write a page about this release for people: `dpgen.report`; returns its path."""
        return resolve_name("dpgen.report:report")(self, path)  # by name: the report knows releases, not the other way round


class Private:
    """An object that holds private data, so that it cannot leave this process."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be saved, pickled or copied: it holds private data; to_pandas() of draws may leave"
        )


class Draws(Private, Release):
    """Private draws: each row was charged when it was drawn; what drew them, `origin`, is for evaluation here only."""

    _shared = "What to_pandas() returns, and the statement,"

    def __init__(self, table: pd.DataFrame, *, statement: PrivacyStatement, origin: Any = None) -> None:
        self._table, self.statement, self.origin = table, statement, origin

    def __repr__(self) -> str:
        return f"Draws({len(self._table)} rows, columns {list(self._table.columns)})"

    def to_pandas(self) -> pd.DataFrame:
        """All draws, one a row."""
        return self._table

    def sample(self, n: int | None = None, random_state: RandomState = None) -> Any:
        """The draws that were paid for, or the first n of them, in the form of the data; nothing is drawn."""
        paid = len(self._table)
        if n is not None and not 0 <= n <= paid:
            raise ValueError(f"n is {n}; it must be in [0, {paid}], the draws that were paid for: more of them cost more")
        table = self._table.iloc[:n].reset_index(drop=True)
        return table if self.form is None else self.form.restore(table)

    def files(self) -> dict[str, bytes]:
        return {DRAWS: self._table.to_csv(index=False).encode()}


class PrivateDensity(Private, ABC):
    """Density behind private draws, relative to a public reference: private, for evaluation on this machine only."""

    reference: Any
    """Public distribution Q0 on R^d with `log_prob(x)` and `sample(n, generator=)`."""
    box: Any = None
    """Public bounds `low` and `high` of the density ratio Q/Q0, where there are some."""
    per_axis: int | None = None
    """Cells on each axis of a public lattice in which the density is constant, where it then integrates to 1."""

    @abstractmethod
    def log_ratio(self, x: Tensor) -> Tensor:
        """log dQ/dQ0 (n,) at points (n, d)."""


class PrivateSampler(Private, ABC):
    """A mechanism bound to private data and a curator: every draw costs `epsilon` nats and is charged before it is made.

    The guarantee of a draw is pure. What the sampler holds is private, so it refuses to be saved, pickled or copied, and
    shows no density. `note` is what the draws are called in the ledger.

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

    def __repr__(self) -> str:
        spent = sum(e.count for e in self._curator.ledger.entries() if e.note == self._note)
        return f"{type(self).__name__}(epsilon={self.epsilon:g} a draw, {spent} charged)"


class PublicModel(Release):
    """A released generative model: everything in it has been paid for, so it may be saved, shared and sampled for free.

    Subclasses name their `kind`, list their tensors and a JSON description, and rebuild themselves from both. Files are
    `model.safetensors` and `model.json`; nothing is unpickled on loading.
    """

    kind: ClassVar[str]
    kinds: ClassVar[dict[str, type["PublicModel"]]] = {}

    def __init_subclass__(cls, *, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:  # None: an abstract family of kinds
            cls.kind = kind
            PublicModel.kinds[kind] = cls

    def sample(self, n: int, random_state: RandomState = None, **options: Any) -> Any:
        """n synthetic records as the data came, free of further privacy cost; `samples` where they came in no container."""
        samples = self.samples(int(n) if isinstance(n, np.integer) else n, random_state=random_state, **options)
        return samples if self.form is None else samples.in_form(self.form)

    @abstractmethod
    def samples(self, n: int, *, random_state: RandomState = None) -> Samples:
        """n synthetic records with all that the model knows of them, free of further privacy cost."""

    def files(self) -> dict[str, bytes]:
        return {f"{MODEL}/{name}": data for name, data in self._files().files(MODEL).items()}

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

    def save(self, directory: Path | str) -> None:
        """Write the model and its statement; `model.json` comes last and holds the checksum of all of it."""
        self._files().write(Path(directory), "model")

    @property
    def sha256(self) -> str:
        """The checksum that `model.json` holds, over tensors, description and statement."""
        return str(self._files().card["sha256"])

    def _files(self) -> TensorFiles:
        if not self.statement.epsilon < float("inf"):
            raise ValueError(f"epsilon of the statement is {self.statement.epsilon}: nothing is protected, so nothing released")
        form = {} if self.form is None else {"form": self.form.to_dict()}
        statement = replace(self.statement, files={}).to_dict()  # which would have to hold the checksum of this
        content = {"description": self.description(), "statement": statement, **form}
        return TensorFiles.of(self.kind, content, self.tensors())


class DensityModel(PublicModel):
    """A released model of points whose density is known."""

    @abstractmethod
    def log_prob(self, x: Tensor) -> Tensor:
        """Log density (n,) at points (n, d); -inf outside of the support."""


class _CountedModel(PublicModel):
    """A released model of components or classes whose noisy sizes are known."""

    counts: Tensor
    """Noisy number of records of each component, or of images of each class, (k,)."""
    passes: int = 1
    """Passes through the model that a sample of it takes."""

    @property
    def size(self) -> int:
        """A released (noisy) estimate of how many records the model was trained on, at least 0."""
        return round(float(self.counts.clamp_min(0.0).sum()))

    @property
    def weights(self) -> Tensor:
        """Shares (k,) of the components, summing to 1; equal ones where there are no records."""
        positive = self.counts.clamp_min(0.0)
        total = positive.sum()
        return positive / total if total > 0 else torch.full_like(positive, 1.0 / len(positive))


@dataclass(frozen=True)
class RecordLayout:
    """Public form of binary records: labels in [0, n_classes), 0 without; (height, width) of images; names of the columns.

    `grey_threshold` is of grey values that are seen in place of bits, which are 1 above it.
    """

    n_classes: int = 0
    image_shape: tuple[int, int] | None = None
    columns: Sequence[str] | None = None
    grey_threshold: int | None = None

    @classmethod
    def taken(cls, options: dict[str, Any]) -> Self:
        """The layout that a description has, taken out of it."""
        found = ((f.name, options.pop(f.name, None)) for f in fields(cls))
        told: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in found if value is not None
        }
        return cls(**told)


class RecordModel(_CountedModel):
    """A released model of binary records: a mixture, perhaps of one component."""

    image_shape: tuple[int, int] | None = None
    """(height, width), if records are images."""

    @abstractmethod
    def samples(self, n: int, *, random_state: RandomState = None, clusters: Sequence[int] | None = None) -> RecordSamples:
        """n synthetic records, free of further privacy cost; `clusters`: draw from these components only."""

    def assign(self, x: Tensor) -> Tensor | None:
        """Component (n,) of each record of x (n, d), where the model says; None where it does not."""
        return None


class ImageModel(_CountedModel):
    """A released model of images, with a class for each of them."""

    class_names: tuple[str, ...]
    """Public names of the k classes."""
    image_shape: tuple[int, int, int]
    """(height, width, channels)."""

    @abstractmethod
    def samples(self, n: int, *, random_state: RandomState = None, clusters: Sequence[int] | None = None) -> ImageSamples:
        """n synthetic images, free of further privacy cost; `clusters`: of these classes only."""


def read_model(directory: Path) -> PublicModel:
    """A released model from its directory, or from that of its run; of the kinds whose modules have been imported."""
    from dpgen.containers import Form  # here, because a fit writes no form of its own

    nested = directory / "model"
    directory = nested if nested.is_dir() else directory
    card, tensors = read_tensor_files(directory, "model", kinds=sorted(PublicModel.kinds))
    try:
        statement = PrivacyStatement.from_dict(card["statement"])
        model = PublicModel.kinds[card["kind"]].rebuild(card["description"], tensors, statement)
        model.form = Form.from_dict(card["form"]) if "form" in card else None
        return model
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise damaged(directory, "model", error) from error


def sampling_seed(n: int, random_state: RandomState) -> int:
    """Seed of public randomness for n samples, in [0, 2^31]; without a `random_state`, the operating system gives one."""
    require_whole("n", n, 0, MOST_SAMPLES)
    if random_state is None:
        return secrets.randbits(31)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer) or not 0 <= random_state < 2**63:
        raise ValueError(f"random_state is {random_state!r}; it must be None, an integer in [0, 2^63) or a NumPy generator")
    return int(random_state)


def sampling_generator(n: int, random_state: RandomState) -> torch.Generator:
    """Public randomness of PyTorch for n samples; arguments and errors as in `sampling_seed`."""
    return torch.Generator().manual_seed(sampling_seed(n, random_state))


def round_bits(mean: Tensor, rounding: Rounding, generator: torch.Generator) -> Tensor:
    """Mean values in [0, 1] to bits, (n, d) uint8: independent draws, or the nearer of 0 and 1."""
    if rounding == "threshold":
        return (mean > 0.5).to(torch.uint8)
    return (torch.rand(mean.shape, generator=generator) < mean.cpu()).to(torch.uint8)


def draw_components(weights: Tensor, n: int, chosen: Sequence[int] | None, generator: torch.Generator) -> Tensor:
    """Components (n,) drawn by weight, of those in `chosen` if given."""
    k = len(weights)
    allowed = list(range(k)) if chosen is None else list(chosen)
    if not allowed or not all(0 <= c < k for c in allowed):
        raise ValueError(f"clusters must be a non-empty list of numbers in [0, {k}), got {allowed}")
    masked = torch.zeros(k, dtype=torch.float64)
    masked[allowed] = weights[allowed].double() + 1e-12
    return torch.multinomial(masked, n, replacement=True, generator=generator) if n else torch.zeros(0, dtype=torch.int64)
