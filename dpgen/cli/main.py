"""The command `dpgen`: a table of commands, their parser, and exit codes with one line that says what is wrong."""

import argparse
import errno
import json
import logging
import math
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING:
    from dpgen.run import Outcome
    from dpgen.statement import PrivacyStatement


COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("dpgen.cli.train:main", "fit a system to private data, release it, evaluate the release"),
    "schema": ("dpgen.cli.schema:main", "draft the public schema of a table: names and types, domains at a price"),
    "sample": ("dpgen.cli.sample:main", "draw records from a released model"),
    "evaluate": ("dpgen.cli.evaluate:main", "evaluate a run again, or compare several"),
    "compare": ("dpgen.cli.evaluate:compare", "two tables side by side by their values, of any package"),
    "report": ("dpgen.cli.report:main", "one page about a run or a released model, for people"),
    "budget": ("dpgen.cli.budget:main", "one budget for many runs: who paid for what, what is left, what a run would cost"),
    "verify": ("dpgen.cli.verify:main", "whether statement, ledger, model and shared budget of a run say the same"),
    "sign": ("dpgen.cli.verify:sign", "sign a release, for whom receives it"),
    "audit": ("dpgen.cli.audit:main", "attack a system: a lower bound on its epsilon, or a leak"),
    "completion": ("dpgen.cli.completion:main", "completion of commands and options for bash, zsh or fish"),
}
"""Function of every command, which takes the arguments and returns a text, an exit code or an `Ended`; its meaning."""


def usage() -> str:
    """The text of `dpgen --help`."""
    lines = ["usage: dpgen COMMAND [--key value ...]", ""]
    lines += [f"  {name:<12} {meaning}" for name, (_, meaning) in COMMANDS.items()]
    lines += [
        "",
        "--json   one JSON object on standard output, for programs",
        "--quiet  no text and no progress bar, messages alone",
    ]
    return "\n".join([*lines, "", "dpgen COMMAND --help says more; dpgen --version"])


def _write_utf8() -> None:
    """Texts, JSON and csv are UTF-8 in every locale."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, with the arguments of the process unless others are given; the exit code."""
    _write_utf8()
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("--help", "-h"):
        sys.stdout.write(usage() + "\n")
        return 0
    shown = {"--json", "--quiet"} & {*rest}
    rest = [argument for argument in rest if argument not in shown]
    if name == "train" and shown and not any("progress_bar" in argument for argument in rest):
        rest.append("--progress_bar=false")
    return exit_code(lambda: _run(name, rest), partial(show, command=name, as_json="--json" in shown, quiet="--quiet" in shown))


def _run(name: str, arguments: list[str]) -> "str | int | Ended":
    if undecoded := next((text for text in arguments if any("\udc80" <= letter <= "\udcff" for letter in text)), None):
        raise ValueError(f"argument {undecoded!r} is not in the encoding of this locale; set PYTHONUTF8=1 in the environment")
    if name == "--version":
        from dpgen import __version__

        return __version__
    if name not in COMMANDS:
        from dpgen.options import choose

        choose("command", name, list(COMMANDS))
    ended: str | int | Ended = resolve_name(COMMANDS[name][0])(arguments)
    return ended


class OneLineParser(argparse.ArgumentParser):
    """A parser of one command that says in one line what is wrong, with the nearest name."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **({"allow_abbrev": False} | options))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Options and what is left, as argparse finds them; one that is given twice is an error."""
        given = [token.partition("=")[0] for token in args or () if token.startswith("--")]
        if twice := next((name for name in given if given.count(name) > 1), None):
            self.error(f"{twice.removeprefix('--')} is given twice")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Refuse: a ValueError in one line."""
        if message.startswith("unrecognized arguments: --"):
            message = self._unknown(message.split()[2].partition("=")[0].removeprefix("--"))
        raise ValueError(" ".join(message.split()))

    def _unknown(self, name: str) -> str:
        from dpgen.options import choose  # here and below: `dpgen --help` needs none of it

        known = [option.removeprefix("--") for option in self._option_string_actions if option.startswith("--")]
        try:
            return f"option {choose('option', name, known)!r} has no place here"
        except ValueError as error:
            return str(error)


def network(text: str) -> str:
    """An import path whose class is imported, for models of networks of your own: what a person types, a file may not."""
    from dpgen.nets.own import imported

    try:
        imported(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


NETWORK: dict[str, Any] = {
    "type": network,
    "metavar": "MODULE:CLASS",
    "help": "import this network first: released models of networks of your own need theirs",
}
"""The option `--network` of commands that read models."""


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table for a terminal, whose columns stand below each other.

    >>> aligned([("a", "bb"), ("ccc", "d")])
    ['a    bb', 'ccc  d']
    """
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


BROKEN = 1
REFUSED = 2
RELEASED_ONLY = 3  # the release stands, what comes after it failed
TRY_AGAIN = 75  # of the many exit codes, the one that says so
INTERRUPTED = 130


_AGAIN = "nothing was spent: give the same command again"


EVALUATION = "EVALUATION"
"""Code of notes on an evaluation."""


class Ended(NamedTuple):
    """End of a command: text, exit code, a line for standard error where something is wrong, and what `--json` shows."""

    text: str
    code: int = 0
    problem: str = ""
    values: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, outcome: "Outcome") -> "Ended":
        """The end of a command that has run something."""
        from dpgen.files import STATEMENT, released_files

        stated = guarantee_values(outcome.release.statement)
        values = {
            "run_dir": outcome.directory,
            **stated,
            "notes": [*stated["notes"], *({"code": EVALUATION, "text": text} for text in outcome.notes)],
            "released": [STATEMENT, *released_files(outcome.directory)],
            "scores": outcome.scores,
        }
        return cls(outcome.summary, RELEASED_ONLY if outcome.problem else 0, outcome.problem, values)


def guarantee_values(statement: "PrivacyStatement") -> dict[str, Any]:
    """Guarantee of a release, what to know before it is used, and how it was made, for `--json`."""
    return {name: getattr(statement, name) for name in ("title", "epsilon", "delta", "relation", "unit", "warnings", "notes")}


def show(ended: Ended, *, command: str = "", as_json: bool = False, quiet: bool = False) -> int:
    """Write the end of a command as text, as one JSON object or not at all, its problem to standard error; the exit code."""
    if as_json:
        head = {"command": command, "exit_code": ended.code, "problem": ended.problem or None}
        content = head | _plain({"text": ended.text} if ended.values is None else ended.values)
        sys.stdout.write(json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n")
    elif ended.text and not quiet:
        sys.stdout.write(ended.text + "\n")
    return _say(ended.problem, ended.code) if ended.problem else ended.code


def _plain(value: Any) -> Any:
    """Values that JSON has; numbers that are not finite are null."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)


def exit_code(work: Callable[[], str | int | Ended], write: Callable[[Ended], int] = show) -> int:
    """Do the work of a command, without Lightning's hints, and say how it ended.

    | the work | code | shown |
    |---|---|---|
    | returns a text | 0 | the text |
    | returns a number | that | |
    | returns an `Ended` | its code | its text, and its problem on stderr |
    | raises ValueError, OSError, LedgerError or BudgetExceeded | 2 | the error in one line, on stderr, and what was spent |
    | raises Preempted; a full disk, or another error of the machine after which the same command goes on | 75 | the same |
    | raises another error after something was spent | 1 | its traceback, and the same |
    | raises KeyboardInterrupt | 130 | the same |
    | raises SystemExit | its code | what the parser has said |
    | raises RemoteFailure, on another process than the first | 0 | nothing: the first one says why |
    """
    from dpgen.privacy.ledger import BudgetExceeded, LedgerError
    from dpgen.runtime import quiet_training

    ended: str | int | Ended | None
    try:
        with quiet_training(), _warnings_in_one_line():
            ended = work()
    except KeyboardInterrupt as error:
        ended = Ended("", INTERRUPTED, str(error) or "interrupted", _spent(error))
    except SystemExit as end:
        ended = end.code if isinstance(end.code, int) else 0
    except (ValueError, OSError, LedgerError, BudgetExceeded) as error:
        ended = _failed(error, REFUSED)
    except Exception as error:
        ended = _broken(error)
        if ended is None:
            raise
    if isinstance(ended, int):
        return ended
    return write(Ended(ended) if isinstance(ended, str) else ended)


def _broken(error: Exception) -> "Ended | int | None":
    """The end of a command by an error that no command foresees; None: it is raised, for nothing was spent."""
    from dpgen.callbacks.accountant import Preempted  # here, because planning a budget needs no torch
    from dpgen.privacy.distributed import RemoteFailure
    from dpgen.statement import Spent

    if isinstance(error, RemoteFailure):
        return 0
    if isinstance(error, Preempted):
        return Ended("", TRY_AGAIN, str(error), _spent(error))
    if Spent.of(error) is None:
        return None
    traceback.print_exception(error)
    return _failed(error, BROKEN)


def _failed(error: Exception, code: int) -> Ended:
    """The end of a command that failed: why, what was spent, and whether the same command can go on."""
    from dpgen.statement import Spent

    note, cause = Spent.of(error), error if isinstance(error, OSError) else error.__context__
    full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
    again = full if note is None else note.again
    more = [*(["free some space"] if full else []), *([note] if note else [_AGAIN] if full else [])]
    said = str(error) if code == REFUSED else repr(error)
    return Ended("", TRY_AGAIN if again else code, f"error: {'; '.join([said, *more])}", _spent(error))


def _spent(error: BaseException) -> dict[str, float]:
    """Epsilon that was spent before an error, for `--json`."""
    from dpgen.statement import Spent

    note = Spent.of(error)
    return {"spent": 0.0 if note is None else note.epsilon}


def _say(text: str, code: int) -> int:
    sys.stderr.write(" ".join(text.split()) + "\n")
    return code


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Warnings of dpgen in one line each, without the place in the code; those of libraries are for developers."""
    package = str(Path(__file__).parents[1])
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it warns of a home that cannot be written

    def show(message: Warning | str, category: type[Warning], filename: str, *_: Any, **__: Any) -> None:
        if filename.startswith(package) and issubclass(category, UserWarning):
            _say(f"warning: {message}", 0)

    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.showwarning = show
        yield
