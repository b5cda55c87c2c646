"""DPGAN: a generator taught by a critic that DP-SGD trains (Xie et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.func import functional_call

from dpgen.facts import Said
from dpgen.nets.gan import CriticBank, Generator, critic_loss, paired, sameness
from dpgen.privacy.clipping import clipped_sums, gradient_norms
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.noise import PublicRandomness, to_device
from dpgen.systems.dp_sgd.engine import DPSGD, train
from dpgen.systems.dp_sgd.model import Inputs, TrainingData, released
from dpgen.systems.dp_sgd.partition import LabelPartition
from dpgen.systems.dp_sgd.plan import DPSGDPlan
from dpgen.systems.dpgan.model import GANModel, PointGANModel
from dpgen.systems.dpgan.plan import DPGANConfig

if TYPE_CHECKING:
    from dpgen.data import Images, Points, Records
    from dpgen.nets.own import OwnCriticBank, OwnGenerator
    from dpgen.release import PublicModel
    from dpgen.runtime import Runtime

_BETAS = (0.5, 0.999)
"""Decay rates of Adam, for both networks."""


class DPGAN(DPSGD):
    r"""A critic trained by DP-SGD on private records, and a generator that sees the critic only.

    One step is one Poisson(q) draw: the critic's gradient is

    .. math:: \frac{C}{q \tilde n} \Big[\sum_{r \in S} \frac{\text{clip}(\nabla \ell(D(x_r)), C)}{C} + N(0, \sigma^2 I)\Big]
        + \frac{1}{m} \sum_{j \le m} \text{clip}(\nabla \ell'(D(G(z_j))), C),

    where the second sum is free: the generator is a function of released critics, so real and fake records make one
    release of sensitivity 1. Every `critic_steps` steps the generator takes one step on the critic alone.

    The generator draws labels in proportion to their noisy counts, and ends in a sigmoid where records are `bounded` in [0, 1];
    d, `image_shape` and `white` are as for `DPGM`.

    Source: Xie, Lin, Wang, Wang, Zhou 2018, Algorithm 1.
    """

    bank: CriticBank | OwnCriticBank
    partition: LabelPartition
    means_of_labels = False

    def __init__(
        self,
        *,
        d: int,
        plan: DPSGDPlan[Any],
        config: DPGANConfig | None = None,
        n_classes: int = 0,
        image_shape: tuple[int, ...] | None = None,
        bounded: bool = True,
        white: int = 1,
        seed: int = 0,
    ) -> None:
        self.gan = gan = config or DPGANConfig()
        plan = plan.calibrated(gan)
        bank = gan.critic_bank(d, n_classes, image_shape)
        if gan.centred and not bounded:
            raise ValueError("centred is True; it must be false for points")
        assert plan.sigma_count is not None
        labelled = n_classes > 1
        super().__init__(
            bank,
            LabelPartition(max(n_classes, 1), noise_count=plan.sigma_count, labelled=labelled, joined=bank.k == 1),
            plan=plan,
            config=gan,
            n_classes=n_classes,
            categories=n_classes if bank.k == 1 else 0,
            public=PublicRandomness(seed),
            white=white,
        )
        self.generator = gan.generator(d, n_classes, image_shape, bounded=bounded)
        with torch.no_grad():
            self.generator.initialize(self._public.spawn("generator").generator)
        self.average = {name: value.detach().clone() for name, value in self.generator.named_parameters()}
        self._restored: dict[str, Any] | None = None

    @torch.no_grad()
    def partition_found(self) -> None:
        """Begin at the means that were released."""
        super().partition_found()
        if self.means is not None and isinstance(self.generator, Generator):
            self.generator.begin_at(self.means.to(self.bank.theta))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The critic's optimizer; the generator's is not Lightning's, so that one step stays one paid step."""
        self.generator_optimizer = torch.optim.Adam(
            self.generator.parameters(), lr=self.gan.generator_lr, betas=_BETAS, fused=True
        )
        optimizer = super().configure_optimizers()
        for settings in optimizer.param_groups:
            settings["betas"] = _BETAS
        return optimizer

    def on_train_start(self) -> None:
        super().on_train_start()
        self.average = {name: value.to(self.device) for name, value in self.average.items()}
        if self._restored is not None:
            self.generator_optimizer.load_state_dict(self._restored)
            self._restored = None

    # -- one step ----------------------------------------------------------------------------------------------------

    def fakes(self, n: int, name: str) -> tuple[Tensor, Tensor | None]:
        """Public noise, and labels on the host, of n generated records; the same for the same step and name."""
        generator = self._public.spawn(f"{name} {self.global_step}").generator
        z = to_device(torch.randn(n, self.generator.latent, generator=generator), self.device)
        if not self.n_classes:
            return z, None
        if self.bank.k > 1:  # each learns from as many
            return z, torch.arange(n) % self.bank.k
        weights = self.partition.sizes.clamp_min(0.0) + 1e-6
        return z, torch.multinomial(weights, n, replacement=True, generator=generator)

    def generated(self, z: Tensor, labels: Tensor | None) -> Tensor:
        """Records (n, d + n_classes) of `fakes`."""
        made: Tensor = self.generator(z, None if labels is None else to_device(labels, self.device))
        return made

    def by_critic(self, x: Tensor, labels: Tensor | None) -> tuple[Tensor, list[int]]:
        """Generated records (n, d + n_classes) sorted by their critics, and the first row of each of them, (k + 1,)."""
        if self.bank.k == 1 or labels is None:
            return x, [0, len(x)]
        critic, order = labels.sort(stable=True)  # on the host, which need not ask the device
        sizes = torch.bincount(critic, minlength=self.bank.k)
        return x[to_device(order, x.device), : -self.bank.k], [0, *sizes.cumsum(0).tolist()]

    def fake_gradient(self) -> Tensor:
        """Mean clipped gradients (k, p) of generated records, in units of the clip bound like those of real ones."""
        z, labels = self.fakes(self.gan.fakes, "critic")
        rows, bounds = self.by_critic(self.generated(z, labels).detach(), labels)
        sizes = torch.tensor(bounds).diff()
        critic = to_device(torch.arange(self.bank.k).repeat_interleave(sizes), rows.device)
        with torch.enable_grad():
            made = self.bank.fake_gradients(rows, bounds)
        with torch.no_grad():
            weights = self.policy.coefficients(gradient_norms(made), critic)
            sums, each = clipped_sums(made, weights, torch.empty_like(self.bank.theta)), sizes.clamp_min(1)[:, None]
            return sums / to_device(each, rows.device)

    def descend(self, gradients: Tensor) -> None:
        bounds = self.policy.scale()
        mean = self.fake_gradient() * (1.0 if bounds is None else bounds.to(gradients)[:, None])
        super().descend(gradients.add_(mean))
        if self.global_step % self.gan.critic_steps == 0:
            for turn in range(self.gan.generator_steps):
                self.teach_generator(turn)

    @torch.enable_grad()
    def teach_generator(self, turn: int) -> None:
        """One step of the generator: it reads the critic's released parameters and public noise, and no record."""
        z, labels = self.fakes(self.gan.fakes, f"generator {turn}")
        loss = self.generator_loss(z, paired(labels))
        for settings in self.generator_optimizer.param_groups:
            settings["lr"] = self.gan.generator_lr * max(0.0, 1.0 - self.global_step / self.plan.steps)
        parameters = [value for value in self.generator.parameters() if value.requires_grad]
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters, materialize_grads=True)):
            parameter.grad = gradient
        self.generator_optimizer.step()
        for name, value in self.generator.named_parameters():
            self.average[name].lerp_(value.detach(), 1.0 - self.gan.average)

    def generator_loss(self, z: Tensor, labels: Tensor | None) -> Tensor:
        """Loss of the generator on its records of z (m, latent) and `paired` labels (m,)."""
        x = self.generated(z, labels)
        score = self.bank.score(*self.by_critic(x, labels))
        loss = critic_loss(score, real=True).mean()
        weight = self.gan.diversity
        return loss + weight * sameness(x[:, : self.generator.d], z) if weight else loss

    @torch.no_grad()
    def preview(self, per_cluster: int = 8) -> Tensor:
        """Means (rows, per_cluster, d) of generated records, one row per class, always from the same latent draws."""
        rows = max(self.n_classes, 1)
        labels = torch.arange(rows).repeat_interleave(per_cluster) if self.n_classes else None
        z = torch.randn(rows * per_cluster, self.generator.latent, generator=self._public.spawn("preview").generator)
        codes = None if labels is None else labels.to(self.device)
        self.generator.eval()
        x = functional_call(self.generator, self.average, (z.to(self.device), codes))
        self.generator.train()
        return x[:, : self.generator.d].unflatten(0, (rows, per_cluster))

    # -- checkpoint and release --------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["generator_optimizer"] = self.generator_optimizer.state_dict()
        checkpoint["generator_average"] = self.average

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self._restored = checkpoint["generator_optimizer"]
        self.average = checkpoint["generator_average"]

    def released_generator(self) -> Generator | OwnGenerator:
        """The averaged generator, on the CPU."""
        made = type(self.generator)(**self.generator.architecture())
        values = self.generator.state_dict() | self.average
        made.load_state_dict({name: value.cpu() for name, value in values.items()})
        return made

    @property
    def facts(self) -> tuple[Said, ...]:
        return (*super().facts, *self.generator.facts)

    def release(self, ledger: Ledger, *, columns: Sequence[str] | None = None) -> GANModel:
        """The generator of records, the noisy sizes of classes, and the statement of `ledger`, the one it was trained under."""
        statement = self.statement(ledger)
        return GANModel(self.released_generator(), self.partition.sizes, statement=statement, columns=columns)


def fit(
    data: Records | Images | Points,
    *,
    plan: DPSGDPlan[Any],
    config: DPGANConfig,
    curator: Curator,
    runtime: Runtime,
) -> PublicModel:
    """Train DPGAN on private records, images or points, or resume it, and release the generator with its statement."""
    points: Any = data if hasattr(data, "location") else None
    if points is None:
        own = TrainingData.of(cast("Records | Images", data))
    else:
        x = ((points.x - points.location) / points.scale).float()
        own = TrainingData(inputs=Inputs(x, None), people=points.people)

    def release(module: DPGAN, ledger: Ledger) -> PublicModel:
        if points is None:
            return released(module.release(ledger, columns=own.columns), own)
        return PointGANModel(
            module.released_generator(),
            location=points.location,
            scale=points.scale,
            bounds=points.bounds,
            columns=points.columns,
            statement=module.statement(ledger),
            size=round(float(module.partition.counts)),
        )

    module = DPGAN(
        d=own.d,
        plan=plan,
        config=config,
        n_classes=own.n_classes,
        image_shape=own.image_shape,
        bounded=points is None,
        white=own.inputs.white,
        seed=runtime.seed,
    )
    return train(module, release, own, curator=curator, runtime=runtime)
