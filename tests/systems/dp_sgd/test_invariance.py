"""A record's gradient has the same bits beside any other records, and what happens where kernels do not keep it so."""

from collections.abc import Sequence
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from dpgen.nets import GenericBank, ModelBank, RBMBank, RecordGradients, VAEBank
from dpgen.nets.bank import Factor, Noise
from dpgen.nets.conv import ConvCriticBank, ConvVAEBank
from dpgen.nets.gan import CriticBank
from dpgen.privacy.clipping import SENSITIVITY, clipped_sums, gradient_norms
from dpgen.privacy.sampling import Batch
from dpgen.systems.dp_sgd.sums import Shapes, candidates, fitting_shapes
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

D, HIDDEN, MOST = 784, 200, 40
IMAGES: dict[str, Any] = {"frequencies": 20, "image_shape": (8, 8)}


class Rectified(nn.Module):
    """Somebody's own module."""

    latent = 1

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first, self.last = nn.Linear(D, HIDDEN), nn.Linear(HIDDEN, 3)

    def loss(self, x: Tensor, z: Tensor) -> Tensor:
        return self.last(relu(self.first(x))).square().sum(1)


def bank(name: str) -> ModelBank:
    made: ModelBank = VAEBank(1, D, hidden=HIDDEN, latent=2) if name == "vae" else GenericBank(1, Rectified())
    with torch.no_grad():
        made.initialize(torch.Generator().manual_seed(0))
    return made


LAYERS = {"vae": ("encoder.0", "encoder.1", D**-0.5), "generic": ("first", "last", 1.0)}


def fed(made: ModelBank, rows: Tensor, *, shapes: Shapes | None) -> RecordGradients:
    n = len(rows)
    made.most_rows = None
    if shapes is None:
        return made.gradients(rows, [0, n], lambda *shape: torch.zeros(shape))
    padded = torch.zeros(shapes.bounds([n])[-1], D)
    padded[:n] = rows
    return shapes.gradients(made, padded, [n], lambda *shape: torch.zeros(shape))


def at_a_kink(made: ModelBank, name: str) -> tuple[Tensor, int] | None:
    """A record and a number of copies of it at which one copy less opens or closes a unit, if the kernels here allow it.

    The unit's bias is set to minus what its product is in one of the two shapes; what it weighs afterwards is large.
    """
    first, second, scale = LAYERS[name]
    weight, bias = made.part(f"{first}.weight")[0], made.part(f"{first}.bias")[0]
    generator = torch.Generator().manual_seed(1)
    for x in (torch.rand(20, D, generator=generator) < 0.2).float():
        products = {n: torch.addmm(0.0 * bias, scale * x.repeat(n, 1), weight.T)[0] for n in range(1, MOST)}
        for n in range(2, MOST):
            for unit in (products[n] != products[n - 1]).nonzero()[:, 0].tolist():
                with torch.no_grad():
                    bias[unit] = -min(products[n][unit], products[n - 1][unit])
                opened = [torch.addmm(bias, scale * x.repeat(m, 1), weight.T)[0, unit] > 0 for m in (n, n - 1)]
                if opened[0] != opened[1]:
                    with torch.no_grad():
                        made.part(f"{second}.weight")[0][:, unit] *= 1e4
                    # The bank may multiply by other kernels than addmm's, which keep the unit as it is.
                    return (x, n) if attacked(made, x, n, shapes=None) > 1.02 else None
    return None


def attacked(made: ModelBank, x: Tensor, n: int, *, shapes: Shapes | None) -> float:
    """How far one of n copies of the record moves the sum of their normalised gradients."""
    sums = []
    for copies in (n, n - 1):
        with torch.enable_grad():
            gradients = fed(made, x.repeat(copies, 1), shapes=shapes)
        weights = 1.0 / gradient_norms(gradients)
        weights[copies:] = 0.0
        sums.append(clipped_sums(gradients, weights, torch.empty_like(made.theta)).double())
    return float((sums[0] - sums[1]).norm())


@pytest.mark.parametrize("name", LAYERS)
def test_a_record_at_a_kink_moves_the_sum_by_its_own_gradient_only(name: str) -> None:
    """The broken twin multiplies as many rows as there are records; the kernels of most CPUs then open or close the unit."""
    made = bank(name)
    shapes = fitting_shapes(made, D, expected=10.0, micro_batch=512)
    found = at_a_kink(made, name)
    if found is None:
        return  # every shape rounds alike on this machine
    x, n = found
    assert attacked(made, x, n, shapes=None) > 1.02
    assert attacked(made, x, n, shapes=shapes) <= SENSITIVITY


def test_networks_without_finite_gradients_have_shapes() -> None:
    """Those of a cluster that hardly anybody is in: their records move nothing, and a run that died there goes on."""
    made = bank("vae")
    with torch.no_grad():
        made.theta.mul_(1e9)
    assert not fitting_shapes(made, D, expected=10.0, micro_batch=64).alone


@pytest.mark.parametrize("name", LAYERS)
def test_a_whole_step_stands_the_attack(name: str) -> None:
    made = bank(name)
    found = at_a_kink(made, name)
    if found is None:
        return
    x, n = found
    plan = DPGMPlan(sampling_rate=0.5, sigma_sgd=1e-9, sigma_count=5.0)
    module = DPGM(d=D, plan=plan, config=DPGMConfig(clusters="none"))
    module.bank = made  # in place of its own, which it has initialised
    sums = []
    for copies in (n, n - 1):
        nobody = torch.zeros(copies, dtype=torch.int64)
        sums.append(tiny.released(module, Batch(x.repeat(copies, 1), nobody, nobody - 1), silent=True).double())
    assert float((sums[0] - sums[1]).norm()) <= SENSITIVITY + 1e-5


# -- the test of shapes ----------------------------------------------------------------------------------------------


class Fickle(ModelBank):
    """A bank whose sums have another order where the number of rows or the place says so, as kernels do."""

    def __init__(self, fickle: Any, k: int = 2) -> None:
        super().__init__(k, {"weight": (D,)})
        self.fickle = fickle

    def architecture(self) -> dict[str, Any]:
        return {"d": D}

    def gradients(self, x: Tensor, bounds: Sequence[int], noise: Noise) -> RecordGradients:
        out = torch.zeros(len(x), 1)
        for c, a, b in self.segments(bounds):
            products = x[a:b] * self.theta[c].detach()
            turned = self.fickle(b - a, torch.arange(b - a))[:, None]
            halves = products[:, : D // 2].sum(1) + products[:, D // 2 :].sum(1)
            out[a:b] = torch.where(turned, halves[:, None], products.sum(1)[:, None])
        return RecordGradients([Factor(out, x, slice(0, D), None)], bounds)

    def sample(self, cluster: int, n: int, generator: torch.Generator) -> Tensor:
        raise NotImplementedError


KERNELS: dict[str, tuple[Any, Shapes]] = {
    "steady": (lambda rows, place: place < 0, Shapes(16, 128)),
    "another kernel from 64 rows on": (lambda rows, place: place + rows - place >= 64, Shapes(32, 32)),
    "another kernel for odd multiples of 16": (lambda rows, place: (place - place + rows) % 32 == 16, Shapes(32, 32)),
    "the last row by itself": (lambda rows, place: (place == rows - 1) & (rows > 1), Shapes(1, 1, alone=True)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_shapes_are_those_that_the_kernels_keep(name: str) -> None:
    fickle, expected = KERNELS[name]
    made = Fickle(fickle)
    with torch.no_grad():
        made.initialize(torch.Generator().manual_seed(0))
    warned = pytest.warns(UserWarning, match="one record at a time, which is slow") if expected.alone else nothing()
    with warned:
        assert fitting_shapes(made, D, expected=20.0, micro_batch=512) == expected


class nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def test_transposed_products_serve_where_row_products_treat_rows_by_place() -> None:
    made = Fickle(lambda rows, place: (place == rows - 1) & (rows > 1) & (not made.transposed))
    with torch.no_grad():
        made.initialize(torch.Generator().manual_seed(0))
    assert fitting_shapes(made, D, expected=20.0, micro_batch=512) == Shapes(16, 128, transposed=True)


def test_a_device_that_is_not_deterministic_is_refused() -> None:
    calls = iter(range(10**9))
    made = Fickle(lambda rows, place: place + next(calls) % 3 >= 2)
    with torch.no_grad():
        made.initialize(torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="the gradient of a record of Fickle is not the same twice on cpu"):
        fitting_shapes(made, D, expected=20.0, micro_batch=512)


def banks() -> dict[str, tuple[ModelBank, int, int]]:
    return {
        "vae": (VAEBank(3, 20, hidden=9, latent=3, depth=2, categories=4), 20, 4),
        "rbm": (RBMBank(3, 20, hidden=9, chains=4), 20, 0),
        "vae of frequencies": (VAEBank(3, 66, hidden=9, latent=3, categories=2, centred=True, **IMAGES), 66, 2),
        "rbm of frequencies": (RBMBank(3, 64, hidden=9, chains=4, centred=True, **IMAGES), 64, 0),
        "critic": (CriticBank(16, categories=3, hidden=9, image_shape=(4, 4)), 19, 3),
        "critic of frequencies": (CriticBank(64, categories=3, hidden=9, **IMAGES), 67, 3),
        "wgan critic": (CriticBank(16, hidden=9, loss="wgan"), 16, 0),
        "convolutional critic": (ConvCriticBank(64, categories=2, hidden=8, depth=3, image_shape=(8, 8)), 66, 2),
        "convolutional vae": (ConvVAEBank(3, 66, categories=2, hidden=8, latent=3, image_shape=(8, 8)), 66, 2),
    }


@pytest.mark.parametrize("name", banks())
@pytest.mark.parametrize("micro_batch", [512, 33, 16])
def test_every_bank_has_shapes_that_fit(name: str, micro_batch: int) -> None:
    """Sums of padded draws are those of one record at a time, whatever the shapes."""
    made, d, categories = banks()[name]
    with torch.no_grad():
        made.initialize(torch.Generator().manual_seed(0))
    shapes = fitting_shapes(made, d, categories=categories, expected=10.0, micro_batch=micro_batch)
    assert shapes in candidates(10.0, micro_batch)  # which one depends on the CPU's kernels


def test_candidates_of_a_small_micro_batch() -> None:
    assert candidates(10.0, 1) == [Shapes(1, 1), Shapes(1, 1, transposed=True), Shapes(1, 1, alone=True)]
    assert candidates(300.0, 7) == [Shapes(4, 4), Shapes(4, 4, transposed=True), Shapes(1, 1, alone=True)]
    assert candidates(1e6, 10**6)[1] == Shapes(128, 128)


@pytest.mark.parametrize(
    "shapes", [Shapes(16, 128), Shapes(16, 64, transposed=True), Shapes(3, 6), Shapes(1, 1), Shapes(1, 1, alone=True)]
)
def test_padding_changes_no_gradient(shapes: Shapes) -> None:
    made = VAEBank(3, 20, hidden=9, latent=3)
    with torch.no_grad():
        made.initialize(torch.Generator().manual_seed(0))
    x, present = torch.rand(9, 20, generator=torch.Generator().manual_seed(1)), [2, 0, 7]
    plain = made.gradients(x, [0, 2, 2, 9], lambda *shape: torch.ones(shape))
    bounds = shapes.bounds(present)
    padded = torch.full((bounds[-1], 20), 0.5)
    places = [*range(2), *range(bounds[2], bounds[2] + 7)]
    padded[places] = x
    got = shapes.gradients(made, padded, present, lambda *shape: torch.ones(shape))
    torch.testing.assert_close(gradient_norms(got)[places], gradient_norms(plain), rtol=1e-5, atol=0.0)
    weights = torch.zeros(bounds[-1])
    weights[places] = 0.25
    sums = clipped_sums(got, weights, torch.empty_like(made.theta))
    torch.testing.assert_close(sums, clipped_sums(plain, torch.full((9,), 0.25), torch.empty_like(made.theta)))
