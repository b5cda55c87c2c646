"""What statements say of a table is true of it, as far as released counts can know."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpgen
from dpgen.facts import Fact, Said, columns_of

N = 3000
SLACK = 3.0  # of "up to about": noise that hides more than three times as much has nine standard deviations
ANY = 7.0  # standard deviations that a share said may be off


def frames() -> dict[str, pd.DataFrame]:
    """Tables whose columns have gaps, tails, single values, rare categories, free texts, keys."""
    rng = np.random.default_rng(0)
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 180, N), unit="D")
    texts = [" ".join(rng.choice(list("abcdefgh"), 9)) for _ in range(N)]
    return {
        "tails": pd.DataFrame({"p": rng.pareto(1.5, N), "ln": rng.lognormal(1, 2, N), "u": rng.integers(0, 200, N)}),
        "gaps": pd.DataFrame({name: pd.Series(rng.normal(size=N)).mask(rng.random(N) < s) for name, s in GAPS.items()}),
        "dates": pd.DataFrame({"d": day, "n": rng.normal(size=N), "one": 7, "t": "x"}),
        "claims": pd.DataFrame({"c": np.where(rng.random(N) < 0.9, 0, rng.lognormal(7, 1, N).round(2)), "n": 1.5}),
        "texts": pd.DataFrame({"c": rng.choice(["a", "b", "rare"], N, p=[0.6, 0.399, 0.001]), "free": texts, "k": range(N)}),
        "keys": pd.DataFrame({"id": [f"C{i:05d}" for i in range(N)], "c": rng.integers(0, 5, N)}),
        "few": pd.DataFrame({"x": [1.0, 2.0, 3.0], "c": list("xyz")}),
    }


GAPS = {"none": 0.0, "few": 0.004, "some": 0.2}


def require_true(frame: pd.DataFrame, rows: pd.DataFrame, ranges: Mapping[str, Any], facts: Sequence[Said]) -> None:
    """Every fact of a column against the rows that were fitted and those that were drawn; `ranges` are of drawn numbers."""
    unseen, named = columns_of(facts, Fact.UNSEEN), [dict(one.values) | {"fact": one.fact} for one in facts]
    assert {*frame} - {*rows} == {*columns_of(facts, Fact.LEFT_OUT)}
    single = {name for name in rows if rows[name].nunique() == 1}
    assert single - {*unseen} == {*columns_of(facts, Fact.CONSTANT)}
    for name in {*columns_of(facts, Fact.VERBATIM)} - {*columns_of(facts, Fact.DRAWN_CODES)}:
        if not pd.api.types.is_numeric_dtype(frame[name]):
            assert {*rows[name].dropna()} <= {*frame[name], "other"}
    for name in columns_of(facts, Fact.UNREPEATED_KEYS):
        [told] = [one for one in named if one["fact"] is Fact.UNREPEATED_KEYS]
        assert frame[name].duplicated().mean() <= float(told["share"]) / 100
    for name in (*columns_of(facts, Fact.GENERATED_KEYS), *columns_of(facts, Fact.UNREPEATED_KEYS)):
        assert rows[name].is_unique
    for one in named:
        for name in one["columns"] if one["fact"] in (Fact.HIDDEN_GAPS, Fact.HIDDEN_ENDS) else ():
            share = [frame[name].isna().mean()]
            if one["fact"] is Fact.HIDDEN_ENDS:
                values, (low, high) = frame[name].dropna(), ranges[name]
                share = [(values < low).mean(), (values > high).mean()]
                moved = {told["where"] for told in named if told["fact"] is Fact.MOVED and told["column"] == name}
                share = [s for where, s in zip(("below", "above"), share) if where not in moved]
            assert 100 * max(share, default=0.0) <= SLACK * float(one["share"]), name
        if one["fact"] is Fact.MOVED:
            values, bound = frame[one["column"]].dropna(), pd.Series([one["bound"]]).astype(frame[one["column"]].dtype)[0]
            there = 100 * float((values < bound if one["where"] == "below" else values > bound).mean())
            assert abs(there - float(one["share"])) <= ANY * float(one["std"]) + 0.1, one


def drawn(frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, Any], tuple[Said, ...]]:
    """Rows of a fit of columns one by one, ranges of its numbers, and its facts."""
    release: Any = dpgen.fit(frame, "tables", epsilon=1.0, method="independent")
    rules = {given["name"]: given.get("constraints", {}) for given in release.schema.descriptor()["fields"]}
    ends = {name: pd.Series([own["minimum"], own["maximum"]]) for name, own in rules.items() if "minimum" in own}
    ranges = {name: tuple(pair.astype(frame[name].dtype)) for name, pair in ends.items()}
    return release.sample(N, random_state=0), ranges, release.statement.facts


@pytest.mark.parametrize("name", frames())
def test_what_is_said_of_a_table_is_true(name: str) -> None:
    frame = frames()[name]
    require_true(frame, *drawn(frame))


@pytest.mark.parametrize(
    "false",
    [
        Fact.MOVED(share="2.0", std="0.2", column="d", where="above", bound="2024-07-04"),
        Fact.MOVED(share="90", std="5.0", column="n", where="below", bound="0"),
        Fact.CONSTANT(columns=("n",)),
        Fact.LEFT_OUT(columns=("d",)),
        Fact.GENERATED_KEYS(columns=("t",)),
        Fact.UNREPEATED_KEYS(columns=("t",), share="5.0"),
        Fact.HIDDEN_ENDS(columns=("n",), share="0.1"),
        Fact.VERBATIM(columns=("t",)),
    ],
    ids=lambda said: said.fact.name,
)
def test_a_false_sentence_is_found(false: Said) -> None:
    """Of rows that are as they were, but for a text that nobody has."""
    frame = frames()["dates"]
    rows, ranges = frame.assign(t="y") if false.fact is Fact.VERBATIM else frame, {"n": (-0.5, 0.5)}
    constant = Fact.CONSTANT(columns=("one", "t"))
    require_true(frame, rows, ranges, (constant,))
    with pytest.raises(AssertionError):
        require_true(frame, rows, ranges, (constant, false))
