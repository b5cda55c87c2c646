"""`dpgen train`: fit a system to private data, release it, evaluate the release."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dpgen.cli.main import Ended
from dpgen.config import CONFIGS, Request, SelectOptions, parse_job, written
from dpgen.data.loaders import LOADERS
from dpgen.options import help_text, meanings, split_options
from dpgen.systems.registry import systems

SCRIPT_OPTIONS = {
    "config": ("FILE", "settings by block, under all options: a YAML file, or a name of those shipped (<model>_<data>)"),
    "print_config": ("", "only print the settings of the run, as --config reads them"),
    "dry_run": ("", "only say what the run would declare and cost; the data are read, nothing is spent"),
    "help": ("", "this; with --model NAME and --data NAME, or with --config, the options of that run"),
    **{name: (name.rpartition("_")[2].upper(), text) for name, text in meanings(SelectOptions).items()},
}
"""Options that are no setting of a run: their values, and what they do."""


@dataclass(frozen=True)
class Command:
    """A training command: options of a run by name, and what else is to be done than one run."""

    options: dict[str, str]
    selection: dict[str, str]
    """Its `SelectOptions`, as far as they are given."""
    dry_run: bool = False
    print_config: bool = False
    help: bool = False


def parse_command(arguments: Sequence[str]) -> Command:
    """Separate the options of the command from those of the run.

    >>> parse_command(["--model", "dpgm", "--dry_run", "--k=3"])
    Command(options={'model': 'dpgm', 'k': '3'}, selection={}, dry_run=True, print_config=False, help=False)
    """
    given = with_file(arguments)
    own = {key: given.pop(key) for key in SCRIPT_OPTIONS if key in given and key != "config"}
    if "help" in own:
        return Command(given, {}, help=True)
    instead = {name: own.pop(name) for name in ("dry_run", "print_config") if name in own}
    for name, value in instead.items():
        if value != "true":
            raise ValueError(f"{name} is {value!r}; it takes no value")
    if "print_config" in instead and (own or len(instead) > 1):
        raise ValueError("print_config must stand without dry_run and select: it is of one run")
    return Command(given, own, "dry_run" in instead, "print_config" in instead)


def with_file(arguments: Sequence[str]) -> dict[str, str]:
    """Options by name, with those that read a file which stands first: the usual model for it, unless one is given.

    >>> with_file(["--model", "dpgm", "-h"])
    {'model': 'dpgm', 'help': 'true'}
    """
    file, rest = (arguments[:1], arguments[1:]) if arguments and not arguments[0].startswith("-") else ([], arguments)
    given = split_options(["--help" if argument == "-h" else argument for argument in rest])
    if not file:
        return given
    from dpgen.api import chosen_model, loader_of_file

    path = file[0]
    for name in ("data", "path", "source", "config"):
        if name in given:
            raise ValueError(f"{name} is {given[name]!r}; it must be left out beside the file {path!r}")
    model = given.get("model") or ("relational" if "person" in given else chosen_model(path))
    loader, place = loader_of_file(path, model, given)
    return {"model": model, "data": loader, place: path} | given


def usage(given: Mapping[str, str], *, config_root: Path | None = None) -> str:
    """Help of a training command: in general, or the options of the model, the data or the file that it names.

    Defaults are those that hold after the file that `parse_job` starts from.
    """
    if not {"model", "data", "config"} & set(given):
        return _overview()
    request = Request.of(given, config_root=config_root)
    titles = {f"{block} of {name}": block for block, name in (("privacy", request.model), ("model", request.model))}
    titles |= {f"data {request.data}": "data", "runtime": "runtime"}
    return help_text(
        {title: request.sources[block] for title, block in titles.items()},
        defaults=request.stored,
        usage=f"dpgen train --model {request.model} --data {request.data} [--key value ...]",
        description="" if request.base is None else f"defaults as in {request.base}",
    )


def _overview() -> str:
    lines = ["usage: dpgen train [FILE] [--model NAME] [--data NAME] [--config FILE] [--key value ...]"]
    for kind, named in LOADERS.items():
        fitting = [name for name, system in systems().items() if kind in system.kinds]
        lines += ["", f"on {kind}:", f"  --model  {', '.join(fitting)}", f"  --data   {', '.join(named)}"]
    lines += ["", "of the command:"]
    lines += [f"  {f'--{name} {value}':<28} {meaning}" for name, (value, meaning) in SCRIPT_OPTIONS.items()]
    return "\n".join(
        [*lines, "", "add --model NAME for its options, their defaults and what they mean; lists are written 1,2,3"]
    )


def main(arguments: list[str]) -> str | Ended:
    """One run, the best of several, a dry run, the settings or the help of one; see `dpgen train --help`."""
    command, parse = parse_command(arguments), partial(parse_job, config_root=CONFIGS)
    if command.help:
        return usage(command.options, config_root=CONFIGS)
    if command.selection:
        from dpgen.cli.select import select

        return select(command.selection, command.options, parse, dry=command.dry_run)
    job = parse(command.options)
    if command.print_config:
        return Ended(written(job), values={"settings": job.settings})
    if command.dry_run:
        from dpgen.cli.dry_run import dry_run

        return dry_run(job)
    from dpgen.run import run

    return Ended.of(run(job))
