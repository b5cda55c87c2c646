"""DPGAN: a generator taught by a critic that DP-SGD trains (Xie et al. 2018)."""

import warnings
from typing import Any

import torch
from torch import Tensor

from dpgen.callbacks import Previews, PrivacyAccountant
from dpgen.nets.bank import ModelBank
from dpgen.nets.gan import Generator, critic_loss, paired, sameness, with_parameters
from dpgen.privacy.clipping import clipped_sums, gradient_norms
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.noise import PublicRandomness, SecureSource
from dpgen.privacy.sampling import PoissonLoader
from dpgen.runtime import Runtime
from dpgen.statement import PrivacyStatement
from dpgen.systems.dpgan_options import DPGANConfig
from dpgen.systems.dpgm import DPGM
from dpgen.systems.dpgm_options import DPGMPlan
from dpgen.systems.gan_models import GANModel, PointGANModel
from dpgen.systems.gan_warm_start import pretrain_gan
from dpgen.systems.partition import LabelPartition
from dpgen.systems.private_data import PrivatePoints, PrivateRecords
from dpgen.systems.warm_start import begin, not_covered


class _ClassPartition(LabelPartition):
    """Every record belongs to the one critic; the released counts are those of the classes, for the generator's labels."""

    def __init__(self, n_classes: int, *, noise_count: float) -> None:
        super().__init__(max(n_classes, 1), noise_count=noise_count, labelled=bool(n_classes))
        self.class_counts = torch.zeros(self.k)

    def fit(self, x: Tensor, labels: Tensor | None, *, ledger: Ledger, source: SecureSource) -> None:
        self.labelled = self.k > 1
        super().fit(x, labels, ledger=ledger, source=source)
        self._adopt(self.counts)

    def _adopt(self, class_counts: Tensor) -> None:
        self.class_counts, self.counts = class_counts, class_counts.clamp_min(0.0).sum()[None]
        self.labelled = False

    def state_dict(self) -> dict[str, Any]:
        return {"counts": self.class_counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._adopt(state["counts"])


class DPGAN(DPGM):
    r"""A critic trained by DP-SGD on private records, and a generator that sees the critic only.

    One step is one Poisson(q) draw: the critic's gradient is

    .. math:: \frac{C}{q \tilde n} \Big[\sum_{r \in S} \frac{\text{clip}(\nabla \ell(D(x_r)), C)}{C} + N(0, \sigma^2 I)\Big]
        + \frac{1}{m} \sum_{j \le m} \text{clip}(\nabla \ell'(D(G(z_j))), C),

    where the second sum is free: the generator is a function of released critics, so real and fake records make one
    release of sensitivity 1. Every `critic_steps` steps the generator takes one step on the critic alone.

    Arguments:
        d: columns of a record, labels not counted.
        plan: what may be spent.
        config: the networks.
        n_classes: number of labels, 0 without; the generator draws labels in proportion to their noisy counts.
        image_shape: (height, width) of images.
        bounded: whether records lie in [0, 1] (the generator ends in a sigmoid).
        seed: of public randomness.
        private_logs: see `DPGM`.

    Source: Xie, Lin, Wang, Wang, Zhou 2018, Algorithm 1.
    """

    def __init__(
        self,
        *,
        d: int,
        plan: DPGMPlan,
        config: DPGANConfig | None = None,
        n_classes: int = 0,
        image_shape: tuple[int, int] | None = None,
        bounded: bool = True,
        seed: int = 0,
        private_logs: bool = False,
    ) -> None:
        self.gan = gan = config or DPGANConfig()
        critic: ModelBank = gan.critic(d, n_classes, image_shape)
        super().__init__(
            d=d,
            plan=plan,
            config=gan.critic_config(),
            n_classes=n_classes,
            seed=seed,
            private_logs=private_logs,
            bank=critic,
        )
        self.generator = Generator(
            d,
            latent=gan.latent,
            categories=n_classes,
            hidden=gan.hidden,
            depth=gan.depth,
            image_shape=image_shape if gan.network == "cnn" or gan.coarse > 1 else None,
            output="sigmoid" if bounded else "identity",
            coarse=gan.coarse,
        )
        with torch.no_grad():
            self.generator.initialize(self._public.spawn("generator").generator)
        self._average: dict[str, Tensor] = {}
        self.adopt_generator()
        self._restored: dict[str, Any] | None = None

    def _partition(self, public: PublicRandomness, public_x: Tensor | None) -> _ClassPartition:
        assert self.plan.sigma_count is not None
        return _ClassPartition(self.n_classes, noise_count=self.plan.sigma_count)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The critic's optimizer; the generator's is not Lightning's, so that one step stays one paid step."""
        self._generator_optimizer = torch.optim.Adam(
            self.generator.parameters(), lr=self.gan.generator_lr, betas=(self.gan.momentum, 0.999), fused=True
        )
        optimizer = super().configure_optimizers()
        for settings in optimizer.param_groups:
            settings["betas"] = (self.gan.momentum, 0.999)
        return optimizer

    def on_train_start(self) -> None:
        super().on_train_start()
        self._average = {name: value.to(self.device) for name, value in self._average.items()}
        if self._restored is not None:
            self._generator_optimizer.load_state_dict(self._restored)
            self._restored = None

    # -- one step ----------------------------------------------------------------------------------------------------

    def fakes(self, n: int, name: str) -> tuple[Tensor, Tensor | None]:
        """Public latent noise and labels of n generated records; the same for the same step and name."""
        generator = self._public.spawn(f"{name} {self.global_step}").generator
        z = torch.randn(n, self.gan.latent, generator=generator).to(self.device)
        if not self.n_classes:
            return z, None
        partition = self.partition
        assert isinstance(partition, _ClassPartition)
        weights = partition.class_counts.clamp_min(0.0) + 1e-6
        return z, torch.multinomial(weights, n, replacement=True, generator=generator).to(self.device)

    def _descend(self, sums: Tensor, group: int) -> None:
        expected = self._expected_sizes().to(sums)
        super()._descend(sums.add_(self._fake_sums() * expected / self.gan.fakes), group)
        bound = self.gan.weight_bound
        if bound is not None:
            self.bank.theta.clamp_(-bound, bound)
        if self.global_step % self.gan.critic_steps == 0:
            for turn in range(self.gan.generator_steps):
                self._teach_generator(turn)

    def _fake_sums(self) -> Tensor:
        """Clipped sums (1, p) of generated records, in units of the clip bound like those of real ones."""
        x = self.generator(*self.fakes(self.gan.fakes, "critic"))
        with torch.enable_grad():
            gradients = self.bank.fake_gradients(x.detach()).full()  # type: ignore[operator]
        norms = gradient_norms(gradients)
        coefficients = self._policy.coefficients(norms, torch.zeros(len(x), dtype=torch.int64, device=x.device))
        return clipped_sums(gradients, coefficients, torch.empty_like(self.bank.theta))

    @torch.enable_grad()
    def _teach_generator(self, turn: int) -> None:
        """One step of the generator: it reads the critic's released parameters and public noise, and no record."""
        z, labels = self.fakes(self.gan.fakes, f"generator {turn}")
        loss = self.generator_loss(self.generator(z, paired(labels)), z)
        for settings in self._generator_optimizer.param_groups:
            settings["lr"] = self.gan.generator_lr * max(0.0, 1.0 - self.global_step / self.plan.steps)
        parameters = list(self.generator.parameters())
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters)):
            parameter.grad = gradient
        self._generator_optimizer.step()
        for name, value in self.generator.named_parameters():
            self._average[name].lerp_(value.detach(), 1.0 - self.gan.average)

    def generator_loss(self, x: Tensor, z: Tensor) -> Tensor:
        """Loss of the generator on its records x (m, d + categories), of `paired` labels, made of z (m, latent)."""
        score = self.bank.score(x)  # type: ignore[operator]
        loss = critic_loss(score, real=True, loss=self.gan.loss).mean()
        weight = self.gan.diversity
        return loss + weight * sameness(x[:, : self.generator.d], z) if weight else loss

    @torch.no_grad()
    def preview(self, per_cluster: int = 8) -> Tensor:
        """Means (rows, per_cluster, d) of generated records, one row per class, always from the same latent draws."""
        rows = max(self.n_classes, 1)
        z = torch.randn(rows * per_cluster, self.gan.latent, generator=self._public.spawn("preview").generator)
        labels = torch.arange(rows).repeat_interleave(per_cluster) if self.n_classes else None
        codes = None if labels is None else labels.to(self.device)
        x = with_parameters(self.generator, self._average, z.to(self.device), codes)
        return x[:, : self.generator.d].unflatten(0, (rows, per_cluster))

    # -- checkpoint and release --------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["generator_optimizer"] = self._generator_optimizer.state_dict()
        checkpoint["generator_average"] = self._average

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self._restored = checkpoint["generator_optimizer"]
        self._average = checkpoint["generator_average"]

    @torch.no_grad()
    def adopt_generator(self) -> None:
        """Let the running average of the generator begin at its present parameters."""
        self._average = {name: value.detach().clone() for name, value in self.generator.named_parameters()}

    def released_generator(self, ledger: Ledger) -> tuple[Generator, Tensor, PrivacyStatement]:
        """The averaged generator, the noisy class counts, and the statement of `ledger`, the one it was trained under.

        Raises:
            ValueError: another ledger, or nothing was trained.
        """
        self._require_ledger(ledger)
        if not self.partitioned:
            raise ValueError("there is nothing to release: the module has not been trained")
        generator = Generator(**self.generator.architecture())
        generator.load_state_dict({name: value.cpu() for name, value in self._average.items()})
        statement = PrivacyStatement.from_ledger(ledger, assumptions=self.assumptions)
        assert isinstance(self.partition, _ClassPartition)
        return generator, self.partition.class_counts, statement.extended((), private_logs=self._private_logs)


def fit(
    data: PrivateRecords | PrivatePoints, *, plan: DPGMPlan, config: DPGANConfig, ledger: Ledger, runtime: Runtime
) -> GANModel | PointGANModel:
    """Train DPGAN on private records or points, or resume it, and release the generator with its statement.

    Raises:
        ValueError: what `DPGAN`, its options and its loader refuse.
    """
    if isinstance(data, PrivatePoints):
        return _fit_points(data, plan=plan, config=config, ledger=ledger, runtime=runtime)
    if data.x.shape[0] < 1:
        raise ValueError("there must be at least 1 records, got 0")
    start, plan = (None, plan) if config.warm_start is None else begin(plan, config, ledger, runtime)
    module = DPGAN(
        d=data.x.shape[1],
        plan=plan,
        config=config,
        n_classes=data.n_classes,
        image_shape=data.image_shape,
        seed=runtime.seed,
        private_logs=runtime.private_logs,
    )
    if start is not None and not runtime.checkpoint.exists():
        public = PublicRandomness(runtime.seed).spawn("warm start").generator
        pretrain_gan(module, start, steps=config.warm_start_steps, generator=public)
    loader = PoissonLoader(data.x, data.labels, sampling_rate=plan.sampling_rate)
    spent = _train(module, loader, ledger, runtime, data.image_shape)
    generator, counts, statement = module.released_generator(spent)
    statement = statement if start is None else statement.extended(not_covered(config, start))
    return GANModel(generator, counts, statement=statement, columns=data.columns)


def _fit_points(data: PrivatePoints, *, plan: DPGMPlan, config: DPGANConfig, ledger: Ledger, runtime: Runtime) -> PointGANModel:
    if config.warm_start is not None:
        raise ValueError(f"warm_start is {str(config.warm_start)!r}; only DPGAN on binary records has one")
    module = DPGAN(
        d=data.x.shape[1], plan=plan, config=config, bounded=False, seed=runtime.seed, private_logs=runtime.private_logs
    )
    x = ((data.x - data.location) / data.scale).float()
    spent = _train(module, PoissonLoader(x, sampling_rate=plan.sampling_rate), ledger, runtime, None)
    generator, _, statement = module.released_generator(spent)
    return PointGANModel(
        generator,
        location=data.location,
        scale=data.scale,
        bounds=data.bounds,
        columns=data.columns,
        statement=statement,
    )


def _train(
    module: DPGAN, loader: PoissonLoader, ledger: Ledger, runtime: Runtime, image_shape: tuple[int, int] | None
) -> Ledger:
    """Train within the budget; the ledger that counts, which on several ranks is a copy of the first one's."""
    plan = module.plan
    every = max(1, round(plan.steps * plan.sampling_rate / 10))
    accountant = PrivacyAccountant(ledger, every=every)
    callbacks = [accountant, module.config.clipping_callback(plan)]
    if image_shape is not None:
        callbacks.append(Previews(module.preview, image_shape=image_shape, every=every))
    runtime.fit(module, loader, max_steps=plan.steps, callbacks=callbacks)
    if module.global_step < plan.steps:
        warnings.warn(f"the budget ended training after {module.global_step} of {plan.steps} steps", stacklevel=3)
    return accountant.ledger
