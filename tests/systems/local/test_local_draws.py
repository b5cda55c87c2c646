"""The fit of all finite samplers: draws, statement, users without events, priors, and bad data before anything is spent."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from finite_cases import dirichlet

from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import BudgetExceeded
from dpgen.release import Draws
from dpgen.runtime import Runtime
from dpgen.systems.local.fit import MOST_DRAWS, PRIVATE_ORIGIN, SAMPLERS, fit
from dpgen.systems.local.plan import LocalConfig, LocalPlan, ParkConfig, RandomizedResponseConfig

PRIVATE: dict[str, Any] = {"prior": None, "prior_origin": PRIVATE_ORIGIN}
CONFIGS: dict[str, RandomizedResponseConfig] = {"randomized_response": RandomizedResponseConfig(), "park": ParkConfig()}


def data(**changes: Any) -> SimpleNamespace:
    fields: dict[str, Any] = {
        "counts": torch.tensor([[3.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 5e300], [1.0, 1.0, 1.0]], dtype=torch.float64),
        "user_names": ("ann", "bob", "cy", "di"),
        "categories": ("tea", "milk", "rum"),
        "groups": ("old", "old", "young", "young"),
        "prior": torch.tensor([0.5, 0.3, 0.2]).double(),
        "prior_origin": "table sales.csv",
        "skipped": 2,
    }
    return SimpleNamespace(**(fields | changes))


def fitted(name: str, directory: Path, plan: LocalPlan | None = None, **changes: Any) -> tuple[Draws, Any]:
    plan = plan or LocalPlan(epsilon=4.0, draws=2)
    ledger = plan.open_ledger()
    runtime = Runtime(run_dir=directory, accelerator="cpu", progress_bar=False)
    config = CONFIGS.get(name, LocalConfig())
    return fit(name, data(**changes), plan=plan, config=config, curator=Curator(ledger), runtime=runtime), ledger


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_draws_of_every_user(name: str, tmp_path: Path) -> None:
    draws, ledger = fitted(name, tmp_path)
    assert list(draws.to_pandas().columns) == ["user", "group", "draw", "category"]
    assert draws.to_pandas()["user"].tolist() == ["ann", "ann", "bob", "bob", "cy", "cy", "di", "di"]
    assert draws.to_pandas()["group"].tolist() == ["old"] * 4 + ["young"] * 4
    assert draws.to_pandas()["draw"].tolist() == [0, 1] * 4
    assert set(draws.to_pandas()["category"]) <= {"tea", "milk", "rum"}
    assert draws.origin.kind == name
    assert draws.origin.epsilon == 2.0
    assert ledger.epsilon() == pytest.approx(4.0, abs=1e-9)
    assert [(e.note, e.count) for e in ledger.entries()] == [(f"{name} sampler: a draw of every user", 2)]
    statement = draws.statement
    assert statement.epsilon == pytest.approx(4.0, abs=1e-9)
    assert (statement.delta, statement.relation) == (0.0, "replace_one")
    assert any("costs one user 2 x 2 = 4" in text for text in statement.conventions)
    assert tiny.told(statement)[Fact.NAMED_PRIOR] == {"origin": "table sales.csv"}
    assert statement.not_covered == (Fact.ABSENT_USERS.sentence,)


def test_draws_are_near_what_users_hold_when_epsilon_is_large(tmp_path: Path) -> None:
    draws, _ = fitted("q_invariant", tmp_path, LocalPlan(epsilon=2000.0, draws=50))
    mine = draws.to_pandas()[draws.to_pandas()["user"] == "cy"]["category"]
    assert set(mine) == {"rum"}
    tea = (draws.to_pandas()[draws.to_pandas()["user"] == "ann"]["category"] == "tea").mean()
    assert 0.3 < tea < 1.0


def test_without_groups_and_prior(tmp_path: Path) -> None:
    draws, _ = fitted("minimax", tmp_path, groups=None, prior=None, prior_origin="uniform", skipped=0)
    assert list(draws.to_pandas().columns) == ["user", "draw", "category"]
    assert draws.origin.prior.tolist() == pytest.approx([1 / 3] * 3)


def test_a_prior_of_the_private_users_has_to_be_paid(tmp_path: Path) -> None:
    private = {"prior": None, "prior_origin": PRIVATE_ORIGIN}
    plan = LocalPlan(epsilon=2.5, prior_epsilon=0.5)
    draws, ledger = fitted("mollifier", tmp_path, plan, **private)
    assert ledger.epsilon() == pytest.approx(2.5, abs=1e-9)
    assert draws.statement.says(Fact.MEASURED_PRIOR)
    assert len(ledger.entries()) == 2
    with pytest.raises(ValueError, match="a prior measured on the private users needs prior_epsilon > 0"):
        fitted("mollifier", tmp_path, **private)
    with pytest.raises(ValueError, match="any other prior must not have it"):
        fitted("mollifier", tmp_path, plan)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"counts": torch.ones(3, 3)}, r"counts have shape \(3, 3\); they must be \(4, 3\), users by categories"),
        ({"counts": -torch.ones(4, 3)}, "they must be finite and >= 0"),
        ({"counts": torch.full((4, 3), float("nan"))}, "they must be finite and >= 0"),
        ({"prior": torch.ones(3)}, "prior has a row whose sum is off 1 by 2"),
        ({"prior": torch.ones(2) / 2}, r"prior has shape \(2,\); it must be \(3,\)"),
    ],
)
def test_bad_data_cost_nothing(changes: dict[str, Any], match: str, tmp_path: Path) -> None:
    ledger = LocalPlan().open_ledger()
    runtime = Runtime(run_dir=tmp_path, accelerator="cpu", progress_bar=False)
    with pytest.raises(ValueError, match=match):
        fit("minimax", data(**changes), plan=LocalPlan(), config=LocalConfig(), curator=Curator(ledger), runtime=runtime)
    assert ledger.entries() == []


def test_a_ledger_with_less_is_never_overdrawn(tmp_path: Path) -> None:
    runtime = Runtime(run_dir=tmp_path, accelerator="cpu", progress_bar=False)
    ledger = LocalPlan(epsilon=1.0).open_ledger()
    with pytest.raises(BudgetExceeded, match="a draw of every user"):
        fit("park", data(), plan=LocalPlan(epsilon=2.0), config=ParkConfig(), curator=Curator(ledger), runtime=runtime)
    assert ledger.entries() == []


def test_zero_atoms_of_the_prior_are_floored_aloud(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="1 of 3 atoms of the prior are 0"):
        draws, _ = fitted("q_invariant", tmp_path, prior=torch.tensor([0.5, 0.5, 0.0]))
    assert float(draws.origin.prior[2]) == pytest.approx(1e-6 / 3)
    assert "1 of 3 atoms of the prior are 0: they are raised to 1e-06/n" in draws.statement.to_markdown()
    draws, _ = fitted("randomized_response", tmp_path, prior=torch.tensor([0.5, 0.5, 0.0]))
    assert "raised" not in draws.statement.to_markdown(), "it takes nothing but n from the prior"


def test_many_users(tmp_path: Path) -> None:
    u = 3000
    counts = dirichlet(3, seed=0, rows=u)
    names = tuple(str(i) for i in range(u))
    draws, _ = fitted("minimax", tmp_path, counts=counts, user_names=names, groups=None)
    mean = draws.origin.apply(counts).mean(0)
    shares = draws.to_pandas()["category"].value_counts(normalize=True)
    for j, name in enumerate(("tea", "milk", "rum")):
        assert abs(shares[name] - float(mean[j])) < 6 / (2 * u) ** 0.5


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_who_has_no_events_draws_from_the_prior(name: str, tmp_path: Path) -> None:
    """A user's counts of 0 are as private as any others: the draws follow the prior, which every sampler leaves as it is."""
    u = 4000
    names = tuple(str(i) for i in range(u))
    for prior in ({}, {"prior": None, "prior_origin": "uniform"}):
        draws, _ = fitted(name, tmp_path, counts=torch.zeros(u, 3), user_names=names, groups=None, **prior)
        shares = draws.to_pandas()["category"].value_counts(normalize=True)
        for category, expected in zip(("tea", "milk", "rum"), draws.origin.prior.tolist()):
            assert abs(shares[category] - expected) < 6 * 0.5 / (2 * u) ** 0.5


def test_what_is_said_does_not_depend_on_who_has_events(tmp_path: Path) -> None:
    texts = [
        fitted("park", tmp_path, counts=counts)[0].statement.to_markdown()
        for counts in (data().counts, torch.zeros(4, 3), torch.ones(4, 3))
    ]
    assert texts[0] == texts[1] == texts[2]


def test_a_file_without_users_gives_no_draws(tmp_path: Path) -> None:
    plan = LocalPlan(epsilon=2.0, prior_epsilon=0.5)
    draws, ledger = fitted("minimax", tmp_path, plan, counts=torch.zeros(0, 3), user_names=(), groups=(), **PRIVATE)
    assert (len(draws.to_pandas()), len(ledger.entries())) == (0, 2)


def test_a_second_run_of_one_ledger_states_its_own_cost_and_the_whole_epsilon(tmp_path: Path) -> None:
    ledger = LocalPlan(epsilon=4.0).open_ledger()
    runtime = Runtime(run_dir=tmp_path, accelerator="cpu", progress_bar=False)
    for _ in range(2):
        draws = fit("park", data(), plan=LocalPlan(epsilon=2.0), config=ParkConfig(), curator=Curator(ledger), runtime=runtime)
    assert draws.statement.epsilon == pytest.approx(4.0)
    assert tiny.told(draws.statement)[Fact.COST_OF_A_USER] == {"draws": 1, "per_draw": 2.0, "prior": "", "epsilon": 2.0}


@pytest.mark.parametrize(
    ("plan", "config", "changes", "match"),
    [
        ({}, {}, PRIVATE, "prior_epsilon is None and the prior is 'private histogram'"),
        ({"prior_epsilon": 0.5}, {}, {}, "prior_epsilon is 0.5 and the prior is 'table sales.csv'"),
        ({"prior_epsilon": 1e-7}, {}, PRIVATE, r"prior_epsilon is 1e-07: it must be a finite number >= 3.4e-05"),
        ({}, {"density_bounds": (2.0, 3.0)}, {}, r"density_bounds are \(2.0, 3.0\); they must be 0 <= c1 < 1 < c2"),
        ({}, {"density_bounds": (0.5, float("nan"))}, {}, "density_bounds are"),
        ({}, {"density_bounds": (0.5,)}, {}, "density_bounds are"),
        (
            {"draws": 10**11},
            {},
            {},
            "draws is 100000000000 for 4 users; draws x users must be <= 33554432, so draws <= 8388608",
        ),
        ({"draws": MOST_DRAWS // 4 + 1}, {}, {}, "so draws <= 8388608"),
    ],
)
def test_options_are_refused_before_anything_is_charged(
    plan: dict[str, Any], config: dict[str, Any], changes: dict[str, Any], match: str, tmp_path: Path
) -> None:
    given, choices, spend = data(**changes), ParkConfig(**config), LocalPlan(**plan)
    ledger = spend.open_ledger()
    runtime = Runtime(run_dir=tmp_path, accelerator="cpu", progress_bar=False)
    with pytest.raises(ValueError, match=match):
        fit("park", given, plan=spend, config=choices, curator=Curator(ledger), runtime=runtime)
    assert ledger.entries() == []


def test_the_largest_table_is_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("dpgen.systems.local.fit.MOST_DRAWS", 8)
    assert len(fitted("park", tmp_path, LocalPlan(draws=2))[0].to_pandas()) == 8
    with pytest.raises(ValueError, match="draws is 3 for 4 users; draws x users must be <= 8, so draws <= 2"):
        fitted("park", tmp_path, LocalPlan(draws=3))


def test_densities_with_public_bounds_are_drawn_for(tmp_path: Path) -> None:
    plan, runtime = LocalPlan(), Runtime(run_dir=tmp_path, accelerator="cpu", progress_bar=False)
    config = ParkConfig(density_bounds=(0.5, 2.0))
    draws = fit("park", data(), plan=plan, config=config, curator=Curator(plan.open_ledger()), runtime=runtime)
    assert draws.origin.density_bounds == (0.5, 2.0)
