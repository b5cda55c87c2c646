"""Counting queries and marginals against counting, correlations against numpy and scipy."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from refusals import refused
from torch import Tensor

from dpgen.metrics.queries import (
    answers,
    associations,
    conjunctions,
    correlation_errors,
    independent_marginals,
    marginal_errors,
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


@pytest.mark.parametrize("n", [1, 8, 203])
@pytest.mark.parametrize("predicate", ["any", "all"])
def test_answers_agree_with_counting(n: int, predicate: str) -> None:
    x = records(n, 12, seed=n)
    queries = [items for group in random_queries(12, 9, generator=generator(), n_queries=50) for items in group]
    assert answers(x, queries, predicate=predicate).tolist() == pytest.approx(by_counting(x, queries, predicate))


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


def test_conjunctions_are_all_sets_of_frequent_items() -> None:
    x = torch.zeros(100, 6, dtype=torch.uint8)
    for item, count in enumerate([50, 6, 5, 99, 0, 7]):
        x[:count, item] = 1
    pairs = [items.tolist() for items in conjunctions(x, 2, generator=generator())]
    assert pairs == [[0, 1], [0, 3], [0, 5], [1, 3], [1, 5], [3, 5]]
    some = [tuple(items.tolist()) for items in conjunctions(x, 2, generator=generator(), n_queries=4)]
    assert len(set(some)) == 4
    assert set(some) <= {tuple(pair) for pair in pairs}
    with pytest.raises(ValueError, match="k is 5"):
        conjunctions(x, 5, generator=generator())


def test_query_errors_agree_with_their_parts() -> None:
    real, synthetic = records(200, 10), records(150, 10, seed=1, share=0.4)
    draws = generator(5)
    groups = random_queries(10, int(real.sum(1).max()), generator=draws, n_queries=100)
    pairs = [conjunctions(real, k, generator=draws, n_queries=100) for k in (1, 2, 3)][1]
    errors = query_errors(real, synthetic, seed=5, n_queries=100)
    assert list(errors) == ["any_20%", "any_40%", "any_60%", "any_80%", "any_100%", "all_1", "all_2", "all_3"]
    assert set(query_errors(real, real, n_queries=50).values()) == {0.0}
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


def categories(n: int, sizes: tuple[int, ...], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    columns = [(torch.rand(n, generator=generator) ** 2 * size).long().clamp_max(size - 1) for size in sizes]
    return torch.stack(columns, 1)


def by_cells(real: Tensor, synthetic: Tensor, k: int) -> list[float]:
    """The definition: count the cells of each marginal, and add up what differs."""
    errors = []
    for chosen in combinations(range(real.shape[1]), k):
        own, other = (Counter(map(tuple, x[:, list(chosen)].tolist())) for x in (real, synthetic))
        errors.append(sum(abs(own[c] / len(real) - other[c] / len(synthetic)) for c in own | other) / 2)
    return errors


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("sizes", [(2,) * 5, (2, 7, 1, 10**6, 3)])
def test_marginals_agree_with_counting(sizes: tuple[int, ...], k: int) -> None:
    real, synthetic = categories(80, sizes, 0), categories(33, sizes, 1)
    found = marginal_errors(real, synthetic, k)
    assert found.tolist() == pytest.approx(by_cells(real, synthetic, k), abs=1e-12)
    assert marginal_errors(real.int(), synthetic.int(), k).tolist() == found.tolist()


@pytest.mark.parametrize("kind", ["real", "binary", "far", "tiny"])
def test_correlations_agree_with_numpy(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(5, 5, generator=generator, dtype=torch.float64)
    real, synthetic = (torch.randn(n, 5, generator=generator, dtype=torch.float64) @ mixing for n in (60, 40))
    change = {
        "real": lambda x: x,
        "binary": lambda x: (x > 0).to(torch.uint8),
        "far": lambda x: x + 1e5,
        "tiny": lambda x: x / 1e200,
    }
    real, synthetic = change[kind](real), change[kind](synthetic)
    scale = 1e200 if kind == "tiny" else 1
    own, other = (np.corrcoef(x.double().numpy().T * scale) for x in (real, synthetic))
    expected = np.abs(own - other)[np.triu_indices(5, 1)]
    assert correlation_errors(real, synthetic).tolist() == pytest.approx(expected, abs=1e-9)


ONE, X = [torch.tensor([0])], records(30, 5, share=0.5)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        *((lambda x=x: answers(x, ONE), "x") for x in (X.float(), X * 2, X[:0])),
        (lambda: answers(X, ONE, predicate="none"), "predicate"),
        *((lambda q=q: answers(X, [torch.tensor(q, dtype=torch.int64)]), "query 0") for q in ([5], [-1], [])),
        (lambda: relative_errors(X, X[:, :4], ONE), "synthetic"),
        (lambda: relative_errors(X, X, ONE, sanity=0.0), "sanity"),
        (lambda: random_queries(5, 6, generator=generator()), "max_length"),
        (lambda: random_queries(5, 3, generator=generator(), n_queries=7), "n_queries"),
        (lambda: conjunctions(X, 0, generator=generator()), "k"),
        (lambda: independent_marginals(X, 0, generator=generator()), "n"),
        *((lambda x=x: marginal_errors(X, x), "synthetic") for x in (X[0], X.float(), X.long() - 1)),
        (lambda: marginal_errors(X, X, 6), "k"),
        (lambda: marginal_errors(X, X, n_sets=0), "number of sets"),
        *((lambda x=x: correlation_errors(x, X), "real") for x in (X * 0, X / 0)),
    ],
)
def test_bad_input(call, name: str) -> None:
    with refused(name):
        call()


def test_associations_of_independent_columns_are_small_and_of_functions_one() -> None:
    x = categories(5000, (4, 5, 30), 1)
    found = associations(torch.cat([x, 7 - x[:, :1]], 1))
    assert found[0, 3] == pytest.approx(1, abs=1e-6)
    assert float(found[:3, :3].triu(1).max()) < 0.05
    assert torch.equal(found, found.T)


def test_a_constant_column_is_associated_with_nothing() -> None:
    x = torch.cat([categories(50, (3,), 2), torch.zeros(50, 1, dtype=torch.int64)], 1)
    assert associations(x)[0, 1] == 0
