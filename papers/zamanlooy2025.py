"""Figures 2, 3 and 4 of Zamanlooy et al. (2025): samplers with public data, beside better ones and in another regime."""

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor
from tqdm.auto import tqdm

from dpgen.data import Users
from dpgen.figures import new_figure, save_figure
from dpgen.systems import (
    FiniteSampler,
    MinimaxSampler,
    ParkSampler,
    ProjectedKernel,
    QInvariantMinimax,
    RandomizedResponse,
    RelativeMollifier,
)
from dpgen.systems.local.model import f_divergence
from papers.common import main, write_table
from papers.data import click_users, load_movielens, read_clicks

SAMPLERS: dict[str, Callable[..., FiniteSampler]] = {
    sampler.kind: sampler
    for sampler in (MinimaxSampler, RelativeMollifier, ProjectedKernel, QInvariantMinimax, RandomizedResponse, ParkSampler)
}
"""Samplers by name, all made by `sampler(epsilon, prior)`."""

PAPER = ("minimax", "mollifier")
"""The samplers that the paper compares; the other ones are drawn dashed."""

EPSILONS = (1.0, 2.0, 5.0, 8.0)
AVAZU_FILES = ("train.csv", "train.csv.gz", "train.gz")
ATTRIBUTE, TOP_SITES, MIN_CLICKS, MIN_USERS = "C18", 100, 20, 20


def reproduce(out: Path, *, data_root: Path | None = None, quick: bool = False, seed: int = 0) -> str:
    """Figure 2 and its other regime; Figures 3 and 4 where ``data_root`` has ``avazu/`` and ``ml-100k/`` with ``ml-1m/``.

    - figure2: n = 100, eps = 8, P = (p_1, equal rest) with p_1 swept, 10 random priors, TV and KL with standard errors.
    - figure2_near: the same with P near the prior, P_j proportional to q_j exp(s z_j), s swept.
    - figure3: largest TV among the users of each C18 subcategory of Avazu. As in the paper the prior is the average of
      the very users that are compared: a simulation of public knowledge, not a private release.
    - figure4: largest TV among the users of each age group of MovieLens 1M, the prior from the same group of 100K.

    Arguments:
        out: directory of pictures (.png) and tables (.csv).
        data_root: directory with the data files.
        quick: few points, few priors, n = 20.
        seed: of public randomness.

    Returns:
        What was found, in a few lines.
    """
    n, priors, points = (20, 3, 7) if quick else (100, 10, 41)
    sweeps: dict[str, tuple[str, Sequence[float], Callable[[float, Tensor, Tensor], Tensor]]] = {
        "figure2": ("first entry p_1 of P", torch.linspace(1 / n, 1, points).tolist(), peaked),
        "figure2_near": ("distance s of P from the prior", torch.linspace(0, 3, points).tolist(), _tilted),
    }
    lines = []
    for name, (label, values, user) in sweeps.items():
        table = sweep(values, user, n=n, epsilon=8.0, priors=priors, seed=seed, title=name)
        write_table(table, out / f"{name}.csv")
        sweep_figure(table, label, out / f"{name}.png")
        lines.append(f"{name}: {_crossing(table)}")
    for name, label, groups in _real_data(data_root):
        table = worst_users(groups, title=name)
        write_table(table, out / f"{name}.csv")
        worst_figure(table, label, out / f"{name}.png")
        lines.append(f"{name}: {_gain(table)}")
    if len(lines) == 2:
        lines.append("figure3, figure4: give data_root with avazu/train.csv, ml-100k/ and ml-1m/")
    return "\n".join([*lines, f"pictures and tables in {out}"])


def sweep(
    values: Sequence[float],
    user: Callable[[float, Tensor, Tensor], Tensor],
    *,
    n: int,
    epsilon: float,
    priors: int,
    seed: int,
    title: str = "",
) -> pd.DataFrame:
    """TV and KL of P and Q(P) for one user at each value: mean and standard error over random priors, a row each.

    `user` makes P (n,) of a value, the prior (n,) and standard normals (n,).
    """
    generator = torch.Generator().manual_seed(seed)
    found: dict[tuple[str, str], list[Tensor]] = {}
    for _ in tqdm(range(priors), desc=title, leave=False):
        prior = _random_prior(n, generator)
        normals = torch.randn(n, generator=generator, dtype=torch.float64)
        p = torch.stack([user(value, prior, normals) for value in values])
        for sampler, make in SAMPLERS.items():
            q = make(epsilon, prior).apply(p)
            for divergence in ("tv", "kl"):
                found.setdefault((sampler, divergence), []).append(f_divergence(p, q, divergence))
    rows = []
    for (sampler, divergence), runs in found.items():
        stacked = torch.stack(runs)
        error = stacked.std(0) / math.sqrt(priors)
        rows += [
            {"sampler": sampler, "divergence": divergence, "value": v, "mean": m, "standard_error": e}
            for v, m, e in zip(values, stacked.mean(0).tolist(), error.tolist())
        ]
    return pd.DataFrame(rows)


def worst_users(groups: dict[str, Users], *, epsilons: Sequence[float] = EPSILONS, title: str = "") -> pd.DataFrame:
    """Largest and mean TV among the users of each group, with the group's own prior, a row for each sampler and epsilon."""
    rows = []
    for group, users in tqdm(groups.items(), desc=title, leave=False):
        assert users.prior is not None
        for epsilon in epsilons:
            for sampler, make in SAMPLERS.items():
                with warnings.catch_warnings():
                    # Categories that nobody in the group chose have prior 0 and are raised to a floor, which warns.
                    warnings.simplefilter("ignore", UserWarning)
                    q = make(epsilon, users.prior).apply(users.distributions)
                tv = f_divergence(users.distributions, q, "tv")
                worst, mean = float(tv.max()), float(tv.mean())
                rows.append(
                    {"group": group, "users": users.u, "epsilon": epsilon, "sampler": sampler, "worst": worst, "mean": mean}
                )
    return pd.DataFrame(rows)


def avazu_groups(path: Path) -> dict[str, Users]:
    """Users of each C18 subcategory as in section 5.3: its 100 most clicked sites, devices with 20 clicks on them or more.

    Subcategories with fewer than 20 such devices are left out; the prior is the average of the devices themselves.
    """
    groups = {}
    for value, inside in read_clicks(path, ATTRIBUTE).groupby(ATTRIBUTE):
        users = click_users(f"{ATTRIBUTE} = {value}", inside, top_sites=TOP_SITES, min_clicks=MIN_CLICKS)
        if users is not None and users.u >= MIN_USERS:
            groups[str(value)] = users
    return dict(sorted(groups.items(), key=lambda group: (len(group[0]), group[0])))


def movielens_groups(root: Path) -> dict[str, Users]:
    """Users of MovieLens 1M by age group, each with the average of its age group in 100K as prior (section 5.4)."""
    private, public = load_movielens(root, "1m"), load_movielens(root, "100k")

    def of_group(users: Users, name: str) -> Users:
        rows = [row for row, group in enumerate(users.groups or ()) if group == name]
        return replace(
            users, counts=users.counts[rows], user_names=tuple(users.user_names[r] for r in rows), groups=(name,) * len(rows)
        )

    return {
        name: replace(
            of_group(private, name),
            prior=of_group(public, name).distributions.mean(0),
            prior_origin="MovieLens 100K, same age group",
        )
        for name in private.group_names
        if name in public.group_names
    }


def _real_data(data_root: Path | None) -> Iterator[tuple[str, str, dict[str, Users]]]:
    if data_root is None:
        return
    logs = [data_root / "avazu" / name for name in AVAZU_FILES if (data_root / "avazu" / name).is_file()]
    if logs:
        groups = avazu_groups(logs[0])
        if not groups:
            raise ValueError(f"{logs[0]} has no {ATTRIBUTE} subcategory with {MIN_USERS} devices of {MIN_CLICKS} clicks")
        yield "figure3", f"Avazu: subcategory of {ATTRIBUTE}", groups
    if (data_root / "ml-100k").is_dir() and (data_root / "ml-1m").is_dir():
        yield "figure4", "MovieLens 1M: age group", movielens_groups(data_root)


def _random_prior(n: int, generator: torch.Generator) -> Tensor:
    """Independent uniforms in (0, 1), normalised (section 5.2)."""
    values = torch.rand(n, generator=generator, dtype=torch.float64).clamp_min(1e-12)
    return values / values.sum()


def peaked(value: float, prior: Tensor, normals: Tensor) -> Tensor:
    """P = (value, equal rest)."""
    p = torch.full_like(prior, (1 - value) / (len(prior) - 1))
    p[0] = value
    return p


def _tilted(value: float, prior: Tensor, normals: Tensor) -> Tensor:
    return torch.softmax(prior.log() + value * normals, 0)


def _crossing(table: pd.DataFrame) -> str:
    tv = table[table["divergence"] == "tv"].pivot(index="value", columns="sampler", values="mean")
    better = tv.index[tv["minimax"] < tv["mollifier"]]
    start = f"minimax beats the mollifier from {better[0]:.3g} on" if len(better) else "the mollifier beats minimax everywhere"
    return f"{start}; mean TV over the sweep: {_means(tv)}"


def _gain(table: pd.DataFrame) -> str:
    wide = table.pivot_table(index=["group", "epsilon"], columns="sampler", values="worst")
    share = float((wide["minimax"] < wide["mollifier"]).mean())
    return f"worst user: minimax beats the mollifier in {share:.0%} of {len(wide)} cases; mean: {_means(wide)}"


def _means(wide: pd.DataFrame) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in wide.mean().sort_values().items())


def sweep_figure(table: pd.DataFrame, label: str, path: Path) -> Path:
    """TV and KL against what was swept, bands of one standard error."""
    figure = new_figure(9.0, 3.6)
    panels = figure.subplots(1, 2)
    for axes, (divergence, title) in zip(panels, {"tv": "total variation", "kl": "KL(P || Q)"}.items()):
        for sampler, rows in table[table["divergence"] == divergence].groupby("sampler", sort=False):
            style, width = ("-", 2.2) if sampler in PAPER else ("--", 1.1)
            [line] = axes.plot(rows["value"], rows["mean"], style, label=sampler, linewidth=width)
            low, high = rows["mean"] - rows["standard_error"], rows["mean"] + rows["standard_error"]
            axes.fill_between(rows["value"], low, high, alpha=0.25, color=line.get_color(), linewidth=0)
        axes.set(xlabel=label, ylabel=f"{title} of P and Q", title=title)
    panels[0].legend(frameon=False, fontsize=7)
    return save_figure(figure, path)


def worst_figure(table: pd.DataFrame, label: str, path: Path) -> Path:
    """The worst user of each group, one panel for each epsilon."""
    epsilons, groups = sorted(table["epsilon"].unique()), list(dict.fromkeys(table["group"]))
    figure = new_figure(max(6.0, 0.5 * len(groups) + 2), 2.4 * len(epsilons))
    for axes, epsilon in zip(figure.subplots(len(epsilons), 1, sharex=True, squeeze=False)[:, 0], epsilons):
        rows, width = table[table["epsilon"] == epsilon], 0.8 / len(SAMPLERS)
        for i, sampler in enumerate(SAMPLERS):
            heights = rows[rows["sampler"] == sampler].set_index("group").loc[groups, "worst"]
            axes.bar([j - 0.4 + (i + 0.5) * width for j in range(len(groups))], heights, width=width, label=sampler)
        axes.set(ylabel="largest TV", ylim=(0, 1.02), title=f"eps {epsilon:g}")
    axes.set(xlabel=label)
    axes.set_xticks(range(len(groups)), labels=groups, fontsize=7)
    axes.legend(frameon=False, fontsize=6, ncols=3)
    return save_figure(figure, path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], name="zamanlooy"))
