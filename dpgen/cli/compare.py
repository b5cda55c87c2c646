"""`dpgen compare REAL SYNTHETIC`: two tables side by side by their values, for the output of any package."""

from pathlib import Path
from typing import Any

from dpgen.cli.main import Ended, OneLineParser


def parser() -> OneLineParser:
    result = OneLineParser("dpgen compare", description="Scores of synthetic rows against real ones, by values.")
    result.add_argument(
        "real", metavar="REAL", help="csv, tsv (plain or .gz) or parquet; or the datapackage.json of linked tables"
    )
    result.add_argument("synthetic", metavar="SYNTHETIC", help="rows with the same columns, or the folder of such a package")
    result.add_argument("--schema", type=Path, metavar="FILE", help="which values are valid, and the column to predict")
    result.add_argument("--target", metavar="COLUMN", help="column to predict")
    result.add_argument("--out", type=Path, metavar="FILE", help="page with all scores and a picture of every column")
    result.add_argument("--seed", type=int, default=0, help="of the real rows that are held out (default 0)")
    return result


def main(arguments: list[str]) -> Ended:
    """The scores; with --out they and the pictures are on a page, too."""
    options = parser().parse_args(arguments)
    if options.out is not None:
        from dpgen.options import require_writable

        require_writable(options.out, "out")
    from dpgen.data.packages import PACKAGE

    if Path(options.real).name == PACKAGE:
        return _linked(options)
    from dpgen.evaluation.compare import compare
    from dpgen.statement import UNPROTECTED

    found = compare(options.real, options.synthetic, options.schema, target=options.target, seed=options.seed)
    page = "" if options.out is None else f"\n{found.save(options.out)}: {UNPROTECTED}"
    values = {"scores": found.scores, "columns": found.columns.to_dict("records"), "page": options.out}
    return Ended(f"{found}{page}", values=values)


def _linked(options: Any) -> Ended:
    for name in ("schema", "target", "out"):
        if getattr(options, name) is not None:
            raise ValueError(f"{name} must be left out: REAL is a Data Package")
    from dpgen.evaluation.linked import compared
    from dpgen.evaluation.scores import metrics_markdown

    scores = compared(Path(options.real), Path(options.synthetic), seed=options.seed)
    return Ended(metrics_markdown(scores), values={"scores": scores})
