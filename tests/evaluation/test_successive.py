"""Rules between successive rows of one person: those of the real rows are found, and breaking them is seen."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from documented_output import OUTPUT
from refusals import refused

import dpgen
from dpgen.cli.main import main
from dpgen.containers import Form, in_memory
from dpgen.data import LinkedTables, load_linked
from dpgen.evaluation.linked import evaluate
from dpgen.evaluation.successive import KEEP, LISTED, Found, successive_rules, successive_scores
from dpgen.samples import LinkedSamples

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


def linked(rows: pd.DataFrame, **options: Any) -> LinkedTables:
    rows = in_memory(rows.sample(frac=1, random_state=0))
    rows.table = "stays"
    return load_linked(path=rows, person="who", test_fraction=0.0, **{"order": "day", "max_rows": 20, **options})


def rules(real: pd.DataFrame, synthetic: pd.DataFrame) -> dict[str, Found]:
    return {one.rule: one for one in successive_rules(linked(real), linked(synthetic))}


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
    names = [score.name for score in successive_scores(linked(rows), linked(other), 0)]
    assert KEEP + EXPECTED[2] not in names
    assert KEEP + EXPECTED[1] in names
    made = dpgen.compare({"stays": rows}, {"stays": other}, person="who", order={"stays": "day"}, max_rows=20)
    assert EXPECTED[2] in str(made).split("\n\n")[-1]


def test_held_out_people_stand_beside_and_all_scores_are_private() -> None:
    data = linked(stays())
    held = np.arange(data.n) % 2 > 0
    scores = successive_scores(replace(data.some(~held), test=data.some(held)), linked(stays(2)), 0)
    assert scores
    assert all(score.private and score.better == "higher" and score.real == 1.0 for score in scores)
    assert all(score.chance is not None and score.chance < score.real for score in scores if score.real is not None)


def test_few_people_without_an_order_or_many_rules() -> None:
    rows = stays()
    few = rows[rows["who"] < 20]
    assert rules(few, few) == {}
    assert successive_rules(linked(rows, order=None), linked(rows, order=None)) == []
    wide = rows.assign(**{f"copy{i}": rows["sex"] for i in range(LISTED + 5)})
    assert len(rules(wide, wide)) == LISTED


def test_a_run_and_a_comparison_show_them(tmp_path: Path) -> None:
    rows = stays(n=200)
    fast: dict[str, Any] = {"rounds": 1, "classes": 4, "row_classes": 4, "steps": 5, "picks": 2}
    release = dpgen.fit({"stays": rows}, epsilon=3.0, person="who", order={"stays": "day"}, max_rows=8, **fast)
    evaluation = evaluate(release, linked(rows, max_rows=8), seed=0)
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
    both = {"people": people, "stays": rows}
    forms = {name: Form(container="pandas", names=tuple(t), types=tuple(map(str, t.dtypes))) for name, t in both.items()}
    links: dict[str, Any] = {"orders": {"stays": "day"}, "links": {"stays": ("who", "people")}}
    for name, own in (("real", rows), ("other", rows.assign(state=rows["state"].replace("death", "clinic")))):
        LinkedSamples(tables=both | {"stays": own}, forms=forms, person="who", **links).save(tmp_path / name)
    assert main(["compare", str(tmp_path / "real" / "datapackage.json"), str(tmp_path / "other"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    OUTPUT.validate(told)
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
