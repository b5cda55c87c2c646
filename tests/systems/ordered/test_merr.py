"""The Maximum Error Rule as a whole."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

from dpgen.privacy.accountants import epsilon as epsilon_of
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.systems.ordered.counts import RECORDS_NOTE
from dpgen.systems.ordered.merr import MERR, ask
from dpgen.systems.ordered.steps import CHOICE_NOTE, StepTerms, choice, step_budget

N = 10**18
RELATIONS = ["add_remove", "replace_one"]


def skewed(n: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    return np.sort((rng.beta(2, 8, n) * 0.8 * N).astype(np.int64))


def kolmogorov(counts: object, values: np.ndarray) -> float:
    at = counts.at(values) / counts.counts[-1]  # type: ignore[attr-defined]
    return float(np.abs(at - np.arange(values.size) / values.size).max())


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("composition", ["basic", "zcdp"])
@pytest.mark.parametrize("selection", ["choosing", "exponential", "points"])
def test_finds_the_distribution_within_the_budget(selection: str, composition: str, relation: str) -> None:
    values, budget = skewed(100_000), Budget(2.0, 1e-6)
    ledger = Ledger(budget, relation=relation)  # type: ignore[arg-type]
    rule = MERR(epsilon=2.0, delta=1e-6, selection=selection, composition=composition, steps=8)  # type: ignore[arg-type]
    fit = rule.fit_counts(values, N=N, curator=Curator(ledger))
    assert 0 < ledger.epsilon() <= 2.0
    limit = {"choosing": 0.12, "exponential": 0.06, "points": 0.03}[selection]
    assert 1e-4 < kolmogorov(fit, values) < limit  # too good would mean that noise is missing
    assert kolmogorov(fit, values) < 0.2 * kolmogorov(rule_without_steps(), values)


def rule_without_steps() -> object:
    from dpgen.systems.ordered.counts import MonotoneCounts

    return MonotoneCounts(np.array([0, N]), np.array([0.0, 1.0]))


def test_pure_budget() -> None:
    ledger = Ledger(Budget(1.0, 0.0))
    rule = MERR(epsilon=1.0, selection="points", composition="basic", steps=4)
    fit = rule.fit_counts(skewed(20_000), N=N, curator=Curator(ledger))
    assert fit.positions.size <= 6
    assert ledger.epsilon() == pytest.approx(1.0)
    assert Counter(e.note for e in ledger.entries()) == {RECORDS_NOTE: 1, "MERR, points selection": 4, "MERR, noisy counts": 4}


def test_nothing_is_drawn_when_the_ledger_refuses() -> None:
    ledger = Ledger(Budget(0.5, 1e-6), relation="replace_one")
    with pytest.raises(BudgetExceeded, match="a plan of 20 x 'MERR, points selection'"):
        MERR(epsilon=3.0, delta=1e-6).fit_counts(skewed(1000), N=N, curator=Curator(ledger))
    assert ledger.entries() == []


def test_the_printed_noise_is_refused_by_the_budget_it_claims() -> None:
    rule = MERR(epsilon=1.0, composition="basic", selection="exponential", steps=20, published_noise=True)
    with pytest.raises(BudgetExceeded, match="noisy counts"):
        rule.fit_counts(skewed(1000), N=N, curator=Curator(Ledger(Budget(1.0, 1e-9), relation="replace_one")))
    ledger = Ledger(None, delta=1e-9, relation="replace_one")
    rule.fit_counts(skewed(1000), N=N, curator=Curator(ledger))
    assert ledger.epsilon() > 60


def test_choosing_stops_when_no_error_is_surely_large() -> None:
    rule = MERR(epsilon=0.5, delta=1e-6, selection="choosing", steps=10)
    ledger = Ledger(Budget(0.5, 1e-6), relation="replace_one")
    fit = rule.fit_counts(skewed(100), N=N, curator=Curator(ledger))
    assert fit.positions.tolist() == [0, N]


def test_a_private_number_of_steps_costs_a_tenth() -> None:
    values = skewed(3000)
    for relation in RELATIONS:
        ledger = Ledger(Budget(1.0, 1e-6), relation=relation)  # type: ignore[arg-type]
        rule = MERR(epsilon=1.0, delta=1e-6, steps="private")
        fit = rule.fit_counts(values, N=N, curator=Curator(ledger))
        notes = [entry.note for entry in ledger.entries()]
        assert [note.startswith("number of steps") for note in notes[-2:]] == [True, False]
        assert notes[-1] == "MERR, the steps of any candidate"
        assert 1 - 1e-6 < ledger.epsilon() <= 1.0
        assert fit.counts[0] == 0


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("selection", "composition", "delta"),
    [("points", "zcdp", 1e-6), ("points", "basic", 0.0), ("choosing", "basic", 1e-6), ("choosing", "zcdp", 1e-6)],
)
def test_what_is_stated_does_not_depend_on_the_steps_that_were_chosen(
    selection: str, composition: str, delta: float, relation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each candidate costs no more than what is charged for all of them, whichever is chosen."""
    rule = MERR(epsilon=1.3, delta=delta, selection=selection, composition=composition, steps="private")  # type: ignore[arg-type]
    left, budgets = rule._budgets(N, relation)  # type: ignore[arg-type]
    for budget in budgets.values():
        parts = [SelfComposedDpEvent(line.event, line.count) for line in budget.planned()]
        assert epsilon_of(ComposedDpEvent(parts), delta, relation=relation) <= left  # type: ignore[arg-type]

    def stated(t: int) -> tuple[float, list[str]]:
        def choose(values: np.ndarray, budgets: dict, *, curator: Curator, **_: object) -> int:
            curator.release(CHOICE_NOTE, choice([0], epsilon=0.13))
            return t

        monkeypatch.setattr("dpgen.systems.ordered.merr.choose_steps", choose)
        ledger = Ledger(Budget(1.3, delta), relation=relation)  # type: ignore[arg-type]
        rule.fit_counts(skewed(300), N=N, curator=Curator(ledger))
        return ledger.epsilon(), [f"{entry.note} {entry.event} {entry.count}" for entry in ledger.entries()]

    assert stated(1) == stated(8) == stated(80)
    assert 1.3 - 1e-5 < stated(8)[0] <= 1.3


def test_parts_of_the_budget_never_round_up() -> None:
    for epsilon in np.random.default_rng(0).uniform(0.01, 10, 40).tolist():
        ledger = Ledger(Budget(epsilon, 0.0))
        rule = MERR(epsilon=epsilon, composition="basic", steps="private")
        rule.fit_counts(skewed(20), N=N, curator=Curator(ledger))
        assert ledger.epsilon() <= epsilon


def test_what_cannot_be_bought_is_refused_before_the_first_charge() -> None:
    ledger = Ledger(None, delta=1e-300)
    with pytest.raises(ValueError, match=r"epsilon is 0\.00095 and delta is 1e-300"):
        MERR(epsilon=0.001, delta=1e-300).fit_counts(skewed(20), N=N, curator=Curator(ledger))
    assert ledger.entries() == []


def test_one_atom_and_one_record() -> None:
    rule = MERR(epsilon=20.0, delta=1e-6, steps=6)
    for values in (np.full(5000, 7), np.array([3]), np.full(5000, N - 1)):
        ledger = Ledger(None, delta=1e-6, relation="replace_one")
        fit = rule.fit_counts(values, N=N, curator=Curator(ledger))
        assert (np.diff(fit.counts) >= 0).all()
        if values.size > 1:
            assert kolmogorov(fit, values[:1]) < 0.02


def test_smallest_domain_and_unsigned_values() -> None:
    ledger = Ledger(None, delta=1e-6, relation="replace_one")
    values = np.repeat(np.array([0, 1], np.uint64), [900, 100])
    fit = MERR(epsilon=20.0, delta=1e-6, steps=2).fit_counts(values, N=2, curator=Curator(ledger))
    assert fit.counts[1] == pytest.approx(900, abs=30)


@pytest.mark.parametrize(
    "values",
    [
        np.array([1, 2, 1000]),
        np.array([-1, 2]),
        np.array([1, 2**62]),
        np.array([2**63 + 1], np.uint64),
        np.array([0.0, 1.0]),
        np.array([]),
        np.array([[1, 2]]),
    ],
    ids=str,
)
@pytest.mark.parametrize("selection", ["points", "exponential", "choosing"])
def test_values_that_are_no_positions_are_refused_before_anything_is_charged(values: Any, selection: Any) -> None:
    ledger = Ledger(None, delta=1e-6, relation="replace_one")
    estimator = MERR(epsilon=1.0, delta=1e-6, selection=selection)
    with pytest.raises(ValueError, match=r"they must lie in \[0, 1000\)|they must be whole numbers \(n,\)"):
        estimator.fit_counts(values, N=1000, curator=Curator(ledger))
    assert ledger.entries() == []


def test_fit_releases_a_distribution_with_its_statement() -> None:
    ledger = Ledger(Budget(1.0, 1e-6), relation="replace_one")
    values = np.random.default_rng(0).permutation(skewed(20_000))
    fitted = MERR(epsilon=1.0, delta=1e-6).fit(values, N=N, curator=Curator(ledger))
    assert fitted.statement.epsilon <= 1.0
    assert fitted.statement.relation == "replace_one"


def test_answers_are_prefix_counts_with_their_variances() -> None:
    terms = StepTerms(selection="exponential", steps=1, composition="zcdp", share=0.5, relation="replace_one", levels=4)
    budget = step_budget(terms, epsilon=400.0, delta=1e-6)
    values = np.array([0, 0, 1, 4, 5, 5, 5, 7])
    curator = Curator(Ledger(None, delta=1e-6, relation="replace_one"))
    both = ask(values, (1, 6), budget, N=8, curator=curator)
    assert [knot for knot, _, _ in both] == [1, 6]
    assert [count for _, count, _ in both] == pytest.approx([2, 7], abs=2)
    assert both[1][2] == 2 * both[0][2]
    assert [knot for knot, _, _ in ask(values, (0, 4), budget, N=8, curator=curator)] == [4]
    assert ask(values, (0, 8), budget, N=8, curator=curator) == []
    assert [(e.event, e.count) for e in curator.ledger.entries()] == [(budget.answer_event, 2)], (
        "one price for one or two knots"
    )


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"epsilon": 0.0}, r"epsilon is 0\.0"),
        ({"epsilon": float("nan")}, "epsilon is nan"),
        ({"delta": 0.5}, r"delta is 0\.5"),
        ({"delta": 0.0}, "delta is 0; composition 'zcdp'"),
        ({"delta": 0.0, "composition": "basic", "selection": "choosing"}, "selection 'choosing' needs delta > 0"),
        ({"selection": "dyadic"}, "selection is 'dyadic'; choose one of"),
        ({"composition": "advanced"}, "composition is 'advanced'; choose one of"),
        ({"steps": 0}, "steps is 0"),
        ({"steps": 10_001}, r"steps is 10001; it must be a whole number in \[1, 10000\]"),
        ({"steps": "private", "published_noise": True}, "published_noise needs a fixed number"),
        ({"steps": 2.5}, r"steps is 2\.5"),
        ({"size": 0}, "size is 0"),
    ],
)
def test_bad_choices_are_refused(changes: dict, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        MERR(**({"epsilon": 1.0, "delta": 1e-6} | changes))


def test_only_a_secure_source_is_taken() -> None:
    with pytest.raises(TypeError, match="must be a SecureSource"):
        MERR(epsilon=1.0, delta=1e-6).fit_counts(
            skewed(10),
            N=N,
            curator=Curator(Ledger(None, delta=1e-6), source=np.random.default_rng(0)),  # type: ignore[arg-type]
        )
