"""Tables of scores."""

import json

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
