"""The prior that the private users pay for."""

import itertools
from dataclasses import replace

import pytest
import torch

from dpgen.auditing.lower_bounds import epsilon_lower_bound
from dpgen.data.users import PRIVATE
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.noise import SecureSource
from dpgen.systems.local import fit as module
from dpgen.systems.local.fit import PRIVATE_ORIGIN, UNIT, histogram, noise_scale, private_prior


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


# -- the guarantee, by enumeration -----------------------------------------------------------------------------------


def worst_log_ratio(scale: float, unit: int, relation: str) -> float:
    """Largest log-ratio of output probabilities over all neighbours of integer rows (two categories, all outputs)."""
    rows = [(a, b) for a in range(unit + 1) for b in range(unit + 1 - a)]
    neighbours = itertools.product(rows, rows if relation == "replace_one" else [(0, 0)])
    outputs = range(-2 * unit, 3 * unit)

    def most(a: int, b: int) -> float:
        return max((abs(h - b) - abs(h - a)) / scale for h in outputs)

    return max(max(most(x[0], y[0]) + most(x[1], y[1]), most(y[0], x[0]) + most(y[1], x[1])) for x, y in neighbours)


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_guarantee_holds_and_is_tight(monkeypatch: pytest.MonkeyPatch, relation: str, epsilon: float) -> None:
    monkeypatch.setattr(module, "UNIT", 5)
    scale = noise_scale(epsilon, relation=relation)
    assert worst_log_ratio(scale, 5, relation) == pytest.approx(epsilon, rel=1e-12)
    assert worst_log_ratio(scale, 5, relation) <= epsilon


def test_the_sensitivity_of_the_other_relation_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNIT", 5)
    assert worst_log_ratio(noise_scale(1.0, relation="add_remove"), 5, "replace_one") > 1.9


# -- the guarantee, by sampling --------------------------------------------------------------------------------------


class HalvedNoise(SecureSource):
    """The broken twin: half the noise that is paid for."""

    def discrete_laplace(self, *shape: int, scale: float) -> torch.Tensor:
        return super().discrete_laplace(*shape, scale=scale / 2)


def leak(source: SecureSource, copies: int = 40_000) -> float:
    """Lower bound on epsilon for one user who moves from the first category to the second."""
    curator = Curator(ledger(1e6), source=source)
    copied = [
        replace(sums, values=sums.values.repeat(copies))
        for sums in (histogram(torch.tensor([row]).double()) for row in ([1.0, 0.0], [0.0, 1.0]))
    ]
    before, after = (
        (gaps[:, 0] - gaps[:, 1]).double() for gaps in (curator.laplace("prior", sums, 1.0).reshape(-1, 2) for sums in copied)
    )
    return epsilon_lower_bound(before, after, 0.0, confidence=1 - 1e-9).epsilon


def test_an_audit_finds_nothing_and_finds_a_missing_factor_of_two() -> None:
    assert leak(SecureSource()) <= 1.0 < leak(HalvedNoise())


# -- use -------------------------------------------------------------------------------------------------------------


def test_the_prior_is_positive_and_sums_to_one_even_from_noise_alone() -> None:
    prior = private_prior(uniform(1, 50), epsilon=0.01, curator=Curator(ledger(0.01)))
    assert prior.shape == (50,)
    assert float(prior.min()) > 0
    assert float(prior.sum()) == pytest.approx(1)
