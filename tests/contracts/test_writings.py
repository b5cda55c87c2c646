"""Texts come back as they were written: a line for each writing, the same from every container."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from told import Told

import dpgen
from dpgen.columns.writings import writing_of
from dpgen.containers import in_memory
from dpgen.data import load_table
from dpgen.systems.tables.discovery import Discovery

Write = Callable[[float, datetime], str]
N = 240
GENERATOR = np.random.default_rng(5)
AMOUNTS = np.round(np.exp(GENERATOR.normal(5.0, 1.6, N)), 2) * GENERATOR.choice([1, 1, 1, -1], N)
TIMES = [
    datetime(2019, 1, 1) + timedelta(days=int(d), seconds=int(s))
    for d, s in zip(GENERATOR.integers(0, 1800, N), GENERATOR.integers(0, 86_400, N))
]
DE = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split()  # noqa: SIM905
FR = "janvier février mars avril mai juin juillet août septembre octobre novembre décembre".split()  # noqa: SIM905
ES = "ene feb mar abr may jun jul ago sep oct nov dic".split()  # noqa: SIM905


def number(form: str, group: str = "", mark: str = ".", around: str = "{}", minus: str = "-{}") -> Write:
    def write(x: float, _: datetime) -> str:
        text = form.format(abs(x)).replace(",", "_").replace(".", mark).replace("_", group)
        text = around.format(text)
        return minus.format(text) if x < 0 else text

    return write


def short(x: float) -> str:
    return repr(round(x, 1)).removesuffix(".0")


def day(pattern: str) -> Write:
    return lambda _, t: t.strftime(pattern)


WRITINGS: dict[str, Write] = {
    "1234,50": number("{:.2f}", mark=","),
    "1234,5": lambda x, _: short(x).replace(".", ","),
    "1.234,50": number("{:,.2f}", ".", ","),
    "1,234.50": number("{:,.2f}", ",", "."),
    "1 234,50": number("{:,.2f}", " ", ","),
    "1\u202f234,50": number("{:,.2f}", "\u202f", ","),
    "1'234.50": number("{:,.2f}", "'", "."),
    "1,234.5": number("{:,.0f}", ","),
    "1.234,50-": number("{:,.2f}", ".", ",", minus="{}-"),
    "(1,234.50)": number("{:,.2f}", ",", minus="({})"),
    "−1234,50": number("{:.2f}", mark=",", minus="−{}"),
    "$1,234.50": number("{:,.2f}", ",", around="${}"),
    "($1,234.50)": number("{:,.2f}", ",", around="${}", minus="({})"),
    "$-1,234.50": lambda x, _: f"${x:,.2f}",
    "£1,234.5": number("{:,.0f}", ",", around="£{}"),
    "1.234,50 €": number("{:,.2f}", ".", ",", "{} €"),
    "1 234,50\u00a0€": number("{:,.2f}", " ", ",", "{}\u00a0€"),
    "€ 1.234,50": number("{:,.2f}", ".", ",", "€ {}"),
    "1.234,50 EUR": number("{:,.2f}", ".", ",", "{} EUR"),
    "CHF 1'234.50": number("{:,.2f}", "'", ".", "CHF {}"),
    "USD 1,234.50": number("{:,.2f}", ",", ".", "USD {}"),
    "1234.50%": number("{:.1f}", around="{}%"),
    "1234,50 %": number("{:.1f}", mark=",", around="{} %"),
    "1234.5‰": lambda x, _: f"{abs(x) % 9:.0f}‰",
    "1234.5 mg": lambda x, _: f"{short(abs(x) % 40)} mg",
    "1234.5 kWh": lambda x, _: f"{abs(x) % 40:.0f} kWh",
    "1234.5 days": lambda x, _: f"{abs(x) % 9:.0f} day" + "s" * (f"{abs(x) % 9:.0f}" != "1"),
    "%d.%m.%Y": day("%d.%m.%Y"),
    "%-d.%-m.%Y": day("%-d.%-m.%Y"),
    "%d.%m.%y": day("%d.%m.%y"),
    "%d/%m/%Y": day("%d/%m/%Y"),
    "%m/%d/%Y": day("%m/%d/%Y"),
    "%-m/%-d/%Y": day("%-m/%-d/%Y"),
    "%-m/%-d/%y": day("%-m/%-d/%y"),
    "%d-%m-%Y": day("%d-%m-%Y"),
    "%d %m %Y": day("%d %m %Y"),
    "%Y/%m/%d": day("%Y/%m/%d"),
    "%Y.%m.%d": day("%Y.%m.%d"),
    "%Y%m%d": day("%Y%m%d"),
    "%Y%m%d%H%M%S": day("%Y%m%d%H%M%S"),
    "%d %b %Y (en)": day("%d %b %Y"),
    "%-d-%b-%y (en)": day("%-d-%b-%y"),
    "%d%b%Y (en, small)": lambda _, t: t.strftime("%d%b%Y").lower(),
    "%d-%b-%Y (EN)": lambda _, t: t.strftime("%d-%b-%Y").upper(),
    "%B %-d, %Y (en)": day("%B %-d, %Y"),
    "%-d. %B %Y (de)": lambda _, t: f"{t.day}. {DE[t.month - 1]} {t.year}",
    "%-d %B %Y (fr)": lambda _, t: f"{t.day} {FR[t.month - 1]} {t.year}",
    "%d %b %Y (es)": lambda _, t: f"{t.day:02d} {ES[t.month - 1]} {t.year}",
    "%d.%m.%Y %H:%M": day("%d.%m.%Y %H:%M"),
    "%m/%d/%Y %-I:%M %p": day("%m/%d/%Y %-I:%M %p"),
    "%d/%m/%Y, %H:%M:%S": day("%d/%m/%Y, %H:%M:%S"),
    "%m/%Y": day("%m/%Y"),
    "%b %Y (en)": day("%b %Y"),
    "%B %Y (de)": lambda _, t: f"{DE[t.month - 1]} {t.year}",
    "%Y-%m": day("%Y-%m"),
    "%YQ%q": lambda _, t: f"{t.year}Q{(t.month + 2) // 3}",
    "Q%q %Y": lambda _, t: f"Q{(t.month + 2) // 3} {t.year}",
    "%G-W%V": day("%G-W%V"),
    "%H:%M": day("%H:%M"),
    "%H:%M:%S": day("%H:%M:%S"),
    "%-I:%M %p": day("%-I:%M %p"),
    "%Hh%M": day("%Hh%M"),
    "[h]:%M:%S": lambda x, t: f"{abs(x) % 200:.0f}:{t:%M:%S}",
    "PT1M": lambda x, t: f"P{t.day}D" if t.hour < 3 else f"PT{t.hour}H{t.minute or 1}M",
    "PT160M": lambda x, _: f"PT{abs(x) % 900:.0f}M",
    "%Y-%m-%dT%H:%M:%SZ": day("%Y-%m-%dT%H:%M:%SZ"),
    "%Y-%m-%dT%H:%M:%S.000+0000": day("%Y-%m-%dT%H:%M:%S.000+0000"),
    "%Y-%m-%d %H:%M:%S+00": day("%Y-%m-%d %H:%M:%S+00"),
    "ja/nein": lambda x, _: "ja" if x < 0 else "nein",
    "Y/N": lambda x, _: "YN"[x < 0],
}
COLUMNS = {f"c{i}": name for i, name in enumerate(WRITINGS)}
FRAME = pd.DataFrame({c: [WRITINGS[name](float(x), t) for x, t in zip(AMOUNTS, TIMES)] for c, name in COLUMNS.items()})
TRUTHS = ("ja/nein", "Y/N")


class Exact(Told):
    """Counts as they are."""

    def sums(self, note: str, sums: Any, share: float) -> Any:
        return sums.values.double(), 0.01


def from_csv(frame: pd.DataFrame, folder: Path) -> Any:
    frame.to_csv(folder / "a.csv", index=False)
    return load_table(path=str(folder / "a.csv"), test_fraction=0.0)


def from_parquet(frame: pd.DataFrame, folder: Path) -> Any:
    frame.to_parquet(folder / "a.parquet")
    return load_table(path=str(folder / "a.parquet"), test_fraction=0.0)


def from_duckdb(frame: pd.DataFrame, folder: Path) -> Any:
    with duckdb.connect(str(folder / "a.duckdb")) as connection:
        connection.execute("create table t as select * from frame")
    return load_table(path=str(folder / "a.duckdb"))


CONTAINERS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "pandas": lambda frame, _: load_table(path=in_memory(frame), test_fraction=0.0),
    "pandas of a csv file": lambda frame, folder: load_table(path=in_memory(from_text(frame, folder)), test_fraction=0.0),
    "list of mappings": lambda frame, _: load_table(path=in_memory(frame.to_dict("records")), test_fraction=0.0),
    "csv": from_csv,
    "parquet": from_parquet,
    "duckdb": from_duckdb,
}


def from_text(frame: pd.DataFrame, folder: Path) -> pd.DataFrame:
    frame.to_csv(folder / "a.csv", index=False)
    return pd.read_csv(folder / "a.csv")


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_has_the_writing_of_its_texts(container: str, tmp_path: Path) -> None:
    table = CONTAINERS[container](FRAME, tmp_path)
    discovery = Discovery(table.rows, table.draft, Exact(), float(N))  # type: ignore[arg-type]
    for given in table.draft["fields"]:
        name = COLUMNS[given["name"]]
        found, _ = discovery.vote(given, 0.01)
        if name in TRUTHS:
            assert (found["type"], *found["trueValues"], *found["falseValues"]) == ("boolean", *name.split("/")), name
        else:
            assert found.get("format") == name, name


def decimals(name: str) -> int:
    return 1 if name in ("1234,5", "1234.50%", "1234,50 %", "1234.5 mg") else 0 if name.endswith("5‰") else 2


@pytest.mark.parametrize("column", FRAME)
def test_a_writing_writes_what_it_reads(column: str) -> None:
    writing = writing_of(COLUMNS[column])
    assert writing is not None
    texts = FRAME[column].to_numpy(object)
    found = writing.read(texts)
    assert found.there.all()
    assert writing.write(found.values, decimals(writing.name)) == texts.tolist()
    assert not writing.read(np.array(["", "x", "99.99.9999", "1,2,3", "25:61", "0x1"], object)).there.any()


def test_a_minus_of_another_style_is_a_minus() -> None:
    for name, texts in (("$1,234.50", ["$5.00", "($5.00)", "-$5.00"]), ("1234,50", ["5,00", "5,00-", "-5,00", "(5,00)"])):
        found = writing_of(name).read(np.array(texts, object))  # type: ignore[union-attr]
        assert found.there.all()
        assert found.values.tolist() == [5.0] + [-5.0] * (len(texts) - 1)


def test_texts_come_back_as_they_were_written(tmp_path: Path) -> None:
    """Of a whole fit: each drawn text is one that the owner's own program could have written."""
    some = [column for column, name in COLUMNS.items() if name in ("1.234,50 €", "%-m/%-d/%Y", "%H:%M", "%YQ%q", "ja/nein")]
    FRAME[some].to_csv(tmp_path / "a.csv", index=False)
    drawn: Any = dpgen.fit(str(tmp_path / "a.csv"), "tables", epsilon=1e3, method="independent").sample(200, random_state=0)
    assert list(drawn) == some
    for column in some:
        texts = drawn[column].dropna().to_numpy(object)
        found = writing_of(COLUMNS[column]).read(texts)  # type: ignore[union-attr]
        assert found.there.all(), column
        assert writing_of(COLUMNS[column]).write(found.values, 2) == texts.tolist()  # type: ignore[union-attr]


def test_truth_values_in_words_have_no_gaps_that_the_data_lack() -> None:
    """Rare gaps are counted by the words of the column: by usual ones, all its values were gaps."""
    release = dpgen.fit(
        {"a": ["ja", "nein", "nein"] * 1000, "b": ["u", "v", "w"] * 1000}, "tables", epsilon=20.0, method="independent"
    )
    drawn = release.sample(3000, random_state=0)["a"]
    assert drawn.count("ja") + drawn.count("nein") == 3000
    assert abs(drawn.count("ja") - 1000) < 200
