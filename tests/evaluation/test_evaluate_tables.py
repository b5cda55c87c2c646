"""Evaluation of mixed tables: order of scores on releases whose quality is known, copies, and what may be shared."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from dpgen.data import Table, load_table
from dpgen.data.tables import VISITS, simulated_visits
from dpgen.evaluation import evaluate
from dpgen.evaluation.scores import Evaluation, Score
from dpgen.release import ColumnSamples


class Rows:
    """A release that repeats rows, and says what it would give to any row."""

    def __init__(self, table: Table, codes: torch.Tensor, size: int = 1500) -> None:
        self.table, self.codes, self.size = table, codes, size

    def samples(self, n: int, *, random_state: int) -> ColumnSamples:
        generator = torch.Generator().manual_seed(random_state)

        def draw(m: int) -> torch.Tensor:
            rows = torch.randperm(len(self.codes), generator=generator)
            return self.codes[rows.repeat(-(-m // len(rows)))[:m]]

        return ColumnSamples(values=self.table.schema.rows(draw, n, generator))

    def log_prob(self, codes: torch.Tensor) -> torch.Tensor:
        return torch.full((len(codes),), -30.0, dtype=torch.float64)


def visits(test_fraction: float = 0.3) -> Table:
    return load_table(path=simulated_visits(2000), schema=dict(VISITS), test_fraction=test_fraction)


@pytest.fixture(scope="module")
def judged() -> tuple[Evaluation, Table]:
    table = visits()
    return evaluate(Rows(table, table.test_codes, 500), table), table


def values(evaluation: Evaluation) -> dict[str, Any]:
    return {score.name: score for score in evaluation.scores}


def test_rows_of_the_same_people_score_as_real_ones_and_beat_independent_columns(judged: tuple[Evaluation, Table]) -> None:
    scores = values(judged[0])
    pairs, associated = (
        scores[name] for name in ("pairs of columns: mean total variation", "associations (Cramér's V): mean absolute error")
    )
    assert pairs.value == pytest.approx(pairs.real, rel=0.5)
    assert associated.real < associated.value < associated.chance  # a value is drawn afresh inside its bin
    auc = scores["train on synthetic, test on real: AUC of readmitted by logistic regression"]
    assert auc.better == "higher"
    assert auc.chance == 0.5 < auc.real


def test_all_rows_are_valid_and_only_that_score_may_be_shared(judged: tuple[Evaluation, Table]) -> None:
    scores = values(judged[0])
    assert scores["rows that satisfy the schema and its constraints"].value == 1.0
    assert [name for name, score in scores.items() if not score.private] == ["rows that satisfy the schema and its constraints"]


def copies(schema: dict[str, Any]) -> Score:
    table = load_table(path=simulated_visits(2000), schema=schema, test_fraction=0.3)
    scores = values(evaluate(Rows(table, table.codes), table))
    return next(score for name, score in scores.items() if "copies" in name)


def test_copies_beyond_the_density_are_seen() -> None:
    leak = copies({**VISITS, "dpgen:constraints": [c for c in VISITS["dpgen:constraints"] if {"sum", "depends"} & set(c)]})
    assert leak.value > 0.5 > 1e-6 > leak.chance
    assert leak.baseline == "the model's own density"


def test_copies_are_compared_with_those_of_test_rows_where_rows_are_rejected() -> None:
    leak = copies(dict(VISITS))
    assert leak.chance is not None
    assert leak.value > 0.1 > 0.02 > leak.chance


def test_files_say_what_is_released(judged: tuple[Evaluation, Table], tmp_path: Path) -> None:
    evaluation, _ = judged
    evaluation.write(tmp_path)
    assert set(evaluation.released) == {"samples.csv"}
    assert set(evaluation.pictures) == {"associations.png", "columns.png"}
    assert len(pd.read_csv(tmp_path / "samples.csv")) == 500


def test_without_test_rows_nothing_is_judged_on_them() -> None:
    table = visits(0.0)
    scores = values(evaluate(Rows(table, table.codes, 100), table))
    assert all(score.real is None for score in scores.values())
    assert not any("AUC" in name for name in scores)


def test_without_private_rows_there_are_no_scores() -> None:
    table = visits()
    empty = Table(table.name, table.codes[:0], table.schema, table.test_codes)
    evaluation = evaluate(Rows(table, table.test_codes, 10), empty)
    assert evaluation.scores == []
    assert set(evaluation.released) == {"samples.csv"}


def test_one_column_is_enough() -> None:
    schema = {"fields": [{"name": "x", "type": "boolean", "constraints": {"required": True}}], "dpgen:target": "x"}
    from dpgen.containers import in_memory

    frame = pd.DataFrame({"x": [True, False] * 50})
    table = load_table(path=in_memory(frame), schema=schema, test_fraction=0.5)
    scores = values(evaluate(Rows(table, table.codes, 50), table))
    assert "single columns: mean total variation" in scores
    assert "pairs of columns: mean total variation" not in scores
