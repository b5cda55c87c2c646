"""Three tables: which row hangs on which, and that a person's own rows alone decide what is used of them on every level."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from refusals import refused
from test_linked import in_engine, require_same_bits  # noqa: F401  (fixture)
from three_tables import three_tables

import dpgen
from dpgen.containers import in_memory
from dpgen.data import load_linked
from dpgen.data.linked import LinkedTables
from dpgen.data.linked_reader import Reading
from dpgen.data.split import secret_key
from dpgen.facts import Fact

PEOPLE = pd.DataFrame({"who": ["a", "b", "c"], "old": [True, False, True]})
DAYS = ["2020-01-05", "2020-03-01", "2020-01-02", "2020-01-09"]
VISITS = pd.DataFrame({"who": [*"babb"], "visit": [10, 11, 12, 13], "day": pd.to_datetime(DAYS), "kind": [*"xyxy"]})
AT = ["2020-01-12", "2020-01-02", "2020-01-09", "2020-01-04", "2020-03-01"]
PILLS = pd.DataFrame({"visit": [13, 12, 13, 12, 11], "at": pd.to_datetime(AT), "pill": [*"pqrst"]})


@pytest.fixture
def key(tmp_path: Path) -> Path:
    secret_key(tmp_path / "key")
    return tmp_path / "key"


def read(people: Any = PEOPLE, visits: Any = VISITS, pills: Any = PILLS, **options: Any) -> LinkedTables:
    tables = {"people": people, "visits": visits, "pills": pills}
    made = {name: in_memory(table) for name, table in tables.items() if table is not None}
    for name, table in made.items():
        table.table = name
    given: dict[str, Any] = {"person": "who", "order": {"visits": "day", "pills": "at"}, "test_fraction": 0.0, "max_rows": 3}
    more = {name: made[name] for name in made if name not in ("people", "visits")}
    more |= {name: options.pop(name) for name in ("doses",) if name in options}
    return load_linked(path=made["visits"], people_path=made.get("people"), tables=more, **given | options)


def of(data: LinkedTables, person: int) -> list[tuple[Any, ...]]:
    """Visits of a person, with what hangs on them."""
    (visits, pills), (_, rows, below) = data.tables, data.frames
    found = []
    for v in range(visits.starts[person], visits.starts[person + 1]):
        part = below.iloc[pills.starts[v] : pills.starts[v + 1]]
        found.append((*rows.drop(columns="day", errors="ignore").iloc[v], part.to_numpy().tolist()))
    return found


def test_rows_hang_where_keys_say_and_keys_are_no_data() -> None:
    data = read()
    assert [table.parent for table in data.tables] == [0, 1]
    assert [set(table.rows) for table in data.tables] == [
        {"day", "kind", "days since the last", "number of pills"},
        {"pill", "days since visits", "days since the last"},
    ]
    assert data.people["number of visits"].tolist() == [1, 3, 0]
    assert of(data, 0) == [("y", 0, 1, [["t", 0, 0]])]
    assert [[pill for pill, *_ in pills] for *_, pills in of(data, 1)] == [["q", "s"], [], ["r", "p"]]
    times = data.frames[2][["days since visits", "days since the last"]].to_numpy().tolist()
    assert times == [[0, 0], [0, 0], [0, 2], [0, 0], [0, 3]]
    assert len(data.tables[1].one_row_each().source) == 2, "of people with such rows"


def test_people_of_two_tables_and_histories_with_rows_below() -> None:
    labs = pd.DataFrame({"who": [*"ccb"], "lab": [1.0, 2.0, 3.0]})
    data = read(pills=labs.rename_axis(None), order={"visits": "day"})
    assert [table.parent for table in data.tables] == [0, 0]
    assert data.people["number of pills"].tolist() == [0, 1, 2]
    alone = read(people=None)
    assert (alone.n, alone.tables[0].least, alone.tables[1].least) == (2, 1, 0)


def test_files_and_keys_decide_nothing(key: Path) -> None:
    """Positions as the order, ties by keys, or visits of equal contents that change places would show here."""
    rng = np.random.default_rng(0)
    visits = pd.concat([VISITS.assign(visit=VISITS["visit"] + 10 * i) for i in range(4)])
    pills = pd.concat([PILLS.assign(visit=PILLS["visit"] + 10 * i, pill=PILLS["pill"] + str(i % 3)) for i in range(4)])
    first = read(visits=visits, pills=pills, split_key=key)
    for _ in range(5):
        fresh = dict(zip(visits["visit"], rng.permutation(len(visits))))
        parts = [part.assign(visit=part["visit"].map(fresh)).sample(frac=1.0, random_state=rng) for part in (visits, pills)]
        other = read(visits=parts[0], pills=parts[1], split_key=key)
        assert all(of(first, person) == of(other, person) for person in range(2))
        pd.testing.assert_frame_equal(first.tables[1].sample, other.tables[1].sample)


def test_values_that_count_as_one_have_an_order_of_their_own() -> None:
    """ "01" and "1" are hashed alike below two visits that are alike; the place in the file would decide here."""
    visits = pd.DataFrame({"who": "a", "visit": range(4), "kind": "x"})
    pills = pd.DataFrame({"visit": range(4), "pill": ["1", "01", "1.0", "+1"]})
    found = [
        read(visits=visits, pills=pills.assign(visit=places), order={}, max_rows=4).frames[2]["pill"].tolist()
        for places in (range(4), [3, 1, 0, 2])
    ]
    assert found[0] == found[1]


def test_what_hangs_two_levels_below_orders_rows_that_are_alike(key: Path) -> None:
    visits, pills = pd.DataFrame({"who": "a", "visit": range(4), "kind": "x"}), pd.DataFrame({"visit": range(4), "pill": "y"})
    found = []
    for places in (range(4), [3, 1, 0, 2]):
        doses = in_memory(pd.DataFrame({"taken": places, "dose": [*"pqrs"]}))
        data = read(visits=visits, pills=pills.assign(taken=range(4)), doses=doses, order={}, max_rows=4, split_key=key)
        found.append(data.frames[3]["dose"].tolist())
    assert found[0] == found[1]


def test_rows_of_somebody_else_are_refused_below_rows_that_no_window_has() -> None:
    """They would order the visits of another person, and be gone with their own."""
    for _ in range(10):  # keys
        with refused("of another 'who'"):
            read(pills=PILLS.assign(who=[*"bbaba"]), links={"pills": "visits.visit"}, max_rows=1)


def test_orders_beyond_all_bounds_say_nothing(recwarn: pytest.WarningsRecorder) -> None:
    """numpy would warn of a value that is private."""
    order = {"fields": [{"name": "number", "type": "integer"}]}
    visits = VISITS.drop(columns="day").assign(number=["1", "2", "-1e300", "1e300"])
    rows = read(visits=visits, order={"visits": "number"}, schema=order).frames[1]
    assert rows["days since the last"].min() >= 0
    assert not recwarn.list


def require_own_choice(key: Path) -> None:
    """That the rows of a person, on both levels, are the same ones without another person."""
    tables = three_tables(60)
    options: dict[str, Any] = {"person": "patient", "order": {"visits": "date"}, "max_rows": 2, "split_key": key}
    names = {"people": "patients", "visits": "visits", "pills": "prescriptions"}
    full = {own: tables[name] for own, name in names.items()}
    first = read(**full, **options)
    assert [np.diff(table.starts).max() for table in first.tables] == [2, 2]
    keys = sorted(set(full["visits"]["patient"].astype(str)))  # people come in this order, those without visits last
    for gone in keys[3:9]:
        left = {own: table[table["patient"].astype(str) != gone] for own, table in full.items() if "patient" in table}
        left["pills"] = full["pills"][full["pills"]["visit"].isin(left["visits"]["visit"])]
        data = read(**left, **options)
        for person, name in enumerate(name for name in keys if name != gone):
            assert of(data, person) == of(first, keys.index(name))


def test_rows_are_chosen_whoever_else_is_there(key: Path) -> None:
    require_own_choice(key)


@pytest.mark.parametrize("fault", ["number of people", "place of the row"])
def test_windows_by_the_rows_of_others_are_seen(fault: str, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Reading._words

    def words(self: Any, texts: Any) -> Any:
        return real(self, [f"{text} {len(texts) if fault == 'number of people' else i}" for i, text in enumerate(texts)])

    monkeypatch.setattr(Reading, "_words", words)
    with pytest.raises(AssertionError):
        require_own_choice(key)


def test_rows_without_a_row_above_are_refused_or_left_out() -> None:
    orphans = PILLS.assign(visit=[13, 12, 99, 12, 11])
    with refused("'visit' is not in", "orphans=drop"):
        read(pills=orphans)
    labs = pd.DataFrame({"who": [*"cz"], "lab": [1.0, 2.0]})
    with refused("person is not in", "orphans=drop"):
        read(pills=labs, order={"visits": "day"})
    data = read(pills=orphans, orphans="drop")
    assert len(data.frames[2]) == 4
    windowed = read(max_rows={"visits": 1, "pills": 3})
    assert len(windowed.frames[2]) < 5, "rows of a visit that is not used are no orphans"


def test_a_key_to_people_beside_that_to_a_row_of_theirs_says_the_same() -> None:
    owners = PILLS.assign(who=VISITS.set_index("visit")["who"].loc[PILLS["visit"]].to_numpy())
    links = {"pills": {"visit": "visits.visit", "who": "people.who"}, "visits": "people.who"}
    both, alone = read(pills=owners, links=links), read()
    pd.testing.assert_frame_equal(both.frames[2], alone.frames[2])
    with refused("of another 'who'"):
        read(pills=owners.assign(who="a"), links=links)
    with refused("two private tables"):  # no visit has a key to people by that column
        read(pills=owners, links={"pills": {"visit": "visits.visit", "who": "people.who"}})


TWICE = pd.concat([VISITS, VISITS[:1]])
BAD: list[tuple[dict[str, Any], list[str]]] = [
    ({"visits": TWICE}, ["'visit' twice"]),
    ({"visits": VISITS.assign(visit=[None, 11, 12, 13])}, ["without 'visit'"]),
    ({"visits": VISITS.assign(visit=VISITS["visit"] + 0.0), "orphans": "drop"}, ["whole numbers or text"]),
    ({"pills": PILLS.assign(visit=[None, 12, 13, 12, 11])}, ["without 'visit'"]),
    ({"pills": PILLS.assign(visit=1.5)}, ["whole numbers or text"]),
    ({"pills": PILLS.drop(columns="visit")}, ["'pills' hangs on nothing", "links"]),
    ({"pills": PILLS.assign(kind="x")}, ["visits.visit, visits.kind", "links={'pills': 'visits.visit'}"]),
    ({"links": {"pills": "visit.visit"}}, ["'visit'", "visits"]),
    ({"links": {"pills": "visits.visits"}}, ["'visits'", "visit"]),
    ({"links": {"pills": "pills.visit"}}, ["pills.visit is a key to its own table", "drop=['pills.visit']"]),
    ({"pills": PILLS.assign(old=True), "links": {"pills": "people.old"}}, ["'people.old'", "people by 'who'"]),
    ({"links": {"visits": "pills.visit", "pills": "visits.visit"}}, ["circle"]),
    ({"links": {"pils": "visits.visit"}}, ["'pils'", "pills"]),
    ({"pills": PILLS.assign(who="a"), "links": {"pills": "visits.visit"}}, ["of another 'who'"]),
    ({"people": None, "pills": PILLS.assign(who="a")}, ["must have a table of these people"]),
    ({"pills": PILLS[["visit"]], "order": {}}, ["'pills' has no column but keys"]),
    ({"order": "visit"}, ["order is 'visit'", "2 tables have it", "{TABLE: COLUMN}"]),
    ({"order": "dya"}, ["order is 'dya'", "no table has it"]),
    ({"order": {"pils": "at"}}, ["'pils'", "pills"]),
    ({"order": {"pills": "att"}}, ["'att'", "at"]),
    ({"max_rows": {"pils": 3}}, ["'pils'", "pills"]),
    ({"max_rows": {"pills": 201}}, ["max_rows is 201"]),
    ({"schemas": {"pils": {"fields": []}}}, ["'pils'", "pills"]),
    ({"pills": PILLS[:0]}, ["is empty"]),
    ({"pills": PILLS.assign(at=pd.NaT)}, ["'at' is missing"]),
]


@pytest.mark.parametrize(("options", "words"), BAD, ids=[" ".join(words) for _, words in BAD])
def test_bad_trees_are_one_line(options: dict[str, Any], words: list[str]) -> None:
    with refused(*words):
        read(**options)


def test_a_data_package_names_a_tree(tmp_path: Path) -> None:
    keys = {"people": None, "visits": ("who", "people"), "pills": ("visit", "visits")}
    resources = []
    for name, table in {"pills": PILLS, "people": PEOPLE, "visits": VISITS}.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        link = keys[name]
        own = [] if link is None else [{"fields": link[0], "reference": {"resource": link[1], "fields": link[0]}}]
        order = {"visits": {"dpgen:order": "day"}}.get(name, {})
        resources.append({"name": name, "path": f"{name}.csv", "schema": {"foreignKeys": own, **order}})
    (tmp_path / "datapackage.json").write_text(json.dumps({"resources": resources}))
    data = load_linked(path=str(tmp_path / "datapackage.json"), test_fraction=0.0)
    assert data.names == ("people", "visits", "pills")
    assert [table.parent for table in data.tables] == [0, 1]
    resources[1]["schema"] = {"foreignKeys": [{"fields": "visit", "reference": {"resource": "pills", "fields": "visit"}}]}
    (tmp_path / "datapackage.json").write_text(json.dumps({"resources": resources}))
    with refused("without a foreign key"):
        load_linked(path=str(tmp_path / "datapackage.json"))


def test_a_data_package_of_files_is_read_by_an_engine(tmp_path: Path) -> None:
    tables = three_tables(20)
    keys = {"visits": ("patient", "patients"), "prescriptions": ("visit", "visits")}
    resources = []
    for name, table in tables.items():
        table.to_parquet(tmp_path / f"{name}.parquet")
        links = [keys[name]] if name in keys else []
        own = [{"fields": link, "reference": {"resource": to, "fields": link}} for link, to in links]
        order = {"visits": {"dpgen:order": "date"}}.get(name, {})
        resources.append({"name": name, "path": f"{name}.parquet", "schema": {"foreignKeys": own, **order}})
    (tmp_path / "datapackage.json").write_text(json.dumps({"resources": resources}))
    secret_key(tmp_path / "key")
    options: dict[str, Any] = {"path": str(tmp_path / "datapackage.json"), "split_key": tmp_path / "key", "max_rows": 2}
    memory, engine = load_linked(test_fraction=0.0, **options), load_linked(engine=True, **options)
    assert [table.parent for table in engine.tables] == [0, 1]
    for own, other in zip(memory.frames, engine.frames):
        pd.testing.assert_frame_equal(own, other[own.columns.tolist()], check_dtype=False)


@pytest.mark.parametrize(("form", "max_rows"), [("duckdb", 2), ("parquet", None), ("relations", 1)])
def test_an_engine_gives_the_released_bits_of_three_tables(
    form: str,
    max_rows: int | None,
    tmp_path: Path,
    require_same_bits: Callable[..., None],  # noqa: F811
) -> None:
    tables = three_tables(60)
    require_same_bits(tables, max_rows, **in_engine(form, tmp_path, tables))


def test_four_tables_of_a_relation_of_an_engine_are_those_in_memory(key: Path) -> None:
    """Rows below a row that has rows below it, and a second table of people, in pieces of a few rows in any order."""
    duckdb = pytest.importorskip("duckdb")
    doses = pd.DataFrame({"taken": [0, 0, 3, 4], "dose": [1, 2, 3, 4]})
    tables = {"people": PEOPLE, "visits": VISITS, "pills": PILLS.assign(taken=range(5)), "doses": doses}
    options: dict[str, Any] = {"person": "who", "order": {"visits": "day", "pills": "at"}, "max_rows": 3, "split_key": key}

    def loaded(made: dict[str, Any]) -> LinkedTables:
        sources = {name: in_memory(table, "public") for name, table in made.items()}
        for name, table in sources.items():
            table.table = name
        path, people = sources.pop("visits"), sources.pop("people")
        return load_linked(path=path, people_path=people, tables=sources, test_fraction=0.0, **options)

    memory = loaded(tables)
    engine = loaded({n: duckdb.from_df(t.sample(frac=1.0, random_state=1)) for n, t in tables.items()})
    assert [table.parent for table in engine.tables] == [0, 1, 2]
    assert [table.starts.tolist() for table in memory.tables] == [table.starts.tolist() for table in engine.tables]
    for own, other in zip(memory.frames, engine.frames):
        pd.testing.assert_frame_equal(own, other[own.columns.tolist()], check_dtype=False)


def test_a_tree_needs_all_tables_in_one_place(tmp_path: Path) -> None:
    in_engine("parquet", tmp_path, {"visits": VISITS, "patients": PEOPLE})
    with pytest.raises(TypeError, match="'pills' is in memory, another one in an engine"):
        load_linked(
            path=f"{tmp_path}/visits*.parquet",
            people_path=f"{tmp_path}/patients*.parquet",
            tables={"pills": in_memory(PILLS)},
            person="who",
        )


def test_the_number_of_rows_below_is_bought_with_noise() -> None:
    """An m that was read off the rows would be the same in all fits."""
    tables = three_tables(120)
    fast: dict[str, Any] = {"method": "independent", "classes": 1, "row_classes": 1, "steps": 4}
    options = fast | {"person": "patient", "order": {"visits": "date"}, "max_rows": {"visits": 3, "prescriptions": None}}
    fits = [dpgen.fit(tables, epsilon=3.0, **options) for _ in range(6)]
    assert len({fit.shown["rows"][1]["most"] for fit in fits}) > 1
    assert fits[0].statement.says(Fact.ROWS_OF_ROWS_BOUGHT)


def test_ties_are_broken_whoever_else_has_rows_that_are_alike(tmp_path: Path) -> None:
    """The contents that order a person's rows are not others than without a person whose rows only pills tell apart."""
    day = pd.Timestamp("2020-01-01")
    visits = pd.DataFrame({"who": [*"aaaabb"], "visit": range(6), "day": day, "kind": [*"stuvxx"]})
    pills = pd.DataFrame({"visit": [0, 1, 2, 3, 4, 5], "at": day, "pill": [*"pqrspq"], "many": [1, 2, 3, 4, 5, None]})
    for number in range(6):
        secret_key(tmp_path / f"key{number}")
        found = [
            read(PEOPLE[:rows], visits[:end], pills[:end], split_key=tmp_path / f"key{number}", max_rows=4)
            for rows, end in ((2, 6), (1, 4))
        ]
        kinds = [data.frames[1]["kind"].iloc[:4].tolist() for data in found]
        assert kinds[0] == kinds[1]
