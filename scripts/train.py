"""Train a system on private data and release it: `python scripts/train.py --model dpgm [--data NAME] [--key value ...]`.

`--dry_run [NxD[xLABELS]]` only says what would run, cost and need. `--sweep FILE.yaml` or `--sweep "epsilon=1,3;seed=0,1"`
runs every combination, `--sweep_jobs` at a time, in `--sweep_dir`.
"""

import logging
import sys
import warnings
from pathlib import Path

from dpgen import (
    BudgetExceeded,
    LedgerError,
    Preempted,
    RemoteFailure,
    dry_run,
    parse_job,
    parse_sweep,
    run,
    run_sweep,
    split_dry_run,
    usage,
)

CONFIGS = Path(__file__).parent.parent / "configs"


def train(arguments: list[str]) -> int:
    if sweep := parse_sweep(arguments):
        failed, text = run_sweep(sweep, Path(__file__))
        print(text)
        return 1 if failed else 0
    if planned := split_dry_run(arguments):
        rest, size = planned
        print(dry_run(parse_job(rest, config_root=CONFIGS), size))
        return 0
    print(run(parse_job(arguments, config_root=CONFIGS)).summary)
    return 0


def main() -> int:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__, usage(), sep="\n")
        return 0
    warnings.filterwarnings("ignore", module="lightning")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        return train(sys.argv[1:])
    except (ValueError, LedgerError, BudgetExceeded, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except Preempted as stop:
        print(stop, file=sys.stderr)
        return 75  # of the many exit codes, the one that says: try again
    except RemoteFailure:
        return 0  # the first process says why


if __name__ == "__main__":
    sys.exit(main())
