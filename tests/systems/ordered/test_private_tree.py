"""PrivTree: exact privacy loss on all small neighbours, the kernel against its chances, and leaves that make sense."""

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from fixed_source import FixedKeySource
from refusals import refused

from dpgen.data.toy import REFERENCE_MIXTURES, reference_mixture
from dpgen.evaluation.columns import empirical_error, kolmogorov_error
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.mechanisms import ApproximateDpEvent, Relation
from dpgen.privacy.noise import SecureSource
from dpgen.systems.ordered.model import PiecewiseCDF
from dpgen.systems.ordered.partition import PartitionCDF, PrivateTree, TreeNoise, TreeRule

CASES = [(3.0, 1), (3.0, 2), (6.0, 1), (1.0, 1), (0.5, 2)]
RELATIONS: tuple[Relation, ...] = ("add_remove", "replace_one")


def rule(epsilon: float, threshold: int, relation: Relation = "replace_one", *, noise: TreeNoise | None = None) -> TreeRule:
    return TreeRule(threshold=threshold, noise=noise or TreeNoise.of(epsilon, relation), relation=relation)


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


def log_chances(tree: TreeRule, counts: range, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of the chances that cells of so many records are split, and are not."""
    rows, least = tree.chances()
    chances = [Fraction((int(high) << 64) + int(low), 2**128) for high, low in rows]
    k = [tree.threshold + 1 - max(c - depth * tree.noise.decay, tree.threshold - tree.noise.decay) for c in counts]
    found = [chances[i - least] if i >= least else Fraction(2**128 - 1, 2**128) for i in k]
    return np.log([float(p) for p in found]), np.log([float(1 - p) for p in found])


def largest_loss(tree: TreeRule, first: list[np.ndarray], second: list[np.ndarray]) -> float:
    """Largest log-ratio over all pairs and all trees: the best of stopping and splitting, from the leaves up."""
    most = int(first[0].max() + second[0].max())
    value = np.zeros_like(first[-1], dtype=float)
    for depth in range(len(first) - 2, -1, -1):
        split, stop = log_chances(tree, range(most + 1), depth)
        below = value.reshape(len(value), -1, 2).sum(2)
        value = np.maximum(stop[first[depth]] - stop[second[depth]], split[first[depth]] - split[second[depth]] + below)
    return float(value.max())


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("N", [8, 16])
def test_no_pair_of_neighbours_loses_more_than_epsilon(N: int, relation: Relation) -> None:
    for n in range(1, 5):
        pair = neighbours(N, n, relation)
        for epsilon, threshold in CASES:
            assert largest_loss(rule(epsilon, threshold, relation), *pair) <= epsilon + 1e-9


def worst_path(tree: TreeRule, levels: int) -> tuple[float, float]:
    """Largest sum of the losses of splits over all falling counts, and the largest loss of a cell that stays whole."""
    most = tree.threshold + (levels + 2) * tree.noise.decay + 4
    rows, _ = tree.chances()
    stays = np.array([1 - Fraction((int(high) << 64) + int(low), 2**128) for high, low in rows], float)
    best, stop = np.zeros(most + 1), float(np.diff(np.log(stays[stays > 1e-25])).max())
    for depth in range(levels - 1, -1, -1):
        chance = np.array([tree.split_chance(count, depth) for count in range(most + 1)])
        split = np.concatenate([[0.0], np.diff(np.log(chance))])
        best = np.maximum.accumulate(np.maximum(split + best, best))
    return float(best[-1]), stop


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("epsilon", "threshold"), [(0.01, 200), (0.3, 16), (0.7, 1), (1.0, 40), (5.0, 12), (30.0, 2)])
def test_the_worst_path_of_any_length_and_counts_costs_epsilon_and_wastes_nothing(
    epsilon: float, threshold: int, relation: Relation
) -> None:
    """An inserted record's splits, and under replace-one the end of the path that another record leaves."""
    tree = rule(epsilon, threshold, relation)
    splits, stop = worst_path(tree, 12)
    loss = splits if relation == "add_remove" else splits + stop
    assert 0.99 * epsilon <= loss <= epsilon * (1 + 1e-9)
    assert stop * tree.noise.scale == pytest.approx(1.0, rel=1e-6)
    assert tree.event == ApproximateDpEvent(tree.noise.loss(relation))
    assert loss <= tree.event.epsilon + 1e-9


@pytest.mark.parametrize("relation", RELATIONS)
def test_half_the_noise_is_rejected(relation: Relation) -> None:
    pair = neighbours(8, 4, relation)
    losses, stated = [], []
    for epsilon, threshold in CASES:
        right = TreeNoise.of(epsilon, relation)
        twin = rule(epsilon, threshold, relation, noise=TreeNoise(right.scale / 2, right.decay))
        losses.append(largest_loss(twin, *pair) / epsilon)
        stated.append(twin.event.epsilon / epsilon)  # and whoever used it would have to pay for it
    assert max(losses) > 1.05
    assert min(stated) > 1.5


def test_replace_one_is_cheaper_than_two_insertions_and_both_than_published() -> None:
    """Published 3 / lambda and twice that. Erdos and Borwein's constant: sum 1 / (2^j - 1) = 1.6067."""
    constant = 1 + sum(1 / (2**j - 1) for j in range(1, 60))
    for epsilon in (0.001, 0.01):
        alone, both = TreeNoise.of(epsilon, "add_remove"), TreeNoise.of(epsilon, "replace_one")
        assert alone.scale * epsilon == pytest.approx(constant, rel=2e-3)
        assert both.scale * epsilon == pytest.approx(constant + 1, rel=2e-3)
        assert both.decay / both.scale == pytest.approx(math.log(2), rel=5e-3)
    for epsilon in np.geomspace(1e-3, 60, 8).tolist():
        assert TreeNoise.of(epsilon, "add_remove").scale < 3 / epsilon
        assert TreeNoise.of(epsilon, "replace_one").scale < 4 / epsilon


def tree_chances(
    tree: TreeRule, values: np.ndarray, start: int, width: int, depth: int, N: int
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
    values, draws = np.array([0, 0, 1, 1, 1, 4]), 3000
    tree = rule(4.0, 2)
    expected = tree_chances(tree, values, 0, 8, 0, N)
    assert sum(expected.values()) == pytest.approx(1)
    seen = Counter(tuple(ends.tolist()) for ends in PrivateTree(values, N=N, rule=tree).draw(SecureSource(), draws))
    assert set(seen) <= set(expected)
    chi = sum((seen[k] - draws * p) ** 2 / (draws * p) for k, p in expected.items())
    assert chi < 110


def test_leaves_follow_the_records() -> None:
    rng = np.random.default_rng(0)
    values = np.sort(np.concatenate([rng.integers(0, 10**18, 500), np.full(20000, 123456789)]))
    [ends] = PrivateTree(values, N=10**18, rule=rule(1.0, 100)).draw(FixedKeySource(1))
    assert ends[-1] == 10**18
    assert (np.diff(ends) > 0).all()
    assert {123456789, 123456790} <= set(ends.tolist()), "a heavy value gets a leaf of its own"


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_records_have_a_tree_like_any_other(relation: Relation) -> None:
    tree = PrivateTree(np.empty(0, np.int64), N=10**18, rule=rule(1.0, 3, relation))
    sizes = [len(ends) for ends in tree.draw(FixedKeySource(2), 200)]
    assert min(sizes) == 1
    assert max(sizes) > 1, "the tree of nobody is noisy, too"


def test_more_coins_continue_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.sort(np.random.default_rng(0).integers(0, 1000, 3000))
    tree = PrivateTree(values, N=1000, rule=rule(2.0, 5))
    words = FixedKeySource(3).random_bytes(2**18)

    class Tape(SecureSource):
        at = 0

        def random_bytes(self, count: int) -> bytes:
            self.at += count
            return words[self.at - count : self.at]

    [plenty] = tree.draw(Tape())
    monkeypatch.setattr("dpgen.systems.ordered.partition._FIRST_COINS", 20 - 4 * (3000 // 5))
    assert tree.draw(Tape())[0].tolist() == plenty.tolist()


def test_bad_budgets_and_rules_are_refused() -> None:
    for epsilon in (0.0, math.inf, 500.0, 1e-6):
        with refused("epsilon"):
            TreeNoise.of(epsilon, "add_remove")
    with refused("threshold"):
        rule(1.0, 0)
    with refused("relation"):
        TreeNoise.of(1.0, "both")  # type: ignore[arg-type]


# -- estimates ---------------------------------------------------------------------------------------------------------


N = 10**18


@pytest.mark.parametrize("name", REFERENCE_MIXTURES)
def test_the_error_is_that_of_the_empirical_cdf(name: str) -> None:
    """Three draws of 30,000 records; the goal is a ratio of mean errors <= 1.10 from 10^5 on, the room is for chance."""
    mixture, rng = reference_mixture(name), np.random.default_rng(0)  # type: ignore[arg-type]
    ours, plain = [], []
    for _ in range(3):
        x = np.sort(mixture.draw(30_000, N, rng))
        counts = PartitionCDF(epsilon=1.0, delta=1e-5).fit_counts(
            x, N=N, curator=Curator(Ledger(None, delta=1e-5, relation="replace_one"))
        )
        ours.append(kolmogorov_error(PiecewiseCDF.from_counts(counts), x, mixture))
        plain.append(empirical_error(x, mixture, N))
        assert kolmogorov_error(PiecewiseCDF.from_counts(counts), x) > 1e-4, "too good: the noise is missing"
    assert np.mean(ours) / np.mean(plain) < 1.35


@pytest.mark.parametrize(
    ("relation", "size", "notes"),
    [
        ("replace_one", None, ["partition: tree", "partition: prefix counts"]),
        ("add_remove", 4000, ["partition: tree", "partition: prefix counts"]),
        ("add_remove", None, ["number of records, discrete Laplace", "partition: tree", "partition: prefix counts"]),
    ],
)
def test_what_is_charged_fills_the_budget(relation: Relation, size: int | None, notes: list[str]) -> None:
    ledger = Ledger(Budget(1.0, 1e-6), relation=relation)
    PartitionCDF(epsilon=1.0, delta=1e-6, size=size).fit_counts(np.arange(4000), N=4096, curator=Curator(ledger))
    assert [entry.note for entry in ledger.entries()] == notes
    assert 0.995 < ledger.epsilon() <= 1.0


def test_one_leaf_and_ties_are_fine() -> None:
    def cdf(epsilon: float, values: np.ndarray, N: int) -> PiecewiseCDF:
        curator = Curator(Ledger(None, delta=1e-6, relation="replace_one"))
        return PiecewiseCDF.from_counts(PartitionCDF(epsilon=epsilon, delta=1e-6).fit_counts(values, N=N, curator=curator))

    assert cdf(0.01, np.array([3, 4]), 8).values[-1] == 1
    assert np.diff(cdf(2.0, np.full(5000, 77), 10**15).below([77, 78])) > 0.9
