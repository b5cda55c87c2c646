"""The release of a step: sorted, split and shared draws release the same sums; every line of its table of guarantees."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dpgen.callbacks import AutomaticClipping
from dpgen.privacy.sampling import Batch, PoissonLoader
from dpgen.systems.networks.dpgm import DPGM
from dpgen.systems.networks.dpgm_options import DPGMConfig, DPGMPlan

D, K, N = 6, 3, 20


def module(**options: Any) -> DPGM:
    plan = DPGMPlan(sampling_rate=1.0, sigma_sgd=1e-6, sigma_count=5.0)
    made = DPGM(d=D, plan=plan, config=DPGMConfig(hidden=3, latent=1, **options), n_classes=K)
    made._policy = AutomaticClipping(stability=1e-6)
    made._source.normal = lambda *shape: torch.zeros(shape)  # type: ignore[method-assign]
    return made


def records() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (torch.rand(N, D, generator=generator) < 0.5).float(), torch.randint(0, K, (N,), generator=generator)


def one_by_one(x: Tensor, cluster: Tensor) -> Tensor:
    """The slow twin: every record in a draw of its own."""
    made = module()
    parts = [made.noisy_sums(Batch(x[i : i + 1], cluster[i : i + 1], cluster[i : i + 1])).clone() for i in range(len(x))]
    return torch.stack(parts).sum(0)


@pytest.mark.parametrize("micro_batch", [512, 20, 7, 1])
def test_a_draw_is_the_sum_of_its_records_however_it_is_split(micro_batch: int) -> None:
    x, cluster = records()
    sums = module(micro_batch=micro_batch).noisy_sums(Batch(x, cluster, cluster))
    assert torch.allclose(sums, one_by_one(x, cluster), atol=1e-4)


def test_the_loader_sorts_as_the_module_would() -> None:
    x, cluster = records()
    loader = PoissonLoader(x, cluster, sampling_rate=1.0)
    loader.assign(cluster, K)
    batch = next(iter(loader))
    assert batch.sizes is not None
    assert list(batch.sizes) == torch.bincount(cluster, minlength=K).tolist()
    assert torch.equal(batch.cluster, cluster.sort().values)
    assert torch.equal(batch.labels, batch.cluster)
    made = module()
    assert torch.allclose(made.noisy_sums(batch), made.noisy_sums(Batch(x, cluster, cluster)), atol=1e-4)


@pytest.mark.parametrize("b", [0, 1, 7, 8])
def test_parts_cover_the_draw_and_there_is_at_least_one(b: int) -> None:
    made = module(micro_batch=4)
    parts = made._parts(Batch(torch.zeros(b, D), torch.zeros(b), torch.zeros(b)))
    rows = [row for part in parts for row in range(b)[part]]
    assert rows == list(range(b))
    assert len(parts) == max(1, math.ceil(b / 4))


def test_a_record_without_a_finite_norm_weighs_nothing() -> None:
    x, cluster = records()
    broken = torch.cat([x, torch.full((1, D), torch.nan)])
    ids = torch.cat([cluster, torch.zeros(1, dtype=torch.int64)])
    made = module()
    sums = made.noisy_sums(Batch(broken, ids, ids)).clone()
    assert torch.allclose(sums, made.noisy_sums(Batch(x, cluster, cluster)), atol=1e-4)
