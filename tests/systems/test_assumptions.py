"""What statements of several systems share: the same words, and none of them forgotten."""

import pytest

from dpgen.systems import plan
from dpgen.systems.marginals import fit as marginals
from dpgen.systems.ordered import estimator
from dpgen.systems.plan import CHOSEN_BLIND, EXACT_INTEGERS, ONE_RECORD, SECURE_NOISE

SENTENCES = {name: text for name, text in vars(plan).items() if name.isupper() and isinstance(text, str)}


@pytest.mark.parametrize("name", list(SENTENCES))
def test_a_sentence_is_one_line_of_a_list(name: str) -> None:
    assert "\n" not in SENTENCES[name]
    assert SENTENCES[name][0].islower()
    assert not SENTENCES[name].endswith(".")


def test_systems_with_integer_noise_say_all_that_they_rest_on() -> None:
    assert set(marginals.ASSUMPTIONS) == {ONE_RECORD, CHOSEN_BLIND, SECURE_NOISE, EXACT_INTEGERS}


def test_ordered_columns_say_what_a_person_is() -> None:
    assert estimator.ASSUMPTIONS[0].startswith("one person is one record, a row")
    assert {CHOSEN_BLIND, SECURE_NOISE} <= set(estimator.ASSUMPTIONS)
