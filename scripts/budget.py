"""The command `dpgen budget`, from a checkout: `python scripts/budget.py census.budget`."""

import sys

from dpgen.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["budget", *sys.argv[1:]]))
