"""The command `dpgen evaluate`, from a checkout: `python scripts/evaluate.py RUN [RUN ...]`."""

import sys

from dpgen.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
