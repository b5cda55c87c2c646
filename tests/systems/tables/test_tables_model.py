"""Released models of tables: density, marginals, conditional and matched rows, imputation, files."""

from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from test_tables_fit import SCHEMA, SMALL, people, released

import dpgen
from dpgen.cli.sample import main
from dpgen.systems.tables.marginals import Coarsening
from dpgen.systems.tables.mixture import Mixture, iid_rows, matched_rows
from dpgen.systems.tables.model import TablesModel
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
