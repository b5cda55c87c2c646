"""One budget for a data set: every run pays before it begins, all of them together stay within the total."""

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpgen.privacy.accountants import calibrate_noise
from dpgen.privacy.accountants import moments as moments_of
from dpgen.privacy.composition import Cost, Filter, worst
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger, LedgerError, Planned
from dpgen.privacy.mechanisms import approximate_event, gaussian_event, pure_event, subsampled_gaussian_event
from dpgen.privacy.shared_budget import Share, SharedBudget, Spending

TOTAL, OWN = Budget(3.0, 1e-5), Budget(1.5, 1e-5)
PLAN = [Planned(gaussian_event(8.0), "counts", 2), Planned(subsampled_gaussian_event(0.1, 2.0), "steps", 10)]


@pytest.fixture
def shared(tmp_path: Path) -> SharedBudget:
    return SharedBudget.create(tmp_path / "data.budget", TOTAL)


def begin(shared: SharedBudget, directory: Path | None = None, budget: Budget | None = OWN) -> Ledger:
    """The own ledger of a new run, in its directory."""
    if directory is not None:
        directory.mkdir()
    path = directory and directory / "ledger.jsonl"
    delta = shared.limits.budget.delta if budget is None else None
    return Ledger(budget, delta=delta, path=path, payer=shared.payer("test", directory=directory))


def run(shared: SharedBudget, *plan: Planned, budget: Budget | None = OWN) -> Ledger:
    ledger = begin(shared, budget=budget)
    ledger.declare(plan)
    return ledger


def test_a_plan_is_paid_before_it_runs_and_costs_what_the_filter_says(shared: SharedBudget) -> None:
    limits = Filter.best(TOTAL, "add_remove")
    cost = limits.cost(gaussian_event(8.0)).times(2)
    cost = cost.plus(limits.cost(subsampled_gaussian_event(0.1, 2.0)).times(10))
    for runs in (1, 2, 3):
        ledger = begin(shared, budget=None)
        ledger.declare(PLAN)
        spending = shared.spending()
        assert spending.total == cost.times(runs)
        assert spending.epsilon <= spending.filtered == limits.total_epsilon(cost.times(runs))
        assert (spending.runs, len(spending.payments)) == (runs, runs)
        ledger.charge(gaussian_event(8.0), 2, note="counts")
    assert shared.spending().runs == 3, "what a plan holds is paid for once"
    assert ledger.epsilon() < limits.total_epsilon(cost), "a run's own guarantee is exact"


def test_what_does_not_fit_is_refused_and_leaves_no_trace(shared: SharedBudget) -> None:
    run(shared, Planned(gaussian_event(2.0), "first"), budget=None)
    before = shared.path.read_bytes()
    ledger = begin(shared, budget=Budget(3.0, 1e-5))
    with pytest.raises(BudgetExceeded, match=r"spent 2\.27\d* \(runs: 1\), this plan would bring it"):
        ledger.declare([Planned(gaussian_event(2.0), "second")])
    assert shared.path.read_bytes() == before
    assert ledger.promised() == []
    assert ledger.epsilon() == 0
    ledger.declare([Planned(gaussian_event(20.0), "small")])


def test_what_is_left_fits_and_a_little_more_does_not(shared: SharedBudget) -> None:
    run(shared, Planned(gaussian_event(2.0), "first"), budget=None)
    left, delta = shared.spending().left, shared.share.delta
    assert 0.05 < left < TOTAL.epsilon
    assert delta == 1e-7
    more, fits = (gaussian_event(calibrate_noise(gaussian_event, Budget(e, delta))) for e in (1.05 * left, left))
    with pytest.raises(BudgetExceeded, match=f"; one run of Gaussian releases with epsilon {left:g} at delta 1e-07 fits"):
        run(shared, Planned(more, "more"), budget=None)
    run(shared, Planned(fits, "fits"), budget=None)
    assert shared.spending().left < 0.01 + 0.2 * left


def test_at_delta_0_what_is_left_is_the_rest_of_the_sum(tmp_path: Path) -> None:
    """No Gaussian fits there, and a refusal must not say that nothing does."""
    shared = SharedBudget.create(tmp_path / "pure.budget", Budget(1.0, 0.0))
    assert shared.spending().left == 1.0
    run(shared, Planned(pure_event(0.75), "first"), budget=None)
    with pytest.raises(BudgetExceeded, match=r"; one run of releases with epsilon 0\.25 fits"):
        run(shared, Planned(pure_event(0.5), "second"), budget=None)
    run(shared, Planned(pure_event(0.25), "third"), budget=None)
    assert (shared.spending().left, shared.spending().fitting) == (0.0, "no run of releases with epsilon 0.001 fits")


def test_a_plan_whose_delta_alone_does_not_fit_is_told_so(shared: SharedBudget) -> None:
    run(shared, Planned(approximate_event(0.1, 8e-7), "first"), budget=None)
    for delta, told in ((8e-7, True), (0.0, False)):
        with pytest.raises(BudgetExceeded) as refused:
            run(shared, Planned(approximate_event(0.1 if told else 9.0, delta), "second"), budget=None)
        assert ("--delta" in str(refused.value)) == told
    run(shared, Planned(approximate_event(0.1, 1e-7), "third"), budget=None)


def test_where_no_gaussian_fits_another_release_may(shared: SharedBudget) -> None:
    run(shared, Planned(pure_event(0.9 * TOTAL.epsilon), "first"), budget=None)
    assert shared.spending().fitting == "no run of Gaussian releases with epsilon 0.001 at delta 1e-07 fits"
    run(shared, Planned(pure_event(0.1 * TOTAL.epsilon), "second"), budget=None)


@pytest.mark.parametrize("budget", [None, Budget(3.0, 1e-5)], ids=["reports", "enforces"])
def test_beyond_the_total_nothing_is_granted_later(shared: SharedBudget, budget: Budget | None) -> None:
    ledger = run(shared, Planned(gaussian_event(8.0), "counts"), budget=budget)
    other = run(shared, Planned(gaussian_event(2.2), "most of the rest"), budget=None)
    for one in (ledger, other):
        with pytest.raises(BudgetExceeded, match="the shared budget"):
            one.charge(gaussian_event(2.0), note="more")
    assert not ledger.entries()


def test_divisible_gaussians_are_paid_as_a_whole(shared: SharedBudget) -> None:
    whole = Planned(gaussian_event(2.5), "whole", divisible=True)
    ledger = run(shared, whole, budget=Budget(3.0, 1e-5))
    paid = shared.spending().total
    assert paid.renyi > shared.limits.cost(gaussian_event(2.5)).renyi, "with room for rounding"
    ledger.charge(gaussian_event(2.5 * 2**0.5), 2, note="halves", of="whole")
    assert shared.spending().total == paid


def test_more_runs_of_what_was_planned_are_paid_for_too(shared: SharedBudget) -> None:
    ledger = run(shared, Planned(gaussian_event(8.0), "counts"), budget=None)
    ledger.charge(gaussian_event(8.0), 3, note="counts")
    assert shared.spending().total == shared.limits.cost(gaussian_event(8.0)).times(3)


# -- one run alone -----------------------------------------------------------------------------------------------------

ALONE = [Planned(gaussian_event(1.43), "all of it")]  # epsilon 2.92, by the filter above 3


def test_a_first_run_may_use_the_whole_total_and_is_then_the_only_one(shared: SharedBudget) -> None:
    ledger = begin(shared, budget=TOTAL)
    ledger.declare(ALONE)
    spending = shared.spending()
    assert ledger.epsilon() <= 3.0 == spending.epsilon
    assert not spending.limits.fits(spending.total)
    with pytest.raises(BudgetExceeded, match="the shared budget"):
        run(shared, Planned(gaussian_event(500.0), "almost nothing"), budget=TOTAL)
    with pytest.raises(BudgetExceeded, match=r"^budget epsilon 3 "):
        ledger.charge(gaussian_event(2.0), note="its own ledger has the last word")


def test_who_is_not_first_or_enforces_nothing_needs_the_filter(shared: SharedBudget) -> None:
    for budget in (None, Budget(3.1, 1e-5), Budget(3.0, 1e-4)):
        with pytest.raises(BudgetExceeded, match="the shared budget"):
            begin(shared, budget=budget).declare(ALONE)
    first = run(shared, Planned(gaussian_event(500.0), "almost nothing"), budget=TOTAL)
    with pytest.raises(BudgetExceeded, match="the shared budget"):
        begin(shared, budget=TOTAL).declare(ALONE)
    with pytest.raises(BudgetExceeded, match="a second plan of 1 x 'all of it'"):
        first.declare(ALONE)


def test_what_a_first_run_pays_later_is_no_reason_to_leave_the_filter(tmp_path: Path) -> None:
    """Its first payment fitted, so others might have come: what comes after releases cannot choose another proof."""
    shared = SharedBudget.create(tmp_path / "b", Budget(1.0, 1e-5))
    payer = shared.payer("test")
    small, large = (Planned(gaussian_event(s), "x") for s in (50.0, 3.9))
    payer.pay([small], Budget(1.0, 1e-5))
    with pytest.raises(BudgetExceeded, match="the shared budget"):
        payer.pay([small, large], Budget(1.0, 1e-5))


def test_pure_runs_pay_from_any_budget_and_add_up_where_delta_is_0(tmp_path: Path, shared: SharedBudget) -> None:
    pure = SharedBudget.create(tmp_path / "pure", Budget(1.0, 0.0))
    for _ in range(2):
        run(pure, Planned(pure_event(0.5), "draw"), budget=Budget(0.5, 0.0))
    assert pure.spending().epsilon == 1.0
    with pytest.raises(BudgetExceeded, match="sum of epsilons"):
        run(pure, Planned(pure_event(1e-6), "draw"), budget=Budget(0.5, 0.0))
    run(shared, Planned(pure_event(0.5), "draw"), budget=Budget(0.5, 0.0))
    run(shared, Planned(approximate_event(0.5, 1e-7), "tested"))
    assert shared.spending().total.delta > 0


# -- the life of a run -------------------------------------------------------------------------------------------------


@pytest.fixture
def ran(shared: SharedBudget, tmp_path: Path) -> Path:
    """The ledger of a run that has committed."""
    with begin(shared, tmp_path / "run") as ledger:
        ledger.declare(PLAN)
        ledger.charge(gaussian_event(8.0), note="counts")
    return tmp_path / "run" / "ledger.jsonl"


def test_a_resumed_run_pays_no_second_time_but_for_what_goes_beyond_its_plan(shared: SharedBudget, ran: Path) -> None:
    with Ledger.open(ran) as again:
        again.declare(PLAN)
        again.charge(gaussian_event(8.0), note="counts")
        assert len(shared.spending().payments) == 1
        again.charge(gaussian_event(30.0), 2, note="more")
        assert again.payer
        statement = again.payer.statement()
    one, two = shared.spending().payments
    assert one.run == two.run == statement["run"]
    assert (one.model, one.directory, one.budget, one.time[:2]) == ("test", str(ran.parent), OWN, "20")
    assert two.cost == shared.limits.cost(gaussian_event(30.0)).times(2)
    assert json.loads(json.dumps(statement)) == statement
    said = {"epsilon": 3.0, "delta": 1e-5, "runs": 1, "payments": 2, "spent": shared.spending().epsilon}
    assert said.items() <= statement.items()


def test_a_copy_of_a_run_has_paid_nothing_and_gives_nothing_back(shared: SharedBudget, ran: Path, tmp_path: Path) -> None:
    waiting = begin(shared, tmp_path / "waiting")
    waiting.declare(PLAN)
    for name in ("run", "waiting"):
        shutil.copytree(tmp_path / name, tmp_path / f"copy of {name}")
    with Ledger.open(tmp_path / "copy of run" / "ledger.jsonl") as copy, pytest.raises(LedgerError, match="copy"):
        copy.declare(PLAN)
    Ledger.open(tmp_path / "copy of waiting" / "ledger.jsonl").drop()
    assert shared.spending().runs == 2
    waiting.drop()
    assert shared.spending().runs == 1


def test_a_payment_that_is_gone_ends_the_run(shared: SharedBudget, ran: Path) -> None:
    shared.path.unlink()
    with Ledger.open(ran) as again, pytest.raises(LedgerError, match="cannot open the ledger"):
        again.declare(PLAN)
    SharedBudget.create(shared.path, TOTAL)
    run(shared, *PLAN)  # of somebody else
    with Ledger.open(ran) as again, pytest.raises(LedgerError, match="holds no payment"):
        again.declare(PLAN)


def test_what_never_committed_can_be_given_back(shared: SharedBudget, tmp_path: Path) -> None:
    first, second = begin(shared, tmp_path / "first"), begin(shared, tmp_path / "second")
    for ledger in (first, second):
        ledger.declare(PLAN)
        ledger.charge(gaussian_event(8.0), note="counts")
    assert first.payer
    assert second.payer
    second.commit()
    for unknown in (second.payer.run, "nobody"):
        with pytest.raises(ValueError, match="release"):
            shared.give_back(unknown)
    shared.give_back(first.payer.run)
    spending = shared.spending()
    assert (spending.runs, spending.total) == (1, spending.payments[1].cost)
    with pytest.raises(LedgerError, match="holds no payment"):
        first.commit()


# -- directories that were restored from a copy ------------------------------------------------------------------------------


def restored(shared: SharedBudget, directory: Path, *, seen: str) -> Path:
    """The ledger of a run that went on after a copy was made of it, which is now in its place."""
    path = directory / "ledger.jsonl"
    with begin(shared, directory) as ledger:
        ledger.declare(PLAN)
        ledger.charge(gaussian_event(8.0), note="counts")
        ledger.commit()
        copy = path.read_bytes()
        ledger.charge(gaussian_event(8.0), note="counts")
        ledger.commit(released="" if seen == "checkpoint" else "sum of the release")
    path.write_bytes(copy)
    return path


@pytest.mark.parametrize("seen", ["checkpoint", "release"])
def test_a_restored_directory_does_not_go_on(seen: str, shared: SharedBudget, tmp_path: Path) -> None:
    path = restored(shared, tmp_path / "run", seen=seen)
    with Ledger.open(path) as again:
        with pytest.raises(LedgerError, match="restored from a copy"):
            again.resume()
        with pytest.raises(LedgerError, match="restored from a copy"):
            again.declare(PLAN)
    again = Ledger.open(path)
    again.charge(gaussian_event(8.0), note="counts")
    with pytest.raises(LedgerError, match="restored from a copy"):
        again.commit()
    again.drop()


def test_a_run_releases_one_thing(shared: SharedBudget, tmp_path: Path) -> None:
    path = tmp_path / "run" / "ledger.jsonl"
    with begin(shared, tmp_path / "run") as ledger:
        ledger.declare(PLAN)
        ledger.charge(gaussian_event(8.0), note="counts")
        ledger.commit(released="one")
    with Ledger.open(path) as again:
        again.declare(PLAN)
        again.commit(released="one")  # it died between this note and the release
        again.charge(gaussian_event(8.0), note="counts")
        with pytest.raises(LedgerError, match="has released something else before; begin a new run"):
            again.commit(released="two")
    assert again.payer is not None
    assert shared.spending().standings[again.payer.run].released == "one"


def test_a_payment_waits_for_the_lock(shared: SharedBudget, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadPoolExecutor(1) as pool:
        with shared.opened():
            waiting = pool.submit(run, shared, *PLAN)
            time.sleep(0.2)
            assert not waiting.done()
        waiting.result(60)
    monkeypatch.setattr("dpgen.privacy.shared_budget._PATIENCE", 0.05)
    with shared.opened(), pytest.raises(LedgerError, match="another process is writing this ledger"):
        run(shared, *PLAN)
    assert shared.spending().runs == 1


def pay(path: Path, times: int) -> int:
    """Runs that were granted."""
    granted = 0
    for _ in range(times):
        try:
            run(SharedBudget(path), Planned(gaussian_event(5.0), "counts"), budget=None)
            granted += 1
        except BudgetExceeded:
            pass
    return granted


def test_runs_at_the_same_time_wait_for_each_other(shared: SharedBudget) -> None:
    ledger = begin(shared, budget=None)
    assert ledger.payer is not None
    line = Planned(gaussian_event(5.0), "counts")
    room = shared.spending().room(ledger.payer.quote([line], None, shared.limits))
    with ThreadPoolExecutor(3) as pool:  # each payment opens and locks the file anew, as another process would
        granted = sum(pool.map(pay, [shared.path] * 3, [room, room // 2, room // 2]))
    assert granted == room == shared.spending().runs
    assert shared.spending().epsilon <= 3.0


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("differs", [{"relation": "replace_one"}, {"unit": "one user"}, {"delta": 2e-5}])
def test_a_run_that_differs_is_refused(shared: SharedBudget, differs: dict) -> None:
    same = {"relation": "add_remove", "unit": "one record", "delta": 1e-5}
    shared.require_same(**same)
    shared.require_same(**(same | {"delta": 1e-6}))
    with pytest.raises(ValueError, match=next(iter(differs))):
        shared.require_same(**(same | differs))


def test_damaged_and_other_files_are_refused(shared: SharedBudget, tmp_path: Path) -> None:
    run(shared, *PLAN)
    whole = shared.path.read_bytes()
    for content in (whole.replace(b'"counts"', b'"nothing"'), whole.replace(b"3.0", b"9.0"), whole[:-1], b""):
        shared.path.write_bytes(content)
        with pytest.raises(LedgerError, match=r"checksum|damaged|empty"):
            SharedBudget(shared.path)
    Ledger(TOTAL, path=tmp_path / "own.jsonl").close()
    with pytest.raises(LedgerError, match="is no shared budget"):
        SharedBudget(tmp_path / "own.jsonl")
    with pytest.raises(LedgerError, match="already there"):
        SharedBudget.create(tmp_path / "own.jsonl", TOTAL)
    with pytest.raises(ValueError, match="relation"):
        SharedBudget.create(tmp_path / "new", TOTAL, relation="both")  # type: ignore[arg-type]


# -- many plans --------------------------------------------------------------------------------------------------------


def random_plan(rng: np.random.Generator) -> list[Planned]:
    """One to three mechanisms of any kind, from cheap ones to some that cost more than the whole total."""
    kinds = {
        "gaussian": lambda: gaussian_event(float(10 ** rng.uniform(0, 2))),
        "pure": lambda: pure_event(float(rng.choice([0.01, 0.1, 2.0]))),
        "approximate": lambda: approximate_event(float(rng.choice([0.0, 0.01])), float(10 ** rng.uniform(-9, -6.5))),
    }
    names = rng.choice(list(kinds), rng.integers(1, 4))
    return [Planned(kinds[name](), f"{name} {number}", int(rng.integers(1, 4))) for number, name in enumerate(names)]


def drive(shared: SharedBudget, plans: int, rng: np.random.Generator) -> tuple[int, int]:
    """Pay for random plans, give some of them back, and compare the file with what was declared; granted and refused."""
    kept, refused = dict[str, list[Planned]](), 0
    for _ in range(plans):
        plan, payer, before = random_plan(rng), shared.payer("random"), shared.path.read_bytes()
        try:
            payer.pay(plan, None)
        except BudgetExceeded:
            refused += 1
            assert shared.path.read_bytes() == before
        else:
            kept[payer.run] = plan
            if rng.random() < 0.2:
                shared.give_back(payer.run)
                del kept[payer.run]
        declared = [(line.event, line.count) for plan in kept.values() for line in plan]
        spending, lam = shared.spending(), shared.limits.order - 1
        assert spending.runs == len(kept)
        assert spending.epsilon <= TOTAL.epsilon
        moments, deltas = 0.0, 0.0
        for event, count in declared:
            [moment], _, delta = moments_of(event, "add_remove", (lam,))
            moments, deltas = moments + count * moment, deltas + count * delta
        assert float(spending.total.renyi) / 2**256 == pytest.approx(moments, rel=1e-12)
        assert float(spending.total.delta) / 2**256 == pytest.approx(deltas, rel=1e-12)
        assert deltas <= 0.1 * TOTAL.delta * (1 + 1e-12)
        assert 0 <= spending.delta_left <= (TOTAL.delta - 10 * deltas) * (1 + 1e-9) + 1e-20
    exact = worst(declared, TOTAL.delta, "add_remove")
    assert exact <= spending.epsilon * (1 + 1e-9), "what is shown of all that was granted is no less than it is"
    return len(kept), refused


@pytest.mark.parametrize("seed", range(8))
def test_200_random_plans_stay_within_the_total(seed: int, shared: SharedBudget) -> None:
    granted, refused = drive(shared, 25, np.random.default_rng(seed))
    assert granted
    assert refused


@pytest.mark.parametrize("forgotten", ["renyi", "delta"])
def test_a_budget_that_forgets_is_found(forgotten: str, shared: SharedBudget, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Spending.total.fget
    monkeypatch.setattr(Spending, "total", property(lambda self: whole(self)._replace(**{forgotten: 0, "pure": 0})))
    with pytest.raises(AssertionError):
        drive(shared, 25, np.random.default_rng(0))


# -- shares ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_so_many_runs_of_the_share_fit_and_no_more(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    total = Budget(float(10 ** rng.uniform(-0.5, 1.3)), float(10 ** rng.uniform(-9, -4)))
    runs = int(rng.integers(2, 400))
    limits = Filter.best(total, "replace_one" if seed % 2 else "add_remove")
    share = Share.of(limits, runs)
    assert Fraction(share.delta) * runs <= Fraction(total.delta)
    assert Fraction(share.pure) * runs <= Fraction(total.epsilon)
    own = Budget(share.epsilon, share.delta)
    noise = calibrate_noise(gaussian_event, own, relation=limits.relation)
    failing = approximate_event(0.0, 0.1 * share.delta * (1 - 1e-9))
    cost = limits.cost(gaussian_event(noise)).plus(limits.cost(failing))
    assert runs <= limits.room(cost, Cost()) <= 1.1 * runs + 1, "a tenth more at most: shares are not wasted"
    generous = calibrate_noise(gaussian_event, Budget(1.05 * share.epsilon, share.delta), relation=limits.relation)
    assert share.epsilon >= total.epsilon or not limits.fits(limits.cost(gaussian_event(generous)).times(runs))


def test_shares_are_kept_in_the_file_and_those_of_no_room_are_refused(tmp_path: Path) -> None:
    pure = SharedBudget.create(tmp_path / "pure", Budget(1.0, 0.0), runs=3)
    assert pure.share == SharedBudget(tmp_path / "pure").share == Share(0.0, 3, 0.3333, 0.3333)
    with pytest.raises(ValueError, match="runs is 0"):
        SharedBudget.create(tmp_path / "none", Budget(1.0, 1e-5), runs=0)
    assert not (tmp_path / "none").exists()
