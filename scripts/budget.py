"""Plan a run: epsilon from sampling rate, steps and noise, or the noise from epsilon.

python scripts/budget.py --sampling_rate 0.0017 --epochs 20 --sigma_sgd 1 --delta 1e-5
python scripts/budget.py --sampling_rate 0.0017 --epochs 20 --epsilon 2 --delta 1e-5 --plot budget.png
"""

import argparse
import math
import sys
from pathlib import Path
from typing import NoReturn

from dpgen.privacy.ledger import Budget
from dpgen.privacy.planning import EpochCost, Schedule

COLUMNS = ("tight", "rdp", "replace_one", "general_moments")
TITLES = {
    "tight": "tight",
    "rdp": "RDP",
    "replace_one": "tight, replace-one",
    "general_moments": "general moments (as published, not a guarantee)",
}


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"error: {message}", file=sys.stderr)
        sys.exit(2)


def parser() -> Parser:
    result = Parser(description="Plan the privacy of a DPGM run; sigmas are noise std / sensitivity (add-remove).")
    result.add_argument("--sampling_rate", type=float, required=True, help="probability of a record to be in a step")
    length = result.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", type=int, help="number of SGD steps")
    length.add_argument("--epochs", type=float, help="number of epochs of ceil(1 / sampling_rate) steps")
    noise = result.add_mutually_exclusive_group(required=True)
    noise.add_argument("--sigma_sgd", type=float, help="noise multiplier of the clipped sums")
    noise.add_argument("--epsilon", type=float, help="budget: find the least sigma_sgd that keeps it")
    result.add_argument("--sigma_norm", type=float, help="noise multiplier of DPNorm's histogram (none without DPNorm)")
    result.add_argument("--kmeans_rounds", type=int, default=0, help="rounds of private k-means")
    result.add_argument("--sigma_count", type=float, help="noise multiplier of the k-means counts")
    result.add_argument("--sigma_sum", type=float, help="noise multiplier of the k-means sums")
    result.add_argument("--delta", type=float, required=True)
    result.add_argument("--rows", type=int, default=20, help="rows of the table at most (default 20)")
    result.add_argument("--plot", type=Path, help="write a picture of epsilon per epoch (.png, .pdf, .svg)")
    return result


def schedule(options: argparse.Namespace) -> Schedule:
    if options.rows < 1:
        raise ValueError(f"rows is {options.rows}; it must be >= 1")
    plan = Schedule(
        sampling_rate=options.sampling_rate,
        steps=options.steps if options.steps is not None else 0,
        sigma_sgd=options.sigma_sgd if options.sigma_sgd is not None else 1.0,
        delta=options.delta,
        sigma_norm=options.sigma_norm,
        kmeans_rounds=options.kmeans_rounds,
        sigma_count=options.sigma_count,
        sigma_sum=options.sigma_sum,
    )
    if options.epochs is not None:
        if not 0 <= options.epochs < math.inf:
            raise ValueError(f"epochs is {options.epochs}; it must be a finite number >= 0")
        plan = Schedule(**{**vars(plan), "steps": round(options.epochs * plan.steps_per_epoch)})
    return plan if options.epsilon is None else plan.calibrated(Budget(options.epsilon, options.delta))


def table(costs: list[EpochCost]) -> str:
    lines = [f"{'epoch':>8} {'steps':>8} {'tight':>10} {'RDP':>10} {'replace-one':>12} {'general moments *':>18}"]
    for cost in costs:
        lines.append(
            f"{cost.epoch:8.4g} {cost.steps:8d} {cost.tight:10.4f} {cost.rdp:10.4f} {cost.replace_one:12.4f} "
            f"{cost.general_moments:18.4f}"
        )
    return "\n".join([*lines, "* as published by Acs et al. 2017, not a guarantee"])


def plot(costs: list[EpochCost], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for name in COLUMNS:
        style = ":" if name == "general_moments" else "-"
        axes.plot([c.epoch for c in costs], [getattr(c, name) for c in costs], style, marker=".", label=TITLES[name])
    axes.set(xlabel="epochs", ylabel="epsilon", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        plan = schedule(options)
        costs = plan.by_epoch(options.rows)
        print(
            f"epsilon {costs[-1].tight:.4f} at delta {plan.delta:g} (add-remove, one record): sampling rate "
            f"{plan.sampling_rate:g}, {plan.steps} steps, sigma_sgd {plan.sigma_sgd:.6g}"
        )
        print(table(costs))
        if options.plot:
            plot(costs, options.plot)
            print(f"picture in {options.plot}")
    except (ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
