import pytest

from dpgen.privacy.composition import LedgerItem, cases, worst
from dpgen.privacy.events import pure_event
from dpgen.privacy.mechanisms import gaussian_event


def load(sigma, count, group):
    return LedgerItem.of(gaussian_event(sigma), "note", group), count


def signatures(loads, relation):
    return sorted(sorted((m.group or "", n) for m, n in case) for case in cases(loads, relation))


def test_cases_of_one_record():
    loads = [load(1.0, 2, None), load(2.0, 3, "a"), load(2.0, 4, "b"), load(2.0, 5, "c"), load(9.0, 0, "d")]
    assert signatures(loads, "add_remove") == [[("", 2), (g, n)] for g, n in (("a", 3), ("b", 4), ("c", 5))]
    pairs = [(("a", 3), ("b", 4)), (("a", 3), ("c", 5)), (("b", 4), ("c", 5))]
    assert signatures(loads, "replace_one") == [[("", 2), *pair] for pair in pairs]
    assert signatures([], "replace_one") == [[]]
    assert signatures(loads[:1], "add_remove") == [[("", 2)]]


def test_equal_groups_are_looked_at_once():
    loads = [load(2.0, 3, str(group)) for group in range(10)]
    assert len(list(cases(loads, "add_remove"))) == len(list(cases(loads, "replace_one"))) == 1


def test_worst_of_nothing_is_free():
    assert worst([], 1e-5, "add_remove") == 0


def test_events_must_be_writable():
    with pytest.raises(ValueError, match="cannot be recorded"):
        LedgerItem.of(object(), "note", None)


def test_what_no_plan_has_room_for() -> None:
    mechanism = LedgerItem.of(pure_event(0.5), "twice", None)
    mechanism.planned = 2
    assert [mechanism.beyond(count) for count in (1, 2, 3)] == [0, 0, 1]
