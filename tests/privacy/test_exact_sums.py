"""Exact sums: the same bits for any order, chunks, threads and shards; rows never longer than one."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dpgen.privacy import exact_sums
from dpgen.privacy.exact_sums import GRAM_GRID, SUM_GRID, BoundedSum, clipped, group_sums, row_squares

K = 3


def records(n: int, m: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, m, generator=generator), torch.randint(0, K, (n,), generator=generator)


def sums(x: Tensor, group: Tensor) -> Tensor:
    return group_sums(clipped(x, SUM_GRID) * SUM_GRID, group, K, most=SUM_GRID)


@given(
    n=st.integers(0, 700),
    m=st.integers(1, 40),
    seed=st.integers(0, 2**30),
    chunk=st.integers(1, 300),
    threads=st.sampled_from([1, 2]),
)
def test_sums_have_the_same_bits_in_any_order_chunks_threads_and_shards(
    n: int, m: int, seed: int, chunk: int, threads: int
) -> None:
    x, group = records(n, m, seed)
    expected = sums(x, group)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    before, size = torch.get_num_threads(), exact_sums.CHUNK
    try:
        torch.set_num_threads(threads)
        exact_sums.CHUNK = chunk
        assert torch.equal(sums(x[order], group[order]), expected)
        shards = [sums(part, members) for part, members in zip(x.split(chunk), group.split(chunk))]
        assert torch.equal(torch.stack(shards).sum(0), expected)
    finally:
        torch.set_num_threads(before)
        exact_sums.CHUNK = size


@given(
    n=st.integers(1, 40),
    m=st.integers(1, 300),
    seed=st.integers(0, 2**30),
    power=st.integers(-30, 60),
    grid=st.sampled_from([GRAM_GRID, SUM_GRID, 2.0**50]),
    most=st.sampled_from([1.0, 0.7745966692414834, 1.7]),
)
def test_a_row_has_its_own_bits_whatever_is_beside_it(n: int, m: int, seed: int, power: int, grid: float, most: float) -> None:
    x = records(n, m, seed)[0] * 2.0**power
    x[::3] *= 2.0**-7  # short ones beside long ones
    x[1::5] *= 2.0**9  # and those whose squares are no longer exact
    rows, squares = clipped(x, grid, most), row_squares(x)
    for i in range(n):
        assert torch.equal(clipped(x[i : i + 1], grid, most)[0], rows[i])
        assert torch.equal(row_squares(x[i : i + 1])[0], squares[i])
        assert math.fsum(value**2 for value in rows[i].tolist()) <= most**2


def test_rounded_sums_fail_what_exact_ones_pass() -> None:
    """The broken twin: float32 rows that are not on a grid."""
    x, group = records(5000, 20, 0)

    def rounded(x: Tensor, group: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(group, K).float().T @ x

    assert not torch.equal(rounded(x, group), rounded(x.flip(0), group.flip(0)))
    assert torch.equal(sums(x, group), sums(x.flip(0), group.flip(0)))


def test_large_entries_are_split_into_products_that_are_exact() -> None:
    rows = torch.full((3, 1), 2.0**52 - 1, dtype=torch.float64)  # three of them are odd and above 2^53
    assert group_sums(rows, torch.zeros(3, dtype=torch.int64), 1, most=2.0**52).tolist() == [[3 * (2**52 - 1)]]
    with pytest.raises(ValueError, match=r"most is 0; it must lie in \(0, 2\^52\]"):
        group_sums(rows, torch.zeros(3, dtype=torch.int64), 1, most=0)


def test_rows_that_are_not_finite_move_nothing() -> None:
    x = torch.tensor([[math.nan, 0.1], [math.inf, 0.1], [-math.inf, math.inf], [0.5, 0.1]])
    assert not clipped(x)[:3].any()
    assert torch.allclose(clipped(x)[3], x[3].double(), atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"values": torch.zeros(2, dtype=torch.int32)},
        {"sensitivity": 0.0},
        {"step": 0.5, "values": torch.zeros(2)},
        {"step": -1.0},
        {"norm": "max"},
        {"replaced": 2.1},
    ],
)
def test_bounds_of_both_relations(options: dict[str, Any]) -> None:
    good = {"values": torch.zeros(2, dtype=torch.int64), "sensitivity": 1.0}
    assert BoundedSum(**good).under("replace_one") == 2.0
    assert BoundedSum(**good, replaced=0.5).under("replace_one") == 0.5
    assert BoundedSum(**good, replaced=0.5).under("add_remove") == 1.0
    with pytest.raises(ValueError, match=next(iter(options))):
        BoundedSum(**(good | options))
    with pytest.raises(ValueError, match="relation"):
        BoundedSum(torch.zeros(1), 1.0).under("swap")  # type: ignore[arg-type]
