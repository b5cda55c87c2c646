"""Private sums: against loops, and exact in whatever order they are added up."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from torch import Tensor

from dpgen.privacy.exact_sums import BoundedSum, clipped
from dpgen.systems.gaussian.model import Subspace
from dpgen.systems.gaussian.releases import (
    Location,
    RecordStream,
    centre_sums,
    centred_moments,
    checked,
    gram_sums,
    location_sums,
    marginal_sums,
    vector_sums,
)
from dpgen.systems.gaussian.sets import FrequentItems, item_sums, size_bins, size_histogram

A = 0.5


def by_label(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    assert labels is not None
    return x * 2.0 - 1.0, labels


@pytest.fixture
def stream() -> RecordStream:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(50, 3, generator=generator)
    return RecordStream(x, torch.arange(50) % 4, batch_size=7)


def slow(stream: RecordStream, k: int) -> tuple[Tensor, Tensor]:
    """Sums record by record."""
    grams, sums = torch.zeros(k, 4, 4).double(), torch.zeros(k, 5).double()
    assert stream.labels is not None
    for x, c in zip(stream.x.double() * 2 - 1, stream.labels.tolist()):
        u = x / max(1.0, float(x.norm()))
        v = torch.cat([torch.tensor([A]).double(), u])
        grams[c] += torch.outer(v, v)
        sums[c] += torch.cat([v, 0.3 * u.square().sum()[None]])
    return grams, sums


def real(sums: BoundedSum) -> Tensor:
    return sums.values.double() * sums.step


def test_sums_are_those_of_a_loop_whatever_the_batches(stream: RecordStream) -> None:
    grams, sums = slow(stream, 5)
    assert torch.allclose(real(gram_sums(stream, by_label, k=5, m=3, border=A)), grams, atol=1e-4)
    assert torch.allclose(real(gram_sums(stream, by_label, k=5, m=3, border=0.0)), grams[:, 1:, 1:], atol=1e-4)
    assert torch.allclose(real(vector_sums(stream, by_label, k=5, m=3, border=A, square=0.3)), sums, atol=1e-4)
    assert torch.allclose(real(vector_sums(stream, by_label, k=5, m=3, border=A)), sums[:, :-1], atol=1e-4)
    assert not grams[4].any(), "an empty cluster sums to zero"


# -- rounding --------------------------------------------------------------------------------------------------------


SHAPE, K = (6, 7), 3
D = SHAPE[0] * SHAPE[1]
FOUND = Subspace(
    torch.linspace(0.2, 0.7, D).double(),
    torch.linalg.qr(torch.randn(D, 5, generator=torch.Generator().manual_seed(1)).double()).Q,
    torch.tensor([0.3, 0.2, 0.2, 0.1, 0.1]).double(),
    0.1,
    torch.ones(5).double(),
)
CENTRES = torch.randn(K, 4, 5, generator=torch.Generator().manual_seed(2)).double() * 0.3


def coordinates(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    assert labels is not None
    return FOUND.project(x), labels


def every_sum(x: Tensor, labels: Tensor, batch_size: int) -> list[Tensor]:
    """The private sums of all releases, on grey images and on bits."""
    grey = RecordStream(x, labels, top=255.0, batch_size=batch_size)
    on = RecordStream((x > 127).byte(), labels, batch_size=batch_size)
    location = Location(1.0, FOUND.mean, 1.0)
    sums = [
        location_sums(grey, D),
        centred_moments(grey, location, 1.3),
        gram_sums(grey, coordinates, k=K, m=5, border=A),
        centre_sums(grey, coordinates, CENTRES),
        marginal_sums(on, D, k=K),
        size_histogram(on, size_bins(D)),
        item_sums(on, D, 7),
        FrequentItems(torch.arange(0, D, 2), size_bins(D), torch.arange(len(size_bins(D))) % 3).sums(on),
    ]
    return [part.values for part in sums]


@settings(max_examples=8, deadline=None)
@given(n=st.integers(0, 800), seed=st.integers(0, 2**30), size=st.integers(20, 900), threads=st.sampled_from([1, 2]))
def test_sums_have_the_same_bits_in_any_order_batches_threads_and_shards(n: int, seed: int, size: int, threads: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (n, D), generator=generator).byte() * (torch.rand(n, D, generator=generator) < 0.4)
    labels, order = torch.randint(0, K, (n,), generator=generator), torch.randperm(n, generator=generator)
    before, whole = torch.get_num_threads(), every_sum(x, labels, 8192)
    try:
        torch.set_num_threads(threads)
        shuffled = every_sum(x[order], labels[order], size)
        shards = [every_sum(*part, 8192) for part in zip(x.split(n // 2 + 1), labels.split(n // 2 + 1))]
    finally:
        torch.set_num_threads(before)
    for i, expected in enumerate(whole):
        assert torch.equal(shuffled[i], expected)
        assert torch.equal(sum(shard[i] for shard in shards), expected)  # type: ignore[arg-type]


@given(d=st.integers(1, 900), m=st.integers(1, 30), n=st.integers(1, 40), seed=st.integers(0, 2**30), power=st.integers(-9, 9))
def test_projections_are_exact_and_know_no_neighbours(d: int, m: int, n: int, seed: int, power: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    axes = torch.randn(d, m, generator=generator).double()
    mean = torch.rand(d, generator=generator).double()
    found = Subspace(mean, axes, torch.full((m,), 2.0**power).double(), 0.1, torch.ones(m).double())
    x = torch.rand(n, d, generator=generator)
    u = found.project(x)
    assert all(torch.equal(found.project(x[i : i + 1])[0], u[i]) for i in range(n))
    wrong = (u - (x.double() - mean) @ (axes / found.scales)).abs().max()
    assert float(wrong) <= 1e-5 * d * float((axes / found.scales).abs().max())


@pytest.mark.parametrize("d", [1, 3, 1000, 10_000])
def test_clipped_rows_of_many_features_are_not_longer_than_one(d: int) -> None:
    u = torch.rand(20, d, generator=torch.Generator().manual_seed(d)) + 1.0
    u[0] = 0.3 if d > 100 else 2.0  # all roundings the same way
    exact = [math.fsum(value**2 for value in row.tolist()) for row in clipped(u)]
    assert max(exact) <= 1.0
    assert min(exact) > 0.98


def test_more_records_than_int64_holds_are_refused(stream: RecordStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpgen.systems.gaussian.releases.MOST_RECORDS", len(stream.x))
    assert int(gram_sums(stream, by_label, k=5, m=3, border=1.0).values[:, 0, 0].sum()) == len(stream.x) * 2**36
    monkeypatch.setattr("dpgen.systems.gaussian.releases.MOST_RECORDS", len(stream.x) - 1)
    for sums in (gram_sums, vector_sums):
        with refused("more than 49 records"):
            sums(stream, by_label, k=5, m=3, border=1.0)


# -- streams -------------------------------------------------------------------------------------------------------------


def test_a_stream_is_all_records_each_time_it_is_read() -> None:
    x = torch.arange(10, dtype=torch.uint8).reshape(5, 2)
    stream = RecordStream(x, torch.arange(5), top=9.0, batch_size=2)
    for _ in range(2):
        assert torch.allclose(torch.cat([part for part, _ in stream]), x / 9.0)
        assert torch.cat([labels for _, labels in stream if labels is not None]).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("x", "labels"),
    [
        (torch.zeros(2, 4), None),
        (torch.tensor([[0.0, float("nan"), 1.0]]), None),
        (torch.tensor([[0.0, 2.0, 1.0]]), None),
        (torch.zeros(2, 3), None),
        (torch.zeros(2, 3), torch.tensor([0, 7])),
    ],
)
def test_bad_batches_are_refused(x: Tensor, labels: Tensor | None) -> None:
    with pytest.raises(ValueError, match=r"(x|labels) must"):
        list(checked([(x, labels)], 3, 2 if x.shape == (2, 3) else 0))
