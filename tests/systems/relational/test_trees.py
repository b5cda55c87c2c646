"""Fits to three tables: samples whose keys match on every level, laws and probabilities across them, constraints, files."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from fixed_source import FixedKeySource
from refusals import refused
from three_tables import PRESCRIPTIONS, linked_three, three_tables

import dpgen
from dpgen.data import LinkedTables, load_linked
from dpgen.data.toy import PATIENTS, VISITS
from dpgen.evaluation.linked import coder, errors, evaluate, without_link
from dpgen.privacy.curator import Curator
from dpgen.runtime import Runtime
from dpgen.systems.registry import load
from dpgen.systems.relational.fit import fit
from dpgen.systems.relational.model import RelationalModel
from dpgen.systems.relational.plan import RelationalConfig, RelationalPlan

MOST = {"visits": 3, "prescriptions": 3}


def patients(n: int = 3000) -> LinkedTables:
    """Simulated patients with schemas of all tables."""
    return linked_three(n, MOST)


@pytest.fixture(scope="module")
def release() -> RelationalModel:
    """Of simulated patients, with next to no noise."""
    plan = RelationalPlan(epsilon=1000.0)
    config = RelationalConfig(classes=16, row_classes=32, rounds=3, picks=80, steps=100)
    curator = Curator(plan.open_ledger(), source=FixedKeySource())
    return fit(patients(), plan=plan, config=config, curator=curator, runtime=Runtime(progress_bar=False))


@pytest.fixture(scope="module")
def drawn(release: RelationalModel) -> dict[str, pd.DataFrame]:
    found: dict[str, pd.DataFrame] = release.sample(20_000, random_state=2)
    return found


def test_samples_are_linked_on_every_level(release: RelationalModel) -> None:
    tables, real = release.sample(500, random_state=0), three_tables(50)
    assert list(tables) == ["patients", "visits", "prescriptions"]
    for name, table in tables.items():
        assert table.dtypes.astype(str).tolist() == real[name].dtypes.astype(str).tolist()
        assert table.columns.tolist() == real[name].columns.tolist()
    patients, visits, below = tables.values()
    assert patients["patient"].tolist() == list(range(1, 501))
    assert set(visits["patient"]) <= set(patients["patient"])
    assert visits["visit"].is_unique
    assert visits["patient"].is_monotonic_increasing
    assert visits.groupby("patient").size().max() == 3
    assert set(below["visit"]) <= set(visits["visit"])
    assert below.groupby("visit").size().max() == 3
    assert visits.groupby("patient")["date"].apply(lambda dates: dates.is_monotonic_increasing).all()


def test_samples_are_near_the_data_on_every_level(release: RelationalModel) -> None:
    """Rows are linked to people, to visits, and to each other far better than dealt at random."""
    data = patients()
    shape, coded = coder(data)
    private = coded(data)
    found = errors(private, coded(data.alike(release.sample(10_000, random_state=0))), shape)
    dealt = errors(private, without_link(private, shape, 0), shape)
    assert found["people"] < 0.06
    for kind in ("both", "pair", "next", "both 1 2"):
        assert found[kind] < 0.7 * dealt[kind], kind
    shuffled = replace(private, rows=[np.random.default_rng(0).permuted(rows, axis=0) for rows in private.rows])
    apart = errors(private, shuffled, shape)["row"]  # dealt rows stay whole
    assert found["row"] < 0.6 * apart, (found["row"], apart)


def test_scores_and_pictures_know_all_tables(release: RelationalModel) -> None:
    found = evaluate(release, patients(200), seed=0)
    assert sum("prescriptions" in score.name for score in found.scores) == 6
    assert {"rows_per_person.png", "over_time.png", "prescriptions_rows_per_person.png"} <= set(found.pictures)
    assert "synthetic/prescriptions.csv" in found.released


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        (["patients.diabetic"], "same"),
        (["patients.smoker", "patients.number of visits"], "same"),
        (["visits.ward", "patients.sex"], "same"),
        (["visits.reason", "visits.ward"], "same"),
        (["visits.number of prescriptions", "visits.ward"], "same"),
        (["visits.ward", "visits.severity"], "next"),
        (["visits.ward", "visits.ward"], "pair"),
        (["prescriptions.drug"], "same"),
        (["patients.diabetic", "prescriptions.drug"], "same"),
        (["prescriptions.drug", "visits.ward"], "same"),
        (["visits.number of prescriptions", "prescriptions.drug"], "same"),
        (["prescriptions.drug", "prescriptions.dose"], "next"),
    ],
)
def test_marginals_are_those_of_samples(
    release: RelationalModel, drawn: dict[str, pd.DataFrame], columns: list[str], kind: Any
) -> None:
    """Every person counts for one, each visit for an equal part of it, each row below for an equal part of that."""
    law = release.marginal(columns, kind)
    assert law.sum() == pytest.approx(1.0)
    if len(columns) == 2 and kind == "same":
        assert np.allclose(release.marginal(columns[::-1]), law.T)
    patients, visits, below = (table.copy() for table in drawn.values())
    patients["number of visits"] = visits.groupby("patient").size().reindex(patients["patient"]).fillna(0).to_numpy()
    visits["number of prescriptions"] = below.groupby("visit").size().reindex(visits["visit"]).fillna(0).to_numpy()
    table, whole = patients.add_prefix("patients.").assign(weight=1.0), 1.0
    depth = max(list(release.shown["tables"]).index(name.partition(".")[0]) for name in columns)
    for rows, prefix, key in ((visits, "visits.", "patients.patient"), (below, "prescriptions.", "visits.visit"))[:depth]:
        table = table.merge(rows.add_prefix(prefix), left_on=key, right_on=prefix + key.partition(".")[2])
        whole, owner = table["weight"], key
        table["weight"] = whole / table.groupby(key)[key].transform("size")
    names = columns
    if kind != "same":
        table = table.assign(place=table.groupby(owner).cumcount(), weight=whole)
        table = table.merge(table, on=owner, suffixes=("", " then"))
        step = table["place then"] - table["place"]
        table = table[step == 1 if kind == "next" else step > 0]
        table["weight"] /= table.groupby(owner)[owner].transform("size")
        names = [columns[0], f"{columns[1]} then"]
    found = table.groupby(names)["weight"].sum() / table["weight"].sum()
    assert np.sort(found.to_numpy())[::-1][:5] == pytest.approx(np.sort(law.ravel())[::-1][:5], abs=0.02)


@pytest.mark.parametrize(
    ("columns", "kind", "words"),
    [
        (["visits.wards"], "same", ["visits.wards", "visits.ward"]),
        (["visits.ward"], "both", ["kind is 'both'"]),
        ([], "same", ["one or two"]),
        (["patients.sex", "visits.ward"], "pair", ["no such table"]),
        (["visits.ward", "visits.ward"], "same", ["no such table"]),
        (["visits.ward", "prescriptions.drug"], "pair", ["no such table"]),
    ],
)
def test_marginals_that_are_not_there(release: RelationalModel, columns: list[str], kind: Any, words: list[str]) -> None:
    with refused(*words):
        release.marginal(columns, kind)


def test_what_is_given_is_followed_below(release: RelationalModel) -> None:
    given: dict[str, Any] = {"patients": {"diabetic": True, "age": {"minimum": 60}}, "visits": [{"ward": "dialysis"}]}
    made = release.sample(2000, random_state=0, given=given)
    assert made["patients"]["diabetic"].all()
    assert made["patients"]["age"].min() >= 60
    assert made["visits"].groupby("patient")["ward"].first().eq("dialysis").all()
    shares = []
    for tables in (made, release.sample(2000, random_state=0)):
        first = tables["visits"].groupby("patient").head(1)["visit"]
        shares.append((tables["prescriptions"]["drug"][tables["prescriptions"]["visit"].isin(first)] == "insulin").mean())
    assert shares[0] > 2 * shares[1]
    given = {"patients": {"number of visits": [2, 3]}}
    assert set(release.sample(200, random_state=0, given=given)["visits"].groupby("patient").size()) == {2, 3}


def test_a_beginning_of_a_history_is_kept_and_followed(release: RelationalModel) -> None:
    """What follows a given first row has the law that it has among people whose first row is such a one."""
    many = {"patients": {"number of visits": {"minimum": 2}}}
    visits = release.sample(40_000, random_state=0, given=many)["visits"]
    place = visits.groupby("patient").cumcount()
    begins = visits[place == 0].set_index("patient")["ward"]
    second = visits[place == 1].set_index("patient")["ward"]
    for ward in ("dialysis", "general"):
        own = second[begins[begins == ward].index].value_counts(normalize=True)
        given = release.sample(4000, random_state=1, given=many | {"visits": [{"ward": ward}]})["visits"]
        assert set(given.groupby("patient")["ward"].first()) == {ward}
        found = given[given.groupby("patient").cumcount() == 1]["ward"].value_counts(normalize=True)
        assert found.sub(own, fill_value=0).abs().sum() / 2 < 0.06
    rows = visits[visits["patient"] == 1].drop(columns=["patient", "visit"])[:2]
    again = release.sample(50, random_state=0, given={"visits": rows})["visits"]
    for number in (1, 50):
        own_rows = again[again["patient"] == number].drop(columns=["patient", "visit"])[:2]
        pd.testing.assert_frame_equal(own_rows.reset_index(drop=True), rows.reset_index(drop=True))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"drugs": []}, ["given is of 'drugs'"]),
        ({"prescriptions": [{"drug": "insulin"}]}, ["given is of 'prescriptions'", "patients or visits"]),
        ({"visits": [{"wards": "trauma"}]}, ["'wards'", "ward"]),
        ({"visits": [{"ward": "heaven"}]}, ["ward"]),
        ({"visits": [{"ward": "trauma"}] * 5}, ["5 rows", "at most 3"]),
        ({"visits": {"ward": "trauma"}}, ["given visits", "list"]),
        ({"patients": [1]}, ["given patients", "mapping"]),
        ({"visits": [{"ward": "trauma"}] * 2, "patients": {"number of visits": 1}}, ["number of visits", "at least 2"]),
    ],
)
def test_what_cannot_be_given(release: RelationalModel, given: dict[str, Any], words: list[str]) -> None:
    with refused(*words):
        release.sample(3, given=given)


def test_people_of_the_model_are_likelier_than_people_with_rows_of_others(release: RelationalModel) -> None:
    tables = release.sample(400, random_state=5)
    found = release.log_prob(tables)
    assert found.shape == (400,)
    dealt = tables["visits"].assign(patient=np.random.default_rng(0).permutation(tables["visits"]["patient"].to_numpy()))
    assert found.mean() > release.log_prob(tables | {"visits": dealt}).mean() + 0.3
    mixed = tables["visits"].sample(frac=1, random_state=0)
    assert torch.allclose(release.log_prob(tables | {"visits": mixed}), found)
    with refused("each person once"):
        release.log_prob(tables | {"patients": tables["patients"][:9]})
    with refused("at most 3"):
        release.log_prob(tables | {"visits": tables["visits"].assign(patient=1)})


def test_counts_and_measurements_are_told_by_table(release: RelationalModel) -> None:
    counts, data = release.counts(), patients()
    assert counts.loc["patients", "estimate"] == pytest.approx(data.n, abs=5 * counts.loc["patients", "std"] + 1)
    assert counts.loc["visits", "estimate"] == pytest.approx(len(data.frames[1]), abs=5 * counts.loc["visits", "std"] + 1)
    assert counts.loc["prescriptions", "estimate"] == pytest.approx(len(data.frames[2]), rel=0.04)
    assert ["visits.ward", "prescriptions.drug"] in [entry["columns"] for entry in release.measured()]
    for entry in release.measured():
        sizes = tuple(int(groups.max()) + 1 for groups in entry["groups"])
        assert entry["counts"].size == entry["noise_std"].size == np.prod(sizes) or entry["kind"] == "place"


def test_the_release_comes_back_from_its_files(
    release: RelationalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release.save(tmp_path / "model")
    again = load(tmp_path / "model")
    pd.testing.assert_frame_equal(again.counts(), release.counts())
    for entry, other in zip(release.measured(), again.measured()):
        assert entry["columns"] == other["columns"]
        assert np.array_equal(entry["counts"], other["counts"])
    made = release.sample(50, random_state=3)
    for name, table in made.items():
        pd.testing.assert_frame_equal(again.sample(50, random_state=3)[name], table)
    assert torch.equal(again.log_prob(made), release.log_prob(made))
    monkeypatch.setattr("dpgen.systems.relational.model._REFIT_STEPS", 3)
    same = [model.refitted(np.random.default_rng(0)).tree.people.probabilities for model in (release, again)]
    assert np.allclose(*same, atol=1e-5)
    release.samples(40, random_state=0).save(tmp_path / "synthetic")
    read = load_linked(path=str(tmp_path / "synthetic" / "datapackage.json"), test_fraction=0.0)
    assert (read.n, [table.name for table in read.tables]) == (40, ["visits", "prescriptions"])
    assert read.tables[0].order is not None
    with refused("path is 'x.csv'"):
        release.samples(4).save(tmp_path / "x.csv")


FAST: dict[str, Any] = {"method": "linked", "classes": 3, "row_classes": 3, "rounds": 1, "picks": 6, "steps": 8}


def tiny(name: str, values: Sequence[str]) -> dict[str, Any]:
    return {"fields": [{"name": name, "type": "string", "constraints": {"required": True, "enum": [*values]}}]}


def test_probabilities_of_all_people_add_up_to_one() -> None:
    """Of every person with at most two rows, each with at most two rows below."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"who": rng.integers(0, 40, 60), "row": range(60), "x": rng.choice(["a", "b"], 60)})
    below = pd.DataFrame({"row": rng.integers(0, 60, 70), "y": rng.choice(["c", "d"], 70)})
    tables = {"people": pd.DataFrame({"who": range(40)}), "rows": rows, "below": below}
    known = {"schema": tiny("x", "ab"), "schemas": {"below": tiny("y", "cd")}}
    release = dpgen.fit(tables, epsilon=5.0, person="who", max_rows=2, **known, **FAST)
    leaves = [of for n in range(3) for of in product("cd", repeat=n)]
    options = [(x, of) for x in "ab" for of in leaves]
    people = [of for n in range(3) for of in product(options, repeat=n)]
    every = [(who, x, of) for who, own in enumerate(people) for x, of in own]
    made = {
        "people": pd.DataFrame({"who": range(len(people))}),
        "rows": pd.DataFrame([(who, row, x) for row, (who, x, _) in enumerate(every)], columns=["who", "row", "x"]),
        "below": pd.DataFrame([(row, y) for row, (_, _, of) in enumerate(every) for y in of], columns=["row", "y"]),
    }
    assert float(release.log_prob(made).exp().sum()) == pytest.approx(1.0, abs=1e-5)


def test_constraints_hold_across_levels() -> None:
    """A sum into the row above and one into the person, what is forbidden below, and no row before its visit."""
    tables = three_tables(150)
    below = tables["prescriptions"].merge(tables["visits"][["visit", "patient"]], on="visit")
    tables = {
        "patients": tables["patients"].assign(days=0),
        "visits": tables["visits"].assign(doses=0),
        "prescriptions": below.assign(at=below["visit"].map(tables["visits"].set_index("visit")["date"])),
    }
    number = {"type": "integer"}
    people = {"fields": [*PATIENTS["fields"], {"name": "days", **number}]}
    people["dpgen:constraints"] = [{"sum": ["prescriptions.days"], "total": "days"}]
    visits = {"fields": [*VISITS["fields"], {"name": "doses", **number}]}
    visits["dpgen:constraints"] = [{"sum": ["prescriptions.dose"], "total": "doses"}]
    rules = [
        {"forbidden": {"visits.ward": "trauma", "drug": "sedative"}},
        {"forbidden": {"patients.sex": "male", "drug": "vitamin"}},
        {"less_equal": ["visits.date", "at"]},
    ]
    schemas = {
        "prescriptions": {"fields": [*PRESCRIPTIONS["fields"], {"name": "at", "type": "date"}], "dpgen:constraints": rules}
    }
    options: dict[str, Any] = {"person": "patient", "order": {"visits": "date", "prescriptions": "at"}, "max_rows": 2, **FAST}
    options["links"] = {"prescriptions": "visits.visit"}  # they name their person, too
    release = dpgen.fit(tables, epsilon=5.0, schema=visits, people_schema=people, schemas=schemas, **options)
    made = release.sample(100, random_state=0)
    joined = made["prescriptions"].merge(made["visits"], on=["visit", "patient"]).merge(made["patients"], on="patient")
    assert len(joined) == len(made["prescriptions"])
    assert not (joined["ward"].eq("trauma") & joined["drug"].eq("sedative")).any()
    assert not (joined["sex"].eq("male") & joined["drug"].eq("vitamin")).any()
    assert (joined["at"] >= joined["date"]).all()
    doses = made["prescriptions"].groupby("visit")["dose"].sum().reindex(made["visits"]["visit"]).fillna(0)
    assert np.array_equal(made["visits"]["doses"], doses)
    days = joined.groupby("patient")["days_x"].sum().reindex(made["patients"]["patient"]).fillna(0)
    assert np.array_equal(made["patients"]["days"], days)
    assert made["patients"]["patient"].is_unique
    assert made["visits"]["visit"].is_unique


def test_times_that_add_up_beyond_nanoseconds_are_the_last_that_fit() -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"who": rng.integers(0, 40, 80), "row": range(80), "t": rng.choice(["2020-01-01", "2021-01-01"], 80)})
    below = pd.DataFrame({"row": rng.integers(0, 80, 90), "u": rng.choice(["2022-01-01", "9999-12-31"], 90)})
    since = {"name": "days since rows", "type": "integer", "constraints": {"minimum": 0, "maximum": 3_000_000}}
    known = {"below": {"fields": [since | {"dpgen:bins": {"equal": 4}}], "fieldsMatch": "partial"}}
    options: dict[str, Any] = {"order": {"rows": "t", "below": "u"}, "max_rows": 2, "schemas": known, **FAST}
    made = dpgen.fit({"rows": rows, "below": below}, epsilon=20.0, person="who", **options).sample(200, random_state=0)
    assert "2262-04-07" in set(made["below"]["u"].astype(str))


def test_people_of_the_model_are_measured_as_people_were(release: RelationalModel) -> None:
    """With next to no noise sums of drawn people are near those of the fit, for intervals."""
    again = release.measured_again(np.random.default_rng(0))
    first = [entry["counts"] for entry in release.measured()]
    found = [0.5 * np.abs(values - own).sum() / release.size for (_, values, _), own in zip(again, first)]
    assert len(found) == len(first)
    assert np.median(found) < 0.07
