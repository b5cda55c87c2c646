"""Noisy sums: against loops, and audited with worst-case neighbours beside mechanisms that must be caught."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import BoundedSum, clipped
from dpgen.privacy.ledger import Ledger
from dpgen.systems.gaussian.model import Subspace
from dpgen.systems.gaussian.releases import Location, centre_sums, centred_moments, location_sums, marginal_sums, pair_sums
from dpgen.systems.gaussian.sets import FrequentItems, item_sums, size_bins, size_histogram
from dpgen.systems.gaussian.sums import RecordStream, checked, gram_sums, vector_sums

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


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("square", [0.0, 0.3, 1.0])
def test_a_replaced_vector_moves_sums_by_what_is_stated(k: int, square: float) -> None:
    """Against a grid of all lengths and angles of two vectors, in one cluster or in two."""
    stated = vector_sums([], by_label, k=k, m=2, border=A, square=square)
    p, q, cosine = torch.meshgrid(*[torch.linspace(low, 1, 41).double() for low in (0, 0, -1)], indexing="ij")
    one = p**2 + q**2 - 2 * p * q * cosine + square**2 * (p**2 - q**2) ** 2
    two = 2 * A**2 + p**2 + q**2 + square**2 * (p**4 + q**4)
    most = float(torch.maximum(one, two).max() if k > 1 else one.max()) ** 0.5
    assert stated.under("replace_one") == pytest.approx(most, rel=1e-9)
    assert stated.under("add_remove") == pytest.approx((A**2 + 1 + square**2) ** 0.5, rel=1e-9)


# -- audit -----------------------------------------------------------------------------------------------------------


def lower_mu(release: "Release", extra: Tensor, runs: int = 4000) -> float:
    """A lower bound (99.9999 %) on mu of Gaussian-DP: separation of the two worlds along their difference of means."""
    base = torch.zeros(0, extra.shape[1])
    without, present = (release(x, runs) for x in (base, torch.cat([base, extra])))
    direction = release.exact(extra) - release.exact(base)
    direction = direction / direction.norm()
    a, b = without @ direction, present @ direction
    spread = float((a.std() + b.std()) / 2)
    return float(b.mean() - a.mean()) / spread - 5.0 * math.sqrt(2.0 / runs)


class Release:
    """(count, mean, second moment) in two dimensions with unit noise multiplier: sound, or wrong in one way."""

    def __init__(self, wrong: str = "") -> None:
        self.wrong, self.curator = wrong, Curator(Ledger(None, delta=1e-5))

    def sums(self, x: Tensor) -> BoundedSum:
        def encode(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
            centre = x.mean(0) if self.wrong == "private centre" and len(x) else torch.zeros(2)
            u = x - centre if self.wrong == "private centre" else x
            return u if self.wrong != "unclipped" else u / 3.0, torch.zeros(len(x), dtype=torch.int64)

        sums = gram_sums([(x, None)], encode, k=1, m=2, border=A)
        if self.wrong == "second moment only":
            return replace(sums, sensitivity=1.0, replaced=None)
        if self.wrong == "one triangle":  # of the plain matrix: off-diagonal entries count twice
            upper = torch.triu(torch.ones(3, 3, dtype=torch.int64))
            return replace(sums, values=sums.values * upper, sensitivity=sums.sensitivity / 2**0.5, replaced=None)
        return replace(sums, values=sums.values * 9) if self.wrong == "unclipped" else sums

    def exact(self, x: Tensor) -> Tensor:
        return real(self.sums(x)).flatten()

    def __call__(self, x: Tensor, runs: int) -> Tensor:
        """Independent runs of the release, as one."""
        sums = self.sums(x)
        repeated = replace(sums, values=sums.values.repeat(runs, 1, 1))
        return self.curator.gaussian("moments", repeated, 1.0).reshape(runs, -1)


WORST = torch.tensor([[1.0, 0.0]])


def test_the_release_costs_what_it_claims_and_not_much_less() -> None:
    assert 0.8 < lower_mu(Release(), WORST * 10.0) <= 1.0


@pytest.mark.parametrize("wrong", ["second moment only", "one triangle"])
def test_a_wrong_sensitivity_is_caught(wrong: str) -> None:
    assert lower_mu(Release(wrong), WORST) > 1.0


def test_a_missing_clip_is_caught() -> None:
    assert lower_mu(Release("unclipped"), WORST * 3.0, runs=500) > 3.0


def test_centring_with_a_private_mean_is_caught() -> None:
    """One record moves the mean, and with it what every other record adds: no sensitivity of one record covers that."""

    def moved(wrong: bool) -> float:
        others = torch.tensor([[0.4, 0.0], [-0.4, 0.0]]).repeat(200, 1)
        release = Release("private centre" if wrong else "")
        return float((release.exact(torch.cat([others, torch.tensor([[300.0, 0.0]])])) - release.exact(others)).norm())

    assert moved(False) <= 1 + A**2
    assert moved(True) > 10 * (1 + A**2)


# -- rounding --------------------------------------------------------------------------------------------------------


def grey(n: int, d: int) -> Tensor:
    block = torch.randint(0, 256, (512, d), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return block.repeat(-(-n // 512), 1)[:n]


def centred(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    return x - 0.4, torch.zeros(len(x), dtype=torch.int64)


@pytest.mark.parametrize("border", [0.0, A])
def test_removing_a_record_moves_the_sum_by_its_own_term_alone(border: float) -> None:
    """The first record shifts every batch, and with it all rounding of sums that are not exact."""
    x = grey(5001, 64)

    def sums(x: Tensor) -> tuple[Tensor, Tensor]:
        stream = RecordStream(x, None, top=255.0, batch_size=1000)
        grams = gram_sums(stream, centred, k=1, m=64, border=border)
        return grams.values, vector_sums(stream, centred, k=1, m=64, border=border, square=0.3).values

    for whole, rest, alone in zip(sums(x), sums(x[1:]), sums(x[:1])):
        assert torch.equal(whole, rest + alone)


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
        pair_sums(on, D),
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
    monkeypatch.setattr("dpgen.systems.gaussian.sums.MOST_RECORDS", len(stream.x))
    assert int(gram_sums(stream, by_label, k=5, m=3, border=1.0).values[:, 0, 0].sum()) == len(stream.x) * 2**36
    monkeypatch.setattr("dpgen.systems.gaussian.sums.MOST_RECORDS", len(stream.x) - 1)
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
