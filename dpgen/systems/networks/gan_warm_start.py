"""Warm start of DPGAN: both networks play without noise on samples of a released model, before private records are seen."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from dpgen.nets.gan import paired
from dpgen.privacy.clipping import clipped_sums
from dpgen.release import RecordModel
from dpgen.samples import RecordSamples
from dpgen.systems.networks.warm_start import start_samples

if TYPE_CHECKING:
    from dpgen.systems.networks.dpgan import DPGAN

_BATCH = 256
_RATE = 1e-2


def pretrain_gan(module: "DPGAN", start: RecordModel, *, steps: int, generator: torch.Generator) -> None:
    """Train critic and generator on samples of a released model by plain Adam: post-processing, nothing is charged.

    Arguments:
        module: untrained networks, changed in place.
        start: the released model.
        steps: of either network.
        generator: public randomness.

    Raises:
        ValueError: the samples have other columns than the networks, or no labels where these are needed.
    """
    samples = start_samples(start, d=module.generator.d, labels=module.n_classes, generator=generator)
    classes = max(module.n_classes, 1)
    frequencies = torch.ones(1) if samples.labels is None else torch.bincount(samples.labels, minlength=classes).float()
    critic = nn.Parameter(module.bank.theta.detach())
    critic_adam = torch.optim.Adam([critic], lr=_RATE, betas=(0.5, 0.9))
    generator_adam = torch.optim.Adam(module.generator.parameters(), lr=module.gan.generator_lr, betas=(0.5, 0.9))
    for _ in range(steps):
        z = torch.randn(_BATCH, module.gan.latent, generator=generator).to(critic.device)
        labels = torch.multinomial(frequencies, _BATCH, replacement=True, generator=generator).to(critic.device)
        made: Tensor = module.generator(z, paired(labels) if module.n_classes else None)
        critic.grad = _critic_gradient(module, _batch(samples, module.n_classes, generator).to(made), made.detach())
        critic_adam.step()
        if module.gan.weight_bound is not None:
            critic.data.clamp_(-module.gan.weight_bound, module.gan.weight_bound)
        generator_adam.zero_grad()
        module.generator_loss(made, z).backward()
        generator_adam.step()
    module.adopt_generator()


def _critic_gradient(module: "DPGAN", x: Tensor, made: Tensor) -> Tensor:
    """Gradient (1, p) of the critic's mean loss on samples and on generated records."""
    real = module.bank.gradients(x, [0, len(x)], lambda *shape, **_: x.new_zeros(shape)).full()
    fake = module.bank.fake_gradients(made).full()
    weights = torch.full((_BATCH,), 1.0 / _BATCH, device=x.device)
    with torch.no_grad():
        sums = [clipped_sums(part, weights, torch.empty_like(module.bank.theta)) for part in (real, fake)]
    return sums[0] + sums[1]


def _batch(samples: RecordSamples, categories: int, generator: torch.Generator) -> Tensor:
    chosen = torch.randint(len(samples.x), (_BATCH,), generator=generator)
    x = samples.x[chosen].float()
    if not categories or samples.labels is None:
        return x
    return torch.cat([x, one_hot(samples.labels[chosen], categories).float()], 1)
