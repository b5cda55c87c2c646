"""Files that are whole or absent, and tensors with a JSON card and a checksum; nothing is unpickled on reading."""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, NamedTuple

from safetensors import SafetensorError

if TYPE_CHECKING:
    from torch import Tensor

_MARK = "dpgen-"
_LEFTOVER = re.compile(rf"\..+\.{_MARK}[a-z0-9_]{{8}}")


def remove_leftovers(directory: Path) -> None:
    """Remove what a killed process was about to write into a directory and below."""
    for path in list(directory.rglob(".*")):
        if not _LEFTOVER.fullmatch(path.name):
            continue
        if path.is_dir():
            rmtree(path)
        else:
            path.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write `data` to a temporary file beside `path`, flush it to the disk, and rename it over `path`."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: the directory {path.parent} does not exist")
    with _beside(path, data.encode() if isinstance(data, str) else data) as name:
        os.chmod(name, 0o644)
        os.replace(name, path)


@contextmanager
def _beside(path: Path, data: bytes) -> Iterator[str]:
    """A temporary file of mode 0600 that holds the data, on the disk, until it is moved."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.{_MARK}")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield name
    finally:
        Path(name).unlink(missing_ok=True)


def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files by their names relative to a directory, one after the other, each whole or absent."""
    for name, data in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(directory / name, data)


def create_private(path: Path, data: bytes) -> None:
    """Create a file that its owner alone may read, whole and on the disk; nothing happens if it is there already.

    The name appears by a hard link, which fails where the name exists: of several writers the first one wins.
    """
    with _beside(path, data) as name, suppress(FileExistsError):
        os.link(name, path)


STATEMENT, DRAWS, MODEL, MECHANISM, METRICS = "privacy.json", "draws.csv", "model", "mechanism", "metrics.json"
IN_WORDS, SIGNATURE = "PRIVACY.md", ".sig"
OVERLAYS = "columns"
"""Pictures of the columns of a table in a run, real and synthetic, in the order of a table of this name."""
RELEASED = (MODEL, MECHANISM, DRAWS, STATEMENT, IN_WORDS, "samples.npz", "samples.csv", "quantiles.csv", "synthetic")
"""Names in a run directory that may be shared; a report treats everything else as not for publication."""


KEPT = (
    "config.yaml", "versions.yaml", "ledger.jsonl", "split.key", "last.ckpt", METRICS, "METRICS.md", "report.html",
    "tensorboard/*", f"{OVERLAYS}.csv", f"{OVERLAYS}/*.png", "samplers.csv", "samplers.png", "samples.png", "cdf.png",
    "*density.png", "associations.png", "*rows_per_person.png", "*transitions.png", "*associations_across.png",
    "*over_time.png", "*gaps.png", "*first_rows.png",
)  # fmt: skip
"""Names of what else a run leaves in its directory, for the holder of the data alone."""


def others(directory: Path, released: Container[str], *, kept: bool) -> list[str]:
    """Files of a directory that are neither released nor signatures, nor, where that is `kept`, what a run leaves beside."""
    found = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir())
    more = [name for name in found if name not in released and not name.endswith(SIGNATURE)]
    return [name for name in more if not (kept and any(fnmatchcase(name, pattern) for pattern in KEPT))]


def is_released(directory: Path) -> bool:
    """Whether a run has released what it paid for: the statement, and after it a model or draws."""
    return (directory / STATEMENT).is_file() and any((directory / n).is_file() for n in (f"{MODEL}/model.json", DRAWS))


def released_files(directory: Path) -> list[str]:
    """Names of the released files of a run, relative to its directory; without statement and signatures."""
    found = [part for name in RELEASED for part in (directory / name, *(directory / name).rglob("*"))]
    names = [str(part.relative_to(directory)) for part in found if part.is_file() and not part.name.startswith(".")]
    return [name for name in names if name != STATEMENT and not name.endswith(SIGNATURE)]


def is_finished(directory: Path, evaluation: str = "quick") -> bool:
    """Whether nothing is left to do in a run: it is released and, where that is wanted, evaluated."""
    return is_released(directory) and (evaluation == "none" or (directory / METRICS).is_file())


FORMAT = 2


class TensorFiles(NamedTuple):
    """Contents of `NAME.json` and `NAME.safetensors`: the card, checksum included, and the bytes of the tensors."""

    card: dict[str, Any]
    payload: bytes

    @classmethod
    def of(cls, kind: str, content: Mapping[str, Any], tensors: "Mapping[str, Tensor]") -> "TensorFiles":
        """Format, kind and content (JSON), and tensors by name."""
        from safetensors.torch import save  # here and below: naming files needs no torch

        payload = save({name: value.detach().cpu().contiguous() for name, value in tensors.items()})
        card: dict[str, Any] = {"format": FORMAT, "kind": kind, **content}
        return cls(card | {"sha256": _checksum(card, payload)}, payload)

    def files(self, name: str) -> dict[str, bytes]:
        """Both files by their names; the card comes last."""
        return {f"{name}.safetensors": self.payload, f"{name}.json": json.dumps(self.card, indent=2).encode()}

    def write(self, directory: Path, name: str) -> None:
        """Write both; the card comes last."""
        write_files(directory, self.files(name))


def read_tensor_files(directory: Path, name: str, *, kinds: Container[str]) -> "tuple[dict[str, Any], dict[str, Tensor]]":
    """The card and the tensors that `TensorFiles.write` left."""
    from safetensors.torch import load

    path = directory / f"{name}.json"
    if not path.is_file():
        raise FileNotFoundError(f"{directory} holds no {name} ({path.name} is missing)")
    try:
        card = json.loads(path.read_bytes())
        payload = (directory / f"{name}.safetensors").read_bytes()
        kind, version, digest = card["kind"], card["format"], card.pop("sha256")
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise damaged(directory, name, error) from error
    if version != FORMAT or kind not in kinds:
        raise ValueError(f"{path} has format {version!r} and kind {kind!r}; it must be {FORMAT} and one of {kinds}")
    if _checksum(card, payload) != digest:
        raise ValueError(f"{directory} does not match the checksum in {path.name}: it was cut or edited")
    try:
        return card, load(payload)
    except (SafetensorError, ValueError) as error:
        raise damaged(directory, name, error) from error


def under(prefix: str, tensors: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """The tensors called `prefix.NAME`, by NAME."""
    start = f"{prefix}."
    return {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}


def damaged(directory: Path, name: str, error: Exception) -> ValueError:
    """The error of files that cannot be what was written."""
    return ValueError(f"{directory} holds a damaged {name}: {error!r}")


def _checksum(card: dict[str, Any], payload: bytes) -> str:
    """SHA-256 of tensors and card: detects accidents and careless edits; it is no signature."""
    return hashlib.sha256(json.dumps(card, sort_keys=True).encode() + payload).hexdigest()
