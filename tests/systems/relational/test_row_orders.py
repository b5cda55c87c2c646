"""Dates of rows that noisy counts show after the row's own time are modelled as times from there."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpgen
from dpgen.data.linked import load_linked
from dpgen.facts import Fact
from dpgen.systems.relational.row_orders import Asked, candidates, cells_of

FAST: dict[str, Any] = {"rounds": 1, "classes": 4, "row_classes": 4, "steps": 20, "picks": 2, "person": "who"}
FAST |= {"order": "admit", "max_rows": 3}


def stays(n: int = 800, broken: float = 0.0) -> pd.DataFrame:
    """Stays that were asked for before, of people born long ago; some people have one that ends before it begins."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(n), rng.integers(1, 4, n))
    size = len(who)
    admit, stay = np.datetime64("2020-01-01") + rng.integers(0, 900, size), rng.geometric(0.2, size) - 1
    stay = np.where((rng.random(n) < broken)[who], -3, stay)
    dates = {
        "admit": admit,
        "discharge": pd.Series(pd.to_datetime(admit + stay)).where(rng.random(size) > 0.3),
        "asked": admit - rng.integers(0, 9, size),
        "born": np.datetime64("1950-01-01") + rng.integers(0, 20_000, n)[who],
        "other": np.datetime64("2020-01-01") + rng.integers(0, 900, size),
    }
    return pd.DataFrame({"who": who, **{name: pd.to_datetime(own) for name, own in dates.items()}, "ward": "a"})


def signs_of(release: Any) -> dict[str, int]:
    return {own["column"]: own["sign"] for own in release.about[0]["distances"]}


@pytest.mark.parametrize("texts", [False, True])
def test_discharges_are_found_after_admissions(texts: bool) -> None:
    rows = stays()
    dates = [name for name in rows if rows[name].dtype.kind == "M"]
    given = rows.assign(**{name: rows[name].dt.strftime("%Y-%m-%d") for name in dates}) if texts else rows
    release = dpgen.fit(given, epsilon=10.0, **FAST)
    assert signs_of(release) == {"discharge": 1, "asked": -1}
    told = [str(said) for said in release.statement.facts if said.fact is Fact.RULES]
    assert "rows.discharge is never before rows.admit" in told[0]
    assert "rows.asked is never after rows.admit" in told[0]
    apart = [dict(said.values)["column"] for said in release.statement.facts if said.fact is Fact.TIMES_APART]
    assert sorted(apart) == ["born", "other"]
    made = release.sample(800, random_state=0)
    assert set(made) == set(rows)
    assert {made[name].dtype.kind for name in dates} == {"M"}
    admit, discharge, asked = (pd.to_datetime(made[name]) for name in ("admit", "discharge", "asked"))
    assert not (discharge < admit).any()
    assert (asked <= admit).all()
    assert abs((discharge - admit).dt.days.mean() - 4) < 1
    assert abs(discharge.isna().mean() - 0.3) < 0.08
    assert np.isfinite(release.log_prob(made).numpy()).all()
    assert np.isfinite(release.log_prob(given).numpy()).any(), "real rows on the other side are at the row's own time"


def test_dates_that_are_written_as_the_order_are_found() -> None:
    rows, form = stays()[["who", "admit", "discharge", "ward"]], "%d.%m.%Y"
    given = rows.assign(**{name: rows[name].dt.strftime(form) for name in ("admit", "discharge")})
    schema = {"fieldsMatch": "partial", "fields": [{"name": "admit", "type": "date", "format": form}]}
    made = dpgen.fit(given, epsilon=10.0, schema=schema, **FAST).sample(200, random_state=0)
    admit, discharge = (pd.to_datetime(made[name], format=form) for name in ("admit", "discharge"))
    assert ((discharge - admit).dt.days.dropna().between(0, 60)).all()


def test_what_people_break_is_no_order() -> None:
    assert "discharge" not in signs_of(dpgen.fit(stays(broken=0.2), epsilon=10.0, **FAST))
    few = stays(broken=0.004)
    assert (few["discharge"] < few["admit"]).any()
    release = dpgen.fit(few, epsilon=10.0, **FAST)
    assert signs_of(release)["discharge"] == 1
    assert release.log_prob(few).isnan().sum() == 0


@pytest.mark.parametrize(("rules", "epsilon"), [("off", 10.0), (["rows.asked", "rows.admit"], 10.0), ("auto", 0.2)])
def test_orders_are_left_out(rules: Any, epsilon: float) -> None:
    found = signs_of(dpgen.fit(stays(), epsilon=epsilon, rules=rules, **FAST))
    assert found == ({"asked": -1} if isinstance(rules, list) else {})


def test_columns_that_a_schema_states_are_not_asked() -> None:
    limits = {"minimum": "1900-01-01", "maximum": "2030-01-01"}
    fields: list[dict[str, Any]] = [
        {"name": "born", "type": "date", "constraints": limits},
        {"name": "other", "type": "string"},
    ]
    fields.append({"name": "discharge", "type": "date"})
    rules = [{"less_equal": ["admit", "discharge"]}]
    schema = {"fieldsMatch": "partial", "fields": fields, "dpgen:constraints": rules}
    options: dict[str, Any] = {"people_path": None, "person": "who", "order": "admit", "schema": schema}
    data = load_linked(path=dpgen.containers.in_memory(stays(50)), test_fraction=0.0, **options)
    assert [one.column for one in candidates(data, "auto")] == ["asked", "ward"]
    assert candidates(data, "off") == []


def test_each_person_is_in_the_cell_of_the_dates() -> None:
    """One person of each kind, by hand; a time of day is no whole number of days."""
    day = np.datetime64("2021-05-01")
    dates: dict[str, list[Any]] = {
        "none": [None, None],
        "after": [day, day + 3],
        "before": [day - 1, day],
        "same": [day, day],
        "both": [day - 1, day + 1],
        "far": [day, day + 500],
        "text": [day, "soon"],
        "clock": [day, "2021-05-01T08:00:00"],
    }
    rows = [{"who": who, "at": "2021-05-01", "x": None if own is None else str(own)} for who, of in dates.items() for own in of]
    options: dict[str, Any] = {"people_path": None, "person": "who", "order": "at", "test_fraction": 0.0}
    data = load_linked(path=dpgen.containers.in_memory(pd.DataFrame(rows)), **options)
    found = dict(zip(data.keys.tolist(), cells_of(data, Asked(1, "x")).tolist()))
    assert found == {"none": 0, "after": 1, "before": 2, "same": 3, "both": 4, "far": 4, "text": 4, "clock": 4}


def test_rows_of_rows_are_asked_by_person() -> None:
    visits = stays(500).assign(visit=lambda own: np.arange(len(own)))[["who", "visit", "admit", "discharge"]]
    rng = np.random.default_rng(1)
    at = visits["admit"] + pd.to_timedelta(rng.integers(0, 5, len(visits)), unit="D")
    drugs = pd.DataFrame(
        {"visit": visits["visit"], "at": at, "until": at + pd.to_timedelta(rng.integers(0, 20, len(at)), unit="D")}
    )
    people = pd.DataFrame({"who": np.arange(500), "sex": rng.choice(["f", "m"], 500)})
    options: dict[str, Any] = {"links": {"drugs": "visits.visit"}, "order": {"visits": "admit", "drugs": "at"}}
    release = dpgen.fit({"people": people, "visits": visits, "drugs": drugs}, epsilon=20.0, **{**FAST, **options})
    assert [[own["column"] for own in table["distances"]] for table in release.about] == [["discharge"], ["until"]]
    made = release.sample(300, random_state=0)
    assert (made["drugs"]["until"] >= made["drugs"]["at"]).all()
