"""Files that are either whole or absent."""

import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path

_MARK = "dpgen-"
_LEFTOVER = re.compile(rf"\..+\.{_MARK}[a-z0-9_]{{8}}")


def remove_leftovers(directory: Path) -> None:
    """Remove what `write_atomically` leaves in a directory and below when the process is killed in the middle of it."""
    for path in directory.rglob(".*"):
        if path.is_file() and _LEFTOVER.fullmatch(path.name):
            path.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write `data` to a temporary file beside `path`, flush it to the disk, and rename it over `path`."""
    payload = data.encode() if isinstance(data, str) else data
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: the directory {path.parent} does not exist")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.{_MARK}")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def create_private(path: Path, data: bytes) -> None:
    """Create a file that its owner alone may read, whole and on the disk; nothing happens if it is there already.

    The name appears by a hard link, which fails where the name exists: of several writers the first one wins.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.{_MARK}")  # mkstemp makes files of mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        Path(name).unlink(missing_ok=True)
