"""Carry out an audit: many small trainings on several processes, one lower bound."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tqdm.auto import tqdm

from dpgen.auditing.audit_options import AuditJob
from dpgen.auditing.engine_audit import ATTACKS, EngineAudit, train_watched
from dpgen.auditing.finding import Finding
from dpgen.auditing.neighbours import Task, claim_of, door_of, draw_once, released_numbers, with_direction
from dpgen.auditing.releases import CERTAIN
from dpgen.files import write_atomically
from dpgen.metrics.audit import FEWEST, epsilon_lower_bound, one_run_lower_bound
from dpgen.privacy.noise import PublicRandomness
from dpgen.systems.networks.dpgan_options import DPGANConfig

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
    config = job.config.critic_config() if isinstance(job.config, DPGANConfig) else job.config
    task = EngineAudit(
        plan=job.plan,
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
    """White box at the curator's door: the likelihood ratio of all that two neighbouring data sets release.

    First one fit on each is compared number by number, with the noisy values of the first one given to the second: what is
    made of them may not depend on the records any more.
    """
    start, trials = time.monotonic(), _trials(job, _RUNS)
    task = _task(job, trials)
    claimed = claim_of(task)
    with door_of(task) as door:
        leaks, most = door.leaks(released_numbers), door.releases()
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
    with door_of(task) as door:
        return np.array(door.losses(side, count, most)), 0.0


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
