"""Clipped sums against one autograd call per record, for every bank, and twins that must be rejected."""

from typing import Any

import pytest
import tiny
import torch
from refusals import refused
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, linear

from dpgen.nets import Factor, ModelBank, RBMBank, RecordGradients, Tape, VAEBank
from dpgen.nets.cosines import lowest_frequencies
from dpgen.privacy.clipping import (
    ROUNDED,
    SENSITIVITY,
    SHORT,
    automatic_coefficients,
    clipped_sums,
    flat_coefficients,
    gradient_norms,
)

D, K = 12, 4
IMAGES: dict[str, Any] = {"centred": True, "frequencies": 5, "image_shape": (3, 4)}
SIZES = (3, 0, 5, 1)  # an empty cluster among them
BOUNDS = [0, 3, 3, 8, 9]
CLUSTER = torch.repeat_interleave(torch.arange(K), torch.tensor(SIZES))
B = sum(SIZES)


class FixedNoise:
    """The same latent noise on every call, as a record's own secret."""

    def __init__(self, latent: int, dtype: torch.dtype) -> None:
        self.z = torch.randn(B, latent, generator=torch.Generator().manual_seed(7)).to(dtype)

    def __call__(self, *shape: int) -> Tensor:
        return self.z[: shape[0]]


def records(dtype: torch.dtype, categories: int = 0) -> Tensor:
    x = (torch.rand(B, D, generator=torch.Generator().manual_seed(1)) < 0.4).to(dtype)
    if categories:
        x[:, -categories:] = torch.eye(categories, dtype=dtype)[torch.arange(B) % categories]
    return x


def vae_reference(bank: VAEBank, theta: Tensor, x: Tensor, z: Tensor, cluster: int) -> Tensor:
    """Loss of one record under one model, written without any of the bank's code."""
    parts = {name: theta[columns].view(bank.shapes[name]) for name, columns in bank.columns.items()}

    def affine(name: str, h: Tensor) -> Tensor:
        return parts[f"{name}.weight"] @ h / h.numel() ** 0.5 + parts[f"{name}.bias"]

    def active(h: Tensor) -> Tensor:
        return h.tanh() if bank.centred else h.clamp_min(0)

    h = x if bank.centre is None else x - bank.centre[cluster]
    if bank.frequencies:
        rows = (lowest_frequencies((3, 4), bank.frequencies) * (bank.d / bank.frequencies) ** 0.5).to(x)
        h = rows @ h
    for i in range(bank.depth):
        h = active(affine(f"encoder.{i}", h))
    code = affine(f"encoder.{bank.depth}", h)
    mean, log_var = code[: bank.latent], code[bank.latent :]
    h = mean + (log_var / 2).exp() * z
    for i in range(bank.depth):
        h = active(affine(f"decoder.{i}", h))
    logits = affine(f"decoder.{bank.depth}", h)
    if bank.frequencies:
        assert bank.centre is not None
        logits = logits @ rows + bank.centre[cluster].logit()
    bits = bank.d - bank.categories
    loss = binary_cross_entropy_with_logits(logits[:bits], x[:bits], reduction="sum")
    if bank.categories:
        loss = loss + bank.label_weight * cross_entropy(logits[None, bits:], x[None, bits:])
    return loss + 0.5 * (mean**2 + log_var.exp() - 1 - log_var).sum()


def rbm_reference(bank: RBMBank, theta: Tensor, x: Tensor, cluster: int) -> Tensor:
    """Free energy of a record minus the chains' mean energy at their mean hidden values, as a function of theta."""
    parts, chains = (
        {name: theta[columns].view(bank.shapes[name]) for name, columns in bank.columns.items()},
        bank.visible[cluster],
    )
    w, b, c = parts["weight"], parts["visible_bias"], parts["hidden_bias"]
    if bank.frequencies:
        w = w @ lowest_frequencies((3, 4), bank.frequencies).to(w)
    if bank.centre is None:
        w = w / bank.d**0.5
    else:  # the energy of (v - mu, h - 1/2), written as one of v and h
        b, c = b - w.sum(0) / 2, c - w @ bank.centre[cluster]
    free = -(x @ b) - nn.functional.softplus(linear(x, w, c)).sum()
    h = torch.sigmoid(linear(chains, w, c)).detach()
    return free + (chains @ b + (h * linear(chains, w, c)).sum(1)).mean()


def per_record(bank: ModelBank, loss: object, x: Tensor) -> Tensor:
    """Gradients (b, p) by one autograd call per record: the slow, obviously right twin."""
    rows = []
    for r in range(x.shape[0]):
        theta = bank.theta.detach()[CLUSTER[r]].clone().requires_grad_()
        rows.append(torch.autograd.grad(loss(theta, r), theta)[0])  # type: ignore[operator]
    return torch.stack(rows)


def case(name: str, dtype: torch.dtype) -> tuple[RecordGradients, Tensor]:
    """Factored gradients of a bank and the reference gradients of the same records."""
    generator = torch.Generator().manual_seed(3)
    kind, _, option = name.partition("-")
    if kind == "rbm":
        options = IMAGES if option == "frequencies" else {"centred": option == "centred"}
        rbm = RBMBank(K, D, hidden=5, chains=6, gibbs_steps=2, **options).to(dtype)
        with torch.no_grad():
            rbm.initialize(generator)
            rbm.begin_at(torch.rand(K, D, generator=generator, dtype=dtype) * 0.8 + 0.1, generator)
            rbm.theta.add_(0.3 * torch.randn(rbm.theta.shape, generator=generator, dtype=dtype))
        x = records(dtype)
        rbm.begin_step()
        reference = per_record(rbm, lambda theta, r: rbm_reference(rbm, theta, x[r], int(CLUSTER[r])), x)
        return rbm.gradients(x, BOUNDS, FixedNoise(1, dtype)), reference
    depth, categories = (int(option), 0) if kind == "vae" else (1, int(option))
    options = IMAGES if depth == 0 else {"depth": depth}
    vae = VAEBank(K, D, hidden=6, latent=2, categories=categories, label_weight=2.5, **options).to(dtype)
    with torch.no_grad():
        vae.initialize(generator)
        vae.begin_at(torch.rand(K, D, generator=generator, dtype=dtype) * 0.8 + 0.1, generator)
    x, noise = records(dtype, categories), FixedNoise(2, dtype)
    reference = per_record(vae, lambda theta, r: vae_reference(vae, theta, x[r], noise.z[r], int(CLUSTER[r])), x)
    return vae.gradients(x, BOUNDS, noise), reference


CASES = ["vae-0", "vae-1", "vae-2", "vae-3", "labelled-3", "rbm-", "rbm-centred", "rbm-frequencies"]  # 0: frequencies
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_norms_and_sums_equal_one_record_at_a_time(name: str, dtype: torch.dtype) -> None:
    gradients, reference = case(name, dtype)
    norms = gradient_norms(gradients)
    assert torch.allclose(norms, reference.norm(dim=1), rtol=TOLERANCE[dtype], atol=0)
    materialised = tiny.one_by_one(gradients, K, reference.shape[1])
    assert bool((norms.double() >= materialised.norm(dim=1)).all()), "a norm is understated"
    bound = reference.norm(dim=1).median()
    coefficients = flat_coefficients(norms, bound.expand(B))
    got = clipped_sums(gradients, coefficients, torch.zeros(K, reference.shape[1], dtype=dtype))
    clipped = reference / reference.norm(dim=1).clamp_min(bound)[:, None]
    expected = torch.zeros_like(got).index_add_(0, CLUSTER, clipped)
    assert (got - expected).abs().max() <= TOLERANCE[dtype] * expected.abs().max().clamp_min(1.0)
    assert bool((got[1] == 0).all()), "an empty cluster has a zero sum"


def test_chains_paired_with_batch_positions_break_the_sensitivity() -> None:
    """The twin: a chain per batch position instead of one public mean moves the terms of all later records."""

    def moved(seed: int, *, paired: bool) -> float:
        generator = torch.Generator().manual_seed(seed)
        rbm = RBMBank(1, D, hidden=5, chains=B).double()
        with torch.no_grad():
            rbm.initialize(generator)
            rbm.theta.add_(torch.randn(rbm.theta.shape, generator=generator, dtype=torch.float64))
        x = (torch.rand(B, D, generator=generator) < 0.5).double()
        rbm.begin_step()
        return float((_rbm_sum(rbm, x, paired) - _rbm_sum(rbm, x[1:], paired)).norm())

    assert max(moved(seed, paired=False) for seed in range(50)) <= 1 + 1e-9
    assert max(moved(seed, paired=True) for seed in range(50)) > 1.05


def _rbm_sum(rbm: RBMBank, rows: Tensor, paired: bool) -> Tensor:
    if not paired:
        gradients = rbm.gradients(rows, [0, rows.shape[0]], FixedNoise(1, torch.float64))
        coefficients = flat_coefficients(gradient_norms(gradients), torch.ones(rows.shape[0]).double())
        return clipped_sums(gradients, coefficients, torch.zeros(1, rbm.p, dtype=torch.float64))
    w, c, v = rbm.weights()[0], rbm.part("hidden_bias")[0], rbm.visible[0, : rows.shape[0]]
    h, chain_h = torch.sigmoid(linear(rows, w, c)), torch.sigmoid(linear(v, w, c))
    g = (chain_h[:, :, None] * v[:, None] - h[:, :, None] * rows[:, None]).flatten(1)
    return (g / g.norm(dim=1, keepdim=True).clamp_min(1.0)).sum(0)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_a_record_with_a_non_finite_gradient_contributes_zero(poison: float) -> None:
    vae = VAEBank(K, D, hidden=6)
    with torch.no_grad():
        vae.initialize(torch.Generator().manual_seed(3))
    x, noise = records(torch.float32), FixedNoise(2, torch.float32)

    def sums(rows: Tensor) -> Tensor:
        gradients = vae.gradients(rows, BOUNDS, noise)
        coefficients = automatic_coefficients(gradient_norms(gradients), 0.01)
        return clipped_sums(gradients, coefficients, torch.zeros(K, vae.p))

    bad = x.clone()
    bad[4] = poison
    gradients = vae.gradients(x, BOUNDS, noise)
    coefficients = automatic_coefficients(gradient_norms(gradients), 0.01)
    coefficients[4] = 0.0
    expected = clipped_sums(gradients, coefficients, torch.zeros(K, vae.p))
    assert torch.allclose(sums(bad), expected, atol=1e-6)


def test_a_shared_layer_is_refused() -> None:
    vae = VAEBank(1, D, hidden=D, latent=D)
    tape = Tape(vae, [0, B])
    tape.affine("encoder.0", records(torch.float32))
    with refused("encoder.0"):
        tape.affine("encoder.0", records(torch.float32))


def test_sums_replace_old_values_or_join_them() -> None:
    """Two parts of a draw accumulate to the whole, and what was in `out` before the first part is gone, even NaN."""
    gradients, _ = case("vae-1", torch.float64)
    coefficients = automatic_coefficients(gradient_norms(gradients), 0.01)
    width = max(f.bias.stop for f in gradients.factors if f.bias is not None)
    whole = clipped_sums(gradients, coefficients, torch.full((K, width), torch.nan, dtype=torch.float64))
    assert bool(torch.isfinite(whole).all())
    twice = clipped_sums(gradients, coefficients, whole.clone(), accumulate=True)
    assert torch.allclose(twice, 2 * whole, rtol=1e-12)
    wider = torch.full((K, width + 2), torch.nan, dtype=torch.float64)
    assert bool((clipped_sums(gradients, coefficients, wider)[:, -2:] == 0).all()), "columns that no factor covers"


# -- what float32 loses ----------------------------------------------------------------------------------------------


def rank_one(n: int, g: Tensor, a: Tensor | None) -> RecordGradients:
    """n records with the gradient g a^T, or g."""
    rows = g.repeat(n, 1)
    if a is None:
        return RecordGradients([Factor(rows, None, None, slice(0, len(g)))], [0, n])
    return RecordGradients([Factor(rows, a.repeat(n, 1), slice(0, len(g) * len(a)), None)], [0, n])


def one_more(n: int, g: Tensor, a: Tensor | None, *, dtype: torch.dtype, **how: Any) -> float:
    """How far one record more than n - 1 equal ones moves the sum."""
    sums = []
    for b in (n, n - 1):
        gradients = rank_one(b, g, a)
        weights = flat_coefficients(gradient_norms(gradients), torch.tensor(1e-9))
        p = len(g) * (1 if a is None else len(a))
        sums.append(clipped_sums(gradients, weights, torch.zeros(1, p, dtype=dtype), **how).double())
    return float((sums[0] - sums[1]).norm())


G, A = torch.tensor([0.31, -1.7, 0.052]), torch.tensor([1.1, 0.77, -0.4, 0.013])


@pytest.mark.parametrize("n", [1, 2, 16, SHORT, SHORT + 1, 600, ROUNDED])
@pytest.mark.parametrize("a", [A, None])
def test_one_record_moves_a_float32_sum_by_the_stated_sensitivity(n: int, a: Tensor | None) -> None:
    assert 1 - 1e-3 < one_more(n, G, a, dtype=torch.float32) <= SENSITIVITY


@pytest.mark.parametrize("n", [10**6, pytest.param(4 * 10**6, marks=pytest.mark.slow)])
def test_sums_of_a_million_records_lose_nothing(n: int) -> None:
    """The twin adds them up in float32, where the last of a million records may count for more than one, or nothing."""
    assert abs(one_more(n, G, A, dtype=torch.float64) - 1.0) < 1e-3
    generator = torch.Generator().manual_seed(0)
    broken = [
        one_more(n, *torch.randn(2, 3, generator=generator), dtype=torch.float32, short=n) for _ in range(2 if n > 10**6 else 5)
    ]
    assert max(broken) > 1.01 > SENSITIVITY


def test_the_margin_is_what_the_docstring_derives() -> None:
    u, n = 2.0**-24, SHORT
    short = 4 * u + 2 * n * (n * u / (1 - n * u)) * (1 + 4 * u)
    rounded = 4 * u + 2 * ROUNDED * u + 2 * ROUNDED**2 * 2.0**-53
    long = 4 * u + 2 * (2 * 10**6) ** 2 * 2.0**-53
    assert max(short, rounded, long) <= SENSITIVITY - 1 <= 1e-3


@pytest.mark.parametrize("lanes", [1, 16, 64, 256])
def test_no_norm_of_a_long_row_is_understated(lanes: int) -> None:
    """Ones, then a million squares that each are less than half of their last bit; the twin is a float32 norm."""
    row = torch.full((1, lanes + 10**6), 2.4e-4)
    row[0, :lanes] = 1.0
    true = float(row.double().norm())
    norm = float(gradient_norms(RecordGradients([Factor(row, None, None, slice(0, row.shape[1]))], [0, 1])))
    assert true <= norm <= true * (1 + 1e-4)
    assert float(torch.linalg.vector_norm(row, dim=1)) < true * (1 - 1e-5) or lanes != 64


@pytest.mark.parametrize("scale", [1e-30, 1e-24, 1e-19, 1e-10, 1.0, 1e10, 1e19, 1e25])
@pytest.mark.parametrize("width", [1, 7, 500, 4000])
def test_norms_bound_gradients_of_any_size(scale: float, width: int) -> None:
    """Squares of small numbers underflow, those of large ones overflow: the norm is no smaller than it is, or not finite."""
    g, a = scale * torch.randn(5, width, generator=torch.Generator().manual_seed(1)), torch.ones(5, 3) / 3
    factors = [
        Factor(g, a, slice(0, 3 * width), slice(3 * width, 4 * width)),
        Factor(g, None, None, slice(4 * width, 5 * width)),
    ]
    norms = gradient_norms(RecordGradients(factors, [0, 5])).double()
    true = (g.double().square().sum(1) * (a.double().square().sum(1) + 2.0)).sqrt()
    assert bool((torch.isnan(norms) | (norms >= true)).all())
    if 1e-15 < scale < 1e15:
        assert bool((norms <= true * (1 + 6e-4)).all())


def test_short_parts_are_added_in_float64_as_well() -> None:
    rows = torch.tensor([[1.0, 2.0], [4.0, 8.0]])
    gradients = RecordGradients([Factor(rows, None, None, slice(0, 2))], [0, 2])
    out = torch.full((1, 2), torch.nan, dtype=torch.float64)
    for part in range(3):
        clipped_sums(gradients, torch.ones(2), out, accumulate=part > 0)
    assert out.tolist() == [[15.0, 30.0]]


def test_norms_above_2_to_the_100_are_not_finite() -> None:
    rows = torch.tensor([2.0**99, 2.0**101, 3e38])[:, None, None]
    norms = gradient_norms(RecordGradients([Factor(rows, torch.ones_like(rows), slice(0, 1), None)], [0, 3]))
    assert norms.isnan().tolist() == [False, True, True]
    assert automatic_coefficients(norms, 0.01).tolist()[1:] == [0.0, 0.0]


def test_a_part_of_a_large_draw_is_added_up_in_float64() -> None:
    """However few records the part has: errors of many parts in float32 would pass the stated sensitivity."""
    generator = torch.Generator().manual_seed(0)
    g, a = (torch.randn(50, width, generator=generator) for width in (4, 5))
    part, exact = RecordGradients([Factor(g, a, slice(0, 20), None)], [0, 50]), (g.double().T @ a.double()).flatten()

    def error(drawn: list[int] | None) -> float:
        sums = clipped_sums(part, torch.ones(50), torch.zeros(1, 20, dtype=torch.float64), drawn=drawn)
        return float((sums[0] - exact).abs().max())

    assert error([SHORT + 1]) < 1e-12
    assert error(None) > 1e-8
