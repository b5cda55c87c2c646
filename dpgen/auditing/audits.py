"""An audit: many small fits on several processes, and one lower bound on epsilon."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import fields
from multiprocessing import get_context
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tqdm.auto import tqdm

from dpgen.auditing.engine import ATTACKS, EngineAudit, train_watched
from dpgen.auditing.lower_bounds import FEWEST, Finding, epsilon_lower_bound, one_run_lower_bound
from dpgen.auditing.neighbours import by_draw, joined, pair_of, released, with_direction
from dpgen.auditing.options import AuditJob
from dpgen.files import write_atomically
from dpgen.privacy.noise import PublicRandomness
from dpgen.systems.dp_sgd.plan import DPSGDConfig, DPSGDPlan
from dpgen.systems.dpgan.plan import DPGANConfig
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan
from dpgen.systems.registry import systems

_CHUNK = 8  # trainings that a process is sent at once
_WORTH_STARTING = 50  # parts below which further processes are not worth their start
_CANARIES, _FITS, _RUNS, _DRAWS = 1000, 400, 600, 20_000

Numbers = npt.NDArray[np.float64]


def audit(job: AuditJob) -> Finding:
    """Try the claim of a job, and write the finding if the job says where.

    Raises:
        ValueError: too few trainings, or what the system refuses.
    """
    start, ledger = time.monotonic(), job.plan.open_ledger()
    found = _audit_training(job) if job.trained else _audit_releases(job)
    finding = Finding(
        delta=ledger.delta,
        relation=ledger.relation,
        unit=ledger.unit,
        confidence=job.options.confidence,
        seconds=time.monotonic() - start,
        **found,
    )
    if job.options.out is not None:
        write_atomically(job.options.out, finding.to_json())
    return finding


# -- private training ------------------------------------------------------------------------------------------------


def _audit_training(job: AuditJob) -> dict[str, Any]:
    """White box: guess canaries from the sums that the real engine releases."""
    options, plan, config = job.options, job.plan, job.config
    if isinstance(config, DPGANConfig):  # one critic for all records
        steps = [field.name for field in fields(DPSGDPlan) if "means" not in field.name]
        plan = DPGMPlan(**{name: getattr(plan, name) for name in steps})
        config = DPGMConfig(clusters="none", **{field.name: getattr(config, field.name) for field in fields(DPSGDConfig)})
    engine = EngineAudit(plan=plan, config=config, canaries=options.canaries or _CANARIES, seed=options.seed)
    coins = canary_coins(engine.canaries, trainings=options.trainings, seed=options.seed)
    found, claimed = _gather(_train_many, [(engine, part) for part in np.array_split(coins, -(-len(coins) // _CHUNK))], job)
    scores = torch.from_numpy(np.concatenate(found)).flatten(0, 1)
    included, one = torch.from_numpy(coins.reshape(-1)), engine.canaries == 1
    if one:
        bound = epsilon_lower_bound(scores[included], scores[~included], plan.delta, confidence=options.confidence)
    else:
        bound = one_run_lower_bound(scores, included, plan.delta, confidence=options.confidence)
    who = "one canary" if one else f"{engine.canaries} canaries, each by a coin"
    cost = f"epsilon {plan.epsilon:g}" if plan.sigma_sgd is None else f"sigma {plan.sigma_sgd:g}"
    words = f"{cost}, q {plan.sampling_rate:g}, {plan.steps} steps, {config.clipping} clipping"
    return {
        "audited": f"{job.model}: DP-SGD engine, {words}",
        "neighbours": f"{who}, present or {'reversed' if plan.relation == 'replace_one' else 'absent'}",
        "claimed": claimed,
        "lower_bound": bound.epsilon,
        "method": "many runs" if one else "one run" if len(coins) == 1 else "canaries in several runs",
        "attack": ATTACKS[bound.attack],
        "trainings": len(coins),
        "trials": len(scores),
    }


def canary_coins(canaries: int, *, trainings: int | None, seed: int) -> npt.NDArray[np.bool_]:
    """Presence (runs, m) of every canary in every training: fair coins, or for a single canary in turns."""
    if canaries == 1:
        return np.tile([[True], [False]], (_enough(trainings or _FITS), 1))
    runs = trainings or 1
    if runs * canaries < 2 * FEWEST:
        raise ValueError(f"canaries must be at least {2 * FEWEST} over all trainings, got {runs * canaries}")
    generator = PublicRandomness(seed).spawn("coins").generator
    return (torch.rand(runs, canaries, generator=generator) < 0.5).numpy()


def _enough(trainings: int) -> int:
    if trainings < FEWEST:
        raise ValueError(f"trainings must be at least {FEWEST}, got {trainings}")
    return trainings


def _train_many(engine: EngineAudit, coins: npt.NDArray[np.bool_]) -> tuple[Numbers, float]:
    """Scores (r, m, a) of several trainings and the largest epsilon that one of them claimed."""
    seen = [train_watched(engine, torch.from_numpy(row)) for row in coins]
    return torch.stack([one.scores for one in seen]).numpy(), max(one.claimed for one in seen)


# -- releases ----------------------------------------------------------------------------------------------------------


def _audit_releases(job: AuditJob) -> dict[str, Any]:
    """Black box: tell the releases of two worst-case data sets apart; one fit of a sampler makes all of its draws."""
    at_once = by_draw(job) or systems()[job.model].kinds[0] == "users"
    trials = _enough(job.options.trainings or (_DRAWS if at_once else _RUNS))
    sizes = [trials] if at_once else [min(_CHUNK, trials - done) for done in range(0, trials, _CHUNK)]
    found, claimed = _gather(released, [(job, side, size) for side in (0, 1) for size in sizes], job)
    first, second = with_direction(*joined(found[: len(sizes)], found[len(sizes) :]))
    bound = epsilon_lower_bound(first, second, job.plan.open_ledger().delta, confidence=job.options.confidence)
    last = first.shape[1] - 1
    shown = ("epsilon", "delta", "draws", "rounds", "unit")
    spent = ", ".join(f"{name} {value}" for name, value in vars(job.plan).items() if name in shown and value is not None)
    return {
        "audited": f"{job.model}: {spent}",
        "neighbours": pair_of(job, 1).description,
        "claimed": claimed,
        "lower_bound": bound.epsilon,
        "method": "many draws" if at_once else "many runs",
        "attack": "best linear statistic" if bound.attack == last else f"statistic {bound.attack + 1} of {last}",
        "trainings": 2 if at_once else 2 * trials,
        "trials": len(first) + len(second),
    }


# -- processes -------------------------------------------------------------------------------------------------------


def _gather(
    function: Callable[..., tuple[Numbers, float]], parts: Sequence[tuple[Any, ...]], job: AuditJob
) -> tuple[list[Numbers], float]:
    """Results of all parts, in order, and the largest claim."""
    wanted = job.options.workers or (os.cpu_count() or 1 if len(parts) >= _WORTH_STARTING else 1)
    with _mapping(min(wanted, len(parts))) as mapped:
        results = mapped(function, *zip(*parts))
        found = list(tqdm(results, total=len(parts), desc="audit", disable=not job.options.progress_bar, leave=False))
    return [values for values, _ in found], max(claimed for _, claimed in found)


@contextmanager
def _mapping(workers: int) -> Iterator[Callable[..., Iterable[tuple[Numbers, float]]]]:
    """`map`, over fresh processes of one thread each if there is more than one worker."""
    if workers == 1:
        yield map
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield pool.map
