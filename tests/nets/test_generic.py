"""Any module that states a loss per record, against one autograd call per record."""

import pytest
import torch
from torch import Tensor, nn

from dpgen.nets import GenericBank
from dpgen.privacy.clipping import gradient_norms

D, K = 6, 3
BOUNDS = [0, 2, 2, 5]


class Convolutional(nn.Module):
    """A small autoencoder with a convolution, a norm layer and a weight that is used twice."""

    latent = 2

    def __init__(self, norm: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.out = nn.Conv1d(1, 4, 3, padding=1), norm or nn.GroupNorm(2, 4), nn.Linear(4 + 2, D)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        h = self.norm(self.conv(torch.tanh(self.conv(x[:, None])[:, :1])))
        return self.out(torch.cat([h.mean(2), z], 1))

    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        return (self(x, z) - x).square().sum(1)

    def sample(self, z: Tensor) -> Tensor:
        return self(torch.zeros(len(z), D), z).sigmoid()


def bank(k: int = K) -> GenericBank:
    made = GenericBank(k, Convolutional())
    with torch.no_grad():
        made.initialize(torch.Generator().manual_seed(1))
    return made


def test_gradients_are_those_of_one_record_at_a_time() -> None:
    generator = torch.Generator().manual_seed(2)
    x, z = torch.rand(5, D, generator=generator), torch.randn(5, 2, generator=generator)
    made = bank()
    gradients = made.gradients(x, BOUNDS, lambda *shape: z)
    dense = gradients.factors[0].outputs
    for record, c in enumerate([0, 0, 2, 2, 2]):
        module = Convolutional()
        with torch.no_grad():
            for name, value in module.named_parameters():
                value.copy_(made.part(name)[c])
        module.loss(x[record : record + 1], z[record : record + 1]).sum().backward()
        reference = torch.cat([value.grad.flatten() for value in module.parameters() if value.grad is not None])
        assert torch.allclose(dense[record], reference, atol=1e-5)
    assert torch.allclose(gradient_norms(gradients), dense.norm(dim=1), rtol=1e-4)


def test_an_empty_draw_has_no_gradients() -> None:
    gradients = bank().gradients(torch.zeros(0, D), [0, 0, 0, 0], torch.zeros)
    assert gradients.factors[0].outputs.shape == (0, bank().p)


def test_models_start_near_the_template_but_apart() -> None:
    made, template = bank(), Convolutional()
    weights = made.part("out.weight")
    assert not torch.equal(weights[0], weights[1])
    assert torch.allclose(weights, template.out.weight.expand_as(weights), atol=0.05)


def test_samples_come_from_the_chosen_model() -> None:
    made = bank()
    made.part("out.bias")[1].fill_(50.0)
    for c in range(K):
        drawn = made.sample(c, 4, torch.Generator().manual_seed(0))
        assert drawn.shape == (4, D)
        assert bool((drawn > 0.99).all()) == (c == 1)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(4), nn.SyncBatchNorm(4), nn.InstanceNorm1d(4, track_running_stats=True)])
def test_layers_that_mix_records_are_refused(layer: nn.Module) -> None:
    with pytest.raises(ValueError, match=rf"layer 'norm' is a {type(layer).__name__}, which mixes the records"):
        GenericBank(2, Convolutional(layer))


def test_norms_within_a_record_are_welcome() -> None:
    for layer in (nn.InstanceNorm1d(4), nn.GroupNorm(2, 4), nn.LayerNorm(D)):
        assert GenericBank(2, Convolutional(layer)).k == 2


def test_it_cannot_be_released_as_a_file() -> None:
    with pytest.raises(ValueError, match=r"a bank of Convolutional was made from an instance, .* name its class, OwnBank\("):
        bank().architecture()
