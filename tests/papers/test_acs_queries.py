"""Figure 5: every method within its budget, data found where they are, and a verdict that counts right."""

import math
from pathlib import Path

import pandas as pd
import pytest
import torch

from dpgen import quiet_training
from dpgen.data.records import split_records
from dpgen.data.split import Split
from papers import acs2017 as acs_queries
from papers.acs2017 import CONJUNCTIONS, EXACT, FITS, GAUSSIAN, HELD_OUT, LENGTHS, OURS, QUICK, RIVALS
from papers.common import quiet_runtime

pytestmark = pytest.mark.usefixtures("quiet")


def tiny_sets(n: int = 400, d: int = 300):
    """Sets of very different sizes, the first items the most frequent."""
    generator = torch.Generator().manual_seed(0)
    activity = torch.rand(n, 1, generator=generator) ** 3
    p = (activity * torch.linspace(1.2, 0.01, d)).clamp_max(1.0)
    return split_records("tiny sets", torch.bernoulli(p, generator=generator).to(torch.uint8), split=Split.public(0))


@pytest.mark.parametrize("method", list(FITS))
def test_every_method_stays_within_its_budget(method: str, tmp_path: Path) -> None:
    records = tiny_sets()
    with quiet_training():
        model = FITS[method](records, 2.0, QUICK, quiet_runtime(tmp_path, 0))
    assert 1.0 < model.statement.epsilon <= 2.0
    assert model.statement.delta == acs_queries.DELTA
    assert model.samples(5, random_state=0).x.shape == (5, records.d)


def test_networks_begin_at_the_means_that_were_paid_for(tmp_path: Path) -> None:
    records = tiny_sets(n=4000)
    with quiet_training():
        model = FITS[acs_queries.VAE](records, 20.0, QUICK, quiet_runtime(tmp_path, 0))
    sizes = [float(x.sum(1, dtype=torch.int64).float().mean()) for x in (records.x, model.samples(2000, random_state=0).x)]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.25), "a network at p = 1/2 would draw sets of 150 items"


def test_compare_asks_everybody_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acs_queries, "FITS", {GAUSSIAN: FITS[GAUSSIAN]})
    records = tiny_sets()
    table = acs_queries.compare(records, (1.0, 2.0), QUICK, seed=0)
    assert set(zip(table["method"], table["epsilon"])) == {
        (GAUSSIAN, 1.0),
        (GAUSSIAN, 2.0),
        (EXACT, math.inf),
        (HELD_OUT, math.inf),
    }
    assert set(table["query"]) == {*LENGTHS, *CONJUNCTIONS}
    assert acs_queries.job_count((1.0, 2.0)) == 4
    exact = table[(table["method"] == EXACT) & (table["query"] == "all_1")]["error"].item()
    assert 0 < exact < 0.5


def made_table(gaussian: float, rival: float) -> pd.DataFrame:
    errors = {**dict.fromkeys(OURS, gaussian), **dict.fromkeys(RIVALS, rival), EXACT: 0.1, HELD_OUT: 0.05}
    rows = [
        {"data": "made", "method": method, "epsilon": epsilon, "query": kind, "error": error}
        for method, error in errors.items()
        for epsilon in ((math.inf,) if method in (EXACT, HELD_OUT) else (0.5, 1.0))
        for kind in (*LENGTHS, "all_1")
    ]
    return pd.DataFrame(rows)


def test_wins_are_counted_against_the_best_rival() -> None:
    table = made_table(0.2, 0.3)
    assert acs_queries.wins(table, GAUSSIAN, LENGTHS) == (10, [])
    better = (table["method"] == RIVALS[1]) & (table["query"] == "any_40%") & (table["epsilon"] == 1.0)
    table.loc[better, "error"] = 0.1
    cells, lost = acs_queries.wins(table, GAUSSIAN, LENGTHS)
    assert (cells, lost) == (10, [f"any_40% at eps 1 (0.2 against 0.1 of {RIVALS[1]})"])
    assert acs_queries.wins(made_table(0.3, 0.3), GAUSSIAN, LENGTHS)[1], "a tie is no win"
    text = acs_queries.verdict(table)
    assert (
        "made: DPGM (gaussian) beats MWEM and DP marginals in 9 of 10 cells of the five length classes; not in any_40%" in text
    )


def test_the_figure_is_written(tmp_path: Path) -> None:
    assert acs_queries.queries_figure(made_table(0.2, 0.3), tmp_path / "a.png").stat().st_size > 0


def test_files_are_found_and_the_simulator_is_always_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acs_queries, "ITEMS", 3)
    (tmp_path / "retail").mkdir()
    (tmp_path / "retail" / "retail.dat.gz").write_text("1 2 3\n1 2\n4\n1 3\n")
    assert [records.name for records in acs_queries.set_data(tmp_path, seed=0, n_users=50)] == ["retail", "call detail"]
    assert [records.name for records in acs_queries.set_data(None, seed=0, n_users=50)] == ["call detail"]
