"""Noisy marginals: one record moves them by the sensitivity at most, and much data shows the truth."""

from itertools import product
from types import SimpleNamespace

import pytest
import tiny
import torch
from fixed_source import FixedKeySource
from refusals import refused

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.noise import PublicRandomness
from dpgen.runtime import Runtime
from dpgen.systems.marginals.fit import (
    Layout,
    MarginalsConfig,
    fit_marginals,
    truncated,
)
from dpgen.systems.plan import SumsPlan

D = 4
QUIET = Runtime(progress_bar=False)


def moved(layout, relation, records, k):
    """Largest L2 change of the sums when one of `records` joins or takes the place of another."""
    base = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 1]], dtype=torch.uint8)

    def values(record, row):
        x = torch.cat([base, torch.tensor([record], dtype=torch.uint8)])
        return layout.over([(x, torch.tensor([0, k - 1, row]))]).values

    everything = [values(record, row) for record in records for row in range(k)]
    others = everything if relation == "replace_one" else [layout.over([(base, torch.tensor([0, k - 1]))]).values]
    return max(float((one - other).double().norm()) for one in everything for other in others)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("max_items", [None, 1, 2, 3])
def test_the_sensitivity_is_the_largest_change_under_both_relations(max_items, k, relation):
    everything = [r for r in product((0, 1), repeat=D) if sum(r) <= (max_items or D)]
    layout = Layout(D, k, max_items)
    stated = layout.over([]).under(relation)
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

    stds, data, plan = [], tiny.records(), SumsPlan(relation=relation)
    curator = Curator(plan.open_ledger(), source=Spy())
    fit_marginals(data, plan=plan, config=MarginalsConfig(), curator=curator, runtime=QUIET)
    [entry] = curator.ledger.entries()
    layout = Layout(data.x.shape[1], data.n_classes)
    moves = layout.sensitivity if relation == "add_remove" else layout.replaced / 2
    assert stds == [pytest.approx(entry.event.noise_multiplier * moves)]
    assert 0.99 < curator.ledger.epsilon() <= 1.0


def fitted(records, plan, config=None, ledger=None):
    curator = Curator(ledger or plan.open_ledger())
    return fit_marginals(records, plan=plan, config=config or MarginalsConfig(), curator=curator, runtime=QUIET)


def test_no_records_are_no_reason_to_refuse():
    none = SimpleNamespace(x=torch.zeros(0, 3), labels=None, n_classes=0, columns=None)
    assert fitted(none, SumsPlan()).samples(4, random_state=0).x.shape == (4, 3)


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


def test_with_a_large_budget_the_marginals_are_the_records():
    records = tiny.records()
    model = fitted(records, SumsPlan(epsilon=1e4))
    for c in range(records.n_classes):
        truth = records.x[records.labels == c].double().mean(0)
        torch.testing.assert_close(model.probabilities[c], truth, atol=0.02, rtol=0)
    samples = model.samples(4000, random_state=1)
    share = samples.x[samples.labels == 0].double().mean(0)
    torch.testing.assert_close(share, model.probabilities[0], atol=0.08, rtol=0)


def test_under_a_small_budget_there_is_noise():
    """Too good means that noise is missing."""
    records = tiny.records(labelled=False)
    model = fitted(records, SumsPlan(epsilon=0.1))
    assert float((model.probabilities[0] - records.x.double().mean(0)).abs().mean()) > 0.02


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: SumsPlan(epsilon=0.0), "epsilon"),
        (lambda: SumsPlan(delta=0.0), "delta"),
        (lambda: MarginalsConfig(max_items=0), "max_items"),
    ],
)
def test_bad_options_are_refused(make, option):
    with refused(option):
        make()


def test_a_fit_counts_no_more_ones_than_it_says():
    ones = SimpleNamespace(x=torch.ones(50, D, dtype=torch.uint8), labels=None, n_classes=0, columns=None)
    model = fitted(ones, SumsPlan(epsilon=500.0), MarginalsConfig(max_items=1))
    assert float(model.samples(2000, random_state=0).x.double().sum(1).mean()) < 1.3


@pytest.mark.parametrize("value", [0.5, 2.0, -1.0])
def test_values_other_than_bits_are_refused_before_anything_is_spent(value):
    x = tiny.records().x.float()
    x[7, 3] = value
    records = SimpleNamespace(x=x, labels=None, n_classes=0, image_shape=None, columns=None)
    ledger = Ledger(Budget(1.0, 1e-5))
    with refused("records"):
        fitted(records, SumsPlan(epsilon=1.0), ledger=ledger)
    assert ledger.entries() == []
