"""`dpgen train`: fit a system to private data, release it, evaluate the release."""

from typing import TYPE_CHECKING

from dpgen.cli.command import RELEASED_ONLY, Ended
from dpgen.cli.jobs import CONFIGS, parse_command, parse_job, usage, written

if TYPE_CHECKING:
    from dpgen.run import Outcome


def ended(outcome: "Outcome") -> Ended:
    """The end of a command that has run something."""
    return Ended(outcome.summary, RELEASED_ONLY if outcome.problem else 0, outcome.problem)


def main(arguments: list[str]) -> str | Ended:
    """One run, a sweep of runs, a dry run, the settings or the help of one; see `dpgen train --help`."""
    command = parse_command(arguments)
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

    return ended(run(job))
