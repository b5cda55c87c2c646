"""Every model of images beside real images, eps 1 and 10: `python benchmarks/models_picture.py --data_root DIR --keep RUNS`.

Draws docs/models.png: real MNIST images, then two rows of each model, one for each epsilon, a digit in every column, and the
Gaussian of CIFAR-10 below. The models are those of `comparison.py`, with its settings. A model is saved in RUNS when it is
fitted, and is not fitted again; all of them take about ten CPU minutes. `--only` takes parts of names of models.
"""

import argparse
import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import colour
import comparison
import torch
from measuring import add_data_root
from torch import Tensor

from dpgen import data, load
from dpgen.figures import new_figure, save_figure, show_images

EPSILONS = (1.0, 10.0)
MODELS = ("marginals", "DPGM, Gaussian", "DPGM, RBM", "DPGM, VAE", "DPGAN")


def kept(path: Path, fit: Callable[[], Any]) -> Any:
    """The released model in a directory, or the one that is fitted now and saved there."""
    if not path.exists():
        fit().save(path)
    return load(path)


def of_classes(x: Tensor, labels: Tensor, n: int) -> list[Tensor]:
    """Rows of images in [0, 1], one image of each of ten classes in every row."""
    return [torch.stack([x[labels == c][row].float() for c in range(10)]) for row in range(n)]


def drawn(model: Any) -> list[Tensor]:
    """Two rows of samples, grey where the model knows grey values."""
    samples = model.samples(600, random_state=0)
    return of_classes(samples.grey / 255 if hasattr(samples, "grey") else samples.x, samples.labels, 2)


def sheets(given: argparse.Namespace) -> dict[str, tuple[list[Tensor], tuple[int, ...]]]:
    """Rows of images (10, d) and their shape, by name."""
    records = data.LOADERS["records"]["mnist"](data_root=given.data_root)
    ink = (28, 28)
    found = {"real": (of_classes(records.test_grey / 255, records.test_labels, 2), ink)}
    for name in MODELS:
        for epsilon in EPSILONS if any(part in name for part in given.only) else ():
            path = given.keep / f"{name}-{epsilon:g}".replace(", ", "-")
            model = kept(path, lambda n=name, e=epsilon: comparison.fitted(records, n, "mnist", e, 0))  # type: ignore[misc]
            found[f"{name.removeprefix('DPGM, ')}\neps {epsilon:g}"] = (drawn(model), ink)
            print(name, epsilon, flush=True)
    images = data.load_cifar10(data_root=str(given.data_root))
    shape = tuple(images.x.shape[1:])
    found["real "] = (of_classes(images.test_x.flatten(1) / 255, images.test_labels, 1), shape)
    for epsilon in EPSILONS:
        model = kept(given.keep / f"colour-{epsilon:g}", lambda e=epsilon: colour.fitted(images, e))  # type: ignore[misc]
        samples = model.samples(600, random_state=0)
        found[f"Gaussian\neps {epsilon:g} "] = (of_classes(samples.x.flatten(1) / 255, samples.labels, 1), shape)
    return found


def picture(parts: dict[str, tuple[list[Tensor], tuple[int, ...]]], path: Path) -> None:
    """Sheets below one another, their names beside them."""
    heights = [len(rows) for rows, _ in parts.values()]
    figure = new_figure(4.2, 0.36 * sum(heights) + 0.3)
    grid = figure.add_gridspec(len(parts), 1, height_ratios=heights, hspace=0.06)
    for place, (name, (rows, shape)) in enumerate(parts.items()):
        axes = figure.add_subplot(grid[place])
        show_images(axes, rows, shape, 10)
        axes.set(xticks=[], yticks=[])
        axes.set_ylabel(name.strip(), rotation=0, ha="right", va="center", fontsize=6)
    figure.axes[0].set_title("Real and synthetic images, a class in every column", fontsize=7)
    save_figure(figure, path)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_root(parser, "mnist/ and cifar10/")
    parser.add_argument("--keep", type=Path, required=True, help="directory of the fitted models")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the names of models")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "docs" / "models.png")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    given.keep.mkdir(parents=True, exist_ok=True)
    picture(sheets(given), given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
