"""Networks whose weights 0.5.0 released: they stay as they are."""

import lightning as L
import torch
from torch import Tensor, nn


class SavedNetwork(nn.Module):
    """An encoder and a decoder with a weight that stays and a constant."""

    def __init__(self, d: int, hidden: int = 4, latent: int = 2) -> None:
        super().__init__()
        self.latent = latent
        self.encoder = nn.Sequential(nn.Linear(d, hidden), nn.Tanh(), nn.Linear(hidden, latent))
        self.decoder = nn.Linear(latent, d)
        self.frozen = nn.Parameter(torch.randn(latent), requires_grad=False)
        self.register_buffer("scale", torch.rand(1) + 1.0)

    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        return (self.decoder(self.encoder(x) + self.frozen + z) - x).square().sum(1)

    def sample(self, z: Tensor) -> Tensor:
        return (self.decoder(z) * self.scale).sigmoid()


class SavedClassifier(nn.Module):
    """Scores of labels, without a method that samples."""

    def __init__(self, d: int, categories: int, hidden: int = 4) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(d, hidden), nn.Tanh(), nn.Linear(hidden, categories))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self(x), y, reduction="none")


class SavedGenerator(nn.Module):
    """A generator for `dpgan`."""

    latent = 2

    def __init__(self, d: int) -> None:
        super().__init__()
        self.layers = nn.Linear(self.latent, d)

    def sample(self, z: Tensor) -> Tensor:
        return self.layers(z).sigmoid()


class SavedModule(L.LightningModule):
    """A module of somebody else's, for `make_private`."""

    def __init__(self, d: int = 3, hidden: int = 4) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(nn.Linear(d, hidden), nn.Tanh(), nn.Linear(hidden, d))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        (x,) = batch
        return (self(x) - x).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)
