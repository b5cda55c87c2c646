"""The command `dpgen`: a table of commands, each a module with `main(arguments)`, imported when it is called."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpgen.cli.command import Ended

COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("dpgen.cli.train", "fit a system to private data, release it, evaluate the release"),
    "schema": ("dpgen.cli.schema", "draft the public schema of a table: names and types, domains at a price"),
    "sample": ("dpgen.cli.sample", "draw records from a released model"),
    "evaluate": ("dpgen.cli.evaluate", "evaluate a run again, or compare several"),
    "compare": ("dpgen.cli.compare", "two tables side by side by their values, of any package"),
    "report": ("dpgen.cli.report", "one page about a run or a released model, for people"),
    "budget": ("dpgen.cli.budget", "one budget for many runs: who paid for what, what is left, what a run would cost"),
    "verify": ("dpgen.cli.verify", "whether statement, ledger, model and shared budget of a run say the same"),
    "audit": ("dpgen.cli.audit", "attack a system: a lower bound on its epsilon, or a leak"),
    "completion": ("dpgen.cli.completion", "completion of commands and options for bash, zsh or fish"),
}
"""Module of every command, whose `main` takes the arguments and returns a text, an exit code or an `Ended`; its meaning."""


def usage() -> str:
    """The text of `dpgen --help`."""
    lines = ["usage: dpgen COMMAND [--key value ...]", ""]
    lines += [f"  {name:<12} {meaning}" for name, (_, meaning) in COMMANDS.items()]
    return "\n".join([*lines, "", "dpgen COMMAND --help says more; dpgen --version"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, with the arguments of the process unless others are given; the exit code."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("--help", "-h"):
        sys.stdout.write(usage() + "\n")
        return 0
    from dpgen.cli.command import exit_code

    return exit_code(lambda: _run(name, rest))


def _run(name: str, arguments: list[str]) -> "str | int | Ended":
    if name == "--version":
        from dpgen import __version__

        return __version__
    if name not in COMMANDS:
        from dpgen.options import choose

        choose("command", name, list(COMMANDS))
    ended: str | int | Ended = import_module(COMMANDS[name][0]).main(arguments)
    return ended
