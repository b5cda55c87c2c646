"""Fits of small tables: what is released, by which public rule, and how good it is on both sides."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from fixed_source import FixedKeySource

from dpgen.facts import Fact
from dpgen.privacy.curator import Curator, GaussianBudget
from dpgen.runtime import Runtime
from dpgen.schema import Schema
from dpgen.systems.plan import SumsPlan
from dpgen.systems.tables import fit as tables_fit
from dpgen.systems.tables.fit import fit
from dpgen.systems.tables.marginals import first_marginals, release_columns
from dpgen.systems.tables.model import TablesModel
from dpgen.systems.tables.plan import TablesConfig
from dpgen.systems.tables.rounds import MEASUREMENT

FIELDS = [
    {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 19, "required": True}},
    {"name": "job", "type": "string", "constraints": {"enum": ["none", "farm", "town"]}},
    {"name": "home", "type": "string", "constraints": {"enum": ["flat", "house"], "required": True}},
    {"name": "rich", "type": "boolean", "constraints": {"required": True}},
]
SCHEMA = Schema.from_descriptor({"fields": FIELDS, "dpgen:target": "rich"})
SMALL = TablesConfig(components=16, rounds=4, picks=8)


def people(n: int, seed: int = 0) -> Any:
    """Codes of n people whose columns depend on each other."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 20, n)
    job = np.where(age < 5, 0, np.where(rng.random(n) < 0.1, 3, 1 + (rng.random(n) < 0.6)))
    home = (rng.random(n) < np.where(job == 1, 0.9, 0.2)).astype(int)
    rich = (rng.random(n) < np.where((home == 1) & (age > 10), 0.8, 0.1)).astype(int)
    return SimpleNamespace(codes=torch.from_numpy(np.stack([age, job, home, rich], 1)), schema=SCHEMA)


def released(data: Any, config: TablesConfig = SMALL, seed: int = 0, *, noise: int = 0, **plan: Any) -> TablesModel:
    spent = SumsPlan(**plan)
    return fit(
        data,
        plan=spent,
        config=config,
        curator=Curator(spent.open_ledger(), source=FixedKeySource(noise)),
        runtime=Runtime(seed=seed),
    )


def variation(model: TablesModel, data: Any, *columns: str) -> float:
    """Half the L1 distance of a marginal of the model from that of the records."""
    numbers = [SCHEMA.domain.names.index(name) for name in columns]
    sizes = [SCHEMA.domain.sizes[c] for c in numbers]
    cells = np.ravel_multi_index(data.codes.numpy()[:, numbers].T, sizes)
    shares = np.bincount(cells, minlength=int(np.prod(sizes))) / len(cells)
    return float(0.5 * np.abs(model.marginal(columns).ravel() - shares).sum())


@pytest.fixture(scope="module")
def model() -> TablesModel:
    return released(people(5000), epsilon=4.0)


def test_dependence_is_learnt_within_the_noise(model: TablesModel) -> None:
    data = people(5000)
    product = released(data, TablesConfig(method="independent"), epsilon=4.0)
    for columns in (("age", "job"), ("job", "home"), ("home", "rich")):
        assert 1e-5 < variation(model, data, *columns) < 0.06  # exactly the records would mean that noise is missing
        assert variation(model, data, *columns) < 0.5 * variation(product, data, *columns)
    assert variation(model, data, "age") < 0.03


def test_the_same_noise_and_seed_give_the_same_model() -> None:
    one, two, other = (released(people(400), epsilon=2.0, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.tensors()["probabilities"], two.tensors()["probabilities"])
    assert not torch.equal(one.tensors()["probabilities"], other.tensors()["probabilities"])


@pytest.mark.parametrize("n", [0, 1, 3])
def test_small_tables_fall_back_to_independent_columns(n: int) -> None:
    model = released(people(n), TablesConfig(components=4), epsilon=0.5)
    assert all(any("times this epsilon" in x for x in told) for told in (model.declared, model.statement.told))
    assert MEASUREMENT not in {line["note"] for line in model.statement.mechanisms}
    assert len(model.samples(20, random_state=0).values) == 20
    assert model.statement.epsilon <= 0.5


def test_a_constant_column_and_a_single_one() -> None:
    one = {"name": "one", "type": "string", "constraints": {"enum": ["a"], "required": True}}
    schema = Schema.from_descriptor({"fields": [FIELDS[0], one, FIELDS[2]]})
    codes = torch.stack([torch.arange(600) % 20, torch.zeros(600, dtype=torch.int64), torch.arange(600) % 2], 1)
    model = released(SimpleNamespace(codes=codes, schema=schema), SMALL, epsilon=5.0)
    assert set(model.samples(50, random_state=0).values["one"]) == {"a"}
    alone = SimpleNamespace(codes=codes[:, :1], schema=Schema.from_descriptor({"fields": FIELDS[:1]}))
    assert len(released(alone, SMALL, epsilon=1.0).samples(5, random_state=0, rows="matched").values) == 5


def test_many_categories_are_grouped_and_drawn_by_their_shares() -> None:
    names = [f"c{i}" for i in range(3000)]
    schema = Schema.from_descriptor(
        {"fields": [{"name": "shop", "type": "string", "constraints": {"enum": names}}, FIELDS[2]], "dpgen:target": "home"}
    )
    codes = torch.tensor([[7, 0]] * 3000 + [[2900, 1]] * 1500 + [[3000, 1]] * 500)
    model = released(SimpleNamespace(codes=codes, schema=schema), SMALL, epsilon=5.0)
    drawn = model.samples(4000, random_state=0).values
    assert (drawn["shop"] == "c7").mean() == pytest.approx(0.6, abs=0.06)
    assert drawn["shop"].isna().mean() == pytest.approx(0.1, abs=0.04)
    assert (drawn[drawn["shop"] == "c2900"]["home"] == "house").mean() > 0.9
    assert model.marginal(["shop", "home"]).sum() == pytest.approx(1.0, abs=1e-4)


def test_a_target_of_few_classes_is_counted_beside_every_column() -> None:
    domain = SCHEMA.domain
    assert [m.columns for m in first_marginals(domain, alone=False)] == [(0, 3), (1, 3), (2, 3)]
    assert [m.columns for m in first_marginals(domain, alone=True)] == [(0,), (1,), (2,), (3,)]
    assert [m.columns for m in first_marginals(replace(domain, target=0), alone=False)] == [(0,), (1,), (2,), (3,)]


def test_columns_of_many_codes_get_less_noise() -> None:
    class Exact:
        def sums(self, note: str, sums: Any, share: float) -> tuple[torch.Tensor, float]:
            return sums.values.double(), share**-0.5

    data = people(1000)
    columns = release_columns(data.codes.numpy(), SCHEMA.domain, Exact(), 1.0, (1000.0, 1.0), alone=True)  # type: ignore[arg-type]
    stds = [float(np.mean(m.noise_std)) for m in columns.measurements]
    assert sum(std**-2 for std in stds) == pytest.approx(1.0)
    assert stds[0] < stds[1] < stds[2] == stds[3]
    assert columns.n == pytest.approx(1000.0)


def test_columns_are_measured_together_once_where_the_signal_is_small() -> None:
    model = released(people(700), epsilon=1.0)
    times = Counter(m.marginal.columns for m in model.measurements if m.marginal.level)
    assert len(times) == times.total() >= 4


@pytest.mark.parametrize("epsilon", [0.001, 4.0])
def test_how_many_records_there_are_is_what_was_released(epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every public rule sees a count whose noise a test has chosen, and none the true one."""
    told: list[Any] = []
    given, make = GaussianBudget.sums, tables_fit.sizes

    def sums(budget: GaussianBudget, note: str, *args: Any) -> Any:
        return (torch.tensor([31_000.0]), 1e-3) if note == tables_fit.COUNT else given(budget, note, *args)

    def columns(*args: Any, **options: Any) -> Any:
        told.append(args[4])
        return release_columns(*args, **options)

    def ruled(mu: float, n: float, *args: Any, **options: Any) -> Any:
        told.append(n)
        return make(mu, n, *args, **options)

    monkeypatch.setattr(GaussianBudget, "sums", sums)
    monkeypatch.setattr(tables_fit, "release_columns", columns)
    monkeypatch.setattr(tables_fit, "sizes", ruled)
    model = released(people(500), epsilon=epsilon)
    assert told[0] == (31_000.0, 1e-3)
    assert told[1:] == pytest.approx([31_000.0] * len(told[1:]), abs=1.0)
    alone = tiny.told(model.statement).get(Fact.INDEPENDENT)
    assert (alone is None) == (epsilon == 4.0)
    assert alone is None or "31000 records" in alone["enough"].lower()
    assert model.size == 31_000


def test_replaced_records_cost_twice_as_much_noise() -> None:
    one, two = (released(people(3000), epsilon=1.0, relation=relation) for relation in ("add_remove", "replace_one"))
    assert two.statement.epsilon <= 1.0
    chosen = [[m for m in r.measurements if len(m.marginal.columns) > 1][-1] for r in (one, two)]
    assert float(np.mean(chosen[1].noise_std)) == pytest.approx(2**0.5 * float(np.mean(chosen[0].noise_std)), rel=0.02)
