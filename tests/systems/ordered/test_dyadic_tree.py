"""The fixed tree: consistency is least squares, and the noise of a level is what was charged."""

import math

import numpy as np
import pytest

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.mechanisms import Relation
from dpgen.privacy.noise import SecureSource
from dpgen.systems.ordered.baselines import DyadicTree, consistent_leaves


def design(height: int, root: bool) -> np.ndarray:
    rows = [np.kron(np.eye(2**level), np.ones((1, 2 ** (height - level)))) for level in range(0 if root else 1, height + 1)]
    return np.concatenate(rows)


def test_consistency_is_least_squares() -> None:
    rng, height = np.random.default_rng(0), 4
    levels = [rng.normal(10, 3, 2**level) for level in range(height + 1)]
    slow = np.linalg.lstsq(design(height, True), np.concatenate(levels), rcond=None)[0]
    assert consistent_leaves(levels) == pytest.approx(slow)


def test_consistency_with_a_known_root_is_constrained_least_squares() -> None:
    rng, height, total = np.random.default_rng(1), 4, 123.0
    levels = [rng.normal(10, 3, 2**level) for level in range(1, height + 1)]
    A, y, ones = design(height, False), np.concatenate(levels), np.ones(2**height)
    system = np.block([[A.T @ A, ones[:, None]], [ones[None], np.zeros((1, 1))]])
    slow = np.linalg.solve(system, np.concatenate([A.T @ y, [total]]))[:-1]
    assert consistent_leaves(levels, total) == pytest.approx(slow)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_noise_is_that_of_all_levels_together(relation: Relation, delta: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record is in one cell of each of 4 (add/remove: 5) noisy levels; a replaced one leaves one and enters another."""
    asked: list[float] = []
    source = SecureSource()
    for name in ("rounded_normal", "discrete_laplace"):
        draw = getattr(source, name)
        monkeypatch.setattr(source, name, lambda *s, draw=draw, **k: (asked.append(*k.values()), draw(*s, **k))[1])
    ledger = Ledger(None, delta=1e-6, relation=relation)
    DyadicTree(epsilon=1.0, delta=delta, depth=4).fit(np.arange(100), N=100, curator=Curator(ledger, source=source))
    levels, moved = (5, 1) if relation == "add_remove" else (4, 2)
    assert len(asked) == 1
    if delta:
        multiplier = ledger.entries()[0].event.noise_multiplier / (2 if relation == "replace_one" else 1)
        assert asked[0] == pytest.approx(multiplier * math.sqrt(levels * moved))
        assert 0.99 < ledger.epsilon() <= 1.0
    else:
        assert asked[0] == levels * moved


def test_depth_is_checked() -> None:
    with pytest.raises(ValueError, match="depth is 0"):
        DyadicTree(epsilon=1.0, depth=0)
