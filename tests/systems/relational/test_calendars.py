"""Rows lie inside the calendar of the data, and rules between people and their rows are found and kept."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from refusals import refused

import dpgen
from dpgen.systems.relational.calendars import Calendar, nearer
from dpgen.systems.relational.placing import exchanged, shortened

FAST: dict[str, Any] = {"rounds": 1, "classes": 4, "row_classes": 4, "steps": 10, "picks": 2, "max_rows": 6}
NAMES = {"person": "who", "order": {"orders": "day"}}


def shop(n: int) -> dict[str, pd.DataFrame]:
    """Customers who joined, in a city, with what they spent; orders of two years after that, of their city."""
    rng = np.random.default_rng(0)
    joined = np.datetime64("2020-01-01") + rng.integers(0, 600, n)
    counts = rng.integers(0, 6, n)
    owner = np.repeat(np.arange(n), counts)
    left = (np.datetime64("2022-01-01") - joined).astype(int)[owner]
    day, cost = joined[owner] + (rng.random(len(owner)) * left).astype(int), rng.integers(1, 100, len(owner))
    city = rng.choice(["Bonn", "Jena", "Ulm"], n)
    spent = np.bincount(owner, cost, n).astype(int)
    people = pd.DataFrame({"who": np.arange(n), "joined": pd.to_datetime(joined), "city": city, "spent": spent})
    rows = pd.DataFrame({"who": owner, "day": pd.to_datetime(day), "cost": cost, "city": city[owner]})
    return {"customers": people, "orders": rows.sample(frac=1, random_state=0)}


def broken(tables: dict[str, pd.DataFrame]) -> list[float]:
    """Shares of people with an order before they joined, with one of another city, and with another sum."""
    joined, people = tables["orders"].merge(tables["customers"], on="who"), tables["customers"]
    spent = tables["orders"].groupby("who")["cost"].sum().reindex(people["who"]).fillna(0).to_numpy()
    wrong = [joined["day"] < joined["joined"], joined["city_x"] != joined["city_y"]]
    return [*(float(own.groupby(joined["who"]).any().mean()) for own in wrong), float((people["spent"] != spent).mean())]


def test_rules_between_tables_are_found_and_kept() -> None:
    tables = shop(2_000)
    assert broken(tables) == [0.0, 0.0, 0.0]
    release = dpgen.fit(tables, epsilon=30.0, **NAMES, **FAST)
    made = release.sample(random_state=0)
    assert len(made["customers"]) == release.size
    assert {rule["kind"] for rule in release.shown["rules"]} == {"from", "copy", "sum"}
    assert max(broken(made)) < 0.02, "noise may show that a few people break a rule"
    assert "orders.day is never before customers.joined" in str(release.statement.facts)
    days = [own["orders"]["day"].dt for own in (tables, made)]
    months = [np.bincount(own.month + 12 * own.year - 24_200, minlength=99) for own in days]
    assert 0.5 * np.abs(months[0] / months[0].sum() - months[1] / months[1].sum()).sum() < 0.25


def test_rules_are_left_out() -> None:
    release = dpgen.fit(shop(500), epsilon=30.0, rules="off", **NAMES, **FAST)
    assert release.shown["rules"] == []
    asked = dpgen.fit(shop(500), epsilon=30.0, rules=["orders.city", "customers.city"], **NAMES, **FAST)
    assert [rule["kind"] for rule in asked.shown["rules"]] == ["copy"]
    with refused("orders.town", "orders.city"):
        dpgen.fit(shop(500), epsilon=30.0, rules=["orders.town", "customers.city"], **NAMES, **FAST)


def test_independent_tables_have_no_rules() -> None:
    tables = shop(1_000)
    tables["customers"] = tables["customers"].assign(who=np.random.default_rng(1).permutation(1_000))
    assert dpgen.fit(tables, epsilon=30.0, **NAMES, **FAST).shown["rules"] == []


@pytest.mark.parametrize("epsilon", [1.0, 20.0])
def test_rows_lie_between_the_bought_days(epsilon: float) -> None:
    release = dpgen.fit(shop(300), epsilon=epsilon, **NAMES, **FAST)
    first, *_, end = np.array(release.about[0]["calendar"]["edges"]).astype("datetime64[D]")
    for n in (1, 7, 400):
        days = release.sample(n, random_state=0)["orders"]["day"].to_numpy()
        assert ((days >= first) & (days < end)).all()


def test_first_days_are_exchanged_until_spans_fit() -> None:
    """Of 1,000 people whose days and spans fit together in one order all do, and days stay what they were."""
    rng = np.random.default_rng(0)
    days = rng.integers(0, 1_000, 1_000)
    spans = 999 - rng.permutation(days)
    ends = np.zeros(1_000, np.int64), np.full(1_000, 1_100), spans, np.zeros(1_000, np.int64)
    found = exchanged(days, ends, np.zeros(1_000, np.int64), (0, 1_100), rng)
    assert (np.sort(found) == np.sort(days)).all()
    assert (found + spans <= 1_100).mean() > 0.9


def test_days_differ_by_more_than_noise_before_rows_are_moved() -> None:
    rng = np.random.default_rng(0)
    law = np.full(64, 1 / 64)
    other = law * (1 + 0.8 * np.cos(np.arange(64) / 8))
    other /= other.sum()
    assert np.allclose(nearer(law, law + 1e-3 * rng.standard_normal(64), 1e-3), law), "noise alone moves nothing"
    found = nearer(law, other + 1e-3 * rng.standard_normal(64), 1e-3)
    assert 0.5 * np.abs(found - other).sum() < 0.05 < 0.5 * np.abs(law - other).sum()
    assert np.isclose(found.sum(), 1)
    assert (found >= 0).all()


def test_later_rows_follow_a_law_that_is_far() -> None:
    """Of 20,000 later rows of even days all follow a law of the first half of the days, and none moves where it is the same."""
    rng = np.random.default_rng(0)
    times, weights = 100 * rng.random(20_000), np.ones(20_000)
    cells = {"edges": list(range(0, 101, 10)), "shares": [0.1] * 10}
    for noisy, last in (([0.2] * 5 + [0.0] * 5, 54), ([0.1] * 10, 100)):
        calendar = Calendar({**cells, "noisy": noisy, "noise": 1e-6}, None)
        calendar.learn(times, np.ones(20_000, bool), weights)
        assert np.quantile(calendar.moved(times), 0.97) <= last
    assert (calendar.moved(times) == np.floor(times)).all()


def test_gaps_are_shortened_to_the_room() -> None:
    owner, offsets = np.repeat([0, 1], 3), np.array([0, 10, 100, 0, 1, 2])
    found = shortened(offsets, owner, np.array([20, 20]), np.array([2, 2]), np.random.default_rng(0))
    assert found[3:].tolist() == [0, 1, 2]
    assert 0 <= found[1] <= found[2] <= 20
