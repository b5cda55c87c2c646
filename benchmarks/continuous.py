"""Private draws from continuous distributions: quality against the best possible, time of training and of draws.

    OMP_NUM_THREADS=1 python benchmarks/continuous.py [--seeds 3] [--repeats 3]

Writes benchmarks/results/continuous.json. Likelihoods in nats by quadrature; 10,000 private points; Q0 = N(0, I).
"""

import argparse
import json
import logging
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from measuring import interleaved, machine

from dpgen.data.toy import GaussianMixture, gaussian_ring, mixture_1d
from dpgen.metrics import Quadrature, negative_log_likelihood, optimal_mollification
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.runtime import Runtime
from dpgen.systems.mbde.densities import Box, ClippedDensity, GaussianReference, SIRSampler
from dpgen.systems.mbde.fit import train
from dpgen.systems.mbde.plan import DrawPlan, MBDEConfig

RESULTS = Path(__file__).parent / "results" / "continuous.json"
EPSILONS = (0.25, 1.0, 2.0, 5.0)
POINTS, DRAWS, ALPHA = 10_000, 10_000, 0.05
REFERENCE_NLL = {"ring": (10.220, 9.877, 9.474, 8.666), "mixture_variance": (1.023, 0.840, 0.661, 0.424)}
TARGETS: dict[str, Callable[[], GaussianMixture]] = {
    "ring": gaussian_ring,
    "mixture_variance": lambda: mixture_1d("variance"),
    "mixture_std": lambda: mixture_1d("std"),
}


class Problem:
    """A target, its private points and quadrature nodes."""

    def __init__(self, name: str, seed: int) -> None:
        self.target = TARGETS[name]()
        self.reference = GaussianReference.standard(self.target.d)
        self.x = self.target.sample(POINTS, generator=torch.Generator().manual_seed(seed))
        self.rule = Quadrature(torch.tensor([[-9.0, 9.0]] * self.target.d), 60_001 if self.target.d == 1 else 601)
        self.seed = seed

    def law(self, config: MBDEConfig, epsilon: float, draws: int = 1) -> ClippedDensity:
        runtime = Runtime(progress_bar=False, accelerator="cpu", seed=self.seed)
        return train(self.x, self.reference, plan=DrawPlan(epsilon=epsilon, draws=draws), config=config, runtime=runtime)

    def gap(self, law: ClippedDensity, box: Box) -> SimpleNamespace:
        """Negative log-likelihoods of the law, of the best density in the box and of the reference; share of that gain."""
        rule, nodes = self.rule, self.rule.nodes
        log_p, log_q0 = (rule.normalised(q.log_prob(nodes)) for q in (self.target, self.reference))
        best = optimal_mollification(log_p, log_q0, rule, low=box.low, high=box.high)
        log_qs = (rule.normalised(log_q0 + law.log_ratio(nodes)), best, log_q0)
        nll, optimal, reference = (negative_log_likelihood(log_p, log_q, rule) for log_q in log_qs)
        share = (reference - nll) / (reference - optimal)
        return SimpleNamespace(nll=nll, optimal=optimal, reference=reference, share=share)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean, least and most over seeds."""
    return {"mean": statistics.fmean(values), "least": min(values), "most": max(values)}


def quality(name: str, seeds: int) -> dict[str, Any]:
    """NLL of SIR's plug-in and of MBDE T = 3 beside the optimum of the symmetric box, over seeds."""
    problems = [Problem(name, seed) for seed in range(seeds)]
    learned = [problem.law(MBDEConfig(), 1.0) for problem in problems]
    table: dict[str, Any] = {}
    for i, epsilon in enumerate(EPSILONS):
        row = {}
        for label, alpha in (("sir", None), ("sir_asymmetric", ALPHA)):
            box = Box.of(epsilon, alpha)
            laws = [ClippedDensity(law.function, law.reference, box=box, epsilon=epsilon) for law in learned]
            gaps = [problem.gap(law, box) for problem, law in zip(problems, laws)]
            row |= {f"{label}_nll": spread([g.nll for g in gaps]), f"{label}_share": spread([g.share for g in gaps])}
            row[f"{label}_optimum"] = gaps[0].optimal
            row[f"{label}_gain"] = statistics.fmean(g.reference - g.nll for g in gaps)
        boosted = [problem.gap(problem.law(MBDEConfig(rounds=3), epsilon), Box.of(epsilon)) for problem in problems]
        row |= {"mbde_nll": spread([g.nll for g in boosted]), "reference_nll": boosted[0].reference}
        if name in REFERENCE_NLL:
            row["mbde_from_table"] = max(abs(g.nll - REFERENCE_NLL[name][i]) for g in boosted)
        table[f"{epsilon:g}"] = row
        print(name, epsilon, json.dumps(row), flush=True)
    return table


def training_time(repeats: int) -> dict[str, float]:
    """SIR's classifier, which serves every epsilon, beside boosting for one epsilon."""
    problem = Problem("ring", 0)
    jobs: dict[str, Callable[[], object]] = {
        "sir_every_epsilon_s": lambda: problem.law(MBDEConfig(), 1.0),
        "mbde_fast_one_epsilon_s": lambda: problem.law(MBDEConfig(rounds=3), 1.0),
    }
    jobs["sir_every_epsilon_s"]()
    seconds = interleaved(jobs, repeats)
    return {name: statistics.median(times) for name, times in seconds.items()}


def draw_time(repeats: int, epsilon: float) -> dict[str, Any]:
    """10,000 private draws of each kind from the same learned ring."""
    problem = Problem("ring", 0)
    plugged = problem.law(MBDEConfig(steps=300), epsilon)

    def curator() -> Curator:
        return Curator(Ledger(Budget(1e9, 0.0), relation="replace_one", unit="the whole data set"))

    makers: dict[str, Callable[[], Any]] = {
        "sir_128": lambda: SIRSampler(plugged, curator=curator(), codebook=128),
        "sir_1024": lambda: SIRSampler(plugged, curator=curator(), codebook=1024),
    }
    for maker in makers.values():
        maker().sample(10)
    seconds = interleaved({name: lambda m=maker: m().sample(DRAWS) for name, maker in makers.items()}, repeats)  # type: ignore[misc]
    return {f"{name}_s": statistics.median(times) for name, times in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    result: dict[str, Any] = {"machine": machine(), "seeds": options.seeds}
    result["training"] = training_time(options.repeats)
    print(json.dumps(result["training"]), flush=True)
    result["draws"] = {f"{epsilon:g}": draw_time(options.repeats, epsilon) for epsilon in (1.0, 5.0)}
    print(json.dumps(result["draws"]), flush=True)
    result["quality"] = {}
    for name in TARGETS:
        result["quality"][name] = quality(name, options.seeds)
        RESULTS.write_text(json.dumps(result, indent=2) + "\n")  # the table takes minutes: keep what is done
    result["seconds"] = time.perf_counter() - start
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
