"""`dpgen evaluate RUN`: evaluate a run again, into its directory, or compare several on the same held-out data.

`dpgen compare REAL SYNTHETIC`: two tables side by side by their values, for the output of any package.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgen.cli.main import NETWORK, Ended, OneLineParser, aligned, guarantee_values
from dpgen.config import RunConfig, parse_job
from dpgen.files import MODEL, STATEMENT
from dpgen.statement import PrivacyStatement, rounded_up

if TYPE_CHECKING:
    from dpgen.evaluation.scores import Score


def parser() -> OneLineParser:
    result = OneLineParser(
        "dpgen evaluate",
        description="Of one run: its scores and pictures again, written into its directory. Of several: one table of scores "
        "and guarantees side by side.",
    )
    result.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="directories of runs, several on the same data")
    result.add_argument("--seed", type=int, default=0, help="of the samples and classifiers of a comparison (default 0)")
    result.add_argument(
        "--evaluation", choices=("quick", "full"), default="full", help="samples of the records, or all of them (default full)"
    )
    result.add_argument("--fid_weights", metavar="FILE", help="torchvision's Inception v3, for distances of images of one run")
    result.add_argument("--network", **NETWORK)
    return result


def main(arguments: list[str]) -> Ended:
    """The scores of one run, or one table for several on the same held-out data."""
    options = parser().parse_args(arguments)
    if len(options.runs) > 1:
        found = compare_runs(options.runs, seed=options.seed, full=options.evaluation == "full")
        return Ended(found.to_text(), values=found.values)
    from dpgen.run import run

    return Ended.of(run(job_of(options.runs[0], evaluation=options.evaluation, fid_weights=options.fid_weights), again=True))


GUARANTEE = ("relation", "unit", "delta")
"""Fields of a statement that two runs must share for their scores to be ranked."""


@dataclass(frozen=True)
class Entry:
    """One run in a comparison."""

    name: str
    statement: PrivacyStatement
    scores: "list[Score]"


@dataclass(frozen=True)
class Comparison:
    """Scores of several releases on one data set, by name; the runs are in the order given."""

    data: str
    entries: list[Entry]

    @property
    def differences(self) -> list[str]:
        """In what the guarantees differ: with any of these, the figures are not a ranking."""
        found = []
        for name in GUARANTEE:
            values = {str(getattr(entry.statement, name)) for entry in self.entries}
            if len(values) > 1:
                found.append(f"{name}: {', '.join(sorted(values))}")
        spent = [entry.statement.epsilon for entry in self.entries]
        if max(spent) > 1.01 * min(spent):
            found.append(f"epsilon: {', '.join(rounded_up(value) for value in spent)}")
        return found

    def rows(self) -> list[list[str]]:
        """The table, header first: statements, then a line for each measure; the best is starred where ranking is fair."""
        stated = [entry.statement for entry in self.entries]
        lines = [["", *(entry.name for entry in self.entries)], ["epsilon", *(rounded_up(own.epsilon) for own in stated)]]
        lines += [[name, *(str(getattr(own, name)) for own in stated)] for name in GUARANTEE]
        scores = [{score.name: score for score in entry.scores} for entry in self.entries]
        names = dict.fromkeys(chain.from_iterable(scores))
        return [*lines, *(self._line(name, [own.get(name) for own in scores]) for name in names)]

    def _line(self, name: str, scores: "Sequence[Score | None]") -> list[str]:
        """The line of a measure, by runs; None: the run does not have it."""
        known = [score for score in scores if score is not None]
        best = (max if known[0].better == "higher" else min)(score.value for score in known)
        star = best if not self.differences and len(known) > 1 else None
        cells = ["-" if score is None else f"{score.value:.4g}{'*' * (score.value == star)}" for score in scores]
        return [f"{name} ({known[0].better})", *cells]

    def to_text(self) -> str:
        """The comparison as an aligned table for a terminal."""
        from dpgen.evaluation.scores import marks

        shown = marks(score for entry in self.entries for score in entry.scores)
        return "\n".join([f"compared on {self.data}", "", *aligned(self.rows()), "", self.verdict, *shown])

    @property
    def values(self) -> dict[str, Any]:
        """The comparison for `--json`."""
        runs = [{"name": e.name, **guarantee_values(e.statement), "scores": e.scores} for e in self.entries]
        return {"data": self.data, "runs": runs, "ranked": not self.differences, "verdict": self.verdict}

    @property
    def verdict(self) -> str:
        """Whether the figures may be read as a ranking."""
        if not self.differences:
            return "* best of the runs, at equal guarantees"
        return f"not a ranking, the guarantees differ in {'; '.join(self.differences)}"


def compare_runs(runs: Sequence[Path], *, seed: int = 0, full: bool = True, progress_bar: bool = True) -> Comparison:
    """Evaluate the released models of several runs on the held-out data of the first."""
    from tqdm.auto import tqdm

    from dpgen.evaluation import evaluate
    from dpgen.systems.registry import load

    if not runs:
        raise ValueError("runs is empty: give at least one run directory")
    jobs = [job_of(run) for run in runs]
    first = jobs[0].settings["data"]
    for run, job in zip(runs, jobs):
        if not (run / STATEMENT).is_file():
            raise ValueError(f"{run} is no finished run: {STATEMENT} is missing")
        if (own := job.settings["data"]) != first:
            raise ValueError(f"{run} was made on {own}, {runs[0]} on {first}: data must be the same")
        if not (run / MODEL).is_dir():
            raise ValueError(f"{run} released draws and no model: its own scores are in METRICS.md")
    models = [load(run / MODEL) for run in runs]
    _require_one_split(runs, jobs)
    data = jobs[0].load(runs[0])
    entries, hidden = [], None if progress_bar else True
    for run, job, model in tqdm(list(zip(runs, jobs, models)), desc="evaluating", disable=hidden, leave=False):
        evaluation = evaluate(model, data, seed=seed, full=full)
        entries.append(Entry(f"{run.name} ({job.model.name})", model.statement, evaluation.scores))
    return Comparison(data.name, entries)


def job_of(run: Path, *, evaluation: str = "full", fid_weights: str | None = None) -> RunConfig:
    """The job of a run, to read its data and to evaluate it on this machine."""
    path = run / "config.yaml"
    if not path.is_file():
        raise ValueError(f"{run} is no run: config.yaml is missing")
    # What the run was evaluated with the first time may be gone.
    given = ("--accelerator=auto", "--devices=1", "--num_nodes=1", f"--run_dir={run}", f"--evaluation={evaluation}")
    return parse_job(["--config", str(path), *given, f"--fid_weights={fid_weights or 'null'}"])


def _require_one_split(runs: Sequence[Path], jobs: Sequence[RunConfig]) -> None:
    """Refuse runs some of which were trained on what others have for evaluation."""
    from dpgen.data.split import secret_key

    paths = [job.split_key(run) for run, job in zip(runs, jobs)]  # each by its own options
    keys = [None if path is None else secret_key(path, create=False) for path in paths]
    for run, key in zip(runs, keys):
        if key != keys[0]:
            raise ValueError(
                f"{run} and {runs[0]} were split by different secret keys, so one was trained on the other's test records: "
                "runs that are to be compared need one --split_key FILE or a --test_path"
            )


def compare_parser() -> OneLineParser:
    result = OneLineParser("dpgen compare", description="Scores of synthetic rows against real ones; or two runs of tables.")
    result.add_argument(
        "real", metavar="REAL", help="csv, tsv (plain or .gz) or parquet; the datapackage.json of linked tables; or a run"
    )
    result.add_argument(
        "synthetic", metavar="SYNTHETIC", help="rows with the same columns, the folder of such a package, or another run"
    )
    result.add_argument("--schema", type=Path, metavar="FILE", help="which values are valid, and the column to predict")
    result.add_argument("--target", metavar="COLUMN", help="column to predict")
    result.add_argument(
        "--holdout", metavar="FILE", help="real rows that the synthetic ones were not made of; a package like REAL"
    )
    result.add_argument("--attacks", action="store_true", help="attack the synthetic rows, too; needs --holdout")
    result.add_argument("--epsilon", type=float, help="of the release: its bound stands beside each attack")
    result.add_argument("--delta", type=float, default=0.0, help="of the release (default 0)")
    result.add_argument("--sdmetrics", action="store_true", help="SDMetrics' quality report of the same rows, too")
    result.add_argument("--out", type=Path, metavar="FILE", help="page with all scores and a picture of every column")
    result.add_argument("--seed", type=int, default=0, help="of the real rows that are held out (default 0)")
    return result


def compare(arguments: list[str]) -> Ended:
    """The scores; with --out they and the pictures are on a page, too."""
    options = compare_parser().parse_args(arguments)
    if options.out is not None:
        from dpgen.options import require_writable

        require_writable(options.out, "out")
    if Path(options.real).is_dir():
        return _nights(options)
    from dpgen.data.kinds import PACKAGE

    if Path(options.real).name == PACKAGE:
        return _linked(options)
    from dpgen.evaluation import compare as tables
    from dpgen.statement import UNPROTECTED

    names = ("schema", "target", "holdout", "attacks", "epsilon", "delta", "sdmetrics", "seed")
    found = tables.compare(options.real, options.synthetic, **{name: getattr(options, name) for name in names})
    page = "" if options.out is None else f"\n{found.save(options.out)}: {UNPROTECTED}"
    listed = {"rules": found.rules.to_dict("records"), "columns": found.columns.to_dict("records")}
    values = {"scores": found.scores, **listed, "page": options.out, "not_for_publication": UNPROTECTED}
    return Ended(f"{found}{page}", values=values)


def _require_left_out(options: Any, what: str, *names: str) -> None:
    """Options of others alone are left out."""
    for name in names:
        if getattr(options, name):
            raise ValueError(f"{name} must be left out: {what}")


def _nights(options: Any) -> Ended:
    _require_left_out(
        options, f"{options.real} is a run", "schema", "target", "holdout", "attacks", "epsilon", "delta", "sdmetrics"
    )
    from dpgen.evaluation.drift import drift

    found = drift(options.real, options.synthetic)
    page = "" if options.out is None else f"\n{found.save(options.out)}"
    return Ended("\n".join(aligned(list(found.lines()))) + page, values={**found.values, "page": options.out})


def _linked(options: Any) -> Ended:
    _require_left_out(options, "REAL is a Data Package", "schema", "target")
    from dpgen.evaluation.attacks import UNFOUND, attack_of
    from dpgen.evaluation.linked import comparison
    from dpgen.statement import UNPROTECTED

    bound = options.epsilon, options.delta
    asked = options.attacks or bound != (None, 0.0)
    attack = attack_of(options.attacks, options.holdout, *bound, options.seed) if asked else None
    holdout = None if options.holdout is None else Path(options.holdout)
    files = Path(options.real), Path(options.synthetic)
    quality = None
    if options.sdmetrics:
        from dpgen.evaluation.quality import of_tables, report_class

        quality = partial(of_tables, report_class("multi_table"))
    found = comparison(*files, seed=options.seed, out=options.out, holdout=holdout, attack=attack, quality=quality)
    page = "" if options.out is None else f"\n{options.out}: {UNPROTECTED}"
    told = "" if attack is None else f"\n\n- {UNFOUND}"
    values = {
        "scores": found.scores,
        "successive": found.lines,
        "page": options.out,
        "not_for_publication": UNPROTECTED,
    }
    return Ended(f"{found}{told}{page}", values=values)
