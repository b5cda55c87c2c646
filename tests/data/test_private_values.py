"""No message of a loader, nor a traceback of it, shows a value of the records that it refuses."""

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch

from dpgen.containers import in_memory
from dpgen.data import (
    Columns,
    Points,
    Records,
    Users,
    load_columns,
    load_events,
    load_points,
    load_records,
    load_sets,
    load_table,
)
from dpgen.data.records import pixels
from dpgen.data.stored import load_streamed

TEXT, NUMBER = "C1203928", 79.98
SCHEMA = {"fields": [{"name": "x", "type": "integer", "constraints": {"minimum": 0, "maximum": 9, "required": True}}]}
GRID: dict[str, Any] = {"columns": "x", "low": 0, "high": 9}
X = torch.zeros(3, 2)


def written(folder: Path, values: Any, ending: str) -> str:
    path, frame = folder / f"x.{ending}", pd.DataFrame({"x": values, "user": 1, "category": "a"})
    if ending == "csv":
        frame.to_csv(path, index=False)
    elif ending == "parquet":
        frame.to_parquet(path)
    elif ending == "jsonl":
        path.write_text(f"{json.dumps({'user': 1, 'category': 'a'})}\n{values[1]}\n")
    elif ending == "npy":
        np.save(path, np.array(values)[:, None])
    elif ending == "sets":
        path.write_text(f"1 2\n{values[1]},3\n")
    return str(path)


def marked(marker: Any) -> list[Any]:
    return [1, marker, 0] if isinstance(marker, float) else ["1", marker, "0"]


FILES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "records": (load_records, {}),
    "grey records": (load_records, {"grey_threshold": 5}),
    "columns": (load_columns, GRID),
    "fine columns": (load_columns, GRID | {"high": "1e3", "resolution": "1e-16"}),
    "dates": (load_columns, {"columns": "x", "low": "2024-01-01", "high": "2025-01-01"}),
    "categories": (load_columns, {"columns": "x", "categories": ["1", "0"]}),
    "points": (load_points, {"bounds": "0,9", "columns": "x"}),
    "events": (load_events, {"weight": "x"}),
    "names": (load_events, {"category": "x", "user": "user", "categories_path": "{folder}/names"}),
    "groups": (load_events, {"group": "x"}),
    "table": (load_table, {"schema": SCHEMA}),
    "sql columns": (load_columns, GRID | {"engine": True}),
    "sql categories": (load_columns, {"columns": "x", "categories": ["1", "0"], "engine": True}),
    "sql records": (load_streamed, {}),
    "sql events": (load_events, {"weight": "x", "engine": True}),
    "sql groups": (load_events, {"group": "x", "engine": True}),
    "sql table": (load_table, {"schema": SCHEMA, "engine": True}),
}


def shown(call: Callable[[], Any]) -> tuple[str, str]:
    """The message of a refusal, and all that its traceback prints but lines of source."""
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    lines = [text for text in traceback.format_exception(caught.value) if not text.lstrip().startswith("File ")]
    return str(caught.value), "".join(lines)


@pytest.mark.parametrize("marker", [TEXT, NUMBER, 1234567.0], ids=["text", "number", "whole number"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("loader", FILES)
def test_messages_of_files_show_no_value(tmp_path: Path, loader: str, ending: str, marker: Any) -> None:
    (tmp_path / "names").write_text("b\nc\n")
    load, given = FILES[loader]
    options = {name: v.format(folder=tmp_path) if isinstance(v, str) else v for name, v in given.items()}
    path = written(tmp_path, marked(marker), ending)
    message, text = shown(lambda: load(path=path, **options))
    for part in (TEXT, "79.98", "1234567"):
        assert part not in message
        assert part not in text
    assert "\n" not in message


@pytest.mark.parametrize(
    ("load", "ending", "options"),
    [
        (load_events, "jsonl", {}),
        (load_sets, "sets", {}),
        (load_records, "npy", {}),
        (load_points, "npy", {"bounds": "0,9"}),
        (load_columns, "npy", GRID),
    ],
)
def test_messages_of_other_files_show_no_value(tmp_path: Path, load: Any, ending: str, options: dict[str, Any]) -> None:
    path = written(tmp_path, marked(NUMBER), ending)
    message, text = shown(lambda: load(path=path, **options))
    assert "79.98" not in message
    assert "79.98" not in text


def with_value(shape: tuple[int, ...], value: float) -> torch.Tensor:
    made = torch.zeros(shape, dtype=torch.float64)
    made[-1, -1] = value
    return made


IN_MEMORY: dict[str, Callable[[], Any]] = {
    "records": lambda: Records("t", with_value((3, 2), NUMBER), X.byte()),
    "labels": lambda: Records("t", X.byte(), X.byte(), torch.full((3,), 1203928), torch.zeros(3).long(), n_classes=2),
    "points": lambda: Points("t", with_value((3, 2), NUMBER), X, bounds=torch.tensor([[0.0, 1], [0, 1]])),
    "users": lambda: Users("t", with_value((3, 2), -NUMBER), ("a", "b", "c"), ("x", "y")),
    "columns": lambda: Columns("t", {"x": np.array([1203928])}, {}),
    "bits": lambda: pixels(pd.DataFrame({"a": [0, NUMBER]})),
    "frame of two types": lambda: load_records(path=in_memory(pd.DataFrame({"a": [1, TEXT]}))),
    "frame of bytes": lambda: load_records(path=in_memory(pd.DataFrame({"a": [TEXT.encode(), 2.5]}))),
    "list of mappings": lambda: in_memory([{"a": NUMBER}, {TEXT: NUMBER}]),
    "mapping of lists": lambda: in_memory({"a": [NUMBER, NUMBER], "b": [TEXT]}),
    "sets": lambda: in_memory([{1, NUMBER}]),
    "frame": lambda: load_records(path=in_memory(pd.DataFrame({"customer_id": ["C1", TEXT]}))),
    "arrow": lambda: load_records(path=in_memory(pyarrow.table({"customer_id": ["C1", TEXT]}))),
    "pairs": lambda: in_memory([(torch.zeros(2), NUMBER), (torch.zeros(3), TEXT)]),
}


@pytest.mark.parametrize("case", IN_MEMORY)
def test_messages_of_data_in_memory_show_no_value(case: str) -> None:
    message, text = shown(IN_MEMORY[case])
    for part in ("1203928", "79.98"):
        assert part not in message
        assert part not in text


@pytest.mark.parametrize("faulty", [f"column 'x' has {TEXT!r}: only 0 and 1 are supported", f"value {TEXT}"])
def test_a_loader_that_quotes_a_value_is_found(faulty: str) -> None:
    def load() -> None:
        raise ValueError(faulty)

    assert all(TEXT in part for part in shown(load))
