"""Audits: DP-SGD by canaries in the sums that its real engine releases, every other system by fits of two data sets.

Canaries have orthogonal gradients, and the adversary sees every released sum.
"""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import fields, replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import lightning as L
import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm

from dpgen.auditing.lower_bounds import FEWEST, Finding, epsilon_lower_bound, one_run_lower_bound
from dpgen.auditing.options import AuditJob
from dpgen.callbacks import PrivacyAccountant
from dpgen.columns.discretized import DiscretizedColumn
from dpgen.containers import in_memory
from dpgen.data import KINDS, Columns, LinkedTables, Points, Records, Table, Users, load_linked
from dpgen.files import write_atomically
from dpgen.nets.bank import ModelBank, Noise
from dpgen.privacy.clipping import Factor, RecordGradients
from dpgen.privacy.curator import Curator, Draw
from dpgen.privacy.noise import PublicRandomness
from dpgen.privacy.sampling import Batch, PoissonLoader
from dpgen.release import PublicModel
from dpgen.runtime import quiet_runtime, quiet_training
from dpgen.schema import Schema
from dpgen.systems.dp_sgd.plan import DPSGDConfig, DPSGDPlan
from dpgen.systems.dpgan.plan import DPGANConfig
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan
from dpgen.systems.mbde.plan import DrawPlan
from dpgen.systems.registry import systems

_CHUNK = 8  # fits that a process is sent at once
_WORTH_STARTING = 50  # parts below which further processes are not worth their start
_CANARIES, _RUNS, _DRAWS = 1000, 600, 20_000

Numbers = npt.NDArray[np.float64]


def audit(job: AuditJob) -> Finding:
    """Try the claim of a job, and write the finding if the job says where."""
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


def _as_dpgm(plan: Any, config: Any) -> tuple[Any, Any]:
    """Plan and configuration by which DPGM takes the same steps: a DPGAN has one critic for all records."""
    if not isinstance(config, DPGANConfig):
        return plan, config
    steps = {own.name: getattr(plan, own.name) for own in fields(DPSGDPlan) if "means" not in own.name}
    return DPGMPlan(**steps), DPGMConfig(
        clusters="none", **{own.name: getattr(config, own.name) for own in fields(DPSGDConfig)}
    )


def _audit_training(job: AuditJob) -> dict[str, Any]:
    """White box: guess canaries, each present by a coin, from the sums that the real engine releases."""
    options, (plan, config) = job.options, _as_dpgm(job.plan, job.config)
    coins = canary_coins(options.canaries or _CANARIES, trainings=options.trainings or 1, seed=options.seed)
    found, claimed = _gather(train_watched, [(plan, config, row, options.seed) for row in coins], job)
    scores = torch.from_numpy(np.concatenate(found))
    bound = one_run_lower_bound(scores, coins.flatten(), plan.delta, confidence=options.confidence)
    cost = f"epsilon {plan.epsilon:g}" if plan.noise_multiplier is None else f"sigma {plan.noise_multiplier:g}"
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


STEEPNESS = 1e6
"""Gradients are so large that every clipping policy cuts them to its bound."""


class CanaryBank(ModelBank):
    r"""k linear models with loss :math:`10^6 \langle \theta, x \rangle`: the gradient of a record is the record itself.

    Records along different axes have orthogonal gradients, so one coordinate of a released sum tells of one record alone.
    """

    def __init__(self, k: int, d: int) -> None:
        super().__init__(k, {"direction": (d,)})

    def architecture(self) -> dict[str, Any]:
        return {"d": self.p}

    def initialize(self, generator: torch.Generator) -> None:
        self.theta.zero_()

    def gradients(self, x: Tensor, bounds: Sequence[int], noise: Noise) -> RecordGradients:
        return RecordGradients([Factor(STEEPNESS * x, None, None, slice(0, self.p))], bounds)

    def sample(self, cluster: int, n: int, generator: torch.Generator) -> Tensor:
        return torch.full((n, self.p), 0.5)


class _WatchedDPGM(DPGM):
    """The real engine, whose releases an adversary writes down; canaries of the cluster `target` are coordinates from 1 on."""

    released = False  # sums alone are, no model

    def __init__(self, *, target: int, **options: Any) -> None:
        super().__init__(**options)
        self.target = target
        self.seen: list[Tensor] = []

    def noisy_sums(self, batch: Batch, draw: Draw, out: Tensor | None = None, *, averaged: bool = False) -> Tensor:
        released = super().noisy_sums(batch, draw, out, averaged=averaged)
        self.seen.append(released[self.target, 1:].double() / (self.averaging()[self.target] if averaged else 1.0))
        return released


ATTACKS = ("likelihood ratio", "sum of all steps", "differences of steps")
"""Statistics of the adversary for each canary; which of them serves best is chosen on canaries that are not counted."""

_OTHERS = 200  # further records in the canaries' cluster
_EVERY = 10**9  # epochs between tight values: only the last one is wanted


def train_watched(plan: DPGMPlan, config: DPGMConfig, included: Tensor, seed: int = 0) -> tuple[Numbers, float]:
    """Scores (m, a) of the canaries in one training of DPGM's engine, and the epsilon that it claimed.

    Canaries that `included` (m,) does not name are absent, or reversed under replace_one. Networks are replaced by the worst
    case. Clusters are found by label, and the canaries are in the last one. Where people have several rows a canary has all of
    them, and all are equal.
    """
    k, canaries = config.k or 1, len(included)
    size = _OTHERS + canaries // 2  # of each cluster, on average over the coins
    others = torch.cat([torch.arange(size * (k - 1)) % max(1, k - 1), torch.full((_OTHERS,), k - 1)])
    signs = torch.where(included, 1, -1 if plan.relation == "replace_one" else 0).to(torch.int8)
    here = signs.nonzero()[:, 0].repeat_interleave(plan.rows)
    x = torch.zeros(len(others) + len(here), 1 + canaries, dtype=torch.int8)
    x[: len(others), 0] = 1
    x[torch.arange(len(others), len(x)), 1 + here] = signs[here]
    labels = torch.cat([others, torch.full_like(here, k - 1)]) if k > 1 else None
    module = _WatchedDPGM(
        d=x.shape[1],
        plan=plan,
        config=replace(config, clusters="labels" if k > 1 else "none", k=k, centred=False),  # steps are audited, no means
        n_classes=k if k > 1 else 0,
        seed=seed,
        bank=CanaryBank(k, x.shape[1]),
        target=k - 1,
    )
    ids = torch.cat([torch.arange(len(others)), len(others) + here])
    people = ids if plan.rows > 1 else None
    loader = PoissonLoader(x, labels, people=people, rows=plan.rows, **plan.drawn)
    accountant = PrivacyAccountant(Curator(module.plan.open_ledger()), every=_EVERY)
    with quiet_training():
        trainer = L.Trainer(
            max_steps=module.plan.steps,
            max_epochs=-1,
            accelerator="cpu",
            callbacks=[accountant, module.config.clipping_callback(module.plan)],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
        trainer.fit(module, loader)
    seen = torch.stack(module.seen) if module.seen else torch.zeros(1, canaries, dtype=torch.float64)
    return attack_scores(seen, module.plan).numpy(), accountant.ledger.epsilon()


def attack_scores(y: Tensor, plan: DPGMPlan) -> Tensor:
    r"""Statistics (m, a) of the canaries' coordinates :math:`y_t`, (t, m), of the released sums, large for present canaries.

    The likelihood ratio of Poisson sampling is :math:`\sum_t \log(1 - q + q e^{(y_t - 1/2) / \sigma^2})`, minus the same
    of :math:`-y_t` where an absent canary is a reversed one. Differences, largest minus smallest :math:`y_t`, see noise that
    repeats.
    """
    assert plan.noise_multiplier is not None
    q, sigma = torch.tensor(plan.sampling_rate, dtype=torch.float64), plan.noise_multiplier

    def log_mixture(y: Tensor) -> Tensor:
        return torch.logaddexp(torch.log1p(-q), q.log() + (y - 0.5) / sigma**2)

    ratio = log_mixture(y) - (log_mixture(-y) if plan.relation == "replace_one" else 0.0)
    return torch.stack([ratio.sum(0), y.sum(0), y.amax(0) - y.amin(0)], 1)


def _audit_releases(job: AuditJob) -> dict[str, Any]:
    """Black box: tell the releases of two worst-case data sets apart; one fit of a sampler makes all of its draws."""
    at_once = by_draw(job) or systems()[job.model].kinds[0] == "users"
    if (trials := job.options.trainings or (_DRAWS if at_once else _RUNS)) < FEWEST:
        raise ValueError(f"trainings must be at least {FEWEST}, got {trials}")
    sizes = [trials] if at_once else [min(_CHUNK, trials - done) for done in range(0, trials, _CHUNK)]
    found, claimed = _gather(released, list(product([job], (0, 1), sizes)), job)
    first, second = with_direction(*joined(found[: len(sizes)], found[len(sizes) :]))
    bound = epsilon_lower_bound(first, second, job.plan.open_ledger().delta, confidence=job.options.confidence)
    last = first.shape[1] - 1
    method, fits = ("many draws", 2) if at_once else ("many runs", 2 * trials)
    return {
        "audited": f"{job.model}: {_spent(job.plan)}",
        "neighbours": pair_of(job, 1).description,
        "claimed": claimed,
        "lower_bound": bound.epsilon,
        "method": method,
        "attack": "best linear statistic" if bound.attack == last else f"statistic {bound.attack + 1} of {last}",
        "trainings": fits,
        "trials": len(first) + len(second),
    }


def _spent(plan: Any) -> str:
    """Budget of a plan, in words."""
    shown = ("epsilon", "delta", "draws", "rounds", "unit")
    return ", ".join(f"{name} {value}" for name, value in vars(plan).items() if name in shown and value is not None)


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


# -- neighbours -------------------------------------------------------------------------------------------------------


_RECORDS, _BITS = 40, 4
_VALUES, _GRID = 60, 64
_POINTS, _CLOSE = 20, 1e-3
_CATEGORIES = 4
_ROWS = 4  # of a person


class Pair(NamedTuple):
    """Two neighbouring data sets, in words and in full."""

    description: str
    first: Any
    second: Any


def _pair(relation: str, of: Callable[..., Any], first: Any, second: Any, replaced: str, present: str) -> Pair:
    """Data with `first` at the end, and with `second` in its place or nothing."""
    if relation == "replace_one":
        return Pair(replaced, of(first), of(second))
    return Pair(f"{present}, or not", of(first), of())


def records_pair(relation: str, copies: int = 1, trials: int = 1) -> Pair:
    """Records of all zeros or all ones in equal parts, and `copies` more of ones; or of ones instead of zeros."""
    x = (torch.arange(_RECORDS) % 2)[:, None].expand(_RECORDS, _BITS).to(torch.uint8)
    ones, zeros = (torch.full((copies, _BITS), bit, dtype=torch.uint8) for bit in (1, 0))

    def records(*more: Tensor) -> Records:
        return Records("neighbours", torch.cat([x, *more]), ones)

    return _pair(relation, records, ones, zeros, "one record of zeros becomes ones", "one record of ones")


def table_pair(relation: str, copies: int = 1, trials: int = 1) -> Pair:
    """Rows with one answer to all questions, half of them yes; one row of yes more, or one of yes in place of no."""
    answers = {"type": "string", "constraints": {"required": True, "enum": ["no", "yes"]}, "dpgen:source": "public"}
    schema = Schema.from_descriptor({"fields": [{"name": f"question {c}", **answers} for c in range(_BITS)]})
    codes = (torch.arange(_RECORDS) % 2)[:, None].expand(_RECORDS, _BITS)
    yes, no = (torch.full((copies, _BITS), code) for code in (1, 0))

    def table(*more: Tensor) -> Table:
        return Table("neighbours", torch.cat([codes, *more]), schema, yes)

    return _pair(relation, table, yes, no, "one row of no becomes yes", "one row of yes")


def linked_pair(relation: str, copies: int = 1, trials: int = 1) -> Pair:
    """People with m rows, on each of which hang two others, and one answer to all questions, half of them yes; one of yes
    more, or one of yes in place of no.
    """
    answer = {"type": "string", "constraints": {"required": True, "enum": ["no", "yes"]}}
    schema = {"fields": [{"name": "answer", **answer}]}
    options: dict[str, Any] = {"person": "person", "max_rows": _ROWS, "test_fraction": 0.0, "schemas": {"below": schema}}

    def tables(*more: bool) -> LinkedTables:
        answers = np.array([i % 2 == 0 for i in range(_RECORDS)] + list(more))
        people = np.arange(len(answers))
        rows = np.arange(_ROWS * len(answers))
        keys = {"people": {"person": people}, "rows": {"person": rows // _ROWS, "row": rows}, "below": {"row": rows.repeat(2)}}
        owners = (people, rows // _ROWS, rows.repeat(2) // _ROWS)
        made = [
            in_memory(pd.DataFrame(of).assign(answer=np.where(answers[p], "yes", "no"))) for of, p in zip(keys.values(), owners)
        ]
        for table, name in zip(made, keys):
            table.table = name
        others: dict[str, Any] = {"people_path": made[0], "tables": {"below": made[2]}, "links": {"below": "rows.row"}}
        return load_linked(path=made[1], schema=schema, people_schema=schema, **others, **options)

    person = f"a person with {_ROWS} rows of yes on two levels"
    return _pair(relation, tables, True, False, f"{person} has no in all of them", person)


def columns_pair(relation: str, copies: int = 1, trials: int = 1) -> Pair:
    """All values at the upper end of the grid, and one record at the lower end, which moves all counts below it."""

    def columns(*extra: int) -> Columns:
        values = np.array([_GRID - 1] * _VALUES + list(extra) * copies, np.int64)
        return Columns("neighbours", {"x": values}, {"x": DiscretizedColumn.integers(_GRID)})

    return _pair(relation, columns, 0, _GRID - 1, *["one value at the other end"] * 2)


def _points(x: Tensor) -> Points:
    return Points("neighbours", x, x[:2], bounds=torch.tensor([[0.0, 1.0]], dtype=torch.float64))


def _near() -> Tensor:
    return torch.linspace(0.0, _CLOSE, _POINTS, dtype=torch.float64)[:, None]


def whole_points_pair() -> Pair:
    """All points at one end of a box, and all at the other."""
    return Pair("all points at one end or at the other", _points(1 - _near()), _points(_near()))


def points_pair(relation: str, copies: int = 1, trials: int = 1) -> Pair:
    """All points at one end of a box, but for one in the middle."""
    near, far = _near(), torch.full((copies, 1), 0.5, dtype=torch.float64)

    def points(*more: Tensor) -> Points:
        return _points(torch.cat([near, *more]))

    return _pair(relation, points, far, near[:1].expand(copies, 1), *["one point in the middle"] * 2)


def users_pair(relation: str = "replace_one", copies: int = 1, trials: int = 1) -> Pair:
    """One user a trial: users who all hold the first category, or all the last: draws of users are independent."""

    def holding(category: int) -> Users:
        counts = torch.zeros(trials, _CATEGORIES, dtype=torch.float64)
        counts[:, category] = 1.0
        names = tuple(f"user {i}" for i in range(trials))
        return Users("neighbours", counts, names, tuple(f"category {j}" for j in range(_CATEGORIES)))

    return Pair("a user of one category or of another", holding(0), holding(_CATEGORIES - 1))


def by_draw(job: AuditJob) -> bool:
    """Whether the trials of a fit are draws from one data set, each at its own price."""
    return systems()[job.model].kinds[0] == "points" and isinstance(job.plan, DrawPlan)


def pair_of(job: AuditJob, trials: int) -> Pair:
    """The neighbours that are worst for the system's kind of data and unit of privacy: people have all equal rows."""
    if by_draw(job):
        return whole_points_pair()
    neighbours: Callable[[str, int, int], Pair] = resolve_name(KINDS[systems()[job.model].kinds[0]].pair)
    return neighbours(str(job.plan.open_ledger().relation), job.plan.rows, trials)


def released(job: AuditJob, side: int, trials: int) -> tuple[Numbers, float]:
    """Statistics (trials, a) of releases from one of the two data sets, and the epsilon that is claimed for one of them."""
    pair, plan, price = pair_of(job, trials), job.plan, 1
    found: list[Tensor] = []
    data, system = (pair.first, pair.second)[side], systems()[job.model]
    if by_draw(job):
        price, plan = trials, replace(plan, epsilon=plan.per_draw * trials, draws=trials)
    while len(found) < trials:
        with TemporaryDirectory() as directory, quiet_training():
            runtime, curator = quiet_runtime(Path(directory), job.options.seed), Curator(plan.open_ledger())
            release = system.fit(data, plan=plan, config=job.config, curator=curator, runtime=runtime)
        found += _numbers(release) if isinstance(release, PublicModel) else _draws(release)
    return pad_sequence(found, batch_first=True).numpy(), release.statement.epsilon / price


def _numbers(release: PublicModel) -> list[Tensor]:
    """All numbers of a released model: one trial."""
    tensors = release.tensors()
    return [torch.cat([tensors[name].double().reshape(-1) for name in sorted(tensors)]).nan_to_num(0.0, 1e9, -1e9)]


def _draws(release: Any) -> list[Tensor]:
    """The draws themselves, each of them a trial, or how often each category came for every user."""
    table = release.to_pandas()
    if "user" not in table:
        return list(torch.tensor(table.to_numpy(np.float64)))
    answers = torch.tensor([[value == f"category {j}" for j in range(_CATEGORIES)] for value in table["category"]])
    return list(answers.double().reshape(-1, int(table["draw"].max()) + 1, _CATEGORIES).sum(1))


def joined(*sides: Sequence[Numbers]) -> tuple[Tensor, ...]:
    """Statistics (trials, a) of each side from those of its parts, with zeros where a model has fewer numbers."""
    width = max(part.shape[1] for side in sides for part in side)
    return tuple(torch.cat([pad(torch.from_numpy(part), (0, width - part.shape[1])) for part in side]) for side in sides)


def with_direction(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Both (m, a) with one more column: Fisher's linear discriminant, found on the even rows, which are not counted.

    Several weak signs of a record's presence are one strong sign together.
    """
    a, b = first[0::2], second[0::2]
    scale = torch.cat([a, b]).std(0).clamp_min(1e-12)
    spread = (torch.cov((a / scale).T).reshape(len(scale), -1) + torch.cov((b / scale).T).reshape(len(scale), -1)) / 2
    ridge = 1e-3 * torch.eye(len(scale), dtype=torch.float64)
    weights = torch.linalg.solve(spread + ridge, (a.mean(0) - b.mean(0)) / scale) / scale
    return torch.cat([first, (first @ weights)[:, None]], 1), torch.cat([second, (second @ weights)[:, None]], 1)
