"""Clipped sums against one autograd call per record, for every bank, and twins that must be rejected."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, linear

from dpgen.nets import GenericBank, ModelBank, RBMBank, RecordGradients, VAEBank
from dpgen.privacy.clipping import automatic_coefficients, clipped_sums, flat_coefficients, gradient_norms

D, K = 12, 4
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


def vae_reference(bank: VAEBank, theta: Tensor, x: Tensor, z: Tensor) -> Tensor:
    """Loss of one record under one model, written without any of the bank's code."""
    parts = {name: theta[columns].view(bank.shapes[name]) for name, columns in bank.columns.items()}

    def affine(name: str, h: Tensor) -> Tensor:
        return parts[f"{name}.weight"] @ h / h.numel() ** 0.5 + parts[f"{name}.bias"]

    h = x
    for i in range(bank.depth):
        h = affine(f"encoder.{i}", h).clamp_min(0)
    code = affine(f"encoder.{bank.depth}", h)
    mean, log_var = code[: bank.latent], code[bank.latent :]
    h = mean + (log_var / 2).exp() * z
    for i in range(bank.depth):
        h = affine(f"decoder.{i}", h).clamp_min(0)
    logits = affine(f"decoder.{bank.depth}", h)
    bits = bank.d - bank.categories
    loss = binary_cross_entropy_with_logits(logits[:bits], x[:bits], reduction="sum")
    if bank.categories:
        loss = loss + bank.label_weight * cross_entropy(logits[None, bits:], x[None, bits:])
    return loss + 0.5 * (mean**2 + log_var.exp() - 1 - log_var).sum()


def rbm_reference(bank: RBMBank, theta: Tensor, x: Tensor, chains: Tensor) -> Tensor:
    """Free energy of a record minus the chains' mean energy at their mean hidden values, as a function of theta."""
    parts = {name: theta[columns].view(bank.shapes[name]) for name, columns in bank.columns.items()}
    w, b, c = parts["weight"] / bank.d**0.5, parts["visible_bias"], parts["hidden_bias"]
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
        rbm = RBMBank(K, D, hidden=5, chains=6, gibbs_steps=2).to(dtype)
        with torch.no_grad():
            rbm.initialize(generator)
            rbm.theta.add_(0.3 * torch.randn(rbm.theta.shape, generator=generator, dtype=dtype))
        x = records(dtype)
        rbm.begin_step()
        reference = per_record(rbm, lambda theta, r: rbm_reference(rbm, theta, x[r], rbm.visible[CLUSTER[r]]), x)
        return rbm.gradients(x, BOUNDS, FixedNoise(1, dtype)), reference
    depth, categories = (int(option), 0) if kind == "vae" else (1, int(option))
    vae = VAEBank(K, D, hidden=6, latent=2, depth=depth, categories=categories, label_weight=2.5).to(dtype)
    with torch.no_grad():
        vae.initialize(generator)
    x, noise = records(dtype, categories), FixedNoise(2, dtype)
    reference = per_record(vae, lambda theta, r: vae_reference(vae, theta, x[r], noise.z[r]), x)
    return vae.gradients(x, BOUNDS, noise), reference


CASES = ["vae-1", "vae-2", "vae-3", "labelled-3", "rbm-"]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_norms_and_sums_equal_one_record_at_a_time(name: str, dtype: torch.dtype) -> None:
    gradients, reference = case(name, dtype)
    norms = gradient_norms(gradients)
    assert torch.allclose(norms, reference.norm(dim=1), rtol=TOLERANCE[dtype], atol=0)
    assert bool((norms >= reference.norm(dim=1) * (1 - torch.finfo(dtype).eps)).all()), "a norm is understated"
    bound = reference.norm(dim=1).median()
    coefficients = flat_coefficients(norms, bound.expand(B))
    got = clipped_sums(gradients, coefficients, torch.zeros(K, reference.shape[1], dtype=dtype))
    clipped = reference / reference.norm(dim=1).clamp_min(bound)[:, None]
    expected = torch.zeros_like(got).index_add_(0, CLUSTER, clipped)
    assert (got - expected).abs().max() <= TOLERANCE[dtype] * expected.abs().max().clamp_min(1.0)
    assert bool((got[1] == 0).all()), "an empty cluster has a zero sum"


def test_generic_bank_equals_one_record_at_a_time() -> None:
    bank = GenericBank(K, TinyVAE())
    with torch.no_grad():
        bank.initialize(torch.Generator().manual_seed(3))
    x, noise = records(torch.float32), FixedNoise(2, torch.float32)
    gradients = bank.gradients(x, BOUNDS, noise)

    def loss(theta: Tensor, r: int) -> Tensor:
        module = TinyVAE()
        named = {name: theta[columns].view(bank.shapes[name]) for name, columns in bank.columns.items()}
        inner = {f"m.{name}": value for name, value in named.items()}
        return torch.func.functional_call(LossOf(module), inner, (x[r : r + 1], noise.z[r : r + 1]))[0]

    reference = per_record(bank, loss, x)
    assert torch.allclose(gradient_norms(gradients), reference.norm(dim=1), rtol=1e-5)
    got = clipped_sums(gradients, automatic_coefficients(gradient_norms(gradients), 0.01), torch.zeros(K, bank.p))
    expected = torch.zeros(K, bank.p).index_add_(0, CLUSTER, reference / (reference.norm(dim=1) + 0.01)[:, None])
    assert torch.allclose(got, expected, atol=1e-5)
    assert bank.sample(2, 5, torch.Generator().manual_seed(0)).shape == (5, D)


class TinyVAE(nn.Module):
    latent = 2

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.encoder, self.decoder = nn.Linear(D, 2), nn.Linear(2, D)
            self.norm = nn.LayerNorm(D)

    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        logits = self.norm(self.decoder(self.encoder(x) + z))
        return binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)

    def sample(self, z: Tensor) -> Tensor:
        return self.norm(self.decoder(z)).sigmoid()


class LossOf(nn.Module):
    def __init__(self, m: TinyVAE) -> None:
        super().__init__()
        self.m = m

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        return self.m.loss(x, z)


def test_generic_bank_refuses_layers_that_mix_records() -> None:
    with pytest.raises(ValueError, match="BatchNorm1d, which mixes the records"):
        GenericBank(2, nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))


@pytest.mark.parametrize("name", CASES)
def test_a_record_contributes_at_most_one(name: str) -> None:
    """Removing any record moves the sum by at most 1 (the sensitivity), and by nothing in other clusters."""
    _, reference = case(name, torch.float64)
    for r in range(B):
        for coefficient in (
            flat_coefficients(reference.norm(dim=1), torch.full((B,), 0.5, dtype=torch.float64))[r],
            automatic_coefficients(reference.norm(dim=1), 0.01)[r],
        ):
            assert (coefficient * reference[r]).norm() <= 1 + 1e-12


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
    from dpgen.nets import Tape

    vae = VAEBank(1, D, hidden=D, latent=D)
    tape = Tape(vae, [0, B])
    tape.affine("encoder.0", records(torch.float32))
    with pytest.raises(ValueError, match="used twice"):
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
