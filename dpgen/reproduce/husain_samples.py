"""Figure 1 of Husain et al. (2018, 2020) as samples: DPGAN (Xie et al. 2018) on the Gaussian ring beside private draws."""

import math
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from dpgen.cli.command import quiet_runtime
from dpgen.data.points import Points
from dpgen.data.toy import GaussianMixture
from dpgen.figures import new_figure, save_figure
from dpgen.metrics.densities import Quadrature, negative_log_likelihood
from dpgen.privacy.curator import Curator
from dpgen.systems.registry import SYSTEMS

DELTA = 1e-5
GAN_EPSILONS = (1.0, 10.0, 5000.0)
"""Two that promise something, and the one of the papers' picture, which promises nothing (they take delta .1)."""

GANS: dict[str, dict[str, Any]] = {
    "DPGAN": {"hidden": 64, "lr": 0.01, "critic_steps": 2},
    "DPGAN, wgan": {"hidden": 64, "lr": 0.02, "loss": "wgan"},
}
"""Networks of `configs/dpgan_ring.yaml`, with its loss and with the published one."""

_RATE = 0.02
_WIDTHS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)


def gan_samples(points: Points, method: str, epsilon: float, *, steps: int, n: int, seed: int) -> Tensor:
    """n points (n, d) of a generator that was trained on private points within (epsilon, 1e-5)."""
    system = SYSTEMS["dpgan"]
    plan = system.plan(epsilon=epsilon, delta=DELTA, sampling_rate=_RATE, steps=steps)
    with TemporaryDirectory() as directory:
        runtime = quiet_runtime(Path(directory), seed)
        curator = Curator(plan.open_ledger())
        model = system.fit(points, plan=plan, config=system.config(**GANS[method]), curator=curator, runtime=runtime)
    x: Tensor = model.sample(n, seed=seed).x  # type: ignore[attr-defined]
    return x


def modes_found(log_q: Tensor, target: GaussianMixture, rule: Quadrature) -> int:
    """Components of the target with at least half of its mass within two standard deviations of their mean.

    Arguments:
        log_q: log density (m,) at the nodes; samples come as their histogram.
        target: whose means and variances are meant.
        rule: the nodes.
    """
    log_p = rule.normalised(target.log_prob(rule.nodes))
    found = 0
    for mean, variance in zip(target.means, target.variances):
        near = (rule.nodes - mean).square().sum(1) <= 4 * variance
        found += bool(rule.integral(log_q.exp() * near) >= 0.5 * rule.integral(log_p.exp() * near))
    return found


def valley(log_q: Tensor, target: GaussianMixture, rule: Quadrature) -> float:
    """Density half-way between neighbouring means of the target, in units of that at the means; nan where q is 0 there.

    A blurred ring finds every mode and has 1 here: modes are apart only below it. Both densities are means over discs of
    one standard deviation of the target.
    """
    distance = torch.cdist(target.means, target.means).fill_diagonal_(math.inf)
    between = 0.5 * (target.means + target.means[distance.argmin(1)])
    q, totals = log_q.exp(), []
    for centres in (between, target.means):
        near = torch.stack([(rule.nodes - c).square().sum(1) <= v for c, v in zip(centres, target.variances)])
        totals.append(float((q * near).sum()))
    return totals[0] / totals[1] if totals[1] else math.nan


def histogram(x: Tensor, rule: Quadrature) -> Tensor:
    """Log density (m,) of samples (n, 2) at the nodes of a rule, constant in each cell; -inf in empty ones."""
    low, high = rule.bounds.unbind(1)
    cell = ((x - low) / (high - low) * rule.per_axis).long().clamp(0, rule.per_axis - 1)
    counts = torch.bincount(cell[:, 0] * rule.per_axis + cell[:, 1], minlength=rule.per_axis**2)
    return rule.normalised(counts.to(torch.float64).log())


def kernel_log_density(x: Tensor, log_p: Tensor, rule: Quadrature) -> tuple[Tensor, float]:
    """Gaussian kernel estimate (m,) from samples (n, 2), with the width, of those tried, that is nearest to the target.

    A generator has no density that can be computed: this one favours it, since the width knows the target.
    """
    masses = histogram(x, rule).exp().reshape(rule.per_axis, rule.per_axis)
    best, width = torch.full_like(log_p, -math.inf), math.nan
    least = math.inf
    for h in _WIDTHS:
        first, second = (torch.exp(-0.5 * ((axis[:, None] - axis) / h) ** 2) for axis in rule.axes)
        found = rule.normalised((first @ masses @ second.T).reshape(-1).log())
        nll = negative_log_likelihood(log_p, found, rule)
        if nll < least or not least < math.inf:
            best, width, least = found, h, nll
    return best, width


def draws(log_q: Tensor, rule: Quadrature, n: int, *, seed: int) -> Tensor:
    """n points (n, d) of a density given at the nodes (m,), uniform within a cell."""
    generator = torch.Generator().manual_seed(seed)
    node = torch.multinomial(log_q.exp(), n, replacement=True, generator=generator)
    step = (rule.bounds[:, 1] - rule.bounds[:, 0]) / rule.per_axis
    return rule.nodes[node] + step * (torch.rand(n, len(step), generator=generator, dtype=torch.float64) - 0.5)


def samples_sheet(panels: Mapping[str, Tensor], rule: Quadrature, path: Path, *, per_row: int, title: str) -> Path:
    """Points (n, 2) of every method, a panel each, all on the same square."""
    rows = math.ceil(len(panels) / per_row)
    figure = new_figure(2.0 * per_row, 2.4 * rows + 0.4)
    figure.suptitle(title, fontsize=9)
    places = figure.subplots(rows, per_row, squeeze=False, sharex=True, sharey=True).ravel()
    for axes, (name, x) in zip(places, panels.items()):
        axes.scatter(x[:, 0].numpy(), x[:, 1].numpy(), s=1.5, alpha=0.5, linewidths=0, rasterized=True)
        axes.set_title(name, fontsize=7)
        axes.set(xlim=tuple(rule.bounds[0].tolist()), ylim=tuple(rule.bounds[1].tolist()), aspect="equal")
        axes.tick_params(labelsize=6)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    return save_figure(figure, path)
