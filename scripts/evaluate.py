"""Compare released models on the same held-out data: `python scripts/evaluate.py RUN [RUN ...] [--out DIR]`."""

import sys
from pathlib import Path

import dpgen


def evaluate(arguments: list[str]) -> str:
    parser = dpgen.OneLineParser(description="One table, one figure and the guarantees side by side for several finished runs.")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="directories of finished runs on the same data")
    parser.add_argument("--out", type=Path, metavar="DIR", help="for comparison.csv, comparison.tex and comparison.png")
    parser.add_argument("--seed", type=int, default=0, help="of the samples and of the classifiers that judge them")
    options = parser.parse_args(arguments)
    return dpgen.compare(options.runs, seed=options.seed, out=options.out).to_text()


def main() -> int:
    return dpgen.exit_code(lambda: evaluate(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
