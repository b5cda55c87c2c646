"""The released Gaussian mixture: densities, classes, draws, and the post-processing of draws."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from refusals import refused
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from dpgen.release import RecordLayout
from dpgen.systems.gaussian.model import (
    Calibration,
    Components,
    GaussianMixtureModel,
    LatentMixture,
    PostProcessing,
    Subspace,
    Warp,
    calibrated_thresholds,
)
from dpgen.systems.registry import load

D, M = 16, 3


def model(n_classes: int = 2, **details: Any) -> GaussianMixtureModel:
    """Four components in three of sixteen directions, two of each class."""
    generator = torch.Generator().manual_seed(0)
    axes = torch.linalg.qr(torch.randn(D, M, generator=generator).double())[0]
    subspace = Subspace(torch.full((D,), 0.5).double(), axes, torch.tensor([2.0, 1.5, 1.0]).double(), 0.1, torch.ones(M))
    vectors = torch.linalg.qr(torch.randn(4, M, M, generator=generator).double())[0]
    mixture = LatentMixture(
        weights=torch.tensor([0.4, 0.1, 0.2, 0.3]).double(),
        means=torch.randn(4, M, generator=generator).double() / 3,
        vectors=vectors,
        eigenvalues=torch.tensor([[0.09, 0.04, 0.0]]).repeat(4, 1).double(),
        rest=torch.full((4,), 0.01).double(),
    )
    shape, columns = details.pop("image_shape", (4, 4)), details.pop("columns", None)
    classes = torch.tensor([0, 0, 1, 1]) if n_classes else torch.zeros(4, dtype=torch.int64)
    counts = torch.tensor([400.0, 100.0, 200.0, 300.0])
    made, layout = Components(mixture, mixture, classes, counts), RecordLayout(n_classes, shape, columns)
    return GaussianMixtureModel(subspace, made, statement=tiny.statement(), layout=layout, **details)


def covariances(mixture: LatentMixture) -> Tensor:
    """Of the draws, (k, m, m)."""
    return (mixture.vectors * mixture.eigenvalues[:, None, :]) @ mixture.vectors.transpose(1, 2)


def test_the_density_is_a_normal_mixture_in_all_directions() -> None:
    made = model(residual=0.02)
    x = torch.rand(30, D, generator=torch.Generator().manual_seed(1)).double()
    total = torch.zeros(30).double()
    axes = made.subspace.axes * made.subspace.scales
    outside = torch.eye(D).double() - made.subspace.axes @ made.subspace.axes.T
    for weight, mean, covariance in zip(made.mixture.weights, made.mixture.means, covariances(made.mixture.filled())):
        whole = axes @ covariance @ axes.T + 0.02 * outside
        normal = torch.distributions.MultivariateNormal(made.subspace.mean + axes @ mean, whole)
        total += weight * normal.log_prob(x.float().double()).exp()
    assert torch.allclose(made.log_prob(x).exp(), total, rtol=1e-4)


def test_draws_are_classified_as_what_they_are() -> None:
    made = model()
    generator = torch.Generator().manual_seed(0)
    component = torch.arange(4).repeat_interleave(200)
    x = made.values(component, generator)
    right = float((made.classify(x) == made.classes[component]).double().mean())
    assert right > 0.7
    assert made.assign(x) is None
    assert model(0).assign(x) is not None
    with refused("n_classes=0"):
        model(0).classify(x)


def test_conditional_draws() -> None:
    made = model()
    by_class = made.samples(200, random_state=0, clusters=[1])
    assert by_class.labels is not None
    assert set(by_class.labels.tolist()) == {1}
    assert set(model(0).samples(200, random_state=0, clusters=[2]).cluster.tolist()) == {2}
    shares = torch.bincount(made.samples(20_000, random_state=1).labels) / 20_000  # type: ignore[arg-type]
    assert shares.tolist() == pytest.approx([0.5, 0.5], abs=0.02)
    for classes, missing in ((2, 2), (0, 4)):
        with refused("clusters"):
            model(classes).samples(5, clusters=[missing])


def test_another_warp_keeps_the_marginals() -> None:
    marginals = torch.linspace(0.1, 0.9, D).double()
    made = model(calibration=Calibration(marginals=marginals))
    for warp in (None, Warp.of_strength(1.0, (4, 4))):
        x = made.with_warp(warp).samples(20_000, random_state=3).x.double()
        assert torch.allclose(x.mean(0), marginals, atol=0.02)
    with refused("image_shape is None"):
        model(image_shape=None).with_warp(None)


def test_everything_survives_a_file(tmp_path: Path) -> None:
    post = PostProcessing(warp=Warp(), grey=True, threshold=0.4)
    calibration = Calibration(thresholds=torch.full((D,), 0.5), jitter=torch.full((D,), 0.1), marginals=torch.full((D,), 0.5))
    made = model(post=post, calibration=calibration, columns=[f"c{i}" for i in range(D)])
    made.save(tmp_path / "a")
    loaded = load(tmp_path / "a")
    assert isinstance(loaded, GaussianMixtureModel)
    first, second = made.samples(50, random_state=4), loaded.samples(50, random_state=4)
    assert first.grey is not None
    assert second.grey is not None
    assert torch.equal(first.grey, second.grey)
    assert torch.equal(first.x, second.x)
    assert (loaded.columns, loaded.post) == (made.columns, post)
    x = torch.rand(5, D)
    assert torch.allclose(loaded.log_prob(x), made.log_prob(x))


def test_tilts_resample() -> None:
    generator = torch.Generator().manual_seed(0)
    made = model(calibration=Calibration(tilt=torch.diag(torch.tensor([3.0] + [0.0] * (D - 1))).double()))
    plain = replace(made.calibration, tilt=None)
    tilted = float(made.samples(4000, random_state=0).x[:, 0].double().mean())
    made.calibration = plain
    assert tilted > float(made.samples(4000, random_state=0).x[:, 0].double().mean()) + 0.1
    assert made.values(torch.zeros(7, dtype=torch.int64), generator).shape == (7, D)
    assert made.samples(0).x.shape == (0, D)
    assert made.size == 1000


# -- in the coordinates ---------------------------------------------------------------------------------------------------


def mixture() -> LatentMixture:
    """Two components in two dimensions, the second of rank one."""
    turn = torch.tensor([[0.8, -0.6], [0.6, 0.8]]).double()
    return LatentMixture(
        weights=torch.tensor([0.3, 0.7]).double(),
        means=torch.tensor([[0.0, 0.0], [3.0, 1.0]]).double(),
        vectors=torch.stack([torch.eye(2).double(), turn]),
        eigenvalues=torch.tensor([[1.0, 0.25], [0.5, 0.0]]).double(),
        rest=torch.tensor([0.01, 0.04]).double(),
    )


@pytest.mark.parametrize("filled", [False, True])
def test_draws_have_the_moments(filled: bool) -> None:
    made = mixture().filled() if filled else mixture()
    u = made.draw(1, 40_000, torch.Generator().manual_seed(0)).double()
    assert torch.allclose(u.mean(0), made.means[1], atol=0.02)
    assert torch.allclose(u.T.cov(), covariances(made)[1], atol=0.02)
    assert int(torch.linalg.matrix_rank(u.T.cov(), tol=1e-6)) == (2 if filled else 1)


# -- post-processing ---------------------------------------------------------------------------------------------------


def test_the_fast_grid_is_pytorchs() -> None:
    x = torch.rand(4, 48, generator=torch.Generator().manual_seed(0))
    warped = Warp(10.0, 0.1, 1.0)(x, (6, 8), torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(3)
    angle = torch.randn(4, generator=generator).deg2rad() * 10.0
    scale = 1.0 + 0.1 * torch.randn(4, generator=generator)
    shift = torch.randn(4, 2, generator=generator) * torch.tensor([2.0 / 8, 2.0 / 6])
    cos, sin = angle.cos() * scale, angle.sin() * scale
    maps = torch.stack([torch.stack([cos, -sin, shift[:, 0]], 1), torch.stack([sin, cos, shift[:, 1]], 1)], 1)
    grid = affine_grid(maps, [4, 1, 6, 8], align_corners=False)
    slow = grid_sample(x.reshape(4, 1, 6, 8), grid, align_corners=False).flatten(1)
    assert torch.allclose(warped, slow, atol=1e-5)


def test_thresholds_give_the_marginals_of_every_feature() -> None:
    pilot = torch.randn(1000, 6, generator=torch.Generator().manual_seed(0)) * torch.arange(1.0, 7.0)
    wanted = torch.tensor([0.0, 0.1, 0.25, 0.5, 0.99, 1.0])
    found = (pilot > calibrated_thresholds(pilot, wanted)).double().mean(0)
    assert torch.allclose(found, wanted.double(), atol=1e-3)
