"""Layers with bounds of their own: sums of a step, what a record moves, and what is refused."""

import math
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from refusals import refused
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import dpgen
from dpgen.callbacks import BoundedClipping, Clipping, PerLayerClipping
from dpgen.privacy.clipping import SENSITIVITY, Factor, Layer, RecordGradients, by_layer, clipped_sums, layer_norms
from dpgen.privacy.sampling import Batch
from dpgen.systems import private_steps
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

pytestmark = pytest.mark.usefixtures("quiet")
D, K, N = 6, 3, 20


def module(policy: Clipping, **options: Any) -> DPGM:
    plan = DPGMPlan(sampling_rate=1.0, noise_multiplier=1e-6, sigma_count=5.0)
    made = DPGM(d=D, plan=plan, config=DPGMConfig(hidden=3, latent=1, **options), n_classes=K)
    policy.begin(K)
    made.clip_by(policy)
    return made


def records(n: int = N, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(n, D, generator=generator) < 0.5).float(), torch.randint(0, K, (n,), generator=generator)


def terms(policy: Clipping) -> Tensor:
    """Every record in a draw of its own, (n, K, p)."""
    made, (x, cluster) = module(policy), records()
    ones = [Batch(x[i : i + 1], cluster[i : i + 1], cluster[i : i + 1]) for i in range(N)]
    return torch.stack([tiny.released(made, one, silent=True) for one in ones])


@pytest.mark.parametrize("micro_batch", [512, 7, 1])
@pytest.mark.parametrize("bound", [1e-3, 0.5, 1e3])
def test_a_draw_is_the_sum_of_its_records_however_it_is_split(bound: float, micro_batch: int) -> None:
    x, cluster = records()
    made = module(PerLayerClipping(bound=bound), micro_batch=micro_batch)
    sums = tiny.released(made, Batch(x, cluster, cluster), silent=True)
    alone = terms(PerLayerClipping(bound=bound)).sum(0)
    assert torch.allclose(sums, alone, atol=1e-4), float((sums - alone).abs().max())


def test_every_layer_of_a_record_reaches_its_own_bound_and_no_more() -> None:
    made = module(PerLayerClipping(bound=1e-6))
    assert len(made.layers) > 2
    each = terms(PerLayerClipping(bound=1e-6)).sum(1)
    for layer in made.layers:
        assert layer.share == pytest.approx(len(made.layers) ** -0.5)
        norms = torch.stack([each[:, part].square().sum(1) for part in layer.columns]).sum(0).sqrt()
        assert bool((norms <= layer.share + 1e-4).all())
        assert float(norms.max()) > 0.99 * layer.share
    assert bool((each.norm(dim=1) <= SENSITIVITY).all())
    assert float(each.norm(dim=1).max()) > 0.99


def test_bounds_by_the_beginning_of_names() -> None:
    columns = {
        "encoder.0.weight": slice(0, 4),
        "encoder.0.bias": slice(4, 6),
        "head.weight": slice(6, 9),
        "scale": slice(9, 10),
    }
    policy = PerLayerClipping(bounds={"encoder": 3.0, "encoder.0.bias": 1.0, "": 4.0})
    assert policy.bound == pytest.approx(math.sqrt(26))
    whole = math.sqrt(26)
    found = policy.layers(columns)
    assert [layer.share * whole for layer in found] == pytest.approx([3.0, 1.0, 4.0])
    assert [layer.columns for layer in found] == [(slice(0, 4),), (slice(4, 6),), (slice(6, 10),)]
    shared = PerLayerClipping(bound=2.0).layers(columns)
    assert [layer.columns for layer in shared] == [(slice(0, 6),), (slice(6, 9),), (slice(9, 10),)]
    assert [layer.share for layer in shared] == pytest.approx([3**-0.5] * 3)
    for bounds, named in (({"encoder": 1.0}, "head.weight"), ({"": 1.0, "hed": 1.0}, "hed")):
        with refused("bounds", named):
            PerLayerClipping(bounds=bounds).layers(columns)
    for wrong in ({}, {"": 0.0}, {"": math.inf}):
        with refused("bounds"):
            PerLayerClipping(bounds=wrong)


class Greedy(PerLayerClipping):
    """The broken twin: each layer has the whole bound, so that squares add up to as many as there are."""

    def layers(self, columns: Any) -> Any:
        return tuple(layer._replace(share=1.0) for layer in super().layers(columns))


class Heavy(PerLayerClipping):
    """Weights that are far too large."""

    def coefficients(self, norms: Tensor, cluster: Tensor) -> Tensor:
        return 1e6 * super().coefficients(norms, cluster)


class Lacking(PerLayerClipping):
    """A layer is left out."""

    def layers(self, columns: Any) -> Any:
        return tuple(super().layers(columns)[1:])


def test_layers_that_would_let_a_record_weigh_more_are_refused() -> None:
    with refused("layers", "squares"):
        module(Greedy())
    with refused("layers", "parameters"):
        module(Lacking())
    each = terms(Heavy())
    assert bool((each.flatten(1).norm(dim=1) <= SENSITIVITY).all()), "whatever a policy says"
    assert float(each.flatten(1).norm(dim=1).max()) > 0.99


def test_a_record_without_a_finite_norm_in_one_layer_weighs_nothing_in_all() -> None:
    layers = (Layer(0.6, (slice(0, 2),)), Layer(0.8, (slice(2, 4),)))
    rows = torch.tensor([[3.0, 4.0, 0.0, 2.0], [math.nan, 0.0, 1.0, 1.0], [1.0, 1.0, math.inf, 0.0]])
    made, owner = by_layer(RecordGradients([Factor(rows, None, None, slice(0, 4))], [0, 3]), layers)
    norms = layer_norms(made, owner, 2)
    assert norms[0].tolist() == pytest.approx([5.0, 2.0], rel=1e-5)
    assert norms.isfinite().tolist() == [[True, True], [False, True], [True, False]]
    weights = torch.tensor([[0.6 / 5, 0.8 / 2], [0.0, 0.0], [0.0, 0.0]])[:, owner]
    found = clipped_sums(made, weights, torch.empty(1, 4))
    assert found[0].tolist() == pytest.approx([0.36, 0.48, 0.0, 0.8])


def loader(people: bool = False) -> "DataLoader[Any]":
    x = torch.randn(64, D, generator=torch.Generator().manual_seed(0))
    columns = (x, (x[:, 0] > 0).long(), torch.arange(64) // 2)
    return DataLoader(TensorDataset(*columns[: 2 + people]), batch_size=16)


def loss(net: Any, batch: Any) -> Tensor:
    return cross_entropy(net(batch[0]), batch[1])


def trained(policy: Clipping, people: bool = False) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(D, 5), nn.Tanh(), nn.Linear(5, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    options: dict[str, Any] = {"people": 2} if people else {}
    steps = private_steps(net, loader(people), loss, epochs=2, epsilon=5.0, clipping=policy, **options)
    for _ in steps:
        optimizer.step()
    return net


def test_a_loop_with_bounds_of_layers_spends_what_one_bound_does(tmp_path: Path) -> None:
    nets = [trained(policy) for policy in (PerLayerClipping(), BoundedClipping())]
    spent = [dpgen.release(net, tmp_path / str(i)).epsilon for i, net in enumerate(nets)]
    assert spent[0] == spent[1] <= 5.0
    trained(PerLayerClipping(bounds={"0": 0.5, "2": 1.0}))
    with refused("bounds", "'0.weight'"):
        trained(PerLayerClipping(bounds={"plain": 1.0}))


def test_people_are_clipped_as_one() -> None:
    with refused("people"):
        trained(PerLayerClipping(), people=True)
