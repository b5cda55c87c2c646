"""Draws of the people whom rows name, from released sums."""

import numpy as np
import pandas as pd
import pytest

import dpgen
from dpgen.privacy.exact_sums import WHOLE
from dpgen.systems.relational.references import DEGREES, Named, weighed


@pytest.mark.parametrize("number", [0, 1], ids=["people", "rows"])
@pytest.mark.parametrize("columns", [0, 1])
def test_where_noise_hides_all_pairs_others_are_named_at_random(number: int, columns: int) -> None:
    n, degrees = 50, np.where(DEGREES == 4, 10.0, np.where(DEGREES == 0, 40.0, 0.0))
    pairs = {c: (np.full((2, 2), 0.1), 10.0) for c in range(columns)}
    named = Named(number, "other", [np.arange(2)] * columns, pairs, (degrees, 0.1))
    codes = np.arange(n)[:, None] % 2 * np.ones((1, columns), np.int64)
    owner = np.arange(n)
    found = named.drawn(codes, owner, np.random.default_rng(0))
    assert found.shape == (n,)
    assert (found != owner).all()
    assert (found >= 0).mean() > 0.5


def pairs_of(strength: float, std: float, seed: int = 0) -> Named:
    """Noisy pairs of 1,000 people in four groups, of whom this share name their own group, the others anybody."""
    law = 1_000 * (strength * np.eye(4) / 4 + (1 - strength) * np.full((4, 4), 1 / 16))
    noisy = law + std * np.random.default_rng(seed).standard_normal((4, 4))
    return Named(1, "other", [np.arange(4)], {0: (noisy, std)}, (np.where(DEGREES == 1, 1_000.0, 0.0), 1.0))


def test_a_release_knows_where_noise_hides_whom_rows_name() -> None:
    """Of 20 releases whose noise hides all most say so; none does where links are clear, or would be clear."""
    hidden = [pairs_of(0.6, 100.0, seed).hidden(1_000) for seed in range(20)]
    assert sum(found is not None for found in hidden) >= 14
    assert {round(found, 1) for found in hidden if found is not None} == {4.8}
    assert all(pairs_of(0.6, 10.0, seed).hidden(1_000) is None for seed in range(20)), "they stand out"
    assert all(pairs_of(0.0, 10.0, seed).hidden(1_000) is None for seed in range(20)), "there are none"
    assert all(pairs_of(0.0, 100.0, seed).hidden(1e5) is None for seed in range(20)), "many people would show them"


def test_what_is_counted_of_rows_is_a_whole_of_each_person() -> None:
    """Up to k for each who is named, of rows in the order of their hashes; the row at the end counts in part."""
    owner, targets = np.array([0, 0, 0, 1, 2, 2, 3]), np.array([5, 5, 6, 5, 5, -1, 5])
    ranks = np.arange(7)[:, None] * np.ones((1, 4), np.uint64)
    third, half = WHOLE // 3, WHOLE // 2
    assert weighed(owner, targets, ranks, 6).tolist() == [third, third, third, WHOLE, half, 0, WHOLE]
    assert weighed(owner, targets, ranks, 2).tolist() == [third, third, third, WHOLE, 2 * WHOLE - 2 * third - WHOLE, 0, 0]
    assert weighed(np.arange(4), np.zeros(4, np.int64), ranks[[3, 2, 1, 0]], 2).tolist() == [0, 0, WHOLE, WHOLE]
    assert weighed(owner[:0], targets[:0], ranks[:0], 6).tolist() == []


def test_people_with_many_rows_name_as_their_group_does() -> None:
    """Half of the people have ten rows and name both groups; the others have one, and name their own: two columns say so."""
    group, counts = np.repeat([0, 1], 300), np.repeat([10, 1], 300)
    owner = np.repeat(np.arange(600), counts)
    pairs = {c: (np.array([[150.0, 150.0], [0.0, 300.0]]), 1.0) for c in (0, 1)}
    named = Named(1, "other", [np.arange(2)] * 2, pairs, (np.where(DEGREES == 4, 600.0, 0.0), 1.0))
    found = named.drawn(np.column_stack([group, group]), owner, np.random.default_rng(0))
    assert abs((group[found[group[owner] == 0]] == 0).mean() - 0.5) < 0.05
    assert (group[found[group[owner] == 1]] == 1).mean() > 0.97


@pytest.mark.parametrize(("weight", "named"), [(200.0, True), (0.0, False)])
def test_few_people_who_are_named_are_seen_by_pairs_where_noise_hides_their_number(weight: float, named: bool) -> None:
    """Of 1,000 people 20 are named by all others: their number is noise, and what is counted of pairs is not."""
    pairs = {0: (np.array([[0.0, weight], [0.0, 0.0]]), 5.0)}
    own = Named(1, "other", [np.arange(2)], pairs, (np.where(DEGREES == 0, 1_000.0, 1.0), 20.0))
    group, owner = np.repeat([0, 1], [980, 20]), np.repeat(np.arange(980), 3)
    found = own.drawn(group[:, None], owner, np.random.default_rng(0))
    assert (found >= 0).all() if named else (found < 0).all()
    assert not named or (group[found] == 1).mean() > 0.9


def test_whom_rows_name_depends_on_truths_in_words() -> None:
    rng, n = np.random.default_rng(0), 600
    people = pd.DataFrame({"pid": np.arange(n), "member": np.where(np.arange(n) % 2, "yes", "no")})
    sender = rng.integers(0, n, 1500)
    rows = pd.DataFrame({"sender": sender, "receiver": (sender + 2 * rng.integers(1, 200, 1500)) % n})  # of the same kind
    rows["amount"] = 1
    links = {"rows": {"sender": "people.pid", "receiver": "people.pid"}}
    options = {"max_rows": 4, "rounds": 1, "picks": 1, "steps": 10, "classes": 2, "row_classes": 2}
    made = dpgen.fit({"people": people, "rows": rows}, epsilon=50.0, links=links, **options).sample(1000, random_state=0)
    member = made["people"].set_index("pid")["member"]
    assert (member[made["rows"]["sender"]].to_numpy() == member[made["rows"]["receiver"]].to_numpy()).mean() > 0.9
