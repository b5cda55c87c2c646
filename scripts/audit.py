"""The command `dpgen audit`, from a checkout: `python scripts/audit.py --model dpgm`."""

import sys

from dpgen.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["audit", *sys.argv[1:]]))
