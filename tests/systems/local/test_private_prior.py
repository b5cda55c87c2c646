"""The prior that the private users pay for."""

import pytest
import torch

from dpgen.data.users import PRIVATE
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.systems.local import fit as module
from dpgen.systems.local.fit import PRIVATE_ORIGIN, UNIT, private_prior


def ledger(epsilon: float, relation: str = "replace_one") -> Ledger:
    return Ledger(Budget(epsilon, 0.0), relation=relation, unit="one user's whole distribution")


def uniform(u: int, n: int) -> torch.Tensor:
    return torch.full((u, n), 1 / n, dtype=torch.float64)


def test_loader_and_system_mean_the_same_origin() -> None:
    assert PRIVATE == PRIVATE_ORIGIN


# -- what one user adds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("total", [1 - 0.9e-6, 1.0, 1 + 0.9e-6])
@pytest.mark.parametrize("n", [1, 2, 1000, 100_003])
def test_a_user_adds_at_most_one_unit_exactly(total: float, n: int) -> None:
    rows = torch.rand(3, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    units = torch.stack([module.histogram(row[None]).values for row in rows / rows.sum(1, keepdim=True) * total])
    assert units.dtype == torch.int64
    assert int(units.min()) >= 0
    assert int(units.sum(1).max()) <= UNIT
    assert int(units.sum(1).min()) > UNIT * (1 - 1e-5) - n


@pytest.mark.parametrize("rows", [[[0.5, 0.6]], [[0.5, 0.5], [1.5, -0.5]], [[0.5, float("nan")]], [0.5, 0.5], [[]]])
def test_what_is_no_distribution_is_refused(rows: list[object]) -> None:
    spent = ledger(1.0)
    with pytest.raises(ValueError, match="distributions"):
        private_prior(torch.tensor(rows, dtype=torch.float64), epsilon=0.5, curator=Curator(spent))
    assert spent.epsilon() == 0


# -- use -------------------------------------------------------------------------------------------------------------


def test_the_prior_is_positive_and_sums_to_one_even_from_noise_alone() -> None:
    prior = private_prior(uniform(1, 50), epsilon=0.01, curator=Curator(ledger(0.01)))
    assert prior.shape == (50,)
    assert float(prior.min()) > 0
    assert float(prior.sum()) == pytest.approx(1)
