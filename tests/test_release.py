"""Releases: statements that round-trip, files that are verified and never unpickled, samples in three formats."""

import hashlib
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

from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.mechanisms import gaussian_event, subsampled_gaussian_event
from dpgen.release import PrivacyStatement, PublicModel, Samples, load_model, round_bits


def ledger() -> Ledger:
    book = Ledger(Budget(3.0, 1e-5), unit="one customer")
    book.charge(gaussian_event(5.0), note="cluster sizes")
    book.charge(subsampled_gaussian_event(0.1, 2.0), 40, note="training steps", group="cluster 1")
    return book


# -- statement -------------------------------------------------------------------------------------------------------


def test_the_statement_says_what_the_ledger_says() -> None:
    book = ledger()
    made = PrivacyStatement.from_ledger(book, also={"as published": 0.5}, assumptions=["a"], not_covered=["b"])
    assert (made.epsilon, made.delta) == (book.epsilon(), 1e-5)
    assert (made.relation, made.unit) == ("add_remove", "one customer")
    assert made.also["replace_one"] == book.epsilon(relation="replace_one") > made.epsilon
    assert made.also["as published"] == 0.5
    assert [(m["note"], m["count"], m["group"]) for m in made.mechanisms] == [
        ("cluster sizes", 1, None),
        ("training steps", 40, "cluster 1"),
    ]
    assert (made.assumptions, made.not_covered) == (("a",), ("b",))


@pytest.mark.parametrize("made", [tiny.statement(), PrivacyStatement.from_ledger(ledger())], ids=["by hand", "ledger"])
def test_json_round_trip(made: PrivacyStatement) -> None:
    assert PrivacyStatement.from_dict(json.loads(made.to_json())) == made


def test_markdown_has_every_fact() -> None:
    made = tiny.statement()
    text = made.to_markdown()
    facts = ["(eps = 1.25, delta = 1e-05)", "add-remove relation", "one record", "replace-one | 2.5", "| 3 |"]
    for fact in ("`Gaussian(2.0)`", *facts, *made.assumptions, *made.not_covered):
        assert fact in text


def test_facts_about_data_and_logs_are_added_to_what_is_not_covered() -> None:
    made = tiny.statement()
    assert made.extended(["items"], private_logs=False).not_covered == ("the test records", "items")
    assert "private_logs" in made.extended([], private_logs=True).not_covered[-1]
    stated = {"epsilon": 1.25, "delta": 1e-5, "relation": "add_remove", "unit": "one record"}
    assert made.headline() == stated | {"replace_one": 2.5}


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    tiny.mixture().save(tmp_path / "model")
    return tmp_path / "model"


def edit(directory: Path, **changes: Any) -> None:
    card = json.loads((directory / "model.json").read_text())
    (directory / "model.json").write_text(json.dumps(card | changes))


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
    assert load_model(saved).statement == tiny.statement()


@pytest.mark.parametrize("position", [0, 100, -1])
def test_edited_tensors_are_refused(saved: Path, position: int) -> None:
    content = bytearray((saved / "model.safetensors").read_bytes())
    content[position] ^= 1
    (saved / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="does not match the checksum"):
        load_model(saved)


def test_cut_tensors_are_refused(saved: Path) -> None:
    path = saved / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match="does not match the checksum"):
        load_model(saved)
    path.unlink()
    with pytest.raises(ValueError, match="holds a damaged model"):
        load_model(saved)


def test_a_statement_made_prettier_is_refused(saved: Path) -> None:
    statement = json.loads((saved / "model.json").read_text())["statement"]
    edit(saved, statement=statement | {"epsilon": 0.1})
    with pytest.raises(ValueError, match="the model or its statement was cut or edited"):
        load_model(saved)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"kind": "mixture"}', "\udcff"])
def test_a_damaged_card_is_refused(saved: Path, text: str) -> None:
    (saved / "model.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match="holds a damaged model"):
        load_model(saved)


def test_unknown_kinds_and_formats_list_what_can_be_read(saved: Path) -> None:
    edit(saved, kind="gan")
    with pytest.raises(ValueError, match=r"format 1 and kind 'gan'; this version reads format 1 and the kinds .*'mixture'"):
        load_model(saved)
    edit(saved, kind=["mixture"], format=2)
    with pytest.raises(ValueError, match="has format 2 and kind"):
        load_model(saved)


def test_no_model_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no released model \(model.json is missing\)"):
        load_model(tmp_path)


def test_nothing_is_unpickled(saved: Path, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "executed",)

    for payload in (pickle.dumps(Bomb()), b"", b"\xff" * 64):
        reseal(saved, payload)
        with pytest.raises(ValueError, match="holds a damaged model"):
            load_model(saved)
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
    with pytest.raises(ValueError, match="holds a damaged model"):
        load_model(saved)


def test_every_kind_is_registered_by_name() -> None:
    assert PublicModel._kinds["mixture"].kind == "mixture"


# -- samples ---------------------------------------------------------------------------------------------------------


def samples(**options: Any) -> Samples:
    x = torch.tensor([[0, 1, 1], [1, 0, 0]], dtype=torch.uint8)
    return Samples(**{"x": x, "cluster": torch.tensor([2, 0]), "labels": torch.tensor([7, 8])} | options)


def test_npz(tmp_path: Path) -> None:
    samples().save(tmp_path / "s.npz")
    with np.load(tmp_path / "s.npz", allow_pickle=False) as arrays:
        assert arrays["x"].tolist() == [[0, 1, 1], [1, 0, 0]]
        assert arrays["cluster"].tolist() == [2, 0]
        assert arrays["labels"].tolist() == [7, 8]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("columns", [None, ("a", "b", "c")])
def test_tables(tmp_path: Path, ending: str, columns: tuple[str, ...] | None) -> None:
    path = tmp_path / f"s.{ending}"
    samples(columns=columns).save(path)
    table = pd.read_csv(path) if ending == "csv" else pd.read_parquet(path)
    assert list(table.columns) == [*(columns or ("x0", "x1", "x2")), "cluster", "label"]
    assert table.to_numpy().tolist() == [[0, 1, 1, 2, 7], [1, 0, 0, 0, 8]]


def test_without_labels_there_is_no_label_column(tmp_path: Path) -> None:
    samples(labels=None).save(tmp_path / "s.csv")
    assert list(pd.read_csv(tmp_path / "s.csv").columns) == ["x0", "x1", "x2", "cluster"]
    samples(labels=None).save(tmp_path / "s.npz")
    with np.load(tmp_path / "s.npz") as arrays:
        assert sorted(arrays) == ["cluster", "x"]


def test_other_endings_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path must end in one of \.npz, \.csv, \.parquet, got 's\.txt'"):
        samples().save(tmp_path / "s.txt")
    assert list(tmp_path.iterdir()) == []


def test_by_cluster_leaves_out_empty_ones() -> None:
    groups = samples().by_cluster()
    assert {name: x.tolist() for name, x in groups.items()} == {"cluster 0": [[1, 0, 0]], "cluster 2": [[0, 1, 1]]}


def test_rounding() -> None:
    mean, generator = torch.full((4000, 2), 0.3), torch.Generator().manual_seed(0)
    drawn = round_bits(mean, "bernoulli", generator)
    assert drawn.dtype == torch.uint8
    assert abs(float(drawn.float().mean()) - 0.3) < 0.03
    assert not bool(round_bits(mean, "threshold", generator).any())
    assert bool(round_bits(1 - mean, "threshold", generator).all())


def test_statements_are_values() -> None:
    assert tiny.statement() == tiny.statement()
    assert replace(tiny.statement(), epsilon=2.0) != tiny.statement()


def test_a_data_column_called_label_keeps_its_name(tmp_path: Path) -> None:
    bits = torch.eye(2, dtype=torch.uint8)
    samples = Samples(x=bits, cluster=torch.zeros(2).long(), labels=torch.tensor([1, 0]), columns=("label", "b"))
    samples.save(tmp_path / "s.csv")
    assert (tmp_path / "s.csv").read_text().splitlines()[0] == "label,b,cluster,label_"
