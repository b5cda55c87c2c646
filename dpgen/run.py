"""One run: read private data, fit within the budget, release, evaluate, summarise.

Its directory is created once, resumed if unfinished, and never shared by two runs or two configurations.
"""

import platform
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from shutil import rmtree
from typing import Any

import yaml

from dpgen.cli.jobs import Job
from dpgen.data.split import await_key, secret_key
from dpgen.evaluation import Evaluation, evaluator
from dpgen.evaluation.scores import Score, marks, number
from dpgen.files import remove_leftovers, write_atomically
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.release import Release
from dpgen.runtime import Runtime
from dpgen.statement import guarantee, rounded_up

# -- summary -----------------------------------------------------------------------------------------------------------


_SPENT = ("epsilon", "delta", "relation", "unit")


def summary(
    title: str,
    *,
    privacy: Mapping[str, Any],
    released: Sequence[str],
    directory: Path | str,
    scores: Sequence[Score] = (),
    notes: Sequence[str] = (),
    settings: Path | None = None,
) -> str:
    """The end of a run in a few lines: what was spent, what was released and where, how good it is.

    Arguments:
        title: what ran.
        privacy: "epsilon", "delta", "relation" and "unit"; any other entry follows in its own line.
        released: names of the files that may be shared.
        directory: where they are.
        scores: figures of merit.
        notes: what the guarantee does not cover.
        settings: file that the run's options were laid over.

    Raises:
        ValueError: if one of the four privacy entries is missing.

    Example:
        >>> privacy = {"epsilon": 3.0, "delta": 1e-5, "relation": "add_remove", "unit": "one record"}
        >>> print(summary("demo", privacy=privacy, released=["model"], directory="runs/1"))
        demo
        privacy    epsilon 3 at delta 1e-05 (add or remove one record)
        released   model
        where      runs/1
    """
    missing = [key for key in _SPENT if key not in privacy]
    if missing:
        raise ValueError(f"privacy has no {', '.join(missing)}: epsilon, delta, relation and unit are needed")
    spent = {key: privacy[key] for key in _SPENT}
    lines = [title, *([] if settings is None else [_entry("settings", str(settings))]), _entry("privacy", guarantee(**spent))]
    for key, value in privacy.items():
        if key not in _SPENT:
            shown = rounded_up(value) if isinstance(value, float) else value
            lines.append(_entry("", f"{key.replace('_', ' ')}: {shown}"))
    lines += [_entry("released", ", ".join(released) or "nothing"), _entry("where", str(directory))]
    width = max((len(score.name) for score in scores), default=0)
    for index, score in enumerate(scores):
        lines.append(_entry("how good" if index == 0 else "", f"{score.name:<{width}}  {_beside(score)}"))
    lines += [_entry("", mark) for mark in marks(scores)]
    lines += [_entry("note" if index == 0 else "", note) for index, note in enumerate(notes)]
    return "\n".join(lines)


def _entry(label: str, text: str) -> str:
    return f"{label:<10} {text}".rstrip()


def _beside(score: Score) -> str:
    references = [(score.real, "real data"), (score.chance, score.baseline)]
    known = [f"{name} {number(value)}" for value, name in references if value is not None]
    return f"{number(score.value):<8}({'; '.join([*known, f'{score.better} is better'])})"


# -- rundir ------------------------------------------------------------------------------------------------------------


PACKAGES = ("dpgen", "torch", "lightning", "opacus", "dp-accounting", "cryptography", "numpy", "scikit-learn")
FREE_TO_CHANGE = (
    "run_dir", "progress_bar", "checkpoint_every", "threads", "accelerator", "devices", "num_nodes", "strategy", "compile",
    "logger", "loggers",
)  # fmt: skip
"""Runtime options that a resumed run may change: they touch neither the model nor the guarantee."""


@contextmanager
def open_run(job: Job) -> Iterator[tuple[Path, Runtime, Curator]]:
    """The run's directory, its runtime and a curator of its ledger, new or resumed; the ledger is locked until the run ends.

    A directory that this run made is removed again if the run fails before it has spent anything. The key that the data are
    split by is made here, once: whoever resumes or evaluates the run reads the same.

    Of several processes only the first one does so; the others wait for the key, get one in memory, and write nothing.

    Raises:
        ValueError: the directory belongs to a finished run or to one with other settings, lacks the key of a run that has
            spent something, or cannot be written.
        LedgerError: the ledger is damaged, or another process holds it.
    """
    if not job.runtime.first:
        if key := job.split_key(job.runtime.directory):
            await_key(key)
        yield job.runtime.directory, job.runtime, Curator(job.plan.open_ledger())
        return
    started = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    directory = job.runtime.run_dir or Path("runs") / f"{job.model}-{job.data}-{started}"
    if (directory / "privacy.json").exists():
        raise ValueError(f"run_dir {str(directory)!r} holds a finished run; choose another directory")
    if (directory / "last.ckpt").exists() and not (directory / "ledger.jsonl").exists():
        raise ValueError(f"run_dir {str(directory)!r} holds a checkpoint without its ledger; choose another directory")
    new = not directory.exists()
    if new:
        job.shared_budget()  # which refuses before anything is made
    resumable = job.system.module(job.config) is not None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        ledger = _locked_ledger(job, directory / "ledger.jsonl")
    except OSError as error:
        raise ValueError(f"run_dir {str(directory)!r} cannot be used: {error.strerror or error}") from error
    key = job.split_key(directory)
    with ledger:
        remove_leftovers(directory)  # of a process that was killed; the lock says that no other one is writing
        if ledger.entries():
            _require_same(job, directory / "config.yaml")
            if key is not None and not key.exists():
                raise ValueError(
                    f"{key} is missing beside a ledger with charges: under another key other records would be for evaluation; "
                    "choose another run_dir"
                )
            if not resumable:
                raise ValueError(
                    f"run_dir {str(directory)!r} holds a run that was cut off after it had spent epsilon "
                    f"{rounded_up(ledger.epsilon())}; only training by DP-SGD can be resumed: what was released is in the "
                    "directory, and a new run needs another one"
                )
        else:
            write_atomically(directory / "config.yaml", yaml.safe_dump(job.settings, sort_keys=False))
            write_atomically(directory / "versions.yaml", yaml.safe_dump(_versions()))
        if job.runtime.private_logs:
            write_atomically(directory / "PRIVATE_LOGS", "tensorboard/ holds values that no guarantee covers\n")
        try:
            if key is not None:
                secret_key(key)
            yield directory, replace(job.runtime, run_dir=directory), Curator(ledger)
        except BaseException:
            if new and not ledger.entries():
                rmtree(directory)  # nothing was spent, so nothing has to be kept of a run that was refused
            raise


def _locked_ledger(job: Job, path: Path) -> Ledger:
    """The ledger of an earlier run if it has spent anything, else a new one for this job."""
    if path.exists() and path.stat().st_size:
        ledger = Ledger.open(path)
        if ledger.entries():
            return ledger
        path.unlink()  # while still locked: a run that was refused before its first charge binds nobody
        ledger.close()
    return job.open_ledger(path)


def _require_same(job: Job, config_path: Path) -> None:
    if not config_path.is_file():
        raise ValueError(f"{config_path} is missing beside a ledger; choose another run_dir")
    try:
        stored = yaml.safe_load(config_path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{config_path} is damaged: {' '.join(str(error).split())}") from error
    if not isinstance(stored, dict) or not all(isinstance(stored.get(block), dict) for block in job.settings):
        raise ValueError(f"{config_path} is damaged: it must hold the blocks {', '.join(job.settings)}")
    for block, options in job.settings.items():
        for key, value in options.items():
            before = stored[block].get(key)
            if before != value and key not in FREE_TO_CHANGE:
                raise ValueError(
                    f"run_dir holds an unfinished run with {block}.{key}={before!r}, now {value!r}: repeat its settings "
                    "to resume it, or choose another run_dir"
                )


def _versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


# -- run ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """Result of a run."""

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
        release = job.fit(data, curator, runtime)
        release.statement = release.statement.extended([not_covered, *runtime.not_covered])
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
