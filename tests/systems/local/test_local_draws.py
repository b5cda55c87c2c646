"""The fit and the plan of all finite samplers: draws, statement, users without events, priors, and what is refused."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch

from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.release import Draws
from dpgen.runtime import Runtime
from dpgen.systems.local.fit import MOST_DRAWS, SAMPLERS, fit
from dpgen.systems.local.plan import LocalConfig, LocalPlan, MollifierConfig


def data(**changes: Any) -> SimpleNamespace:
    fields: dict[str, Any] = {
        "counts": torch.tensor([[3.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 5e300], [1.0, 1.0, 1.0]], dtype=torch.float64),
        "user_names": ("ann", "bob", "cy", "di"),
        "categories": ("tea", "milk", "rum"),
        "groups": ("old", "old", "young", "young"),
        "prior": torch.tensor([0.5, 0.3, 0.2]).double(),
        "prior_origin": "table sales.csv",
    }
    return SimpleNamespace(**(fields | changes))


def fitted(name: str, directory: Path, plan: LocalPlan | None = None, **changes: Any) -> tuple[Draws, Any]:
    plan = plan or LocalPlan(epsilon=4.0, draws=2)
    ledger = plan.open_ledger()
    runtime = Runtime(run_dir=directory, accelerator="cpu", progress_bar=False)
    config = MollifierConfig(neighbourhood=3.0) if name == "mollifier" else LocalConfig()
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
    assert draws.origin.get_params().get("neighbourhood") == (3.0 if name == "mollifier" else None)
    assert ledger.epsilon() == pytest.approx(4.0, abs=1e-9)
    assert [(e.note, e.count) for e in ledger.entries()] == [(f"{name} sampler: a draw of every user", 2)]
    statement = draws.statement
    assert statement.epsilon == pytest.approx(4.0, abs=1e-9)
    assert (statement.delta, statement.relation) == (0.0, "replace_one")
    assert tiny.told(statement)[Fact.COST_OF_A_USER]["epsilon"] == 4.0
    assert tiny.told(statement)[Fact.NAMED_PRIOR] == {"origin": "table sales.csv"}
    assert statement.not_covered == (Fact.ABSENT_USERS.sentence,)


def test_without_groups_and_prior(tmp_path: Path) -> None:
    draws, _ = fitted("minimax", tmp_path, groups=None, prior=None, prior_origin="uniform")
    assert list(draws.to_pandas().columns) == ["user", "draw", "category"]
    assert draws.origin.prior.tolist() == pytest.approx([1 / 3] * 3)


def test_zero_atoms_of_the_prior_are_floored_aloud(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="1 of 3 atoms of the prior are 0"):
        draws, _ = fitted("q_invariant", tmp_path, prior=torch.tensor([0.5, 0.5, 0.0]))
    assert float(draws.origin.prior[2]) == pytest.approx(1e-6 / 3)
    assert "1 of 3 atoms of the prior are 0: they are raised to 1e-06/n" in draws.statement.to_markdown()
    draws, _ = fitted("randomized_response", tmp_path, prior=torch.tensor([0.5, 0.5, 0.0]))
    assert "raised" not in draws.statement.to_markdown(), "it takes nothing but n from the prior"


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_who_has_no_events_draws_from_the_prior(name: str, tmp_path: Path) -> None:
    """A user's counts of 0 are as private as any others: the draws follow the prior, which every sampler leaves as it is."""
    u = 1000
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
    draws, ledger = fitted("minimax", tmp_path, counts=torch.zeros(0, 3), user_names=(), groups=())
    assert (len(draws.to_pandas()), len(ledger.entries())) == (0, 1)


def test_a_table_that_is_too_large_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    plan = LocalPlan(draws=MOST_DRAWS // 4 + 1)
    ledger, runtime = plan.open_ledger(), Runtime(run_dir=tmp_path, accelerator="cpu", progress_bar=False)
    with pytest.raises(ValueError, match="draws"):
        fit("park", data(), plan=plan, config=LocalConfig(), curator=Curator(ledger), runtime=runtime)
    assert ledger.entries() == []
