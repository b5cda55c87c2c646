"""One state of a chain is private, two are not, and a chain draws what its kernel says."""

import math
from fractions import Fraction

import pytest
import torch
from enumeration import adversarial, is_private
from test_rejection import law
from test_sir import ledger
from torch import Tensor

from dpgen.privacy.noise import SecureSource
from dpgen.systems.continuous.metropolis import MetropolisSampler, walk
from dpgen.systems.continuous.references import GaussianReference, ModelReference, UniformReference

M = 5


def kernel(tilt: Tensor) -> Tensor:
    """Exact Metropolis matrix on a ring of M states with uniform Q0 and steps of one, in float64."""
    matrix = torch.zeros(M, M, dtype=torch.float64)
    for i in range(M):
        for j in ((i - 1) % M, (i + 1) % M):
            matrix[i, j] = 0.5 * min(1.0, math.exp(float(tilt[j] - tilt[i])))
        matrix[i, i] = 1 - matrix[i].sum()
    return matrix


def exact(matrix: Tensor) -> list[list[Fraction]]:
    rows = [[Fraction(float(v)) for v in row] for row in matrix]
    return [[v / sum(row) for v in row] for row in rows]


def after(rows: list[list[Fraction]], length: int) -> list[Fraction]:
    state = [Fraction(1, M)] * M
    for _ in range(length):
        state = [sum((state[i] * rows[i][j] for i in range(M)), Fraction(0)) for j in range(M)]
    return state


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 5.0])
@pytest.mark.parametrize("length", [1, 2, 6])
def test_one_state_is_private_after_any_number_of_steps(epsilon: float, length: int) -> None:
    tilts = adversarial(M, rows=10).clamp(-epsilon / 4, epsilon / 4)
    assert is_private([after(exact(kernel(t)), length) for t in tilts], epsilon)


def test_two_states_of_one_chain_are_rejected() -> None:
    """Twin: a flat tilt never stands still, a rough one does: the pair tells them apart for certain."""
    tilts = adversarial(M, rows=5).clamp(-0.25, 0.25)
    pairs = []
    for tilt in tilts:
        rows = exact(kernel(tilt))
        first = after(rows, 3)
        pairs.append([first[i] * rows[i][j] for i in range(M) for j in range(M)])
    assert not is_private(pairs, 1.0)


def test_unclipped_tilts_are_rejected() -> None:
    assert not is_private([after(exact(kernel(t)), 6) for t in adversarial(M, rows=10).clamp(-3, 3)], 1.0)


def test_walk_follows_the_kernel() -> None:
    """20,000 chains of four steps on the ring against the matrix power; 6 standard errors."""
    generator, tilt = torch.Generator().manual_seed(0), torch.tensor([0.6, -0.6, 0.3, 0.0, -0.2], dtype=torch.float64)
    n = 20_000
    states = walk(
        torch.randint(M, (n, 1), generator=generator),
        length=4,
        step=lambda: 2 * torch.randint(2, (n, 1), generator=generator) - 1,
        log_density=lambda s: tilt[s[:, 0] % M],
        log_uniform=lambda: torch.rand(n, generator=generator, dtype=torch.float64).log(),
    )
    drawn = torch.bincount(states[:, 0] % M, minlength=M) / n
    law_after = torch.tensor([float(p) for p in after(exact(kernel(tilt)), 4)])
    assert ((drawn - law_after).abs() < 6 * (law_after / n).sqrt()).all()


def test_states_lie_on_a_public_lattice_inside_the_support() -> None:
    """Low digits of a float would count the accepted steps."""
    drawn = MetropolisSampler(law(), ledger=ledger(), length=20).sample(50) * 2**20
    assert torch.equal(drawn, drawn.round())
    box = UniformReference(torch.tensor([[0.0, 1.0], [-2.0, 2.0]]))
    drawn = MetropolisSampler(law(reference=box), ledger=ledger(), length=20).sample(50)
    assert bool(((drawn >= box.bounds[:, 0]) & (drawn <= box.bounds[:, 1])).all())


def test_draws_come_near_the_target() -> None:
    """f = +-B on the sides of 0 under a Gaussian: P(x > 0) is e^B / (e^B + e^-B)."""
    side = law(lambda x: 9 * x[:, 0].sign(), reference=GaussianReference.standard(1))
    drawn = MetropolisSampler(side, ledger=ledger(), length=100, step_size=1.5).sample(4000)
    share = float((drawn > 0).double().mean())
    assert abs(share - 1 / (1 + math.exp(-1))) < 0.05


def test_work_does_not_depend_on_the_data() -> None:
    def calls(scale: float) -> int:
        seen: list[int] = []

        def watched(x: Tensor) -> Tensor:
            seen.append(len(x))
            return scale * x[:, 0]

        MetropolisSampler(law(watched), ledger=ledger(), length=7).sample(10)
        return sum(seen)

    assert calls(0.0) == calls(100.0) == calls(math.nan) == 80


def test_a_reference_without_density_is_refused() -> None:
    samples = ModelReference(lambda n, g: torch.randn(n, 2, generator=g))
    with pytest.raises(ValueError, match="needs one with a density"):
        MetropolisSampler(law(reference=samples), ledger=ledger())


@pytest.mark.parametrize(("options", "match"), [({"length": 0}, "length is 0"), ({"step_size": 0.0}, "step_size is 0")])
def test_bad_options(options: dict[str, int], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        MetropolisSampler(law(), ledger=ledger(), **options)


def test_source_is_secure() -> None:
    assert isinstance(MetropolisSampler(law(), ledger=ledger())._source, SecureSource)
