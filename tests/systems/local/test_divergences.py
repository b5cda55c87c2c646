"""f-divergences against their definitions."""

import math

import pytest
import torch
from finite_cases import dirichlet

from dpgen.systems.local.model import DIVERGENCES, f_divergence

GENERATORS = {
    "tv": lambda t: (t - 1).abs() / 2,
    "kl": lambda t: torch.special.xlogy(t, t),
    "reverse_kl": lambda t: -t.log(),
    "chi2": lambda t: (t - 1) ** 2,
    "hellinger": lambda t: (t.sqrt() - 1) ** 2 / 2,
    "js": lambda t: (torch.special.xlogy(t, t) - (t + 1) * ((t + 1) / 2).log()) / 2,
}


@pytest.mark.parametrize("name", list(DIVERGENCES))
def test_names_agree_with_their_functions(name: str) -> None:
    p, q = dirichlet(9, seed=0, rows=4), dirichlet(9, seed=1)
    assert torch.allclose(f_divergence(p, q, name), f_divergence(p, q, GENERATORS[name]), rtol=1e-12, atol=1e-14)
    assert float(f_divergence(q, q, name)) == pytest.approx(0, abs=1e-15)


def test_values_by_hand() -> None:
    p, q = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.25, 0.25, 0.5])
    assert float(f_divergence(p, q)) == 0.5
    assert float(f_divergence(p, q, "kl")) == pytest.approx(math.log(2))
    assert float(f_divergence(p, q, "reverse_kl")) == math.inf
    assert float(f_divergence(p, q, "chi2")) == 1.0
    assert float(f_divergence(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), "js")) == pytest.approx(math.log(2))
    assert float(f_divergence(q, p, "kl")) == math.inf
    assert float(f_divergence(q, p, "chi2")) == math.inf
    assert float(f_divergence(q, p)) == 0.5
    assert float(f_divergence(q, p, lambda t: (t - 1) ** 4)) == math.inf


def test_an_unknown_name() -> None:
    with pytest.raises(ValueError, match="divergence is 'l2'; choose one of"):
        f_divergence(torch.ones(1), torch.ones(1), "l2")
