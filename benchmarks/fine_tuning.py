"""Accuracy of fine-tuned networks at several epsilons: `python benchmarks/fine_tuning.py --picture docs/fine_tuning.png`.

A body is trained on the digits 0 to 4 of scikit-learn, which are public here, then classes of 5 to 9 are learnt privately.
The learning rate, epochs and batch size of private trainings are the same everywhere, and were not searched.
"""

import argparse
from functools import cache
from pathlib import Path
from statistics import mean, stdev

import lightning as L
import torch
from measuring import machine, store
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import dpgen
from dpgen.figures import new_figure, save_figure

RESULTS = Path(__file__).parent / "results" / "fine_tuning.json"
EPSILONS = (0.3, 1.0, 3.0, 10.0)
WAYS = ("head", "adapter", "all layers", "from scratch")
EPOCHS, BATCH, PRIVATE, RANK = 8, 140, 700, 4


class Adapted(nn.Module):
    """A frozen map with one of low rank beside it, which begins at zero (LoRA, Hu et al. 2022)."""

    def __init__(self, fixed: nn.Linear) -> None:
        super().__init__()
        self.fixed = fixed.requires_grad_(False)
        self.down, self.up = nn.Linear(fixed.in_features, RANK, bias=False), nn.Linear(RANK, fixed.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.fixed(x) + self.up(self.down(x))


class Digits(L.LightningModule):
    """Convolutions with BatchNorm, a hidden layer and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.private = False
        one = (nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU())
        two = (nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten())
        self.body, self.hidden, self.head = nn.Sequential(*one, *two), nn.Linear(512, 64), nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.hidden(self.body(x))))

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        trained = [value for value in self.parameters() if value.requires_grad]
        return torch.optim.SGD(trained, lr=0.1, momentum=0.9) if self.private else torch.optim.Adam(trained, lr=1e-3)


def trainer(epochs: int = EPOCHS) -> L.Trainer:
    silent = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    return L.Trainer(max_epochs=epochs, accelerator="cpu", **silent)


def parts() -> tuple[TensorDataset, TensorDataset, tuple[Tensor, Tensor]]:
    """Public records, private ones, and those that are held out."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.as_tensor(images).float().reshape(-1, 1, 8, 8) / 16, torch.as_tensor(labels)
    public, x, y = TensorDataset(x[y < 5], y[y < 5]), x[y >= 5], y[y >= 5] - 5
    return public, TensorDataset(x[:PRIVATE], y[:PRIVATE]), (x[PRIVATE:], y[PRIVATE:])


@cache
def pretrained(seed: int) -> Digits:
    """Trained on public data."""
    torch.manual_seed(seed)
    module = Digits()
    trainer(20).fit(module, DataLoader(parts()[0], batch_size=50, shuffle=True))
    return module


def prepared(way: str, seed: int) -> Digits:
    """A module whose parameters that need a gradient are those of a way."""
    module = Digits()
    if way != "from scratch":
        module.load_state_dict(pretrained(seed).state_dict())
        module.head = nn.Linear(64, 5)
    module.eval()  # a BatchNorm keeps its public statistics
    if way in ("head", "adapter"):
        module.requires_grad_(False)
        module.head.requires_grad_(True)
    if way == "adapter":
        module.hidden = Adapted(module.hidden)  # type: ignore[assignment]
    return module


def accuracy(way: str, epsilon: float, seed: int) -> float:
    """On records that are held out; an epsilon of infinity trains without privacy."""
    _, private, held_out = parts()
    pretrained(seed)
    torch.manual_seed(seed)
    module, loader = prepared(way, seed), DataLoader(private, batch_size=BATCH, shuffle=True)
    if epsilon == float("inf"):
        trainer(20).fit(module, loader)
    else:
        module.private = True
        rate = BATCH / PRIVATE  # the number of private records is public here
        own, draws, runner = dpgen.make_private(module, loader, trainer(), epsilon=epsilon, sampling_rate=rate)
        runner.fit(own, draws)
    with torch.no_grad():
        return float((module.eval()(held_out[0]).argmax(1) == held_out[1]).float().mean())


def picture(figures: dict[str, dict[str, list[float]]], path: Path) -> Path:
    """Mean accuracies with the standard deviation over seeds."""
    figure = new_figure(5.5, 3.4)
    axes = figure.add_subplot()
    for i, (way, values) in enumerate(figures.items()):
        scored = [values[str(e)] for e in EPSILONS]
        axes.errorbar(
            EPSILONS, [*map(mean, scored)], yerr=[*map(stdev, scored)], color=f"C{i}", marker="o", capsize=2, label=way
        )
        axes.axhline(mean(values["inf"]), color=f"C{i}", linewidth=0.7, linestyle=":")
    axes.set(xscale="log", xticks=EPSILONS, xticklabels=[f"{e:g}" for e in EPSILONS], xlabel="epsilon, delta 1e-5")
    axes.set(ylabel="accuracy on held-out digits", title=f"Classes of {PRIVATE} private digits (dotted: without privacy)")
    axes.title.set_fontsize(9)
    axes.legend(frameon=False, fontsize=8)
    return save_figure(figure, path)


def main() -> None:
    """Measure, write, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    figures: dict[str, dict[str, list[float]]] = {}
    with dpgen.quiet_training():
        for way in WAYS:
            figures[way] = {str(e): [accuracy(way, e, seed) for seed in range(given.seeds)] for e in (*EPSILONS, float("inf"))}
            store(RESULTS, "accuracy", {way: figures[way]}, machine=machine("lightning"))
            print(way, {e: f"{mean(found):.3f} +- {stdev(found):.3f}" for e, found in figures[way].items()}, flush=True)
    if given.picture:
        print(picture(figures, given.picture))


if __name__ == "__main__":
    main()
