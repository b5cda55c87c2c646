"""Command line, fits and tables that the papers share."""

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from dpgen import Runtime
from dpgen.cli.main import OneLineParser, exit_code
from dpgen.privacy import Curator
from dpgen.systems import SYSTEMS
from papers import PAPERS

Reproduction = Callable[..., str]
"""`reproduce(out, *, data_root, quick, seed)` writes pictures and tables into `out` and returns a summary."""


def main(arguments: list[str], *, name: str | None = None) -> int:
    """Make the figures of one paper and print the summary; returns the exit code.

    Arguments:
        arguments: of the command line.
        name: key of `PAPERS`; None: the first argument is one.
    """
    return exit_code(lambda: _run(arguments, name))


def _run(arguments: list[str], name: str | None) -> str:
    parser = OneLineParser(description="Regenerate the figures of a paper as pictures and tables.")
    if name is None:
        parser.add_argument("name", choices=list(PAPERS), help="which paper; husain and acs take half an hour")
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
    name = name or options.name
    out: Path = options.out or Path("runs") / f"reproduce-{name}"
    out.mkdir(parents=True, exist_ok=True)
    make: Reproduction = import_module(f"papers.{PAPERS[name]}").reproduce
    return make(out, data_root=options.data_root, quick=options.quick, seed=options.seed)


def quiet_runtime(directory: Path, seed: int) -> Runtime:
    """A run on the CPU that shows nothing and is thrown away."""
    return Runtime(run_dir=directory, seed=seed, accelerator="cpu", progress_bar=False, checkpoint_every=10**6)


def fit_system(name: str, data: Any, runtime: Runtime, *, plan: dict[str, Any], config: dict[str, Any]) -> Any:
    """The release of a system of the registry, under a ledger of its own."""
    system = SYSTEMS[name]
    made = system.plan(**plan)
    return system.fit(data, plan=made, config=system.config(**config), curator=Curator(made.open_ledger()), runtime=runtime)


def write_table(table: pd.DataFrame, path: Path) -> None:
    """A csv that is whole or not there: what is done stays when a run of half an hour is stopped."""
    partial = path.with_suffix(".partial")
    table.to_csv(partial, index=False)
    partial.replace(path)
