"""One state of a chain is private, two are not, and the code draws exactly the chain whose law is enumerated."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from enumeration import adversarial, fractions, is_private
from test_rejection import law
from test_sir import Scripted, curator
from torch import Tensor

from dpgen.privacy.noise import SecureSource
from dpgen.systems.mbde.densities import GaussianReference, ModelReference, UniformReference
from dpgen.systems.mbde.samplers import ChainLattice, MetropolisSampler, acceptance_words, accepted, walk

M = 5
WORD = 2**62
CUT = GaussianReference(torch.zeros(1), torch.ones(1), bounds=torch.tensor([[-1.2, 2.7]]))
LATTICES = {
    "Gaussian": ChainLattice(GaussianReference.standard(1), spacing=1.0, reach=3.0),
    "cut Gaussian": ChainLattice(CUT, spacing=0.5, reach=3.0),
    "uniform": ChainLattice(UniformReference(torch.tensor([[0.0, 8.0]])), spacing=0.25),
}


def points_of(lattice: ChainLattice) -> Tensor:
    return torch.arange(int(lattice.first), int(lattice.last) + 1)


def base(lattice: ChainLattice) -> list[int]:
    """Whole weights of Q0 at all points of a lattice on a line."""
    return [int(w) for w in lattice.weights(points_of(lattice)[:, None])[:, 0]]


def line_kernel(weights: list[int]) -> list[list[Fraction]]:
    """Exact Metropolis matrix on a line with steps of one or two; steps beyond the ends are rejected."""
    m = len(weights)
    rows = [[Fraction(0)] * m for _ in range(m)]
    for i, step in itertools.product(range(m), (-2, -1, 1, 2)):
        if 0 <= i + step < m:
            rows[i][i + step] = Fraction(1, 4) * min(1, Fraction(weights[i + step], weights[i]))
    for i in range(m):
        rows[i][i] = 1 - sum(rows[i])
    return rows


def ring_kernel(weights: list[int]) -> list[list[Fraction]]:
    """The same on a ring of M states with steps of one."""
    rows = [[Fraction(0)] * M for _ in range(M)]
    for i, step in itertools.product(range(M), (-1, 1)):
        rows[i][(i + step) % M] = Fraction(1, 2) * min(1, Fraction(weights[(i + step) % M], weights[i]))
    for i in range(M):
        rows[i][i] = 1 - sum(rows[i])
    return rows


def after(state: list[Fraction], rows: list[list[Fraction]], length: int) -> list[Fraction]:
    for _ in range(length):
        state = [sum((p * row[j] for p, row in zip(state, rows)), Fraction(0)) for j in range(len(state))]
    return state


def tilts(m: int, epsilon: float, rows: int = 10) -> list[list[int]]:
    """Whole tilts of hostile data sets, as the sampler makes them."""
    return [[int(w) for w in row] for row in acceptance_words(adversarial(m, rows=rows), epsilon / 4)]


EVEN = [Fraction(1, M)] * M


@pytest.mark.parametrize("lattice", LATTICES.values(), ids=list(LATTICES))
@pytest.mark.parametrize("epsilon", [0.25, 1.0, 5.0])
@pytest.mark.parametrize("length", [1, 2, 4])
def test_one_state_is_private_after_any_number_of_steps(lattice: ChainLattice, epsilon: float, length: int) -> None:
    """The law of the start, of every step and of the end, in whole numbers."""
    q0 = base(lattice)
    start = fractions(torch.tensor(q0))
    laws = [after(start, line_kernel([a * b for a, b in zip(q0, tilt)]), length) for tilt in tilts(len(q0), epsilon, rows=5)]
    assert is_private(laws, epsilon)


def test_a_start_that_lacks_points_of_the_lattice_is_rejected() -> None:
    """Twin: starts that never are at some points, as rounded quantiles of 52 bits beyond 6.4 scales, in small."""
    start = [Fraction(int(i == 0)) for i in range(M)]
    assert not is_private([after(start, ring_kernel(tilt), 1) for tilt in tilts(M, 1.0)], 1.0)
    assert is_private([after(EVEN, ring_kernel(tilt), 1) for tilt in tilts(M, 1.0)], 1.0)


def test_two_states_of_one_chain_are_rejected() -> None:
    """Twin: a flat tilt never stands still, a rough one does: the pair tells them apart for certain."""
    pairs = []
    for tilt in tilts(M, 1.0, rows=5):
        rows = ring_kernel(tilt)
        first = after(EVEN, rows, 3)
        pairs.append([first[i] * rows[i][j] for i in range(M) for j in range(M)])
    assert not is_private(pairs, 1.0)


def test_unclipped_tilts_are_rejected() -> None:
    rough = (adversarial(M, rows=10).clamp(-3, 3).exp() * 2.0**40).to(torch.int64).tolist()
    assert not is_private([after(EVEN, ring_kernel(tilt), 6) for tilt in rough], 1.0)


@pytest.mark.parametrize("lattice", LATTICES.values(), ids=list(LATTICES))
def test_the_code_starts_by_this_law(lattice: ChainLattice) -> None:
    """Every candidate with the last coin that accepts it and the first that does not: its share is its weight."""
    points, weights = points_of(lattice), base(lattice)
    bits = (len(points) - 1).bit_length()
    candidates = range(2**bits)  # equally likely
    for i, after_it in itertools.product(candidates, candidates[: len(points)]):
        weight = weights[i] if i < len(points) else 0
        for coin, kept in ((weight - 1, True), (weight, False)):
            if not 0 <= coin < WORD:
                continue
            places, coins = [i, after_it] + [0] * 14, [coin] + [0] * 15
            source = Scripted([p << (64 - bits) for p in places] + [c << 2 for c in coins])
            assert int(lattice.start(1, source)) == int(points[i if kept else after_it])


def test_weights_are_those_of_the_reference() -> None:
    lattice = LATTICES["cut Gaussian"]
    index = torch.arange(-4, 8)[:, None]
    weights = lattice.weights(index)[:, 0]
    assert weights.tolist()[:2] == [0, 0]
    assert weights.tolist()[-2:] == [0, 0]  # -1.2 and 2.7 cut off all below -1 and above 2.5
    expected = (-0.5 * (0.5 * index[2:-2, 0].double()).square()).exp()
    assert torch.allclose(weights[2:-2].double() / WORD, expected, rtol=1e-12)
    far = ChainLattice(GaussianReference.standard(2))
    assert (int(far.last[0]), int(far.first[1])) == (6 * 2**20, -6 * 2**20)
    assert int(far.weights(far.last[None]).min()) > 2**32, "and even at the ends rounding is below 1e-9"


def test_starts_follow_a_fine_lattice() -> None:
    """In every octave of the tails too: 50,000 starts against the Gaussian; 6 standard errors."""
    lattice = ChainLattice(GaussianReference(torch.zeros(2), torch.ones(2), bounds=torch.tensor([[-9.0, 9.0], [2.0, 9.0]])))
    z = lattice.start(50_000, SecureSource()).double() * lattice.spacing
    for column, low in ((z[:, 0], -6.0), (z[:, 1], 2.0)):
        for end in (-2.0, -1.0, 0.3, 2.0, 2.5, 3.0, 3.5):
            if end > low:
                ends = torch.special.ndtr(torch.tensor([low, end, 6.0], dtype=torch.float64))
                share = float((ends[1] - ends[0]) / (ends[2] - ends[0]))
                error = 6 * math.sqrt(share * (1 - share) / 50_000) + 1e-4
                assert abs(float((column <= end).double().mean()) - share) < error


def test_coins_compare_whole_numbers() -> None:
    """Of all 2^192 coins exactly those below the ratio accept, also where doubles cannot tell."""

    def decides(coin: int, old: list[int], new: list[int]) -> bool:
        words = [coin >> 128, coin >> 64 & (2**64 - 1), coin & (2**64 - 1)]
        return bool(accepted(torch.tensor([old]), torch.tensor([new]), Scripted(words)))

    generator = np.random.default_rng(0)
    for _ in range(200):
        old, new = (np.exp(generator.uniform(20, 42, 3)).astype(np.int64).tolist() for _ in range(2))
        ratio = Fraction(math.prod(new), math.prod(old))
        accepting = min(2**192, math.ceil(ratio * 2**192))
        assert decides(accepting - 1, old, new)
        assert accepting == 2**192 or not decides(accepting, old, new)
        assert decides(accepting // 2, old, new)
    assert not decides(0, [5], [0])
    assert decides(2**192 - 1, [5], [5])


def test_walk_follows_the_kernel() -> None:
    """20,000 chains of four steps on the ring against the matrix power; 6 standard errors."""
    generator, tilt = torch.Generator().manual_seed(0), torch.tensor([[0.6, -0.6, 0.3, 0.0, -0.2]], dtype=torch.float64)
    n, words = 20_000, acceptance_words(tilt, 0.6)[0]
    states = walk(
        torch.randint(M, (n, 1), generator=generator),
        length=4,
        step=lambda: 2 * torch.randint(2, (n, 1), generator=generator) - 1,
        weights=lambda s: words[s % M],
        secrets=SecureSource(),
    )
    drawn = torch.bincount(states[:, 0] % M, minlength=M) / n
    law_after = torch.tensor([float(p) for p in after(EVEN, ring_kernel(words.tolist()), 4)])
    assert ((drawn - law_after).abs() < 6 * (law_after / n).sqrt()).all()


def test_states_lie_on_a_public_lattice_inside_the_support() -> None:
    """Low digits of a float would count the accepted steps."""
    drawn = MetropolisSampler(law(), curator=curator(), length=20).sample(50) * 2**20
    assert torch.equal(drawn, drawn.round())
    box = UniformReference(torch.tensor([[0.0, 1.0], [-2.0, 2.0]]))
    drawn = MetropolisSampler(law(reference=box), curator=curator(), length=20).sample(50)
    assert bool(((drawn >= box.bounds[:, 0]) & (drawn <= box.bounds[:, 1])).all())


def test_draws_come_near_the_target() -> None:
    """f = +-B on the sides of 0 under a Gaussian: P(x > 0) is e^B / (e^B + e^-B)."""
    side = law(lambda x: 9 * x[:, 0].sign(), reference=GaussianReference.standard(1))
    drawn = MetropolisSampler(side, curator=curator(), length=100, step_size=1.5).sample(4000)
    share = float((drawn > 0).double().mean())
    assert abs(share - 1 / (1 + math.exp(-1))) < 0.05


def test_work_does_not_depend_on_the_data() -> None:
    def calls(scale: float) -> int:
        seen: list[int] = []

        def watched(x: Tensor) -> Tensor:
            seen.append(len(x))
            return scale * x[:, 0]

        MetropolisSampler(law(watched), curator=curator(), length=7).sample(10)
        return sum(seen)

    assert calls(0.0) == calls(100.0) == calls(math.nan) == 80


def test_a_reference_without_density_is_refused() -> None:
    samples = ModelReference(lambda n, g: torch.randn(n, 2, generator=g))
    with pytest.raises(ValueError, match="needs one with a density"):
        MetropolisSampler(law(reference=samples), curator=curator())


@pytest.mark.parametrize(
    ("options", "match"),
    [({"length": 0}, "length is 0"), ({"step_size": 0.0}, "step_size is 0"), ({"step_size": 1e4}, r"in \[0.001, 1000\]")],
)
def test_bad_options(options: dict[str, int], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        MetropolisSampler(law(), curator=curator(), **options)
