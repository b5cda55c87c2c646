"""How good a release is: one evaluator for each kind of data."""

from collections.abc import Callable
from typing import Any, NamedTuple

from dpgen.data import Records
from dpgen.evaluation import evaluate_records as records
from dpgen.evaluation.evaluation import Evaluation as Evaluation


class Evaluator(NamedTuple):
    """`evaluate(release, data, seed=)`, and what a statement says about the files that it writes."""

    evaluate: Callable[..., Evaluation]
    not_covered: str


EVALUATORS: dict[type[Any], Evaluator] = {Records: Evaluator(records.evaluate_records, records.NOT_COVERED)}


def evaluator(data: Any) -> Evaluator:
    """The evaluator for this kind of data."""
    return EVALUATORS[type(data)]


def evaluate(release: Any, data: Any, *, seed: int = 0) -> Evaluation:
    """Scores and pictures of a release, beside what real data and plain baselines reach.

    Raises:
        ValueError: there is no evaluator for this kind of data.
    """
    if type(data) not in EVALUATORS:
        raise ValueError(f"data is {type(data).__name__}; it must be one of {', '.join(t.__name__ for t in EVALUATORS)}")
    return evaluator(data).evaluate(release, data, seed=seed)
