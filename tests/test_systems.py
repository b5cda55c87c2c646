"""The contract of every system: what it releases is paid for within the budget, free afterwards, and bad input is refused."""

import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch

from dpgen.data import Records
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.release import PublicModel, load_model
from dpgen.runtime import Runtime
from dpgen.systems import SYSTEMS

pytestmark = pytest.mark.usefixtures("quiet")

BUDGET = Budget(2.0, 1e-5)


@dataclass(frozen=True)
class Row:
    """The smallest sensible run of one system."""

    plan: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)


ROWS = {"dpgm": Row({"steps": 3, "sampling_rate": 0.5}, {"hidden": 3, "latent": 1})}


def test_every_system_has_a_row() -> None:
    assert set(ROWS) == set(SYSTEMS)


class Fitted:
    """One fit of a system on tiny records."""

    def __init__(self, name: str, directory: Path, *, records: Any = None, ledger: Ledger | None = None) -> None:
        system, row = SYSTEMS[name], ROWS[name]
        self.ledger = ledger or Ledger(BUDGET)
        self.records: Records = records if records is not None else tiny.records()
        self.release: PublicModel = system.fit(
            self.records,
            plan=system.plan(epsilon=BUDGET.epsilon, delta=BUDGET.delta, **row.plan),
            config=system.config(**row.config),
            ledger=self.ledger,
            runtime=Runtime(run_dir=directory, accelerator="cpu", progress_bar=False),
        )


@pytest.fixture(scope="module", params=list(SYSTEMS))
def fitted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    with tiny.quiet():
        return Fitted(request.param, tmp_path_factory.mktemp(request.param))


def test_the_release_states_what_the_ledger_charged_within_the_budget(fitted: Fitted) -> None:
    statement = fitted.release.statement
    assert isinstance(fitted.release, PublicModel)
    assert 0 < fitted.ledger.epsilon() <= BUDGET.epsilon
    assert fitted.ledger.epsilon() <= statement.epsilon <= BUDGET.epsilon, "rounded up, if at all"
    assert (statement.delta, statement.relation, statement.unit) == (BUDGET.delta, "add_remove", "one record")
    assert [m["count"] for m in statement.mechanisms] == [e.count for e in fitted.ledger.entries()]


def test_sampling_saving_and_loading_are_free(fitted: Fitted, tmp_path: Path) -> None:
    before = fitted.ledger.position()
    fitted.release.save(tmp_path)
    loaded = load_model(tmp_path)
    assert type(loaded) is type(fitted.release)
    assert loaded.statement == fitted.release.statement
    first, second = fitted.release.sample(200, seed=3), loaded.sample(200, seed=3)
    assert torch.equal(first.x, second.x)
    assert fitted.ledger.position() == before


def test_samples_look_like_records(fitted: Fitted) -> None:
    samples, records = fitted.release.sample(100), fitted.records
    assert samples.x.shape == (100, records.d)
    assert samples.x.dtype == records.x.dtype
    assert set(samples.x.unique().tolist()) <= {0, 1}
    assert samples.labels is not None
    assert 0 <= int(samples.labels.min()) <= int(samples.labels.max()) < records.n_classes


def test_a_release_holds_nothing_per_record(fitted: Fitted) -> None:
    assert all(fitted.records.n not in value.shape for value in fitted.release.tensors().values())


@pytest.mark.parametrize("name", list(SYSTEMS))
def test_records_without_labels_are_fine(name: str, tmp_path: Path) -> None:
    ledger = Ledger(BUDGET)
    fitted = Fitted(name, tmp_path, records=tiny.records(labelled=False), ledger=ledger)
    assert fitted.release.sample(5).labels is None
    assert ledger.epsilon() <= BUDGET.epsilon


def with_value(value: float) -> torch.Tensor:
    x = tiny.records().x.float()
    x[7, 3] = value
    return x


def label(value: int) -> torch.Tensor:
    labels = tiny.records().labels
    assert labels is not None
    return labels.index_fill(0, torch.tensor([5]), value)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "empty": ({"x": torch.zeros(0, tiny.D), "labels": torch.zeros(0, dtype=torch.int64)}, "at least k=2 records, got 0"),
    "fewer than clusters": ({"x": torch.ones(1, tiny.D), "labels": torch.zeros(1)}, "at least k=2 records, got 1"),
    "nan": ({"x": with_value(float("nan"))}, "must be finite"),
    "infinite": ({"x": with_value(float("inf"))}, "must be finite"),
    "labels too short": ({"labels": torch.zeros(9, dtype=torch.int64)}, r"labels must have shape \(64,\), got \(9,\)"),
    "label too large": ({"labels": label(2)}, r"labels must be in \[0, 2\)"),
    "label negative": ({"labels": label(-1)}, r"labels must be in \[0, 2\)"),
    "no labels": ({"labels": None}, "needs labels"),
}


@pytest.mark.parametrize("name", list(SYSTEMS))
@pytest.mark.parametrize("case", list(BAD))
def test_bad_records_are_refused_before_anything_is_spent(name: str, case: str, tmp_path: Path) -> None:
    changes, match = BAD[case]
    good = tiny.records()
    fields = ("x", "labels", "n_classes", "public_x", "image_shape", "columns")
    records = SimpleNamespace(**{key: getattr(good, key) for key in fields} | changes)
    ledger = Ledger(BUDGET)
    with pytest.raises(ValueError, match=match):
        Fitted(name, tmp_path, records=records, ledger=ledger)
    assert ledger.entries() == []


@pytest.mark.parametrize("name", list(SYSTEMS))
def test_a_ledger_with_less_than_the_plan_is_never_overdrawn(name: str, tmp_path: Path) -> None:
    ledger = Ledger(replace(BUDGET, epsilon=1.0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", "the budget ended training")
        fitted = Fitted(name, tmp_path, ledger=ledger)
    assert "after 0 of 3 steps" in str(caught[0].message)
    assert fitted.release.statement.epsilon <= 1.0
    assert ledger.epsilon() <= 1.0
