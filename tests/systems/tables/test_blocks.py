"""Blocks: parities by bits, the public list of sets, what is found and what is not, and the model that holds it."""

from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny
from test_tables_fit import released
from test_whole_tables import table

from dpgen.facts import Fact
from dpgen.release import read_model
from dpgen.systems.tables.marginals import Coarsening, Marginal, Measurement
from dpgen.systems.tables.mixture import Mixture
from dpgen.systems.tables.model import TablesModel
from dpgen.systems.tables.plan import TablesConfig
from dpgen.systems.tables.rounds import Sets, stands_out

N = 20_000


def every(sets: Sets) -> list[tuple[int, ...]]:
    return [sets[i] for i in range(len(sets))]


def bits(d: int, n: int = N) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2, (n, d))


@pytest.mark.parametrize("batches", [False, True])
def test_parities_are_exact(batches: bool) -> None:
    codes = np.random.default_rng(1).integers(0, 3, (150, 6))
    split = Coarsening(tuple(np.array(group) for group in ([0, 1, 1], [1, 0, 0], [0, 1, 0]) * 2), (2,) * 6)
    sets = Sets((4, 0, 1, 3, 5), (5, 4, 4, 4, 4))
    signs = np.stack([1 - 2 * split.groups[c][codes[:, c]] for c in range(6)], axis=1)
    found = sets.parities([codes[:70], codes[70:]] if batches else codes, split)
    assert found.tolist() == [int(signs[:, list(one)].prod(1).sum()) for one in every(sets)]


def test_sets_are_all_of_some_sizes_and_greater_ones_with_the_first_column() -> None:
    sets = Sets((4, 0, 1, 3, 5), (5, 4, 4, 4, 4))
    there = [tuple(sorted(one)) for size in (3, 4) for one in combinations((0, 1, 3, 4, 5), size)]
    assert sorted(every(sets)) == sorted([*there, (0, 1, 3, 4, 5)])
    assert every(Sets((0, 1), (2, 2))) == every(Sets((), ())) == []


@pytest.mark.parametrize(
    ("d", "target", "most"), [(13, None, 7), (21, 20, 7), (30, None, 4), (30, 29, 5), (90, None, 3), (200, 3, 3)]
)
def test_as_many_sets_are_listed_as_can_be_counted(d: int, target: int | None, most: int) -> None:
    columns: Any = SimpleNamespace(group_shares=[np.array([0.5, 0.5])] * d, n=50_000.0)
    sets = Sets.of(columns, Coarsening.full((2,) * d), target)
    assert max(sets.deep) == most
    assert len(sets) < 130_000


def test_columns_with_a_rare_half_are_in_no_set() -> None:
    columns: Any = SimpleNamespace(group_shares=[np.array([0.5, 0.5]), np.array([0.95, 0.05])] * 3, n=1000.0)
    assert every(Sets.of(columns, Coarsening.full((2,) * 6), None)) == [(0, 2, 4)]


def test_what_a_mixture_expects_is_exact() -> None:
    rng = np.random.default_rng(2)
    sizes, split = (2, 3, 4, 2), Coarsening((np.arange(2), np.array([1, 0, 0]), np.array([0, 1, 1, 0]), np.arange(2)), (2,) * 4)
    probabilities = np.concatenate([rng.dirichlet(np.ones(size), 5).T for size in sizes]).astype(np.float32)
    mixture, sets = Mixture(probabilities, rng.dirichlet(np.ones(5)).astype(np.float32), sizes), Sets((0, 1, 2, 3), (4,) * 4)
    wanted = []
    for one in every(sets):
        law = mixture.marginal(one)
        for c in one:
            law = np.tensordot(1 - 2 * split.groups[c], law, (0, 0))
        wanted.append(float(law))
    assert np.allclose(sets.expected(mixture, split), wanted, atol=1e-6)


def test_later_sets_differ_from_blocks_in_four_columns_and_are_of_few_new_ones() -> None:
    sets, block = Sets(tuple(range(9)), (6,) * 9), Measurement(Marginal((0, 1, 2, 3), 0), np.zeros((2,) * 4), 1.0)
    left = {sets[i] for i in sets.apart([block], Coarsening.full((2,) * 9))}
    assert left == {one for one in every(sets) if len({*one} ^ {0, 1, 2, 3}) >= 4 and len({*one} | {0, 1, 2, 3}) <= 8}


@pytest.fixture(scope="module")
def parity() -> tuple[np.ndarray, TablesModel]:
    x = bits(12)
    codes = np.column_stack([x, x[:, :3].sum(1) % 2])
    return codes, released(table(codes, (2,) * 13), TablesConfig(method="mixture", rounds=10), epsilon=1.0)


def held(model: TablesModel, rows: Any = "iid") -> float:
    codes = model.schema.encode(model.samples(4000, random_state=0, rows=rows).to_pandas()).numpy()
    return float((codes[:, :3].sum(1) % 2 == codes[:, 12]).mean())


def test_a_parity_among_many_columns_is_found_and_kept(parity: tuple[np.ndarray, TablesModel]) -> None:
    codes, model = parity
    [block] = model.measured()[-model.blocks :]
    assert block["columns"] == ["c0", "c1", "c2", "c12"]
    cells = np.bincount(codes[:, [0, 1, 2, 12]] @ [8, 4, 2, 1], minlength=16)
    swapped = [np.argsort(group) for group in block["groups"]]
    assert np.abs(block["counts"][np.ix_(*swapped)].ravel() - cells).max() < 8 * block["noise_std"].max()
    assert held(model) > 0.95
    assert held(model, "matched") > 0.95
    assert tiny.told(model.statement)[Fact.BLOCKS] == {"share": "2.0%", "found": "c0 x c1 x c2 x c12"}


def test_pairs_beside_a_block_are_as_before(parity: tuple[np.ndarray, TablesModel]) -> None:
    codes, model = parity
    for pair in combinations(range(13), 2):
        real = np.bincount(codes[:, pair] @ [2, 1], minlength=4) / N
        assert np.abs(model.mixture.marginal(pair).ravel() - real).sum() / 2 < 0.03


def test_a_release_and_its_fits_again_have_the_block(parity: tuple[np.ndarray, TablesModel], tmp_path: Any) -> None:
    _, model = parity
    model.save(tmp_path / "model.safetensors")
    again = read_model(tmp_path / "model.safetensors")
    assert again.blocks == 1
    assert held(again.refitted(np.random.default_rng(0))) > 0.95


def test_noise_and_lower_tables_do_not_stand_out() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        pair = rng.dirichlet(np.ones(9)).reshape(3, 3)
        law = np.einsum("ab,cd->abcd", pair, rng.dirichlet(np.ones(4)).reshape(2, 2))
        counts = rng.multinomial(N, law.ravel()).reshape(law.shape) + rng.normal(0, 40, law.shape)
        assert not stands_out(counts, 40.0, N)
    even = 1 - 2 * (np.indices((2,) * 4).sum(0) % 2)
    assert stands_out(N * (1 + 0.2 * even) / 16, 40.0, N)
    assert not stands_out(N * (1 + 0.2 * even) / 16, 400.0, N)


def test_a_block_of_few_values_is_measured_by_all_of_them() -> None:
    x = np.random.default_rng(0).integers(0, 3, (N, 9))
    codes = np.column_stack([x, x[:, :3].sum(1) % 3])
    model = released(table(codes, (3,) * 10), TablesConfig(rounds=10), epsilon=3.0)
    assert [m["columns"] for m in model.measured()[-model.blocks :]] == [["c0", "c1", "c2", "c9"]]
    rows = model.schema.encode(model.samples(4000, random_state=0).to_pandas()).numpy()
    assert (rows[:, :3].sum(1) % 3 == rows[:, 9]).mean() > 0.9


def test_nothing_is_found_where_pairs_say_all() -> None:
    x = bits(14)
    for c in range(1, 14):
        x[:, c] = np.where(np.random.default_rng(c).random(N) < 0.5, x[:, c - 1], x[:, c])
    model = released(table(x, (2,) * 14), TablesConfig(rounds=10), epsilon=1.0)
    assert model.blocks == 0
    assert tiny.told(model.statement)[Fact.BLOCKS] == {"share": "1.0%", "found": "there is none"}


def test_nothing_is_paid_where_noise_would_hide_all_parities() -> None:
    x = bits(12, 3000)
    codes = np.column_stack([x, x[:, :3].sum(1) % 2])
    model = released(table(codes, (2,) * 13), TablesConfig(method="mixture", rounds=10), epsilon=0.3)
    assert Fact.BLOCKS not in tiny.told(model.statement)
    assert model.blocks == 0
