"""One run: read private records, fit within the budget, release, evaluate, say what it cost."""

from dataclasses import dataclass
from pathlib import Path

from dpgen.cli import Job
from dpgen.evaluate import NOT_COVERED, evaluate
from dpgen.files import write_atomically
from dpgen.release import PublicModel
from dpgen.report import Score, metrics_json, metrics_markdown, samples_figure, summary
from dpgen.rundir import open_run


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind."""

    directory: Path
    release: PublicModel
    scores: list[Score]
    summary: str


def run(job: Job) -> Outcome:
    """Data -> fit -> ledger -> release -> evaluate, all of it kept in the run directory.

    Raises:
        ValueError: bad data or options, or the directory belongs to a different or finished run.
        LedgerError: the ledger in the directory is damaged or in use.
    """
    records = job.load()
    with open_run(job) as (directory, runtime, ledger):
        release = job.system.fit(records, plan=job.plan, config=job.config, ledger=ledger, runtime=runtime)
        release.statement = release.statement.extended([*records.notes, NOT_COVERED])
        release.save(directory / "model")
        scores, samples = evaluate(release, records, seed=runtime.seed)
        samples.save(directory / "samples.npz")
        samples_figure(records.test_x, samples.by_cluster(), records.image_shape, directory / "samples.png")
        write_atomically(directory / "metrics.json", metrics_json(scores))
        write_atomically(directory / "METRICS.md", metrics_markdown(scores))
        write_atomically(directory / "PRIVACY.md", release.statement.to_markdown())
        write_atomically(directory / "privacy.json", release.statement.to_json())  # last: marks the run as finished
    text = summary(
        f"{job.model} on {records.name}",
        privacy=release.statement.headline(),
        released=["model/", "samples.npz", "privacy.json"],
        directory=directory,
        scores=scores,
        notes=release.statement.not_covered,
    )
    return Outcome(directory, release, scores, text)
