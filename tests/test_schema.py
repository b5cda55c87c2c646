"""Schemas of tables: domains, codes and back, constraints, refusals."""

import json
import string
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from dpgen.columns.descriptors import field_of
from dpgen.columns.fields import Violation
from dpgen.schema import Schema

VISITS: dict[str, Any] = {
    "fields": [
        {"name": "id", "type": "integer"},
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 99, "required": True}},
        {"name": "weight", "type": "number", "constraints": {"minimum": 0, "maximum": 200}, "dpgen:bins": {"log": 10}},
        {"name": "city", "type": "string", "constraints": {"enum": ["Rome", "Lyon"]}},
        {"name": "country", "type": "string"},
        {"name": "admitted", "type": "date", "constraints": {"minimum": "2020-01-01", "maximum": "2020-12-31"}},
        {"name": "left", "type": "date", "constraints": {"minimum": "2020-01-01", "maximum": "2021-12-31"}},
        {"name": "well", "type": "boolean"},
        {"name": "rent", "type": "integer", "constraints": {"minimum": 0, "maximum": 9, "required": True}},
        {"name": "food", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}},
        {"name": "spent", "type": "integer"},
        {"name": "gain", "type": "number", "dpgen:bins": [0, 0, 1, 10, 100]},
    ],
    "primaryKey": "id",
    "dpgen:target": "well",
    "dpgen:constraints": [
        {"forbidden": {"city": "Rome", "well": True}},
        {"forbidden": {"age": {"maximum": 10}, "well": None}},
        {"less_equal": ["admitted", "left"]},
        {"sum": ["rent", "food"], "total": "spent"},
        {"depends": "country", "on": "city", "table": {"Rome": "Italy", "Lyon": "France"}},
    ],
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def uniform_codes(schema: Schema, n: int, seed: int = 0) -> torch.Tensor:
    source = generator(seed)
    return torch.stack([torch.randint(size, (n,), generator=source) for size in schema.domain.sizes], 1)


def test_the_domain_is_what_the_schema_declares() -> None:
    domain = Schema.from_descriptor(VISITS).domain
    assert domain.names == ("age", "weight", "city", "admitted", "left", "well", "rent", "food", "gain")
    assert domain.sizes == (32, 12, 3, 33, 33, 3, 10, 11, 5)
    assert domain.missing == (None, 11, 2, 32, 32, 2, None, 10, 4)
    assert domain.ordered == (True, True, False, True, True, False, True, True, True)
    assert domain.target == 5


def test_a_schema_comes_back_from_its_descriptor_and_its_file(tmp_path: Path) -> None:
    schema = Schema.from_descriptor(VISITS)
    assert schema.descriptor() == json.loads(json.dumps(VISITS))
    (tmp_path / "schema.json").write_text(json.dumps(schema.descriptor()))
    assert Schema.from_descriptor(tmp_path / "schema.json") == schema


def test_constraints_hold_in_every_row_and_the_rows_satisfy_the_schema() -> None:
    schema = Schema.from_descriptor(VISITS)
    table = schema.rows(lambda n: uniform_codes(schema, n, n), 3000, generator())
    assert len(table) == 3000
    assert table["id"].tolist() == list(range(1, 3001))
    assert not ((table["city"] == "Rome") & table["well"].fillna(False)).any()
    assert (table["admitted"].isna() | table["left"].isna() | (table["admitted"] <= table["left"])).all()
    assert (table["spent"].isna() == table["food"].isna()).all()
    assert (table["country"].dropna() == table["city"].dropna().map({"Rome": "Italy", "Lyon": "France"})).all()
    assert bool(schema.admissible(schema.encode(table)).all())


def ramp(law: str | None, bins: object) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Numbers of density 2 x on [0, 1] beside those that their bins alone give back."""
    own = {"dpgen:bins": bins} | ({"dpgen:law": law} if law else {})
    schema = Schema.from_descriptor(column(type="number", constraints={"minimum": 0, "maximum": 1, "required": True}, **own))
    values = np.sqrt((np.arange(20_000) + 0.5) / 20_000)
    codes = schema.encode(pd.DataFrame({"x": values}))
    shares = np.bincount(codes[:, 0].numpy(), minlength=schema.domain.sizes[0]) / len(values)
    drawn = schema.rows(lambda n: codes, len(codes), generator(), [shares])
    assert torch.equal(schema.encode(drawn), codes)
    return values, np.sort(drawn["x"].to_numpy())


@pytest.mark.parametrize("bins", [{"equal": 5}, {"log": 12}, [0, 0.1, 0.5, 0.7, 1]])
def test_the_linear_law_follows_neighbouring_bins_and_keeps_their_shares(bins: object) -> None:
    far = {law: float(np.abs(np.subtract(*ramp(law, bins))).mean()) for law in ("linear", "uniform", None)}
    assert far["linear"] == far[None] < 0.75 * far["uniform"]


def test_a_linear_law_is_continuous_between_bins_and_at_least_zero() -> None:
    own: dict[str, Any] = {"constraints": {"minimum": 0, "maximum": 3, "required": True}, "dpgen:bins": {"equal": 3}}
    [field] = Schema.from_descriptor(column(type="number", **own)).modelled
    shares, even = np.array([0.1, 0.8, 0.1]), (np.arange(100_000) + 0.5) / 100_000
    places = [field.inside(np.full(100_000, code), even, shares) for code in range(3)]
    density = [share * np.histogram(place, 100, (0, 1))[0] / 1000 for share, place in zip(shares, places)]
    assert all((np.diff(place) >= 0).all() and place[0] >= 0 and place[-1] < 1 for place in places)
    for left, right in pairwise(density):
        assert (left[-1], right[0]) == pytest.approx((2 / (1 / 0.1 + 1 / 0.8),) * 2, rel=0.1)
    assert density[1][49] == pytest.approx(2 * 0.8 - 0.8 / 4.5, rel=0.05)


def test_codes_that_no_value_can_satisfy_are_not_admissible() -> None:
    schema = Schema.from_descriptor(VISITS)
    codes = uniform_codes(schema, 2000)
    table = schema.decode(codes, generator())
    possible, satisfied = schema.admissible(codes).numpy(), schema.satisfied(table)
    assert 0.2 < satisfied.mean() < possible.mean() < 1
    assert not (satisfied & ~possible).any()


def test_decoded_values_encode_to_their_codes() -> None:
    schema = Schema.from_descriptor(VISITS)
    codes = uniform_codes(schema, 5000)
    table = schema.decode(codes, generator())
    kept = schema.satisfied(table)
    assert torch.equal(schema.encode(table[kept].reset_index(drop=True)), codes[torch.from_numpy(kept)])


def test_decoded_values_have_codes_whatever_their_writing() -> None:
    """Truths in words, dates and times of a format, lengths: codes of samples read no text, codes of a file do."""
    fields: list[dict[str, Any]] = [
        {"name": "well", "type": "boolean", "trueValues": ["ja"], "falseValues": ["nein"]},
        {
            "name": "came",
            "type": "date",
            "format": "%d.%m.%Y",
            "constraints": {"minimum": "01.01.2020", "maximum": "31.12.2020"},
        },
        {"name": "left", "type": "date", "constraints": {"minimum": "2020-01-01", "maximum": "2021-12-31"}},
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}},
    ]
    schema = Schema.from_descriptor({"fields": fields, "dpgen:constraints": [{"less_equal": ["came", "left"]}]})
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(0, size, 500) for size in schema.domain.sizes], 1)
    values = schema.decode(torch.from_numpy(codes), torch.Generator().manual_seed(0))
    again = schema.codes_of_samples(values)
    present = values["came"].notna() & values["left"].notna()  # a length needs both
    assert (again == codes)[:, [0, 1, 3]].all()
    assert (again == codes)[present.to_numpy(), 2].all()
    assert np.array_equal(schema.codes_of_samples(values, ["left", "well"]), again[:, [2, 0]])
    with pytest.raises(ValueError, match="column 'well' breaks a rule"):
        schema.encode(values)
    with pytest.raises(ValueError, match="column 'age' breaks a rule of the schema: minimum is 0 and maximum is 9"):
        schema.codes_of_samples(values.assign(age=10), strict=True)


def test_types_do_not_depend_on_the_gaps_of_a_sample() -> None:
    schema = Schema.from_descriptor(VISITS)
    codes = uniform_codes(schema, 500)
    full = codes.minimum(torch.tensor(schema.domain.sizes) - 2).clamp_min(0)
    assert schema.decode(codes, generator()).dtypes.equals(schema.decode(full, generator()).dtypes)


def test_values_are_uniform_in_their_bin() -> None:
    schema = Schema.from_descriptor(
        {"fields": [{"name": "x", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}, "dpgen:bins": {"equal": 2}}]}
    )
    values = schema.decode(torch.zeros(10_000, 1, dtype=torch.int64), generator())["x"]
    assert values.value_counts().sort_index().index.tolist() == [0, 1, 2, 3, 4]
    assert values.value_counts().to_numpy() == pytest.approx(np.full(5, 2000), abs=300)


def test_logarithmic_bins_have_a_falling_density_and_zero_for_itself() -> None:
    number = {"name": "x", "type": "number", "constraints": {"minimum": 0, "maximum": 1000}, "dpgen:rounding": 0.01}
    schema = Schema.from_descriptor({"fields": [number | {"dpgen:bins": {"log": 5}}]})
    values = schema.decode(torch.full((10_000, 1), 5), generator())["x"].to_numpy()
    assert schema.encode(pd.DataFrame({"x": [0.0, 0.01, 1000.0]})).tolist() == [[0], [1], [5]]
    assert 99 < values.min() < 101
    assert np.median(values) == pytest.approx(np.sqrt(100 * 1000), rel=0.05)


@pytest.mark.parametrize(
    ("low", "high", "firsts"),
    [
        (-1000, 1000, [-1000, -99, -9, 0, 1, 10, 100]),
        (-1000, -1, [-1000, -316, -99, -31, -9, -3]),
        (-10, 100_000, [-10, 0, 1, 10, 100, 1000, 10_000]),
    ],
)
def test_logarithmic_bins_of_negative_numbers_are_those_of_their_distance_from_zero(
    low: int, high: int, firsts: list[int]
) -> None:
    rules = {"constraints": {"minimum": low, "maximum": high, "required": True}, "dpgen:bins": {"log": 6}}
    schema = Schema.from_descriptor({"fields": [{"name": "x", "type": "integer", **rules}]})
    assert schema.modelled[0].bounds()[0].tolist() == firsts
    values = schema.decode(torch.zeros(10_000, 1, dtype=torch.int64), generator())["x"].to_numpy()
    assert low == values.min() < np.median(values) <= values.max() == firsts[1] - 1


def test_a_value_that_stands_twice_among_the_edges_has_a_bin_of_its_own() -> None:
    schema = Schema.from_descriptor({"fields": [{"name": "x", "type": "number", "dpgen:bins": [0, 0, 1, 10]}]})
    assert schema.encode(pd.DataFrame({"x": [0, 0.001, 1, 10, None]})).flatten().tolist() == [0, 1, 2, 2, 3]


def test_dates_and_times_are_read_in_their_own_format() -> None:
    field = {
        "name": "d",
        "type": "date",
        "format": "%d/%m/%Y",
        "constraints": {"minimum": "2020-01-01", "maximum": "2020-01-31"},
    }
    schema = Schema.from_descriptor({"fields": [field]})
    assert schema.encode(pd.DataFrame({"d": ["01/01/2020", "31/01/2020", None]})).flatten().tolist() == [0, 30, 31]
    stamps = pd.DataFrame({"d": pd.to_datetime(["2020-01-31 18:00", "2020-01-02 00:00"])})
    assert schema.encode(stamps).flatten().tolist() == [30, 1]
    for own, same in (("01/02/2020", "2020-02-01"), ("1/2/2020", "2020-02-01")):
        both = [field_of(field | {"constraints": {"minimum": bound, "maximum": "2020-12-31"}}) for bound in (own, same)]
        assert both[0] == both[1], "a bound may be in the format of the values"
    with refused("minimum", "13/13/2020", "%d/%m/%Y"):
        field_of(field | {"constraints": {"minimum": "13/13/2020", "maximum": "2020-12-31"}})


def column(**changes: Any) -> dict[str, Any]:
    return {"fields": [{"name": "x", **changes}]}


@pytest.mark.parametrize(
    ("descriptor", "message"),
    [
        ({}, "no list of fields"),
        ({"fields": [3]}, "no mapping"),
        ({"fields": [], "fieds": 1}, "did you mean 'fields'"),
        ({"fields": []}, "at least one must be modelled"),
        ({"fields": [{"type": "string"}]}, "name of a field is None"),
        (column(type="strin"), "did you mean 'string'"),
        (column(type="string"), "no domain"),
        (column(constraints={"enum": []}), "enum of field 'x' is empty"),
        (column(constraints={"enum": ["a", "a"]}), "twice"),
        (column(constraints={"enum": [True]}), "lists True"),
        (column(constraints={"enum": ["", "a"]}), "one of missingValues"),
        (column(constraints={"enum": "ab"}), "must be a list"),
        (column(constraints={"pattern": "a+"}), "'pattern'"),
        (column(type="integer"), "needs a public minimum and maximum"),
        (column(type="integer", constraints={"minimum": 3, "maximum": 1}), "must be above low"),
        (column(type="integer", constraints={"minimum": "a", "maximum": 1}), "must be of type integer"),
        (column(type="date", constraints={"minimum": 3, "maximum": "2020-12-31"}), "ISO date"),
        (column(type="date", constraints={"minimum": "2020-01-01", "maximum": "x"}), "such as 2020-01-31"),
        (column(type="number", constraints={"minimum": 0, "maximum": 1}, **{"dpgen:bins": {"equal": 0}}), "it must be"),
        (column(type="number", constraints={"minimum": 0, "maximum": 1}, **{"dpgen:bin": 3}), "did you mean 'dpgen:bins'"),
        (column(type="number", **{"dpgen:bins": [0, 2, 1]}), "go from minimum to maximum"),
        (column(type="number", **{"dpgen:bins": [0, 2, 1, 3]}), "must increase"),
        (column(type="number", **{"dpgen:bins": [0, 1, 1, 1, 3]}), "must increase"),
        (column(type="boolean", **{"dpgen:source": "secret"}), "public, private, dp"),
        (column(type="boolean") | {"dpgen:target": "y"}, "dpgen:target is 'y'"),
        (column(type="boolean") | {"primaryKey": ["x", "y"]}, "one field"),
        (column(type="boolean") | {"primaryKey": "y"}, "primaryKey is 'y'"),
        (column(type="boolean", constraints={"unique": True}), "primaryKey"),
        (column(type="boolean") | {"dpgen:constraints": [{"forbid": {}}]}, "did you mean 'forbidden'"),
        (column(type="boolean") | {"dpgen:constraints": [{"less_equal": ["x", "x"]}]}, "numbers, or of dates"),
        (column(type="boolean") | {"dpgen:constraints": [{"forbidden": {"x": "no"}}]}, "a forbidden value of field 'x'"),
        (column(type="boolean") | {"dpgen:constraints": [{"forbidden": {"y": True}}]}, "a field of a constraint is 'y'"),
        (
            column(type="boolean") | {"dpgen:constraints": [{"one_of": ["x", "x"], "broken": 2}]},
            "broken of constraint one_of is 2",
        ),
    ],
    ids=range(33),
)
def test_what_is_no_schema_is_refused_in_one_line(descriptor: dict[str, Any], message: str) -> None:
    with refused(message):
        Schema.from_descriptor(descriptor)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("age", 100, "minimum is 0 and maximum is 99"),
        ("age", None, "required"),
        ("age", 3.5, "whole numbers"),
        ("age", "0x10", "numbers"),
        ("age", float("inf"), "numbers"),
        ("city", "Paris", "the 2 of enum"),
        ("well", "maybe", "booleans"),
        ("admitted", "2020-13-01", "date"),
        ("admitted", "2021-01-01", "minimum is 2020-01-01"),
        ("left", "2020-01-01", "less_equal"),
        ("spent", 1, "sum"),
        ("country", "Spain", "depends"),
    ],
)
def test_values_outside_the_schema_are_refused_and_not_shown(name: str, value: Any, rule: str) -> None:
    schema = Schema.from_descriptor(VISITS)
    table = schema.rows(lambda n: uniform_codes(schema, n, n), 5, generator()).astype(object)
    table.loc[3, ["city", "country", "admitted", "left", "rent", "food", "spent"]] = [
        "Lyon", "France", "2020-05-05", "2020-06-06", 3, 3, 6,
    ]  # fmt: skip
    table.loc[3, name] = value
    with pytest.raises(ValueError, match=rf"column '.*{name}.*' breaks a rule .*{rule}") as raised:
        schema.encode(table)
    assert "row 4" not in str(raised.value)


def test_a_table_without_a_column_is_refused() -> None:
    with refused("lacks a field of its schema, which is 'x'"):
        Schema.from_descriptor(column(type="boolean")).encode(pd.DataFrame({"X": [True]}))


def test_constraints_that_contradict_the_model_end() -> None:
    schema = Schema.from_descriptor(
        column(type="boolean", constraints={"required": True}) | {"dpgen:constraints": [{"forbidden": {"x": False}}]}
    )
    with refused("constraints accept 0 of"):
        schema.rows(lambda n: torch.zeros(n, 1, dtype=torch.int64), 5, generator())


def test_rejected_rows_leave_the_law_of_the_others() -> None:
    fields = [{"name": name, "type": "integer", "constraints": {"minimum": 0, "maximum": 2}} for name in "ab"]
    schema = Schema.from_descriptor({"fields": fields, "dpgen:constraints": [{"less_equal": ["a", "b"]}]})
    source = generator(3)

    def draw(n: int) -> torch.Tensor:
        return torch.randint(3, (n, 2), generator=source)

    counts = schema.rows(draw, 12_000, source).value_counts()
    assert len(counts) == 6
    assert counts.to_numpy() == pytest.approx(np.full(6, 2000), abs=300)


NAMES = st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=4), min_size=1, max_size=4, unique=True)


@st.composite
def fields(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """A field of any type with a domain that fits."""
    rules: dict[str, Any] = {"required": draw(st.booleans())}
    kind = draw(st.sampled_from(["string", "boolean", "integer", "number", "date", "datetime", "year"]))
    if kind == "string":
        rules["enum"] = draw(st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=5, unique=True))
    elif kind in ("integer", "number", "year"):
        low = draw(st.integers(-(10**6), 10**6))
        rules |= {"minimum": low, "maximum": low + draw(st.sampled_from([0, 1, 2, 77, 10**5]))}
    elif kind != "boolean":
        days = draw(st.integers(1, 4000))
        rules |= {"minimum": "1999-12-31", "maximum": str((pd.Timestamp("1999-12-31") + pd.Timedelta(days=days)).date())}
    bins = (
        {"dpgen:bins": {"equal": draw(st.integers(1, 9))}} if kind not in ("string", "boolean") and draw(st.booleans()) else {}
    )
    return {"name": name, "type": kind, "constraints": rules} | bins


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    return Schema.from_descriptor({"fields": [draw(fields(name)) for name in draw(NAMES)]})


@given(schema=schemas(), seed=st.integers(0, 2**20), n=st.sampled_from([0, 1, 7, 40]))
def test_any_table_of_any_schema_comes_back(schema: Schema, seed: int, n: int) -> None:
    codes = uniform_codes(schema, n, seed)
    table = schema.decode(codes, generator(seed))
    assert torch.equal(schema.encode(table), codes)
    assert torch.equal(schema.encode(table.astype(object)), codes)


@given(data=st.data(), seed=st.integers(0, 2**20))
def test_any_frame_is_coded_inside_the_domain_or_refused_without_its_values(data: st.DataObject, seed: int) -> None:
    schema = data.draw(schemas())
    odd = st.one_of(
        st.none(), st.text(max_size=4), st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.dates(), st.just("__x__")
    )
    n = data.draw(st.integers(1, 6))
    table = schema.decode(uniform_codes(schema, n, seed), generator(seed)).astype(object)
    for _ in range(data.draw(st.integers(1, 3))):
        row, name = data.draw(st.integers(0, n - 1)), data.draw(st.sampled_from(list(table.columns)))
        table.loc[row, name] = data.draw(odd)
    try:
        codes = schema.encode(table)
    except ValueError as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        assert "breaks a rule of the schema" in refused
        assert "__x__" not in refused
        return
    assert codes.shape == (n, len(schema.modelled))
    assert bool(((codes >= 0) & (codes < torch.tensor(schema.domain.sizes))).all())


def test_whole_numbers_are_exact_beside_others() -> None:
    field = field_of({"name": "x", "type": "integer", "constraints": {"minimum": 0, "maximum": 2**60}})
    assert field.parse(pd.Series([str(2**53 + 1), "1.0", "2e3"])).tolist() == [2**53 + 1, 1, 2000]
    assert field.encode(field.parse(pd.Series(["1e19"]))).tolist() == [-1]
    for wrong in ("0.5", "1e400"):
        with pytest.raises(Violation, match="it holds"):
            field.parse(pd.Series([str(2**53 + 1), wrong]))


def test_numbers_of_json_are_numbers(tmp_path: Path) -> None:
    rules = """{"minimum": 0, "maximum": 1e0}"""
    text = f"""{{"fields": [{{"name": "x", "type": "number", "dpgen:rounding": 1e-2, "constraints": {rules}}}]}}"""
    (tmp_path / "schema.json").write_text(text)
    assert Schema.from_descriptor(tmp_path / "schema.json").encode(pd.DataFrame({"x": [0.01, None]})).shape == (2, 1)
    (tmp_path / "schema.json").write_text(text.replace("1e0", "NaN"))
    with refused("are 0 and 'NaN'"):
        Schema.from_descriptor(tmp_path / "schema.json")


def test_edges_of_whole_numbers_may_stand_beside_a_value_alone() -> None:
    """Between 0 alone and 1 there is no whole number."""
    number = {"name": "n", "type": "integer", "constraints": {"minimum": 0, "maximum": 100}}
    found = field_of(number | {"dpgen:bins": {"edges": [0, 0, 1, 10, 100]}})
    assert found.encode(pd.Series([0, 1, 9, 10, 100])).tolist() == [0, 1, 1, 2, 2]
    with refused("'n' hold 3"):
        field_of(number | {"dpgen:bins": {"edges": [0, 9, 3, 100]}})


def test_values_of_another_type_than_one_that_was_bought_are_missing() -> None:
    """Noise may choose a type that the records do not have; to refuse them then would waste what was paid."""
    bought = {"name": "town", "type": "date", "constraints": {"minimum": "2020-01-01", "maximum": "2020-12-31"}}
    bought |= {"dpgen:source": "dp", "dpgen:outside": "clamp"}
    schema = Schema.from_descriptor({"fields": [bought], "dpgen:privacy": {"epsilon": 0.5}})
    table = pd.DataFrame({"town": ["Ulm", "2020-03-01", None]})
    missing = schema.domain.missing[0]
    assert (schema.encode(table)[:, 0] == missing).tolist() == [True, False, True]
    with refused("town"):
        Schema.from_descriptor({"fields": [bought | {"dpgen:source": "public"}]}).encode(table)
