"""Estimators of scikit-learn: its own checks, and what the checks do not ask."""

import inspect
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

import dpgen
from dpgen.api import estimator
from dpgen.systems.registry import SYSTEMS

BITS = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (80, 4)), columns=list("abcd"))

MESSAGES = "the error is ours: it names column, row and value"
CONTAINERS = "an error of type: such arrays are no numbers"
DOES_NOT_APPLY = {
    "check_complex_data": CONTAINERS,
    "check_dtype_object": CONTAINERS,
    "check_estimators_empty_data_messages": MESSAGES,
    "check_estimators_nan_inf": MESSAGES,
    "check_fit2d_1sample": MESSAGES,
}
NOT_BITS = "feeds real numbers, and the data of this system are 0 and 1"
FED_NUMBERS = (
    "check_fit_score_takes_y", "check_estimators_overwrite_params", "check_dont_overwrite_parameters",
    "check_estimators_fit_returns_self", "check_readonly_memmap_input", "check_n_features_in_after_fitting",
    "check_positive_only_tag_during_fit", "check_estimators_dtypes", "check_pipeline_consistency", "check_estimators_pickle",
    "check_f_contiguous_array_estimator", "check_methods_sample_order_invariance", "check_methods_subset_invariance",
    "check_fit2d_1feature", "check_dict_unchanged", "check_fit_idempotent", "check_fit_check_is_fitted", "check_n_features_in",
    "check_fit2d_predict1d", "check_estimator_sparse_tag",
)  # fmt: skip
EXPECTED: list[tuple[Any, dict[str, str]]] = [
    (
        dpgen.BernsteinSynthesizer(bounds="-1000,1000", out_of_range="clamp", degree=3),
        DOES_NOT_APPLY | {"check_fit1d": "numbers (n,) are one column"},
    ),
    (dpgen.GaussianSynthesizer(), DOES_NOT_APPLY | dict.fromkeys(FED_NUMBERS, NOT_BITS)),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize(("made", "expected"), EXPECTED, ids=["bernstein", "gaussian"])
def test_the_checks_of_scikit_learn(made: Any, expected: dict[str, str]) -> None:
    results = check_estimator(made, on_fail=None, on_skip=None)
    failed = {result["check_name"] for result in results if result["status"] == "failed"}
    known = {result["check_name"] for result in results}  # of this version
    assert failed == set(expected) & known, "neither more nor fewer"
    assert sum(result["status"] == "passed" for result in results) >= 12


@pytest.mark.parametrize("model", list(SYSTEMS))
def test_every_system_has_an_estimator(model: str) -> None:
    made = dpgen.Synthesizer(model, epsilon=2.0)
    assert type(made) is estimator(model)
    assert getattr(dpgen, type(made).__name__) is type(made), "it is exported"
    assert isinstance(made, dpgen.Synthesizer)
    assert clone(made).get_params() == made.get_params()
    assert repr(made) == f"{type(made).__name__}(epsilon=2.0)"
    assert set(made.get_params()) == set(inspect.signature(type(made)).parameters)
    assert {"run_dir", "seed", "epsilon"} <= set(made.get_params())
    assert "path" not in made.get_params()
    assert "epsilon: " in (type(made).__doc__ or "")


def test_parameters_reach_the_fit_and_defaults_do_not() -> None:
    made = dpgen.MarginalsSynthesizer(epsilon=1.0, delta=1e-6).set_params(relation="replace_one").fit(BITS)
    assert (made.release_.delta, made.release_.statement.relation) == (1e-6, "replace_one")
    with pytest.raises(ValueError, match="Invalid parameter 'relatoin' for estimator"):
        made.set_params(relatoin="add_remove")
    with pytest.raises(TypeError, match=r"MarginalsSynthesizer: .* did you mean 'epsilon'\?"):
        dpgen.MarginalsSynthesizer(epsiln=1.0)
    with pytest.raises(ValueError, match=r"did you mean 'gaussian'"):
        dpgen.Synthesizer("gausian")


def test_draws_and_scores() -> None:
    points = pd.DataFrame({"x": np.linspace(0, 1, 50)})
    drawing = dpgen.GridResponseSynthesizer(bounds="0,1", draws=3).fit(points)
    assert len(drawing.sample(2)) == 2
    with pytest.raises(ValueError, match="Draws has no density: there is no score"):
        drawing.score(points)
    density = dpgen.BernsteinSynthesizer(bounds="0,1", degree=4).fit(points)
    assert abs(density.score(points)) < 1.0, "about uniform"
    with pytest.raises(ValueError, match="X has 2 features, but BernsteinSynthesizer is expecting 1 features as input"):
        density.score(points.assign(y=0.5))
