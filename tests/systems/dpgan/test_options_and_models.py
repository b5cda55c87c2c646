"""Options of DPGAN, and released generators: files that round-trip, labels in proportion, points inside their box."""

import pytest
import tiny
import torch
from refusals import refused

from dpgen.nets.gan import Correction, Generator
from dpgen.systems.dpgan.fit import DPGAN
from dpgen.systems.dpgan.model import CorrectedModel, GANModel, PointGANModel
from dpgen.systems.dpgan.plan import DPGANConfig, DPGANPlan
from dpgen.systems.marginals.model import ProductMixture
from dpgen.systems.registry import load


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
