"""Every release of every system against what is stated about it; `conformance.py` says what a row is."""

import dataclasses
import math
import warnings
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from conformance import (
    RELATIONS,
    Law,
    LawRow,
    Row,
    SumRow,
    all_rows,
    check_pairs,
    check_people,
    check_tight,
    check_vanishing,
    pairs_of,
    people_pair,
    swapped,
)
from fixed_source import FixedKeySource
from replay import Step, Tape, watched
from rows_networks import LAYERS, clipped_apart, clipped_together
from rows_raw_tables import levels_once, shared_values, without_delta
from rows_relational import (
    all_weigh_more,
    broken_between,
    broken_by_rows,
    broken_in_all_rows,
    broken_rules,
    degrees_of,
    degrees_of_one,
    in_days,
    in_hours,
    in_hours_of_rows,
    in_steps,
    in_steps_of_rows,
    in_whole_days,
    naming_pairs,
    pairs_between,
    pairs_in_all_rows,
    pairs_of_all,
    pairs_of_named,
    pairs_of_rows,
    people_in_order,
    rows_in_order,
)
from rows_rules import broken, broken_once, broken_shares
from rows_tables import all_questions, chosen_block, in_two_halves
from smoke import SMOKE

from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.mechanisms import ApproximateDpEvent, Relation, gaussian_event, pure_event
from dpgen.release import PublicModel, Release
from dpgen.runtime import quiet_training
from dpgen.systems.registry import load
from dpgen.systems.tables.rounds import BLOCK_CHOICE
from dpgen.systems.tables.workload import QUESTION

CASES = [pytest.param(row, relation, id=f"{row}-{relation}") for row in all_rows() for relation in row.relations]


@pytest.mark.parametrize(("row", "relation"), CASES)
def test_no_neighbour_passes_what_is_stated(row: Row, relation: Relation) -> None:
    check_pairs(row, relation)


@pytest.mark.parametrize(("row", "relation"), CASES)
def test_a_stated_pair_reaches_it(row: Row, relation: Relation) -> None:
    check_tight(row, relation)


PEOPLE = [case for case in CASES if people_pair(case.values[0], case.values[1], 1) is not None]
"""Releases whose data are arrays: in them one record can be there several times."""


@pytest.mark.parametrize("m", [3])
@pytest.mark.parametrize(("row", "relation"), PEOPLE)
def test_a_person_with_m_equal_rows_reaches_m_times_what_is_stated_of_one(row: Row, relation: Relation, m: int) -> None:
    check_people(row, relation, m)


LAWS = [row for row in all_rows() if isinstance(row, LawRow) and set(row.relations) == set(RELATIONS)]


@pytest.mark.parametrize("row", LAWS, ids=str)
def test_a_unit_that_vanishes_costs_no_more_than_a_replaced_one(row: LawRow) -> None:
    check_vanishing(row)


def test_people_are_tried_for_most_releases() -> None:
    assert len(PEOPLE) > 0.5 * len(CASES)


# -- what the systems do -----------------------------------------------------------------------------------------------


class Ran(NamedTuple):
    """The smallest fit of a system in one form, under one relation."""

    relation: Relation
    release: Release
    ledger: Ledger
    tape: Tape


FITS = [pytest.param((smoke, relation), id=f"{smoke}-{relation}") for smoke in SMOKE for relation in smoke.relations]


@pytest.fixture(scope="module", params=FITS)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    smoke, relation = request.param
    if smoke.system == "relational":  # fewer steps of a fit to released values
        smoke = dataclasses.replace(smoke, config=smoke.config | {"steps": 3})
    with watched(Tape()) as tape, quiet_training(), warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore", UserWarning)  # so few steps on so few records are poor
        patch.setattr("dpgen.systems.gaussian.sets._STEPS", 5)  # of a fit to released values
        release, ledger = smoke.fit(relation, tmp_path_factory.mktemp(smoke.system), FixedKeySource())
    return Ran(relation, release, ledger, tape)


def test_every_release_is_in_the_table(ran: Ran) -> None:
    rows, charged = all_rows(), {entry.note for entry in ran.ledger.entries()}
    planned = {line.note for line in ran.ledger.promised() if not line.divisible}  # which is spent in parts of their own names
    named = charged | planned | {step.note for step in ran.tape.steps}
    assert [note for note in named if not any(row.covers(note) for row in rows)] == []


def test_everything_was_declared_before_it_ran(ran: Ran) -> None:
    assert not ran.ledger.chosen_later
    assert ran.ledger.spent() <= ran.ledger.epsilon() * (1 + 1e-9)


def paid_scale(step: Step, sums: BoundedSum, relation: Relation, rows: int) -> float:
    """The scale of noise that the charge pays for: sensitivity under the relation times the multiplier of the event.

    A person of up to m rows moves the sums by m times as much, and where people are replaced by others with less rows by no
    less than where they leave. A ledger doubles the sensitivity of every Gaussian under replace_one, so its multiplier speaks
    of half of it.
    """
    event, sensitivity = step.event, sums.under(relation)
    if rows > 1:
        sensitivity = (1 if sums.of_unit else rows) * max(sensitivity, sums.sensitivity)
    if isinstance(event, ApproximateDpEvent):
        return sensitivity / event.epsilon
    return float(event.noise_multiplier) * sensitivity / (1.0 if relation == "add_remove" else 2.0)


def summed(tape: Tape) -> list[tuple[Step, BoundedSum, float]]:
    """Releases of sums with independent noise, what it was added to, and its scale in units of the real values."""
    steps = [step for step in tape.steps if isinstance(step.outcome, torch.Tensor)]
    return [(step, step.sums, step.scale * step.sums.step) for step in steps if step.sums is not None]


def test_noise_is_what_the_charge_pays_for(ran: Ran) -> None:
    rows, draws, events = ran.ledger.rows, dict[int, float](), dict[int, Any]()
    for step, sums, scale in summed(ran.tape):
        if not step.part:
            assert scale == pytest.approx(paid_scale(step, sums, ran.relation, rows), rel=1e-9), step.note
            continue
        moved, events[step.charge] = sums.sensitivity * (1 if sums.of_unit else rows), step.event
        draws[step.charge] = draws.get(step.charge, 0.0) + (moved / scale) ** 2
    for charge, event in events.items():  # all parts of a draw are one Gaussian
        assert draws[charge] ** -0.5 == pytest.approx(getattr(event, "event", event).noise_multiplier, rel=1e-9)


def test_noise_is_in_what_is_given_out(ran: Ran) -> None:
    for step, sums, scale in summed(ran.tape):
        if step.part:
            continue  # it is multiplied by a public factor
        noise = (step.outcome.double() - sums.values.double() * sums.step) / scale
        size, several = float(noise.square().mean().sqrt()), noise.numel() > 1000
        assert (0.75 if several else 0.0) <= size < (1.25 if several else 6.0), step.note


def test_a_released_model_comes_back_from_its_files_for_free(ran: Ran, tmp_path: Path) -> None:
    """With its statement and tensors, and with the same draws."""
    model, before = ran.release, ran.ledger.position()
    if not isinstance(model, PublicModel):
        return  # private draws, which are kept as a table
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert (type(again), again.statement, again.sha256) == (type(model), model.statement, model.sha256)
    for name, one in (("one", model), ("two", again)):
        one.samples(50, random_state=3).save(tmp_path / f"{name}.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    assert ran.ledger.position() == before


# -- the checks reject what is wrong -----------------------------------------------------------------------------------

BITS = pairs_of(lambda rng, n: rng.integers(0, 2, (n, 3)))


EXTREMES = swapped(np.array([[0, 0, 0], [1, 1, 1]]), np.array([[0, 0, 0]]))


def counted(x: Any) -> BoundedSum:
    return BoundedSum(torch.from_numpy(x).sum(0), math.sqrt(3.0), replaced=math.sqrt(3.0))


SUMS = SumRow("toy", ("counts of bits",), BITS, EXTREMES, sums=counted)


def answered(x: Any, relation: Relation) -> Law:
    """Laplace-like answers to a count of sensitivity 1 on the points -20, ..., 20."""
    weights = -np.abs(np.arange(-20, 21) - x[:, 0].sum()) * 0.5
    return Law(pure_event(1.0), weights - np.logaddexp.reduce(weights))


def answered_gaussian(x: Any, relation: Relation) -> Law:
    """A count plus noise of std 3 in cells of width 1 / 8; the ledger doubles a Gaussian under replace_one."""
    weights = -0.5 * ((np.arange(-160, 161) / 8 - x[:, 0].sum()) / 3.0) ** 2
    multiplier = 3.0 if relation == "add_remove" else 6.0
    return Law(gaussian_event(multiplier), weights - np.logaddexp.reduce(weights))


CHOICE = LawRow("toy", ("choice",), BITS, EXTREMES, law=answered, reaches=0.45, why="symmetric scores")
CURVE = LawRow("toy", ("curve",), BITS, EXTREMES, law=answered_gaussian, at=(0.1, 0.5))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("row", "said"),
    [
        (dataclasses.replace(SUMS, sums=lambda x: BoundedSum(counted(x).values, 1.6, replaced=1.6)), "moves the sums"),
        (dataclasses.replace(CHOICE, law=lambda x, r: answered(x, r)._replace(event=pure_event(0.3))), "log-probability"),
        (dataclasses.replace(CURVE, law=lambda x, r: answered_gaussian(x, r)._replace(event=gaussian_event(7.0))), "delta is"),
    ],
    ids=["sums", "choice", "curve"],
)
def test_what_moves_too_far_is_found_by_random_pairs_and_by_the_stated_one(row: Row, said: str, relation: Relation) -> None:
    with pytest.raises(AssertionError, match=said):
        check_pairs(row, relation)
    with pytest.raises(AssertionError, match=said):
        check_tight(row, relation)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (dataclasses.replace(SUMS, sums=lambda x: BoundedSum(counted(x).values, 1.8, replaced=1.8)), "reaches 0.9623 only"),
        (dataclasses.replace(SUMS, sums=lambda x: BoundedSum(counted(x).values, 2.0 + len(x))), "depends on the data"),
        (dataclasses.replace(CHOICE, law=lambda x, r: answered(x, r)._replace(event=pure_event(3.0))), "reaches 0.16.* only"),
    ],
    ids=["loose sums", "sensitivity of the data", "loose choice"],
)
def test_what_is_loose_or_chosen_by_the_data_is_found(row: Row, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_tight(row, "add_remove")


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_threshold_without_delta_is_found(relation: Relation) -> None:
    [row] = [row for row in LAWS if row.system == "tables" and row.at == (3.0,)]
    with pytest.raises(AssertionError, match="delta is"):
        check_tight(dataclasses.replace(row, law=without_delta), relation)


@pytest.mark.parametrize("relation", RELATIONS)
def test_levels_of_a_tree_that_are_charged_once_for_all_are_found(relation: Relation) -> None:
    [row] = [row for row in all_rows() if isinstance(row, SumRow) and row.covers("bins of values of age")]
    wrong = dataclasses.replace(row, sums=levels_once)
    with pytest.raises(AssertionError, match="moves the sums"):
        check_pairs(wrong, relation)
    with pytest.raises(AssertionError, match="moves the sums"):
        check_tight(wrong, relation)


@pytest.mark.parametrize("relation", RELATIONS)
def test_rows_of_shared_values_at_the_price_of_repeated_ones_are_found(relation: Relation) -> None:
    [row] = [row for row in all_rows() if isinstance(row, SumRow) and row.covers("repeated values of age")]
    with pytest.raises(AssertionError, match="moves the sums"):
        check_pairs(dataclasses.replace(row, sums=shared_values), relation)


NAMING = [(naming_pairs, wrong) for wrong in (pairs_of_all, pairs_of_rows)] + [(degrees_of, degrees_of_one)]
OF_ROWS = [
    (in_days, in_whole_days),
    (in_steps, in_steps_of_rows),
    (in_hours, in_hours_of_rows),
    (broken_rules, broken_by_rows),
    (broken_between, broken_in_all_rows),
    (pairs_between, pairs_in_all_rows),
    (people_in_order, rows_in_order),
]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("right", "wrong"), [*OF_ROWS, *NAMING])
def test_rows_of_people_that_count_as_wholes_are_found(right: Any, wrong: Any, relation: Relation) -> None:
    [row] = [row for row in all_rows() if isinstance(row, SumRow) and row.sums is right]
    with pytest.raises(AssertionError, match="moves the sums"):
        check_pairs(dataclasses.replace(row, sums=wrong), relation)


def test_weights_of_rows_that_others_decide_are_found() -> None:
    [row] = [row for row in all_rows() if isinstance(row, SumRow) and row.sums is naming_pairs]
    check_tight(dataclasses.replace(row, reaches=0.99), "add_remove")
    check_pairs(dataclasses.replace(row, neighbours=lambda _, relation: all_weigh_more(relation)), "add_remove", pairs=1)
    with pytest.raises(AssertionError, match="moves the sums"):
        check_tight(dataclasses.replace(row, sums=pairs_of_named, tight=all_weigh_more), "add_remove")


@pytest.mark.parametrize("relation", RELATIONS)
def test_questions_at_the_price_of_one_are_found(relation: Relation) -> None:
    rows = [row for row in all_rows() if isinstance(row, SumRow) and row.covers(QUESTION)]
    for row, faulty in zip(rows, (all_questions, in_two_halves), strict=True):
        with pytest.raises(AssertionError, match="moves the sums"):
            check_pairs(dataclasses.replace(row, sums=faulty), relation)


@pytest.mark.parametrize("relation", RELATIONS)
def test_parities_that_a_row_moves_by_two_at_the_price_of_one_are_found(relation: Relation) -> None:
    [row] = [row for row in all_rows() if isinstance(row, LawRow) and row.covers(BLOCK_CHOICE)]
    with pytest.raises(AssertionError, match="delta is"):
        check_tight(dataclasses.replace(row, law=partial(chosen_block, times=2)), relation)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("wrong", [broken_once, broken_shares])
def test_rules_of_which_a_row_breaks_more_than_is_charged_are_found(wrong: Any, relation: Relation) -> None:
    [row] = [row for row in all_rows() if isinstance(row, SumRow) and row.sums is broken]
    with pytest.raises(AssertionError, match="moves the sums"):
        check_pairs(dataclasses.replace(row, sums=wrong), relation)


@pytest.mark.parametrize("relation", RELATIONS)
def test_layers_that_have_the_whole_bound_each_are_found(relation: Relation) -> None:
    """Bounds whose squares add up to more than the square of the whole one."""
    [row] = [row for row in all_rows() if isinstance(row, SumRow) and row.sums is clipped_apart]
    wrong = dataclasses.replace(row, sums=partial(clipped_apart, layers=tuple(layer._replace(share=1.0) for layer in LAYERS)))
    with pytest.raises(AssertionError, match="moves the sums"):
        check_pairs(wrong, relation)
    with pytest.raises(AssertionError, match="moves the sums"):
        check_tight(wrong, relation)


@pytest.mark.parametrize("relation", RELATIONS)
def test_people_whose_gradients_are_clipped_one_by_one_and_added_up_are_found(relation: Relation) -> None:
    [row] = [row for row in all_rows() if isinstance(row, SumRow) and getattr(row.sums, "__name__", "") == "clipped_together"]
    wrong = dataclasses.replace(row, sums=partial(clipped_together, by_record=True))
    with pytest.raises(AssertionError, match="moves the sums"):
        check_pairs(wrong, relation)
    with pytest.raises(AssertionError, match="moves the sums"):
        check_tight(wrong, relation)


def test_a_price_of_replaced_rows_that_forgets_those_that_vanish_is_found() -> None:
    def told(x: Any, relation: Relation) -> Law:
        """Says how many records there are, which a replaced one does not change."""
        return Law(pure_event(1.0), np.log(np.where(np.arange(4) == len(x), 0.7, 0.1)))

    alone = dataclasses.replace(CHOICE, law=told)
    check_pairs(alone, "replace_one")
    with pytest.raises(AssertionError, match="vanishes"):
        check_vanishing(alone)
