"""`dpgen completion SHELL`: a script for the shell that completes commands, options and their choices, by shtab."""

import argparse
from collections.abc import Iterable
from itertools import chain
from typing import Any, Literal, get_args, get_origin

import shtab

from dpgen.auditing.options import AuditOptions
from dpgen.cli import budget, evaluate, report, sample, schema, verify
from dpgen.cli.main import COMMANDS, OneLineParser
from dpgen.cli.train import SCRIPT_OPTIONS
from dpgen.config import CONFIGS
from dpgen.data.kinds import KINDS
from dpgen.options import hints
from dpgen.runtime import Runtime
from dpgen.systems.registry import systems


def parser() -> OneLineParser:
    result = OneLineParser("dpgen completion", description='For ~/.bashrc: eval "$(dpgen completion bash)"; zsh likewise.')
    result.add_argument("shell", choices=shtab.SUPPORTED_SHELLS, help="whose completion")
    return result


def main(arguments: list[str]) -> str:
    """The script, for `eval "$(dpgen completion bash)"` in `~/.bashrc`, or the same for another shell."""
    return shtab.complete(everything(), parser().parse_args(arguments).shell).rstrip()


def everything() -> argparse.ArgumentParser:
    """All commands with the options of all systems and data: for names alone, which no command line is read by."""
    whole = argparse.ArgumentParser("dpgen")
    whole.add_argument("--version", action="store_true")
    commands = whole.add_subparsers()
    modules = (budget, evaluate, report, sample, schema, verify)
    own = {module.__name__.rpartition(".")[2]: module.parser() for module in modules}
    own |= {"completion": parser(), "sign": verify.sign_parser(), "compare": evaluate.compare_parser()}
    for name, (_, meaning) in COMMANDS.items():
        found = [own[name]] if name in own else []
        made = commands.add_parser(name, help=meaning, parents=found, add_help=not found, conflict_handler="resolve")
        for option, choices in _options(name).items():
            made.add_argument(f"--{option}", choices=choices or None)
    return whole


def _options(command: str) -> dict[str, list[str]]:
    """Options of training and audits, each with its choices."""
    if command == "train":
        named = {name: list[str]() for name in SCRIPT_OPTIONS if name != "help"}
        named |= {"config": sorted(path.stem for path in CONFIGS.glob("*.yaml")), "model": list(systems())}
        named["data"] = list(dict.fromkeys(chain.from_iterable(kind.loaders for kind in KINDS.values())))
        loaders = chain.from_iterable(kind.loaders.values() for kind in KINDS.values())
        return named | _choices([*_of_systems(systems()), *(loader.options for loader in loaders), Runtime])
    if command == "audit":
        return {"model": list(systems())} | _choices([*_of_systems(systems()), AuditOptions])
    return {}


def _of_systems(known: dict[str, Any]) -> list[Any]:
    return [source for system in known.values() for source in (system.plan, system.config)]


def _choices(sources: Iterable[Any]) -> dict[str, list[str]]:
    """Choices of every option, by its name; none where it takes any value."""
    found: dict[str, list[str]] = {}
    for source in sources:
        for name, hint in hints(source).items():
            literals = [kind for kind in (hint, *get_args(hint)) if get_origin(kind) is Literal]
            choices = ["true", "false"] if hint is bool else [str(c) for kind in literals for c in get_args(kind)]
            if name != "return":
                found[name] = list(dict.fromkeys([*found.get(name, []), *choices]))
    return found
