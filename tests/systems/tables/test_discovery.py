"""Raw tables: what is bought comes back as it was, is charged once, and depends on released counts alone."""

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
from scipy.stats import ks_2samp, norm, wasserstein_distance
from told import Told

import dpgen
from dpgen.columns.axes import FAR, Steps, axis_of, steps, steps_of
from dpgen.columns.forms import texts_of
from dpgen.columns.votes import CELLS, votes
from dpgen.containers import in_memory
from dpgen.data import RawTable, load_table
from dpgen.data.raw_tables import Rows
from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.privacy.noise import SecureSource
from dpgen.privacy.selection import FrequentCounts
from dpgen.schema import Schema, TableDomain
from dpgen.systems.plan import SumsPlan
from dpgen.systems.tables import densities, domains
from dpgen.systems.tables.densities import law as law_of
from dpgen.systems.tables.discovery import Discovery, release_domains, thresholds, units_of
from dpgen.systems.tables.domains import Asked, Bought, Parts
from dpgen.systems.tables.marginals import Known, release_columns
from dpgen.systems.tables.mixture import Mixture

N = 4000


def customers(n: int = N) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "id": [f"C{i:06d}" for i in range(n)],
            "spent": np.where(rng.random(n) < 0.5, 0.0, rng.lognormal(5, 1.2, n)).round(2),
            "tens": rng.integers(0, 9, n) * 10,
            "post": rng.choice(["01067", "89073", "10115"], n),
            "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
            "weight": pd.Series(rng.normal(80, 9, n)).mask(rng.random(n) < 0.2),
            "note": [f"text {i} of {i * 7 % 1000}" for i in range(n)],
            "one": "same",
            "nothing": pd.Series([None] * n, dtype=object),
            "member": rng.random(n) < 0.3,
        }
    )


@pytest.fixture(scope="module")
def released() -> tuple[pd.DataFrame, Any, pd.DataFrame]:
    frame = customers()
    release = dpgen.fit(frame, epsilon=8.0, seed=1, rounds=4, picks=20)
    return frame, release, release.sample(N, random_state=0)


def test_columns_come_back_as_they_were(released: Any) -> None:
    frame, _, rows = released
    assert rows.columns.tolist() == [name for name in frame.columns if name != "note"]
    assert rows.dtypes.drop("nothing").tolist() == frame.drop(columns=["note", "nothing"]).dtypes.tolist()
    assert abs((rows["spent"] == 0).mean() - 0.5) < 0.03
    assert ks_2samp(frame["spent"], rows["spent"]).statistic < 0.04
    assert rows["spent"].round(2).equals(rows["spent"])
    assert set(rows["tens"]) <= set(range(0, 90, 10))
    assert set(rows["post"]) == {"01067", "89073", "10115"}
    assert ks_2samp(frame["seen"].astype("int64"), rows["seen"].astype("int64")).statistic < 0.05
    assert (rows["seen"] == rows["seen"].dt.normalize()).all()
    assert abs(rows["weight"].isna().mean() - 0.2) < 0.04
    assert not rows.drop(columns=["weight", "nothing"]).isna().any().any(), "no gaps are invented"
    assert rows["nothing"].isna().mean() > 0.95
    assert rows["one"].eq("same").all()
    assert rows["id"].str.fullmatch(r"C\d{6}").all()
    assert rows["id"].is_unique


def test_a_range_of_bought_bins_is_the_law_of_rows_inside_of_it(released: Any) -> None:
    _, release, _ = released
    free = release.sample(40_000, random_state=1)
    for column, low, high in (("spent", 61.5, 388.25), ("seen", "2020-03-07", "2021-01-19")):
        kept = free[free[column].between(low, high)]
        rows = release.sample(4000, random_state=2, given={column: {"minimum": low, "maximum": high}})
        assert rows[column].between(low, high).all()
        for name in ("spent", "seen", "weight"):
            assert ks_2samp(kept[name].dropna().astype("int64"), rows[name].dropna().astype("int64")).statistic < 0.04


def test_what_was_bought_and_left_out_is_said(released: Any) -> None:
    _, release, _ = released
    told = " ".join(release.statement.told)
    assert "bought" in told
    assert "note" in told
    assert 10 < int(tiny.told(release.statement)[Fact.BOUGHT]["share"].removesuffix("%")) < 30
    assert "id" in told
    assert release.statement.says(Fact.CHOSEN_MODEL)
    assert release.epsilon <= 8.0
    assert told.split(".")[0] in str(release)
    assert release.schema.descriptor()["dpgen:privacy"]["epsilon"] == 8.0, "who fits to this schema again pays for it"


def test_many_moved_columns_are_named_in_one_sentence() -> None:
    moved = [Fact.MOVED(share=str(i), std="1", column=f"c{i}", where="above", bound="7") for i in range(60)]
    budget: Any = Told()
    discovery = Discovery(Rows(pd.DataFrame()), {"fields": []}, budget, 100.0, moved=moved)
    told = [said.sentence for said in discovery._facts([{"name": "c1"}], [], 0.1)]
    assert sum(" lay " in text for text in told) == 8
    assert sum("ends of their ranges, too" in text for text in told) == 1


def test_what_is_known_is_not_bought() -> None:
    known = {"fields": [{"name": "tens", "constraints": {"minimum": 0, "maximum": 80}}, {"name": "post", "type": "string"}]}
    known["fields"][1]["constraints"] = {"enum": ["01067", "89073", "10115"]}
    release = dpgen.fit(customers(400)[["tens", "post", "member"]], epsilon=2.0, schema=known)
    notes = {str(m["note"]) for m in release.statement.mechanisms}
    assert not any(note.endswith("of post") for note in notes)
    assert any(note.endswith("of tens") for note in notes), "bins of a range are bought"
    assert release.schema.by_name["tens"].bounds()[1][-1] == 80


def test_the_empty_end_of_a_range_holds_no_mass() -> None:
    """Noise or half a record there would move the mean."""
    domain = TableDomain(names=("x",), sizes=(8,), ordered=(True,), missing=(7,), target=None)
    counts, budget = np.array([3000.0, 40.0, 900.0, 3.0, 50.0, 0.0, 0.0, 6.0]), Told()
    options: dict[str, Any] = {"alone": True, "known": {0: Known.of(counts, np.full(8, 2.0), counts)}}
    found = release_columns(np.zeros((0, 1), np.int64), domain, budget, 1e-9, (4000.0, 5.0), **options)  # type: ignore[arg-type]
    shares = found.shares[0] * found.n
    assert shares[5:7].sum() < 0.1
    assert shares[:5] == pytest.approx(counts[:5], abs=2.0)
    assert shares[7] == pytest.approx(6.0, abs=2.0), "gaps are no end of a range"


def tailed(counts: np.ndarray, std: float, limits: tuple[Any, Any] = (None, None), edges: Any = None) -> Any:
    """The law through noisy counts of parts, without `edges` from each power of two to the next."""
    axis, n = Steps(Decimal(1), whole=True), len(counts)
    edges = 2 ** np.arange(n + 1) if edges is None else edges
    parts = Parts(axis, edges, np.zeros(n, bool), counts, np.full(n, std**2), np.zeros(n, bool))
    asked = Asked("x", axis, limits, float(counts.sum()), 1e-3)
    return law_of(Bought(parts, (0.0, 1.0), None), asked)


@pytest.mark.parametrize("limits", [(None, None), (1, 2**24 - 1)])
def test_a_tail_goes_on_where_noise_hides_its_cells_one_by_one(limits: tuple[Any, Any]) -> None:
    cells_of = 10_000 * np.diff(norm.cdf((np.arange(25) * np.log(2) - 8.0) / 1.3))
    noise, outer = np.random.default_rng(0), []
    for _ in range(50):
        density = tailed(cells_of + noise.normal(0, 12, 24), 12.0, limits).density
        outer.append(density.masses[density.edges[:-1] >= 2**15].sum())
    truth = cells_of[15:].sum()
    assert 0.5 * truth < np.mean(outer) < 1.5 * truth
    assert np.mean(np.array(outer) == 0) < 0.2


def test_many_frequent_values_leave_a_code_between_any_two() -> None:
    """More of them than codes: none can join another."""
    axis, edges = Steps(Decimal(1), whole=True), np.unique(np.r_[np.arange(128) * 10, np.arange(128) * 10 + 1])
    alone = np.diff(edges) == 1
    counts = np.where(alone, 900.0, 90.0)
    parts = Parts(axis, edges, alone, counts, np.full(len(counts), 4.0), np.zeros(len(counts), bool))
    law = law_of(Bought(parts, (0.0, 1.0), None), Asked("x", axis, (None, None), float(counts.sum()), 1e-3))
    assert law is not None
    assert law.known.fitted.sum() == pytest.approx(counts.sum(), rel=0.05)


def test_what_ends_has_no_tail() -> None:
    noise, longer = np.random.default_rng(0), list[bool]()
    edges = np.r_[np.arange(0, 128, 8), 128, 256, 512, 1024, 2**20]
    ages = 20_000 / 96 * np.diff(np.clip(edges, 0, 96))
    for _ in range(200):
        law = tailed(ages + noise.normal(0, 30, len(ages)), 30.0, edges=edges)
        longer.append(bool(law.starts[-1] > 96))
    assert not any(longer)


def test_tails_fall_as_a_power_where_counts_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: every tail falls exponentially."""
    edges = np.r_[np.linspace(1, 2, 17)[:-1], 2.0 ** np.arange(1, 20)] * 1024
    cells_of = 40_000 * -np.diff((edges / 1024) ** -1.5)
    held = []
    for shapes in (densities._SHAPES, np.array([1.0])):
        monkeypatch.setattr(densities, "_SHAPES", shapes)
        noise, outer = np.random.default_rng(0), []
        for _ in range(20):
            density = tailed(cells_of + noise.normal(0, 5, len(cells_of)), 5.0, edges=edges.astype(np.int64)).density
            outer.append(density.masses[density.edges[:-1] >= 256 * 1024].sum())
        held.append(float(np.median(outer)))
    truth = 40_000 * 256**-1.5
    assert 0.4 * truth < held[0] < 2 * truth
    assert held[1] < 0.2 * truth


def test_a_long_part_beside_a_dense_one_holds_what_is_near_it() -> None:
    """Years from 0 to 1990 were evenly filled: a twentieth of them lay below 100."""
    law = tailed(np.array([93.0, 120.0, 80.0, 2.0]), 10.0, edges=np.array([0, 1990, 2004, 2019, 4096]))
    inside = law.density.quantiles(np.array([0]), np.array([1990]), np.array([0.05, 0.5]))
    assert inside.min() > 1900
    assert law.density.masses[law.density.edges[1:] == 1990].sum() == pytest.approx(93.0, abs=0.5)  # but for half a row


def test_digits_say_how_much_a_part_holds() -> None:
    """Between frequent values there is nothing: with the mean density there 3.4 % of the prices had other digits."""
    prices = np.floor(np.random.default_rng(0).lognormal(3, 1, 40_000)) + 0.99
    release: Any = dpgen.fit(pd.DataFrame({"x": prices}), "tables", epsilon=8.0, method="independent")
    cents = np.rint(release.sample(40_000, random_state=0)["x"] * 100) % 100
    assert (cents != 99).mean() < 0.025


def test_a_digit_that_all_values_have_is_told_from_few_of_them() -> None:
    prices = np.random.default_rng(0).integers(1, 100, 4000) - 0.01
    rows = dpgen.fit(pd.DataFrame({"x": prices}), "tables", epsilon=1.0, method="independent").sample(4000, random_state=0)
    assert (np.rint(rows["x"] * 100) % 100 == 99).mean() > 0.7  # even digits have .01


def cut(count: float, std: float) -> float:
    """Wrong: what may be noise is cut to nothing."""
    return count if count >= 3 * std else 0.0


def rare_ones(monkeypatch: pytest.MonkeyPatch, rule: Any, count: float, std: float) -> float:
    """Mean count of ones among zeros that a rule leaves, over fits to noisy counts."""
    monkeypatch.setattr(densities, "surviving", rule)
    noise, edges, found = np.random.default_rng(0), np.array([-8, 0, 1, 2, 4, 64]), list[float]()
    for _ in range(3000):
        law = tailed(np.array([0.0, 6000.0, count, 0.0, 0.0]) + noise.normal(0, std, 5), std, edges=edges)
        found.append(float(law.density.masses[law.density.edges[:-1] == 1].sum()))
    return float(np.mean(found))


def test_rare_ones_survive_on_average(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rare_ones(monkeypatch, domains.surviving, 30.0, 25.0) == pytest.approx(30.0, rel=0.2)
    assert rare_ones(monkeypatch, cut, 30.0, 25.0) < 15.0


def test_rare_gaps_survive_on_average_and_are_seldom_invented() -> None:
    noise = np.random.default_rng(0).normal(0, 10, 20_000).tolist()
    for true in (20.0, 25.0, 30.0, 40.0):
        found = [domains.surviving(true + x, 10.0, 1.5) for x in noise]
        assert np.mean(found) == pytest.approx(true, rel=0.2)
    assert np.mean([domains.surviving(x, 10.0, 1.5) > 0 for x in noise]) < 0.03
    assert np.mean([cut(20.0 + x, 10.0) for x in noise]) < 10.0


def test_a_part_far_out_that_is_noise_leaves_what_is_near_as_it_was() -> None:
    """Else all beside it was one part as long as the way there: one of 46 fits had t values at 10^59."""
    edges = np.r_[2 ** np.arange(30), 2**40]
    counts = np.zeros(30)
    counts[:6], counts[25] = 500.0, 300.0
    parts = Parts(Steps(Decimal(1), whole=True), edges, np.zeros(30, bool), counts, np.full(30, 2500.0), np.zeros(30, bool))
    cut, _ = domains.recut(parts, domains.seen(parts, 1e-3), 400.0)
    assert {64, 2**25, 2**26} <= {*cut.starts.tolist()}
    assert ((cut.starts > 64) & (cut.starts < 2**11)).any()


def test_the_largest_of_many_equal_counts_are_no_frequent_values() -> None:
    """Before, 64 of thousands of values took the codes, and a tail of .2 of the rows was one part: W1 / std was .02 to .04."""
    x = 1e6 + np.random.default_rng(0).normal(0, 1, 40_000)
    options = {"components": 4, "rounds": 1, "picks": 1}
    rows = dpgen.fit(pd.DataFrame({"x": x}), "tables", epsilon=10.0, **options).sample(40_000, random_state=0)
    assert wasserstein_distance(rows["x"], x) < 0.016
    assert rows["x"].std() == pytest.approx(1.0, abs=0.025)


def test_values_that_are_counted_alone_are_as_frequent_as_counted() -> None:
    """Whole numbers from 1 to 16, each of them frequent, some less so than their neighbours: no smooth law is near them."""
    counts = np.array([333.0, 646, 514, 933, 1175, 433, 10501, 7291, 1382, 1067, 5355, 1723, 576, 413])
    axis, edges = Steps(Decimal(1), whole=True), np.r_[2, np.arange(3, 18), 32]
    held = np.r_[51.0, counts, 0.0]
    alone = np.r_[False, np.ones(len(counts), bool), False]
    parts = Parts(axis, edges, alone, held, np.full(len(held), 700.0), np.zeros(len(held), bool))
    law = law_of(Bought(parts, (0.0, 1.0), None), Asked("x", axis, (None, None), float(held.sum()), 1e-3))
    assert law is not None
    assert law.density.edges[-1] == 17, "each value is counted: there is no tail"
    at = np.searchsorted(law.density.edges, np.arange(3, 17))
    assert np.abs(law.density.masses[at] - counts).max() < 4 * 700**0.5


def test_released_shares_of_rare_classes_are_those_of_the_mixture() -> None:
    rng = np.random.default_rng(0)
    blocks = [rng.dirichlet(np.ones(size), 5).T for size in (4, 3)]
    mixture = Mixture(np.concatenate(blocks).astype(np.float32), rng.dirichlet(np.ones(5)).astype(np.float32), (4, 3))
    found = mixture.with_shares(0, np.array([1, 3]), np.array([0.004, 0.0]))
    assert found.marginal([0])[[1, 3]] == pytest.approx([0.004, 0.0], abs=1e-6)
    assert found.marginal([0, 1]).sum() == pytest.approx(1.0, abs=1e-6)
    assert found.marginal([1]) == pytest.approx(mixture.marginal([1]), abs=1e-6)


def test_rare_zeros_beside_a_range_are_a_value_of_their_own() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": np.where(np.arange(4000) < 120, 0.0, np.exp(rng.normal(3, 1, 4000)))})
    rows = dpgen.fit(frame, "tables", epsilon=8.0).sample(4000, random_state=0)
    assert (rows["x"] == 0).mean() == pytest.approx(0.03, abs=0.01)
    assert (rows["x"] >= 0).all()


def test_a_light_tail_is_inside_of_a_bought_range() -> None:
    """Noise hides the earliest dates, 3 % of all, in each part of 41 days; wide parts beside the range show them."""
    days = (3650 * np.random.default_rng(0).beta(2, 1, 20_000)).astype(int)
    frame = pd.DataFrame({"since": pd.Timestamp("2015-01-01") + pd.to_timedelta(days, unit="D")})
    early = pd.Timestamp("2015-01-01") + pd.Timedelta(days=632)
    rows = dpgen.fit(frame, "tables", epsilon=0.3).sample(2000, random_state=0)
    assert (frame["since"] < early).mean() == pytest.approx(0.03, abs=0.001)
    assert 0.015 < (rows["since"] < early).mean() < 0.06


def test_few_dates_are_seen_in_long_parts() -> None:
    """Noise hides all parts of 41 days, and 64 of them together: before, their std was 2.3 times the real one in each fit."""
    days = (4000 * np.random.default_rng(0).beta(2, 1, 1000)).astype(int)
    frame = pd.DataFrame({"since": pd.Timestamp("2010-01-01") + pd.to_timedelta(days, unit="D")})
    rows = dpgen.fit(frame, "tables", epsilon=1.0).sample(1000, random_state=0)
    assert rows["since"].std() < 1.6 * frame["since"].std()


def test_dates_that_are_thin_everywhere_are_seen() -> None:
    """No part of 41 days holds more than noise; blocks of them do."""
    days = np.random.default_rng(0).integers(0, 1500, 2000)
    frame = pd.DataFrame({"since": pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D")})
    rows = dpgen.fit(frame, "tables", epsilon=0.8).sample(500, random_state=0)["since"]
    assert rows.between("2019-01-01", "2025-06-01").mean() > 0.9
    assert ks_2samp(frame["since"].astype("int64"), rows.astype("datetime64[us]").astype("int64")).statistic < 0.3


def test_dates_beyond_nanoseconds_come_back() -> None:
    """Open ends are often written so."""
    frame = pd.DataFrame({"until": ["0001-01-01", "2020-01-01", "2020-01-01", "9999-12-31"] * 100})
    drawn = dpgen.fit(frame, "tables", epsilon=50.0).sample(400, random_state=0)["until"]
    shares = drawn.value_counts(normalize=True)
    assert shares[["0001-01-01", "2020-01-01", "9999-12-31"]].tolist() == pytest.approx([0.25, 0.5, 0.25], abs=0.1)


def test_frequent_values_are_told_apart_however_wide_the_range_is() -> None:
    frame = pd.DataFrame({"x": [1.5, 2.5, 1e15] * 200})
    rows = dpgen.fit(frame, "tables", epsilon=20.0, method="independent").sample(300)
    shares = rows["x"].value_counts(normalize=True)
    assert shares[[1.5, 2.5, 1e15]].tolist() == pytest.approx([1 / 3] * 3, abs=0.12)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"target": "wardd"}, "did you mean"),
        ({"key": "nobody"}, "key"),
        ({"schema": {"fields": [{"name": "tens", "constraints": {"minimum": 5, "maximum": 7}}]}}, "'tens' breaks"),
        ({"schema": {"fields": [{"name": "tns"}]}}, "did you mean"),
        ({"delta": 0.0}, "delta"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_spent(options: dict[str, Any], match: str) -> None:
    frame = customers(300)[["tens", "post"]].rename(columns={"post": "ward"})
    plan = SumsPlan(epsilon=1.0)
    ledger = plan.open_ledger()
    with pytest.raises(ValueError, match=match):
        dpgen.fit(frame, epsilon=1.0, ledger=None if "delta" in options else ledger, **options)
    assert ledger.charges == 0


def test_forms_are_those_of_the_value_alone() -> None:
    texts = pd.Series([None, "007", "true", "3000", "20", "1.50", "0.123456789", "2020-01-02", "2020-01-02T10:30", "much"])
    needed = ["", "string", "boolean", "integer", "integer", "number", "number", "date", "datetime", "string"]
    assert [CELLS[cell][1] for cell in votes(texts, "any")] == needed
    numbers = pd.Series([3000, "20", "1.50", 0.123456789, None])
    assert [steps_of("number")[place] for place in steps(numbers, "number")] == [1000, 10, Decimal("0.1"), None]
    clock = pd.Series(["2020-01-02", "2020-01-02T10:30", "2020-01-02 10:30:01", pd.Timestamp(0)])
    assert [steps_of("datetime")[place] for place in steps(clock, "datetime")] == [86_400, 900, 1, 86_400]


def test_times_have_the_step_of_their_clock() -> None:
    for format, texts, wanted in (
        ("%H:%M:%S", ["08:15:00", "09:03:00", "10:00:01"], [900, 60, 1]),
        ("%H:%M", ["08:15", "09:03"], [15, 1]),
    ):
        found = steps(pd.Series(texts), "integer", format)
        assert [steps_of("integer", format)[place] for place in found] == wanted


def test_times_keep_their_days_of_the_week_and_their_hours() -> None:
    """Working days from 8 to 18 o'clock."""
    rng = np.random.default_rng(0)
    days = rng.choice(np.flatnonzero(np.is_busday(np.arange("2022-01-01", "2024-01-01", dtype="datetime64[D]"))), 6000)
    when = pd.Timestamp("2022-01-01") + pd.to_timedelta(86_400 * days + rng.integers(8 * 3600, 18 * 3600, 6000), unit="s")
    rows = dpgen.fit(pd.DataFrame({"when": when}), "tables", epsilon=2.0).sample(4000, random_state=0)["when"]
    assert (rows.dt.day_of_week >= 5).mean() < 0.06  # of even days 2/7
    assert (~rows.dt.hour.between(8, 17)).mean() < 0.06  # of even times 14/24


def test_texts_that_a_file_takes_for_gaps_are_values_in_memory() -> None:
    frame = pd.DataFrame({"country": ["", "NA", "DE"] * 300})
    found = dpgen.fit(frame, "tables", epsilon=20.0).sample(300, random_state=0)["country"].value_counts(normalize=True)
    assert found.sort_index().to_dict() == pytest.approx({"": 1 / 3, "DE": 1 / 3, "NA": 1 / 3}, abs=0.15)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_no_number_overflows() -> None:
    assert steps(pd.Series([1e308, -1e308, 2.0**61]), "number").tolist() == [len(steps_of("number")) - 1] * 3
    assert units_of(pd.Series([1e308]), axis_of("number", 0.01), "number", gaps=True).tolist() == [FAR]


@pytest.mark.parametrize("other", ["1.5", "1e5", "-9999999999999999999", "9" * 30, "x", "12"])
def test_the_form_of_a_text_does_not_depend_on_other_texts(other: str) -> None:
    """Pandas makes texts of 19 digits integers where all of them are, of more digits objects, and else floats."""
    texts = ["1234567890123456789", "9999999999999999999", "9" * 25, "999999999999999999", "2.50", "\u00a05", "\x1f7"]
    for text in texts:
        assert votes(pd.Series([text]), "any").tolist() == votes(pd.Series([text, other]), "any").tolist()[:1]


@pytest.mark.parametrize("other", ["5h", "1s"])
def test_the_text_of_a_duration_does_not_depend_on_others(other: str) -> None:
    """Pandas writes durations without their hours where all of them are whole days: one row would rename all others."""
    days = pd.Series(pd.to_timedelta(["1D", "2D", "2D"]))
    beside = pd.concat([days, pd.Series([pd.Timedelta(other)])], ignore_index=True)
    assert texts_of(days).tolist() == texts_of(beside).tolist()[:3] == days.astype(object).map(str).tolist()


BESIDE: dict[str, tuple[list[Any], Any, str]] = {
    "a gap beside whole numbers": ([15, 25, 2**53 + 1], None, "integer"),
    "nanoseconds beside far dates": (["1500-01-01", "9999-12-31"], "2020-01-01T00:00:00.123456789", "datetime"),
    "a fraction beside texts of whole numbers": (["9007199254740993", "12"], "0.5", "number"),
}


@pytest.mark.parametrize("case", BESIDE)
def test_a_value_is_read_as_it_is_without_its_neighbours(case: str) -> None:
    """Else one row would move the counts of all others: pandas chooses a type for all values of a column together."""
    values, other, kind = BESIDE[case]
    alone, beside = pd.Series(values), pd.Series([*values, other], dtype=object)
    axis = axis_of(kind, {"integer": 10, "datetime": 1, "number": None}[kind])
    units = [units_of(x, axis, kind, gaps=True) for x in (alone, beside)]
    assert units[1][: len(values)].tolist() == units[0].tolist()
    assert votes(beside, kind)[: len(values)].tolist() == votes(alone, kind).tolist()
    assert steps(beside, kind)[: len(values)].tolist() == steps(alone, kind).tolist()
    bounds = {"minimum": "1700-01-01", "maximum": "2200-01-01"} if kind == "datetime" else {"minimum": 0, "maximum": 2**54}
    field = {"name": "x", "type": kind, "constraints": bounds, "dpgen:bins": {"equal": 64}, "dpgen:outside": "clamp"}
    schema = Schema.from_descriptor({"fields": [field]})
    codes = [schema.codes(pd.DataFrame({"x": x}))[: len(values)].tolist() for x in (alone, beside)]
    assert codes[0] == codes[1]


def test_a_rare_value_is_released_with_probability_delta_at_most() -> None:
    mechanism = FrequentCounts(np.array([1, 500]), 5.0, 0.05)
    drawn = mechanism.draw(SecureSource(), 4000)
    named = sum(0 in places for places, _ in drawn)
    assert named <= 4000 * 0.05
    assert named / 4000 == pytest.approx(float(np.exp(mechanism.log_probabilities()[0])), abs=0.01)
    assert all(1 in places for places, _ in drawn)


def test_lists_of_names_are_declared_and_charged() -> None:
    table: Any = load_table(path=in_memory(customers(200), "public"), test_fraction=0.0)
    assert thresholds(table.draft) == 5 * 3 + 4
    release = dpgen.fit(customers(300), epsilon=1.0)
    [names] = [m for m in release.statement.mechanisms if m["note"] == "names of frequent values"]
    assert names["count"] <= names["most"]


def odd_columns(rng: np.random.Generator, n: int) -> list[Any]:
    return [
        rng.normal(size=n) * 10.0 ** rng.integers(-8, 12),
        np.where(rng.random(n) < 0.5, np.nan, 1e300),
        rng.integers(-(2**62), 2**62, n),
        pd.to_datetime(rng.integers(-9_000_000_000, 9_000_000_000, n), unit="s"),
        pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 3, n), unit="D"),
        rng.choice(np.array(["a", "b", None, "c{}"], object), n),
        [f"{i}{{x}}9" for i in range(n)],
        [f"K{i:05d}" for i in range(n)],
        rng.integers(0, 2**63, n, dtype=np.uint64),
        rng.choice(["007", "12", "x"], n),
        [None] * n,
    ]


@pytest.mark.parametrize("n", [1, 20, 300])
@pytest.mark.parametrize("value", [range(300), ["x"] * 300], ids=["numbers", "texts"])
def test_domains_of_few_rows_are_bought_with_all_of_the_budget(n: int, value: Any) -> None:
    """Forms of few rows get more, and what is left is enough for all else."""
    table = load_table(path=in_memory(pd.DataFrame({f"c{i}": value[:n] for i in range(6)})), test_fraction=0.0)
    plan = SumsPlan(epsilon=0.2, delta=1e-5)
    assert isinstance(table, RawTable)
    assert release_domains(table, plan=plan, curator=Curator(plan.open_ledger())).descriptor["fields"]


@pytest.mark.parametrize("seed", range(8))
def test_nothing_fails_after_something_was_bought(seed: int, tmp_path: Any) -> None:
    """Whatever the columns hold, and however few they are: what was paid for is released, in the types that came."""
    rng = np.random.default_rng(seed)
    n, epsilon = int(rng.choice([1, 3, 30, 400])), float(rng.choice([0.05, 1.0, 30.0]))
    columns = odd_columns(rng, n)
    chosen = rng.choice(len(columns), int(rng.integers(1, 6)), replace=False)
    frame = pd.DataFrame({f"c{i}": columns[i] for i in chosen})
    rows = dpgen.fit(frame, "tables", epsilon=epsilon, method="independent", dtypes="public").sample(9)
    assert rows.dtypes.equals(frame[rows.columns].dtypes)
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert len(dpgen.fit(str(tmp_path / "a.csv"), epsilon=epsilon, relation="replace_one", method="independent").sample(5)) == 5


def frame_of(discovery: Discovery) -> pd.DataFrame:
    """The private rows, which nothing but their noisy sums may tell of."""
    rows: Any = discovery.table
    return rows.source


class GapsOfTheData(Discovery):
    """Wrong: whether a column has gaps is read off the records."""

    def vote(self, given: Any, share: float) -> Any:
        found, vote = super().vote(given, share)
        self.open.discard(given["name"])
        required = not bool(frame_of(self)[given["name"]].isna().any())
        return found | {"constraints": found["constraints"] | {"required": required}}, vote


class OrderOfAppearance(Discovery):
    """Wrong: categories stay in the order in which the rows show them."""

    def text_of(self, given: Any, vote: Any, share: float) -> Any:
        found = super().text_of(given, vote, share)
        seen = [str(value) for value in frame_of(self)[given["name"]].dropna().unique()]
        listed = sorted(found["constraints"]["enum"], key=lambda name: seen.index(name) if name in seen else len(seen))
        return found | {"constraints": found["constraints"] | {"enum": listed}}


class BinsOfTheData(Discovery):
    """Wrong: the range is that of the records."""

    def described(self, given: Any, axis: Any, known: Any, *others: Any) -> Any:
        exact = axis.units(frame_of(self)[given["name"]].dropna().to_numpy())
        found = super().described(given, axis, known, *others)
        return found | {"constraints": found["constraints"] | {"minimum": axis.label(int(exact.min()))}}


class RoundingOfTheData(Discovery):
    """Wrong: how numbers are rounded is read off the records."""

    def number_of(self, given: Any, vote: Any, *shares: float) -> Any:
        whole = bool((frame_of(self)[given["name"]].dropna() % 10 == 0).all())
        return super().number_of(given | {"dpgen:rounding": 10 if whole else 1}, vote, *shares)


class Exact(Told):
    """The same, but values that more than 20 rows share are named with their counts: a set, in the order of the rows."""

    def frequent(self, note: str, counts: Any, share: float) -> tuple[Any, Any, float, int]:
        place = np.flatnonzero(counts > 20)
        return place, counts[place], 1.0, 20


@pytest.mark.parametrize(("kind", "same"), [(Discovery, True), (OrderOfAppearance, False)])
def test_the_order_of_rows_is_not_released(kind: type[Discovery], same: bool) -> None:
    """Neither categories nor frequent numbers stand in the order of their first row."""
    frame = pd.DataFrame({"c": ["b", "a", "c"] * 50, "n": [70, 10, 30] * 50})
    fields = [{"name": name, "type": of, "dpgen:blank": True} for name, of in (("c", "string"), ("n", "integer"))]
    budget: Any = Exact()
    tables = (Rows(rows) for rows in (frame, frame.iloc[[1, 2, 0] * 50]))
    found = [kind(table, {"fields": fields}, budget, 150.0).run() for table in tables]
    assert (found[0].descriptor == found[1].descriptor) == same
    assert not same or all(np.array_equal(found[0].counts[name], found[1].counts[name]) for name in ("c", "n"))


def bought(kind: type[Discovery]) -> list[Any]:
    """Schemas of two tables whose releases are the same numbers."""
    one = pd.DataFrame({"x": [1.5, 2.5, None, 7.25] * 50, "n": [10, 20, 30, 70] * 50, "c": ["a", "b", "c", None] * 50})
    other = pd.DataFrame({"x": [1e6, -3.0, 2.0, 5.0] * 50, "n": [1, 2, 3, 4] * 50, "c": ["z"] * 200})
    fields = [
        {"name": name, "type": kind, "dpgen:blank": True} for name, kind in (("x", "number"), ("n", "integer"), ("c", "string"))
    ]
    budget: Any = Told()
    return [kind(Rows(frame), {"fields": fields}, budget, 200.0).run().descriptor for frame in (one, other)]


def test_what_is_bought_is_a_function_of_what_was_released() -> None:
    one, other = bought(Discovery)
    assert one == other


@pytest.mark.parametrize("wrong", [GapsOfTheData, BinsOfTheData, RoundingOfTheData])
def test_what_is_read_off_the_records_is_found(wrong: type[Discovery]) -> None:
    one, other = bought(wrong)
    assert one != other


def test_noise_alone_makes_no_range_wider() -> None:
    """With the cell of the greatest noise in place of that of the frequent values, one of twenty such columns went to 10^17."""
    bits = np.random.default_rng(0).random((1000, 40)) < 0.3
    frame = pd.DataFrame(bits, columns=[f"c{i}" for i in range(40)]).astype(int)
    table, plan = load_table(path=in_memory(frame, "public"), test_fraction=0.0), SumsPlan(epsilon=0.2, delta=1e-5)
    ranges = list[tuple[int, int]]()
    for _ in range(6):
        fields = release_domains(table, plan=plan, curator=Curator(plan.open_ledger())).descriptor["fields"]
        ranges += [(field["constraints"]["minimum"], field["constraints"]["maximum"]) for field in fields]
    assert sum(high > 1 or low < 0 for low, high in ranges) < 8, "of 240: one of 2,000 is expected"


def test_numbers_that_are_identifiers_are_left_out() -> None:
    """They came back as floats of 17 digits. Times in nanoseconds and amounts are none."""
    rng, n = np.random.default_rng(0), 3000
    frame = pd.DataFrame(
        {
            "id": rng.integers(10**18, 9 * 10**18, n),
            "ns": 1_600_000_000_000_000_000 + rng.integers(0, 10**16, n),
            "amount": rng.lognormal(38, 1.5, n),
        }
    )
    release: Any = dpgen.fit(frame, "tables", epsilon=8.0, method="independent")
    assert set(release.sample(3, random_state=0)) == {"ns", "amount"}
    assert [one["columns"] for one in release.statement.warnings if one["code"] == Fact.LEFT_OUT.name] == [("id",)]


def test_a_narrow_law_across_the_edge_of_wide_parts_is_told_from_them() -> None:
    """With many frequent values inside, what lies beyond the edge was spread over a thousand times its range."""
    x = np.random.default_rng(0).normal(1e6, 1, 40_000)
    release: Any = dpgen.fit(pd.DataFrame({"x": x}), "tables", epsilon=10.0, method="independent")
    assert 0.8 < release.sample(40_000, random_state=0)["x"].std() < 1.25
