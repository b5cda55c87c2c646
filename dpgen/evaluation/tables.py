"""Evaluation of models of mixed tables: their synthetic rows beside the private ones, by values, as `dpgen compare` does."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from dpgen.data import RawTable, Table
from dpgen.evaluation.compare import COPIES, LEAST, MOST, Comparison, compared
from dpgen.evaluation.scores import FULL, QUICK, Effort, Evaluation, Score, Writer
from dpgen.figures import save_figure
from dpgen.files import OVERLAYS, write_atomically
from dpgen.progress import report
from dpgen.release import ColumnSamples
from dpgen.schema import Schema

_MOST_OVERLAYS = 100


def evaluate(release: Any, data: Table | RawTable, *, seed: int, effort: Effort = FULL) -> Evaluation:
    """Scores of the synthetic rows that are released, beside test rows, or a part of the private ones where there are none.

    Numbers are compared as they were, whatever bins the model has; of tables that an engine keeps only codes are at hand, whose
    values are drawn inside of their bins. The number of synthetic rows is the release's own noisy size. Of fewer than four
    private rows there are no scores.
    """
    report(0.0, "sample")
    samples = drawn(release, seed)
    released = _files(release, samples)
    schema: Schema = release.schema if isinstance(data, RawTable) else data.schema
    private, test = (_values(data, schema, part, seed) for part in ("private", "test"))
    if len(private) < LEAST:
        return Evaluation([], released=released)
    report(0.1, "evaluate")
    described = schema.descriptor()
    synthetic = samples.to_pandas()[list(schema.domain.names)]
    most = min(MOST, effort.trained)
    found = compared(private, test, synthetic, schema=described, target=schema.target, seed=seed, most=most)
    scores = [*found.scores, _validity(schema, synthetic)]
    return Evaluation(scores, released=released, pictures=_pictures(found), notes=(COPIES,))


def unscored(release: Any, *, seed: int) -> Evaluation:
    """The synthetic rows alone."""
    return Evaluation([], released=_files(release, drawn(release, seed)))


def drawn(release: Any, seed: int) -> ColumnSamples:
    """As many synthetic rows as the release says, with noise, that there were, at most 100,000."""
    size = max(1, min(int(getattr(release, "size", QUICK.trained)), 2 * MOST))  # never the private number of rows
    samples: ColumnSamples = release.samples(size, random_state=seed)
    return samples


def _files(release: Any, samples: ColumnSamples) -> dict[str, Callable[[], bytes]]:
    return {"samples.csv": partial(samples.for_files(getattr(release, "form", None)).encoded, ".csv")}


def _values(data: Table | RawTable, schema: Schema, part: str, seed: int) -> pd.DataFrame:
    """Modelled columns of the private or the test rows, in the types of synthetic ones."""
    if isinstance(data, RawTable):
        return schema.typed(data.rows.some(MOST, seed) if part == "private" else data.test)
    rows = data.rows if part == "private" else data.test_rows
    if rows is not None:
        return schema.typed(rows)
    generator = torch.Generator().manual_seed(seed)
    codes = data.some(MOST, generator) if part == "private" else data.test_codes
    return schema.decode(codes, generator)[list(schema.domain.names)]


def _validity(schema: Schema, synthetic: pd.DataFrame) -> Score:
    """Share of rows that satisfy schema and constraints; encoding refuses every other value."""
    share = float(schema.admissible(schema.encode(synthetic)).double().mean())
    return Score("rows that satisfy the schema and its constraints", share, better="higher", private=False)


def _pictures(found: Comparison) -> dict[str, Writer]:
    overlays = list(found.pictures.values())[:_MOST_OVERLAYS]
    drawn = {f"{OVERLAYS}/{number:03d}.png": draw for number, draw in enumerate(overlays)}
    drawn["associations.png"] = found.associations
    table = found.columns.to_csv(index=False)
    writers: dict[str, Writer] = {f"{OVERLAYS}.csv": lambda path: write_atomically(path, table)}
    return writers | {name: partial(_draw, draw) for name, draw in drawn.items()}


def _draw(draw: Callable[[], Any], path: Path) -> None:
    save_figure(draw(), path)
