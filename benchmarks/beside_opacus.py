"""Networks of one's own: MNIST by three lines beside opacus, steps of five architectures and of a model of words.

`--only alone` measures what one record at a time costs: a step beside the same with one loss of all records, as 0.5.0 took it.
`--only words` measures a step of a model of words whose embedding is its last layer, too: time, and peak memory of a process.

Both get the same network, data, rate, clip bound, steps, optimizer and budget. Features are public functions of an image
alone: its lowest cosines, or moduli of oriented waves (scattering of first order, Bruna and Mallat 2013), each image scaled by
itself. Settings were tuned on the test accuracy of seed 0, as is usual for such tables; no budget covers that.

    python benchmarks/beside_opacus.py --data_root DIR
"""

import argparse
import logging
import math
import multiprocessing
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import lightning as L
import torch
from measuring import add_data_root, machine, store
from opacus import PrivacyEngine
from opacus.layers import DPLSTM, DPMultiheadAttention
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv2d, cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import dpgen
from dpgen.callbacks import BoundedClipping
from dpgen.data import load_mnist
from dpgen.nets.per_record import PerRecord, _Call, _Tape
from dpgen.privacy.clipping import Factor
from dpgen.runtime import quiet_training

SIDE, CLASSES, DELTA = 28, 10, 1e-5

# -- public features -------------------------------------------------------------------------------------------------


def cosines(x: Tensor, size: int = 10) -> Tensor:
    """The lowest cosines (n, m) of grey images (n, 784), weighed by 1 + frequency, each image of one norm."""
    i = torch.arange(SIDE) + 0.5
    basis = torch.cos(math.pi * i * torch.arange(size)[:, None] / SIDE) * (2 / SIDE) ** 0.5
    basis[0] /= 2**0.5
    frequency = torch.hypot(*torch.meshgrid(torch.arange(size).float(), torch.arange(size).float(), indexing="ij"))
    found = (basis @ (x.view(-1, SIDE, SIDE) - 0.13) @ basis.T * (1 + frequency))[:, frequency < size - 0.9]
    return found / found.norm(dim=1, keepdim=True).clamp_min(1e-3) * found.shape[1] ** 0.5


def waves(size: int, frequency: float, width: float, angles: int = 8) -> Tensor:
    """Cosine and sine waves of several angles under a bump, (2 angles, 1, size, size)."""
    half = torch.arange(size) - size // 2
    y, x = torch.meshgrid(half.float(), half.float(), indexing="ij")
    bump, made = torch.exp(-(x**2 + y**2) / (2 * width**2)), []
    for k in range(angles):
        along = x * math.cos(math.pi * k / angles) + y * math.sin(math.pi * k / angles)
        even, odd = bump * torch.cos(frequency * along), bump * torch.sin(frequency * along)
        even = even - bump * even.sum() / bump.sum()
        made += [even / even.abs().sum(), odd / odd.abs().sum()]
    return torch.stack(made)[:, None]


def moduli(x: Tensor) -> Tensor:
    """Moduli of waves of two sizes and eight angles, pooled, (n, 17, 7, 7), every channel of an image centred and scaled."""
    parts = []
    for images in x.view(-1, 1, SIDE, SIDE).split(2000):
        found = [avg_pool2d(images, 4)]
        for size, frequency, width in ((7, 1.6, 1.5), (13, 0.8, 3.0)):
            y = conv2d(images, waves(size, frequency, width), padding=size // 2)
            found.append(avg_pool2d((y[:, 0::2].square() + y[:, 1::2].square()).sqrt(), 4))
        parts.append(torch.cat(found, 1))
    made = torch.cat(parts)
    made = made - made.mean((2, 3), keepdim=True)
    return made / (made.std((2, 3), keepdim=True) + 0.02)


# -- accuracy --------------------------------------------------------------------------------------------------------


class Classifier(L.LightningModule):
    """A network with SGD and momentum, whose rate falls to zero."""

    def __init__(self, net: nn.Module, lr: float, steps: int) -> None:
        super().__init__()
        self.net, self.lr, self.steps = net, lr, steps

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return cross_entropy(self.net(batch[0]).flatten(0, -2), batch[1].flatten())

    def configure_optimizers(self) -> Any:
        optimizer, schedule = descent(self.net, self.lr, self.steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def descent(net: nn.Module, lr: float, steps: int) -> tuple[Any, Any]:
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 - t / steps)


def by_dpgen(
    net: nn.Module, data: TensorDataset, epsilon: float, *, batch: int, steps: int, lr: float, bound: float
) -> nn.Module:
    module = Classifier(net, lr, steps)
    trainer = L.Trainer(
        max_steps=steps,
        max_epochs=-1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    options = {"epsilon": epsilon, "delta": DELTA, "sampling_rate": batch / len(data), "max_grad_norm": bound}
    made, loader, trainer = dpgen.make_private(module, DataLoader(data, batch_size=batch), trainer, **options)
    trainer.fit(made, loader)
    return net


def by_opacus(
    net: nn.Module, data: TensorDataset, epsilon: float, *, batch: int, steps: int, lr: float, bound: float
) -> nn.Module:
    optimizer, schedule = descent(net, lr, steps)
    loader, epochs = DataLoader(data, batch_size=batch), steps * batch / len(data)
    model, private, draws = PrivacyEngine(accountant="prv").make_private_with_epsilon(
        module=net,
        optimizer=optimizer,
        data_loader=loader,
        target_epsilon=epsilon,
        target_delta=DELTA,
        epochs=epochs,
        max_grad_norm=bound,
    )
    done = 0
    while done < steps:
        for x, y in draws:
            private.zero_grad()
            cross_entropy(model(x), y).backward()
            private.step()
            schedule.step()
            if (done := done + 1) == steps:
                break
    return net


CASES: dict[str, Any] = {
    "mlp": (
        cosines,
        lambda d: nn.Sequential(nn.Linear(d[0], 128), nn.Tanh(), nn.Linear(128, CLASSES)),
        {
            1.0: {"batch": 6000, "steps": 300, "bound": 0.3, "lr": 6.0},
            3.0: {"batch": 6000, "steps": 600, "bound": 0.3, "lr": 6.0},
        },
    ),
    "cnn": (
        moduli,
        lambda d: nn.Sequential(nn.Conv2d(d[0], 16, 3, 2, 1), nn.Tanh(), nn.Flatten(), nn.Linear(256, CLASSES)),
        {
            1.0: {"batch": 4000, "steps": 400, "bound": 0.5, "lr": 2.0},
            3.0: {"batch": 4000, "steps": 600, "bound": 0.5, "lr": 4.0},
        },
    ),
}
WAYS: dict[str, Callable[..., nn.Module]] = {"dpgen": by_dpgen, "opacus": by_opacus}


def accuracy(case: str, epsilon: float, seed: int, records: Any, ways: list[str]) -> dict[str, Any]:
    """Test accuracy and CPU seconds of each way, one after the other on the same data."""
    features, build, options = CASES[case]
    started = time.process_time()
    x, test = features(records.grey / 255), features(records.test_grey / 255)
    result: dict[str, Any] = {"features_s": round(time.process_time() - started, 1)}
    for way in ways:
        torch.manual_seed(seed)
        net, started = build(x.shape[1:]), time.process_time()
        net = WAYS[way](net, TensorDataset(x, records.labels), epsilon, **options[epsilon])
        seconds = time.process_time() - started
        with torch.no_grad():
            right = (net(test).argmax(1) == records.test_labels).double().mean()
        result[way] = {"accuracy": round(float(right), 4), "cpu_s": round(seconds, 1)}
    return result


# -- time of a step --------------------------------------------------------------------------------------------------


class Sequence(nn.Module):
    """Rows of an image through an LSTM, plain or opacus' own."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer, self.out = layer(SIDE, 64, batch_first=True), nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(x)[0][:, -1])


class Block(nn.Module):
    """Two layers of attention over 14 columns, of one head: with the batch first, opacus 1.6 mixes up several."""

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.embed, self.out = nn.Linear(56, 32), nn.Linear(32, CLASSES)
        self.attention = nn.ModuleList([attention(32, 1, batch_first=True) for _ in range(2)])
        self.norms = nn.ModuleList([nn.LayerNorm(32) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for layer, norm in zip(self.attention, self.norms):
            x = norm(x + layer(x, x, x, need_weights=False)[0])
        return self.out(x.mean(1))


def convolutional() -> nn.Module:
    first = [nn.Conv2d(1, 16, 8, 2, 3), nn.Tanh(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1)]
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, CLASSES))


def perceptron(norm: bool = False) -> nn.Module:
    between = [nn.LayerNorm(256)] if norm else []
    return nn.Sequential(nn.Linear(784, 256), *between, nn.Tanh(), nn.Linear(256, CLASSES))


ARCHITECTURES: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp 784-256-10": (perceptron, perceptron, (784,)),
    "mlp with LayerNorm": (partial(perceptron, True), partial(perceptron, True), (784,)),
    "cnn of Papernot et al. 2021": (convolutional, convolutional, (1, SIDE, SIDE)),
    "lstm of rows": (partial(Sequence, nn.LSTM), partial(Sequence, DPLSTM), (SIDE, SIDE)),
    "attention, two layers": (partial(Block, nn.MultiheadAttention), partial(Block, DPMultiheadAttention), (14, 56)),
}
MODES = ("hooks", "ghost", "ew", "functorch")


class OfTheBatch(PerRecord):
    """One loss of the whole batch: without a bound for a loss that mixes records. Layers that are called once, on records."""

    def factors(self, run: Any, *inputs: Any) -> list[Factor]:
        tape, outputs = _Tape(self, len(inputs[0][0])), list[Tensor]()

        def keep(columns: dict[str, slice]) -> Any:
            def hook(layer: Any, args: Any, out: Tensor) -> None:
                tape._calls.append(_Call(layer, columns, args[0].detach(), 0, args[0]._version, None, 0))
                outputs.append(out)

            return hook

        hooks = [layer.register_forward_hook(keep(columns)) for layer, columns in self.layers()]
        with torch.enable_grad():
            slopes = torch.autograd.grad(run(*inputs), outputs)
        for hook in hooks:
            hook.remove()
        return [f for c, g in zip(tape._calls, slopes) for f in tape._of_layer(c.layer, c.columns, c.x, g)]


def step_of_dpgen(
    build: Callable[[], nn.Module], x: Tensor, y: Tensor, kind: type[PerRecord] = PerRecord
) -> Callable[[], None]:
    """One step of `Trainer.fit` after the start of a training: a draw, its sums with noise, the optimizer."""
    module, data = Classifier(build(), 0.1, 10**6), TensorDataset(x, y)
    trainer = L.Trainer(max_steps=10**6, accelerator="cpu", logger=False, enable_checkpointing=False)
    options = {"noise_multiplier": 1.0, "sampling_rate": 1.0}
    _, loader, _ = dpgen.make_private(module, DataLoader(data, batch_size=len(x)), trainer, **options)
    own: Any = trainer.callbacks[-1]  # type: ignore[attr-defined]
    own.bank.per_record.__class__ = kind
    module.trainer, policy = trainer, BoundedClipping(bound=1.0)
    policy.begin(1)
    own.clip_by(policy)
    own.serve(own.accountant.curator)
    own.partition.fit(own.records, None, curator=own.accountant.curator)
    own.partitioned = True
    own.measure(1)
    optimizer = module.configure_optimizers()["optimizer"]

    def step() -> None:
        optimizer.zero_grad()
        own.backward(own.step(own.hide(next(iter(loader)), 0), 0))
        optimizer.step()

    return step


def step_of_opacus(build: Callable[[], nn.Module], x: Tensor, y: Tensor, mode: str) -> Callable[[], None]:
    net = build()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    options: dict[str, Any] = {"criterion": criterion} if mode == "ghost" else {}
    made = PrivacyEngine().make_private(
        module=net,
        optimizer=optimizer,
        data_loader=DataLoader(TensorDataset(x, y), batch_size=len(x)),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=True,
        grad_sample_mode=mode,
        **options,
    )
    model, private = made[:2]
    if mode == "ghost":
        criterion = made[2]

    def step() -> None:
        private.zero_grad()
        made = model(x)
        more = {"shape": made.shape} if mode == "ghost" and made.ndim == 3 else {}
        criterion(made.flatten(0, -2), y.flatten(), **more).backward()
        private.step()

    return step


def in_turns(jobs: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Median CPU seconds of each job, all in turns."""
    times: dict[str, list[float]] = {key: [] for key in jobs}
    for job in jobs.values():
        job()
    for _ in range(repeats):
        for key, job in jobs.items():
            started = time.process_time()
            job()
            times[key].append(time.process_time() - started)
    return {key: median(values) for key, values in times.items()}


def one_at_a_time(batch: int, repeats: int) -> dict[str, Any]:
    """CPU ms of a perceptron's step that takes the losses of single records, and of one with the loss of the batch."""
    result = {}
    for name, (plain, _, shape) in list(ARCHITECTURES.items())[:2]:
        torch.manual_seed(0)
        x, y = torch.randn(batch, *shape), torch.randint(CLASSES, (batch,))
        jobs = {key: step_of_dpgen(plain, x, y, kind) for key, kind in (("records", PerRecord), ("batch", OfTheBatch))}
        seconds = in_turns(jobs, repeats)
        result[name] = {key: round(1e3 * value, 2) for key, value in seconds.items()}
        result[name]["ratio"] = round(seconds["records"] / seconds["batch"], 3)
        print(name, result[name], flush=True)
    return result


def steps(batch: int, repeats: int) -> dict[str, Any]:
    """CPU seconds of a step, all ways in turns; ratios are of medians."""
    result: dict[str, Any] = {}
    for name, (plain, own, shape) in ARCHITECTURES.items():
        torch.manual_seed(0)
        x, y = torch.randn(batch, *shape), torch.randint(CLASSES, (batch,))
        jobs = {"dpgen": step_of_dpgen(plain, x, y)}
        for mode in MODES:
            try:
                job = step_of_opacus(own, x, y, mode)
                job()
                jobs[f"opacus {mode}"] = job
            except Exception as error:
                result.setdefault(name, {})[f"opacus {mode}"] = f"fails: {type(error).__name__}"
        seconds = in_turns(jobs, repeats)
        best = min(value for key, value in seconds.items() if key != "dpgen")
        result[name] = result.get(name, {}) | {key: round(1e3 * value, 2) for key, value in seconds.items()}
        result[name]["dpgen / best of opacus"] = round(seconds["dpgen"] / best, 3)
        print(name, result[name], flush=True)
    return result


# -- words -----------------------------------------------------------------------------------------------------------

RECORDS, LENGTH, VOCABULARY, WIDTH = 32, 32, 50_000, 128
TIED, UNTIED = "dpgen, tied", "dpgen, untied"
GHOST, GHOST_TIED = "opacus ghost, untied", "opacus ghost, tied"


class Words(nn.Module):
    """Scores of the next of many words, by the weights of the embedding if they are tied."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.embed, self.mix = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.out.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.mix(self.embed(x)).tanh())


def step_of_words(way: str) -> Callable[[], None]:
    torch.manual_seed(0)
    words = torch.randint(VOCABULARY, (RECORDS, LENGTH + 1))
    x, y = words[:, :-1].contiguous(), words[:, 1:].contiguous()
    build = partial(Words, way in (TIED, GHOST_TIED))
    return step_of_dpgen(build, x, y) if way in (TIED, UNTIED) else step_of_opacus(build, x, y, "ghost")


def resident(what: str) -> float:
    """MiB that this process holds ("VmRSS"), or has held at most ("VmHWM")."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 2**10


def peak_of_words(way: str) -> float:
    """Most MiB that a new process holds in three steps and before them, beyond what it holds with all that is imported."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    before, step = resident("VmRSS"), step_of_words(way)
    for _ in range(3):
        step()
    return resident("VmHWM") - before


def words(repeats: int) -> dict[str, Any]:
    """CPU ms of a step, all ways in turns, and the peak of each in a process of its own; ratios to opacus."""
    jobs, result = dict[str, Callable[[], None]](), dict[str, Any]()
    for way in (TIED, UNTIED, GHOST, GHOST_TIED):
        try:
            job = step_of_words(way)
            job()
            jobs[way] = job
        except Exception as error:
            result[way] = f"fails: {type(error).__name__}: {error}"
    for way, seconds in in_turns(jobs, repeats).items():
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=quietly) as alone:
            result[way] = {"ms": round(1e3 * seconds, 1), "peak_mib": round(alone.submit(peak_of_words, way).result())}
        print(way, result[way], flush=True)
    for key in ("ms", "peak_mib"):
        result[f"tied / {GHOST}, {key}"] = round(result[TIED][key] / result[GHOST][key], 3)
    shape = {"records": RECORDS, "words": LENGTH, "vocabulary": VOCABULARY, "width": WIDTH}
    return {f"{RECORDS} records of {LENGTH} of {VOCABULARY} words, width {WIDTH}": shape | result}


def quietly() -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_data_root(parser, "mnist/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=list(WAYS))
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--only", choices=("alone", "steps", "words", *CASES))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "beside_opacus.json")
    options = parser.parse_args()
    quietly()
    where = machine("lightning", "opacus")
    with quiet_training():
        if options.only in (None, "alone"):
            store(options.out, "one_at_a_time_ms", one_at_a_time(options.batch, 5 * options.repeats), machine=where)
        if options.only == "alone":
            return
        if options.only in (None, "steps"):
            store(options.out, "steps_ms", steps(options.batch, options.repeats), machine=where)
        if options.only == "steps":
            return
        if options.only in (None, "words"):
            store(options.out, "words", words(options.repeats), words_machine=where)
        if options.only == "words":
            return
        records = load_mnist(data_root=str(options.data_root))
        for case in CASES if options.only is None else [options.only]:
            for epsilon in (1.0, 3.0):
                runs = [accuracy(case, epsilon, seed, records, options.ways) for seed in range(options.seeds)]
                for way in options.ways:
                    made = {"mean": round(mean(run[way]["accuracy"] for run in runs), 4), "seeds": [run[way] for run in runs]}
                    print(case, epsilon, way, made, flush=True)
                    store(options.out, "mnist", {f"{case} eps {epsilon:g} {way}": made}, machine=where)


if __name__ == "__main__":
    main()
