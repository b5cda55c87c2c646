"""Fine-tuning: a network learns features on public data, then its last layer is trained on private data."""

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import dpgen


class Digits(L.LightningModule):
    """A body that makes features of an image, and a head that makes classes of them."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(32 * 4 * 4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        return cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], lr=0.3, momentum=0.9)


def trainer(epochs: int) -> L.Trainer:
    plain = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    return L.Trainer(max_epochs=epochs, accelerator="cpu", **plain)


torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
x, y = torch.as_tensor(images).float().reshape(-1, 1, 8, 8) / 16, torch.as_tensor(labels)
public = TensorDataset(x[y < 5], y[y < 5])  # the digits 0 to 4 are public here
x, y = x[y >= 5], y[y >= 5] - 5  # 5 to 9 are private
private, held_out = TensorDataset(x[:700], y[:700]), (x[700:], y[700:])


def accuracy(pretrained: bool, epsilon: float) -> float:  # on held-out records
    module = Digits()
    if pretrained:  # on public data, as ever; a checkpoint that somebody published does as well
        trainer(5).fit(module, DataLoader(public, batch_size=50, shuffle=True))
        module.body.requires_grad_(False)  # frozen: no noise is spent on it
        module.head.reset_parameters()
    loader = DataLoader(private, batch_size=140)
    own, loader, runner = dpgen.make_private(module, loader, trainer(8), epsilon=epsilon, delta=1e-5)
    runner.fit(own, loader)
    with torch.no_grad():
        return (own(held_out[0]).argmax(1) == held_out[1]).float().mean().item()


with dpgen.quiet_training():  # without Lightning's hints
    print(f"accuracy at epsilon 1, body from public data and frozen: {accuracy(True, 1.0):.2f}")
    print(f"accuracy at epsilon 1, all layers from scratch: {accuracy(False, 1.0):.2f}")
