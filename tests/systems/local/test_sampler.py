"""The common interface: every sampler keeps its contract, is saved as a public object, and refuses bad users."""

import math
from functools import partial
from pathlib import Path

import pytest
import torch
from finite_cases import EXCESS, best_kernel_tv, dirichlet, explicit_kernel, ldp_excess, sampler, users
from scipy import stats
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.noise import SecureSource
from dpgen.systems.local.fit import SAMPLERS
from dpgen.systems.local.model import (
    DIVERGENCES,
    FiniteSampler,
    MinimaxSampler,
    RandomizedResponse,
    RelativeMollifier,
    distributions,
    f_divergence,
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


# -- f-divergences -----------------------------------------------------------------------------------------------------


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


# -- kernels -----------------------------------------------------------------------------------------------------------


def minimax_failures(kernel: Tensor, q: Tensor, epsilon: float, *, tolerance: float = EXCESS) -> list[str]:
    """What keeps a matrix from being the minimax kernel."""
    least = float(q.min())
    worst = (1 - least) / (math.expm1(epsilon) * least + 1)
    found = {
        "rows sum to 1": float((kernel.sum(1) - 1).abs().max()) <= tolerance,
        "qK = q": float((q @ kernel - q).abs().max()) <= tolerance,
        "epsilon-LDP": ldp_excess(kernel, epsilon) <= tolerance,
        "worst case": abs(float((1 - kernel.diagonal()).max()) - worst) <= tolerance,
    }
    return [name for name, holds in found.items() if not holds]


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 700.0])
@pytest.mark.parametrize("n", [2, 20, 200])
def test_the_kernel_is_the_recursion_and_keeps_its_promises(n: int, epsilon: float) -> None:
    q = dirichlet(n, seed=n, sharpness=3.0)
    sampler = MinimaxSampler(epsilon, q)
    kernel = sampler.kernel()
    assert minimax_failures(kernel, q, epsilon) == []
    if n <= 20:
        assert torch.allclose(kernel, explicit_kernel(q, epsilon), rtol=0, atol=1e-12)
    p = users(n, seed=1)
    assert torch.allclose(sampler.apply(p), p @ kernel, rtol=1e-13, atol=0)
    assert torch.equal(sampler.apply(p[0]), sampler.apply(p[:1])[0])
    assert torch.allclose(sampler.lower(), kernel.amin(0), rtol=0, atol=0)
    assert torch.allclose(sampler.misses(), kernel.clone().fill_diagonal_(0).sum(1), rtol=1e-12, atol=0)


@pytest.mark.parametrize("entry", [(0, 0), (1, 3), (4, 2)])
def test_a_kernel_with_one_entry_one_percent_off_is_rejected(entry: tuple[int, int]) -> None:
    q = dirichlet(5, seed=0)
    kernel = MinimaxSampler(1.0, q).kernel()
    kernel[entry] *= 1.01
    assert {"rows sum to 1", "qK = q"} <= set(minimax_failures(kernel, q, 1.0))
    off = kernel / kernel.sum(1, keepdim=True)
    assert minimax_failures(off, q, 1.0) != []


@pytest.mark.parametrize("epsilon", [1.0, 300.0])
def test_a_million_categories(epsilon: float) -> None:
    n = 10**6
    q = dirichlet(n, seed=3, sharpness=4.0)
    sampler = MinimaxSampler(epsilon, q)
    p = dirichlet(n, seed=4, sharpness=4.0)
    both = sampler.apply(torch.stack([q, p]))
    assert float((both[0] / q - 1).abs().max()) <= EXCESS, "qK = q, in relative terms"
    assert abs(float(both[1].sum()) - 1) <= EXCESS
    kept = sampler.keeps()
    assert float((kept + sampler.misses() - 1).abs().max()) <= EXCESS, "every row sums to 1"
    order = q.argsort(stable=True)
    corners = torch.zeros(3, n, dtype=torch.float64)
    corners[[0, 1, 2], order[[0, n // 2, n - 1]]] = 1.0
    assert ldp_excess(sampler.apply(corners), epsilon) <= EXCESS
    rarest = float(q.min())
    assert sampler.worst_case() == pytest.approx((1 - rarest) / (math.expm1(epsilon) * rarest + 1), abs=EXCESS)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_no_kernel_does_better_by_linear_programme(epsilon: float) -> None:
    for n in (2, 3, 4, 5):
        q = dirichlet(n, seed=10 + n)
        assert MinimaxSampler(epsilon, q).worst_case() == pytest.approx(best_kernel_tv(q, epsilon), abs=1e-8)


def test_randomized_response_is_warners() -> None:
    n, epsilon = 7, 1.3
    kernel = RandomizedResponse(epsilon, dirichlet(n, seed=0)).kernel()
    expected = torch.full((n, n), 1.0).double().fill_diagonal_(math.exp(epsilon)) / (math.exp(epsilon) + n - 1)
    assert torch.allclose(kernel, expected, rtol=1e-13, atol=0)
    assert torch.equal(RandomizedResponse(epsilon, n).kernel(), kernel)


def chi_square_p(drawn: Tensor, expected: Tensor) -> float:
    counts = torch.bincount(drawn, minlength=expected.numel())
    return float(stats.chisquare(counts.numpy(), (expected * drawn.numel()).numpy()).pvalue)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 4.0])
def test_every_row_is_drawn_as_it_stands(epsilon: float) -> None:
    q = dirichlet(5, seed=6)
    minimax = MinimaxSampler(epsilon, q)
    for made in (minimax, RandomizedResponse(epsilon, 5)):
        kernel = made.kernel()
        drawn = made.sample(torch.eye(5), k=20_000, secrets=SecureSource()).T
        assert drawn.shape == (5, 20_000)
        for row in range(5):
            assert chi_square_p(drawn[row], kernel[row]) > 1e-9
    shifted = kernel[0].clone()
    shifted[shifted.argmin()] *= 2
    assert chi_square_p(drawn[0], shifted / shifted.sum()) < 1e-9, "a row that is off is seen"
