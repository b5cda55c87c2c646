"""`dpgen train`: fit a system to private data, release it, evaluate the release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dpgen.cli.main import Ended
from dpgen.config import CONFIGS, Request, RunConfig, SelectOptions, parse_job, written
from dpgen.data.kinds import KINDS
from dpgen.options import help_text, meanings, split_options
from dpgen.privacy.composition import Planned, worst
from dpgen.statement import guarantee, rounded_up
from dpgen.systems.registry import systems

if TYPE_CHECKING:
    from dpgen.cli.select import Selection

SCRIPT_OPTIONS = {
    "config": ("FILE", "settings by block, under all options: a YAML file, or a name of those shipped (<model>_<data>)"),
    "set": ("BLOCK.OPTION=VALUE", "one option as --config names it, as in --set privacy.epsilon=1; may be given several times"),
    "print_config": ("", "only print the settings of the run, as --config reads them"),
    "dry_run": (
        "[ROWS]",
        "only say what the run would declare and cost; the data are read, nothing is spent. With about how many rows a table "
        "has: also the noise, time and memory to expect, by public facts",
    ),
    "help": ("", "this; with --model NAME and --data NAME, or with --config, the options of that run"),
    **{name: (name.rpartition("_")[2].upper(), text) for name, text in meanings(SelectOptions).items()},
}
"""Options that are no setting of a run: their values, and what they do."""


def split_command(arguments: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Options of the command by name, and those of the run.

    >>> split_command(["--model", "dpgm", "--dry_run", "--k=3"])
    ({'dry_run': 'true'}, {'model': 'dpgm', 'k': '3'})
    """
    given = with_file(arguments)
    return {key: given.pop(key) for key in SCRIPT_OPTIONS if key in given and key != "config"}, given


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
    for name in ("data", "path", "config"):
        if name in given:
            raise ValueError(f"{name} is {given[name]!r}; it must be left out beside the file {path!r}")
    model = given.get("model") or ("relational" if {"person", "links"} & {*given} else chosen_model(path))
    return {"model": model, "data": loader_of_file(path, model, given), "path": path} | given


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
    for name, kind in KINDS.items():
        fitting = [model for model, system in systems().items() if name in system.kinds]
        lines += ["", f"on {name}:", f"  --model  {', '.join(fitting)}", f"  --data   {', '.join(kind.loaders)}"]
    lines += ["", "of the command:"]
    lines += [f"  {f'--{name} {value}':<28} {meaning}" for name, (value, meaning) in SCRIPT_OPTIONS.items()]
    return "\n".join(
        [*lines, "", "add --model NAME for its options, their defaults and what they mean; lists are written 1,2,3"]
    )


def dry_run(job: RunConfig, selection: Selection | None = None, rows: int | None = None) -> Ended:
    """Settings of a job or choices of a selection, the plan and its price; of `rows` rows also what to expect.

    The data are read, nothing is spent.
    """
    fitting = selection or job
    with TemporaryDirectory(prefix="dpgen-") as scratch:
        alone = replace(job, runtime=replace(job.runtime, ledger=None))
        data = alone.load(Path(scratch))
        declared = fitting.declared(data)
    plan: Any = job.privacy
    delta, relation = plan.resolved_delta, plan.relation
    cost = worst([(line.priced, line.count) for line in declared], delta, relation)
    lines = [f"{fitting.title} on {job.data.name}, dry run: the data were read, nothing is spent, nothing is written"]
    lines += [] if job.base is None else [f"settings {job.base}"]
    lines += [f"choice {choice}" for choice in selection.names] if selection else _settings(job)
    lines += _part("plan", [f"{line.count} x {line.note}: {line.event}" for line in declared])
    lines += [f"  cost             {guarantee(cost, delta, relation, plan.protected)}"]
    shared = _of_shared(job, fitting, declared)
    lines += [] if shared is None else [_in_words(shared)]
    foreseen = list(getattr(data, "foreseen", ()))
    lines += _part("not released", foreseen)
    planned = [{"note": line.note, "event": str(line.event), "count": line.count} for line in declared]
    values = {"settings": job.settings, "plan": planned, "epsilon": cost, "delta": delta, "relation": relation}
    values |= {"unit": plan.protected, "budget": shared, "foreseen": foreseen}
    if rows is not None:
        from dpgen.rehearsal import rehearsed

        expected = rehearsed(job, data, rows)
        lines, values = [*lines, str(expected)], values | {"expected": expected.to_dict()}
    return Ended("\n".join(lines), values=values)


def _part(title: str, lines: Sequence[str]) -> list[str]:
    return [title, *(f"  {line}" for line in lines)] if lines else []


def _settings(job: RunConfig) -> Iterator[str]:
    for title in ("privacy", "model", "data"):
        yield from _part(title, [f"{name:<16} {value}" for name, value in job.settings[title].items()])


def _of_shared(job: RunConfig, fitting: RunConfig | Selection, plan: Sequence[Planned]) -> dict[str, Any] | None:
    """Whether the budget that the run would pay from has room for it, for how many such `runs`, and what is `spent` then."""
    if (payer := job.payer(fitting.title)) is None:
        return None
    from dpgen.privacy.shared_budget import SharedBudget

    spending = SharedBudget(payer.path).spending()
    payment = payer.quote(plan, fitting.open_ledger().budget, spending.limits)
    fits, spent = spending.fits(payment), spending.plus(payment).epsilon
    return {"file": payer.path.name, "fits": fits, "runs": spending.room(payment) if fits else 0, "spent": spent}


def _in_words(shared: Mapping[str, Any]) -> str:
    line = f"{shared['file']}: it would bring all runs to epsilon {rounded_up(shared['spent'])}"
    if not shared["fits"]:
        return f"{line}: refused, it does not fit"
    room = shared["runs"]
    return f"{line}: it fits, {f'{room} time' + 's' * (room != 1) if room else 'and nothing beside it'}"


def _whole(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{name} is {text!r}; it must be about how many rows there are, a whole number, or have no value")
    return int(text)


def _instead(own: dict[str, str]) -> tuple[set[str], int | None]:
    """Options that take the place of a run, taken out of the command's `own`, and the rows of a rehearsal."""
    told = {name: own.pop(name) for name in ("dry_run", "print_config") if name in own}
    if told.get("print_config", "true") != "true":
        raise ValueError(f"print_config is {told['print_config']!r}; it takes no value")
    rows = None if (value := told.get("dry_run", "true")) == "true" else _whole("dry_run", value)
    if rows is not None and own:
        raise ValueError(f"dry_run is {rows}; a number of rows is for one run, without select")
    if "print_config" in told and (own or len(told) > 1):
        raise ValueError("print_config must stand without dry_run and select: it is of one run")
    return {*told}, rows


def main(arguments: list[str]) -> str | Ended:
    """One run, the best of several, a dry run, the settings or the help of one; see `dpgen train --help`."""
    own, given = split_command(arguments)
    if "help" in own:
        return usage(given, config_root=CONFIGS)
    instead, rows = _instead(own)
    parse, selection = partial(parse_job, config_root=CONFIGS), None
    if own:
        from dpgen.cli.select import Selection

        selection = Selection.of(own, given, parse)
    job = selection.first if selection else parse(given)
    if "print_config" in instead:
        return Ended(written(job), values={"settings": job.settings})
    if "dry_run" in instead:
        return dry_run(job, selection, rows)
    from dpgen.run import run

    return Ended.of(run(job, fitting=selection))
