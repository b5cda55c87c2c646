"""Gaps between rows: their step and their zeros are those of the data, and rows that move to the calendar keep them."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpgen
from dpgen.columns.descriptors import field_of
from dpgen.systems.relational.calendars import Calendar
from dpgen.systems.relational.placing import Reach, Times

FAST: dict[str, Any] = {"rounds": 1, "classes": 4, "row_classes": 4, "steps": 10, "picks": 2, "person": "who", "order": "at"}


def rows_of(gaps: Any, size: int = 400, each: int = 6, seed: int = 0) -> pd.DataFrame:
    """Rows of people, `gaps` of a generator and a number of rows in seconds, from an hour of one year on."""
    rng = np.random.default_rng(seed)
    start, own = 3_600 * rng.integers(0, 24 * 365, size)[:, None], gaps(rng, (size, each))
    own[:, 0] = 0
    at = np.datetime64("2023-01-01", "s") + (start + own.cumsum(1)).ravel() * np.timedelta64(1, "s")
    return pd.DataFrame({"who": np.repeat(np.arange(size), each), "at": at, "x": rng.integers(0, 3, size * each)})


def gaps_of(rows: pd.DataFrame) -> np.ndarray:
    rows = rows.sort_values(["who", "at"], kind="stable")
    return np.asarray(rows.groupby("who")["at"].diff().dropna().dt.total_seconds())


@pytest.mark.parametrize("gap", [60, 300, 86_400])
def test_a_row_each_minute_or_day_stays_one(gap: int) -> None:
    rows = rows_of(lambda rng, shape: np.full(shape, gap))
    release = dpgen.fit(rows, epsilon=3.0, max_rows=6, time_unit="second", **FAST)
    found = gaps_of(release.sample(1_000, random_state=0))
    assert (found == gap).mean() > 0.98
    assert (found % gap == 0).all(), "at the end of the calendar, too"


def test_gaps_of_whole_days_stay_whole_in_seconds() -> None:
    rows = rows_of(lambda rng, shape: 86_400 * rng.integers(1, 40, shape))
    release = dpgen.fit(rows, epsilon=3.0, max_rows=6, time_unit="second", **FAST)
    assert release.schemas[1].descriptor()["fields"][-1]["dpgen:rounding"] == 86_400
    found = gaps_of(release.sample(1_000, random_state=0))
    assert (found % 86_400 == 0).mean() > 0.99
    assert (found == 0).mean() < 0.01
    assert abs(np.median(found) / 86_400 - 20) < 4


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_two_rows_of_one_day_are_as_rare_as_in_the_data(share: float) -> None:
    rows = rows_of(lambda rng, shape: 86_400 * rng.integers(1, 90, shape) * (rng.random(shape) >= share), size=1_000)
    release = dpgen.fit(rows.assign(at=rows["at"].dt.normalize()), epsilon=3.0, max_rows=6, rules="off", **FAST)
    assert abs((gaps_of(release.sample(1_000, random_state=0)) == 0).mean() - share) < (0.01 if share == 0 else 0.08)


def moved(reach: Reach) -> np.ndarray:
    """Gaps of 500 people with three gaps of ten each, moved by a calendar that puts all later rows into its last part."""
    counts, after = np.full(500, 4), np.tile([0, 10, 20, 30], 500)
    first = np.arange(0, 2_000, 4)
    base = np.repeat(np.random.default_rng(0).integers(0, 900, 500), 4)
    law = {"edges": [0, 500, 1_000], "shares": [0.5, 0.5], "noisy": [0.1, 0.9], "noise": 1e-6}
    calendar, generator = Calendar(law, None), np.random.default_rng(0)
    limits = np.full(500, -np.inf), np.full(500, np.inf)
    found = Times(base, after, first, counts, 1, reach).inside(calendar, None, limits, generator, np.ones(2_000))
    gaps = np.diff(found, prepend=0)
    return np.delete(gaps, first)


def test_moved_rows_keep_their_gaps_in_their_part() -> None:
    lows, highs = np.full(2_000, 8), np.full(2_000, 14)
    found = moved(Reach(lows, highs, 2))
    assert set(found) <= {8, 10, 12, 14}
    assert len(set(found)) > 1, "rows are moved"
    assert (moved(Reach(np.full(2_000, 10), np.full(2_000, 10), 1)) == 10).all()
    assert not set(moved(Reach.free(2_000, 0, 999))) <= {8, 10, 12, 14}, "without parts gaps go where rows do"


def test_parts_are_codes_cut_at_frequent_gaps() -> None:
    edges = [1, 30, 31, 60, 90]
    field = field_of(
        {
            "name": "gap",
            "type": "integer",
            "constraints": {"required": True, "minimum": 1, "maximum": 90},
            "dpgen:bins": {"edges": [1, 60, 90]},
            "dpgen:density": {"edges": edges, "logs": [[0.0, 0.0], [6.0, 6.0], [0.0, 0.0], [-1.0, -1.0]]},
        }
    )
    reach = Reach.of(field, np.array([5, 30, 45, 75]))
    assert reach.lows.tolist() == [1, 30, 31, 60]
    assert reach.highs.tolist() == [29, 30, 59, 90]
