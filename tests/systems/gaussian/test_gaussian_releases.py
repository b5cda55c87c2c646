"""Releases on principal axes: exact without noise, noise of the size that they state, and clean-up that knows it."""

import math
from typing import Any

import pytest
import torch
from fixed_source import FixedKeySource
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from torch import Tensor

from dpgen.privacy.curator import Curator, GaussianBudget
from dpgen.privacy.exact_sums import BoundedSum, clipped
from dpgen.privacy.ledger import Ledger
from dpgen.systems.gaussian.model import Subspace
from dpgen.systems.gaussian.plan import FULL, Sizes, allocated
from dpgen.systems.gaussian.releases import (
    BORDER,
    MEAN_BORDER,
    MEAN_SQUARE,
    Components,
    Location,
    Moments,
    RecordStream,
    centre_sums,
    centred_moments,
    checked,
    clean_covariance,
    gram_sums,
    location_sums,
    marginal_sums,
    nearest,
    pooled,
    release_centres,
    release_components,
    release_location,
    release_marginals,
    release_moments,
    release_subspace,
    shrunken,
    vector_sums,
)
from dpgen.systems.gaussian.sets import FrequentItems, item_sums, size_bins, size_histogram

GRAM = 1.0 + BORDER**2
"""Sensitivity of a bordered matrix."""
VECTOR = math.sqrt(GRAM)
"""Sensitivity of a bordered vector."""
SILENT = 1e-5


def paid(multiplier: float, seed: int = 0) -> dict[str, Any]:
    """All of a Gaussian of this multiplier."""
    budget = GaussianBudget(Curator(Ledger(None, delta=1e-5), source=FixedKeySource(seed)), multiplier, "fit")
    return {"budget": budget, "share": budget.left}


def by_label(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    return x, torch.zeros(len(x), dtype=torch.int64) if labels is None else labels


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def spread(values: list[float]) -> float:
    return float(torch.tensor(values).double().std())


# -- mean and axes -----------------------------------------------------------------------------------------------------


def test_location_carries_its_noise_and_gives_its_bias_back() -> None:
    """The spread is that around the noisy mean: noise adds to |mean|^2 what the spread would lose, and as much again."""
    n, d, multiplier, runs = 600, 100, 6.0, 100
    stream = RecordStream(torch.rand(n, d, generator=torch.Generator().manual_seed(0)), None)
    found = [release_location(stream, d, **paid(multiplier, seed)) for seed in range(runs)]
    noise_std = multiplier * math.sqrt(1 + MEAN_BORDER**2 + MEAN_SQUARE**2)
    assert spread([f.count for f in found]) == pytest.approx(noise_std / MEAN_BORDER, rel=0.25)
    means = torch.stack([f.mean for f in found])
    assert float(means.std(0).mean()) == pytest.approx(noise_std * math.sqrt(d) / 2 / n, rel=0.1)
    spreads = torch.tensor([f.spread for f in found]).double()
    given_back = 2 * d * (noise_std * math.sqrt(d) / 2 / n) ** 2
    assert float(spreads.mean()) == pytest.approx(d / 12 + given_back / 2, abs=0.4 * given_back)
    assert float(spreads.std()) == pytest.approx(noise_std / MEAN_SQUARE * d / 4 / n, rel=0.25)


def subspace(
    x: Tensor, multiplier: float, *, axes: int = 4, clip: float = 1.0, mean: float | Tensor = 0.5, **rows: Any
) -> Subspace:
    location = Location(float(len(x)), torch.zeros(x.shape[1]).double() + mean, 1.0)
    return release_subspace(RecordStream(x, None), location, axes=axes, radius=1.0, clip=clip, **rows, **paid(multiplier))


def test_without_noise_location_and_axes_are_exact_and_coordinates_have_norm_one_on_average() -> None:
    x = (normal(4000, 10) * torch.tensor([0.15, 0.08] + [0.01] * 8) + 0.4).clamp(0.0, 1.0)  # two axes stand out
    location = release_location(RecordStream(x, None), 10, **paid(SILENT))
    assert location.count == pytest.approx(4000, rel=1e-4)
    assert torch.allclose(location.mean, x.double().mean(0), atol=1e-5)
    assert location.spread == pytest.approx(float((x - x.mean(0)).square().sum(1).mean()), rel=1e-3)
    found, x = subspace(x, SILENT, axes=3, mean=x.double().mean(0)), x.double()
    values, vectors = torch.linalg.eigh((x - x.mean(0)).T @ (x - x.mean(0)) / 4000)
    assert torch.allclose(found.eigenvalues, values.flip(0)[:3], rtol=1e-3)
    assert abs(float(found.axes[:, 0] @ vectors[:, -1])) == pytest.approx(1.0, abs=1e-4)
    assert torch.allclose(found.axes.T @ found.axes, torch.eye(3).double(), atol=1e-9)
    u = found.project(x.float())
    assert float(u.square().sum(1).mean()) == pytest.approx(1.0, rel=0.01)
    back = found.place(u) - found.mean
    assert torch.allclose(back @ found.axes, (x - found.mean) @ found.axes, atol=1e-5)


def test_coordinates_see_records_on_a_grid_only() -> None:
    """So that float64 holds every sum of products, in whatever order a library adds them."""
    x = torch.rand(50, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = subspace(x, 1e-3, axes=40, clip=5.0, mean=x.mean(0))
    grid = 2.0**21  # 43 bits are left beside sums over 300 columns: half of them for records
    assert torch.equal(found.project(x), found.project((x * grid).round() / grid))


@pytest.mark.parametrize("clip", [0.5, 2.0])
def test_the_edge_is_where_noise_alone_ends(clip: float) -> None:
    found = subspace(torch.full((50, 80), 0.5), 3.0, clip=clip)
    assert 0.85 < float(found.eigenvalues[0]) / found.edge < 1.1
    assert found.edge == pytest.approx(3.0 * math.sqrt(2 * 80) * clip**2 / 50.0)


def test_axes_that_noise_hides_are_not_magnified() -> None:
    """Their eigenvalues, below 0 here, count as .3 of the edge."""
    found = subspace(torch.full((50, 80), 0.5), 3.0, axes=60)
    assert float(found.eigenvalues[-1]) < 0
    assert float(found.scales.max() / found.scales.min()) == pytest.approx((1 / 0.3) ** 0.25, rel=0.15)


def test_clip_radii_leave_out_what_noise_adds_to_an_axis() -> None:
    """A spike of size s beside noise of edge e = 1.6 s shows up as s + e^2 / 4 s, 1.64 s; the radius is that of s."""
    n, d, spike = 2000, 60, 0.09
    x = torch.full((n, d), 0.5)
    x[:, 0] += torch.where(torch.arange(n) % 2 == 0, 0.3, -0.3)
    found = subspace(x, 1.6 * spike * n / math.sqrt(2 * d), axes=1)
    assert float(found.eigenvalues[0]) == pytest.approx(1.64 * spike, rel=0.1)
    assert float(found.scales[0]) == pytest.approx(spike**0.5, rel=0.1)


def test_axes_within_public_rows_hold_less_noise_and_the_signal_that_is_there() -> None:
    """The edge falls with the root of the rows; an axis in their span is found where among all directions it is lost."""
    d, r = 400, 40
    within = torch.linalg.qr(normal(d, d).double())[0][:r]
    axis = within[:5].sum(0) / 5**0.5
    x = 0.5 + 0.2 * normal(3000, 1, seed=1) * axis.float() + 0.01 * normal(3000, d, seed=2)
    found = [subspace(x, 7.0, axes=3, mean=x.double().mean(0), within=rows) for rows in (None, within)]
    assert found[1].edge == pytest.approx(found[0].edge * (r / d) ** 0.5)
    seen = [abs(float(one.axes[:, 0] @ axis)) for one in found]
    assert seen[1] > 0.85 > 0.75 > seen[0]
    assert torch.allclose(found[1].axes.T @ found[1].axes, torch.eye(3).double(), atol=1e-9)
    assert torch.allclose(within.T @ within @ found[1].axes, found[1].axes, atol=1e-9)


# -- moments -----------------------------------------------------------------------------------------------------------


def stream(n: int = 6000) -> RecordStream:
    """Class 0: two tight groups on the first axis; class 1: one round group."""
    labels = torch.arange(n) % 2
    side = torch.where(torch.arange(n) % 4 < 2, 0.5, -0.5)
    x = 0.08 * normal(n, 3)
    x[:, 0] += torch.where(labels == 0, side, 0.0)
    return RecordStream(x, labels)


def moments(records: RecordStream, multiplier: float, *, k: int = 1, seed: int = 0) -> Moments:
    return release_moments(records, by_label, k=k, m=records.x.shape[1], note="moments", **paid(multiplier, seed))


def still(n: int, m: int, k: int = 1) -> RecordStream:
    """Records at 0 in k classes of the same size."""
    return RecordStream(torch.zeros(n, m), torch.arange(n) % k)


def test_without_noise_moments_are_exact() -> None:
    found, x = moments(stream(), SILENT, k=2), stream().x.double()
    assert torch.allclose(found.means[0], x[0::2].mean(0), atol=1e-4)
    assert torch.allclose(found.covariances[0], x[0::2].T.cov(correction=0), atol=1e-4)
    assert torch.allclose(pooled(found).covariances[0], x.T.cov(correction=0), atol=1e-4)


def test_moments_carry_their_noise_and_know_it() -> None:
    found = moments(still(400, 80), 3.0)
    assert found.noise_std == pytest.approx(3.0 * GRAM)
    assert 0.85 < float(torch.linalg.eigvalsh(found.covariances[0])[-1]) / float(found.edges[0]) < 1.15
    counts = [float(moments(still(400, 1), 3.0, seed=seed).counts) for seed in range(60)]
    assert spread(counts) == pytest.approx(3.0 * GRAM / BORDER**2, rel=0.25)


def test_a_component_is_detected_from_four_deviations_on() -> None:
    std = 2.0 * GRAM / BORDER**2
    found = Moments(torch.tensor([3.9, 4.1]) * std, torch.zeros(2, 1), torch.zeros(2, 1, 1), 2.0 * GRAM)
    assert found.detected.tolist() == [False, True]


def test_pooled_moments_have_the_noise_of_all_components() -> None:
    """Their edge is where the largest eigenvalue of pure noise is, for many components and not for one only."""
    found = moments(still(16 * 200, 60, 16), 2.0, k=16)
    whole = pooled(found)
    assert whole.noise_std == pytest.approx(found.noise_std * 4.0)
    assert 0.8 < float(torch.linalg.eigvalsh(whole.covariances[0])[-1]) / float(whole.edges[0]) < 1.2


def test_clean_up_keeps_what_stands_out() -> None:
    values, _, rest = clean_covariance(torch.diag(torch.tensor([0.2, 5.0, -0.4, 0.6]).double()), 1.0)
    assert values.tolist() == [5.0, 0.0, 0.0, 0.0]
    assert rest == pytest.approx(0.4 / 3)
    assert clean_covariance(torch.zeros(2, 2).double(), 1.0)[2] == pytest.approx(1e-3), "never 0"


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_shrinkage_weighs_a_distance_by_the_noise_that_explains_it(factor: float) -> None:
    m, noise_std = 40, 0.01
    noise, target = normal(m, m).double() * noise_std, torch.eye(m).double()
    covariance = target + factor * (noise + noise.T) / 2  # std noise_std on the diagonal, / sqrt 2 elsewhere
    moved = torch.linalg.eigvalsh(covariance)[-1] - 1
    left = float((shrunken(covariance, target, noise_std)[0][0] - 1) / moved)
    assert left == pytest.approx(max(0.0, 1 - factor**-2), abs=0.12)
    assert float(shrunken(-target, target, 1e-6)[0].min()) > 0


def components(multiplier: float, k: int = 2, subclusters: int = 1) -> Components:
    options = paid(multiplier)
    shares = allocated(FULL if subclusters > 1 else {"components": 1.0}, options.pop("share"))
    generator = torch.Generator().manual_seed(1)
    options |= {"k": k, "sizes": Sizes(3, subclusters), "cut": 0.6}
    return release_components(stream(), by_label, generator=generator, shares=shares, **options)


def test_subclusters_keep_mean_and_spread_of_their_class() -> None:
    found = components(0.2, subclusters=2)
    own = found.classes == 0
    weights, means = found.mixture.weights[own] / found.mixture.weights[own].sum(), found.mixture.means[own]
    mean, draws = weights @ means, found.mixture.filled()
    inside = [float(draws.draw(int(j), 20_000, torch.Generator())[:, 0].var()) for j in own.nonzero()]
    whole = float(weights @ torch.tensor(inside).double() + weights @ (means - mean).square()[:, 0])
    x = stream().x[0::2].double()
    assert torch.allclose(mean, x.mean(0), atol=0.03)
    assert whole == pytest.approx(float(x[:, 0].var()), rel=0.1)
    assert float(found.mixture.weights.sum()) == pytest.approx(1.0)


# -- k-means inside classes --------------------------------------------------------------------------------------------


def test_assignment_is_to_the_nearest_centre_of_the_own_class() -> None:
    centres, u, classes = normal(3, 4, 2).double(), clipped(normal(50, 2, seed=1)), torch.arange(50) % 3
    slow = [c * 4 + int((centres[c] - x).norm(dim=1).argmin()) for x, c in zip(u, classes.tolist())]
    assert nearest(by_label, centres)(u, classes)[1].tolist() == slow


def test_ties_fall_the_same_way_in_any_batch() -> None:
    """Otherwise one record less could move many others from one cluster to another."""
    u, near = clipped(normal(300, 40)), normal(40, seed=1).double() * math.pi / 10
    assign = nearest(by_label, torch.stack([near, -near, near.roll(1), near + 1e-12, near - 1e-12])[None])
    u = torch.cat([u, torch.zeros(5, 40), u - u.flip(0)])
    whole = assign(u, None)[1]
    assert not bool((whole >= 3).any()), "on the grid they are the first centre: a tie, which the first one wins"
    for size in (1, 3, 7):
        assert torch.equal(torch.cat([assign(part, None)[1] for part in u.split(size)]), whole)


def test_rounds_find_clusters_and_an_empty_class_stays_where_it_was() -> None:
    truth = torch.tensor([[0.5, 0.5], [-0.5, 0.5]])
    u = truth[torch.arange(2000) % 2] + 0.05 * normal(2000, 2)
    start = torch.tensor([[[0.2, 0.1], [-0.2, 0.1]], [[0.0, 0.3], [0.3, 0.0]]]).double()
    options = paid(2.0)
    found = release_centres(RecordStream(u, torch.zeros(2000).long()), by_label, start, rounds=3, **options)
    assert torch.allclose(found[0].float(), truth, atol=0.08)
    assert torch.equal(found[1], start[1])
    assert sum(entry.count for entry in options["budget"].curator.ledger.entries()) == 3


@pytest.mark.parametrize(("deviations", "moves"), [(2.0, False), (4.5, True)])
def test_a_centre_moves_from_three_deviations_on(deviations: float, moves: bool) -> None:
    multiplier, start = 20.0, torch.zeros(1, 1, 2).double()
    records = RecordStream(torch.full((round(deviations * multiplier * VECTOR / BORDER), 2), 0.5), None)
    found = [release_centres(records, by_label, start, rounds=1, **paid(multiplier, seed)) for seed in range(20)]
    moved = sum(bool(centres.any()) for centres in found)
    assert moved > 15 if moves else moved < 6


# -- bits --------------------------------------------------------------------------------------------------------------


def test_without_noise_marginals_are_exact() -> None:
    x, labels = (torch.rand(3000, 5, generator=torch.Generator().manual_seed(0)) < 0.4).byte(), torch.arange(3000) % 3
    counts, p = release_marginals(RecordStream(x, labels), 5, k=3, **paid(1e-6))
    assert counts.tolist() == pytest.approx([1000.0] * 3, abs=0.1)
    assert torch.allclose(p[1], x[labels == 1].double().mean(0), atol=1e-4)


# -- sums --------------------------------------------------------------------------------------------------------------


A = 0.5


def signed_by_label(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    assert labels is not None
    return x * 2.0 - 1.0, labels


@pytest.fixture
def labelled() -> RecordStream:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(50, 3, generator=generator)
    return RecordStream(x, torch.arange(50) % 4, batch_size=7)


def slow(labelled: RecordStream, k: int) -> tuple[Tensor, Tensor]:
    """Sums record by record."""
    grams, sums = torch.zeros(k, 4, 4).double(), torch.zeros(k, 5).double()
    assert labelled.labels is not None
    for x, c in zip(labelled.x.double() * 2 - 1, labelled.labels.tolist()):
        u = x / max(1.0, float(x.norm()))
        v = torch.cat([torch.tensor([A]).double(), u])
        grams[c] += torch.outer(v, v)
        sums[c] += torch.cat([v, 0.3 * u.square().sum()[None]])
    return grams, sums


def real(sums: BoundedSum) -> Tensor:
    return sums.values.double() * sums.step


def test_sums_are_those_of_a_loop_whatever_the_batches(labelled: RecordStream) -> None:
    grams, sums = slow(labelled, 5)
    assert torch.allclose(real(gram_sums(labelled, signed_by_label, k=5, m=3, border=A)), grams, atol=1e-4)
    assert torch.allclose(real(gram_sums(labelled, signed_by_label, k=5, m=3, border=0.0)), grams[:, 1:, 1:], atol=1e-4)
    assert torch.allclose(real(vector_sums(labelled, signed_by_label, k=5, m=3, border=A, square=0.3)), sums, atol=1e-4)
    assert torch.allclose(real(vector_sums(labelled, signed_by_label, k=5, m=3, border=A)), sums[:, :-1], atol=1e-4)
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


def test_more_records_than_int64_holds_are_refused(labelled: RecordStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpgen.systems.gaussian.releases.MOST_RECORDS", len(labelled.x))
    assert int(gram_sums(labelled, signed_by_label, k=5, m=3, border=1.0).values[:, 0, 0].sum()) == len(labelled.x) * 2**36
    monkeypatch.setattr("dpgen.systems.gaussian.releases.MOST_RECORDS", len(labelled.x) - 1)
    for sums in (gram_sums, vector_sums):
        with refused("more than 49 records"):
            sums(labelled, signed_by_label, k=5, m=3, border=1.0)


# -- streams -------------------------------------------------------------------------------------------------------------


def test_a_stream_is_all_records_each_time_it_is_read() -> None:
    x = torch.arange(10, dtype=torch.uint8).reshape(5, 2)
    labelled = RecordStream(x, torch.arange(5), top=9.0, batch_size=2)
    for _ in range(2):
        assert torch.allclose(torch.cat([part for part, _ in labelled]), x / 9.0)
        assert torch.cat([labels for _, labels in labelled if labels is not None]).tolist() == [0, 1, 2, 3, 4]


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
