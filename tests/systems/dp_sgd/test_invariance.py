"""What the other records of a draw change of a record's gradient: nothing, or a measured margin that noise covers."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import tiny
import torch
from own_networks import Convolutional, Rectified
from refusals import refused
from torch import Tensor

from dpgen.callbacks import DPNorm
from dpgen.nets import ConvVAEBank, ModelBank, OwnBank, RBMBank, RecordGradients, VAEBank
from dpgen.nets.bank import Noise
from dpgen.nets.gan import CriticBank
from dpgen.privacy.clipping import SENSITIVITY, Factor, clipped_sums, gradient_norms, segments
from dpgen.privacy.curator import Curator, Draw
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.sampling import Batch, PoissonMask
from dpgen.systems.dp_sgd.sums import ALLOWED, UNIT, Margin, gradients_of, largest_change, padded
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

D, HIDDEN, MOST = 784, 200, 40
IMAGES: dict[str, Any] = {"frequencies": 20, "image_shape": (8, 8)}


def bank(name: str) -> ModelBank:
    made: ModelBank = VAEBank(1, D, hidden=HIDDEN, latent=2) if name == "vae" else OwnBank(1, D, network=Rectified)
    with torch.no_grad():
        made.initialize(torch.Generator().manual_seed(0))
    return made


LAYERS = {"vae": ("encoder.0", "encoder.1", D**-0.5), "own": ("first", "last", 1.0)}


def fed(made: ModelBank, rows: Tensor, *, pad: bool) -> RecordGradients:
    n = len(rows)
    if not pad:
        return made.gradients(rows, [0, n], lambda *shape: torch.zeros(shape))
    filled = torch.zeros(padded([n])[-1], D)
    filled[:n] = rows
    return gradients_of(made, filled, [n], lambda *shape: torch.zeros(shape))


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
                    return (x, n) if attacked(made, x, n, pad=False) > 1.02 else None
    return None


def attacked(made: ModelBank, x: Tensor, n: int, *, pad: bool) -> float:
    """How far one of n copies of the record moves the sum of their normalised gradients."""
    sums = []
    for copies in (n, n - 1):
        with torch.enable_grad():
            gradients = fed(made, x.repeat(copies, 1), pad=pad)
        weights = 1.0 / gradient_norms(gradients)
        weights[copies:] = 0.0
        sums.append(clipped_sums(gradients, weights, torch.empty_like(made.theta)).double())
    return float((sums[0] - sums[1]).norm())


@pytest.mark.parametrize("name", LAYERS)
def test_a_record_at_a_kink_moves_the_sum_by_its_own_gradient_only(name: str) -> None:
    """The broken twin multiplies as many rows as there are records; the kernels of most CPUs then open or close the unit."""
    made = bank(name)
    found = at_a_kink(made, name)
    if found is None:
        return  # every shape rounds alike on this machine
    x, n = found
    assert attacked(made, x, n, pad=False) > 1.02
    assert attacked(made, x, n, pad=True) <= SENSITIVITY


def test_networks_without_finite_gradients_have_no_change() -> None:
    """Those of a cluster that hardly anybody is in: their records move nothing, and a run that died there goes on."""
    made = bank("vae")
    with torch.no_grad():
        made.theta.mul_(1e9)
    assert largest_change(made, D) == 0.0


def test_a_whole_step_stands_the_attack() -> None:
    made = bank("vae")
    found = at_a_kink(made, "vae")
    if found is None:
        return
    x, n = found
    plan = DPGMPlan(sampling_rate=0.5, noise_multiplier=1e-9, sigma_count=5.0)
    module = DPGM(d=D, plan=plan, config=DPGMConfig(clusters="none"))
    module.bank = made  # in place of its own, which it has initialised
    sums = []
    for copies in (n, n - 1):
        nobody = torch.zeros(copies, dtype=torch.int64)
        sums.append(tiny.released(module, Batch(x.repeat(copies, 1), nobody, nobody - 1), silent=True).double())
    assert float((sums[0] - sums[1]).norm()) <= SENSITIVITY + 1e-5


# -- the margin --------------------------------------------------------------------------------------------------------


class Touched(ModelBank):
    """A bank whose gradients are those of one affine map, times what `touch` makes of the rows of a cluster.

    Arguments:
        touch: factors (b, 1) of rows (b, d).
    """

    def __init__(self, touch: Any, k: int = 2) -> None:
        super().__init__(k, {"weight": (1, D)})
        self.touch = touch

    def gradients(self, x: Tensor, bounds: Sequence[int], noise: Noise) -> RecordGradients:
        out = torch.ones(len(x), 1)
        for _, a, b in segments(bounds):
            out[a:b] *= self.touch(x[a:b])
        return RecordGradients([Factor(out, x, slice(0, D), None)], bounds)


def trained(touch: Any, rows: int = 1) -> DPGM:
    """A module in mid-training whose bank is `Touched`: 60 records are expected in a draw."""
    plan = DPGMPlan(sampling_rate=0.5, noise_multiplier=1.0, sigma_count=5.0)
    made = DPGM(d=D, plan=plan, config=DPGMConfig(clusters="none"))
    made.bank, made.partitioned = Touched(touch, k=1), True
    made.partition.load_state_dict({"counts": torch.tensor([120.0])})
    made.serve(Curator(Ledger(None, delta=1e-5, rows=rows)))
    return made


def test_the_margin_is_ten_times_the_change_for_every_record_that_a_draw_may_have() -> None:
    """Gradients that are larger by 1e-7 in company: 60 + 10 sqrt(60) + 10 records, each of ten times that."""
    margin = trained(lambda x: 1.0 + 2.0**-20 * (len(x) > UNIT)).measure(D)
    assert margin.change == pytest.approx(2.0**-20, rel=1e-3)
    assert margin.records == 148
    assert margin.added == pytest.approx(148 * 10 * 2.0**-20, rel=1e-3)
    assert f"{margin.each:.1e}" in margin.fact.sentence
    assert trained(lambda x: 1.0).measure(D) == Margin(0.0, 148)
    assert trained(lambda x: 1.0, rows=3).measure(D) == Margin(0.0, 3 * 148), "people have up to 3"


def test_the_sensitivity_of_a_step_has_the_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    stated: list[float] = []
    monkeypatch.setattr(Draw, "gaussian", lambda self, name, sums, factor=None: stated.append(sums.sensitivity) or sums.values)
    batch = Batch(torch.rand(3, D), torch.zeros(3).long(), torch.full((3,), -1))
    for touch in (lambda x: 1.0, lambda x: 1.0 + 2.0**-20 * (len(x) > UNIT)):
        made = trained(touch)
        made.policy.begin(1)
        with torch.no_grad():
            made.noisy_sums(batch, Curator(Ledger(None, delta=1e-5)).draw("s", PoissonMask(0.5), {"gradients": 1.0}))
    assert stated[0] == SENSITIVITY
    assert stated[1] == pytest.approx(SENSITIVITY + 148 * 10 * 2.0**-20, rel=1e-4)


def test_a_histogram_of_norms_has_the_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both cells of a record move by its change times `steepness`, and by their rounding to 2^-20."""
    seen: list[BoundedSum] = []
    monkeypatch.setattr(Draw, "gaussian", lambda self, name, sums, factor=None: seen.append(sums) or sums.values)
    batch = Batch(torch.rand(3, D), torch.zeros(3).long(), torch.full((3,), -1))
    made = trained(lambda x: 1.0 + 2.0**-20 * (len(x) > UNIT))
    made.policy = DPNorm()
    made.policy.begin(1)
    with torch.no_grad():
        parts = {"norms": 10.0, "gradients": 1.0}
        made.noisy_sums(batch, Curator(Ledger(None, delta=1e-5)).draw("s", PoissonMask(0.5), parts))
    added = 148 * (10 * 2.0**-20 * made.policy.steepness + 2.0**-19)
    assert (seen[0].sensitivity, seen[0].replaced) == pytest.approx((1.0 + added, 2.0**0.5 + added), rel=2e-5)


MIXING: dict[str, Any] = {
    "batch normalisation": lambda x: (x.mean(1, keepdim=True) - x.mean()) / (x.mean(1).std(correction=0) + 1e-3) + 2.0,
    "the mean of the batch": lambda x: 1.0 + x.mean(),
    "the number of records": lambda x: 1.0 + 0.01 * len(x),
    "the place": lambda x: 1.0 + 0.01 * torch.arange(len(x))[:, None],
    "not finite in company": lambda x: math.inf if len(x) > UNIT else 1.0,
}


@pytest.mark.parametrize("name", MIXING)
def test_networks_whose_records_mix_are_refused(name: str) -> None:
    """The faulty variants: what they change is far above what is allowed, before the partition is paid for, too."""
    made = trained(MIXING[name])
    assert largest_change(made.bank, D) > 10 * ALLOWED / 148
    for partitioned in (True, False):
        made.partitioned = partitioned
        with refused("networks must not mix records"):
            made.measure(D)


def test_a_device_that_is_not_deterministic_is_refused() -> None:
    calls = iter(range(10**9))
    with refused("kernels must be deterministic"):
        trained(lambda x: 1.0 + 0.1 * (next(calls) % 3)).measure(D)


def banks() -> dict[str, tuple[ModelBank, int, int]]:
    return {
        "vae": (VAEBank(3, 20, hidden=9, latent=3, depth=2, categories=4), 20, 4),
        "rbm": (RBMBank(3, 20, hidden=9, chains=4), 20, 0),
        "vae of frequencies": (VAEBank(3, 66, hidden=9, latent=3, categories=2, centred=True, **IMAGES), 66, 2),
        "rbm of frequencies": (RBMBank(3, 64, hidden=9, chains=4, centred=True, **IMAGES), 64, 0),
        "critic": (CriticBank(16, categories=3, hidden=9, image_shape=(4, 4)), 19, 3),
        "critic of frequencies": (CriticBank(64, categories=3, hidden=9, **IMAGES), 67, 3),
        "convolutional vae": (ConvVAEBank(3, 66, categories=2, hidden=8, latent=3, image_shape=(8, 8), centred=True), 66, 2),
        "convolutions": (OwnBank(2, 20, network=Convolutional), 20, 0),
        "somebody's own": (OwnBank(1, 20, network=Rectified, network_options={"hidden": 9}), 20, 0),
    }


@pytest.mark.parametrize("name", banks())
@pytest.mark.parametrize("most", [512, 33, 5])
def test_records_of_every_bank_keep_to_themselves(name: str, most: int) -> None:
    """For 3,000 records in a draw the margin is below a tenth."""
    made, d, categories = banks()[name]
    with torch.no_grad():
        made.initialize(torch.Generator().manual_seed(0))
    assert Margin(largest_change(made, d, categories=categories, most=most), 3000).added < ALLOWED


def test_padding_changes_no_gradient() -> None:
    made = VAEBank(3, 20, hidden=9, latent=3)
    with torch.no_grad():
        made.initialize(torch.Generator().manual_seed(0))
    x, present = torch.rand(9, 20, generator=torch.Generator().manual_seed(1)), [2, 0, 7]
    plain = made.gradients(x, [0, 2, 2, 9], lambda *shape: torch.ones(shape))
    bounds = padded(present)
    filled = torch.full((bounds[-1], 20), 0.5)
    places = [*range(2), *range(bounds[2], bounds[2] + 7)]
    filled[places] = x
    got = gradients_of(made, filled, present, lambda *shape: torch.ones(shape))
    torch.testing.assert_close(gradient_norms(got)[places], gradient_norms(plain), rtol=1e-5, atol=0.0)
    weights = torch.zeros(bounds[-1])
    weights[places] = 0.25
    sums = clipped_sums(got, weights, torch.empty_like(made.theta))
    torch.testing.assert_close(sums, clipped_sums(plain, torch.full((9,), 0.25), torch.empty_like(made.theta)))
