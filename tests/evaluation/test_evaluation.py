"""An evaluation writes its scores and files, and every kind of data has an evaluator."""

import json
from pathlib import Path

import numpy as np
import pytest
from other_records import DATA, MODELS, mapped, release

from dpgen.data import LOADERS
from dpgen.evaluation import EVALUATORS, Evaluation, evaluate
from dpgen.evaluation.scores import Score


def test_files_and_scores_are_written(tmp_path: Path) -> None:
    made = Evaluation(
        scores=[Score("accuracy", 0.5)],
        released={"samples.txt": lambda: b"s"},
        pictures={"picture.txt": lambda path: path.write_text("p")},
    )
    made.write(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"samples.txt", "picture.txt", "metrics.json", "METRICS.md"}
    assert json.loads((tmp_path / "metrics.json").read_text())[0]["value"] == 0.5


def test_every_kind_of_data_has_an_evaluator(tmp_path: Path) -> None:
    np.save(tmp_path / "bits.npy", np.eye(4, dtype=np.uint8))
    (tmp_path / "bits.csv").write_text("a,b\n0,1\n1,1\n")
    files = {"mapped": {"path": str(tmp_path / "bits.npy")}, "streams": {"source": str(tmp_path / "bits.csv")}}
    for kind, loaders in LOADERS.items():
        data = next(iter(loaders.values()))(**files.get(kind, {}))
        assert type(data) in EVALUATORS, kind
        assert EVALUATORS[type(data)].not_covered


def test_unknown_data_is_refused() -> None:
    with pytest.raises(ValueError, match=r"data is str; it must be one of .*Records"):
        evaluate(None, "records")


@pytest.mark.parametrize("kind", MODELS)
def test_what_is_not_marked_as_private_tells_nothing_of_the_records(kind: str, tmp_path: Path) -> None:
    """Released files and unmarked scores are functions of the release: those of other data, fewer ones too, are the same."""
    both = [mapped(other, tmp_path) if kind == "mapped" else DATA[kind](other) for other in (False, True)]
    model = release(kind, both[0])
    one, two = (evaluate(model, data, full=False) for data in both)
    assert list(one.released) == list(two.released)
    for name, made in one.released.items():
        assert made() == two.released[name]()
    assert [s for s in one.scores if not s.private] == [s for s in two.scores if not s.private]
    assert any(s.private for s in one.scores)
    assert one.scores != two.scores, "the data are others indeed"
