"""Evaluation of releases: one evaluator for each kind of data."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from dpgen.data import Columns, Images, LinkedTables, MappedRecords, Points, RawTable, Records, Table, Users
from dpgen.data.stored import StreamedRecords
from dpgen.evaluation.scores import QUICK
from dpgen.evaluation.scores import Evaluation as Evaluation

Evaluator = Callable[..., Evaluation]
"""`evaluate(release, data, seed=)`."""

EVALUATORS: dict[type[Any], str] = {
    Columns: "columns:evaluate",
    Images: "images:evaluate",
    LinkedTables: "linked:evaluate",
    MappedRecords: "records:evaluate_stored",
    Points: "points:evaluate",
    Records: "records:evaluate",
    RawTable: "compare:evaluate",
    Table: "compare:evaluate",
    StreamedRecords: "records:evaluate_stored",
    Users: "users:evaluate",
}
"""Where the evaluator of each kind of data is, which is imported when it is needed."""


def evaluator(data: Any, *, full: bool = True, fid_weights: Path | None = None) -> Evaluator:
    """The evaluator for this kind of data.

    Not `full` it looks at `QUICK` many records where classifiers take minutes; images are compared by the network in
    `fid_weights`, see `dpgen.metrics.fidelity.inception_network`.
    """
    found: Evaluator = resolve_name(f"{__name__}.{EVALUATORS[type(data)]}")
    if fid_weights is not None:
        from dpgen.metrics.fidelity import inception_network

        if not isinstance(data, Images) and getattr(data, "image_shape", None) is None:
            raise ValueError(f"fid_weights is {fid_weights}; it is for images, and these data are none")
        found = partial(found, inception=inception_network(fid_weights))
    if not isinstance(data, LinkedTables | Users | Columns | Points):
        found = partial(_unless_weights, found)
    if full or isinstance(data, Columns | LinkedTables | Points | Users):
        return found
    return partial(found, effort=QUICK)


def _unless_weights(evaluate: Evaluator, release: Any, data: Any, **options: Any) -> Evaluation:
    """The evaluation of what samples, or of a classifier."""
    from dpgen.systems.dp_sgd.model import ReleasedModule

    if not isinstance(release, ReleasedModule):
        return evaluate(release, data, **options)
    from dpgen.evaluation.records import evaluate_classifier

    return evaluate_classifier(release, data)


def unscored(release: Any, data: Any, *, seed: int) -> Evaluation:
    """An evaluation without scores: synthetic rows of tables and of linked tables, nothing of other releases."""
    module = EVALUATORS[type(data)].partition(":")[0]
    if module not in ("linked", "compare") or hasattr(release, "weights"):
        return Evaluation([])
    made: Evaluation = resolve_name(f"{__name__}.{module}:unscored")(release, seed=seed)
    return made


def evaluate(release: Any, data: Any, *, seed: int = 0, full: bool = True) -> Evaluation:
    """Scores and pictures of a release, beside what real data and plain baselines reach; see `evaluator`."""
    if type(data) not in EVALUATORS:
        raise ValueError(f"data is {type(data).__name__}; it must be one of {', '.join(t.__name__ for t in EVALUATORS)}")
    return evaluator(data, full=full)(release, data, seed=seed)
