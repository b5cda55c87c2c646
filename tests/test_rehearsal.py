"""The error of a release of a table before it is paid for: as it then is, and without a look at a private value."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from documented_output import answered

import dpgen
from dpgen.cli.main import main
from dpgen.config import RunConfig, keyword_job
from dpgen.containers import in_memory
from dpgen.data import load_table
from dpgen.rehearsal import rehearsed

N = 4000
FIELDS = [
    {"name": "ward", "type": "string", "constraints": {"enum": [*"abcdefgh"], "required": True}},
    {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 19, "required": True}},
    {"name": "sick", "type": "boolean", "constraints": {"required": True}},
]
SCHEMA = {"fields": FIELDS}
MIXTURE = {"method": "mixture", "rounds": 2, "picks": 4}


def frame(n: int = N) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    age = rng.integers(0, 20, n)
    return pd.DataFrame({"ward": np.array([*"abcdefgh"])[age % 8], "age": age, "sick": age > 12})


@pytest.mark.parametrize("options", [{}, MIXTURE], ids=["one table", "mixture"])
def test_the_noise_is_that_of_the_release(options: dict[str, Any]) -> None:
    expected = dpgen.plan(frame(), N, "tables", epsilon=2.0, schema=SCHEMA, **options)
    measured = dpgen.fit(frame(), "tables", epsilon=2.0, schema=SCHEMA, **options).measured()
    stds = [m["noise_std"] for m in measured if len(m["columns"]) > 1]
    variations = [float((2 / np.pi) ** 0.5 * std.sum() / (2 * N)) for std in stds]
    assert expected.tables is not None
    assert expected.tables.marginals == len(stds)
    assert expected.tables.std == pytest.approx(np.mean([std.mean() for std in stds]), rel=0.05)
    assert expected.tables.variation == pytest.approx(np.mean(variations), rel=0.25)  # which marginals are chosen differs
    assert 0 < expected.singles.std < expected.tables.std * 20


def test_an_epsilon_that_is_named_reaches_what_is_wanted() -> None:
    found = dpgen.plan(frame(), N, "tables", epsilon=2.0, schema=SCHEMA).epsilons
    assert list(found) == [0.05, 0.02, 0.01, 0.005]
    again = dpgen.plan(frame(), N, "tables", epsilon=found[0.02], schema=SCHEMA).tables
    assert again is not None
    assert again.variation == pytest.approx(0.02, rel=0.05)


class Secret:
    """In the place of private rows: nothing can be asked of them."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return Secret
        raise AssertionError(f"{name} of private rows was asked for")


@pytest.mark.parametrize("schema", [None, SCHEMA], ids=["bought", "declared"])
def test_no_private_value_is_looked_at(schema: Any) -> None:
    data = load_table(path=in_memory(frame(200)), schema=schema, test_fraction=0.0)
    hidden = replace(data, **{"codes" if schema else "rows": Secret()})
    job = keyword_job("tables", {"epsilon": 1.0} | MIXTURE, private=data)
    assert rehearsed(job, hidden, 1000).rows == 1000


def test_types_that_are_known_count(tmp_path: Path) -> None:
    day = pd.Timestamp("2020-01-01")
    one = pd.DataFrame({"when": [day] * 3, "number": [1.5] * 3, "sure": [True] * 3, "text": ["a"] * 3, "free": ["b"] * 3})
    one.to_parquet(tmp_path / "a.parquet")
    fields = [{"name": "text", "type": "string", "constraints": {"enum": ["a", "b"]}}]
    options: dict[str, Any] = {"schema": {"fields": fields, "fieldsMatch": "partial"}} | MIXTURE
    expected = dpgen.plan(str(tmp_path / "a.parquet"), 3000, epsilon=2.0, **options)
    assert expected.singles.marginals == 5
    assert "about 3000 rows" in str(expected)
    assert expected.seconds > 0 < expected.gigabytes


def test_the_command_line_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame(50).to_csv(tmp_path / "a.csv", index=False)
    dry = ["train", str(tmp_path / "a.csv"), "--epsilon", "1", "--rounds", "2", "--picks", "4", "--dry_run", "2000"]
    found = answered(capsys, *dry)
    assert found["expected"]["rows"] == 2000
    assert found["expected"]["singles"]["std"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model=tables", "--dry_run=many"], "dry_run is 'many'; it must be about how many rows there are"),
        (["--model=tables", "--dry_run=0"], "rows is 0; it must be a whole number in [1, "),
        (["--model=gaussian", "--dry_run=100"], "model is 'gaussian'; noise of a number of rows is foreseen of 'tables' alone"),
        (["--model=tables", "--dry_run=100", "--select", "epsilon=1,2"], "a number of rows is for one run, without select"),
    ],
)
def test_what_cannot_be_rehearsed_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *arguments]) != 0
    assert message in capsys.readouterr().err


def test_constraints_hold_in_what_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = SCHEMA | {"dpgen:constraints": [{"forbidden": {"ward": "a", "sick": True}}]}
    rows = frame(500)
    data = load_table(path=in_memory(rows[~((rows.ward == "a") & rows.sick)]), schema=schema, test_fraction=0.0)
    seen, real = list[torch.Tensor](), RunConfig.fit_system

    def fit_system(job: RunConfig, made: Any, *rest: Any) -> Any:
        seen.append(made.codes)
        return real(job, made, *rest)

    monkeypatch.setattr(RunConfig, "fit_system", fit_system)
    rehearsed(keyword_job("tables", {"epsilon": 1.0} | MIXTURE, private=data), data, 300)
    assert len(seen[0]) == 300
    assert bool(data.schema.admissible(seen[0]).all())
