"""Types of columns tell nothing of single records: of neighbours, all that is public or released without noise is the same.

Whatever the container made of the values: pandas makes floats of whole numbers where one is missing, and objects or texts where
one is no number.
"""

import io
import json
from collections.abc import Callable
from datetime import date
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars
import pyarrow
import pyarrow.csv
import pytest
import torch
from told import Told

import dpgen
from dpgen.columns.votes import CELLS, Vote, cells_of
from dpgen.containers import in_memory, is_columns
from dpgen.data import draft_schema, load_linked, load_records, load_table
from dpgen.schema import Schema
from dpgen.systems.tables.discovery import FORM, Discovery

N = 24
WHOLE, TEXTS, TRUTHS = [*range(12)] * 2, ["x", "y", "zz"] * 8, [True, False] * 12
REALS, DAYS = [0.5, 1.25, 3.75] * 8, [date(2020, 1, day) for day in range(1, 13)] * 2

PAIRS: dict[str, tuple[list[Any], Any]] = {
    "a gap among whole numbers": (WHOLE, None),
    "a text among whole numbers": (WHOLE, "n/a?"),
    "a decimal among whole numbers": (WHOLE, 0.5),
    "a long integer among whole numbers": (WHOLE, 10**30),
    "a number of 19 digits among whole numbers": (WHOLE, 2**63 + 11),
    "a date among whole numbers": (WHOLE, date(2020, 1, 2)),
    "a text among decimals": (REALS, "much"),
    "a long integer among decimals": (REALS, 10**30),
    "a gap among texts": (TEXTS, None),
    "a date among texts": (TEXTS, date(2020, 1, 2)),
    "a number among texts": (TEXTS, 7),
    "a gap among truth values": (TRUTHS, None),
    "a number among truth values": (TRUTHS, 1),
    "a gap among dates": (DAYS, None),
    "a text among dates": (DAYS, "unknown"),
    "one number among gaps": ([None] * N, 3),
    "one text among gaps": ([None] * N, "x"),
    "a text among numbers with commas": (["1,5", "2,25", "1.003,75"] * 8, "much"),
    "a gap among prices": (["$1.50", "$2.25", "$1,003.75"] * 8, None),
    "a price in another currency": (["1,50 €", "2,25 €", "1.003,75 €"] * 8, "$1.50"),
    "another date among dates": (["13 Apr 2020", "1 May 2020", "2 Jun 2020"] * 8, "2020-01-02"),
    "a date that is none": ([20200413, 20200501, 20200602] * 8, 20201332),
    "a word among truth words": (["ja", "nein"] * 12, "vielleicht"),
}


Columns = dict[str, list[Any]]


def neighbours(*names: str) -> tuple[Columns, Columns]:
    """Two tables that differ in their last row, one column for each case; without names all of them."""
    chosen = {name: PAIRS[name] for name in names or PAIRS}
    one = {f"c{i}": values for i, (values, _) in enumerate(chosen.values())}
    return one, {f"c{i}": [*values[:-1], odd] for i, (values, odd) in enumerate(chosen.values())}


def text(columns: Columns) -> str:
    return pd.DataFrame(columns, dtype=object).to_csv(index=False)


def file(columns: Columns, folder: Path, ending: str = "csv") -> str:
    path = folder / f"{len(list(folder.iterdir()))}.{ending}"
    path.write_text(text(columns))
    return str(path)


def view(columns: Columns, folder: Path) -> str:
    path = file(columns, folder)
    with duckdb.connect(f"{path}.db") as connection:
        connection.execute(f"create view v as select * from read_csv('{path}')")
    return f"{path}.db"


def arrow(columns: Columns) -> pyarrow.Table:
    nulls = pyarrow.csv.ConvertOptions(strings_can_be_null=True)
    return pyarrow.csv.read_csv(io.BytesIO(text(columns).encode()), convert_options=nulls)


def rows_of(columns: Columns) -> list[list[Any]]:
    return [list(row) for row in zip(*columns.values())]


SAID = [number for number, (form, _) in enumerate(CELLS) if form != "no single value"]
SAID += [len(CELLS) + cell for cell in cells_of(np.array(["1,5", "$1.50", "13 Apr 2020", "20200413", "ja"], object))]
"""Forms that noise says a column has."""

Made = Callable[[Columns, Path], Any]
CONTAINERS: dict[str, Made] = {
    "DataFrame": lambda columns, _: pd.DataFrame(columns),
    "DataFrame of objects": lambda columns, _: pd.DataFrame(columns, dtype=object),
    "DataFrame of a csv file": lambda columns, _: pd.read_csv(io.StringIO(text(columns))),
    "DataFrame of nullable types": lambda columns, _: pd.DataFrame(columns).convert_dtypes(),
    "DataFrame of Arrow's types": lambda columns, _: arrow(columns).to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda columns, _: polars.read_csv(text(columns).encode(), infer_schema_length=None),
    "Arrow": lambda columns, _: arrow(columns),
    "list of mappings": lambda columns, _: [dict(zip(columns, row)) for row in rows_of(columns)],
    "mapping of lists": lambda columns, _: columns,
    "array of objects": lambda columns, _: np.array(rows_of(columns), dtype=object),
    "csv": file,
    "DuckDB's relation": lambda columns, folder: duckdb.read_csv(file(columns, folder)),
    "DuckDB's csv files": partial(file, ending="of.csv"),
    "DuckDB's view": view,
}


def loaded(container: str, data: Any, dtypes: Any = "bought") -> Any:
    """The table as a fit reads it."""
    data = data if isinstance(data, str) else in_memory(data, dtypes)
    if container.startswith("DuckDB"):
        return load_table(path=data, engine=isinstance(data, str))
    return load_table(path=data, test_fraction=0.0)


def law(
    container: str, data: Any, dtypes: Any = "bought", kind: type[Discovery] = Discovery, said: Any = SAID
) -> tuple[Any, list[Any]]:
    """All that is public of a table or made of its releases, and its releases, whichever type the noise says."""
    table = loaded(container, data, dtypes)
    drafted = None if container.startswith("DuckDB") else draft_schema(data, dtypes=dtypes)
    public: list[Any] = [drafted, table.draft, table.facts, list(map(str, table.test.columns))]
    asked: list[Any] = []
    for form in said:
        budget: Any = Told(form if table.draft["fields"][0]["type"] == "any" else 0)
        found = kind(table.rows, table.draft, budget, float(N)).run()
        form_of_samples = table.coded(Schema.from_descriptor(found.descriptor)).form
        noisy = {name: [part.tolist() for part in known] for name, known in found.counts.items()}
        public += [found.descriptor, found.facts, noisy, form_of_samples, [one[:3] for one in budget.asked]]
        asked += budget.asked
    return public, asked


def require_same(one: tuple[Any, list[Any]], other: tuple[Any, list[Any]]) -> None:
    """All that is public is the same, and releases differ by no more than what is charged for."""
    for first, second in zip_longest(one[0], other[0]):
        assert first == second
    for (note, _, stated, first), (_, _, _, second) in zip(one[1], other[1]):
        if len(first) != len(second):  # different values of a column, the most frequent ones first
            size = max(len(first), len(second))
            first, second = (torch.nn.functional.pad(sums, (0, size - len(sums))) for sums in (first, second))
        assert float(torch.linalg.vector_norm(first - second, ord=1 if stated == 2 else 2)) <= stated * (1 + 1e-9), note


@pytest.mark.parametrize("container", CONTAINERS)
def test_neighbours_have_one_law(container: str, tmp_path: Path) -> None:
    one, other = (CONTAINERS[container](columns, tmp_path) for columns in neighbours())
    said = SAID[::2] if container in ("DataFrame", "csv") else SAID[3::5]
    require_same(law(container, one, said=said), law(container, other, said=said))


def found(container: str, pair: Any, **options: Any) -> bool:
    """Whether two laws are told apart."""
    try:
        require_same(*(law(container, data, said=SAID[2:3], **options) for data in pair))
    except (AssertionError, ValueError):
        return True
    return False


@pytest.mark.parametrize("name", list(PAIRS)[:4])
@pytest.mark.parametrize("container", ["DataFrame", "DataFrame of a csv file"])
def test_a_type_that_is_read_off_the_values_is_found(container: str, name: str, tmp_path: Path) -> None:
    """Wrong: types of a DataFrame are taken for public, though nobody said so."""
    pair = [CONTAINERS[container](columns, tmp_path) for columns in neighbours(name)]
    assert found(container, pair, dtypes="public")
    assert not found(container, pair)


class FreeForms(Discovery):
    """Wrong: forms of values are counted, and nobody is charged for it."""

    def vote(self, given: Any, share: float) -> Any:
        charged, self.budget = self.budget, _Exact()  # type: ignore[assignment]
        try:
            return super().vote(given, share)
        finally:
            self.budget = charged


class _Exact(Told):
    def sums(self, note: str, sums: Any, share: float) -> tuple[torch.Tensor, float]:
        return sums.values.double(), 1e-6


def test_forms_that_nobody_is_charged_for_are_found() -> None:
    one, other = (pd.DataFrame(columns) for columns in neighbours("a text among whole numbers", "a gap among texts"))
    assert found("DataFrame", [one, other], kind=FreeForms)
    for kind, charged in ((Discovery, {"c0", "c1"}), (FreeForms, set[str]())):
        asked = law("DataFrame", one, kind=kind, said=SAID[:1])[1]
        assert {note for note, *_ in asked if note.startswith(FORM)} == {f"{FORM} of {name}" for name in charged}
    assert {f"{FORM} of {name}" for name in ("c0", "c1")} <= {entry.note for entry in charged_by(one)}


def charged_by(data: Any) -> Any:
    ledger = dpgen.privacy.Ledger(dpgen.Budget(1.0, 1e-5))
    dpgen.fit(data, "tables", epsilon=1.0, ledger=ledger, method="independent")
    return ledger.entries()


def test_categories_and_declared_types_are_public() -> None:
    """No single value changes them."""
    dtype = pd.CategoricalDtype(["x", "y", "zz"], ordered=True)
    one, other = (pd.DataFrame(columns, dtype=dtype) for columns in neighbours("a gap among texts"))
    require_same(law("DataFrame", one), law("DataFrame", other))
    assert loaded("DataFrame", one).draft["fields"][0]["type"] == "string"
    assert draft_schema(one)["fields"][0]["type"] == "string"
    assert "type" not in draft_schema(pd.DataFrame({"a": WHOLE}))["fields"][0]
    assert draft_schema(pd.DataFrame({"a": WHOLE}), dtypes="public")["fields"][0]["type"] == "integer"


@pytest.mark.parametrize("container", ["DataFrame", "list of mappings", "Data Package"])
def test_neighbours_have_one_draft_of_linked_tables(container: str, tmp_path: Path) -> None:
    """The last person differs, and so does their row."""
    found = [linked(container, columns, tmp_path / str(i)) for i, columns in enumerate(neighbours())]
    assert found[0] == found[1]


def linked(container: str, columns: Columns, folder: Path) -> list[Any]:
    folder.mkdir()
    people = {"who": list(range(N)), **columns}
    rows = {"who": list(range(N)), "day": pd.date_range("2020-01-01", periods=N).astype(str), **columns}
    frames = {name: pd.DataFrame(columns) for name, columns in (("people", people), ("visits", rows))}
    options: dict[str, Any] = {"test_fraction": 0.0, "max_rows": 2}
    if container == "Data Package":
        key = {"fields": "who", "reference": {"resource": "people", "fields": "who"}}
        schemas: dict[str, Any] = {"people": {}, "visits": {"foreignKeys": [key], "dpgen:order": "day"}}
        resources = [{"name": name, "path": f"{name}.csv", "schema": schemas[name]} for name in frames]
        (folder / "datapackage.json").write_text(json.dumps({"resources": resources}))
        for name, made in frames.items():
            made.to_csv(folder / f"{name}.csv", index=False)
        tables = load_linked(path=str(folder / "datapackage.json"), **options)
    else:
        made = {name: in_memory(f if container == "DataFrame" else f.to_dict("records")) for name, f in frames.items()}
        for name, table in made.items():
            table.table = name
        tables = load_linked(path=made["visits"], people_path=made["people"], person="who", order="day", **options)
    return [tables.people_draft, *(table.draft for table in tables.tables), list(map(repr, tables.facts))]


def test_bits_have_one_form() -> None:
    """Of neighbours one has a gap, whose row is left out."""
    one, other = (pd.DataFrame({"a": [0, 1] * 9, "b": [1, 0, last] * 6}) for last in (1, None))
    forms = [load_records(path=in_memory(data), missing="drop", test_fraction=0.0).form for data in (one, other)]
    assert forms[0] == forms[1]
    assert set(forms[0].types) == {"int64"}  # type: ignore[union-attr]


def test_a_mapping_of_lists_is_one_table() -> None:
    assert is_columns({"a": [1, 2], "b": (3, 4)})
    assert not is_columns({"a": [{"b": 1}], "c": [{"b": 2}]})
    assert not is_columns({"a": pd.DataFrame({"b": [1]})})


def test_a_mixed_column_has_the_type_of_most_and_the_rest_are_gaps() -> None:
    """Said from noisy counts."""
    n = 2000
    values = [*np.random.default_rng(0).integers(0, 9, n - n // 10).tolist(), *[date(2020, 1, 2)] * (n // 10)]
    release: Any = dpgen.fit({"a": values, "b": ["u", "v"] * (n // 2)}, "tables", epsilon=20.0, method="independent")
    assert release.schema.by_name["a"].type == "integer"
    assert "are no finite numbers: they came in as gaps" in release.statement.to_markdown()
    drawn = release.sample(n, random_state=0)["a"]
    gaps = sum(value is None for value in drawn) / n
    assert 0.05 < gaps < 0.15


def test_infinite_numbers_are_said_to_be_gaps() -> None:
    values = np.where(np.arange(2000) % 8 == 0, np.inf, np.random.default_rng(0).normal(size=2000))
    release: Any = dpgen.fit({"a": values.tolist(), "b": ["u", "v"] * 1000}, "tables", epsilon=20.0, method="independent")
    assert "of a (noise" in (said := release.statement.to_markdown())
    assert "are no finite numbers: they came in as gaps" in said


def test_a_vote_for_texts_has_no_gaps_of_numbers() -> None:
    counts = np.zeros(len(CELLS))
    counts[CELLS.index(("text", "string"))], counts[CELLS.index(("number", "integer"))] = 500, 400
    vote = Vote(counts, 5.0)
    assert vote.kind() == "string"
    assert vote.strange("string")[0] == 0
