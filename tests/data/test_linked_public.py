"""Public tables beside linked ones: keys that everybody knows, which are alike, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from refusals import refused

import dpgen
from dpgen.data import load_linked

N = 900
RNG = np.random.default_rng(0)
COURSES = pd.DataFrame({"cid": range(100, 120), "dept": [*"abcd"] * 5, "title": [f"T{i}" for i in range(20)]})
STUDENTS = pd.DataFrame({"sid": range(N), "major": RNG.choice([*"abcd"], N)})
OWNER = np.repeat(np.arange(N), RNG.integers(0, 4, N))
OWN = COURSES["cid"].to_numpy().reshape(5, 4)[RNG.integers(0, 5, len(OWNER)), [*map("abcd".index, STUDENTS["major"][OWNER])]]
TAKEN = pd.DataFrame({"sid": OWNER, "cid": np.where(RNG.random(len(OWNER)) < 0.9, OWN, RNG.choice(COURSES["cid"], len(OWNER)))})
TAKEN["mark"] = RNG.integers(1, 4, len(TAKEN))
TABLES = {"students": STUDENTS, "courses": COURSES, "taken": TAKEN}
LINKS = {"taken": {"sid": "students.sid", "cid": "courses.cid"}}
FAST: dict[str, Any] = {"max_rows": 3, "rounds": 2, "picks": 8, "classes": 16, "row_classes": 12, "method": "linked"}


def same_department(rows: pd.DataFrame, people: pd.DataFrame) -> float:
    """Share of rows whose course is of the student's department."""
    dept = COURSES.set_index("cid")["dept"].loc[rows["cid"].astype(int)].to_numpy()
    return float((dept == people.set_index("sid")["major"].loc[rows["sid"]].to_numpy()).mean())


def test_keys_of_a_public_table_follow_its_attributes() -> None:
    release = dpgen.fit(TABLES, epsilon=60.0, links=LINKS, public=["courses"], **FAST)
    groups = [
        tuple(groups[table["columns"].index("taken.cid")])
        for table in release.measured()
        if "taken.cid" in table["columns"] and table["kind"] == "both"
        for groups in [table["groups"]]
    ]
    assert (0, 1, 2, 3) * 5 in groups, "a table by departments was measured"
    made = release.sample(600, random_state=0)
    assert [*made] == ["students", "taken"], "the public table is as it was"
    assert set(made["taken"]["cid"]) <= set(COURSES["cid"])
    assert (
        same_department(made["taken"], made["students"])
        > 0.7
        > 0.4
        > same_department(TAKEN.assign(cid=RNG.permutation(TAKEN["cid"])), STUDENTS)
    )
    assert same_department(TAKEN, STUDENTS) > 0.9
    law = release.marginal(["students.major", "taken.cid"])
    assert law.shape == (4, 20)
    assert release.log_prob(made).isfinite().all()


@pytest.mark.parametrize("form", ["name", "files", "package"])
def test_a_public_table_by_its_name_and_in_files(form: str, tmp_path: Path) -> None:
    if form == "name":
        made = dpgen.fit(TABLES, epsilon=5, person="sid", public=["courses"], **FAST | {"method": "independent"}).sample(50)
        assert set(made["taken"]["cid"]) <= set(COURSES["cid"])
        return
    paths = {name: str(tmp_path / f"{name}.csv") for name in TABLES}
    for name, table in TABLES.items():
        table.to_csv(paths[name], index=False)
    if form == "files":
        data = load_linked(
            path=paths["taken"],
            people_path=paths["students"],
            tables={"courses": paths["courses"]},
            links=LINKS,
            public=["courses"],
        )
    else:
        keys = [
            {"fields": own, "reference": dict(zip(("resource", "fields"), of.split(".")))} for own, of in LINKS["taken"].items()
        ]
        resources: list[dict[str, Any]] = [{"name": name, "path": f"{name}.csv"} for name in TABLES]
        resources[1]["dpgen:public"] = True
        resources[2]["schema"] = {"foreignKeys": keys}
        (tmp_path / "datapackage.json").write_text(json.dumps({"resources": resources}))
        data = load_linked(path=str(tmp_path / "datapackage.json"))
    assert data.names == ("students", "taken")
    (key,) = data.public(1)
    assert (key.values[:2], dict(key.groups)) == (("100", "101"), {"dept": (0, 1, 2, 3) * 5}), "titles tell nothing"
    assert next(f for f in data.tables[0].draft["fields"] if f["name"] == "cid")["constraints"]["required"]


def test_a_key_of_people_and_gaps_that_a_schema_allows() -> None:
    cities = pd.DataFrame({"city": [*"uvw"], "river": [True, False, True]})
    people = STUDENTS.assign(city=np.array([*"uvw", None], object)[np.arange(N) % 4])
    schema = {"fields": [{"name": "city", "constraints": {"required": False}}]}
    tables = {"students": people, "cities": cities, "taken": TAKEN}
    options = FAST | {"method": "independent"}
    made = dpgen.fit(tables, epsilon=9, person="sid", public=["cities"], people_schema=schema, **options).sample(400)
    assert set(made["students"]["city"].dropna()) == {*"uvw"}
    assert 0.15 < made["students"]["city"].isna().mean() < 0.35
    with refused("'city'", "required"):
        dpgen.fit(tables, epsilon=9, person="sid", public=["cities"], **options)


@pytest.mark.parametrize(
    ("tables", "options", "words"),
    [
        (TABLES | {"taken": TAKEN.assign(cid=TAKEN["cid"] + 1)}, {}, ["'cid'", "breaks a rule"]),
        (TABLES | {"courses": COURSES.assign(cid=COURSES["cid"] // 2)}, {}, ["public table 'courses'", "its own 'cid'"]),
        (TABLES, {"public": ["course"]}, ["a table of public", "'course'", "courses"]),
        (TABLES, {"public": ["taken"]}, ["links['taken']", "public table"]),
        (TABLES, {"links": LINKS | {"courses": "students.sid"}}, ["sid"]),
        (
            TABLES | {"courses": COURSES.rename(columns={"cid": "code"})},
            {"links": {"taken": "students.sid"}},
            ["public table 'courses'", "no column", "courses.code"],
        ),
        (
            TABLES | {"courses": COURSES.assign(mark=range(20))},
            {"links": {"taken": "students.sid"}},
            ["public table 'courses'", "taken.cid, taken.mark"],
        ),
    ],
    ids=["no such key", "twice", "name", "rows", "key of a public table", "no key", "two keys"],
)
def test_what_is_refused_of_public_tables(tables: dict[str, Any], options: dict[str, Any], words: list[str]) -> None:
    with refused(*words):
        dpgen.fit(tables, epsilon=5, **{"links": LINKS, "public": ["courses"]} | FAST | options)


def test_a_public_table_in_an_engine_is_refused() -> None:
    duckdb = pytest.importorskip("duckdb")
    with refused("public table 'courses'", "in memory or in a file"):
        dpgen.fit(TABLES | {"courses": duckdb.from_df(COURSES)}, epsilon=5, links=LINKS, public=["courses"], **FAST)
