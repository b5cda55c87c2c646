"""Tables of scores; an evaluation writes its scores and files, and every kind of data has an evaluator."""

import json
from pathlib import Path

import pytest
from other_records import DATA, MODELS, release

from dpgen.evaluation import Evaluation, evaluate
from dpgen.evaluation.scores import Score, metrics_json, metrics_markdown
from dpgen.statement import UNPROTECTED

SCORES = [Score("train on synthetic", 0.71, 0.944, 0.142), Score("pairs", 0.25, 0.18, 0.43, "lower", "independent")]


def test_tables() -> None:
    lines = metrics_markdown([*SCORES, Score("a|b", 0.0)]).splitlines()
    assert lines[:2] == [UNPROTECTED, ""]
    assert lines[4:] == [
        "| train on synthetic | higher | 0.71 | 0.944 | 0.142 (chance) |",
        "| pairs | lower | 0.25 | 0.18 | 0.43 (independent) |",
        r"| a\|b | higher | 0 | - | - |",
    ]
    entries = json.loads(metrics_json(SCORES))
    assert [entry.pop("status") for entry in entries] == [UNPROTECTED] * 2
    assert [Score(**entry) for entry in entries] == SCORES


def test_figures_that_look_at_no_record_carry_no_mark() -> None:
    public = Score("total variation to the truth", 0.1, private=False)
    assert UNPROTECTED not in metrics_markdown([public]) + metrics_json([public]) + public.tag
    for scores in (SCORES, [public, *SCORES]):
        assert metrics_markdown(scores).startswith(UNPROTECTED)
        assert UNPROTECTED in metrics_json(scores)
    assert SCORES[0].tag == f"final ({UNPROTECTED})/train on synthetic"


def test_files_and_scores_are_written(tmp_path: Path) -> None:
    made = Evaluation(
        scores=[Score("accuracy", 0.5)],
        released={"samples.txt": lambda: b"s"},
        pictures={"picture.txt": lambda path: path.write_text("p")},
    )
    made.write(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"samples.txt", "picture.txt", "metrics.json", "METRICS.md"}
    assert json.loads((tmp_path / "metrics.json").read_text())[0]["value"] == 0.5


def test_unknown_data_is_refused() -> None:
    with pytest.raises(ValueError, match="data is str"):
        evaluate(None, "records")


@pytest.mark.parametrize("kind", MODELS)
def test_what_is_not_marked_as_private_tells_nothing_of_the_records(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Released files and unmarked scores are functions of the release: those of other data, fewer ones too, are the same."""
    name = "dpgen.evaluation.records.train_on_synthetic_accuracy"  # in its place a function of all that it would look at
    monkeypatch.setattr(name, lambda *parts, **_: sum(float(part.double().mean()) for part in parts))
    both = [DATA[kind](other) for other in (False, True)]
    model = release(kind, both[0])
    one, two = (evaluate(model, data, full=False) for data in both)
    assert list(one.released) == list(two.released)
    for name, made in one.released.items():
        assert made() == two.released[name]()
    assert [s for s in one.scores if not s.private] == [s for s in two.scores if not s.private]
    assert any(s.private for s in one.scores)
    assert one.scores != two.scores, "the data are others indeed"
