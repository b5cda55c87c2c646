"""Timelines of linked tables: every picture says what it shows, and what a picture shows wrong is a score, too.

Rules between successive rows of one person: those of the real rows are found, and breaking them is seen.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from documented_output import answered
from figure_labels import unlabelled
from linked_packages import saved
from refusals import refused
from three_tables import linked_three

import dpgen
from dpgen.containers import in_memory
from dpgen.data import LinkedTables, load_linked
from dpgen.data.toy import simulated_patients
from dpgen.evaluation.linked import drawn, evaluate
from dpgen.evaluation.timelines import (
    KEEP,
    LISTED,
    Bins,
    Found,
    LinkedFrames,
    States,
    successive_rules,
    successive_scores,
    timeline_scores,
    timelines,
)

TIMED = ("rows_per_person", "over_time", "gaps", "first_rows", "transitions", "associations_across")
UNTIMED = ("rows_per_person", "transitions", "associations_across")


def linked(rows: pd.DataFrame, *, table: str = "events", **options: Any) -> LinkedTables:
    rows = in_memory(rows)
    rows.table = table
    return load_linked(path=rows, person="who", test_fraction=0.0, **{"order": "at", "max_rows": 60, **options})


def halves(data: LinkedTables) -> LinkedTables:
    """Every second person is for evaluation."""
    held = np.arange(data.n) % 2 > 0
    return replace(data.some(~held), test=data.some(held))


def measured(data: LinkedTables, made: LinkedTables) -> dict[str, Any]:
    return {score.name.partition(":")[0].partition(",")[0]: score for score in timeline_scores(data, made, 0)}


def patients(visits: Any = lambda rows: rows, n: int = 300, seed: int = 0) -> LinkedTables:
    """Patients and their visits, some of which are changed."""
    tables = simulated_patients(n, seed=seed)
    return linked(visits(tables["visits"]).rename(columns={"patient": "who", "date": "at"}))


def test_pictures_of_a_tree_say_what_they_show() -> None:
    data = halves(linked_three(200, {"visits": 8, "prescriptions": 4}))
    assert data.test is not None
    found = drawn({"real": data, "held-out": data.test, "synthetic": data})
    assert list(found) == [*(f"{name}.png" for name in TIMED), *(f"prescriptions_{name}.png" for name in UNTIMED)]
    for name, draw in found.items():
        figure = draw()
        assert unlabelled(figure) == [], name
        said = [
            text.get_text()
            for axes in figure.axes
            for text in (*(axes.get_legend().texts if axes.get_legend() else ()), axes.title)
        ]
        assert {"real", "held-out", "synthetic"} <= set(said), name
    assert unlabelled(timelines(LinkedFrames.of(data, 1))) == []


@pytest.mark.parametrize("name", ["heart", "no next row"])
def test_pictures_of_numbers_alone_and_of_single_rows(name: str) -> None:
    rng, size = np.random.default_rng(0), 40
    each = 12 if name == "heart" else 1
    rows = {
        "who": np.repeat(np.arange(size), each),
        "at": np.tile(np.arange(each), size),
        "rate": rng.normal(70, 9, size * each),
    }
    found = drawn({"real": linked(pd.DataFrame(rows))})
    assert ("transitions.png" in found) == ("gaps.png" in found) == (name == "heart")
    assert [unlabelled(draw()) for draw in found.values()] == [[]] * len(found)


def test_the_same_people_have_no_error_and_others_hardly_any() -> None:
    data = patients()
    assert {score.value for score in measured(data, data).values()} == {0.0}
    beside = measured(halves(data), patients(seed=1))
    assert all(score.real is not None and score.value < score.real + 0.15 for score in beside.values())
    assert set(beside) == {"rows for each person", "rows over time", "time between rows", "first row", "a row and the next"}


def dealt(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(ward=np.random.default_rng(1).permutation(rows["ward"]))


def firsts(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(ward=np.where(rows["patient"].duplicated(), rows["ward"], "psychiatry"))


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (lambda rows: rows.assign(date=rows["date"] + pd.Timedelta(days=800)), ["rows over time"]),
        (lambda rows: rows.assign(date=rows["date"].dt.to_period("Y").dt.start_time), ["rows over time", "time between rows"]),
        (lambda rows: rows[~rows["patient"].duplicated()], ["rows for each person", "time between rows", "a row and the next"]),
        (firsts, ["first row", "a row and the next"]),
        (dealt, ["a row and the next"]),
    ],
)
def test_what_pictures_show_wrong_is_a_score(change: Any, seen: list[str]) -> None:
    found = measured(patients(), patients(change))
    for name in seen:
        assert found[name].value > 0.2, (name, found[name].value)
    if change is dealt:
        assert found["a row and the next"].value == pytest.approx(found["a row and the next"].chance, abs=0.1)
        assert found["time between rows"].value == 0.0


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        (pd.date_range("1990-01-01", periods=60, freq="180D"), "year"),
        (pd.date_range("2024-01-01", periods=60, freq="7D"), "month"),
        (pd.date_range("2024-01-01", periods=60, freq="1D"), "day"),
        (pd.date_range("2024-01-01", periods=60, freq="10min"), "hour"),
        (pd.date_range("2024-01-01", periods=60, freq="1min"), "minute"),
        (np.arange(60), "3 units"),
        (np.arange(60) // 5, "1"),
    ],
)
def test_bins_are_of_the_calendar(times: Any, unit: str) -> None:
    data = linked(pd.DataFrame({"who": np.arange(60), "at": times}), time_unit="second")
    part = LinkedFrames.of(data, 1)
    bins = Bins.of(part)
    assert bins.named == unit
    size = bins.last - bins.first + 1
    assert bins.shares(part)[size : 2 * size].sum() == pytest.approx(1.0), "inside of the first data set's own bins"
    inside = bins.starts[bins.places(part)]
    assert (inside <= part.times).all(), "a row is not before the start of its bin"


def test_states_are_values_or_ranges() -> None:
    people = {"who": np.arange(100), "at": np.arange(100)}
    few = States.of(LinkedFrames.of(linked(pd.DataFrame(people | {"level": np.arange(100) % 3})), 1))
    assert few is not None
    assert few.names == ("0", "1", "2")
    part = LinkedFrames.of(linked(pd.DataFrame(people | {"rate": np.arange(100) * 1.5})), 1)
    many = States.of(part)
    assert many is not None
    assert np.bincount(many.codes(part)).tolist() == pytest.approx([100 / 6] * 6, abs=1.5)
    assert States.of(LinkedFrames.of(linked(pd.DataFrame(people)), 1)) is None


# -- rules between successive rows -------------------------------------------------------------------------------------


N = 400


def stays(seed: int = 0, n: int = N) -> pd.DataFrame:
    """Stays of people: age never falls, sex never changes, death is last, and a ward is never followed by home care."""
    rng, rows = np.random.default_rng(seed), list[Any]()
    for who in range(n):
        age, sex, day, state = int(rng.integers(20, 80)), str(rng.choice(["f", "m"])), 0, "clinic"
        for place in range(rng.integers(2, 9)):
            rows.append((who, day, age, sex, state, int(rng.integers(0, 50))))
            if state == "death":
                break
            law = ["clinic", "ward", "death"] if state == "ward" else ["clinic", "ward", "care", "death"]
            state, day, age = str(rng.choice(law)), day + int(rng.integers(1, 90)), age + int(place % 2)
    return pd.DataFrame(rows, columns=["who", "day", "age", "sex", "state", "cost"])


def of_stays(rows: pd.DataFrame, **options: Any) -> LinkedTables:
    rows = rows.sample(frac=1, random_state=0)
    return linked(rows, table="stays", **{"order": "day", "max_rows": 20, **options})


def rules(real: pd.DataFrame, synthetic: pd.DataFrame) -> dict[str, Found]:
    return {one.rule: one for one in successive_rules(of_stays(real), of_stays(synthetic))}


EXPECTED = (
    "stays.age never falls",
    "stays.sex never changes",
    "stays.state death is always last",
    "stays.state ward is never followed by care",
)


def test_rules_of_real_rows_are_found_and_no_others() -> None:
    found = rules(stays(), stays(1))
    assert set(EXPECTED) <= set(found)
    assert not [rule for rule in found if "cost" in rule or "never rises" in rule or rule.startswith("stays.age never changes")]
    for rule in EXPECTED:
        assert (found[rule].real, found[rule].synthetic) == (1.0, 1.0)
        assert found[rule].dealt < 0.98, "rows of people at random break it"


def test_independent_rows_have_no_rules() -> None:
    rows = stays()
    shuffled = rows.assign(**{name: rows[name].sample(frac=1, random_state=1).to_numpy() for name in ("age", "sex", "state")})
    assert rules(shuffled, shuffled) == {}


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        (EXPECTED[0], lambda rows, odd: rows.assign(age=rows["age"].where(~odd, rows["age"] - 60))),
        (EXPECTED[1], lambda rows, odd: rows.assign(sex=rows["sex"].where(~odd, "x"))),
        (EXPECTED[2], lambda rows, odd: rows.assign(state=rows["state"].mask(odd.shift(-1, fill_value=False), "death"))),
    ],
)
def test_the_share_of_people_who_break_a_rule_is_counted(rule: str, change: Any) -> None:
    """Every fourth person breaks it, with the second row."""
    rows = stays()
    odd = (rows.groupby("who").cumcount() == 1) & (rows["who"] % 4 == 0)
    found = rules(rows, change(rows, odd))
    assert abs(found[rule].synthetic - 0.75) < (0.02 if "last" not in rule else 0.35)
    assert found[rule].synthetic < 0.8
    assert found[rule].real == 1.0
    assert next(iter(found)) == rule, "the worst comes first"


def test_a_state_after_a_state_is_counted_by_those_who_have_the_first() -> None:
    rows = stays()
    after = (rows["state"].shift() == "ward") & (rows["who"] == rows["who"].shift())
    found = rules(rows, rows.assign(state=rows["state"].mask(after, "care")))
    assert found[EXPECTED[3]].synthetic == 0.0


def test_rows_of_one_time_have_no_order() -> None:
    """On one day a number may fall, in real as in synthetic rows: nobody says which of both came first."""
    rows = stays()
    beside = rows[rows.groupby("who").cumcount() == 0].assign(age=lambda own: own["age"] - 15)
    found = rules(pd.concat([rows, beside]), pd.concat([rows, beside]))
    assert found["stays.sex never changes"].real == 1.0
    assert rules(rows, pd.concat([rows, beside]))["stays.age never falls"].synthetic == 1.0


def test_what_no_synthetic_person_has_is_no_score_but_told() -> None:
    rows = stays()
    other = rows.assign(state=rows["state"].replace("death", "clinic"))
    found = rules(rows, other)[EXPECTED[2]]
    assert np.isnan(found.synthetic)
    names = [score.name for score in successive_scores(of_stays(rows), of_stays(other), 0)]
    assert KEEP + EXPECTED[2] not in names
    assert KEEP + EXPECTED[1] in names
    made = dpgen.compare({"stays": rows}, {"stays": other}, person="who", order={"stays": "day"}, max_rows=20)
    assert EXPECTED[2] in str(made).split("\n\n")[-1]


def test_held_out_people_stand_beside_and_all_scores_are_private() -> None:
    scores = successive_scores(halves(of_stays(stays())), of_stays(stays(2)), 0)
    assert scores
    assert all(score.private and score.better == "higher" and score.real == 1.0 for score in scores)
    assert all(score.chance is not None and score.chance < score.real for score in scores if score.real is not None)


def test_few_people_without_an_order_or_many_rules() -> None:
    rows = stays()
    few = rows[rows["who"] < 20]
    assert rules(few, few) == {}
    assert successive_rules(of_stays(rows, order=None), of_stays(rows, order=None)) == []
    wide = rows.assign(**{f"copy{i}": rows["sex"] for i in range(LISTED + 5)})
    assert len(rules(wide, wide)) == LISTED


def test_a_run_and_a_comparison_show_them(tmp_path: Path) -> None:
    rows = stays(n=200)
    fast: dict[str, Any] = {"rounds": 1, "classes": 4, "row_classes": 4, "steps": 5, "picks": 2}
    release = dpgen.fit({"stays": rows}, epsilon=3.0, person="who", order={"stays": "day"}, max_rows=8, **fast)
    evaluation = evaluate(release, of_stays(rows, max_rows=8), seed=0)
    [score] = [score for score in evaluation.scores if score.name == KEEP + EXPECTED[1]]
    assert score.value < 1.0, "next to no model keeps a column as it is"
    found = dpgen.compare({"stays": rows}, {"stays": rows}, person="who", order={"stays": "day"})
    page = found.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert KEEP + EXPECTED[0] in page
    assert "not for publication" in page
    assert {"rule", "real", "synthetic"} == set(found.lines[0])
    json.dumps(found.lines)


def test_a_command_writes_them_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, people = stays(), pd.DataFrame({"who": range(N), "x": np.arange(N) % 3})
    rows["day"] = np.datetime64("2020-01-01", "s") + rows["day"].to_numpy() * np.timedelta64(1, "D")
    real = saved(tmp_path / "real", {"people": people, "stays": rows}, person="who", order="day")
    without = rows.assign(state=rows["state"].replace("death", "clinic"))
    saved(tmp_path / "other", {"people": people, "stays": without}, person="who", order="day")
    told = answered(capsys, "compare", real, tmp_path / "other")
    assert {"rule": EXPECTED[2], "real": 1.0, "synthetic": None} in told["successive"]
    assert {line["rule"]: line["synthetic"] for line in told["successive"]}[EXPECTED[1]] == 1.0


def test_tables_by_name_are_refused_with_options_of_others() -> None:
    rows = stays(n=100)
    with refused("target must be left out"):
        dpgen.compare({"stays": rows}, {"stays": rows}, target="sex", person="who", order={"stays": "day"})
    with refused("person is of people"):
        dpgen.compare(rows, rows, person="who")
    with refused("synthetic must be tables by name"):
        dpgen.compare({"stays": rows}, rows, person="who")
