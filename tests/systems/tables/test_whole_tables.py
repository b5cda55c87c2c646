"""Small tables, released whole: which ones, dependence of any order, noise, constraints, intervals."""

from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from test_tables_fit import FIELDS, people, released

from dpgen.facts import Fact
from dpgen.release import read_model
from dpgen.schema import Schema
from dpgen.systems.simplex_projection import project_to_simplex
from dpgen.systems.tables.model import TablesModel, intervals
from dpgen.systems.tables.plan import TablesConfig
from dpgen.systems.tables.whole import table_mixture

AUTO = TablesConfig()


def table(codes: np.ndarray, sizes: tuple[int, ...], **more: Any) -> Any:
    """Codes (n, d) of columns of these sizes."""
    fields = [
        {"name": f"c{i}", "type": "string", "constraints": {"enum": [*map(str, range(size))], "required": True}}
        for i, size in enumerate(sizes)
    ]
    return SimpleNamespace(codes=torch.from_numpy(codes), schema=Schema.from_descriptor({"fields": fields, **more}))


def law_of(model: TablesModel) -> np.ndarray:
    return model.marginal(model.schema.domain.names)


def shares_of(codes: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    cells = np.ravel_multi_index(codes.T, sizes)
    return np.bincount(cells, minlength=int(np.prod(sizes))).reshape(sizes) / len(codes)


def distance(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).sum() / 2)


@pytest.mark.parametrize("order", [3, 4, 6])
def test_a_parity_of_any_order_is_kept(order: int) -> None:
    x = np.random.default_rng(0).integers(0, 2, (20_000, 8))
    codes = np.column_stack([x, x[:, :order].sum(1) % 2])
    rows = released(table(codes, (2,) * 9), AUTO, epsilon=1.0).samples(4000, random_state=0).values.astype(int).to_numpy()
    assert (rows[:, :order].sum(1) % 2 == rows[:, 8]).mean() > 0.93


LAWS = {
    "any": ((4, 5, 10, 10), 1.0),
    "sparse": ((4, 5, 10, 10), 0.1),
    "two columns": ((50, 40), 0.5),
}


@pytest.mark.parametrize("case", LAWS)
def test_it_is_hardly_worse_than_one_noisy_table(case: str) -> None:
    sizes, even = LAWS[case]
    rng = np.random.default_rng(1)
    law = rng.dirichlet(np.full(int(np.prod(sizes)), even))
    codes = np.stack(np.unravel_index(rng.choice(len(law), 20_000, p=law), sizes), axis=1)
    found, real = law_of(released(table(codes, sizes), AUTO, epsilon=1.0)), shares_of(codes, sizes)
    noisy = project_to_simplex((real + rng.normal(0, 1 / 0.268 / 20_000, sizes)).ravel()).reshape(sizes)
    assert 0 < distance(found, real) < 1.2 * distance(noisy, real)


def test_dependence_of_two_columns_takes_noise_off_the_rest() -> None:
    rng, sizes = np.random.default_rng(2), (4, 4, 4, 4, 4)
    step = np.full((4, 4), 0.1) + 0.6 * np.eye(4)  # a chain of columns
    law = np.einsum("ab,bc,cd,de->abcde", step, step, step, step) / 4
    codes = np.stack(np.unravel_index(rng.choice(law.size, 20_000, p=law.ravel()), sizes), axis=1)
    noisy = project_to_simplex((shares_of(codes, sizes) + rng.normal(0, 1 / 0.268 / 20_000, sizes)).ravel()).reshape(sizes)
    assert distance(law_of(released(table(codes, sizes), AUTO, epsilon=1.0)), law) < 0.8 * distance(noisy, law)


def test_rare_values_stay_rare() -> None:
    rng = np.random.default_rng(3)
    rare = rng.random(20_000) < 0.0025
    codes = np.column_stack([rng.integers(0, 2, (20_000, 7)), np.where(rare, 2, rng.integers(0, 2, 20_000))])
    model = released(table(codes, (2,) * 7 + (3,)), AUTO, epsilon=1.0)
    assert abs(20_000 * model.marginal(["c7"])[2] - rare.sum()) < 70  # noise std 32; cells cut at 0 would add 80


def test_the_statement_and_the_measurements_say_so() -> None:
    model = released(people(4000), AUTO, epsilon=4.0)
    told = tiny.told(model.statement)[Fact.WHOLE_TABLE]
    [found] = [m for m in model.measured() if len(m["columns"]) == 4]
    assert (told["columns"], told["cells"]) == (4, found["counts"].size)
    assert float(told["std"]) == pytest.approx(float(found["noise_std"].mean()), rel=0.01)
    assert model.declared == (Fact.WHOLE_TABLE(**told).sentence,)


@pytest.mark.parametrize(
    ("n", "config", "epsilon"),
    [(1000, TablesConfig(rounds=2, picks=4), 9.0), (1000, TablesConfig(method="mixture", rounds=2), 9.0), (150, AUTO, 1.0)],
)
def test_other_tables_are_not(n: int, config: TablesConfig, epsilon: float) -> None:
    model = released(people(n), config, epsilon=epsilon)
    assert Fact.WHOLE_TABLE not in tiny.told(model.statement)
    assert max(len(m.marginal.columns) for m in model.measurements) < 4


def test_what_constraints_exclude_has_no_probability() -> None:
    forbidden = {"forbidden": {"job": "farm", "home": "flat"}}
    schema = Schema.from_descriptor({"fields": FIELDS, "dpgen:constraints": [forbidden]})
    codes = people(4000).codes
    codes = codes[(codes[:, 1] != 1) | (codes[:, 2] != 0)]
    model = released(SimpleNamespace(codes=codes, schema=schema), AUTO, epsilon=4.0)
    assert model.kept_share == 1.0
    assert model.marginal(["job", "home"])[1, 0] == 0.0
    cells = torch.tensor(list(product(*map(range, schema.domain.sizes))))
    possible = np.isfinite(model.log_prob(cells).numpy())
    np.testing.assert_array_equal(possible, schema.admissible(cells).numpy())


def test_intervals_cover_a_share_of_cells(tmp_path: Any) -> None:
    def of_three(rows: pd.DataFrame) -> float:
        return float(((rows["home"] == "house") & rows["rich"] & (rows["age"] > 10)).mean())

    data = people(4000)
    model = released(data, AUTO, epsilon=2.0)
    model.save(tmp_path / "model")
    found = intervals(read_model(tmp_path / "model"), of_three, level=0.999, replicates=10, random_state=0).iloc[0]
    truth = float(((data.codes[:, 2] == 1) & (data.codes[:, 3] == 1) & (data.codes[:, 0] > 10)).double().mean())
    assert found["lower"] < truth < found["upper"] < found["lower"] + 0.2


@pytest.mark.parametrize("constant", [2, 25, 40])
def test_columns_of_one_value(constant: int) -> None:
    codes = np.column_stack([np.arange(400) % 2, np.zeros((400, constant), int)])
    model = released(table(codes, (2,) + (1,) * constant), TablesConfig(rounds=1), epsilon=4.0)
    assert model.marginal(["c0", "c1"]).ravel() == pytest.approx(0.5, abs=0.05)


def test_a_law_with_an_impossible_line_has_a_class_less() -> None:
    law = np.zeros((2, 3, 2))
    law[0, :, 1], law[1, :2, 0] = 0.2, 0.2
    mixture = table_mixture(law)
    assert len(mixture.weights) == 2
    assert mixture.of_cells
    np.testing.assert_allclose(mixture.marginal([0, 1, 2]), law, atol=1e-7)
