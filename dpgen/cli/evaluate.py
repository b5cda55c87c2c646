"""`dpgen evaluate RUN`: evaluate a run again, into its directory; with several runs, compare them."""

from pathlib import Path

from dpgen.cli.command import NETWORK, Ended, OneLineParser


def parser() -> OneLineParser:
    result = OneLineParser(
        "dpgen evaluate",
        description="Of one run: its scores and pictures again, written into its directory. Of several, or with --out: one "
        "table, one figure and the guarantees side by side.",
    )
    result.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="directories of runs, several on the same data")
    result.add_argument("--out", type=Path, metavar="DIR", help="for comparison.csv and comparison.png")
    result.add_argument("--seed", type=int, default=0, help="of the samples and classifiers of a comparison (default 0)")
    result.add_argument(
        "--evaluation", choices=("quick", "full"), default="full", help="samples of the records, or all of them (default full)"
    )
    result.add_argument("--fid_weights", metavar="FILE", help="torchvision's Inception v3, for distances of images of one run")
    result.add_argument("--network", **NETWORK)
    return result


def main(arguments: list[str]) -> str | Ended:
    """The scores of one run, or one table for several on the same held-out data."""
    options = parser().parse_args(arguments)
    full = options.evaluation == "full"
    if len(options.runs) > 1 or options.out is not None:
        from dpgen.cli.comparison import compare_runs

        return compare_runs(options.runs, seed=options.seed, out=options.out, full=full).to_text()

    from dpgen.cli.comparison import job_of
    from dpgen.run import run

    return Ended.of(run(job_of(options.runs[0], evaluation=options.evaluation, fid_weights=options.fid_weights), again=True))
