"""An audit: many small fits on several processes, and one lower bound on epsilon."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import fields
from multiprocessing import get_context
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm.auto import tqdm

from dpgen.auditing.engine import ATTACKS, train_watched
from dpgen.auditing.lower_bounds import FEWEST, Finding, epsilon_lower_bound, one_run_lower_bound
from dpgen.auditing.neighbours import by_draw, joined, pair_of, released, with_direction
from dpgen.auditing.options import AuditJob
from dpgen.files import write_atomically
from dpgen.privacy.noise import PublicRandomness
from dpgen.systems.dp_sgd.plan import DPSGDConfig, DPSGDPlan
from dpgen.systems.dpgan.plan import DPGANConfig
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan
from dpgen.systems.registry import systems

_CHUNK = 8  # fits that a process is sent at once
_WORTH_STARTING = 50  # parts below which further processes are not worth their start
_CANARIES, _RUNS, _DRAWS = 1000, 600, 20_000

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
    """White box: guess canaries, each present by a coin, from the sums that the real engine releases."""
    options, plan, config = job.options, job.plan, job.config
    if isinstance(config, DPGANConfig):  # one critic for all records
        steps = [field.name for field in fields(DPSGDPlan) if "means" not in field.name]
        plan = DPGMPlan(**{name: getattr(plan, name) for name in steps})
        config = DPGMConfig(clusters="none", **{field.name: getattr(config, field.name) for field in fields(DPSGDConfig)})
    coins = canary_coins(options.canaries or _CANARIES, trainings=options.trainings or 1, seed=options.seed)
    found, claimed = _gather(_trained, [(plan, config, row, options.seed) for row in coins], job)
    scores = torch.from_numpy(np.concatenate(found))
    bound = one_run_lower_bound(scores, coins.flatten(), plan.delta, confidence=options.confidence)
    cost = f"epsilon {plan.epsilon:g}" if plan.sigma_sgd is None else f"sigma {plan.sigma_sgd:g}"
    words = f"{cost}, q {plan.sampling_rate:g}, {plan.steps} steps, {config.clipping} clipping"
    absent = "reversed" if plan.relation == "replace_one" else "absent"
    return {
        "audited": f"{job.model}: DP-SGD engine, {words}",
        "neighbours": f"{coins.shape[1]} canaries, each by a coin, present or {absent}",
        "claimed": claimed,
        "lower_bound": bound.epsilon,
        "method": "one run" if len(coins) == 1 else "canaries in several runs",
        "attack": ATTACKS[bound.attack],
        "trainings": len(coins),
        "trials": len(scores),
    }


def canary_coins(canaries: int, *, trainings: int, seed: int) -> Tensor:
    """Presence (runs, m) of every canary in every training, by fair coins."""
    if trainings * canaries < 2 * FEWEST:
        raise ValueError(f"canaries must be at least {2 * FEWEST} over all trainings, got {trainings * canaries}")
    return torch.rand(trainings, canaries, generator=PublicRandomness(seed).spawn("coins").generator) < 0.5


def _trained(plan: DPGMPlan, config: DPGMConfig, included: Tensor, seed: int) -> tuple[Numbers, float]:
    """Scores (m, a) of one training, and what it claimed."""
    scores, claimed = train_watched(plan, config, included, seed=seed)
    return scores.numpy(), claimed


# -- releases ----------------------------------------------------------------------------------------------------------


def _audit_releases(job: AuditJob) -> dict[str, Any]:
    """Black box: tell the releases of two worst-case data sets apart; one fit of a sampler makes all of its draws."""
    at_once = by_draw(job) or systems()[job.model].kinds[0] == "users"
    if (trials := job.options.trainings or (_DRAWS if at_once else _RUNS)) < FEWEST:
        raise ValueError(f"trainings must be at least {FEWEST}, got {trials}")
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
    """Results of all parts, in order, and the largest claim; over fresh processes of one thread each where that pays."""
    wanted = job.options.workers or (os.cpu_count() or 1 if len(parts) >= _WORTH_STARTING else 1)
    options: dict[str, Any] = {"mp_context": get_context("spawn"), "initializer": torch.set_num_threads, "initargs": (1,)}
    workers = min(wanted, len(parts))
    with ProcessPoolExecutor(workers, **options) if workers > 1 else nullcontext() as pool:
        results = (map if pool is None else pool.map)(function, *zip(*parts))
        found = list(tqdm(results, total=len(parts), desc="audit", disable=not job.options.progress_bar, leave=False))
    return [values for values, _ in found], max(claimed for _, claimed in found)
