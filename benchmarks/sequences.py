"""Sequences as people have them: `python benchmarks/sequences.py [--epsilon 3] [--data NAME ...]`.

| NAME | what | as advised in docs/tasks/linked_tables.md |
|---|---|---|
| months | 1,500 homes with the 12 bills of a year, each on the first of a month | one wide table |
| minutes | 100 people with 300 heart rates, one each minute | 2,000 people with 60, minutes counted from a start |
| states | 2,000 people in states that follow each other, from a day to a day | without the last day, that of the next row |
| churn | 2,000 customers; some leave, and the row that says so is their last one | columns of the customer, no row |
| baskets | items of 2,000 people, those of one purchase on the same day | a row for each purchase |
| trends | 2,000 patients with ten weights, which rise or fall by the arm of a trial | a first weight, and steps |
| lessons | 1,500 students and 60 teachers, as it is these are public | one table of people, with their kind |

All are simulated. Each is fitted as it is and as advised; samples of the latter are written back in the first form. Both have
the same measures, beside those of the real rows: what a reader of ten rows would call absurd, as shares and correlations.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from measuring import machine, store

import dpgen

RESULTS = Path(__file__).parent / "results" / "sequences.json"
Tables = dict[str, pd.DataFrame]
PRICES = {"bread": 2.5, "milk": 1.2, "beer": 6.0, "soap": 3.0, "tea": 4.0}
STATES = {"home": ([0.0, 0.8, 0.2, 0.0], 60), "ward": ([0.6, 0.0, 0.2, 0.2], 6), "icu": ([0.0, 0.8, 0.0, 0.2], 3)}
STATES |= {"rehab": ([0.9, 0.1, 0.0, 0.0], 20)}


def days(first: str, more: Any) -> Any:
    """Dates so many days after the first one."""
    return np.datetime64(first, "s") + np.asarray(more, np.int64) * np.timedelta64(86400, "s")


def months(size: int = 1500) -> Tables:
    rng = np.random.default_rng(1)
    tariff = rng.choice(["a", "b", "c"], size, p=[0.5, 0.3, 0.2])
    home, month = np.repeat(np.arange(size), 12), np.tile(np.arange(12), size)
    usual = pd.Series(tariff).map({"a": 20.0, "b": 60.0, "c": 150.0}).to_numpy() * np.exp(0.15 * rng.standard_normal(size))
    used = usual[home] * (1 + 0.4 * np.cos(2 * np.pi * month / 12)) * np.exp(0.1 * rng.standard_normal(12 * size))
    first = (np.datetime64("2023-01") + month).astype("datetime64[s]")
    return {
        "homes": pd.DataFrame({"home": np.arange(size), "tariff": tariff}),
        "bills": pd.DataFrame({"home": home, "month": first, "kwh": used.round(1)}),
    }


def minutes(size: int = 100, each: int = 300) -> Tables:
    rng = np.random.default_rng(2)
    mean, rate = 60 + 10 * rng.standard_normal(size), np.empty((size, each))
    rate[:, 0] = mean + 10 * rng.standard_normal(size)
    for i in range(1, each):
        rate[:, i] = mean + 0.95 * (rate[:, i - 1] - mean) + 3 * rng.standard_normal(size)
    at = rng.integers(0, 30 * 1440, size)[:, None] + np.arange(each)
    at = np.datetime64("2024-03-01", "s") + at.ravel() * np.timedelta64(60, "s")
    return {"beats": pd.DataFrame({"who": np.repeat(np.arange(size), each), "at": at, "bpm": rate.ravel().round().astype(int)})}


def states(size: int = 2000) -> Tables:
    rng, rows, names = np.random.default_rng(3), list[Any](), list(STATES)
    for who in range(size):
        state, day = rng.choice(names, p=[0.7, 0.25, 0.05, 0.0]), int(rng.integers(0, 300))
        for _ in range(1 + rng.poisson(3)):
            law, mean = STATES[state]
            length = int(1 + rng.exponential(mean))
            rows.append((who, state, day, day + length))
            state, day = rng.choice(names, p=law), day + length
    found = pd.DataFrame(rows, columns=["who", "state", "begin", "end"])
    return {"stays": found.assign(begin=days("2022-01-01", found["begin"]), end=days("2022-01-01", found["end"]))}


def churn(size: int = 2000) -> Tables:
    rng, rows = np.random.default_rng(4), list[Any]()
    plan = rng.choice(["basic", "pro"], size)
    for who in range(size):
        day = int(rng.integers(0, 365))
        for _ in range(12):
            left = rng.random() < (0.12 if plan[who] == "basic" else 0.05)
            event = "churn" if left else rng.choice(["login", "buy", "call"], p=[0.6, 0.25, 0.15])
            rows.append((who, day, event, 0.0 if left else round(float(np.exp(2 + rng.standard_normal())), 2)))
            if left or rng.random() < 0.15:
                break
            day += int(1 + rng.exponential(25))
    found = pd.DataFrame(rows, columns=["who", "when", "what", "spent"])
    customers = pd.DataFrame({"who": np.arange(size), "plan": plan})
    return {"customers": customers, "events": found.assign(when=days("2022-01-01", found["when"]))}


def baskets(size: int = 2000) -> Tables:
    rng, rows = np.random.default_rng(5), list[Any]()
    for who in range(size):
        day = int(rng.integers(0, 300))
        for _ in range(1 + rng.poisson(1)):
            items = rng.choice(list(PRICES), size=rng.integers(1, 5), replace=False)
            rows += [(who, day, item, PRICES[item]) for item in items]
            day += 7 * int(rng.integers(1, 5))
    found = pd.DataFrame(rows, columns=["who", "day", "item", "price"])
    return {"items": found.assign(day=days("2022-01-03", found["day"]))}


def trends(size: int = 2000, each: int = 10) -> Tables:
    rng = np.random.default_rng(6)
    slope = rng.choice([-1.5, 0.0, 1.5], size)
    weight = np.empty((size, each))
    weight[:, 0] = 80 + 15 * rng.standard_normal(size)
    for i in range(1, each):
        weight[:, i] = weight[:, i - 1] + slope + 0.7 * rng.standard_normal(size)
    who, visit = np.repeat(np.arange(size), each), np.tile(np.arange(1, each + 1), size)
    arm = pd.Series(slope).map({-1.5: "diet", 0.0: "none", 1.5: "steroid"})
    return {
        "patients": pd.DataFrame({"who": np.arange(size), "arm": arm}),
        "weights": pd.DataFrame({"who": who, "visit": visit, "kg": weight.ravel().round(1)}),
    }


# -- measures ----------------------------------------------------------------------------------------------------------


def lessons(students: int = 1500, teachers: int = 60) -> Tables:
    rng, subjects = np.random.default_rng(7), np.array(["latin", "math", "sport"])
    subject, likes = rng.integers(0, 3, teachers), rng.integers(0, 3, students)
    who = np.repeat(np.arange(students), rng.integers(2, 7, students))
    of = np.where(rng.random(len(who)) < 0.6, likes[who], rng.integers(0, 3, len(who)))
    by = np.array([rng.choice(np.flatnonzero(subject == each)) for each in of])
    mark = (2.5 + (of == 0) + 0.8 * rng.standard_normal(len(who))).round().clip(1, 6).astype(int)
    ages = rng.integers(11, 19, students), rng.integers(27, 66, teachers)
    return {
        "students": pd.DataFrame({"sid": np.arange(students), "age": ages[0], "likes": subjects[likes]}),
        "lessons": pd.DataFrame({"sid": who, "tid": 10_000 + by, "mark": mark}),
        "teachers": pd.DataFrame({"tid": 10_000 + np.arange(teachers), "age": ages[1], "teaches": subjects[subject]}),
    }


def later(rows: pd.DataFrame, person: str) -> pd.Series:
    """Whether a row is not the first one of its person."""
    return rows[person] == rows[person].shift()


def lag(values: pd.Series, same: pd.Series) -> float:
    """Correlation of a number with that of the row before, where both are there."""
    return float(values[same].corr(values.shift()[same]))


def of_months(tables: Tables) -> dict[str, float]:
    rows = tables["bills"]
    number, same = rows["month"].dt.year * 12 + rows["month"].dt.month, later(rows, "home")
    means = rows.groupby(rows["month"].dt.month)["kwh"].mean()
    of_tariff = rows.merge(tables["homes"], on="home").groupby("tariff")["kwh"].mean()
    return {
        "homes with 12 rows": float((rows.groupby("home").size() == 12).mean()),
        "months that follow the month before": float((number.diff()[same] == 1).mean()),
        "on the first of a month": float((rows["month"].dt.day == 1).mean()),
        "January over July": float(means.get(1, np.nan) / means.get(7, np.nan)),
        "tariff c over a": float(of_tariff["c"] / of_tariff["a"]),
        "correlation of log kwh with the row before": lag(np.log(rows["kwh"].clip(lower=0.1)), same),
    }


def of_minutes(tables: Tables) -> dict[str, float]:
    rows = tables["beats"]
    same = later(rows, "who")
    return {
        "rows a person": float(rows.groupby("who").size().mean()),
        "a minute after the row before": float((rows["at"].diff()[same] == pd.Timedelta(minutes=1)).mean()),
        "standard deviation": float(rows["bpm"].std()),
        "standard deviation of steps": float(rows["bpm"].diff()[same].std()),
        "correlation with the row before": lag(rows["bpm"], same),
    }


def of_states(tables: Tables) -> dict[str, float]:
    rows = tables["stays"]
    same, length = later(rows, "who"), (rows["end"] - rows["begin"]).dt.days
    found = {
        "ends before it begins": float((length < 0).mean()),
        "begins on the last day of the state before": float((rows["begin"] == rows["end"].shift())[same].mean()),
        "begins before the state before ends": float((rows["begin"] < rows["end"].shift())[same].mean()),
        "same state as before": float((rows["state"] == rows["state"].shift())[same].mean()),
    }
    return found | {f"days in {state}": float(length[rows["state"] == state].mean()) for state in STATES}


def of_churn(tables: Tables) -> dict[str, float]:
    rows, left = tables["events"], tables["events"]["what"] == "churn"
    share = left.groupby(rows["who"]).any().groupby(tables["customers"].set_index("who")["plan"]).mean()
    return {
        "churn that is not the last row": float((left & rows["who"].duplicated(keep="last")).sum() / max(1, left.sum())),
        "spent at churn": float((rows["spent"] > 0)[left].mean()),
        "customers on basic who leave": float(share["basic"]),
        "customers on pro who leave": float(share["pro"]),
    }


def of_baskets(tables: Tables) -> dict[str, float]:
    rows = tables["items"]
    gap = rows["day"].diff()[later(rows, "who")].dt.days
    return {
        "on the day of the row before": float((gap == 0).mean()),
        "gaps of whole weeks": float((gap % 7 == 0).mean()),
        "item bought twice on a day": float(rows.duplicated(["who", "day", "item"]).mean()),
        "price of the item": float((rows["price"] == rows["item"].map(PRICES)).mean()),
    }


def of_trends(tables: Tables) -> dict[str, float]:
    rows = tables["weights"]
    same, arm = later(rows, "who"), rows["who"].map(tables["patients"].set_index("who")["arm"])
    step = rows["kg"].diff()[same]
    found = {
        "visits that follow the visit before": float((rows["visit"].diff()[same] == 1).mean()),
        "standard deviation of weights": float(rows["kg"].std()),
        "standard deviation of steps": float(step.std()),
        "correlation with the row before": lag(rows["kg"], same),
    }
    return found | {f"mean step, {name}": float(step[arm == name].mean()) for name in ("diet", "none", "steroid")}


def of_lessons(tables: Tables) -> dict[str, float]:
    teachers = tables.get("teachers", lessons()["teachers"])  # public ones are as they are
    students = tables["students"].merge(tables["lessons"], on="sid")
    both = students.merge(teachers, on="tid", suffixes=(" of student", " of teacher"))
    found = {
        "lessons of a student by a teacher": len(both) / len(tables["lessons"]),
        "teachers": len(teachers),
        "lessons of what the student likes": float((both["likes"] == both["teaches"]).mean()),
        "age of teachers": float(teachers["age"].mean()),
    }
    return found | {f"mark, {name}": float(own.mean()) for name, own in both.groupby("teaches")["mark"]}


# -- as advised, and back ----------------------------------------------------------------------------------------------


def by_columns(tables: Tables) -> Tables:
    rows = tables["bills"]
    wide = rows.assign(month=rows["month"].dt.month).pivot(index="home", columns="month", values="kwh").add_prefix("kwh ")
    return {"homes": tables["homes"].set_index("home").join(wide).reset_index(drop=True)}


def by_bills(tables: Tables) -> Tables:
    wide = tables["homes"].rename_axis("home").reset_index()
    rows = wide.drop(columns="tariff").melt("home", value_name="kwh").sort_values("home", kind="stable")
    number = rows["variable"].str.removeprefix("kwh ").astype(int).to_numpy()
    month = (np.datetime64("2023-01") + (number - 1)).astype("datetime64[s]")
    return {"homes": wide[["home", "tariff"]], "bills": rows.assign(month=month)[["home", "month", "kwh"]]}


def by_minute(tables: Tables) -> Tables:
    rows = tables["beats"]
    start = rows.groupby("who")["at"].min()
    minute = (rows["at"] - rows["who"].map(start)) // pd.Timedelta(minutes=1)
    return {"people": start.rename("start").reset_index(), "beats": rows.assign(minute=minute).drop(columns="at")}


def by_time(tables: Tables) -> Tables:
    rows, start = tables["beats"], tables["people"].set_index("who")["start"]
    return {"beats": rows.assign(at=rows["who"].map(start) + pd.to_timedelta(rows["minute"], unit="min"))}


def by_next(tables: Tables) -> Tables:
    rows = tables["stays"]
    last = rows[~rows["who"].duplicated(keep="last")]
    people = pd.DataFrame({"who": last["who"], "last": (last["end"] - last["begin"]).dt.days})
    return {"people": people, "stays": rows.drop(columns="end")}


def by_end(tables: Tables) -> Tables:
    rows, last = tables["stays"], tables["people"].set_index("who")["last"]
    ends = rows["begin"] + pd.to_timedelta(rows["who"].map(last), unit="D")
    return {"stays": rows.assign(end=rows["begin"].shift(-1).where(rows["who"] == rows["who"].shift(-1), ends))}


def by_purchase(tables: Tables) -> Tables:
    rows = tables["items"]
    wide = pd.crosstab([rows["who"], rows["day"]], rows["item"]) > 0
    return {"purchases": wide.reset_index().rename_axis(columns=None)}


def by_item(tables: Tables) -> Tables:
    wide = tables["purchases"]
    rows = wide.melt(["who", "day"], var_name="item", value_name="bought").sort_values(["who", "day"], kind="stable")
    rows = rows[rows["bought"].astype(bool)].drop(columns="bought")
    return {"items": rows.assign(price=rows["item"].map(PRICES))}


def by_customer(tables: Tables) -> Tables:
    """Whether a customer leaves, and how many days after the last row; rows that say so are left out."""
    rows, people = tables["events"], tables["customers"]
    left = rows["what"] == "churn"
    last = rows[~left].groupby("who")["when"].max()
    gone = rows[left].set_index("who")["when"] - last
    after = people["who"].map(gone.dt.days)
    return {
        "customers": people.assign(leaves=people["who"].isin(rows["who"][left]), after=after),
        "events": rows[~left].reset_index(drop=True),
    }


def by_row(tables: Tables) -> Tables:
    rows, people = tables["events"], tables["customers"]
    gone = people[people["leaves"].astype(bool)]
    last = gone["who"].map(rows.groupby("who")["when"].max()).fillna(rows["when"].min())
    after = pd.to_timedelta(gone["after"].fillna(0).astype(float).round(), unit="D")
    ends = pd.DataFrame({"who": gone["who"], "when": (last + after).astype(rows["when"].dtype), "what": "churn", "spent": 0.0})
    return {"customers": people, "events": pd.concat([rows, ends]).sort_values(["who", "when"], kind="stable")}


def by_steps(tables: Tables) -> Tables:
    rows, people = tables["weights"], tables["patients"]
    first, step = rows.groupby("who")["kg"].first(), rows["kg"].diff().where(later(rows, "who"), 0.0).round(1)
    return {"patients": people.assign(first=people["who"].map(first)), "weights": rows.assign(step=step).drop(columns="kg")}


def by_weights(tables: Tables) -> Tables:
    rows, people = tables["weights"], tables["patients"]
    moved = rows["step"].where(later(rows, "who"), 0.0).groupby(rows["who"]).cumsum()
    kg = rows["who"].map(people.set_index("who")["first"]) + moved
    return {"patients": people, "weights": rows.assign(kg=kg).drop(columns="step")}


def by_kind(tables: Tables) -> Tables:
    students = tables["students"].rename(columns={"sid": "pid", "likes": "subject"}).assign(kind="student")
    teachers = tables["teachers"].rename(columns={"tid": "pid", "teaches": "subject"}).assign(kind="teacher")
    return {"people": pd.concat([students, teachers], ignore_index=True), "lessons": tables["lessons"]}


def by_table(tables: Tables) -> Tables:
    people = {kind: own.drop(columns="kind") for kind, own in tables["people"].groupby("kind")}
    return {
        "students": people["student"].rename(columns={"pid": "sid", "subject": "likes"}),
        "teachers": people["teacher"].rename(columns={"pid": "tid", "subject": "teaches"}),
        "lessons": tables["lessons"],
    }


@dataclass(frozen=True)
class Sequence:
    """What is made and measured, and options of a fit; as advised: how it is `written` and `back`, and other options, data."""

    made: Callable[[], Tables]
    measures: Callable[[Tables], dict[str, float]]
    options: Mapping[str, Any]
    written: Callable[[Tables], Tables]
    back: Callable[[Tables], Tables]
    more: Mapping[str, Any] | None = None
    advised: Callable[[], Tables] | None = None


BILLS = {"person": "home", "order": "month", "max_rows": 12}
BEATS = {"person": "who", "order": "at", "max_rows": 60, "time_unit": "second"}
BY_MINUTE = {"person": "who", "order": "minute", "max_rows": 60, "time_unit": "second"}
STAYS, VISITS = ({"person": "who", "order": order} for order in ("begin", "visit"))
EVENTS, ITEMS = ({"person": "who", "order": order, "max_rows": 12} for order in ("when", "day"))
TAUGHT = {"links": {"lessons": {"sid": "students.sid", "tid": "teachers.tid"}}, "public": ["teachers"], "max_rows": 6}
KIND = {
    "fieldsMatch": "partial",
    "fields": [{"name": "kind", "type": "string", "constraints": {"enum": ["student", "teacher"]}}],
}
BOTH = {"links": {"lessons": {"sid": "people.pid", "tid": "people.pid"}}, "schemas": {"people": KIND}, "max_rows": 6}
HOW = {
    "months": Sequence(months, of_months, BILLS, by_columns, by_bills, {}),
    "minutes": Sequence(minutes, of_minutes, BEATS, by_minute, by_time, BY_MINUTE, lambda: minutes(2000, 60)),
    "states": Sequence(states, of_states, STAYS, by_next, by_end),
    "churn": Sequence(churn, of_churn, EVENTS, by_customer, by_row),
    "baskets": Sequence(baskets, of_baskets, ITEMS, by_purchase, by_item),
    "trends": Sequence(trends, of_trends, VISITS, by_steps, by_weights),
    "lessons": Sequence(lessons, of_lessons, TAUGHT, by_kind, by_table, BOTH),
}


def sampled(tables: Tables, options: Mapping[str, Any], epsilon: float) -> tuple[Tables, float]:
    """As many people of a release as there are, and CPU seconds of the fit."""
    start, (first, *_, last) = time.process_time(), (*tables, *tables)
    release = dpgen.fit(tables if len(tables) > 1 else tables[last], epsilon=epsilon, **options)
    people = len(tables[first]) if len(tables) > 1 or not options else tables[first][options["person"]].nunique()
    seconds, made = time.process_time() - start, release.sample(people, random_state=0)
    return (made if isinstance(made, dict) else {last: made}), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--data", nargs="+", choices=tuple(HOW), default=tuple(HOW))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.data:
        how = HOW[name]
        real = how.made()
        found = {"real": how.measures(real)}
        made, seconds = sampled(real, how.options, options.epsilon)
        found["as it is"] = how.measures(made) | {"CPU seconds": seconds}
        source = how.written(real if how.advised is None else how.advised())
        made, seconds = sampled(source, how.options if how.more is None else how.more, options.epsilon)
        found["as advised"] = how.measures(how.back(made)) | {"CPU seconds": seconds}
        print(name, pd.DataFrame(found).round(3).to_string(), sep="\n")
        rounded = {column: {measure: round(value, 4) for measure, value in own.items()} for column, own in found.items()}
        store(RESULTS, name, {"epsilon": options.epsilon, **rounded}, machine=machine())


if __name__ == "__main__":
    main()
