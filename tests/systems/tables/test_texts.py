"""Codes: what repeats is a category, rare values look like the others; what does not is a key, or left out."""

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest
import tiny

import dpgen
from dpgen.columns.descriptors import field_of
from dpgen.columns.writings.codes import CELLS, Pattern, matcher, pattern_of, prefixes, trailing
from dpgen.data import draft_schema
from dpgen.data.raw_tables import Chosen, draft_of
from dpgen.data.table_files import read_excel
from dpgen.facts import Fact, columns_of

N = 6000


def codes() -> pd.DataFrame:
    """Texts of which hardly one is frequent."""
    rng = np.random.default_rng(3)
    regions = np.repeat(np.arange(1, 100), 1 + rng.integers(0, 12, 99))
    post = [f"{a:02d}{b:03d}" for a, b in zip(rng.choice(regions, 648), rng.integers(0, 1000, 648))]
    icd = [
        f"{a}{b:02d}.{c}"
        for a, b, c in zip(rng.choice(list("IIIJKM"), 400), rng.integers(0, 100, 400), rng.integers(0, 9, 400))
    ]
    names = [[f"{x}{y:x}" for x, y in zip(rng.choice(list("abc"), N), rng.integers(0, 2**40, N))] for _ in range(2)]
    return pd.DataFrame(
        {
            "post": rng.choice(post, N),
            "icd": rng.choice(icd, N),
            "phone": [f"+49 30 {v:07d}" for v in rng.permutation(10**6)[:N]],
            "mail": [f"{a}@{b}.de" for a, b in zip(*names)],
            "uuid": [f"{a:08x}-{a % 997:04x}-4{a % 512:03x}-8{a % 311:03x}-{a:012x}" for a in rng.permutation(10**6)[:N]],
            "web": ["".join(["0035g0000", *rng.choice(list("0123456789ABCDEFGHabcdefgh"), 9)]) for _ in range(N)],
            "note": [
                " ".join(rng.choice(["a", "patient", "came", "with", "pain", "and", "went", "home"], 6)) for _ in range(N)
            ],
        }
    )


@pytest.fixture(scope="module")
def released() -> tuple[pd.DataFrame, Any, pd.DataFrame]:
    frame = codes()
    release = dpgen.fit(frame, "tables", epsilon=2.0, method="independent")
    return frame, release, release.sample(N, random_state=0)


def test_rare_codes_look_like_codes(released: Any) -> None:
    frame, release, rows = released
    assert rows["post"].str.fullmatch(r"\d{5}").all()
    assert rows["icd"].str.fullmatch(r"[A-Z]\d\d\.\d").all()
    for column in ("post", "icd"):
        first = [x[column].str[:1].value_counts(normalize=True) for x in (frame, rows)]
        assert first[0].sub(first[1], fill_value=0.0).abs().sum() / 2 < 0.06
        field = release.schema.by_name[column]
        drawn = field.encode(rows[column])
        assert (drawn >= 0).all()
        assert (drawn == field.encode(rows[column][::-1])[::-1]).all()
    assert {"post", "icd"} == {*columns_of(release.statement.facts, Fact.DRAWN_CODES)}


def test_keys_are_new_and_have_the_pattern(released: Any) -> None:
    frame, release, rows = released
    keys = {
        "phone": r"\+49 30 \d{7}",
        "web": "00[0-9A-Za-z]{16}",
        "mail": r"[a-z]{10}@example\.com",
        "uuid": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    }
    assert {*keys} == {*columns_of(release.statement.facts, Fact.UNREPEATED_KEYS)}
    for column, form in keys.items():
        assert rows[column].is_unique
        assert rows[column].str.fullmatch(form).all()
    assert not {*rows["mail"]} & {*frame["mail"]}


def test_free_texts_are_left_out_and_it_is_said_what_keeps_them(released: Any) -> None:
    _, release, rows = released
    assert "note" not in rows
    said = tiny.told(release.statement)[Fact.LEFT_OUT_AS]
    assert said["columns"] == ("note",)
    assert "enum" in said["way"]


def test_what_repeats_is_no_key() -> None:
    """Telephone numbers of which each is there three times."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"phone": [f"030 {v:06d}" for v in rng.permutation(10**6)[:2000]] * 3})
    release = dpgen.fit(frame, "tables", epsilon=3.0, method="independent")
    assert not columns_of(release.statement.facts, Fact.UNREPEATED_KEYS)
    assert release.sample(50, random_state=0)["phone"].str.fullmatch(r"030 \d{6}").all()


@pytest.mark.parametrize(
    ("text", "plain", "classed"),
    [
        ("80331", r"\d\d\d\d\d", r"\d\d\d\d\d"),
        ("J18.9", r"J\d\d\.\d", r"[A-Z]\d\d\.\d"),
        ("FRA", "", "[A-Z][A-Z][A-Z]"),
        ("a note", "", ""),
        ("0035gAB1xYz", r"\d\d\d\dgAB\dxYz", "[0-9A-Za-z]" * 11),
        ("1" * 49, "", ""),
        ("SW1 4ab", r"SW\d \dab", r"[A-Z][A-Z]\d \d[a-z][a-z]"),
    ],
)
def test_the_pattern_of_a_text(text: str, plain: str, classed: str) -> None:
    assert (pattern_of(text), pattern_of(text, classed=True)) == (plain, classed)
    for found in {plain, classed} - {""}:
        assert Pattern(found).fits(text)
        assert Pattern(found).cells <= CELLS


@pytest.mark.parametrize("n", [1, 99, 250])
@pytest.mark.parametrize("pattern", [r"\d\d", r"[A-Z]\d", r"\+49 \d\d\d\d\d\d\d\d\d\d\d\d\d\d", "[0-9a-f]" * 32, r"x\dy"])
def test_keys_of_a_pattern_differ(pattern: str, n: int) -> None:
    made = Pattern(pattern).numbered(np.arange(n))
    assert len({*made}) == n
    room = int(np.prod([float(len(Pattern(pattern).places[place])) for place in Pattern(pattern).free]))
    assert all(Pattern(pattern).fits(text) for text in made[:room])


def test_a_text_has_the_narrowest_of_several_patterns() -> None:
    listed = (r"\d\d\d\d\d", r"8\d\d\d\d", r"80\d\d\d", r"[A-Z]\d\d\.\d", r"J\d\d\.\d")
    assert matcher(listed)(np.array(["80331", "81000", "12345", "J18.1", "K10.2", "x", "J18,1"], object)).tolist() == [
        2,
        1,
        0,
        4,
        3,
        -1,
        -1,
    ]


def test_first_characters_are_seen_above_noise_alone() -> None:
    """None of noise; heavy ones as long as they are seen, others together."""
    root, noise = Pattern(r"\d\d\d"), np.random.default_rng(0)
    seen = [prefixes(root, (noise.normal(0, 9, 100), 9.0), (noise.normal(0, 9, 10), 9.0)) for _ in range(200)]
    assert sum(map(len, seen)) <= 8
    counts = np.r_[np.full(10, 20.0), 900.0, np.zeros(89)]
    flat = counts.reshape(10, 10).sum(1)
    found = prefixes(root, (counts + noise.normal(0, 9, 100), 9.0), (flat + noise.normal(0, 9, 10), 9.0))
    assert {one.pattern for one in found} == {r"10\d", r"0\d\d"}
    assert {one.pattern: one.count for one in found}[r"0\d\d"] == pytest.approx(200.0, abs=60.0)


def test_a_key_that_counts_up_is_written_by_its_number() -> None:
    assert [trailing(pattern) for pattern in (r"K\d\d\d", r"\+1 \d\d \d", r"\{\d")] == ["K{:03d}", "", "{{{:01d}"]


FIELD: dict[str, Any] = {
    "name": "post",
    "type": "string",
    "constraints": {"enum": ["80331", r"8\d\d\d\d", r"\d\d\d\d\d"]},
    "dpgen:patterns": [r"8\d\d\d\d", r"\d\d\d\d\d"],
}


def test_a_schema_may_state_patterns() -> None:
    field, rng = field_of(FIELD), np.random.default_rng(0)
    drawn = field.decode(np.repeat([0, 1, 2], 50), rng.random)
    assert field.encode(drawn).tolist() == np.repeat([0, 1, 2], 50).tolist()
    assert field.encode(pd.Series(["x"])).tolist() == [-1]


@pytest.mark.parametrize("wrong", ["x", ["x"], [r"9\d"], [1]])
def test_patterns_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="dpgen:patterns of field 'post'"):
        field_of(FIELD | {"dpgen:patterns": wrong})


# -- what is released at all -------------------------------------------------------------------------------------------

TABLE = pd.DataFrame({"id": range(90), "a": ["x", "y", "z"] * 30, "b": [1.5, 2.5, 3.5] * 30})


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"drop": ["id"]}, ["a", "b"]),
        ({"columns": ["b"]}, ["b"]),
        ({"columns": ["id", "b"], "drop": ["id"]}, ["b"]),
        ({"drop": ["id"], "key": "id"}, ["a", "b"]),
        ({"drop": ["id"], "schema": {"fields": [{"name": "id"}, {"name": "a"}]}}, ["a", "b"]),
    ],
)
def test_columns_that_are_not_wanted_are_not_released(
    options: Any, left: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    release = dpgen.fit(TABLE, "tables", epsilon=9.0, method="independent", **options)
    assert list(release.sample(3)) == left
    notes = [str(mechanism["note"]) for mechanism in release.statement.mechanisms]
    assert not any(note.endswith(" of id") for note in notes)
    assert {*TABLE} - {*left} == {*columns_of(release.statement.facts, Fact.NOT_IN_SCHEMA)}


@pytest.mark.parametrize("options", [{"drop": ["idd"]}, {"columns": ["idd"]}, {"drop": ["id", "a", "b"]}, {"columns": []}])
def test_columns_that_cannot_be_left_out_are_refused(options: Any) -> None:
    with pytest.raises(ValueError, match=r"drop|columns"):
        dpgen.fit(TABLE, "tables", epsilon=9.0, **options)


@pytest.mark.parametrize("key", ["id", ["id"]])
def test_a_key_need_not_be_listed(key: Any) -> None:
    stated = {"fields": [{"name": "a", "type": "string", "constraints": {"enum": ["x", "y", "z"]}}], "primaryKey": key}
    rows = dpgen.fit(TABLE, "tables", epsilon=9.0, schema=stated, method="independent").sample(5)
    assert list(rows) == ["id", "a"]
    assert rows["id"].astype(int).tolist() == [1, 2, 3, 4, 5]


def test_what_will_not_be_released_is_said_before_it_is_paid_for(tmp_path: Any) -> None:
    from dpgen.cli.main import main

    TABLE.to_csv(tmp_path / "a.csv", index=False)
    run: Callable[[list[str]], Any] = main
    arguments = ["train", str(tmp_path / "a.csv"), "--epsilon", "1", "--drop", "b", "--key", "id", "--dry_run"]
    assert run(arguments) == 0


def excel(path: Any) -> str:
    """A sheet with dates, times, amounts, words and a column without a name; and a second one."""
    rng, book = np.random.default_rng(0), openpyxl.Workbook()
    sheet: Any = book.active
    sheet.title = "bills"
    sheet.append(["day", "at", "when", "euro", "rate", "town", None])
    for day, minute, euro, rate in zip(
        rng.integers(0, 700, 900), rng.integers(480, 1080, 900), rng.lognormal(4, 1, 900), "12" * 450
    ):
        on = datetime(2022, 1, 3) + timedelta(days=int(day))
        at = time(int(minute) // 60, int(minute) % 60)
        sheet.append(
            [on, at, datetime.combine(on, at), round(float(euro), 2), int(rate) / 10, "Ulm" if rate == "1" else "Bonn"]
        )
    for row in sheet.iter_rows(min_row=2):
        row[0].number_format, row[2].number_format = "DD.MM.YYYY", "DD.MM.YYYY hh:mm"
    book.create_sheet("empty")
    book.save(path)
    return f"{path}::bills"


def test_a_sheet_of_excel_is_a_table(tmp_path: Any) -> None:
    found = read_excel(excel(tmp_path / "a.xlsx"))
    first = found.content.iloc[0].tolist()
    assert list(map(type, first)) == [date, time, datetime, float, float, str]
    rows = dpgen.fit(f"{tmp_path / 'a.xlsx'}::bills", epsilon=5.0).sample(200, random_state=0)
    assert list(rows) == ["day", "at", "when", "euro", "rate", "town"]
    assert rows["at"].str.fullmatch(r"\d\d:\d\d:00").all()
    assert rows["town"].isin(["Ulm", "Bonn"]).all()
    assert (rows["day"] == rows["day"].dt.floor("D")).all()


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("a.xlsx", "the sheets bills, empty; name one of them"),
        ("a.xlsx::bill", "the sheets bills, empty"),
        ("a.xlsx::empty", "no row"),
        ("b.xlsx", "no such file"),
        ("c.xlsx", "cannot be read as Excel"),
        ("d.xls", "Excel 97"),
    ],
)
def test_sheets_that_are_not_there_are_refused(name: str, match: str, tmp_path: Any) -> None:
    excel(tmp_path / "a.xlsx")
    for other in ("c.xlsx", "d.xls"):
        (tmp_path / other).write_bytes(b"PK\x03\x04 and more")
    with pytest.raises(ValueError, match=match):
        dpgen.fit(str(tmp_path / name), epsilon=1.0)


def test_a_postcode_of_a_file_is_a_text_by_its_name(tmp_path: Any) -> None:
    """A tenth of them begin with a zero, which noise may hide."""
    pd.DataFrame({"PLZ": ["12345", "01067"], "n": [1, 2]}).to_csv(tmp_path / "a.csv", index=False)
    kinds = [field["type"] for field in draft_of(str(tmp_path / "a.csv"), None, Chosen())["fields"]]
    assert kinds == ["string", "any"]


def test_a_draft_says_what_to_check(tmp_path: Any) -> None:
    pd.DataFrame({"birth date": ["x"], "e-mail": ["x"]}).to_csv(tmp_path / "a.csv", index=False)
    made = draft_schema(str(tmp_path / "a.csv"))
    assert [("date" in field["dpgen:check"], "person" in field["dpgen:check"]) for field in made["fields"]] == [
        (True, False),
        (False, True),
    ]
    assert all("dpgen:check" not in field for field in draft_of(str(tmp_path / "a.csv"), made, Chosen())["fields"])
