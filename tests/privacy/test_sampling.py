"""Poisson sampling: every record, every draw, independently; a loader of fixed-size batches does not pass."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fixed_source import FixedKeySource
from torch import Tensor

from dpgen.privacy.noise import PublicRandomness
from dpgen.privacy.sampling import Batch, PoissonLoader

N, Q, EPOCHS = 40, 0.2, 800
DRAWS = EPOCHS * 5


def x(n: int = N) -> Tensor:
    """Records that name themselves: record i holds the bits of i."""
    return (torch.arange(n)[:, None] >> torch.arange(10) & 1).to(torch.uint8)


def who(batch: Batch) -> Tensor:
    return (batch.x.to(torch.int64) << torch.arange(10)).sum(1)


def poisson_masks(q: float = Q) -> Tensor:
    """Membership (draws, n) over many epochs of the loader."""
    loader = PoissonLoader(x(), sampling_rate=q, source=FixedKeySource(1))
    masks = torch.zeros(EPOCHS * len(loader), N, dtype=torch.float64)
    for row, batch in enumerate(batch for _ in range(EPOCHS) for batch in loader):
        masks[row, who(batch)] = 1
    return masks


def shuffled_masks() -> Tensor:
    """The twin: epochs of shuffled batches of fixed size q n."""
    generator = torch.Generator().manual_seed(0)
    masks = torch.zeros(DRAWS, N, dtype=torch.float64)
    size = int(Q * N)
    for epoch in range(EPOCHS):
        order = torch.randperm(N, generator=generator)
        for i in range(5):
            masks[5 * epoch + i, order[i * size : (i + 1) * size]] = 1
    return masks


def once_per_epoch_masks() -> Tensor:
    """The subtler twin: sizes vary as they should, but each record joins exactly one draw of an epoch."""
    generator = torch.Generator().manual_seed(0)
    draw = torch.randint(5, (EPOCHS, N), generator=generator)
    return torch.nn.functional.one_hot(draw, 5).transpose(1, 2).reshape(DRAWS, N).to(torch.float64)


def z_scores(masks: Tensor) -> dict[str, float]:
    """How many standard deviations each statistic lies from what independent Bernoulli(q) memberships have."""
    draws, var = len(masks), Q * (1 - Q)
    sizes, share = masks.sum(1), masks.mean(0)
    centred = masks - Q
    fourth = N * var * (1 + (3 * N - 6) * var)
    pairs = (centred.T @ centred)[torch.triu(torch.ones(N, N), 1) == 1] / (var * math.sqrt(draws))
    lags = (centred[1:] * centred[:-1]).sum() / (var * math.sqrt((draws - 1) * N))
    return {
        "mean": float(sizes.mean() - N * Q) / math.sqrt(N * var / draws),
        "variance": float(((sizes - N * Q) ** 2).mean() - N * var) / math.sqrt((fourth - (N * var) ** 2) / draws),
        "worst record": float((share - Q).abs().max()) / math.sqrt(var / draws),
        "worst pair": float(pairs.abs().max()),
        "pairs": float(pairs.square().mean() - 1) / math.sqrt(2 / len(pairs)),
        "neighbouring draws": float(lags),
    }


def rejected(masks: Tensor) -> set[str]:
    """Statistics out of line: 5.5 standard deviations, a chance of 1e-7 each even for the worst of 780 pairs."""
    return {name for name, z in z_scores(masks).items() if abs(z) > 5.5}


def test_draws_are_poisson_samples() -> None:
    assert not rejected(poisson_masks())


@pytest.mark.parametrize(
    ("twin", "caught"),
    [(shuffled_masks, {"variance", "pairs", "neighbouring draws"}), (once_per_epoch_masks, {"neighbouring draws"})],
)
def test_twins_are_rejected(twin: Callable[[], Tensor], caught: set[str]) -> None:
    assert caught <= rejected(twin())


def test_an_epoch_is_one_over_q_draws_and_some_are_empty() -> None:
    loader = PoissonLoader(x(3), sampling_rate=0.1, source=FixedKeySource())
    batches = [batch for _ in range(20) for batch in loader]
    assert len(loader) == 10
    assert len(batches) == 200
    assert {batch.mask.rate for batch in batches if batch.mask} == {0.1}
    assert len({id(batch.mask) for batch in batches}) == 200, "every draw is released once"
    empty = [batch for batch in batches if len(batch.x) == 0]
    assert empty, "three records at rate .1 miss most draws"
    assert empty[0].x.shape == (0, 10)
    assert empty[0].cluster.dtype == torch.int64


def test_records_keep_their_cluster_and_label() -> None:
    loader = PoissonLoader(x(), torch.arange(N) % 7, sampling_rate=0.5)
    loader.assign(torch.arange(N) % 3)
    batches = list(loader)
    loader.assign(torch.arange(N) % 3, 3)
    in_order = list(loader)
    assert all(bool((batch.cluster.diff() >= 0).all()) for batch in in_order)
    assert all(list(b.sizes or ()) == torch.bincount(b.cluster, minlength=3).tolist() for b in in_order)
    for batch in [*batches, *in_order]:
        assert batch.x.dtype == torch.float32
        assert torch.equal(batch.cluster, who(batch) % 3)
        assert torch.equal(batch.labels, who(batch) % 7)
    (unlabelled,) = PoissonLoader(x(), sampling_rate=1.0)
    assert set(unlabelled.labels.tolist()) == {-1}
    assert who(unlabelled).tolist() == list(range(N))


@pytest.mark.parametrize(
    ("arguments", "options", "name"),
    [
        *(((x(),), {"sampling_rate": q}, "sampling_rate") for q in (0.0, -0.1, 1.1, math.nan, math.inf)),
        ((torch.zeros(3, 0),), {}, "x must"),
        ((torch.zeros(5),), {}, "x must"),
        ((torch.tensor([[0.0], [math.nan]]),), {}, "finite"),
        ((torch.tensor([[0.0], [math.inf]]),), {}, "finite"),
        ((torch.zeros(5, 3), torch.zeros(4)), {}, "labels"),
        ((x(),), {"people": torch.arange(39)}, "people"),
        ((x(),), {"people": torch.zeros(40), "rows": 39}, "people"),
        ((x(),), {"source": PublicRandomness(0)}, "SecureSource"),
    ],
)
def test_what_cannot_be_sampled_is_refused(arguments: tuple[Any, ...], options: dict[str, Any], name: str) -> None:
    with pytest.raises((ValueError, TypeError), match=name):
        PoissonLoader(*arguments, **({"sampling_rate": 0.5} | options))
    with pytest.raises(ValueError, match="cluster"):
        PoissonLoader(x(), sampling_rate=0.5).assign(torch.zeros(39))
