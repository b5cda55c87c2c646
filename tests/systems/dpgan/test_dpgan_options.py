"""Options of DPGAN: what is refused, and what the critic gets."""

import pytest

from dpgen.nets.conv import ConvCriticBank
from dpgen.nets.gan import CriticBank
from dpgen.systems.dpgan.plan import DPGANConfig, DPGANPlan


def test_the_critic_is_one_model_for_all_records():
    config = DPGANConfig(clipping="fixed", clip_bound=2.0, micro_batch=7, lr=0.3)
    critic = config.critic_training
    assert (critic.clipping, critic.clip_bound, critic.micro_batch, critic.lr) == ("fixed", 2.0, 7, 0.3)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, CriticBank),
        ({"network": "cnn"}, ConvCriticBank),
        ({"critic": "cnn", "frequencies": 5}, ConvCriticBank),
        ({"network": "cnn", "critic": "mlp"}, CriticBank),
    ],
)
def test_networks(options, kind):
    assert type(DPGANConfig(**options).critic_bank(16, 2, (4, 4))) is kind


def test_convolutions_need_images():
    with pytest.raises(ValueError, match="critic='cnn' needs images"):
        DPGANConfig(critic="cnn").critic_bank(16, 2, None)


def test_the_critic_may_be_smaller_than_the_generator():
    config = DPGANConfig(hidden=8, depth=2, critic_hidden=3, critic_depth=1, frequencies=5)
    critic = config.critic_bank(16, 2, (4, 4))
    assert critic.shapes == {"0.weight": (3, 5), "0.bias": (3,), "1.weight": (2, 3), "1.bias": (2,)}
    with pytest.raises(ValueError, match="frequencies is 5: it needs images"):
        config.critic_bank(16, 2, None)


@pytest.mark.parametrize(
    ("options", "shape", "critics", "generators"),
    [
        ({}, (20, 20), 100, 100),
        ({}, (19, 20), None, None),
        ({"frequencies": 0}, (20, 20), None, None),
        ({"frequencies": 7}, (3, 5), 7, 7),
        ({"critic": "cnn"}, (20, 20), None, 100),
        ({"network": "cnn", "critic": "mlp"}, (20, 20), None, None),
    ],
)
def test_networks_of_large_images_are_of_frequencies(options, shape, critics, generators):
    config, d = DPGANConfig(**options), shape[0] * shape[1]
    assert config.critic_bank(d, 2, shape).frequencies == critics
    assert config.generator(d, 2, shape).frequencies == generators


def test_there_is_a_critic_for_every_record_or_for_every_label():
    one, several = (DPGANConfig(critics=critics, fakes=8).critic_bank(16, 4, None) for critics in ("one", "labels"))
    assert (one.k, one.categories, several.k, several.categories) == (1, 4, 4, 0)
    for n_classes, match in (
        (0, "critics is 'labels'; it must be 'one'"),
        (5, "fakes is 8; it must be at least 10, two for each"),
    ):
        with pytest.raises(ValueError, match=match):
            DPGANConfig(critics="labels", fakes=8).critic_bank(16, n_classes, None)


def test_means_of_a_run_that_releases_none_are_refused():
    for config in (DPGANConfig(), DPGANConfig().critic_training):
        with pytest.raises(ValueError, match=r"means_share is 0\.2; this run releases no means"):
            DPGANPlan(means_share=0.2).require_use(config)
    DPGANPlan(means_share=0.2).require_use(DPGANConfig(centred=True))


def test_weights_are_clipped_as_published_only_where_asked():
    assert DPGANConfig().weight_bound is None
    assert DPGANConfig(loss="wgan").weight_bound == 1.0
    assert DPGANConfig(loss="wgan", weight_clip=0.1).weight_bound == 0.1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"critic_steps": 0}, "critic_steps is 0; it must be a whole number >= 1"),
        ({"micro_batch": None}, "micro_batch is None; it must be a whole number >= 1"),
        ({"latent": 0}, "latent is 0; it must be a whole number >= 1"),
        ({"lr": 0.0}, "lr must be positive"),
        ({"generator_lr": float("inf")}, "generator_lr must be positive and finite"),
        ({"weight_clip": -1.0}, "weight_clip must be positive"),
        ({"average": 1.0}, "average must be in"),
        ({"momentum": -0.1}, "momentum must be in"),
        ({"critic_hidden": 0}, "critic_hidden is 0; it must be a whole number >= 1"),
        ({"diversity": -1.0}, "diversity must be at least 0"),
        ({"diversity": 1.0, "fakes": 1}, "fakes must be at least 2 with diversity 1"),
        ({"critics": "classes"}, "critics is 'classes'; it must be one or labels"),
        ({"frequencies": 5, "network": "cnn"}, "frequencies is 5; it must be 0 with network='cnn', which makes pixels"),
        ({"centred": True, "network": "cnn"}, "centred is True; it must be false with network='cnn' and critic=None"),
        ({"centred": True, "critic": "cnn"}, "centred is True; it must be false with network='mlp' and critic='cnn'"),
        ({"frequencies": -1}, "frequencies is -1; it must be at least 1, or 0 for pixels"),
    ],
)
def test_bad_options_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        DPGANConfig(**options)
