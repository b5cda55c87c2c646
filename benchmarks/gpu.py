"""Ten minutes on a GPU: a private step beside others, noise of both sources, memory, and a training on MNIST.

    python benchmarks/gpu.py [--data_root DIR] [--device cuda] [--rounds 25] [--steps 1000]
    python benchmarks/gpu.py --data_root DIR --protocol [--epochs 50] [--fid_weights FILE]

`--protocol` is a row as DPImageBench makes them (arXiv 2503.14681): 60,000 synthetic images of MNIST and Fashion-MNIST at
epsilon 1 and 10, three residual classifiers trained on them by Adam at 1e-4 with averaged weights, the best epoch of each, and
FID where the weights of Inception v3 are given. The best epoch is chosen on a twelfth of the synthetic images, which costs no
privacy; beside it stands the epoch that is best on the test images, as its first tables have it. The classifiers are smaller
than theirs, and features are those of torchvision's port of Inception.

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

import comparison
import torch
from measuring import machine, store
from step_time import K, N, draws, records, speed
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from dpgen import data, metrics
from dpgen.metrics.fidelity import InceptionFeatures, inception_network
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


# -- the protocol of DPImageBench --------------------------------------------------------------------------------------


class Block(nn.Module):
    """Two convolutions beside a shortcut (He et al. 2016), of several groups (Xie et al. 2017), with dropout (WRN, 2016)."""

    def __init__(self, width: int, wider: int, stride: int, groups: int, dropout: float) -> None:
        super().__init__()
        first = nn.Conv2d(width, wider, 3, stride, 1, bias=False), nn.BatchNorm2d(wider), nn.ReLU(), nn.Dropout(dropout)
        self.body = nn.Sequential(*first, nn.Conv2d(wider, wider, 3, 1, 1, groups=groups, bias=False), nn.BatchNorm2d(wider))
        self.short = nn.Identity() if width == wider and stride == 1 else nn.Conv2d(width, wider, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.short(x))


CLASSIFIERS: dict[str, tuple[tuple[int, int, int], int, int, float]] = {  # widths, blocks of each, groups, dropout
    "resnet": ((16, 32, 64), 3, 1, 0.0),
    "wide resnet": ((64, 128, 256), 2, 1, 0.3),
    "resnext": ((64, 128, 256), 2, 8, 0.3),
}


def classifier(name: str, channels: int, classes: int) -> nn.Module:
    widths, blocks, groups, dropout = CLASSIFIERS[name]
    layers: list[nn.Module] = [nn.Conv2d(channels, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()]
    before = widths[0]
    for i, width in enumerate(widths):
        for j in range(blocks):
            layers.append(Block(before, width, 2 if i and not j else 1, groups, dropout))
            before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


@torch.no_grad()
def right(network: nn.Module, x: Tensor, labels: Tensor, device: str) -> float:
    """Share of the images (n, channels, height, width) in [0, 1] that are told rightly."""
    network.eval()
    found = [network(part.to(device) * 2 - 1).argmax(1).cpu() for part in x.split(1000)]
    return float((torch.cat(found) == labels).double().mean())


def judged(name: str, x: Tensor, labels: Tensor, test: tuple[Tensor, Tensor], epochs: int, device: str) -> dict[str, float]:
    """Test accuracy of the epoch that is best on synthetic images, and of the one that is best on the test images."""
    torch.manual_seed(0)
    network, held = classifier(name, x.shape[1], int(labels.max()) + 1).to(device), len(x) // 12
    averaged = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.999), use_buffers=True)
    adam, found = torch.optim.Adam(network.parameters(), lr=1e-4), list[tuple[float, float]]()
    for _ in range(epochs):
        network.train()
        for rows in (held + torch.randperm(len(x) - held)).split(512):
            loss = nn.functional.cross_entropy(network(x[rows].to(device) * 2 - 1), labels[rows].to(device))
            adam.zero_grad()
            loss.backward()
            adam.step()
            averaged.update_parameters(network)
        found.append((right(averaged, x[:held], labels[:held], device), right(averaged, *test, device)))
    chosen = max(found, key=lambda pair: pair[0])  # the first of equal ones: the test images decide nothing
    return {"chosen on synthetic images": chosen[1], "best on test images": max(test for _, test in found)}


def protocol(root: str, device: str, epochs: int, samples: int, weights: Path | None) -> dict[str, Any]:
    """The row of every data set and epsilon."""
    result: dict[str, Any] = {}
    for dataset in comparison.PUBLISHED:
        private = data.KINDS["records"].loaders[dataset](data_root=root)
        shape = private.image_shape
        for epsilon in (1.0, 10.0):
            model = comparison.fitted(private, "DPGM, Gaussian", dataset, epsilon, 0)
            drawn = model.samples(samples, random_state=0)
            x, test = (grey[:samples].float().view(-1, 1, *shape) / 255 for grey in (drawn.grey, private.test_grey))
            row: dict[str, Any] = {"epsilon": model.statement.epsilon}
            for name in CLASSIFIERS:
                row[name] = judged(name, x, drawn.labels, (test, private.test_labels[:samples]), epochs, device)
            for key in row[name]:
                row[f"mean, {key}"] = sum(row[kind][key] for kind in CLASSIFIERS) / len(CLASSIFIERS)
            if weights is not None:
                features = InceptionFeatures(inception_network(weights), image_shape=shape, device=device)
                real = private.grey[:samples] / 255
                row["FID"] = metrics.frechet_distance(features(real), features(x[: len(real)].flatten(1)))
            result[f"{dataset}, eps {epsilon:g}"] = row
            print(dataset, epsilon, row, flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_root")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--protocol", action="store_true", help="only a row of DPImageBench's tables; needs --data_root")
    parser.add_argument("--epochs", type=int, default=50, help="of its classifiers")
    parser.add_argument("--samples", type=int, default=60_000, help="that these learn from")
    parser.add_argument("--fid_weights", type=Path, help="file of torchvision's inception_v3")
    options = parser.parse_args()
    device = options.device
    if options.protocol:
        if options.data_root is None:
            parser.error("data_root is None; it must be given with protocol: the directory of mnist/ and fashion_mnist/")
        row = protocol(options.data_root, device, options.epochs, options.samples, options.fid_weights)
        if device == "cuda":
            store(RESULTS, "protocol", row, machine=machine())
        return
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
