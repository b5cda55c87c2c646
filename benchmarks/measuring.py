"""How benchmarks measure: what machine this is, jobs timed in turns, results kept part by part. It measures nothing itself."""

import importlib.metadata
import json
import os
import platform
import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("torch", "numpy", "numba", "cryptography")


def add_data_root(parser: ArgumentParser, holds: str) -> None:
    """Add `--data_root`, the directory that `holds` what is named; the environment variable DPGEN_DATA may say where it is."""
    known = os.environ.get("DPGEN_DATA")
    text = f"directory with {holds} (DPGEN_DATA if that is set)"
    parser.add_argument("--data_root", type=Path, default=known and Path(known), required=not known, help=text)


def machine(*packages: str) -> dict[str, Any]:
    """What the figures were measured on: processor, cores, load, and versions of `packages` beside the usual ones."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "threads_used": torch.get_num_threads(),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in (*PACKAGES, *packages)},
    }


def interleaved(jobs: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each job, taken in turns so that a busy machine slows all of them alike."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def store(path: Path, block: str, entries: dict[str, Any], **facts: Any) -> None:
    """Add entries to a block of a results file; it is read again first, for parts may run side by side."""
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    results[block] = results.get(block, {}) | entries
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results | facts, indent=2) + "\n")
