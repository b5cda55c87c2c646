"""Noisy marginals: one record moves them by the sensitivity at most, and much data shows the truth."""

from itertools import product
from types import SimpleNamespace

import pytest
import tiny
import torch
from refusals import refused

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.noise import PublicRandomness
from dpgen.runtime import Runtime
from dpgen.systems.marginals.fit import fit_marginals, truncated
from dpgen.systems.plan import NoOptions, SumsPlan

D = 4
QUIET = Runtime(progress_bar=False)


def fitted(records, plan, ledger=None):
    curator = Curator(ledger or plan.open_ledger())
    return fit_marginals(records, plan=plan, config=NoOptions(), curator=curator, runtime=QUIET)


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


@pytest.mark.parametrize("value", [0.5, 2.0, -1.0])
def test_values_other_than_bits_are_refused_before_anything_is_spent(value):
    x = tiny.records().x.float()
    x[7, 3] = value
    records = SimpleNamespace(x=x, labels=None, n_classes=0, image_shape=None, columns=None)
    ledger = Ledger(Budget(1.0, 1e-5))
    with refused("records"):
        fitted(records, SumsPlan(epsilon=1.0), ledger=ledger)
    assert ledger.entries() == []
