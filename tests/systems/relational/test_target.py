"""A column of people that is drawn last: rates of measured tables, samples, files, what is given and refused."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpgen
from dpgen.facts import Fact
from dpgen.systems.registry import load
from dpgen.systems.relational.plan import RelationalConfig
from dpgen.systems.relational.sums import Branch, Layout, NoisySums, Shape
from dpgen.systems.relational.target import Target, target_tables
from dpgen.systems.tables.marginals import Coarsening

FEW: dict[str, Any] = {"rounds": 1, "picks": 2, "steps": 8, "classes": 2, "row_classes": 2, "method": "linked", "max_rows": 4}
RNG = np.random.default_rng(0)
PEOPLE = pd.DataFrame({"pid": np.arange(1500), "age": RNG.integers(20, 30, 1500)})
ROWS = pd.DataFrame({"pid": RNG.integers(0, 1500, 4000), "kind": RNG.choice([*"abc"], 4000)})
OFTEN = ROWS["kind"].eq("a").groupby(ROWS["pid"]).mean().reindex(PEOPLE["pid"], fill_value=0.0).to_numpy()
PEOPLE["back"] = RNG.random(1500) < 0.1 + 0.8 * OFTEN
TABLES = {"people": PEOPLE, "visits": ROWS}


def fitted(epsilon: float = 500.0, tables: Any = TABLES, **options: Any) -> Any:
    return dpgen.fit(tables, epsilon=epsilon, person="pid", seed=1, **FEW | {"target": "people.back"} | options)


@pytest.fixture(scope="module")
def release() -> Any:
    return fitted()


def gap(tables: dict[str, pd.DataFrame]) -> float:
    """How much oftener those come back most of whose rows are of kind a than those who have none of it."""
    often = tables["visits"]["kind"].eq("a").groupby(tables["visits"]["pid"]).mean()
    people = tables["people"].set_index("pid")["back"].astype(float)
    share = often.reindex(people.index)
    return float(people[share > 0.5].mean() - people[share == 0].mean())


def test_the_target_depends_on_the_rows(release: Any) -> None:
    """Classes of people are too few for it, so without a target there is hardly a link."""
    made, without = (one.sample(6000, random_state=0) for one in (release, fitted(target=None)))
    assert gap(TABLES) > 0.5
    assert abs(gap(made) - gap(TABLES)) < 0.1
    assert gap(without) < gap(TABLES) - 0.2
    assert made["people"]["back"].dtype == PEOPLE["back"].dtype
    assert abs(made["people"]["back"].mean() - PEOPLE["back"].mean()) < 0.03


def test_noise_hides_a_target_at_a_small_epsilon() -> None:
    assert abs(gap(fitted(0.2).sample(3000, random_state=0))) < 0.55 < gap(TABLES)


def test_saved_and_loaded_releases_draw_the_same(release: Any, tmp_path: Any) -> None:
    release.save(tmp_path / "saved")
    again = load(tmp_path / "saved").sample(50, random_state=3)
    for name, table in release.sample(50, random_state=3).items():
        pd.testing.assert_frame_equal(table, again[name])


def test_a_target_that_is_given_stays(release: Any) -> None:
    made = release.sample(300, random_state=0, given={"people": {"back": True}})
    assert made["people"]["back"].all()
    assert len(release.sample(1, random_state=0)["people"]) == 1


def test_a_target_of_one_value_is_released() -> None:
    """It depends on nothing; when that is known the budget is spent, and there must be a release."""
    only = {"name": "back", "type": "string", "constraints": {"required": True, "enum": ["y"]}}
    schema = {"fieldsMatch": "partial", "fields": [only]}
    found = fitted(5.0, TABLES | {"people": PEOPLE.assign(back="y")}, people_schema=schema)
    assert not found.statement.says(Fact.TARGET_TABLES)
    assert (found.sample(20, random_state=0)["people"]["back"] == "y").all()
    assert found.refitted(np.random.default_rng(0)).target is None


def test_the_statement_says_it(release: Any) -> None:
    assert release.statement.says(Fact.TARGET_TABLES)
    assert len([own for own in release.measured() if "people.back" in own["columns"] and len(own["columns"]) == 2]) >= 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": "people.bak"}, "people.back"),
        ({"target": "visits.kind"}, "people.back"),
        ({"target": "people.number of visits"}, "people.back"),
        ({"tables": {"visits": ROWS}, "target": "visits.kind"}, "there is none"),
        (
            {
                "target": "people.age",
                "people_schema": {
                    "fields": [{"name": n, "type": "integer"} for n in ("age", "old")],
                    "dpgen:constraints": [{"less_equal": ["age", "old"]}],
                },
                "tables": TABLES | {"people": PEOPLE.assign(old=PEOPLE["age"] + 1).drop(columns="back")},
            },
            "which a constraint names",
        ),
    ],
    ids=["typo", "rows", "number of rows", "no people", "constraint"],
)
def test_what_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fitted(**options)


def test_rates_of_classes_are_those_that_were_measured() -> None:
    """Of 20,000 people with a known logistic law, without noise."""
    shape = Shape((2, 3, 3), (Branch((4,), ("all",), 2, count=1),))
    layout = Layout(shape, tuple((Coarsening.full(shape.people), Coarsening.full((4,))) for _ in range(2)))
    rng, n = np.random.default_rng(0), 20_000
    person, place = np.eye(3)[rng.integers(0, 3, n)], np.eye(3)[rng.integers(0, 3, n)]
    rows = 0.5 * (np.eye(4)[rng.integers(0, 4, n)] + np.eye(4)[rng.integers(0, 4, n)])
    parts = {(0, 1): person, (0, 2): place, (1, 0): rows}
    law = 1 / (1 + np.exp(-(person @ [-1.0, 0.0, 1.0] + rows @ [2.0, 0.0, -1.0, 0.5])))
    sums = [np.stack([(1 - law) @ x, law @ x]) for x in parts.values()]
    tables = target_tables(layout, 1, 0)
    assert [table.block for table in tables] == [("people", "person", "person")] * 2 + [("both", "person", "all")]
    target = Target.fitted(NoisySums(layout, [(t, v, 1e-3) for t, v in zip(tables, sums)], ()), 0, 1, parts)
    found = target.law(parts)
    assert np.abs(found[:, 1] - law).max() < 0.05
    for x, wanted in zip(parts.values(), sums):
        assert np.abs(found.T @ x - wanted).max() < 0.01 * n / 3


def test_a_table_and_a_column_are_one_target() -> None:
    config = RelationalConfig(target={"table": "people", "column": "back"})
    assert config == RelationalConfig(target="people.back")
    with pytest.raises(ValueError, match="keys table and column"):
        RelationalConfig(target={"people": "back"})
