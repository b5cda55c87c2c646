"""Two nights by their released counts: of one law nothing is named, a column that moved is named first, without the data."""

from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from documented_output import answered
from refusals import refused

import dpgen
from dpgen.cli.main import main
from dpgen.columns.descriptors import field_of
from dpgen.columns.fields import Field
from dpgen.data.toy import simulated_patients
from dpgen.evaluation.drift import FALSE_ALARMS, Column, Drift, Night, drift, touching

N, STD = 3000, 12.0
LAW = {"a": 0.5, "b": 0.3, "c": 0.15, "d": 0.05}


@cache
def law(*, others: bool, shift: int = 0) -> dict[str, tuple[Field, bool, Any]]:
    """Two columns in cells of one of two kinds, and the shares of these: fields, whether gaps have a cell, shares."""
    rng = np.random.default_rng(1)
    kinds = pd.Series(rng.choice(list(LAW), 20_000, p=list(LAW.values())))
    ages, gaps = rng.normal(40 + shift, 12, 20_000).round(), rng.random(20_000) < 0.1
    listed, most = (["a", "d", "other"], 60) if others else (["a", "b", "c", "other"], 80)
    kind = {"name": "kind", "type": "string", "constraints": {"enum": listed, "required": True}, "dpgen:outside": "other"}
    edges: list[int] = [0, 25, 40, 45, most] if others else [0, 20, 30, 40, 50, most]
    rules = {"minimum": 0, "maximum": most, "required": others}
    age: dict[str, Any] = {"name": "age", "type": "integer", "constraints": rules, "dpgen:bins": {"edges": edges}}
    age |= {"dpgen:outside": "clamp"} | ({"dpgen:fill": 0} if others else {})
    fields = field_of(kind), field_of(age)
    codes = [fields[0].encode(kinds.where(kinds.isin(listed), "other")), fields[1].encode(pd.Series(ages))]
    codes[1] = np.where(gaps, 0 if others else fields[1].size, codes[1])
    sizes = fields[0].size, fields[1].size + (not others)
    return {
        field.name: (field, size > field.size, np.bincount(own, minlength=size) / len(own))
        for field, own, size in zip(fields, codes, sizes)
    }


def night(rng: np.random.Generator, *, others: bool = False, std: float = STD, shift: int = 0) -> Night:
    """A night of a law."""
    columns = {}
    for name, (field, nullable, shares) in law(others=others, shift=shift).items():
        counts = rng.multinomial(N, shares) + std * rng.standard_normal(len(shares))
        columns[name] = Column(field, nullable, counts, np.full(len(counts), std**2), np.arange(len(counts)))
    return Night("night", N + std * rng.standard_normal(), std, 1, columns)


@pytest.mark.parametrize("std", [STD, 0.5])
@pytest.mark.parametrize("others", [False, True])
def test_nights_of_one_law_are_alike_whatever_their_cells_are(std: float, others: bool) -> None:
    """Of 100 pairs more than 12 would be named with probability below 1e-9, where one in a hundred is."""
    rng = np.random.default_rng(0)
    pairs = [Drift.between(night(rng, std=std), night(rng, others=others, std=std)) for _ in range(100)]
    assert FALSE_ALARMS == 0.01
    assert sum(bool(found.changes or found.rows_changed) for found in pairs) <= 12
    assert all(found.others == {} for found in pairs)


def test_a_faulty_comparison_without_the_chance_of_rows_names_something() -> None:
    rng = np.random.default_rng(0)
    pairs = [[replace(night(rng, std=0.5), most=0) for _ in range(2)] for _ in range(40)]
    assert sum(bool(Drift.between(*pair).changes) for pair in pairs) > 10


def test_cells_meet_where_a_value_may_be_in_both() -> None:
    rng = np.random.default_rng(0)
    first, second = night(rng), night(rng, others=True)
    kinds = touching(first.columns["kind"], second.columns["kind"])
    # a; b and c are "other" of the second night; "other" of the first one is d or other
    assert kinds.tolist() == [[True, False, False], [False, False, True], [False, False, True], [False, True, True]]
    ages = touching(first.columns["age"], second.columns["age"])
    assert ages[-1].tolist() == [True, False, False, False], "gaps are in the cell of their fill"
    assert ages[0].tolist() == [True, False, False, False]
    assert ages[4].tolist() == [False, False, False, True], "what is beyond a range is at its end"
    for slow in range(len(first.columns["age"].counts) - 1):  # by the values of all ages
        held = {int(second.columns["age"].field.encode(pd.Series([min(age, 60)]))[0]) for age in range(99)
                if int(first.columns["age"].field.encode(pd.Series([min(age, 80)]))[0]) == slow}  # fmt: skip
        assert set(np.flatnonzero(ages[slow])) >= held


@pytest.mark.parametrize("others", [False, True])
def test_a_shifted_column_is_named_in_either_direction(others: bool) -> None:
    rng = np.random.default_rng(0)
    older = night(rng, others=others, shift=15)
    for pair in ((night(rng), older), (older, night(rng))):
        found = Drift.between(*pair)
        assert [change.column for change in found.changes] == ["age"]
        [change] = found.changes
        assert change.times > 2
        grew = change.first < change.second
        assert change.values.split()[0] == ("from" if grew == (pair[1] is older) else "up")


def rows(n: int, *, shift: float = 0.0, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = (30 + 12 * rng.standard_normal(n) + shift).round().clip(0, 99)
    ward = rng.choice(["A", "B", "C"], n, p=[0.6, 0.3, 0.1])
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, n), "D")
    cost = np.where(rng.random(n) < 0.1, np.nan, np.exp(rng.standard_normal(n) + 4).round(2))
    return pd.DataFrame({"age": age, "ward": ward, "day": day, "cost": cost})


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three nights: one, another one of the same law, and one with older people, a new ward, a new column and one less."""
    folder = tmp_path_factory.mktemp("nights")
    moved = rows(6000, shift=15, seed=2).drop(columns="day").assign(more="x")
    moved.loc[::5, "ward"] = "dialysis"
    for name, frame in (("monday", rows(6000)), ("tuesday", rows(6000, seed=1)), ("friday", moved)):
        frame.to_csv(folder / f"{name}.csv", index=False)
        options = [f"{folder / name}.csv", "--epsilon=2", "--method=independent"]
        assert main(["train", *options, "--evaluation=none", f"--run_dir={folder / name}", "--quiet"]) == 0
        (folder / f"{name}.csv").unlink()  # nothing private is read from here on
    return folder


def test_runs_are_compared_by_what_they_released(nights: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    said = partial(answered, capsys, "compare")
    monday, tuesday, friday = (str(nights / name) for name in ("monday", "tuesday", "friday"))
    same = said(monday, tuesday)
    assert (same["changes"], same["rows_changed"], same["page"]) == ([], False, None)
    assert sorted(same["unchanged"]) == ["age", "cost", "day", "ward"]
    moved = said(monday, friday, f"--out={tmp_path / 'page.html'}")
    assert {change["column"] for change in moved["changes"][:2]} == {"age", "ward"}
    [ward] = [change for change in moved["changes"] if change["column"] == "ward"]
    assert (ward["values"], ward["second"]) == ("dialysis (new)", pytest.approx(0.2, abs=0.1))
    [ward] = [change for change in said(friday, monday)["changes"] if change["column"] == "ward"]
    assert ward["values"] == "dialysis (gone)"
    assert (moved["appeared"], moved["vanished"], moved["unchanged"]) == (["more"], ["day"], ["cost"])
    page = (tmp_path / "page.html").read_text()
    assert page.count("<img") == 3
    assert "may be published" in page
    assert main(["compare", monday, friday]) == 0
    text = capsys.readouterr().out
    for words in ("rows ", "changed ", "age: ", "new ", "gone "):
        assert words in text
    assert drift(monday, tuesday).changes == []
    assert "run" in said(monday, monday, "--target=age", code=2)["problem"]
    assert "is no run" in said(monday, str(tmp_path), code=2)["problem"]
    assert "is no run" in said(monday, str(nights / "monday.csv"), code=2)["problem"]


def test_other_kinds_of_runs_are_refused(tmp_path: Path, nights: Path) -> None:
    release = dpgen.fit(
        simulated_patients(60), epsilon=3.0, person="patient", order={"visits": "date"}, max_rows=2,
        method="independent", rounds=1, steps=1, classes=2,
    )  # fmt: skip
    release.save(tmp_path / "linked")
    with refused("'relational'", "--model tables"):
        drift(nights / "monday", tmp_path / "linked")


def test_a_column_of_another_type_is_not_compared() -> None:
    rng = np.random.default_rng(0)
    first, second = night(rng), night(rng)
    changed = replace(second, columns={**second.columns, "age": second.columns["kind"]})
    found = Drift.between(first, changed)
    assert found.others == {"age": "integer: a range, now string: listed values"}
    assert [change.column for change in found.strongest] == ["kind"]


def test_rows_are_compared_by_their_noise() -> None:
    rng = np.random.default_rng(0)
    first = night(rng)
    assert Drift.between(first, replace(night(rng), n=N + 20 * STD)).rows_changed
    assert not Drift.between(first, replace(night(rng), n=N + 3 * STD)).rows_changed
