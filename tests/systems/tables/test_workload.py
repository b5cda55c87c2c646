"""The user's own questions: they are measured with the error that is stated, and refused before anything is spent."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from test_tables_fit import SCHEMA, people, released

import dpgen
from dpgen.cli.main import main
from dpgen.facts import Fact
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.release import read_model
from dpgen.schema import Schema
from dpgen.systems.tables.fitter import Held
from dpgen.systems.tables.marginals import Coarsening, Marginal, Measurement
from dpgen.systems.tables.model import TablesModel
from dpgen.systems.tables.plan import Question, TablesConfig
from dpgen.systems.tables.workload import QUESTION, expected

QUESTIONS: Any = [["home", "job"], ["rich"], {"mean": "age", "by": ["home"]}]
ASKED = TablesConfig(components=16, rounds=4, picks=8, workload=QUESTIONS)


@pytest.fixture(scope="module")
def models() -> list[TablesModel]:
    return [released(people(2000), ASKED, noise=noise, epsilon=1.0) for noise in range(4)]


def squares(model: TablesModel, question: int, real: Any) -> tuple[float, float]:
    """Mean squared errors of the counts of a question before and after consistency."""
    own = model.answers[question]
    measured = model.measurements[own.measured]
    groups = model.columns.coarse.then(model.levels[measured.marginal.level]).apply(real)
    cells = np.ravel_multi_index([groups[c] for c in measured.marginal.columns], measured.values.shape)
    true = np.bincount(cells, minlength=measured.values.size).reshape(measured.values.shape)
    answer = model.columns.n * expected(model.mixture, measured.marginal, model.levels)
    return float(((measured.values - true) ** 2).mean()), float(((answer - true) ** 2).mean())


@pytest.mark.parametrize("question", [0, 1])
def test_errors_are_as_stated(models: Sequence[TablesModel], question: int) -> None:
    found = [squares(model, question, people(2000).codes.numpy()) for model in models]
    before, after = (float(np.mean(own)) ** 0.5 for own in zip(*found))
    answers = [model.answers[question] for model in models]
    stated = [np.sqrt(np.mean(np.square(own, dtype=float))) for own in zip(*((a.noise_std, a.model_std) for a in answers))]
    assert before / stated[0] == pytest.approx(1.0, abs=0.4)
    assert 0.4 < after / stated[1] < 2.5
    assert after < 1.2 * before


def test_a_mean_is_as_near_as_stated(models: Sequence[TablesModel]) -> None:
    codes = people(2000).codes.numpy()
    for model in models:
        found = model.workload()[2]
        real = [codes[codes[:, 2] == home, 0].mean() for home in (0, 1)]
        assert 0 < found["model_std"] < 2 * found["noise_std"]
        assert found["answer"] == pytest.approx(real, abs=6 * found["noise_std"])
        assert found["answer"].shape == (2,)


def test_it_is_said_and_kept(models: Sequence[TablesModel], tmp_path: Path) -> None:
    model = models[0]
    [said] = [one for one in model.statement.facts if one.fact is Fact.WORKLOAD]
    assert "30%" in said.sentence
    assert all(str(Question.of(given)) in said.sentence for given in QUESTIONS)
    assert [line["note"] for line in model.statement.mechanisms].count(QUESTION) == len(QUESTIONS)
    model.save(tmp_path / "model")
    again = read_model(tmp_path / "model")
    assert isinstance(again, TablesModel)
    assert again.answers == model.answers
    assert [own["question"] for own in again.workload()] == QUESTIONS
    counts = again.measured()[again.answers[0].measured]
    assert (counts["columns"], counts["counts"].shape) == (["job", "home"], (4, 2))


def test_questions_are_answered_where_columns_stay_single() -> None:
    model = released(people(300), TablesConfig(components=4, workload=[["home", "rich"]]), epsilon=0.5)
    assert Fact.WORKLOAD in {one.fact for one in model.statement.facts}
    assert [len(m.marginal.columns) for m in model.measurements].count(2) == 1
    assert model.statement.epsilon <= 0.5


def test_large_questions_are_counted_in_groups() -> None:
    names = [f"c{i:03}" for i in range(200)]
    shop = {"name": "shop", "type": "string", "constraints": {"enum": names, "required": True}}
    schema = Schema.from_descriptor({"fields": [shop, shop | {"name": "place"}]})
    codes = torch.from_numpy(np.random.default_rng(0).integers(0, 200, (3000, 2)))
    config = TablesConfig(components=4, rounds=1, picks=1, workload=[["shop", "place"]])
    model = released(SimpleNamespace(codes=codes, schema=schema), config, epsilon=1.0)
    [said] = [one for one in model.statement.facts if one.fact is Fact.WORKLOAD]
    assert "shop in 12 groups, place in 12 groups" in said.sentence
    assert model.measurements[model.answers[0].measured].values.shape == (12, 12)


@pytest.fixture(scope="module")
def deep() -> tuple[np.ndarray, TablesModel]:
    """A table of three values each in which the last column of five is a sum that no four of them tell."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (6000, 8))
    x[:, 4] = x[:, :4].sum(1) % 3
    asked: Any = [[f"c{i}" for i in range(5)], {"mean": "c5", "by": ["c0", "c6", "c7"]}]
    given = {"type": "integer", "constraints": {"minimum": 0, "maximum": 2, "required": True}}
    schema = Schema.from_descriptor({"fields": [given | {"name": f"c{i}"} for i in range(8)]})
    x[:, 5] = np.where(rng.random(6000) < 0.8, (x[:, 0] + x[:, 6] + x[:, 7]) % 3, x[:, 5])
    data = SimpleNamespace(codes=torch.from_numpy(x), schema=schema)
    return x, released(data, TablesConfig(components=16, rounds=4, picks=8, workload=asked), epsilon=2.0)


def test_a_question_of_five_columns_is_in_the_rows(deep: tuple[np.ndarray, TablesModel], tmp_path: Path) -> None:
    x, model = deep
    assert model.measured()[model.answers[0].measured]["counts"].shape == (3,) * 5
    before, after = (own**0.5 for own in squares(model, 0, x))
    assert before == pytest.approx(model.answers[0].noise_std, rel=0.3)
    assert after < 1.05 * before, "no farther from the real answers than noise alone"
    model.save(tmp_path / "model")
    again = read_model(tmp_path / "model")
    assert isinstance(again, TablesModel)
    for own in (model, again.refitted(np.random.default_rng(0))):
        rows = own.schema.encode(own.samples(4000, random_state=0).to_pandas()).numpy()
        assert (rows[:, :4].sum(1) % 3 == rows[:, 4]).mean() > 0.9


def test_a_mean_by_three_columns_is_as_near_as_stated(deep: tuple[np.ndarray, TablesModel]) -> None:
    x, model = deep
    found = model.workload()[1]
    real = np.array([[[x[(x[:, [0, 6, 7]] == cell).all(1), 5].mean() for cell in np.ndindex(3, 3, 3)]]]).reshape(3, 3, 3)
    assert real.std() > 0.4
    assert found["answer"] == pytest.approx(real, abs=6 * found["noise_std"])
    assert np.corrcoef(found["answer"].ravel(), real.ravel())[0, 1] > 0.9


def test_deep_questions_have_few_classes_and_share_groups() -> None:
    levels = [Coarsening.full((4, 4, 4, 4, 9, 2, 4)), Coarsening.full((4, 4, 4, 2, 9, 2, 4))]

    def asked(level: int, *columns: int) -> Measurement:
        return Measurement(Marginal(columns, level), np.ones([levels[level].sizes[c] for c in columns]), 1.0)

    held = Held.of([asked(0, 0, 1, 4), asked(0, 0, 1, 2, 4), asked(0, 0, 1, 4, 5), asked(0, 2, 3, 4, 6)], levels)
    assert [m.marginal.columns for m in held.tables] == [(0, 1, 2), (0, 1, 5)]
    assert (held.cells, held.busy) == (128, {0, 1, 2, 5})
    assert np.array_equal(held.tables[0].values, np.full((4, 4, 4), 9.0))
    assert held.tables[0].noise_std[0, 0, 0] == 3.0  # type: ignore[index]


FRAME = pd.DataFrame({"ward": ["a", "b"] * 200, "cost": np.arange(400) % 9, "name": [f"n{i}x{i * 7}" for i in range(400)]})


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ([["ward", "costs"]], r"a column of workload is 'costs'.*did you mean 'cost'"),
        ([{"mean": "cost", "of": ["ward"]}], r"it must be \{'mean': COLUMN, 'by': \[COLUMNS\]\}"),
        ([{"mean": "name", "by": ["ward"]}], "mean of workload is 'name', of type 'string'; it must be a number"),
        ([["ward", "ward"]], "must be of 1 to 6 columns, each once"),
        ([list("abcdefg")], "must be of 1 to 6 columns, each once"),
        ([[]], "a question is a list of columns"),
        ([["ward", 3]], "a question is a list of columns"),
        ("ward,cost", "a question is a list of columns"),
    ],
)
def test_what_cannot_be_asked_is_refused_for_free(workload: Any, message: str) -> None:
    ledger = Ledger(Budget(1.0, 1e-5))
    schema = {"fields": [{"name": "name", "type": "string"}], "fieldsMatch": "partial"}
    with pytest.raises(ValueError, match=message):
        dpgen.fit(FRAME, "tables", epsilon=1.0, schema=schema, workload=workload, ledger=ledger)
    assert ledger.spent() == 0.0


def test_a_workload_is_of_several_columns() -> None:
    with pytest.raises(ValueError, match="method is 'independent'"):
        TablesConfig(method="independent", workload=[["a", "b"]])


def test_what_is_left_out_is_not_asked() -> None:
    asked = [["ward", "name"], {"mean": "ward", "by": ["cost"]}, ["ward"]]
    options: dict[str, Any] = {"components": 4, "rounds": 1, "picks": 1, "workload": asked}
    release: Any = dpgen.fit(FRAME, "tables", epsilon=2.0, **options)
    [said] = [one for one in release.statement.facts if one.fact is Fact.NOT_ASKED]
    assert "ward x name, mean of ward by cost" in said.sentence
    assert [own["question"] for own in release.workload()] == [["ward"]]


def test_the_command_line_asks_in_the_same_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    train = ["train", str(tmp_path / "a.csv"), "--epsilon=1", "--rounds=1", "--picks=1", "--components=4"]
    asked = "[ward,cost],{mean: cost, by: [ward]}"
    assert main([*train, f"--workload={asked}", "--dry_run=4000"]) == 0
    said = capsys.readouterr().out
    assert "ward x cost: noise std" in said
    assert "mean of cost by ward: noise std" in said
    assert main([*train, "--workload={mean: cost, by: [wards]}", f"--run_dir={tmp_path / 'run'}"]) != 0
    assert "did you mean 'ward'?" in capsys.readouterr().err


def test_the_error_before_paying_is_that_of_the_release() -> None:
    frame = pd.DataFrame(SCHEMA.decode(people(2000).codes, torch.Generator().manual_seed(0)))
    schema = {"fields": SCHEMA.descriptor()["fields"]}
    options: dict[str, Any] = {"schema": schema, "epsilon": 1.0, "components": 4, "rounds": 1, "workload": QUESTIONS[:2]}
    planned = dpgen.plan(frame, 2000, "tables", **options).workload
    release: Any = dpgen.fit(frame, "tables", **options)
    for own in release.answers:
        assert planned[str(own.question)] == pytest.approx(own.noise_std, rel=0.05)
