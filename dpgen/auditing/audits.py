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
from dpgen.auditing.neighbours import Game, claim_of, curator_audit, draw_once, released_numbers, with_direction
from dpgen.auditing.options import AuditJob
from dpgen.auditing.releases import CERTAIN
from dpgen.files import write_atomically
from dpgen.privacy.noise import PublicRandomness
from dpgen.systems.dp_sgd.plan import DPSGDConfig, DPSGDPlan
from dpgen.systems.dpgan.plan import DPGANConfig
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

_CHUNK = 8  # trainings that a process is sent at once
_WORTH_STARTING = 50  # parts below which further processes are not worth their start
_CANARIES, _FITS, _RUNS, _DRAWS = 1000, 400, 600, 20_000

Numbers = npt.NDArray[np.float64]


def audit(job: AuditJob) -> Finding:
    """Try the claim of a job, and write the finding if the job says where.

    Raises:
        ValueError: too few trainings, or what the system refuses.
    """
    finding = _audit_engine(job) if job.trained else _audit_draws(job) if _game(job, 1).at_once else _audit_releases(job)
    if job.options.out is not None:
        write_atomically(job.options.out, finding.to_json())
    return finding


# -- private training ------------------------------------------------------------------------------------------------


def _audit_engine(job: AuditJob) -> Finding:
    """White box: guess canaries from the sums that the real engine releases."""
    options, start = job.options, time.monotonic()
    plan, config = job.plan, job.config
    if isinstance(config, DPGANConfig):  # one critic for all records
        steps = [field.name for field in fields(DPSGDPlan) if "means" not in field.name]
        plan = DPGMPlan(**{name: getattr(plan, name) for name in steps})
        config = DPGMConfig(clusters="none", **{field.name: getattr(config, field.name) for field in fields(DPSGDConfig)})
    engine = EngineAudit(
        plan=plan,
        config=config,
        canaries=options.canaries or _CANARIES,
        seed=options.seed,
    )
    coins = canary_coins(engine.canaries, trainings=options.trainings, seed=options.seed)
    parts = [(engine, part) for part in np.array_split(coins, -(-len(coins) // _CHUNK))]
    found, claimed = _gather(_train_many, parts, job)
    scores = torch.from_numpy(np.concatenate(found))
    flat, included = scores.reshape(-1, scores.shape[-1]), torch.from_numpy(coins.reshape(-1))
    if engine.canaries == 1:
        bound = epsilon_lower_bound(flat[included], flat[~included], job.plan.delta, confidence=options.confidence)
    else:
        bound = one_run_lower_bound(flat, included, job.plan.delta, confidence=options.confidence)
    away = "reversed" if job.plan.relation == "replace_one" else "absent"
    who = "one canary" if engine.canaries == 1 else f"{engine.canaries} canaries, each by a coin"
    return _finding(
        job,
        audited=_engine_in_words(job, engine),
        neighbours=f"{who}, present or {away}",
        claimed=claimed,
        claimed_by="the ledger",
        bound=bound.epsilon,
        method="many runs" if engine.canaries == 1 else "one run" if len(coins) == 1 else "canaries in several runs",
        attack=ATTACKS[bound.attack],
        trainings=len(coins),
        trials=len(flat),
        start=start,
    )


def canary_coins(canaries: int, *, trainings: int | None, seed: int) -> npt.NDArray[np.bool_]:
    """Presence (runs, m) of every canary in every training: fair coins, or for a single canary in turns."""
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


def _train_many(engine: EngineAudit, coins: npt.NDArray[np.bool_]) -> tuple[Numbers, float]:
    """Scores (r, m, a) of several trainings and the largest epsilon that one of them claimed."""
    seen = [train_watched(engine, torch.from_numpy(row)) for row in coins]
    return torch.stack([one.scores for one in seen]).numpy(), max(one.claimed for one in seen)


def _engine_in_words(job: AuditJob, engine: EngineAudit) -> str:
    plan = job.plan
    cost = f"epsilon {plan.epsilon:g}" if plan.sigma_sgd is None else f"sigma {plan.sigma_sgd:g}"
    trained = f"{job.model}: DP-SGD engine, {cost}, q {plan.sampling_rate:g}, {plan.steps} steps"
    words = [trained, f"{engine.config.clipping} clipping"]
    return ", ".join(words)


# -- draws and releases ------------------------------------------------------------------------------------------------


def _game(job: AuditJob, trials: int) -> Game:
    options = job.options
    return Game(model=job.model, plan=job.plan, config=job.config, trials=trials, seed=options.seed)


def _audit_draws(job: AuditJob) -> Finding:
    """Black box: tell the draws from two worst-case data sets apart; one fit makes all of them."""
    start, trials = time.monotonic(), _trials(job, _DRAWS)
    game = _game(job, trials)
    found, claimed = _gather(_draw_many, [(game, side) for side in (0, 1)], job)
    first, second = with_direction(*map(torch.from_numpy, found))
    bound = epsilon_lower_bound(first, second, job.plan.open_ledger().delta, confidence=job.options.confidence)
    last = first.shape[1] - 1
    attack = "best linear statistic" if bound.attack == last else f"statistic {bound.attack + 1} of {last}"
    return _finding(
        job,
        **_played(job, game),
        claimed=claimed,
        bound=bound.epsilon,
        method="many draws",
        attack=attack,
        trainings=2,
        trials=len(first) + len(second),
        start=start,
    )


def _draw_many(game: Game, side: int) -> tuple[Numbers, float]:
    """Statistics (trials, a) of the draws from one of the two data sets, and the epsilon claimed for one of them."""
    pair = game.pair()
    trials = draw_once(game, (pair.first, pair.second)[side])
    return trials.values.numpy(), trials.claimed


def _audit_releases(job: AuditJob) -> Finding:
    """White box at the curator: the likelihood ratio of all that two neighbouring data sets release.

    First one fit on each is compared number by number, with the noisy values of the first one given to the second: what is
    made of them may not depend on the records any more.
    """
    start, trials = time.monotonic(), _trials(job, _RUNS)
    game = _game(job, trials)
    claimed = claim_of(game)
    with curator_audit(game) as watched:
        leaks, most = watched.leaks(released_numbers), watched.releases()
    if leaks:
        attack = "numbers that are no function of the noisy values"
        return _finding(
            job,
            **_played(job, game),
            claimed=claimed,
            bound=CERTAIN,
            method="one replay",
            attack=attack,
            trainings=2,
            trials=1,
            start=start,
        )
    sizes = [min(_CHUNK, trials - done) for done in range(0, trials, _CHUNK)]
    found, _ = _gather(_losses_of, [(game, side, size, most) for side in (0, 1) for size in sizes], job)
    first, second = (torch.from_numpy(np.concatenate(side)) for side in (found[: len(sizes)], found[len(sizes) :]))
    bound = epsilon_lower_bound(first, second, job.plan.open_ledger().delta, confidence=job.options.confidence)
    return _finding(
        job,
        **_played(job, game),
        claimed=claimed,
        bound=bound.epsilon,
        method="many runs",
        attack=f"likelihood ratio of {most} releases",
        trainings=2 * trials,
        trials=2 * trials,
        start=start,
    )


def _losses_of(game: Game, side: int, count: int, most: int) -> tuple[Numbers, float]:
    """Log-likelihood ratios (count,) of fits on one of the two data sets."""
    with curator_audit(game) as watched:
        return np.array(watched.losses(side, count, most)), 0.0


def _trials(job: AuditJob, usual: int) -> int:
    trials = job.options.trainings or usual
    if trials < FEWEST:
        raise ValueError(f"trainings must be at least {FEWEST}, got {trials}")
    return trials


def _finding(job: AuditJob, *, bound: float, start: float, claimed_by: str = "the ledger", **more: Any) -> Finding:
    """The finding, with what every audit knows of its job; `more` are further fields of `Finding`."""
    ledger = job.plan.open_ledger()
    return Finding(
        claimed_by=claimed_by,
        delta=ledger.delta,
        relation=ledger.relation,
        unit=ledger.unit,
        lower_bound=bound,
        confidence=job.options.confidence,
        seconds=time.monotonic() - start,
        **more,
    )


def _played(job: AuditJob, game: Game) -> dict[str, str]:
    """A game in words: the system and the neighbouring data sets."""
    return {"audited": f"{job.model}: {_spent(job.plan)}", "neighbours": game.pair().description}


def _spent(plan: Any) -> str:
    """The numbers of a plan that say what it may spend."""
    shown = ("epsilon", "delta", "draws", "rounds", "unit")
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
