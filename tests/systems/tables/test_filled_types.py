"""Filled values stand in a column as its own do: in its type, and written as they are."""

from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpgen
from dpgen.systems.tables.mixture import put

DAYS = pd.Series(pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"]))
TIMES = DAYS + pd.Timedelta(hours=9)


def filled(before: pd.Series, drawn: pd.Series) -> pd.Series:
    """A column with its last value filled."""
    assert before.isna().tolist() == [False, False, True]
    return put(before.to_frame("x"), drawn.to_frame("x"), None)["x"]


@pytest.mark.parametrize(
    ("before", "drawn", "wanted"),
    [
        (pd.Series(["2020-05-01", "2020-05-02", None], dtype=object), DAYS, "2020-01-03"),
        (pd.Series(["2020-05-01", "2020-05-02", None], dtype="string"), DAYS, "2020-01-03"),
        (pd.Series(["2020-05-01T08:00:00", "2020-05-02", None]), TIMES, "2020-01-03T09:00:00"),
        (pd.Series(["2020-05-01 08:00", "2020-05-02 07:00", None]), TIMES, "2020-01-03 09:00:00"),
        (pd.Series(["2020-05-01T08:00+02:00", "2020-05-02T08:00+02:00", None]), TIMES, "2020-01-03T09:00:00Z"),
        (pd.Series(["2020-05-01T08:00Z", "2020-05-02T08:00Z", None]), TIMES, "2020-01-03T09:00:00Z"),
        (pd.Series([date(2020, 5, 1), date(2020, 5, 2), None], dtype=object), DAYS, date(2020, 1, 3)),
        (pd.Series(["TRUE", "FALSE", None], dtype=object), pd.Series([True, True, True]), "TRUE"),
        (pd.Series(["1", "2", None], dtype=object), pd.Series([1, 2, 3]), "3"),
        (pd.Series([1.0, 2.0, np.nan]), pd.Series([1, 2, 3], dtype="Int64"), 3.0),
        (DAYS.dt.tz_localize("Europe/Berlin").where([True, True, False]), TIMES, pd.Timestamp("2020-01-03T09:00Z")),
    ],
)
def test_filled_values_are_as_those_of_the_column(before: pd.Series, drawn: pd.Series, wanted: Any) -> None:
    found = filled(before, drawn)
    assert found.dtype == before.dtype
    assert found.iloc[2] == wanted
    assert isinstance(found.iloc[2], type(wanted))
    assert found.iloc[:2].equals(before.iloc[:2])


@pytest.mark.parametrize("ordered", [False, True])
def test_categories_of_a_table_are_kept_and_others_follow(ordered: bool) -> None:
    before = pd.Series(pd.Categorical(["b", "a", None], categories=["b", "a", "never"], ordered=ordered))
    for drawn, more in (("a", []), ("z", ["z"])):
        own = filled(before, pd.Series(["a", "b", drawn], dtype="category"))
        assert list(own.cat.categories) == ["b", "a", "never", *more]
        assert own.cat.ordered == ordered
        assert own.tolist() == ["b", "a", drawn]


def test_categorical_rows_of_people_are_filled() -> None:
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(200), 2)
    ward = pd.Categorical(rng.choice(["a", "b"], 400), categories=["c", "b", "a"])
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 300, 400), unit="D")
    rows = pd.DataFrame({"who": who, "at": day, "ward": ward, "x": rng.integers(0, 3, 400)})
    options: dict[str, Any] = {"person": "who", "order": "at", "max_rows": 2, "rounds": 1, "classes": 4, "steps": 20}
    release = dpgen.fit(rows, epsilon=10.0, **options)
    gaps = rows.assign(ward=rows["ward"].where(rng.random(400) > 0.3))
    found = release.impute(gaps, random_state=0)
    assert found["ward"].notna().all()
    assert list(found["ward"].cat.categories)[:3] == ["c", "b", "a"]
    there = gaps["ward"].notna()
    assert (found["ward"].astype(object)[there] == gaps["ward"].astype(object)[there]).all()


def test_values_that_a_bought_domain_does_not_hold_stay_and_stop_nothing() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(0, 1, 800).round(2).astype(object), "b": rng.choice(["x", "y"], 800)}, dtype=object)
    table.at[6, "a"], table.at[8, "a"] = "n/a", [1]
    release = dpgen.fit(table, epsilon=20.0, rounds=1)
    gaps = table.assign(b=table["b"].where(rng.random(800) > 0.3))
    gaps.at[9, "a"] = None
    found = release.impute(gaps, random_state=0)
    assert found["b"].notna().all()
    assert (found.at[6, "a"], found.at[8, "a"]) == ("n/a", [1])
    assert isinstance(found.at[9, "a"], float)


def test_values_that_a_stated_domain_does_not_hold_are_refused() -> None:
    fields = [{"name": "a", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}}]
    release = dpgen.fit(pd.DataFrame({"a": [1, 2] * 100}), epsilon=1.0, schema={"fields": fields})
    with pytest.raises(ValueError, match="column 'a' breaks a rule"):
        release.impute(pd.DataFrame({"a": [None, 11]}, dtype=object))
