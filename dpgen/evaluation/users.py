"""Evaluation of local samplers: distance of each user's draws to the user's distribution, beside every other sampler."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor

from dpgen.data.users import Users, normalised
from dpgen.divergences import f_divergence
from dpgen.evaluation.scores import Evaluation, Score, markdown_table, number
from dpgen.figures import new_figure, save_figure
from dpgen.files import write_atomically
from dpgen.release import Draws
from dpgen.statement import UNPROTECTED, rounded_up
from dpgen.systems.local.fit import SAMPLERS
from dpgen.systems.local.model import FiniteSampler

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST_CELLS = 2**24
"""Users times categories that are transformed at a time."""

ROUNDING = 1e-15
"""Error of a sum of a few doubles, relative to its largest term."""

MOST_GROUPS = 24
"""Groups that a picture shows; the table has all of them."""


def evaluate(release: Draws, users: Users, *, seed: int) -> Evaluation:
    r"""Total variation between what a user holds, P, and what the draw follows, Q(P): its distribution over the users.

    The release's sampler stands beside every other one with the same epsilon and prior, and beside the prior itself, which
    needs no data at all. Files: samplers.csv, groups.csv (with groups), samplers.png, groups.png and USERS.md, which
    also says what one user's draws cost together. All of them look at private distributions. Of nobody there are no scores.

    Raises:
        ValueError: the release does not know its mechanism, or that is for another number of categories.
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
    statistics: dict[str, Callable[[Tensor], Tensor]] = {"mean": torch.mean, "median": _median, "worst": torch.max}
    rows = [
        {"sampler": name, "epsilon": samplers[name].epsilon}
        | {key: float(f(values)) for key, f in statistics.items()}
        | {"worst_possible": samplers[name].worst_case("tv")}
        for name, values in distances.items()
    ]
    table, groups = pd.DataFrame(rows), _group_table(distances, users)
    files: dict[str, Any] = {
        "samplers.csv": lambda path: write_atomically(path, table.to_csv(index=False)),
        "samplers.png": lambda path: _samplers_figure(distances, mechanism, path),
        "USERS.md": lambda path: write_atomically(path, _users_markdown(release, users, table, groups)),
    }
    if groups is not None:
        files["groups.csv"] = lambda path: write_atomically(path, groups.to_csv(index=False))
        files["groups.png"] = lambda path: _groups_figure(groups, list(users.group_names), mechanism.epsilon, path)
    scores = _scores(mechanism, distances, release, users, seed)
    return Evaluation(scores=scores, pictures=files, notes=_better(mechanism.kind, distances))


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


def _better(own: str, distances: dict[str, Tensor]) -> tuple[str, ...]:
    """That another sampler of the same epsilon would have been nearer to these users, if one would."""
    means = {name: float(values.mean()) for name, values in distances.items()}
    best = min(means, key=lambda name: means[name])
    if means[best] >= means[own]:
        return ()
    return (
        f"on these users --model {best} is better than {own}: mean total variation {number(means[best])}, not "
        f"{number(means[own])} ({UNPROTECTED})",
    )


def _group_table(distances: dict[str, Tensor], users: Users) -> pd.DataFrame | None:
    """Users, mean, median and worst total variation, a row for each group and sampler; None without groups."""
    if users.groups is None:
        return None
    long = pd.concat(
        [pd.DataFrame({"group": users.groups, "sampler": name, "tv": values.numpy()}) for name, values in distances.items()]
    )
    found = long.groupby(["group", "sampler"], sort=False)["tv"].agg(users="size", mean="mean", median="median", worst="max")
    order = pd.MultiIndex.from_product([users.group_names, list(distances)], names=["group", "sampler"])
    return found.reindex(order).reset_index()


def _median(values: Tensor) -> Tensor:
    """The middle value, or the mean of the two, as tables and boxes have it."""
    ordered = values.sort().values
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _scores(mechanism: FiniteSampler, distances: dict[str, Tensor], release: Draws, users: Users, seed: int) -> list[Score]:
    own, prior = distances[mechanism.kind], distances_of(mechanism.prior, users)
    measures: dict[str, Callable[[Tensor], Tensor]] = {"mean": torch.mean, "median": _median, "worst user": torch.max}
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


def _users_markdown(release: Draws, users: Users, table: pd.DataFrame, groups: pd.DataFrame | None) -> str:
    """The report: samplers, groups, and what one user pays for one draw and for several."""
    lines = [
        "# How much of the users' distributions survives",
        f"{users.u} users, {users.n} categories, prior: {users.prior_origin}. Total variation of P (what a user holds) and Q "
        "(what the user's draw follows), in [0, 1], lower is better. These figures look at private distributions.",
        markdown_table(list(table.columns), table.to_numpy().tolist()),
    ]
    if groups is not None:
        lines += ["## Groups", markdown_table(list(groups.columns), groups.to_numpy().tolist())]
    return "\n\n".join([*lines, *_composition(release)]) + "\n"


def _composition(release: Draws) -> list[str]:
    statement, epsilon = release.statement, float(release.origin.epsilon)
    draws = int(release.to_pandas().groupby("user").size().max()) if len(release.to_pandas()) else 0
    before = max(0.0, statement.epsilon - draws * epsilon)
    more = [k for k in (1, 2, 5, 10, 100) if k != draws]
    parts = [f"{_counted(draws, 'draw')} of eps {rounded_up(epsilon)}{' each' if draws > 1 else ''}"]
    if before > 1e-9 * statement.epsilon:
        parts.append(f"eps {_exact(before, of=statement.epsilon)} for everything else (the prior, earlier runs)")
    rows = [
        [k, _exact(before + k * epsilon, of=statement.epsilon), _exact(2 * (before + k * epsilon), of=statement.epsilon)]
        for k in sorted({draws, *more} - {0})
    ]
    return [
        "## What one user pays",
        f"In total **eps = {_exact(statement.epsilon)}**: {' and '.join(parts)}. The protected unit is {statement.unit}.\n"
        "Draws of different users, and so different groups, do not add up: each user's data are in that user's draws only.\n"
        "Several draws of one user do, and so do people who must be protected together (a household of m pays m times).",
        markdown_table(["draws of one user", "eps of one user", "eps of two users together"], rows),
    ]


def _exact(epsilon: float, *, of: float = 0.0) -> str:
    """`rounded_up`, but a sum of doubles (the largest: `of`) that is four digits up to their rounding is these digits."""
    near = f"{float(f'{epsilon:.4g}'):g}"
    return near if abs(float(near) - epsilon) <= ROUNDING * max(epsilon, of) else rounded_up(epsilon)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


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


def _groups_figure(groups: pd.DataFrame, names: Sequence[str], epsilon: float, path: Path) -> Path:
    """Mean (bars) and worst user (dots) of each group, a sampler each."""
    shown, samplers = list(names)[:MOST_GROUPS], list(dict.fromkeys(groups["sampler"]))
    figure = new_figure(max(5.0, 0.9 * len(shown) + 2), 3.6)
    axes: Axes = figure.add_subplot()
    width = 0.8 / len(samplers)
    for i, sampler in enumerate(samplers):
        rows = groups[groups["sampler"] == sampler].set_index("group").loc[shown]
        places = [j - 0.4 + (i + 0.5) * width for j in range(len(shown))]
        bars = axes.bar(places, rows["mean"], width=width, label=sampler)
        axes.plot(places, rows["worst"], "o", markersize=3, color=bars.patches[0].get_facecolor())
    axes.set_xticks(range(len(shown)), labels=shown, rotation=30 if len(shown) > 4 else 0, fontsize=7)
    axes.set(xlabel="group", ylabel="total variation: mean (bar), worst user (dot)", ylim=(0, 1.02))
    axes.set_title(f"P and Q of each group, eps {epsilon:g} a draw: {UNPROTECTED}", fontsize=8)
    axes.legend(frameon=False, fontsize=7)
    return save_figure(figure, path)
