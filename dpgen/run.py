"""One run: read private data, fit within the budget, release, evaluate, say what it cost."""

import warnings
from dataclasses import dataclass
from pathlib import Path

from dpgen.cli import Job
from dpgen.evaluation import Evaluation, evaluator
from dpgen.evaluation.scores import Score
from dpgen.files import write_atomically
from dpgen.release import Release
from dpgen.rundir import open_run
from dpgen.summary import summary


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind."""

    directory: Path
    release: Release
    scores: list[Score]
    summary: str


def run(job: Job) -> Outcome:
    """Data -> fit -> ledger -> release -> evaluate, all of it kept in the run directory.

    Raises:
        ValueError: bad data or options, or the directory belongs to a different or finished run.
        LedgerError: the ledger in the directory is damaged or in use.
    """
    job.runtime.limit_threads()
    with open_run(job) as (directory, runtime, curator):
        data = job.load(directory)
        evaluate, not_covered = evaluator(data)
        release = job.system.fit(data, plan=job.plan, config=job.config, curator=curator, runtime=runtime)
        if not runtime.first:
            raise SystemExit(0)  # this process has done its share of the training; the first one releases
        release.statement = release.statement.extended([*data.notes, not_covered, *job.notes, *runtime.not_covered])
        released = release.write(directory)
        write_atomically(directory / "PRIVACY.md", release.statement.to_markdown())
        evaluation = Evaluation([])
        try:
            evaluation = evaluate(release, data, seed=runtime.seed)
            evaluation.write(directory)
        except Exception as error:  # what was paid for is released, whatever happens to the pictures of it
            warnings.warn(f"the release is complete, but its evaluation failed: {error!r}", stacklevel=2)
        runtime.log_results(job.settings, {score.tag: score.value for score in evaluation.scores})
        write_atomically(directory / "privacy.json", release.statement.to_json())  # last: marks the run as finished
    text = summary(
        f"{job.model} on {data.name}",
        privacy=release.statement.headline(),
        released=[*released, *evaluation.released, "privacy.json"],
        directory=directory,
        scores=evaluation.scores,
        notes=release.statement.not_covered,
        settings=job.base,
    )
    return Outcome(directory, release, evaluation.scores, text)
