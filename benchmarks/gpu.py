"""Ten minutes on a GPU: a private step beside others, noise of both sources, memory, and a training on MNIST.

    python benchmarks/gpu.py [--data_root DIR] [--device cuda] [--rounds 25] [--steps 1000]

Never run on a GPU yet. `--device cpu --rounds 2 --steps 3` tries the script itself. Writes benchmarks/results/gpu.json.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measuring import machine
from step_time import K, N, draws, records, speed

from dpgen.privacy.distributed import NoiseAhead
from dpgen.privacy.noise import DeviceSource, SecureSource

RESULTS = Path(__file__).parent / "results" / "gpu.json"
SIZE, RATE = 3_200_000, 0.01  # numbers of a step of ten VAEs of 784-200-10


def seconds(job: Callable[[], object], device: str, repeats: int) -> float:
    """The least time of a job, the device's work included."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def noise(device: str, repeats: int) -> dict[str, float]:
    """Seconds of the noise of one step, of every source."""
    where = torch.device(device)
    ahead = NoiseAhead(SecureSource(), where)
    jobs: dict[str, Callable[[], object]] = {
        "host, AES": lambda: SecureSource().normal_on(where, SIZE, noise_std=1.0),
        "host, AES, one step ahead": lambda: ahead.draw(SIZE, noise_std=1.0),
        "device, Philox": lambda: DeviceSource().normal_on(where, SIZE, noise_std=1.0),
        "torch, not secure": lambda: torch.randn(SIZE, device=where),
    }
    found = {name: seconds(job, device, repeats) for name, job in jobs.items()}
    ahead.close()
    return found


def training(data_root: str | None, device: str, steps: int, source: str) -> dict[str, Any]:
    """A DPGM of MNIST, 60,000 records, or of the small digits, at epsilon 10: seconds, and its scores."""
    data = ["--data", "mnist", "--data_root", data_root] if data_root else ["--data", "digits"]
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / "run"
        options = {"model": "dpgm", "epsilon": 10, "steps": steps, "noise_source": source, "run_dir": run}
        options |= {"accelerator": "gpu" if device == "cuda" else "cpu", "progress_bar": "false"}
        command = [sys.executable, "-m", "dpgen", "train", *data, *(f"--{name}={value}" for name, value in options.items())]
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return {"seconds": time.perf_counter() - start, "scores": json.loads((run / "metrics.json").read_text())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_root")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    device = options.device
    name, x, cluster = records(options.data_root)
    result: dict[str, Any] = {"machine": machine(), "device": device, "records": f"{name}, {N} in {K} clusters"}
    if device == "cuda":
        result["device"] = torch.cuda.get_device_name()
        torch.cuda.reset_peak_memory_stats()
    result["noise_s"] = noise(device, options.rounds)
    result["step"] = speed(options.rounds, RATE, draws(x, cluster, RATE, device), device)
    if device == "cuda":
        result["peak_bytes"] = torch.cuda.max_memory_allocated()
    sources = ("host", "device") if device == "cuda" else ("host",)
    result["training"] = {source: training(options.data_root, device, options.steps, source) for source in sources}
    print(json.dumps(result, indent=2))
    if device == "cuda":
        RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
