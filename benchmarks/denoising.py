"""The diffusion model of `examples/diffusion.py` on MNIST: `python benchmarks/denoising.py --data_root DIR [--picture FILE]`.

The example is run as it is, at each epsilon: CPU seconds, accuracy on real test images of the network of `comparison.py` that
is trained on its samples, and how these look by the features of `comparison.py --fidelity`. Settings of the example were chosen
by hand on trainings without privacy of these data, which no budget covers.
"""

import argparse
import os
import runpy
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from comparison import Eye, of_classes
from measuring import add_data_root, machine, store
from torch import Tensor

from dpgen import metrics
from dpgen.figures import new_figure, save_figure, show_images

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "diffusion.py"


def fitted(root: Path, epsilon: float, keep: Path | None) -> dict[str, Any]:
    """The names that the example leaves; its release is in `keep`."""
    before = Path.cwd()
    with (
        tempfile.TemporaryDirectory() as directory,
        patch.object(sys, "argv", [EXAMPLE.name, str(epsilon), str(root.resolve())]),
    ):
        try:
            os.chdir(keep or directory)
            return runpy.run_path(str(EXAMPLE), run_name="example")
        finally:
            os.chdir(before)


def picture(sheets: dict[str, list[Tensor]], shape: tuple[int, ...], path: Path) -> Path:
    """Rows of images, a class in every column."""
    figure = new_figure(4.2, 0.36 * sum(map(len, sheets.values())) + 0.3)
    grid = figure.add_gridspec(len(sheets), 1, height_ratios=[len(rows) for rows in sheets.values()], hspace=0.06)
    for place, (name, rows) in enumerate(sheets.items()):
        axes = figure.add_subplot(grid[place])
        show_images(axes, rows, shape, 10)
        axes.set(xticks=[], yticks=[])
        axes.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=6)
    return save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_data_root(parser, "mnist/")
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 10.0])
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--keep", type=Path, help="folder for the release, `diffusion_model`, of the last epsilon")
    parser.add_argument("--picture", type=Path, help="draw images of each epsilon into this file")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "denoising.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    sheets: dict[str, list[Tensor]] = {}
    for epsilon in given.epsilon:
        start = time.process_time()
        left = fitted(given.data_root, epsilon, given.keep)
        between = time.process_time()
        records, labels = left["records"], torch.arange(given.samples) % 10
        x = torch.cat([left["module"].sample(part) for part in labels.split(500)]).flatten(1).to(torch.uint8)
        found = {"fit, CPU seconds": between - start, "sample, CPU seconds": time.process_time() - between}
        test, shape = (records.test_x, records.test_labels), records.image_shape
        found["accuracy, bits"] = metrics.train_on_synthetic_accuracy(x, labels, *test, image_shape=shape)
        looks = Eye(records.x.float(), records.labels, shape, None).judged(x.float())
        found |= {name: looks[name] for name in looks} | {"samples": given.samples}
        key = f"mnist, eps {epsilon:g}, {left['steps']} draws of {left['batch']}"
        store(given.out, "runs", {key: found}, machine=machine("lightning", "torchmetrics"))
        print(key, {name: round(value, 4) for name, value in found.items()}, flush=True)
        sheets = sheets or {"real": of_classes(records.test_x, records.test_labels, 2)}
        sheets[f"eps {epsilon:g}"] = of_classes(x, labels, 4)
        if given.picture:
            print(picture(sheets, shape, given.picture))


if __name__ == "__main__":
    main()
