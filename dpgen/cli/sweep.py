"""Many runs that differ in a few options, one process each, some at a time."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from dpgen.cli.main import Ended
from dpgen.files import is_finished, write_atomically
from dpgen.options import list_items, read_yaml, typed
from dpgen.privacy.ledger import Budget, Ledger, LedgerError
from dpgen.privacy.mechanisms import require_positive, require_whole, require_within
from dpgen.statement import UNPROTECTED, guarantee, rounded_up, shared_in_words


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Options of a sweep.

    Arguments:
        sweep: run every combination of "epsilon=1,3;seed=0,1", or of the lists in a YAML file
        sweep_jobs: so many of them at a time (1)
        sweep_dir: with a directory for each (runs/sweep)
        sweep_select: release the best of a secret number of them alone, by a paid score, and pay for the choice: counts
        sweep_runs: of so many runs on average (10), each of a combination drawn at random
        sweep_noise: noise of the score, a mean error of counts, in records (20)
        sweep_epsilon: refuse a selection that costs more
    """

    sweep: str
    sweep_jobs: int = 1
    sweep_dir: Path = Path("runs/sweep")
    sweep_select: Literal["counts"] | None = None
    sweep_runs: float = 10.0
    sweep_noise: float = 20.0
    sweep_epsilon: float | None = None

    def __post_init__(self) -> None:
        require_whole("sweep_jobs", self.sweep_jobs)
        require_within("sweep_runs", self.sweep_runs, (2.0, 1000.0), ", the expected number of runs")
        require_positive("sweep_noise", self.sweep_noise)
        if self.sweep_epsilon is not None:
            require_positive("sweep_epsilon", self.sweep_epsilon)
        if self.sweep_select is not None and self.sweep_jobs != 1:
            raise ValueError(f"sweep_jobs is {self.sweep_jobs}; it must be 1 with sweep_select, whose number of runs is secret")


@dataclass(frozen=True)
class Sweep:
    """The product of some options' values, with options that all runs share.

    `options.sweep_dir` holds one run directory per combination, and the table. The runs named in `sharing` split their records
    by the one secret key there: none is trained on what another one has for evaluation.
    """

    values: Mapping[str, Sequence[Any]]
    fixed: Mapping[str, str]
    options: SweepOptions
    sharing: frozenset[str] = frozenset()

    @property
    def directory(self) -> Path:
        return self.options.sweep_dir

    def runs(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Name and options of every run.

        >>> dict(Sweep({"k": [1, 2]}, {"steps": "3"}, SweepOptions(sweep="k=1,2")).runs())["k=2"]
        {'steps': '3', 'k': '2', 'run_dir': 'runs/sweep/k=2'}
        """
        from dpgen.data.split import KEY_FILE  # here and below: reading a command line needs no torch

        for chosen in product(*self.values.values()):
            own = {key: str(value) for key, value in zip(self.values, chosen)}
            name = ",".join(f"{key}={value}" for key, value in own.items()).replace("/", "_")
            key = {"split_key": str(self.directory / KEY_FILE)} if name in self.sharing else {}
            yield name, {**self.fixed, **own, "run_dir": str(self.directory / name), **key}

    def check(self, parse: Callable[[Mapping[str, str]], Any]) -> "Sweep":
        """Read the options of every run, so that a wrong one is found before the first starts; the sweep, with one key."""
        from dpgen.data.split import KEY_FILE

        seen: set[str] = set()
        sharing: set[str] = set()
        for name, options in self.runs():
            if name in seen:
                raise ValueError(f"the sweep has the run {name} twice")
            seen.add(name)
            if parse_run(name, options, parse).split_key(self.directory / name) == self.directory / name / KEY_FILE:
                sharing.add(name)
        return replace(self, sharing=frozenset(sharing))


def parse_run(name: str, options: Mapping[str, str], parse: Callable[[Mapping[str, str]], Any]) -> Any:
    """One run of a sweep, by whose name what is wrong with it is refused."""
    try:
        return parse(options)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def parse_sweep(options: Mapping[str, str], fixed: Mapping[str, str]) -> Sweep | None:
    """A sweep, if the options of a training command ask for one, with options that all runs share.

    "sweep" is a YAML file with a mapping of option names to lists of values, or the same as in `epsilon=1,3;seed=0,1`.
    """
    if "sweep" not in options:
        if options:
            raise ValueError(f"--{next(iter(options))} needs --sweep")
        return None
    made = SweepOptions(**typed({"sweep": SweepOptions}, options)["sweep"])
    of_selection = [name for name in ("sweep_runs", "sweep_noise", "sweep_epsilon") if name in options]
    if of_selection and made.sweep_select is None:
        raise ValueError(f"{of_selection[0]} needs --sweep_select")
    values = _values(made.sweep)
    for name in (name for name in ("run_dir", *values) if name in fixed):
        raise ValueError(f"{name} must not be given with --sweep, which sets it for every run")
    if "run_dir" in values:
        raise ValueError("run_dir must not be swept: every run has its own, inside of --sweep_dir")
    return Sweep(values, fixed, made)


def _values(text: str) -> dict[str, list[Any]]:
    path = Path(text)
    if path.suffix in (".yaml", ".yml"):
        values = read_yaml(path, "sweep file")
        pairs = list(values.items()) if isinstance(values, dict) else []
    else:
        parts = [part.partition("=") for part in text.split(";")]
        pairs = [(key.strip(), [item for item in list_items(listed) if item]) for key, _, listed in parts]
    if not pairs or not all(key and isinstance(listed, list) and listed for key, listed in pairs):
        raise ValueError(f"sweep must give every option a list of values, as in 'epsilon=1,3;seed=0,1', got {text!r}")
    named: dict[str, list[Any]] = {}
    for key, listed in pairs:
        name = str(key).replace("-", "_")
        if name in named:
            raise ValueError(f"{name} is given twice in the sweep")
        named[name] = list(listed)
    return named


@dataclass(frozen=True)
class Result:
    """End of one run: its exit code (0 also when it had been finished before) and what it wrote."""

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
            scores = json.loads((self.directory / "metrics.json").read_text())
            row |= {score["name"]: score["value"] for score in scores}
            if any(score.get("status", UNPROTECTED) for score in scores):
                row["status"] = UNPROTECTED
        return row


TRAIN = (sys.executable, "-m", "dpgen", "train")


def run_sweep(sweep: Sweep, command: Sequence[str] = TRAIN) -> Ended:
    """Run all of them by `command`; a table with what they cost together, and exit code 1 if one of them failed.

    Every run spends its own budget on the same records: whoever sees all releases sees the sum.
    """
    from tqdm import tqdm

    from dpgen.evaluation.scores import markdown_table

    sweep.directory.mkdir(parents=True, exist_ok=True)
    runs = list(sweep.runs())

    def start(job: tuple[str, dict[str, str]]) -> Result:
        name, options = job
        directory = sweep.directory / name
        if is_finished(directory):
            return Result(name, 0, directory)
        directory.mkdir(parents=True, exist_ok=True)
        whole = [*command, *(f"--{key}={value}" for key, value in ({"progress_bar": "false"} | options).items())]
        with open(directory / "output.log", "a") as log:
            log.write(shlex.join(whole) + "\n")
            log.flush()
            code = subprocess.run(whole, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
        return Result(name, code, directory)

    with ThreadPoolExecutor(sweep.options.sweep_jobs) as pool:
        results = list(tqdm(pool.map(start, runs), total=len(runs), desc="sweep", disable=None))
    rows = [result.row() for result in results]
    write_atomically(sweep.directory / "sweep.json", json.dumps(rows, indent=2))
    columns = list(dict.fromkeys(key for row in rows for key in row if key != "status"))
    for row in rows:
        row |= {name: rounded_up(row[name]) for name in ("epsilon", "delta") if name in row}
    table = markdown_table(columns, [[row.get(column, "") for column in columns] for row in rows])
    marked = f"\nscores: {UNPROTECTED}" if any("status" in row for row in rows) else ""
    cost = "\n".join([_together(results), *_from_shared(results)])
    text = f"{table}\n{marked}\n{cost}\nlogs and models are in {sweep.directory}"
    write_atomically(sweep.directory / "SWEEP.md", text + "\n")
    return Ended(text, int(any(result.code for result in results)))


def _together(results: list[Result]) -> str:
    """Guarantee of all releases together, against somebody who sees all of them.

    The sweep fixed all of its runs before the first of them began, so their declared plans are one plan: exact accounting
    holds for their union, groups not told apart. A run that chose something along the way counts with its whole budget
    (epsilons and deltas of runs add up: basic composition).
    """
    total: Ledger | None = None
    budgets: list[Budget] = []
    for result in results:
        path = result.directory / "ledger.jsonl"
        if not path.is_file():
            continue
        try:
            with Ledger.open(path) as ledger:
                total = total or Ledger(None, delta=ledger.delta, **ledger.terms)
                if (ledger.delta, ledger.relation, ledger.unit) != (total.delta, total.relation, total.unit):
                    return "the runs differ in delta, relation or unit: what they cost together is not worked out"
                if ledger.budget is not None and ledger.chosen_later:
                    budgets.append(ledger.budget)
                else:
                    total.declare([replace(line, note=f"{result.name}: {line.note}", group=None) for line in ledger.promised()])
        except LedgerError as error:
            return f"what the runs cost together is not known: {error}"
    if total is None or not (total.promised() or budgets):
        return "nothing was spent"
    epsilon = total.epsilon() + sum(budget.epsilon for budget in budgets)
    delta = total.delta * bool(total.promised()) + sum(budget.delta for budget in budgets)
    return f"released together, the {len(results)} runs cost {guarantee(epsilon, delta, total.relation, total.unit)}"


def _from_shared(results: list[Result]) -> list[str]:
    """A line on the budget that the runs have paid from, where they share one with others, or none."""
    for path in (result.directory / "ledger.jsonl" for result in results):
        if path.is_file():
            with suppress(LedgerError), Ledger.open(path) as ledger:  # a damaged one is named above
                return [] if ledger.payer is None else [shared_in_words(ledger.payer.statement())]
    return []
