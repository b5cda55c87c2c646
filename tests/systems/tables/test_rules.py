"""Rules of raw tables: found where they hold and nowhere else, kept by samples, conditions and imputation, and said."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

import dpgen
from dpgen.columns.constraints import constraint_of
from dpgen.columns.descriptors import field_of
from dpgen.columns.fields import LengthField
from dpgen.containers import in_memory
from dpgen.data.raw_tables import Chosen, Rows, draft_of
from dpgen.facts import Fact
from dpgen.privacy.curator import Curator, GaussianBudget
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.schema import Schema
from dpgen.systems.tables.discovery import Discovery, thresholds
from dpgen.systems.tables.model import TablesModel
from dpgen.systems.tables.rule_kinds import Candidate, needed
from dpgen.systems.tables.rules import MOST_LENGTHS, Rule, Search, without_rare

QUICK = {"epsilon": 40.0, "delta": 1e-5, "method": "mixture", "components": 16, "rounds": 2, "picks": 8}
REGIONS = {f"{city}{i}": region for city, region in (("A", "north"), ("B", "south"), ("C", "west")) for i in range(4)}


def stays(n: int = 3_000, seed: int = 0) -> pd.DataFrame:
    """Stays in hospitals: gaps in both dates, regions of cities."""
    rng = np.random.default_rng(seed)
    city, came = rng.choice([*REGIONS], n), pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 700, n), unit="D")
    ill = rng.random(n) < 0.4
    length = np.floor(rng.gamma(1.3, np.where(ill, 12.0, 3.0))).astype(int)
    table = pd.DataFrame({"left": came + pd.to_timedelta(length, unit="D"), "came": came, "ill": ill, "city": city})
    table["region"] = table["city"].map(REGIONS)
    return table.assign(left=table["left"].mask(rng.random(n) < 0.1), came=table["came"].mask(rng.random(n) < 0.05))


@pytest.fixture(scope="module")
def model() -> TablesModel:
    release = dpgen.fit(stays(), **QUICK)
    assert isinstance(release, TablesModel)
    return release


def days(table: pd.DataFrame) -> pd.Series:
    return (table["left"] - table["came"]).dt.days


def test_orders_and_dependencies_are_found_said_and_kept(model: TablesModel) -> None:
    constraints = model.schema.descriptor()["dpgen:constraints"]
    assert {"less_equal": ["came", "left"]} in constraints
    [follows] = [rule for rule in constraints if "follows" in rule]
    assert follows == {"follows": "region", "on": "city", "table": REGIONS}
    [said] = [fact for fact in model.statement.facts if fact.fact is Fact.RULES]
    assert "came <= left (broken by 0" in said.sentence
    real, rows = stays(), model.sample(3_000, random_state=0)
    assert (days(rows).dropna() >= 0).all()
    assert (rows["city"].map(REGIONS) == rows["region"]).all()
    assert days(rows).mean() == pytest.approx(days(real).mean(), rel=0.15)
    by_ill = days(rows).groupby(rows["ill"]).mean()
    assert by_ill[True] > 2 * by_ill[False]
    for name in ("came", "left"):
        assert rows[name].isna().mean() == pytest.approx(real[name].isna().mean(), abs=0.04)
        assert abs(rows[name].mean() - real[name].mean()).days < 40


def test_conditions_know_a_length(model: TablesModel) -> None:
    rows = model.sample(400, random_state=0, given={"came": "2021-06-01"})
    assert (rows["came"] == pd.Timestamp("2021-06-01")).all()
    assert (days(rows).dropna() >= 0).all()
    assert days(rows).median() < 20
    rows = model.sample(50, random_state=0, given={"left": "2021-06-01", "came": "2021-05-02"})
    assert (days(rows) == 30).all()
    assert rows["ill"].mean() > 0.6
    rows = model.sample(100, random_state=0, given={"left": {"minimum": "2022-01-01", "maximum": "2022-01-31"}})
    assert rows["left"].between("2022-01-01", "2022-01-31").all()
    assert days(rows).min() >= 0
    for wrong in (["2022-01-01"], "2022-01-01"):
        with pytest.raises(ValueError, match="give one value of both"):
            model.sample(10, given={"left": wrong})


def test_gaps_of_both_ends_of_a_length_are_filled(model: TablesModel) -> None:
    rows = model.sample(60, random_state=1).dropna().reset_index(drop=True)
    for name in ("came", "left", "region"):
        filled = model.impute(rows.assign(**{name: rows[name].where(rows.index % 2 == 0, None)}), random_state=0)
        assert filled[name].notna().all()
        assert (days(filled) >= 0).all()
        assert (filled["city"].map(REGIONS) == filled["region"]).all()
    many = model.sample(250, random_state=2).dropna().reset_index(drop=True)
    filled = model.impute(many.assign(came=pd.Series([pd.NaT] * len(many))), random_state=0)
    assert days(filled).median() == pytest.approx(days(many).median(), abs=3)
    assert days(filled).mean() == pytest.approx(days(many).mean(), rel=0.4)


def test_codes_of_a_length_come_back(model: TablesModel) -> None:
    rows = model.sample(500, random_state=2)
    codes = model.schema.encode(rows)
    field = model.schema.by_name["left"]
    assert isinstance(field, LengthField)
    alone = codes.numpy()[:, model.schema.domain.names.index("left")] == 0
    assert (alone == (rows["came"].isna() & rows["left"].notna())).all()
    assert model.log_prob(rows).isfinite().all()
    assert model.schema == type(model.schema).from_descriptor(model.schema.descriptor())


def test_nothing_is_looked_for_where_it_is_off() -> None:
    release = dpgen.fit(stays(), **QUICK | {"rounds": 1, "picks": 1}, rules="off")
    assert "dpgen:constraints" not in release.schema.descriptor()
    assert not {Fact.RULES, Fact.NO_RULES} & {fact.fact for fact in release.statement.facts}


def test_with_few_rows_it_is_said_from_which_epsilon_on() -> None:
    release = dpgen.fit(stays(400), **QUICK | {"epsilon": 3.0, "rounds": 1, "picks": 1})
    [said] = [fact for fact in release.statement.facts if fact.fact is Fact.NO_RULES]
    assert 1.0 < float(dict(said.values)["more"]) < 20


def searched(table: pd.DataFrame, epsilon: float, n: int) -> Search:
    """A search alone, without a model."""
    draft = draft_of(in_memory(table, "bought"), None, Chosen())
    budget = GaussianBudget(
        Curator(Ledger(Budget(epsilon, 1e-5))), Budget(epsilon, 1e-5), "all", thresholds=thresholds(draft) + MOST_LENGTHS
    )
    discovery = Discovery(Rows(table), draft, budget, float(n))
    return Search(Rows(table), discovery.run(), budget, float(n), discovery.of_number)


def alike(n: int = 4_000) -> pd.DataFrame:
    """Independent columns of alike laws, a rule that 6 % of the rows break, and a region that 6 % have wrong."""
    rng, table = np.random.default_rng(1), stays(4_000)
    start, wrong = pd.Timestamp("2020-01-01"), rng.random(n) < 0.06
    table["region"] = (
        table["region"].mask(wrong, rng.choice(["north", "south", "west"], n)).mask(wrong & (rng.random(n) < 0.3), "east")
    )
    table["left"] = table["left"].mask(wrong, table["came"] - pd.to_timedelta(9, unit="D"))
    for name, late in (("first", 0), ("second", 200)):
        table[name] = start + pd.to_timedelta(late + rng.integers(0, 900, n), unit="D")
    return table.assign(
        x=rng.normal(0, 1, n).round(2), y=rng.normal(1, 1, n).round(2), k=rng.choice([*"uvw"], n, p=[0.5, 0.3, 0.2])
    )


def test_no_rule_is_found_where_none_holds() -> None:
    search = searched(alike().assign(region=lambda t: t["region"].where(np.arange(len(t)) % 12 != 0, "east")), 20.0, 4_000)
    found = search.run()
    assert not search.tables
    assert not {Fact.RULES, Fact.NO_RULES} & {fact.fact for fact in found.facts}
    assert any("rows that break rules" in entry.note for entry in search.budget.curator.ledger.entries())


def test_a_declared_order_is_a_length_too() -> None:
    dates = [{"name": name, "type": "date"} for name in ("came", "left")]
    schema = {"dpgen:constraints": [{"less_equal": ["came", "left"]}], "fields": dates, "fieldsMatch": "partial"}
    model = dpgen.fit(stays(1_500), **QUICK | {"rounds": 1, "picks": 2}, schema=schema)
    assert isinstance(model.schema.by_name["left"], LengthField)
    assert not model.schema.rejects or model.schema.constraints[0].built_in(model.schema.by_name)
    assert (days(model.sample(500, random_state=0)).dropna() >= 0).all()


def bills(n: int = 4_000) -> pd.DataFrame:
    """Bills: a product, a sum of three, a group of truth values, gaps that follow a value and each other."""
    rng = np.random.default_rng(2)
    table = pd.DataFrame({"items": 1 + rng.poisson(2, n), "price": rng.lognormal(2, 0.7, n).round(2)})
    table["goods"] = (table["items"] * table["price"]).round(2)
    table = table.assign(
        care=rng.gamma(2, 40, n).round(2), drugs=rng.gamma(1, 60, n).round(2), bed=rng.gamma(3, 30, n).round(2)
    )
    table["bill"] = (table["care"] + table["drugs"] + table["bed"]).round(2)
    state = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    table = table.assign(**{f"is_{name}": state == i for i, name in enumerate("abc")}, sex=rng.choice(["F", "M"], n))
    lost = rng.random(n) < 0.15
    return table.assign(
        births=pd.Series(rng.poisson(1.5, n)).astype("Int64").mask(table["sex"] == "M"),
        high=pd.Series(rng.normal(120, 12, n).round()).mask(lost),
        low=pd.Series(rng.normal(75, 8, n).round()).mask(lost),
    )


def test_totals_groups_and_gaps_are_found_and_kept() -> None:
    model = dpgen.fit(bills(), **QUICK)
    constraints = model.schema.descriptor()["dpgen:constraints"]
    assert {"product": ["items", "price"], "total": "goods", "places": 2} in constraints
    assert {"sum": ["care", "drugs", "bed"], "total": "bill"} in constraints
    assert {"one_of": ["is_a", "is_b", "is_c"]} in constraints
    assert any(rule.get("missing") == "births" and rule["on"] == "sex" and rule["value"] == "M" for rule in constraints)
    assert any({rule.get("missing"), rule.get("on")} == {"high", "low"} for rule in constraints)
    rows = model.sample(2_000, random_state=0)
    assert set(rows) == set(bills())
    assert ((rows["items"] * rows["price"] - rows["goods"]).fillna(0).abs() < 0.011).all()
    assert ((rows["care"] + rows["drugs"] + rows["bed"] - rows["bill"]).fillna(0).abs() < 0.011).all()
    assert (rows[["is_a", "is_b", "is_c"]].sum(axis=1) == 1).all()
    assert (rows["births"].isna() == (rows["sex"] == "M")).all()
    assert (rows["high"].isna() == rows["low"].isna()).all()
    assert rows["is_a"].mean() == pytest.approx(0.5, abs=0.06)
    assert rows["bill"].mean() == pytest.approx(bills()["bill"].mean(), rel=0.1)
    filled = model.impute(rows.head(40).assign(care=None, bill=None, is_b=None, births=None), random_state=0)
    assert (filled[["is_a", "is_b", "is_c"]].astype(float).sum(axis=1) == 1).all()
    assert (filled["births"].isna() == (filled["sex"] == "M")).all()


def with_errors(n: int = 6_000) -> pd.DataFrame:
    """Bills and stays of which 0.7 % of the rows break each of three rules."""
    rng, table = np.random.default_rng(4), bills(n).iloc[:, [0, 1, 2, 7, 8, 9]]
    table["goods"] = table["goods"].mask(rng.random(n) < 0.007, (table["goods"] + 7.0).round(2))
    table["is_c"] ^= rng.random(n) < 0.007
    came = pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 700, n), unit="D")
    left = pd.Series(came + pd.to_timedelta(rng.geometric(0.2, n), unit="D"))
    return table.assign(came=came, left=left.mask(rng.random(n) < 0.007, left - pd.Timedelta(90, unit="D")))


def errors(table: pd.DataFrame) -> np.ndarray:
    """Which rows break a product, a group and an order, (3, n)."""
    product = (table["items"] * table["price"] - table["goods"]).abs() > 0.011
    return np.stack([product, table[["is_a", "is_b", "is_c"]].sum(axis=1) != 1, table["came"] > table["left"]])


def test_a_rule_that_few_rows_break_is_broken_as_often_in_samples() -> None:
    """Of 20,000 samples with true shares of .7 % six standard deviations are .35 %; the shares have noise of .07 %."""
    real = with_errors()
    model = dpgen.fit(real, **QUICK)
    rules = model.schema.descriptor()["dpgen:constraints"]
    shares = [next(rule["broken"] for rule in rules if kind in rule) for kind in ("product", "one_of", "less_equal")]
    assert shares == pytest.approx(errors(real).mean(1), abs=0.005)
    [said] = [fact for fact in model.statement.facts if fact.fact is Fact.RULES]
    assert said.sentence.count("of samples as well") == 3
    rows = model.sample(20_000, random_state=0)
    found = errors(rows)
    assert found.mean(1) == pytest.approx(shares, abs=0.005)
    assert (found.sum(0) > 1).sum() < 20
    assert model.log_prob(rows).isfinite().all()
    kept = model.sample(300, random_state=0, given={"came": "2021-06-01", "left": "2021-06-03"})
    assert not errors(kept)[2].any()
    wrong = real[errors(real).any(0)].head(40).reset_index(drop=True)
    filled = model.impute(wrong.assign(**{name: wrong[name].where(wrong.index % 2 == 0) for name in ("price", "goods")}))
    assert filled.notna().all(axis=None)
    assert (errors(filled)[1:] == errors(wrong)[1:]).all()


def test_probabilities_of_rows_that_break_a_rule_add_up_to_its_share() -> None:
    n = 4_000
    rng, a = np.random.default_rng(5), np.random.default_rng(6).choice(4, n)
    b = np.where(rng.random(n) < 0.008, rng.choice(3, n), a // 2)
    table = pd.DataFrame({"a": np.array([*"wxyz"])[a], "b": np.array([*"uvw"])[b], "c": rng.choice([*"st"], n)})
    model = dpgen.fit(table, **QUICK)
    [rule] = model.schema.constraints
    assert 0.002 < rule.broken < 0.01
    codes = torch.from_numpy(np.indices(model.schema.domain.sizes).reshape(3, -1).T.copy())
    chances = model.log_prob(codes).exp()
    assert float(chances.sum()) == pytest.approx(1.0, abs=0.02)
    assert float(chances[~model.schema.admissible(codes)].sum()) == pytest.approx(rule.broken, rel=0.05)


def test_rules_are_looked_for_between_listed_columns_alone() -> None:
    search = searched(stays(), 20.0, 3_000)
    search.columns = ("came", "left", "ill")
    assert [*search.run().descriptor["dpgen:constraints"]] == [{"less_equal": ["came", "left"]}]
    for wrong, said in ((["came", "city2"], "did you mean 'city'"), (["came"], "two columns")):
        with pytest.raises(ValueError, match=said):
            dpgen.fit(stays(20), **QUICK, rules=wrong)


def measured(n: int = 6_000) -> pd.DataFrame:
    """Measurements in two units, a share in percent, truth values that imply each other or exclude each other."""
    rng = np.random.default_rng(7)
    table = pd.DataFrame({"cm": rng.normal(170, 9, n).round(1), "net": rng.lognormal(4, 1, n).round(2)})
    table = table.assign(inches=(table["cm"] / 2.54).round(1), gross=(table["net"] * 1.19).round(2))
    table["celsius"] = rng.normal(37, 0.8, n).round(1)
    table["fahrenheit"] = (1.8 * table["celsius"] + 32).round(1)
    table["income"] = rng.lognormal(8, 0.5, n).round()
    table["rent"] = (table["income"] * rng.beta(4, 8, n)).round(2)
    table["percent"] = (100 * table["rent"] / table["income"]).round(1)
    which = rng.choice(4, n, p=[0.5, 0.2, 0.2, 0.1])
    table = table.assign(**{f"op_{name}": which == i for i, name in enumerate("abc", 1)}, sepsis=rng.random(n) < 0.4)
    return table.assign(other=rng.random(n) < 0.5, intensive=table["sepsis"] & (rng.random(n) < 0.4))


def test_units_shares_and_truth_values_are_found() -> None:
    rules = searched(measured(), 20.0, 6_000).run().descriptor["dpgen:constraints"]
    totals = {(*rule["product"], *rule.get("over", ()), rule["total"]): rule for rule in rules if "product" in rule}
    assert {*totals} == {("cm", "inches"), ("net", "gross"), ("celsius", "fahrenheit"), ("rent", "income", "percent")}
    assert totals["cm", "inches"]["times"] == 1 / 2.54
    assert totals["net", "gross"]["times"] == 1.19
    assert (totals["celsius", "fahrenheit"]["times"], totals["celsius", "fahrenheit"]["plus"]) == (1.8, 32.0)
    assert totals["rent", "income", "percent"]["times"] == 100.0
    others = [rule for rule in rules if "one_of" in rule or "forbidden" in rule]
    assert {"one_of": ["op_a", "op_b", "op_c"], "or_none": True} in others
    assert {"forbidden": {"intensive": True, "sepsis": False}} in others
    assert len(others) == 2


def test_totals_follow_from_totals_without_a_circle() -> None:
    def total(kind: str, name: str, *parts: str, **more: float) -> Candidate:
        return Candidate({kind: [*parts], "total": name, **({"places": 2} if kind == "product" else {}), **more}, 1.0)

    goods, tax = total("product", "goods", "items", "price"), total("product", "tax", "goods", times=0.19)
    bill, back = total("sum", "bill", "goods", "tax"), total("product", "goods", "bill", times=1 / 1.19)
    assert needed([bill, tax, goods]) == [goods, tax, bill]
    found = needed([bill, tax, goods, back])
    assert {one.names[-1] for one in found} == {"goods", "tax"}
    assert found[0].names == ("bill", "goods")
    order = Candidate({"less_equal": ["tax", "other"]}, 0.5)
    assert needed([order, tax]) == [tax]


def test_a_region_follows_from_hundreds_of_cities() -> None:
    """Cities that the mixture joins stay apart by their regions: rows are kept, and shares are as without the rule."""
    n, rng = 20_000, np.random.default_rng(8)
    regions = {f"city {letter}{i}": letter for letter in "ABCD" for i in range(60)}
    city = pd.Series(rng.choice([*regions], n))
    model = dpgen.fit(pd.DataFrame({"city": city, "region": city.map(regions)}), **QUICK | {"rounds": 1, "picks": 1})
    [rule] = model.schema.descriptor()["dpgen:constraints"]
    assert rule["table"].items() <= regions.items()
    assert len(rule["table"]) > 200
    assert model.kept_share > 0.9
    rows = model.sample(n, random_state=0)
    assert (rows["city"].map(regions) == rows["region"]).mean() > 0.97
    assert rows["region"].value_counts(normalize=True).to_numpy() == pytest.approx(np.full(4, 0.25), abs=0.02)


@pytest.mark.parametrize(("epsilon", "measured"), [(2.0, 0.03), (40.0, 0.01)])
def test_a_table_is_measured_again_where_noise_hides_values(epsilon: float, measured: float) -> None:
    """Counts of both times are averaged by their precision, as if they were one of both shares."""
    n, regions = 20_000, {f"city {i}": "ABCD"[i % 4] for i in range(200)}
    city = pd.Series([*regions] * (n // 200))
    search = searched(pd.DataFrame({"city": city, "region": city.map(regions)}), epsilon, n)
    whole = search.budget.left
    search.run()
    [(names, counts, std)] = search.tables
    assert names == ("city", "region")
    assert std == pytest.approx(search.budget.noise_std(1.0) / math.sqrt(measured * search.budget.whole), rel=0.01)
    assert (counts - np.where(counts > 50, 100, 0)).std() == pytest.approx(std, rel=0.3)
    assert whole - search.budget.left <= (0.03 + measured) * search.budget.whole


def timed(n: int) -> pd.DataFrame:
    """Times with their parts in columns of their own, as texts and as numbers; on weekends less is used."""
    rng = np.random.default_rng(6)
    came = pd.Series(pd.Timestamp("2021-03-01") + pd.to_timedelta(rng.integers(0, 700 * 24, n), unit="h"))
    table = pd.DataFrame({"came": came, "year": came.dt.year, "month": came.dt.strftime("%m"), "day": came.dt.day_of_week + 1})
    weekday = pd.Series(np.array(["Mo", "Di", "Mi", "Do", "Fr", "Sa", "So"])[came.dt.day_of_week])
    return table.assign(tag=weekday, kwh=rng.gamma(9, np.where(came.dt.day_of_week > 4, 1.0, 3.0), n).round(2))


def test_parts_of_a_date_are_found_said_and_kept() -> None:
    real = timed(6_000)
    model = dpgen.fit(real, **QUICK)
    rules = {rule.get("total", rule.get("dated")): rule for rule in model.schema.descriptor()["dpgen:constraints"]}
    assert {name: rules[name]["part"] for name in ("year", "month", "tag")} == {
        "year": "year",
        "month": "month",
        "tag": "weekday",
    }
    [said] = [fact for fact in model.statement.facts if fact.fact is Fact.RULES]
    assert "weekday of came = tag (broken by 0" in said.sentence
    rows = model.sample(2_000, random_state=0)
    assert (rows["came"].dt.year == rows["year"]).all()
    assert (rows["came"].dt.strftime("%m") == rows["month"]).all()
    assert (rows["tag"] == np.array(["Mo", "Di", "Mi", "Do", "Fr", "Sa", "So"])[rows["came"].dt.day_of_week]).all()
    assert (rows["day"] == rows["came"].dt.day_of_week + 1).all()
    weekend = rows["tag"].isin(["Sa", "So"])
    assert rows["kwh"][weekend].mean() < 0.6 * rows["kwh"][~weekend].mean(), "what depends on the weekday stays"
    assert weekend.mean() == pytest.approx(2 / 7, abs=0.06)
    filled = model.impute(rows.head(50).assign(tag=None), random_state=0)
    assert (filled["tag"] == rows["tag"].head(50)).all()
    assert model.schema == type(model.schema).from_descriptor(model.schema.descriptor())


def test_no_more_parts_of_dates_are_rules_than_rows_can_be_drawn_for() -> None:
    """Of two dates with weekday and hour one has both; a second writing of the same part costs no rows."""
    parts = [(date, part, f"{part} of {date}") for date in ("came", "left") for part in ("weekday", "hour")]
    parts.insert(1, ("came", "weekday", "in numbers"))
    found = [
        Rule(
            Candidate({"dated": name, "on": date, "part": part, "values": None}, 6 / 7 if part == "weekday" else 23 / 24),
            0.0,
            0.0,
        )
        for date, part, name in parts
    ]
    assert [rule.candidate.names[1] for rule in without_rare(found)] == ["weekday of came", "in numbers", "hour of came"]


def test_parts_that_are_declared() -> None:
    table = pd.DataFrame({"came": pd.to_datetime(["2024-02-29 13:00", "2023-07-01 00:00", None]), "own": ["Q1", "Q2", None]})
    quarter = constraint_of({"part_of": "came", "part": "quarter", "total": "own", "values": {"1": "Q1", "2": "Q2", "3": "Q3"}})
    assert quarter.compute(table).fillna("").tolist() == ["Q1", "Q3", ""]
    assert quarter.holds(table).tolist() == [True, False, True]
    hour = constraint_of({"dated": "h", "on": "came", "part": "hour", "values": None})
    assert hour.holds(table.assign(h=pd.array([13, 1, None], "Int64"))).tolist() == [True, False, True]
    for rule in (quarter, hour):  # each row by itself, whether others have gaps
        whole = table.assign(h=pd.array([13, 1, None], "Int64"))
        assert rule.holds(whole).tolist() == [bool(rule.holds(whole.iloc[[i]])[0]) for i in range(3)]
    fields = [{"name": name, "type": "integer", "constraints": {"minimum": 0, "maximum": 9}} for name in "ab"]
    wrong = {"part_of": "a", "part": "year", "total": "b", "values": None}
    with pytest.raises(ValueError, match="field 'b' is a part of 'a', a integer; it must be a date"):
        Schema.from_descriptor({"fields": fields, "dpgen:constraints": [wrong]})
    with pytest.raises(ValueError, match="constraint part_of is 'a'; its docstring"):
        constraint_of(wrong | {"part": "week"})


def fares(n: int, seed: int = 0) -> pd.DataFrame:
    """A class that follows from zone and fare together, a tariff from hour and weekday; none follows from one column."""
    rng = np.random.default_rng(seed)
    zone, kind, hour = rng.integers(0, 5, n), rng.integers(0, 3, n), rng.integers(0, 12, n)
    day = rng.choice(["week", "Saturday", "Sunday"], n, p=[0.6, 0.2, 0.2])
    busy = (day == "week") & (hour >= 4)
    table = {"zone": np.array([*"ABCDE"])[zone], "class": np.array(["first", "second", "third"])[kind], "hour": hour}
    table |= {"fare": np.array([f"T{i}" for i in range(7)])[(3 * zone + 5 * kind) % 7], "day": day}
    return pd.DataFrame(table | {"tariff": np.where(busy, "high", "low"), "kwh": rng.gamma(2, 3, n).round(2)})


def test_what_follows_from_two_columns_together_is_found_said_and_kept() -> None:
    model = dpgen.fit(fares(6_000), **QUICK)
    found = {tuple(rule["on"]): rule for rule in model.schema.descriptor()["dpgen:constraints"] if "follows" in rule}
    assert set(found) == {("zone", "fare"), ("hour", "day")}
    assert found["hour", "day"]["table"]["3"] == {"week": "low", "Saturday": "low", "Sunday": "low"}
    assert found["hour", "day"]["table"]["4"]["week"] == "high"
    [said] = [fact for fact in model.statement.facts if fact.fact is Fact.RULES]
    assert "hour, day -> tariff (broken by 0" in said.sentence
    rows = model.sample(3_000, random_state=0)
    assert ((rows["tariff"] == "high") == ((rows["day"] == "week") & (rows["hour"] >= 4))).all()
    kinds = fares(6_000).groupby(["zone", "fare"])["class"].first()
    there = rows[["zone", "fare"]].apply(tuple, axis=1).map(kinds.to_dict())
    assert there.notna().mean() > 0.95
    assert (there[there.notna()] == rows["class"][there.notna()]).all()
    assert (rows["tariff"] == "high").mean() == pytest.approx(0.4, abs=0.04)
    filled = model.impute(rows.assign(tariff=None).head(100), random_state=0)
    assert (filled["tariff"] == rows["tariff"].head(100)).all()
    assert model.schema == type(model.schema).from_descriptor(model.schema.descriptor())


def test_nothing_follows_from_two_columns_of_which_one_says_it_or_nothing_does() -> None:
    """Nor where each pair of values has few rows, so that it has one value by chance."""
    rng, n = np.random.default_rng(5), 6_000
    table = fares(n).assign(**{name: rng.permutation(fares(n)[name]) for name in ("fare", "class", "tariff")})
    table["code"] = table["zone"].map(dict(zip("ABCDE", "vwxyz")))
    descriptor = searched(table, 40.0, n).run().descriptor
    assert [rule["on"] for rule in descriptor["dpgen:constraints"]] in (["zone"], ["code"])
    alone = pd.DataFrame({name: rng.integers(0, 60, 3_000).astype(str) for name in "abc"})
    assert "dpgen:constraints" not in searched(alone, 40.0, 3_000).run().descriptor


def test_light_values_of_a_number_stand_alone_in_a_dependency() -> None:
    """Codes may join light neighbours; in a dependency each has a code, and counts as before."""
    rng, n = np.random.default_rng(3), 4_000
    school = rng.choice(8, n, p=[0.01, 0.01, 0.01, 0.02, 0.25, 0.3, 0.2, 0.2])
    table = pd.DataFrame(
        {"school": np.array([*"hgfedcba"], object)[school], "years": school + 1, "x": rng.normal(0, 1, n).round(2)}
    )
    search = searched(table, 40.0, n)
    before, found = search.found, search.run()
    [rule] = [rule for rule in found.descriptor["dpgen:constraints"] if "follows" in rule]
    years = {letter: str(i + 1) for i, letter in enumerate("hgfedcba")}
    assert rule["table"] == (years if rule["on"] == "school" else {value: key for key, value in years.items()})
    [old], [new] = (
        [field_of(given) for given in one.descriptor["fields"] if given["name"] == "years"] for one in (before, found)
    )
    assert old.size <= new.size == len(found.counts["years"].counts) == 8
    assert found.counts["years"].counts.sum() == pytest.approx(before.counts["years"].counts.sum())
    assert found.counts["x"] is before.counts["x"]


# -- fields and constraints --------------------------------------------------------------------------------------------

EDGES = {"edges": [0, 5, 20]}
LAW = {"dpgen:bins": EDGES, "dpgen:density": {**EDGES, "logs": [[0.0, 0.0], [0.0, 0.0]]}}
LONG = field_of({"name": "b", "type": "integer", **LAW, "dpgen:length": {"from": "a", "type": "integer", **LAW}})


def test_a_length_is_coded_beside_its_base_and_decoded_inside_of_the_range() -> None:
    assert isinstance(LONG, LengthField)
    values, base = pd.Series([7, 3, 15, 4]), pd.Series([7, 1, 2, 9])
    assert LONG.encode_beside(values, base).tolist() == [1, 1, 2, 0]
    assert LONG.encode_beside(values, base.astype("Int64").mask(base == 7)).tolist() == [0, 1, 2, 0]
    rng = np.random.default_rng(0)
    start = pd.Series(rng.integers(0, 25, 3_000)).astype("Int64").mask(rng.random(3_000) < 0.1)
    codes = rng.integers(0, 3, 3_000)
    drawn = LONG.decode_beside(codes, rng.random, start)
    there = start.notna()
    assert (drawn[there] >= start[there]).all()
    assert (drawn <= np.maximum(start.fillna(0), 20).astype(int)).all()
    inner = there & (start < 5).fillna(False) & (codes > 0)
    assert (LONG.encode_beside(drawn[inner], start[inner]) == codes[inner]).all()


def test_lengths_from_each_other_are_refused() -> None:
    made = {name: {"name": name, "type": "integer", **LAW, "dpgen:length": {"from": base, "type": "integer", **LAW}}
            for name, base in (("a", "b"), ("b", "a"))}  # fmt: skip
    with pytest.raises(ValueError, match="lengths from each other"):
        dpgen.schema.Schema.from_descriptor({"fields": [*made.values()]})
    with pytest.raises(ValueError, match="length from is 'b'"):
        dpgen.schema.Schema.from_descriptor({"fields": [made["a"]]})


def test_a_dependency_says_which_values_go_together() -> None:
    fields = {
        "city": field_of({"name": "city", "type": "string", "constraints": {"enum": ["Rome", "Oslo", "other"]}}),
        "code": field_of({"name": "code", "type": "integer", "constraints": {"enum": [1, 2], "required": True}}),
    }
    rule = constraint_of({"follows": "code", "on": "city", "table": {"Rome": 1, "Oslo": None}})
    table = pd.DataFrame({"city": ["Rome", "Rome", "Oslo", "Oslo", "other", None], "code": [1, 2, 1, None, 2, 1]}).astype(
        {"code": "Int64"}
    )
    assert rule.holds(table).tolist() == [True, False, False, True, True, True]
    codes = {"city": np.array([0, 0, 1, 1, 2, 3]), "code": np.array([0, 1, 0, 2, 1, 0])}
    assert rule.possible(codes, fields).tolist() == rule.holds(table).tolist()
    one, other = rule.impossible(fields)
    assert (one.T @ other).astype(int).tolist() == [[0, 1, 1], [1, 1, 0], [0, 0, 0], [0, 0, 0]]


TRUTH = {"type": "boolean", "constraints": {"required": False}}
SMALL = {name: field_of({"name": name, **TRUTH}) for name in "abc"}
FEW = [
    {"one_of": ["a", "b", "c"]},
    {"one_of": ["a", "c"]},
    {"one_of": ["a", "b", "c"], "or_none": True},
    {"forbidden": {"a": True, "b": False}},
    {"missing": "a", "on": "b", "value": "True", "both": False},
    {"missing": "a", "on": "b", "value": None, "both": True},
    {"follows": "c", "on": "a", "table": {"True": "False", "False": None}},
    {"follows": "c", "on": ["a", "b"], "table": {"True": {"True": "False"}, "False": {"True": "True", "False": None}}},
    {"follows": "a", "on": ["c", "b"], "table": {"True": {"False": "False"}}},
]


@pytest.mark.parametrize("rule", FEW, ids=str)
def test_codes_that_a_rule_excludes_are_those_whose_values_break_it(rule: dict[str, object]) -> None:
    constraint, codes = constraint_of(rule), np.indices((3, 3, 3)).reshape(3, -1)
    table = pd.DataFrame({name: pd.array([[False, True, None][c] for c in own], "boolean") for name, own in zip("abc", codes)})
    holds = constraint.holds(table)
    assert 0 < holds.sum() < len(holds)
    assert (constraint.possible(dict(zip("abc", codes)), SMALL) == holds).all()
    factors = constraint.impossible(SMALL)
    own = [codes["abc".index(name)] for name in constraint.names]
    mass = np.prod([factor[:, c] for factor, c in zip(factors, own)], axis=0).sum(0)
    assert ((mass > 0) == ~holds).all()


def test_shares_and_units_are_products_with_a_constant() -> None:
    table = pd.DataFrame({"a": [30, 1, 2], "b": [40.0, 0.0, 3.0], "c": [75.0, 5.0, 66.6]})
    share = constraint_of({"product": ["a"], "over": ["b"], "times": 100, "total": "c", "places": 1})
    assert share.compute(table).fillna(-1).tolist() == [75.0, -1, 66.7]
    assert share.holds(table).tolist() == [True, False, True]
    warm = constraint_of({"product": ["a"], "times": 1.8, "plus": 32, "total": "c", "places": 1})
    assert warm.compute(table).tolist() == [86.0, 33.8, 35.6]
    with pytest.raises(ValueError, match="constraint has the keys"):
        constraint_of({"product": ["a"], "over": ["b"], "time": 100, "total": "c", "places": 1})


def test_a_product_is_rounded_and_missing_where_a_part_is() -> None:
    rule = constraint_of({"product": ["a", "b"], "total": "c", "places": 2})
    table = pd.DataFrame({"a": [2, 3, None], "b": [1.115, 1.0, 2.0], "c": [2.23, 3.5, None]})
    assert rule.holds(table).tolist() == [True, False, True]
    assert rule.compute(table).fillna(-1).tolist() == [2.23, 3.0, -1]
