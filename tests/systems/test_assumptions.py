"""What statements of several systems share: none of the facts that they rest on is forgotten."""

from dpgen.facts import Fact
from dpgen.systems.marginals import fit as marginals
from dpgen.systems.ordered import estimator


def test_systems_with_integer_noise_say_all_that_they_rest_on() -> None:
    assert set(marginals.FACTS) == {Fact.ONE_RECORD, Fact.CHOSEN_BLIND, Fact.SECURE_NOISE, Fact.EXACT_INTEGERS}


def test_ordered_columns_say_what_a_person_is() -> None:
    assert {Fact.ONE_ROW, Fact.CHOSEN_BLIND, Fact.SECURE_NOISE} <= set(estimator.FACTS)
