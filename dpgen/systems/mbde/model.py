r"""MBDE: a density boosted from the public reference by bounded classifiers (Husain et al. 2018, 2020), and its certificates.

Certificates are estimated and proved gains of the rounds of boosting: COMPUTED ON PRIVATE DATA, NOT FOR RELEASE. The
published bounds (Husain et al. 2020, Theorems 5 and 6; 2018, Theorems 6 and 7) do not hold as printed:

- the low regime lacks a factor :math:`c^*`, the high regime needs :math:`c^* = \log 2`;
- the lower bound on the total gain uses :math:`\Gamma(z) \ge z \log 2`, which is false for z < 1.

The first is here as published, for comparison; the chord bound holds.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from torch import Tensor, nn
from torch.nn.functional import softplus

from dpgen.privacy.mechanisms import require_within
from dpgen.privacy.noise import PublicRandomness
from dpgen.statement import UNPROTECTED
from dpgen.systems.mbde.densities import Box, Density, Reference, bounded, mollified
from dpgen.systems.mbde.plan import EPSILONS, LOG2, MBDEConfig, step_sizes


class Classifier(nn.Module):
    r"""Logit of "x comes from P rather than Q", tanh layers and one linear output.

    Trained with the cross-entropy on equally weighted classes, the logit estimates :math:`\log P(x) / Q(x)`.

    Arguments:
        d: features.
        hidden: widths of the tanh layers; (25, 25, 25) is the network of the paper.
        generator: public randomness of the initial weights.

    Raises:
        ValueError: d or a width below 1.

    Source: Husain et al. 2018, equation 14.

    >>> Classifier(2, generator=torch.Generator().manual_seed(0))(torch.zeros(5, 2)).shape
    torch.Size([5])
    """

    def __init__(self, d: int, *, hidden: Sequence[int] = (25, 25, 25), generator: torch.Generator | None = None) -> None:
        super().__init__()
        if min(d, *hidden, 1) < 1:
            raise ValueError(f"d and hidden must be at least 1, got d={d} and hidden={tuple(hidden)}")
        layers: list[nn.Module] = []
        for width, following in itertools.pairwise((d, *hidden)):
            layers += [nn.Linear(width, following), nn.Tanh()]
        self.layers = nn.Sequential(*layers, nn.Linear((d, *hidden)[-1], 1))
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                reach = 1 / math.sqrt(layer.in_features)
                for parameter in layer.parameters():
                    nn.init.uniform_(parameter, -reach, reach, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n,) of points (n, d)."""
        logits: Tensor = self.layers(x)
        return logits.squeeze(-1)


_PIXELS = 128
_MARGIN = 4.5  # scales of the reference around its location


def density_picture(density: Density) -> Tensor | None:
    """A density on a window around the reference, (1, 128, 128) in [0, 1], dark is dense; None above 2 dimensions.

    In one dimension the picture is the graph's area.
    """
    reference = density.reference
    if reference.d > 2:
        return None
    ticks = torch.linspace(-_MARGIN, _MARGIN, _PIXELS, dtype=torch.float64)
    grid = torch.cartesian_prod(*[ticks] * reference.d).reshape(-1, reference.d)
    x = reference.location + reference.scale * grid
    heights = (reference.log_prob(x) + density.log_ratio(x)).exp()
    heights = heights / heights.max()
    if reference.d == 1:
        picture = (heights[None] < ticks.flip(0)[:, None] / (2 * _MARGIN) + 0.5).to(torch.float64)
    else:
        picture = 1 - heights.reshape(_PIXELS, _PIXELS).T.flip(0)
    return picture[None]


def write_density(logger: Logger, density: Density, test_x: Tensor, *, step: int = 0) -> None:
    """Picture and mean negative log-likelihood (nats) at points of evaluation (n, d)."""
    picture = density_picture(density)
    if picture is not None and isinstance(logger, TensorBoardLogger):
        logger.experiment.add_image("private/density", picture, step)
    nll = -(density.reference.log_prob(test_x) + density.log_ratio(test_x)).mean()
    logger.log_metrics({"private/nll": float(nll)}, step)


PAPER_EPOCHS = 750
PAPER_POINTS = 10_000
_WARM_UP = 0.2
_NORMALISER_POINTS = 2**14


class MBDE(L.LightningModule):
    r"""Mollified boosted density estimation, :math:`Q_T \propto Q_0 \exp(\sum_t \theta_t c_t)`.

    Round t trains a classifier of P against :math:`Q_{t-1}`; :math:`c_t \in [-\log 2, \log 2]` is its logit, clipped:
    logits estimate log density ratios, so nothing is lost inside the range. :math:`Q_{t-1}` is never sampled: points of
    :math:`Q_0` carry weights :math:`\exp f_{t-1}` in the cross-entropy. (The papers' listing trains against :math:`Q_t`,
    which does not exist yet; their text says :math:`Q_{t-1}`.)

    With a plain `lightning.Trainer`: any loader of private points, float tensors (b, d) alone or first in a tuple, in the
    user's units; training ends after `total_steps` steps. Nothing here is private: weights, losses and the density are
    secrets of this machine, and checkpoints hold them. Only draws of a sampler may leave.

    Arguments:
        reference: the public Q0.
        epsilon: of all planned draws together.
        config: public choices.
        draws: planned draws that share epsilon, with config.draws_by "scaled".
        classifier: makes the weak learner of a round: a module (b, d) -> (b,) or (b, 1); None: the paper's network.
        seed: of public randomness.
        private_logs: log losses on private points, which no guarantee covers.

    Raises:
        ValueError: epsilon or draws out of range.

    Source: Husain et al. 2020, Algorithm 1 and section 5.
    """

    def __init__(
        self,
        reference: Reference,
        *,
        epsilon: float = 1.0,
        config: MBDEConfig | None = None,
        draws: int = 1,
        classifier: Callable[[int], nn.Module] | None = None,
        seed: int = 0,
        private_logs: bool = False,
    ) -> None:
        super().__init__()
        self.reference, self.config = reference, config or MBDEConfig(sampler="rejection")
        self.epsilon = require_within("epsilon", epsilon / draws, EPSILONS, " for one draw") * draws
        self.thetas = step_sizes(self.epsilon, self.config.total_rounds, full=self.config.steps_full, draws=draws)
        public = PublicRandomness(seed)
        weights = public.spawn("weights").generator
        make = classifier or (lambda d: Classifier(d, hidden=self.config.hidden, generator=weights))
        self.classifiers = nn.ModuleList([make(reference.d) for _ in self.thetas])
        self.trained = 0
        self._public, self._private_logs = public.spawn("reference").generator, private_logs
        self._fixed: Tensor | None = None
        self._log_normaliser = (0, 0.0)

    # -- the density -------------------------------------------------------------------------------------------------

    @property
    def bound(self) -> float:
        """B = log 2 sum theta_t, at most epsilon / (4 draws): what |f| cannot pass."""
        return LOG2 * math.fsum(self.thetas)

    @property
    def total_steps(self) -> int:
        """Training steps of all rounds."""
        return len(self.thetas) * self.steps_per_round

    @property
    def steps_per_round(self) -> int:
        """Training steps of a round."""
        return self.config.steps if self.config.training == "fast" else PAPER_EPOCHS

    def logits(self, x: Tensor, t: int = 0) -> Tensor:
        """Log-odds of classifier t (from 0) at points (n, d) in the user's units, unclipped: log P/Q_t as learned."""
        device = next(iter(self.classifiers[t].parameters()), x).device
        values: Tensor = self.classifiers[t](self.reference.standardised(x).to(device))
        return values

    def classified(self, x: Tensor, t: int) -> Tensor:
        """Hard-clipped log-odds c_t (n,) in [-log 2, log 2]; NaN counts as 0."""
        return bounded(self.logits(x, t), len(x), LOG2)

    def tilt(self, x: Tensor, rounds: int | None = None) -> Tensor:
        """f (n,) = sum of theta_t c_t over the first `rounds` rounds; None: those that have been trained."""
        total = torch.zeros(len(x), dtype=torch.float64)
        for t in range(self.trained if rounds is None else rounds):
            total += self.thetas[t] * self.classified(x, t)
        return total

    forward = tilt

    # -- training ----------------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """One optimizer; only the round's classifier has gradients, so the others rest."""
        if self.config.training == "paper":
            return torch.optim.SGD(self.classifiers.parameters(), lr=0.01, momentum=0.9, nesterov=True)
        return torch.optim.Adam(self.classifiers.parameters(), lr=self.config.lr, fused=True)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        if self.global_step >= self.total_steps:
            self.trainer.should_stop = True
            return -1
        t, step = divmod(self.global_step, self.steps_per_round)
        self.trained = t + 1
        if self.config.training == "fast":
            for group in self.trainer.optimizers[0].param_groups:
                group["lr"] = self.config.lr * _one_cycle(step / self.steps_per_round)
        return None

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Cross-entropy of private points against weighted points of the reference."""
        x = require_batch(batch, self.reference.d)
        t = self.trained - 1
        y, log_weights = self._opponents(len(x), t)
        points = torch.cat([x.to("cpu", torch.float64), y])
        logits = self.logits(points, t).reshape(-1)
        if len(logits) != len(points):
            raise ValueError(f"the classifier gave {len(logits)} values for {len(points)} points; it must give one for each")
        against = softplus(logits[len(x) :]) * log_weights.exp().to(logits)
        loss: Tensor = softplus(-logits[: len(x)]).mean() + against.mean()
        if self._private_logs:
            self.log(f"private/loss_{t + 1}", loss.detach())
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.global_step >= self.total_steps:
            self.trainer.should_stop = True

    def on_train_end(self) -> None:
        if self.global_step < self.total_steps:
            warnings.warn(
                f"training ended after {self.global_step} of {self.total_steps} steps: {self.trained} of {len(self.thetas)} "
                "classifiers are used; give the trainer more epochs or max_steps",
                stacklevel=2,
            )

    @torch.no_grad()
    def _opponents(self, n: int, t: int) -> tuple[Tensor, Tensor]:
        """Points of Q0 (m, d) and log-weights (m,) of mean weight about 1, which make them points of Q_(t-1)."""
        if self.config.training == "paper":
            if self._fixed is None:
                self._fixed = self.reference.sample(PAPER_POINTS, generator=self._public)
            values = self.tilt(self._fixed, t)
            return self._fixed, values - torch.logsumexp(values, 0) + math.log(len(values))
        y = self.reference.sample(n, generator=self._public)
        return y, self.tilt(y, t) - self._normaliser(t)

    def _normaliser(self, t: int) -> float:
        """log E_Q0[e^f] after t rounds, once a round."""
        if self._log_normaliser[0] != t:
            values = self.tilt(self.reference.sample(_NORMALISER_POINTS, generator=self._public), t)
            self._log_normaliser = (t, float(torch.logsumexp(values, 0)) - math.log(len(values)))
        return self._log_normaliser[1]


class Minibatches:
    """Private points (n, d) in a public order that starts anew when all have come; no worker processes.

    Arguments:
        x: private points.
        batch: points in each; None or at least n: all.
        length: batches of an epoch.
        seed: public.
    """

    def __init__(self, x: Tensor, *, batch: int | None, length: int, seed: int = 0) -> None:
        self.x, self.batch, self.length = x, min(batch or len(x), len(x)), length
        self._generator = PublicRandomness(seed).spawn("order").generator

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Tensor]:
        if self.batch == len(self.x):
            yield from itertools.repeat(self.x, self.length)
            return
        order = torch.empty(0, dtype=torch.int64)
        for _ in range(self.length):
            if len(order) < self.batch:
                order = torch.randperm(len(self.x), generator=self._generator)
            yield self.x[order[: self.batch]]
            order = order[self.batch :]


def require_batch(batch: Any, d: int) -> Tensor:
    """Points (b, d) of a batch.

    Raises:
        ValueError: something else.
    """
    x = batch[0] if isinstance(batch, list | tuple) else batch
    if not isinstance(x, Tensor) or x.ndim != 2 or x.shape[1] != d:
        shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"a batch holds {shape}; it must be points (b, {d}), alone or first in a tuple")
    return x


def _one_cycle(done: float) -> float:
    """Learning rate relative to its highest: up linearly over a fifth, then down along a cosine."""
    if done < _WARM_UP:
        return 0.04 + 0.96 * done / _WARM_UP
    return 0.5 * (1 + math.cos(math.pi * (done - _WARM_UP) / (1 - _WARM_UP)))


NOTE = UNPROTECTED
_HIGH = 1 / 3


def chord_bound(theta: float, gamma_p: float, gamma_q: float, *, c_star: float = LOG2) -> float:
    r"""Least fall of KL(P, Q) in a round, valid in every regime.

    .. math:: \theta c^* \gamma_P - \log(\cosh(\theta c^*) - \gamma_Q \sinh(\theta c^*))

    A convex function lies below its chord: :math:`E_Q e^{\theta c} \le \cosh(\theta c^*) - \gamma_Q \sinh(\theta c^*)` for
    :math:`|c| \le c^*`. Equality if c takes the values :math:`\pm c^*` only.

    Arguments:
        theta: weight of the classifier.
        gamma_p: E_P[c] / c*.
        gamma_q: -E_Q[c] / c*, Q the density before the round.
        c_star: any bound on |c|, > 0; the gammas are relative to it.

    >>> round(chord_bound(1 / (1 + 4 * LOG2), 0.5, 0.5), 4)
    0.1703
    """
    reach = theta * c_star
    return reach * gamma_p - math.log(math.cosh(reach) - gamma_q * math.sinh(reach))


def gamma_function(z: float) -> float:
    """log(4 / (5 - 3 z)) (Husain et al. 2020, Theorem 5)."""
    return math.log(4 / (5 - 3 * z))


def published_drop(theta: float, gamma_p: float, gamma_q: float, *, c_star: float = LOG2) -> float:
    """The fall that Theorem 5 of Husain et al. 2020 claims, as printed; it can be above the true one."""
    if gamma_q >= _HIGH:
        return theta * (c_star * gamma_p + gamma_function(gamma_q))
    return theta * (gamma_p + gamma_q - c_star * theta / 2)


@dataclass(frozen=True, kw_only=True)
class RoundCertificate:
    """Gain of one round, from classifier values at private points and at public ones.

    Attributes:
        round: from 1.
        theta: weight of the classifier.
        gamma_p, gamma_q: edges relative to c* = log 2.
        drop: estimated fall of KL(P, Q), theta E_P[c] - log E_Q[e^(theta c)].
        log_normaliser: estimated log E_Q[e^(theta c)].
    """

    round: int
    theta: float
    gamma_p: float
    gamma_q: float
    drop: float
    log_normaliser: float

    @classmethod
    def of(cls, round: int, theta: float, *, at_private: Tensor, at_public: Tensor, log_weights: Tensor) -> RoundCertificate:
        """Estimate from values c at points of P (n,) and of Q0 (m,), whose weights e^log_weights make them points of Q."""
        weights = torch.softmax(log_weights, 0)
        mean_p, mean_q = float(at_private.mean()), float((weights * at_public).sum())
        log_normaliser = float(torch.logsumexp(log_weights + theta * at_public, 0) - torch.logsumexp(log_weights, 0))
        return cls(
            round=round,
            theta=theta,
            gamma_p=mean_p / LOG2,
            gamma_q=-mean_q / LOG2,
            drop=theta * mean_p - log_normaliser,
            log_normaliser=log_normaliser,
        )

    @property
    def regime(self) -> str:
        """Of Theorem 5: "high", "low", or "none" when the weak learning assumption fails."""
        if min(self.gamma_p, self.gamma_q) <= 0:
            return "none"
        return "high" if self.gamma_q >= _HIGH else "low"

    @property
    def chord_bound(self) -> float:
        """Least gain of the round, given these edges."""
        return chord_bound(self.theta, self.gamma_p, self.gamma_q)

    @property
    def published_drop(self) -> float:
        """Claim of Theorem 5, as printed."""
        return published_drop(self.theta, self.gamma_p, self.gamma_q)

    def row(self) -> dict[str, Any]:
        """The certificate of the round as a row of a table."""
        own = {name: getattr(self, name) for name in ("round", "theta", "gamma_p", "gamma_q", "regime", "drop")}
        own |= {"chord_bound": self.chord_bound, "published_drop": self.published_drop}
        return own | {"log_normaliser": self.log_normaliser, "note": NOTE}

    def __str__(self) -> str:
        return (
            f"round {self.round}: gamma_P {self.gamma_p:.3f}, gamma_Q {self.gamma_q:.3f} ({self.regime} regime), drop "
            f"{self.drop:.4f} >= {self.chord_bound:.4f} nats ({NOTE})"
        )


def total_row(rows: list[RoundCertificate], box: Box) -> dict[str, Any]:
    """Sums over rounds beside the ceiling that no density in the box can pass."""
    return {
        "round": "all",
        "drop": sum(r.drop for r in rows),
        "chord_bound": sum(r.chord_bound for r in rows),
        "ceiling": box.ceiling,
        "log_normaliser": sum(r.log_normaliser for r in rows),
        "note": NOTE,
    }


def plug_in_row(density: Density, x: Tensor, y: Tensor) -> dict[str, Any]:
    """Estimated gain of a plug-in mollification over the reference, beside its ceiling.

    Arguments:
        x: points of P (n, d).
        y: points of Q0 (m, d).
    """
    log_mean = float(torch.logsumexp(density.log_ratio(y), 0)) - math.log(len(y))
    drop = float(density.log_ratio(x).mean()) - log_mean
    return {"round": "all", "drop": drop, "ceiling": density.box.ceiling, "log_normaliser": log_mean, "note": NOTE}


@dataclass(frozen=True, kw_only=True)
class MollificationGap:
    """Distance of a density from the best one in its box: likelihoods in nats, by quadrature (1-D and 2-D)."""

    nll: float
    optimal: float
    reference: float

    @classmethod
    def of(cls, log_p: Tensor, log_q0: Tensor, log_ratio: Tensor, *, volume: Tensor | float, box: Box) -> MollificationGap:
        """From log densities and `log_ratio` at quadrature nodes (m,) with volumes (m,); all are normalised here."""
        log_volume = torch.as_tensor(volume, dtype=torch.float64).log()
        p, log_start = torch.softmax(log_p + log_volume, 0), torch.log_softmax(log_q0 + log_volume, 0)
        best = log_start + mollified(log_p - log_q0, box, masses=log_start.exp()).log()
        log_q = torch.log_softmax(log_start + log_ratio, 0)
        nll, optimal, reference = (-float((p * (values - log_volume)).sum()) for values in (log_q, best, log_start))
        return cls(nll=nll, optimal=optimal, reference=reference)

    @property
    def share(self) -> float:
        """Of the best possible gain over the reference, in (-inf, 1]."""
        return (self.reference - self.nll) / (self.reference - self.optimal)

    def __str__(self) -> str:
        return f"NLL {self.nll:.4f}, at best {self.optimal:.4f}: {100 * self.share:.2f} % of the possible gain ({NOTE})"
