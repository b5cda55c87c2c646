"""Compare released models on the same held-out data: `python scripts/evaluate.py RUN [RUN ...] [--out DIR]`."""

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from dpgen import compare


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\n")


def main() -> int:
    parser = Parser(description="One table, one figure and the guarantees side by side for several finished runs.")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="directories of finished runs on the same data")
    parser.add_argument("--out", type=Path, help="directory for comparison.csv, comparison.tex and comparison.png")
    parser.add_argument("--seed", type=int, default=0, help="of the samples and of the classifiers that judge them")
    options = parser.parse_args()
    try:
        comparison = compare(options.runs, seed=options.seed)
        if options.out is not None:
            comparison.write(options.out)
    except (ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(comparison.to_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
