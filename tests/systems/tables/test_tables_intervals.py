"""Intervals of a release: sampling error and noise in them, and what they refuse."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from test_tables_fit import FIELDS, SMALL, people, released

import dpgen
from dpgen.release import Draws, read_model
from dpgen.schema import Schema
from dpgen.systems.tables import model as module
from dpgen.systems.tables.model import TablesModel, intervals

ONE = Schema.from_descriptor({"fields": FIELDS[3:]})


def share(rows: pd.DataFrame) -> float:
    return float(rows["rich"].mean())


@pytest.mark.parametrize(("n", "epsilon"), [(4000, 10.0), (150, 0.1)])
def test_the_standard_error_is_that_of_sampling_and_noise(n: int, epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STEPS", 300)
    model = released(SimpleNamespace(codes=torch.arange(n)[:, None] % 2, schema=ONE), epsilon=epsilon)
    found = intervals(model, share, replicates=40, random_state=0).iloc[0]
    measured = [m for m in model.measured() if m["columns"] == ["rich"]]
    noise = float(np.sum([m["noise_std"].flat[0] ** -2.0 for m in measured])) ** -0.5
    expected = (0.25 / n + noise**2 / (2 * n**2)) ** 0.5
    assert 0.6 * expected < found["std"] < 1.5 * expected  # 40 replicates: within 5 of its standard errors
    assert found["lower"] < 0.5 < found["upper"]
    assert found["upper"] - found["lower"] == pytest.approx(2 * 2.0227 * found["std"] * (41 / 40) ** 0.5, rel=1e-3)


def test_a_fit_that_is_held_back_is_corrected() -> None:
    def tied(rows: pd.DataFrame) -> pd.Series:
        return rows.groupby("home", observed=True)["rich"].mean()

    data = people(1000)
    model = released(data, epsilon=0.5)
    found = intervals(model, tied, level=0.99, replicates=5, random_state=0)
    rows = pd.DataFrame({"home": np.array(["flat", "house"])[data.codes[:, 2]], "rich": data.codes[:, 3].numpy()})
    truth = tied(rows)
    assert list(found.index) == ["flat", "house"]
    assert ((found["lower"] < truth) & (truth < found["upper"])).all()
    corrected, plain = found["estimate"], tied(model.samples(20_000, random_state=0).values)
    assert (corrected - truth).abs().max() < min(0.04, (plain - truth).abs().max())
    assert plain["house"] - plain["flat"] < corrected["house"] - corrected["flat"]


def test_a_column_in_a_writing_of_its_own_has_intervals() -> None:
    """Truths in words, money and dates of a format are fitted again as they were."""
    rng, n = np.random.default_rng(0), 2000
    yes, cost = rng.random(n) < 0.3, rng.lognormal(3, 0.5, n)
    when = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 300, n), "D")
    frame = pd.DataFrame({"flag": np.where(yes, "yes", "no"), "cost": [f"${value:.2f}" for value in cost]})
    release = dpgen.fit(frame.assign(when=when.strftime("%d.%m.%Y")), "tables", epsilon=20.0, rounds=2, picks=3)

    def statistic(rows: pd.DataFrame) -> dict[str, float]:
        days = (rows["when"] - pd.Timestamp("2020-01-01")).dt.days
        return {"flag": rows["flag"].mean(), "cost": rows["cost"].mean(), "days": days.mean()}

    found = intervals(release, statistic, replicates=4, random_state=0)
    truth = pd.Series(
        {"flag": yes.mean(), "cost": cost.mean(), "days": (when - pd.Timestamp("2020-01-01")).days.to_numpy().mean()}
    )
    assert ((found["estimate"] - truth).abs() < [0.03, 1.5, 8.0]).all()


@pytest.fixture(scope="module")
def model() -> TablesModel:
    return released(people(300), SMALL, epsilon=1.0)


def test_a_saved_release_gives_the_same_intervals(model: TablesModel, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STEPS", 20)
    model.save(tmp_path)
    one, two = (
        dpgen.intervals(m, lambda rows: {"rich": share(rows), "age": rows["age"].mean()}, replicates=2, random_state=3)
        for m in (model, read_model(tmp_path))
    )
    pd.testing.assert_frame_equal(one, two)
    assert list(one.columns) == ["estimate", "lower", "upper", "std"]
    assert list(one.index) == ["rich", "age"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"level": 1.0}, r"level is 1.0; it must lie in \(0, 1\)"),
        ({"replicates": 1}, "replicates is 1; it must be a whole number in"),
        ({"statistic": lambda rows: {str(rows["age"].mean()): 1}}, "on some synthetic rows only; it must give the same names"),
        ({"statistic": lambda rows: float("nan")}, "statistic is nan on synthetic rows; it must be finite"),
    ],
)
def test_arguments_out_of_their_range_are_refused(model: TablesModel, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        intervals(model, **({"statistic": share, "replicates": 2} | given))


def test_rows_of_one_person_are_not_independent(model: TablesModel) -> None:
    people_of_five = released(people(300), SMALL, epsilon=1.0)
    people_of_five.statement = replace(model.statement, unit="one person (id) with at most 5 rows")
    with pytest.raises(ValueError, match=r"protects one person .* rows; intervals need rows that are independent"):
        intervals(people_of_five, share)


def test_another_release_has_none() -> None:
    with pytest.raises(TypeError, match="release is a Draws; it must be one of --model tables"):
        intervals(Draws(pd.DataFrame(), statement=None), share)  # type: ignore[arg-type]
