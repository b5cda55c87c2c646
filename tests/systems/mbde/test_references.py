"""Public references: densities, samplers, and what is refused."""

import math
from collections.abc import Callable

import pytest
import torch
from scipy import stats
from test_sir import three_points
from tiny import statement
from torch import Tensor

from dpgen.nets import VAEBank
from dpgen.privacy.noise import SecureSource
from dpgen.systems.dpgm.model import MixtureModel
from dpgen.systems.mbde.densities import (
    GaussianReference,
    ModelReference,
    Reference,
    UniformReference,
    require_bounds,
)

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
    ("make", "match"),
    [
        (lambda: require_bounds(Scaler(), 2), "bounds is a Scaler"),  # type: ignore[arg-type]
        (lambda: require_bounds(BOX, 3), "bounds has shape"),
        (lambda: require_bounds(BOX.flip(1), 2), "every row must be finite and increasing"),
        (lambda: UniformReference(torch.tensor([[0.0, math.inf]])), "every row must be finite"),
        (lambda: GaussianReference(torch.zeros(2), torch.tensor([1.0, 0.0])), "scale is .*entries > 0"),
        (lambda: GaussianReference(torch.tensor([math.nan]), torch.ones(1)), "location is .*finite"),
        (lambda: GaussianReference(torch.zeros(1), torch.ones(1), bounds=torch.tensor([[20.0, 21.0]])), "more than 1e-6"),
        (lambda: ModelReference(lambda n, g: torch.zeros(n)), "it must be finite points"),
        (lambda: ModelReference(lambda n, g: torch.full((n, 1), math.nan)), "it must be finite points"),
    ],
)
def test_bad_references(make: Callable[[], Tensor | Reference], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()
