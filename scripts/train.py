"""The command `dpgen train`, from a checkout: `python scripts/train.py --model dpgm [--data NAME] [--key value ...]`."""

import sys

from dpgen.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
