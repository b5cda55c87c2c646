"""Raw tables as people have them: types that come back, odd and bad tables, files and commands."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars
import pyarrow

import dpgen

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
    rows = dpgen.fit(frame, epsilon=60.0, method="independent").sample(200, random_state=0)
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
    table = as_polars(typed())
    rows = dpgen.fit(table, epsilon=60.0, method="independent").sample(50, random_state=0)
    assert rows.schema == {**table.schema, "ordered": polars.Enum(SIZES)}
    arrow = dpgen.fit(table.to_arrow(), epsilon=60.0, method="independent").sample(50, random_state=0)
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
