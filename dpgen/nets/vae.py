"""Variational autoencoders for binary records (Kingma and Welling 2014), k of them side by side."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import relu

from dpgen.nets.bank import Descent, ModelBank, Noise, Tape, affine_shapes, logistic
from dpgen.nets.cosines import coordinates
from dpgen.privacy.clipping import RecordGradients

RATE = 10.0
SHRINK = 0.1
"""Learning rate and factor of the last weights, where the outputs begin at means."""


def log_odds(means: Tensor, bits: int) -> Tensor:
    """Logits (k, d) of means of so many bits, and of the label columns behind them."""
    return torch.cat([means[:, :bits].logit(), means[:, bits:].log()], 1)


class VAEBank(ModelBank):
    r"""k autoencoders d - hidden - latent with Bernoulli outputs and a standard normal prior.

    The loss of a record is :math:`-E_{q(z|x)} \log p(x|z) + KL(q(z|x) \| N(0, I))`, one draw of z per record. The last
    `categories` columns, if any, are the one-hot code of one categorical value (an appended label).

    Arguments:
        k: number of models.
        d: columns of a record, appended categories included.
        hidden: units per hidden layer.
        latent: dimension of z.
        depth: hidden layers in encoder and decoder each, at least 1.
        categories: trailing one-hot columns; 0 for none.
        label_weight: how often the log-likelihood of the categorical value counts, > 0; among hundreds of pixels a label
            that counts once is hardly learned.
        centred: the encoder sees records minus the means that `begin_at` is given, 1/2 without.
        frequencies: of images, needs `centred`: the encoder sees the lowest frequencies of each channel in place of pixels, and
            the decoder writes them, on top of the log-odds of the means; there are fewer parameters to disturb.
        image_shape: of images, see `dpgen.nets.cosines.planes`; needed with `frequencies`.

    Source: Acs et al. 2017, section II-B and "Experimental settings" (784-200-2, ReLU).
    """

    described = ("k", "d", "hidden", "latent", "depth", "categories", "label_weight", "centred", "frequencies", "image_shape")

    def __init__(
        self,
        k: int,
        d: int,
        *,
        hidden: int = 200,
        latent: int = 2,
        depth: int = 1,
        categories: int = 0,
        label_weight: float = 1.0,
        centred: bool = False,
        frequencies: int | None = None,
        image_shape: Sequence[int] | None = None,
    ) -> None:
        self.d, self.hidden, self.latent, self.depth, self.categories = d, hidden, latent, depth, categories
        self.label_weight, self.centred, self.frequencies = label_weight, centred, frequencies
        self.image_shape = None if image_shape is None else tuple(image_shape)
        self._require()
        basis = coordinates(d, self.image_shape, frequencies, categories=categories)
        width = d if basis is None else len(basis)
        widths = [hidden] * depth
        encoder = affine_shapes("encoder.", [width, *widths, 2 * latent])
        super().__init__(k, encoder | affine_shapes("decoder.", [latent, *widths, width]))
        self._place((k, d) if centred else None, None if basis is None else basis * (d / len(basis)) ** 0.5)
        self.descent = Descent(momentum=0.9, rate=RATE) if centred else None

    def _require(self) -> None:
        """Refuse sizes and options that make no network."""
        if min(self.d, self.hidden, self.latent, self.depth) < 1 or not 0 <= self.categories < self.d:
            raise ValueError(
                f"d, hidden, latent, depth must be at least 1 and categories in [0, d), got d={self.d}, hidden={self.hidden}, "
                f"latent={self.latent}, depth={self.depth}, categories={self.categories}"
            )
        if not 0 < self.label_weight < float("inf"):
            raise ValueError(f"label_weight must be positive and finite, got {self.label_weight}")
        if self.frequencies is not None and not self.centred:
            raise ValueError(f"frequencies is {self.frequencies}; it needs centred=True")

    def begin_at(self, means: Tensor, generator: torch.Generator) -> None:
        if self.centre is not None:
            self.centre.copy_(means)
        last = f"decoder.{self.depth}"
        self.part(f"{last}.weight").mul_(SHRINK)
        if self._basis is None:
            self.part(f"{last}.bias").copy_(log_odds(means, self.d - self.categories))

    def encoded(self, layers: Tape, x: Tensor) -> Tensor:
        """Means and log-variances (b, 2 latent) of the codes of centred records x (b, d)."""
        return self._mlp(layers, "encoder", x if self._basis is None else layers.fixed(x, self._basis))

    def decoded(self, layers: Tape, z: Tensor) -> Tensor:
        """Logits (b, d) of the records of codes z (b, latent)."""
        written = self._mlp(layers, "decoder", z)
        if self._basis is None:
            return written
        assert self.centre is not None
        return layers.fixed(written, self._basis.T) + layers.own(log_odds(self.centre, self.d - self.categories))

    def _mlp(self, layers: Tape, side: str, x: Tensor) -> Tensor:
        for i in range(self.depth):
            x = self._active(layers.affine(f"{side}.{i}", x * x.shape[1] ** -0.5))
        return layers.affine(f"{side}.{self.depth}", x * x.shape[1] ** -0.5)

    def _active(self, x: Tensor) -> Tensor:
        return x.tanh() if self.centred else relu(x)

    def _mean(self, logits: Tensor) -> Tensor:
        """Mean values of the Bernoulli bits and of the one-hot code, (b, d)."""
        bits = self.d - self.categories
        if not self.categories:
            return logistic(logits)
        return torch.cat([logistic(logits[:, :bits]), logits[:, bits:].softmax(1)], 1)

    def gradients(self, x: Tensor, bounds: Sequence[int], noise: Noise) -> RecordGradients:
        tape = Tape(self, bounds)
        centred = x if self.centre is None else x - tape.own(self.centre)
        mean, log_var = self.encoded(tape, centred).chunk(2, dim=1)
        z = mean + (0.5 * log_var).exp() * noise(x.shape[0], self.latent).to(mean)
        divergence = 0.5 * (mean.square() + log_var.exp() - 1.0 - log_var).sum(1)
        logits = self.decoded(tape, z)
        # -log p(x|z) itself is never needed: for bits and categories alike its derivative is mean - x.
        slope = self._mean(logits.detach().to(x.dtype)).sub_(x)
        slope[:, self.d - self.categories :] *= self.label_weight
        return tape.gradients((divergence, torch.ones_like(divergence)), (logits, slope))

    @torch.no_grad()
    def sample(self, cluster: int, n: int, generator: torch.Generator) -> Tensor:
        z = torch.randn(n, self.latent, generator=generator).to(self.theta)
        return self._mean(self.decoded(Tape(self, [0] * (cluster + 1) + [n] * (self.k - cluster)), z))
