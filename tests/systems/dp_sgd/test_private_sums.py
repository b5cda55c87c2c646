"""The release of a step: sorted, split and shared draws release the same sums; every line of its table of guarantees."""

from typing import Any

import pytest
import tiny
import torch
from fixed_source import FixedKeySource
from torch import Tensor

from dpgen.callbacks import AutomaticClipping
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.sampling import Batch, PoissonLoader, PoissonMask
from dpgen.systems.dp_sgd.sums import padded
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

D, K, N = 6, 3, 20


def module(**options: Any) -> DPGM:
    plan = DPGMPlan(sampling_rate=1.0, sigma_sgd=1e-6, sigma_count=5.0)
    made = DPGM(d=D, plan=plan, config=DPGMConfig(hidden=3, latent=1, **options), n_classes=K)
    made._policy = AutomaticClipping(stability=1e-6)
    return made


def records() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (torch.rand(N, D, generator=generator) < 0.5).float(), torch.randint(0, K, (N,), generator=generator)


def one_by_one(x: Tensor, cluster: Tensor) -> Tensor:
    """The slow twin: every record in a draw of its own."""
    made = module()
    ones = [Batch(x[i : i + 1], cluster[i : i + 1], cluster[i : i + 1]) for i in range(len(x))]
    parts = [tiny.released(made, one, silent=True) for one in ones]
    return torch.stack(parts).sum(0)


@pytest.mark.parametrize("micro_batch", [512, 20, 7, 1])
def test_a_draw_is_the_sum_of_its_records_however_it_is_split(micro_batch: int) -> None:
    x, cluster = records()
    sums = tiny.released(module(micro_batch=micro_batch), Batch(x, cluster, cluster), silent=True)
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
    assert torch.allclose(*(tiny.released(made, b, silent=True) for b in (batch, Batch(x, cluster, cluster))), atol=1e-4)


@pytest.mark.parametrize("sizes", [(0, 0, 0), (1, 0, 0), (3, 0, 4), (4, 4, 0), (9, 1, 2), (1, 13, 1)])
def test_parts_cover_the_draw_and_there_is_at_least_one(sizes: tuple[int, ...]) -> None:
    """However a cluster is cut, it is cut by its own records: others only move the parts that it is in."""
    made = module(micro_batch=4)
    parts = made._parts(sizes)
    assert parts
    rows = [list(range(sum(sizes))[part.rows[c]]) for c in range(K) for part in parts]
    assert [row for part in rows for row in part] == list(range(sum(sizes)))
    for c, n in enumerate(sizes):
        cuts = [part.present[c] for part in parts if part.present[c]]
        assert cuts == [4] * (n // 4) + [n % 4] * (n % 4 > 0)
    assert all(padded(part.present)[-1] <= 4 for part in parts)


@pytest.mark.parametrize("n", [60, 4096, 4097, 8800])
def test_what_rounding_adds_to_a_sum_stays_inside_of_the_stated_sensitivity(n: int) -> None:
    """A sum of n terms of norm 1, rounded in its dtype, errs by n eps / 2, with a record and without it."""
    made, book = module(micro_batch=2**14), Curator(Ledger(None, delta=1e-5))
    made.serve(book)
    cluster = torch.zeros(n, dtype=torch.int64)
    draw = book.draw("training steps", PoissonMask(1.0), made.parts())
    assert draw is not None
    released, given = [], draw.gaussian
    draw.gaussian = lambda name, sums, **more: (released.append(sums), given(name, sums, **more))[1]  # type: ignore[method-assign]
    with torch.no_grad():
        made.noisy_sums(Batch(torch.ones(n, D), cluster, cluster), draw)
    [sums] = released
    assert float(sums.values.norm()) > 0.5 * n, "the terms point the same way"
    assert n * torch.finfo(sums.values.dtype).eps <= sums.sensitivity - 1


def test_a_record_without_a_finite_norm_weighs_nothing() -> None:
    x, cluster = records()
    broken = torch.cat([x, torch.full((1, D), torch.nan)])
    ids = torch.cat([cluster, torch.zeros(1, dtype=torch.int64)])
    made = module()
    sums = tiny.released(made, Batch(broken, ids, ids), silent=True)
    assert torch.allclose(sums, tiny.released(made, Batch(x, cluster, cluster), silent=True), atol=1e-4)


def test_latents_come_from_the_secure_source_of_the_curator() -> None:
    made = module()
    made.serve(Curator(Ledger(None, delta=1e-5), source=FixedKeySource(3)))
    assert torch.equal(made._latent(4, 2), FixedKeySource(3).normal(4, 2))
    assert not torch.equal(made._latent(4, 2), made._latent(4, 2))


def test_a_batch_that_is_no_poisson_draw_is_refused() -> None:
    nobody = torch.zeros(0, dtype=torch.int64)
    with pytest.raises(ValueError, match="the batch has no mask of a Poisson draw"):
        module().on_train_batch_start(Batch(torch.zeros(0, D), nobody, nobody), 0)
