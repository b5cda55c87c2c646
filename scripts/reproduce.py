"""Regenerate the figures of a paper: `python scripts/reproduce.py NAME [--out DIR] [--data_root DIR] [--quick]`."""

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from dpgen import REPRODUCTIONS


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\n")


def main() -> int:
    parser = Parser(description="Regenerate the figures of a paper as pictures and tables.")
    parser.add_argument("name", choices=list(REPRODUCTIONS), help="which paper")
    parser.add_argument("--out", type=Path, help="directory to write (default: runs/reproduce-NAME)")
    parser.add_argument("--data_root", type=Path, help="directory with the public data files, where a figure needs them")
    parser.add_argument("--quick", action="store_true", help="a small version, to see that it works")
    parser.add_argument("--seed", type=int, default=0, help="of public randomness")
    options = parser.parse_args()
    out = options.out or Path("runs") / f"reproduce-{options.name}"
    try:
        reproduce = REPRODUCTIONS[options.name]
        print(reproduce(out, data_root=options.data_root, quick=options.quick, seed=options.seed))
    except (ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
