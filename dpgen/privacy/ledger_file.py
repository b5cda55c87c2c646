"""The file under a ledger or a shared budget: one JSON document with a checksum, replaced as a whole, one writer at a time.

The checksum detects accidents and careless edits; it is no signature, since who can write the file can rewrite all of it.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tempfile
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn


class LedgerError(RuntimeError):
    """A ledger file that is damaged, edited, locked by another writer, or does not match a checkpoint."""


class LedgerFile:
    """A locked document on disk, or (`path` None) nothing; waits so many seconds for another process that has it locked.

    Who only looks whether it is locked (`is_locked`) has it for a moment.

    Every method raises `LedgerError`; forked children, pickles and copies are refused.
    """

    def __init__(self, path: Path | None, *, wait: float = 0.05) -> None:
        self.path, self.wait = path, wait
        self._pid = os.getpid()
        self._fd = -1
        self._closed = False

    def create(self) -> None:
        """Make the file, or take over an empty one, left by a crash at birth, and lock it; refuse one that holds something."""
        if self.path is None:
            return
        self._open(os.O_RDWR | os.O_CREAT, "create")
        if os.fstat(self._fd).st_size:
            self.close()
            raise LedgerError(f"{self.path}: a ledger is already there; use Ledger.open to resume it, or another path")

    def read(self) -> dict[str, Any]:
        """Lock an existing file; its document. Refuse one that is empty, locked, damaged or of dpgen 0.4."""
        self._open(os.O_RDWR, "open")
        try:
            with open(self._fd, "rb", closefd=False) as file:
                return self._verified(file.read())
        except BaseException:
            self.close()
            raise

    def _verified(self, raw: bytes) -> dict[str, Any]:
        if not raw:
            raise LedgerError(f"{self.path}: the ledger is empty; nothing was ever charged, remove it and start again")
        if b'"chain":"' in raw.partition(b"\n")[0]:
            raise LedgerError(f"{self.path}: a file of dpgen 0.4 or older; finish its runs with that version")
        try:
            document = json.loads(raw)
            stated = document.pop("sha256")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LedgerError(f"{self.path}: is damaged: {error!r}") from None
        if stated != checksum(document):
            raise LedgerError(f"{self.path}: does not match its checksum: cut or edited")
        return dict(document)

    def write(self, document: dict[str, Any]) -> None:
        """Replace the document; the new one is on the disk before this returns, or the old one stays."""
        self.require_open()
        if self.path is None:
            return
        if not self._current():
            raise LedgerError(f"{self.path}: somebody else changed or removed the ledger while it was open")
        raw = json.dumps(document | {"sha256": checksum(document)}, separators=(",", ":"), allow_nan=False).encode()
        fresh, name = -1, ""
        try:
            fresh, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.dpgen-")
            with open(fresh, "wb", closefd=False) as file:
                file.write(raw)
            was = os.fstat(self._fd)
            os.fchmod(fresh, stat.S_IMODE(was.st_mode))
            with suppress(OSError):  # of several people's file; who is not in its group cannot
                os.fchown(fresh, -1, was.st_gid)
            fcntl.flock(fresh, fcntl.LOCK_EX)  # before it has the name: nobody gets between
            os.fsync(fresh)
            os.replace(name, self.path)
        except BaseException as error:
            if fresh >= 0:
                os.close(fresh)
                Path(name).unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise LedgerError(f"{self.path}: could not be written ({error.strerror})") from None
            raise
        os.close(self._fd)
        self._fd = fresh
        _sync_directory(self.path.parent)

    def require_open(self) -> None:
        """Refuse charges to a closed ledger, and those of a forked child."""
        if self._closed:
            raise LedgerError(f"{self.path or 'ledger'}: closed; open it again before charging")
        if os.getpid() != self._pid:
            raise LedgerError(f"{self.path or 'ledger'}: charged in a forked process; only its opener may charge")

    def _current(self) -> bool:
        """Whether the locked file is the one that has the name."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(str(self.path)))
        except OSError:
            return False

    def _open(self, flags: int, what: str) -> None:
        until = time.monotonic() + self.wait
        while True:
            try:
                self._fd = os.open(str(self.path), flags | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise LedgerError(f"{self.path}: cannot {what} the ledger: {error.strerror}") from None
            with suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._current():
                    return
                os.close(self._fd)  # replaced since it was opened
                continue
            os.close(self._fd)
            self._fd = -1
            if time.monotonic() >= until:
                self._closed = True
                raise LedgerError(f"{self.path}: another process is writing this ledger; wait for it or stop it")
            time.sleep(0.01)

    def close(self) -> None:
        """Give up the lock; twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._closed = True

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ledger cannot be pickled or copied: two copies would forget each other's charges")


def is_locked(path: Path) -> bool | None:
    """Whether a process has the file locked; None where it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def checksum(document: dict[str, Any]) -> str:
    """SHA-256 of a JSON document, whatever the order of its keys."""
    return sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems know no sync of directories
            os.fsync(fd)
    finally:
        os.close(fd)
