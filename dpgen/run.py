"""One run: read private data, fit within the budget, release, evaluate, summarise.

Its directory is created once, resumed if unfinished, and never shared by two runs or two configurations. The statement is
written before what it states is released; a run that died later is finished by the same command, for free.
"""

import platform
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd
import yaml

from dpgen import __version__
from dpgen.config import RunConfig
from dpgen.data.split import await_key, secret_key
from dpgen.evaluation import Evaluation, evaluator, unscored
from dpgen.evaluation.scores import Score, first_of, marks, number
from dpgen.facts import Fact
from dpgen.files import (
    DRAWS,
    IN_WORDS,
    MECHANISM,
    MODEL,
    STATEMENT,
    is_finished,
    is_released,
    remove_leftovers,
    write_atomically,
    write_files,
)
from dpgen.options import BLOCKS
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.progress import Bar, showing
from dpgen.release import Draws, Release
from dpgen.runtime import Runtime
from dpgen.statement import PrivacyStatement, Spent, rounded_up, shared_in_words, told
from dpgen.systems.registry import load

if TYPE_CHECKING:
    from dpgen.privacy.shared_budget import Payer


def summary(
    title: str,
    statement: PrivacyStatement,
    *,
    released: Sequence[str],
    directory: Path | str,
    scores: Sequence[Score] = (),
    notes: Sequence[str] = (),
    settings: Path | None = None,
) -> str:
    """The end of a run in a few lines: what was spent, what was released and where, how good it is, what is not covered."""
    more = [f"{name.replace('_', ' ')}: {rounded_up(value)}" for name, value in statement.also.items()]
    more += [] if statement.shared is None else [f"all runs: {shared_in_words(statement.shared)}"]
    shown = first_of(scores)
    width = max((len(score.name) for score in shown), default=0)
    left = [f"{len(scores) - len(shown)} more, and pictures: METRICS.md, dpgen report"] * (len(scores) > len(shown))
    blocks = {
        "settings": [str(settings)] * (settings is not None),
        "privacy": [statement.in_words(), *more],
        "released": [", ".join(released) or "nothing"],
        "where": [str(directory)],
        "how good": [*(f"{score.name:<{width}}  {_beside(score)}" for score in shown), *left, *marks(scores)],
        "note": notes,
    }
    named = ((name if not i else "", text) for name, texts in blocks.items() for i, text in enumerate(texts))
    return "\n".join([title, *(f"{name:<10} {text}".rstrip() for name, text in named)])


def _beside(score: Score) -> str:
    references = [(score.real, "real data"), (score.chance, score.baseline)]
    known = [f"{name} {number(value)}" for value, name in references if value is not None]
    known += [f"{score.better} is better", *([f"on {score.sample}"] if score.sample else [])]
    return f"{number(score.value):<7} ({'; '.join(known)})"


PACKAGES = ("torch", "dp-accounting", "cryptography", "numpy", "scikit-learn", "lightning", "opacus", "torchvision")
"""Whose versions a run notes, as far as they are installed."""


def released(directory: Path) -> Release | None:
    """The release of a run, if there is one; what drew private draws is not kept, unless it is a public mechanism."""
    if not is_released(directory):
        return None
    statement = PrivacyStatement.read(directory / STATEMENT)
    if not (directory / DRAWS).is_file():
        release = load(directory)
        release.statement = statement
        return release
    table = pd.read_csv(directory / DRAWS, dtype=dict.fromkeys(("user", "group", "category"), str), keep_default_na=False)
    if not (directory / MECHANISM).is_dir():
        return Draws(table, statement=statement)
    from dpgen.systems.local.model import load_mechanism

    return Draws(table, statement=statement, origin=load_mechanism(directory / MECHANISM))


class Fitting(Protocol):
    """Settings that a run releases a fit of: its own, or the best of several (`dpgen train --select`)."""

    @property
    def title(self) -> str:
        """Name in the summary, and in a shared budget."""

    @property
    def resumable(self) -> bool:
        """Whether what dies while it is fitted goes on from a checkpoint."""

    def difference(self, stored: Mapping[str, Mapping[str, Any]]) -> str:
        """The first setting that is another one in stored settings, in words; else empty."""

    def open_ledger(self, path: Path | None = None, *, payer: "Payer | None" = None) -> Ledger:
        """A new ledger with the budget."""

    def fit(self, data: Any, curator: Curator, runtime: Runtime) -> Release:
        """The release, with its statement."""


@contextmanager
def open_run(job: RunConfig, fitting: Fitting | None = None, *, again: bool = False) -> Iterator[tuple[Path, Runtime, Curator]]:
    """The run's directory, its runtime and a curator of its ledger, new or resumed; the ledger is locked until the run ends.

    A directory that this run made is removed if the run fails before it has spent anything. The key that the data are split
    by is made here, once. Of several processes only the first one writes; the others wait for the key.
    """
    fitting = fitting or job
    if not job.runtime.first:
        if key := job.split_key(job.runtime.directory):
            await_key(key)
        yield job.runtime.directory, job.runtime, Curator(fitting.open_ledger(), source=job.runtime.source())
        return
    started = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    directory = job.runtime.run_dir or Path("runs") / f"{job.model.name}-{job.data.name}-{started}"
    _require_free(directory, job, again=again)
    made = [path for path in (directory, *directory.parents) if not path.exists()]
    if made:
        job.shared_budget()  # which refuses before anything is made
    ledger = _locked_ledger(job, fitting, directory)
    key = job.split_key(directory)
    with ledger:
        remove_leftovers(directory)  # of a process that was killed; the lock says that no other one is writing
        if ledger.committed:
            _require_resumable(directory, fitting, ledger, key)
        else:
            _write_settings(directory, job)
        with _unspent_removed(ledger, made):
            if key is not None:
                secret_key(key)
            yield directory, replace(job.runtime, run_dir=directory), Curator(ledger, source=job.runtime.source())


def _require_free(directory: Path, job: RunConfig, *, again: bool) -> None:
    """Refuse the directory of a finished run, or if it is to be evaluated `again` one without a release."""
    if not again and is_finished(directory, job.runtime.evaluation):
        raise ValueError(f"run_dir {str(directory)!r} holds a finished run; choose another directory")
    if again and not is_released(directory):
        raise ValueError(f"{directory} holds no released run: {STATEMENT} with {MODEL}/ or {DRAWS} is missing")
    if (directory / "last.ckpt").exists() and not (directory / "ledger.jsonl").exists():
        raise ValueError(f"run_dir {str(directory)!r} holds a checkpoint without its ledger; choose another directory")


def _require_resumable(directory: Path, fitting: Fitting, ledger: Ledger, key: Path | None) -> None:
    """Refuse a run with charges that these settings cannot go on with."""
    _require_same(fitting, directory / "config.yaml")
    if key is not None and not key.exists():
        raise ValueError(
            f"{key} is missing beside a ledger with charges: under another key other records would be for evaluation; choose "
            "another run_dir"
        )
    if not (is_released(directory) or fitting.resumable):
        raise ValueError(
            f"run_dir {str(directory)!r} holds a run that ended with an error after it had spent epsilon "
            f"{rounded_up(ledger.epsilon())} and before anything was released; a new run needs another run_dir and spends anew"
        )


def _write_settings(directory: Path, job: RunConfig) -> None:
    """The settings of a run, and the versions of what it runs on."""
    write_atomically(directory / "config.yaml", yaml.safe_dump(job.settings, sort_keys=False))
    versions = {"python": platform.python_version(), "dpgen": __version__}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    write_atomically(directory / "versions.yaml", yaml.safe_dump(versions))


def _remove(made: Sequence[Path]) -> None:
    """Remove the directory that a refused run made, and those above it: nothing was spent, so nothing has to be kept."""
    if made:
        rmtree(made[0])
    for above in made[1:]:
        with suppress(OSError):  # another run may be in it by now
            above.rmdir()


@contextmanager
def _unspent_removed(ledger: Ledger, made: Sequence[Path]) -> Iterator[None]:
    """Drops what was never shown of a run that fails, and removes what it `made` where it has spent nothing."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) or not ledger.entries():
            ledger.drop()  # ended from outside: nothing that was charged since the last commit is shown
        if not ledger.entries():
            _remove(made)
        raise


def _locked_ledger(job: RunConfig, fitting: Fitting, directory: Path) -> Ledger:
    """The ledger in a directory, which is made: that of an earlier run if it has spent anything, else a new one."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return _ledger_at(job, fitting, directory / "ledger.jsonl")
    except OSError as error:
        raise ValueError(f"run_dir {str(directory)!r} cannot be used: {error.strerror or error}") from error


def _ledger_at(job: RunConfig, fitting: Fitting, path: Path) -> Ledger:
    if path.exists() and path.stat().st_size:
        ledger = Ledger.open(path)
        if ledger.committed:
            ledger.resume()
            return ledger
        path.unlink()  # while still locked: a run that never committed has shown nothing and binds nobody
        ledger.drop()
    return fitting.open_ledger(path, payer=job.payer(fitting.title, path.parent))


def _require_same(fitting: Fitting, config_path: Path) -> None:
    """Refuse a directory of other settings."""
    if not config_path.is_file():
        raise ValueError(f"{config_path} is missing beside a ledger; choose another run_dir")
    try:
        stored = yaml.safe_load(config_path.read_bytes())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{config_path} is damaged: {' '.join(str(error).split())}") from error
    if not isinstance(stored, dict) or not all(isinstance(stored.get(block), dict) for block in BLOCKS):
        raise ValueError(f"{config_path} is damaged: it must hold the blocks {', '.join(BLOCKS)}")
    if difference := fitting.difference(stored):
        raise ValueError(f"run_dir holds a run with {difference}: repeat its settings to go on, or choose another run_dir")


@dataclass(frozen=True)
class Outcome:
    """Result of a run; `problem`: what failed after the release, or that nothing was trained; `notes` are of its evaluation."""

    directory: Path
    release: Release
    scores: list[Score]
    summary: str
    problem: str = ""
    notes: tuple[str, ...] = ()


def run(job: RunConfig, data: Any = None, *, fitting: Fitting | None = None, again: bool = False) -> Outcome:
    """Data -> fit -> ledger -> release -> evaluate, in the run directory; what was released there before is evaluated.

    `data` are loaded already, of a kind that the system works on; None: the loader's. `fitting` is released in place of
    the job's own fit, on its data and in its runtime. `again` evaluates a finished run once more.

    Raises:
        ValueError: bad data or options, or the directory belongs to a different or finished run.
        LedgerError: the ledger in the directory is damaged or in use.
        KeyboardInterrupt, Preempted: with what was spent, and how to go on; any other error after a release has a note on it.
        ShareDone: on every process of a training but the first; not caught, it ends that process.
    """
    job = job if data is None else job.on(data)
    fitting = fitting or job
    job.runtime.begin()
    if not again:
        job.prepare()
    with (
        open_run(job, fitting, again=again) as (directory, runtime, curator),
        told(curator.ledger, lambda: _goes_on(fitting, directory)),
        _interrupted(fitting, directory, curator.ledger),
    ):
        bar = Bar(shown=runtime.progress_bar and runtime.first, spent=lambda: _so_far(curator.ledger))
        with showing(bar):
            bar.phase("read")
            data = job.load(directory)
            bar.note(getattr(data, "foreseen", ()))
            evaluate = evaluator(data, full=runtime.evaluation == "full", fid_weights=runtime.fid_weights)
            release = released(directory)
            if release is None:
                bar.phase("fit")
                with _warnings_after(curator.ledger):
                    release = job.named(fitting.fit(data, curator, runtime))
                    bar.phase("release")
                    release.statement = release.statement.extended([Fact.EVALUATED, *runtime.facts])
                    _commit(release, directory, curator.ledger)
            bar.phase("evaluate")
            judge = unscored if runtime.evaluation == "none" else evaluate
            evaluation, problem = _evaluated(
                job, release, partial(judge, release, data, seed=runtime.seed), runtime, again=again
            )
    text = summary(
        f"{fitting.title} on {data.name}",
        release.statement,
        released=[*_shared(directory), *evaluation.released],
        directory=directory,
        scores=evaluation.scores,
        notes=[*release.statement.told, *release.statement.not_covered, *evaluation.notes],
        settings=job.base,
    )
    untrained = Fact.UNTRAINED.sentence if release.statement.says(Fact.UNTRAINED) else ""
    return Outcome(directory, release, evaluation.scores, text, problem or untrained, tuple(evaluation.notes))


@contextmanager
def _warnings_after(ledger: Ledger) -> Iterator[None]:
    """Warnings may derive from private data: they wait until the charges behind them are committed, as errors do."""
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            yield
    except Exception:
        ledger.commit()
        raise
    except BaseException:
        caught = []
        raise
    finally:
        for found in caught:
            warnings.warn_explicit(found.message, found.category, found.filename, found.lineno)


def _commit(release: Release, directory: Path, ledger: Ledger) -> None:
    """Write the release where nobody looks, commit, and make it visible; the statement first, so that nothing is without it."""
    staged = ledger.staged(directory / "release")
    staged.mkdir(mode=0o700)
    _publish(release, staged, (_mechanism(release) if isinstance(release, Draws) else {}) | release.files())
    order = (IN_WORDS, STATEMENT, MECHANISM, MODEL, DRAWS)
    names = sorted((path.name for path in staged.iterdir()), key=order.index)
    moves = [(staged / name, directory / name) for name in names]
    ledger.commit(released=sha256(next(iter(release.files().values()))).hexdigest(), moves=moves)
    staged.rmdir()


def _mechanism(draws: Draws) -> dict[str, bytes]:
    """Files of the mechanism that made draws, where it is public."""
    from dpgen.systems.local.model import FiniteSampler

    files = draws.origin.files() if isinstance(draws.origin, FiniteSampler) else {}
    return {f"{MECHANISM}/{name}": data for name, data in files.items()}


def _publish(release: Release, directory: Path, files: Mapping[str, bytes]) -> None:
    """Write released files; the statement with their checksums comes first, so that nothing is released without it."""
    release.statement, written = replace(release.statement, signer="").sealed(files)  # a signature ends with what it signed
    write_files(directory, written)


SHARED = {f"{MODEL}/": MODEL, DRAWS: DRAWS, f"{MECHANISM}/": MECHANISM, STATEMENT: STATEMENT}
"""Outputs of a run that may be shared, as the summary names them."""


def _shared(directory: Path) -> list[str]:
    return [shown for shown, name in SHARED.items() if (directory / name).exists()]


KEPT_BY_NOBODY = "no scores: the density behind the draws is private and never kept, only the process that made them can tell"


def _evaluated(
    job: RunConfig, release: Release, evaluate: Callable[[], Evaluation], runtime: Runtime, *, again: bool
) -> tuple[Evaluation, str]:
    """The evaluation, written and logged, and what went wrong with it: what was paid for is released in any case."""
    directory = runtime.directory
    if isinstance(release, Draws) and release.origin is None:
        if again:
            raise ValueError(f"{directory} has {KEPT_BY_NOBODY}")
        evaluate = partial(Evaluation, [], notes=(KEPT_BY_NOBODY,))
    try:
        evaluation = evaluate()
        _leave(job, release, evaluation, runtime)
    except Exception as error:
        return _failed(directory, error, judged=runtime.evaluation != "none")
    if runtime.evaluation == "none":
        return replace(evaluation, notes=(f"not evaluated; dpgen evaluate {directory} does it",)), ""
    return evaluation, ""


def _leave(job: RunConfig, release: Release, evaluation: Evaluation, runtime: Runtime) -> None:
    """Log what an evaluation found and write its files; without scores, the synthetic records alone."""
    directory, judged = runtime.directory, runtime.evaluation != "none"
    if judged:
        shown = [s for s in evaluation.scores if not s.private or not isinstance(release, Draws)]
        runtime.log_results(job.settings, {score.tag: score.value for score in shown})
    left = evaluation
    if release.statement.files:  # a run of dpgen 0.4 has none
        _publish(release, directory, {name: made() for name, made in evaluation.released.items()})
        left = replace(evaluation, released={})
    if judged:
        left.write(directory)  # last: marks the run as finished


def _failed(directory: Path, error: Exception, *, judged: bool) -> tuple[Evaluation, str]:
    """An evaluation that failed, or whose synthetic records were not drawn, and a sentence on it."""
    whole = f"the release in {directory} is complete, but"
    if judged:
        problem = f"{whole} its evaluation failed: {error!r}; dpgen evaluate {directory} repeats it"
        return Evaluation([], notes=("the evaluation failed",)), problem
    problem = f"{whole} drawing its samples failed: {error!r}; dpgen sample {directory} draws them"
    return Evaluation([], notes=("no samples were written",)), problem


@contextmanager
def _interrupted(fitting: Fitting, directory: Path, ledger: Ledger) -> Iterator[None]:
    """Tells whoever interrupts a run where it stands, and how it goes on."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit):
            if not isinstance(end.__context__, KeyboardInterrupt):
                raise
            signal.signal(signal.SIGINT, signal.default_int_handler)  # which Lightning ignores before it exits
        stopped = KeyboardInterrupt(_standing(fitting, directory, ledger))
        stopped.add_note(Spent("", ledger.epsilon() if ledger.committed else 0.0, again=True))
        raise stopped from None


def _standing(fitting: Fitting, directory: Path, ledger: Ledger) -> str:
    if not ledger.charges:
        return "interrupted before anything was spent"
    same, whole = _same(directory), rounded_up(ledger.epsilon())
    if is_released(directory):
        return (
            f"interrupted while evaluating: the release in {directory} is complete (epsilon {whole}); {same}, or dpgen "
            f"evaluate {directory}, finishes it"
        )
    if not ledger.committed or fitting.resumable:
        stated = f"epsilon {whole} is what any release of this run states"
        return f"interrupted: {_so_far(ledger)} has run, and {stated}; {same} goes on"
    return (
        f"interrupted after epsilon {whole} was spent and before anything was released: that is lost, and a new run spends anew"
    )


def _goes_on(fitting: Fitting, directory: Path) -> str:
    """The way on for a run that an error has ended; "": there is none."""
    return f"{_same(directory)} goes on" if is_released(directory) or fitting.resumable else ""


def _same(directory: Path) -> str:
    return f"the same command with --run_dir {directory}"


def _so_far(ledger: Ledger) -> str:
    """Time and work until now, for a display."""
    if ledger.budget is None:
        return f"eps {ledger.spent_rdp():.3g}"
    return f"eps {min(ledger.spent_rdp(), ledger.budget.epsilon):.3g} of {ledger.budget.epsilon:.3g}"
