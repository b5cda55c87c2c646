"""Noisy marginals: one record moves them by the sensitivity at most, and much data shows the truth."""

from itertools import product

import pytest
import tiny
import torch

from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.mechanisms import GaussianMechanism
from dpgen.privacy.noise import PublicRandomness, SecureSource
from dpgen.runtime import Runtime
from dpgen.systems.marginals.noisy_marginals import (
    MarginalsConfig,
    MarginalsPlan,
    fit,
    noisy_marginals,
    truncated,
)
from dpgen.systems.registry import load_model

D = 4


class Seen(Exception):
    """Carries what was about to be noised."""


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch):
    """Function from records and rows to the exact values of the release and its sensitivity."""

    def look(mechanism, exact, source):
        raise Seen(exact, mechanism.sensitivity)

    monkeypatch.setattr(GaussianMechanism, "release", look)

    def release(x, row, max_items):
        ledger = Ledger(None, delta=1e-5)
        with pytest.raises(Seen, match="tensor") as seen:
            noisy_marginals(x, row, 2, ledger=ledger, noise_multiplier=1.0, source=SecureSource(), max_items=max_items)
        return seen.value.args

    return release


def worst_move(values, max_items, records):
    """Largest L2 change when one record of `records` joins, over the sensitivity that is claimed."""
    base = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 1]], dtype=torch.uint8)
    before, claimed = values(base, torch.tensor([0, 1]), max_items)
    moves = []
    for record in records:
        x = torch.cat([base, torch.tensor([record], dtype=torch.uint8)])
        after, _ = values(x, torch.tensor([0, 1, 1]), max_items)
        moves.append(float((after - before).double().norm()))
    return max(moves) / claimed


def test_no_record_moves_the_sums_by_more_than_the_sensitivity(values):
    everything = list(product((0, 1), repeat=D))
    assert worst_move(values, None, everything) == pytest.approx(1.0)
    assert worst_move(values, 1, [r for r in everything if sum(r) <= 1]) == pytest.approx(1.0)


def test_a_twin_that_does_not_truncate_is_rejected(values):
    assert worst_move(values, 1, list(product((0, 1), repeat=D))) > 1.4


def test_truncation_keeps_a_subset_of_each_record_alone():
    x = torch.tensor(list(product((0, 1), repeat=D)), dtype=torch.uint8)
    public = PublicRandomness(3)
    kept = truncated(x, 2, public)
    assert int(kept.sum(1).max()) == 2
    assert bool((kept <= x).all())
    small = x.sum(1) <= 2
    assert torch.equal(kept[small], x[small])
    assert torch.equal(truncated(x[5:9], 2, public), kept[5:9]), "no record depends on the others"
    assert kept.dtype == torch.uint8


def test_with_a_large_budget_the_marginals_are_the_records(tmp_path):
    records = tiny.records()
    plan = MarginalsPlan(epsilon=1e4)
    model = fit(records, plan=plan, config=MarginalsConfig(), ledger=plan.open_ledger(), runtime=Runtime(progress_bar=False))
    for c in range(records.n_classes):
        truth = records.x[records.labels == c].double().mean(0)
        torch.testing.assert_close(model.probabilities[c], truth, atol=0.02, rtol=0)
    samples = model.sample(4000, seed=1)
    share = samples.x[samples.labels == 0].double().mean(0)
    torch.testing.assert_close(share, model.probabilities[0], atol=0.08, rtol=0)
    model.save(tmp_path / "m")
    assert torch.equal(load_model(tmp_path / "m").sample(9, seed=2).x, model.sample(9, seed=2).x)


def test_under_a_small_budget_there_is_noise():
    """Too good means that noise is missing."""
    records, plan = tiny.records(labelled=False), MarginalsPlan(epsilon=0.1)
    model = fit(records, plan=plan, config=MarginalsConfig(), ledger=plan.open_ledger(), runtime=Runtime(progress_bar=False))
    assert float((model.probabilities[0] - records.x.double().mean(0)).abs().mean()) > 0.02


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: MarginalsPlan(epsilon=0.0), "epsilon is 0.0"),
        (lambda: MarginalsPlan(delta=0.0), "delta is 0; it must lie in"),
        (lambda: MarginalsConfig(max_items=0), "max_items is 0; it must be a whole number >= 1"),
    ],
)
def test_bad_options_are_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_replace_one_asks_for_twice_the_noise():
    add, swap = (Ledger(Budget(1.0, 1e-5), relation=relation) for relation in ("add_remove", "replace_one"))
    records = tiny.records(labelled=False)
    for ledger in (add, swap):
        plan = MarginalsPlan(relation=ledger.relation)
        fit(records, plan=plan, config=MarginalsConfig(), ledger=ledger, runtime=Runtime(progress_bar=False))
    noise = [ledger.entries()[0].event.noise_multiplier for ledger in (add, swap)]
    assert noise[1] == pytest.approx(2 * noise[0], rel=1e-3)
