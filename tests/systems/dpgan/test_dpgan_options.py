"""Options of DPGAN: what is refused, and what the critic gets."""

import pytest

from dpgen.nets.conv import ConvCriticBank
from dpgen.nets.gan import CriticBank
from dpgen.systems.dpgan.plan import DPGANConfig, DPGANPlan


@pytest.mark.parametrize(("options", "kind"), [({}, CriticBank), ({"network": "cnn"}, ConvCriticBank)])
def test_networks(options, kind):
    config = DPGANConfig(**options)
    assert config.clipping == "fixed"
    assert type(config.critic_bank(16, 2, (4, 4))) is kind


def test_convolutions_need_images():
    with pytest.raises(ValueError, match="network='cnn' needs images"):
        DPGANConfig(network="cnn").critic_bank(16, 2, None)


def test_critics_are_smaller_than_the_generator():
    critic = DPGANConfig(hidden=200, centred=True, frequencies=5).critic_bank(16, 2, (4, 4))
    assert critic.shapes == {"0.weight": (128, 5), "0.bias": (128,), "1.weight": (1, 128), "1.bias": (1,)}
    with pytest.raises(ValueError, match="frequencies is 5: it needs images"):
        DPGANConfig(frequencies=5).critic_bank(16, 2, None)


@pytest.mark.parametrize(
    ("options", "shape", "critics", "generators"),
    [
        ({}, (20, 20), 100, 100),
        ({}, (19, 20), None, None),
        ({"frequencies": 0}, (20, 20), None, None),
        ({"frequencies": 7}, (3, 5), 7, 7),
        ({"network": "cnn"}, (20, 20), None, None),
    ],
)
def test_networks_of_large_images_are_of_frequencies(options, shape, critics, generators):
    config, d = DPGANConfig(**options), shape[0] * shape[1]
    assert config.critic_bank(d, 2, shape).frequencies == critics
    assert config.generator(d, 2, shape).frequencies == generators


def test_there_is_a_critic_for_every_record_or_for_every_label():
    one, several = (DPGANConfig(centred=centred, fakes=8).critic_bank(16, 4, None) for centred in (False, True))
    assert (one.k, one.categories, several.k, several.categories) == (1, 4, 4, 0)
    with pytest.raises(ValueError, match="fakes is 8; it must be at least 10, two for each"):
        DPGANConfig(centred=True, fakes=8).critic_bank(16, 5, None)


def test_means_of_a_run_that_releases_none_are_refused():
    with pytest.raises(ValueError, match="means_share"):
        DPGANPlan(means_share=0.2).require_use(DPGANConfig())
    DPGANPlan(means_share=0.2).require_use(DPGANConfig(centred=True))


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
        {"frequencies": 5, "network": "cnn"},
        {"centred": True, "network": "cnn"},
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
    with pytest.raises(ValueError, match=next(iter(options))):
        DPGANConfig(**options)
