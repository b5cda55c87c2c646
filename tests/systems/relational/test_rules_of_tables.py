"""Rules between the columns of one of several linked tables are found, by one row of each person, and kept by samples."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import dpgen
from dpgen.facts import Fact
from dpgen.systems.relational.chains import TreeFitter
from dpgen.systems.relational.model import RelationalModel
from dpgen.systems.relational.sums import Branch, Layout, Shape, Table
from dpgen.systems.tables.fitter import EXCLUDED, Zero
from dpgen.systems.tables.marginals import Coarsening

FAST: dict[str, Any] = {"rounds": 2, "classes": 16, "row_classes": 16, "steps": 60, "picks": 8, "max_rows": 4}
NAMES: dict[str, Any] = {"person": "who", "order": {"orders": "day"}}
WARDS = {"surgery": "operative", "trauma": "operative", "medicine": "internal", "births": "births"}
LANDS = {"Bonn": "NW", "Essen": "NW", "Jena": "TH", "Ulm": "BW", "Aalen": "BW"}


def tables(n: int, wrong: float = 0.0, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Patients with a ward and its department, who leave after they came; orders of a town and its land, whose parts add up.

    A share of the patients have any department.
    """
    rng = np.random.default_rng(seed)
    ward, came = rng.choice([*WARDS], n), np.datetime64("2021-01-01") + rng.integers(0, 700, n)
    other = rng.choice([*WARDS.values()], n)
    people = pd.DataFrame({"who": np.arange(n), "ward": ward, "department": pd.Series(ward).map(WARDS)})
    people["department"] = people["department"].where(rng.random(n) >= wrong, other)
    people["came"], people["left"] = pd.to_datetime(came), pd.to_datetime(came + np.floor(rng.gamma(1.3, 5, n)).astype(int))
    owner = np.repeat(np.arange(n), rng.integers(1, 5, n))
    town, net, tax = rng.choice([*LANDS], len(owner)), rng.integers(10, 400, len(owner)), rng.integers(1, 80, len(owner))
    day = pd.to_datetime(np.datetime64("2024-01-01") + rng.integers(0, 300, len(owner)))
    rows = {"who": owner, "day": day, "town": town, "land": pd.Series(town).map(LANDS), "net": net, "tax": tax}
    return {"patients": people, "orders": pd.DataFrame(rows).assign(gross=net + tax)}


def broken(made: dict[str, pd.DataFrame]) -> list[float]:
    """Shares of patients who break the dependency and the order, and of orders that break the dependency and the sum."""
    people, rows = made["patients"], made["orders"]
    wrong = [people["ward"].map(WARDS) != people["department"], people["came"] > people["left"]]
    wrong += [rows["town"].map(LANDS) != rows["land"], rows["net"] + rows["tax"] != rows["gross"]]
    return [float(one.mean()) for one in wrong]


def said(release: RelationalModel) -> list[str]:
    """The rules that a release says it keeps."""
    return [str(rule) for one in release.statement.facts if one.fact is Fact.RULES for rule in dict(one.values)["columns"]]


@pytest.fixture(scope="module")
def release() -> RelationalModel:
    return dpgen.fit(tables(3_000), epsilon=30.0, **NAMES, **FAST)


def test_rules_of_people_and_of_rows_are_found_said_and_kept(release: RelationalModel) -> None:
    assert release.shown["rules"] == []
    told = " ".join(said(release))
    for rule in ("patients: ward -> department", "patients: came <= left", "orders: town -> land", "orders: net + tax = gross"):
        assert rule in told
    assert broken(release.sample(2_000, random_state=0)) == [0.0] * 4


def test_rules_hold_given_values_and_first_rows(release: RelationalModel) -> None:
    first = [{"day": "2024-02-01", "town": "Ulm", "net": 100, "tax": 20}]
    made = release.sample(300, random_state=0, given={"patients": {"ward": "trauma"}, "orders": first})
    assert broken(made) == [0.0] * 4
    assert set(made["patients"]["department"]) == {"operative"}
    rows = made["orders"].groupby("who").first()
    assert set(rows["land"]) == {"BW"}
    assert set(rows["gross"]) == {120}


def test_gaps_are_filled_by_the_rules(release: RelationalModel) -> None:
    known = tables(200, seed=1)
    gaps = {
        "patients": known["patients"].assign(department=None),
        "orders": known["orders"].assign(land=None, gross=pd.Series(np.nan, known["orders"].index)),
    }
    assert broken(release.impute(gaps, random_state=0)) == [0.0] * 4


def test_a_fit_drives_out_what_constraints_exclude() -> None:
    """Of two columns of rows, of which single sums alone are measured, the codes 0 do not occur together."""
    shape = Shape((3,), (Branch((2, 3), ("all", "all"), 2, count=0),))
    sums = [(Table(("one", stack, "unit"), c, 0, 0), values, 2.0) for stack, c, values in
            (("person", 0, np.array([200.0, 400.0, 400.0])), ("all", 0, np.array([300.0, 500.0])),
             ("all", 1, np.array([400.0, 300.0, 100.0])))]  # fmt: skip
    shares = [[own[1] / own[1].sum() for own in sums[:1]], [own[1] / own[1].sum() for own in sums[1:]]]
    never = Zero((slice(0, 2), slice(2, 5)), (np.array([[1.0, 0.0]], np.float32), np.array([[1.0, 0.0, 0.0]], np.float32)))
    layout = Layout(shape, (tuple(Coarsening.full(shape.of(i)) for i in (0, 1)),))
    found = []
    for zeros in ((), ([], [never])):
        made: dict[str, Any] = {"zeros": zeros, "generator": torch.Generator().manual_seed(0)}
        fitter = TreeFitter(layout, shares, 1000.0, classes=(6, 6), information=20.0, **made)
        fitter.measure(sums)
        fitter.run(400, 0.05, 0.001, avoided=EXCLUDED)
        blocks = fitter.tree.blocks(shape)
        found.append(blocks["row", "all", "all"][0, 2] / 0.8)
        assert np.abs(blocks["one", "all", "unit"][:, 0] - np.r_[sums[1][1], sums[2][1]] / 1000).max() < 0.02
    assert found[0] > 0.1
    assert found[1] < 0.01


def test_no_search_for_rules_but_where_it_is_asked_for() -> None:
    off = dpgen.fit(tables(1_000), epsilon=30.0, rules="off", **NAMES, **FAST)
    assert said(off) == []
    assert min(broken(off.sample(2_000, random_state=0))) > 0.0
    asked = dpgen.fit(tables(3_000), epsilon=30.0, rules=["orders.town", "orders.land"], **NAMES, **FAST)
    assert [rule.partition(" (")[0] for rule in said(asked)] in (["orders: town -> land"], ["orders: land -> town"])


@pytest.mark.parametrize("options", [{"epsilon": 30.0, "method": "apart"}, {"epsilon": 4.0, "method": "linked"}])
def test_rows_are_not_searched_where_signal_is_little(options: dict[str, Any]) -> None:
    apart = dpgen.fit(tables(3_000), **options, **NAMES, **FAST)
    assert {rule.partition(":")[0] for rule in said(apart)} == {"patients"}


def test_samples_break_a_rule_as_often_as_people_are_seen_to() -> None:
    made = dpgen.fit(tables(6_000, wrong=0.012), epsilon=60.0, **NAMES, **FAST)
    assert "of samples as well" in " ".join(said(made))
    assert 0.002 < broken(made.sample(6_000, random_state=0))[0] < 0.02


def test_columns_that_others_decide_are_left_to_them() -> None:
    """A town of orders that is that of the patient, a sum of orders, and the column to predict."""
    given = tables(3_000)
    people, rows = given["patients"], given["orders"]
    rows = rows.assign(town=people["ward"].to_numpy()[rows["who"]]).rename(columns={"town": "ward"})
    rows = rows.assign(department=rows["ward"].map(WARDS)).drop(columns="land")
    people = people.assign(total=rows.groupby("who")["gross"].sum().reindex(people["who"]).to_numpy())
    release = dpgen.fit({"patients": people, "orders": rows}, epsilon=30.0, target="patients.department", **NAMES, **FAST)
    assert {rule["kind"] for rule in release.shown["rules"]} == {"copy", "sum"}
    assert not any("department" in rule or "total" in rule for rule in said(release) if ": " in rule)
    made = release.sample(1_000, random_state=0)
    sums = made["orders"].groupby("who")["gross"].sum().reindex(made["patients"]["who"]).to_numpy()
    assert float((made["patients"]["total"] != sums).mean()) < 0.02
