"""An audit: from its command line to many small fits on several processes, and one lower bound on epsilon."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from tqdm.auto import tqdm

from dpgen.auditing.engine import ATTACKS, EngineAudit, train_watched
from dpgen.auditing.lower_bounds import FEWEST, Finding, epsilon_lower_bound, one_run_lower_bound
from dpgen.auditing.neighbours import Task, audited, claim_of, curator_audit, draw_once, released_numbers, with_direction
from dpgen.auditing.releases import CERTAIN, Broken
from dpgen.cli.jobs import DEFAULT_MODEL
from dpgen.cli.options import Sources, choose, full_names, keys, option_table, require_writable, split_options, typed
from dpgen.files import write_atomically
from dpgen.privacy.noise import PublicRandomness
from dpgen.systems.dp_sgd.plan import DPSGDPlan
from dpgen.systems.dpgan.plan import DPGANConfig
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

TRAINED = {"sampling_rate": "0.01", "steps": "800"}
"""Of private training with many canaries, unless other numbers are given: enough for the broken twins to show."""

TRAINED_IN_TURNS = {"sampling_rate": "0.01", "steps": "1600"}
"""The same with one cluster a step: the canaries' has its turn about 16 times."""

TRAINED_OFTEN = {"sampling_rate": "0.2", "steps": "10"}
"""Of private training with one canary, which takes hundreds of trainings."""

SIGMA = "1.2"
"""Noise of private training where neither it nor epsilon is given."""

NOISY = {"delta": "0.2"}
"""Of Gaussian releases: at a small delta two worst cases are told apart too rarely for the few fits of an audit."""

COMPONENT = NOISY | {"epsilon": "1", "trainings": "500"}
"""Of Gaussian fits, which take a tenth of a second."""

QUICK: dict[str, dict[str, str]] = {
    "dpgm": TRAINED,
    "dpgan": TRAINED,
    "gaussian": COMPONENT,
    "marginals": NOISY,
    "kmeans": NOISY | {"trainings": "400"},
    "merr": NOISY,
    "mwem": {"rounds": "1", "total_share": "0.98", "delta": "0"},
    "mbde": {"steps": "100", "codebook": "64"},
    "bernstein": {"degree": "4", "bandwidth": "0.05"},
    "grid_response": {"cells": "4"},
    "interval_laplace": {"cells": "16"},
}
"""Options of small fits, taken where the command line gives no others."""


EXIT_CODES = "exit code: 0 consistent, 1 VIOLATED, 2 bad arguments"


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Options of an audit.

    Arguments:
        trainings: fits of each of the two data sets, or draws from each where a fit makes many; with several canaries,
            runs in which a coin decides about each of them. None: 1 run with canaries, else 600 fits or 20,000 draws.
        canaries: of private training: several, guessed in the same run, or 1, present in one data set alone. None: 1000.
        share: of all records that the canaries' cluster holds, under schedule="published".
        accounting: "ledger", or "published": the claim of Acs et al. 2017 for its one-cluster schedule.
        loader: "poisson", or the broken twin "shuffled".
        noise: "fresh", or the broken twin "reused".
        broken: "no", or a broken twin of systems that are not trained: "noise" of half the scale that is paid for, or
            "sensitivity", a record that moves sums by twice what is stated.
        confidence: of the lower bound, in (0, 1): an honest system is flagged with probability at most 1 - confidence.
        workers: processes; None: one for each CPU where there are hundreds of trainings, else 1.
        seed: of public randomness and of the canaries' coins.
        progress_bar: show one.
        out: JSON file for the finding.
    """

    trainings: int | None = None
    canaries: int | None = None
    share: float = 0.01
    accounting: Literal["ledger", "published"] = "ledger"
    loader: Literal["poisson", "shuffled"] = "poisson"
    noise: Literal["fresh", "reused"] = "fresh"
    broken: Broken = "no"
    confidence: float = 0.95
    workers: int | None = None
    seed: int = 0
    progress_bar: bool = True
    out: Path | None = None

    def __post_init__(self) -> None:
        for name in ("trainings", "canaries", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence must be in (0, 1), got {self.confidence}")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")
        if self.out is not None:
            require_writable(self.out, "out")


@dataclass(frozen=True)
class AuditJob:
    """A system with its options, and how to try them."""

    model: str
    plan: Any
    config: Any
    options: AuditOptions

    @property
    def trained(self) -> bool:
        """Whether the claim is that of the DP-SGD engine, which can be looked into."""
        return isinstance(self.plan, DPSGDPlan) and getattr(self.config, "component", "") != "gaussian"


def parse_audit(arguments: Sequence[str]) -> AuditJob:
    """Read an audit from command-line arguments: `--model NAME`, and `--key value` of its privacy, its model or the audit.

    Raises:
        ValueError: in one line, what is wrong and what is allowed.
    """
    given = split_options(arguments)
    model = choose("model", given.pop("model", DEFAULT_MODEL), list(audited()))
    sources = _sources(model)
    named = full_names(given, sources, also={"model"})
    quick = _quick(model, {name.partition(".")[2]: value for name, value in named.items()})
    made = typed(sources, full_names(quick, sources) | named).made
    job = AuditJob(model, made["privacy"], made["model"], made["audit"])
    _require_meaning(job)
    return job


def _sources(model: str) -> Sources:
    return {"privacy": audited()[model].plan, "model": audited()[model].config, "audit": AuditOptions}


def _quick(model: str, given: Mapping[str, str]) -> dict[str, str]:
    quick = QUICK.get(model, {})
    if quick is not TRAINED:
        return quick
    if given.get("component") == "gaussian":
        return COMPONENT
    often, turns = given.get("canaries") == "1", given.get("schedule") == "published"
    noise = {} if {"epsilon", "sigma_sgd"} & set(given) else {"sigma_sgd": SIGMA}
    return (TRAINED_OFTEN if often else TRAINED_IN_TURNS if turns else TRAINED) | noise


def _require_meaning(job: AuditJob) -> None:
    """Refuse options that this system, or its audit, would ignore."""
    job.plan.require_use(job.config)
    options = job.options
    changed = [
        name
        for name, usual in (("accounting", "ledger"), ("loader", "poisson"), ("noise", "fresh"), ("canaries", None))
        if getattr(options, name) != usual
    ]
    if options.broken != "no" and job.trained:
        raise ValueError(
            f"broken is {options.broken!r}; the twins of private training are loader='shuffled' and noise='reused'"
        )
    if changed and not job.trained:
        raise ValueError(f"{changed[0]} is {getattr(options, changed[0])!r}: only systems that DP-SGD trains have that choice")


def audit_usage(arguments: Sequence[str] = ()) -> str:
    """Usage of the command line: in general, or the options of the model that it names.

    Defaults are those of an audit, whose fits are smaller than others.
    """
    given = split_options(arguments)
    if "model" not in given:
        lines = ["usage: dpgen audit [--model NAME] [--key value ...]", "", f"  --model {', '.join(audited())}"]
        lines += option_table({"audit": "audit"}, {"audit": AuditOptions})
        return "\n".join([*lines, "", "add --model NAME for its options, their defaults and what they mean", "", EXIT_CODES])
    model = choose("model", given["model"], list(audited()))
    sources, quick = _sources(model), _quick(model, given)
    defaults = {block: {key: value for key, value in quick.items() if key in keys(source)} for block, source in sources.items()}
    titles = {"privacy": f"privacy of {model}", "model": f"model {model}", "audit": "audit"}
    return "\n".join(
        [f"usage: dpgen audit --model {model} [--key value ...]", *option_table(titles, sources, defaults), "", EXIT_CODES]
    )


_CHUNK = 8  # trainings that a process is sent at once
_WORTH_STARTING = 50  # parts below which further processes are not worth their start
_CANARIES, _FITS, _RUNS, _DRAWS = 1000, 400, 600, 20_000

Numbers = npt.NDArray[np.float64]


def audit(job: AuditJob) -> Finding:
    """Try the claim of a job, and write the finding if the job says where.

    Raises:
        ValueError: too few trainings, or what the system refuses.
    """
    finding = audit_engine(job) if job.trained else audit_draws(job) if _task(job, 1).at_once else audit_releases(job)
    if job.options.out is not None:
        write_atomically(job.options.out, finding.to_json())
    return finding


# -- private training ------------------------------------------------------------------------------------------------


def audit_engine(job: AuditJob) -> Finding:
    """White box: guess canaries from the sums that the real engine releases."""
    options, start = job.options, time.monotonic()
    plan, config = job.plan, job.config
    if isinstance(config, DPGANConfig):  # one critic for all records
        plan = DPGMPlan(**{field.name: getattr(plan, field.name) for field in fields(DPSGDPlan)})
        config = DPGMConfig(clusters="none", **asdict(config.critic_training))
    task = EngineAudit(
        plan=plan,
        config=config,
        canaries=options.canaries or _CANARIES,
        share=options.share,
        accounting=options.accounting,
        loader=options.loader,
        noise=options.noise,
        seed=options.seed,
    )
    coins = canary_coins(task.canaries, trainings=options.trainings, seed=options.seed)
    parts = [(task, part) for part in np.array_split(coins, -(-len(coins) // _CHUNK))]
    found, claimed = _gather(train_many, parts, job)
    scores = torch.from_numpy(np.concatenate(found))
    flat, included = scores.reshape(-1, scores.shape[-1]), torch.from_numpy(coins.reshape(-1))
    if task.canaries == 1:
        bound = epsilon_lower_bound(flat[included], flat[~included], job.plan.delta, confidence=options.confidence)
    else:
        bound = one_run_lower_bound(flat, included, job.plan.delta, confidence=options.confidence)
    away = "reversed" if job.plan.relation == "replace_one" else "absent"
    who = "one canary" if task.canaries == 1 else f"{task.canaries} canaries, each by a coin"
    return Finding(
        audited=_in_words(job, task),
        neighbours=f"{who}, present or {away}",
        claimed=claimed,
        claimed_by="the ledger" if options.accounting == "ledger" else "general moments of Acs et al. 2017, as published",
        delta=job.plan.delta,
        relation=job.plan.relation,
        unit="one record",
        lower_bound=bound.epsilon,
        confidence=options.confidence,
        method="many runs" if task.canaries == 1 else "one run" if len(coins) == 1 else "canaries in several runs",
        attack=ATTACKS[bound.attack],
        trainings=len(coins),
        trials=len(flat),
        seconds=time.monotonic() - start,
    )


def canary_coins(canaries: int, *, trainings: int | None, seed: int) -> npt.NDArray[np.bool_]:
    """Which canaries are in which training, (runs, m): fair coins, or for a single canary in turns."""
    if canaries == 1:
        fits = trainings or _FITS
        if fits < FEWEST:
            raise ValueError(f"trainings must be at least {FEWEST} with canaries=1, got {fits}")
        return np.tile([[True], [False]], (fits, 1))
    runs = trainings or 1
    if runs * canaries < 2 * FEWEST:
        raise ValueError(f"canaries must be at least {2 * FEWEST} over all trainings, got {runs * canaries}")
    generator = PublicRandomness(seed).spawn("coins").generator
    return (torch.rand(runs, canaries, generator=generator) < 0.5).numpy()


def train_many(task: EngineAudit, coins: npt.NDArray[np.bool_]) -> tuple[Numbers, float]:
    """Scores (r, m, a) of several trainings and the largest epsilon that one of them claimed."""
    seen = [train_watched(task, torch.from_numpy(row)) for row in coins]
    return torch.stack([one.scores for one in seen]).numpy(), max(one.claimed for one in seen)


def _in_words(job: AuditJob, task: EngineAudit) -> str:
    plan = job.plan
    cost = f"epsilon {plan.epsilon:g}" if plan.sigma_sgd is None else f"sigma {plan.sigma_sgd:g}"
    engine = f"{job.model}: DP-SGD engine, {cost}, q {plan.sampling_rate:g}, {plan.steps} steps"
    words = [engine, f"{task.config.clipping} clipping"]
    if task.config.schedule == "published":
        words.append(f"one of {task.k} clusters per step, the canaries' holds {task.share:.1%} of the records")
    if task.loader == "shuffled":
        words.append("BROKEN TWIN: shuffled loader booked as Poisson")
    if task.noise == "reused":
        words.append("BROKEN TWIN: the same noise in every step")
    return ", ".join(words)


# -- draws and releases ------------------------------------------------------------------------------------------------


def _task(job: AuditJob, trials: int) -> Task:
    options = job.options
    return Task(model=job.model, plan=job.plan, config=job.config, trials=trials, seed=options.seed, broken=options.broken)


def audit_draws(job: AuditJob) -> Finding:
    """Black box: tell the draws from two worst-case data sets apart; one fit makes all of them."""
    start, trials = time.monotonic(), _trials(job, _DRAWS)
    task = _task(job, trials)
    if task.broken != "no":
        raise ValueError(f"broken is {task.broken!r}; a sampler of single draws has no noise or sums that could be broken")
    found, claimed = _gather(draw_many, [(task, side) for side in (0, 1)], job)
    first, second = with_direction(*map(torch.from_numpy, found))
    bound = epsilon_lower_bound(first, second, job.plan.open_ledger().delta, confidence=job.options.confidence)
    last = first.shape[1] - 1
    attack = "best linear statistic" if bound.attack == last else f"statistic {bound.attack + 1} of {last}"
    return _finding(
        job,
        task,
        claimed,
        bound.epsilon,
        method="many draws",
        attack=attack,
        fits=2,
        trials=len(first) + len(second),
        start=start,
    )


def draw_many(task: Task, side: int) -> tuple[Numbers, float]:
    """Statistics (trials, a) of the draws from one of the two data sets, and the epsilon claimed for one of them."""
    pair = task.pair()
    trials = draw_once(task, (pair.first, pair.second)[side])
    return trials.values.numpy(), trials.claimed


def audit_releases(job: AuditJob) -> Finding:
    """White box at the curator: the likelihood ratio of all that two neighbouring data sets release.

    First one fit on each is compared number by number, with the noisy values of the first one given to the second: what is
    made of them may not depend on the records any more.
    """
    start, trials = time.monotonic(), _trials(job, _RUNS)
    task = _task(job, trials)
    claimed = claim_of(task)
    with curator_audit(task) as watched:
        leaks, most = watched.leaks(released_numbers), watched.releases()
    if leaks:
        attack = "numbers that are no function of the noisy values"
        return _finding(job, task, claimed, CERTAIN, method="one replay", attack=attack, fits=2, trials=1, start=start)
    sizes = [min(_CHUNK, trials - done) for done in range(0, trials, _CHUNK)]
    found, _ = _gather(losses_of, [(task, side, size, most) for side in (0, 1) for size in sizes], job)
    first, second = (torch.from_numpy(np.concatenate(side)) for side in (found[: len(sizes)], found[len(sizes) :]))
    bound = epsilon_lower_bound(first, second, job.plan.open_ledger().delta, confidence=job.options.confidence)
    attack = f"likelihood ratio of {most} releases"
    return _finding(
        job, task, claimed, bound.epsilon, method="many runs", attack=attack, fits=2 * trials, trials=2 * trials, start=start
    )


def losses_of(task: Task, side: int, count: int, most: int) -> tuple[Numbers, float]:
    """Log-likelihood ratios (count,) of fits on one of the two data sets."""
    with curator_audit(task) as watched:
        return np.array(watched.losses(side, count, most)), 0.0


def _trials(job: AuditJob, usual: int) -> int:
    trials = job.options.trainings or usual
    if trials < FEWEST:
        raise ValueError(f"trainings must be at least {FEWEST}, got {trials}")
    return trials


def _finding(
    job: AuditJob, task: Task, claimed: float, bound: float, *, method: str, attack: str, fits: int, trials: int, start: float
) -> Finding:
    ledger, twin = job.plan.open_ledger(), _TWINS[task.broken]
    return Finding(
        audited=", ".join([f"{job.model}: {_spent(job.plan)}", *twin]),
        neighbours=task.pair().description,
        claimed=claimed,
        claimed_by="the ledger",
        delta=ledger.delta,
        relation=ledger.relation,
        unit=ledger.unit,
        lower_bound=bound,
        confidence=job.options.confidence,
        method=method,
        attack=attack,
        trainings=fits,
        trials=trials,
        seconds=time.monotonic() - start,
    )


_TWINS = {
    "no": [],
    "noise": ["BROKEN TWIN: half the noise that is paid for"],
    "sensitivity": ["BROKEN TWIN: a record moves sums by twice what is stated"],
}


def _spent(plan: Any) -> str:
    """The numbers of a plan that say what it may spend."""
    shown = ("epsilon", "delta", "draws", "rounds")
    return ", ".join(f"{name} {value}" for name, value in vars(plan).items() if name in shown and value is not None)


# -- processes -------------------------------------------------------------------------------------------------------


def _gather(
    function: Callable[..., tuple[Numbers, float]], parts: Sequence[tuple[Any, ...]], job: AuditJob
) -> tuple[list[Numbers], float]:
    """Results of all parts, in order, and the largest claim."""
    wanted = job.options.workers or (os.cpu_count() or 1 if len(parts) >= _WORTH_STARTING else 1)
    values, claims = [], []
    with _mapping(min(wanted, len(parts))) as mapped:
        bar = tqdm(total=len(parts), desc="audit", disable=not job.options.progress_bar, leave=False)
        for found, claimed in mapped(function, *zip(*parts)):
            values.append(found)
            claims.append(claimed)
            bar.update()
        bar.close()
    return values, max(claims)


@contextmanager
def _mapping(workers: int) -> Iterator[Callable[..., Iterable[tuple[Numbers, float]]]]:
    """`map`, over fresh processes of one thread each if there is more than one worker."""
    if workers == 1:
        yield map
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield pool.map
