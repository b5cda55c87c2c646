"""Gaussians of images: the public map of frequencies, exact sums, clean-up, what is released."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import dpgen
from dpgen.data import Images
from dpgen.facts import Fact
from dpgen.nets.cosines import cosines
from dpgen.privacy.curator import Curator, GaussianBudget
from dpgen.privacy.exact_sums import GRAM_GRID
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.systems.gaussian.images import (
    BORDER,
    EVEN,
    ODD,
    Frequencies,
    GaussianImages,
    Moments,
    cleaned,
    fit_images,
    image_sums,
)
from dpgen.systems.gaussian.plan import GaussianConfig

SHAPES = [(12, 12, 3), (10, 8, 3), (9, 12, 1)]


def pictures(n: int, shape: tuple[int, ...] = (12, 12, 3), seed: int = 0) -> Tensor:
    """Smooth random images."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(n, shape[2], 4, 4, generator=generator) * 255
    fine = torch.nn.functional.interpolate(coarse, shape[:2], mode="bilinear") + torch.randn(
        n, 1, *shape[:2], generator=generator
    )
    return fine.clamp(0, 255).byte().permute(0, 2, 3, 1).contiguous()


def stripes(n: int = 1200, side: int = 12) -> Images:
    """Bright above, or bright on both sides, in other colours: two classes that their mirror images belong to as well."""
    x = pictures(n, (side, side, 3)).float() / 3
    labels = torch.arange(n) % 2
    x[labels == 0, : side // 2, :, 0] += 140
    x[labels == 1, :, :: side // 3, 2] += 140
    test = slice(0, n // 6)
    x = x.byte()
    return Images("stripes", x[n // 6 :], labels[n // 6 :], x[test], labels[test], class_names=("above", "beside"))


# -- the map -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_the_map_is_that_of_its_formulas(shape: tuple[int, int, int]) -> None:
    x, map = pictures(5, shape), Frequencies(shape, 30)
    height, width, channels = shape
    opponent = torch.tensor([[1.0, 1, 1], [1, 0, -1], [1, -2, 1]]).double()
    turn = torch.nn.functional.normalize(opponent) if channels == 3 else torch.ones(1, 1).double()
    planes = torch.einsum("nhwc,kc->nkhw", x.double() / 255 - 0.5, turn)
    spectrum = cosines(height) @ planes @ cosines(width).T / math.sqrt(height * width)
    side, u = math.sqrt(height * width), map.coefficients(x)
    column = 0
    for c in range(channels):
        f = [(math.hypot(i * side / height, j * side / width), i, j) for i in range(height) for j in range(width)]
        for frequency, i, j in sorted(f)[: len(map.kept[c])]:
            expected = spectrum[:, c, i, j] * (1, 4, 6)[c] * (1 + frequency)
            torch.testing.assert_close(u[:, column], expected, atol=1e-9, rtol=0)
            column += 1
    logs, even, odd = map.encode(x)
    assert column == u.shape[1] == map.even_size - len(map.block_sizes) + map.odd_size
    for b, m in enumerate(map.block_sizes.tolist()):
        radius = u[:, map.block == b].norm(dim=1)
        expected = 0.1 * (radius / (0.14 * math.sqrt(m))).log().clamp(-1.2, 1.2)
        torch.testing.assert_close(logs[:, b], expected, atol=6e-4, rtol=0)
    assert float((even.square().sum(1) + odd.square().sum(1)).max()) <= 1.0


def test_a_mirror_image_changes_the_sign_of_odd_coordinates_alone() -> None:
    x, map = pictures(4), Frequencies((12, 12, 3), 30)
    for one, two, sign in zip(map.encode(x), map.encode(x.flip(2)), (1, 1, -1)):
        torch.testing.assert_close(one, sign * two, atol=1e-12, rtol=0)
    assert Frequencies((12, 12, 3), 30, mirror=False).odd_size == 0


@pytest.mark.parametrize("value", [0, 128, 255])
def test_images_without_contrast_have_coordinates(value: int) -> None:
    x = torch.full((2, 12, 12, 3), value, dtype=torch.uint8)
    assert all(bool(torch.isfinite(part).all()) for part in Frequencies((12, 12, 3)).encode(x))


@pytest.mark.parametrize("shape", SHAPES)
def test_images_come_back_blurred(shape: tuple[int, int, int]) -> None:
    x, map = pictures(20, shape), Frequencies(shape, shape[0] * shape[1] // 2)
    back = map.decode(*map.encode(x), torch.Generator().manual_seed(0))
    assert back.shape == x.shape
    assert float((back.float() - x.float()).abs().mean()) < 0.45 * float((x.float() - x.float().mean()).abs().mean())


# -- sums --------------------------------------------------------------------------------------------------------------


def test_sums_are_those_of_single_images_bit_for_bit() -> None:
    x, labels, map = pictures(9), torch.arange(9) % 3, Frequencies((12, 12, 3), 20)
    whole = image_sums(x, labels, map, k=3).values
    single = [image_sums(x[i : i + 1], labels[i : i + 1], map, k=3).values for i in range(9)]
    assert torch.equal(whole, torch.stack(single).sum(0))
    assert torch.equal(whole, image_sums(x.flip(0), labels.flip(0), map, k=3).values)
    assert int(image_sums(x[:0], labels[:0], map, k=3).values.abs().sum()) == 0


def test_sums_are_the_moments_of_images_and_mirror_images() -> None:
    x, map = pictures(6), Frequencies((12, 12, 3), 20)
    sums = image_sums(x, torch.zeros(6).long(), map, k=1)
    both = torch.cat([x, x.flip(2)])
    logs, even, odd = map.encode(both)
    for part, most in ((even, EVEN), (odd, ODD)):
        part *= (math.sqrt(most) / part.norm(dim=1, keepdim=True)).clamp_max(1.0)
    p = 1 + map.even_size
    v = torch.cat([torch.full((12, 1), BORDER).double(), logs, even], 1)
    values = sums.values.double() / GRAM_GRID**2
    torch.testing.assert_close(values[: p * p].reshape(p, p), v.T @ v / 2, atol=1e-3, rtol=0)
    torch.testing.assert_close(values[p * p :].reshape(map.odd_size, -1), odd.T @ odd / 2, atol=1e-3, rtol=0)
    assert float((v.T @ odd).abs().max()) < 1e-9


# -- release -----------------------------------------------------------------------------------------------------------


def released(images: Images, epsilon: float, **options: object) -> GaussianImages:
    budget = Budget(epsilon, 1e-5)
    config = GaussianConfig(**options)  # type: ignore[arg-type]
    return fit_images(images, config, GaussianBudget(Curator(Ledger(budget)), budget, "fit"))


def test_a_release_learns_its_classes() -> None:
    images = stripes()
    model = released(images, 20.0, frequencies=20)
    assert float((model.classify(images.test_x) == images.test_labels).double().mean()) > 0.95
    samples = model.samples(200, random_state=1)
    assert (samples.x.shape, samples.x.dtype) == ((200, 12, 12, 3), torch.uint8)
    red, blue = (samples.x[samples.labels == c].float().mean((0, 1, 2)) for c in (0, 1))
    assert red[0] > red[2] + 10
    assert blue[2] > blue[0] + 10
    assert abs(model.size - images.n) < 100
    assert model.samples(0).x.shape == (0, 12, 12, 3)
    assert set(model.samples(20, clusters=[1]).labels.tolist()) == {1}


def test_too_small_a_budget_knows_nothing() -> None:
    images = stripes()
    model = released(images, 0.01, frequencies=20)
    assert model.statement.says(Fact.NOT_FITTED)
    assert float((model.classify(images.test_x) == images.test_labels).double().mean()) < 0.7
    assert model.samples(5).x.shape == (5, 12, 12, 3)


@pytest.mark.parametrize("few", [0, 3])
def test_a_class_of_few_images_has_the_gaussian_of_all(few: int) -> None:
    images = stripes()
    kept = (images.labels == 0) | (torch.arange(images.n) < 2 * few)
    model = released(Images("few", images.x[kept], images.labels[kept], images.test_x, images.test_labels,
                            class_names=("many", "few")), 3.0, frequencies=12)  # fmt: skip
    assert Fact.POOLED_CLASSES(classes="1", records="images") in model.statement.facts
    assert torch.equal(model.means[0], model.means[1])
    assert model.samples(5, clusters=[1]).labels.tolist() == [1] * 5


@pytest.mark.parametrize("noise_std", [0.01, 1.0, 100.0])
def test_cleaned_covariances_are_positive_whatever_the_noise(noise_std: float) -> None:
    map = Frequencies((12, 12, 3), 20)
    sums = image_sums(pictures(60), torch.arange(60) % 3, map, k=3)
    noise = torch.from_numpy(np.random.default_rng(0).normal(size=len(sums.values))) * noise_std
    for part in cleaned(Moments.of(sums.values.double() * sums.step + noise, noise_std, map, 3)):
        assert bool(torch.isfinite(part).all())
        if part.ndim == 3:
            assert float(torch.linalg.eigvalsh(part).min()) > 0


def test_without_noise_moments_are_those_of_the_images() -> None:
    images, map = stripes(), Frequencies((12, 12, 3), 12)
    sums = image_sums(images.x, images.labels, map, k=2)
    moments = Moments.of(sums.values.double() * sums.step, 1e-9, map, 2)
    assert moments.counts.tolist() == pytest.approx([500, 500], rel=1e-4)
    result = cleaned(moments)
    torch.testing.assert_close(result.means, moments.means, atol=3e-3, rtol=0)
    pool = moments.even.mean(0)
    assert float((result.even - moments.even).norm()) < 0.4 * float((pool - moments.even).norm())


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "options"),
    [
        *(("images", option) for option in ({"warp": 0.5}, {"clusters": "kmeans"})),
        *(("records", option) for option in ({"frequencies": 50}, {"mirror": False})),
    ],
)
def test_options_that_the_data_would_ignore_are_refused(data: str, options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} is .* the data are {data}"):
        dpgen.fit(stripes(60) if data == "images" else "digits", "gaussian", epsilon=1.0, **options)
