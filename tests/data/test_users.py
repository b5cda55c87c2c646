"""Users and their distributions."""

from typing import Any

import pytest
import torch
from refusals import refused

from dpgen.columns.forms import natural_order
from dpgen.data.users import NEAR, PEAKED, UNIFORM, Users, load_synthetic_users, normalised


def users(**changes: Any) -> Users:
    given: dict[str, Any] = {
        "name": "tiny",
        "counts": torch.tensor([[1.0, 3.0, 0.0], [0.0, 0.0, 2.0]], dtype=torch.float64),
        "user_names": ("ann", "bob"),
        "categories": ("a", "b", "c"),
        "groups": ("old", "young"),
    }
    return Users(**(given | changes))


def test_rows_are_distributions() -> None:
    assert users().distributions.tolist() == [[0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]
    assert (users().u, users().n) == (2, 3)


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e308])
def test_counts_of_any_size_are_normalised(scale: float) -> None:
    counts = torch.tensor([[1.0, 1.0, 0.5]], dtype=torch.float64) * scale
    torch.testing.assert_close(normalised(counts), torch.tensor([[0.4, 0.4, 0.2]], dtype=torch.float64))


def test_the_representation_shows_no_value_and_no_name() -> None:
    assert repr(users()) == "Users('tiny': 2 users, 3 categories, 2 groups, prior: uniform)"


def test_a_prior_is_renormalised_and_may_have_zeros() -> None:
    prior = users(prior=torch.tensor([0.5 + 5e-7, 0.5, 0.0]), prior_origin="file").prior
    assert prior is not None
    assert prior.dtype == torch.float64
    assert float(prior.sum()) == pytest.approx(1, abs=1e-15)


def test_how_many_users_there_are_is_no_reason_to_refuse() -> None:
    nobody = users(counts=torch.zeros(0, 3, dtype=torch.float64), user_names=(), groups=())
    assert (nobody.u, nobody.distributions.shape) == (0, (0, 3))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"counts": torch.zeros(2, 3)}, "torch.float32"),
        ({"counts": torch.zeros(3, dtype=torch.float64)}, "shape (3,)"),
        ({"counts": torch.ones(2, 1, dtype=torch.float64)}, "1 categories"),
        ({"counts": torch.tensor([[1.0, 1, 1], [1, -2, 1]], dtype=torch.float64)}, "row 2, column 2"),
        ({"counts": torch.tensor([[1.0, 1, 1], [1, 1, float("nan")]], dtype=torch.float64)}, "row 2, column 3"),
        ({"counts": torch.tensor([[1.0, 1, 1], [0, 0, 0]], dtype=torch.float64)}, "no events in row 2"),
        ({"user_names": ("ann",)}, "user_names has length 1"),
        ({"user_names": ("ann", "ann")}, "user_names names 'ann' more than once"),
        ({"categories": ("a", "b", "b")}, "categories names 'b' more than once"),
        ({"groups": ("old",)}, "groups has length 1, there are 2 users"),
        ({"prior_origin": "file"}, "prior is missing but prior_origin is 'file'"),
        ({"prior": torch.ones(3) / 3, "prior_origin": UNIFORM}, "prior is given but prior_origin is 'uniform'"),
        ({"prior": torch.ones(2) / 2, "prior_origin": "file"}, "prior has shape (2,)"),
        ({"prior": torch.ones(3), "prior_origin": "file"}, "prior sums to 3"),
        ({"prior": torch.tensor([0.5, 0.5 + 1.1e-6, 0]).double(), "prior_origin": "file"}, "must sum to 1"),
        ({"prior": torch.tensor([1.5, -0.5, 0]), "prior_origin": "file"}, "prior has -0.5 in entry 2"),
        ({"prior": torch.tensor([1.0, float("nan"), 0]), "prior_origin": "file"}, "prior has nan in entry 2"),
        ({"prior": torch.tensor([float("inf"), 0, 0]), "prior_origin": "file"}, "prior has inf in entry 1"),
    ],
)
def test_bad_users_are_refused_in_one_line(changes: dict[str, Any], said: str) -> None:
    with refused(said):
        users(**changes)


def test_names_in_natural_order() -> None:
    names = ["10", "9", "b", "²", "1" * 200, "a"]
    assert sorted(names, key=natural_order) == ["9", "10", "1" * 200, "a", "b", "²"]


def test_the_two_regimes() -> None:
    users = load_synthetic_users(n_categories=20, n_users=31)
    assert users.prior is not None
    distance = 0.5 * (users.distributions - users.prior).abs().sum(1)
    far = distance[[group == PEAKED for group in users.groups or ()]]
    near = distance[[group == NEAR for group in users.groups or ()]]
    assert (len(far), len(near)) == (16, 15)
    assert far[-1] == pytest.approx(1 - float(users.prior[0]))
    assert near.max() < far[8:].min()


def test_the_same_seed_gives_the_same_users() -> None:
    first, second, other = (load_synthetic_users(data_seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.counts, second.counts)
    assert not torch.equal(first.counts, other.counts)


@pytest.mark.parametrize("option", ["n_categories", "n_users"])
def test_at_least_two_of_each(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} is 1: it must be >= 2"):
        load_synthetic_users(**{option: 1})
