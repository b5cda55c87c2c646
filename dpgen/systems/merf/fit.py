r"""DP-MERF (Harder, Adamczewski, Park 2021, Algorithm 1): one noisy mean embedding, and a generator that fits it.

A record (x, y) is embedded as :math:`\phi(x) \otimes e_y`, :math:`\phi` the random Fourier features of
`dpgen.systems.kmeans.fit`, of norm at most 1. The sums :math:`S_y` of the embeddings get Gaussian noise once. The
generator G then minimises :math:`\sum_y \| S_y / N - \frac1B \sum_{i : y_i = y} \phi(G(z_i, y_i)) \|^2`, the squared maximum
mean discrepancy of the random features, which is post-processing.

The paper releases the sizes of the classes apart. Here each record adds a weight w = 0.1 to the count of its class in the same
release, which adds half a percent to the noise.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from dpgen.nets.gan import Generator
from dpgen.privacy.accountants import calibrate_noise
from dpgen.privacy.curator import Curator, gaussian_price
from dpgen.privacy.exact_sums import BoundedSum, group_sums
from dpgen.privacy.ledger import Budget, Planned
from dpgen.privacy.noise import PublicRandomness
from dpgen.progress import steps
from dpgen.statement import PrivacyStatement
from dpgen.systems.dp_sgd.model import Inputs, TrainingData, released
from dpgen.systems.dpgan.model import GANModel
from dpgen.systems.kmeans.fit import NORM, RandomFourierFeatures
from dpgen.systems.marginals.fit import FACTS, require_records
from dpgen.systems.merf.plan import MERFConfig
from dpgen.systems.plan import SumsPlan

if TYPE_CHECKING:
    from dpgen.data import Images, Records
    from dpgen.release import PublicModel
    from dpgen.runtime import Runtime

NOTE = "mean embeddings of classes"
_WEIGHT = round(0.1 * NORM)
_AT_ONCE = 2048


def embeddings(inputs: Inputs, k: int, features: RandomFourierFeatures) -> BoundedSum:
    r"""Sums (k, D + 1) of the features of each class's records, and of w for each of them, on the grid of the features.

    A record adds :math:`(\phi(x), w)` to its own row: norm at most :math:`\sqrt{1 + w^2}`. One that is replaced by a record of
    its class moves :math:`\phi` by at most 2 and not the count; by one of another class both rows, :math:`\sqrt{2 + 2 w^2}`.
    """
    total = torch.zeros(k, 2 * features.turns.shape[1] + 1, dtype=torch.int64)
    for rows in torch.arange(len(inputs.x)).split(_AT_ONCE):
        embedded = features.whole(inputs.x[rows])
        group = torch.zeros(len(rows), dtype=torch.int64) if inputs.labels is None else inputs.labels[rows].long()
        weighted = torch.cat([embedded, embedded.new_full((len(rows), 1), _WEIGHT)], 1)
        total += group_sums(weighted, group, k, most=NORM)
    return BoundedSum(total, math.hypot(1.0, _WEIGHT / NORM), replaced=2.0, step=1.0 / NORM)


def fit(data: Records | Images, *, plan: SumsPlan, config: MERFConfig, curator: Curator, runtime: Runtime) -> PublicModel:
    """Release noisy mean embeddings as a generator that has them."""
    private = TrainingData.of(data)
    if private.pixels is None:
        require_records(data)  # type: ignore[arg-type]
    inputs, k, public = private.inputs, max(private.n_classes, 1), PublicRandomness(runtime.seed)
    inputs = inputs if private.n_classes else inputs._replace(labels=None)
    gamma = (8.0 / private.d if config.gamma is None else config.gamma) / inputs.white**2
    drawn = public.spawn("frequencies").generator
    features = RandomFourierFeatures(private.d, config.n_features, gamma=gamma, generator=drawn, largest=inputs.white)
    nobody = embeddings(Inputs(inputs.x[:0], None), k, features)  # how far a record could move the sums is public
    sigma = calibrate_noise(
        lambda multiplier: gaussian_price(nobody, multiplier, curator.relation),
        Budget(plan.epsilon, plan.delta),
        relation=curator.relation,
    )
    curator.declare(Planned(gaussian_price(nobody, sigma, curator.relation), NOTE))
    noisy = curator.gaussian(NOTE, embeddings(inputs, k, features), sigma)
    counts = (noisy[:, -1] * NORM / _WEIGHT).clamp_min(0.0)
    generator = _trained(noisy[:, :-1], counts, features, private, config, public)
    statement = PrivacyStatement.from_ledger(curator.ledger, facts=FACTS)
    return released(GANModel(generator, counts.float(), statement=statement, columns=private.columns), private)


def _trained(
    sums: Tensor,
    counts: Tensor,
    features: RandomFourierFeatures,
    data: TrainingData,
    config: MERFConfig,
    public: PublicRandomness,
) -> Generator:
    """A generator whose mean embeddings (k, D) are those of the released sums (k, D) and counts (k,)."""
    k, white = len(counts), data.inputs.white
    size = float(counts.sum()) or 1.0
    target, shares = (sums / size).float(), (counts if counts.sum() > 0 else torch.ones(k)).float()
    frequencies, scale = (features.frequencies * white).float(), math.sqrt(2.0 / config.n_features)
    generator = Generator(data.d, latent=config.latent, categories=data.n_classes, hidden=config.hidden, depth=config.depth)
    draws = public.spawn("generator").generator
    with torch.no_grad():
        generator.initialize(draws)
    adam = torch.optim.Adam(generator.parameters(), lr=config.lr)
    falling = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.0, total_iters=config.steps)
    for _ in steps(range(config.steps), "generator"):
        label = torch.multinomial(shares, config.batch, replacement=True, generator=draws)
        z = torch.randn(config.batch, config.latent, generator=draws)
        phases = generator(z, label if data.n_classes else None)[:, : data.d] @ frequencies
        embedded = torch.cat([phases.cos(), phases.sin()], 1) * scale
        loss = (one_hot(label, k).float().T @ embedded / config.batch - target).square().sum()
        adam.zero_grad()
        loss.backward()
        adam.step()
        falling.step()
    return generator.eval()
