"""Mixtures of independent bits: closed forms against enumeration; distributions over all combinations of bits."""

from itertools import product

import pytest
import tiny
import torch
from refusals import refused

from dpgen.release import draw_components
from dpgen.systems.marginals.model import JointModel, ProductMixture

P = torch.tensor([[0.9, 0.2, 0.5], [0.1, 0.3, 1.0]])


def mixture(n_classes: int = 2) -> ProductMixture:
    return ProductMixture(P, torch.tensor([30.0, 10.0]), statement=tiny.statement(), n_classes=n_classes)


def table() -> torch.Tensor:
    """All records of three bits."""
    return torch.tensor(list(product([0, 1], repeat=3)), dtype=torch.uint8)


def test_closed_forms_agree_with_enumeration() -> None:
    x, model = table(), mixture()
    p = model.log_prob(x).exp()
    assert float(p.sum()) == pytest.approx(1.0, abs=1e-9)
    assert model.conjunction([0, 2]) == pytest.approx(float(p[(x[:, 0] & x[:, 2]).bool()].sum()))
    assert model.disjunction([0, 1]) == pytest.approx(float(p[(x[:, 0] | x[:, 1]).bool()].sum()))


def test_draws_follow_the_density() -> None:
    x = mixture().samples(40_000, random_state=0).x
    shares = torch.bincount(x.long() @ torch.tensor([4, 2, 1]), minlength=8) / len(x)
    assert torch.allclose(shares.double(), mixture().log_prob(table()).exp(), atol=0.015)


def test_the_bayes_classifier_is_bayes() -> None:
    x = table()
    joint = torch.stack([(w * torch.where(x > 0, p, 1 - p).prod(1)) for w, p in zip((0.75, 0.25), P)], 1)
    assert torch.equal(mixture().classify(x), joint.argmax(1))
    with refused("n_classes"):
        mixture(0).classify(x)


def test_conditional_draws() -> None:
    model = mixture()
    samples = model.samples(100, random_state=1, clusters=[1])
    assert samples.labels is not None
    assert set(samples.labels.tolist()) == {1}
    assert (model.size, model.samples(0).x.shape) == (40, (0, 3))


def test_bad_questions_are_refused() -> None:
    with refused("x must have shape"):
        mixture().log_prob(torch.zeros(1, 2))
    with refused("n is"):
        mixture().samples(-1)
    with refused("clusters"):
        draw_components(torch.ones(2), 1, [2], torch.Generator())


def test_samples_of_cells_are_refused_in_one_line() -> None:
    model = JointModel(torch.full((8,), 0.125), d=3, n_classes=0, counts=torch.tensor([10.0]), statement=tiny.statement())
    assert model.samples(0).x.shape == (0, 3)
    with refused("n is"):
        model.samples(-1)
    with refused("clusters"):
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
