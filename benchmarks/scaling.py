"""How a DPGM step scales: clusters, batch, width; two processes; and millions of sparse rows on disk.

    python benchmarks/scaling.py [--only sizes|ranks|rows] [--device cuda] [--rounds 9]

`sizes`: milliseconds of a private step beside a non-private one of the same k models, one thread.
`ranks`: steps of one process and of two gloo processes with one thread each, taken in turns; with --device cuda one and
two GPUs by NCCL. `rows`: 4.4 million simulated call-detail records over 1,303 towers, memory-mapped, and the time per epoch.
The load of the machine is written down: on a busy one, wall-clock ratios of processes say little; CPU seconds do.

Writes benchmarks/results/scaling.json (scaling_cuda.json).
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import torch.distributed as dist
from measuring import interleaved, machine
from torch import Tensor

from dpgen.data.sets import SparseRows, write_sparse_rows
from dpgen.privacy.clipping import clipped_sums
from dpgen.privacy.curator import Curator, Draw
from dpgen.privacy.distributed import Ranks
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.sampling import Batch, PoissonLoader, PoissonMask
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

D, LATENT = 784, 10
SIZES = [(k, b, h) for k in (1, 10, 100) for b, h in ((600, 200), (3000, 200), (600, 50), (600, 800)) if k * h < 40_000]
ROWS, TOWERS, ROW_RATE = 4_400_000, 1_303, 0.001
SPEEDUP_GOAL, MEMORY_GOAL = 1.5, 8.0


class Training(DPGM):
    """A DPGM whose steps run without a trainer."""

    def __init__(self, d: int, k: int, rate: float, device: str, **options: Any) -> None:
        plan = DPGMPlan(sampling_rate=rate, sigma_sgd=1.0, sigma_count=10.0)
        clusters = "labels" if k > 1 else "none"
        config = DPGMConfig(latent=LATENT, clusters=clusters, **options)
        super().__init__(d=d, plan=plan, config=config, n_classes=k if k > 1 else 0)
        self.to(device)
        self.curator = Curator(Ledger(None, delta=1e-5))
        self.serve(self.curator)
        self._policy.begin(k)
        self.partition.fit(torch.zeros(k, 1), torch.arange(k), curator=self.curator)
        self._adam = self.configure_optimizers()

    def optimizers(self, use_pl_optimizer: bool = True) -> Any:
        return self._adam

    @torch.no_grad()
    def step(self, batch: Batch) -> None:
        self.bank.begin_step()
        draw = self.curator.draw("training steps", PoissonMask(self.plan.sampling_rate), self.parts())
        assert draw is not None
        self._descend(self.noisy_sums(batch, draw, self._sums, averaged=True))


class NonPrivate(Training):
    """The same bank and optimizer with plain sums of gradients."""

    def noisy_sums(self, batch: Batch, draw: Draw, out: Tensor | None = None, *, averaged: bool = False) -> Tensor:
        assert out is not None
        assert batch.sizes is not None
        bounds = [0, *torch.tensor(batch.sizes).cumsum(0).tolist()]
        with torch.enable_grad():
            gradients = self.bank.gradients(batch.x, bounds, lambda *shape: torch.randn(shape, device=batch.x.device))
        weights = torch.ones_like(batch.cluster, dtype=torch.float32)
        return clipped_sums(gradients, weights, out, drawn=[1] * self.bank.k)


def bits(n: int, d: int) -> Tensor:
    return (torch.rand(n, d, generator=torch.Generator().manual_seed(0)) < 0.13).to(torch.uint8)


def sizes(rounds: int, device: str) -> list[dict[str, Any]]:
    rows = []
    for k, b, hidden in SIZES:
        cluster = torch.arange(b).sort().values * k // b
        counts = torch.bincount(cluster, minlength=k).tolist()
        batch = Batch(bits(b, D).float().to(device), cluster.to(device), cluster.to(device), sizes=counts)
        contestants: dict[str, Training] = {
            name: kind(D, k, 0.01, device, hidden=hidden) for name, kind in (("private", Training), ("plain", NonPrivate))
        }

        def job(training: Training, batch: Batch = batch) -> Callable[[], None]:
            def run() -> None:
                training.step(batch)
                if device == "cuda":
                    torch.cuda.synchronize()

            return run

        jobs: dict[str, Callable[[], object]] = {name: job(training) for name, training in contestants.items()}
        interleaved(jobs, 2)
        seconds = interleaved(jobs, rounds)
        row = {"k": k, "batch": b, "hidden": hidden, "parameters": contestants["plain"].bank.theta.numel()}
        row |= {f"{name}_ms": 1e3 * statistics.median(times) for name, times in seconds.items()}
        row["ratio"] = statistics.median(a / c for a, c in zip(seconds["private"], seconds["plain"]))
        if device == "cuda":
            row["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
            torch.cuda.reset_peak_memory_stats()
        rows.append(row)
        print("k {k:4d}  batch {batch:5d}  hidden {hidden:4d}  private {private_ms:8.1f} ms, {ratio:5.2f} x".format(**row))
    return rows


def rank(index: int, count: int, store: str, steps: int, device: str) -> None:
    """One process: steps of a compute-bound setting on its shard; prints wall and CPU seconds of a step."""
    where = f"cuda:{index}" if device == "cuda" else "cpu"
    ranks = Ranks()
    if count > 1:
        backend = "nccl" if device == "cuda" else "gloo"
        dist.init_process_group(backend, init_method=store, rank=index, world_size=count, timeout=timedelta(seconds=300))
        ranks = Ranks.join()
    training = Training(D, 1, 0.1, where, hidden=400)
    training.curator.join(ranks, training.device)
    loader = PoissonLoader(bits(40_000, D), sampling_rate=0.1)
    loader.share(ranks)
    loader.assign(torch.zeros(40_000), 1)
    draws = (batch for _ in iter(int, 1) for batch in loader)
    wall, cpu = [], []
    for batch, _ in zip(draws, range(steps + 2)):
        start, used = time.perf_counter(), time.process_time()
        training.step(training.transfer_batch_to_device(batch, torch.device(where), 0))
        if device == "cuda":
            torch.cuda.synchronize()
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - used)
    print(json.dumps({"wall": statistics.median(wall[2:]), "cpu": statistics.median(cpu[2:])}))


def ranks_speed(rounds: int, device: str) -> dict[str, Any]:
    """One process and two, in turns."""
    seen: dict[int, dict[str, list[float]]] = {1: {"wall": [], "cpu": []}, 2: {"wall": [], "cpu": []}}
    with tempfile.TemporaryDirectory() as scratch:
        for turn in range(3):
            for count in (1, 2):
                store = f"file://{scratch}/{turn}-{count}"
                command = [
                    sys.executable,
                    __file__,
                    "--device",
                    device,
                    "--rounds",
                    str(rounds),
                    "--rank_of",
                    f"{count},{store}",
                ]
                processes = [subprocess.Popen([*command, str(i)], stdout=subprocess.PIPE, text=True) for i in range(count)]
                outputs = [json.loads(p.communicate()[0].splitlines()[-1]) for p in processes]
                for name, values in seen[count].items():
                    values.append(max(output[name] for output in outputs))
    result: dict[str, Any] = {"records_per_step": 4_000, "hidden": 400, "goal": SPEEDUP_GOAL, "load": os.getloadavg()[0]}
    for name in ("wall", "cpu"):
        result[f"one_{name}_ms"], result[f"two_{name}_ms"] = (1e3 * statistics.median(seen[c][name]) for c in (1, 2))
        result[f"speedup_{name}"] = statistics.median(a / b for a, b in zip(seen[1][name], seen[2][name]))
    print(
        "two processes / one: {speedup_wall:.2f} x by the clock, {speedup_cpu:.2f} x by CPU seconds of a process".format(
            **result
        )
    )
    return result


def write_rows(directory: Path) -> None:
    """Simulated call-detail records: about ten towers each, few of them popular."""
    generator = np.random.default_rng(0)
    popularity = (1 / np.arange(1, TOWERS + 1)) / (1 / np.arange(1, TOWERS + 1)).sum()
    edges = popularity.cumsum()

    def sets() -> Any:
        for start in range(0, ROWS, 100_000):
            lengths = 1 + generator.poisson(9, min(100_000, ROWS - start))
            items = edges.searchsorted(generator.random(lengths.sum())).clip(max=TOWERS - 1)
            yield from np.split(items, lengths.cumsum()[:-1])

    write_sparse_rows(directory, sets())


def rows_on_disk(rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([sys.executable, __file__, "--write_rows", scratch], check=True)
        rows = SparseRows.open(Path(scratch), d=TOWERS)
        training = Training(TOWERS, 1, ROW_RATE, "cpu", hidden=200)
        loader = PoissonLoader(rows, sampling_rate=ROW_RATE)
        loader.assign(torch.zeros(len(rows)), 1)
        draw, step, drawn = [], [], []
        iterator = iter(loader)
        for _ in range(rounds + 1):
            start = time.perf_counter()
            batch = next(iterator)
            middle = time.perf_counter()
            training.step(batch)
            draw.append(middle - start)
            step.append(time.perf_counter() - middle)
            drawn.append(len(batch.x))
    a, b = statistics.median(draw[1:]), statistics.median(step[1:])
    result = {
        "rows": len(rows), "towers": TOWERS, "ones": len(rows.items), "sampling_rate": ROW_RATE,
        "drawn": statistics.mean(drawn),
        "draw_ms": 1e3 * a, "step_ms": 1e3 * b, "epoch_seconds": (a + b) / ROW_RATE,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, "goal_gib": MEMORY_GOAL,
        "load": os.getloadavg()[0],
    }  # fmt: skip
    print(
        "{rows} rows: draw {draw_ms:.0f} ms, step {step_ms:.0f} ms, epoch {epoch_seconds:.0f} s, {peak_gib:.2f} GiB".format(
            **result
        )
    )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["sizes", "ranks", "rows"])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rank_of", help=argparse.SUPPRESS)
    parser.add_argument("--write_rows", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("index", nargs="?", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    if arguments.write_rows:
        write_rows(arguments.write_rows)
        return
    if arguments.rank_of:
        count, _, store = arguments.rank_of.partition(",")
        rank(arguments.index, int(count), store, arguments.rounds, arguments.device)
        return
    file = Path(__file__).parent / "results" / ("scaling.json" if arguments.device == "cpu" else "scaling_cuda.json")
    result: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    result |= {"machine": machine(), "device": arguments.device}
    parts: dict[str, Callable[[], Any]] = {
        "sizes": lambda: sizes(arguments.rounds, arguments.device),
        "ranks": lambda: ranks_speed(arguments.rounds, arguments.device),
        "rows": lambda: rows_on_disk(arguments.rounds),
    }
    for name, part in parts.items():
        if arguments.only in (None, name):
            result[name] = part()
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
