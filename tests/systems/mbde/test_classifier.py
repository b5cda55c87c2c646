"""The weak learner's network."""

import pytest
import torch

from dpgen.systems.mbde.model import Classifier


def test_layers_are_the_papers() -> None:
    shapes = [tuple(p.shape) for p in Classifier(2).parameters()]
    assert shapes == [(25, 2), (25,), (25, 25), (25,), (25, 25), (25,), (1, 25), (1,)]


def test_initial_weights_follow_the_generator() -> None:
    first, second = (Classifier(3, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    x = torch.randn(4, 3)
    assert torch.equal(first(x), second(x))
    assert first(x).shape == (4,)
    assert first.layers[0].weight.abs().max() <= 3**-0.5


def test_no_hidden_layer_is_logistic_regression() -> None:
    model, x = Classifier(3, hidden=()), torch.randn(4, 3)
    (layer,) = model.layers
    assert torch.allclose(model(x), (x @ layer.weight.T + layer.bias)[:, 0])


@pytest.mark.parametrize(("d", "hidden"), [(0, (25,)), (2, (25, 0))])
def test_bad_sizes(d: int, hidden: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="d and hidden must be at least 1"):
        Classifier(d, hidden=hidden)
