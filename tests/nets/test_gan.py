"""Critics whose factored gradients are autograd's, generators that rebuild."""

import pytest
import torch
from refusals import refused

from dpgen.nets.cosines import lowest_frequencies
from dpgen.nets.gan import CriticBank, Generator, critic_loss, paired, sameness
from dpgen.privacy.clipping import clipped_sums, gradient_norms


def critic(**options):
    bank = CriticBank(**{"d": 6, "hidden": 5, "depth": 2} | options)
    with torch.no_grad():
        bank.initialize(torch.Generator().manual_seed(0))
        bank.theta.add_(0.1)  # biases too
    return bank


def dense(bank, x, *, real):
    """Per-record gradients (b, p) by autograd of the plain forward pass, one record at a time."""
    rows = []
    for record in x:
        theta = bank.theta.detach().clone().requires_grad_()
        h, code = record[None, : bank.d], record[bank.d :]
        if bank.centred:
            h = h - bank.centre[0]
        if bank.frequencies:
            h = h @ lowest_frequencies(bank.image_shape, bank.frequencies).T
        for i in range(bank.depth + 1):
            h = 2**0.5 * torch.nn.functional.leaky_relu(h, 0.2) if i else h
            h = (h * h.shape[1] ** -0.5) @ bank.part(f"{i}.weight", theta)[0].T + bank.part(f"{i}.bias", theta)[0]
        h = h[:, [int(code.argmax()) if len(code) else 0]]
        rows.append(torch.autograd.grad(critic_loss(h[:, 0], real=real).sum(), theta)[0][0])
    return torch.stack(rows)


@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"categories": 3}, {"d": 24, "categories": 3, "image_shape": (4, 6), "frequencies": 5}, {"centred": True}]
)
def test_factored_gradients_are_those_of_each_record(real, options):
    bank = critic(**options)
    x = torch.randn(7, bank.d, generator=torch.Generator().manual_seed(1))
    if bank.categories:
        x = torch.cat([x, torch.eye(3)[[0, 1, 2, 0, 1, 2, 0]]], 1)
    with torch.enable_grad():
        made = bank.gradients(x, [0, 7], torch.randn) if real else bank.fake_gradients(x, [0, 7])
    slow = dense(bank, x, real=real)
    torch.testing.assert_close(gradient_norms(made), slow.norm(dim=1), rtol=1e-4, atol=1e-6)
    weights = torch.linspace(0.1, 1.0, 7)
    torch.testing.assert_close(clipped_sums(made, weights, torch.empty(1, bank.p))[0], weights @ slow, rtol=1e-4, atol=1e-6)


def test_several_critics_share_nothing():
    """Rows of a critic have the scores and gradients that they have with that critic alone."""
    bank, x = critic(k=2), torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    alone = [critic(), critic()]
    for own, theta in zip(alone, bank.theta.detach()):
        own.theta.data.copy_(theta)
    rows = (x[:2], x[2:])
    torch.testing.assert_close(bank.score(x, [0, 2, 5]), torch.cat([c.score(r, [0, len(r)]) for c, r in zip(alone, rows)]))
    x.requires_grad_()
    (slope,) = torch.autograd.grad(bank.score(x, [0, 2, 5]).sum(), x)
    second = rows[1].detach().requires_grad_()
    (of_second,) = torch.autograd.grad(alone[1].score(second, [0, 3]).sum(), second)
    torch.testing.assert_close(slope[2:], of_second)
    with torch.enable_grad():
        made = bank.fake_gradients(x.detach(), [0, 2, 5])
    sums = clipped_sums(made, torch.ones(5), torch.empty(2, bank.p))
    slow = [dense(c, r.detach(), real=False).sum(0) for c, r in zip(alone, rows)]
    torch.testing.assert_close(sums, torch.stack(slow), rtol=1e-4, atol=1e-6)


def test_sameness_is_large_where_noise_makes_no_difference():
    z = torch.tensor([[0.0], [0.0], [1.0], [2.0]])
    assert float(sameness(0.5 * z, z)) == pytest.approx((1 / 0.501 + 2 / 1.001) / 2)
    assert float(sameness(torch.ones(4, 3), z)) == pytest.approx(1500.0)


def test_labels_are_paired_by_halves():
    assert paired(torch.tensor([3, 1, 0, 2, 5])).tolist() == [3, 1, 3, 1, 5]
    assert paired(torch.tensor([3])).tolist() == [3]
    assert paired(None) is None


@pytest.mark.parametrize(
    "options",
    [
        {"d": 5},
        {"d": 5, "categories": 3, "output": "identity"},
        {"d": 32, "image_shape": (4, 8), "categories": 2, "hidden": 16},
        {"d": 24, "image_shape": (4, 6), "categories": 2, "hidden": 16, "frequencies": 5, "centred": True},
    ],
)
def test_generators_append_their_label_and_rebuild(options):
    made = Generator(latent=4, **options)
    with torch.no_grad():
        made.initialize(torch.Generator().manual_seed(0))
    again = Generator(**made.architecture())
    again.load_state_dict(made.state_dict())
    labels = torch.tensor([0, 1]) if "categories" in options else None
    z = torch.randn(2, 4, generator=torch.Generator().manual_seed(1))
    x = made(z, labels).detach()
    assert x.shape == (2, options["d"] + options.get("categories", 0))
    assert torch.equal(x, again(z, labels))
    if labels is not None:
        assert torch.equal(x[:, options["d"] :].argmax(1), labels)
    if options.get("output") != "identity":
        assert 0 <= float(x.min()) <= float(x.max()) <= 1


def test_what_a_generator_of_frequencies_writes_is_smooth():
    made = Generator(64, latent=4, image_shape=(8, 8), frequencies=6, output="identity")
    with torch.no_grad():
        made.initialize(torch.Generator().manual_seed(0))
        x = made(torch.randn(50, 4, generator=torch.Generator().manual_seed(1)))
    rows = lowest_frequencies((8, 8), 6)
    torch.testing.assert_close(x @ rows.T @ rows, x)
    assert float(x.std(0).min()) > 0.1


@pytest.mark.parametrize(
    ("match", "make"),
    [
        ("at least 1", lambda: CriticBank(0)),
        ("at least 1", lambda: Generator(5, latent=0)),
        ("image_shape", lambda: Generator(6, image_shape=(2, 3))),
        ("frequencies", lambda: CriticBank(6, frequencies=2)),
        ("frequencies", lambda: Generator(6, image_shape=(2, 3), frequencies=7)),
        ("no samples", lambda: critic().sample(0, 1, torch.Generator())),
    ],
)
def test_bad_shapes_are_refused(match, make):
    with refused(match):
        make()
