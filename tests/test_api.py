"""The front door: what people type first in Python works, gives back what came in, and refuses in one line."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import dpgen

RNG = np.random.default_rng(0)
N = 300


def bits() -> pd.DataFrame:
    """0/1 columns of many types, every name of which needs care."""
    x = RNG.integers(0, 2, (N, 6))
    columns = ["tea", 7, "x", "c", "b", "o"]
    frame = pd.DataFrame(x, columns=pd.Index(columns, dtype=object))
    types: dict[Any, Any] = {7: "bool", "x": "float64", "c": "category", "b": "uint8", "o": "Int64"}
    return frame.astype(types)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return bits()


def test_the_first_five_lines(frame: pd.DataFrame, tmp_path: Path) -> None:
    release = dpgen.fit("gaussian", frame, epsilon=1.0)
    rows = release.sample(500)
    assert rows.columns.tolist() == frame.columns.tolist()
    assert rows.dtypes.tolist() == frame.dtypes.tolist()
    assert len(rows) == 500
    assert 0 < release.epsilon <= 1.0
    assert (release.delta, release.statement.delta) == (1e-5, 1e-5)
    assert "names, order and types" in release.statement.to_markdown()
    release.save(tmp_path / "model")
    loaded = dpgen.load(tmp_path / "model")
    assert loaded.sample(10, random_state=3).equals(release.sample(10, random_state=3))
    assert repr(release).startswith("GaussianMixtureModel(6 columns, epsilon 1 at delta 1e-05")


def test_the_estimator_of_scikit_learn(frame: pd.DataFrame) -> None:
    made = clone(dpgen.Synthesizer(model="gaussian", epsilon=2.0)).fit(frame)
    assert isinstance(made, dpgen.GaussianSynthesizer)
    assert made.sample(7).columns.tolist() == frame.columns.tolist()
    assert 1.0 < made.release_.epsilon <= 2.0
    assert made.n_features_in_ == 6
    assert np.isfinite(made.score(frame))
    assert pickle.loads(pickle.dumps(dpgen.GaussianSynthesizer(epsilon=3.0))).epsilon == 3.0


def test_random_states_are_those_of_scikit_learn(frame: pd.DataFrame) -> None:
    release = dpgen.fit("gaussian", frame, epsilon=1.0)
    for make in (lambda: 5, lambda: np.random.default_rng(5), lambda: np.random.RandomState(5)):
        assert release.sample(9, make()).equals(release.sample(9, make()))
    generator = np.random.default_rng(5)
    assert not release.sample(50, generator).equals(release.sample(50, generator)), "it moves on"
    assert not release.sample(50).equals(release.sample(50))
    with pytest.raises(ValueError, match=r"random_state is 'x'; it must be None, an integer in \[0, 2\^63\) or NumPy's"):
        release.sample(3, "x")  # type: ignore[arg-type]
