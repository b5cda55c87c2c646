"""Many runs that differ in a few options, one process each, some at a time."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from tqdm import tqdm

from dpgen.files import write_atomically
from dpgen.privacy.ledger import Ledger, LedgerError

OPTIONS = ("sweep", "sweep_dir", "sweep_jobs")


@dataclass(frozen=True)
class Sweep:
    """The product of some options' values.

    Arguments:
        values: for every swept option, the values it takes.
        fixed: arguments that all runs share.
        directory: holds one run directory per combination, and the table.
        jobs: runs at a time.
    """

    values: dict[str, list[Any]]
    fixed: tuple[str, ...]
    directory: Path
    jobs: int = 1

    def runs(self) -> Iterator[tuple[str, list[str]]]:
        """Name and arguments of every run.

        >>> dict(Sweep({"k": [1, 2]}, ("--steps=3",), Path("out")).runs())["k=2"]
        ['--steps=3', '--k=2', '--run_dir=out/k=2']
        """
        for chosen in product(*self.values.values()):
            pairs = [f"{key}={value}" for key, value in zip(self.values, chosen)]
            name = ",".join(pairs).replace("/", "_")
            yield name, [*self.fixed, *(f"--{pair}" for pair in pairs), f"--run_dir={self.directory / name}"]


def parse_sweep(arguments: Sequence[str]) -> Sweep | None:
    """A sweep, if `--sweep` is among the arguments of a training command.

    `--sweep FILE.yaml` holds a mapping of option names to lists of values; `--sweep "epsilon=1,3;seed=0,1"` says the same.
    `--sweep_dir DIR` (default `runs/sweep`) and `--sweep_jobs N` (default 1) go with it; finished runs are left alone.

    Raises:
        ValueError: in one line, what is wrong.
    """
    own: dict[str, str] = {}
    rest: list[str] = []
    items = list(arguments)
    while items:
        item = items.pop(0)
        key, equals, value = item.removeprefix("--").partition("=")
        if item.startswith("--") and (key := key.replace("-", "_")) in OPTIONS:
            own[key] = value if equals else items.pop(0) if items else ""
        else:
            rest.append(item)
    if "sweep" not in own:
        if own:
            raise ValueError(f"--{next(iter(own))} needs --sweep")
        return None
    jobs = own.get("sweep_jobs", "1")
    if not jobs.isdecimal() or int(jobs) < 1:
        raise ValueError(f"sweep_jobs must be a whole number >= 1, got {jobs!r}")
    if any(item.startswith(("--run_dir", "--run-dir")) for item in rest):
        raise ValueError("run_dir must not be given with --sweep: every run has its own, inside of --sweep_dir")
    return Sweep(_values(own["sweep"]), tuple(rest), Path(own.get("sweep_dir", "runs/sweep")), int(jobs))


def _values(text: str) -> dict[str, list[Any]]:
    path = Path(text)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise ValueError(f"sweep file {text!r} does not exist")
        values = yaml.safe_load(path.read_text())
    else:
        parts = [part.partition("=") for part in text.split(";")]
        values = {key.strip(): [v.strip() for v in listed.split(",") if v.strip()] for key, _, listed in parts}
    if not isinstance(values, dict) or not values or not all(k and isinstance(v, list) and v for k, v in values.items()):
        raise ValueError(f"sweep must give every option a list of values, as in 'epsilon=1,3;seed=0,1', got {text!r}")
    return {str(key): list(listed) for key, listed in values.items()}


@dataclass(frozen=True)
class Result:
    """How one run ended: its exit code (0 also when it had been finished before) and what it wrote."""

    name: str
    code: int
    directory: Path

    def row(self) -> dict[str, Any]:
        """Epsilon and metrics, as far as they exist."""
        row: dict[str, Any] = {"run": self.name, "exit": self.code}
        if (self.directory / "privacy.json").is_file():
            statement = json.loads((self.directory / "privacy.json").read_text())
            row |= {"epsilon": statement["epsilon"], "delta": statement["delta"]}
        if (self.directory / "metrics.json").is_file():
            for score in json.loads((self.directory / "metrics.json").read_text()):
                row[score["name"]] = score["value"]
        return row


def run_sweep(sweep: Sweep, script: Path, *, progress_bar: bool = True) -> tuple[int, str]:
    """Run all of them; the number that failed, and a table with what they cost together.

    Every run spends its own budget on the same records: whoever sees all releases sees the sum.
    """
    sweep.directory.mkdir(parents=True, exist_ok=True)
    runs = list(sweep.runs())

    def start(job: tuple[str, list[str]]) -> Result:
        name, arguments = job
        directory = sweep.directory / name
        if (directory / "privacy.json").exists():
            return Result(name, 0, directory)
        directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(script), *arguments, "--progress_bar=false"]
        with open(directory / "output.log", "a") as log:
            log.write(shlex.join(command) + "\n")
            log.flush()
            code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
        return Result(name, code, directory)

    with ThreadPoolExecutor(sweep.jobs) as pool:
        results = list(tqdm(pool.map(start, runs), total=len(runs), desc="sweep", disable=not progress_bar))
    rows = [result.row() for result in results]
    write_atomically(sweep.directory / "sweep.json", json.dumps(rows, indent=2))
    text = f"{_table(rows)}\n\n{_together(results)}\nlogs and models are in {sweep.directory}"
    write_atomically(sweep.directory / "SWEEP.md", text + "\n")
    return sum(result.code != 0 for result in results), text


def _table(rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = [row.get(column, "") for column in columns]
        lines.append("| " + " | ".join(f"{c:.4g}" if isinstance(c, float) else str(c) for c in cells) + " |")
    return "\n".join(lines)


def _together(results: list[Result]) -> str:
    """What all releases cost somebody who sees all of them: every ledger's charges in one, groups not told apart."""
    total: Ledger | None = None
    for result in results:
        path = result.directory / "ledger.jsonl"
        if not path.is_file():
            continue
        try:
            with Ledger.open(path) as ledger:
                total = total or Ledger(None, delta=ledger.delta, relation=ledger.relation)
                if (ledger.delta, ledger.relation) != (total.delta, total.relation):
                    return "the runs have different delta or relations: what they cost together is not worked out"
                for entry in ledger.entries():
                    total.charge(entry.event, entry.count, note=entry.note)
        except LedgerError as error:
            return f"what the runs cost together is not known: {error}"
    if total is None or not total.entries():
        return "nothing was spent"
    return (
        f"released together, the {len(results)} runs cost eps {total.epsilon():.4g} at delta {total.delta:g} ({total.relation})"
    )
