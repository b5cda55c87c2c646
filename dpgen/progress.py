"""One progress bar for a whole run: its phases, and epsilon beside it; silent where stderr is no terminal."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import Any, TextIO, TypeVar

T = TypeVar("T")
P = TypeVar("P", bound=Sized)

Report = Callable[..., None]
"""Takes the part of a stage that is done, in [0, 1], and how many rows that was, if it is known."""

PHASES = {"read": 5, "fit": 60, "release": 2, "evaluate": 33}
"""Phases of a run in order, with the usual percent of its time."""

_FORMAT = "{desc:<10}{percentage:3.0f}%|{bar}| {postfix[0]} [{elapsed}<{remaining}]"
_EVERY = 0.5  # seconds between two looks at the ledger


class Bar:
    """The bar of one run, on a terminal only, with what has been spent so far in words."""

    def __init__(self, *, shown: bool, spent: Callable[[], str], stream: TextIO | None = None) -> None:
        from tqdm import tqdm

        self._spent, self._looked = spent, 0.0
        self._start, self._share, self._part = 0.0, 0.0, 0.0
        disable = None if shown else True
        options: dict[str, Any] = {"disable": disable, "leave": False, "bar_format": _FORMAT, "postfix": [""]}
        self._bar = tqdm(total=100, file=stream or sys.stderr, dynamic_ncols=True, **options)

    def phase(self, name: str) -> None:
        """Begin a phase of `PHASES`."""
        names = list(PHASES)
        self._start = float(sum(PHASES[earlier] for earlier in names[: names.index(name)]))
        self._share = float(PHASES[name])
        self.at(0.0, name)

    def at(self, part: float, name: str = "", rate: float | None = None) -> None:
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
        self._part = min(max(part, 0.0), 1.0)
        self._bar.n = round(self._start + self._share * self._part, 1)
        self._bar.refresh()

    @contextmanager
    def stage(self, name: str) -> Iterator[Report]:
        """A part of the present phase whose share nobody knows, as the scans of an engine: half of what is left of it."""
        began, start = time.monotonic(), self._part

        def done(part: float, rows: float | None = None) -> None:
            rate = None if rows is None else rows / max(time.monotonic() - began, 1e-3)
            self.at(start + (1.0 - start) * min(max(part, 0.0), 1.0) / 2.0, name, rate)

        done(0.0)
        yield done
        done(1.0)


_SHOWN: list[Bar] = []


@contextmanager
def showing(bar: Bar) -> Iterator[Bar]:
    """Let everything below report to this bar."""
    _SHOWN.append(bar)
    try:
        yield bar
    finally:
        _SHOWN.pop()._bar.close()


def report(part: float, name: str = "") -> None:
    """Tell the bar of the run, if there is one, how much of the present phase is done; see `Bar.at`."""
    if _SHOWN:
        _SHOWN[-1].at(part, name)


@contextmanager
def stage(name: str) -> Iterator[Report | None]:
    """A stage of the bar of the run, see `Bar.stage`; None where nobody sees one."""
    if not _SHOWN or _SHOWN[-1]._bar.disable:
        yield None
    else:
        with _SHOWN[-1].stage(name) as reported:
            yield reported


def rows_read(parts: Iterable[P], total: int, name: str) -> Iterator[P]:
    """Chunks of rows, reported as a stage of the present phase, and how fast they come; `total` of 0: nobody knows it."""
    with stage(name) as reported:
        read = 0
        for part in parts:
            yield part
            read += len(part)
            if reported is not None:
                reported(read / total if total else 0.0, read)


def steps(items: Sequence[T], name: str) -> Iterator[T]:
    """The items, which are reported as parts of the present phase."""
    for index, item in enumerate(items):
        report(index / len(items), name)
        yield item
