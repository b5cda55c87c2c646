"""The common interface: every sampler keeps its contract, is saved as a public object, and refuses bad users."""

import math
from functools import partial
from pathlib import Path

import pytest
import torch
from finite_cases import EXCESS, dirichlet, ldp_excess, sampler, users
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.noise import SecureSource
from dpgen.systems.local.fit import SAMPLERS
from dpgen.systems.local.model import (
    FiniteSampler,
    MinimaxSampler,
    RandomizedResponse,
    RelativeMollifier,
    distributions,
    load_mechanism,
    public_prior,
)
from dpgen.systems.local.plan import LocalPlan

Q = dirichlet(6, seed=0)
ALL = {name: sampler(name, 1.5, Q) for name in SAMPLERS} | {"neighbourhood": RelativeMollifier(1.5, Q, neighbourhood=3.0)}


@pytest.fixture(params=list(ALL))
def mechanism(request: pytest.FixtureRequest) -> FiniteSampler:
    return ALL[request.param]


def test_contract(mechanism: FiniteSampler) -> None:
    p = users(6, seed=9)
    before = p.clone()
    out = mechanism.apply(p)
    assert torch.equal(p, before)
    assert out.dtype == torch.float64
    assert out.shape == p.shape
    assert float((out.sum(1) - 1).abs().max()) <= EXCESS
    assert ldp_excess(out, mechanism.epsilon) <= EXCESS
    assert torch.allclose(mechanism.apply(p[3]), out[3], rtol=1e-15, atol=0)
    assert torch.allclose(mechanism.apply(p.float()), out, rtol=0, atol=1e-6), "float32 in, float64 inside"
    assert torch.allclose(mechanism.apply(p.T.contiguous().T), out, rtol=0, atol=1e-15), "strides do not matter"
    assert mechanism.apply(p[:0]).shape == (0, 6)


def test_draws(mechanism: FiniteSampler) -> None:
    p = users(6, seed=9)
    one, many = (mechanism.sample(x, k=k, secrets=SecureSource()) for x, k in ((p[0], 3), (p, 2)))
    assert (one.shape, many.shape, many.dtype) == ((3,), (2, len(p)), torch.int64)
    assert mechanism.sample(p[0], k=0, secrets=SecureSource()).shape == (0,)
    assert bool(((many >= 0) & (many < 6)).all())
    with pytest.raises(TypeError, match="SecureSource"):
        mechanism.sample(p, secrets=torch.Generator())  # type: ignore[arg-type]


def test_saved_and_loaded(mechanism: FiniteSampler, tmp_path: Path) -> None:
    mechanism.save(tmp_path / "public")
    loaded = load_mechanism(tmp_path / "public")
    assert type(loaded) is type(mechanism)
    assert repr(loaded) == repr(mechanism)
    assert {p.name for p in (tmp_path / "public").iterdir()} == {"mechanism.json", "mechanism.safetensors"}
    p = users(6, seed=1)
    assert torch.equal(loaded.apply(p), mechanism.apply(p))
    again = type(mechanism)(**mechanism.get_params())
    assert torch.equal(again.apply(p), mechanism.apply(p))


# -- bound to users: every draw is paid for and nothing can be saved or seen --------------------------------------------

USERS = dirichlet(5, seed=1, rows=4)
BOUND = RelativeMollifier(0.5, 5)


def test_a_draw_needs_replace_one_and_distributions() -> None:
    with pytest.raises(ValueError, match="relation"):
        BOUND.bind(USERS, Curator(Ledger(Budget(1.0, 1e-5))))
    ledger = LocalPlan().open_ledger()
    with pytest.raises(ValueError, match="P"):
        BOUND.bind(torch.tensor([1.5, -0.5, 0, 0, 0]), Curator(ledger))
    assert ledger.entries() == []


# -- what is accepted --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0, -1.0, 700.1, math.nan, math.inf, True, "1"])
def test_bad_epsilon(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon"):
        RandomizedResponse(epsilon, 3)


@pytest.mark.parametrize(
    "p", [[0.5, 0.5], [[[1.0, 0.0, 0.0]]], [0.5, 0.6, -0.1], [0.5, math.nan, 0.5], [0.5, math.inf, 0.5], [0.5, 0.5, 2e-6]]
)
def test_bad_distributions(p: list[float]) -> None:
    for use in (partial(distributions, n=3), RandomizedResponse(1.0, 3).apply):
        with pytest.raises(ValueError, match="P"):
            use(torch.tensor(p, dtype=torch.float64))


def test_zero_atoms_are_floored_with_a_warning() -> None:
    given = torch.tensor([0.0, 0.25, 0.75, 1e-200], dtype=torch.float64)
    with pytest.warns(UserWarning, match="2 of 4") as caught:
        q, raised = public_prior(given)
    assert (caught[0].filename, raised) == ("prior", 2), "it is about the data, not about a line of Python"
    assert q.tolist() == pytest.approx([2.5e-7, 0.25 * (1 - 5e-7), 0.75 * (1 - 5e-7), 2.5e-7])
    assert torch.equal(public_prior(q)[0], q)


@pytest.mark.parametrize("prior", [1, 0, -3, True, torch.ones(1), torch.ones(2, 2) / 2, torch.tensor([0.5, 0.4])])
def test_bad_priors(prior: Tensor | int) -> None:
    for use in (public_prior, partial(MinimaxSampler, 1.0)):
        with pytest.raises(ValueError, match="prior"):
            use(prior)
