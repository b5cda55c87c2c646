"""What is accepted as a distribution, a prior and an epsilon."""

import warnings

import pytest
import torch

from dpgen.systems.local.kernels import MinimaxSampler, RandomizedResponse
from dpgen.systems.local.model import distributions, public_prior, zero_atoms

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("epsilon", [0, -1.0, 700.1, NAN, INF, True, "1"])
def test_bad_epsilon(epsilon: float) -> None:
    with pytest.raises(ValueError, match=r"it must be in \(0, 700\] nats"):
        RandomizedResponse(epsilon, 3)


def test_extreme_epsilon() -> None:
    assert RandomizedResponse(700, 3).epsilon == 700.0
    assert RandomizedResponse(1e-9, 3).epsilon == 1e-9


@pytest.mark.parametrize(
    ("p", "match"),
    [
        ([0.5, 0.5], r"shape \(2,\); it must be \(3,\) or \(u, 3\)"),
        ([[[1.0, 0.0, 0.0]]], "it must be"),
        ([0.5, 0.6, -0.1], "entry -0.1"),
        ([0.5, NAN, 0.5], "entry nan"),
        ([0.5, INF, 0.5], "sum is off 1 by inf"),
        ([0.5, 0.3, 0.3], "sum is off 1 by 0.1"),
        ([0.5, 0.5, 2e-6], "within 1e-06"),
    ],
)
def test_bad_distributions(p: list[float], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        distributions(torch.tensor(p, dtype=torch.float64), 3)


def test_small_misses_are_normalised() -> None:
    p = distributions(torch.tensor([[0.25, 0.75 + 5e-7]]), 2)
    assert p.dtype == torch.float64
    assert float(p.sum()) == pytest.approx(1, abs=1e-15)
    assert distributions(torch.zeros(0, 2), 2).shape == (0, 2)


def test_priors() -> None:
    assert public_prior(3).tolist() == pytest.approx([1 / 3] * 3)
    given = torch.tensor([0.2, 0.8], dtype=torch.float64)
    assert torch.equal(public_prior(given), given)
    once = public_prior(torch.tensor([0.3, 0.3, 0.4]))
    assert torch.equal(public_prior(once), once)


def test_zero_atoms_are_floored_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"2 of 4 atoms of the prior are 0: they are raised to 1e-06/n"):
        q = public_prior(torch.tensor([0.0, 0.25, 0.75, 1e-200], dtype=torch.float64))
    assert q.tolist() == pytest.approx([2.5e-7, 0.25 * (1 - 5e-7), 0.75 * (1 - 5e-7), 2.5e-7])
    assert float(q.sum()) == pytest.approx(1, abs=1e-15)
    with pytest.warns(UserWarning, match="raised to 0.5/n"):
        assert float(public_prior(torch.tensor([0.0, 1.0]), floor=0.5)[0]) == 0.25
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        public_prior(q)


@pytest.mark.parametrize("prior", [1, 0, -3, torch.ones(1), torch.ones(2, 2) / 2])
def test_too_few_categories(prior: torch.Tensor | int) -> None:
    with pytest.raises(ValueError, match=r"it must be \(n,\) with n >= 2"):
        public_prior(prior)


def test_bad_priors() -> None:
    with pytest.raises(ValueError, match="prior has a row whose sum is off"):
        public_prior(torch.tensor([0.5, 0.4]))
    with pytest.raises(ValueError, match="floor is 1"):
        public_prior(2, floor=1.0)


def test_the_warning_shows_no_lines_of_python() -> None:
    with pytest.warns(UserWarning, match="1 of 2 atoms") as caught:
        public_prior(torch.tensor([0.0, 1.0]))
    shown = warnings.formatwarning(caught[0].message, caught[0].category, caught[0].filename, caught[0].lineno)
    assert shown.splitlines() == [f"prior:0: UserWarning: {caught[0].message}"]


def test_zero_atoms_are_counted() -> None:
    assert zero_atoms(torch.tensor([0.0, 1e-101, 1.0], dtype=torch.float64)) == 2
    assert zero_atoms(5) == 0
    with pytest.raises(ValueError, match="prior has a row whose sum is off"):
        zero_atoms(torch.tensor([0.0, 0.9]))


def test_a_truth_value_is_no_number_of_categories() -> None:
    for make in (public_prior, lambda prior: MinimaxSampler(1.0, prior), lambda prior: RandomizedResponse(1.0, prior)):
        with pytest.raises(ValueError, match="prior is True; it must be a distribution"):
            make(True)
