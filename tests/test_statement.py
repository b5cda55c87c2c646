"""Statements say what the ledger says, for programs and for people, and round-trip."""

import json
from dataclasses import replace

import pytest
import tiny

from dpgen.privacy.events import approximate_event, pure_event
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.mechanisms import gaussian_event, subsampled_gaussian_event
from dpgen.statement import PrivacyStatement, rounded_up


def ledger() -> Ledger:
    book = Ledger(Budget(3.0, 1e-5), unit="one customer")
    book.charge(gaussian_event(5.0), note="cluster sizes")
    book.charge(subsampled_gaussian_event(0.1, 2.0), 40, note="training steps", group="cluster 1")
    return book


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
    facts = ["(epsilon = 1.25, delta = 1e-05)", "add-remove relation", "one record", "replace-one | 2.5", "| 3 |"]
    for fact in ("`Gaussian(2.0)`", *facts, *made.assumptions, *made.not_covered):
        assert fact in text


def test_facts_about_data_and_logs_are_added_to_what_is_not_covered() -> None:
    made = tiny.statement()
    assert made.extended(["items"], private_logs=False).not_covered == ("the test records", "items")
    assert "private_logs" in made.extended([], private_logs=True).not_covered[-1]
    stated = {"epsilon": 1.25, "delta": 1e-5, "relation": "add_remove", "unit": "one record"}
    assert made.headline() == stated | {"replace_one": 2.5}


def test_statements_are_values() -> None:
    assert tiny.statement() == tiny.statement()
    assert replace(tiny.statement(), epsilon=2.0) != tiny.statement()


def test_a_pure_local_ledger_has_a_statement() -> None:
    book = Ledger(Budget(2.0, 0.0), relation="replace_one", unit="one user's whole distribution")
    book.charge(pure_event(1.0), 2, note="draws")
    made = PrivacyStatement.from_ledger(book)
    assert (made.epsilon, made.delta, made.relation) == (2.0, 0.0, "replace_one")
    assert made.also == {}
    assert "(epsilon = 2, delta = 0)" in made.to_markdown()


def test_a_reading_that_nothing_proves_is_left_out() -> None:
    book = Ledger(Budget(3.0, 1e-6))
    book.charge(approximate_event(1.0, 9e-7), note="choosing")
    assert set(PrivacyStatement.from_ledger(book).also) == {"rdp"}
    pure = Ledger(Budget(3.0, 0.0))
    pure.charge(pure_event(1.0), note="counts")
    assert PrivacyStatement.from_ledger(pure).also == {"replace_one": 2.0}


def test_epsilon_is_never_rounded_down() -> None:
    assert rounded_up(1.00001) == "1.001"


def test_a_guarantee_that_says_nothing_about_replacing_is_no_error() -> None:
    book = Ledger(Budget(30.0, 1e-3))
    book.charge(approximate_event(9.5, 1e-4), note="choosing")
    assert "replace_one" not in PrivacyStatement.from_ledger(book).also
