"""Errors of linked tables: by values, whatever codes a model has."""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from documented_output import answered
from linked_packages import saved
from smoke import linked_tables

from dpgen.cli.main import main
from dpgen.containers import Form, in_memory
from dpgen.data.linked import LinkedTables, load_linked
from dpgen.data.toy import simulated_patients
from dpgen.evaluation.linked import (
    MOST_GROUPS,
    NAMED,
    broken_across,
    by_person,
    coder,
    drawn,
    errors,
    evaluate,
    groups_of,
    without_link,
)
from dpgen.samples import LinkedSamples


def of_rows(data: LinkedTables, rows: pd.DataFrame) -> LinkedTables:
    return replace(data, tables=(replace(data.tables[0], rows=rows),))


def changed(data: LinkedTables, name: str, value: object) -> LinkedTables:
    return of_rows(data, data.frames[1].assign(**{name: value}))


def test_the_same_people_have_no_error_and_rows_at_random_have() -> None:
    data = linked_tables()
    shape, coded = coder(data)
    private = coded(data)
    assert set(errors(private, private, shape).values()) == {0.0}
    dealt = errors(private, without_link(private, shape, 0), shape)
    assert dealt["people"] == 0.0
    assert min(dealt[kind] for kind in ("both", "pair", "next")) > 0.1


def test_values_that_are_lost_are_errors_whatever_the_model_is() -> None:
    data = linked_tables()
    shape, coded = coder(data)
    for name, value in (("ward", "elsewhere"), ("cost", 0.0), ("severity", np.nan), ("ward", None)):
        found = errors(coded(data), coded(changed(data, name, value)), shape)
        assert found["row"] > 0.2, name
        assert found["people"] == 0.0


def test_a_column_that_a_release_left_out_is_lost() -> None:
    data = linked_tables()
    shape, coded = coder(data)
    without = of_rows(data, data.frames[1].drop(columns="ward"))
    found = errors(coded(data), coded(without), shape)
    assert found["row"] > 0.2
    assert found["people"] == 0.0
    for name, draw in drawn({"private": data, "synthetic": without}).items():
        assert draw().axes, name


def test_texts_of_files_are_read_as_what_they_are() -> None:
    data = linked_tables()
    texts = changed(data, "cost", data.frames[1]["cost"].astype(str))
    shape, coded = coder(texts)
    assert shape.of(1)[3] > 8
    assert np.array_equal(coded(texts).rows[0], coder(data)[1](data).rows[0])


def test_a_release_without_a_row_has_no_scores() -> None:
    people = pd.DataFrame({"who": range(9)})
    form = Form(container="pandas", names=("who",), types=("int64",))

    class Release:
        size = 9
        shown: ClassVar[dict[str, Any]] = {"rows": [{"most": 3}]}

        def samples(self, _n: int, **_options: object) -> LinkedSamples:
            tables = {"patients": people, "visits": people[:0]}
            return LinkedSamples(tables=tables, forms=dict.fromkeys(tables, form), person="who")

    assert evaluate(Release(), linked_tables(), seed=0).scores == []


def test_packages_are_compared_by_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same people lose nothing but what some differ from others by; rows that are dealt out lose what links them."""
    tables, found = simulated_patients(300), []
    dealt = np.random.default_rng(0).permutation(tables["visits"]["patient"])
    for name, visits in (("real", tables["visits"]), ("dealt", tables["visits"].assign(patient=dealt))):
        saved(tmp_path / name, tables | {"visits": visits})
        scores = answered(capsys, "compare", tmp_path / "real" / "datapackage.json", tmp_path / name)["scores"]
        found.append({score["name"]: score["value"] for score in scores})
    assert len(found[0]) == 10
    for name in (NAMED["pair"], NAMED["next"], "a row and the next, ward: total variation"):
        assert found[1][name] > 1.5 * found[0][name], name
    assert main(["compare", str(tmp_path / "real" / "datapackage.json"), "nowhere"]) == 2
    page = tmp_path / "page.html"
    assert main(["compare", str(tmp_path / "real" / "datapackage.json"), str(tmp_path / "dealt"), f"--out={page}"]) == 0
    assert "not for publication" in capsys.readouterr().out
    assert page.read_text().count("<img") == len(drawn({"real": linked_tables()}))


def test_rules_that_synthetic_people_break_come_first() -> None:
    """Visits before a first day, of another region and with another total are named; nothing is where all hold."""
    tables = simulated_patients(300)
    people, rows = tables["patients"].set_index("patient"), tables["visits"]
    first = rows.groupby("patient")["date"].min().reindex(people.index).fillna(rows["date"].min())
    spent = rows.groupby("patient")["cost"].sum().reindex(people.index).fillna(0)
    rows = rows.assign(region=people["region"].reindex(rows["patient"]).to_numpy())
    real = {"patients": people.assign(since=first, spent=spent).reset_index(), "visits": rows}
    wrong = real | {"patients": real["patients"].assign(since=first.to_numpy()[::-1], spent=1, region="nowhere")}
    sources = {name: in_memory(table, "public") for name, table in real.items()}
    for name, source in sources.items():
        source.table = name
    options: dict[str, Any] = {"person": "patient", "order": "date", "max_rows": 60, "test_fraction": 0.0}
    data = load_linked(path=sources["visits"], people_path=sources["patients"], **options)
    assert broken_across(data, data) == []
    made = data.alike(dict(zip(data.names, wrong.values())))
    named = " ".join(score.name for score in broken_across(data, made))
    assert all(word in named for word in ("date not before", "region is", "spent is the sum"))
    lacking = {"patients": wrong["patients"].drop(columns="spent"), "visits": rows.drop(columns="region")}
    [score] = broken_across(data, data.alike(dict(zip(data.names, lacking.values()))))
    assert "date not before" in score.name, "rules of columns that synthetic tables lack are left out"


def test_the_command_lists_rules_that_are_broken_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = simulated_patients(200)
    region = tables["patients"].set_index("patient")["region"].reindex(tables["visits"]["patient"]).to_numpy()
    for name, own in (("real", region), ("dealt", np.random.default_rng(0).permutation(region))):
        saved(tmp_path / name, tables | {"visits": tables["visits"].assign(region=own)})
    scores = answered(capsys, "compare", tmp_path / "real" / "datapackage.json", tmp_path / "dealt")["scores"]
    assert "region is" in scores[0]["name"]


def test_people_are_attacked_by_what_their_rows_come_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A copy of all people is found, whatever their keys are; people of whom nothing was seen are not."""
    real, _, other = (
        str(saved(tmp_path / name, simulated_patients(240, seed=seed))) for seed, name in enumerate(("real", "fresh", "other"))
    )
    aucs, page = {}, tmp_path / "page.html"
    for name in ("real", "fresh"):
        options = ["--holdout", other, "--attacks", "--epsilon", "1", *([f"--out={page}"] if name == "fresh" else [])]
        found = answered(capsys, "compare", real, tmp_path / name, *options)
        scores = {score["name"]: score for score in found["scores"]}
        assert len([score for score in scores if score.startswith("attack")]) == 6
        aucs[name] = [scores[f"attack: membership by the nearest row{end}, AUC"] for end in ("", ", beside that of others")]
        assert "not for publication" in found["not_for_publication"]
    assert all(score["value"] >= 0.95 > score["chance"] for score in aucs["real"])
    assert all(abs(score["value"] - 0.5) < 0.25 for score in aucs["fresh"]), "six standard deviations of 120 of each"
    assert "Attacks that find nothing prove nothing" in page.read_text()
    assert "not for publication" in page.read_text()
    for options in (["--attacks"], ["--epsilon", "1"], ["--target", "age"], ["--holdout", str(tmp_path), "--attacks"]):
        assert main(["compare", real, str(tmp_path / "fresh"), *options]) == 2


def test_what_rows_come_to_is_counted_for_each_person() -> None:
    data = linked_tables()
    people, rows, starts = data.frames[0], data.frames[1], data.tables[0].starts
    found = by_person(data, data)
    assert list(found)[: people.shape[1]] == list(people)
    for i in range(data.n):
        own = rows.iloc[starts[i] : starts[i + 1]]
        if len(own):
            line = found.iloc[i]
            assert line["visits: mean cost"] == pytest.approx(own["cost"].mean())
            assert line["visits: max cost"] == pytest.approx(own["cost"].max())
            assert (own["ward"] == line["visits: most frequent ward"]).sum() == own["ward"].value_counts().max()
        else:
            assert found.iloc[i].filter(like="visits: m").isna().all()


@pytest.mark.parametrize("written", ["{:.2f}", "{:.2f} \u20ac"])
def test_money_is_compared_as_a_number_however_it_is_written(written: str) -> None:
    rng = np.random.default_rng(0)
    private, other = (pd.Series([written.format(x).replace(".", ",") for x in rng.lognormal(3, 1, 900)]) for _ in range(2))
    groups, size = groups_of(private)
    shares = [np.bincount(groups(values), minlength=size) / 900 for values in (private, other)]
    assert size == MOST_GROUPS + 1
    assert np.abs(shares[0] - shares[1]).sum() / 2 < 0.1


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("stated", [False, True])
def test_a_row_that_ends_before_it_begins_is_told(stated: bool, most: int) -> None:
    """Where the schema of the real rows states it, too: tables of others are not refused."""
    rng = np.random.default_rng(0)
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 300), unit="D")
    rows = pd.DataFrame(
        {"who": np.repeat(np.arange(100), 3), "day": day, "out": day + pd.to_timedelta(rng.integers(0, 9, 300), "D")}
    )
    schema = {
        "fieldsMatch": "partial",
        "fields": [{"name": "out", "type": "date"}],
        "dpgen:constraints": [{"less_equal": ["day", "out"]}],
    }
    data = load_linked(
        path=in_memory(rows),
        person="who",
        order="day",
        max_rows=most,
        schema=schema if stated else None,
        test_fraction=0.0,
    )
    assert not broken_across(data, data.alike(rows)), "real rows keep the rule"
    [score] = broken_across(data, data.alike(rows.assign(out=rng.permutation(rows["out"]))))
    assert score.name == "people who break: rows.out not before rows.day"
    assert score.value > 0.4
