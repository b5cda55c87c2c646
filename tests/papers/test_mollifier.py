"""The picture of a mollifier."""

import itertools
import math
from pathlib import Path

import pandas as pd
import pytest
import torch

from papers.husain2020 import COLOURS, densities, measured, members_of, reproduce

GRID = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000


@pytest.mark.parametrize("epsilon", list(COLOURS))
def test_the_members_are_a_mollifier_of_densities(epsilon: float) -> None:
    members = members_of(epsilon, GRID)
    for first, second in itertools.permutations(members.values(), 2):
        assert float((first / second).max()) <= math.exp(epsilon)
    for name, curve in members.items():
        assert float(curve.mean()) == pytest.approx(1, abs=1e-5)
        values = densities()[name][0](GRID)
        assert float(values[curve.argmax()]) == pytest.approx(float(values.max()), rel=1e-9), "the mode stays"
    assert 0.6 * epsilon < measured(members) <= epsilon


def test_the_files(tmp_path: Path) -> None:
    text = reproduce(tmp_path, quick=True)
    table = pd.read_csv(tmp_path / "mollifier.csv")
    assert len(table) == 2 * 3 * 101
    assert (tmp_path / "mollifier.png").read_bytes()[:4] == b"\x89PNG"
    assert "eps 0.2: largest log-ratio on the curves 0.1" in text
