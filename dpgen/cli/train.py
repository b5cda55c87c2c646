"""`dpgen train`: fit a system to private data, release it, evaluate the release."""

from dpgen.cli.command import Ended
from dpgen.cli.jobs import CONFIGS, parse_command, parse_job, usage, written


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

    return Ended.of(run(job))
