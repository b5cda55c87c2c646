"""One progress bar for a whole run: its phases, and epsilon beside it; silent where stderr is no terminal."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import Any, TextIO, TypeVar

T = TypeVar("T")
P = TypeVar("P", bound=Sized)

PHASES = {"read": 5, "fit": 60, "release": 2, "evaluate": 33}
"""Phases of a run in order, with the usual percent of its time."""

_FORMAT = "{desc:<10}{percentage:3.0f}%|{bar}| {postfix[0]} [{elapsed}<{remaining}]"
_EVERY = 0.5  # seconds between two looks at the ledger


class Bar:
    """The bar of one run, on a terminal only, with what has been spent so far in words."""

    def __init__(self, *, shown: bool, spent: Callable[[], str], stream: TextIO | None = None) -> None:
        from tqdm import tqdm

        self._shown, self._stream = shown, stream or sys.stderr
        self._spent, self._looked = spent, 0.0
        self._start, self._share, self.part = 0.0, 0.0, 0.0
        disable = None if shown else True
        options: dict[str, Any] = {"disable": disable, "leave": False, "bar_format": _FORMAT, "postfix": [""]}
        self._bar = tqdm(total=100, file=self._stream, dynamic_ncols=True, **options)

    def note(self, lines: Iterable[str]) -> None:
        """Lines above the bar, also where there is no terminal."""
        for line in lines if self._shown else ():
            self._bar.write(line, file=self._stream)

    def phase(self, name: str) -> None:
        """Begin a phase of `PHASES`."""
        names = list(PHASES)
        self._start = float(sum(PHASES[earlier] for earlier in names[: names.index(name)]))
        self._share = float(PHASES[name])
        self.at(0.0, name)

    def at(self, part: float | None, name: str = "", rate: float | None = None) -> None:
        """So much of the present phase is done, in [0, 1]; `name` says what comes now, `rate` the rows that are read a second.

        How many rows there are is private: a rate is shown to whoever holds the data, and written nowhere.
        """
        if self._bar.disable:
            return
        if name:
            self._bar.set_description_str(name, refresh=False)
        now = time.monotonic()
        if name or now - self._looked > _EVERY:
            self._bar.postfix[0], self._looked = self._spent(), now
            if rate is not None:
                self._bar.postfix[0] += f" {rate:,.0f} rows/s"
        self.part = self.part if part is None else min(max(part, 0.0), 1.0)
        self._bar.n = round(self._start + self._share * self.part, 1)
        self._bar.refresh()


_SHOWN: list[Bar] = []


@contextmanager
def showing(bar: Bar) -> Iterator[Bar]:
    """Let everything below report to this bar."""
    _SHOWN.append(bar)
    try:
        yield bar
    finally:
        _SHOWN.pop()._bar.close()


def report(part: float | None, name: str = "") -> None:
    """Tell the bar of the run, if there is one, how much of the present phase is done; see `Bar.at`."""
    if _SHOWN:
        _SHOWN[-1].at(part, name)


def rows_read(parts: Iterable[P], total: int, name: str) -> Iterator[P]:
    """Chunks of rows, reported with how fast they come, as half of what is left of the present phase; `total` 0: unknown."""
    began, read, start = time.monotonic(), 0, _SHOWN[-1].part if _SHOWN else 0.0
    for part in parts:
        yield part
        read += len(part)
        if _SHOWN:
            done = read / total if total else 0.0
            _SHOWN[-1].at(start + (1.0 - start) * min(done, 1.0) / 2.0, name, read / max(time.monotonic() - began, 1e-3))


def steps(items: Sequence[T], name: str) -> Iterator[T]:
    """The items, which are reported as parts of the present phase."""
    for index, item in enumerate(items):
        report(index / len(items), name)
        yield item
