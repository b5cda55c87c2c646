"""Train a system on private data and release it: `python scripts/train.py --model dpgm [--data NAME] [--key value ...]`."""

import logging
import sys
import warnings
from pathlib import Path

from dpgen import BudgetExceeded, LedgerError, parse_job, run, usage

CONFIGS = Path(__file__).parent.parent / "configs"


def main() -> int:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(usage())
        return 0
    warnings.filterwarnings("ignore", module="lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    try:
        print(run(parse_job(sys.argv[1:], config_root=CONFIGS)).summary)
    except (ValueError, LedgerError, BudgetExceeded, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
