"""Train a system on private data and release it: `python scripts/train.py --model dpgm [--data NAME] [--key value ...]`."""

import sys
from pathlib import Path

import dpgen

CONFIGS = Path(__file__).parent.parent / "configs"


def train(arguments: list[str]) -> str | int:
    command = dpgen.parse_command(arguments)
    if command.help:
        return dpgen.usage(command.job_arguments, config_root=CONFIGS)
    if command.sweep is not None:
        sweep = command.sweep.check(lambda arguments: dpgen.parse_job(arguments, config_root=CONFIGS))
        failed, text = dpgen.run_sweep(sweep, Path(__file__))
        print(text)
        return 1 if failed else 0
    job = dpgen.parse_job(command.job_arguments, config_root=CONFIGS)
    return dpgen.run(job).summary if command.dry_run is None else dpgen.dry_run(job, command.dry_run)


def main() -> int:
    return dpgen.exit_code(lambda: train(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
