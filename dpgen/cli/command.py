"""Shared by the scripts: quiet libraries, a parser, and exit codes with one line that says what is wrong."""

import argparse
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dpgen.privacy.ledger import BudgetExceeded, LedgerError

if TYPE_CHECKING:
    from dpgen.runtime import Runtime

# -- quiet -------------------------------------------------------------------------------------------------------------


_LOGGERS = ("lightning.pytorch", "lightning.fabric")


def quiet_runtime(directory: Path, seed: int) -> "Runtime":
    """A run on the CPU that shows nothing and is thrown away."""
    from dpgen.runtime import Runtime  # here, because planning a budget is quiet too, and needs no torch

    return Runtime(run_dir=directory, seed=seed, accelerator="cpu", progress_bar=False, checkpoint_every=10**6)


@contextmanager
def quiet_training() -> Iterator[None]:
    """Lightning's hints and Python warnings kept to itself; what it logs as a warning or an error is heard."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels):
                logger.setLevel(level)


# -- command -----------------------------------------------------------------------------------------------------------


REFUSED = 2
TRY_AGAIN = 75  # of the many exit codes, the one that says so


class OneLineParser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2."""
        self.exit(REFUSED, f"error: {message}\n")


def exit_code(work: Callable[[], str | int]) -> int:
    """Do the work of a script, without Lightning's hints, and say how it ended.

    | the work | code | shown |
    |---|---|---|
    | returns a text | 0 | the text |
    | returns a number | that | |
    | raises ValueError, OSError, LedgerError or BudgetExceeded | 2 | the error in one line, on stderr |
    | raises Preempted | 75 | the same |
    | raises RemoteFailure, on another process than the first | 0 | nothing: the first one says why |
    """
    try:
        with quiet_training():
            ended = work()
    except (ValueError, OSError, LedgerError, BudgetExceeded) as error:
        return _say(error, REFUSED)
    except RuntimeError as error:
        from dpgen.callbacks.checkpoint import Preempted  # here, because planning a budget needs no torch
        from dpgen.privacy.distributed import RemoteFailure

        if isinstance(error, RemoteFailure):
            return 0
        if isinstance(error, Preempted):
            return _say(error, TRY_AGAIN)
        raise
    if isinstance(ended, str):
        sys.stdout.write(ended + "\n")
        return 0
    return ended


def _say(error: Exception, code: int) -> int:
    sys.stderr.write(f"{'error: ' * (code == REFUSED)}{' '.join(str(error).split())}\n")
    return code
