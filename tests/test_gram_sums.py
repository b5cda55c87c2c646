"""Noisy sums: against loops, and audited with worst-case neighbours beside mechanisms that must be caught."""

import math

import pytest
import torch
from torch import Tensor

from dpgen.privacy.noise import SecureSource
from dpgen.systems.gaussian.gram_sums import (
    clipped,
    from_triangle,
    gram_sensitivity,
    gram_sums,
    release_grams,
    spectral_noise,
    sum_sensitivity,
    triangle,
    vector_sums,
)
from dpgen.systems.gaussian.record_stream import RecordStream

A = 0.5


def by_label(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    assert labels is not None
    return x * 2.0 - 1.0, labels


@pytest.fixture
def stream() -> RecordStream:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(50, 3, generator=generator)
    return RecordStream(x, torch.arange(50) % 4, batch_size=7)


def slow(stream: RecordStream, k: int) -> tuple[Tensor, Tensor]:
    """Sums record by record."""
    grams, sums = torch.zeros(k, 4, 4).double(), torch.zeros(k, 5).double()
    assert stream.labels is not None
    for x, c in zip(stream.x.double() * 2 - 1, stream.labels.tolist()):
        u = x / max(1.0, float(x.norm()))
        v = torch.cat([torch.tensor([A]).double(), u])
        grams[c] += torch.outer(v, v)
        sums[c] += torch.cat([v, 0.3 * u.square().sum()[None]])
    return grams, sums


def test_sums_are_those_of_a_loop_whatever_the_batches(stream: RecordStream) -> None:
    grams, sums = slow(stream, 5)
    assert torch.allclose(gram_sums(stream, by_label, k=5, m=3, border=A), grams, atol=1e-4)
    assert torch.allclose(vector_sums(stream, by_label, k=5, m=3, border=A, square=0.3), sums, atol=1e-4)
    assert not grams[4].any(), "an empty cluster sums to zero"


def test_clipped_rows_never_exceed_one_and_short_rows_are_kept() -> None:
    u = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [1e20, 1e20]])
    rows = clipped(u)
    assert float(rows.norm(dim=1).max()) <= 1.0
    assert torch.allclose(rows[1], u[1].double(), atol=2.0**-18)
    assert not rows[2].any()


def test_the_triangle_is_an_isometry() -> None:
    matrix = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0)).double()
    matrix = matrix + matrix.transpose(1, 2)
    assert torch.allclose(triangle(matrix).norm(dim=1), matrix.flatten(1).norm(dim=1))
    assert torch.allclose(from_triangle(triangle(matrix), 4), matrix)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_sensitivities_are_reached_and_not_exceeded(m: int) -> None:
    generator = torch.Generator().manual_seed(m)
    u = torch.randn(4000, m, generator=generator).double()
    u = torch.cat([u / u.norm(dim=1, keepdim=True), u / 4, torch.zeros(1, m).double()])
    u = u / u.norm(dim=1, keepdim=True).clamp_min(1.0)
    v = torch.cat([torch.full((len(u), 1), A).double(), u], 1)
    grams = triangle(v[:, :, None] * v[:, None, :])
    assert float(grams.norm(dim=1).max()) == pytest.approx(gram_sensitivity(A), rel=1e-9)
    assert float(v.norm(dim=1).max()) == pytest.approx(sum_sensitivity(A), rel=1e-9)
    half = torch.randperm(len(u), generator=generator)
    moved = (grams - grams[half]).norm(dim=1).max()
    assert float(moved) <= math.sqrt(2.0) * gram_sensitivity(A) + 1e-9, "replace-one"
    assert float((v - v[half]).norm(dim=1).max()) <= 2.0 + 1e-9


# -- audit -----------------------------------------------------------------------------------------------------------


def lower_mu(release: "Release", extra: Tensor, runs: int = 4000) -> float:
    """A lower bound (99.9999 %) on mu of Gaussian-DP: separation of the two worlds along their difference of means."""
    base = torch.zeros(0, extra.shape[1])
    without, present = (torch.stack([release(x) for _ in range(runs)]) for x in (base, torch.cat([base, extra])))
    direction = release.exact(extra) - release.exact(base)
    direction = direction / direction.norm()
    a, b = without @ direction, present @ direction
    spread = float((a.std() + b.std()) / 2)
    return float(b.mean() - a.mean()) / spread - 5.0 * math.sqrt(2.0 / runs)


class Release:
    """(count, mean, second moment) in two dimensions with unit noise multiplier: sound, or wrong in one way."""

    def __init__(self, wrong: str = "") -> None:
        self.wrong, self.source = wrong, SecureSource()

    def exact(self, x: Tensor) -> Tensor:
        def encode(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
            centre = x.mean(0) if self.wrong == "private centre" and len(x) else torch.zeros(2)
            u = x - centre if self.wrong == "private centre" else x
            return u if self.wrong != "unclipped" else u / 3.0, torch.zeros(len(x), dtype=torch.int64)

        if not len(x):
            return triangle(torch.zeros(1, 3, 3).double())[0]
        sums = gram_sums([(x, None)], encode, k=1, m=2, border=A)
        return triangle(sums * (9.0 if self.wrong == "unclipped" else 1.0))[0]

    def __call__(self, x: Tensor) -> Tensor:
        border = 0.0 if self.wrong == "second moment only" else A
        sums = from_triangle(self.exact(x)[None], 3)
        if self.wrong == "symmetric copy":  # noise on one triangle of the plain matrix: off-diagonal std too small
            std = gram_sensitivity(A) / math.sqrt(2.0)
            values = sums[:, *torch.triu_indices(3, 3)] + self.source.normal(1, 6, noise_std=std).double()
            matrix = torch.zeros(1, 3, 3).double()
            matrix[:, *torch.triu_indices(3, 3)] = values
            return triangle(matrix)[0]
        return triangle(release_grams(sums, border=border, noise_multiplier=1.0, source=self.source))[0]


WORST = torch.tensor([[1.0, 0.0]])


def test_the_release_costs_what_it_claims_and_not_much_less() -> None:
    assert 0.8 < lower_mu(Release(), WORST * 10.0) <= 1.0


@pytest.mark.parametrize("wrong", ["second moment only", "symmetric copy"])
def test_a_wrong_sensitivity_is_caught(wrong: str) -> None:
    assert lower_mu(Release(wrong), WORST) > 1.0


def test_a_missing_clip_is_caught() -> None:
    assert lower_mu(Release("unclipped"), WORST * 3.0, runs=500) > 3.0


def test_centring_with_a_private_mean_is_caught() -> None:
    """One record moves the mean, and with it what every other record adds: no sensitivity of one record covers that."""

    def moved(wrong: bool) -> float:
        others = torch.tensor([[0.4, 0.0], [-0.4, 0.0]]).repeat(200, 1)
        release = Release("private centre" if wrong else "")
        return float((release.exact(torch.cat([others, torch.tensor([[300.0, 0.0]])])) - release.exact(others)).norm())

    assert moved(False) <= gram_sensitivity(A) + 1e-6
    assert moved(True) > 10 * gram_sensitivity(A)


def test_noise_has_the_stated_edge() -> None:
    noise = release_grams(torch.zeros(1, 200, 200).double(), border=0.0, noise_multiplier=3.0, source=SecureSource())[0]
    assert torch.equal(noise, noise.T)
    assert float(torch.linalg.eigvalsh(noise)[-1]) == pytest.approx(spectral_noise(200, noise_std=3.0), rel=0.15)


# -- rounding --------------------------------------------------------------------------------------------------------


def grey(n: int, d: int) -> Tensor:
    block = torch.randint(0, 256, (512, d), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return block.repeat(-(-n // 512), 1)[:n]


def centred(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    return x - 0.4, torch.zeros(len(x), dtype=torch.int64)


@pytest.mark.parametrize("border", [0.0, A])
def test_removing_a_record_moves_the_sum_by_its_own_term_alone(border: float) -> None:
    """The first record shifts every batch, and with it all rounding of sums that are not exact."""
    x = grey(20_001, 64)

    def sums(x: Tensor) -> tuple[Tensor, Tensor]:
        stream = RecordStream(x, None, top=255.0)
        grams = triangle(gram_sums(stream, centred, k=1, m=64, border=border))
        return grams, vector_sums(stream, centred, k=1, m=64, border=0.3, square=0.3)

    for whole, rest, alone in zip(sums(x), sums(x[1:]), sums(x[:1])):
        assert float((whole - rest - alone).norm()) < 1e-9
    assert float((sums(x)[0] - sums(x[1:])[0]).norm()) <= gram_sensitivity(border)


def test_sums_do_not_know_the_batches() -> None:
    x = grey(3000, 20)
    first, second = (RecordStream(x, None, top=255.0, batch_size=b) for b in (3000, 77))
    how = {"k": 1, "m": 20, "border": A}
    assert torch.equal(gram_sums(first, centred, **how), gram_sums(second, centred, **how))  # type: ignore[arg-type]
    assert torch.equal(vector_sums(first, centred, **how), vector_sums(second, centred, **how))  # type: ignore[arg-type]


@pytest.mark.parametrize("d", [1, 3, 1000, 10_000])
def test_clipped_rows_of_many_features_are_not_longer_than_one(d: int) -> None:
    u = torch.rand(20, d, generator=torch.Generator().manual_seed(d)) + 1.0
    u[0] = 0.3 if d > 100 else 2.0  # all roundings the same way
    exact = [math.fsum(value**2 for value in row.tolist()) for row in clipped(u)]
    assert max(exact) <= 1.0
    assert min(exact) > 0.98
