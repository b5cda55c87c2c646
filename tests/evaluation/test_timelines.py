"""Timelines of linked tables: every picture says what it shows, and what a picture shows wrong is a score, too."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from figure_labels import unlabelled
from three_tables import linked_three

from dpgen.containers import in_memory
from dpgen.data import LinkedTables, load_linked
from dpgen.data.toy import simulated_patients
from dpgen.evaluation.linked import drawn
from dpgen.evaluation.timelines import Bins, LinkedFrames, States, timeline_scores, timelines

TIMED = ("rows_per_person", "over_time", "gaps", "first_rows", "transitions", "associations_across")
UNTIMED = ("rows_per_person", "transitions", "associations_across")


def linked(rows: pd.DataFrame, **options: Any) -> LinkedTables:
    rows = in_memory(rows)
    rows.table = "events"
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
