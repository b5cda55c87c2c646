"""Bound to users, a mechanism is private: every draw is paid for and nothing can be saved or seen."""

import copy
import pickle

import pytest
import torch
from finite_cases import dirichlet

from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.systems.finite.boxes import RelativeMollifier
from dpgen.systems.finite.local_plan import LocalPlan

P = dirichlet(5, seed=1, rows=4)
MECHANISM = RelativeMollifier(0.5, 5)


def test_each_draw_is_charged_once_for_all_users() -> None:
    ledger = LocalPlan(epsilon=1.5, draws=3).open_ledger()
    sampler = MECHANISM.bind(P, ledger)
    assert sampler.sample(2).shape == (2, 4)
    assert ledger.epsilon() == pytest.approx(1.0, abs=1e-9)
    sampler.sample()
    assert ledger.epsilon() == pytest.approx(1.5, abs=1e-9)
    with pytest.raises(BudgetExceeded, match="mollifier sampler, one draw"):
        sampler.sample()
    assert [(e.note, e.count) for e in ledger.entries()] == [("mollifier sampler, one draw", 3)]


def test_one_user() -> None:
    ledger = LocalPlan(epsilon=0.5).open_ledger()
    assert MECHANISM.bind(P[0], ledger).sample().shape == (1,)


def test_nothing_shows_the_distribution() -> None:
    sampler = MECHANISM.bind(P, LocalPlan(epsilon=0.5).open_ledger())
    for refuse in (pickle.dumps, copy.copy, copy.deepcopy, lambda s: s.state_dict(), lambda s: s.save("x")):
        with pytest.raises(TypeError, match="cannot be saved"):
            refuse(sampler)
    assert "tensor" not in repr(sampler)
    assert [name for name in dir(sampler) if not name.startswith("_")] == [
        "epsilon",
        "mechanism",
        "sample",
        "save",
        "state_dict",
    ]


def test_bad_ledgers_and_users() -> None:
    with pytest.raises(ValueError, match="relation 'add_remove'; a local sampler needs 'replace_one'"):
        MECHANISM.bind(P, Ledger(Budget(1.0, 1e-5)))
    ledger = LocalPlan().open_ledger()
    with pytest.raises(ValueError, match="P has an entry"):
        MECHANISM.bind(torch.tensor([1.5, -0.5, 0, 0, 0]), ledger)
    assert ledger.entries() == []
