"""Figure 2 of Husain et al. (2020): what a mollifier is, and how scaling and shifting brings densities into one."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor
from tqdm.auto import tqdm

from dpgen.figures import new_figure, save_figure
from papers.common import main, write_table

COLOURS = {1.0: "tab:red", 0.2: "tab:blue"}
"""The two values of epsilon in the paper, and its colours."""


def reproduce(out: Path, *, data_root: Path | None = None, quick: bool = False, seed: int = 0) -> str:
    """Left: two mollifiers on [0, 1] and the ranges that belong to the smaller epsilon; right: scale and shift.

    The densities are our own: the figure of the paper is a sketch. Files: mollifier.png and mollifier.csv.

    `quick` has fewer points on the axis; nothing is random. Returns the least epsilon of each set, measured on the curves.
    """
    x = (torch.arange(101 if quick else 1001, dtype=torch.float64) + 0.5) / (101 if quick else 1001)
    members = {epsilon: members_of(epsilon, x) for epsilon in tqdm(COLOURS, desc="mollifier", leave=False)}
    rows = [
        {"epsilon": epsilon, "density": name, "x": place, "value": value}
        for epsilon, curves in members.items()
        for name, curve in curves.items()
        for place, value in zip(x.tolist(), curve.tolist())
    ]
    write_table(pd.DataFrame(rows), out / "mollifier.csv")
    figure = new_figure(9.0, 3.6)
    left, right = figure.subplots(1, 2)
    smaller, (low, high) = min(members), sufficient(1.0)
    left.axhspan(*necessary(smaller), color="lightblue", alpha=0.5, label=f"necessary, eps {smaller:g}", linewidth=0)
    left.axhspan(*sufficient(smaller), color="steelblue", alpha=0.5, label=f"sufficient, eps {smaller:g}", linewidth=0)
    for epsilon, curves in members.items():
        for i, curve in enumerate(curves.values()):
            label = None if i else f"eps {epsilon:g}"
            left.plot(x.numpy(), curve.numpy(), color=COLOURS[epsilon], linewidth=1.2, label=label)
    left.axhline(1, color="0.5", linewidth=0.6)
    right.axhspan(low, high, color="mistyrose", linewidth=0)
    for i, (name, (f, bounds)) in enumerate(densities().items()):
        mollified = mollify_density(f, 1.0, bounds=bounds)
        right.plot(x.numpy(), f(x).numpy(), color=f"C{i}", linewidth=0.9, linestyle="--")
        right.plot(x.numpy(), mollified(x).numpy(), color=f"C{i}", linewidth=1.6, label=f"{name}: scale {mollified.scale:.3f}")
    for axes, title in ((left, "members of two mollifiers"), (right, "scale and shift to eps 1")):
        axes.set(xlabel="x", ylabel="density", ylim=(0, None), title=title)
        axes.legend(frameon=False, fontsize=7)
    save_figure(figure, out / "mollifier.png")
    found = [f"eps {e:g}: largest log-ratio on the curves {measured(curves):.4f}" for e, curves in members.items()]
    return "\n".join([*found, f"picture and table in {out}"])


def densities() -> dict[str, tuple[Callable[[Tensor], Tensor], tuple[float, float]]]:
    """Densities on [0, 1] with their exact bounds (m, M)."""
    return {
        "wave": (lambda x: 1 + 0.6 * torch.cos(4 * math.pi * x), (0.4, 1.6)),
        "arch": (lambda x: 6 * x * (1 - x), (0.0, 1.5)),
        "ramp": (lambda x: 2 * x, (0.0, 2.0)),
    }


def members_of(epsilon: float, x: Tensor) -> dict[str, Tensor]:
    """The densities brought into the epsilon-mollifier of all densities within [exp(-eps/2), exp(eps/2)], at x."""
    return {name: mollify_density(f, epsilon, bounds=bounds)(x) for name, (f, bounds) in densities().items()}


def measured(curves: dict[str, Tensor]) -> float:
    """Largest log-ratio of any two curves at one place."""
    values = torch.stack(list(curves.values())).log()
    return float((values.amax(0) - values.amin(0)).amax())


def sufficient(epsilon: float) -> tuple[float, float]:
    """All densities with values in this range form an epsilon-mollifier."""
    return math.exp(-epsilon / 2), math.exp(epsilon / 2)


def necessary(epsilon: float) -> tuple[float, float]:
    """No continuous density of an epsilon-mollifier leaves this range: each has the value 1 somewhere."""
    return math.exp(-epsilon), math.exp(epsilon)


@dataclass(frozen=True)
class MollifiedDensity:
    """1 + scale (f - 1): a bounded density on [0, 1] brought into the range $[e^{-eps/2}, e^{eps/2}]$."""

    density: Callable[[Tensor], Tensor]
    scale: float
    epsilon: float

    def __call__(self, x: Tensor) -> Tensor:
        """The mollified density at x; values outside the range, from an f that broke its bounds, are clipped."""
        low, high = sufficient(self.epsilon)
        return (1 + self.scale * (self.density(x) - 1)).clamp(low, high)


def mollify_density(density: Callable[[Tensor], Tensor], epsilon: float, *, bounds: tuple[float, float]) -> MollifiedDensity:
    r"""Scale and shift a density f on [0, 1] with m <= f <= M as little as an epsilon-mollifier asks for.

    $$ g = 1 + s (f - 1), \qquad s = \min\left(1, \frac{1 - e^{-\epsilon/2}}{1 - m}, \frac{e^{\epsilon/2} - 1}{M - 1}\right) $$

    g integrates to 1, keeps f's modes, and its derivative is s f' (Husain et al. 2018, Figure 3 right).

    Raises:
        ValueError: bounds out of range.

    >>> round(mollify_density(lambda x: 2 * x, 1.0, bounds=(0.0, 2.0)).scale, 4)
    0.3935
    """
    low, high = bounds
    if not 0 <= low <= 1 <= high < math.inf:
        raise ValueError(f"bounds are {bounds!r}; they must be 0 <= m <= 1 <= M, finite, as a density on [0, 1] has mean 1")
    down = -math.expm1(-epsilon / 2) / (1 - low) if low < 1 else 1.0
    up = math.expm1(epsilon / 2) / (high - 1) if high > 1 else 1.0
    return MollifiedDensity(density, min(1.0, down, up), epsilon)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], name="mollifier"))
