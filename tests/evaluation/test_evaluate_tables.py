"""Evaluation of mixed tables: scores of releases whose quality is known, copies, and what may be shared."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from dpgen.containers import in_memory
from dpgen.data import Table, load_table
from dpgen.data.tables import VISITS, simulated_visits
from dpgen.evaluation import evaluate
from dpgen.evaluation.scores import Evaluation
from dpgen.samples import ColumnSamples


class Rows:
    """A release that repeats rows."""

    def __init__(self, table: Table, codes: torch.Tensor, size: int = 1500) -> None:
        self.table, self.codes, self.size = table, codes, size

    def samples(self, n: int, *, random_state: int) -> ColumnSamples:
        generator = torch.Generator().manual_seed(random_state)

        def draw(m: int) -> torch.Tensor:
            rows = torch.randperm(len(self.codes), generator=generator)
            return self.codes[rows.repeat(-(-m // len(rows)))[:m]]

        return ColumnSamples(values=self.table.schema.rows(draw, n, generator))


def visits(test_fraction: float = 0.3) -> Table:
    return load_table(path=simulated_visits(2000), schema=dict(VISITS), test_fraction=test_fraction)


@pytest.fixture(scope="module")
def judged() -> tuple[Evaluation, Table]:
    table = visits()
    return evaluate(Rows(table, table.test_codes, 500), table), table


def values(evaluation: Evaluation) -> dict[str, Any]:
    return {score.name: score for score in evaluation.scores}


def test_all_rows_are_valid_and_only_that_score_may_be_shared(judged: tuple[Evaluation, Table]) -> None:
    scores = values(judged[0])
    assert scores["rows that satisfy the schema and its constraints"].value == 1.0
    assert "train on synthetic, test on real: AUC of readmitted by logistic regression" in scores, "of the schema's target"
    assert [name for name, score in scores.items() if not score.private] == ["rows that satisfy the schema and its constraints"]


def test_truths_and_dates_of_a_writing_are_valid(tmp_path: Path) -> None:
    rng, n = np.random.default_rng(0), 600
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 300, n), "D")
    frame = pd.DataFrame({"well": np.where(rng.random(n) < 0.3, "ja", "nein"), "came": days.strftime("%d.%m.%Y")})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    limits = {"minimum": "01.01.2020", "maximum": "31.12.2020", "required": True}
    truths = {"name": "well", "type": "boolean", "trueValues": ["ja"], "falseValues": ["nein"]}
    fields: list[dict[str, Any]] = [truths | {"constraints": {"required": True}}]
    came = {"name": "came", "type": "date", "format": "%d.%m.%Y", "dpgen:bins": {"equal": 12}}
    fields.append(came | {"constraints": limits})
    table = load_table(path=str(tmp_path / "rows.csv"), schema={"fields": fields}, test_fraction=0.3)
    scores = values(evaluate(Rows(table, table.test_codes, 200), table))
    assert scores["rows that satisfy the schema and its constraints"].value == 1.0


def test_bins_do_not_hide_what_becomes_of_values() -> None:
    """Half zeros come back as anything in a wide bin: in codes they are as good as real data."""
    field = {"name": "x", "type": "number", "constraints": {"minimum": 0, "maximum": 1e6, "required": True}}
    schema = {"fields": [field | {"dpgen:bins": {"equal": 4}}, {"name": "y", "type": "boolean"}]}
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": np.where(rng.random(800) < 0.5, 0.0, rng.lognormal(5, 1, 800)), "y": rng.random(800) < 0.5})
    table = load_table(path=in_memory(frame), schema=schema, test_fraction=0.3)
    assert values(evaluate(Rows(table, table.codes, 500), table))["largest KS or total variation of a column"].value > 0.9


def test_files_say_what_is_released(judged: tuple[Evaluation, Table], tmp_path: Path) -> None:
    evaluation, _ = judged
    evaluation.write(tmp_path)
    assert set(evaluation.released) == {"samples.csv"}
    columns = pd.read_csv(tmp_path / "columns.csv")
    assert columns["column"].tolist() == list(judged[1].schema.domain.names)
    assert len(list((tmp_path / "columns").glob("*.png"))) == len(columns)
    assert len(pd.read_csv(tmp_path / "samples.csv")) == 500


def test_without_test_rows_a_part_of_the_private_ones_stands_beside() -> None:
    table = visits(0.0)
    scores = values(evaluate(Rows(table, table.codes, 100), table))
    assert 0 < scores["pairs of columns: mean total variation"].real < 0.2


def test_without_private_rows_there_are_no_scores() -> None:
    table = visits()
    empty = Table(table.name, table.codes[:0], table.schema, table.test_codes)
    evaluation = evaluate(Rows(table, table.test_codes, 10), empty)
    assert evaluation.scores == []
    assert set(evaluation.released) == {"samples.csv"}


def test_one_column_is_enough() -> None:
    schema = {"fields": [{"name": "x", "type": "boolean", "constraints": {"required": True}}], "dpgen:target": "x"}
    frame = pd.DataFrame({"x": [True, False] * 50})
    table = load_table(path=in_memory(frame), schema=schema, test_fraction=0.5)
    scores = values(evaluate(Rows(table, table.codes, 50), table))
    assert "single columns: mean total variation" in scores
    assert "pairs of columns: mean total variation" not in scores
