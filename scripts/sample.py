"""The command `dpgen sample`, from a checkout: `python scripts/sample.py RUN_OR_MODEL_DIR --n 1000 --out synthetic.csv`."""

import sys

from dpgen.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["sample", *sys.argv[1:]]))
