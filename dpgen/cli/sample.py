"""`dpgen sample RUN_OR_MODEL_DIR`: records from a released model."""

import inspect
import json
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

from dpgen.cli.main import NETWORK, Ended, OneLineParser, guarantee_values
from dpgen.files import DRAWS
from dpgen.options import require_writable


def parser() -> OneLineParser:
    result = OneLineParser("dpgen sample", description="Draw synthetic records from a released model; this costs no privacy.")
    result.add_argument("model", type=Path, help="directory of a run or of a released model")
    result.add_argument("--n", type=int, default=1000, help="number of records (default 1000)")
    result.add_argument(
        "--out",
        metavar="FILE",
        help=".csv, .parquet, .npz or FILE.duckdb::TABLE (default synthetic.npz, of a table .csv); - prints csv; "
        "a folder becomes a Data Package, of linked tables, too, which also go into FILE.duckdb",
    )
    result.add_argument("--clusters", type=_whole_numbers, metavar="C,C", help="draw from these clusters only")
    rows = 'rows of a table given values: {"sex": "female", "age": {"minimum": 60}}'
    result.add_argument("--given", type=_given, metavar="JSON", help=rows)
    result.add_argument("--rows", help="of a table: iid, or matched, whose counts are close to the model's")
    result.add_argument("--seed", type=int, help="for reproducible draws")
    result.add_argument("--network", **NETWORK)
    return result


def _chosen(options: Any, model: Any) -> dict[str, Any]:
    """Kind of draws, as far as the model can choose it."""
    chosen = {name: getattr(options, name) for name in ("clusters", "given", "rows") if getattr(options, name) is not None}
    for name, value in chosen.items():
        if name not in inspect.signature(model.samples).parameters:
            raise ValueError(f"{name} is {value}; {options.model} holds a {model.kind} model, which has none")
    return chosen


def _usual_place(samples: Any) -> str:
    from dpgen.samples import ColumnSamples, LinkedSamples

    if isinstance(samples, LinkedSamples):
        return "synthetic"
    return "synthetic.csv" if isinstance(samples, ColumnSamples) else "synthetic.npz"


def main(arguments: list[str]) -> Ended | int:
    """Draw records, write them, say what they cost."""
    options = parser().parse_args(arguments)

    from dpgen.samples import ColumnSamples, LinkedSamples
    from dpgen.systems.registry import load

    printed = options.out == "-"
    if options.out is not None and not printed:
        place = Path(options.out.partition("::")[0])
        require_writable(place, "out", directory=not place.suffix)
    if (options.model / DRAWS).is_file():
        raise ValueError(f"{options.model} holds private draws: all that were paid for are in {options.model / DRAWS}")
    model = load(options.model)
    samples = model.samples(options.n, random_state=options.seed, **_chosen(options, model))
    if isinstance(samples, LinkedSamples) and printed:
        raise ValueError("out is '-'; it must name a folder: linked tables are a file each")
    samples = samples.for_files(model.form) if isinstance(samples, ColumnSamples) else samples
    paid = f"{model.statement.in_words()}, already paid"
    if printed:
        sys.stdout.write(samples.encoded(".csv").decode())
        sys.stderr.write(f"{options.n} records; {paid}\n")
        return 0
    out = options.out or _usual_place(samples)
    samples.save(out)
    values = {"records": options.n, "file": out, **guarantee_values(model.statement)}
    return Ended(f"{options.n} records in {out}; {paid}", values=values)


def _whole_numbers(text: str) -> list[int]:
    """A list of whole numbers as a command line writes it."""
    try:
        return [int(part) for part in text.removeprefix("[").removesuffix("]").split(",")]
    except ValueError:
        raise ArgumentTypeError(f"clusters is {text!r}; it must be whole numbers with commas between them") from None


def _given(text: str) -> dict[str, Any]:
    """Values of columns by name, as JSON."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ArgumentTypeError(f'given is {text!r}; it must be JSON such as {{"sex": "female"}}')
    return found
