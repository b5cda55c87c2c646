"""The file under a ledger: append-only lines of JSON, each chained to the one before, one write per append, one writer.

A line is `{..., "chain": c}` with `c` the first 128 bits of sha256(previous chain value + line without its chain).
The chain detects accidents and careless edits; it is no signature, since who can write the file can rewrite all of
it.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dp_accounting import DpEvent

_MARK = b',"chain":"'
_CHAIN = 32  # hexadecimal digits


class LedgerError(RuntimeError):
    """A ledger file that is cut, edited, locked by another writer, or does not match a checkpoint."""


class LedgerFile:
    """Chained lines, on disk or (`path` None) in memory only.

    Forked children, pickles and copies are refused: two writers would break the chain.

    Arguments:
        path: the file.
        wait: seconds to wait for another process that has it locked.
    """

    def __init__(self, path: Path | None, *, wait: float = 0.0) -> None:
        self.path, self.wait = path, wait
        self._heads = bytearray()
        self._head = ""
        self._size = 0
        self._pid = os.getpid()
        self._fd = -1
        self._closed = False
        self.torn = 0  # bytes of a last line that was cut
        self.cut = b""  # and what is left of it

    @property
    def lines(self) -> int:
        """Lines so far."""
        return 2 * len(self._heads) // _CHAIN

    @property
    def head(self) -> str:
        """Chain value of the last line, empty before the first."""
        return self._head

    @property
    def first(self) -> str:
        """Chain value of the first line."""
        return self._heads[: _CHAIN // 2].hex()

    def position(self) -> dict[str, Any]:
        """Position in the file: `{"lines": int, "head": hexadecimal}`."""
        return {"lines": self.lines, "head": self.head}

    def require_extends(self, position: dict[str, Any]) -> int:
        """Number of lines at an earlier `position`.

        Raises:
            LedgerError: the file does not extend it: cut at a line's end, replaced, or of another run.
        """
        try:
            lines, head = int(position["lines"]), str(position["head"])
        except (KeyError, TypeError, ValueError):
            raise LedgerError(f"position is {position!r}; it must hold lines and head") from None
        where, width = self.path or "ledger", _CHAIN // 2
        if lines > self.lines:
            raise LedgerError(f"{where}: has {self.lines} lines, the checkpoint saw {lines}: the ledger was cut")
        if lines < 1 or self._heads[(lines - 1) * width : lines * width].hex() != head:
            raise LedgerError(f"{where}: differs from what the checkpoint saw at line {lines}: edited or another run")
        return lines

    def create(self) -> None:
        """Make the file (or take over an empty one, left by a crash at birth) and lock it.

        Raises:
            LedgerError: the file exists and holds something, is locked, or cannot be made.
        """
        if self.path is None:
            return
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise LedgerError(f"{self.path}: cannot create the ledger: {error.strerror}") from None
        self._lock()
        if os.fstat(self._fd).st_size:
            self.close()
            raise LedgerError(f"{self.path}: a ledger is already there; use Ledger.open to resume it, or another path")

    def read(self, *, torn: bool = False) -> Iterator[dict[str, Any]]:
        """Lock an existing file and yield its verified lines.

        Arguments:
            torn: let a last line that was cut pass, after a whole one; then it must be mended before anything is appended.

        Raises:
            LedgerError: missing, empty, locked, cut inside a line, or edited; the line is named.
        """
        try:
            self._fd = os.open(str(self.path), os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise LedgerError(f"{self.path}: cannot open the ledger: {error.strerror}") from None
        self._lock()
        try:
            yield from self._verified(torn)
        except BaseException:
            self.close()
            raise

    def _verified(self, torn: bool) -> Iterator[dict[str, Any]]:
        with open(self._fd, "rb", closefd=False) as file:
            for number, raw in enumerate(file, start=1):
                if not raw.endswith(b"\n"):
                    self.torn, self.cut = len(raw), raw
                    if torn and self.lines:
                        return
                    raise LedgerError(f"{self.path}: cut in the middle of line {number}; the ledger is not trusted")
                body, mark, chain = raw.rpartition(_MARK)
                body += b"}"
                expected = sha256(self._head.encode() + body).hexdigest()[:_CHAIN]
                if not mark or chain != expected.encode() + b'"}\n':
                    raise LedgerError(
                        f"{self.path}: line {number} does not match its checksum: edited, or lines above are missing"
                    )
                self._advance(expected, len(raw))
                yield json.loads(body)
        if not self.lines:
            raise LedgerError(f"{self.path}: the ledger is empty; nothing was ever charged, remove it and start again")

    def mend(self, **said: Any) -> dict[str, Any]:
        """Write a line that says so over the one that was cut, in one write: the file never ends whole without it.

        Arguments:
            said: what else the line says.
        """
        body = {"recovered": self.torn, **said, "room": " " * self.torn}  # room: the line covers all bytes of the other
        line, chain = _line(self._head, json.dumps(body))
        fd = os.open(str(self.path), os.O_WRONLY | os.O_CLOEXEC)  # the one that appends would write behind the cut line
        try:
            if os.pwrite(fd, line, self._size) != len(line):
                raise LedgerError(f"{self.path}: the line that was cut could not be replaced; nothing may be charged")
            os.fsync(fd)
        finally:
            os.close(fd)
        self._advance(chain, len(line))
        self.torn = 0
        return body

    def _lock(self) -> None:
        until = time.monotonic() + self.wait
        while True:
            try:
                return fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if time.monotonic() >= until:
                    break
                time.sleep(0.01)
        os.close(self._fd)
        self._fd, self._closed = -1, True
        raise LedgerError(f"{self.path}: another process is writing this ledger; wait for it or stop it")

    def _advance(self, chain: str, size: int) -> None:
        self._head = chain
        self._heads += bytes.fromhex(chain)
        self._size += size

    def append(self, bodies: Sequence[str]) -> None:
        """Append compact JSON objects, all in one write; either all are there afterwards or none.

        Raises:
            LedgerError: closed, a forked child, the file was changed by somebody else, or the write failed.
        """
        if self._closed:
            raise LedgerError(f"{self.path or 'ledger'}: closed; open it again before charging")
        if os.getpid() != self._pid:
            raise LedgerError(f"{self.path or 'ledger'}: charged in a forked process; only its opener may charge")
        chain, text, chains = self._head, b"", []
        for body in bodies:
            line, chain = _line(chain, body)
            text += line
            chains.append((chain, len(line)))
        if self._fd >= 0:
            self._write(text)
        for entry in chains:
            self._advance(*entry)

    def _write(self, text: bytes) -> None:
        status = os.fstat(self._fd)
        if status.st_size != self._size or status.st_nlink == 0:
            raise LedgerError(f"{self.path}: somebody else changed or removed the ledger while it was open")
        try:
            written = os.write(self._fd, text)
            reason = f"only {written} of {len(text)} bytes fit"
        except OSError as error:
            written, reason = 0, error.strerror or str(error)
        if written == len(text):
            return
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self.close()
        raise LedgerError(f"{self.path}: could not record the charge ({reason}); the mechanism must not run")

    def sync(self) -> None:
        """Wait until the lines are on the disk."""
        if self._fd >= 0:
            os.fsync(self._fd)

    def close(self) -> None:
        """Sync and give up the lock; twice is fine."""
        if self._fd >= 0:
            try:
                os.fsync(self._fd)
            finally:
                os.close(self._fd)
                self._fd = -1
        self._closed = True

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ledger cannot be pickled or copied: two copies would forget each other's charges")


def compact(line: dict[str, Any]) -> str:
    """A line as compact JSON; numbers must be finite."""
    return json.dumps(line, separators=(",", ":"), allow_nan=False)


def _line(head: str, body: str) -> tuple[bytes, str]:
    """A line of the file after the chain value `head`, and its own."""
    raw = body.encode()
    chain = sha256(head.encode() + raw).hexdigest()[:_CHAIN]
    return raw[:-1] + _MARK + chain.encode() + b'"}\n', chain


def encode_event(event: DpEvent) -> list[Any]:
    """`[class name, {field: value}]`, events inside encoded likewise; numbers must be finite.

    >>> from dp_accounting import GaussianDpEvent
    >>> encode_event(GaussianDpEvent(2.0))
    ['GaussianDpEvent', {'noise_multiplier': 2.0}]
    """
    import attr

    fields = {f.name: _encode_value(getattr(event, f.name)) for f in attr.fields(type(event))}
    if fields.get("shape") == math.inf:  # a Poisson number of runs; JSON has no number for it
        fields["shape"] = "inf"
    return [type(event).__name__, fields]


def _encode_value(value: Any) -> Any:
    import numpy as np
    from dp_accounting import DpEvent

    if isinstance(value, DpEvent):
        return encode_event(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_encode_value(v) for v in value]
    return value


def decode_event(code: Any) -> DpEvent:
    """Inverse of `encode_event`.

    Raises:
        LedgerError: an event that this version does not know.

    >>> decode_event(['GaussianDpEvent', {'noise_multiplier': 2.0}])
    GaussianDpEvent(noise_multiplier=2.0)
    """
    from dp_accounting import DpEvent, dp_event

    from dpgen.privacy.events import ApproximateDpEvent, OneOfDpEvent

    own = {kind.__name__: kind for kind in (ApproximateDpEvent, OneOfDpEvent)}
    try:
        name, fields = code
        kind = own.get(name) or getattr(dp_event, name)
        if not issubclass(kind, DpEvent):
            raise TypeError(name)
        return kind(**{key: _decode_value(value) for key, value in fields.items()})
    except (TypeError, ValueError, AttributeError) as error:
        raise LedgerError(f"the ledger declares an unknown event {code!r}: {error}") from None


def _decode_value(value: Any) -> Any:
    if isinstance(value, list):
        if len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict):
            return decode_event(value)
        return [_decode_value(v) for v in value]
    return math.inf if value == "inf" else value
