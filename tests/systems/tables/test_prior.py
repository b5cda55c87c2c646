"""A public prior: right ones help, wrong ones do not hurt, and it costs and leaks nothing."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from refusals import refused
from test_tables_fit import SCHEMA, SMALL, people, released, variation

import dpgen
from dpgen.cli.main import main
from dpgen.data import Table
from dpgen.facts import Fact
from dpgen.privacy.shared_budget import SharedBudget
from dpgen.schema import Schema
from dpgen.systems.registry import load
from dpgen.systems.tables.model import TablesModel
from dpgen.systems.tables.prior import Coded, Prior

PAIRS = (("age", "job"), ("job", "home"), ("home", "rich"), ("age", "rich"))
N = 20_000
FEW = replace(SMALL, components=8, rounds=2, picks=4)
GIVEN = replace(FEW, prior="given")  # whose rows are read already
WHOLE = {"components": None, "picks": None}  # a table of few cells


def rows(codes: Any) -> pd.DataFrame:
    return SCHEMA.decode(codes, torch.Generator().manual_seed(0))


def data(prior: pd.DataFrame | None) -> Table:
    given = people(N)
    return Table(name="people", codes=given.codes, schema=SCHEMA, test_codes=given.codes[:0], prior=prior)


def priors() -> dict[str, pd.DataFrame]:
    """Rows of the same law, with other values in their places, and of a third of the people."""
    same = people(2 * N, seed=1).codes
    rng = np.random.default_rng(2)
    moved = torch.stack([torch.from_numpy(rng.permutation(size))[own] for own, size in zip(same.T, SCHEMA.domain.sizes)], 1)
    found = {"right": same, "moved": moved, "others": same[same[:, 0] < 7]}
    return {name: rows(codes) for name, codes in found.items()}


PRIORS = priors()
FRAME = PRIORS["right"][:5000]


@cache
def error(name: str, epsilon: float, **options: Any) -> float:
    """Mean total variation of pairs, of three fits with the same noise for every prior."""
    given = None if name == "none" else PRIORS[name]
    config = replace(FEW if given is None else GIVEN, **options)
    found = [released(data(given), config, noise=noise, epsilon=epsilon) for noise in range(3)]
    return float(np.mean([variation(model, data(None), *pair) for model in found for pair in PAIRS]))


CASES = pytest.mark.parametrize(("epsilon", "options"), [(0.03, {}), (0.3, WHOLE)], ids=["mixture", "whole"])


@CASES
def test_a_right_prior_helps(epsilon: float, options: Any) -> None:
    assert error("right", epsilon, **options) < 0.75 * error("none", epsilon, **options)


@CASES
@pytest.mark.parametrize("name", ["moved", "others"])
def test_a_wrong_prior_does_not_hurt(epsilon: float, options: Any, name: str) -> None:
    assert error(name, epsilon, **options) < 1.05 * error("none", epsilon, **options)


def test_it_is_said_kept_and_free(tmp_path: Path) -> None:
    plain, model = (released(data(given), config, epsilon=1.0) for given, config in ((None, FEW), (PRIORS["right"], GIVEN)))
    assert model.statement.epsilon == plain.statement.epsilon
    assert model.statement.mechanisms == plain.statement.mechanisms
    told = tiny.told(model.statement)
    assert told[Fact.PRIOR]["prior"] == "40,000 rows of a table"
    assert {Fact.PRIOR, Fact.PUBLIC_PRIOR}.isdisjoint(tiny.told(plain.statement))
    assert Fact.PUBLIC_PRIOR in told
    model.save(tmp_path / "model")
    assert tiny.told(dpgen.load(tmp_path / "model").statement)[Fact.PRIOR] == told[Fact.PRIOR]


def test_a_release_is_a_prior_and_its_price_counts(tmp_path: Path) -> None:
    frame, options = rows(people(2000).codes), {"schema": SCHEMA.descriptor(), "rounds": 4, "picks": 8, "components": 16}
    first: Any = dpgen.fit(frame, "tables", epsilon=1.0, delta=1e-6, **options)
    first.save(tmp_path / "first")
    with refused("epsilon", "release_origin"):
        dpgen.fit(frame, "tables", epsilon=0.5, prior=tmp_path / "first", **options)
    second: Any = dpgen.fit(frame, "tables", epsilon=3.0, prior=tmp_path / "first", **options)
    assert 1.0 < second.statement.epsilon <= 3.0
    assert any("built on" in line["note"] for line in second.statement.mechanisms)
    free = dpgen.fit(frame, "tables", epsilon=1.0, prior=tmp_path / "first", release_origin="public", **options)
    assert tiny.told(free.statement)[Fact.PRIOR]["prior"] == f"a release of {first.size:,} records"
    assert Fact.READ_RELEASE in tiny.told(free.statement)
    assert Fact.PUBLIC_PRIOR not in tiny.told(free.statement)


def test_nights_of_one_budget_pay_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    FRAME[:2000].to_parquet(tmp_path / "visits.parquet")
    SharedBudget.create(tmp_path / "b", dpgen.Budget(10.0, 1e-5), runs=10)
    train = ["train", str(tmp_path / "visits.parquet"), f"--ledger={tmp_path / 'b'}", "--evaluation=none", "--quiet"]
    small = ["--rounds=2", "--picks=2", "--components=4", "--rules=off"]
    for night, more in (("monday", []), ("tuesday", [f"--prior={tmp_path / 'monday'}"])):
        assert main([*train, *small, f"--run_dir={tmp_path / night}", *more]) == 0
    one, both = (dpgen.load(tmp_path / night).statement.epsilon for night in ("monday", "tuesday"))
    assert 1.9 * one < both <= 2.0 * one
    capsys.readouterr()
    assert main(["budget", str(tmp_path / "b"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs_left"] == 8


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        (FRAME.drop(columns="home"), ("prior", "'home'")),
        (FRAME.assign(age=pd.Timestamp("2020-01-01")), ("'age'", "prior", "integer")),
        (FRAME.assign(job="baker"), ("'job'", "prior")),
        (FRAME[:0], ("prior", "no rows")),
        ("absent.csv", ("prior", "absent.csv")),
        (np.eye(3), ("array",)),
    ],
)
def test_another_table_is_refused(prior: Any, words: tuple[str, ...]) -> None:
    with refused(*words):
        dpgen.fit(rows(people(100).codes), "tables", epsilon=1.0, schema=SCHEMA.descriptor(), prior=prior)


def test_another_release_is_refused(tmp_path: Path) -> None:
    bits = pd.DataFrame(np.eye(4, dtype=bool).repeat(20, axis=0), columns=list("abcd"))
    dpgen.fit(bits, "gaussian", epsilon=1.0).save(tmp_path / "bits")
    dpgen.fit(bits, "tables", epsilon=1.0, dtypes="public").save(tmp_path / "table")
    options: Any = {"schema": SCHEMA.descriptor(), "release_origin": "public", "epsilon": 1.0}
    for name, words in (("bits", ("prior", "tables")), ("table", ("prior", "'a'"))):
        with refused(*words):
            dpgen.fit(FRAME, "tables", prior=tmp_path / name, **options)
    with refused("prior", "save"):
        dpgen.fit(FRAME, "tables", prior=dpgen.load(tmp_path / "table"), **options)


def test_a_prior_of_other_types_than_were_bought_is_not_used() -> None:
    frame = FRAME.astype({"age": float})
    release: Any = dpgen.fit(frame, epsilon=3.0, rounds=2, picks=4, components=8, prior=frame.assign(age="old"))
    assert isinstance(release, TablesModel)
    assert release.sample(2000, random_state=0)["age"].between(0, 20).mean() > 0.95


def test_columns_in_a_writing_of_their_own_are_those_of_an_earlier_release(tmp_path: Path) -> None:
    """Truths in words, money and dates of a format, and words that are truths in one of both: the prior has their shares."""
    rng, n = np.random.default_rng(0), 4000
    yes, days = rng.random(n) < 0.3, rng.integers(0, 200, n)
    when = (pd.Timestamp("2020-01-01") + pd.to_timedelta(days, "D")).strftime("%d.%m.%Y")
    frame = pd.DataFrame({"flag": np.where(yes, "yes", "no"), "when": when, "paid": [f"${d / 2 + 1:.2f}" for d in days]})
    earlier: Any = dpgen.fit(frame, "tables", epsilon=20.0, rounds=1, picks=1, components=4, rules="off")
    earlier.save(tmp_path / "earlier")
    assert earlier.schema.by_name["flag"].type == "boolean"
    later: Any = dpgen.fit(frame, "tables", epsilon=20.0, rounds=1, picks=1, components=4, rules="off")
    enum = {"fields": [{"name": "flag", "type": "string", "constraints": {"enum": ["no", "yes"], "required": True}}]}
    words = Schema.from_descriptor(enum)
    prior = Prior("a release", float(n), model=load(tmp_path / "earlier"))
    found = Coded.of_model(prior, load(tmp_path / "earlier"), later.schema)
    assert found.mixture is not None
    for c, name in enumerate(later.schema.domain.names):
        law = later.marginal([name])
        assert 0.5 * np.abs(found.mixture.marginal([c]) - law).sum() < 0.15
    of_words = Coded.of_model(prior, load(tmp_path / "earlier"), words)
    assert of_words.mixture is not None
    assert of_words.mixture.marginal([0])[1] == pytest.approx(yes.mean(), abs=0.03)
