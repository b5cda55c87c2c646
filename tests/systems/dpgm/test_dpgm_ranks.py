"""DPGM on several processes: the update has the distribution of one process, and twins that get it wrong are rejected."""

import math
from typing import Any

import pytest
from scipy.stats import chi2

Results = dict[int, dict[str, Any]]
N, Q, STEPS, CHANCE = 61, 0.5, 150, 1e-8
"""Of `rank_checks.py`; a false alarm is as likely as CHANCE, per statistic."""


def rejected(moments: dict[str, float], degrees: int) -> set[str]:
    """Statistics that the joint step of one process cannot have: Binomial(n, q) + N(0, 1) along the common gradient of
    all records, N(0, 1) across it."""
    variance = N * Q * (1 - Q) + 1.0
    found = set()
    if abs(moments["mean"] - N * Q) > 6 * math.sqrt(variance / STEPS):
        found.add("mean")
    for name, expected, freedom in (("variance", variance, STEPS - 1), ("noise", 1.0, degrees)):
        low, high = (float(chi2.ppf(p, freedom)) / freedom for p in (CHANCE, 1 - CHANCE))
        if not low <= moments[name] / expected <= high:
            found.add(name)
    return found


def test_updates_have_the_distribution_of_one_process(rank_results: Results) -> None:
    seen = rank_results[2]["updates"][0]
    assert rejected(seen["honest"], seen["degrees"]) == set()


def test_one_process_passes_the_same_test(rank_results: Results) -> None:
    of_two = rank_results[2]
    assert rejected(of_two["other_updates"][0]["one process"], of_two["updates"][0]["degrees"]) == set()


@pytest.mark.parametrize(
    ("twin", "caught"), [("equal masks", "variance"), ("noise on every rank", "noise"), ("noise / W", "noise")]
)
def test_twins_are_rejected(rank_results: Results, twin: str, caught: str) -> None:
    of_two = rank_results[2]
    assert caught in rejected(of_two["other_updates"][0][twin], of_two["updates"][0]["degrees"])


@pytest.mark.parametrize("count", [2, 3])
def test_sums_and_histograms_of_all_ranks_are_those_of_one(rank_results: Results, count: int) -> None:
    """Also of one or two records, where some ranks have none."""
    for rank in rank_results[count]["exact_sums"]:
        for name, (difference, same_histogram) in rank.items():
            assert difference < 1e-4, name
            assert same_histogram, name


@pytest.mark.parametrize("count", [2, 3])
def test_every_record_is_on_one_rank(rank_results: Results, count: int) -> None:
    seen = rank_results[count]["shards"]
    for n in (1, 2, 7, N):
        assert sorted(row for rank in seen for row in rank[str(n)]) == list(range(n))


@pytest.mark.parametrize(
    ("count", "name"),
    [
        *((2, name) for name in ("vae labels", "rbm labels dpnorm", "vae kmeans", "vae labels bf16", "two records")),
        *((3, name) for name in ("vae labels", "two records")),
    ],
)
def test_parameters_sizes_and_charges_are_equal_on_all_ranks(rank_results: Results, count: int, name: str) -> None:
    first, *others = (rank[name] for rank in rank_results[count]["training"])
    assert first["steps"] == 6
    assert first["charged"]["training steps"] == 6, "a step is charged once, not once per rank"
    assert len(first["theta"]) > 100
    assert all(other == first for other in others), "bit for bit"


def test_epsilon_does_not_depend_on_the_number_of_ranks(rank_results: Results) -> None:
    values = [rank_results[count]["training"][0]["vae labels"]["epsilon"] for count in (2, 3)]
    assert values[0] == values[1]


def test_a_signal_to_one_rank_stops_all_and_resume_replays_nothing(rank_results: Results) -> None:
    first, second = rank_results[2]["preempted_and_resumed"]
    for part, steps in (("first", 2), ("second", 6)):
        assert first[part] == second[part]
        assert first[part]["steps"] == first[part]["charged"]["training steps"] == steps
    assert first["second"]["charged"]["cluster sizes"] == 1
    assert "an older copy" in first["refused"]
    assert second["refused"].startswith("RemoteFailure: rank 0 stopped: LedgerError")


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("sampler", "use_distributed_sampler must be False"),
        ("records", "the records must be the same for all 2 processes"),
        ("configuration", "the configuration and the checkpoint must be the same for all 2 processes"),
    ],
)
def test_what_would_break_the_shards_is_refused_on_all_ranks(rank_results: Results, what: str, why: str) -> None:
    assert all(why in rank[what] for rank in rank_results[2]["refusals"])


def test_ranks_never_draw_the_same_masks(rank_results: Results) -> None:
    """Their shards hold equal records and the public seed is one: equal draws would be equal lists."""
    first, second = rank_results[2]["masks"]
    assert len(first) == len(second) == 6
    assert all(a != b for a, b in zip(first, second))
    assert rank_results[2]["before"] == [0]


@pytest.mark.parametrize("name", ["records", "people"])
def test_a_module_of_ones_own_is_trained_as_by_one_process(rank_results: Results, name: str) -> None:
    first, second = (rank[name] for rank in rank_results[2]["own_module"])
    assert first["apart"] < 1e-5, "norms are overstated by a few millionths"
    assert first["shares"] < 1e-6
    assert first["same"] == second["same"], "bit for bit"
    assert first["same"]["charged"] == {"cluster sizes": 1, "training steps": 3}
