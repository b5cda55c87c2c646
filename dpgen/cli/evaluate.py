"""`dpgen evaluate RUN [RUN ...]`: one table, one figure and the guarantees side by side for several finished runs."""

from pathlib import Path

from dpgen.cli.command import OneLineParser


def main(arguments: list[str]) -> str:
    """Compare released models on the same held-out data."""
    parser = OneLineParser(
        "dpgen evaluate", description="One table, one figure and the guarantees side by side for several finished runs."
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="directories of finished runs on the same data")
    parser.add_argument("--out", type=Path, metavar="DIR", help="for comparison.csv, comparison.tex and comparison.png")
    parser.add_argument("--seed", type=int, default=0, help="of the samples and of the classifiers that judge them")
    options = parser.parse_args(arguments)

    from dpgen.cli.comparison import compare

    return compare(options.runs, seed=options.seed, out=options.out).to_text()
