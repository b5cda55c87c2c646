"""Clipping policies: every record's term is at most 1, bounds are per cluster; histograms have sensitivity 1."""

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fixed_source import FixedKeySource
from refusals import refused
from torch import Tensor

from dpgen.callbacks import AutomaticClipping, BoundedClipping, Clipping, DPNorm, Previews
from dpgen.callbacks.accountant import Checkpoint
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.sampling import PoissonMask

K = 3
NORMS = torch.tensor([0.0, 1e-30, 1e-6, 0.5, 1.0, 2.0, 1e6, 3e38, math.inf, math.nan])
CLUSTER = torch.arange(len(NORMS)) % K
POLICIES = [
    AutomaticClipping(),
    AutomaticClipping(stability=1e-12),
    BoundedClipping(bound=0.3),
    BoundedClipping(bound=1e6),
    DPNorm(),
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_term_is_at_most_one_and_non_finite_gradients_count_nothing(policy: Clipping, dtype: torch.dtype) -> None:
    policy.begin(K)
    weights = policy.coefficients(NORMS.to(dtype), CLUSTER)
    finite = torch.isfinite(NORMS)
    assert weights.dtype == dtype
    assert bool((weights[finite] * NORMS[finite].to(dtype) <= 1 + 1e-6).all())
    assert bool((weights[~finite] == 0).all())
    assert bool((weights >= 0).all())


def test_bounded_clipping_leaves_small_gradients_alone() -> None:
    """weight * bound is the factor of Abadi et al.: min(1, C / |g|), with each cluster's own C."""
    policy = BoundedClipping(bound=2.0)
    policy.load_state_dict({"bounds": torch.tensor([2.0, 4.0, 8.0])})
    policy.begin(K)
    norms, cluster = torch.tensor([1.0, 1.0, 5.0, 5.0, 5.0]), torch.tensor([0, 2, 0, 1, 2])
    factors = policy.coefficients(norms, cluster) * policy.scale()[cluster]
    assert torch.allclose(factors, torch.tensor([1.0, 1.0, 0.4, 0.8, 1.0]))


def test_a_state_is_of_its_number_of_clusters_and_begins() -> None:
    policy = BoundedClipping()
    with refused("begin", error=RuntimeError):
        policy.bounds  # noqa: B018
    policy.load_state_dict({"bounds": torch.ones(4)})
    with refused("clusters"):
        policy.begin(K)
    with refused("histogram", error=NotImplementedError):
        policy.histogram(NORMS, CLUSTER)


def lognormal(count: int, median: float, seed: int, spread: float = 0.15) -> Tensor:
    return median * (spread * torch.randn(count, generator=torch.Generator().manual_seed(seed))).exp()


def chosen(policy: DPNorm, medians: Tensor, *, per_cluster: int, steps: int) -> Iterator[Tensor]:
    """Bounds (k,) after every step on norms around the clusters' medians."""
    policy.begin(len(medians))
    curator = Curator(Ledger(None, delta=1e-5), source=FixedKeySource(3))
    cluster = torch.arange(len(medians)).repeat_interleave(per_cluster)
    for step in range(steps):
        norms = lognormal(len(cluster), 1.0, step) * medians[cluster]
        with curator.draw("step", PoissonMask(0.5), {"norms": policy.noise_multiplier}) as draw:
            policy.observe(draw.gaussian("norms", policy.histogram(norms, cluster)))
        yield policy.bounds.clone()


def share_right(policy: DPNorm, per_cluster: int) -> float:
    """How often the bound lies within a factor of 1.5 of the median norm, after the window has filled."""
    medians = torch.tensor([1.0, 2.5, 5.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bounds = list(chosen(policy, medians, per_cluster=per_cluster, steps=policy.window + 60))
    ratio = torch.stack(bounds[policy.window :]) / medians
    return float(((ratio < 1.5) & (ratio > 1 / 1.5)).double().mean())


# -- histograms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bins", [20, 4])
def test_a_histogram_is_the_sum_of_its_records_in_any_order(bins: int) -> None:
    policy = DPNorm(bins=bins)
    policy.begin(K)
    norms, cluster = lognormal(500, 2.0, 1, spread=2.0), torch.arange(500) % K
    order = torch.randperm(500, generator=torch.Generator().manual_seed(0))
    whole = policy.histogram(norms, cluster).values
    assert torch.equal(policy.histogram(norms[order], cluster[order]).values, whole)
    assert torch.equal(sum(policy.histogram(n[None], c[None]).values for n, c in zip(norms, cluster)), whole)


@pytest.mark.parametrize("bins", [20, 4])
def test_no_norm_is_at_an_edge(bins: int) -> None:
    """A last bit of a norm moves next to nothing, wherever it is; hard bins, the broken twin, move by sqrt 2 at an edge."""
    policy = DPNorm(bins=bins)
    policy.begin(1)
    edges = policy.edges
    norms = torch.cat([edges, policy.centres, torch.tensor([1e-30, 3.0, 1e20])])
    nobody = torch.zeros(1, dtype=torch.int64)

    def moved(histogram: Any) -> float:
        pairs = [(histogram(n[None]), histogram(n[None].nextafter(torch.tensor(torch.inf)))) for n in norms]
        return max(float((a - b).double().norm()) for a, b in pairs)

    assert moved(lambda n: policy.histogram(n, nobody).values * policy.histogram(n, nobody).step) < 1e-4
    hard = torch.nn.functional.one_hot
    assert moved(lambda n: hard(torch.bucketize(n, edges), len(edges) + 1)) == pytest.approx(math.sqrt(2.0))


def test_a_norm_is_shared_by_the_bins_that_it_lies_between() -> None:
    """Edges of .01, .1, 1, 10 and centres half a decade below each, and above the last."""
    policy = DPNorm(c_max=10.0, bins=4)
    policy.begin(2)
    torch.testing.assert_close(policy.edges, torch.tensor([0.01, 0.1, 1.0, 10.0]))
    torch.testing.assert_close(policy.centres, 10.0 ** torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5]))
    middle = float(policy.centres[1:3].mean())
    norms = torch.tensor([0.0, float(policy.centres[0]), middle, 99.0])
    counts = [policy.histogram(x[None], torch.zeros(1, dtype=torch.int64)) for x in norms]
    cells = torch.stack([(one.values * one.step)[0] for one in counts])
    torch.testing.assert_close(cells[:2, 0], torch.ones(2))
    torch.testing.assert_close(cells[2], torch.tensor([0.0, 0.5, 0.5, 0.0, 0.0]), atol=1e-6, rtol=0)
    assert cells[3].tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert policy.histogram(norms[:0], norms[:0].long()).values.tolist() == [[0] * 5] * 2


def test_a_norm_that_changes_a_little_moves_the_histogram_by_its_steepness() -> None:
    policy, change = DPNorm(), 1e-3
    policy.begin(1)
    moved = []
    for norm in torch.cat([policy.centres, torch.logspace(-3, 1, 200)]).double():
        one, two = (policy.histogram(n[None], torch.tensor([0])) for n in (norm, norm * (1 - change)))
        moved.append(float((one.values - two.values).double().norm()) * one.step)
    assert 0.99 * change * policy.steepness < max(moved) <= change * policy.steepness * (1 + 1e-6) + 2.0**-19


# -- DPNorm ----------------------------------------------------------------------------------------------------------


def test_dpnorm_finds_the_right_bin_under_noise() -> None:
    assert share_right(DPNorm(), per_cluster=40) > 0.99
    assert share_right(DPNorm(window=1), per_cluster=10) < 0.8, "a single step among ten records is mostly noise"


def test_the_bound_is_the_upper_edge_of_the_fullest_bin_of_the_window() -> None:
    policy = DPNorm(c_max=10.0, bins=4, window=2, noise_multiplier=1e-3)
    policy.begin(1)
    low, high = torch.zeros(1, 5), torch.zeros(1, 5)
    low[0, 0], high[0, 2] = 10, 8
    seen = []
    for released in (low, high, high, high):
        policy.observe(released)
        seen.append(float(policy.bounds[0]))
    assert seen == pytest.approx([0.01, 0.01, 1.0, 1.0])


def test_overflow_clips_at_c_max_and_warns_once() -> None:
    policy = DPNorm(noise_multiplier=1.0, c_max=10.0, window=1)
    policy.begin(2)
    released = torch.zeros(2, 21, dtype=torch.int64)
    released[0, 20], released[1, 5] = 500, 500
    with pytest.warns(UserWarning, match="c_max=10"):
        policy.observe(released)
    assert float(policy.bounds[0]) == 10.0
    assert float(policy.bounds[1]) < 1.0
    policy.observe(released)  # a second warning would be an error here


def test_a_histogram_of_noise_alone_warns() -> None:
    policy = DPNorm(noise_multiplier=10.0, window=2)
    with pytest.warns(UserWarning, match="within the noise"):
        list(chosen(policy, torch.ones(K), per_cluster=0, steps=4))


def test_enough_records_do_not_warn() -> None:
    list(chosen(DPNorm(), torch.tensor([0.1, 0.9, 5.0]), per_cluster=200, steps=30))


# -- state -----------------------------------------------------------------------------------------------------------


def test_state_continues_as_if_never_stopped() -> None:
    first, second = DPNorm(), DPNorm()
    generator = torch.Generator().manual_seed(0)
    # nothing above c_max, which would warn
    histograms = [torch.nn.functional.pad(torch.randint(0, 500, (K, 2), generator=generator), (5, 14)) for _ in range(15)]
    first.begin(K)
    for released in histograms[:12]:
        first.observe(released)
    second.load_state_dict(first.state_dict())
    second.begin(K)
    assert torch.equal(first.bounds, second.bounds)
    for released in histograms[12:]:
        first.observe(released)
        second.observe(released)
    assert torch.equal(first.bounds, second.bounds)


BAD: list[tuple[Any, dict[str, Any]]] = [
    *((AutomaticClipping, {"stability": value}) for value in (0.0, -1.0, math.nan)),
    *((BoundedClipping, {"bound": value}) for value in (0.0, -1.0, math.nan, math.inf)),
    *((DPNorm, {"noise_multiplier": value}) for value in (0.0, math.nan)),
    (DPNorm, {"bins": 1}),
    (DPNorm, {"window": 0}),
    (lambda every: Previews(torch.zeros, image_shape=(2, 2), every=every), {"every": 0}),
    (lambda every: Checkpoint(Path("last.ckpt"), every=every), {"every": 0}),
]


@pytest.mark.parametrize(("kind", "options"), BAD)
def test_bad_parameters_are_refused(kind: Any, options: dict[str, Any]) -> None:
    with refused(*options):
        kind(**options)
