"""The contract of every system: what it releases is paid for within the budget, free afterwards, and bad input is refused."""

import contextlib
import math
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from smoke import DATA, SMOKE

from dpgen.evaluation import evaluate
from dpgen.files import RELEASED
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.release import Draws, PublicModel, RecordModel, Release
from dpgen.runtime import Runtime, quiet_training
from dpgen.systems.registry import SYSTEMS

pytestmark = pytest.mark.usefixtures("quiet")

BUDGET = Budget(2.0, 1e-5)


ROWS = {row.system: row for row in reversed(SMOKE)}
"""The first fit of each system among the smallest."""

ON_RECORDS = [name for name, system in SYSTEMS.items() if system.kinds[0] == "records"]
DRAWING = [name for name, system in SYSTEMS.items() if "draws" in system.plan.__dataclass_fields__]


def test_every_system_has_a_row() -> None:
    assert set(ROWS) == set(SYSTEMS)


class Fitted:
    """One fit of a system on small data."""

    def __init__(self, name: str, directory: Path, *, data: Any = None, ledger: Ledger | None = None) -> None:
        system, row = SYSTEMS[name], ROWS[name]
        self.name, self.plan = name, system.plan(**row.plan)
        self.ledger = ledger or self.plan.open_ledger()
        self.data = data if data is not None else (row.data or DATA[system.kinds[0]])()
        self.release: Release = system.fit(
            self.data,
            plan=self.plan,
            config=system.config(**row.config),
            curator=Curator(self.ledger),
            runtime=Runtime(run_dir=directory, accelerator="cpu", progress_bar=False),
        )


@pytest.fixture(scope="module", params=list(SYSTEMS))
def fitted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    with quiet_training():
        return Fitted(request.param, tmp_path_factory.mktemp(request.param))


def test_the_release_states_what_the_ledger_charged_within_the_budget(fitted: Fitted) -> None:
    statement, budget = fitted.release.statement, fitted.ledger.budget
    assert isinstance(fitted.release, PublicModel | Draws)
    assert budget is not None
    assert 0 < fitted.ledger.epsilon() <= budget.epsilon
    assert fitted.ledger.epsilon() <= statement.epsilon <= budget.epsilon, "rounded up, if at all"
    assert (statement.delta, statement.relation) == (budget.delta, fitted.ledger.relation)
    assert statement.unit == fitted.ledger.unit
    assert statement.assumptions
    assert sum(m["count"] for m in statement.mechanisms) == sum(e.count for e in fitted.ledger.entries())


def test_the_released_files_are_those_that_may_be_shared(fitted: Fitted) -> None:
    before = fitted.ledger.position()
    assert {name.split("/")[0] for name in fitted.release.files()} <= set(RELEASED)
    assert fitted.ledger.position() == before


@pytest.mark.parametrize("fitted", DRAWING, indirect=True)
def test_draws_are_charged_one_by_one(fitted: Fitted) -> None:
    assert isinstance(fitted.release, Draws)
    assert fitted.ledger.epsilon() == pytest.approx(fitted.plan.epsilon), "all draws together"
    assert len(fitted.release.to_pandas()) > 0
    assert fitted.ledger.delta == 0
    assert fitted.ledger.relation == "replace_one"


def test_an_evaluation_of_every_system_finds_finite_scores(fitted: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    # The classifier of an evaluation of records has its own tests and would be most of the time.
    monkeypatch.setattr("dpgen.evaluation.records.train_on_synthetic_accuracy", lambda *_, **__: 0.5)
    evaluation = evaluate(fitted.release, fitted.data, seed=0)
    assert evaluation.scores
    assert all(math.isfinite(score.value) for score in evaluation.scores)


# -- systems on records ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fitted", ON_RECORDS, indirect=True)
def test_samples_look_like_records(fitted: Fitted) -> None:
    release, records = fitted.release, fitted.data
    assert isinstance(release, RecordModel)
    samples = release.samples(100)
    assert samples.x.shape == (100, records.d)
    assert samples.x.dtype == records.x.dtype
    assert set(samples.x.unique().tolist()) <= {0, 1}
    assert samples.labels is not None
    assert 0 <= int(samples.labels.min()) <= int(samples.labels.max()) < records.n_classes


@pytest.mark.parametrize("fitted", ON_RECORDS, indirect=True)
def test_a_release_holds_nothing_per_record(fitted: Fitted) -> None:
    assert isinstance(fitted.release, RecordModel)
    assert all(fitted.data.n not in value.shape for value in fitted.release.tensors().values())


@pytest.mark.parametrize("name", ON_RECORDS)
def test_records_without_labels_are_fine(name: str, tmp_path: Path) -> None:
    ledger = Ledger(BUDGET)
    fitted = Fitted(name, tmp_path, data=tiny.records(labelled=False), ledger=ledger)
    assert isinstance(fitted.release, RecordModel)
    assert fitted.release.samples(5).labels is None
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
    "nan": ({"x": with_value(float("nan"))}, "must be finite"),
    "infinite": ({"x": with_value(float("inf"))}, "must be finite"),
    "labels too short": ({"labels": torch.zeros(9, dtype=torch.int64)}, r"labels must have shape \(63,\), got \(9,\)"),
    "label too large": ({"labels": label(2)}, r"labels must be in \[0, 2\)"),
    "label negative": ({"labels": label(-1)}, r"labels must be in \[0, 2\)"),
    "no labels": ({"labels": None}, "needs labels"),
}


@pytest.mark.parametrize("name", ON_RECORDS)
@pytest.mark.parametrize("case", list(BAD))
def test_bad_records_are_refused_before_anything_is_spent(name: str, case: str, tmp_path: Path) -> None:
    changes, match = BAD[case]
    good = tiny.records()
    fields = ("x", "labels", "n_classes", "image_shape", "columns", "people")
    records = SimpleNamespace(**{key: getattr(good, key) for key in fields} | changes)
    ledger = Ledger(BUDGET)
    with pytest.raises(ValueError, match=match):
        Fitted(name, tmp_path, data=records, ledger=ledger)
    assert ledger.entries() == []


@pytest.mark.filterwarnings("ignore:DPNorm")
@pytest.mark.parametrize("name", ON_RECORDS)
@pytest.mark.parametrize("n", [0, 1])
def test_no_number_of_records_and_no_empty_class_is_refused(name: str, n: int, tmp_path: Path) -> None:
    good = tiny.records()
    assert good.labels is not None
    records = replace(good, x=good.x[:n], labels=good.labels[:n])
    assert Fitted(name, tmp_path, data=records).release.samples(3, random_state=0).x.shape == (3, tiny.D)


def test_fewer_records_than_clusters_refuse_nothing(tmp_path: Path) -> None:
    records = replace(tiny.records(labelled=False), x=torch.ones(1, tiny.D, dtype=torch.uint8))
    assert Fitted("dpgm", tmp_path, data=records).release.weights.shape == (10,)


@pytest.mark.parametrize("name", list(SYSTEMS))
def test_a_ledger_with_less_than_the_plan_is_never_overdrawn(name: str, tmp_path: Path) -> None:
    whole = SYSTEMS[name].plan(**ROWS[name].plan).open_ledger()
    assert whole.budget is not None
    half = replace(whole.budget, epsilon=whole.budget.epsilon / 2)
    ledger = Ledger(half, relation=whole.relation, unit=whole.unit)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the budget ended training after 0 of 3 steps")
        with contextlib.suppress(BudgetExceeded):
            assert Fitted(name, tmp_path, ledger=ledger).release.statement.epsilon <= half.epsilon
    assert ledger.epsilon() <= half.epsilon
