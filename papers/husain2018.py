"""The experiments of Husain et al. (2018, section 5 and appendix 9; 2020, section 5), beside better mollifiers.

The published curves are no targets: the authors' code boosts logits that are not clipped, with another step size, and so
leaves the mollifier (supremum of log Q/Q0 3.45 at eps = 1, where 1/2 is allowed). Here every density is inside.
"""

import itertools
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from tqdm.auto import tqdm

from dpgen import quiet_training
from dpgen.data import Points, synthetic_points
from dpgen.data.toy import GaussianMixture, gaussian_ring, mixture_1d
from dpgen.evaluation.points import densities_figure
from dpgen.figures import new_figure, save_figure
from dpgen.metrics import Quadrature, mode_coverage, negative_log_likelihood, optimal_mollification
from dpgen.systems import Box, GaussianReference, UniformReference
from dpgen.systems.mbde.densities import evaluated
from papers.common import fit_system, main, quiet_runtime, write_table

EPSILONS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 5.0)
"""The eight budgets of Figure 4 (2018), Figure 3 (2020)."""

DELTA = 1e-5
GAN_EPSILONS = (1.0, 10.0, 5000.0)
"""Two that promise something, and the one of the papers' picture, which promises nothing (they take delta .1)."""

GANS: dict[str, dict[str, Any]] = {
    "DPGAN": {"hidden": 64, "lr": 0.01, "critic_steps": 2},
}
"""Networks of `configs/dpgan_ring.yaml`."""

_RATE = 0.02
_WIDTHS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)

SAMPLES = "samples of P"
"""As many points as a generator draws, from the target itself: what a kernel estimate makes of a perfect sampler."""

PRIVACY = {
    "Q0 alone": "no data used",
    "MBDE": "integral eps a draw",
    "SIR": "integral eps a draw",
    "SIR, alpha .05": "integral eps a draw",
    "SIR, uniform Q0": "integral eps a draw",
    "optimum": "integral eps a draw, knows P",
    "grid response": "integral eps a draw",
    "Bernstein": "central eps, add-remove",
    **dict.fromkeys(GANS, f"central (eps, {DELTA:g}), add-remove"),
    SAMPLES: "not private",
}
"""What epsilon means for each method: integral privacy protects the whole data set, central privacy one record."""

NOT_THE_SAME = (
    "central eps is paid once and protects one record in all that is ever drawn; integral eps is paid for every draw and "
    "protects the whole data set: rows of different privacy are not at the same price"
)

MEASURES = {"nll": "negative log-likelihood, nats", "coverage": "mode coverage (uniform: 1)"}
"""What is drawn against epsilon; a density that is spread over everything covers all modes."""

SHOWN = ("Bernstein", "MBDE", "SIR", "SIR, uniform Q0")
"""Methods whose densities are drawn."""

_SHADES = "every panel has shades of its own"

Row = dict[str, Any]
Tilt = Callable[[Tensor], Tensor]
"""Points (n, d) to f (n,)."""
Curve = tuple[list[float], list[float], list[float]]


@dataclass(frozen=True)
class Scale:
    """How large the experiments are."""

    epsilons: tuple[float, ...] = EPSILONS
    points: int = 10_000
    steps: int = 200
    repeats: int = 4
    modes: tuple[int, ...] = tuple(range(1, 11))
    random_epsilons: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)
    nodes_1d: int = 4001
    nodes_2d: int = 201
    domains: tuple[str, ...] = ("ring", "1-D (variance)", "1-D (std)", "5 random 1-D")
    gan_epsilons: tuple[float, ...] = GAN_EPSILONS
    gan_steps: int = 2000
    gan_repeats: int = 3
    epochs: int = 750
    chain: int = 1000


QUICK = Scale(
    *((1.0,), 200, 3, 1, (2,), (1.0,), 801, 61, ("ring", "1-D (variance)")),
    gan_epsilons=(1.0,), gan_steps=3, gan_repeats=1, epochs=2, chain=5,
)  # fmt: skip
"""A smoke version of seconds."""


def reproduce(out: Path, *, data_root: Path | None = None, quick: bool = False, seed: int = 0) -> str:
    """Figures 1 (ring), 4 and 5 (2018; 3 and 4 in 2020), 6 to 8 (2018; 5 in 2020 and its appendix), and results.csv.

    The papers print neither radius nor covariance of the ring (4 and 0.5 I here), nor which reading N(m, s) has (both
    here), nor how the Gaussians of the plane are placed (5 with means in [-4, 4]^2 and covariance 0.5 I here).

    results.csv has a row for each method and budget: negative log-likelihood, mode coverage, `modes_found`, the `valley`
    between them and whether its density is exact. A generator has samples only: its density is `kernel_log_density`.

    Arguments:
        out: directory of the pictures and the table.
        data_root: not needed.
        quick: a version of seconds, to see that it works. In full it takes about half an hour on one core, most
            of it the 40 random targets on the line; results.csv grows part by part.
        seed: of samples and training; the noise of Bernstein mechanism and DPGAN is secure and not repeatable.

    Returns:
        Mean negative log-likelihood of each method at eps = 1 with its privacy model, and what was drawn on the ring.
    """
    scale = QUICK if quick else Scale()
    steps = len(scale.domains) * len(scale.epsilons) + scale.repeats * (len(scale.modes) + 1) * len(scale.random_epsilons)
    steps += len(GANS) * len(scale.gan_epsilons) * scale.gan_repeats
    with quiet_training(), tqdm(total=steps, desc=f"husain{'' if quick else ' (half an hour)'}") as bar:
        rows: list[Row] = []
        for part in (_fixed_domains, _random_line, _random_plane):
            rows += part(out, scale, seed, bar)
            write_table(pd.DataFrame(rows), out / "results.csv")
    return f"{_summary(pd.DataFrame(rows))}\npictures and results.csv in {out}"


def _summary(table: pd.DataFrame) -> str:
    at_one = table[table["epsilon"] == 1.0].groupby(["domain", "method", "privacy"], sort=False)["nll"].mean()
    ring = table[(table["domain"] == "ring") & table["method"].isin([*SHOWN, *GANS, SAMPLES])]
    columns = ["modes_found", "valley", "coverage", "nll"]
    found = ring.groupby(["method", "epsilon", "privacy"], sort=False)[columns].mean()
    return "\n".join(
        [
            "negative log-likelihood in nats at eps = 1 (DPGAN: of a kernel estimate)",
            at_one.round(3).to_string(),
            f"ring: modes found of {ring['m'].max()}, density between them / at them, coverage, negative log-likelihood",
            found.round(3).to_string(),
            NOT_THE_SAME,
        ]
    )


def published_tilt(x: Tensor, *, epsilon: float, rounds: int = 3, epochs: int = 750, seed: int = 0) -> Tilt:
    r"""f of MBDE's density Q_T ~ N(0, I) e^f, |f| <= epsilon / 4, trained as in section 5 of 2020: Nesterov .01, full batches.

    Each of T rounds trains a classifier of x (n, d) against 10,000 points of Q0 with weights e^f; its log-odds, clipped to
    [-log 2, log 2], join f with weight (epsilon / (epsilon + 4 log 2))^t. The paper does not clip.
    """
    torch.manual_seed(seed)
    x, y = x.float(), torch.randn(10_000, x.shape[1])
    parts: list[tuple[float, nn.Module]] = []

    def tilt(z: Tensor) -> Tensor:
        with torch.no_grad():
            total = torch.zeros(len(z))
            for theta, classifier in parts:
                total += theta * classifier(z.float()).squeeze(1).clamp(-math.log(2), math.log(2))
            return total

    for t in range(1, rounds + 1):
        weights = torch.softmax(tilt(y), 0)
        widths = (x.shape[1], 25, 25, 25)
        layers = [layer for a, b in itertools.pairwise(widths) for layer in (nn.Linear(a, b), nn.Tanh())]
        classifier = nn.Sequential(*layers, nn.Linear(25, 1))
        optimizer = torch.optim.SGD(classifier.parameters(), lr=0.01, momentum=0.9, nesterov=True)
        for _ in range(epochs):
            loss = softplus(-classifier(x)).mean() + weights @ softplus(classifier(y)).squeeze(1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        parts.append(((epsilon / (epsilon + 4 * math.log(2))) ** t, classifier))
    return tilt


def metropolis(tilt: Tilt, *, d: int, n: int, length: int, seed: int = 0) -> Tensor:
    """Last states (n, d) of n random-walk Metropolis chains from N(0, I), with steps N(0, I) towards N(0, I) e^f.

    One state of one chain is private, up to floats; two states of the same chain show whether it stood still.
    """
    generator = torch.Generator().manual_seed(seed)

    def log_density(z: Tensor) -> Tensor:
        return tilt(z) - 0.5 * z.square().sum(1)

    state = torch.randn(n, d, generator=generator, dtype=torch.float64)
    height = log_density(state)
    for _ in range(length):
        proposal = state + torch.randn(n, d, generator=generator, dtype=torch.float64)
        proposed = log_density(proposal)
        moves = torch.rand(n, generator=generator).log() < proposed - height
        state, height = torch.where(moves[:, None], proposal, state), torch.where(moves, proposed, height)
    return state


def random_gaussians(
    k: int, *, d: int = 1, variance: float = 0.01, low: float = 0.0, high: float = 1.0, seed: int = 0
) -> GaussianMixture:
    """k Gaussians with means uniform in [low, high]^d (section 5 and Figures 6 to 8)."""
    generator = torch.Generator().manual_seed(seed)
    means = low + (high - low) * torch.rand(k, d, generator=generator, dtype=torch.float64)
    return GaussianMixture(means, torch.full((k,), variance))


class Problem:
    """A target with its private points, the public Q0 = N(0, I) and a rule of quadrature that holds both."""

    def __init__(self, name: str, target: GaussianMixture, scale: Scale, seed: int) -> None:
        self.name, self.target, self.scale, self.seed = name, target, scale, seed
        points = synthetic_points(name, target, scale.points, 10, seed)
        self.points: Points = replace(points, bounds=target.box())
        self.reference = GaussianReference.standard(target.d)
        low, high = target.box().unbind(1)
        box = torch.stack([low.clamp_max(-9.0), high.clamp_min(9.0)], 1)
        self.rule = Quadrature(box, scale.nodes_1d if target.d == 1 else scale.nodes_2d)
        self.log_p = self.rule.normalised(target.log_prob(self.rule.nodes))
        self.log_q0 = self.rule.normalised(self.reference.log_prob(self.rule.nodes))
        self.uniform = UniformReference(target.box())
        self.log_uniform = self.rule.normalised(self.uniform.log_prob(self.rule.nodes))
        self._log_ratios: tuple[Tensor, Tensor] | None = None

    def densities(self, epsilon: float) -> dict[str, Tensor]:
        """Log density (m,) of every method at this budget."""
        nodes = self.rule.nodes
        if self._log_ratios is None:  # one classifier serves every epsilon
            options = {"steps": 3 * self.scale.steps}
            laws = [self._law("mbde", 1.0, reference=name, **options) for name in ("gaussian", "uniform")]
            self._log_ratios = evaluated(laws[0].function, nodes), evaluated(laws[1].function, nodes)
        gaussian, uniform = self._log_ratios
        boosted = self._law("mbde", epsilon, rounds=3, steps=self.scale.steps)
        tilt = evaluated(boosted.function, nodes)
        found = {"Q0 alone": self.log_q0, "MBDE": self.rule.normalised(self.log_q0 + tilt)}
        for name, log_ratio, log_q0, alpha in (
            ("SIR", gaussian, self.log_q0, None),
            ("SIR, alpha .05", gaussian, self.log_q0, 0.05),
            ("SIR, uniform Q0", uniform, self.log_uniform, None),
        ):
            box, log_p = Box.of(epsilon, alpha), self.rule.normalised(log_q0 + log_ratio)
            found[name] = optimal_mollification(log_p, log_q0, self.rule, low=box.low, high=box.high)
        box = Box.of(epsilon)
        found["optimum"] = optimal_mollification(self.log_p, self.log_q0, self.rule, low=box.low, high=box.high)
        law = self._law("grid_response", epsilon, cells=10)
        found["grid response"] = self.rule.normalised(law.reference.log_prob(nodes) + law.log_ratio(nodes))
        bernstein = {"degree": 400, "bandwidth": 0.01} if self.target.d == 1 else {}
        log_q = self._fitted("bernstein", self.points, epsilon, bernstein).log_prob(nodes)
        return found | {"Bernstein": self.rule.normalised(log_q)}

    def rows(self, figure: str, densities: dict[str, Tensor], epsilon: float, **more: Any) -> list[Row]:
        """Likelihood, coverage, number of modes of each density, and the valley between them."""
        return [
            {
                "figure": figure,
                "domain": self.name,
                **more,
                "epsilon": epsilon,
                "method": method,
                "privacy": PRIVACY[method],
                "nll": negative_log_likelihood(self.log_p, log_q, self.rule),
                "coverage": mode_coverage(self.log_p, log_q, self.rule),
                "modes_found": modes_found(log_q, self.target, self.rule),
                "valley": valley(log_q, self.target, self.rule),
                "density": "exact",
            }
            for method, log_q in densities.items()
        ]

    def sample_row(self, method: str, x: Tensor, epsilon: float, repeat: int) -> Row:
        """The same of samples (n, 2): modes and the valley between them by counting, the rest by a kernel estimate."""
        log_q, width = kernel_log_density(x, self.log_p, self.rule)
        [row] = self.rows("1", {method: log_q}, epsilon, m=self.target.k, repeat=repeat)
        counts = histogram(x, self.rule)
        counted = {measure.__name__: measure(counts, self.target, self.rule) for measure in (modes_found, valley)}
        return {**row, **counted, "density": f"kernel estimate, width {width:g}"}

    def _law(self, system: str, epsilon: float, **config: Any) -> Any:
        """The density behind the draws of a system; the Gaussian reference is not cut to the bounds."""
        cut = system != "mbde" or config.get("reference") == "uniform"
        points = replace(self.points, target=None, bounds=self.points.bounds if cut else None)
        return self._fitted(system, points, epsilon, config).origin

    def _fitted(self, system: str, points: Points, epsilon: float, config: dict[str, Any]) -> Any:
        with TemporaryDirectory() as directory:
            return fit_system(
                system, points, quiet_runtime(Path(directory), self.seed), plan={"epsilon": epsilon}, config=config
            )


def _fixed_domains(out: Path, scale: Scale, seed: int, bar: Any) -> list[Row]:
    """Figure 1 and Figures 4 and 5 of 2018: densities for eight budgets, likelihood and coverage against the budget."""
    targets = {
        "ring": gaussian_ring(),
        "1-D (variance)": mixture_1d("variance"),
        "1-D (std)": mixture_1d("std"),
        "5 random 1-D": random_gaussians(5, seed=seed),
    }
    rows: list[Row] = []
    for name in scale.domains:
        target = targets[name]
        problem = Problem(name, target, scale, seed)
        shown: dict[tuple[str, float], Tensor] = {}
        for epsilon in scale.epsilons:
            densities = problem.densities(epsilon)
            rows += problem.rows("4", densities, epsilon, m=target.k, repeat=0)
            shown |= {(method, epsilon): densities[method] for method in SHOWN}
            if epsilon == 1.0 and name == "ring":
                panels = {"target": problem.log_p} | {f"{m}\n{PRIVACY[m]}"[:60]: densities[m] for m in SHOWN}
                densities_figure(panels, problem.rule, out / "figure1_ring.png", title=f"eps 1; {_SHADES}")
            bar.set_postfix_str(f"{name}, eps {epsilon:g}")
            bar.update()
        slug = name.replace(" ", "_").replace("(", "").replace(")", "")
        _strip(out / f"figure3_{slug}.png", problem, shown, scale.epsilons)
        own = [row for row in rows if row["domain"] == name]
        curves = {title: _lines(own, measure, PRIVACY) for measure, title in MEASURES.items()}
        lines_figure(curves, out / f"figure4_{slug}.png", xlabel="epsilon")
        if name == "ring":
            rows += _generators(out, problem, shown, seed, bar)
    return rows


def _generators(out: Path, problem: Problem, shown: dict[tuple[str, float], Tensor], seed: int, bar: Any) -> list[Row]:
    """DPGAN on the ring, and a picture of its samples below as many private draws, each of which would cost epsilon."""
    scale, rule = problem.scale, problem.rule
    truth = draws(problem.log_p, rule, scale.points, seed=seed)
    rows, panels = [problem.sample_row(SAMPLES, truth, math.inf, 0)], {"target": truth}
    for method in ("MBDE", "SIR", "SIR, uniform Q0", "Bernstein"):
        for epsilon in (0.25, 1.0, 5.0) if method == "MBDE" else (1.0,):
            if (log_q := shown.get((method, epsilon))) is not None:
                panels[f"{method}, eps {epsilon:g}\n{PRIVACY[method]}"] = draws(log_q, rule, scale.points, seed=seed)
    for method in GANS:
        for epsilon in scale.gan_epsilons:
            for repeat in range(scale.gan_repeats):
                bar.set_postfix_str(f"ring, {method}, eps {epsilon:g}")
                options = {"steps": scale.gan_steps, "n": scale.points, "seed": seed + repeat}
                x = gan_samples(problem.points, method, epsilon, **options)
                rows.append(problem.sample_row(method, x, epsilon, repeat))
                panels.setdefault(f"{method}, eps {epsilon:g}\n{PRIVACY[method]}", x)
                bar.update()
    title = f"{scale.points} points each, first run of each generator; integral eps is the price of every single point"
    tilt = published_tilt(problem.points.x, epsilon=1.0, epochs=scale.epochs, seed=seed)
    chains = metropolis(tilt, d=2, n=scale.points, length=scale.chain, seed=seed)
    panels[f"MBDE as published, eps 1\n{PRIVACY['MBDE']}"] = chains
    samples_sheet(panels, rule, out / "figure1_samples.png", per_row=7, title=title)
    return rows


def _strip(path: Path, problem: Problem, shown: dict[tuple[str, float], Tensor], epsilons: tuple[float, ...]) -> None:
    """A row of panels for each method in the plane, the target first; in one dimension curves at eps 1 and the largest."""
    if problem.target.d == 2:
        methods = list(dict.fromkeys(method for method, _ in shown))
        panels: dict[str, Tensor] = {}
        for m in methods:
            panels |= {f"target, beside {m}": problem.log_p} | {f"{m}, eps {e:g}": shown[m, e] for e in epsilons}
        densities_figure(panels, problem.rule, path, per_row=len(epsilons) + 1, title=_SHADES)
        return
    panels = {"target": problem.log_p} | {f"{m}, eps {e:g}": q for (m, e), q in shown.items() if e in (1.0, epsilons[-1])}
    densities_figure(panels, problem.rule, path, title="densities of the target and of the draws")


def _random_line(out: Path, scale: Scale, seed: int, bar: Any) -> list[Row]:
    """Figures 6 and 7 of 2018: m random Gaussians on the line, mean and standard deviation over repeats."""
    rows: list[Row] = []
    for m in scale.modes:
        for repeat in range(scale.repeats):
            problem = Problem("random 1-D", random_gaussians(m, seed=seed + 1000 * repeat + m), scale, seed + repeat)
            for epsilon in scale.random_epsilons:
                bar.set_postfix_str(f"random 1-D, m = {m}, eps {epsilon:g}")
                rows += problem.rows("7", problem.densities(epsilon), epsilon, m=m, repeat=repeat)
                bar.update()
    for measure, figure in (("nll", 7), ("coverage", 6)):
        panels = {}
        for method in SHOWN:
            own = [{**row, "method": f"m = {row['m']}"} for row in rows if row["method"] == method]
            title = f"{method} ({PRIVACY[method]}): {measure}"
            panels[title] = _lines(own, measure, [f"m = {m}" for m in scale.modes])
        lines_figure(panels, out / f"figure{figure}_random_1d.png", xlabel="epsilon")
    return rows


def _random_plane(out: Path, scale: Scale, seed: int, bar: Any) -> list[Row]:
    """Figure 8 of 2018: Gaussians placed at random in the plane, where Q0 is no help."""
    rows: list[Row] = []
    for repeat in range(scale.repeats):
        target = random_gaussians(5, d=2, variance=0.5, low=-4.0, high=4.0, seed=seed + repeat)
        problem = Problem("random 2-D", target, scale, seed + repeat)
        shown: dict[tuple[str, float], Tensor] = {}
        for epsilon in scale.random_epsilons:
            bar.set_postfix_str(f"random 2-D, eps {epsilon:g}")
            densities = problem.densities(epsilon)
            rows += problem.rows("8", densities, epsilon, m=5, repeat=repeat)
            shown |= {(method, epsilon): densities[method] for method in SHOWN}
            bar.update()
        if repeat == 0:
            _strip(out / "figure8_random_2d.png", problem, shown, scale.random_epsilons)
    panels = {title: _lines(rows, measure, PRIVACY) for measure, title in MEASURES.items()}
    lines_figure(panels, out / "figure8_random_2d_metrics.png", xlabel="epsilon")
    return rows


def _lines(rows: list[Row], measure: str, methods: Any) -> dict[str, Curve]:
    """Mean and standard deviation over repeats of a measure against epsilon, for each method that has rows."""
    curves: dict[str, Curve] = {}
    for method in methods:
        values: dict[float, list[float]] = {}
        for row in rows:
            if row["method"] == method:
                values.setdefault(row["epsilon"], []).append(row[measure])
        if values:
            means = [sum(v) / len(v) for v in values.values()]
            squares = [sum((x - mean) ** 2 for x in v) / max(len(v) - 1, 1) for v, mean in zip(values.values(), means)]
            label = f"{method} ({PRIVACY[method]})" if method in PRIVACY else method
            curves[label] = (list(values), means, [math.sqrt(s) for s in squares])
    return curves


# -- samples of generators -------------------------------------------------------------------------------------------


def gan_samples(points: Points, method: str, epsilon: float, *, steps: int, n: int, seed: int) -> Tensor:
    """n points (n, d) of a generator that was trained on private points within (epsilon, 1e-5)."""
    plan = {"epsilon": epsilon, "delta": DELTA, "sampling_rate": _RATE, "steps": steps}
    with TemporaryDirectory() as directory:
        model = fit_system("dpgan", points, quiet_runtime(Path(directory), seed), plan=plan, config=GANS[method])
    x: Tensor = model.samples(n, random_state=seed).x
    return x


def modes_found(log_q: Tensor, target: GaussianMixture, rule: Quadrature) -> int:
    """Components of the target with at least half of its mass within two standard deviations of their mean.

    Log densities (m,) are at the nodes; samples come as their histogram.
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
    figure.supxlabel("first coordinate", fontsize=7)
    figure.supylabel("second coordinate", fontsize=7)
    places = figure.subplots(rows, per_row, squeeze=False, sharex=True, sharey=True).ravel()
    for axes, (name, x) in zip(places, panels.items()):
        axes.scatter(x[:, 0].numpy(), x[:, 1].numpy(), s=1.5, alpha=0.5, linewidths=0, rasterized=True)
        axes.set_title(name, fontsize=7)
        axes.set(xlim=tuple(rule.bounds[0].tolist()), ylim=tuple(rule.bounds[1].tolist()), aspect="equal")
        axes.tick_params(labelsize=6)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    return save_figure(figure, path)


def lines_figure(panels: Mapping[str, Mapping[str, Curve]], path: Path, *, xlabel: str) -> Path:
    """A panel for each measure with a line for each method: x (logarithmic), mean and standard deviation, a band."""
    from matplotlib.ticker import LogLocator

    figure = new_figure(3.6 * len(panels), 3.2)
    for axes, (title, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items()):
        for name, (x, mean, std) in lines.items():
            finite = [i for i, value in enumerate(mean) if math.isfinite(value)]
            along, middle = [x[i] for i in finite], [mean[i] for i in finite]
            (line,) = axes.plot(along, middle, marker="o", markersize=2.5, linewidth=1.2, label=name)
            low, high = ([mean[i] + sign * std[i] for i in finite] for sign in (-1, 1))
            axes.fill_between(along, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        axes.set(title=title, xlabel=xlabel, ylabel=title, xscale="log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.legend(frameon=False, fontsize=6)
    return save_figure(figure, path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], name="husain"))
