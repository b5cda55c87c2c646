"""Linked tables: order, windows and ties are functions of a person's own rows; what is refused, in one line without a value."""

import ast
import json
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from fixed_source import FixedKeySource
from refusals import refused
from three_tables import three_tables

import dpgen
from dpgen.containers import in_memory
from dpgen.data import load_linked
from dpgen.data.linked import MOST_BOUGHT, LinkedTables
from dpgen.data.split import secret_key
from dpgen.data.toy import simulated_patients
from dpgen.evaluation.linked import comparison
from dpgen.facts import Fact
from dpgen.privacy.curator import Curator

PEOPLE = pd.DataFrame({"who": ["a", "b", "c", "d"], "old": [True, False, True, False]})
ROWS = pd.DataFrame(
    {
        "who": ["b", "a", "b", "b", "a", "c", "b"],
        "day": pd.to_datetime(
            ["2020-01-05", "2020-03-01", "2020-01-02", "2020-01-09", "2020-02-01", "2020-05-05", "2020-01-05"]
        ),
        "kind": ["x", "y", "x", "y", "y", "x", "z"],
    }
)


FAST: dict[str, Any] = {"method": "independent", "classes": 1, "row_classes": 1, "steps": 4}


def read(
    rows: pd.DataFrame = ROWS, people: pd.DataFrame | None = PEOPLE, dtypes: Any = "bought", **options: Any
) -> LinkedTables:
    tables = [in_memory(table, dtypes) for table in ([] if people is None else [people]) + [rows]]
    for name, table in zip(["people", "visits"][-len(tables) :], tables):
        table.table = name
    given: dict[str, Any] = {"person": "who", "order": "day", "max_rows": 3, "test_fraction": 0.0}
    given |= {} if people is None else {"people_path": tables[0]}
    return load_linked(path=tables[-1], **given | options)


def of(data: LinkedTables, person: int) -> list[tuple[Any, ...]]:
    """Kinds and times between the rows of one person."""
    starts = data.tables[0].starts
    part = data.frames[1].iloc[starts[person] : starts[person + 1]]
    return list(zip(part["kind"], part["days since the last"]))


def test_rows_are_in_order_of_time_with_the_times_between_them() -> None:
    data = read(max_rows=4)
    assert np.diff(data.tables[0].starts).tolist() == [2, 4, 1, 0]
    assert of(data, 0) == [("y", 0), ("y", 29)]
    assert [gap for _, gap in of(data, 1)] == [0, 3, 0, 4]
    assert data.people["number of visits"].tolist() == [2, 4, 1, 0]
    assert data.tables[0].least == 0
    assert data.frames[1]["day"].nunique() == 3, "of later rows the day is that of the first"


def test_files_of_another_form_and_people_of_a_key_alone(tmp_path: Path) -> None:
    ROWS.assign(kind="é").to_csv(tmp_path / "visits.csv", index=False, sep=";", encoding="cp1252")
    PEOPLE[["who"]].to_csv(tmp_path / "people.csv", index=False, sep=";")
    paths = {"path": str(tmp_path / "visits.csv"), "people_path": str(tmp_path / "people.csv")}
    data = load_linked(**paths, person="who", order="day", delimiter=";", encoding="cp1252", test_fraction=0.0)
    assert data.people.columns.tolist() == ["number of visits"]
    assert set(data.frames[1]["kind"]) == {"é"}
    assert dpgen.fit(data, "relational", epsilon=1.0, **FAST).sample(3)["people"].columns.tolist() == ["who"]


@pytest.mark.parametrize("drop", [["kind"], ["visits.kind"], ["visits.kind", *(c for c in PEOPLE if c != "who")]])
def test_columns_that_are_not_wanted_are_left_out(drop: list[str]) -> None:
    data = read(drop=drop)
    assert "kind" not in data.frames[1]
    assert len(data.people.columns) == (1 if len(drop) > 1 else len(PEOPLE.columns))
    assert any("kind" in str(fact) for fact in data.facts)


@pytest.mark.parametrize(
    ("drop", "match"),
    [
        (["kin"], "one of people.who, people.old"),
        (["visits.day"], "must be kept"),
        (["people.who"], "must be kept"),
        (["who"], "of 2 tables"),
    ],
)
def test_columns_that_cannot_be_left_out_of_linked_tables(drop: list[str], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        read(drop=drop)


def test_dates_of_an_order_are_written_as_a_schema_states(tmp_path: Path) -> None:
    days = pd.Timestamp("2023-11-28") + pd.to_timedelta(np.arange(120) % 40, unit="D")
    rows = pd.DataFrame({"who": np.repeat(np.arange(30), 4), "when": days.strftime("%d.%m.%Y"), "what": ["a", "b"] * 60})
    rows.to_csv(tmp_path / "rows.csv", sep=";", index=False)
    options: dict[str, Any] = {"person": "who", "order": "when", "epsilon": 1.0, "people_path": None}
    with pytest.raises(ValueError, match="must state how its dates are written") as refused:
        dpgen.fit(str(tmp_path / "rows.csv"), "relational", **options, **FAST)
    stated = ast.literal_eval(str(refused.value).partition("written: ")[2])
    assert stated == {"fieldsMatch": "partial", "fields": [{"name": "when", "type": "date", "format": "%d.%m.%Y"}]}
    data = load_linked(path=str(tmp_path / "rows.csv"), person="who", order="when", schema=stated, test_fraction=0.0)
    assert sorted(data.tables[0].times) == sorted(days)
    release = dpgen.fit(str(tmp_path / "rows.csv"), "relational", schema=stated, **options, **FAST)
    made = release.sample(20)
    made = made if isinstance(made, pd.DataFrame) else made["rows"]
    assert made["when"].str.fullmatch(r"\d\d\.\d\d\.\d{4}").all()
    assert data.alike(made).tables[0].times.dtype.kind == "M", "samples are read by the same rules"


STAYS: dict[str, Any] = {
    "fieldsMatch": "partial",
    "fields": [{"name": "out", "type": "date"}, {"name": "operated", "type": "date"}, {"name": "asked", "type": "date"}],
    "dpgen:constraints": [
        {"less_equal": ["day", "out"]},
        {"less_equal": ["day", "operated"]},
        {"less_equal": ["operated", "out"]},
        {"less_equal": ["asked", "day"]},
    ],
}
"""A stay begins on the day of its row: it is asked for before, and ends after."""


def stays(size: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 3 * size), unit="D")
    out, asked = (pd.to_timedelta(rng.integers(0, most, 3 * size), unit="D") for most in (30, 5))
    rows = pd.DataFrame({"who": np.repeat(np.arange(size), 3), "day": day, "out": day + out, "asked": day - asked})
    return rows.assign(operated=(rows["day"] + out // 2).where(rows.index % 4 > 0))


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d.%m.%Y", ""])
def test_what_comes_after_a_row_is_modelled_as_the_time_from_there(form: str) -> None:
    rows, schema = stays(), STAYS
    if form:
        rows = rows.assign(**{name: rows[name].dt.strftime(form) for name in ("day", "out", "operated", "asked")})
    if form == "%d.%m.%Y":
        names = ("day", "out", "operated", "asked")
        schema = STAYS | {"fields": [{"name": name, "type": "date", "format": form} for name in names]}
    data = read(rows, None, schema=schema)
    found = data.frames[1].sort_values([*data.frames[1]]).reset_index(drop=True)
    real = stays()
    assert (found["days from day to out"].sum(), found["days from asked to day"].sum()) == (
        (real["out"] - real["day"]).dt.days.sum(),
        (real["day"] - real["asked"]).dt.days.sum(),
    )
    assert found["days from day to operated"].isna().sum() == real["operated"].isna().sum()
    options: dict[str, Any] = {"person": "who", "order": "day", "epsilon": 3.0, "max_rows": 3, "schema": schema, **FAST}
    release = dpgen.fit(rows, "relational", **options)
    made = release.sample(80)
    assert set(made) == set(rows)
    if form == "%d.%m.%Y":
        assert made["out"].str.fullmatch(r"\d\d\.\d\d\.\d{4}").all()
    dates = (made[name] for name in ("day", "out", "operated", "asked"))
    day, out, operated, asked = (pd.to_datetime(own, format=form if own.dtype.kind in "OU" else None) for own in dates)
    assert (out >= day).all()
    assert (asked <= day).all()
    assert not (operated > out).any()
    assert not (operated < day).any()
    assert release.log_prob(made).isfinite().any()
    again = data.alike(made)
    assert "days from day to out" in again.frames[1]


def test_a_date_that_is_drawn_apart_from_the_order_is_said() -> None:
    options: dict[str, Any] = {"person": "who", "order": "day", "epsilon": 300.0, "max_rows": 3, **FAST}
    release = dpgen.fit(stays()[["who", "day", "out"]], "relational", rules="off", **options)
    told = [said for said in release.statement.facts if said.fact is Fact.TIMES_APART]
    assert ["{'less_equal': ['day', 'out']}" in said.sentence for said in told] == [True]
    schema = STAYS | {"fields": STAYS["fields"][:1], "dpgen:constraints": STAYS["dpgen:constraints"][:1]}
    release = dpgen.fit(stays()[["who", "day", "out"]], "relational", schema=schema, **options)
    assert not any(said.fact is Fact.TIMES_APART for said in release.statement.facts)


def test_given_rows_have_what_comes_after_them() -> None:
    release = dpgen.fit(
        stays(), "relational", person="who", order="day", epsilon=30.0, max_rows=3, schema=STAYS, **FAST | {"steps": 20}
    )
    for row in ({"day": "2021-03-01"}, {"day": "2021-03-01", "out": "2021-03-05"}):
        made = release.sample(40, random_state=0, given={"rows": [row]}).sort_values(["who", "day"])
        first = made.groupby("who").head(1)
        assert (first["day"] == pd.Timestamp("2021-03-01")).mean() > 0.9
        assert (made["out"] >= made["day"]).all()
        assert "out" not in row or (made["out"] == pd.Timestamp("2021-03-05")).sum() >= 40
    with refused("'out'", "before", "day"):
        release.sample(2, given={"rows": [{"day": "2021-03-01", "out": "2021-02-01"}]})
    with refused("'out'", "one of"):
        release.sample(2, given={"rows": [{"out": "2021-02-01"}]})
    with refused("'out'", "before", "day"):
        release.log_prob(stays().assign(out=pd.Timestamp("2019-01-01")))


@pytest.mark.parametrize("form", ["", "%d.%m.%Y"])
def test_the_only_row_of_a_person_has_times_from_its_own_one(form: str) -> None:
    rows, names = stays(400).groupby("who").head(1), ("day", "out", "operated", "asked")
    fields = [{"name": name, "type": "date"} | ({"format": form} if form else {}) for name in names]
    given = rows.assign(**{name: rows[name].dt.strftime(form) for name in names}) if form else rows
    options: dict[str, Any] = {"person": "who", "order": "day", "epsilon": 30.0, "max_rows": 1} | FAST | {"steps": 60}
    rules = [rule for rule in STAYS["dpgen:constraints"] if rule != {"less_equal": ["operated", "out"]}]
    release = dpgen.fit(given, "relational", schema=STAYS | {"fields": fields, "dpgen:constraints": rules}, **options)
    made = release.sample(800, random_state=0)
    day, out, operated, asked = (pd.to_datetime(made[name], format=form or None) for name in names)
    assert (out >= day).all()
    assert (asked <= day).all()
    assert not (operated < day).any()
    assert abs(operated.isna().mean() - rows["operated"].isna().mean()) < 0.08, "rows are not drawn until both are in order"
    assert abs((out - day).dt.days.mean() - (rows["out"] - rows["day"]).dt.days.mean()) < 3
    assert release.log_prob(made).isfinite().any()
    first = {"day": "01.03.2021", "out": "04.03.2021"} if form else {"day": "2021-03-01", "out": "2021-03-04"}
    told = release.sample(20, random_state=0, given={"rows": [first]})
    assert (pd.to_datetime(told["out"], format=form or None) == pd.Timestamp("2021-03-04")).all()


def test_other_constraints_on_the_only_row_stay_as_they_are() -> None:
    """`out` is ordered by a column that is no time from the row's own: both hold by draws anew, `asked` by its distance."""
    rows = stays(200).groupby("who").head(1).drop(columns="operated")
    rows = rows.assign(paid=rows["out"] + pd.Timedelta(3, "D"), late=rows["day"] > pd.Timestamp("2021-01-01"), x=rows.index % 2)
    names = ("day", "out", "asked", "paid")
    fields = [
        {"name": name, "type": "date", "constraints": {"minimum": "2019-01-01", "maximum": "2023-01-01"}} for name in names
    ]
    rules = [
        {"less_equal": ["day", "out"]},
        {"less_equal": ["out", "paid"]},
        {"less_equal": ["asked", "day"]},
        {"forbidden": {"late": True, "x": 1}},
    ]
    schema = {"fieldsMatch": "partial", "fields": fields, "dpgen:constraints": rules}
    rows = rows[~(rows["late"] & (rows["x"] == 1))]
    release = dpgen.fit(
        rows, "relational", person="who", order="day", epsilon=10.0, max_rows=1, schema=schema, **FAST | {"steps": 40}
    )
    assert [own["column"] for own in release.about[0]["distances"]] == ["asked"]
    made = release.sample(200, random_state=0)
    assert (made["asked"] <= made["day"]).all()
    assert (made["day"] <= made["out"]).all()
    assert (made["out"] <= made["paid"]).all()
    assert not (made["late"] & (made["x"] == 1)).any()


@pytest.mark.parametrize("form", ["", "%d.%m.%Y"])
def test_packages_say_the_types_of_all_dates(form: str) -> None:
    rows, names = stays(), ("day", "out", "operated", "asked")
    stated = {"type": "date"} | ({"format": form} if form else {})
    schema = STAYS | {"fields": [{"name": name, **stated} for name in names]}
    rows = rows.assign(**{name: rows[name].dt.strftime(form) for name in names}) if form else rows
    release = dpgen.fit(rows, "relational", person="who", order="day", epsilon=3.0, max_rows=3, schema=schema, **FAST)
    [resource] = json.loads(release.samples(3).package()["datapackage.json"])["resources"]
    fields = {own["name"]: own for own in resource["schema"]["fields"]}
    assert {name: (fields[name]["type"], fields[name].get("format", "")) for name in names} == dict.fromkeys(
        names, ("date", form)
    )


@pytest.mark.parametrize(
    ("rows", "rules", "words"),
    [
        (stays(4).assign(out=pd.Timestamp("2019-01-01")), STAYS["dpgen:constraints"], ["days from day to out", "rule"]),
        (stays(4).assign(out="soon"), STAYS["dpgen:constraints"], ["'out'", "no date"]),
        (stays(4), [{"less_equal": ["day", "out"]}, {"less_equal": ["out", "asked"]}], ["out and asked", "same side"]),
        (stays(4), [{"less_equal": ["day", "out"]}, {"less_equal": ["out", "day"]}], ["'day'", "less_equal"]),
        (stays(4), [{"less_equal": ["day", "day"]}], ["'day'", "less_equal"]),
        (stays(4).assign(n=1), [{"less_equal": ["day", "n"]}], ["day (date), n (integer)", "of dates"]),
    ],
)
def test_what_cannot_come_after_a_row_is_refused(rows: pd.DataFrame, rules: Any, words: list[str]) -> None:
    number = [{"name": "n", "type": "integer"}] if "n" in rows else []
    with refused(*words):
        read(rows, None, schema=STAYS | {"fields": [*STAYS["fields"], *number], "dpgen:constraints": rules})


def test_without_a_table_of_people_all_have_rows() -> None:
    data = read(people=None)
    assert (data.n, data.tables[0].least) == (3, 1)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    secret_key(tmp_path / "key")
    return tmp_path / "key"


def test_nothing_depends_on_the_order_of_the_files(key: Path) -> None:
    """Positions in a file as the order, or to break ties, would show here."""
    rng = np.random.default_rng(0)
    many = pd.concat([ROWS, *(ROWS.assign(kind=kind) for kind in ("w", "v", "1", "01", "true"))], ignore_index=True)
    first = read(many, split_key=key)
    for _ in range(5):
        other = read(many.iloc[rng.permutation(len(many))], split_key=key)
        assert all(of(first, person) == of(other, person) for person in range(4))
        pd.testing.assert_frame_equal(first.tables[0].sample, other.tables[0].sample)


def test_the_rows_of_a_person_are_chosen_whoever_else_is_there(key: Path) -> None:
    """A window chosen by other people's rows would show here."""
    many = pd.concat([ROWS.assign(kind=kind) for kind in "uvwxyz"], ignore_index=True)
    first = read(many, split_key=key)
    for who in "abc":
        left = PEOPLE["who"].ne(who)
        data = read(many[many["who"] != who], PEOPLE[left], split_key=key)
        for place, person in enumerate(np.flatnonzero(left)):
            assert of(data, place) == of(first, int(person))
            assert (
                data.tables[0].sample.loc[place].equals(first.tables[0].sample.loc[person])
                if who != "d" and person < 3
                else True
            )


def test_windows_hold_successive_rows_and_differ_by_the_key() -> None:
    days = pd.date_range("2020-01-01", periods=30)
    rows = pd.DataFrame({"who": "a", "day": days, "kind": [f"{i:02d}" for i in range(30)]})
    seen = set()
    for _ in range(12):
        kinds = [int(kind) for kind, _ in of(read(rows), 0)]
        assert np.diff(kinds).tolist() == [1, 1]
        seen.add(kinds[0])
    assert len(seen) > 3
    assert all(gap == 1 for _, gap in of(read(rows), 0)[1:])


def test_one_row_of_each_person_stands_for_all(key: Path) -> None:
    found = read(split_key=key).tables[0].one_row_each().source
    assert len(found) == 3, "of people with rows"
    assert found["days since the last"].isna().sum() == 1, "of the person with one row"
    own = ROWS.assign(day=pd.to_datetime(ROWS["day"])).groupby("who")["day"].agg(set)
    assert all(day in days for day, days in zip(found["day"], own)), "each has the day of the row itself"


def test_people_for_evaluation_are_whole_people() -> None:
    data = load_linked(test_fraction=0.5)
    assert data.test is not None
    assert data.n + data.test.n == 20_000
    assert 9_000 < data.n < 11_000
    assert len(data.frames[1]) == data.tables[0].starts[-1]


def test_whole_numbers_are_an_order_and_none_is_one_too() -> None:
    data = read(ROWS.assign(day=[5, 1, 2, 9, 0, 3, 5]), time_unit="second", max_rows=4)
    assert data.frames[1]["seconds since the last"].tolist() == [0, 1, 0, 3, 0, 4, 0]
    apart = read(order=None)
    assert apart.tables[0].spans == {}
    assert "days since the last" not in apart.frames[1]


BORN = PEOPLE.assign(born=pd.to_datetime(["2020-01-20", "2020-01-02", "2020-05-05", "2020-01-01"]), spent=[2.0, 4.0, 1.0, 0.0])
ACROSS: dict[str, Any] = {
    "people_schema": {
        "fields": [{"name": "born", "type": "date"}, {"name": "spent", "type": "number"}],
        "dpgen:constraints": [{"sum": ["visits.cost"], "total": "spent"}],
    },
    "schema": {
        "fields": [
            {"name": "day", "type": "date"},
            {"name": "cost", "type": "integer", "constraints": {"minimum": 0, "maximum": 3}},
        ],
        "dpgen:constraints": [{"less_equal": ["people.born", "day"]}, {"forbidden": {"people.old": True, "kind": "z"}}],
    },
}


def test_constraints_between_a_row_and_its_person_hold_in_samples() -> None:
    """Nobody comes before birth, none of the old has a row of one kind, and what a person spent is the sum of all rows."""
    tables = {"people": BORN, "visits": ROWS.assign(cost=[0, 2, 1, 3, 0, 1, 2])}
    options: dict[str, Any] = {"person": "who", "order": {"visits": "day"}, "max_rows": 3, "dtypes": "public"}
    release = dpgen.fit(tables, epsilon=5.0, **options, **ACROSS, **FAST)
    people, visits = release.sample(300, random_state=0).values()
    joined = visits.merge(people, on="who")
    assert (joined["born"] <= joined["day"]).all()
    assert not (joined["old"] & (joined["kind"] == "z")).any()
    spent = visits.groupby("who")["cost"].sum().reindex(people["who"]).fillna(0.0)
    assert np.allclose(people["spent"], spent)
    assert visits["cost"].nunique() > 1, "a number of rows is no sum"
    assert "spent" not in release.schemas[0].domain.names, "nothing is paid for what is computed"
    assert people["who"].is_unique
    assert people.columns.tolist() == ["who", "old", "born", "spent"]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"less_equal": ["people.borne", "day"]}, ["'borne'", "born"]),
        ({"less_equal": ["people.old", "day"]}, ["people.old"]),
        ({"less_equal": ["people.born", "day"], "broken": 0.1}, ["people.born", "broken"]),
        ({"sum": ["people.spent"], "total": "cost"}, ["sum"]),
        ({"depends": "people.old", "on": "kind", "table": {}}, ["a constraint is on"]),
    ],
)
def test_constraints_between_tables_that_cannot_be(rule: dict[str, Any], words: list[str]) -> None:
    schema = {**ACROSS["schema"], "dpgen:constraints": [rule]}
    with refused(*words):
        read(ROWS.assign(cost=1), BORN, schema=schema, people_schema={"fields": ACROSS["people_schema"]["fields"]})


BAD: list[tuple[dict[str, Any], list[str]]] = [
    ({"rows": ROWS.assign(who=[None, *ROWS["who"][1:]])}, ["line without 'who'"]),
    ({"people": PEOPLE.assign(who=["a", "b", "b", "d"])}, ["twice"]),
    ({"people": PEOPLE[:2]}, ["not in", "orphans=drop"]),
    ({"rows": ROWS.assign(day=[pd.NaT, *ROWS["day"][1:]])}, ["'day' is missing"]),
    ({"rows": ROWS.assign(day=["nonsense"] * 7)}, ["no date"]),
    ({"rows": ROWS.assign(day=[0.5] * 7)}, ["'day' is missing or no date"]),
    ({"rows": ROWS.assign(day=[0.5] * 7), "dtypes": "public"}, ["a number", "dates, times or whole numbers"]),
    ({"max_rows": 0}, ["max_rows is 0", "[1, 200]"]),
    ({"max_rows": 201}, ["max_rows is 201"]),
    ({"orphans": "ask"}, ["orphans is 'ask'"]),
    ({"delimiter": ";"}, ["delimiter", "no csv file"]),
    ({"time_unit": "week"}, ["time_unit is 'week'"]),
    ({"order": "date"}, ["order", "'date'", "day"]),
    ({"person": "whom"}, ["person", "'whom'", "who"]),
    ({"people": PEOPLE.rename(columns={"who": "name"})}, ["person", "'who'", "name"]),
    ({"rows": ROWS.assign(who=1.5)}, ["whole numbers or text"]),
    ({"rows": ROWS[:0]}, ["is empty"]),
    (
        {"schema": {"fields": [{"name": "kind", "type": "string", "constraints": {"enum": ["x", "y"]}}]}},
        ["kind", "breaks a rule"],
    ),
    (
        {
            "rows": ROWS.assign(end=ROWS["day"]),
            "schema": {"fields": [{"name": "end", "type": "date"}], "dpgen:constraints": [{"one_of": ["day", "end"]}]},
        },
        ["constraint", "'day'", "max_rows above 1"],
    ),
    ({"rows": ROWS.assign(day=[*"123456", "x"])}, ["no date", "type integer in schema"]),
    ({"schema": {"fields": [], "dpgen:privacy": {"epsilon": 1.0}}}, ["bought"]),
]


@pytest.mark.parametrize(("options", "words"), BAD, ids=[" ".join(words) for _, words in BAD])
def test_bad_input_is_one_line_without_a_value(options: dict[str, Any], words: list[str]) -> None:
    with refused(*words):
        read(**options)


SECRET = "C1203928"
KINDS = {"fields": [{"name": "kind", "type": "string", "constraints": {"enum": ["x", "y"]}}]}


@pytest.mark.parametrize(
    "options",
    [
        {"people": PEOPLE.assign(who=["a", SECRET, SECRET, "d"])},
        {"rows": ROWS.assign(who=[SECRET, *ROWS["who"][1:]])},
        {"rows": ROWS.assign(day=[SECRET] * 7)},
        {"rows": ROWS.assign(kind=SECRET), "schema": KINDS},
    ],
    ids=["person twice", "rows of nobody", "no date", "no value of the schema"],
)
def test_no_message_shows_a_person_or_a_value(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$") as caught:
        read(**options)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_rows_of_nobody_are_left_out() -> None:
    data = read(people=PEOPLE[:2], orphans="drop")
    assert np.diff(data.tables[0].starts).tolist() == [2, 3]


def test_a_name_with_a_zero_byte_is_another_person() -> None:
    data = read(ROWS.replace({"who": {"b": "a\0"}}), PEOPLE.replace({"who": {"b": "a\0"}}))
    assert np.diff(data.tables[0].starts).tolist() == [2, 3, 1, 0]


@pytest.mark.parametrize(
    ("people", "column", "word"),
    [
        (True, "0", "whose person is not in"),
        (False, "date '1999-01-01' + 4000000 * (i > 190)::int", "years 1"),
        (False, "case when i > 190 then 170141183460469231731687303715884105727::hugeint else i end", "type of its column"),
    ],
)
def test_what_a_later_batch_of_an_engine_refuses_is_one_line(
    people: bool, column: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB would make a traceback of it, and Python would quote the private year of a date."""
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.setattr("dpgen.data.batches.ROWS", 64)
    with duckdb.connect(str(tmp_path / "w.duckdb")) as connection:
        connection.sql("select i as who, 0 as old from range(199) t(i)").create("people")
        connection.sql(f"select i as who, 0 as day, {column} as x from range(200) t(i)").create("visits")
    with refused(word):
        load_linked(
            path=f"{tmp_path}/w.duckdb::visits",
            people_path=f"{tmp_path}/w.duckdb::people" if people else None,
            person="who",
            order="day",
        )


@pytest.mark.parametrize("most", [1, 6])
def test_odd_numbers_of_rows_are_fitted(most: int) -> None:
    """One row of each person, and more rows than anybody has; everybody without rows, and one person."""
    options: dict[str, Any] = {"classes": 2, "row_classes": 2, "rounds": 1, "picks": 2, "max_rows": most, "steps": 4}
    for rows, people in ((ROWS, PEOPLE), (ROWS[5:6], PEOPLE[2:3])):
        tables = {"people": people, "visits": rows}
        release = dpgen.fit(tables, epsilon=1.0, person="who", order={"visits": "day"}, **options)
        made = release.sample(20, random_state=0)
        assert made["visits"]["who"].isin(made["people"]["who"]).all()
        assert made["people"].columns.tolist() == ["who", "old"]


def test_the_pattern_of_a_key_of_rows_is_bought() -> None:
    keyed = ROWS.assign(visit=[f"V{i}" for i in range(7)])
    data = read(keyed, schema={"fields": [{"name": "visit", "type": "string"}], "primaryKey": "visit"})
    release = dpgen.fit(data, "relational", epsilon=1.0, **FAST)
    assert "kind" in release.sample(20, random_state=0)["visits"]


@pytest.mark.parametrize("form", ["bought", "files", "declared", "regular", "numbers", "no pattern"])
def test_keys_that_link_tables_keep_their_pattern(form: str, tmp_path: Path) -> None:
    """Bought, one key of each person, or declared; of numbers, and without a pattern that most have, 1, 2, 3."""
    tables = three_tables(200)
    spelt = {"numbers": "{}", "no pattern": "{x}{}"}.get(form, "C-{:05d}")
    for frame in tables.values():
        for column in frame.columns.intersection(["patient", "visit"]):
            frame[column] = [spelt.format(int(key), x="xyz"[key % 3] * (key % 7)) for key in frame[column]]
    options: dict[str, Any] = {"person": "patient", "order": {"visits": "date"}, "max_rows": 2, **FAST}
    if form in ("declared", "regular"):
        known = {"dpgen:key": "C-{:04d}"} if form == "declared" else {"constraints": {"pattern": "^C-\\d{4}$"}}
        keys = {"patients": "patient", "visits": "visit"}
        options["schemas"] = {
            table: {"fields": [{"name": key, "type": "string", **known}], "fieldsMatch": "partial"}
            for table, key in keys.items()
        }
    given: Any = tables
    if form == "files":
        for name, frame in tables.items():
            frame.to_csv(tmp_path / f"{name}.csv", index=False)
        files = {"visits": str(tmp_path / "visits.csv"), "prescriptions": str(tmp_path / "prescriptions.csv")}
        own = ("person", "order", "max_rows")
        given = load_linked(
            path=files.pop("visits"),
            people_path=str(tmp_path / "patients.csv"),
            tables=files,
            test_fraction=0.0,
            **{name: options.pop(name) for name in own},
        )
    release = dpgen.fit(given, "relational", epsilon=20.0, **options)
    release.samples(4, random_state=0).save(tmp_path / "out")
    made = {name: pd.read_csv(tmp_path / "out" / f"{name}.csv", dtype=str) for name in tables}
    first = {"numbers": "1", "no pattern": "1", "declared": "C-0001", "regular": "C-0001"}.get(form)
    assert made["patients"]["patient"][0] == (first or "C-00001")
    assert made["visits"]["visit"][0] == (first or "C-00001")
    assert made["visits"]["patient"].isin(made["patients"]["patient"]).all()
    assert made["prescriptions"]["visit"].isin(made["visits"]["visit"]).all()
    listed = json.loads((tmp_path / "out" / "datapackage.json").read_text())["resources"]
    for resource in listed:
        for field in resource["schema"]["fields"]:
            pattern = field.get("constraints", {}).get("pattern")
            assert (pattern is not None) == (form not in ("numbers", "no pattern") and field["name"] in ("patient", "visit"))
            assert pattern is None or made[resource["name"]][field["name"]].str.fullmatch(pattern).all()
    assert any("of patient" in str(line["note"]) for line in release.statement.mechanisms) == (
        form not in ("declared", "regular")
    )
    load_linked(path=str(tmp_path / "out" / "datapackage.json"), test_fraction=0.0)  # what is written is read again


P = pd.DataFrame({"pid": range(40), "age": np.arange(40) % 7})
V = pd.DataFrame({"pid": np.arange(60) % 40, "when": pd.date_range("2020-01-01", periods=60), "kind": np.arange(60) % 3})
EMP = P.assign(boss=P["pid"] // 5).rename(columns={"pid": "id"})
JOBS = V.rename(columns={"pid": "id"})
OWN_KEY = {"fields": [], "foreignKeys": [{"fields": "boss", "reference": {"resource": "", "fields": "id"}}]}
SENT = V.rename(columns={"pid": "sender"}).assign(receiver=np.arange(60) % 9)
TAKEN = V.assign(cid=np.arange(60) % 4)
COURSES = pd.DataFrame({"cid": range(4), "title": [*"abcd"]})
WITHOUT = (
    ({"emp": EMP, "jobs": JOBS}, {"links": {"jobs": "emp.id"}, "drop": ["emp.boss"]}, ["id", "age"]),
    ({"emp": EMP, "jobs": JOBS}, {"person": "id", "people_schema": OWN_KEY, "drop": ["emp.boss"]}, ["id", "age"]),
)


@pytest.mark.parametrize("form", ["memory", "columns", "engine", "files"])
def test_a_link_to_people_names_their_column(form: str, tmp_path: Path) -> None:
    """The unit is that column: of one person's rows nothing is anybody else's."""
    links: dict[str, Any] = {"visits": {"pid": "patients.pid"} if form == "columns" else "patients.pid"}
    tables: dict[str, Any] = {"patients": P, "visits": V}
    if form == "engine":
        tables = {name: pytest.importorskip("duckdb").from_df(table) for name, table in tables.items()}
    if form == "files":
        for name, table in tables.items():
            table.to_csv(tmp_path / f"{name}.csv", index=False)
        paths = {"data": str(tmp_path / "visits.csv"), "people_path": str(tmp_path / "patients.csv")}
        release = dpgen.fit(**paths, links=links, order="when", epsilon=5, **FAST)
    else:
        release = dpgen.fit(tables, links=links, order="when", epsilon=5, **FAST)
    assert (release.shown["person"], release.shown["tables"]) == ("pid", ["patients", "visits"])
    made = release.sample(30, random_state=0)
    assert [table.columns.tolist() for table in made.values()] == [["pid", "age"], ["pid", "when", "kind"]]
    assert set(made["visits"]["pid"]) <= set(made["patients"]["pid"])


@pytest.mark.parametrize(("tables", "options", "columns"), WITHOUT, ids=["links", "schema"])
def test_a_key_that_is_dropped_is_not_followed(tables: dict[str, Any], options: dict[str, Any], columns: list[str]) -> None:
    assert dpgen.fit(tables, epsilon=5, **options, **FAST).sample(3)["emp"].columns.tolist() == columns


SHAPES: list[tuple[dict[str, pd.DataFrame], dict[str, Any], list[str]]] = [
    (
        {"students": P, "courses": COURSES, "taken": TAKEN},
        {"links": {"taken": {"pid": "students.pid", "cid": "courses.cid"}}},
        ["taken.pid and taken.cid", "two private tables", "public=['courses']", "one table of both"],
    ),
    ({"students": P, "courses": COURSES, "taken": TAKEN}, {"person": "pid"}, ["'cid' twice", "public=[TABLE]"]),
    (
        {"people": P, "sent": SENT.assign(pid=0)},
        {"links": {"sent": {"sender": "people.pid"}}},
        ["sent.sender", "another column 'pid'", "rename it"],
    ),
    (
        {"people": P, "sent": V.assign(number=range(60), last=0)},
        {"links": {"sent": {"pid": "people.pid", "last": "sent.number"}}},
        ["sent.last is a key to its own table", "drop=['sent.last']"],
    ),
    ({"emp": EMP[["id", "boss"]]}, {"links": {"emp": {"boss": "emp.id"}}}, ["'emp' has no column but keys"]),
    (
        {"people": P, "sent": SENT},
        {"links": {"sent": "people.pid"}},
        ["no column 'pid'", "links={'sent': {COLUMN: 'people.pid'}}"],
    ),
    ({"people": P, "visits": V}, {"links": {"visits": "people.pib"}}, ["people", "'pib'", "pid"]),
    ({"people": P, "visits": V}, {"links": {"visit": "people.pid"}}, ["'visit'", "visits"]),
    ({"people": P, "visits": V}, {"links": "people.pid"}, ["links is 'people.pid'", "TABLE.COLUMN"]),
    ({"people": P, "visits": V}, {"links": {"visits": ["people.pid"]}}, ["links['visits']", "TABLE.COLUMN"]),
    ({"people": P, "visits": V}, {"person": "pid", "schema": {"fields": [], "foreignKeys": [3]}}, ["'foreignKeys'"]),
    ({"people": P, "visits": V}, {}, ["column 'person'", "person='COLUMN'", "links={'visits': 'people.COLUMN'}"]),
    (  # a visit would be the unit, where patients are above it
        {"patients": P, "visits": V.assign(visit=range(60)), "pills": pd.DataFrame({"visit": range(60), "pill": "x"})},
        {"links": {"pills": "visits.visit"}},
        ["column 'person'"],
    ),
]


@pytest.mark.parametrize(("tables", "options", "words"), SHAPES, ids=[" ".join(words[:1]) for _, _, words in SHAPES])
def test_links_that_no_model_has_are_one_line(tables: dict[str, Any], options: dict[str, Any], words: list[str]) -> None:
    with refused(*words):
        dpgen.fit(tables, epsilon=5, **options, **FAST)


OTHERS: dict[str, tuple[dict[str, pd.DataFrame], dict[str, Any], tuple[str, str], str]] = {
    "boss": ({"emp": EMP}, {"links": {"emp": {"boss": "emp.id"}}}, ("emp", "id"), "boss"),
    "declared": ({"emp": EMP, "jobs": JOBS}, {"person": "id", "people_schema": OWN_KEY}, ("emp", "id"), "boss"),
    "receiver": (
        {"people": P, "sent": SENT},
        {"links": {"sent": {"sender": "people.pid", "receiver": "people.pid"}}, "order": "when"},
        ("people", "pid"),
        "receiver",
    ),
}


@pytest.mark.parametrize(("tables", "options", "key", "column"), OTHERS.values(), ids=[*OTHERS])
def test_rows_name_people_who_are_there(
    tables: dict[str, Any], options: dict[str, Any], key: tuple[str, str], column: str, tmp_path: Path
) -> None:
    """Samples name people of the sample and never themselves; people above people form no circle; files say the key."""
    release = dpgen.fit(tables, epsilon=5, **options, **FAST)
    release.save(tmp_path / "release")
    samples = dpgen.load(tmp_path / "release").samples(50, random_state=1)
    made = {name: samples._shown(name) for name in samples.tables}
    [name] = [name for name, table in tables.items() if column in table]
    assert {n: list(table) for n, table in made.items()} == {n: list(table) for n, table in tables.items()}
    known, named = set(made[key[0]][key[1]]), made[name][column].dropna()
    assert len(named)
    assert set(named) <= known
    own = made[name].loc[named.index, "sender" if column == "receiver" else key[1]]
    assert (own != named).all()
    if column == "boss":
        above = dict(zip(own, named))
        for person in own:
            for _ in range(50):
                person = above.get(person)
            assert person is None
    pd.testing.assert_frame_equal(made[name], release.samples(50, random_state=1)._shown(name))
    samples.save(tmp_path / "made")
    again = load_linked(path=str(tmp_path / "made" / "datapackage.json"), test_fraction=0.0)
    assert [own.column for own in again.references] == [column]
    assert (again.references[0].targets >= 0).sum() == len(named)
    scores = comparison(tmp_path / "made" / "datapackage.json", tmp_path / "made", seed=0).scores
    assert bool(scores) == (len(release.schemas[0].fields) + len(release.about) > 1)


def test_whom_a_row_names_decides_nothing_else(key: Path) -> None:
    """Which rows are used, and in which order, is the same where nobody is named."""
    rows = ROWS.assign(other=[*"abcdabd"], day=ROWS["day"].iloc[0])
    links = {"visits": {"who": "people.who", "other": "people.who"}}
    made = [
        read(table, links=links, person=None, max_rows=2, split_key=key)
        for table in (rows, rows.assign(other=rows["other"].iloc[::-1].to_numpy()))
    ]
    pd.testing.assert_frame_equal(made[0].tables[0].rows, made[1].tables[0].rows)
    assert [own.targets.tolist() != [] for own in made[0].references] == [True]


TO_OTHERS = {"visits": {"who": "people.who", "other": "people.who"}}


def whom(people: pd.DataFrame, rows: pd.DataFrame, key: Path, most: int = 2) -> dict[tuple[str, str, bytes], int]:
    """How many used rows of a person name another one, by their hashes."""
    given: dict[str, Any] = {"person": None, "order": None, "max_rows": most, "split_key": key, "links": TO_OTHERS}
    data = read(rows, people, **given)
    [own] = data.references
    named = [(data.keys[a], data.keys[b], c.tobytes()) for a, b, c in zip(own.owner, own.targets, own.ranks) if b >= 0]
    return dict(Counter(named))


@pytest.mark.parametrize("most", [1, 2, 3])
def test_others_keep_whom_they_name_when_a_person_leaves_and_the_order_of_the_data_changes(key: Path, most: int) -> None:
    """Three rows of each person, of which two or three are alike but for whom they name, in a file that is sorted by that.

    Person 0 leaves: nothing of others changes but the rows that named 0, wherever the file has them then.
    """
    n = 40
    people = pd.DataFrame({"who": range(n), "old": False})
    rows = pd.DataFrame({"who": np.repeat(range(n), 3), "other": [0, 1, 2] * n, "kind": [*"xxy", *"xxx"] * (n // 2)})
    gone = rows[rows["who"] > 0]
    gone = gone.assign(other=gone["other"].where(gone["other"] > 0))
    with_0, without_0 = (
        whom(own, table.sort_values(["who", "other"]).reset_index(drop=True), key, most)
        for own, table in ((people, rows), (people[1:], gone))
    )
    assert without_0 == {one: count for one, count in with_0.items() if "0" not in one[:2]}
    assert without_0
    assert whom(people, rows.sample(frac=1, random_state=0).reset_index(drop=True), key, most) == with_0


def test_a_gap_changes_no_other_key(key: Path) -> None:
    """One gap makes floating-point numbers of a column: keys that this would round are refused, with a gap and without."""
    rows = pd.DataFrame({"who": range(6), "other": [1, 2, 3, 4, 5, 0], "kind": [*"xyxyxy"]})
    for first in (0, 2**53 - 6):
        moved = rows.assign(who=rows["who"] + first, other=rows["other"] + first)
        people = pd.DataFrame({"who": moved["who"], "old": False})
        with_gap = whom(people, moved.assign(other=moved["other"].where(moved.index > 0)), key)
        assert with_gap == {one: count for one, count in whom(people, moved, key).items() if one[0] != str(first)}
        assert len(with_gap) == 5
    moved = rows.assign(who=rows["who"] + 2**53, other=rows["other"] + 2**53)
    people = pd.DataFrame({"who": moved["who"], "old": False})
    for table in (moved, moved.assign(other=moved["other"].where(moved.index > 0))):
        with refused("'other'", "2^53", "texts"):
            whom(people, table, key)
    assert len(whom(people.astype({"who": str}), moved.astype({"who": str, "other": str}), key)) == 6


def test_a_key_to_its_own_table_in_the_schema_of_one_table() -> None:
    with refused("boss is a key to its own table", "drop=['boss']"):
        dpgen.fit(EMP, "tables", epsilon=5, schema=OWN_KEY)


def test_mappings_of_other_tables_are_refused() -> None:
    tables = {"people": PEOPLE, "visits": ROWS}
    with refused("'drugs' hangs on nothing", "'who'", "links"):
        dpgen.fit(tables | {"drugs": pd.DataFrame({"drug": ["x"]})}, epsilon=1.0, person="who")
    with refused("order is {'drugs': 'day'}", "'people', 'visits'"):
        dpgen.fit(tables, epsilon=1.0, person="who", order={"drugs": "day"})
    with refused("mapping of tables", "marginals"):
        dpgen.fit(tables, "marginals", epsilon=1.0)


def in_engine(form: str, folder: Path, tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """The tables in an engine, and the options that name them there."""
    duckdb = pytest.importorskip("duckdb")
    if form == "relations":
        return {"data": {name: duckdb.from_df(table) for name, table in tables.items()}, "person": "patient"}
    if form == "parquet":
        for name, table in tables.items():
            table.to_parquet(folder / f"{name}.parquet")
        places = {name: str(folder / f"{name}*.parquet") for name in tables}
    else:
        with duckdb.connect(str(folder / "w.duckdb")) as connection:
            for name, table in tables.items():
                connection.from_df(table.sample(frac=1.0, random_state=0)).create(name)
        places = {name: f"{folder}/w.duckdb::{name}" for name in tables}
    named = {"data": places.pop("visits"), "people_path": places.pop("patients"), "person": "patient"}
    return named | ({"tables": places} if places else {})


@pytest.fixture
def require_same_bits(key: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Whether tables of an engine, whose batches hold a few people each, give the release that they give from memory."""
    monkeypatch.setattr("dpgen.data.batches.ROWS", 64)
    made = Curator.__init__
    monkeypatch.setattr(Curator, "__init__", lambda curator, ledger: made(curator, ledger, source=FixedKeySource()))

    def require(tables: dict[str, pd.DataFrame], max_rows: int | None, /, **engine: Any) -> None:
        options: dict[str, Any] = {"epsilon": 5.0, "split_key": key, "max_rows": max_rows, **FAST}
        with_gaps = {"int64": "Int64", "bool": "boolean"}  # types without gaps would be known
        nullable = {n: t.astype({c: with_gaps.get(str(d), d) for c, d in t.dtypes.items()}) for n, t in tables.items()}
        memory = dpgen.fit(nullable, person="patient", order={"visits": "date"}, dtypes="public", **options)
        other = dpgen.fit(model="relational", order="date", dtypes="public", **options, **engine)
        for name, tensor in memory.tensors().items():
            assert torch.equal(tensor, other.tensors()[name]), name
        for name, table in memory.sample(30, random_state=0).items():
            assert table.columns.tolist() == other.sample(30, random_state=0)[name].columns.tolist()

    return require


@pytest.mark.parametrize(("form", "max_rows"), [("duckdb", None), ("parquet", 1), ("relations", 1)])
def test_an_engine_gives_the_same_released_bits(
    form: str, max_rows: int | None, tmp_path: Path, require_same_bits: Callable[..., None]
) -> None:
    tables = simulated_patients(100)
    require_same_bits(tables, max_rows, **in_engine(form, tmp_path, tables))


def test_the_number_of_rows_is_bought(key: Path) -> None:
    """The least m that 95 % of people with rows keep to, of noisy counts: with next to no noise the quantile itself."""
    tables = simulated_patients(400)
    counts = tables["visits"].groupby("patient").size().to_numpy()
    made = dpgen.fit(tables, epsilon=1e4, person="patient", order={"visits": "date"}, max_rows=None, **FAST)
    most = int(np.quantile(counts, 0.95, method="inverted_cdf"))
    assert made.sample(400, random_state=0)["visits"].groupby("patient").size().max() == most
    assert f"At most {most} rows" in made.statement.to_markdown()
    assert read(max_rows=None).tables[0].most == MOST_BOUGHT, "cells of the noisy counts: of the data they would be private"


def test_the_number_of_rows_that_is_bought_is_noisy() -> None:
    """An m that was read off the people would be the same in all fits."""
    tables = simulated_patients(150)
    fits = [
        dpgen.fit(tables["visits"], epsilon=9.0, person="patient", order="date", max_rows=None, **FAST, seed=seed)
        for seed in range(6)
    ]
    assert len({fit.shown["rows"][0]["most"] for fit in fits}) > 1
    assert all(fit.size == round(fit.counts()["estimate"].iloc[0]) for fit in fits), "the noisy number of people"


def package(folder: Path, more: Sequence[dict[str, Any]] = (), **changes: Any) -> str:
    ROWS.to_csv(folder / "visits.csv", index=False)
    PEOPLE.to_csv(folder / "people.csv", index=False)
    key = {"fields": "who", "reference": {"resource": "people", "fields": "who"}}
    rows = {"fields": [{"name": "who"}, {"name": "day", "type": "date"}], "foreignKeys": [key], "dpgen:order": "day"}
    resources = [
        {"name": "people", "path": "people.csv", "schema": {"primaryKey": "who"}},
        {"name": "visits", "path": "visits.csv", "schema": rows | changes},
        *more,
    ]
    (folder / "datapackage.json").write_text(json.dumps({"resources": resources}))
    return str(folder / "datapackage.json")


def test_a_data_package_names_both_tables(tmp_path: Path) -> None:
    data = load_linked(path=package(tmp_path), test_fraction=0.0, max_rows=4)
    assert list(data.names) == ["people", "visits"]
    assert [gap for _, gap in of(data, 1)] == [0, 3, 0, 4]
    assert load_linked(path=package(tmp_path), order="day").tables[0].order[0] == "day"
    drugs = {"name": "drugs", "path": "drugs.csv", "dpgen:public": True}
    (tmp_path / "drugs.csv").write_text("drug,group\nx,1\ny,2\nz,3\nw,4\n")
    reference = {"fields": "kind", "reference": {"resource": "drugs", "fields": "drug"}}
    own = {"fields": "who", "reference": {"resource": "people", "fields": "who"}}
    data = load_linked(path=package(tmp_path, [drugs], foreignKeys=[own, reference]), test_fraction=0.0)
    kind = next(field for field in data.tables[0].draft["fields"] if field["name"] == "kind")
    assert kind["constraints"]["enum"] == ["x", "y", "z", "w"], "the keys of the public table, of which one is in no row"
    (tmp_path / "drugs.csv").write_text("drug,group\nx,1\n")
    with refused("kind", "breaks a rule"):
        load_linked(path=package(tmp_path, [drugs], foreignKeys=[own, reference]), test_fraction=0.0)
    load_linked(path=package(tmp_path, foreignKeys=[own, own]))  # a key that stands there twice is one key
    two = load_linked(path=package(tmp_path, foreignKeys=[own, own | {"fields": "kind"}]))
    assert [other.column for other in two.references] == ["kind"]
    assert "kind" not in two.frames[1]
    itself = {"fields": "kind", "reference": {"resource": "", "fields": "who"}}
    with refused("visits.kind is a key to its own table", "drop=['visits.kind']"):
        load_linked(path=package(tmp_path, foreignKeys=[own, itself]))
    assert "kind" not in load_linked(path=package(tmp_path, foreignKeys=[own, itself]), drop=["visits.kind"]).frames[1]
    with refused("3 tables", "one table of people"):
        load_linked(path=package(tmp_path, [drugs | {"dpgen:public": False}]))
    with refused("0 foreign keys", "one table of people"):
        load_linked(path=package(tmp_path, foreignKeys=[]))
    with refused("person is 'whom'", "who, old"):
        load_linked(
            path=package(tmp_path, foreignKeys=[{"fields": "who", "reference": {"resource": "people", "fields": "whom"}}])
        )
    for columns in (["who", "day"], []):  # whoever has the first of two columns would be one person
        with refused("foreign key of", "of one"):
            both = {"fields": columns, "reference": {"resource": "people", "fields": columns}}
            load_linked(path=package(tmp_path, foreignKeys=[both]))
    with refused("no Data Package"):
        load_linked(path=package(tmp_path, **{"dpgen:order": 3}))
    with refused("people_path", "person must be left out"):
        load_linked(path=package(tmp_path), person="who")
    (tmp_path / "datapackage.json").write_text("[]")
    with refused("no Data Package"):
        load_linked(path=str(tmp_path / "datapackage.json"))
