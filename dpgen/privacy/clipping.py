r"""Sums of clipped per-record gradients, cluster by cluster, without a gradient per record in memory.

A gradient arrives in factors: record r has the weight gradient :math:`g_r a_r^\top` of every affine map. Its squared norm
is :math:`|g_r|^2 |a_r|^2` (plus :math:`|g_r|^2` for the bias), and the weighted sum over a cluster is one matrix product
:math:`G^\top \mathrm{diag}(w) A`. With a public offset :math:`O_c` (the negative phase of a Boltzmann machine),
:math:`|F_r - O_c|^2 = |F_r|^2 - 2 \langle F_r, O_c \rangle + |O_c|^2`.

Formal guarantees of `clipped_sums` with the coefficients of this module, for any inputs:

| case | what holds |
|---|---|
| any record | its term in the sum has L2 norm at most 1 (in units of its clip bound), up to float rounding |
| a record with a NaN or infinite gradient | its term is exactly zero, all other terms are untouched |
| a cluster without records | its row of the sum is exactly zero (noise is still added by the caller) |
| a gradient of norm 0 | its term is zero |

Source: Goodfellow 2015 (outer-product norms); Abadi et al. 2016 (clipping); Bu et al. 2023 (automatic clipping).
"""

from collections.abc import Callable, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor


class AffineFactor(Protocol):
    """Per-record gradient of one affine map; `inputs` None means that `outputs` itself is the gradient."""

    @property
    def outputs(self) -> Tensor: ...  # (b, out)
    @property
    def inputs(self) -> Tensor | None: ...  # (b, in)
    @property
    def weight(self) -> slice | None: ...
    @property
    def bias(self) -> slice | None: ...


class FactoredGradients(Protocol):
    """Gradients of b records sorted by cluster; cluster c owns rows bounds[c]:bounds[c + 1]."""

    @property
    def factors(self) -> Sequence[AffineFactor]: ...
    @property
    def bounds(self) -> Sequence[int]: ...
    @property
    def offset(self) -> Tensor | None: ...  # (k, p), public


def _exactly(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Run `function` outside of autocast and on factors of full precision only.

    Norms bound what is summed only if both are computed from the same factors and neither is rounded to half precision.
    """

    @wraps(function)
    def exact(gradients: FactoredGradients, *args: Any, **options: Any) -> Tensor:
        for factor in gradients.factors:
            for values in (factor.outputs, factor.inputs, gradients.offset):
                if values is not None and values.dtype not in (torch.float32, torch.float64):
                    raise ValueError(f"factors must be torch.float32 or torch.float64, got {values.dtype}: convert them first")
        with torch.autocast(gradients.factors[0].outputs.device.type, enabled=False):
            return function(gradients, *args, **options)

    return exact


@_exactly
def gradient_norms(gradients: FactoredGradients) -> Tensor:
    """L2 norm of every record's gradient, (b,), rounded upwards by a few units in the last place; NaN if not finite."""
    total = gradients.factors[0].outputs.new_zeros(())
    for f in gradients.factors:
        square = _squares(f.outputs)
        inputs = _squares(f.inputs) if f.inputs is not None else square.new_zeros(())
        total = total.to(square) + square * (inputs + float(f.bias is not None))
    size = total
    if gradients.offset is not None:
        cross, offset_size = _offset_terms(gradients, gradients.offset)
        total, size = total - 2.0 * cross + offset_size, total + offset_size
    # Rounding must not understate a norm: |F|^2 - 2<F, O> + |O|^2 cancels, so the margin is relative to its terms.
    norms = (total.clamp_min(0.0) + 32.0 * torch.finfo(total.dtype).eps * size).sqrt()
    return torch.where(torch.isfinite(norms), norms, torch.nan)


def _squares(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=1).square()


def _offset_terms(gradients: FactoredGradients, offset: Tensor) -> tuple[Tensor, Tensor]:
    """<F_r, O_c> and |O_c|^2 for every record, both (b,)."""
    b = gradients.factors[0].outputs.shape[0]
    cross, size = offset.new_zeros(b), offset.new_zeros(b)
    for c, (start, stop) in enumerate(pairwise(gradients.bounds)):
        if stop == start:
            continue
        size[start:stop] = offset[c].square().sum()
        for f in gradients.factors:
            g = f.outputs[start:stop]
            if f.inputs is not None and f.weight is not None:
                matrix = offset[c, f.weight].view(g.shape[1], -1)
                cross[start:stop] += ((g @ matrix) * f.inputs[start:stop]).sum(1)
            if f.bias is not None:
                cross[start:stop] += g @ offset[c, f.bias]
    return cross, size


@_exactly
def clipped_sums(gradients: FactoredGradients, coefficients: Tensor, out: Tensor, *, accumulate: bool = False) -> Tensor:
    """Write sum_r coefficients[r] * gradient_r of every cluster into its row of `out` (k, p), and return `out`.

    With `accumulate` the sums are added to what is there; without, no old value matters, not even NaN. A record with
    coefficient 0 contributes exactly nothing, also where its gradient is not finite.
    """
    if not accumulate and _columns(gradients) < out.shape[1]:
        out.zero_()  # parameters that no factor covers
    excluded = coefficients == 0
    clean = excluded.device.type != "cpu" or bool(excluded.any())  # a device is not asked: it would have to be waited for
    for f in gradients.factors:
        g = f.outputs * coefficients[:, None]
        a = f.inputs
        if clean:
            g = torch.where(excluded[:, None], 0.0, g)
            a = torch.where(excluded[:, None], 0.0, a) if a is not None else None
        for c, (start, stop) in enumerate(pairwise(gradients.bounds)):
            if a is not None and f.weight is not None:
                matrix = out[c, f.weight].view(g.shape[1], -1)
                matrix.addmm_(g[start:stop].T, a[start:stop], beta=float(accumulate))
            if f.bias is not None:
                total = g[start:stop].sum(0)
                out[c, f.bias] = out[c, f.bias] + total if accumulate else total
    if gradients.offset is not None:
        for c, (start, stop) in enumerate(pairwise(gradients.bounds)):
            out[c].sub_(gradients.offset[c] * coefficients[start:stop].sum())
    return out


def _columns(gradients: FactoredGradients) -> int:
    """Number of parameters that the factors cover; no two factors share one."""
    owned = [part for f in gradients.factors for part in (f.weight, f.bias) if part is not None]
    return sum(part.stop - part.start for part in owned)


def flat_coefficients(norms: Tensor, bound: Tensor) -> Tensor:
    """min(1, C / |g|) / C = 1 / max(|g|, C): clipping at C in units of C, (b,); 0 where the norm is not finite."""
    return torch.where(torch.isfinite(norms), 1.0 / torch.maximum(norms, bound), 0.0)


def automatic_coefficients(norms: Tensor, stability: float) -> Tensor:
    """1 / (|g| + gamma): normalised gradients ("automatic clipping"), (b,); 0 where the norm is not finite."""
    return torch.where(torch.isfinite(norms), 1.0 / (norms + stability), 0.0)
