"""Mixed tables from files and from memory: one schema, one result, and samples that come back as the data came."""

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pytest
import tiny
import torch
from refusals import refused

from dpgen.containers import in_memory
from dpgen.data import Table, draft_schema, load_table
from dpgen.data.tables import VISITS, simulated_visits
from dpgen.facts import Fact
from dpgen.schema import Schema

SMALL: dict[str, Any] = {
    "fields": [
        {"name": "n", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}},
        {"name": "colour", "type": "string", "constraints": {"enum": ["red", "green", "blue"]}},
        {"name": "day", "type": "date", "constraints": {"minimum": "2020-01-01", "maximum": "2020-01-31"}},
        {"name": "well", "type": "boolean"},
    ],
    "missingValues": ["", "?"],
}
ROWS = "n,colour,day,well,extra\n1,red,2020-01-02,true,x\n?,blue,,False,y\n9,,2020-01-31,,z\n"


def visits(n: int = 300) -> pd.DataFrame:
    return simulated_visits(n).content


def private(**options: Any) -> Table:
    return load_table(**{"test_fraction": 0.0, **options})


def restored(table: Table) -> Any:
    """The private rows themselves, decoded: what samples look like."""
    assert table.form is not None
    return table.form.restore(table.schema.decode(table.codes, torch.Generator().manual_seed(0)))


def test_the_embedded_table_satisfies_its_schema_and_splits() -> None:
    table = load_table()
    assert table.n + len(table.test_codes) == 6000
    assert 1000 < len(table.test_codes) < 1400
    assert table.schema == Schema.from_descriptor(VISITS)
    assert "secret hash" in tiny.told(table)[Fact.TEST_PART]["origin"]


def test_every_form_of_file_gives_the_same_codes(tmp_path: Path) -> None:
    frame = visits()
    frame.to_csv(tmp_path / "visits.csv.gz", index=False)
    frame.to_csv(tmp_path / "visits.tsv", index=False, sep="\t")
    frame.to_parquet(tmp_path / "visits.parquet")
    (tmp_path / "schema.json").write_text(json.dumps(VISITS))
    tables = [private(path=str(path), schema=str(tmp_path / "schema.json")) for path in sorted(tmp_path.glob("visits.*"))]
    tables.append(private(path=in_memory(frame), schema=dict(VISITS)))
    assert len(tables) == 4
    assert all(torch.equal(table.codes, tables[0].codes) for table in tables)


def test_texts_for_missing_values_are_those_of_the_schema(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(ROWS)
    table = private(path=str(tmp_path / "a.csv"), schema=SMALL)
    assert table.codes.tolist() == [[1, 0, 1, 1], [10, 2, 31, 0], [9, 3, 30, 2]]
    assert restored(table)["day"].tolist()[::2] == ["2020-01-02", "2020-01-31"]


def frames() -> dict[str, pd.DataFrame]:
    plain = pd.DataFrame(
        {
            "n": [1, 2, None],
            "colour": ["red", None, "blue"],
            "day": pd.to_datetime(["2020-01-02", "2020-01-31", None]),
            "well": [True, None, False],
        }
    )
    dates = [datetime.date(2020, 1, 2), datetime.date(2020, 1, 31), None]
    return {
        "plain": plain,
        "nullable": plain.astype({"n": "Int8", "well": "boolean"}),
        "categories": plain.astype({"colour": pd.CategoricalDtype(["red", "green", "blue"]), "n": "Int64"}),
        "dates": plain.assign(day=pd.Series(dates, dtype=object)),
        "texts": plain.assign(day=["2020-01-02", "2020-01-31", None], colour=plain["colour"].astype(object)),
        "other order": plain[["well", "day", "n", "colour"]],
        "complete": plain.iloc[:1].astype({"n": "uint8", "well": "bool"}),
        "one row of nothing": plain.iloc[2:].assign(n=[None], colour=[None], well=[None]),
    }


@pytest.mark.parametrize("name", list(frames()))
def test_samples_have_the_columns_types_categories_and_gaps_of_the_frame(name: str) -> None:
    frame = frames()[name]
    table = private(path=in_memory(frame, "public"), schema=SMALL)
    again = restored(table)
    assert list(again.columns) == list(frame.columns)
    if name != "one row of nothing":
        assert again.dtypes.astype(str).tolist() == frame.dtypes.astype(str).tolist()
    pd.testing.assert_frame_equal(again.isna(), frame.isna().reset_index(drop=True))
    again_coded = private(path=in_memory(again), schema=SMALL)
    assert torch.equal(again_coded.codes, table.codes)
    if name == "categories":
        assert again["colour"].cat.categories.tolist() == ["red", "green", "blue"]
    if name == "dates":
        assert again["day"][0] == datetime.date(2020, 1, 2)


def test_types_that_are_not_public_are_those_of_the_schema() -> None:
    """Whatever pandas made of the values; categories are declared."""
    found = {name: restored(private(path=in_memory(frame), schema=SMALL)).dtypes.to_dict() for name, frame in frames().items()}
    plain = found.pop("plain")
    assert list(map(str, plain.values())) == ["Int64", "str", str(pd.to_datetime(pd.Series(["2020-01-01"])).dtype), "boolean"]
    assert str(found.pop("categories").pop("colour")) == "category"
    assert all(types == plain for types in found.values())


def test_polars_and_arrow_tables_come_back() -> None:
    frame = frames()["texts"]
    for made in (polars.from_pandas(frame), polars.from_pandas(frame).to_arrow()):
        table = private(path=in_memory(made, "public"), schema=SMALL)
        again = restored(table)
        assert type(again) is type(made)
        assert torch.equal(private(path=in_memory(again), schema=SMALL).codes, table.codes)
        assert str(again["day"][0]) == "2020-01-02"


def test_sources_of_domains_are_in_the_notes() -> None:
    fields = [field | {"dpgen:source": source} for field, source in zip(SMALL["fields"], ("public", "private", "dp", "public"))]
    schema = SMALL | {"fields": fields, "dpgen:privacy": {"epsilon": 0.5, "delta": 1e-6}}
    told = tiny.told(private(path=in_memory(frames()["plain"]), schema=schema))
    assert told[Fact.READ_DOMAINS] == {"columns": ("colour",)}
    assert told[Fact.BOUGHT_DOMAINS] == {"columns": ("day",), "price": "epsilon 0.5, delta 1e-06"}


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (ROWS, {"schema": "absent.json"}, "schema is 'absent.json'"),
        ("n,colour,day,well\n", {}, "no record"),
        ("n,color,day,well\n1,red,2020-01-01,true\n", {}, "did you mean 'color'"),
        (ROWS.replace("9,", "10,"), {}, "column 'n' breaks a rule of the schema: minimum is 0 and maximum is 9"),
        (ROWS.replace("9,", "nine,"), {}, " it holds whole numbers"),
        (ROWS.replace("blue", "pink"), {}, "'colour' breaks "),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(tmp_path: Path, text: str, options: dict[str, Any], message: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with refused(message):
        private(**{"path": str(tmp_path / "a.csv"), "schema": SMALL, **options})


def test_names_and_types_are_enough_where_all_values_are_booleans() -> None:
    frame = pd.DataFrame({"tea": [True, None], "rum": [False, True]}).astype("boolean")
    table = private(path=in_memory(frame, "public"))
    assert table.codes.tolist() == [[1, 0], [2, 1]]


def test_a_draft_shows_names_and_types_and_no_value() -> None:
    draft = draft_schema(visits(), dtypes="public")
    assert [field["name"] for field in draft["fields"]] == [field["name"] for field in VISITS["fields"]]
    kinds = {field["name"]: field.get("type") for field in draft["fields"]}
    assert (kinds["age"], kinds["weight"], kinds["smoker"]) == ("integer", "number", "boolean")
    assert kinds["ward"] is None, "a text may be a date"
    assert "maternity" not in json.dumps(draft)
    other = visits().assign(age=17, weight=None, smoker=None)[:1].astype({"weight": float, "smoker": "boolean"})
    assert draft_schema(other, dtypes="public") == draft
    assert draft_schema(visits()) == draft_schema(other)
    assert not any("type" in field for field in draft_schema(visits())["fields"])


def test_values_outside_have_a_place_where_the_schema_gives_them_one() -> None:
    schema: dict[str, Any] = {
        "fields": [
            {"name": "c", "constraints": {"enum": ["a", "other"]}, "dpgen:outside": "other"},
            {
                "name": "x",
                "type": "number",
                "constraints": {"minimum": 0, "maximum": 1},
                "dpgen:outside": "clamp",
                "dpgen:bins": {"equal": 32},
            },
        ]
    }
    frame = pd.DataFrame({"c": ["a", "zzz", None], "x": [-5.0, 0.5, 7.0]})
    assert private(path=in_memory(frame), schema=schema).codes.tolist() == [[0, 0], [1, 16], [2, 31]]
    for field, message in ((0, "dpgen:outside of field 'c' is 'b'"), (1, "it must be 'clamp' or left out")):
        wrong = {"fields": [dict(f) for f in schema["fields"]]}
        wrong["fields"][field]["dpgen:outside"] = "b"
        with pytest.raises(ValueError, match=message):
            Schema.from_descriptor(wrong)


def test_codes_outside_their_domain_are_no_table() -> None:
    schema = Schema.from_descriptor(SMALL)
    fine = torch.zeros(2, 4, dtype=torch.int64)
    with refused("outside of its column's domain"):
        Table("t", fine + 11, schema, fine)
    with refused("must be int64"):
        Table("t", fine[:, :2], schema, fine)


def test_many_categories_are_read(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(10**6)]
    schema = {"fields": [{"name": "x", "constraints": {"enum": names, "required": True}}]}
    table = private(path=in_memory(pd.DataFrame({"x": np.array(names)[[7, 999_999]]})), schema=schema)
    assert table.codes.flatten().tolist() == [7, 999_999]
