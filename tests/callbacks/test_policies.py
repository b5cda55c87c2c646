"""Clipping policies: every record's term is at most 1, bounds are per cluster, state survives a checkpoint."""

import math

import pytest
import torch

from dpgen.callbacks import AutomaticClipping, BoundedClipping, Clipping, DPNorm

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


def test_automatic_clipping_normalises() -> None:
    policy = AutomaticClipping(stability=0.5)
    policy.begin(K)
    weights = policy.coefficients(torch.tensor([0.0, 1.5]), torch.tensor([0, 1]))
    assert weights.tolist() == [2.0, 0.5]
    assert policy.scale() is None
    assert policy.noise_multiplier is None
    assert policy.state_dict() == {}


def test_bounded_clipping_leaves_small_gradients_alone() -> None:
    """weight * bound is the factor of Abadi et al.: min(1, C / |g|), with each cluster's own C."""
    policy = BoundedClipping(bound=2.0)
    policy.load_state_dict({"bounds": torch.tensor([2.0, 4.0, 8.0])})
    policy.begin(K)
    norms, cluster = torch.tensor([1.0, 1.0, 5.0, 5.0, 5.0]), torch.tensor([0, 2, 0, 1, 2])
    factors = policy.coefficients(norms, cluster) * policy.scale()[cluster]
    assert torch.allclose(factors, torch.tensor([1.0, 1.0, 0.4, 0.8, 1.0]))


def test_bounds_start_equal_and_survive_a_round_trip() -> None:
    policy, restored = BoundedClipping(bound=3.0), BoundedClipping(bound=99.0)
    with pytest.raises(RuntimeError, match=r"begin\(k\) has not been called"):
        policy.bounds  # noqa: B018
    policy.begin(K)
    assert policy.scale().tolist() == [3.0] * K
    restored.load_state_dict(policy.state_dict())
    restored.begin(K)
    assert torch.equal(restored.bounds, policy.bounds)


def test_state_of_another_number_of_clusters_is_refused() -> None:
    policy = BoundedClipping()
    policy.load_state_dict({"bounds": torch.ones(4)})
    with pytest.raises(ValueError, match="has 4 clusters, the model has 3"):
        policy.begin(K)


def test_only_adaptive_policies_have_a_histogram() -> None:
    for policy in (AutomaticClipping(), BoundedClipping()):
        with pytest.raises(NotImplementedError, match="releases no histogram"):
            policy.histogram(NORMS, CLUSTER)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_bad_parameters_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="stability must be positive"):
        AutomaticClipping(stability=value)
    with pytest.raises(ValueError, match="bound must be positive and finite"):
        BoundedClipping(bound=value)
    with pytest.raises(ValueError, match="bound must be positive and finite, got inf"):
        BoundedClipping(bound=math.inf)
