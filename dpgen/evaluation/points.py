"""Evaluation on points: likelihood, mode coverage, distance to the optimum, and pictures of densities."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dpgen.data.points import Points
from dpgen.evaluation.scores import Evaluation, Score
from dpgen.figures import new_figure, save_figure
from dpgen.metrics.densities import Quadrature, dense_threshold, mode_coverage, negative_log_likelihood, optimal_mollification
from dpgen.release import DensityModel, Draws, PrivateDensity, PublicModel, Release
from dpgen.samples import PointSamples
from dpgen.statement import UNPROTECTED, PrivacyStatement, rounded_up
from dpgen.systems.mbde.densities import UniformReference

_PER_ROW = 8
_SHADES = 12


def densities_figure(
    densities: Mapping[str, Tensor],
    rule: Quadrature,
    path: Path,
    *,
    points: Tensor | None = None,
    per_row: int = _PER_ROW,
    title: str = "",
) -> Path:
    """Log densities (m,) at the nodes of a rule, by name: one set of axes in 1-D, a panel each in 2-D, `per_row` in a row.

    Points (n, d) are drawn over them: ticks at the foot in 1-D, dots in the last panel in 2-D.
    """
    if len(rule.bounds) == 1:
        return _curves(densities, rule, path, points, title)
    rows, columns = math.ceil(len(densities) / per_row), min(len(densities), per_row)
    figure = new_figure(1.9 * columns, 2.1 * rows + (0.3 if title else 0.0))
    if title:
        figure.suptitle(title, fontsize=8)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, (name, log_density) in zip(panels, densities.items()):
        across, up = (axis.numpy() for axis in rule.axes)
        density = log_density.exp().reshape(rule.per_axis, rule.per_axis)
        panel.contourf(across, up, density.T.numpy(), levels=_SHADES, cmap="viridis")  # each panel with shades of its own
        panel.set(xticks=[], yticks=[], aspect="equal")
        panel.set_title(name, fontsize=8)
        panel.set_xlabel("first coordinate", fontsize=7)
        panel.set_ylabel("second coordinate", fontsize=7)
    for panel in panels[len(densities) :]:
        panel.set_axis_off()
    if points is not None:
        last = panels[len(densities) - 1]
        last.scatter(points[:, 0].numpy(), points[:, 1].numpy(), s=6, color="tab:red", linewidths=0)
    return save_figure(figure, path)


def _curves(densities: Mapping[str, Tensor], rule: Quadrature, path: Path, points: Tensor | None, title: str) -> Path:
    figure = new_figure(6.0, 3.8)
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=8)
    nodes, shown = rule.axes[0], torch.zeros(rule.per_axis, dtype=torch.bool)
    for number, (name, log_density) in enumerate(densities.items()):
        density = log_density.exp()
        axes.plot(nodes.numpy(), density.numpy(), label=name, color="black" if number == 0 else None, linewidth=1.2)
        shown |= density > 1e-3 * density.max()
    if points is not None:
        axes.plot(points[:, 0].numpy(), torch.zeros(len(points)).numpy(), "|", color="tab:red", markersize=12, label="draws")
    axes.set(xlim=(float(nodes[shown].min()), float(nodes[shown].max())), ylim=(0, None), xlabel="x", ylabel="density")
    axes.legend(frameon=False, fontsize=7)
    return save_figure(figure, path)


_NODES = {1: 6001, 2: 241}
_MOST_NODES = 2**18  # of a rule that has whole nodes in every cell of a lattice
_REACH = 8.0
_PUBLIC_POINTS = 2**16
_LATTICE_POINTS = 2**13  # each is compared with every record
_SYNTHETIC = 10_000
_KERNELS = 2_000
_CHUNK = 2**13


def privacy_model(statement: PrivacyStatement) -> str:
    """Privacy model of a guarantee, in a few words that stand beside every figure."""
    epsilon = rounded_up(statement.epsilon)
    if "whole data set" in statement.unit:
        return f"integral epsilon {epsilon} for {sum(m['count'] for m in statement.mechanisms)} draws"
    return f"central epsilon {epsilon}, {statement.unit}, {statement.relation.replace('_', '-')}"


def evaluate(release: Release, points: Points, *, seed: int) -> Evaluation:
    """Scores against the exact target where there is one, else against the test points, and pictures in 1-D and 2-D.

    Without test points the scores are those of the private points, and say so; without any point there are none.

    Integrals are by quadrature up to two dimensions, beyond (or with more cells than nodes are affordable) by 2^16 public
    points of the reference. The reference Q0 alone is the baseline of every score, the target itself is "real"; the best that
    the release's box allows has a score of its own. Files: samples.csv of a released model, and density.png, whose title says
    where it shows the density behind private draws; for real points its name is then private_density.png.
    """
    name = privacy_model(release.statement)
    private = not isinstance(release, PublicModel)  # the density itself must not leave this machine
    density, reference, cells, box = _density(release, points, seed)
    nodes, log_volume, rule = _nodes(points, reference, cells, seed)
    held, where = (points.test_x, "test points") if len(points.test_x) else (points.x, "private points")

    def normalised(log_density: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Log density at the nodes and at the held-out points; that of a lattice integrates to 1 as it is."""
        at_nodes = log_density(nodes)
        constant = 0.0 if cells is not None else torch.logsumexp(at_nodes + log_volume, 0)
        return at_nodes - constant, log_density(held) - constant

    (log_q, test_q), (log_q0, test_q0) = normalised(density), normalised(reference.log_prob)
    target = _target(points, rule)
    found: list[Score] = []
    if target is not None:
        assert rule is not None
        found = _exact_scores(target, log_q, log_q0, rule, box)
    elif len(held):
        found = _held_scores(where, (log_q, test_q), (log_q0, test_q0), log_volume)
    marked = private or target is None
    scores = [replace(score, name=f"{score.name} [{name}]", baseline="Q0 alone", private=marked) for score in found]

    def picture(path: Path) -> None:
        assert rule is not None
        shown = {"Q0": log_q0, "density behind the draws" if private else name: log_q}
        shown = shown if target is None else {"target": target, **shown}
        draws = None
        if isinstance(release, Draws) and list(release.to_pandas().columns) == list(points.columns):
            draws = torch.from_numpy(release.to_pandas().to_numpy(copy=True)).to(torch.float64)
        densities_figure(shown, rule, path, points=draws, title=name + f": {UNPROTECTED}" * private)

    drawn = "private_density.png" if private and points.target is None else "density.png"
    released = {}
    if isinstance(release, PublicModel):
        released["samples.csv"] = partial(release.samples(_SYNTHETIC, random_state=seed).encoded, ".csv")
    return Evaluation(scores=scores, released=released, pictures={} if rule is None else {drawn: picture})


def _target(points: Points, rule: Quadrature | None) -> Tensor | None:
    """Log density of the exact target at the nodes (m,); None where there is none, or no rule."""
    return None if rule is None or points.target is None else rule.normalised(points.target.log_prob(rule.nodes))


def _held_scores(where: str, own: tuple[Tensor, Tensor], reference: tuple[Tensor, Tensor], log_volume: Tensor) -> list[Score]:
    """Measures of a density and of the reference, by the logarithms of each at nodes (n,) and at points (m,)."""
    likelihoods, covered = [], []
    for at_nodes, at_points in (own, reference):
        likelihoods.append(-float(at_points.mean()))
        dense = dense_threshold(at_nodes, at_nodes + log_volume)
        covered.append(float((at_points >= dense).to(torch.float64).mean()))
    nll = Score(f"negative log-likelihood of {where}, nats", likelihoods[0], chance=likelihoods[1], better="lower")
    return [nll, Score(f"mode coverage of {where}", covered[0], chance=covered[1])]


def _exact_scores(log_p: Tensor, log_q: Tensor, log_q0: Tensor, rule: Quadrature, box: Any) -> list[Score]:
    """Measures of a density q beside the exact target p and the reference q0, by their logarithms at the nodes (m,)."""
    nll, ideal, start = (negative_log_likelihood(log_p, q, rule) for q in (log_q, log_p, log_q0))
    found = [Score("negative log-likelihood, nats", nll, ideal, start, better="lower")]
    if box is not None:
        best_q = optimal_mollification(log_p, log_q0, rule, low=box.low, high=box.high)
        best = negative_log_likelihood(log_p, best_q, rule)
        found.append(Score("share of the optimal mollification's gain", (start - nll) / (start - best), chance=0.0))
    covered, most, least = (mode_coverage(log_p, q, rule) for q in (log_q, log_p, log_q0))
    return [*found, Score("mode coverage", covered, most, least)]


def _density(release: Release, points: Points, seed: int) -> tuple[Callable[[Tensor], Tensor], Any, int | None, Any]:
    """Log density, its reference, cells on an axis of a lattice and a box: of a model its own, or a kernel estimate of it."""
    if isinstance(release, Draws) and isinstance(law := release.origin, PrivateDensity):
        return lambda x: law.reference.log_prob(x) + law.log_ratio(x), law.reference, law.per_axis, law.box
    if not isinstance(release, PublicModel):
        raise ValueError(f"release is a {type(release).__name__} without a density: its origin must be a PrivateDensity")
    if points.bounds is None:
        raise ValueError("bounds is None; a released density lives in a public box")
    uniform, d = UniformReference(points.bounds), points.d
    if isinstance(release, DensityModel):
        return release.log_prob, uniform, None, None
    samples = release.samples(_KERNELS, random_state=seed)
    if not isinstance(samples, PointSamples) or samples.x.shape != (_KERNELS, d):
        raise ValueError(f"release is a {type(release).__name__}: its samples must have points x of {d} columns")
    x = samples.x.to(torch.float64)
    width = (x.std(0) * (4 / (d + 2) / len(x)) ** (1 / (d + 4))).clamp_min(1e-3)  # Silverman 1986, equation 4.15
    return lambda y: kernel_density(y, x, width), uniform, None, None


def kernel_density(y: Tensor, x: Tensor, width: Tensor) -> Tensor:
    """Log of the Gaussian kernel density estimate from x (n, d) with standard deviations `width` (d,), at y (m, d)."""
    scaled = x / width
    constant = math.log(len(x)) + (width.log() + 0.5 * math.log(2 * math.pi)).sum()
    parts = [torch.logsumexp(-0.5 * torch.cdist(part / width, scaled).square(), 1) for part in y.split(_CHUNK)]
    return torch.cat(parts) - constant


def _nodes(points: Points, reference: Any, cells: int | None, seed: int) -> tuple[Tensor, Tensor, Quadrature | None]:
    """Nodes (m, d), the logarithm of their volumes (m,) or (), and the rule in one and two dimensions."""
    if points.d > 2 or (cells is not None and cells**points.d > _MOST_NODES):
        count = _PUBLIC_POINTS if cells is None else _LATTICE_POINTS
        nodes = reference.sample(count, generator=torch.Generator().manual_seed(seed))
        return nodes, -reference.log_prob(nodes) - math.log(len(nodes)), None
    bounds = reference.bounds
    if bounds is None:
        reach = _REACH * reference.scale
        bounds = torch.stack([reference.location - reach, reference.location + reach], 1)
        if points.bounds is not None:
            low, high = torch.stack([bounds, points.bounds]).unbind(2)
            bounds = torch.stack([low.amin(0), high.amax(0)], 1)
    per_axis = _NODES[points.d]
    if cells is not None:  # whole nodes in every cell: the density jumps between them
        per_axis = cells * math.ceil(per_axis / cells)
    rule = Quadrature(bounds, per_axis)
    return rule.nodes, torch.tensor(math.log(rule.weight), dtype=torch.float64), rule
