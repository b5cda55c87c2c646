"""The embedded users."""

import pytest
import torch

from dpgen.data.users import NEAR, PEAKED, load_synthetic_users, peaked_users, random_prior


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


def test_peaked_users_are_those_of_the_paper() -> None:
    p = peaked_users(torch.tensor([0.0, 0.1, 1.0], dtype=torch.float64), 10)
    assert p.tolist() == [[0.0, *[1 / 9] * 9], pytest.approx([0.1] * 10), [1.0, *[0.0] * 9]]


def test_the_prior_is_normalised_and_positive() -> None:
    prior = random_prior(1000, torch.Generator().manual_seed(0))
    assert float(prior.sum()) == pytest.approx(1)
    assert float(prior.min()) > 0


@pytest.mark.parametrize("option", ["n_categories", "n_users"])
def test_at_least_two_of_each(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} is 1: it must be >= 2"):
        load_synthetic_users(**{option: 1})
