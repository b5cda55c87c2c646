"""How benchmarks measure: what machine this is, jobs timed in turns, results kept part by part, fits without any noise.

It measures nothing itself.
"""

import importlib.metadata
import json
import os
import platform
import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import torch
from torch import Tensor

from dpgen.facts import Fact
from dpgen.privacy.curator import Curator, Draw
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Ledger
from dpgen.statement import PrivacyStatement

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


# -- ceilings ----------------------------------------------------------------------------------------------------------


class _NoiselessLedger(Ledger):
    """Writes down what ran; nothing of it can be stated."""

    @property
    def accountant(self) -> NoReturn:  # type: ignore[override]
        raise ValueError("no noise was added: there is no guarantee, and no statement of it")


class _NoiselessDraw(Draw):
    def gaussian(self, name: str, sums: BoundedSum, *, factor: Tensor | None = None) -> Tensor:
        self.multipliers.pop(name)
        exact = sums.values if sums.step == 1.0 else sums.values.double() * sums.step
        return exact if factor is None else exact.mul_(factor.to(exact).view(-1, *[1] * (exact.dim() - 1)))


class NoiselessCurator(Curator):
    """Gives out sums as they are: what a model could reach if privacy cost nothing. Choices and other noise stay as they are.

    Nothing that passes it can be stated: its ledger refuses, and a fit ends with an error unless `unstated` is around it.
    """

    def __init__(self, delta: float = 1e-5) -> None:
        super().__init__(_NoiselessLedger(None, delta=delta))

    def noisy(self, sums: BoundedSum, noise_std: float) -> Tensor:
        return sums.values.clone() if sums.step == 1.0 else sums.values.double() * sums.step

    def draw(self, *args: Any, **options: Any) -> Draw | None:
        granted = super().draw(*args, **options)
        return None if granted is None else _NoiselessDraw(self, granted.multipliers)


def unstated() -> Any:
    """A context in which fits end with a statement of infinite epsilon, which no file accepts."""
    nothing = PrivacyStatement(
        epsilon=float("inf"),
        delta=0.0,
        relation="add_remove",
        unit="one record",
        accountant="none",
        also={},
        mechanisms=(),
        facts=(Fact.UNCOVERED(text="Everything: no noise was added."),),
    )
    return patch.object(PrivacyStatement, "from_ledger", lambda *_, **__: nothing)
