"""`dpgen report RUN_OR_MODEL_DIR`: one page about a run or a released model."""

from pathlib import Path

from dpgen.cli.main import NETWORK, Ended, OneLineParser
from dpgen.options import require_writable


def parser() -> OneLineParser:
    result = OneLineParser("dpgen report", description="One HTML page about a run or a released model; needs no private data.")
    result.add_argument("run", type=Path, help="directory of a run or of a released model")
    result.add_argument("--out", type=Path, metavar="FILE", help="the page (default report.html in the directory)")
    result.add_argument("--public", action="store_true", help="leave out what was computed on private records without noise")
    result.add_argument("--network", **NETWORK)
    return result


def main(arguments: list[str]) -> Ended:
    """Write the report, say where it is and who may see it."""
    options = parser().parse_args(arguments)

    from dpgen.report import report
    from dpgen.statement import UNPROTECTED

    if options.out is not None:
        require_writable(options.out, "out")
    path = report(options.run, options.out, public=options.public)
    text = f"{path}: for publication" if options.public else f"{path}: what is red on it was {UNPROTECTED}"
    return Ended(text, values={"page": path, "public": options.public})
