"""Releases: statements that round-trip, files that are verified and never unpickled, samples in three formats."""

import copy
import hashlib
import io
import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from refusals import refused
from smoke import DATA

import dpgen
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.privacy.mechanisms import Secrets, pure_event
from dpgen.release import Draws, PrivateSampler, round_bits
from dpgen.samples import ColumnSamples, PointSamples, RecordSamples
from dpgen.systems.registry import load


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    tiny.mixture().save(tmp_path / "model")
    return tmp_path / "model"


def reseal(directory: Path, payload: bytes | None = None, **changes: Any) -> None:
    """What an attacker who recomputes the checksum can write."""
    card = json.loads((directory / "model.json").read_text()) | changes
    del card["sha256"]
    payload = payload if payload is not None else (directory / "model.safetensors").read_bytes()
    (directory / "model.safetensors").write_bytes(payload)
    card["sha256"] = hashlib.sha256(json.dumps(card, sort_keys=True).encode() + payload).hexdigest()
    (directory / "model.json").write_text(json.dumps(card))


def test_a_loaded_model_carries_its_statement(saved: Path) -> None:
    assert sorted(p.name for p in saved.iterdir()) == ["model.json", "model.safetensors"]
    assert load(saved).statement == tiny.statement()
    assert load(saved).sha256 == tiny.mixture().sha256 == json.loads((saved / "model.json").read_text())["sha256"]


def test_a_fit_without_noise_is_not_written(tmp_path: Path) -> None:
    """As benchmarks make them."""
    model = tiny.mixture()
    model.statement = replace(model.statement, epsilon=float("inf"))
    with refused("epsilon of the statement is inf"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_nothing_is_unpickled(saved: Path, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "executed",)

    for payload in (pickle.dumps(Bomb()), b"", b"\xff" * 64):
        reseal(saved, payload)
        with refused("damaged"):
            load(saved)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"description": {}},
        {"description": {"component": "gan", "architecture": {}}},
        {"description": {"component": "vae", "architecture": {"k": 2, "d": 3}, "image_shape": None}},
        {"statement": {"epsilon": 1.0}},
        {"statement": []},
    ],
    ids=str,
)
def test_a_sealed_card_that_makes_no_sense_is_refused(saved: Path, changes: dict[str, Any]) -> None:
    reseal(saved, **changes)
    with refused("damaged"):
        load(saved)


def test_rounding() -> None:
    mean, generator = torch.full((4000, 2), 0.3), torch.Generator().manual_seed(0)
    drawn = round_bits(mean, "bernoulli", generator)
    assert drawn.dtype == torch.uint8
    assert abs(float(drawn.float().mean()) - 0.3) < 0.03
    assert not bool(round_bits(mean, "threshold", generator).any())
    assert bool(round_bits(1 - mean, "threshold", generator).all())


class Coin(PrivateSampler):
    """Holds a private probability."""

    def __init__(self, share: float, ledger: Ledger) -> None:
        super().__init__(epsilon=0.5, curator=Curator(ledger), note="coin")
        self._share = share

    def draw(self, secrets: Secrets, count: int) -> torch.Tensor:
        return (secrets.uniform(count) < self._share).to(torch.int64)


def local_ledger(draws: int) -> Ledger:
    return Ledger(Budget(0.5 * draws, 0.0), relation="replace_one", unit="one user's whole distribution")


def test_every_draw_is_charged_before_it_is_made() -> None:
    book = local_ledger(3)
    coin = Coin(0.3, book)
    assert coin.sample().shape == (1,)
    assert book.epsilon() == 0.5
    assert coin.sample(2).shape == (2,)
    assert book.epsilon() == 1.5
    with pytest.raises(BudgetExceeded, match="coin"):
        coin.sample()
    assert book.epsilon() == 1.5
    assert [(e.event, e.count) for e in book.entries()] == [(pure_event(0.5), 3)]
    assert repr(coin) == "Coin(epsilon=0.5 a draw, 3 charged)"


@pytest.mark.parametrize("k", [0, -1, 1.5, True])
def test_the_number_of_draws_is_checked_before_anything_is_charged(k: Any) -> None:
    book = local_ledger(3)
    with refused("k is"):
        Coin(0.3, book).sample(k)
    assert book.epsilon() == 0


@pytest.mark.parametrize(
    "leak",
    [pickle.dumps, copy.copy, copy.deepcopy, lambda s: torch.save(s, io.BytesIO())],
    ids=["pickle", "copy", "deepcopy", "torch.save"],
)
def test_a_private_sampler_does_not_leave(leak: Any) -> None:
    with refused("Coin", error=TypeError):
        leak(Coin(0.3, local_ledger(1)))
    assert not {"state_dict", "save", "tensors"} & {*dir(PrivateSampler)}
    assert not [name for name in dir(PrivateSampler) if "density" in name or "prob" in name]


def test_draws_release_the_table_and_nothing_of_their_origin() -> None:
    draws = Draws(pd.DataFrame({"site": ["a", "b"]}), statement=tiny.statement(), origin={"secret": 1})
    assert draws.files() == {"draws.csv": b"site\na\nb\n"}
    assert repr(draws) == "Draws(2 rows, columns ['site'])"
    assert "What to_pandas() returns, and the statement, may be shared." in str(draws)
    with refused("Draws", error=TypeError):
        pickle.dumps(draws)


@pytest.mark.parametrize(
    ("data", "options"), [("records", {}), ("records", {"subclusters": 2}), ("images", {"frequencies": 8})], ids=str
)
def test_models_of_earlier_versions_are_read_without_their_noise_multiplier(data: str, options: dict[str, Any]) -> None:
    model: Any = dpgen.fit(DATA[data](), "gaussian", epsilon=2.0, **options)
    again = type(model).rebuild(model.description() | {"noise_multiplier": 2.0}, model.tensors(), model.statement)
    assert torch.equal(again.samples(20, random_state=0).x, model.samples(20, random_state=0).x)
    assert "noise_multiplier" not in again.description()


def samples(**options: Any) -> RecordSamples:
    x = torch.tensor([[0, 1, 1], [1, 0, 0]], dtype=torch.uint8)
    return RecordSamples(**{"x": x, "cluster": torch.tensor([2, 0]), "labels": torch.tensor([7, 8])} | options)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("columns", [None, ("a", "b", "c")])
def test_tables(tmp_path: Path, ending: str, columns: tuple[str, ...] | None) -> None:
    path = tmp_path / f"s.{ending}"
    samples(columns=columns).save(path)
    table = pd.read_csv(path) if ending == "csv" else pd.read_parquet(path)
    assert list(table.columns) == [*(columns or ("x0", "x1", "x2")), "cluster", "label"]
    assert table.to_numpy().tolist() == [[0, 1, 1, 2, 7], [1, 0, 0, 0, 8]]


def test_a_data_column_called_label_keeps_its_name(tmp_path: Path) -> None:
    bits = torch.eye(2, dtype=torch.uint8)
    samples = RecordSamples(x=bits, cluster=torch.zeros(2).long(), labels=torch.tensor([1, 0]), columns=("label", "b"))
    samples.save(tmp_path / "s.csv")
    assert (tmp_path / "s.csv").read_text().splitlines()[0] == "label,b,cluster,label_"


def test_tables_have_no_column_of_the_only_cluster() -> None:
    assert list(samples(k=3).to_pandas().columns) == ["x0", "x1", "x2", "cluster", "label"]
    assert list(samples(k=1).to_pandas().columns) == ["x0", "x1", "x2", "label"]


def test_the_archive_keeps_bits_and_grey_values(tmp_path: Path) -> None:
    grey = torch.tensor([[0, 200], [130, 5]], dtype=torch.uint8)
    bits, labels = (grey > 127).to(torch.uint8), torch.ones(2).long()
    samples = RecordSamples(x=bits, cluster=torch.zeros(2).long(), grey=grey, labels=labels)
    samples.save(tmp_path / "s.npz")
    samples.save(tmp_path / "s.csv")
    with np.load(tmp_path / "s.npz") as stored:
        assert stored["grey"].tolist() == grey.tolist()
        assert stored["x"].tolist() == [[0, 1], [1, 0]]
        assert stored["labels"].tolist() == [1, 1]


def test_points_keep_every_digit(tmp_path: Path) -> None:
    points = PointSamples(x=torch.tensor([[0.1, 1 / 3], [1e-9, 2.0]], dtype=torch.float64), columns=("a", "b"))
    for ending in ("csv", "parquet"):
        points.save(tmp_path / f"p.{ending}")
    points.save(tmp_path / "p.npz")
    assert pd.read_csv(tmp_path / "p.csv").to_numpy().tolist() == points.x.tolist()
    assert pd.read_parquet(tmp_path / "p.parquet").equals(points.to_pandas())
    with np.load(tmp_path / "p.npz") as stored:
        assert stored["x"].tolist() == points.x.tolist()


def test_columns_become_arrays_of_their_own_types(tmp_path: Path) -> None:
    values = pd.DataFrame({"day": [1, 2], "price": [0.5, 0.25], "name": ["é", "b"]})
    samples = ColumnSamples(values=values)
    samples.save(tmp_path / "c.npz")
    with np.load(tmp_path / "c.npz", allow_pickle=False) as stored:
        assert {name: stored[name].tolist() for name in stored} == values.to_dict("list")
    assert len(samples) == len(samples.to_pandas()) == 2
