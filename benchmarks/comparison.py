"""Models of labelled images at equal budgets, and published figures: `python benchmarks/comparison.py --data_root DIR`.

Accuracy on real test images of a convolutional network trained on synthetic ones, and relative errors of conjunctions of
2 and 3 frequent pixels, MNIST and Fashion-MNIST at eps 1 and 10 (delta 1e-5, add/remove) and without any noise: the ceiling
of a model, which no release or statement accepts. Settings were chosen by hand on
these data, which no budget covers. Published figures are for grey images and classifiers of their own: they say where the
field stands, not who wins. One result is written after each run; `--only` takes parts of the names of runs, so that two
processes can share the work. `--picture docs/models.png --keep RUNS` draws real MNIST images, two rows of each model at eps 1
and 10, a digit in every column, and the Gaussian of CIFAR-10 below; models are kept in RUNS, and not fitted again.

`--fidelity --keep RUNS` measures how the same models look: Fréchet distance and inception score by torchmetrics, precision and
recall (Kynkäänniemi et al. 2019, k = 3), of 10,000 synthetic images beside as many training images. Features need no download:
they are the last hidden layer of the small convolutional classifier of `dpgen.metrics`, trained on the training images, of bits
(all models) and of grey values (models that have them), of colours for CIFAR-10. `--fid_weights FILE` takes Inception v3
instead. Distances are comparable by the same features alone: published ones are not on the scale of these.
"""

import argparse
import logging
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import colour
import torch
from measuring import NoiselessCurator, add_data_root, machine, store, unstated
from torch import Tensor, nn
from torchmetrics.image.fid import FrechetInceptionDistance
from torchmetrics.image.inception import InceptionScore

from dpgen import Runtime, data, load, metrics, parse_job
from dpgen.figures import new_figure, save_figure, show_images
from dpgen.privacy.curator import Curator
from dpgen.samples import image_rows

VAE = "--model=dpgm --component=vae --clusters=labels --lr=0.1 --sampling_rate=0.05"
RBM = "--model=dpgm --component=rbm --clusters=labels --lr=0.1 --sampling_rate=0.05"
CEILING = float("inf")
"""Epsilon of the same settings as at the largest one, without any noise: what the model costs, beside what the noise costs."""
GAN = (
    "--model=dpgan --centred=true --sampling_rate=0.05 --hidden=256 "
    "--critic_steps=1 --generator_steps=4 --fakes=512 --lr=0.03 --generator_lr=0.004 --clip_bound=0.6 "
    "--micro_batch=4096"
)
MODELS: dict[str, dict[float, str]] = {
    "marginals": dict.fromkeys((1.0, 10.0), "--model=marginals"),
    "DPGAN": {
        1.0: f"{GAN} --frequencies=60 --diversity=0.03 --steps=300 --average=0.998",
        10.0: f"{GAN} --diversity=0.1 --steps=1000 --average=0.99",
    },
    "DPGM, RBM": {1.0: f"{RBM} --hidden=60 --steps=300", 10.0: f"{RBM} --frequencies=200 --steps=600"},
    "DPGM, VAE": {1.0: f"{VAE} --steps=300", 10.0: f"{VAE} --optimizer=adam --frequencies=200 --steps=1200"},
    "DPGM, Gaussian": dict.fromkeys((1.0, 10.0), "--model=gaussian"),
    "MERF": dict.fromkeys((1.0, 10.0), "--model=merf"),
}
TUNED = {("DPGM, Gaussian", "fashion_mnist", 1.0): " --warp=0.2 --radius=0.85 --cut=0.8"}
TUNED |= {("DPGM, Gaussian", "fashion_mnist", 10.0): " --warp=0.2"}
PUBLISHED: dict[str, dict[str, tuple[float, float]]] = {
    # eps 1, eps 10: accuracy as published
    "mnist": {
        "DP-MERF (Harder et al. 2021)": (0.803, 0.813),
        "DP-Kernel (Jiang et al. 2023)": (0.940, 0.936),
        "DP-GAN (best published tuning)": (0.924, 0.927),
        "DPDM (Dockhorn et al. 2023)": (0.953, 0.981),
        "DPDM (as measured in DPImageBench)": (0.892, 0.977),
        "DP-FETA (Li et al. 2025)": (0.956, 0.981),
    },
    "fashion_mnist": {
        "DP-MERF (Harder et al. 2021)": (0.622, 0.622),
        "DP-Kernel (Jiang et al. 2023)": (0.684, 0.700),
        "DP-GAN (best published tuning)": (0.718, 0.703),
        "DPDM (Dockhorn et al. 2023)": (0.794, 0.862),
        "DPDM (as measured in DPImageBench)": (0.764, 0.856),
        "DP-FETA (Li et al. 2025)": (0.817, 0.873),
    },
}
FIDELITY = ("Fréchet distance", "inception score", "precision", "recall")
PUBLISHED_FIDELITY: dict[str, dict[str, tuple[float, float, float, float]]] = {
    # README of DPImageBench as of 2026-01, eps 10 alone, features of Inception v3
    "mnist": {
        "DP-MERF": (106.3, 2.64, 0.03, 0.03),
        "DP-Kernel": (38.9, 2.19, 0.24, 0.02),
        "DP-GAN": (30.3, 2.06, 0.19, 0.22),
        "DPDM": (4.4, 2.07, 0.63, 0.73),
        "DP-FETA": (3.4, 2.09, 0.66, 0.77),
    },
    "fashion_mnist": {
        "DP-MERF": (106.4, 2.86, 0.08, 0.01),
        "DP-Kernel": (74.2, 3.45, 0.23, 0.01),
        "DP-GAN": (76.9, 3.60, 0.17, 0.02),
        "DPDM": (17.1, 3.92, 0.54, 0.38),
        "DP-FETA": (13.2, 3.93, 0.60, 0.43),
    },
    "cifar10": {
        "DP-MERF": (214.1, 3.06, 0.25, 0.00),
        "DP-Kernel": (161.4, 3.69, 0.18, 0.00),
        "DP-GAN": (138.7, 2.65, 0.67, 0.01),
        "DPDM": (110.1, 3.12, 0.59, 0.04),
        "DP-FETA": (95.3, 3.52, 0.60, 0.07),
    },
}


def fitted(records: Any, name: str, dataset: str, epsilon: float, seed: int) -> Any:
    """The released model of a name."""
    budget = min(epsilon, max(MODELS[name]))
    arguments = MODELS[name][budget] + TUNED.get((name, dataset, budget), "")
    job = parse_job([*arguments.split(), f"--epsilon={budget}", f"--data={dataset}", "--progress_bar=false"])
    with tempfile.TemporaryDirectory() as directory:
        runtime = Runtime(run_dir=Path(directory), seed=seed, progress_bar=False, checkpoint_every=10**6, accelerator="cpu")
        ceiling = budget < epsilon
        curator = NoiselessCurator() if ceiling else Curator(job.privacy.open_ledger())
        with unstated() if ceiling else nullcontext():
            return job.system.fit(records, plan=job.privacy, config=job.model.options, curator=curator, runtime=runtime)


def one_run(records: Any, name: str, dataset: str, epsilon: float, seed: int, drawn: int) -> dict[str, float]:
    """Fit, sample, score."""
    start = time.process_time()
    model = fitted(records, name, dataset, epsilon, seed)
    seconds = time.process_time() - start
    samples = model.samples(drawn, random_state=seed)

    def accuracy(x: Any, test_x: Any) -> float:
        shape = records.image_shape
        return metrics.train_on_synthetic_accuracy(x, samples.labels, test_x, records.test_labels, image_shape=shape, seed=seed)

    result = {
        "epsilon": model.statement.epsilon,
        "fit, CPU seconds": seconds,
        "accuracy, bits": accuracy(samples.x, records.test_x),
    }
    if getattr(samples, "grey", None) is not None:
        result["accuracy, grey"] = accuracy(samples.grey / 255, records.test_grey / 255)
    errors = metrics.query_errors(records.test_x, samples.x, seed=seed)
    return result | {key: errors[key] for key in ("all_2", "all_3")}


# -- how images look ---------------------------------------------------------------------------------------------------

_COMPARED, _NEIGHBOURED = 10_000, 5_000  # images; those whose neighbours are looked for


class _Given(nn.Identity):
    """Features that were computed before, as a network of torchmetrics."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.num_features = d


class Eye:
    """Features of real images in [0, 1], of which synthetic ones are judged."""

    def __init__(self, x: Tensor, labels: Tensor, shape: tuple[int, ...], weights: Path | None) -> None:
        if weights is None:
            self.network: Any = metrics.LeNetFeatures(x, labels, image_shape=shape)
        else:
            self.network = metrics.InceptionFeatures(metrics.inception_network(weights), image_shape=shape)
        self.real = self.network(x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:_COMPARED]])

    def judged(self, x: Tensor) -> dict[str, float]:
        """Figures of `FIDELITY` of images (n, pixels) in [0, 1] beside the real ones."""
        found = self.network(x[:_COMPARED])
        distance = FrechetInceptionDistance(feature=_Given(found.shape[1]))
        distance.update(self.real, real=True)
        distance.update(found, real=False)
        score = InceptionScore(feature=_Given(found.shape[1]), splits=1)
        score.update(self.network.logits(found))
        near = metrics.fidelity(self.real[:_NEIGHBOURED], found[:_NEIGHBOURED], k=3)
        return dict(zip(FIDELITY, (float(distance.compute()), float(score.compute()[0]), *near)))


def fidelity(options: argparse.Namespace) -> None:
    """Figures of every model that `--only` names, beside those of test images, a block of the results."""
    facts = {"fidelity_machine": machine("lightning", "opacus", "torchmetrics"), "published_fidelity": PUBLISHED_FIDELITY}

    def add(key: str, found: dict[str, dict[str, float]]) -> None:
        store(options.out, "fidelity", {key: found}, **facts)
        print(key, {view: {k: round(v, 3) for k, v in of.items()} for view, of in found.items()}, flush=True)

    def named(key: str) -> bool:
        return any(part in key for part in options.only)

    for dataset in PUBLISHED:
        keys = {f"{dataset}, eps {epsilon:g}, {name}": (name, epsilon) for name in MODELS for epsilon in MODELS[name]}
        if not any(map(named, keys)):
            continue
        records = data.KINDS["records"].loaders[dataset](data_root=options.data_root)
        real = {"bits": (records.x.float(), records.test_x.float()), "grey": (records.grey / 255, records.test_grey / 255)}
        eyes = {view: Eye(x, records.labels, records.image_shape, options.fid_weights) for view, (x, _) in real.items()}
        add(f"{dataset}, real test images", {view: eyes[view].judged(test) for view, (_, test) in real.items()})
        for key, (name, epsilon) in keys.items():
            if named(key):
                where = options.keep / key.replace(", ", "-").replace(" ", "-")
                model = kept(where, partial(fitted, records, name, dataset, epsilon, 0))
                drawn = model.samples(_COMPARED, random_state=0)
                grey = getattr(drawn, "grey", None)
                views = {"bits": drawn.x.float()} | ({} if grey is None else {"grey": grey / 255})
                add(key, {view: eyes[view].judged(x) for view, x in views.items()})
    coloured = [(epsilon, name) for epsilon in (1.0, 10.0) for name in colour.MODELS]
    if any(named(f"cifar10, eps {epsilon:g}, {name}") for epsilon, name in coloured):
        images = data.load_cifar10(data_root=str(options.data_root))
        shape = (images.x.shape[3], *images.x.shape[1:3])
        eye = Eye(image_rows(images.x) / 255, images.labels, shape, options.fid_weights)
        add("cifar10, real test images", {"colour": eye.judged(image_rows(images.test_x) / 255)})
        for epsilon, name in coloured:
            key = f"cifar10, eps {epsilon:g}, {name}"
            if named(key):
                gaussian = name == "DPGM, Gaussian"
                where = options.keep / (f"colour-{epsilon:g}" if gaussian else key.replace(", ", "-").replace(" ", "-"))
                model = kept(where, partial(colour.fitted, images, epsilon, name))
                add(key, {"colour": eye.judged(image_rows(model.samples(_COMPARED, random_state=0).x) / 255)})


# -- a picture ---------------------------------------------------------------------------------------------------------


def kept(path: Path, fit: Callable[[], Any]) -> Any:
    """The released model in a directory, or the one that is fitted now and saved there."""
    if not path.exists():
        fit().save(path)
    return load(path)


def of_classes(x: Tensor, labels: Tensor, n: int) -> list[Tensor]:
    """Rows of images in [0, 1], one image of each of ten classes in every row."""
    return [torch.stack([x[labels == c][row].float() for c in range(10)]) for row in range(n)]


def picture(root: Path, keep: Path, path: Path) -> None:
    """Real images and those of every model, a sheet each."""
    records, ink = data.KINDS["records"].loaders["mnist"](data_root=root), (28, 28)
    sheets: list[tuple[str, list[Tensor], tuple[int, ...]]] = [
        ("real", of_classes(records.test_grey / 255, records.test_labels, 2), ink)
    ]
    for name, epsilons in MODELS.items():
        for epsilon in epsilons:
            where = keep / f"{name}-{epsilon:g}".replace(", ", "-")
            model = kept(where, partial(fitted, records, name, "mnist", epsilon, 0))
            drawn = model.samples(600, random_state=0)
            x = drawn.x if getattr(drawn, "grey", None) is None else drawn.grey / 255
            sheets.append((f"{name.removeprefix('DPGM, ')}\neps {epsilon:g}", of_classes(x, drawn.labels, 2), ink))
    images = data.load_cifar10(data_root=str(root))
    shape = tuple(images.x.shape[1:])
    sheets.append(("real", of_classes(images.test_x.flatten(1) / 255, images.test_labels, 1), shape))
    for epsilon in (1.0, 10.0):
        drawn = kept(keep / f"colour-{epsilon:g}", partial(colour.fitted, images, epsilon)).samples(600, random_state=0)
        sheets.append((f"Gaussian\neps {epsilon:g}", of_classes(drawn.x.flatten(1) / 255, drawn.labels, 1), shape))
    heights = [len(rows) for _, rows, _ in sheets]
    figure = new_figure(4.2, 0.36 * sum(heights) + 0.3)
    grid = figure.add_gridspec(len(sheets), 1, height_ratios=heights, hspace=0.06)
    for place, (name, rows, size) in enumerate(sheets):
        axes = figure.add_subplot(grid[place])
        show_images(axes, rows, size, 10)
        axes.set(xticks=[], yticks=[])
        axes.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=6)
    figure.axes[0].set_title("Real and synthetic images, a class in every column", fontsize=7)
    save_figure(figure, path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    add_data_root(parser, "mnist/ and fashion_mnist/, for the picture cifar10/")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the names of runs, such as 'fashion' or 'DPGAN'")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--samples", type=int, default=60_000, help="synthetic images that the classifier learns from")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "comparison.json")
    parser.add_argument("--fidelity", action="store_true", help="only measure how images look")
    parser.add_argument("--fid_weights", type=Path, help="file of torchvision's inception_v3, for --fidelity")
    parser.add_argument("--picture", type=Path, help="only draw real and synthetic images into this file")
    parser.add_argument("--keep", type=Path, default=Path("runs"), help="fitted models of --picture and --fidelity")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    options.keep.mkdir(parents=True, exist_ok=True)
    if options.fidelity:
        fidelity(options)
        return 0
    if options.picture:
        picture(options.data_root, options.keep, options.picture)
        return 0
    for dataset in PUBLISHED:
        records = data.KINDS["records"].loaders[dataset](data_root=options.data_root)
        for name in MODELS:
            for epsilon in (*MODELS[name], CEILING):
                key = f"{dataset}, " + ("no noise" if epsilon == CEILING else f"eps {epsilon:g}") + f", {name}"
                if not any(part in key for part in options.only):
                    continue
                runs = [one_run(records, name, dataset, epsilon, seed, options.samples) for seed in range(options.seeds)]
                entry = {name: [run[name] for run in runs] for name in runs[0]} | {"samples": options.samples}
                if epsilon == CEILING:
                    del entry["epsilon"]  # there is none
                store(options.out, "runs", {key: entry}, machine=machine("lightning", "opacus"), published=PUBLISHED)
                print(key, {k: round(statistics.mean(run[k] for run in runs), 4) for k in runs[0]}, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
