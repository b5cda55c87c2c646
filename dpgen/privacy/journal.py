"""The journal of a run: noisy values are on the disk before they are given out, so that a run that died gets the same again.

A fit in closed form spends its budget in few releases. What dies between the first of them and the end has paid for noisy
values that nobody has seen; the same run gets them again from here, in the order in which it asked, and pays nothing.

Formal guarantees:

| case | what holds |
|---|---|
| a value is given out | it is in the journal, synced, and its checksum is a line of the ledger |
| a run asks again for a value that was given out | the same bits, no charge, no noise |
| what it asks for differs in name, mechanism, shape, sensitivity or scale | refused: it is not the same run |
| a value was charged for and never given out | drawn now, for that charge: nobody has had the first one |
| the journal lacks a value that the ledger says was given out | refused: a second noisy look for one payment |
| a value that no file can hold | given out; a run that dies later is lost |
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from dpgen.privacy.ledger import Ledger
from dpgen.privacy.ledger_file import LedgerError, LedgerFile, compact

T = TypeVar("T")
_FORMAT = 1


class Journal:
    """Values that a run has been given, in a file beside its ledger.

    Arguments:
        path: the file; made for a ledger without charges, read otherwise.
        ledger: of the run; its earlier charges may be asked for again, once each, in their order.

    Raises:
        LedgerError: it is missing, of another run, or lacks what was given out.
    """

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self.path, self._ledger = path, ledger
        self._file, self._next = LedgerFile(path), 0
        self._kept: list[tuple[dict[str, Any], str]] = []
        if not ledger.entries():
            path.unlink(missing_ok=True)
            self._file.create()
            self._file.append([compact({"dpgen_journal": _FORMAT, "ledger": ledger._file.first})])
            self._file.sync()
            return
        try:
            self._read()
        except BaseException:
            self._file.close()
            raise
        ledger.take_up()

    def _read(self) -> None:
        lines = self._file.read(torn=True)
        header = next(lines)
        if (header.get("dpgen_journal"), header.get("ledger")) != (_FORMAT, self._ledger._file.first):
            raise LedgerError(f"{self.path}: is no journal of this run; what it had paid for is lost")
        self._kept = [(line, self._file.head) for line in lines if "recovered" not in line]
        if self._file.torn:  # never given out: its checksum is not in the ledger
            self._file.mend()
        if [head for _, head in self._kept][: len(self._ledger.given)] != self._ledger.given:
            raise LedgerError(
                f"{self.path}: lacks values that were given out, or has others: a second noisy look for one payment is refused"
            )

    def value(self, asked: dict[str, Any], draw: Callable[[], T]) -> T:
        """The next value of the run: the one that it was given before, or a fresh one, which is kept first.

        Arguments:
            asked: what names the release: public numbers and texts.
            draw: makes it, once it is charged.

        Raises:
            LedgerError: another release was asked for at this place, or its value could not be kept.
        """
        number, given = self._next, self._ledger.given
        self._next += 1
        if number < len(self._kept):
            line, head = self._kept[number]
            if line["asked"] != asked:
                raise LedgerError(f"{self.path}: release {number + 1} of this run was {line['asked']}, now it is {asked}")
            if "value" not in line:
                raise LedgerError(f"{self.path}: release {number + 1} could not be kept; what the run had paid for is lost")
            if number == len(given):
                self._ledger.give(head)
            return _decoded(line["value"])
        value = draw()
        try:
            kept = compact({"asked": asked, "value": _encoded(value)})
        except (TypeError, ValueError):
            kept = compact({"asked": asked})
        self._file.append([kept])
        self._file.sync()
        self._ledger.give(self._file.head)
        return value

    def close(self) -> None:
        """Give up the file."""
        self._file.close()


def _encoded(value: Any) -> Any:
    """As JSON; raises TypeError for what has no form there."""
    if isinstance(value, np.generic):  # before Python's: float64 is a float
        return {"scalar": _encoded(np.asarray(value))}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        return {"tensor": _encoded(value.detach().cpu().numpy())}
    if isinstance(value, np.ndarray) and value.dtype != object:
        raw = base64.b64encode(np.ascontiguousarray(value).data).decode()
        return {"array": [value.dtype.str, list(value.shape), raw]}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_encoded(part) for part in value]}
    raise TypeError(f"{type(value).__name__} has no form in a journal")


def _decoded(code: Any) -> Any:
    if not isinstance(code, dict):
        return code
    [(kind, content)] = code.items()
    if kind == "tensor":
        return torch.from_numpy(_decoded(content))
    if kind == "scalar":
        return _decoded(content)[()]
    if kind == "array":
        dtype, shape, raw = content
        return np.frombuffer(bytearray(base64.b64decode(raw)), dtype=np.dtype(dtype)).reshape(shape)
    parts = [_decoded(part) for part in content]
    return tuple(parts) if kind == "tuple" else parts
