"""Tables of scores."""

import json

from dpgen.evaluation.scores import Score, metrics_json, metrics_markdown

SCORES = [Score("train on synthetic", 0.71, 0.944, 0.142), Score("pairs", 0.25, 0.18, 0.43, "lower", "independent")]


def test_tables() -> None:
    lines = metrics_markdown([*SCORES, Score("a|b", 0.0)]).splitlines()
    assert lines[2:] == [
        "| train on synthetic | higher | 0.71 | 0.944 | 0.142 (chance) |",
        "| pairs | lower | 0.25 | 0.18 | 0.43 (independent) |",
        r"| a\|b | higher | 0 | - | - |",
    ]
    assert [Score(**entry) for entry in json.loads(metrics_json(SCORES))] == SCORES
