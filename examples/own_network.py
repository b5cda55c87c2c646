"""A network of one's own: any LightningModule, trained with a guarantee by `make_private`."""

from pathlib import Path
from tempfile import mkdtemp

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import dpgen


class Classifier(L.LightningModule):
    """Written as ever: `training_step` returns a mean loss of the batch."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.save_hyperparameters()  # with which a release builds the network again
        self.layers = nn.Sequential(nn.Linear(64, hidden), nn.LayerNorm(hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        x, y = batch
        return cross_entropy(self(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0, momentum=0.9)


torch.manual_seed(0)
x, y = (torch.as_tensor(values) for values in load_digits(return_X_y=True))
x = x.float() / 16
private, test = TensorDataset(x[:1400], y[:1400]), (x[1400:], y[1400:])

module = Classifier()
loader = DataLoader(private, batch_size=200, shuffle=True)
plain = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}

# The whole plan is priced before a record is read. BatchNorm, sums over a batch and the like are refused here, for nothing.
with dpgen.quiet_training():  # without Lightning's hints
    trainer = L.Trainer(max_epochs=8, accelerator="cpu", **plain)
    module, loader, trainer = dpgen.make_private(module, loader, trainer, epsilon=3.0, delta=1e-5)
    trainer.fit(module, loader)

# Weights with their statement, which may be shared.
folder = Path(mkdtemp()) / "model"
dpgen.release(module, folder)
model = dpgen.load(folder, networks=[Classifier])
with torch.no_grad():
    accuracy = (model.module()(test[0]).argmax(1) == test[1]).float().mean().item()
print(model)
print(f"accuracy on records that were not trained on: {accuracy:.2f} at epsilon {model.epsilon:.2f}")
