"""SIR draws: their exact law, its privacy, twins that lack one safeguard, and constant work."""

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from enumeration import adversarial, fractions, is_private
from refusals import refused
from scipy import stats
from tiny import statement
from torch import Tensor

from dpgen.nets import VAEBank
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.noise import SecureSource
from dpgen.systems.dpgm.model import MixtureModel
from dpgen.systems.mbde.densities import (
    Box,
    ClippedDensity,
    GaussianReference,
    ModelReference,
    Reference,
    SIRSampler,
    UniformReference,
    bounded,
    chosen,
    evaluated,
    mollified,
    require_bounds,
    whole_weights,
)

BOXES = [(1e-6, None), (0.25, None), (1.0, None), (1.0, 0.05), (5.0, None), (5.0, 0.01), (100.0, None)]


def curator() -> Curator:
    return Curator(Ledger(Budget(1e6, 0.0), relation="replace_one", unit="the whole data set"))


class Scripted(SecureSource):
    """Gives the words it is told."""

    def __init__(self, script: list[int]) -> None:
        super().__init__()
        self.script = script

    def random_bytes(self, count: int) -> bytes:
        used, self.script = self.script[: count // 8], self.script[count // 8 :]
        return np.array(used, np.uint64).tobytes()


@pytest.mark.parametrize(("epsilon", "alpha"), BOXES)
@pytest.mark.parametrize("m", [2, 7, 100])
def test_the_law_of_a_draw_is_private_for_every_codebook(epsilon: float, alpha: float | None, m: int) -> None:
    weights = whole_weights(adversarial(m, rows=15), Box.of(epsilon, alpha))
    assert bool((weights.sum(1) == 2**62).all())
    assert is_private([fractions(row) for row in weights], epsilon)


@pytest.mark.parametrize("m", [2, 3, 100, 1024, 2**16])
def test_whole_weights_are_the_real_ones_up_to_rounding(m: int) -> None:
    box = Box.of(1.0)
    rows = adversarial(m, rows=5)
    weights = whole_weights(rows, box).double() * m / 2.0**62
    assert (weights - mollified(rows, box)).abs().max() < 1e-9


def test_unclipped_ratios_are_rejected() -> None:
    weights = (torch.softmax(adversarial(7, rows=15), 1) * 2.0**52).to(torch.int64)
    assert not is_private([fractions(row) for row in weights], 5.0)


def test_a_box_that_follows_the_data_is_rejected() -> None:
    """Twin: a public width, but the lower edge set by the private ratios."""
    rows = [torch.tensor([[0.0, 0.0, 0.0, 4.0]]), torch.tensor([[4.0, 0.0, 0.0, 0.0]]), torch.tensor([[0.0, 4.0, 4.0, 4.0]])]
    laws = []
    for row in rows:
        share = float((row > 1).double().mean())  # the optimal alpha of these data
        laws.append(fractions(whole_weights(row.double(), Box.of(2.0, share))[0]))
    assert not is_private(laws, 2.0)
    assert is_private([fractions(whole_weights(row.double(), Box.of(2.0, 0.25))[0]) for row in rows], 2.0)


def test_garbage_logits_count_as_zero_or_as_the_limit() -> None:
    garbage = torch.tensor([math.nan, math.inf, -math.inf, 1e30, -1e30])
    values = evaluated(lambda x: garbage, torch.zeros(5, 1))
    assert values.tolist() == [0.0, 0.0, 0.0, 50.0, -50.0]
    assert is_private([fractions(whole_weights(v[None], Box.of(1.0))[0]) for v in (values, values.flip(0), 0 * values)], 1.0)


def test_an_index_has_exactly_its_share_of_the_words() -> None:
    weights = whole_weights(torch.tensor([[0.0, 1.0, 2.0]], dtype=torch.float64), Box.of(2.0))
    ends = weights.cumsum(1)[0].tolist()
    words = [0, ends[0] - 1, ends[0], ends[1] - 1, ends[1], ends[2] - 1]
    source = Scripted([w << 2 | 3 for w in words])
    assert chosen(weights.expand(6, 3), source).tolist() == [0, 0, 1, 1, 2, 2]


def three_points(n: int, generator: torch.Generator) -> Tensor:
    return torch.randint(3, (n, 1), generator=generator).double()


def law(function: object = None, *, epsilon: float = 2.0, reference: object = None) -> ClippedDensity:
    q0 = reference or GaussianReference.standard(2)
    return ClippedDensity(function or (lambda x: x.sum(1)), q0, box=Box.of(epsilon), epsilon=epsilon)  # type: ignore[arg-type]


def test_draws_follow_the_law() -> None:
    """Three atoms, codebook of 4: the exact law by listing all 81 codebooks; 6 standard errors."""
    scores = torch.tensor([0.0, 1.5, -1.0], dtype=torch.float64)
    books = torch.cartesian_prod(*[torch.arange(3)] * 4)
    weights = whole_weights(scores[books], Box.of(2.0)).double() / 2.0**62
    exact = torch.stack([(weights * (books == atom)).sum(1).mean() for atom in range(3)])
    sampler = SIRSampler(
        law(lambda x: scores[x[:, 0].long()], reference=ModelReference(three_points)), curator=curator(), codebook=4
    )
    drawn = torch.bincount(sampler.sample(20_000)[:, 0].long(), minlength=3) / 20_000
    assert ((drawn - exact).abs() < 6 * (exact * (1 - exact) / 20_000).sqrt()).all()
    assert (exact - 1 / 3).abs().max() > 0.1


def test_work_does_not_depend_on_the_data() -> None:
    def counted(function: object) -> list[int]:
        rows: list[int] = []

        def watched(x: Tensor) -> Tensor:
            rows.append(len(x))
            return function(x)  # type: ignore[operator]

        SIRSampler(law(watched), curator=curator(), codebook=64).sample(100)
        return rows

    assert counted(lambda x: x[:, 0]) == counted(lambda x: 1e9 * x[:, 0]) == counted(lambda x: x[:, 0] * math.nan)
    assert sum(counted(lambda x: x[:, 0])) == 100 * 64


@pytest.mark.parametrize(("codebook", "epsilon"), [(1, 1.0), (2**17, 1.0), (3.5, 1.0), (True, 1.0), (1024, 2.0)])
def test_codebooks_out_of_range_and_boxes_wider_than_epsilon_are_refused(codebook: int, epsilon: float) -> None:
    density = ClippedDensity(lambda x: x.sum(1), GaussianReference.standard(1), box=Box.of(epsilon), epsilon=1.0)
    with refused("codebook" if epsilon == 1.0 else "box"):
        SIRSampler(density, curator=curator(), codebook=codebook)


# -- densities ---------------------------------------------------------------------------------------------------------


BOX = torch.tensor([[-1.0, 2.0], [0.0, 5.0]])
EVERY = [
    GaussianReference.standard(1),
    GaussianReference(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 3.0])),
    GaussianReference(torch.tensor([0.5, 2.5]), torch.tensor([0.75, 1.25]), bounds=BOX),
    UniformReference(BOX),
    ModelReference(three_points),
]


@pytest.mark.parametrize("reference", EVERY, ids=repr)
def test_draws_are_fresh_points_of_the_right_shape(reference: Reference) -> None:
    source = SecureSource()
    first, second = reference.draw(50, source), reference.draw(50, source)
    assert first.shape == (50, reference.d)
    assert first.dtype == torch.float64
    assert not torch.equal(first, second)
    again = [reference.sample(5, generator=torch.Generator().manual_seed(0)) for _ in range(2)]
    assert torch.equal(*again)
    assert reference.standardised(first).dtype == torch.float32
    assert reference.evaluation_points(64).shape == (64, reference.d)


@pytest.mark.parametrize("reference", EVERY[1:4], ids=repr)
def test_density_integrates_to_one_and_is_what_is_drawn(reference: GaussianReference) -> None:
    low, high = reference.location - 8 * reference.scale, reference.location + 8 * reference.scale
    steps = (torch.arange(600, dtype=torch.float64) + 0.5) / 600
    x = torch.cartesian_prod(*[a + (b - a) * steps for a, b in zip(low, high)])
    density = reference.log_prob(x).exp()
    assert float(density.sum() * ((high - low) / 600).prod()) == pytest.approx(1, abs=4e-2)
    mean = (density[:, None] * x).sum(0) / density.sum()
    for drawn in (reference.draw(20_000, SecureSource()), reference.sample(20_000, generator=torch.Generator().manual_seed(1))):
        error = drawn.std(0) / math.sqrt(20_000)
        assert ((drawn.mean(0) - mean).abs() < 6 * error + 0.02).all()
        if reference.bounds is not None:
            assert bool(((drawn >= BOX[:, 0]) & (drawn <= BOX[:, 1])).all())


def test_gaussian_against_scipy() -> None:
    x = torch.linspace(-3, 3, 20, dtype=torch.float64)[:, None]
    plain = GaussianReference(torch.tensor([0.5]), torch.tensor([2.0]))
    assert torch.allclose(plain.log_prob(x), torch.from_numpy(stats.norm(0.5, 2).logpdf(x[:, 0].numpy())))
    cut = GaussianReference(torch.tensor([0.0]), torch.tensor([1.0]), bounds=torch.tensor([[-1.0, 2.0]]))
    assert torch.allclose(cut.log_prob(x), torch.from_numpy(stats.truncnorm(-1, 2).logpdf(x[:, 0].numpy())))


def test_quasi_random_points_integrate_well() -> None:
    x = GaussianReference.standard(2).evaluation_points(2**14)
    assert abs(float((x**2).sum(1).mean()) - 2) < 2e-3


def test_a_released_model_is_a_reference_without_density() -> None:
    bank = VAEBank(1, 4, hidden=2, latent=1)
    bank.initialize(torch.Generator().manual_seed(0))
    released = MixtureModel(bank, counts=torch.ones(1), statement=statement())
    samples = ModelReference(released)
    assert samples.draw(5, SecureSource()).shape == (5, 4)
    with pytest.raises(ValueError, match="ModelReference has no density"):
        samples.log_prob(torch.zeros(1, 1))


class Scaler:
    """Looks like a fitted scaler of scikit-learn."""

    def fit(self) -> None: ...

    def transform(self) -> None: ...


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: require_bounds(Scaler(), 2), "bounds"),  # type: ignore[arg-type]
        (lambda: require_bounds(BOX, 3), "bounds"),
        (lambda: require_bounds(BOX.flip(1), 2), "bounds"),
        (lambda: UniformReference(torch.tensor([[0.0, math.inf]])), "bounds"),
        (lambda: GaussianReference(torch.zeros(2), torch.tensor([1.0, 0.0])), "scale"),
        (lambda: GaussianReference(torch.tensor([math.nan]), torch.ones(1)), "location"),
        (lambda: GaussianReference(torch.zeros(1), torch.ones(1), bounds=torch.tensor([[20.0, 21.0]])), "bounds"),
        (lambda: ModelReference(lambda n, g: torch.zeros(n)), "reference"),
        (lambda: ModelReference(lambda n, g: torch.full((n, 1), math.nan)), "reference"),
        *((lambda e=e: Box.of(e), "epsilon") for e in (0.0, math.nan, math.inf, 1e-9, 1000.0, True)),
        *((lambda alpha=alpha: Box.of(1.0, alpha), "alpha") for alpha in (0.0, 1.0, math.nan)),
        (lambda: Box(0.0, 2.0), "low"),
        (lambda: bounded(torch.zeros(3, 2), 3), "values"),
    ],
)
def test_what_is_out_of_range_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize("epsilon", [1e-6, 0.25, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("alpha", [None, 0.01, 0.99])
def test_a_box_never_exceeds_its_budget_and_uses_it(epsilon: float, alpha: float | None) -> None:
    box = Box.of(epsilon, alpha)
    assert epsilon * (1 - 1e-8) - 1e-15 <= box.epsilon <= epsilon
    assert box.low < 1 < box.high


@pytest.mark.parametrize("m", [2, 3, 64])
@pytest.mark.parametrize("box", [Box.of(0.01), Box.of(1.0), Box.of(5.0, 0.05), Box.of(40.0)], ids=str)
def test_weights_stay_in_the_box_with_mean_one(m: int, box: Box) -> None:
    weights = mollified(adversarial(m), box)
    assert bool((weights >= box.low).all())
    assert bool((weights <= box.high).all())
    assert (weights.mean(1) - 1).abs().max() < 1e-12


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 5.0])
def test_steep_ratios_are_solved_to_the_end(epsilon: float) -> None:
    """Newton alone creeps here and leaves the rest to a constant: the solution must be one clipped multiple of the ratio."""
    z = torch.special.ndtri((torch.arange(4000, dtype=torch.float64) + 0.5) / 4000)
    for slope in (0.1, 1.0, 3.0, 8.0, 30.0):
        log_ratio, box = (slope * (z.abs() - 2)).clamp(-50, 50), Box.of(epsilon)
        best = mollified(log_ratio, box)
        inside = (best > box.low * (1 + 1e-4)) & (best < box.high * (1 - 1e-4))
        if bool(inside.any()):
            constant = (log_ratio - best.log())[inside]
            assert constant.max() - constant.min() < 1e-9
            assert torch.allclose((log_ratio - constant.mean()).exp().clamp(box.low, box.high), best, rtol=1e-5)


GRID = torch.linspace(-8, 8, 4001, dtype=torch.float64)[:, None]


def mass(made: ClippedDensity) -> float:
    return float((made.reference.log_prob(GRID) + made.log_ratio(GRID)).exp().sum() * (GRID[1] - GRID[0]))


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 5.0])
def test_ratios_are_normalised_and_in_the_box(epsilon: float) -> None:
    reference = GaussianReference.standard(1)
    made = ClippedDensity(lambda x: 3 * x[:, 0], reference, box=Box.of(epsilon), epsilon=epsilon)
    assert mass(made) == pytest.approx(1, abs=2e-3)
    ratio = made.log_ratio(GRID)
    assert ratio.max() - ratio.min() <= epsilon * (1 + 1e-9)


def test_a_law_stays_here() -> None:
    made = law()
    for leave in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be saved"):
            leave(made)
    assert "function" not in repr(made)
