"""Time of a private DPGM step beside non-private training and opacus: k = 10 VAEs 784-200-2, one thread.

    python benchmarks/step_time.py [--data_root DIR] [--device cuda] [--rounds 25]

All contestants take turns on the same Poisson draws of binarised MNIST (--data_root or DPGEN_DATA; random bits with as many
ones where there is none); drawing is not timed, everything from the draw to the new parameters is. Opacus runs as its
documentation says, model after model, noise from torch's generator (its secure mode is not available).

Writes benchmarks/results/step_time.json, with --device cuda benchmarks/results/step_time_cuda.json.
"""

import argparse
import gc
import json
import os
import random
import statistics
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import opacus
import torch
from measuring import interleaved, machine
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from dpgen.data.images import load_mnist
from dpgen.privacy.clipping import clipped_sums
from dpgen.privacy.curator import Curator, Draw
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.sampling import Batch, PoissonLoader, PoissonMask
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

K, D, HIDDEN, LATENT = 10, 784, 200, 2
RATES = {0.0017: 2.0, 0.01: 1.5}  # sampling rate: goal for private / non-private
N, ONES = 60_000, 103.69
Step = Callable[[Batch], None]

PLAIN, BANK, GHOST, HOOKS = "non-private, plain PyTorch", "non-private, dpgen bank", "opacus ghost", "opacus hooks"
PRIVATE = "private, dpgen"


# -- contestants -----------------------------------------------------------------------------------------------------


class Training(DPGM):
    """A DPGM whose steps run without a trainer."""

    def __init__(self, rate: float, device: str, **options: Any) -> None:
        plan = DPGMPlan(sampling_rate=rate, noise_multiplier=1.0, sigma_count=10.0)
        config = DPGMConfig(hidden=HIDDEN, latent=LATENT, **options)
        super().__init__(d=D, plan=plan, config=config, n_classes=K)
        self.to(device)
        self.curator = Curator(Ledger(None, delta=1e-5))
        self.serve(self.curator)
        self.policy = self.config.clipping_callback(self.plan)
        self.policy.begin(K)
        everyone = torch.arange(K).repeat(N // K)
        self.partition.fit(everyone[:, None], everyone, curator=self.curator)
        self._adam = self.configure_optimizers()

    def optimizers(self, use_pl_optimizer: bool = True) -> Any:
        return self._adam

    @torch.no_grad()
    def __call__(self, batch: Batch) -> None:
        self.bank.begin_step()
        draw = self.curator.draw("training steps", PoissonMask(self.plan.sampling_rate), self.parts())
        assert draw is not None
        self.descend(self.noisy_sums(batch, draw, self._sums, averaged=True))


class NonPrivateBank(Training):
    """The same bank and optimizer with plain sums of gradients; products have the shape that the draw has."""

    def noisy_sums(self, batch: Batch, draw: Draw, out: Tensor | None = None, *, averaged: bool = False) -> Tensor:
        assert out is not None
        cluster, order = batch.cluster.sort(stable=True)
        bounds = [0, *torch.bincount(cluster, minlength=K).cumsum(0).tolist()]
        with torch.enable_grad():
            gradients = self.bank.gradients(batch.x[order], bounds, lambda *shape: torch.randn(shape, device=batch.x.device))
        return clipped_sums(gradients, torch.ones_like(cluster, dtype=torch.float32), out, drawn=[1] * K)


class VAE(nn.Module):
    """One component written as usual."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(D, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2 * LATENT))
        self.decoder = nn.Sequential(nn.Linear(LATENT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, D))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_var = self.encoder(x).chunk(2, dim=1)
        return self.decoder(mean + (0.5 * log_var).exp() * torch.randn_like(mean)), mean, log_var


class ELBO(nn.Module):
    """Negative evidence lower bound with the `reduction` that opacus' ghost clipping switches."""

    reduction = "mean"

    def forward(self, output: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
        logits, mean, log_var = output
        loss = binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
        loss = loss + 0.5 * (mean.square() + log_var.exp() - 1.0 - log_var).sum(1)
        return loss if self.reduction == "none" else loss.mean()


def by_cluster(batch: Batch) -> Iterator[Tensor]:
    """The records of every cluster in turn."""
    order = batch.cluster.argsort(stable=True)
    return iter(batch.x[order].split(torch.bincount(batch.cluster, minlength=K).tolist()))


def plain(rate: float, device: str) -> Step:
    """k modules, one fused Adam over all their parameters."""
    models, criterion = [VAE().to(device) for _ in range(K)], ELBO()
    adam = torch.optim.Adam([p for m in models for p in m.parameters()], lr=1e-3, fused=True)

    def step(batch: Batch) -> None:
        adam.zero_grad()
        for model, x in zip(models, by_cluster(batch)):
            if len(x):
                criterion(model(x), x).backward()
        adam.step()

    return step


def opacus_hooks(rate: float, device: str, **options: Any) -> Step:
    """GradSampleModule and DPOptimizer for one model after the other."""
    models, criterion = [GradSampleModule(VAE().to(device), **options) for _ in range(K)], ELBO()
    adams = [
        DPOptimizer(
            torch.optim.Adam(m.parameters(), lr=1e-3, fused=True),
            noise_multiplier=1.0,
            max_grad_norm=10.0,
            expected_batch_size=max(1, round(rate * N / K)),
        )
        for m in models
    ]

    def step(batch: Batch) -> None:
        for model, adam, x in zip(models, adams, by_cluster(batch)):
            adam.zero_grad(set_to_none=True)
            criterion(model(x), x).backward()
            adam.step()

    return step


def opacus_ghost(rate: float, device: str) -> Step:
    """GradSampleModuleFastGradientClipping for one model after the other."""
    models = [GradSampleModuleFastGradientClipping(VAE().to(device), max_grad_norm=10.0) for _ in range(K)]
    adams = [
        DPOptimizerFastGradientClipping(
            torch.optim.Adam(m.parameters(), lr=1e-3, fused=True),
            noise_multiplier=1.0,
            max_grad_norm=10.0,
            expected_batch_size=max(1, round(rate * N / K)),
        )
        for m in models
    ]
    losses = [DPLossFastGradientClipping(m, a, ELBO()) for m, a in zip(models, adams)]

    def step(batch: Batch) -> None:
        for model, adam, loss, x in zip(models, adams, losses, by_cluster(batch)):
            adam.zero_grad(set_to_none=True)
            loss(model(x), x).backward()
            adam.step()

    return step


CONTESTANTS: dict[str, Callable[[float, str], Step]] = {
    PLAIN: plain,
    BANK: lambda rate, device: NonPrivateBank(rate, device),
    PRIVATE: lambda rate, device: Training(rate, device),
    "private, dpgen, DPNorm": lambda rate, device: Training(rate, device, clipping="dpnorm"),
    GHOST: opacus_ghost,
    HOOKS: opacus_hooks,
    "opacus functorch": lambda rate, device: opacus_hooks(rate, device, force_functorch=True),
}


# -- time ------------------------------------------------------------------------------------------------------------


def records(data_root: str | None) -> tuple[str, Tensor, Tensor]:
    """Name, records and clusters: binarised MNIST by label, or random bits with its number of ones."""
    try:
        mnist = load_mnist(data_root=data_root)
    except ValueError:
        generator = torch.Generator().manual_seed(0)
        x = (torch.rand(N, D, generator=generator) < ONES / D).to(torch.uint8)
        return f"random bits, {ONES} ones per record as in MNIST", x, torch.arange(N) % K
    assert mnist.labels is not None
    return "binarised MNIST", mnist.x, mnist.labels


def draws(x: Tensor, cluster: Tensor, rate: float, device: str) -> Iterator[Batch]:
    """Poisson draws in which every cluster has a record, which opacus' hooks need."""
    loader = PoissonLoader(x, sampling_rate=rate)
    loader.assign(cluster)
    while True:
        for batch in loader:
            if int(torch.bincount(batch.cluster, minlength=K).min()):
                yield Batch(batch.x.to(device), batch.cluster.to(device), batch.labels.to(device))


def timed(rounds: int, rate: float, batches: Iterable[Batch], device: str) -> dict[str, list[float]]:
    """Milliseconds of every contestant's steps; the order changes from round to round."""
    steps = {name: build(rate, device) for name, build in CONTESTANTS.items()}
    names, order = list(steps), random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in names}

    def job(name: str, batch: Batch) -> Callable[[], None]:
        def run() -> None:
            steps[name](batch)
            if device == "cuda":
                torch.cuda.synchronize()

        return run

    for i, batch in zip(range(-2, rounds), batches):  # two rounds to warm up
        order.shuffle(names)
        seconds = interleaved({name: job(name, batch) for name in names}, 1)
        for name in names if i >= 0 else ():
            times[name] += [1e3 * s for s in seconds[name]]
    steps.clear()
    gc.collect()  # opacus keeps per-record gradients, gigabytes of them
    return times


def ratio(times: dict[str, list[float]], above: str, below: str) -> float:
    """Median over rounds of the time of one contestant over that of another."""
    return statistics.median(a / b for a, b in zip(times[above], times[below]))


def speed(rounds: int, rate: float, batches: Iterable[Batch], device: str) -> dict[str, Any]:
    times = timed(rounds, rate, batches, device)
    goals = [
        ("private / non-private, plain PyTorch", ratio(times, PRIVATE, PLAIN), "<=", RATES[rate]),
        ("private / non-private, dpgen bank", ratio(times, PRIVATE, BANK), "<=", RATES[rate]),
        ("opacus ghost / private", ratio(times, GHOST, PRIVATE), ">=", 2.0),
        ("opacus hooks / private", ratio(times, HOOKS, PRIVATE), ">=", 3.5 if rate < 0.005 else 15.0),
    ]
    return {
        "milliseconds": {name: statistics.median(t) for name, t in times.items()},
        "of_plain_pytorch": {name: ratio(times, name, PLAIN) for name in times},
        "goals": [{"what": what, "ratio": value, "goal": f"{sign} {goal}"} for what, value, sign, goal in goals],
    }


# -- report ----------------------------------------------------------------------------------------------------------


def show(result: dict[str, Any]) -> None:
    print(f"{result['data']}, {result['machine']['cpu']}, {result['device']}, {result['rounds']} interleaved rounds")
    for rate, run in result["speed"].items():
        print(f"\nq = {rate}")
        for name, ms in run["milliseconds"].items():
            print(f"  {name:34s} {ms:8.1f} ms   {run['of_plain_pytorch'][name]:6.2f} x plain PyTorch")
        for row in run["goals"]:
            print(f"    {row['what']:38s} {row['ratio']:6.2f}   goal {row['goal']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_root")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=25)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    name, x, cluster = records(arguments.data_root)
    result: dict[str, Any] = {"machine": machine(), "data": name, "device": arguments.device, "rounds": arguments.rounds}
    result["machine"]["versions"]["opacus"] = opacus.__version__
    result["speed"] = {
        str(rate): speed(arguments.rounds, rate, draws(x, cluster, rate, arguments.device), arguments.device) for rate in RATES
    }
    show(result)
    file = Path(__file__).parent / "results" / ("step_time.json" if arguments.device == "cpu" else "step_time_cuda.json")
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
