"""Two tables side by side: equal ones score as held-out rows do, faults are seen, values are looked at."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from documented_output import answered

import dpgen
from dpgen.cli.main import main


def rows(n: int = 2000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.lognormal(3, 1, n).round(2)
    return pd.DataFrame(
        {
            "x": x,
            "c": rng.choice(list("abc"), n, p=[0.6, 0.3, 0.1]),
            "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D"),
            "gap": pd.Series(rng.normal(size=n)).mask(rng.random(n) < 0.2),
            "y": x + rng.normal(0, 5, n) > 25,
        }
    )


def named(found: Any, start: str) -> tuple[float, float]:
    [score] = [score for score in found.scores if score.name.startswith(start)]
    assert score.real is not None
    return score.value, score.real


def test_rows_of_the_same_law_score_as_held_out_ones() -> None:
    found = dpgen.compare(rows(), rows(seed=1), target="y")
    associated = next(score for score in found.scores if score.name.startswith("associations"))
    assert associated.value < associated.chance, "independent columns"
    for score in found.scores:
        assert score.real is not None
        assert abs(score.value - score.real) < 0.1, score.name
    assert found.columns["invalid"].eq(0).all()


def test_faults_are_seen() -> None:
    wrong = rows(seed=1).assign(x=lambda t: t["x"] * 2, y=lambda t: t["y"].to_numpy()[::-1], gap=0.0)
    found = dpgen.compare(rows(), wrong, target="y", schema={"fields": [{"name": "x", "constraints": {"maximum": 50}}]})
    by_name = found.columns.set_index("column")
    assert by_name.loc["x", "KS or TV"] > 0.15 > by_name.loc["c", "KS or TV"]
    assert by_name.loc["x", "invalid"] > 0.2
    assert by_name.loc["gap", "gaps, synthetic"] == 0 < by_name.loc["gap", "gaps"]
    value, real = named(found, "train on synthetic, test on real: AUC of y by gradient")
    assert value < real - 0.2


def test_a_column_that_is_far_is_marked_and_stands_first() -> None:
    """Of a normal moved by one standard deviation and twice as wide, and of one that is held-out like."""
    rng, n = np.random.default_rng(0), 20_000
    real, made = (
        pd.DataFrame({"near": rng.normal(size=n), "far": rng.normal(at, by, n), "c": 1}) for at, by in ((0, 1), (1, 2))
    )
    found = dpgen.compare(real, made)
    frame = found.columns.set_index("column")
    assert list(frame.index) == list(found.pictures) == ["far", "near", "c"]
    assert [bool(text) for text in frame["marked"]] == [True, False, False]
    assert "3 times held-out rows: far (" in found.notes[0]
    assert frame.loc["far", "W1 / std"] == pytest.approx(1.1666, abs=0.06), "E |1 + Z|"
    assert frame.loc["far", "std ratio"] == pytest.approx(2.0, abs=0.1)
    assert frame.loc["near", "W1 / std"] < 0.05 > frame.loc["near", "W1 / std, held-out"]
    assert frame.loc["c", "range, held-out"] == frame.loc["c", "range, synthetic"] == "1 to 1"


def test_numbers_that_are_not_finite_are_compared_as_far_as_they_are() -> None:
    x = np.r_[np.linspace(0, 1e300, 1000), np.inf]
    frame = dpgen.compare(pd.DataFrame({"x": x}), pd.DataFrame({"x": x})).columns
    assert float(frame["W1 / std"].iloc[0]) < 0.2


def test_copies_are_of_values() -> None:
    copied, real = named(dpgen.compare(rows(), rows()), "rows that equal")
    assert copied > 0.65 > 0.01 > real
    near, held = named(dpgen.compare(rows(), rows()), "median distance")
    assert near == 0 < held


def test_the_command_reads_files_and_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows().to_csv(tmp_path / "real.csv", index=False)
    rows(seed=1).to_parquet(tmp_path / "made.parquet")
    out = tmp_path / "page.html"
    assert main(["compare", str(tmp_path / "real.csv"), str(tmp_path / "made.parquet"), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "not for publication" in printed
    assert out.read_text().count("<img") == 6
    assert main(["compare", str(tmp_path / "real.csv"), str(tmp_path / "none.csv")]) == 2
    assert main(["compare", str(tmp_path / "real.csv"), str(tmp_path / "made.parquet"), "--target", "z"]) == 2


def test_tables_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(ValueError, match="common columns"):
        dpgen.compare(rows(), pd.DataFrame({"other": [1]}))
    with pytest.raises(ValueError, match="there must be 4 real rows"):
        dpgen.compare(rows(2), rows())
    with pytest.raises(ValueError, match="synthetic has several columns called 'a': their names must differ"):
        dpgen.compare(rows(), rows().iloc[:, :2].set_axis(["a", "a"], axis=1))


def test_what_is_not_compared_is_said() -> None:
    whole = rows()
    name = whole.columns[0]
    found = dpgen.compare(whole, whole.drop(columns=name).assign(more=1))
    assert f"Not compared, for one of the tables lacks them: more, {name}." in str(found)
    assert "do not prove privacy" in str(found)
    assert found.notes[0] in found._repr_html_()
    assert "Not compared" not in str(dpgen.compare(whole, whole))


def test_keys_take_no_part_and_dates_of_csv_files_are_dates() -> None:
    """A key would make every row differ from every other one."""
    real = rows().assign(id=[f"C{i}" for i in range(2000)], when=lambda frame: frame["when"].astype(str))
    made = real.assign(id=[f"X{i}" for i in range(2000)], when=lambda frame: frame["when"] + " 00:00")
    found = dpgen.compare(real, made)
    assert named(found, "rows that equal")[0] > 0.6
    assert named(found, "largest KS")[0] < 0.1
    assert found.columns.set_index("column").loc["id", "KS or TV"] > 0.99


def test_tails_that_a_release_has_not_are_seen() -> None:
    """Values beyond the bounds of a schema are compared as they are."""
    from dpgen.schema import Schema

    bounded = {"name": "x", "type": "number", "constraints": {"minimum": 0, "maximum": 20}, "dpgen:outside": "clamp"}
    schema = Schema.from_descriptor({"fields": [bounded]})
    assert schema.typed(rows())["x"].equals(rows()["x"])


def test_rows_taken_out_of_a_table_are_compared_as_they_are() -> None:
    """Columns of any type stay beside each other, whatever index their rows have."""
    from dpgen.data.tables import VISITS, simulated_visits
    from dpgen.schema import Schema

    schema, whole = Schema.from_descriptor(VISITS), simulated_visits(200).content
    part = whole[whole.index % 3 == 1]
    found = schema.typed(part)
    assert found.equals(schema.typed(part.reset_index(drop=True)))
    assert len(found) == len(part)
    assert found["sex"].tolist() == part["sex"].tolist()
    assert found.drop(columns=["weight", "smoker"]).notna().all(axis=None)


def orders(n: int = 1_500, seed: int = 0) -> pd.DataFrame:
    """Orders with rules of every kind, of which few rows break one."""
    rng = np.random.default_rng(seed)
    came, kind = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 700, n), unit="D"), rng.integers(0, 3, n)
    table = pd.DataFrame(
        {"came": came, "left": came + pd.to_timedelta(rng.geometric(0.2, n), unit="D"), "due": came + pd.Timedelta(3, unit="D")}
    )
    table["left"] = table["left"].mask(rng.random(n) < 0.003, pd.Timestamp("2022-01-01"))
    table = table.assign(city=rng.integers(0, 30, n), items=1 + rng.poisson(2, n), price=rng.lognormal(2, 1, n).round(2))
    table["region"] = (table["city"] // 8).map(dict(enumerate("NESW")))
    table = table.assign(total=(table["items"] * table["price"]).round(2), metres=rng.normal(170, 9, n).round())
    table["inches"] = (table["metres"] / 2.54).round(1)
    table = table.assign(**{f"is_{name}": kind == i for i, name in enumerate("abc")}, sex=rng.choice(["F", "M"], n))
    table["pregnant"] = np.where(table["sex"] == "M", "no", rng.choice(["no", "yes"], n))
    return table.assign(births=pd.Series(rng.poisson(1, n)).astype("Int64").mask(table["sex"] == "M"))


RULES = {
    "came <= left",
    "due = came + 3 days",
    "items * price = total",
    "inches = 0.393701 metres",
    "city -> region",
    "one of is_a, is_b, is_c",
    "births is missing just where sex is M",
    "never sex M beside pregnant yes",
}


def test_rules_of_the_real_rows_that_synthetic_ones_break_come_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    real = orders()
    rng = np.random.default_rng(2)
    apart = pd.DataFrame({name: real[name].iloc[rng.permutation(len(real))].array for name in real})
    found = dpgen.compare(real, apart)
    texts = found.rules["rule"].tolist()
    assert {text for text in texts if not text.startswith("inches")} | {"inches = 0.393701 metres"} == RULES
    [length] = [text for text in texts if text.startswith("inches")]
    assert float(length.split()[2]) == pytest.approx(1 / 2.54, rel=1e-3)
    assert found.rules["synthetic"].is_monotonic_decreasing
    assert (found.rules["real"] <= 0.01).all()
    assert str(found).startswith("Synthetic rows break rules")
    real.to_csv(tmp_path / "real.csv", index=False)
    apart.to_csv(tmp_path / "apart.csv", index=False)
    arguments = ["compare", str(tmp_path / "real.csv"), str(tmp_path / "apart.csv"), "--out", str(tmp_path / "page.html")]
    assert {rule["rule"] for rule in answered(capsys, *arguments)["rules"]} == {*texts}
    page = (tmp_path / "page.html").read_text()
    assert 0 < page.index("came &lt;= left") < page.index("<img")


def test_what_follows_from_two_columns_together_is_a_rule() -> None:
    """Unless it follows from one of them, or each pair of values has few rows."""
    rng, n = np.random.default_rng(3), 2_000
    real = pd.DataFrame({"zone": rng.choice([*"ABCD"], n), "kind": rng.choice(["one", "two", "three"], n)})
    real["fare"] = (real["zone"] + real["kind"]).map({z + k: f"T{(i + j) % 3}" for i, z in enumerate("ABCD") for j, k in
                    enumerate(("one", "two", "three"))})  # fmt: skip
    real = real.assign(code=real["zone"].str.lower(), many=rng.integers(0, 60, n), more=rng.integers(0, 60, n))
    apart = pd.DataFrame({name: real[name].iloc[rng.permutation(n)].array for name in real})
    found = set(dpgen.compare(real, apart).rules["rule"])
    assert found == {"zone -> code", "code -> zone", "zone, kind -> fare"}


def test_rules_that_hold_in_both_tables_are_not_listed() -> None:
    found = dpgen.compare(orders(), orders(seed=1))
    assert not len(found.rules)
    assert "break rules" not in str(found)
