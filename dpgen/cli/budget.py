"""`dpgen budget`: what a DPGM training would spend, epoch by epoch, or the noise that a budget asks for.

With a FILE it is about a budget that many runs share, see `shared_budget.py` here.

dpgen budget --sampling_rate 0.0017 --epochs 20 --sigma_sgd 1 --delta 1e-5
dpgen budget --sampling_rate 0.0017 --epochs 20 --epsilon 2 --delta 1e-5 --out budget.png
"""

import argparse
import dataclasses
import math
from pathlib import Path
from typing import Any

from dpgen.cli.command import OneLineParser
from dpgen.options import meanings
from dpgen.statement import guarantee, rounded_up
from dpgen.systems.dp_sgd.plan import MOST_STEPS
from dpgen.systems.dpgm.plan import GENERAL_MOMENTS, DPGMConfig, DPGMPlan, EpochCost, epoch_costs

PLAN = (
    "epsilon", "delta", "relation", "sampling_rate", "steps", "sigma_sgd", "sigma_norm", "kmeans_rounds", "sigma_count",
    "sigma_sum", "partition_share", "sigma_means", "means_share",
)  # fmt: skip
"""Options of the plan, which `DPGMPlan` explains."""
COLUMNS = {
    "tight": "add-remove",
    "rdp": "add-remove by RDP",
    "replace_one": "replace-one",
    "general_moments": GENERAL_MOMENTS,
}


def parser() -> OneLineParser:
    result = OneLineParser(
        "dpgen budget",
        description="What a DPGM run spends. Sigmas are noise std / sensitivity. Defaults are those of dpgen train --help: "
        "what a configuration file sets must be given. dpgen budget FILE --help: one budget for many runs.",
        argument_default=argparse.SUPPRESS,
    )
    length = result.add_mutually_exclusive_group()
    texts = meanings(DPGMPlan)
    for field in (field for field in dataclasses.fields(DPGMPlan) if field.name in PLAN):
        kind = {"relation": str, "steps": int, "kmeans_rounds": int}.get(field.name, float)
        owner = length if field.name == "steps" else result
        default = "" if field.default is None else f" (default {field.default})"
        owner.add_argument(f"--{field.name}", type=kind, help=texts[field.name].replace("%", "%%") + default)
    length.add_argument("--epochs", type=float, help="instead of steps: epochs of ceil(1 / sampling_rate) steps")
    begin = "whether networks begin at released means (default true)"
    result.add_argument("--centred", choices=["true", "false"], default="true", help=begin)
    result.add_argument("--clusters", choices=["labels", "kmeans", "none"], default="labels", help="(default labels)")
    result.add_argument("--k", type=int, default=None, help="clusters (default 10, or 1 with --clusters none)")
    result.add_argument("--n_features", type=int, default=200, help="random features of k-means (default 200)")
    result.add_argument("--adaptive", action="store_true", default=False, help="clip by DPNorm")
    result.add_argument("--rows", type=int, default=20, help="rows of the table at most (default 20)")
    result.add_argument(
        "--out", type=Path, metavar="FILE", default=None, help="picture of epsilon per epoch: .png, .pdf or .svg"
    )
    return result


def planned(options: dict[str, Any]) -> tuple[DPGMPlan, DPGMConfig]:
    """The calibrated plan and the configuration that training would use."""
    config = DPGMConfig(
        k=options["k"],
        clusters=options["clusters"],
        n_features=options["n_features"],
        clipping="dpnorm" if options["adaptive"] else "auto",
        centred=options["centred"] == "true",
    ).resolved(n_classes=(options["k"] or 10) if options["clusters"] == "labels" else 0)
    plan = DPGMPlan(**{name: options[name] for name in PLAN if name in options})
    if plan.sampling_rate * MOST_STEPS < 1:
        raise ValueError(f"sampling_rate is {plan.sampling_rate:g}; it must be at least {1 / MOST_STEPS:g}")
    if "epochs" in options:
        if not 0 < options["epochs"] < math.inf:
            raise ValueError(f"epochs is {options['epochs']}; it must be a finite number > 0")
        if options["epochs"] * plan.steps_per_epoch > MOST_STEPS:
            raise ValueError(f"epochs is {options['epochs']:g}; it must be at most {MOST_STEPS:,} steps")
        plan = dataclasses.replace(plan, steps=max(1, round(options["epochs"] * plan.steps_per_epoch)))
    return plan.calibrated(config), config


def headline(plan: DPGMPlan, config: DPGMConfig, end: EpochCost) -> str:
    """The guarantee at the end, and the noise that it is of."""
    spent = end.tight if plan.relation == "add_remove" else end.replace_one
    used = {"sigma_sgd": True, "sigma_norm": config.adaptive, "sigma_count": True, "sigma_sum": config.kmeans}
    used["sigma_means"] = config.releases_means
    sigmas = ", ".join(f"{name} {getattr(plan, name):.6g}" for name, shown in used.items() if shown)
    text = f"{guarantee(spent, plan.delta, plan.relation)}: sampling rate {plan.sampling_rate:g}, {plan.steps} steps, {sigmas}"
    if plan.epsilon is not None and spent > plan.epsilon:
        text += f"\nthis is more than the budget: training would end early, before epsilon {plan.epsilon:g} is exceeded"
    return text


def table(costs: list[EpochCost]) -> str:
    up = rounded_up
    lines = [f"{'epoch':>8} {'steps':>8} {'add-remove':>10} {'by RDP':>10} {'replace-one':>12} {'general moments *':>18}"]
    for cost in costs:
        values = f"{up(cost.tight):>10} {up(cost.rdp):>10} {up(cost.replace_one):>12} {cost.general_moments:18.4g}"
        lines.append(f"{cost.epoch:8.4g} {cost.steps:8d} {values}")
    return "\n".join([*lines, "* as published by Acs et al. 2017, not a guarantee"])


def main(arguments: list[str]) -> str:
    """Table of what every epoch has cost; with `--out`, a picture of it. A FILE comes first: a shared budget."""
    if arguments and not arguments[0].startswith("-"):
        from dpgen.cli import shared_budget

        return shared_budget.main(arguments)
    options = vars(parser().parse_args(arguments))
    plan, config = planned(options)
    costs = epoch_costs(plan, config, rows=options["rows"])
    lines = [headline(plan, config, costs[-1]), table(costs)]
    if options["out"] is not None:
        curves = {title: [getattr(cost, name) for cost in costs] for name, title in COLUMNS.items()}
        from dpgen.figures import epsilon_figure

        epsilon_figure([cost.epoch for cost in costs], curves, options["out"], delta=plan.delta)
        lines.append(f"picture in {options['out']}")
    return "\n".join(lines)
