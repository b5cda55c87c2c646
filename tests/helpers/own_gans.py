"""Generators and critics as people bring them: a pair that works, and many with a single fault."""

import torch
from torch import Tensor, nn


class Maker(nn.Module):
    """A generator with a norm over the batch, dropout, a weight that stays and one that is not used."""

    def __init__(self, d: int, categories: int = 0, hidden: int = 4, latent: int = 2) -> None:
        super().__init__()
        self.latent = latent
        middle = nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.1)
        self.layers = nn.Sequential(nn.Linear(latent + categories, hidden), *middle, nn.Linear(hidden, d))
        self.frozen = nn.Parameter(torch.randn(d), requires_grad=False)
        self.unused = nn.Parameter(torch.zeros(1))

    def sample(self, z: Tensor) -> Tensor:
        return (self.layers(z) + self.frozen).sigmoid()


class Judge(nn.Module):
    def __init__(self, d: int, categories: int = 0, hidden: int = 4) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(d + categories, hidden), nn.LayerNorm(hidden), nn.LeakyReLU(0.2))
        self.last = nn.Linear(hidden, 1)

    def score(self, x: Tensor) -> Tensor:
        return self.last(self.layers(x))[:, 0]


class Plain(nn.Module):
    """Knows no labels."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.latent, self.layer = 3, nn.Linear(3, d)

    def sample(self, z: Tensor) -> Tensor:
        return self.layer(z)


class Wide(Maker):
    def sample(self, z: Tensor) -> Tensor:
        return torch.cat([super().sample(z)] * 2, 1)


class Outside(Maker):
    def sample(self, z: Tensor) -> Tensor:
        return super().sample(z) * 3 + 1.0


class Untaught(Maker):
    @torch.no_grad()
    def sample(self, z: Tensor) -> Tensor:
        return super().sample(z)


class Batched(Judge):
    def __init__(self, d: int, categories: int = 0) -> None:
        super().__init__(d, categories)
        self.layers[1] = nn.BatchNorm1d(4)


class Centred(Judge):
    def score(self, x: Tensor) -> Tensor:
        return super().score(x - x.mean(0))
