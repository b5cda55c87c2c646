"""The audit of any system from outside: its pairs are neighbours, no system is flagged, and understated claims are."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from dpgen.auditing.audit_options import parse_audit
from dpgen.auditing.audit_run import audit
from dpgen.auditing.neighbours import (
    BlackBoxAudit,
    columns_pair,
    fit_once,
    points_pair,
    records_pair,
    statistics,
    users_pair,
    with_direction,
)
from dpgen.privacy.mechanisms import GaussianMechanism
from dpgen.release import Release
from dpgen.systems import SYSTEMS

pytestmark = pytest.mark.usefixtures("quiet")

FAST = ("--workers=1", "--progress_bar=false", f"--confidence={1 - 1e-6}")
SMALL = {
    "marginals": ["--trainings=150"],
    "mwem": ["--trainings=20", "--rounds=1"],
    "merr": ["--trainings=40"],
    "bernstein": ["--trainings=100"],
    "mbde": ["--trainings=4000", "--steps=20"],
}
"""Numbers of trials of systems whose trials are not cheap."""


# -- pairs -----------------------------------------------------------------------------------------------------------


def rows(data: Any) -> list[tuple[float, ...]]:
    if hasattr(data, "x"):
        return sorted(map(tuple, data.x.tolist()))
    return sorted((value,) for value in data.values["x"].tolist())


@pytest.mark.parametrize("make", [records_pair, columns_pair, lambda *a: points_pair(*a, whole=False)])
def test_pairs_differ_in_one_record(make: Any) -> None:
    for relation in ("add_remove", "replace_one"):
        pair = make(relation, 1)
        first, second = rows(pair.first), rows(pair.second)
        for row in set(first) & set(second):
            common = min(first.count(row), second.count(row))
            for _ in range(common):
                first.remove(row)
                second.remove(row)
        assert (len(first), len(second)) == ((1, 1) if relation == "replace_one" else (1, 0)), pair.description


def test_whole_data_sets_and_users_are_replaced() -> None:
    points = points_pair("replace_one", 1)
    assert points.first.x.min() > 0.9 > 0.1 > points.second.x.max()
    users = users_pair("replace_one", 5)
    assert users.first.distributions[:, 0].tolist() == users.second.distributions[:, -1].tolist() == [1.0] * 5


# -- statistics ------------------------------------------------------------------------------------------------------


def test_the_linear_statistic_joins_weak_signs() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 2000, 16, generator=generator, dtype=torch.float64)
    first += 0.25
    a, b = with_direction(first, second)
    assert a.shape == (2000, 17)
    apart = (a.mean(0) - b.mean(0)) / b.std(0)
    assert float(apart[:16].max()) < 0.4
    assert 0.8 < float(apart[16]) < 1.2, "sixteen signs of .25 are one of 1"


def test_constant_statistics_do_not_matter() -> None:
    a, b = with_direction(torch.ones(40, 3, dtype=torch.float64), torch.ones(40, 3, dtype=torch.float64))
    assert bool(torch.isfinite(torch.cat([a, b])).all())


def test_an_unknown_release_is_refused() -> None:
    class Strange(Release):
        def write(self, directory: Any) -> list[str]:
            return []

    with pytest.raises(ValueError, match="release is a Strange"):
        statistics(Strange())


def test_draws_of_one_fit_are_claimed_one_by_one() -> None:
    job = parse_audit(["--model=grid_response", "--epsilon=3", "--draws=2"])
    task = BlackBoxAudit(model=job.model, plan=job.plan, config=job.config, trials=50)
    found = fit_once(task, task.pair().first)
    assert found.values.shape == (50, 1)
    assert found.claimed == pytest.approx(1.5)


def test_users_are_trials_with_all_their_draws() -> None:
    job = parse_audit(["--model=minimax", "--epsilon=2", "--draws=3"])
    task = BlackBoxAudit(model=job.model, plan=job.plan, config=job.config, trials=50)
    found = fit_once(task, task.pair().first)
    assert found.values.sum(1).tolist() == [3.0] * 50
    assert found.claimed == pytest.approx(job.plan.open_ledger().budget.epsilon)


# -- every system ----------------------------------------------------------------------------------------------------

BLACK_BOX = [name for name in SYSTEMS if name not in ("dpgm", "dpgan")]


@pytest.mark.parametrize("model", BLACK_BOX)
def test_no_system_is_flagged(model: str) -> None:
    """A false alarm has probability at most 1e-6."""
    finding = audit(parse_audit([f"--model={model}", *SMALL.get(model, ["--trainings=4000"]), *FAST]))
    assert not finding.violated, finding.to_text()
    assert finding.claimed <= 1.0 + 1e-9


@pytest.mark.parametrize("model", ["randomized_response", "minimax", "q_invariant", "grid_response", "interval_laplace"])
def test_a_tight_sampler_whose_statement_halves_its_epsilon_is_flagged(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    system = SYSTEMS[model]

    def modest(*args: Any, **options: Any) -> Release:
        release = system.fit(*args, **options)
        release.statement = replace(release.statement, epsilon=release.statement.epsilon / 2)
        return release

    monkeypatch.setitem(SYSTEMS, model, system._replace(fit=modest))
    finding = audit(parse_audit([f"--model={model}", "--epsilon=2", "--trainings=8000", *FAST]))
    assert finding.claimed == pytest.approx(1.0)
    assert finding.violated


def test_marginals_with_a_twentieth_of_their_noise_are_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    class Careless(GaussianMechanism):
        @property
        def noise_std(self) -> float:
            return super().noise_std / 20

    monkeypatch.setattr("dpgen.systems.marginals.noisy_marginals.GaussianMechanism", Careless)
    assert audit(parse_audit(["--model=marginals", "--epsilon=1", "--trainings=300", *FAST])).violated


@pytest.mark.slow
def test_the_gaussian_component_is_not_flagged() -> None:
    finding = audit(parse_audit(["--model=dpgm", "--component=gaussian", "--trainings=100", *FAST]))
    assert not finding.violated


def test_numbers_of_a_model_are_those_it_released() -> None:
    job = parse_audit(["--model=merr"])
    task = BlackBoxAudit(model="merr", plan=job.plan, config=job.config, trials=1)
    values = fit_once(task, task.pair().first).values
    assert values.shape == (1, 7)
    assert bool((np.diff(values.numpy()[0]) >= 0).all()), "a CDF at growing places"
