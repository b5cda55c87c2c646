"""Gaps of people and of their rows, filled given the rest of the person: laws, constraints, forms, refusals."""

from itertools import pairwise, product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_relational import HISTORIES, random_tree

import dpgen
from dpgen.data.toy import simulated_patients
from dpgen.systems.registry import load
from dpgen.systems.relational.linked_mixture import states

TABLES = simulated_patients(900)
PEOPLE, VISITS = TABLES["patients"], TABLES["visits"]
FAST: dict[str, Any] = {"rounds": 2, "classes": 8, "row_classes": 8, "steps": 40, "seed": 1}
MOST = 3


def patients(**options: Any) -> Any:
    given = {"links": {"visits": "patients.patient"}, "order": "date", "max_rows": MOST, "epsilon": 50.0}
    return dpgen.fit(TABLES, **given | FAST | options)


@pytest.fixture(scope="module")
def release() -> Any:
    return patients()


def without(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
    """The frame without the values of some columns."""
    return frame.assign(**dict.fromkeys(names))


# -- laws --------------------------------------------------------------------------------------------------------------


def test_classes_of_rows_have_their_law_given_all_rows() -> None:
    """Of 40,000 people with three rows of the same chances, beside every path of classes."""
    (chain,) = random_tree(HISTORIES).chains
    rng, n = np.random.default_rng(3), 40_000
    z, seen = 1, np.log(rng.dirichlet(np.ones(4), 3))
    law = np.zeros((4, 4, 4))
    for path in product(range(4), repeat=3):
        chance = chain.first[z, path[0]] * np.exp(seen[0, path[0]])
        for t, (before, after) in enumerate(pairwise(path), 1):
            follows = (1 - chain.kept[z]) * chain.usual[z, after] + chain.kept[z] * chain.steps[before, after]
            chance *= follows * np.exp(seen[t, after])
        law[path] = chance
    found = states(chain, np.full(n, z), np.tile(seen, (n, 1)), 3 * np.arange(n + 1), rng).reshape(n, 3)
    counts = np.zeros(law.shape)
    np.add.at(counts, tuple(found.T), 1)
    law /= law.sum()
    assert (np.abs(counts / n - law) < 5 * np.sqrt(law / n) + 1e-4).all()


def alike(person: pd.DataFrame, visits: pd.DataFrame, n: int) -> dict[str, pd.DataFrame]:
    """n people who are alike."""
    people, rows = pd.concat([person] * n, ignore_index=True), pd.concat([visits] * n, ignore_index=True)
    keys = np.arange(n)
    return {
        "patients": people.assign(patient=keys),
        "visits": rows.assign(patient=np.repeat(keys, len(visits))),
    }


def test_gaps_have_the_law_of_the_model_given_the_rest_of_the_person(release: Any) -> None:
    """A region and the ward of the second visit together, beside the log probabilities of all whole people."""
    sizes = VISITS.groupby("patient").size()
    key, n = sizes[sizes == MOST].index[0], 20_000
    person = PEOPLE[PEOPLE["patient"] == key].reset_index(drop=True)
    visits = VISITS[VISITS["patient"] == key].sort_values("date").reset_index(drop=True)
    regions, wards = sorted(PEOPLE["region"].unique()), sorted(VISITS["ward"].unique())
    second = visits.index == 1
    whole = [
        {"patients": person.assign(region=region), "visits": visits.assign(ward=visits["ward"].mask(second, ward))}
        for region in regions
        for ward in wards
    ]
    logs = np.array([float(release.log_prob(tables)[0]) for tables in whole])
    law = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    gaps = alike(without(person, "region"), visits.assign(ward=visits["ward"].mask(second)), n)
    filled = release.impute(gaps, random_state=0)
    cells = filled["patients"]["region"] + "/" + filled["visits"]["ward"][1::MOST].to_numpy()
    counts = cells.value_counts().reindex([f"{r}/{w}" for r in regions for w in wards], fill_value=0).to_numpy()
    assert counts.sum() == n
    assert (np.abs(counts / n - law) < 5 * np.sqrt(law / n) + 1e-4).all()


def test_rows_tell_of_their_person_and_of_each_other() -> None:
    """A person's kind is that of all rows: whoever has one known row has the rest of it; whoever has none says nothing."""
    rng, n = np.random.default_rng(0), 2000
    kinds, owner = rng.choice([*"abc"], n), np.repeat(np.arange(n), 3)
    rows = pd.DataFrame({"who": owner, "kind": kinds[owner]})
    people = pd.DataFrame({"who": np.arange(n), "kind_of": kinds})
    options = FAST | {"classes": 4, "row_classes": 4, "steps": 300}
    model = dpgen.fit({"people": people, "rows": rows}, epsilon=100.0, person="who", max_rows=3, **options)
    gaps = {"people": without(people, "kind_of"), "rows": rows.assign(kind=rows["kind"].mask(np.arange(3 * n) % 3 > 0))}
    filled = model.impute(gaps, random_state=0)
    assert (filled["people"]["kind_of"] == kinds).mean() > 0.9
    assert (filled["rows"]["kind"] == rows["kind"]).mean() > 0.9
    alone = model.impute({"people": without(people, "kind_of"), "rows": rows.head(0)}, random_state=0)
    assert (alone["people"]["kind_of"] == kinds).mean() < 0.5


# -- frames ------------------------------------------------------------------------------------------------------------


def test_only_gaps_are_filled_where_they_were(release: Any) -> None:
    rng = np.random.default_rng(0)
    shuffled = VISITS.sample(frac=1, random_state=0).assign(date=lambda own: own["date"].astype(str), note="as it is")
    gaps = {"visits": shuffled.mask(rng.random(shuffled.shape) < 0.3, None), "patients": PEOPLE.copy()}
    for name in ("patient", "date", "note"):
        gaps["visits"][name] = shuffled[name]
    gaps["patients"]["sex"] = PEOPLE["sex"].mask(rng.random(len(PEOPLE)) < 0.3)
    before = {name: frame.copy() for name, frame in gaps.items()}
    filled = release.impute(gaps, random_state=0)
    assert list(filled) == ["visits", "patients"]
    for name, frame in filled.items():
        pd.testing.assert_frame_equal(gaps[name], before[name])
        assert not frame.isna().any().any()
        assert frame.index.equals(gaps[name].index)
        known = gaps[name].notna()
        assert ((frame == gaps[name]) | ~known).all().all()
    assert set(filled["patients"]["sex"]) == {"female", "male"}


def test_a_saved_release_fills_the_same(release: Any, tmp_path: Any) -> None:
    release.save(tmp_path / "saved")
    gaps = {"patients": without(PEOPLE, "sex"), "visits": without(VISITS, "ward", "cost")}
    first, second = (model.impute(gaps, random_state=3) for model in (release, load(tmp_path / "saved")))
    for name in first:
        pd.testing.assert_frame_equal(first[name], second[name])


ALONE = PEOPLE["patient"] == VISITS["patient"].iloc[0]
MANY = pd.concat([VISITS.head(1)] * 40).assign(date=pd.date_range("2020-01-01", periods=40))


@pytest.mark.parametrize(
    "tables",
    [
        {"patients": PEOPLE.head(0), "visits": VISITS.head(0)},
        {"patients": without(PEOPLE, "age", "sex"), "visits": VISITS.head(0)},
        {"patients": without(PEOPLE[ALONE], "sex"), "visits": without(VISITS.head(1), "ward")},
        {"patients": PEOPLE.assign(age=np.nan, sex=np.nan), "visits": VISITS.assign(cost=np.nan, ward=pd.NA)},
        {"patients": PEOPLE[["patient"]].assign(**dict.fromkeys(PEOPLE.columns[1:])), "visits": VISITS},
        {"patients": PEOPLE, "visits": VISITS[["patient", "date"]].assign(**dict.fromkeys(VISITS.columns[2:]))},
        {"patients": without(PEOPLE[ALONE], "sex"), "visits": without(MANY, "ward")},
        {"patients": without(PEOPLE, "sex").set_axis([7] * len(PEOPLE)), "visits": VISITS.set_axis(["a"] * len(VISITS))},
    ],
    ids=["nobody", "no rows", "one person", "NaN alone", "people of gaps", "rows of gaps", "more than m", "one index"],
)
def test_odd_tables_are_filled(release: Any, tables: dict[str, pd.DataFrame]) -> None:
    filled = release.impute(tables, random_state=0)
    for name, frame in filled.items():
        assert frame.shape == tables[name].shape
        assert frame.index.equals(tables[name].index)
        assert not frame.isna().any().any()


@pytest.mark.parametrize(
    ("tables", "error", "says"),
    [
        (VISITS, ValueError, "tables are visits; they must be patients, visits"),
        ({"patients": PEOPLE, "rows": VISITS}, ValueError, "tables are patients, rows; they must be patients, visits"),
        ([PEOPLE, VISITS], TypeError, "tables is a list; it must be a DataFrame of pandas"),
        ({"patients": PEOPLE.to_dict("list"), "visits": VISITS}, TypeError, "patients is a dict; it must be a DataFrame"),
        ({"patients": PEOPLE, "visits": VISITS.assign(patient=10**6)}, ValueError, "everybody who has rows"),
        ({"patients": pd.concat([PEOPLE, PEOPLE]), "visits": VISITS}, ValueError, "each person once in patients"),
        ({"patients": without(PEOPLE, "patient"), "visits": VISITS}, ValueError, "patients has a row without 'patient'"),
        ({"patients": PEOPLE, "visits": without(VISITS, "patient")}, ValueError, "visits has a row without 'patient'"),
        ({"patients": PEOPLE, "visits": without(VISITS, "date")}, ValueError, "'date' must be known in every row"),
        ({"patients": PEOPLE, "visits": VISITS.drop(columns="date")}, ValueError, "visits has no column 'date'"),
        ({"patients": PEOPLE, "visits": VISITS.drop(columns="ward")}, ValueError, "visits: table lacks .* 'ward'"),
        ({"patients": PEOPLE.assign(age="old"), "visits": VISITS}, ValueError, "patients: column 'age' breaks a rule"),
        ({"patients": pd.concat([PEOPLE, PEOPLE[["age"]]], axis=1), "visits": VISITS}, ValueError, "several columns .* 'age'"),
    ],
)
def test_wrong_tables_are_refused_in_one_sentence(release: Any, tables: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        release.impute(tables)


def test_histories_alone_and_keys_of_two_names() -> None:
    """Rows without a table of people; and a link whose columns have two names, which `log_prob` takes, too."""
    alone = dpgen.fit(VISITS, epsilon=50.0, person="patient", order="date", max_rows=MOST, **FAST)
    filled = alone.impute(without(VISITS, "ward"), random_state=0)
    assert set(filled["ward"]) <= set(VISITS["ward"])
    assert filled.drop(columns="ward").equals(VISITS.drop(columns="ward"))
    visits = VISITS.rename(columns={"patient": "pid"})
    options = {"links": {"visits": {"pid": "patients.patient"}}, "order": "date", "max_rows": MOST, "epsilon": 50.0}
    renamed = dpgen.fit({"patients": PEOPLE, "visits": visits}, **options | FAST)
    filled = renamed.impute({"patients": PEOPLE, "visits": without(visits, "ward")}, random_state=0)
    assert list(filled["visits"]) == list(visits)
    assert not filled["visits"].isna().any().any()
    assert np.isfinite(renamed.log_prob(renamed.sample(5, random_state=0)).numpy()).all()


# -- rules between tables ----------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
N = 1500
OWNERS = pd.DataFrame({"pid": [f"C{i:04d}" for i in range(N)], "born": pd.Timestamp("1950-01-01")})
OWNERS["born"] += pd.to_timedelta(RNG.integers(0, 20_000, N), "D")
OWNERS["joined"] = pd.Timestamp("2019-01-01") + pd.to_timedelta(RNG.integers(0, 365, N), "D")
OWNERS["city"] = RNG.choice([*"ABC"], N)
OWNER = np.repeat(np.arange(N), RNG.integers(0, 4, N))
STAYS = OWNERS[["pid", "city"]].iloc[OWNER].reset_index(drop=True).assign(stay=np.arange(len(OWNER)))
STAYS["admit"] = OWNERS["joined"].to_numpy()[OWNER] + pd.to_timedelta(RNG.integers(0, 500, len(OWNER)), "D")
STAYS["discharge"] = STAYS["admit"] + pd.to_timedelta(RNG.poisson(4, len(OWNER)), "D")
STAYS["cost"] = RNG.integers(1, 20, len(OWNER)).astype(float)
OWNERS["spent"] = STAYS.groupby("pid")["cost"].sum().reindex(OWNERS["pid"]).fillna(0.0).to_numpy()
DRUGS = pd.DataFrame({"stay": np.repeat(STAYS["stay"], RNG.integers(0, 3, len(STAYS))).to_numpy()})
DRUGS["drug"] = np.where(STAYS["cost"].to_numpy()[DRUGS["stay"]] > 10, "a", "b")
LINKED = {"people": OWNERS, "stays": STAYS, "drugs": DRUGS}


def with_gaps(frame: pd.DataFrame, *kept: str) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return frame.assign(**{name: frame[name].mask(rng.random(len(frame)) < 0.4) for name in frame if name not in kept})


def test_rules_between_tables_hold_where_gaps_were() -> None:
    schema = {
        "fieldsMatch": "partial",
        "fields": [{"name": "discharge", "type": "date"}],
        "dpgen:constraints": [{"less_equal": ["admit", "discharge"]}, {"less_equal": ["people.born", "admit"]}],
    }
    born = {"fieldsMatch": "partial", "fields": [{"name": "born", "type": "date"}]}
    options = {"person": "pid", "order": {"stays": "admit"}, "max_rows": {"stays": 3, "drugs": 2}, "epsilon": 50.0}
    release = dpgen.fit(LINKED, schemas={"stays": schema, "people": born}, **options | FAST)
    assert {rule["kind"] for rule in release.shown["rules"]} == {"copy", "from", "sum"}
    gaps = {
        "people": with_gaps(OWNERS, "pid"),
        "stays": with_gaps(STAYS, "pid", "stay", "admit"),
        "drugs": with_gaps(DRUGS, "stay"),
    }
    filled = release.impute(gaps, random_state=0)
    for name, frame in filled.items():
        assert not frame.isna().any().any()
        assert ((frame == gaps[name]) | gaps[name].isna()).all().all()
        assert frame.dtypes.equals(LINKED[name].dtypes)
    both = filled["stays"].merge(filled["people"], on="pid", suffixes=("", "_of_person"))
    assert (both["discharge"] >= both["admit"]).all()
    assert (both["born"] <= both["admit"]).all()
    assert (both["joined"] <= both["admit"]).all()
    assert (both["city"] == both["city_of_person"]).all()
    total = filled["stays"].groupby("pid")["cost"].sum().reindex(OWNERS["pid"]).fillna(0.0).to_numpy()
    of_gaps = gaps["people"]["spent"].isna().to_numpy()
    assert np.allclose(total[of_gaps], filled["people"]["spent"][of_gaps])


def test_what_a_constraint_leaves_out_stays_out_and_nothing_else_does() -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"who": rng.integers(0, 300, 900), "sex": rng.choice([*"mf"], 900), "test": rng.choice([*"ab"], 900)})
    rows["births"] = np.where(rows["sex"] == "f", rng.integers(0, 4, 900).astype(float), np.nan)
    listed = {"sex": ["m", "f"], "test": ["a", "b"]}
    fields: list[dict[str, Any]] = [
        {"name": name, "type": "string", "constraints": {"enum": values}} for name, values in listed.items()
    ]
    fields.append({"name": "births", "type": "integer", "constraints": {"minimum": 0, "maximum": 3}})
    schema = {"fields": fields, "dpgen:constraints": [{"forbidden": {"sex": "m", "births": {"minimum": 0}}}]}
    release = dpgen.fit(rows, "relational", epsilon=50.0, person="who", max_rows=4, schema=schema, **FAST)
    filled = release.impute(without(rows, "test"), random_state=0)
    assert filled["births"].isna().equals(rows["sex"] == "m")
    assert not filled["test"].isna().any()
    with pytest.raises(ValueError, match="tables have 1 of 1 people whose gaps no draw fills so that the constraints hold"):
        release.impute(without(rows.head(1), "test").assign(sex="m", births=2.0))


def test_a_target_is_filled_from_all_rows() -> None:
    """Classes of people are too few for it: it is drawn last, from the rows, as it is in samples."""
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"pid": np.arange(1500), "age": rng.integers(20, 30, 1500)})
    rows = pd.DataFrame({"pid": rng.integers(0, 1500, 4000), "kind": rng.choice([*"abc"], 4000)})
    often = rows["kind"].eq("a").groupby(rows["pid"]).mean().reindex(people["pid"], fill_value=0.0).to_numpy()
    people["back"] = rng.random(1500) < 0.1 + 0.8 * often
    options = {"rounds": 1, "picks": 2, "steps": 8, "classes": 2, "row_classes": 2, "method": "linked", "max_rows": 4}
    gaps = {"people": without(people, "back"), "visits": rows}
    shares = []
    for target in ("people.back", None):
        model = dpgen.fit({"people": people, "visits": rows}, epsilon=500.0, person="pid", target=target, seed=1, **options)
        back = model.impute(gaps, random_state=0)["people"]["back"].astype(bool)
        shares.append(back[often > 0.5].mean() - back[often == 0].mean())
    assert shares[0] > 0.5
    assert shares[1] < 0.4
