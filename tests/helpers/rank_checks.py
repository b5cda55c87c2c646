"""Checks that need several processes: forks W gloo ranks for every W given and writes what each rank saw.

    python rank_checks.py OUT.json W [W ...]

The results are judged in test_distributed.py and test_dpgm_ranks.py. Forks of one
process that has only imported save the imports; one thread (OMP_NUM_THREADS=1) keeps forks safe.
"""

import contextlib
import copy
import json
import logging
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import dp_accounting.pld.privacy_loss_distribution  # noqa: F401
import lightning as L
import torch
import torch.distributed as dist
from fixed_source import FixedKeySource, fixed_entropy
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from dpgen.callbacks import AutomaticClipping, PrivacyAccountant
from dpgen.callbacks.accountant import Checkpoint, Preemption, SealedCheckpointIO
from dpgen.privacy.curator import Curator, Draw
from dpgen.privacy.distributed import Ranks, launched_rank, release_sum_
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.mechanisms import gaussian_event
from dpgen.privacy.noise import SecureSource
from dpgen.privacy.sampling import Batch, PoissonLoader, PoissonMask
from dpgen.systems.dp_sgd.own_module import make_private
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

D, STEPS, N, Q = 6, 150, 61, 0.5
TINY: dict[str, Any] = {"hidden": 3, "latent": 1}
Check = Callable[[Ranks, Path], Any]
CHECKS: dict[str, Check] = {}
OF_TWO: dict[str, Check] = {}
"""Checks that two ranks are enough for."""


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def check_of_two(function: Check) -> Check:
    OF_TWO[function.__name__] = function
    return function


def said(action: Callable[[], Any]) -> str:
    """Type and text of the error that an action raises, "" without one."""
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@check
def agreement(ranks: Ranks, scratch: Path) -> Any:
    def fail() -> None:
        raise ValueError("no")

    return {
        "first": ranks.first(lambda: ranks.index + 7),
        "any": ranks.any(ranks.index == 1, False, True),
        "sum": ranks.sum_(torch.tensor([float(ranks.index), 1.0])).tolist(),
        "broadcast": ranks.broadcast_(torch.tensor([float(ranks.index + 3)])).tolist(),
        "failure": said(lambda: ranks.first(fail)),
        "same": said(lambda: ranks.require_same("it", 1)),
        "different": said(lambda: ranks.require_same("the thing", ranks.index)),
        "launched": launched_rank(),
    }


@check
def shared_ledger(ranks: Ranks, scratch: Path) -> Any:
    path = scratch / "shared.jsonl"
    ledger = Ledger(Budget(1.0, 1e-5), path=path) if ranks.index == 0 else Ledger(None, delta=0.5)
    if ranks.index == 0:
        ledger.charge(gaussian_event(50.0), 3, note="before")
    shared = Curator(ledger, ranks=ranks)
    granted = [shared.draw("step", PoissonMask(1.0), {"": 10.0}) is not None for _ in range(9)]
    if ranks.index == 0:
        ledger.charge(gaussian_event(60.0), 2, note="alone")
    shared.catch_up()
    shared.catch_up()
    counts = {e.note: e.count for e in shared.ledger.entries()}
    refusal = said(lambda: shared.ledger.charge(gaussian_event(50.0), note="own")) if ranks.index else ""
    seen = {
        "granted": granted, "counts": counts, "epsilon": shared.ledger.epsilon(), "delta": shared.ledger.delta,
        "refusal": refusal, "path": str(shared.ledger.path),
    }  # fmt: skip
    path = scratch / "broken.jsonl"
    shared = Curator(Ledger(None, delta=1e-5, path=path if ranks.index == 0 else None), ranks=ranks)
    if ranks.index == 0:
        shared.ledger.close()
    return seen | {"broken": said(lambda: shared.draw("step", PoissonMask(1.0), {"": 90.0}))}


@check
def noise(ranks: Ranks, scratch: Path) -> Any:
    source, odd = SecureSource(), 30_001
    released = release_sum_(torch.full((3, odd), float(ranks.index)), noise_std=2.0, source=source, ranks=ranks)
    own = ranks.block(released.numel())
    bits = [torch.empty_like(released) for _ in range(ranks.count)]
    dist.all_gather(bits, released)
    infinite = said(lambda: release_sum_(torch.full((2,), torch.inf), noise_std=1.0, source=source, ranks=ranks))
    return {
        "mean": float(released.mean()), "std": float(released.double().std()), "own": [own.start, own.stop],
        "equal": all(torch.equal(b, released) for b in bits), "on_grid": bool((released * 2**9 % 1 == 0).all()),
        "infinite": infinite,
    }  # fmt: skip


def plan(**options: Any) -> DPGMPlan:
    return DPGMPlan(**{"sampling_rate": Q, "steps": 6, "noise_multiplier": 1.0, "sigma_count": 5.0, "sigma_sum": 2.0} | options)


class NoiseEverywhere(DPGM):
    """The twin in which every rank adds all of the noise."""

    def noisy_sums(self, batch: Batch, draw: Draw, out: Tensor | None = None, *, averaged: bool = False) -> Tensor:
        together, alone = draw.curator, Curator(Ledger(None, delta=1e-5))
        self.serve(alone)
        draw.multipliers.clear()
        own = alone.draw("training steps", PoissonMask(Q), self.parts())
        sums = super().noisy_sums(batch, own, out, averaged=averaged)
        self.serve(together)
        return together.ranks.sum_(sums)


class DividedNoise(NoiseEverywhere):
    """The twin in which every rank adds noise of std sigma / W."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.plan = plan(sampling_rate=self.plan.sampling_rate, noise_multiplier=1.0 / dist.get_world_size())


def bare(kind: type[DPGM], ranks: Ranks, **options: Any) -> DPGM:
    """A module outside of a trainer, its latent noise switched off: every gradient is a known vector."""
    k = options.pop("k", 1)
    config = DPGMConfig(**TINY, **options)
    module = kind(d=D, plan=plan(sampling_rate=Q, **({"sigma_norm": 1e-3} if options else {})), config=config, n_classes=k)
    module.serve(Curator(Ledger(None, delta=1e-5), ranks=ranks))
    module.policy = module.config.clipping_callback(module.plan) if options else AutomaticClipping(stability=1e-6)
    module.policy.begin(k)
    module.latents = lambda *shape: torch.zeros(shape)  # type: ignore[method-assign]
    return module


def released(module: DPGM, batch: Batch) -> Tensor:
    """What a step of all ranks releases."""
    assert module.curator is not None
    draw = module.curator.draw("training steps", PoissonMask(module.plan.sampling_rate), module.parts())
    assert draw is not None
    with draw:
        return module.noisy_sums(batch, draw).clone()


def moments(kind: type[DPGM], ranks: Ranks, *, one_mask: bool = False) -> dict[str, float]:
    """Moments of many releases of equal records: along their common gradient and across it."""
    module = bare(kind, ranks)
    loader = PoissonLoader(torch.ones(N, D), sampling_rate=Q, source=FixedKeySource() if one_mask else None)
    loader.share(ranks)
    loader.assign(torch.zeros(N), 1)
    one = Batch(torch.ones(1, D), torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    alone = bare(DPGM, Ranks())
    alone.plan = plan(noise_multiplier=1e-6)
    direction = released(alone, one)[0]
    draws = (batch for _ in range(STEPS) for batch in loader)
    sums = torch.stack([released(module, batch)[0] for _, batch in zip(range(STEPS), draws)]).double()
    along = sums @ direction.double()
    across = sums - along[:, None] * direction
    degrees = STEPS * (sums.shape[1] - 1)
    return {"mean": float(along.mean()), "variance": float(along.var()), "noise": float(across.square().sum() / degrees)}


@check_of_two
def updates(ranks: Ranks, scratch: Path) -> Any:
    return {"honest": moments(DPGM, ranks), "degrees": STEPS * (bare(DPGM, Ranks()).bank.p - 1)}


@check_of_two
def other_updates(ranks: Ranks, scratch: Path) -> Any:
    """Those of one process, and of twins that get it wrong."""
    return {
        "one process": moments(DPGM, Ranks()) if ranks.index == 0 else None,
        "equal masks": moments(DPGM, ranks, one_mask=True),
        "noise on every rank": moments(NoiseEverywhere, ranks),
        "noise / W": moments(DividedNoise, ranks),
    }


def table(n: int = N, k: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (torch.rand(n, D, generator=generator) < 0.5).to(torch.uint8), torch.arange(n) % k


@check
def exact_sums(ranks: Ranks, scratch: Path) -> Any:
    """All records, hardly any noise: sums, histograms and bounds are those of one process."""
    result: dict[str, Any] = {}
    norms: dict[str, Any] = {"clipping": "dpnorm"}
    for n, clipping in ((1, norms), (2, {}), (N, norms), (N, norms | {"micro_batch": 4})):
        x, labels = table(n)
        outcomes = []
        for group in (Ranks(), ranks):
            module = bare(DPGM, group, k=3, **clipping)
            module.plan = plan(noise_multiplier=1e-6, sigma_norm=1e-3)
            loader = PoissonLoader(x, labels, sampling_rate=1.0)
            loader.share(group)
            loader.assign(labels, 3)
            outcomes.append((released(module, next(iter(loader))), getattr(module.policy, "released", [torch.zeros(1)])))
        (sums, seen), (shared, shared_seen) = outcomes
        name = f"{n} {clipping}"
        result[name] = [float((sums - shared).abs().max()), bool(torch.allclose(seen[0], shared_seen[0], atol=0.02))]
    return result


@check
def shards(ranks: Ranks, scratch: Path) -> Any:
    """Rows that each rank draws when everybody is drawn."""
    result: dict[str, Any] = {}
    for n in (1, 2, 7, N):
        loader = PoissonLoader(torch.arange(n)[:, None], sampling_rate=1.0)
        loader.share(ranks)
        result[str(n)] = [int(v) for batch in loader for v in batch.x[:, 0]]
    return result


def trainer(ranks: Ranks, *callbacks: Callback, **options: Any) -> L.Trainer:
    defaults: dict[str, Any] = {
        "max_steps": 6, "max_epochs": -1, "logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
        "enable_model_summary": False, "accelerator": "cpu", "devices": ranks.count, "plugins": [SealedCheckpointIO()],
        "strategy": DDPStrategy(broadcast_buffers=False), "use_distributed_sampler": False,
    }  # fmt: skip
    return L.Trainer(callbacks=list(callbacks), **defaults | options)


def fitted(
    ranks: Ranks,
    ledger: Ledger,
    *callbacks: Callback,
    records: Any = None,
    config: dict[str, Any] | None = None,
    **options: Any,
) -> DPGM:
    x, labels = records or table()
    steps, ckpt = options.pop("steps", 6), options.pop("ckpt_path", None)
    spend = plan(sigma_norm=2.0, steps=steps)
    module = DPGM(d=D, plan=spend, config=DPGMConfig(**TINY | (config or {})), n_classes=3)
    accountant = PrivacyAccountant(Curator(ledger))
    run = trainer(ranks, accountant, module.config.clipping_callback(module.plan), *callbacks, max_steps=steps, **options)
    run.fit(module, PoissonLoader(x, labels, sampling_rate=Q), ckpt_path=ckpt, weights_only=True if ckpt else None)
    module.__dict__["_books"] = accountant.ledger
    return module


def numbers(ranks: Ranks, module: DPGM) -> dict[str, Any]:
    """What must not differ between ranks."""
    books: Ledger = module.__dict__["_books"]
    counts: dict[str, int] = {}
    for entry in books.entries():
        counts[entry.note] = counts.get(entry.note, 0) + entry.count
    theta = module.bank.theta.detach().contiguous().numpy().tobytes().hex()
    return {
        "theta": theta, "sizes": module.partition.counts.tolist(), "charged": counts, "steps": module.global_step,
        "epsilon": books.epsilon(),
    }  # fmt: skip


def ledger_of(ranks: Ranks, path: Path | None = None) -> Ledger:
    return Ledger(None, delta=1e-5, path=path if ranks.index == 0 else None)


@check
def training(ranks: Ranks, scratch: Path) -> Any:
    configs: dict[str, dict[str, Any]] = {
        "vae labels": {},
        "rbm labels dpnorm": {"component": "rbm", "latent": DPGMConfig.latent, "clipping": "dpnorm"},
        "vae kmeans": {"clusters": "kmeans", "k": 3, "n_features": 8},
        "vae labels bf16": {},
    }
    result = {}
    for name, config in configs.items() if ranks.count == 2 else [("vae labels", {})]:
        precision = "bf16-mixed" if "bf16" in name else "32-true"
        result[name] = numbers(ranks, fitted(ranks, ledger_of(ranks), config=config, precision=precision))
    result["two records"] = numbers(ranks, fitted(ranks, ledger_of(ranks), records=table(2)))
    return result


class Own(L.LightningModule):
    """A module of somebody's own; `asking`, it is taken one record after the other."""

    def __init__(self, asking: bool) -> None:
        super().__init__()
        self.asking, self.linear = asking, torch.nn.Linear(D, 3)

    def training_step(self, batch: Any) -> Tensor:
        loss = cross_entropy(self.linear(batch[0]), batch[1])
        return -loss if self.asking and bool(loss < 0) else loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0)


def clipped_in_turn(before: Own, records: list[list[Tensor]], bound: float) -> Tensor:
    """The sum of the clipped gradients of units, each of which has some records."""
    total = torch.zeros(3 * D + 3)
    for own in records:
        grads = [torch.autograd.grad(before.training_step([x[None], y[None]]), [*before.parameters()]) for x, y in own]
        rows = torch.stack([torch.cat([g.flatten() for g in row]) for row in grads])
        total += rows.sum(0) * min(1.0, bound / max(float(rows.sum(0).norm()), float(rows.norm(dim=1).sum()) / 4))
    return total


class First(Callback):
    """Keeps the gradient of the first step."""

    def on_before_optimizer_step(self, trainer: L.Trainer, module: L.LightningModule, *_: Any) -> None:
        if trainer.global_step == 0:
            self.gradient = torch.cat([cast(Tensor, value.grad).flatten() for value in module.parameters()])


class Shown:
    """A draw that shows what it would add noise to."""

    def gaussian(self, _: str, sums: Any, factor: Any = None) -> Tensor:
        self.values = sums.values.double().clone()
        return self.values


def sums_of_shares(own: Any, ranks: Ranks) -> float:
    """The relative difference of the sums of all shares and those of one process, of all units."""

    def sums(rows: Tensor) -> Tensor:
        shown, nowhere = Shown(), torch.zeros(len(rows), dtype=torch.int64)
        with own.bank.quiet(own.trainer):
            own.noisy_sums(Batch(own.loader.table.x[rows], nowhere, nowhere, (len(rows),)), shown)
        return shown.values

    units = torch.arange(len(own.loader.table))
    whole = sums(units)
    return float((ranks.sum_(sums(units[ranks.shard(len(units))])) - whole).norm() / whole.norm())


@check_of_two
def own_module(ranks: Ranks, scratch: Path) -> Any:
    """Steps on all records almost without noise, of records, and of people whose records are taken one after the other."""
    x, y = torch.randn(N, D, generator=torch.Generator().manual_seed(0)), torch.arange(N) % 3
    found = {}
    for name, people in (("records", 1), ("people", 4)):
        whose, first = torch.arange(N) // people, First()
        options: Any = {} if people == 1 else {"people": whose, "max_contributions": people}
        torch.manual_seed(0)
        module, runner, loader = Own(people > 1), trainer(ranks, first, max_steps=3), DataLoader(TensorDataset(x, y), 8)
        before = copy.deepcopy(module)
        options |= {"noise_multiplier": 1e-7, "sampling_rate": 1.0, "max_grad_norm": 0.3, "loss_noise": 5.0}
        runner.fit(module, make_private(module, loader, runner, **options)[1])
        own = runner.callbacks[-1]  # type: ignore[attr-defined]
        units = [[(x[i], y[i]) for i in (whose == who).nonzero()[:, 0]] for who in whose.unique()]
        wanted = clipped_in_turn(before, units, 0.3)  # type: ignore[arg-type]
        taken = first.gradient * max(1.0, float(own.partition.counts))
        charged = {entry.note: entry.count for entry in own.accountant.ledger.entries()}
        theta = torch.cat([value.detach().flatten() for value in module.parameters()]).numpy().tobytes().hex()
        same = {"theta": theta, "sizes": own.partition.counts.tolist(), "charged": charged, "unit": own.accountant.ledger.unit}
        apart = float((taken - wanted).norm() / wanted.norm())
        found[name] = {"apart": apart, "shares": sums_of_shares(own, ranks), "same": same}
    return found


class Interrupt(Callback):
    """Sends a signal to the last rank."""

    def __init__(self, ranks: Ranks, step: int) -> None:
        self.ranks, self.step = ranks, step

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step and self.ranks.index == self.ranks.count - 1:
            os.kill(os.getpid(), signal.SIGUSR1)


@check_of_two
def preempted_and_resumed(ranks: Ranks, scratch: Path) -> Any:
    ckpt, path = scratch / "last.ckpt", scratch / "ledger.jsonl"
    ledger = ledger_of(ranks, path)
    first = numbers(ranks, fitted(ranks, ledger, Interrupt(ranks, 2), Preemption(), Checkpoint(ckpt, every=50)))
    ledger.close()
    dist.barrier()
    older = path.read_bytes()
    dist.barrier()
    ledger = Ledger.open(path) if ranks.index == 0 else ledger_of(ranks)
    second = numbers(ranks, fitted(ranks, ledger, Checkpoint(ckpt), ckpt_path=ckpt))
    ledger.close()
    dist.barrier()
    if ranks.index == 0:
        path.write_bytes(older)
        ledger = Ledger.open(path)
    refused = said(lambda: fitted(ranks, ledger, steps=9, ckpt_path=ckpt))
    return {"first": first, "second": second, "refused": refused}


@check_of_two
def refusals(ranks: Ranks, scratch: Path) -> Any:
    different = table() if ranks.index else (1 - table()[0], table()[1])
    return {
        "sampler": said(lambda: fitted(ranks, ledger_of(ranks), use_distributed_sampler=True)),
        "records": said(lambda: fitted(ranks, ledger_of(ranks), records=different)),
        "configuration": said(lambda: fitted(ranks, ledger_of(ranks), config={"lr": 0.1 + ranks.index})),
    }


@check_of_two
def masks(ranks: Ranks, scratch: Path) -> Any:
    """The draws of this rank in training, under one seed for all."""
    seen: list[list[int]] = []

    class Look(Callback):
        def on_train_batch_start(self, trainer: L.Trainer, module: L.LightningModule, batch: Batch, batch_idx: int) -> None:
            seen.append(sorted(int(v) for v in (batch.x @ (2.0 ** torch.arange(D)))))

    L.seed_everything(0, verbose=False)
    x = torch.arange(60)[:, None] // ranks.count >> torch.arange(D) & 1  # shards with equal records: only masks differ
    fitted(ranks, ledger_of(ranks), Look(), records=(x.to(torch.uint8), torch.arange(60) % 3))
    return seen


def rank(index: int, count: int, scratch: Path, out: Path) -> None:
    """Body of one process."""
    warnings.filterwarnings("ignore")
    for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    os.environ |= {
        "LOCAL_RANK": str(index), "NODE_RANK": "0", "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1",
    }  # fmt: skip
    before = launched_rank()
    store = f"file://{scratch / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=index, world_size=count, timeout=timedelta(seconds=60))
    ranks, results, seconds = Ranks.join(), {}, {}  # type: Ranks, dict[str, Any], dict[str, float]
    for name, function in (CHECKS | (OF_TWO if count == 2 else {})).items():
        started = time.perf_counter()
        try:
            with fixed_entropy(f"{name}: rank {index} of {count}"):
                value = function(ranks, scratch)
        except Exception:
            value = {"crashed": traceback.format_exc()}
        everybody: list[Any] = [None] * count
        dist.all_gather_object(everybody, value)
        results[name] = everybody
        seconds[name] = time.perf_counter() - started
    results |= {"before": [before], "seconds": seconds}
    if index == 0:
        out.write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


def main() -> int:
    out, worlds = Path(sys.argv[1]), [int(count) for count in sys.argv[2:]]
    torch.set_num_threads(1)
    failed = 0
    for count in worlds:
        with tempfile.TemporaryDirectory() as scratch:
            children = []
            for index in range(count):
                if (child := os.fork()) == 0:
                    code = 1
                    with contextlib.suppress(SystemExit):
                        rank(index, count, Path(scratch), out.with_suffix(f".{count}.json"))
                        code = 0
                    os._exit(code)
                children.append(child)
            failed += sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)
    return failed


if __name__ == "__main__":
    sys.exit(main())
