"""MWEM: selections and measurements are as private as they are charged, and the weights learn the answers."""

import math
from fractions import Fraction
from itertools import combinations_with_replacement, product
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dpgen.privacy.noise import PublicRandomness
from dpgen.runtime import Runtime
from dpgen.systems.marginals.mwem import JointModel, MWEMConfig, MWEMPlan, _Cells, _Items, fit, selection_weights
from dpgen.systems.marginals.product_mixture import ProductMixture
from dpgen.systems.registry import load_model

QUIET = Runtime(progress_bar=False)


def records(rows, labels=None, n_classes=0):
    x = torch.tensor(rows, dtype=torch.uint8).reshape(-1, 3)
    return SimpleNamespace(x=x, labels=labels, n_classes=n_classes, columns=None)


def queries_of(rows, *, cells, max_items=2):
    run = (
        _Cells(records(rows), MWEMConfig(ways=2))
        if cells
        else _Items(records(rows), MWEMConfig(queries=8, max_items=max_items), PublicRandomness(0))
    )
    run.start(5.0)
    return run


def neighbours(size):
    """All data sets of `size` records of 3 bits, each with one record more, and with one record replaced."""
    everything = list(product((0, 1), repeat=3))
    for rows in combinations_with_replacement(everything, size):
        for extra in everything:
            yield rows, (*rows, extra), (extra, *rows[1:])


def worst_change(*, cells):
    worst = 0
    for rows, more, swapped in neighbours(2):
        a, b, c = (queries_of(r, cells=cells) for r in (rows, more, swapped))
        worst = max(worst, *(int(np.abs(a.truth - other.truth).max()) for other in (b, c)))
    return worst, queries_of([(0, 0, 0)], cells=cells).sensitivity


@pytest.mark.parametrize("cells", [True, False])
def test_no_neighbour_changes_a_query_by_more_than_the_sensitivity(cells):
    worst, claimed = worst_change(cells=cells)
    assert worst == claimed


def test_a_twin_without_truncation_is_rejected(monkeypatch):
    monkeypatch.setattr("dpgen.systems.marginals.mwem.truncated", lambda x, *_: x)
    worst, claimed = worst_change(cells=False)
    assert worst > claimed


def worst_log_ratio(weights_of, step):
    """Largest log-ratio of selection probabilities over all neighbouring data sets, by enumeration."""
    worst = 0.0
    for rows, more, swapped in neighbours(1):
        runs = [queries_of(r, cells=True) for r in (rows, more, swapped)]
        logs = []
        for run in runs:
            w = np.array([float(v) for v in weights_of(np.abs(np.rint(run.answers()) - run.truth), step, run.sensitivity)])
            logs.append(w - np.log(np.exp(w).sum()))
        worst = max(worst, *(float(np.abs(logs[0] - other).max()) for other in logs[1:]))
    return worst


def test_a_selection_is_as_private_as_it_is_charged():
    assert worst_log_ratio(selection_weights, 0.7) <= 0.7 * (1 + 1e-12)


def test_a_twin_without_the_factor_two_is_rejected():
    def twin(scores, step, sensitivity):
        return [Fraction(step) * int(score) / sensitivity for score in scores]

    assert worst_log_ratio(twin, 0.7) > 0.75


@pytest.mark.parametrize(("delta", "relation"), [(0.0, "add_remove"), (1e-5, "add_remove"), (1e-5, "replace_one")])
def test_the_whole_plan_fits_its_budget(delta, relation):
    plan = MWEMPlan(epsilon=1.0, delta=delta, relation=relation)
    ledger = plan.open_ledger()
    ledger.charge(plan.event(plan.step_epsilon), note="everything")
    assert 0.99 < ledger.epsilon() <= 1.0
    basic = MWEMPlan(epsilon=1.0, delta=0.0).step_epsilon
    assert basic == pytest.approx(0.95 / 100)
    assert plan.step_epsilon >= basic


def test_on_cells_it_learns_a_joint_distribution(tmp_path):
    generator = torch.Generator().manual_seed(0)
    first = (torch.rand(4000, generator=generator) < 0.3).long()
    flips = (torch.rand(4000, 2, generator=generator) < torch.tensor([0.1, 0.2])).long()
    x = torch.cat([first[:, None], first[:, None] ^ flips], 1).to(torch.uint8)
    data = SimpleNamespace(x=x, labels=first, n_classes=2, columns=["a", "b", "c"])
    plan = MWEMPlan(epsilon=20.0, delta=0.0, rounds=20)
    model = fit(data, plan=plan, config=MWEMConfig(), ledger=plan.open_ledger(), runtime=QUIET)
    assert isinstance(model, JointModel)
    assert abs(model.size - 4000) < 100
    samples = model.sample(20_000, seed=1)
    assert samples.columns == ("a", "b", "c")
    pairs = [(x, first), (samples.x, samples.labels)]
    real, synthetic = (
        torch.stack([(t[:, i] == t[:, j]).double().mean() for i in range(3) for j in range(i)]) for t, _ in pairs
    )
    torch.testing.assert_close(synthetic, real, atol=0.05, rtol=0)
    agree = [(t[:, 0].long() == y).double().mean() for t, y in pairs]
    assert agree[1] == pytest.approx(1.0, abs=0.05)
    model.save(tmp_path / "m")
    assert torch.equal(load_model(tmp_path / "m").sample(9, seed=2).x, model.sample(9, seed=2).x)


def test_on_items_it_answers_sums_better_than_it_began():
    generator = torch.Generator().manual_seed(0)
    p = torch.linspace(0.01, 0.6, 30)
    x = (torch.rand(3000, 30, generator=generator) < p).to(torch.uint8)
    data = SimpleNamespace(x=x, labels=None, n_classes=0, columns=None)
    plan = MWEMPlan(epsilon=20.0, rounds=30)
    config = MWEMConfig(domain="items", max_items=30, queries=200)
    model = fit(data, plan=plan, config=config, ledger=plan.open_ledger(), runtime=QUIET)
    assert isinstance(model, ProductMixture)
    flat = float((p.mean() - p).abs().mean())
    assert float((model.probabilities[0] - p).abs().mean()) < 0.6 * flat


def test_under_a_small_budget_there_is_noise():
    """Too good means that noise is missing."""
    plan, counts = MWEMPlan(epsilon=0.01, delta=0.0, rounds=2), []
    data = SimpleNamespace(x=torch.zeros(200, 3, dtype=torch.uint8), labels=None, n_classes=0, columns=None)
    for _ in range(3):
        counts.append(fit(data, plan=plan, config=MWEMConfig(), ledger=plan.open_ledger(), runtime=QUIET).counts.item())
    assert set(counts) != {200.0}


def test_replays_fit_what_was_measured():
    run = queries_of([(1, 1, 0)] * 50, cells=True)
    run.start(50.0)
    run.replays = 300
    for query in range(6):  # the six marginals of one column
        run.learn(query, float(run.truth[query]))
    assert np.abs(run.answers()[:6] - run.truth[:6]).max() < 1.0
    assert run.weights.sum() == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: MWEMPlan(rounds=0), "rounds is 0; it must be a whole number >= 1"),
        (lambda: MWEMPlan(total_share=1.0), "total_share must be in"),
        (lambda: MWEMPlan(epsilon=math.nan), "epsilon is nan"),
        (lambda: MWEMConfig(max_items=0), "max_items is 0; it must be a whole number >= 1"),
        (lambda: MWEMConfig(replays=-1), "replays is -1; it must be a whole number >= 0"),
        (lambda: MWEMConfig(longest=0), "longest is 0; it must be a whole number >= 1"),
    ],
)
def test_bad_options_are_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_too_many_columns_for_cells():
    data = SimpleNamespace(x=torch.zeros(3, 17, dtype=torch.uint8), labels=None, n_classes=0, columns=None)
    plan = MWEMPlan()
    with pytest.raises(ValueError, match="domain='cells' allows 65536 combinations, 17 columns have 131072"):
        fit(data, plan=plan, config=MWEMConfig(domain="cells"), ledger=plan.open_ledger(), runtime=QUIET)


def test_fewer_queries_than_rounds_leave_no_budget_unused():
    x = torch.randint(0, 2, (60, 3), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    plan = MWEMPlan(epsilon=2.0, rounds=50)
    ledger = plan.open_ledger()
    data = SimpleNamespace(x=x, labels=None, n_classes=0, columns=None)
    fit(data, plan=plan, config=MWEMConfig(domain="items", queries=4), ledger=ledger, runtime=QUIET)
    assert 1.9 < ledger.epsilon() <= 2.0
