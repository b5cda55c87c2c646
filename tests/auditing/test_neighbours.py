"""The audit of any system from outside: its pairs are neighbours, no system is flagged, and understated claims are."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from dpgen.auditing.audits import (
    audit,
    columns_pair,
    points_pair,
    records_pair,
    released,
    table_pair,
    users_pair,
    whole_points_pair,
    with_direction,
)
from dpgen.auditing.options import parse_audit
from dpgen.privacy.noise import SecureSource
from dpgen.release import Release
from dpgen.systems.registry import SYSTEMS

pytestmark = pytest.mark.usefixtures("quiet")

FAST = ("--workers=1", "--progress_bar=false", f"--confidence={1 - 1e-6}")
SMALL = {
    "gaussian": ["--trainings=20"],
    "marginals": ["--trainings=60"],
    "merf": ["--trainings=20"],
    "mwem": ["--trainings=60"],
    "merr": ["--trainings=60"],
    "tables": ["--trainings=60"],
    "relational": ["--trainings=20"],
    "bernstein": ["--trainings=60"],
    "mbde": ["--trainings=4000", "--steps=20"],
}
"""Numbers of trials of systems whose trials are not cheap."""


def rows(data: Any) -> list[tuple[float, ...]]:
    if hasattr(data, "codes"):
        return sorted(map(tuple, data.codes.tolist()))
    if hasattr(data, "x"):
        return sorted(map(tuple, data.x.tolist()))
    return sorted((value,) for value in data.values["x"].tolist())


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("make", [records_pair, table_pair, columns_pair, points_pair])
def test_pairs_differ_in_one_record(make: Any, copies: int) -> None:
    for relation in ("add_remove", "replace_one"):
        pair = make(relation, copies)
        first, second = rows(pair.first), rows(pair.second)
        for row in set(first) & set(second):
            common = min(first.count(row), second.count(row))
            for _ in range(common):
                first.remove(row)
                second.remove(row)
        assert (len(first), len(second)) == ((copies, copies) if relation == "replace_one" else (copies, 0)), pair.description


def test_whole_data_sets_and_users_are_replaced() -> None:
    points = whole_points_pair()
    assert points.first.x.min() > 0.9 > 0.1 > points.second.x.max()
    users = users_pair(trials=5)
    assert users.first.distributions[:, 0].tolist() == users.second.distributions[:, -1].tolist() == [1.0] * 5


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


def test_draws_of_one_fit_are_claimed_one_by_one() -> None:
    found, claimed = released(parse_audit(["--model=grid_response", "--epsilon=3", "--draws=2"]), 0, 50)
    assert found.shape == (50, 1)
    assert claimed == pytest.approx(1.5)


def test_users_are_trials_with_all_their_draws() -> None:
    job = parse_audit(["--model=minimax", "--epsilon=2", "--draws=3"])
    found, claimed = released(job, 0, 50)
    assert found.sum(1).tolist() == [3.0] * 50
    assert claimed == pytest.approx(job.plan.open_ledger().budget.epsilon)


SLOW = {"relational": pytest.mark.slow}
BLACK_BOX = [pytest.param(name, marks=SLOW.get(name, ())) for name in SYSTEMS if name not in ("dpgm", "dpgan")]


@pytest.mark.parametrize("model", BLACK_BOX)
def test_no_system_is_flagged(model: str) -> None:
    """A false alarm has probability at most 1e-6."""
    finding = audit(parse_audit([f"--model={model}", *SMALL.get(model, ["--trainings=4000"]), *FAST]))
    assert not finding.violated, finding.to_text()
    assert finding.claimed <= 1.0 + 1e-9


@pytest.mark.parametrize("model", ["randomized_response", "minimax", "q_invariant", "grid_response"])
def test_a_tight_sampler_whose_statement_halves_its_epsilon_is_flagged(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    system = SYSTEMS[model]
    fit = system.fit

    def modest(*args: Any, **options: Any) -> Release:
        release = fit(*args, **options)
        release.statement = replace(release.statement, epsilon=release.statement.epsilon / 2)
        return release

    monkeypatch.setattr(system.fit_path.replace(":", "."), modest)
    finding = audit(parse_audit([f"--model={model}", "--epsilon=2", "--trainings=8000", *FAST]))
    assert finding.claimed == pytest.approx(1.0)
    assert finding.violated


class LittleNoise(SecureSource):
    """The faulty variant of the secure source: a quarter of the scale that is asked for."""

    def rounded_normal(self, *shape: int, noise_std: float) -> torch.Tensor:
        return super().rounded_normal(*shape, noise_std=noise_std / 4)

    def discrete_laplace(self, *shape: int, scale: float) -> torch.Tensor:
        return super().discrete_laplace(*shape, scale=scale / 4)


@pytest.mark.parametrize("model", ["bernstein", "marginals"])
def test_noise_that_is_too_small_is_found(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpgen.privacy.curator.SecureSource", LittleNoise)
    finding = audit(parse_audit([f"--model={model}", "--trainings=250", *FAST[:2]]))
    assert finding.violated, finding.to_text()
    assert finding.claimed == pytest.approx(1.0, abs=0.01)


def test_a_model_that_holds_an_exact_number_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    system = SYSTEMS["marginals"]
    fit = system.fit

    def careless(data: Any, **options: Any) -> Release:
        release = fit(data, **options)
        release.tensors = lambda: {"n": torch.tensor([len(data.x)])}  # type: ignore[attr-defined]
        return release

    monkeypatch.setattr(system.fit_path.replace(":", "."), careless)
    assert audit(parse_audit(["--model=marginals", "--trainings=100", *FAST[:2]])).violated
