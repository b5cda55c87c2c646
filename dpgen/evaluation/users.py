"""Evaluation of local samplers: distance of each user's draws to the user's distribution, beside every other sampler."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpgen.data.users import Users, normalised
from dpgen.evaluation.scores import Evaluation, Score
from dpgen.figures import new_figure, save_figure
from dpgen.files import write_atomically
from dpgen.release import Draws
from dpgen.statement import UNPROTECTED
from dpgen.systems.local.fit import SAMPLERS
from dpgen.systems.local.model import FiniteSampler, f_divergence

MOST_CELLS = 2**24
"""Users times categories that are transformed at a time."""


def evaluate(release: Draws, users: Users, *, seed: int) -> Evaluation:
    r"""Total variation between what a user holds, P, and what the draw follows, Q(P): its distribution over the users.

    The release's sampler stands beside every other one with the same epsilon and prior, and beside the prior itself, which
    needs no data at all. Files: samplers.csv and samplers.png, which look at private distributions. Of nobody there are no
    scores.
    """
    if not users.u:
        return Evaluation([])
    mechanism = release.origin
    if not isinstance(mechanism, FiniteSampler):
        raise ValueError(f"release has the origin {type(mechanism).__name__}: it must be the sampler that made the draws")
    if mechanism.n != users.n:
        raise ValueError(f"release is for {mechanism.n} categories, the users have {users.n}: they must agree")
    samplers = rivals(mechanism)
    distances = {name: distances_of(sampler, users) for name, sampler in samplers.items()}
    statistics: dict[str, Callable[[Tensor], Any]] = {"mean": torch.mean, "median": np.median, "worst": torch.max}
    rows = [
        {"sampler": name, "epsilon": samplers[name].epsilon}
        | {key: float(f(values)) for key, f in statistics.items()}
        | {"worst_possible": samplers[name].worst_case("tv")}
        for name, values in distances.items()
    ]
    table = pd.DataFrame(rows)
    files: dict[str, Any] = {
        "samplers.csv": lambda path: write_atomically(path, table.to_csv(index=False)),
        "samplers.png": lambda path: _samplers_figure(distances, mechanism, path),
    }
    scores = _scores(mechanism, distances, release, users, seed)
    return Evaluation(scores=scores, pictures=files)


def rivals(mechanism: FiniteSampler) -> dict[str, FiniteSampler]:
    """The mechanism itself, first, and every other sampler of the family with its epsilon and prior."""
    others = {name: make for name, make in SAMPLERS.items() if name != mechanism.kind}
    return {mechanism.kind: mechanism} | {name: make(mechanism.epsilon, mechanism.prior) for name, make in others.items()}


def distances_of(sampler: FiniteSampler | Tensor, users: Users) -> Tensor:
    """Total variation (u,) of each user's P and Q(P); of P and the prior itself, where nobody is asked, for a tensor (n,)."""
    return torch.cat(
        [f_divergence(p, sampler if isinstance(sampler, Tensor) else sampler.apply(p), "tv") for p in _parts(users)]
    )


def _parts(users: Users) -> Iterator[Tensor]:
    """Distributions of the users, `MOST_CELLS` at a time."""
    return map(normalised, users.counts.split(max(1, MOST_CELLS // users.n)))


def _scores(mechanism: FiniteSampler, distances: dict[str, Tensor], release: Draws, users: Users, seed: int) -> list[Score]:
    own, prior = distances[mechanism.kind], distances_of(mechanism.prior, users)
    measures: dict[str, Callable[[Tensor], Any]] = {"mean": torch.mean, "median": np.median, "worst user": torch.max}
    scores = [
        Score(f"TV(P, Q) {name}", float(f(own)), real=0.0, chance=float(f(prior)), better="lower", baseline="prior alone")
        for name, f in measures.items()
    ]
    others = {name: float(values.mean()) for name, values in distances.items() if name != mechanism.kind}
    best = min(others, key=lambda name: others[name])
    scores.append(
        Score("TV(P, Q) mean, beside the best other", float(own.mean()), chance=others[best], better="lower", baseline=best)
    )
    return [*scores, _pooled(mechanism, release, users, seed)]


def _pooled(mechanism: FiniteSampler, release: Draws, users: Users, seed: int) -> Score:
    """All draws together against the average user; as many draws from the P themselves say what sampling alone costs."""
    counts = release.to_pandas()["category"].astype(str).value_counts()
    drawn = torch.tensor([float(counts.get(name, 0)) for name in users.categories], dtype=torch.float64)
    average = users.distributions.mean(0)
    generator = torch.Generator().manual_seed(seed)
    each = max(1, round(len(release.to_pandas()) / users.u))
    honest = torch.cat([torch.multinomial(p.float(), each, True, generator=generator).flatten() for p in _parts(users)])
    real = torch.bincount(honest, minlength=users.n).double()
    value, best, chance = (
        float(f_divergence(q / q.sum(), average, "tv")) if float(q.sum()) > 0 else 1.0 for q in (drawn, real, mechanism.prior)
    )
    name = "TV of all draws together and the average user"
    return Score(name, value, real=best, chance=chance, better="lower", baseline="prior alone")


def _samplers_figure(distances: dict[str, Tensor], mechanism: FiniteSampler, path: Path) -> Path:
    """Share of the users below each total variation, and the boxes of the same figures, a sampler each."""
    figure = new_figure(9.0, 3.6)
    curves, boxes = figure.subplots(1, 2)
    for name, values in distances.items():
        ordered = values.sort().values.numpy()
        share = torch.arange(1, len(ordered) + 1).double() / len(ordered)
        curves.step(ordered, share.numpy(), where="post", label=name, linewidth=2.2 if name == mechanism.kind else 1.2)
    curves.set(
        xlabel="total variation of P and Q", ylabel="share of users", ylim=(0, 1.02), title=f"eps {mechanism.epsilon:g} a draw"
    )
    curves.legend(frameon=False, fontsize=7)
    boxes.boxplot([values.numpy() for values in distances.values()], orientation="horizontal", whis=(0, 100))
    boxes.set_yticks(range(1, len(distances) + 1), labels=list(distances), fontsize=7)
    boxes.invert_yaxis()
    boxes.set(xlabel="total variation (whiskers: best and worst user)", ylabel="sampler", title=UNPROTECTED)
    boxes.title.set_fontsize(8)
    return save_figure(figure, path)
