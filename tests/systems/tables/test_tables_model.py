"""Released models of tables: density, marginals, conditional and matched rows, gaps, intervals, files."""

from copy import copy
from dataclasses import replace
from datetime import date
from io import StringIO
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from test_tables_fit import FIELDS, SCHEMA, SMALL, people, released

import dpgen
from dpgen.cli.sample import main
from dpgen.release import Draws, read_model
from dpgen.schema import Schema
from dpgen.systems.tables import model as module
from dpgen.systems.tables.marginals import Coarsening
from dpgen.systems.tables.mixture import Mixture, iid_rows, matched_rows, put
from dpgen.systems.tables.model import TablesModel, intervals
from dpgen.systems.tables.plan import TablesConfig

SIZES = SCHEMA.domain.sizes
CELLS = torch.tensor(list(product(*(range(size) for size in SIZES))))


@pytest.fixture(scope="module", params=[SMALL, TablesConfig()], ids=["mixture", "table"])
def model(request: pytest.FixtureRequest) -> TablesModel:
    return released(people(4000), request.param, epsilon=4.0)


def test_the_density_sums_to_one_and_agrees_with_marginals(model: TablesModel) -> None:
    p = model.log_prob(CELLS).exp()
    assert float(p.sum()) == pytest.approx(1.0, abs=1e-5)
    table = p.reshape(SIZES).numpy()
    np.testing.assert_allclose(model.marginal(["age", "rich"]), table.sum((1, 2)), atol=1e-6)
    np.testing.assert_allclose(model.marginal(["rich", "age"]), table.sum((1, 2)).T, atol=1e-6)
    np.testing.assert_allclose(model.marginal(["job"]), table.sum((0, 2, 3)), atol=1e-6)


def shares(table: pd.DataFrame, name: str) -> pd.Series:
    return table[name].astype(str).value_counts(normalize=True)


def test_rows_given_values_are_those_of_rejection(model: TablesModel) -> None:
    given = model.samples(20_000, random_state=1, given={"home": "flat", "job": ["farm", None]}).values
    free = model.samples(120_000, random_state=2).values
    kept = free[(free["home"] == "flat") & (free["job"].isna() | (free["job"] == "farm"))]
    assert set(given["home"]) == {"flat"}
    assert (shares(given, "job") - shares(kept, "job")).abs().max() < 0.02
    assert (shares(given, "age").reindex(shares(kept, "age").index).fillna(0) - shares(kept, "age")).abs().max() < 0.015
    assert abs(given["rich"].mean() - kept["rich"].mean()) < 0.02


def test_given_numbers_come_back_as_they_are(model: TablesModel) -> None:
    assert set(model.samples(10, random_state=0, given={"age": 7}).values["age"]) == {7}
    assert model.samples(10, random_state=0, given={"job": None}).values["job"].isna().all()


def test_a_range_is_the_law_of_rows_inside_of_it(model: TablesModel) -> None:
    given = model.samples(20_000, random_state=1, given={"age": {"minimum": 3, "maximum": 7}, "home": "flat"}).values
    kept = model.samples(60_000, random_state=2, given={"home": "flat"}).values
    kept = kept[kept["age"].between(3, 7)]
    assert given["age"].between(3, 7).all()
    assert (shares(given, "age") - shares(kept, "age")).abs().max() < 0.02
    assert (shares(given, "job") - shares(kept, "job")).abs().max() < 0.02


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hom": "flat"}, "column is 'hom'; choose from age, job, home, rich"),
        ({"home": "boat"}, "given home is 'boat'; it is not in the schema"),
        ({"home": None}, "given home is missing; the schema requires a value"),
        ({"age": {"minimum": 1000}}, "given age"),
        ({"age": {"above": 3}}, "given age"),
        ({"age": {"minimum": "x"}}, "given age"),
        ({"home": {"minimum": 3}}, "'home'"),
        ({"job": []}, "given job"),
        ("best", "rows is 'best'; choose one of iid, matched"),
    ],
)
def test_values_outside_of_the_schema_are_refused(model: TablesModel, given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.samples(3, **({"rows": given} if given == "best" else {"given": given}))


def test_matched_rows_are_nearer_to_the_model_than_independent_ones(model: TablesModel) -> None:
    expected = model.marginal(["age", "job", "rich"]).ravel()

    def gap(rows: str) -> float:
        codes = SCHEMA.encode(model.samples(1000, random_state=3, rows=rows).values).numpy()  # type: ignore[arg-type]
        cells = np.ravel_multi_index(codes[:, [0, 1, 3]].T, [SIZES[c] for c in (0, 1, 3)])
        return float(np.abs(np.bincount(cells, minlength=len(expected)) / 1000 - expected).sum())

    assert gap("matched") < 0.6 * gap("iid")


@pytest.mark.parametrize("rows", ["iid", "matched"])
def test_no_rows_and_one_row(model: TablesModel, rows: str) -> None:
    for n in (0, 1):
        table = model.samples(n, random_state=0, rows=rows).values  # type: ignore[arg-type]
        assert (len(table), list(table.columns)) == (n, list(SCHEMA.domain.names))


def test_gaps_are_filled_by_the_law_of_the_rest(model: TablesModel) -> None:
    table = pd.DataFrame({"age": [3] * 4000, "job": [None] * 4000, "home": ["flat", None] * 2000, "rich": [False] * 4000})
    filled = model.impute(table, random_state=0)
    assert not filled.isna().any().any()
    assert table["job"].isna().all()
    assert (filled["home"][::2] == "flat").all()
    given = model.samples(4000, random_state=1, given={"age": 3, "rich": False, "job": ["none", "farm", "town"]}).values
    assert (shares(filled, "job") - shares(given, "job")).abs().max() < 0.05


def test_filled_values_are_written_as_those_of_the_data() -> None:
    """Dates, money and truths in texts of their own; a column of nothing but gaps; whole numbers stay whole."""
    rng, n = np.random.default_rng(0), 1500
    frame = pd.DataFrame(
        {"when": pd.date_range("2020-01-01", periods=n).strftime("%d.%m.%Y"), "paid": rng.choice(["yes", "no"], n)}
    )
    frame = frame.assign(cost=[f"${value:.2f}" for value in rng.lognormal(3, 1, n)], visits=rng.integers(0, 9, n))
    release = dpgen.fit(frame, "tables", epsilon=20.0, rounds=2, picks=4, dtypes="public")
    for gaps in (frame.head(40).mask(np.arange(40)[:, None] % 4 == np.arange(4)), frame.head(5).assign(**dict.fromkeys(frame))):
        filled = release.impute(gaps, random_state=0)
        assert filled["when"].str.fullmatch(r"\d\d\.\d\d\.\d{4}").all()
        assert filled["cost"].str.fullmatch(r"\$\d+\.\d\d").all()
        assert set(filled["paid"]) <= {"yes", "no"}
        assert (filled["visits"] % 1 == 0).all()
    assert filled["visits"].dtype == frame["visits"].dtype


def test_what_has_gaps_to_fill_is_a_frame(model: TablesModel) -> None:
    with pytest.raises(TypeError, match="table is a dict; it must be a DataFrame of pandas"):
        model.impute({"age": [None]})  # type: ignore[arg-type]
    twice = pd.DataFrame([[3, 3, "farm", "flat", None]], columns=["age", "age", "job", "home", "rich"])
    with pytest.raises(ValueError, match="table has several columns called 'age'"):
        model.impute(twice)


def test_that_a_value_is_there_tells_of_the_rest() -> None:
    data, rng = people(3000), np.random.default_rng(1)
    rich = torch.from_numpy(rng.integers(0, 2, 3000))
    data.codes[:, 3], data.codes[:, 1] = (
        rich,
        torch.where(rich == 1, 2, 3 - 2 * torch.from_numpy(rng.random(3000) < 0.1).long()),
    )
    model = released(data, epsilon=4.0)
    table = pd.DataFrame({"age": [3] * 1000, "job": None, "home": "flat", "rich": None})
    assert model.impute(table, random_state=0)["rich"].mean() > 0.75  # of those who have a job


def test_released_measurements_say_what_they_measured(model: TablesModel) -> None:
    for m in model.measured():
        assert m["counts"].shape == tuple(group.max() + 1 for group in m["groups"])
        assert [len(group) for group in m["groups"]] == [SIZES[SCHEMA.domain.names.index(name)] for name in m["columns"]]
    codes = people(4000).codes.numpy()
    scores = []
    for m in model.measured():
        columns = [SCHEMA.domain.names.index(name) for name in m["columns"]]
        cells = np.ravel_multi_index([g[codes[:, c]] for g, c in zip(m["groups"], columns)], m["counts"].shape)
        exact = np.bincount(cells, minlength=m["counts"].size).reshape(m["counts"].shape)
        scores.append(((m["counts"] - exact) / m["noise_std"]).ravel())
    assert np.concatenate(scores).std() == pytest.approx(1.0, abs=0.15)


MIXTURE = Mixture(
    np.array([[0.9, 0.1], [0.1, 0.9], [0.2, 0.7], [0.3, 0.3], [0.5, 0.0]], np.float32), np.array([0.3, 0.7], np.float32), (2, 3)
)


def test_rows_of_a_mixture_follow_it() -> None:
    expected = MIXTURE.marginal([0, 1])
    assert expected[0, 2] == pytest.approx(0.3 * 0.9 * 0.5)
    for draw, most in ((iid_rows, 0.02), (matched_rows, 0.002)):
        rows = draw(MIXTURE, 10_000, np.random.default_rng(0))
        counts = np.bincount(rows[:, 0] * 3 + rows[:, 1], minlength=6).reshape(2, 3)
        assert np.abs(counts / 10_000 - expected).max() < most


def test_coarse_expectations_are_sums_of_the_joint_law() -> None:
    from dpgen.systems.tables.marginals import Marginal

    level = Coarsening((np.array([0, 1]), np.array([0, 0, 1])), (2, 2))
    found = MIXTURE.expected([Marginal((0, 1), 0)], [level]).reshape(2, 2)
    joint = MIXTURE.marginal([0, 1])
    np.testing.assert_allclose(found, np.stack([joint[:, :2].sum(1), joint[:, 2]], 1), rtol=1e-5)


def test_the_command_line_draws_given_values(model: TablesModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.save(tmp_path / "model")
    options = [str(tmp_path / "model"), "--n=30", f"--out={tmp_path / 'rows.csv'}"]
    assert "30 records" in str(main([*options, '--given={"home": "flat", "job": ["farm", "town"]}', "--rows=matched"]))
    table = pd.read_csv(tmp_path / "rows.csv")
    assert set(table["home"]) == {"flat"}
    assert set(table["job"]) <= {"farm", "town"}
    assert main([*options[:2], "--out=-", '--given={"age": {"maximum": 2}}']) == 0
    printed, said = capsys.readouterr()
    assert pd.read_csv(StringIO(printed))["age"].max() <= 2
    assert "30 records" in said
    with pytest.raises(ValueError, match=r"clusters is \[1\]; .* holds a tables model, which has none"):
        main([*options, "--clusters=1"])


# -- filled values in a column -----------------------------------------------------------------------------------------


DAYS = pd.Series(pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"]))
TIMES = DAYS + pd.Timedelta(hours=9)


def filled(before: pd.Series, drawn: pd.Series) -> pd.Series:
    """A column with its last value filled."""
    assert before.isna().tolist() == [False, False, True]
    return put(before.to_frame("x"), drawn.to_frame("x"), None)["x"]


@pytest.mark.parametrize(
    ("before", "drawn", "wanted"),
    [
        (pd.Series(["2020-05-01", "2020-05-02", None], dtype=object), DAYS, "2020-01-03"),
        (pd.Series(["2020-05-01", "2020-05-02", None], dtype="string"), DAYS, "2020-01-03"),
        (pd.Series(["2020-05-01T08:00:00", "2020-05-02", None]), TIMES, "2020-01-03T09:00:00"),
        (pd.Series(["2020-05-01 08:00", "2020-05-02 07:00", None]), TIMES, "2020-01-03 09:00:00"),
        (pd.Series(["2020-05-01T08:00+02:00", "2020-05-02T08:00+02:00", None]), TIMES, "2020-01-03T09:00:00Z"),
        (pd.Series(["2020-05-01T08:00Z", "2020-05-02T08:00Z", None]), TIMES, "2020-01-03T09:00:00Z"),
        (pd.Series([date(2020, 5, 1), date(2020, 5, 2), None], dtype=object), DAYS, date(2020, 1, 3)),
        (pd.Series(["TRUE", "FALSE", None], dtype=object), pd.Series([True, True, True]), "TRUE"),
        (pd.Series(["1", "2", None], dtype=object), pd.Series([1, 2, 3]), "3"),
        (pd.Series([1.0, 2.0, np.nan]), pd.Series([1, 2, 3], dtype="Int64"), 3.0),
        (DAYS.dt.tz_localize("Europe/Berlin").where([True, True, False]), TIMES, pd.Timestamp("2020-01-03T09:00Z")),
    ],
)
def test_filled_values_are_as_those_of_the_column(before: pd.Series, drawn: pd.Series, wanted: Any) -> None:
    found = filled(before, drawn)
    assert found.dtype == before.dtype
    assert found.iloc[2] == wanted
    assert isinstance(found.iloc[2], type(wanted))
    assert found.iloc[:2].equals(before.iloc[:2])


@pytest.mark.parametrize("ordered", [False, True])
def test_categories_of_a_table_are_kept_and_others_follow(ordered: bool) -> None:
    before = pd.Series(pd.Categorical(["b", "a", None], categories=["b", "a", "never"], ordered=ordered))
    for drawn, more in (("a", []), ("z", ["z"])):
        own = filled(before, pd.Series(["a", "b", drawn], dtype="category"))
        assert list(own.cat.categories) == ["b", "a", "never", *more]
        assert own.cat.ordered == ordered
        assert own.tolist() == ["b", "a", drawn]


def test_categorical_rows_of_people_are_filled() -> None:
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(200), 2)
    ward = pd.Categorical(rng.choice(["a", "b"], 400), categories=["c", "b", "a"])
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 300, 400), unit="D")
    rows = pd.DataFrame({"who": who, "at": day, "ward": ward, "x": rng.integers(0, 3, 400)})
    options: dict[str, Any] = {"person": "who", "order": "at", "max_rows": 2, "rounds": 1, "classes": 4, "steps": 20}
    release = dpgen.fit(rows, epsilon=10.0, **options)
    gaps = rows.assign(ward=rows["ward"].where(rng.random(400) > 0.3))
    found = release.impute(gaps, random_state=0)
    assert found["ward"].notna().all()
    assert list(found["ward"].cat.categories)[:3] == ["c", "b", "a"]
    there = gaps["ward"].notna()
    assert (found["ward"].astype(object)[there] == gaps["ward"].astype(object)[there]).all()


def test_values_that_a_bought_domain_does_not_hold_stay_and_stop_nothing() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(0, 1, 800).round(2).astype(object), "b": rng.choice(["x", "y"], 800)}, dtype=object)
    table.at[6, "a"], table.at[8, "a"] = "n/a", [1]
    release = dpgen.fit(table, epsilon=20.0, rounds=1)
    gaps = table.assign(b=table["b"].where(rng.random(800) > 0.3))
    gaps.at[9, "a"] = None
    found = release.impute(gaps, random_state=0)
    assert found["b"].notna().all()
    assert (found.at[6, "a"], found.at[8, "a"]) == ("n/a", [1])
    assert isinstance(found.at[9, "a"], float)


def test_values_that_a_stated_domain_does_not_hold_are_refused() -> None:
    fields = [{"name": "a", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}}]
    release = dpgen.fit(pd.DataFrame({"a": [1, 2] * 100}), epsilon=1.0, schema={"fields": fields})
    with pytest.raises(ValueError, match="column 'a' breaks a rule"):
        release.impute(pd.DataFrame({"a": [None, 11]}, dtype=object))


# -- intervals ---------------------------------------------------------------------------------------------------------


ONE = Schema.from_descriptor({"fields": FIELDS[3:]})


def share(rows: pd.DataFrame) -> float:
    return float(rows["rich"].mean())


@pytest.mark.parametrize(("n", "epsilon"), [(4000, 10.0), (150, 0.1)])
def test_the_standard_error_is_that_of_sampling_and_noise(n: int, epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STEPS", 300)
    model = released(SimpleNamespace(codes=torch.arange(n)[:, None] % 2, schema=ONE), epsilon=epsilon)
    found = intervals(model, share, replicates=40, random_state=0).iloc[0]
    measured = [m for m in model.measured() if m["columns"] == ["rich"]]
    noise = float(np.sum([m["noise_std"].flat[0] ** -2.0 for m in measured])) ** -0.5
    expected = (0.25 / n + noise**2 / (2 * n**2)) ** 0.5
    assert 0.6 * expected < found["std"] < 1.5 * expected  # 40 replicates: within 5 of its standard errors
    assert found["lower"] < 0.5 < found["upper"]
    assert found["upper"] - found["lower"] == pytest.approx(2 * 2.0227 * found["std"] * (41 / 40) ** 0.5, rel=1e-3)


def test_a_fit_that_is_held_back_is_corrected() -> None:
    def tied(rows: pd.DataFrame) -> pd.Series:
        return rows.groupby("home", observed=True)["rich"].mean()

    data = people(1000)
    model = released(data, epsilon=0.5)
    found = intervals(model, tied, level=0.99, replicates=5, random_state=0)
    rows = pd.DataFrame({"home": np.array(["flat", "house"])[data.codes[:, 2]], "rich": data.codes[:, 3].numpy()})
    truth = tied(rows)
    assert list(found.index) == ["flat", "house"]
    assert ((found["lower"] < truth) & (truth < found["upper"])).all()
    corrected, plain = found["estimate"], tied(model.samples(20_000, random_state=0).values)
    assert (corrected - truth).abs().max() < min(0.04, (plain - truth).abs().max())
    assert plain["house"] - plain["flat"] < corrected["house"] - corrected["flat"]


def test_a_column_in_a_writing_of_its_own_has_intervals() -> None:
    """Truths in words, money and dates of a format are fitted again as they were."""
    rng, n = np.random.default_rng(0), 2000
    yes, cost = rng.random(n) < 0.3, rng.lognormal(3, 0.5, n)
    when = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 300, n), "D")
    frame = pd.DataFrame({"flag": np.where(yes, "yes", "no"), "cost": [f"${value:.2f}" for value in cost]})
    release = dpgen.fit(frame.assign(when=when.strftime("%d.%m.%Y")), "tables", epsilon=20.0, rounds=2, picks=3)

    def statistic(rows: pd.DataFrame) -> dict[str, float]:
        days = (rows["when"] - pd.Timestamp("2020-01-01")).dt.days
        return {"flag": rows["flag"].mean(), "cost": rows["cost"].mean(), "days": days.mean()}

    found = intervals(release, statistic, replicates=4, random_state=0)
    truth = pd.Series(
        {"flag": yes.mean(), "cost": cost.mean(), "days": (when - pd.Timestamp("2020-01-01")).days.to_numpy().mean()}
    )
    assert ((found["estimate"] - truth).abs() < [0.03, 1.5, 8.0]).all()


@pytest.fixture(scope="module")
def small() -> TablesModel:
    return released(people(300), SMALL, epsilon=1.0)


def test_a_saved_release_gives_the_same_intervals(small: TablesModel, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STEPS", 20)
    small.save(tmp_path)
    one, two = (
        dpgen.intervals(m, lambda rows: {"rich": share(rows), "age": rows["age"].mean()}, replicates=2, random_state=3)
        for m in (small, read_model(tmp_path))
    )
    pd.testing.assert_frame_equal(one, two)
    assert list(one.columns) == ["estimate", "lower", "upper", "std"]
    assert list(one.index) == ["rich", "age"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"level": 1.0}, r"level is 1.0; it must lie in \(0, 1\)"),
        ({"replicates": 1}, "replicates is 1; it must be a whole number in"),
        ({"statistic": lambda rows: {str(rows["age"].mean()): 1}}, "on some synthetic rows only; it must give the same names"),
        ({"statistic": lambda rows: float("nan")}, "statistic is nan on synthetic rows; it must be finite"),
    ],
)
def test_arguments_out_of_their_range_are_refused(small: TablesModel, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        intervals(small, **({"statistic": share, "replicates": 2} | given))


def test_rows_of_one_person_are_not_independent(small: TablesModel) -> None:
    people_of_five = copy(small)
    people_of_five.statement = replace(small.statement, unit="one person (id) with at most 5 rows")
    with pytest.raises(ValueError, match=r"protects one person .* rows; intervals need rows that are independent"):
        intervals(people_of_five, share)


def test_another_release_has_none() -> None:
    with pytest.raises(TypeError, match="release is a Draws; it must be one of --model tables"):
        intervals(Draws(pd.DataFrame(), statement=None), share)  # type: ignore[arg-type]
