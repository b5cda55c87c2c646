"""Everything that needs a GPU, in ten minutes at most: `python benchmarks/gpu.py --data_root DIR [--out FILE]`.

Tests with the marker `gpu`, a private step beside a plain one, two devices beside one where there are two, convolutional
DPGAN and VAEs on CIFAR-10 and mixtures of VAEs on MNIST for a fixed number of steps. Each part is a command with a limit of
its own; what it said last, its seconds and its exit status go into benchmarks/results/gpu.json with the device and the
versions. `--dry` runs the smallest things on the CPU instead, to see that the commands work.
No figures of a GPU are in the repository yet.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from measuring import add_data_root, machine, store

HERE = Path(__file__).parent
LINES = 12
"""Last lines of a part that are kept."""


class Part(NamedTuple):
    """A command, its limit in seconds, and how many devices it needs."""

    command: Sequence[str]
    limit: float
    devices: int = 1


def training(*options: str, run_dir: str) -> tuple[str, ...]:
    """A training that is not evaluated."""
    return ("-m", "dpgen", "train", *options, "--evaluation=none", "--progress_bar=false", f"--run_dir={run_dir}")


def parts(data_root: Path, scratch: str) -> dict[str, Part]:
    """What a GPU is asked, with limits that add up to ten minutes."""
    on_gpu = ("--data=mnist", f"--data_root={data_root}", "--accelerator=gpu")
    colour = ("--data=cifar10", f"--data_root={data_root}", "--accelerator=gpu", "--epsilon=10", "--steps=300")
    small = ("--micro_batch=256", "--hidden=256", "--latent=64")
    gan = training(
        "--model=dpgan", "--network=cnn", "--critic_steps=10", "--lr=0.003", *colour, *small, run_dir=f"{scratch}/gan"
    )
    vae = training("--model=dpgm", "--component=vae", "--epsilon=10", *on_gpu, "--steps=1000", run_dir=f"{scratch}/vae")
    conv = training("--model=dpgm", "--component=vae", "--encoder=cnn", *colour, *small, run_dir=f"{scratch}/conv")
    half = training("--model=dpgm", "--epsilon=10", *on_gpu, "--steps=300", "--precision=bf16-mixed", run_dir=f"{scratch}/half")
    return {
        "tests": Part(("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", str(HERE.parent / "tests")), 130),
        "step": Part((str(HERE / "step_time.py"), "--device=cuda", "--rounds=9", "--skip_memory"), 90),
        "ranks": Part((str(HERE / "scaling.py"), "--only=ranks", "--device=cuda", "--rounds=5"), 90, devices=2),
        "DPGAN on CIFAR-10, convolutions, 300 steps": Part(gan, 120),
        "VAE per label, 1,000 steps": Part(vae, 50),
        "VAE per label on CIFAR-10, convolutions, 300 steps": Part(conv, 80),
        "VAE per label, bfloat16, 300 steps": Part(half, 40),
    }


def dry_parts(scratch: str) -> dict[str, Part]:
    """The same kinds of commands on the CPU, as small as they can be."""
    small = ("--data=digits", "--accelerator=cpu", "--steps=2")
    gan = training("--model=dpgan", "--network=cnn", "--fakes=8", *small, run_dir=f"{scratch}/gan")
    collected = (
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "gpu",
        "--collect-only",
        str(HERE.parent / "tests/systems/kmeans"),
    )
    vae = training("--model=dpgm", "--component=vae", "--encoder=cnn", "--hidden=8", *small, run_dir=f"{scratch}/vae")
    return {
        "tests": Part(collected, 120),
        "DPGAN, convolutions, 2 steps": Part(gan, 120),
        "VAE, convolutions, 2 steps": Part(vae, 120),
        "ranks": Part((), 1, devices=10**6),
    }


def run(part: Part) -> dict[str, Any]:
    """Its seconds, exit status (124: it ran past its limit) and last lines; or why it was left out."""
    if part.devices > 1 and torch.cuda.device_count() < part.devices:
        return {"left out": f"{torch.cuda.device_count()} GPUs, and it needs {part.devices}"}
    start = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, *part.command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=part.limit
        )
        status, said = done.returncode, done.stdout
    except subprocess.TimeoutExpired as stopped:
        status, said = 124, stopped.stdout.decode(errors="replace") if isinstance(stopped.stdout, bytes) else ""
    return {"status": status, "seconds": round(time.perf_counter() - start, 1), "said": said.splitlines()[-LINES:]}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    add_data_root(parser, "mnist/ and cifar10/")
    parser.add_argument("--dry", action="store_true", help="the smallest things on the CPU")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "gpu.json")
    options = parser.parse_args(arguments)
    if not options.dry and not torch.cuda.is_available():
        print("error: no GPU: torch.cuda.is_available() is False; --dry runs on the CPU", file=sys.stderr)
        return 2
    worst = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name, part in (dry_parts(scratch) if options.dry else parts(options.data_root, scratch)).items():
            found = run(part)
            store(options.out, "parts", {name: found}, machine=machine("lightning"), dry=options.dry)
            print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in found.items() if key != "said"), flush=True)
            worst = max(worst, int(found.get("status", 0) != 0))
    return worst


if __name__ == "__main__":
    sys.exit(main())
