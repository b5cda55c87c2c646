"""Clipping policies of private training, as Lightning callbacks.

Automatic and fixed bounds, of all parameters or of each layer, look at nothing private; DPNorm (Acs et al. 2017) follows
released histograms of norms.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from dpgen.facts import Fact, Said
from dpgen.privacy.clipping import Layer, automatic_coefficients, flat_coefficients
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.mechanisms import require_positive, require_whole
from dpgen.privacy.noise import place


class Clipping(Callback, ABC):
    """Turns gradient norms into coefficients; private training uses the one among the trainer's callbacks.

    Every policy bounds each record's term by 1 in units of its cluster's bound, so that a step has sensitivity 1 whatever the
    bounds are; the bounds, functions of released values, scale the noisy sum afterwards. `noise_multiplier` is None for
    policies that look at nothing private; otherwise a histogram of norms (k, w) is released with it in each step.

    One of your own serves as one among the trainer's callbacks, or by `PrivateSums.clip_by`; the statement names it.

    Example:
        >>> class PerSample(Clipping):  # Xia et al. 2023: g / (|g| + r / (|g| + r))
        ...     def coefficients(self, norms, cluster):
        ...         return 1 / (norms + 0.1 / (norms + 0.1))
        >>> PerSample().coefficients(torch.tensor([0.0, 0.4]), torch.tensor([0, 0]))
        tensor([1.0000, 1.6667])
    """

    noise_multiplier: float | None = None

    steepness: float = math.inf
    """The most that a histogram moves, over the relative change of one norm; see `dpgen.systems.dp_sgd.sums.Margin`."""

    @property
    def facts(self) -> tuple[Said, ...]:
        """Facts of a statement on the code of a policy that is not this package's."""
        kind = type(self)
        return () if kind.__module__ == __name__ else (Fact.OWN_CLIPPING(path=f"{kind.__module__}:{kind.__qualname__}"),)

    def begin(self, k: int) -> None:
        """Called when training starts or resumes, with the number of clusters."""

    def layers(self, columns: Mapping[str, slice]) -> Sequence[Layer]:
        """Layers that are clipped apart, of parameters in these columns by name; of none all parameters are clipped together.

        With layers the norms and weights of `coefficients` are (b, layers), and |weight * gradient| <= share of the layer.
        """
        return ()

    def histogram(self, norms: Tensor, cluster: Tensor) -> BoundedSum:
        """Counts (k, w) of the norms (b,) of a draw, the private query of adaptive policies; others have none."""
        raise NotImplementedError(f"{type(self).__name__} releases no histogram")

    def observe(self, released: Tensor) -> None:
        """Take in the released histogram (k, w)."""

    @abstractmethod
    def coefficients(self, norms: Tensor, cluster: Tensor) -> Tensor:
        """Weights (b,) with |weight * gradient| <= 1 for every record, each a function of this record's own norm alone.

        What is learnt from other records of the draw, such as their mean norm, has not been paid for; see `histogram`.
        """

    def scale(self) -> Tensor | None:
        """Clip bound (k,) of every cluster, a function of released values; None when sums are normalised to 1."""
        return None


class AutomaticClipping(Clipping):
    r"""Gradients over :math:`|g| + \gamma`, gamma the `stability`: no bound to choose or pay for (Bu et al. 2023)."""

    def __init__(self, *, stability: float = 0.01) -> None:
        self.stability = require_positive("stability", stability)

    def coefficients(self, norms: Tensor, cluster: Tensor) -> Tensor:
        return automatic_coefficients(norms, self.stability)


class BoundedClipping(Clipping):
    """Clipping at one bound > 0 per cluster, in units of the gradient (Abadi et al. 2016)."""

    def __init__(self, *, bound: float = 1.0) -> None:
        self.bound = require_positive("bound", bound)
        self._bounds: Tensor | None = None

    def begin(self, k: int) -> None:
        if self._bounds is None:
            self._bounds = torch.full((k,), self.bound)
        elif self._bounds.shape != (k,):
            raise ValueError(f"the restored clip state has {self._bounds.numel()} clusters, the model has {k}")

    @property
    def bounds(self) -> Tensor:
        """Clip bound (k,) of every cluster."""
        if self._bounds is None:
            raise RuntimeError(f"{type(self).__name__}.begin(k) has not been called")
        return self._bounds

    def coefficients(self, norms: Tensor, cluster: Tensor) -> Tensor:
        self._bounds = place(self.bounds, norms.device)  # once there, they stay
        return flat_coefficients(norms, self._bounds.to(norms.dtype)[cluster])

    def scale(self) -> Tensor:
        return self.bounds

    def state_dict(self) -> dict[str, Any]:
        return {"bounds": self._bounds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._bounds = state_dict["bounds"]


class PerLayerClipping(BoundedClipping):
    r"""Clipping of each layer's gradient of a record at a bound of its own (McMahan et al. 2018).

    With :math:`g_l` the gradient of layer l and :math:`C = (\sum_l C_l^2)^{1/2}` the whole bound, a record's term in units of C
    is the vector of parts :math:`(C_l / C) \, g_l / \max(|g_l|, C_l)`, of norm at most :math:`(\sum_l (C_l / C)^2)^{1/2} = 1`:
    the same sensitivity, noise and epsilon as one bound C. A layer with large gradients leaves the others their share.

    Args:
        bound: C, which L layers share evenly, :math:`C_l = C / \sqrt L`; a layer is a module that has parameters of its own.
        bounds: :math:`C_l` by the beginning of the names of parameters, such as {"encoder": 0.5, "head": 1.0}, in the place of
            `bound`; the longest beginning that fits counts, "" fits all.

    Raises:
        ValueError: when training begins, names that no parameter begins with, or a parameter that none fits.
    """

    def __init__(self, *, bound: float = 1.0, bounds: Mapping[str, float] | None = None) -> None:
        self.of_layers = (
            None if bounds is None else {name: require_positive(f"bounds[{name!r}]", c) for name, c in bounds.items()}
        )
        if bounds is not None and not bounds:
            raise ValueError("bounds is empty; it must have a bound for every layer")
        super().__init__(bound=bound if self.of_layers is None else math.hypot(*self.of_layers.values()))
        self._shares: Tensor | None = None

    def layers(self, columns: Mapping[str, slice]) -> Sequence[Layer]:
        names = self.of_layers or dict.fromkeys((name.rpartition(".")[0] for name in columns), 1.0)
        of = {name: _layer_of(name, names) for name in columns}
        if unused := set(names) - {*of.values()}:
            from dpgen.schema import nearest  # here and below: of tables, for its words

            raise nearest("bounds", min(unused), list(columns))
        shares = [c / math.hypot(*names.values()) for c in names.values()]
        self._shares = torch.tensor(shares)
        return tuple(Layer(s, _joined(columns[name] for name in columns if of[name] == own)) for own, s in zip(names, shares))

    def coefficients(self, norms: Tensor, cluster: Tensor) -> Tensor:
        assert self._shares is not None  # layers come first
        self._bounds, self._shares = place(self.bounds, norms.device), place(self._shares, norms.device)
        shares = self._shares.to(norms.dtype)
        return shares * flat_coefficients(norms, self._bounds.to(norms.dtype)[cluster][:, None] * shares)


def _layer_of(name: str, starts: Collection[str]) -> str:
    """The module of a parameter: the longest of these beginnings of names that fits."""
    fitting = [start for start in starts if not start or name == start or name.startswith(f"{start}.")]
    if not fitting:
        from dpgen.schema import nearest

        raise nearest("bounds, of the parameter", name, list(starts))
    return max(fitting, key=len)


def _joined(parts: Iterable[slice]) -> tuple[slice, ...]:
    """Columns in order, those that follow each other as one."""
    found: list[slice] = []
    for part in sorted(parts, key=lambda part: part.start):
        if found and found[-1].stop == part.start:
            part = slice(found.pop().start, part.stop)
        found.append(part)
    return tuple(found)


_DECADES = 3  # of the bins, below the largest bound
_WHOLE = 2**20  # a record is so many units of a histogram, which its two cells share


class DPNorm(BoundedClipping):
    r"""The mode of a noisy histogram of gradient norms as clip bound, one per cluster (Acs et al. 2017, Algorithm 3).

    Every step releases, for each cluster, a histogram of norms plus :math:`N(0, \sigma_C^2)`. Its bins divide the three decades
    up to :math:`C_{max}` evenly in log, and a last one lies above. The bound is the upper edge of the fullest bin of the sum
    over the last `window` released histograms. At a few records per cluster linear bins of a single step, as published, choose
    mostly noise; these choose the right bin in nearly every step from 40 records on. Mind `c_max`: losses summed over hundreds
    of pixels have gradient norms of 50-300, of which C_max = 10 sees none.

    Bins are soft: a norm x between centres :math:`c_i \le x \le c_{i+1}` adds :math:`1 - t` to cell i and :math:`t` to cell
    i + 1 of its cluster, :math:`t = (x - c_i) / (c_{i+1} - c_i)`; below the first and above the last it counts in that cell
    alone, and where it is not finite nowhere. There is no edge at which a last bit of a norm moves a whole record. t is rounded
    to multiples of 2^-20 and added in int64, so the histogram is exactly the sum of what each norm adds.

    A record adds non-negative numbers of sum 1 (or nothing): L2 norm at most 1. A replaced one moves the histogram by
    :math:`|h - h'|^2 = |h|^2 + |h'|^2 - 2 \langle h, h' \rangle \le 2`. Both are reached by norms at centres.

    sigma_C (`noise_multiplier`) is in counts, :math:`C_{max}` in units of the gradient, with `bins` below it.
    """

    noise_multiplier: float

    def __init__(self, *, noise_multiplier: float = 10.0, c_max: float = 10.0, bins: int = 20, window: int = 10) -> None:
        super().__init__(bound=c_max)
        require_positive("noise_multiplier", noise_multiplier)
        require_whole("bins", bins, 2)
        require_whole("window", window)
        self.edges = c_max * 10.0 ** torch.linspace(-_DECADES, 0.0, bins)
        half = (self.edges[-1] / self.edges[0]) ** (0.5 / (bins - 1))
        self.centres = torch.cat([self.edges / half, self.edges[-1:] * half])
        self.noise_multiplier, self.window = noise_multiplier, window
        self.steepness = math.sqrt(2.0) * float((self.centres[1:] / self.centres.diff()).max())
        self.released: list[Tensor] = []
        self._warned = False

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"released": self.released}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.released = list(state_dict["released"])

    def histogram(self, norms: Tensor, cluster: Tensor) -> BoundedSum:
        self.centres = place(self.centres, norms.device)
        centres, seen, k, w = self.centres.to(norms.dtype), torch.isfinite(norms), self.bounds.numel(), len(self.centres)
        above = torch.searchsorted(centres, norms.contiguous())
        low, high = (above - 1).clamp_min(0), above.clamp_max(w - 1)
        t = ((norms - centres[low]) / (centres[high] - centres[low])).clamp(0.0, 1.0)
        share = torch.where(seen & (low < high), (t * _WHOLE).round(), 0.0).long()
        counts = torch.zeros(k * w, dtype=torch.int64, device=norms.device)
        counts.index_add_(0, cluster * w + low, torch.where(seen, _WHOLE - share, 0))
        counts.index_add_(0, cluster * w + high, share)
        return BoundedSum(counts.view(k, w), 1.0, unit="norms", replaced=math.sqrt(2.0), step=1.0 / _WHOLE)

    def observe(self, released: Tensor) -> None:
        self.edges = place(self.edges, released.device)
        self.released = [*(place(r, released.device) for r in self.released), released.double()][-self.window :]
        mode = torch.stack(self.released).sum(0).argmax(1)
        self._bounds = self.edges[mode.clamp_max(self.edges.numel() - 1)].to(self.bounds.dtype)
        if released.device.type == "cpu":
            self._warn_if_poor()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._warn_if_poor()  # here a device may be waited for

    def _warn_if_poor(self) -> None:
        if self._warned or len(self.released) < self.window:
            return
        total = torch.stack(self.released).sum(0).cpu()
        best, mode = total.max(1)
        overflow = int((mode == self.edges.numel()).sum())
        # The largest of w pure noises is about sigma sqrt(2 ln w); below that the mode says nothing about the data.
        floor = self.noise_multiplier * math.sqrt(2.0 * len(self.released) * math.log(total.shape[1]))
        silent = int((best < floor).sum())
        if overflow or silent:
            self._warned = True
            warnings.warn(
                f"DPNorm: in {overflow} of {mode.numel()} clusters most norms exceed c_max={self.bound:g} and in {silent} "
                "the fullest bin is within the noise, so the clip bound is poorly chosen: raise c_max or window, or use "
                "clipping 'auto'",
                stacklevel=2,
            )
