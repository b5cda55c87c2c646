"""Statements say what the ledger says, for programs and for people, and round-trip."""

import json
import re
from dataclasses import replace
from hashlib import sha256
from string import Formatter
from typing import Any

import pytest
import tiny
from refusals import refused

from dpgen.facts import Fact, Section
from dpgen.privacy.ledger import Budget, Ledger, Planned
from dpgen.privacy.mechanisms import approximate_event, gaussian_event, pure_event, subsampled_gaussian_event
from dpgen.statement import PrivacyStatement, collected, guessed, right_of_100


def ledger() -> Ledger:
    book = Ledger(Budget(3.0, 1e-5), unit="one customer")
    steps = subsampled_gaussian_event(0.1, 2.0)
    book.declare([Planned(gaussian_event(5.0), "cluster sizes"), Planned(steps, "training steps", 50)])
    book.charge(gaussian_event(5.0), note="cluster sizes")
    book.charge(steps, 40, note="training steps")
    return book


def names(fact: Fact) -> set[str]:
    """Values that a fact has."""
    return {name for _, name, _, _ in Formatter().parse(fact.sentence) if name}


def test_the_statement_says_what_the_ledger_says() -> None:
    book = ledger()
    made = PrivacyStatement.from_ledger(book, also={"as published": 0.5}, facts=[Fact.CHOSEN_BLIND, Fact.UNTRAINED])
    assert (made.epsilon, made.delta) == (book.epsilon(), 1e-5)
    assert (made.relation, made.unit) == ("add_remove", "one customer")
    assert made.also["replace_one"] == book.epsilon(relation="replace_one") > made.epsilon
    assert made.also["as published"] == 0.5
    assert [(m["note"], m["count"], m["most"]) for m in made.mechanisms] == [
        ("cluster sizes", 1, 1),
        ("training steps", 40, 50),
    ]
    assert made.epsilon > book.spent(), "stopping early may depend on what was released: the whole plan counts"
    assert [one.fact for one in made.facts] == [Fact.CHOSEN_BLIND, Fact.UNTRAINED, Fact.SATISFIED]


@pytest.mark.parametrize("made", [tiny.statement(), PrivacyStatement.from_ledger(ledger())], ids=["by hand", "ledger"])
def test_json_round_trip(made: PrivacyStatement) -> None:
    assert PrivacyStatement.from_dict(json.loads(made.to_json())) == made


def test_markdown_has_every_fact() -> None:
    made = replace(tiny.statement().of_records(50, 3.0), title="Stays | 2024", signer="SHA256:key")
    made, written = made.sealed({"model/model.json": b"{}"})
    text = made.to_markdown()
    facts = ["(epsilon, delta) = (1.25, 1e-05)", "add-remove relation", "one record", "epsilon 2.5 if the unit", "| 3 |"]
    facts += [r"Stays \| 2024", "about 50 (", f"`{sha256(b'{}').hexdigest()}`", "SHA256:key", made.odds()]
    for fact in ("`Gaussian(2.0)`", *facts, *made.assumptions, *made.not_covered):
        assert fact in text
    assert text.encode() == written["PRIVACY.md"]
    assert made.files["PRIVACY.md"] == sha256(written["PRIVACY.md"]).hexdigest()
    assert PrivacyStatement.from_dict(json.loads(written["privacy.json"])) == made


def test_eight_questions_have_answers_and_every_fact_of_their_sections() -> None:
    said = {fact: fact(**dict.fromkeys(names(fact), 1)) for fact in Fact}
    made = tiny.statement().extended(said.values())
    questions = dict(made.questions())
    assert len(questions) == 8
    assert all(questions.values())
    answers = {text for texts in questions.values() for text in texts}
    apart = {Section.WARNINGS, Section.MADE}
    assert {one.sentence for one in said.values() if one.fact.section not in apart} <= answers
    assert all(one.sentence in made.to_markdown() for one in said.values())


def test_warnings_are_facts_by_their_names() -> None:
    made = replace(tiny.statement(), delta=0.1).extended([Fact.LEFT_OUT(columns=tuple(f"c{i}" for i in range(9)))])
    left, large = made.of_records(50).warnings
    assert (left["code"], left["columns"][-1], left["text"].count("c8")) == ("LEFT_OUT", "c8", 1)
    assert (large["code"], large["n"]) == ("LARGE_DELTA", 50)
    assert "and 1 more" in made.told[0]
    assert made.of_records(9).warnings == made.warnings, "a delta below 1/n"
    assert [one["code"] for one in replace(made, epsilon=4.0).of_records(None).warnings] == ["LEFT_OUT", "LARGE_EPSILON"]


def test_a_notebook_and_a_terminal_show_a_short_text() -> None:
    made = PrivacyStatement.from_ledger(ledger(), facts=[Fact.CHOSEN_BLIND])
    shown = made._repr_markdown_()
    assert str(made).splitlines() == [made.in_words(), made.odds()]
    assert all(text in shown for text in (*str(made).splitlines(), *(m["note"] for m in made.mechanisms)))
    assert Fact.CHOSEN_BLIND.sentence not in shown


def test_parts_of_one_gaussian_are_one_line_for_people_and_stay_apart_for_programs() -> None:
    book = Ledger(Budget(3.0, 1e-5))
    whole = Planned(gaussian_event(2.0), "all of a fit", divisible=True)
    book.declare([whole])
    for multiplier, note in ((8.0, "choice"), (4.0, "marginal"), (9.0, "choice"), (5.0, "marginal"), (5.0, "marginal")):
        book.charge(gaussian_event(multiplier), note=note, of=whole.note)
    made = PrivacyStatement.from_ledger(book)
    assert len(made.mechanisms) == 5
    rows = [line for line in made.to_markdown().splitlines() if line.startswith("| ")][-3:]
    assert rows[0] == "| all of a fit | `GaussianDpEvent(noise_multiplier=2.0)` | 0 | 1 |"
    for row, note, parts, count in zip(rows[1:], ("choice", "marginal"), ((8, 9), (4, 5, 5)), (2, 3)):
        together = sum(s**-2 for s in parts) ** -0.5
        found = re.fullmatch(rf"\| {note} \| `together GaussianDpEvent\(noise_multiplier=(.+)\)` \| {count} \| {count} \|", row)
        assert found
        assert float(found[1]) == pytest.approx(together, rel=1e-12)


def test_equal_notes_of_other_mechanisms_are_not_added_up() -> None:
    line = {"note": "steps", "event": "GaussianDpEvent(noise_multiplier=2.0)", "count": 1, "most": 1}
    assert collected([line, line]) == [line, line]
    pure = [line | {"of": "all", "event": "LaplaceDpEvent(noise_multiplier=2.0)"}] * 2
    assert collected(pure) == pure


def test_facts_are_added_once_to_their_section() -> None:
    made = tiny.statement()
    assert made.extended([Fact.PUBLIC_NAMES, Fact.ABSENT_USERS]).not_covered == ("the test records", Fact.ABSENT_USERS.sentence)
    assert made.extended([Fact.UNTRAINED, Fact.UNTRAINED]).facts == (*made.facts, Fact.UNTRAINED())


def test_a_pure_local_ledger_has_a_statement() -> None:
    book = Ledger(Budget(2.0, 0.0), relation="replace_one", unit="one user's whole distribution")
    book.charge(pure_event(1.0), 2, note="draws")
    made = PrivacyStatement.from_ledger(book)
    assert (made.epsilon, made.delta, made.relation) == (2.0, 0.0, "replace_one")
    assert made.also == {}
    assert "(epsilon, delta) = (2, 0)" in made.to_markdown()


def test_a_reading_that_nothing_proves_is_left_out() -> None:
    book = Ledger(Budget(3.0, 1e-6))
    book.declare([Planned(approximate_event(1.0, 9e-7), "choosing")])
    assert PrivacyStatement.from_ledger(book).also == {}
    pure = Ledger(Budget(3.0, 0.0))
    pure.charge(pure_event(1.0), note="counts")
    assert PrivacyStatement.from_ledger(pure).also == {"replace_one": 2.0}


def test_what_was_added_up_afterwards_says_what_it_takes_for_granted() -> None:
    book = Ledger(None, delta=1e-5)
    book.declare([Planned(gaussian_event(5.0), "sizes")])
    assert not PrivacyStatement.from_ledger(book).says(Fact.FIXED_IN_ADVANCE)
    book.charge(gaussian_event(5.0), 2, note="sizes")
    assert PrivacyStatement.from_ledger(book).says(Fact.FIXED_IN_ADVANCE)


def test_what_was_chosen_along_the_way_is_stated_at_the_budget() -> None:
    book = Ledger(Budget(3.0, 1e-5))
    book.charge(gaussian_event(5.0), note="sizes")
    made = PrivacyStatement.from_ledger(book)
    assert (made.epsilon, made.also) == (3.0, {})
    assert made.accountant.startswith("filter of Renyi order 7.498")
    assert made.epsilon > book.spent()


def test_a_statement_of_an_earlier_version_has_its_sentences() -> None:
    """Of 0.4, without facts; of 0.5, in which a fact has another sentence, stands elsewhere, or is gone."""
    plain = {name: value for name, value in tiny.statement().to_dict().items() if name not in {s.value for s in Section}}
    texts = {"assumptions": ["the noise source is secure"], "not_covered": ["the test records"]}
    made = PrivacyStatement.from_dict({name: value for name, value in plain.items() if name != "facts"} | texts)
    assert (made.assumptions, made.not_covered) == (("the noise source is secure",), ("the test records",))
    facts = [{"fact": "ONE_ROW"}, {"fact": "GENERATED_KEYS", "columns": "id"}, Fact.PUBLIC_NAMES().to_dict()]
    texts = {"conventions": ["A row.", "Values of id are not repeated.", Fact.PUBLIC_NAMES.sentence]}
    made = PrivacyStatement.from_dict(plain | texts | {"facts": facts})
    assert made.section(Section.AS_IS) == (Fact.PUBLIC_NAMES.sentence,)
    assert made.section(Section.MADE) == ("A row.", "Values of id are not repeated.")


@pytest.mark.parametrize("change", [{"facts": [{"fact": "NOBODY"}]}, {"not_covered": []}, {"facts": [{"fact": "PUBLIC_SIZE"}]}])
def test_facts_that_are_unknown_or_without_their_sentence_are_refused(change: dict[str, Any]) -> None:
    with refused():
        PrivacyStatement.from_dict(tiny.statement().to_dict() | change)


def test_facts_have_one_plain_sentence_and_their_values() -> None:
    for fact in Fact:
        assert "\n" not in fact.sentence
        assert fact.sentence[0].isupper() or fact.sentence.startswith("{")
        assert fact.sentence[-1] in ".}"
        with refused(fact.name):
            fact(nobody=1)


def test_the_statement_begins_with_the_odds_of_a_guess() -> None:
    made = replace(tiny.statement(), epsilon=1.0, delta=0.0)
    assert dict(made.questions())["By how much?"][0] == made.odds()
    assert "whether one record is among the data in at most 73.2 of 100 cases" in made.odds()
    for epsilon in (0.0, 0.1, 1.0, 3.0, 8.0, 30.0):
        assert float(right_of_100(epsilon, 1e-6)) / 100 - guessed(epsilon, 1e-6) >= 0
