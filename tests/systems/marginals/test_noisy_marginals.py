"""Noisy marginals: one record moves them by the sensitivity at most, and much data shows the truth."""

from itertools import product
from types import SimpleNamespace

import pytest
import tiny
import torch
from fixed_source import FixedKeySource

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.noise import PublicRandomness
from dpgen.runtime import Runtime
from dpgen.systems.marginals.fit import (
    Layout,
    MarginalsConfig,
    MarginalsPlan,
    fit_marginals,
    truncated,
)
from dpgen.systems.registry import load

D = 4


def moved(layout, relation, records, k):
    """Largest L2 change of the sums when one of `records` joins or takes the place of another."""
    base = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 1]], dtype=torch.uint8)

    def values(record, row):
        x = torch.cat([base, torch.tensor([record], dtype=torch.uint8)])
        return layout.sums(x, torch.tensor([0, k - 1, row])).values

    everything = [values(record, row) for record in records for row in range(k)]
    others = everything if relation == "replace_one" else [layout.sums(base, torch.tensor([0, k - 1])).values]
    return max(float((one - other).double().norm()) for one in everything for other in others)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("max_items", [None, 1, 2, 3])
def test_the_sensitivity_is_the_largest_change_under_both_relations(max_items, k, relation):
    everything = [r for r in product((0, 1), repeat=D) if sum(r) <= (max_items or D)]
    layout = Layout(D, k, max_items)
    stated = layout.sums(torch.zeros(1, D), torch.zeros(1, dtype=torch.int64)).under(relation)
    assert moved(layout, relation, everything, k) == pytest.approx(stated, rel=1e-12)


def test_a_twin_that_does_not_truncate_is_rejected():
    assert moved(Layout(D, 2, 1), "add_remove", list(product((0, 1), repeat=D)), 2) / Layout(D, 2, 1).sensitivity > 1.4


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_a_fit_charges_what_its_noise_pays_for(relation):
    """std of the noise = calibrated multiplier x sensitivity; under replace-one over half of what a replacement moves."""

    class Spy(FixedKeySource):
        def rounded_normal(self, *shape, noise_std):
            stds.append(noise_std)
            return super().rounded_normal(*shape, noise_std=noise_std)

    stds, data, plan = [], tiny.records(), MarginalsPlan(relation=relation)
    curator = Curator(plan.open_ledger(), source=Spy())
    fit_marginals(data, plan=plan, config=MarginalsConfig(), curator=curator, runtime=Runtime(progress_bar=False))
    [entry] = curator.ledger.entries()
    layout = Layout(data.x.shape[1], data.n_classes)
    moves = layout.sensitivity if relation == "add_remove" else layout.replaced / 2
    assert stds == [pytest.approx(entry.event.noise_multiplier * moves)]
    assert 0.99 < curator.ledger.epsilon() <= 1.0


def test_no_records_are_no_reason_to_refuse():
    plan, none = MarginalsPlan(), SimpleNamespace(x=torch.zeros(0, 3), labels=None, n_classes=0, columns=None)
    curator = Curator(plan.open_ledger())
    model = fit_marginals(none, plan=plan, config=MarginalsConfig(), curator=curator, runtime=Runtime(progress_bar=False))
    assert model.samples(4, random_state=0).x.shape == (4, 3)


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
    model = fit_marginals(
        records, plan=plan, config=MarginalsConfig(), curator=Curator(plan.open_ledger()), runtime=Runtime(progress_bar=False)
    )
    for c in range(records.n_classes):
        truth = records.x[records.labels == c].double().mean(0)
        torch.testing.assert_close(model.probabilities[c], truth, atol=0.02, rtol=0)
    samples = model.samples(4000, random_state=1)
    share = samples.x[samples.labels == 0].double().mean(0)
    torch.testing.assert_close(share, model.probabilities[0], atol=0.08, rtol=0)
    model.save(tmp_path / "m")
    assert torch.equal(load(tmp_path / "m").samples(9, random_state=2).x, model.samples(9, random_state=2).x)


def test_under_a_small_budget_there_is_noise():
    """Too good means that noise is missing."""
    records, plan = tiny.records(labelled=False), MarginalsPlan(epsilon=0.1)
    model = fit_marginals(
        records, plan=plan, config=MarginalsConfig(), curator=Curator(plan.open_ledger()), runtime=Runtime(progress_bar=False)
    )
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
        fit_marginals(
            records, plan=plan, config=MarginalsConfig(), curator=Curator(ledger), runtime=Runtime(progress_bar=False)
        )
    noise = [ledger.entries()[0].event.noise_multiplier for ledger in (add, swap)]
    assert noise[1] == pytest.approx(2 * noise[0], rel=1e-3)


def test_a_fit_counts_no_more_ones_than_it_says():
    ones = SimpleNamespace(x=torch.ones(50, D, dtype=torch.uint8), labels=None, n_classes=0, columns=None)
    plan, config = MarginalsPlan(epsilon=500.0), MarginalsConfig(max_items=1)
    curator = Curator(plan.open_ledger())
    model = fit_marginals(
        ones, plan=plan, config=config, curator=curator, runtime=Runtime(accelerator="cpu", progress_bar=False)
    )
    assert float(model.samples(2000, random_state=0).x.double().sum(1).mean()) < 1.3


@pytest.mark.parametrize("value", [0.5, 2.0, -1.0])
def test_values_other_than_bits_are_refused_before_anything_is_spent(value):
    x = tiny.records().x.float()
    x[7, 3] = value
    records = SimpleNamespace(x=x, labels=None, n_classes=0, public_x=None, image_shape=None, columns=None)
    plan, ledger = MarginalsPlan(epsilon=1.0), Ledger(Budget(1.0, 1e-5))
    with pytest.raises(ValueError, match="records must be 0 or 1"):
        fit_marginals(records, plan=plan, config=MarginalsConfig(), curator=Curator(ledger), runtime=Runtime())
    assert ledger.entries() == []
