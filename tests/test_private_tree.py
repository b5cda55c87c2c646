"""PrivTree: exact privacy loss on all small neighbours, the kernel against its chances, and leaves that make sense."""

import math
from collections import Counter
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from fixed_source import FixedKeySource

from dpgen.privacy.noise import PublicRandomness, SecureSource
from dpgen.privacy.parallel import Relation
from dpgen.systems.ordered.private_tree import PrivateTree

CASES = [(3.0, 1), (3.0, 2), (6.0, 1), (1.0, 1), (0.5, 2)]


def node_counts(data: np.ndarray, N: int) -> list[np.ndarray]:
    """Counts (datasets, 2^h) of every level of the dyadic tree."""
    cells = (data[:, :, None] == np.arange(N)).sum(1)
    return [cells.reshape(len(data), 2**h, -1).sum(2) for h in range((N - 1).bit_length() + 1)]


def neighbours(N: int, n: int, relation: Relation) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Node counts of all neighbouring pairs of data sets of at most n records, both ways."""
    rest = list(combinations_with_replacement(range(N), n - 1))
    base = np.array(rest, np.int64).reshape(len(rest), n - 1)
    one = np.repeat(base, N, axis=0), np.tile(np.arange(N), len(base))[:, None]
    with_record = node_counts(np.concatenate(one, axis=1), N)
    if relation == "add_remove":
        without = [np.repeat(level, N, axis=0) for level in node_counts(base, N)]
        return [np.concatenate(p) for p in zip(with_record, without)], [np.concatenate(p) for p in zip(without, with_record)]
    pairs = np.array([(b * N + x, b * N + y) for b, x, y in product(range(len(base)), range(N), range(N)) if x != y])
    return [level[pairs[:, 0]] for level in with_record], [level[pairs[:, 1]] for level in with_record]


def largest_loss(tree: PrivateTree, first: list[np.ndarray], second: list[np.ndarray]) -> float:
    """Largest log-ratio over all pairs and all trees: the best of stopping and splitting, from the leaves up."""
    most = int(first[0].max() + second[0].max())
    value = np.zeros_like(first[-1], dtype=float)
    for depth in range(len(first) - 2, -1, -1):
        chance = np.array([tree.split_chance(count, depth) for count in range(most + 1)])
        stop, split = np.log1p(-chance), np.log(chance)
        below = value.reshape(len(value), -1, 2).sum(2)
        value = np.maximum(stop[first[depth]] - stop[second[depth]], split[first[depth]] - split[second[depth]] + below)
    return float(value.max())


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("N", [8, 16])
def test_no_pair_of_neighbours_loses_more_than_epsilon(N: int, relation: Relation) -> None:
    for n in range(1, 5):
        pair = neighbours(N, n, relation)
        for epsilon, threshold in CASES:
            assert largest_loss(PrivateTree(epsilon=epsilon, threshold=threshold, relation=relation), *pair) <= epsilon + 1e-9


@pytest.mark.parametrize(("epsilon", "threshold"), [(0.2, 40), (1.0, 3), (1.0, 40), (5.0, 12)])
def test_the_worst_path_of_any_length_and_counts(epsilon: float, threshold: int) -> None:
    """Largest sum of split losses over all falling counts: 3 / lambda for an insertion; a cell that stays whole: 1 / lambda."""
    tree = PrivateTree(epsilon=epsilon, threshold=threshold, relation="add_remove")
    assert tree.noise_scale is not None
    most, best, stop = threshold + 40 * tree.decay, np.zeros(threshold + 40 * tree.decay + 1), 0.0
    for depth in range(12, -1, -1):
        chance = np.array([tree.split_chance(count, depth) for count in range(most + 1)])
        split = np.concatenate([[0.0], np.diff(np.log(chance))])
        open_cells = np.log1p(-chance[chance < 0.999])
        stop = max(stop, float(-np.diff(open_cells).min()))
        best = np.maximum.accumulate(np.maximum(split + best, best))
    assert 1.9 < best[-1] * tree.noise_scale < 3 + 1e-6
    assert stop * tree.noise_scale < 1 + 1e-6


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_half_the_noise_is_rejected(relation: Relation) -> None:
    pair = neighbours(8, 4, relation)
    losses = []
    for epsilon, threshold in CASES:
        right = PrivateTree(epsilon=epsilon, threshold=threshold, relation=relation)
        assert right.noise_scale is not None
        twin = PrivateTree(epsilon=epsilon, threshold=threshold, relation=relation, noise_scale=right.noise_scale / 2)
        losses.append(largest_loss(twin, *pair) / epsilon)
    assert max(losses) > 1.05


def test_replace_one_is_cheaper_than_two_insertions() -> None:
    """Zhang et al. double 3 / lambda; the splits on the two paths pull in opposite directions, so 4 / lambda suffices."""
    assert PrivateTree(epsilon=1.0, threshold=5).noise_scale == 4.0
    assert PrivateTree(epsilon=1.0, threshold=5, relation="add_remove").noise_scale == 3.0


def tree_chances(
    tree: PrivateTree, values: np.ndarray, start: int, width: int, depth: int, N: int
) -> dict[tuple[int, ...], float]:
    """Chance of every set of leaf ends below a cell."""
    end = min(start + width, N)
    if width == 1:
        return {(end,): 1.0}
    split = tree.split_chance(int(((values >= start) & (values < start + width)).sum()), depth)
    out = {(end,): 1 - split}
    left = tree_chances(tree, values, start, width // 2, depth + 1, N)
    middle = start + width // 2
    right = tree_chances(tree, values, middle, width // 2, depth + 1, N) if middle < N else {(): 1.0}
    for (a, p), (b, q) in product(left.items(), right.items()):
        out[a + b] = out.get(a + b, 0.0) + split * p * q
    return out


@pytest.mark.parametrize("N", [8, 5])
def test_leaves_have_their_chances(N: int) -> None:
    """Chi-square with about 25 degrees of freedom: above 110 with chance < 1e-10."""
    values, draws = np.array([0, 0, 1, 1, 1, 4]), 6000
    tree, source = PrivateTree(epsilon=4.0, threshold=2), SecureSource()
    expected = tree_chances(tree, values, 0, 8, 0, N)
    assert sum(expected.values()) == pytest.approx(1)
    seen = Counter(tuple(tree.leaves(values, N=N, source=source)[0].tolist()) for _ in range(draws))
    assert set(seen) <= set(expected)
    chi = sum((seen[k] - draws * p) ** 2 / (draws * p) for k, p in expected.items())
    assert chi < 110


def test_leaves_carry_prefix_counts_and_follow_the_records() -> None:
    rng = np.random.default_rng(0)
    values = np.sort(np.concatenate([rng.integers(0, 10**18, 500), np.full(20000, 123456789)]))
    tree = PrivateTree(epsilon=1.0, threshold=100)
    ends, below = tree.leaves(values, N=10**18, source=FixedKeySource(1))
    assert ends[-1] == 10**18
    assert (np.diff(ends) > 0).all()
    assert below.tolist() == np.searchsorted(values, ends).tolist()
    assert {123456789, 123456790} <= set(ends.tolist()), "a heavy value gets a leaf of its own"


def test_more_coins_continue_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.sort(np.random.default_rng(0).integers(0, 1000, 3000))
    tree = PrivateTree(epsilon=2.0, threshold=5)
    words = FixedKeySource(3).random_bytes(2**18)

    class Tape(SecureSource):
        at = 0

        def random_bytes(self, count: int) -> bytes:
            self.at += count
            return words[self.at - count : self.at]

    plenty = tree.leaves(values, N=1000, source=Tape())[0]
    monkeypatch.setattr("dpgen.systems.ordered.private_tree._FIRST_COINS", 20 - 4 * (3000 // 5))
    assert tree.leaves(values, N=1000, source=Tape())[0].tolist() == plenty.tolist()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epsilon": 0.0}, "epsilon is 0.0"),
        ({"epsilon": math.inf}, "epsilon is inf"),
        ({"epsilon": 500.0}, r"epsilon is 500.0; that of a tree must be in \[4e-06, 400\]"),
        ({"epsilon": 1e-6}, "epsilon is 1e-06; that of a tree"),
        ({"threshold": 0}, "threshold is 0"),
    ],
)
def test_bad_options_are_refused(options: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PrivateTree(**{"epsilon": 1.0, "threshold": 3, **options})


def test_public_randomness_is_refused() -> None:
    with pytest.raises(TypeError, match="SecureSource"):
        PrivateTree(epsilon=1.0, threshold=3).leaves(np.array([1, 2]), N=8, source=PublicRandomness(0))  # type: ignore[arg-type]
