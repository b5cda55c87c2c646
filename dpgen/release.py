"""What leaves the private side: public models, synthetic records, and the statement of what they cost."""

import hashlib
import io
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from dpgen.files import write_atomically
from dpgen.privacy.ledger import Ledger

FORMAT = 1
Rounding = Literal["bernoulli", "threshold"]


def rounded_up(epsilon: float) -> str:
    """Four digits of an epsilon, never fewer than it is.

    >>> rounded_up(2.99961), rounded_up(1.00001)
    ('3', '1.001')
    """
    return f"{float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(float(epsilon)))):g}"


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement:
    """What a release guarantees, for whom, under which assumptions, and what it does not cover."""

    epsilon: float
    delta: float
    relation: str
    unit: str
    accountant: str
    also: dict[str, float] = field(default_factory=dict)
    mechanisms: tuple[dict[str, Any], ...] = ()
    assumptions: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()

    @classmethod
    def from_ledger(
        cls,
        ledger: Ledger,
        *,
        also: dict[str, float] | None = None,
        assumptions: Sequence[str] = (),
        not_covered: Sequence[str] = (),
    ) -> "PrivacyStatement":
        """The statement of everything that the ledger has charged; replace-one and RDP values stand beside the headline."""
        other = {
            "replace_one": ledger.epsilon(relation="replace_one"),
            "rdp": ledger.epsilon_rdp(),
        }
        times = Counter[tuple[str, str, str | None]]()
        for e in ledger.entries():
            times[e.note, str(e.event), e.group] += e.count
        mechanisms = tuple(
            {"note": note, "event": event, "count": count, "group": group} for (note, event, group), count in times.items()
        )
        return cls(
            epsilon=ledger.epsilon(),
            delta=ledger.delta,
            relation=ledger.relation,
            unit=ledger.unit,
            accountant="tightest valid of PLD, Renyi and closed forms",
            also=other | (also or {}),
            mechanisms=mechanisms,
            assumptions=tuple(assumptions),
            not_covered=tuple(not_covered),
        )

    def extended(self, notes: Sequence[str], *, private_logs: bool = False) -> "PrivacyStatement":
        """The statement with facts about the data and the run that it must repeat."""
        logs = ("losses on private records were logged (private_logs): the logs are not covered",) if private_logs else ()
        return replace(self, not_covered=(*self.not_covered, *notes, *logs))

    def headline(self) -> dict[str, Any]:
        """What a summary shows: the guarantee and the other readings of it."""
        return {name: getattr(self, name) for name in ("epsilon", "delta", "relation", "unit")} | self.also

    def to_json(self) -> str:
        """The statement for programs."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "PrivacyStatement":
        sequences = ("mechanisms", "assumptions", "not_covered")
        fields: dict[str, Any] = {n: tuple(value) if n in sequences else value for n, value in values.items()}
        return cls(**fields)

    def to_markdown(self) -> str:
        """The statement for people."""
        lines = [
            "# Privacy statement",
            "",
            f"This release is **(eps = {rounded_up(self.epsilon)}, delta = {self.delta:.3g})-differentially private** "
            f"under the {self.relation.replace('_', '-')} relation; the protected unit is {self.unit}.",
            f"Accountant: {self.accountant}.",
            "",
            "| other readings of the same run | eps |",
            "|---|---|",
            *(f"| {name.replace('_', '-')} | {rounded_up(value)} |" for name, value in self.also.items()),
            "",
            "| mechanism | event | times | disjoint group |",
            "|---|---|---|---|",
            *(f"| {m['note']} | `{m['event']}` | {m['count']} | {m['group'] or ''} |" for m in self.mechanisms),
            "",
            "## Assumptions",
            *(f"- {text}" for text in self.assumptions),
            "",
            "## Not covered",
            *(f"- {text}" for text in self.not_covered),
            "",
        ]
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Synthetic records: x (n, d) uint8, the cluster (n,) that each came from, labels (n,) if the model has them."""

    x: Tensor
    cluster: Tensor
    labels: Tensor | None = None
    columns: tuple[str, ...] | None = None

    def by_cluster(self) -> dict[str, Tensor]:
        """The records of each cluster that has any."""
        return {f"cluster {c}": self.x[self.cluster == c] for c in self.cluster.unique().tolist()}

    def save(self, path: Path) -> None:
        """Write .npz, .csv or .parquet, by the name's ending."""
        writers = {".npz": self._npz, ".csv": self._csv, ".parquet": self._parquet}
        if path.suffix not in writers:
            raise ValueError(f"path must end in one of {', '.join(writers)}, got {path.name!r}")
        write_atomically(path, writers[path.suffix]())

    def _table(self) -> pd.DataFrame:
        columns = self.columns or tuple(f"x{i}" for i in range(self.x.shape[1]))
        table = pd.DataFrame(self.x.numpy(), columns=list(columns))
        extra = {"cluster": self.cluster} | ({"label": self.labels} if self.labels is not None else {})
        for name, value in extra.items():
            table[f"{name}_" if name in columns else name] = value.numpy()  # a data column keeps its name
        return table

    def _csv(self) -> bytes:
        return self._table().to_csv(index=False).encode()

    def _parquet(self) -> bytes:
        return self._table().to_parquet(index=False)

    def _npz(self) -> bytes:
        arrays = {"x": self.x.numpy(), "cluster": self.cluster.numpy()}
        if self.labels is not None:
            arrays["labels"] = self.labels.numpy()
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        return buffer.getvalue()


class PublicModel(ABC):
    """A released generative model: everything in it has been paid for, so it may be saved, shared and sampled for free.

    Subclasses name their `kind`, list their tensors and a JSON description, and rebuild themselves from both. Files are
    `model.safetensors` and `model.json`; nothing is unpickled on loading.
    """

    kind: ClassVar[str]
    _kinds: ClassVar[dict[str, type["PublicModel"]]] = {}
    statement: PrivacyStatement

    def __init_subclass__(cls, *, kind: str, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.kind = kind
        PublicModel._kinds[kind] = cls

    @abstractmethod
    def sample(self, n: int, *, seed: int | None = None, clusters: Sequence[int] | None = None) -> Samples:
        """n synthetic records, free of further privacy cost.

        Arguments:
            n: number of records, at least 0.
            seed: for reproducible draws; None takes one from the operating system.
            clusters: draw from these components only.
        """

    @property
    @abstractmethod
    def size(self) -> int:
        """A released (noisy) estimate of how many records the model was trained on, at least 0."""

    def assign(self, x: Tensor) -> Tensor | None:
        """Component (n,) of each record of x (n, d), where the model says; None where it does not."""
        return None

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the model, by name."""

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """What else `rebuild` needs, as JSON."""

    @classmethod
    @abstractmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> "PublicModel":
        """The inverse of `tensors` and `description`."""

    def save(self, directory: Path) -> None:
        """Write the model and its statement; `model.json` comes last and holds the checksum of all of it."""
        directory.mkdir(parents=True, exist_ok=True)
        payload = save_tensors({name: value.cpu().contiguous() for name, value in self.tensors().items()})
        card: dict[str, Any] = {
            "format": FORMAT,
            "kind": self.kind,
            "description": self.description(),
            "statement": asdict(self.statement),
        }
        card["sha256"] = _checksum(card, payload)
        write_atomically(directory / "model.safetensors", payload)
        write_atomically(directory / "model.json", json.dumps(card, indent=2))


def load_model(directory: Path) -> PublicModel:
    """Load a released model from its directory.

    Raises:
        FileNotFoundError: no `model.json` there.
        ValueError: unknown format or kind, or files that do not match their checksum.
    """
    card_path = directory / "model.json"
    if not card_path.is_file():
        raise FileNotFoundError(f"{directory} holds no released model (model.json is missing)")
    try:
        card = json.loads(card_path.read_text())
        payload = (directory / "model.safetensors").read_bytes()
        kind, version, digest = card["kind"], card["format"], card.pop("sha256")
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise ValueError(f"{directory} holds a damaged model: {error!r}") from error
    if version != FORMAT or kind not in list(PublicModel._kinds):
        raise ValueError(
            f"{card_path} has format {version!r} and kind {kind!r}; this version reads format {FORMAT} and the kinds "
            f"{sorted(PublicModel._kinds)}"
        )
    if _checksum(card, payload) != digest:
        raise ValueError(f"{directory} does not match the checksum in model.json: the model or its statement was cut or edited")
    try:
        statement = PrivacyStatement.from_dict(card["statement"])
        return PublicModel._kinds[kind].rebuild(card["description"], load_tensors(payload), statement)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, SafetensorError) as error:
        raise ValueError(f"{directory} holds a damaged model: {error!r}") from error


def _checksum(card: dict[str, Any], payload: bytes) -> str:
    """SHA-256 of tensors and card: detects accidents and careless edits; it is no signature."""
    return hashlib.sha256(json.dumps(card, sort_keys=True).encode() + payload).hexdigest()


def round_bits(mean: Tensor, rounding: Rounding, generator: torch.Generator) -> Tensor:
    """Mean values in [0, 1] to bits, (n, d) uint8: independent draws, or the nearer of 0 and 1."""
    if rounding == "threshold":
        return (mean > 0.5).to(torch.uint8)
    return (torch.rand(mean.shape, generator=generator) < mean.cpu()).to(torch.uint8)
