"""`dpgen train`: fit a system to private data, release it, evaluate the release."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jsonargparse import ArgumentParser

from dpgen.cli.command import Ended
from dpgen.cli.sweep import Sweep, parse_sweep
from dpgen.config import CONFIGS, Request, parse_job, written
from dpgen.data.loaders import LOADERS
from dpgen.options import add_options, as_argument, split_options
from dpgen.systems.registry import systems

SCRIPT_OPTIONS = {
    "config": ("FILE", "settings by block, under all options: a YAML file, or a name of those shipped (<model>_<data>)"),
    "print_config": ("", "only print the settings of the run, as --config reads them"),
    "dry_run": ("[NxD[xLABELS]]", "only say what would run, cost and need, for so many records, columns and labels"),
    "sweep": ("VALUES", 'run every combination of "epsilon=1,3;seed=0,1", or of the lists in a YAML file'),
    "sweep_jobs": ("N", "so many of them at a time (1)"),
    "sweep_dir": ("DIR", "with a directory for each (runs/sweep)"),
    "sweep_select": (
        "SCORE",
        "release the best of a secret number of them alone, by a paid score, and pay for the choice: counts",
    ),
    "sweep_runs": ("MEAN", "of so many runs on average (10), each of a combination drawn at random"),
    "sweep_noise": ("RECORDS", "noise of the score, a mean error of counts, in records (20)"),
    "sweep_epsilon": ("EPSILON", "refuse a selection that costs more"),
    "help": ("", "this; with --model NAME and --data NAME, or with --config, the options of that run"),
}
"""Options that are no setting of a run: their values, and what they do."""


@dataclass(frozen=True)
class Command:
    """A training command: arguments of `parse_job`, and what else is to be done than one run."""

    job_arguments: tuple[str, ...]
    sweep: Sweep | None = None
    dry_run: str | None = None
    """The size after `--dry_run`, which may be empty."""
    print_config: bool = False
    help: bool = False


def parse_command(arguments: Sequence[str]) -> Command:
    """Separate the options of the script from those of the job.

    >>> parse_command(["--model", "dpgm", "--dry_run", "60000x784x10", "--k=3"])
    Command(job_arguments=('--model=dpgm', '--k=3'), sweep=None, dry_run='60000x784x10', print_config=False, help=False)

    """
    given = split_options([argument for argument in arguments if argument != "-h"])
    own = {key: given.pop(key) for key in SCRIPT_OPTIONS if key in given and key != "config"}
    rest = tuple(as_argument(key, value) for key, value in given.items())
    if "help" in own or "-h" in arguments:
        return Command(rest, help=True)
    instead = [name for name in ("dry_run", "print_config") if name in own]
    priced = "sweep_select" in own and instead == ["dry_run"]  # a selection has one price
    if instead and len(own) > 1 and not priced:
        raise ValueError(
            f"{instead[0]} and {next(n for n in own if n != instead[0])} are both given: {instead[0]} is of one run"
        )
    if own.get("print_config", "true") != "true":
        raise ValueError(f"print_config is {own['print_config']!r}; it takes no value")
    if priced:
        del own["dry_run"]
        return Command(rest, parse_sweep(own, rest), dry_run="")
    if instead:
        size = own.get("dry_run")
        return Command(rest, dry_run="" if size == "true" else size, print_config="print_config" in own)
    return Command(rest, parse_sweep(own, rest))


def with_file(arguments: Sequence[str]) -> list[str]:
    """The arguments, with a file that stands first as the options that read it: the usual model for it, unless one is given.

    >>> with_file(["--model", "dpgm"])
    ['--model', 'dpgm']
    """
    if not arguments or arguments[0].startswith("-"):
        return list(arguments)
    from dpgen.api import chosen_model, loader_of_file

    path, *rest = arguments
    given = split_options(rest)
    for name in ("data", "path", "source", "config"):
        if name in given:
            raise ValueError(f"{name} is {given[name]!r}; it must be left out beside the file {path!r}")
    model = given.get("model") or chosen_model(path)
    loader, place = loader_of_file(path, model)
    read = [f"--model={model}", f"--data={loader}", f"--{place}={path}"]
    return read + [as_argument(key, value) for key, value in given.items() if key != "model"]


def usage(arguments: Sequence[str] = (), *, config_root: Path | None = None) -> str:
    """Help of a training command: in general, or the options of the model, the data or the file that it names.

    Defaults are those that hold after the file that `parse_job` starts from.
    """
    given = split_options(arguments)
    if not {"model", "data", "config"} & set(given):
        return _overview()
    request = Request.of(given, config_root=config_root)
    titles = {f"{block} of {name}": block for block, name in (("privacy", request.model), ("model", request.model))}
    titles |= {f"data {request.data}": "data", "runtime": "runtime"}
    parser = ArgumentParser(
        prog="dpgen train",
        usage=f"dpgen train --model {request.model} --data {request.data} [--key value ...]",
        description="" if request.base is None else f"defaults as in {request.base}",
        add_help=False,
    )
    add_options(parser, {title: request.sources[b] for title, b in titles.items()}, defaults=request.stored)
    return parser.format_help().rstrip()


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
    """One run, a sweep of runs, a dry run, the settings or the help of one; see `dpgen train --help`."""
    command = parse_command(with_file(arguments))
    if command.help:
        return usage(command.job_arguments, config_root=CONFIGS)
    if command.sweep is not None and command.sweep.selection is not None:
        from dpgen.cli.select import select

        return select(command.sweep, lambda given: parse_job(given, config_root=CONFIGS), dry=command.dry_run is not None)
    if command.sweep is not None:
        from dpgen.cli.sweep import run_sweep

        return run_sweep(command.sweep.check(lambda given: parse_job(given, config_root=CONFIGS)))
    job = parse_job(command.job_arguments, config_root=CONFIGS)
    if command.print_config:
        return written(job)
    if command.dry_run is not None:
        from dpgen.cli.dry_run import dry_run

        return dry_run(job, command.dry_run)
    from dpgen.run import run

    return Ended.of(run(job))
