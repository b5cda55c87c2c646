"""The weak learner of Husain et al.: a small tanh network whose logit estimates a log density ratio."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Classifier(nn.Module):
    r"""Logit of "x comes from P rather than Q", tanh layers and one linear output.

    Trained with the cross-entropy on equally weighted classes, the logit estimates :math:`\log P(x) / Q(x)`.

    Arguments:
        d: features.
        hidden: widths of the tanh layers; (25, 25, 25) is the network of the paper.
        generator: public randomness of the initial weights.

    Raises:
        ValueError: d or a width below 1.

    Source: Husain et al. 2018, equation 14.

    >>> Classifier(2, generator=torch.Generator().manual_seed(0))(torch.zeros(5, 2)).shape
    torch.Size([5])
    """

    def __init__(self, d: int, *, hidden: Sequence[int] = (25, 25, 25), generator: torch.Generator | None = None) -> None:
        super().__init__()
        if min(d, *hidden, 1) < 1:
            raise ValueError(f"d and hidden must be at least 1, got d={d} and hidden={tuple(hidden)}")
        layers: list[nn.Module] = []
        for width, following in itertools.pairwise((d, *hidden)):
            layers += [nn.Linear(width, following), nn.Tanh()]
        self.layers = nn.Sequential(*layers, nn.Linear((d, *hidden)[-1], 1))
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                reach = 1 / math.sqrt(layer.in_features)
                for parameter in layer.parameters():
                    nn.init.uniform_(parameter, -reach, reach, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n,) of points (n, d)."""
        logits: Tensor = self.layers(x)
        return logits.squeeze(-1)
