"""The command `dpgen budget`, from a checkout: `python scripts/budget.py --sampling_rate 0.0017 --epochs 20 --sigma_sgd 1`."""

import sys

from dpgen.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["budget", *sys.argv[1:]]))
