"""Regenerate the figures of a paper: `python scripts/reproduce.py NAME [--out DIR] [--data_root DIR] [--quick]`."""

import os
import sys
from pathlib import Path

from dpgen import REPRODUCTIONS, OneLineParser, exit_code


def reproduce(arguments: list[str]) -> str:
    parser = OneLineParser(description="Regenerate the figures of a paper as pictures and tables.")
    parser.add_argument("name", choices=list(REPRODUCTIONS), help="which paper; husain and acs take half an hour")
    parser.add_argument("--out", type=Path, metavar="DIR", help="to write (default: runs/reproduce-NAME)")
    parser.add_argument(
        "--data_root",
        type=Path,
        metavar="DIR",
        default=os.environ.get("DPGEN_DATA"),
        help="with the public data files that a figure needs",
    )
    parser.add_argument("--quick", action="store_true", help="a small version, to see that it works")
    parser.add_argument("--seed", type=int, default=0, help="of public randomness")
    options = parser.parse_args(arguments)
    out = options.out or Path("runs") / f"reproduce-{options.name}"
    return REPRODUCTIONS[options.name](out, data_root=options.data_root, quick=options.quick, seed=options.seed)


def main() -> int:
    return exit_code(lambda: reproduce(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
