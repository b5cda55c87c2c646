"""What constraints exclude: closed forms beside enumeration, and fits that leave next to nothing of it."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from test_tables_fit import SMALL, released

from dpgen.metrics import marginal_errors
from dpgen.schema import Schema
from dpgen.systems.tables import rounds
from dpgen.systems.tables.fitter import zeros_of
from dpgen.systems.tables.marginals import Coarsening, Columns
from dpgen.systems.tables.model import TablesModel


def whole(name: str, most: int, *, required: bool = True) -> dict[str, object]:
    return {"name": name, "type": "integer", "constraints": {"minimum": 0, "maximum": most, "required": required}}


WARDS = {"name": "ward", "type": "string", "constraints": {"enum": ["births", "bones", "hearts"], "required": True}}
FIELDS = [whole("came", 7), whole("left", 7, required=False), {"name": "male", "type": "boolean"}, WARDS, whole("age", 9)]
CONSTRAINTS = [
    {"less_equal": ["came", "left"]},
    {"forbidden": {"male": True, "ward": "births"}},
    {"forbidden": {"ward": ["births", "hearts"], "age": {"maximum": 2}, "male": None}},
]
SCHEMA = Schema.from_descriptor({"fields": FIELDS, "dpgen:constraints": CONSTRAINTS})


def visits(n: int, seed: int = 0) -> SimpleNamespace:
    """Codes of n visits that satisfy the constraints."""
    rng = np.random.default_rng(seed)
    came = rng.integers(0, 8, n)
    left = np.where(rng.random(n) < 0.1, 8, np.minimum(came + rng.geometric(0.6, n) - 1, 7))
    ward, age = rng.integers(0, 3, n), rng.integers(0, 10, n)
    male = np.where(ward == 0, 0, rng.integers(0, 2, n))
    return SimpleNamespace(codes=torch.from_numpy(np.stack([came, left, male, ward, age], 1)), schema=SCHEMA)


def columns(groups: int) -> Columns:
    """Released columns whose codes the mixture sees in at most so many groups."""
    domain, rng = SCHEMA.domain, np.random.default_rng(0)
    shares = tuple(rng.dirichlet(np.ones(size)) for size in domain.sizes)
    coarse = Coarsening.of(shares, groups, ordered=domain.ordered, missing=domain.missing)
    return Columns(shares, 100.0, coarse, (), ())


@pytest.mark.parametrize("groups", [64, 4])
def test_the_mass_of_a_constraint_is_that_of_the_codes_it_excludes(groups: int) -> None:
    released_columns = columns(groups)
    coarse, rng = released_columns.coarse, np.random.default_rng(1)
    blocks = [rng.dirichlet(np.ones(size), 3).T for size in coarse.sizes]
    found = sum(zero.mass(np.concatenate(blocks).astype(np.float32)) for zero in zeros_of(SCHEMA, released_columns)[:2])
    codes = torch.tensor(list(product(*map(range, SCHEMA.domain.sizes))))
    chances = np.ones((len(codes), 3))
    for c, (group, share) in enumerate(zip(coarse.groups, released_columns.shares)):
        inside = share / np.bincount(group, share)[group]
        chances *= (blocks[c][group] * inside[:, None])[codes[:, c].numpy()]
    slow = np.zeros(3)
    for constraint in CONSTRAINTS[:2]:
        alone = Schema.from_descriptor({"fields": FIELDS, "dpgen:constraints": [constraint]})
        slow += chances[~alone.admissible(codes).numpy()].sum(0)
    np.testing.assert_allclose(found, slow, rtol=1e-4)


def test_gradients_of_the_mass_are_differences() -> None:
    zeros, rng = zeros_of(SCHEMA, columns(64)), np.random.default_rng(2)
    p, w = rng.random((sum(SCHEMA.domain.sizes), 2)).astype(np.float32), np.array([0.25, 0.75], np.float32)
    assert [len(zero.rows) for zero in zeros] == [2, 2, 3]
    for zero in zeros:
        of_p, of_w = np.zeros_like(p), np.zeros_like(w)
        zero.add_gradients(2.0, p, w, of_p, of_w)
        np.testing.assert_allclose(of_w, 2.0 * zero.mass(p), rtol=1e-5)
        for at in np.ndindex(p.shape):
            moved = p.copy()
            moved[at] += 0.5
            assert of_p[at] == pytest.approx(4.0 * (zero.mass(moved) - zero.mass(p)) @ w, rel=1e-3, abs=1e-4)


def gap(model: TablesModel, data: SimpleNamespace) -> float:
    """Mean total variation of single columns of sampled rows from the private ones."""
    return float(marginal_errors(data.codes, SCHEMA.encode(model.samples(20_000, random_state=0).values), 1).mean())


def test_a_fit_leaves_hardly_anything_to_reject(monkeypatch: pytest.MonkeyPatch) -> None:
    data = visits(5000, seed=1)
    model = released(data, SMALL, epsilon=0.5)
    assert model.kept_share > 0.99
    codes = torch.tensor(list(product(*map(range, SCHEMA.domain.sizes))))
    p = model.log_prob(codes).exp()
    assert not p[~SCHEMA.admissible(codes)].any()
    assert float(p.sum()) == pytest.approx(1.0, abs=0.01)
    monkeypatch.setattr(rounds, "zeros_of", lambda schema, columns: [])
    unaware = released(data, SMALL, epsilon=0.5)
    assert unaware.kept_share < 0.97
    assert gap(model, data) < min(0.02, gap(unaware, data))


CHILDREN = Schema.from_descriptor({
    "fields": [
        whole("age", 8), *({"name": name, "type": "boolean"} for name in ("job", "married", "school")),
        {"name": "sick", "type": "boolean", "constraints": {"required": True}},
    ],
    "dpgen:constraints": [
        *({"forbidden": {"age": {"maximum": 2}, name: [True, False]}} for name in ("job", "married")),
        {"forbidden": {"age": {"maximum": 0}, "school": [True, False]}},
        *({"forbidden": {"age": {"minimum": 3}, name: None}} for name in ("job", "married", "school")),
    ],
})  # fmt: skip
"""Nobody below three has a job or a spouse, and below one nobody is at school."""


@pytest.mark.parametrize("method", ["mixture", "independent"])
@pytest.mark.parametrize("epsilon", [0.2, 2.0])
def test_small_groups_keep_their_share(method: Any, epsilon: float) -> None:
    """Where constraints reject rows, groups whose gaps the fit has not all found would lose most."""
    n, rng = 8000, np.random.default_rng(3)
    age = np.repeat(np.arange(9), [400, 500, 500, *[1100] * 6])
    gaps = np.stack([np.where(age < least, 2, rng.integers(0, 2, n)) for least in (3, 3, 1)], axis=1)
    data = SimpleNamespace(codes=torch.from_numpy(np.c_[age, gaps, rng.integers(0, 2, n)]), schema=CHILDREN)
    model = released(data, replace(SMALL, method=method), epsilon=epsilon)
    rows = model.samples(20_000, random_state=0).values
    assert model.kept_share > 0.98
    released_shares = model.columns.shares[0]
    found = rows["age"].value_counts(normalize=True).sort_index().to_numpy()
    assert found[0] == pytest.approx(released_shares[0], abs=0.012 if epsilon < 1 else 0.006)
    assert rows["job"].isna().mean() == pytest.approx(model.columns.shares[1][2], abs=0.03)


STAY = {"name": "stay", "type": "integer"}
TOTAL = {"sum": ["came", "age"], "total": "stay"}
RULES = [*CONSTRAINTS, {"forbidden": {"male": True, "left": {"minimum": 0}}}, TOTAL]


def test_gaps_are_filled_so_that_constraints_hold() -> None:
    data = visits(3000, seed=2)
    data.codes[(data.codes[:, 2] == 1), 1] = 8  # of men it is not known when they left
    data.schema = Schema.from_descriptor({"fields": [*FIELDS, STAY], "dpgen:constraints": RULES})
    model = released(data, SMALL, epsilon=2.0)
    gaps = {"left": [None, 6.0, None] * 200, "male": [True, None, None] * 200, "ward": None, "age": 1}
    table = pd.DataFrame({"came": [5.0, None] * 300, **gaps})
    table["stay"] = np.where(np.arange(600) % 3 == 1, None, table["came"] + 1)
    filled = model.impute(table, random_state=0)
    assert filled.drop(columns="left").notna().all().all()
    assert filled["left"].isna()[::3].all()  # a gap that constraints require stays
    assert (filled["stay"] == filled["came"] + 1).all()
    data.schema.encode(filled)  # raises where a constraint is broken
    stayed = model.impute(pd.concat([table[1::6]] * 30, ignore_index=True).assign(came=5.0, stay=6.0), random_state=1)
    given = model.samples(3000, random_state=2, given={"came": 5, "left": 6, "age": 1, "male": [True, False]}).values
    for name in ("ward", "male"):
        one, two = (x[name].astype(str).value_counts(normalize=True) for x in (stayed, given))
        assert one.sub(two, fill_value=0.0).abs().max() < 0.04


def test_computed_fields_follow_what_is_known() -> None:
    schema = Schema.from_descriptor({"fields": [*FIELDS, STAY], "dpgen:constraints": [TOTAL]})
    drawn, known = pd.DataFrame({"came": [1, 1], "age": [2, 2], "stay": [3, 3]}), pd.DataFrame({"came": [4, None]})
    for name in ("left", "male", "ward"):
        drawn[name] = 0
    assert schema.overlaid(drawn, known)["stay"].tolist() == [6, 3]
    assert schema.overlaid(drawn, known.assign(stay=[None, 7]))["stay"].tolist() == [6, 7]


def test_rows_that_no_filling_mends_are_refused() -> None:
    model = released(visits(2000), SMALL, epsilon=2.0)
    table = pd.DataFrame({"came": [1, 5], "left": [2, 3], "male": [None, None], "ward": [None, "bones"], "age": [4, 4]})
    with pytest.raises(ValueError, match="1 of 2 rows whose gaps none of 2222 draws filled"):
        model.impute(table, random_state=0)
    with pytest.raises(ValueError, match="column 'age' breaks a rule of the schema: minimum is 0 and maximum is 9"):
        model.impute(table.assign(age=10))
