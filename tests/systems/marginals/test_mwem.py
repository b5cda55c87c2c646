"""MWEM: selections and measurements are as private as they are charged, and the weights learn the answers."""

from fractions import Fraction
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from fixed_source import FixedKeySource
from refusals import refused
from small_domains import chi_square

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger, Planned
from dpgen.privacy.mechanisms import pure_event
from dpgen.privacy.noise import PublicRandomness
from dpgen.release import draw_components
from dpgen.runtime import Runtime
from dpgen.systems.marginals.fit import (
    Cells,
    Items,
    JointModel,
    MWEMConfig,
    MWEMPlan,
    fit_marginals,
    fit_mwem,
    records_of,
    truncated,
)
from dpgen.systems.marginals.model import ProductMixture
from dpgen.systems.plan import NoOptions, SumsPlan

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


# -- models ------------------------------------------------------------------------------------------------------------


P = torch.tensor([[0.9, 0.2, 0.5], [0.1, 0.3, 1.0]])


def mixture(n_classes: int = 2) -> ProductMixture:
    return ProductMixture(P, torch.tensor([30.0, 10.0]), statement=tiny.statement(), n_classes=n_classes)


def table() -> torch.Tensor:
    """All records of three bits."""
    return torch.tensor(list(product([0, 1], repeat=3)), dtype=torch.uint8)


def test_closed_forms_agree_with_enumeration() -> None:
    x, model = table(), mixture()
    p = model.log_prob(x).exp()
    assert float(p.sum()) == pytest.approx(1.0, abs=1e-9)
    assert model.conjunction([0, 2]) == pytest.approx(float(p[(x[:, 0] & x[:, 2]).bool()].sum()))
    assert model.disjunction([0, 1]) == pytest.approx(float(p[(x[:, 0] | x[:, 1]).bool()].sum()))


def test_draws_follow_the_density() -> None:
    x = mixture().samples(40_000, random_state=0).x
    shares = torch.bincount(x.long() @ torch.tensor([4, 2, 1]), minlength=8) / len(x)
    assert torch.allclose(shares.double(), mixture().log_prob(table()).exp(), atol=0.015)


def test_the_bayes_classifier_is_bayes() -> None:
    x = table()
    joint = torch.stack([(w * torch.where(x > 0, p, 1 - p).prod(1)) for w, p in zip((0.75, 0.25), P)], 1)
    assert torch.equal(mixture().classify(x), joint.argmax(1))
    with refused("n_classes"):
        mixture(0).classify(x)


def test_conditional_draws() -> None:
    model = mixture()
    samples = model.samples(100, random_state=1, clusters=[1])
    assert samples.labels is not None
    assert set(samples.labels.tolist()) == {1}
    assert (model.size, model.samples(0).x.shape) == (40, (0, 3))


def test_bad_questions_are_refused() -> None:
    with refused("x must have shape"):
        mixture().log_prob(torch.zeros(1, 2))
    with refused("n is"):
        mixture().samples(-1)
    with refused("clusters"):
        draw_components(torch.ones(2), 1, [2], torch.Generator())


def test_samples_of_cells_are_refused_in_one_line() -> None:
    model = JointModel(torch.full((8,), 0.125), d=3, n_classes=0, counts=torch.tensor([10.0]), statement=tiny.statement())
    assert model.samples(0).x.shape == (0, 3)
    with refused("n is"):
        model.samples(-1)
    with refused("clusters"):
        model.samples(1, clusters=[1])


def test_samples_follow_the_cells() -> None:
    cells = torch.tensor([0.5, 0.0, 0.0, 0.0, 0.125, 0.125, 0.0, 0.25])  # of two bits and a label of two
    model = JointModel(cells, d=2, n_classes=2, counts=torch.tensor([40.0]), statement=tiny.statement())
    drawn = model.samples(40_000, random_state=0)
    assert drawn.labels is not None
    code = (drawn.x[:, 0].long() * 2 + drawn.x[:, 1].long()) * 2 + drawn.labels
    shares = torch.bincount(code, minlength=8) / len(code)
    assert (shares - cells).abs().max() < 0.01
    assert (shares[cells == 0] == 0).all()
    assert model.size == 40


# -- noisy marginals ---------------------------------------------------------------------------------------------------


D = 4


def fitted_marginals(records, plan, ledger=None):
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
    model = fitted_marginals(records, SumsPlan(epsilon=1e4))
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
        fitted_marginals(records, SumsPlan(epsilon=1.0), ledger=ledger)
    assert ledger.entries() == []
