"""The distribution over all combinations of bits."""

import pytest
import tiny
import torch

from dpgen.systems.marginals.model import JointModel


def test_samples_are_refused_in_one_line():
    model = JointModel(torch.full((8,), 0.125), d=3, n_classes=0, counts=torch.tensor([10.0]), statement=tiny.statement())
    assert model.samples(0).x.shape == (0, 3)
    with pytest.raises(ValueError, match="n is -1; it must be a whole number"):
        model.samples(-1)
    with pytest.raises(ValueError, match=r"clusters must be \[0\]"):
        model.samples(1, clusters=[1])


def test_samples_follow_the_cells() -> None:
    cells = torch.tensor([0.5, 0.0, 0.0, 0.0, 0.125, 0.125, 0.0, 0.25])  # of two bits and a label of two
    model = JointModel(cells, d=2, n_classes=2, counts=torch.tensor([40.0]), statement=tiny.statement())
    drawn = model.samples(40_000, random_state=0)
    assert drawn.labels is not None
    code = (drawn.x[:, 0].long() * 2 + drawn.x[:, 1].long()) * 2 + drawn.labels
    shares = torch.bincount(code, minlength=8) / len(code)
    assert (shares - cells).abs().max() < 0.01
    assert (shares[cells == 0] == 0).all()
    assert model.size == 40
