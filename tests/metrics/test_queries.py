"""Counting queries against counting."""

from itertools import chain

import pytest
import torch
from torch import Tensor

from dpgen.metrics.queries import (
    answers,
    conjunctions,
    independent_marginals,
    query_errors,
    random_queries,
    relative_errors,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def records(n: int, d: int, seed: int = 0, share: float = 0.3) -> Tensor:
    return (torch.rand(n, d, generator=generator(seed)) < share).to(torch.uint8)


def by_counting(x: Tensor, queries: list[Tensor], predicate: str) -> list[float]:
    """The definition: look at each record and ask."""
    holds = {"any": any, "all": all}[predicate]
    return [sum(holds(record[i] == 1 for i in items.tolist()) for record in x.tolist()) / len(x) for items in queries]


@pytest.mark.parametrize("n", [1, 7, 8, 9, 203])
@pytest.mark.parametrize("predicate", ["any", "all"])
def test_answers_agree_with_counting(n: int, predicate: str) -> None:
    x = records(n, 12, seed=n)
    queries = [items for group in random_queries(12, 9, generator=generator(), n_queries=50) for items in group]
    assert answers(x, queries, predicate=predicate).tolist() == pytest.approx(by_counting(x, queries, predicate))


def test_predicates_differ_and_nest() -> None:
    x, queries = records(100, 10), [torch.tensor([0, 1]), torch.tensor([3]), torch.tensor([2, 5, 7])]
    at_least_one, every = answers(x, queries), answers(x, queries, predicate="all")
    assert (at_least_one >= every).all()
    assert at_least_one[1] == every[1] == x[:, 3].double().mean()
    assert at_least_one[0] > every[0]


def test_answers_take_any_memory_layout() -> None:
    x, queries = records(50, 20), [torch.tensor([0, 3, 4])]
    assert torch.equal(answers(x[::2, ::2], queries), answers(x[::2, ::2].clone(), queries))


def test_random_queries_follow_the_protocol() -> None:
    groups = random_queries(100, 63, generator=generator(3), n_queries=5000)
    assert [len(group) for group in groups] == [1000] * 5
    for i, group in enumerate(groups, start=1):
        lengths = torch.tensor([len(items) for items in group], dtype=torch.float64)
        longest = i * 63 // 5
        assert (int(lengths.min()), int(lengths.max())) == (1, longest)
        spread = ((longest**2 - 1) / 12 / 1000) ** 0.5
        assert abs(float(lengths.mean()) - (1 + longest) / 2) < 4 * spread
        assert all(len(items.unique()) == len(items) for items in group)
    drawn = torch.cat([items for group in groups for items in group]).bincount(minlength=100).double()
    assert drawn.min() > 0.9 * drawn.mean()
    assert drawn.max() < 1.1 * drawn.mean()


def test_random_queries_are_reproducible() -> None:
    first, again, other = (random_queries(20, 10, generator=generator(seed), n_queries=10) for seed in (1, 1, 2))
    same = [all(map(torch.equal, a, b)) for a, b in zip(first, again)]
    assert all(same)
    assert not all(len(a) == len(b) for a, b in zip(chain(*first), chain(*other)))


def test_short_records_still_give_queries_of_one_item() -> None:
    assert {len(items) for items in random_queries(9, 1, generator=generator(), n_queries=20)[0]} == {1}


def test_relative_errors_by_hand() -> None:
    real = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=torch.uint8)
    synthetic = torch.tensor([[1, 0, 0], [0, 0, 1]], dtype=torch.uint8)
    queries = [torch.tensor([0]), torch.tensor([1]), torch.tensor([2])]
    errors = relative_errors(real, synthetic, queries, sanity=0.1)
    assert errors.tolist() == pytest.approx([(0.75 - 0.5) / 0.75, 0.25 / 0.25, 0.5 / 0.1])


def test_sanity_bound_is_a_thousandth_by_default() -> None:
    real = torch.zeros(2000, 2, dtype=torch.uint8)
    real[0, 0] = 1
    synthetic = torch.zeros(1000, 2, dtype=torch.uint8)
    assert relative_errors(real, synthetic, [torch.tensor([0])]).item() == pytest.approx((1 / 2000) / 0.001)


def test_conjunctions_are_all_sets_of_frequent_items() -> None:
    x = torch.zeros(100, 6, dtype=torch.uint8)
    for item, count in enumerate([50, 6, 5, 99, 0, 7]):
        x[:count, item] = 1
    pairs = [items.tolist() for items in conjunctions(x, 2, generator=generator())]
    assert pairs == [[0, 1], [0, 3], [0, 5], [1, 3], [1, 5], [3, 5]]
    some = [tuple(items.tolist()) for items in conjunctions(x, 2, generator=generator(), n_queries=4)]
    assert len(set(some)) == 4
    assert set(some) <= {tuple(pair) for pair in pairs}
    with pytest.raises(ValueError, match=r"k is 5: it must be in \[1, 4\], the items with marginal > 0.05"):
        conjunctions(x, 5, generator=generator())


def test_query_errors_of_the_data_themselves_are_zero() -> None:
    x = records(300, 15)
    errors = query_errors(x, x, n_queries=50)
    assert list(errors) == ["any_20%", "any_40%", "any_60%", "any_80%", "any_100%", "all_1", "all_2", "all_3"]
    assert set(errors.values()) == {0.0}


def test_query_errors_agree_with_their_parts() -> None:
    real, synthetic = records(200, 10), records(150, 10, seed=1, share=0.4)
    draws = generator(5)
    groups = random_queries(10, int(real.sum(1).max()), generator=draws, n_queries=100)
    pairs = [conjunctions(real, k, generator=draws, n_queries=100) for k in (1, 2, 3)][1]
    errors = query_errors(real, synthetic, seed=5, n_queries=100)
    truth, guess = by_counting(real, pairs, "all"), by_counting(synthetic, pairs, "all")
    expected = sum(abs(b - a) / max(a, 0.001) for a, b in zip(truth, guess)) / len(pairs)
    assert errors["all_2"] == pytest.approx(expected)
    assert errors["any_60%"] == pytest.approx(float(relative_errors(real, synthetic, groups[2]).mean()))


def test_query_errors_leave_out_conjunctions_of_rare_items() -> None:
    x = torch.zeros(100, 5, dtype=torch.uint8)
    x[:50, 0] = 1
    assert [key for key in query_errors(x, x, n_queries=5) if key.startswith("all")] == ["all_1"]
    assert "all_1" not in query_errors(torch.zeros_like(x), x, n_queries=5)


def test_independent_marginals_keep_marginals_and_lose_pairs() -> None:
    x = records(4000, 8).repeat_interleave(2, dim=1)
    baseline = independent_marginals(x, 20000, generator=generator(7))
    assert (baseline.shape, baseline.dtype) == ((20000, 16), torch.uint8)
    assert (baseline.double().mean(0) - x.double().mean(0)).abs().max() < 4 * (0.25 / 20000) ** 0.5
    errors = query_errors(x, baseline, n_queries=50)
    assert errors["all_1"] < 0.05
    assert errors["all_2"] > 2 * errors["all_1"]


ONE = [torch.tensor([0])]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: answers(x.float(), ONE), "x has dtype torch.float32: it must be torch.uint8"),
        (lambda x: answers(x * 2, ONE), "x has the value 2"),
        (lambda x: answers(x[:0], ONE), r"x has shape \(0, 5\)"),
        (lambda x: answers(x, ONE, predicate="none"), "predicate is 'none': it must be one of any, all"),
        (lambda x: answers(x, [torch.tensor([5])]), r"query 0 has items \[5\]: each must be in \[0, 4\]"),
        (lambda x: answers(x, [*ONE, torch.tensor([-1])]), r"query 1 has items \[-1\]"),
        (lambda x: answers(x, [torch.tensor([], dtype=torch.int64)]), r"query 0 has items \[\]"),
        (lambda x: relative_errors(x, x[:, :4], ONE), "synthetic has 4 columns, real has 5"),
        (lambda x: relative_errors(x, x, ONE, sanity=0.0), "sanity is 0.0: it must be > 0"),
        (lambda x: relative_errors(x, x[:0], ONE), r"synthetic has shape \(0, 5\)"),
        (lambda x: random_queries(5, 6, generator=generator()), r"max_length is 6: it must be in \[1, 5\]"),
        (lambda x: random_queries(5, 0, generator=generator()), "max_length is 0"),
        (lambda x: random_queries(5, 3, generator=generator(), n_queries=7), "n_queries is 7: .* multiple of classes"),
        (lambda x: conjunctions(x, 0, generator=generator()), "k is 0"),
        (lambda x: conjunctions(x, 1, generator=generator(), n_queries=0), "n_queries is 0: it must be >= 1"),
        (lambda x: independent_marginals(x, 0, generator=generator()), "n is 0: it must be >= 1"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(records(30, 5, share=0.5))
