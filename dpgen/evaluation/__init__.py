"""Evaluation of releases: one evaluator for each kind of data."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from dpgen.data.kinds import KINDS, evaluator_of, kind_of
from dpgen.evaluation.scores import QUICK
from dpgen.evaluation.scores import Evaluation as Evaluation

Evaluator = Callable[..., Evaluation]
"""`evaluate(release, data, seed=)`."""


def evaluator(data: Any, *, full: bool = True, fid_weights: Path | None = None) -> Evaluator:
    """The evaluator for this kind of data.

    Not `full` it looks at `QUICK` many records where classifiers take minutes; images are compared by the network in
    `fid_weights`, see `dpgen.metrics.fidelity.inception_network`.
    """
    found: Evaluator = resolve_name(evaluator_of(data))
    name = str(kind_of(data))
    if fid_weights is not None:
        from dpgen.metrics.fidelity import inception_network

        if name != "images" and getattr(data, "image_shape", None) is None:
            raise ValueError(f"fid_weights is {fid_weights}; it is for images, and these data are none")
        found = partial(found, inception=inception_network(fid_weights))
    if not KINDS[name].classified:
        return found
    found = partial(_unless_weights, found)
    return found if full else partial(found, effort=QUICK)


def _unless_weights(evaluate: Evaluator, release: Any, data: Any, **options: Any) -> Evaluation:
    """The evaluation of what samples, or of a classifier."""
    if getattr(release, "kind", "") != "module":
        return evaluate(release, data, **options)
    from dpgen.evaluation.records import evaluate_classifier

    return evaluate_classifier(release, data)


def unscored(release: Any, data: Any, *, seed: int) -> Evaluation:
    """An evaluation without scores: synthetic rows of tables and of linked tables, nothing of other releases."""
    path = KINDS[str(kind_of(data))].unscored
    if not path or hasattr(release, "weights"):
        return Evaluation([])
    made: Evaluation = resolve_name(path)(release, seed=seed)
    return made


def evaluate(release: Any, data: Any, *, seed: int = 0, full: bool = True) -> Evaluation:
    """Scores and pictures of a release, beside what real data and plain baselines reach; see `evaluator`."""
    return evaluator(data, full=full)(release, data, seed=seed)
