"""Networks as people bring them: one that works, and many with a single fault."""

from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

_BUILT, _CALLED = count(), count()


class Good(nn.Module):
    """An encoder and a decoder with a weight that stays, a constant and a norm within the record."""

    def __init__(self, d: int, hidden: int = 4, latent: int = 2) -> None:
        super().__init__()
        self.latent = latent
        self.encoder = nn.Sequential(nn.Linear(d, hidden), nn.LayerNorm(hidden), nn.Tanh(), nn.Linear(hidden, latent))
        self.decoder = nn.Linear(latent, d)
        self.frozen = nn.Parameter(torch.randn(latent), requires_grad=False)
        self.register_buffer("scale", torch.rand(1) + 1.0)

    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        return (self.decoder(self.encoder(x) + self.frozen + z) - x).square().sum(1)

    def sample(self, z: Tensor) -> Tensor:
        return (self.decoder(z) * self.scale).sigmoid()


class Classifier(nn.Module):
    """Scores of labels, without a method that samples; it sees values that are no bits."""

    def __init__(self, d: int, categories: int, hidden: int = 4, grey: bool = False) -> None:
        super().__init__()
        self.layers, self.grey = nn.Sequential(nn.Linear(d, hidden), nn.Tanh(), nn.Linear(hidden, categories)), grey

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self(x), y, reduction="none")


class Convolutional(nn.Module):
    """An autoencoder with a convolution, a norm within the record and a weight that is used twice."""

    latent = 2

    def __init__(self, d: int) -> None:
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv1d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Linear(4 + 2, d)

    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        h = self.norm(self.conv(torch.tanh(self.conv(x[:, None])[:, :1])))
        return (self.out(torch.cat([h.mean(2), z], 1)) - x).square().sum(1)

    def sample(self, z: Tensor) -> Tensor:
        return self.out(torch.cat([torch.zeros(len(z), 4), z], 1)).sigmoid()


class Rectified(nn.Module):
    """A wide layer with ReLUs, whose kinks a rounding may open or close."""

    latent = 1

    def __init__(self, d: int, hidden: int = 200) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(d, hidden), nn.Linear(hidden, d)

    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        return self.last(self.first(x).relu())[:, :3].square().sum(1)

    def sample(self, z: Tensor) -> Tensor:
        return self.last(z.expand(-1, self.last.in_features)).sigmoid()


class Other(nn.Module):
    """Has nothing that a network needs."""


class Batched(Good):
    def __init__(self, d: int, kind: str = "BatchNorm1d", **options: Any) -> None:
        super().__init__(d)
        self.encoder[1] = getattr(nn, kind)(4, **options)


class Centred(Good):
    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        return super().loss(x - x.mean(0), z)


class Dropping(Good):
    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        return super().loss(nn.functional.dropout(x), z)


class Remembering(Good):
    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        self.scale = self.scale * 0.9 + 0.1 * x.mean()
        return super().loss(x, z)


class Hoarding(Good):
    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        self.register_buffer("seen", x)
        return super().loss(x, z)


class Branching(Good):
    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        return super().loss(x, z) if x.sum() >= 0 else z.sum(1)


class Constant(Good):
    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        return super().loss(x, z).detach()


class Summed(Good):
    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        return super().loss(x, z).sum()


class Infinite(Good):
    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        return super().loss(x, z) / 0.0


class Failing(Good):
    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        raise KeyError("no\nsuch key")


class Unbounded(Good):
    def sample(self, z: Tensor) -> Tensor:
        return super().sample(z) + 1.0


class Restless(Good):
    def sample(self, z: Tensor) -> Tensor:
        return super().sample(z + torch.randn(z.shape))


class Noiseless(Good):
    def __init__(self, d: int) -> None:
        super().__init__(d, latent=1)
        self.latent = True


class Lazy(Good):
    def __init__(self, d: int) -> None:
        super().__init__(d)
        self.decoder = nn.LazyLinear(d)


class Frozen(Good):
    def __init__(self, d: int) -> None:
        super().__init__(d)
        self.requires_grad_(False)


class Growing(Good):
    """Has one more hidden unit whenever it is built."""

    def __init__(self, d: int) -> None:
        super().__init__(d, hidden=4 + next(_BUILT))


class Hidden(Good):
    """Draws something that is neither parameter nor buffer."""

    def __init__(self, d: int) -> None:
        super().__init__(d)
        self.shift = torch.randn(d)

    def sample(self, z: Tensor) -> Tensor:
        return (self.decoder(z) + self.shift).sigmoid()


class Patient(Good):
    """Behaves while it is tried, and keeps its records later on."""

    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        if next(_CALLED) > 100:
            self.scale = self.scale + x.mean()
            self.kept = x
        return super().loss(x, z)


def local() -> Any:
    class Local(Good):
        """Inside of a function."""

    return Local
