"""Quality of Gaussians of images in colour: `python benchmarks/colour.py --data_root DIR [--epsilon 1 10] [--network full]`.

CIFAR-10 (`DIR/cifar10`): accuracy on the test images of a network of four convolutions that saw synthetic images only, and of
the classifier that the model is itself, with the CPU seconds of fit and sampling. "full" convolves at full resolution; "small"
has a stride of 2 first and takes a tenth of the time, for machines of few cores. Constants of the model were chosen on a
training split. Published without public data, other and larger classifiers, eps 1 / 10: DP-FETA .351 / .433, DPDM .289 / .368,
DP-MERF .272 / .290. `--real` trains the same network on real images; `--picture FILE` draws synthetic images and stops.
`--model MERF DPGAN "DPGM, VAE"` measures networks in place of the Gaussian, with the settings that `comparison.py` has for
MNIST; none was searched on CIFAR-10.
"""

import argparse
import logging
import sys
import tempfile
import time
import warnings
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import torch
from measuring import add_data_root, machine, store
from torch import Tensor, nn

from dpgen import Runtime, data, parse_job
from dpgen.figures import new_figure, save_figure, show_images
from dpgen.privacy.curator import Curator

SAMPLES = 50_000
GAN = (
    "--model=dpgan --centred=true --sampling_rate=0.05 --hidden=256 --critic_steps=1 --generator_steps=4 --fakes=512 "
    "--lr=0.03 --generator_lr=0.004 --clip_bound=0.6 --micro_batch=4096"
)
VAE = "--model=dpgm --component=vae --clusters=labels --lr=0.1 --sampling_rate=0.05"
MODELS = {  # at most epsilon 1, and above
    "DPGM, Gaussian": ("--model=gaussian", "--model=gaussian"),
    "DPGM, VAE": (f"{VAE} --steps=300", f"{VAE} --optimizer=adam --steps=1200"),
    "DPGM, RBM": ("--model=dpgm --component=rbm --clusters=labels --lr=0.1 --sampling_rate=0.05 --hidden=60 --steps=300",) * 2,
    "DPGAN": (
        f"{GAN} --frequencies=60 --diversity=0.03 --steps=300 --average=0.998",
        f"{GAN} --diversity=0.1 --steps=1000 --average=0.99",
    ),
    "MERF": ("--model=merf", "--model=merf"),
}


def network(kind: str, n_classes: int) -> nn.Sequential:
    """Four convolutions, two poolings, one hidden layer; for images of 32 x 32 in three channels."""
    if kind == "full":
        front, widths, side = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1)], (32, 64, 64), 8
    else:
        front = [nn.Conv2d(3, 32, 5, stride=2, padding=2), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1)]
        widths, side = (64, 64, 128), 4
    back = [nn.ReLU(), nn.MaxPool2d(2)]
    for before, after in pairwise(widths):
        back += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
    back += [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(widths[-1] * side**2, 256), nn.ReLU(), nn.Dropout(0.4)]
    return nn.Sequential(*front, *back, nn.Linear(256, n_classes)).to(memory_format=torch.channels_last)


def accuracy(x: Tensor, labels: Tensor, test: data.Images, *, kind: str, epochs: int, seed: int) -> float:
    """Of the network on the test images, after so many passes over x (n, h, w, c), half of them mirrored."""
    torch.manual_seed(seed)
    net = network(kind, test.n_classes)
    steps = epochs * -(-len(x) // 128)
    optimizer = torch.optim.Adam(net.parameters(), weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)

    def batch(images: Tensor) -> Tensor:
        return images.permute(0, 3, 1, 2).float() / 127.5 - 1.0

    for _ in range(epochs):
        for chosen in torch.randperm(len(x)).split(128):
            images = batch(x[chosen])
            images = torch.where(torch.rand(len(images), 1, 1, 1) < 0.5, images, images.flip(3))
            loss = nn.functional.cross_entropy(net(images), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    net.eval()
    with torch.no_grad():
        answers = torch.cat([net(batch(part)).argmax(1) for part in test.test_x.split(1000)])
    return float((answers == test.test_labels).double().mean())


def fitted(images: data.Images, epsilon: float, name: str = "DPGM, Gaussian") -> Any:
    """The released model of a name."""
    arguments = MODELS[name][epsilon > 1.0].split()
    job = parse_job([*arguments, f"--epsilon={epsilon}", "--data=cifar10", "--progress_bar=false"])
    with tempfile.TemporaryDirectory() as directory:
        runtime = Runtime(run_dir=Path(directory), progress_bar=False, checkpoint_every=10**6, accelerator="cpu")
        curator = Curator(job.privacy.open_ledger())
        return job.system.fit(images, plan=job.privacy, config=job.model.options, curator=curator, runtime=runtime)


def measured(images: data.Images, epsilon: float, name: str, given: argparse.Namespace) -> dict[str, Any]:
    """One fit, its samples, and what they teach."""
    start = time.process_time()
    model = fitted(images, epsilon, name)
    between = time.process_time()
    samples = model.samples(given.samples, random_state=given.seed)
    seconds = {"fit": round(between - start, 1), "sample": round(time.process_time() - between, 1)}
    options = {"kind": given.network, "epochs": given.epochs, "seed": given.seed}
    trained = None if given.epochs == 0 else accuracy(samples.x, samples.labels, images, **options)
    found = {"network": trained, "cpu seconds": seconds, "samples": given.samples, **options}
    if hasattr(model, "classify"):
        found["own classifier"] = float((model.classify(images.test_x) == images.test_labels).double().mean())
    return found


def picture(images: data.Images, epsilons: list[float], path: Path) -> None:
    """Synthetic images at each epsilon, one column for each class."""
    figure = new_figure(7.0, 0.7 * len(epsilons) * 2 + 0.5)
    for place, epsilon in enumerate(epsilons, start=1):
        samples = fitted(images, epsilon).samples(400, random_state=0)
        groups = [x[:2].flatten(1) / 255 for x in samples.by_class().values()]
        axes = figure.add_subplot(len(epsilons), 1, place)
        show_images(axes, [torch.stack([group[row] for group in groups]) for row in range(2)], images.x.shape[1:], len(groups))
        axes.set(title=f"synthetic, eps {epsilon:g}", xticks=[], yticks=[])
        axes.set_xticks([(c + 0.5) * 33 for c in range(len(groups))], labels=images.class_names, fontsize=7)
    save_figure(figure, path)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Quality of Gaussians of images in colour.")
    add_data_root(parser, "cifar10/")
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 10.0])
    parser.add_argument("--model", nargs="+", choices=list(MODELS), default=["DPGM, Gaussian"])
    parser.add_argument("--network", choices=["full", "small"], default="full")
    parser.add_argument("--epochs", type=int, default=10, help="passes of the network; 0: no network")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--real", action="store_true", help="train on the real images as well")
    parser.add_argument("--picture", type=Path, help="only draw synthetic images into this file")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "colour.json")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    images = data.load_cifar10(data_root=str(given.data_root))
    if given.picture is not None:
        picture(images, given.epsilon, given.picture)
        return 0
    how = f"{given.network}, {given.epochs} epochs, {given.samples} images, seed {given.seed}"
    for epsilon, name in product(given.epsilon, given.model):
        key = f"eps {epsilon:g}, {how}" + ("" if name == "DPGM, Gaussian" else f", {name}")
        store(given.out, "cifar10", {key: measured(images, epsilon, name, given)}, machine=machine())
    if given.real:
        chosen = torch.randperm(images.n, generator=torch.Generator().manual_seed(given.seed))[: given.samples]
        x, labels = images.x[chosen], images.labels[chosen]
        reached = accuracy(x, labels, images, kind=given.network, epochs=given.epochs, seed=given.seed)
        store(given.out, "cifar10", {f"real images, {how}": {"network": reached}}, machine=machine())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
