"""MWEM: selections and measurements are as private as they are charged, and the weights learn the answers."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fixed_source import FixedKeySource
from refusals import refused
from small_domains import chi_square

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Planned
from dpgen.privacy.mechanisms import pure_event
from dpgen.privacy.noise import PublicRandomness
from dpgen.runtime import Runtime
from dpgen.systems.marginals.fit import (
    Cells,
    Items,
    JointModel,
    MWEMConfig,
    MWEMPlan,
    fit_mwem,
    records_of,
)
from dpgen.systems.marginals.model import ProductMixture

QUIET = Runtime(progress_bar=False)


def records(rows, labels=None, n_classes=0):
    x = torch.tensor(rows, dtype=torch.uint8).reshape(-1, 3)
    return SimpleNamespace(x=x, labels=labels, n_classes=n_classes, columns=None)


def fitted(x, plan, labels=None, n_classes=0, columns=None, ledger=None, **config):
    data = SimpleNamespace(x=x, labels=labels, n_classes=n_classes, columns=columns)
    curator = Curator(ledger or plan.open_ledger())
    return fit_mwem(data, plan=plan, config=MWEMConfig(**config), curator=curator, runtime=QUIET)


def asked(rows, *, cells, max_items=2):
    """The answers of a few records, and weights that answer as well."""
    weights = Cells(3, 1) if cells else Items(3, MWEMConfig(queries=8, max_items=max_items), PublicRandomness(0))
    weights.start(5.0)
    return weights.asked(weights.histogram(records_of(records(rows))[0])), weights


def test_a_selection_is_as_private_as_it_is_charged():
    answers, weights = asked([(1, 0, 1)], cells=True)
    mechanism = answers.selection(np.arange(5), weights.answers(), 0.7)
    assert mechanism.event == pure_event(0.7)
    assert mechanism.rate == Fraction(0.7) / 2


def test_selections_follow_their_law():
    answers, weights = asked([(1, 0, 1)] * 9, cells=True)
    mechanism = answers.selection(np.arange(len(answers.values)), weights.answers(), 0.9)
    drawn = np.bincount(mechanism.draw(FixedKeySource(1), 1500), minlength=len(answers.values))
    assert chi_square(drawn, np.exp(mechanism.log_probabilities())) > 1e-4


@pytest.mark.parametrize(("delta", "relation"), [(0.0, "add_remove"), (1e-5, "add_remove"), (1e-5, "replace_one")])
def test_the_whole_plan_fits_its_budget(delta, relation):
    plan = MWEMPlan(epsilon=1.0, delta=delta, relation=relation)
    for totals, share in ((0, 1.0), (2, 0.95)):
        ledger = plan.open_ledger()
        ledger.declare([Planned(plan.event(plan.step_epsilon(totals), totals), "everything")])
        assert 0.99 < ledger.epsilon() <= 1.0
        basic = MWEMPlan(epsilon=1.0, delta=0.0).step_epsilon(totals)
        assert basic == pytest.approx(share / 100)
        assert plan.step_epsilon(totals) >= basic


def test_no_records_are_no_reason_to_refuse():
    for domain in ("cells", "items"):
        model = fitted(torch.zeros(0, 3, dtype=torch.uint8), MWEMPlan(rounds=2), domain=domain)
        assert model.samples(5, random_state=0).x.shape == (5, 3)


def test_on_cells_it_learns_a_joint_distribution():
    generator = torch.Generator().manual_seed(0)
    first = (torch.rand(4000, generator=generator) < 0.3).long()
    flips = (torch.rand(4000, 2, generator=generator) < torch.tensor([0.1, 0.2])).long()
    x = torch.cat([first[:, None], first[:, None] ^ flips], 1).to(torch.uint8)
    model = fitted(x, MWEMPlan(epsilon=20.0, delta=0.0, rounds=20), labels=first, n_classes=2, columns=["a", "b", "c"])
    assert isinstance(model, JointModel)
    assert abs(model.size - 4000) < 100
    samples = model.samples(20_000, random_state=1)
    assert samples.columns == ("a", "b", "c")
    pairs = [(x, first), (samples.x, samples.labels)]
    real, synthetic = (
        torch.stack([(t[:, i] == t[:, j]).double().mean() for i in range(3) for j in range(i)]) for t, _ in pairs
    )
    torch.testing.assert_close(synthetic, real, atol=0.05, rtol=0)
    agree = [(t[:, 0].long() == y).double().mean() for t, y in pairs]
    assert agree[1] == pytest.approx(1.0, abs=0.05)


def test_on_items_it_answers_sums_better_than_it_began():
    generator = torch.Generator().manual_seed(0)
    p = torch.linspace(0.01, 0.6, 30)
    x = (torch.rand(3000, 30, generator=generator) < p).to(torch.uint8)
    model = fitted(x, MWEMPlan(epsilon=20.0, rounds=30), domain="items", max_items=30, queries=200)
    assert isinstance(model, ProductMixture)
    flat = float((p.mean() - p).abs().mean())
    assert float((model.probabilities[0] - p).abs().mean()) < 0.6 * flat


def test_what_was_measured_is_fitted():
    answers, weights = asked([(1, 1, 0)] * 50, cells=True)
    weights.start(50.0)
    for _ in range(10):
        for query in range(6):  # the six marginals of one column
            weights.learn(query, float(answers.values[query]))
    assert np.abs(weights.answers()[:6] - answers.values[:6]).max() < 1.0
    assert weights.weights.sum() == pytest.approx(50.0)


def test_what_cannot_be_done_is_refused():
    with refused("domain"):
        fitted(torch.zeros(3, 17, dtype=torch.uint8), MWEMPlan(), domain="cells")


def test_fewer_queries_than_rounds_leave_no_budget_unused():
    x = torch.randint(0, 2, (60, 3), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    plan = MWEMPlan(epsilon=2.0, rounds=50)
    ledger = plan.open_ledger()
    fitted(x, plan, ledger=ledger, domain="items", queries=4)
    assert 1.9 < ledger.epsilon() <= 2.0
