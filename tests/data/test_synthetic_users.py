"""The embedded users."""

import pytest
import torch

from dpgen.data.users import NEAR, PEAKED, load_synthetic_users


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
