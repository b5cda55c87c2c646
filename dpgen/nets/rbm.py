"""Restricted Boltzmann machines trained by persistent contrastive divergence (Tieleman 2008), k side by side."""

from collections.abc import Sequence
from copy import deepcopy
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from dpgen.nets.bank import Descent, ModelBank, Noise, in_ambient_precision, logistic
from dpgen.nets.cosines import coordinates
from dpgen.privacy.clipping import Factor, RecordGradients, segments

_NEVER = -100.0  # log-odds of a unit that is never on
_PROBED = 2000  # samples of each machine that its means are taken of


class RBMBank(ModelBank):
    r"""k machines with energy :math:`E(v, h) = -h^\top W v - b^\top v - c^\top h` over binary units.

    The gradient of a record's negative log-likelihood is :math:`N - \hat h v^\top` with
    :math:`\hat h = \sigma(W v + c)` and N the model's own expectation, estimated by a **fixed** number of persistent
    chains that start from public noise and see released parameters only. N is therefore public, it is the same for every
    record, and removing one record changes the sum of (clipped) gradients by that record's term alone.

    Centred, the energy is :math:`-(h - \tfrac12)^\top W (v - \mu) - b^\top v - c^\top h` with released means :math:`\mu`, and b
    begins at their log-odds: the machine starts as the independent model, and its weights learn what that leaves over.

    Otherwise the parameters hold :math:`\sqrt d\, W`, so that under equal noise per parameter the d weights of a hidden unit
    together disturb it about as much as its bias does.

    Arguments:
        k: number of models.
        d: visible units, appended categories included.
        hidden: hidden units.
        chains: persistent chains per model.
        gibbs_steps: Gibbs sweeps per training step (PCD-k).
        categories: trailing one-hot columns.
        centred: at the means that `begin_at` is given, 1/2 without.
        frequencies: of images, needs `centred`: :math:`W = U B` with B the lowest frequencies of each channel, and U, of fewer
            parameters to disturb, is learned.
        image_shape: of images, see `dpgen.nets.cosines.planes`; needed with `frequencies`.

    Source: Acs et al. 2017, section II-A; weights N(0, .01^2), zero biases as in "Experimental settings"; centred: Montavon
    and Mueller 2012.
    """

    passes = 50
    described = ("k", "d", "hidden", "chains", "gibbs_steps", "categories", "centred", "frequencies", "image_shape")

    def __init__(
        self,
        k: int,
        d: int,
        *,
        hidden: int = 200,
        chains: int = 64,
        gibbs_steps: int = 1,
        categories: int = 0,
        centred: bool = False,
        frequencies: int | None = None,
        image_shape: Sequence[int] | None = None,
    ) -> None:
        if min(d, hidden, chains, gibbs_steps) < 1 or not 0 <= categories < d:
            raise ValueError(
                f"d, hidden, chains, gibbs_steps must be at least 1 and categories in [0, d), got d={d}, "
                f"hidden={hidden}, chains={chains}, gibbs_steps={gibbs_steps}, categories={categories}"
            )
        self.d, self.hidden, self.chains, self.gibbs_steps, self.categories = d, hidden, chains, gibbs_steps, categories
        if frequencies is not None and not centred:
            raise ValueError(f"frequencies is {frequencies}; it needs centred=True")
        self.centred, self.frequencies = centred, frequencies
        self.image_shape = None if image_shape is None else tuple(image_shape)
        basis = coordinates(d, self.image_shape, frequencies, categories=categories)
        self.descent = Descent(momentum=0.5, rate=1.5 * d**0.5) if centred else None
        width = d if basis is None else len(basis)
        super().__init__(k, {"weight": (hidden, width), "visible_bias": (d,), "hidden_bias": (hidden,)})
        self._place((k, d) if centred else None, basis)
        self.visible: Tensor
        self.generator_state: Tensor
        self.register_buffer("visible", torch.zeros(k, chains, d))
        self.register_buffer("generator_state", torch.Generator().get_state())
        self._offset: Tensor | None = None
        self._generator: torch.Generator | None = None
        self.register_state_dict_pre_hook(RBMBank._store_generator)
        self.register_load_state_dict_post_hook(RBMBank._forget_generator)

    def _chain_generator(self) -> torch.Generator:
        """The public generator of the chains, on their device, continued from its saved state."""
        device = self.visible.device
        if self._generator is None or self._generator.device != device:
            saved, self._generator = self.generator_state.cpu(), torch.Generator(device)
            if saved.shape == self._generator.get_state().shape:
                self._generator.set_state(saved)
            else:  # of another kind of device: its stream cannot be continued, but it names a new one
                self._generator.manual_seed(int.from_bytes(sha256(saved.numpy().tobytes()).digest()[:4], "big"))
        return self._generator

    def _store_generator(self, *_: Any) -> None:
        if self._generator is not None:
            self.generator_state = self._generator.get_state()

    def _forget_generator(self, *_: Any) -> None:
        self._generator = None

    def initialize(self, generator: torch.Generator) -> None:
        weight = self.part("weight")
        weight.copy_(0.01 / self._scale * torch.randn(weight.shape, generator=generator))
        self.visible.copy_((torch.rand(self.visible.shape, generator=generator) < 0.5).float())
        self.generator_state.copy_(generator.get_state())

    def begin_at(self, means: Tensor, generator: torch.Generator) -> None:
        if self.centre is None:
            return
        self.centre.copy_(means)
        self.part("visible_bias").copy_(means.logit())
        draws = torch.rand(self.visible.shape, generator=generator).to(self.visible)
        self.visible.copy_((draws < self.centre[:, None]).float())

    @property
    def _scale(self) -> float:
        """W over the parameters that hold it."""
        return 1.0 if self.centred else self.d**-0.5

    def weights(self, models: slice = slice(None)) -> Tensor:
        """W (k', hidden, d) of some of the machines."""
        weight = self.part("weight")[models] * self._scale
        return weight if self._basis is None else weight @ self._basis

    def _biases(self, models: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Biases of visible (k', d) and hidden (k', hidden) units in the energy without offsets: b - W^T / 2 and c - W mu."""
        b, c = self.part("visible_bias")[models], self.part("hidden_bias")[models]
        if self.centre is None:
            return b, c
        weight = self.weights(models)
        return b - 0.5 * weight.sum(1), c - (weight @ self.centre[models, :, None])[..., 0]

    def _sweeps(self, v: Tensor, models: slice, generator: torch.Generator, count: int) -> tuple[Tensor, Tensor]:
        """Gibbs sweeps of chains v (k', chains, d): new visible bits and the mean hidden values that they imply."""
        weight, (b, c) = self.weights(models), self._biases(models)
        h = torch.baddbmm(c[:, None], v, weight.mT).sigmoid()
        for _ in range(count):
            v = self._bits(torch.baddbmm(b[:, None], self._bits(h, generator), weight).sigmoid(), generator)
            h = torch.baddbmm(c[:, None], v, weight.mT).sigmoid()
        return v, h

    @staticmethod
    def _bits(mean: Tensor, generator: torch.Generator) -> Tensor:
        draws = torch.rand(mean.shape, generator=generator, device=generator.device, dtype=mean.dtype)
        return (draws.to(mean.device) < mean).to(mean)

    @torch.no_grad()
    def begin_step(self) -> None:
        """Advance the chains and set the public offset (k, p): minus their mean of (h v^T, v, h)."""
        generator = self._chain_generator()
        v, h = self._sweeps(self.visible, slice(None), generator, self.gibbs_steps)
        self.visible.copy_(v)
        offset = torch.empty_like(self.theta)
        if self.centre is not None:
            v, h = v - self.centre[:, None], h - 0.5
        self.part("visible_bias", offset).copy_(v.sum(1))
        self.part("weight", offset).copy_((h * self._scale).mT @ (v if self._basis is None else v @ self._basis.T))
        self.part("hidden_bias", offset).copy_(h.sum(1))
        self._offset = offset.div_(-self.chains)

    def _seen(self, x: Tensor, bounds: Sequence[int]) -> Tensor:
        """Rows (b, d) as the weights multiply them: scaled pixels, or frequencies, by products of the shapes of all others."""
        if self._basis is None:
            return x * self._scale
        seen = x.new_empty(len(x), len(self._basis))
        for _, a, b in segments(bounds):
            torch.mm(x[a:b], self._basis.T, out=seen[a:b])
        return seen

    @torch.no_grad()
    def gradients(self, x: Tensor, bounds: Sequence[int], noise: Noise) -> RecordGradients:
        if self.centre is not None:
            x = x.clone()
            for i, a, b in segments(bounds):
                x[a:b] -= self.centre[i]
        seen = self._seen(x, bounds)
        weight, c, rows = in_ambient_precision(self.part("weight"), self.part("hidden_bias"), seen)
        h = rows.new_empty(len(rows), self.hidden)
        for i, a, b in segments(bounds):
            torch.addmm(c[i], rows[a:b], weight[i].T, out=h[a:b])
        h = logistic(h.to(x.dtype)).neg_()
        if self.centre is not None:
            h = h.add_(0.5)
        columns = self.columns
        factors = [
            Factor(h, seen, columns["weight"], None),
            Factor(h, None, None, columns["hidden_bias"]),
            Factor(-x, None, None, columns["visible_bias"]),
        ]
        return RecordGradients(factors, bounds, self._offset)

    @torch.no_grad()
    def silenced(self, sizes: Tensor, below: float) -> "RBMBank":
        r"""The bank with columns that are never on: those whose mean over all machines, weighted by `sizes` (k,), is less.

        A bias that starts at 0 moves to the log-odds of a column without ones as :math:`-\log(r t)` after t steps at rate r:
        what is never on in the records comes back in a share of about 1 / (r t) of the samples, plus noise. It is the bank
        alone that is asked, by a public stream, so this is free. Columns of categories stay.
        """
        silent = deepcopy(self)
        weights = sizes.double().clamp_min(0.0).cpu()
        generator = torch.Generator().manual_seed(0)
        means = torch.stack([self.sample(i, _PROBED, generator).double().mean(0).cpu() for i in range(len(weights))])
        off = weights @ means < below * weights.sum()
        off[self.d - self.categories :] = False
        silent.part("visible_bias")[:, off.to(silent.theta.device)] = _NEVER
        return silent

    @torch.no_grad()
    def sample(self, cluster: int, n: int, generator: torch.Generator, *, sweeps: int = passes) -> Tensor:
        """Mean visible values after `sweeps` Gibbs sweeps; the persistent chains are the starting points."""
        model = slice(cluster, cluster + 1)
        start = torch.randint(self.chains, (n,), generator=generator).to(self.visible.device)
        _, h = self._sweeps(self.visible[model, start], model, generator, sweeps)
        weight, b = self.weights(model), self._biases(model)[0]
        return torch.baddbmm(b[:, None], self._bits(h, generator), weight).sigmoid()[0]
