"""k copies of any module that states a loss per record, behind the interface of the factored banks."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from dpgen.nets.bank import Factor, ModelBank, Noise, RecordGradients, segments

_MIXING = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)


def require_unmixed(module: nn.Module) -> None:
    """Refuse layers that mix records.

    Raises:
        ValueError: BatchNorm, or InstanceNorm with running statistics.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, _MIXING) and not (
            isinstance(layer, nn.modules.instancenorm._InstanceNorm) and not layer.track_running_stats
        ):
            raise ValueError(
                f"layer {name!r} is a {type(layer).__name__}, which mixes the records of a batch, so no record's "
                "gradient can be bounded; use GroupNorm or LayerNorm"
            )


class GenericBank(ModelBank):
    """k models of any architecture; per-record gradients are materialised by `torch.func`, one cluster at a time.

    Slower than a factored bank and with memory in proportion to (records of a cluster) x (parameters); use micro-batches.

    Parameters that need no gradient, and buffers, are public and stay as they are: what a call changes of them is undone.

    Arguments:
        k: number of models.
        module: template with `loss(x, z) -> (b,)` for x (b, d) and standard normal z (b, latent), and
            `sample(z) -> (n, d)` means in [0, 1]; `latent` is its attribute.

    Raises:
        ValueError: the module holds a layer that mixes records (BatchNorm, InstanceNorm with running statistics).
    """

    def __init__(self, k: int, module: nn.Module) -> None:
        require_unmixed(module)
        super().__init__(k, {name: tuple(value.shape) for name, value in module.named_parameters() if value.requires_grad})
        self.template = copy.deepcopy(module).requires_grad_(False)

    def initialize(self, generator: torch.Generator) -> None:
        """The template's own values in all k models, plus public noise of 1 % of each parameter's spread."""
        for name in self.shapes:
            value = self.template.get_parameter(name)
            jitter = torch.randn(self.k, *value.shape, generator=generator).to(value)
            spread = float(value.std()) if value.numel() > 1 else 0.0
            self.part(name).copy_(value + 0.01 * spread * jitter)

    def _model(self, row: Tensor) -> dict[str, Tensor]:
        return {name: row[columns].unflatten(0, self.shapes[name]) for name, columns in self.columns.items()}

    def _call(self, method: str) -> Callable[..., Tensor]:
        bound = _Method(self.template, method)
        # Copies, so that no call leaves anything of its records in what is saved.
        fixed = {name: value.clone() for name, value in self.template.named_buffers()}
        fixed |= {name: value.detach() for name, value in self.template.named_parameters() if name not in self.shapes}
        return lambda row, *args: functional_call(
            bound, {f"module.{name}": value for name, value in (fixed | self._model(row)).items()}, args
        )

    def gradients(self, x: Tensor, bounds: Sequence[int], noise: Noise) -> RecordGradients:
        return self.record_gradients("loss", x, bounds, noise(x.shape[0], int(getattr(self.template, "latent", 1))).to(x))

    def record_gradients(self, method: str, x: Tensor, bounds: Sequence[int], z: Tensor) -> RecordGradients:
        """Dense gradients of a method of the template that returns a loss per record."""
        loss = self._call(method)
        per_record = vmap(grad(lambda row, a, b: loss(row, a[None], b[None])[0]), in_dims=(None, 0, 0))
        theta = self.theta.detach()
        dense = x.new_empty(x.shape[0], self.p)
        for c, a, b in segments(bounds):
            dense[a:b] = per_record(theta[c], x[a:b], z[a:b])
        return RecordGradients([Factor(dense, None, None, slice(0, self.p))], bounds)

    @torch.no_grad()
    def sample(self, cluster: int, n: int, generator: torch.Generator) -> Tensor:
        z = torch.randn(n, int(getattr(self.template, "latent", 1)), generator=generator).to(self.theta)
        return self._call("sample")(self.theta[cluster], z)

    def architecture(self) -> dict[str, Any]:
        raise ValueError(
            f"a bank of {type(self.template).__name__} was made from an instance, which no file can describe, so it cannot be "
            "released: name its class, OwnBank(k, d, network=...)"
        )


class _Method(nn.Module):
    """Lets `functional_call` reach a method other than `forward`."""

    def __init__(self, module: nn.Module, method: str) -> None:
        super().__init__()
        self.module, self.method = module, method

    def forward(self, *args: Tensor) -> Tensor:
        return getattr(self.module, self.method)(*args)
