"""CPU time of a private step of convolutional critics beside the same network without privacy and opacus, one thread.

    python benchmarks/conv_time.py [--rounds 9] [--batch 128]

Everything from the batch to the gradients is timed: forward, backward, norms, clipped sums; noise and the optimizer, which are
the same for all, are not. Contestants take turns, and the least of the rounds counts, for what disturbs a step only adds to it.
Writes benchmarks/results/conv_time.json.
"""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import opacus
import torch
from measuring import machine, store
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from torch import Tensor, nn
from torch.nn.functional import softplus

from dpgen.cosines import planes
from dpgen.nets.conv import ConvCriticBank, channels_of
from dpgen.privacy.clipping import clipped_sums, gradient_norms

NETWORKS: dict[str, dict[str, Any]] = {
    "28 x 28 grey, 2 convolutions": {"image_shape": (28, 28), "hidden": 128, "depth": 2},
    "32 x 32 colour, 3 convolutions": {"image_shape": (3, 32, 32), "hidden": 256, "depth": 3},
    "32 x 32 colour, 4 convolutions": {"image_shape": (3, 32, 32), "hidden": 256, "depth": 4},
}
CLASSES = 10


def plain_network(image_shape: tuple[int, ...], hidden: int, depth: int) -> nn.Sequential:
    """The critic as one would write it."""
    channels, height, width = planes(image_shape)
    layers: list[nn.Module] = []
    for i in range(depth):
        made = channels_of(hidden) * 2**i
        layers += [nn.Conv2d(channels, made, 4, 2, 1), *([nn.GroupNorm(made // 4, made)] if i else []), nn.LeakyReLU(0.2)]
        channels = made
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * height * width // 4**depth, CLASSES))


def contestants(options: dict[str, Any], batch: int) -> dict[str, Callable[[], object]]:
    """A step of each, on the same images."""
    x, code = torch.rand(batch, prod(options["image_shape"])), torch.eye(CLASSES)[torch.arange(batch) % CLASSES]
    images, records = x.view(batch, *planes(options["image_shape"])), torch.cat([x, code], 1)
    bank = ConvCriticBank(x.shape[1], categories=CLASSES, **options)
    bank.initialize(torch.Generator().manual_seed(0))
    sums = torch.empty_like(bank.theta)

    def private() -> None:
        gradients = bank.gradients(records, [0, batch], torch.randn)
        with torch.no_grad():
            clipped_sums(gradients, 1.0 / gradient_norms(gradients), sums)

    def losses(network: nn.Module) -> Tensor:
        return softplus(-(network(images) * code).sum(1))

    network, hooked = plain_network(**options), GradSampleModule(plain_network(**options))
    ghost = GradSampleModuleFastGradientClipping(plain_network(**options), max_grad_norm=1.0, use_ghost_clipping=True)

    def plain() -> None:
        network.zero_grad()
        losses(network).mean().backward()

    def hooks() -> None:
        hooked.zero_grad()
        losses(hooked).mean().backward()
        rows = [p.grad_sample for p in hooked.parameters()]
        weights = 1.0 / torch.stack([row.flatten(1).norm(dim=1) for row in rows]).norm(dim=0)
        for row in rows:
            torch.einsum("r,r...->...", weights, row)

    def ghosts() -> None:
        ghost.zero_grad()
        found = losses(ghost)
        ghost.enable_hooks()
        found.mean().backward(retain_graph=True)
        weights = ghost.get_clipping_coef()
        ghost.disable_hooks()
        ghost.zero_grad()
        (weights * found).sum().backward()
        ghost.enable_hooks()

    return {"non-private": plain, "private, dpgen": private, "opacus ghost": ghosts, "opacus hooks": hooks}


def milliseconds(steps: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Least CPU milliseconds of a step of each, after one to warm up."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 1):
        for name, step in steps.items():
            start = time.process_time()
            step()
            times[name] += [1e3 * (time.process_time() - start)] if turn else []
    return {name: round(min(own), 1) for name, own in times.items()}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "conv_time.json")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    for name, options in NETWORKS.items():
        found = milliseconds(contestants(options, given.batch), given.rounds)
        ratios = {other: round(found[other] / found["non-private"], 2) for other in found}
        store(given.out, f"batch {given.batch}", {name: {"cpu milliseconds": found, "of non-private": ratios}},
              machine=machine("opacus"), opacus=opacus.__version__)  # fmt: skip
        print(name, found, ratios, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
