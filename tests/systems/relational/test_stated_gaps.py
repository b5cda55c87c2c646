"""Gaps between rows that a schema states hold in every sample, at the end of the calendar, too."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpgen
from dpgen.columns.descriptors import field_of
from dpgen.systems.relational.calendars import Calendar
from dpgen.systems.relational.placing import Reach, Times

FAST: dict[str, Any] = {"rounds": 1, "classes": 4, "row_classes": 4, "steps": 20, "picks": 2, "person": "who", "order": "day"}
GAP = "days since the last"
WHOLE = {"name": GAP, "type": "integer"}


def visits(low: int, high: int, days: int = 365, n: int = 600, most: int = 8) -> pd.DataFrame:
    """Visits of people in some days, `low` to `high` days apart."""
    rng = np.random.default_rng(0)
    gaps = np.clip(rng.gamma(1.5, 40, (n, most)).astype(int), low, high)
    gaps[:, 0] = rng.integers(0, days, n)
    at, counts = gaps.cumsum(1), rng.integers(1, most + 1, n)
    used = (at < days) & (np.arange(most) < counts[:, None])
    day = pd.to_datetime(np.datetime64("2022-01-01") + at[used])
    return pd.DataFrame({"who": np.repeat(np.arange(n), used.sum(1)), "day": day, "ward": rng.choice(["a", "b"], used.sum())})


def gaps_of(rows: pd.DataFrame) -> np.ndarray:
    rows = rows.sort_values(["who", "day"], kind="stable")
    return np.asarray(rows.groupby("who")["day"].diff().dropna().dt.days)


def stated(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"fieldsMatch": "partial", "fields": list(fields)}


def last_day(release: Any) -> pd.Timestamp:
    """The last bought day."""
    return pd.Timestamp(Calendar(release.about[0]["calendar"], 86_400).last, unit="D")


@pytest.mark.parametrize(("low", "high"), [(1, 400), (7, 200), (30, 60)])
def test_stated_bounds_hold_and_samples_have_a_probability(low: int, high: int) -> None:
    rows = visits(low, high)
    schema = stated({**WHOLE, "constraints": {"minimum": low, "maximum": high}})
    release = dpgen.fit(rows, epsilon=1.0, max_rows=8, schema=schema, **FAST)
    made = release.sample(2_000, random_state=0)
    found = gaps_of(made)
    assert low <= found.min() <= found.max() <= high
    assert made["day"].max() <= last_day(release)
    assert np.isfinite(release.log_prob(made).numpy()).all()
    assert (found == low).mean() < (gaps_of(rows) == low).mean() + 0.12, "no heap at the least gap"


def test_stated_values_of_gaps_hold() -> None:
    rows = visits(0, 200)
    weeks = np.array([7, 14, 28])
    kept = rows.assign(place=rows.groupby("who").cumcount())
    gap = weeks[np.random.default_rng(1).integers(0, 3, len(rows))] * (kept["place"] > 0)
    first = rows.groupby("who")["day"].transform("first")
    rows["day"] = first + pd.to_timedelta(gap.groupby(rows["who"]).cumsum(), unit="D")
    rows = rows[rows["day"] < np.datetime64("2023-01-01")]
    field = {**WHOLE, "constraints": {"enum": weeks.tolist()}}
    release = dpgen.fit(rows, epsilon=3.0, max_rows=8, schema=stated(field), **FAST)
    made = release.sample(2_000, random_state=0)
    assert {*gaps_of(made)} == {7, 14, 28}
    assert np.isfinite(release.log_prob(made).numpy()).all()


def test_rows_without_room_are_left_out() -> None:
    """Of gaps of 30 days and more at most 13 rows fit into a year, whatever the noise says of numbers of rows."""
    year = {"name": "day", "type": "date", "constraints": {"minimum": "2022-01-01", "maximum": "2022-12-31"}}
    schema = stated({**WHOLE, "constraints": {"minimum": 30, "maximum": 90}}, year)
    release = dpgen.fit(visits(30, 90, n=60, most=12), epsilon=0.3, max_rows=40, schema=schema, **FAST)
    made = release.sample(500, random_state=0)
    assert 2 < made.groupby("who").size().max() <= 13
    assert made["day"].between("2022-01-01", "2022-12-31").all()
    assert gaps_of(made).min() >= 30
    assert np.isfinite(release.log_prob(made).numpy()).all()


def test_given_first_rows_stay_and_later_ones_keep_their_gaps() -> None:
    schema = stated({**WHOLE, "constraints": {"minimum": 20, "maximum": 200}})
    release = dpgen.fit(visits(20, 200), epsilon=3.0, max_rows=8, schema=schema, **FAST)
    day = last_day(release) - pd.Timedelta(50, "D")
    made = release.samples(300, given={"rows": [{"day": str(day.date())}]}, random_state=0).tables["rows"]
    assert (made.groupby("who")["day"].first() == day).all()
    assert made.groupby("who").size().max() <= 3, "50 days have room for two gaps"
    assert gaps_of(made).min() >= 20


def histories(seed: int, reach: str) -> tuple[Times, Calendar]:
    """Times of people whose least gaps, of 7, always fit into 100 days, and whose drawn ones often do not."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 12, 300)
    first = counts.cumsum() - counts
    rules = {"minimum": 7, "maximum": 60} if reach == "bounds" else {"enum": [7, 21, 60]}
    field = field_of({"name": "gap", "type": "integer", "constraints": {"required": True, **rules}})
    gaps = rng.integers(7, 61, counts.sum()) if reach == "bounds" else rng.choice([7, 21, 60], counts.sum())
    gaps[first] = 0
    after = gaps.cumsum()
    base = np.repeat(rng.integers(0, 100, 300), counts)
    cells = {"edges": [0, 50, 100], "shares": [0.5, 0.5], "noisy": [0.1, 0.9], "noise": 1e-6}
    after = after - np.repeat(after[first], counts)
    return Times(base, after, first, counts, 1, Reach.of(field, gaps)), Calendar(cells, None)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("reach", ["bounds", "values"])
def test_every_history_that_can_fit_fits(seed: int, reach: str) -> None:
    """Rows are spread over the calendar by a function that moves them, and all gaps are of the stated ones."""
    own, calendar = histories(seed, reach)
    assert own.fitting(calendar, True).all()
    limits = np.full(300, -np.inf), np.full(300, np.inf)
    found = own.inside(calendar, np.zeros(300, np.int64), limits, np.random.default_rng(seed), np.ones(len(own.base)))
    gaps = np.delete(np.diff(found), own.first[1:] - 1)
    assert 0 <= found.min() <= found.max() <= 99
    assert 7 <= gaps.min() <= gaps.max() <= 60
    assert reach == "bounds" or {*gaps} == {7, 21, 60}
    where_it_is = own.fitting(calendar, False)
    assert not where_it_is.all(), "without moving first days some rows have no room"
    assert where_it_is[own.first].all()


def test_a_stated_gap_is_stronger_than_a_rule_between_tables() -> None:
    """Everybody must begin on the last day: histories of more rows begin earlier, and gaps hold."""
    own, calendar = histories(0, "bounds")
    limits = np.full(300, 99.0), np.full(300, np.inf)
    found = own.inside(calendar, np.zeros(300, np.int64), limits, np.random.default_rng(0), np.ones(len(own.base)))
    gaps = np.delete(np.diff(found), own.first[1:] - 1)
    assert found.max() <= 99
    assert gaps.min() >= 7
    assert (found[own.first[own.counts == 1]] == 99).all()


@pytest.mark.parametrize(("low", "high"), [(2, 30), (0, 5)])
def test_times_since_the_row_above_hold_as_stated(low: int, high: int) -> None:
    above, rng = visits(7, 200, n=400), np.random.default_rng(0)
    above["visit"] = np.arange(len(above))
    counts = rng.integers(0, 4, len(above))
    owner = np.repeat(np.arange(len(above)), counts)
    since, gap = rng.integers(low, high + 1, len(above)), rng.integers(3, 10, len(owner))
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    gap[first] = since[owner[first]]
    total = gap.cumsum()
    offset = total - np.repeat(total[first] - gap[first], np.diff(first, append=len(owner)))
    day = above["day"].to_numpy()[owner] + offset * np.timedelta64(1, "D")
    people = pd.DataFrame({"who": np.arange(400), "sex": rng.choice(["f", "m"], 400)})
    tables = {"people": people, "visits": above, "drugs": pd.DataFrame({"visit": owner, "day": day, "x": gap % 2})}
    limits = {"minimum": low, "maximum": high}
    drugs = stated(
        {"name": "days since visits", "type": "integer", "constraints": limits},
        {"name": f"{GAP}", "type": "integer", "constraints": {"minimum": 3, "maximum": 9}},
    )
    options: dict[str, Any] = {
        "links": {"drugs": "visits.visit"},
        "order": {"visits": "day", "drugs": "day"},
        "schemas": {"drugs": drugs},
    }
    options["max_rows"] = {"visits": 8, "drugs": 3}
    release = dpgen.fit(tables, epsilon=3.0, **{**FAST, **options})
    made = release.sample(1_000, random_state=0)
    both = made["drugs"].merge(made["visits"], on="visit", suffixes=("", "_of_visit"))
    apart = (both["day"] - both["day_of_visit"]).dt.days
    assert apart.groupby(both["visit"]).first().between(low, high).all()
    gaps = made["drugs"].groupby("visit")["day"].diff().dropna().dt.days
    assert gaps.between(3, 9).all()
    assert np.isfinite(release.log_prob(made).numpy()).all()
