"""Raw tables as people have them: types that come back, odd and bad tables, files and commands."""

import datetime
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest

import dpgen
from dpgen.cli.main import main
from dpgen.data import load_table
from dpgen.statement import PrivacyStatement
from dpgen.systems.plan import SumsPlan

SIZES = ["small", "medium", "large"]  # in an order that is not the alphabet's


def typed(n: int = 400) -> pd.DataFrame:
    """A column of each type that pandas has."""
    rng = np.random.default_rng(0)
    gap, words, day = rng.random(n) < 0.2, pd.Series(rng.choice(["a", "b"], n)), pd.Timestamp("2024-01-01")
    whole, days = pd.Series(rng.integers(0, 9, n)), pd.Series(day + pd.to_timedelta(rng.integers(0, 9, n), unit="D"))
    zoned = (days + pd.to_timedelta(rng.integers(0, 3, n), unit="h")).dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin")
    truth, sizes = pd.Series(rng.random(n) < 0.3), rng.choice(SIZES, n)
    return pd.DataFrame(
        {
            "int8": whole.astype("int8"),
            "uint64": whole.astype("uint64"),
            "Int64": whole.astype("Int64").mask(gap),
            "int64[pyarrow]": whole.astype("int64[pyarrow]").mask(gap),
            "float32": whole.astype("float32"),
            "Float64": whole.astype("Float64").mask(gap),
            "double[pyarrow]": whole.astype("double[pyarrow]"),
            "decimal": whole.astype("float64").astype(pd.ArrowDtype(pyarrow.decimal128(9, 2))),
            "Decimal": pd.Series([Decimal(int(value)) for value in whole], dtype=object),
            "object": words.astype(object),
            "string[pyarrow]": words.astype("string[pyarrow]").mask(gap),
            "arrow string": words.astype(pd.ArrowDtype(pyarrow.string())),
            "category": pd.Categorical(sizes, SIZES),
            "ordered": pd.Categorical(sizes, [*SIZES, "huge"], ordered=True),
            "whole categories": pd.Categorical(whole * 10 % 30, [20, 10, 0], ordered=True),
            "bool": truth,
            "boolean": truth.astype("boolean").mask(gap),
            "bool[pyarrow]": truth.astype("bool[pyarrow]"),
            "datetime": days,
            "zone": zoned,
            "zone[pyarrow]": zoned.astype(pd.ArrowDtype(pyarrow.timestamp("us", "Europe/Berlin"))),
            "date32[pyarrow]": days.astype("date32[pyarrow]"),
            "date": pd.Series(days.dt.date, dtype=object),
            "period": pd.Series(days.dt.to_period("M")),
        }
    )


def as_polars(frame: pd.DataFrame) -> polars.DataFrame:
    enum = polars.col("ordered").cast(polars.String).cast(polars.Enum([*SIZES, "huge"]))
    return polars.from_pandas(frame.drop(columns=["period", "whole categories"])).with_columns(enum)


def test_types_come_back() -> None:
    """And of ordered categories those that were released, in their order."""
    frame = typed()
    rows = dpgen.fit(frame, epsilon=60.0, method="independent", dtypes="public").sample(200, random_state=0)
    orders = {"ordered": SIZES, "whole categories": [20, 10, 0]}
    for name in frame:
        if name not in orders:
            assert rows[name].dtype == frame[name].dtype, name
        assert rows[name].isna().any() >= frame[name].isna().any(), name
        if not pd.api.types.is_numeric_dtype(frame[name]):
            assert set(rows[name].dropna()) & set(frame[name]), name
    for name, order in orders.items():
        assert rows[name].dtype == pd.CategoricalDtype(order, ordered=True)
    assert isinstance(rows["date"][0], datetime.date)
    assert isinstance(rows["Decimal"][0], Decimal)


def test_types_of_other_containers_come_back() -> None:
    table, options = as_polars(typed()), {"epsilon": 60.0, "method": "independent", "dtypes": "public"}
    rows = dpgen.fit(table, **options).sample(50, random_state=0)
    assert rows.schema == {**table.schema, "ordered": polars.Enum(SIZES)}
    arrow = dpgen.fit(table.to_arrow(), **options).sample(50, random_state=0)
    assert arrow.schema.types == table.to_arrow().schema.types
    assert arrow["ordered"].chunk(0).dictionary.to_pylist() == SIZES


def test_a_categorical_type_is_declared_by_the_schema_alone() -> None:
    """Which categories a type has is private until a field states them; then they cost nothing and keep their order."""
    frame = typed()[["ordered", "int8"]]
    dtype = frame["ordered"].dtype
    stated = {"name": "ordered", "type": "string", "constraints": {"enum": list(dtype.categories), "required": True}}
    release = dpgen.fit(frame, epsilon=2.0, method="independent", schema={"fields": [stated]})
    assert not any("of ordered" in str(line["note"]) for line in release.statement.mechanisms)
    assert release.sample(10)["ordered"].dtype == dtype
    assert "huge" not in dpgen.fit(frame, epsilon=60.0, method="independent").schema.by_name["ordered"].values


def rows(n: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.integers(0, 9, n), "b": rng.choice(["x", "y"], n)})


SECRET = "s3cret"
HOURS = pd.Series(pd.date_range("2020-01-01", periods=300, freq="h", tz="Asia/Tokyo"))
YEAR = {"fields": [{"name": "a", "constraints": {"minimum": "2020-01-01", "maximum": "2020-12-31"}}]}
POSITIVE = {"fields": [{"name": "a", "type": "number", "constraints": {"minimum": 0, "maximum": 9}}]}

BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "one name twice": (rows().set_axis(["a", "a"], axis=1), {}, "2 columns called 'a'"),
    "a MultiIndex": (rows().set_axis(pd.MultiIndex.from_tuples([("a", 1), ("b", 2)]), axis=1), {}, "names must be texts"),
    "a name of no text": (rows().set_axis([1.5, "b"], axis=1), {}, "names must be texts"),
    "lists": (rows().assign(a=[[SECRET]] * 300), {"dtypes": "public"}, "'a' is list"),
    "bytes": (rows().assign(a=[SECRET.encode()] * 300), {"dtypes": "public"}, "'a' is binary; it must hold texts"),
    "mappings": (rows().assign(a=[{"b": SECRET}] * 300), {"dtypes": "public"}, "'a' is struct"),
    "lists of polars": (polars.DataFrame({"a": [[SECRET]] * 300}), {}, "'a' is large_list"),
    "no rows": (rows(0), {}, "is empty"),
    "no columns": (rows()[[]], {}, "no column"),
    "infinite beside a range": (rows().assign(a=[np.inf, 1.0] * 150), {"schema": POSITIVE}, "'a' .* finite"),
    "a time zone past a bound": (rows().assign(a=HOURS), {"schema": YEAR}, "'a' .* timezone"),
    "no epsilon": (rows(), {"epsilon": 0.0}, "epsilon"),
}


@pytest.mark.parametrize("name", list(BAD))
def test_a_bad_table_is_refused_in_one_line_for_free(name: str) -> None:
    frame, options, match = BAD[name]
    ledger = SumsPlan(epsilon=1.0).open_ledger()
    with pytest.raises((ValueError, TypeError), match=match) as caught:
        dpgen.fit(frame, "tables", **({"epsilon": 1.0, "ledger": ledger} | options))
    assert ledger.charges == 0
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


ODD: dict[str, tuple[pd.DataFrame, dict[str, Any], str]] = {
    "gaps alone": (rows().assign(a=None), {}, ""),
    "one row": (rows(1), {}, ""),
    "infinite values": (rows().assign(a=[np.inf, -np.inf, 1.0] * 100), {}, ""),
    "decimals": (rows().assign(a=[Decimal("0.50")] * 300), {}, ""),
    "intervals": (rows().assign(a=lambda frame: pd.cut(frame["a"], 3)), {"epsilon": 50.0}, ""),
    "a sparse column": (rows().assign(a=pd.arrays.SparseArray(rows()["a"])), {}, ""),
    "times": (rows().assign(a=[datetime.time(10)] * 300), {}, ""),
    "a named index": (rows().rename_axis("person"), {}, "Left out .* index, person"),
    "indices": (rows().assign(k=1, l=range(300)).set_index(["k", "l"]), {}, "Left out .* index, k, l"),
    "an unnamed column": (
        rows(),
        {"schema": {"fields": [{"name": "b", "type": "string", "constraints": {"enum": ["x", "y"]}}]}},
        "Left out of the release: a. The schema",
    ),
    "100 columns": (pd.DataFrame({f"c{i}": [0, 1, 2] * 99 for i in range(100)}), {}, "hides the values of c"),
    "a small epsilon": (rows().assign(c=3, d=4.5), {"epsilon": 1e-4}, "hides the values of a, c, d, b"),
    "free text": (rows(20_000).assign(a=[f"{i} of {i * 7}" for i in range(20_000)]), {}, "Left out of the release: a. Too few"),
}


@pytest.mark.parametrize("name", list(ODD))
def test_an_odd_table_is_released_and_what_is_odd_is_said(name: str) -> None:
    frame, options, match = ODD[name]
    release = dpgen.fit(frame, "tables", **({"epsilon": 1.0, "method": "independent", "dtypes": "public"} | options))
    made = release.sample(7, random_state=0)
    assert len(made) == 7
    assert set(made) <= set(frame)
    assert re.search(match, str(release))
    assert np.isfinite(made.select_dtypes("float").dropna()).all(axis=None)
    if name not in ("intervals", "a sparse column"):
        assert made.dtypes.equals(frame[made.columns].dtypes)


@pytest.mark.parametrize("form", ["bought", "declared", "csv", "numbers", "no pattern"])
def test_a_key_is_generated_by_its_pattern(form: str, tmp_path: Path) -> None:
    """Bought of its texts' patterns, or declared; of numbers, and without a pattern that most have, 1, 2, 3."""
    keys = {"numbers": range(4000, 4300), "no pattern": [f"{'xyz'[i % 3]}{i}" for i in range(300)]}
    data: Any = rows().assign(id=keys.get(form, [f"C{1203928 + i}" for i in range(300)]))
    schema = {"fields": [{"name": "id", "type": "string", "dpgen:key": "C{:07d}"}]} if form == "declared" else None
    if form == "csv":
        data.to_csv(tmp_path / "a.csv", index=False)
        data = str(tmp_path / "a.csv")
    release = dpgen.fit(data, "tables", epsilon=5.0, method="independent", schema=schema, key="id")
    made = release.sample(3)["id"].tolist()
    plain: list[Any] = [1, 2, 3] if form == "numbers" else ["1", "2", "3"]
    assert made == (plain if form in keys else ["C0000001", "C0000002", "C0000003"])
    assert any("of id" in str(line["note"]) for line in release.statement.mechanisms) == (form != "declared")


def test_a_category_that_is_not_listed_is_no_condition() -> None:
    release = dpgen.fit(rows(), epsilon=5.0, method="independent")
    assert release.sample(3, given={"b": "x"})["b"].tolist() == ["x"] * 3
    for wrong in ("q", ["x", "q"]):
        with pytest.raises(ValueError, match=r"given b is 'q'; .* must be one of x, y"):
            release.sample(3, given={"b": wrong})


def test_a_heavy_wide_bin_is_said() -> None:
    """Of released counts alone: what the owner stated is as wide as what was bought."""
    field = {"name": "a", "type": "number", "constraints": {"minimum": 0, "maximum": 90}, "dpgen:bins": {"equal": 3}}
    release = dpgen.fit(rows(), epsilon=5.0, method="independent", schema={"fields": [field]})
    assert "of a (" in next(text for text in release.statement.told if "wide bins" in text)
    assert not any("wide bins" in text for text in dpgen.fit(rows(3000), epsilon=5.0, method="independent").statement.told)


def test_a_release_shows_itself_as_text_and_as_a_table() -> None:
    release = dpgen.fit(rows().rename(columns={"a": "<a>"}), epsilon=1.0, method="independent", key="b")
    shown = release._repr_html_()
    assert shown.count("<tr>") == str(release).count("\n") + 1
    assert "&lt;a&gt;" in shown
    for heading in ("guarantee", "in odds", "about the data", "may be shared"):
        assert shown.count(f">{heading}<") == 1


# -- files and commands ------------------------------------------------------------------------------------------------

TRAIN = ("--method=independent", "--evaluation=none", "--progress_bar=false")


def test_a_file_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its types are voted on; synthetic rows are there without an evaluation, and are part of the statement."""
    frame = rows(800).assign(key=[f"K{i:04d}" for i in range(800)], seen="2020-01-02", nothing=np.nan)
    frame.to_csv(tmp_path / "a.csv", index=False)
    run = tmp_path / "run"
    given = [str(tmp_path / "a.csv"), "--epsilon=5", "--target=b", "--key=key", f"--run_dir={run}", *TRAIN]
    assert main(["train", *given]) == 0
    made = pd.read_csv(run / "samples.csv", dtype=str)
    assert made.columns.tolist() == frame.columns.tolist()
    assert made["key"].is_unique
    assert made["seen"].mode()[0] == "2020-01-02"
    assert "samples.csv" in PrivacyStatement.read(run / "privacy.json").files
    assert main(["sample", str(run), "--n=20", f"--out={tmp_path / 'b.parquet'}"]) == 0
    assert len(pd.read_parquet(tmp_path / "b.parquet")) == 20
    for n in (20, 30):
        assert main(["sample", str(run), f"--n={n}", f'--out={tmp_path / "w.duckdb"}::a "table"']) == 0
    with duckdb.connect(str(tmp_path / "w.duckdb")) as connection:
        assert connection.execute('select count(*), min(seen) from "a ""table"""').fetchall() == [(30, "2020-01-02")]
    (tmp_path / "no.duckdb").write_text("a,b")
    assert main(["sample", str(run), f"--out={tmp_path / 'no.duckdb'}::a"]) == 2
    assert "DuckDB" in capsys.readouterr().err
    assert main(["sample", str(run), "--n=20", f"--out={tmp_path / 'package'}"]) == 0
    [known] = json.loads((tmp_path / "package" / "datapackage.json").read_text())["resources"]
    assert (known["schema"]["primaryKey"], known["schema"]["fields"][-2]["type"]) == ("key", "date")
    table = load_table(path=str(tmp_path / "package" / known["path"]), schema=known["schema"], test_fraction=0.0)
    assert table.n == 20
    assert main(["train", *given]) == 2
    assert "finished run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "option", "name"),
    [
        ("a,b\n", "", "empty"),
        ("a,a\n1,2\n", "", "'a'"),
        ("a,b\n1,2\n", "--target=c", "target"),
        ("a,b\n1,2\n", "--key=c", "key"),
    ],
)
def test_a_bad_file_or_option_is_refused_and_leaves_nothing(
    text: str, option: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text(text)
    given = [str(tmp_path / "a.csv"), *([option] if option else []), f"--run_dir={tmp_path / 'run'}", *TRAIN]
    assert main(["train", *given]) == 2
    said = capsys.readouterr().err
    assert name in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()
