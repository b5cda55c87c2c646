"""What the scripts share: a parser and an ending that say in one line what is wrong."""

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn

from dpgen.privacy.ledger import BudgetExceeded, LedgerError
from dpgen.quiet import quiet_training

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
        from dpgen.callbacks.preemption import Preempted  # here, because planning a budget needs no torch
        from dpgen.privacy.ranks import RemoteFailure

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
