"""Times of day of rows are those of the data, and rows that are seconds or minutes apart keep their gaps."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ks_2samp

import dpgen
from dpgen.systems.relational.hours import Hours

FAST: dict[str, Any] = {"rounds": 1, "classes": 4, "row_classes": 4, "steps": 20, "picks": 2, "person": "who", "order": "at"}
DAY = 86_400


def rows_of(gaps: np.ndarray, clock: np.ndarray, kept: bool = False) -> pd.DataFrame:
    """Rows (n, each) of people, `gaps` seconds apart, on days of one year at times of day in seconds, or `kept`: the first."""
    rng, (n, each) = np.random.default_rng(0), gaps.shape
    gaps[:, 0] = DAY * rng.integers(0, 365, n)
    units = gaps.cumsum(1)
    units = units + clock[:, :1] if kept else units // DAY * DAY + clock
    at = np.datetime64("2022-01-01", "s") + units.ravel() * np.timedelta64(1, "s")
    return pd.DataFrame({"who": np.repeat(np.arange(n), each), "at": at, "x": rng.integers(0, 3, n * each)})


def afternoons(shape: tuple[int, int]) -> np.ndarray:
    """Times of day by the minute, about half past two, none at night."""
    hours = np.random.default_rng(1).normal(14.5, 2.5, shape).clip(7, 21)
    return (hours * 60).astype(int) * 60


def clock_of(rows: pd.DataFrame) -> np.ndarray:
    return rows["at"].to_numpy("datetime64[s]").astype(np.int64) % DAY


def gaps_of(rows: pd.DataFrame) -> np.ndarray:
    rows = rows.sort_values(["who", "at"], kind="stable")
    return np.asarray(rows.groupby("who")["at"].diff().dropna().dt.total_seconds())


def apart(first: np.ndarray, second: np.ndarray) -> float:
    return float(ks_2samp(first, second).statistic)


def test_visits_are_at_the_hours_of_the_data() -> None:
    days = np.random.default_rng(2).gamma(1.5, 40, (2_000, 4)).astype(int) + 1
    rows = rows_of(DAY * days, afternoons(days.shape))
    release = dpgen.fit(rows, epsilon=3.0, max_rows=4, time_unit="second", **FAST)
    made = release.sample(2_000, random_state=0)
    assert apart(clock_of(rows), clock_of(made)) < 0.06
    assert abs(clock_of(made).mean() / 3_600 - 14.5) < 0.3
    assert (clock_of(made) < 6 * 3_600).mean() < 0.03, "none at night"
    assert apart(gaps_of(rows), gaps_of(made)) < 0.12
    hours = release.about[0]["calendar"].pop("hours")
    assert sum(hours["shares"]) == pytest.approx(1)
    without = release.sample(2_000, random_state=0)
    assert apart(clock_of(rows), clock_of(without)) > 0.15, "bins of gaps know no hours"


def test_hours_of_a_release_are_read_from_its_files(tmp_path: Any) -> None:
    rows = rows_of(np.full((300, 2), 3 * DAY), afternoons((300, 2)))
    release = dpgen.fit(rows, epsilon=5.0, max_rows=2, time_unit="second", **FAST)
    release.save(tmp_path / "model")
    read = dpgen.load(tmp_path / "model")
    assert read.about[0]["calendar"]["hours"] == release.about[0]["calendar"]["hours"]
    pd.testing.assert_frame_equal(read.sample(50, random_state=0), release.sample(50, random_state=0))


@pytest.mark.parametrize("gap", [10, 600])
def test_rows_seconds_or_minutes_apart_stay_as_they_are(gap: int) -> None:
    rows = rows_of(np.full((600, 8), gap), afternoons((600, 8)), kept=True)
    release = dpgen.fit(rows, epsilon=3.0, max_rows=8, time_unit="second", **FAST)
    made = release.sample(1_000, random_state=0)
    assert (gaps_of(made) == gap).mean() > 0.98
    assert apart(clock_of(rows), clock_of(made)) < 0.12


def test_events_minutes_apart_inside_visits_stay_near() -> None:
    rng = np.random.default_rng(3)
    near = rng.random((1_000, 6)) < 0.5
    days = rng.integers(2, 60, (1_000, 6)) * ~near
    clock = afternoons(days.shape)
    for place in range(1, 6):
        later = clock[:, place - 1] + 60 * rng.integers(1, 20, 1_000)
        clock[:, place] = np.where(near[:, place], later, clock[:, place])
    rows = rows_of(DAY * days, clock.clip(0, DAY - 1))
    release = dpgen.fit(rows, epsilon=3.0, max_rows=6, time_unit="second", **FAST)
    made = release.sample(1_000, random_state=0)
    assert (gaps_of(made) % 60 == 0).all()
    assert apart(clock_of(rows), clock_of(made)) < 0.08
    release.about[0]["calendar"].pop("hours")
    found = [gaps_of(made), gaps_of(release.sample(1_000, random_state=0))]
    assert abs((found[0] < DAY / 2).mean() - (found[1] < DAY / 2).mean()) < 0.02
    with_hours, without = (gaps[gaps < 1_200] for gaps in found)
    assert len(with_hours) > 500
    assert np.array_equal(with_hours, without), "hours of visits move no event inside of them"


def test_a_row_each_day_at_its_hour_stays_one() -> None:
    """All rows at eight: one cell is bought, and gaps of whole days stay."""
    rows = rows_of(np.full((1_000, 5), DAY), np.full((1_000, 5), 8 * 3_600))
    made = dpgen.fit(rows, epsilon=10.0, max_rows=5, time_unit="second", **FAST).sample(500, random_state=0)
    assert (gaps_of(made) == DAY).mean() > 0.98
    assert (clock_of(made) == 8 * 3_600).mean() > 0.9


def test_work_at_night_is_at_both_ends_of_the_day() -> None:
    days = np.random.default_rng(2).integers(2, 90, (1_500, 4))
    night = (np.random.default_rng(1).normal(24, 2.0, days.shape) * 60).astype(int) * 60 % DAY
    rows = rows_of(DAY * days, night)
    made = dpgen.fit(rows, epsilon=3.0, max_rows=4, time_unit="second", **FAST).sample(1_500, random_state=0)
    assert apart(clock_of(rows), clock_of(made)) < 0.08


@pytest.mark.parametrize(("n", "unit", "epsilon"), [(300, "day", 5.0), (4, "second", 0.5)])
def test_no_hours_by_day_or_of_few_people(n: int, unit: str, epsilon: float) -> None:
    rows = rows_of(np.full((n, 3), 5 * DAY), afternoons((n, 3)))
    release = dpgen.fit(rows, epsilon=epsilon, max_rows=3, time_unit=unit, **FAST)
    assert "hours" not in release.about[0]["calendar"]


def test_rows_below_rows_have_hours_of_their_own() -> None:
    """Results come days after a visit, in the morning; notes come minutes after it, in the afternoon."""
    rng = np.random.default_rng(0)
    visits = rows_of(DAY * rng.integers(3, 60, (800, 3)), afternoons((800, 3)))
    visits["visit"] = np.arange(len(visits))
    day = visits["at"].dt.normalize() + pd.to_timedelta(rng.integers(1, 6, len(visits)), unit="D")
    results = visits[["visit"]].assign(at=day + pd.to_timedelta(60 * rng.integers(7 * 60, 10 * 60, len(visits)), unit="s"))
    notes = visits[["visit"]].assign(at=visits["at"] + pd.to_timedelta(60 * rng.integers(1, 30, len(visits)), unit="s"))
    people = pd.DataFrame({"who": np.arange(800), "sex": rng.choice(["f", "m"], 800)})
    tables = {"people": people, "visits": visits, "results": results.assign(y=1), "notes": notes.assign(z=1)}
    links = dict.fromkeys(("results", "notes"), "visits.visit")
    options = {"links": links, "order": dict.fromkeys(("visits", *links), "at"), "max_rows": 3, "time_unit": "second"}
    made = dpgen.fit(tables, epsilon=12.0, **{**FAST, **options}).sample(800, random_state=0)
    for name in tables:
        if name != "people":
            assert apart(clock_of(tables[name]), clock_of(made[name])) < 0.2, name
    both = made["notes"].merge(made["visits"], on="visit", suffixes=("", "_of_visit"))
    after = (both["at"] - both["at_of_visit"]).dt.total_seconds()
    assert after.between(0, 3_600).mean() > 0.97


def test_times_of_day_are_taken_to_the_released_law() -> None:
    """First rows of even hours and later ones of late hours, both to a law of two hours; what is near enough stays."""
    rng = np.random.default_rng(0)
    edges, size = [3_600 * i for i in range(25)], 20_000
    law = np.zeros(24)
    law[8:10] = 0.5
    cells = {"edges": edges, "shares": law.tolist(), "noise": 0.001}
    first = np.arange(size) % 2 == 0
    clock = np.where(first, DAY * rng.random(size), DAY * (0.5 + rng.random(size) / 2))
    hours = Hours(cells)
    hours.learn(clock, first, np.ones(size))
    found = hours.moved(clock, first)
    assert found.min() >= 8 * 3_600
    assert found.max() <= 10 * 3_600
    assert abs((found < 9 * 3_600)[first].mean() - 0.5) < 0.05
    assert (np.diff(found[first][np.argsort(clock[first])]) >= 0).all(), "times of a day keep their order"
    even = Hours({**cells, "shares": [1 / 24] * 24})
    even.learn(clock[first], np.ones(size // 2, bool), np.ones(size // 2))
    assert np.abs(even.moved(clock[first], np.ones(size // 2, bool)) - clock[first]).max() < 400
