"""DPGAN: the critic's step costs one subsampled Gaussian, and the generator touches no private record."""

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from refusals import refused

from dpgen.callbacks import PrivacyAccountant
from dpgen.callbacks.accountant import Checkpoint
from dpgen.nets.gan import Correction, Generator
from dpgen.privacy.accountants import epsilon
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.mechanisms import gaussian_event
from dpgen.privacy.sampling import Batch, PoissonLoader
from dpgen.systems.dp_sgd.partition import MEANS
from dpgen.systems.dpgan.fit import DPGAN
from dpgen.systems.dpgan.model import CorrectedModel, GANModel, PointGANModel
from dpgen.systems.dpgan.plan import DPGANConfig, DPGANPlan
from dpgen.systems.marginals.model import ProductMixture
from dpgen.systems.registry import load

pytestmark = pytest.mark.usefixtures("quiet")

SMALL = {"hidden": 3, "latent": 2, "fakes": 8, "critic_steps": 2}


def plan(**options: Any) -> DPGANPlan:
    return DPGANPlan(**{"sampling_rate": 0.5, "steps": 6, "noise_multiplier": 1.0, "sigma_count": 5.0} | options)


def module(made: type[DPGAN] = DPGAN, *, config: dict[str, Any] | None = None, n_classes: int = 0, **options: Any) -> DPGAN:
    config = SMALL | (config or {})
    return made(d=tiny.D, plan=plan(**options), config=DPGANConfig(**config), n_classes=n_classes)


def trained(
    gan: DPGAN, ledger: Ledger | None = None, *callbacks: Any, ckpt: Path | None = None, stop: int | None = None
) -> Ledger:
    records, ledger = tiny.records(), ledger or Ledger(None, delta=1e-5)
    labels = records.labels if gan.n_classes else None
    loader = PoissonLoader(records.x, labels, sampling_rate=gan.plan.sampling_rate)
    clipping = gan.config.clipping_callback(gan.plan)
    trainer = tiny.trainer(PrivacyAccountant(Curator(ledger)), clipping, *callbacks, steps=stop or gan.plan.steps)
    trainer.fit(gan, loader, ckpt_path=ckpt, weights_only=True)
    return ledger


# -- what a step releases --------------------------------------------------------------------------------------------


def test_a_record_moves_the_critic_of_its_label_alone() -> None:
    gan = module(n_classes=2, config={"centred": True}, noise_multiplier=1e-6)
    assert (gan.bank.k, gan.categories) == (2, 0)
    assert gan.partition.assign(torch.zeros(2, tiny.D), torch.tensor([1, 0])).tolist() == [1, 0]
    gan.policy.begin(2)
    batch = Batch(torch.ones(1, tiny.D), torch.tensor([1]), torch.tensor([1]), (0, 1))
    sums = tiny.released(gan, batch)
    assert float(sums[0].norm()) < 1e-4
    assert float(sums[1].norm()) == pytest.approx(1.0, abs=0.03)  # automatic clipping


def test_every_critic_has_as_many_generated_records_of_its_own_label() -> None:
    gan = module(n_classes=2, config={"centred": True})
    trained(gan)
    assert gan.fake_gradient().shape == gan.bank.theta.shape == (2, gan.bank.p)
    x = torch.arange(4 * tiny.D).view(4, -1).float()
    code = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    rows, bounds = gan.by_critic(torch.cat([x, code], 1), code.argmax(1))
    assert bounds == [0, 3, 4]
    assert torch.equal(rows, x[[0, 2, 3, 1]])
    assert gan.fakes(8, "critic")[1].bincount().tolist() == [4, 4]  # type: ignore[union-attr]


def test_generator_steps_and_diversity_are_free_and_both_rates_fall() -> None:
    gan = module(n_classes=2, config={"generator_steps": 3, "diversity": 0.1, "generator_lr": 0.5})
    ledger = trained(gan)
    assert sum(entry.count for entry in ledger.entries() if entry.note == "training steps") == 6
    states = gan.generator_optimizer.state_dict()
    assert float(states["state"][0]["step"]) == 3 * 6 / 2
    assert states["param_groups"][0]["lr"] < 0.5
    optimizer = gan.optimizers()
    assert optimizer.param_groups[0]["betas"] == (0.5, 0.999)  # type: ignore[union-attr]


# -- resuming and releasing ------------------------------------------------------------------------------------------


def test_a_resumed_run_has_its_generator_its_average_and_its_optimizer(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    ledger = Ledger(None, delta=1e-5, path=tmp_path / "ledger.jsonl")
    first = module(n_classes=2)
    trained(first, ledger, Checkpoint(path, every=2), stop=4)
    again = module(n_classes=2)
    trained(again, ledger, ckpt=path, stop=5)  # the generator learns at even steps only
    for name, value in first.generator.state_dict().items():
        assert torch.equal(again.generator.state_dict()[name], value)
        assert torch.equal(again.average[name], first.average[name])
    assert torch.equal(again.partition.sizes, first.partition.sizes)
    states = [m.generator_optimizer.state_dict()["state"] for m in (first, again)]
    assert all(torch.equal(states[0][i]["exp_avg"], states[1][i]["exp_avg"]) for i in states[0])


def test_centred_networks_begin_at_released_means(tmp_path: Path) -> None:
    """One Gaussian of the declared plan more; critics and generator have the means, also when resumed and out of a file."""
    config = {"centred": True}
    made = [module(n_classes=2, config=config, epsilon=4.0, noise_multiplier=None, sigma_count=None) for _ in range(2)]
    ledger = Ledger(made[0].plan.budget, path=tmp_path / "ledger.jsonl")
    trained(made[0], ledger, Checkpoint(tmp_path / "last.ckpt", every=2), stop=4)
    assert [(entry.note, entry.event) for entry in ledger.entries()][1] == (
        MEANS,
        gaussian_event(made[0].plan.sigma_means or 0),
    )
    assert ledger.epsilon() == pytest.approx(epsilon(made[0].plan.event(made[0].config), 1e-5), rel=1e-3)
    means = made[0].means
    assert float(means[0].mean()) > 0.5 > float(means[1].mean())  # class 0 is mostly ones
    trained(made[1], ledger, ckpt=tmp_path / "last.ckpt", stop=5)
    for gan in made:
        assert torch.equal(gan.bank.centre, means)
        assert torch.equal(gan.generator.base, means.logit())
    model = made[1].release(ledger)
    model.save(tmp_path / "model")
    drawn = [released.samples(200, random_state=0) for released in (model, load(tmp_path / "model"))]
    assert torch.equal(drawn[0].x, drawn[1].x)
    ones = drawn[0].x.float().mean(1)
    assert float(ones[drawn[0].labels == 0].mean()) > float(ones[drawn[0].labels == 1].mean())


def test_an_untrained_generator_draws_the_means_that_it_begins_at() -> None:
    made = Generator(3, latent=2, categories=2, hidden=4, centred=True)
    means = torch.tensor([[0.1, 0.5, 0.9], [0.7, 0.2, 0.4]])
    with torch.no_grad():
        made.begin_at(means)
        for value in made.parameters():
            value.zero_()
        torch.testing.assert_close(made(torch.randn(2, 2), torch.tensor([1, 0]))[:, :3], means.flip(0))


# -- options and models ------------------------------------------------------------------------------------------------


def test_critics_are_smaller_than_the_generator():
    critic = DPGANConfig(hidden=200, centred=True, frequencies=5).critic_bank(16, 2, (4, 4))
    assert critic.shapes == {"0.weight": (128, 5), "0.bias": (128,), "1.weight": (1, 128), "1.bias": (1,)}
    with refused("frequencies"):
        DPGANConfig(frequencies=5).critic_bank(16, 2, None)


@pytest.mark.parametrize(
    ("options", "shape", "critics", "generators"),
    [
        ({}, (20, 20), 100, 100),
        ({}, (19, 20), None, None),
        ({"frequencies": 0}, (20, 20), None, None),
        ({"frequencies": 7}, (3, 5), 7, 7),
    ],
)
def test_networks_of_large_images_are_of_frequencies(options, shape, critics, generators):
    config, d = DPGANConfig(**options), shape[0] * shape[1]
    assert config.critic_bank(d, 2, shape).frequencies == critics
    assert config.generator(d, 2, shape).frequencies == generators


def test_there_is_a_critic_for_every_record_or_for_every_label():
    one, several = (DPGANConfig(centred=centred, fakes=8).critic_bank(16, 4, None) for centred in (False, True))
    assert (one.k, one.categories, several.k, several.categories) == (1, 4, 4, 0)
    with refused("fakes", "10"):
        DPGANConfig(centred=True, fakes=8).critic_bank(16, 5, None)


@pytest.mark.parametrize(
    "options",
    [
        {"critic_steps": 0},
        {"micro_batch": None},
        {"latent": 0},
        {"lr": 0.0},
        {"generator_lr": float("inf")},
        {"average": 1.0},
        {"diversity": -1.0},
        {"fakes": 1, "diversity": 1.0},
        {"frequencies": 5, "network": "a:B"},
        {"centred": True, "network": "a:B"},
        {"network": "cnn"},
        {"frequencies": -1},
        {"network": "mpl"},
        {"network": ("a:B", "c:D", "e:F")},
        {"network": ("mlp", "c:D")},
        {"latent": 7, "network": "a:B"},
        {"hidden": 7, "network": ("a:B", "c:D")},
        {"generator_options": {"a": 1}},
        {"critic_options": {}, "network": "a:B"},
    ],
)
def test_bad_options_are_refused(options):
    with refused(next(iter(options))):
        DPGANConfig(**options)


def test_networks_that_the_data_cannot_have_are_refused():
    with refused("centred", "points"):
        DPGAN(d=16, plan=DPGANPlan(noise_multiplier=1.0, sigma_count=5.0), config=DPGANConfig(centred=True), bounded=False)


def generator(d=5, *, categories=0, output="sigmoid"):
    made = Generator(d, latent=3, categories=categories, hidden=4, output=output)
    with torch.no_grad():
        made.initialize(torch.Generator().manual_seed(0))
    return made


def test_records_round_trip(tmp_path):
    model = GANModel(generator(categories=2), torch.tensor([30.0, 10.0]), statement=tiny.statement(), columns=list("abcde"))
    model.save(tmp_path / "m")
    first, second = (m.samples(200, random_state=4) for m in (model, load(tmp_path / "m")))
    assert torch.equal(first.x, second.x)
    assert torch.equal(first.labels, second.labels)
    assert first.columns == tuple("abcde")
    assert model.size == 40
    assert 20 < int(first.labels.sum()) < 85, "a quarter, give or take"
    assert model.samples(3, clusters=[1]).labels.tolist() == [1, 1, 1]
    assert model.samples(0).x.shape == (0, 5)
    unlabelled = GANModel(generator(), torch.tensor([-3.0]), statement=tiny.statement())
    assert (unlabelled.samples(4).labels, unlabelled.size) == (None, 0)
    for asked in ({"n": -1}, {"n": 1, "clusters": [2]}):
        with refused(*list(asked)[-1:]):
            unlabelled.samples(**asked)


def test_generators_of_earlier_versions_are_read_where_they_make_pixels():
    made = generator()
    tensors = {f"generator.{name}": value for name, value in made.state_dict().items()}
    earlier = {name: value for name, value in made.architecture().items() if name != "frequencies"}
    z = torch.randn(2, 3)
    assert torch.equal(GANModel.rebuilt({"generator": earlier | {"coarse": 1}}, tensors)(z), made(z))
    with refused("coarse"):
        GANModel.rebuilt({"generator": earlier | {"coarse": 2}}, tensors)


def test_points_round_trip_and_stay_in_their_box(tmp_path):
    bounds = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    model = PointGANModel(
        generator(2, output="identity"),
        location=torch.tensor([0.5, -0.5], dtype=torch.float64),
        scale=torch.tensor([10.0, 10.0], dtype=torch.float64),
        bounds=bounds,
        columns=["a", "b"],
        statement=tiny.statement(),
    )
    model.save(tmp_path / "m")
    x = model.samples(50, random_state=1).x
    assert torch.equal(x, load(tmp_path / "m").samples(50, random_state=1).x)
    assert bool(((x >= bounds[:, 0]) & (x <= bounds[:, 1])).all())


def test_corrections_of_earlier_versions_are_read(tmp_path):
    """A correction that is 0 has the bits of its release, one that is large has ones."""
    p = torch.tensor([[0.9], [0.1]]).expand(2, 5)
    start = ProductMixture(p, torch.tensor([30.0, 10.0]), statement=tiny.statement(), n_classes=2)
    correction = Correction(5, categories=2, hidden=4)
    for value in correction.parameters():
        torch.nn.init.zeros_(value)
    seed = int(torch.randint(2**31, (), generator=torch.Generator().manual_seed(4)))
    for bias, bits in ((0.0, start.samples(200, random_state=seed).x), (2.0, torch.ones(200, 5))):
        torch.nn.init.constant_(correction.layers[-1].bias, bias)
        CorrectedModel(start, correction, statement=tiny.statement()).save(tmp_path / f"m{bias}")
        drawn = load(tmp_path / f"m{bias}").samples(200, random_state=4)
        assert torch.equal(drawn.x, bits.to(drawn.x))
        assert torch.equal(drawn.labels, start.samples(200, random_state=seed).labels)
