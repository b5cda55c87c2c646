r"""Sums of clipped per-record gradients, cluster by cluster, without a gradient per record in memory.

A gradient arrives in factors: record r has the weight gradient :math:`g_r a_r^\top` of every affine map. Its squared norm
is :math:`|g_r|^2 |a_r|^2` (plus :math:`|g_r|^2` for the bias), and the weighted sum over a cluster is one matrix product
:math:`G^\top \mathrm{diag}(w) A`. With a public offset :math:`O_c` (the negative phase of a Boltzmann machine),
:math:`|F_r - O_c|^2 = |F_r|^2 - 2 \langle F_r, O_c \rangle + |O_c|^2`.

Formal guarantees of `clipped_sums` with the coefficients of this module, for any inputs:

| case | what holds |
|---|---|
| any record | its term in the exact sum has L2 norm at most 1 + 2^-20 (in units of its clip bound) |
| a record with a NaN or infinite gradient, or one of norm above 2^100 | its term is exactly zero, all others are untouched |
| a cluster without records | its row of the sum is exactly zero (noise is still added by the caller) |
| a gradient of norm 0 | its term is zero |
| one record more or less in a cluster of up to 2 million drawn | the floating-point sum moves by at most `SENSITIVITY` |
| the same with maps at several positions, weights that are tied among them | up to 1 million drawn |

**The margin.** Let :math:`t_r = \hat g_r a_r^\top` be a record's exact term, with :math:`\hat g_r = fl(w_r g_r)` computed from
that record alone, bit for bit (`systems.networks.invariance`). Norms are never understated (`gradient_norms`), so
:math:`w_r |g_r a_r^\top| \le 1 + u`, and three roundings of relative size u give :math:`|t_r| \le 1 + 4u`. In any order, with
or without fused multiply-add, a sum of n products errs by at most :math:`\gamma_n \sum_r |\hat g_{ri}||a_{rj}|` in each entry,
:math:`\gamma_n = n u / (1 - n u)` (Higham 2002, section 3.1), so by at most :math:`e(n) = n \gamma_n (1 + 4u)` in L2 norm, for
:math:`\big|\sum_r |\hat g_r||a_r|^\top\big| \le \sum_r |t_r|`. A removed record moves the exact sum by :math:`|t_r|` and both
sums err, hence :math:`1 + 4u + 2 e(n)`.

| records n of the cluster in the draw | accumulated in | 2 e(n) |
|---|---|---|
| up to 88 | float32, u = 2^-24 | 9.24e-4 |
| up to 4,096 | float64, u = 2^-53, then rounded to float32: e = 2^-24 n | 4.9e-4 |
| up to 2 million | float64 | n^2 2^-52 <= 8.9e-4 |

Which line applies is decided by n of the cluster alone, so that its sum is the same whatever happens in other clusters. The
last bound holds for any order; parts of m records that are added one after the other lose 2 n (m + n/m) 2^-53, which is
4e-6 at n = 4 million and m = 512. Products with an offset are float64 throughout, for their two parts may be much larger than
their difference.

**Layers.** Where parts of the parameters l = 1..L are clipped apart, record r has weights :math:`w_{rl}` with
:math:`w_{rl} |g_{rl}| \le s_l (1 + 2u)`, and :math:`\sum_l s_l^2 \le 1` (`Layer`; :math:`s_l` is rounded, too). Its term is the
sum of orthogonal parts, so :math:`|t_r|^2 \le \sum_l s_l^2 (1 + 5u)^2 \le (1 + 5u)^2`, and all else is as above: 2^-10 has room
for one more u (McMahan et al. 2018).

**Positions.** A map at P positions of a record has :math:`G_r = \sum_{p \le P} u_p v_p^\top`, whose terms may cancel. With
:math:`S_r = \sum_p |u_p| |v_p|`, the products of pairs give :math:`|G_r|^2 = \sum_{pq} \langle u_p, u_q \rangle \langle v_p,
v_q \rangle` to :math:`\gamma_{V + d + P^2 + 4} S_r^2` in float64, for u of V and v of d entries. That is far below
:math:`2^{-16} S_r^2`, which is put on top: no norm is understated, and :math:`w_r S_r \le 2^8`. A margin relative to the norm
that was computed would not do, for that may be all rounding. Whole records make blocks of m <= 4,096 positions; a block is
added when it is done. In it :math:`\gamma_m 2^8` of each record is lost; afterwards, one rounding of a sum of terms of norm 1:
together :math:`e(n) \le n (2^8 m + n P / m) 2^{-53}`, so :math:`2 e(n) \le 4.9 \cdot 10^{-4}` for a million records.

**Tied weights** are one such map, of V codes: looked up at the codes :math:`x_t` with slopes :math:`\delta_t`, and
multiplied by :math:`h_s` where the outputs have slopes :math:`g_s`,

.. math:: G_r = \sum_t e_{x_t} \delta_t^\top + \sum_s g_s h_s^\top, \qquad
    |G_r|^2 = \Big|\sum_t e_{x_t} \delta_t^\top\Big|^2 + \Big|\sum_s g_s h_s^\top\Big|^2
    + 2 \sum_{ts} g_s[x_t] \langle \delta_t, h_s \rangle .

The two uses may cancel each other as well: :math:`S_r` is that of both, at least the sum of their norms, and both are in a
block, in float64, before it is rounded.

**Dense gradients** are summed as products of weights and rows, which have rank one like the others.

Source: Goodfellow 2015 (outer-product norms); Abadi et al. 2016 (clipping); Bu, Mao, Xu 2022 (norms of convolutions); Bu et
al. 2023 (automatic clipping).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

SHORT = 88
"""Records of a cluster that may be added up in float32."""

ROUNDED = 4096
"""Records of a cluster whose float64 sum may be rounded to float32."""

SENSITIVITY = 1.0 + 2.0**-10
"""Sensitivity of a sum of clipped gradients, in units of its clip bound, whatever the draw: 1 + .00098."""


def sensitivity_of_people(clusters: int) -> float:
    r"""Sensitivity of sums in which a person's k clipped gradients weigh at most 1/k each, and lie in up to j clusters.

    Their terms have norm at most 1 together, by the triangle inequality, whatever clusters they lie in. Each of these j
    clusters errs by :math:`2 e(n)` at most, so together by :math:`2 e(n) \sqrt j`.
    """
    return 1.0 + 2.0**-10 * math.sqrt(clusters)


_LARGEST = 2.0**100
_ROWS = 4096  # records times positions of one float64 product
_CANCELLED = 2.0**-16  # of S^2, see above
_ENTRIES = 2**17  # of dense gradients that are weighed at once
_BLOCK = 32  # records whose T x T products are in memory at once
_PAIRS = 2**21  # of positions that are
_PIECE = 2**21  # entries of a wide map that are float64 at once
_LANE = 256  # entries of a longer row that are
_WIDE = 4096  # entries that may be squared and added in float32 before the norm is overstated by more than 3e-4


def segments(bounds: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Cluster, first and last row (excluded) of every cluster that has rows.

    >>> list(segments([0, 0, 5]))
    [(1, 0, 5)]
    """
    return ((c, a, b) for c, (a, b) in enumerate(pairwise(bounds)) if b > a)


class Factor(NamedTuple):
    r"""Per-record gradients of one affine map :math:`y = W a + \beta`, never multiplied out.

    Record r has weight gradient :math:`g_r a_r^\top` and bias gradient :math:`g_r`. A factor without `inputs` is dense:
    its gradient is `outputs` itself, in the columns `bias`. A map that acts at T positions of a record, as convolutions
    do, has weight gradient :math:`\sum_t g_{rt} a_{rt}^\top`; its bias is a factor of its own. One-hot outputs may be codes.
    Such factors of the same weight add up: one of codes and one of outputs where an embedding is the last layer, too.
    """

    outputs: Tensor  # (b, out) or (b, T, out), or (b, T) int64
    inputs: Tensor | None  # (b, in) or (b, T, in)
    weight: slice | None
    bias: slice | None

    @property
    def columns(self) -> slice:
        """Columns of the weight, or of the bias where it has none."""
        return self.weight or self.bias or slice(0, 0)


class RecordGradients(NamedTuple):
    """Gradients of b records, sorted by cluster: cluster c owns the rows `bounds[c]:bounds[c + 1]`.

    `offset` (k, p), if given, holds public values: record r of cluster c has gradient (factors of r) - offset[c].
    `present` (k,), if given, says how many of a cluster's rows are records; they come first, the rest only pads.
    `least` (b,), if given, are norms that they count with at least.
    """

    factors: Sequence[Factor]
    bounds: Sequence[int]
    offset: Tensor | None = None
    present: Sequence[int] | None = None
    least: Tensor | None = None

    @property
    def sizes(self) -> Sequence[int]:
        """Records of every cluster, (k,), without pads."""
        return self.present or [b - a for a, b in pairwise(self.bounds)]

    def full(self) -> "RecordGradients":
        """Gradients with every factor at least float32: those of half precision count with the values they have."""
        factors = [
            Factor(full_precision(f.outputs), f.inputs if f.inputs is None else full_precision(f.inputs), *f[2:])
            for f in self.factors
        ]
        return self._replace(factors=factors, offset=None if self.offset is None else full_precision(self.offset))


class Layer(NamedTuple):
    """Parameters whose gradient is clipped apart: their columns, and the bound `share` of it, in units of the whole one."""

    share: float
    columns: tuple[slice, ...]


def require_layers(layers: Sequence[Layer], p: int) -> None:
    """Refuse layers that do not have each of p parameters once, or whose squared bounds add up to more than 1."""
    ends = sorted((part.start, part.stop) for layer in layers for part in layer.columns if part.stop > part.start)
    if any(stop != start for (_, stop), (start, _) in pairwise([(0, 0), *ends, (p, p)])):
        raise ValueError(f"layers have the columns {ends}; together they must have each of the {p} parameters once")
    total = math.fsum(layer.share * layer.share for layer in layers)
    if not (total <= 1.0 + 2.0**-40 and all(layer.share > 0 for layer in layers)):
        raise ValueError(f"layers have bounds whose squares add up to {total:.6g} of the whole; it must be at most 1, each > 0")


def by_layer(gradients: RecordGradients, layers: Sequence[Layer]) -> tuple[RecordGradients, list[int]]:
    """Gradients in factors of one layer each, and the layer of every factor.

    Raises:
        ValueError: of gradients with an offset, or with norms that they count with at least, which are of the whole.
    """
    if gradients.offset is not None or gradients.least is not None:
        raise ValueError("layers cannot be clipped apart in gradients with an offset, or of people: take one bound for all")
    factors, owner = list[Factor](), list[int]()
    for f in gradients.factors:
        for number, layer in enumerate(layers):
            for own in _parts_in(f, layer):
                factors.append(own)
                owner.append(number)
    made = gradients._replace(factors=factors)
    if _columns(made) != _columns(gradients):
        raise ValueError("a factor reaches over several layers; a parameter must be in one of them")
    return made, owner


def _parts_in(f: Factor, layer: Layer) -> Iterator[Factor]:
    """Parts of a factor in the columns of a layer: whole products, and some columns of dense gradients."""
    for part in layer.columns:
        if f.inputs is None:
            assert f.bias is not None
            first, last = max(part.start, f.bias.start), min(part.stop, f.bias.stop)
            if first < last:
                own = f.outputs[:, first - f.bias.start : last - f.bias.start]
                yield Factor(own, None, None, slice(first, last))
            continue
        weight, bias = (s if s is not None and part.start <= s.start < s.stop <= part.stop else None for s in f[2:])
        if weight is not None:
            yield Factor(f.outputs, f.inputs, weight, bias)
        elif bias is not None:
            yield Factor(f.outputs, None, None, bias)


def layer_norms(gradients: RecordGradients, owner: Sequence[int], layers: int) -> Tensor:
    """`gradient_norms` of every layer, (b, layers), of factors of one layer each; 0 where a layer has none."""
    norms = []
    for number in range(layers):
        own = [f for f, of in zip(gradients.factors, owner) if of == number]
        norms.append(gradient_norms(gradients._replace(factors=own)) if own else None)
    b, known = gradients.bounds[-1], next(n for n in norms if n is not None)
    return torch.stack([known.new_zeros(b) if n is None else n for n in norms], 1)


def full_precision(values: Tensor) -> Tensor:
    """Values of half precision as float32; others as they are."""
    return values.to(torch.float32) if values.is_floating_point() and values.dtype != torch.float64 else values


def _exactly(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Run `function` outside of autocast and on factors of full precision only.

    Norms bound what is summed only if both are computed from the same factors and neither is rounded to half precision.
    """

    @wraps(function)
    def exact(gradients: RecordGradients, *args: Any, **options: Any) -> Tensor:
        with torch.autocast(gradients.factors[0].outputs.device.type, enabled=False):
            return function(gradients.full(), *args, **options)

    return exact


@_exactly
def gradient_norms(gradients: RecordGradients) -> Tensor:
    r"""Upper bounds of the L2 norms of all records' gradients, (b,), a few millionths above them; NaN if not finite.

    A sum of m squares, in any order, is at least :math:`1 - \gamma_{m + 1}` times the exact one, minus what underflows: at
    most the smallest normal number for each entry. Both are put back, so no norm is understated: rows of up to 4,096 entries
    are added in float32, and the parts of longer ones in float64. With an offset everything is float64 and the margin is
    relative to the terms, which cancel. Norms above 2^100 count as not finite: their inverses would be subnormal numbers.
    """
    dtype = _values(gradients.factors[0]).dtype
    if gradients.offset is not None:
        norms = _norms_of_differences(gradients, gradients.offset.double())
    else:
        total = _values(gradients.factors[0]).new_zeros(())
        for places in _by_weight(gradients.factors):
            f = gradients.factors[places[0]]
            if _positions(f):
                total = total.double() + _squares_of_sums([gradients.factors[i] for i in places])
                continue
            square = _squares(f.outputs)
            inputs = _squares(f.inputs) if f.inputs is not None else square.new_zeros(())
            total = total.to(square) + square * (inputs + float(f.bias is not None))
        norms = (total + torch.finfo(dtype).tiny).sqrt_()
        # (1 - gamma_m)^(1/2) (1 + m u) >= 1 + m u / 4, which also covers the roundings of this line and the last one.
        norms.mul_(1.0 + (_longest(gradients) + len(gradients.factors) + 24) * 0.5 * torch.finfo(dtype).eps)
    norms = norms.to(dtype)
    norms = norms if gradients.least is None else norms.maximum(gradients.least.to(dtype))
    return torch.where(norms < _LARGEST, norms, torch.nan)


def _squares(rows: Tensor) -> Tensor:
    """Squared norms (b,), with what underflow may have lost put back; of wide rows in float64, from those of their parts."""
    lost = 2.0 * rows.shape[1] * torch.finfo(rows.dtype).tiny
    if rows.shape[1] <= _WIDE:
        return torch.linalg.vector_norm(rows, dim=1).square().add_(lost)
    whole = rows.shape[1] // _LANE * _LANE
    parts = torch.linalg.vector_norm(rows[:, :whole].unflatten(1, (-1, _LANE)), dim=2).double().square().sum(1)
    return parts + torch.linalg.vector_norm(rows[:, whole:], dim=1).double().square() + lost


def _values(f: Factor) -> Tensor:
    """The inputs of a factor, or its outputs where it has none: numbers, never codes."""
    return f.outputs if f.inputs is None else f.inputs


def _positions(f: Factor) -> bool:
    """Whether a factor is a sum over positions."""
    return f.inputs is not None and f.inputs.ndim == 3


def _by_weight(factors: Sequence[Factor]) -> list[list[int]]:
    """Places of the factors of each weight: sums over positions of the same one add up, all others stand alone."""
    found: dict[Any, list[int]] = {}
    for i, f in enumerate(factors):
        found.setdefault(f.weight.start if _positions(f) and f.weight is not None else (i,), []).append(i)
    return list(found.values())


def _squares_of_sums(uses: Sequence[Factor]) -> Tensor:
    """Squared norms (b,) of sums of u_p v_p^T over all uses, float64, from P x P products; `_CANCELLED` S^2 is put on top."""
    positions = sum(f.outputs.shape[1] for f in uses)
    if positions > _ROWS:
        raise ValueError(f"a factor has {positions} positions; it must have at most {_ROWS}: multiply it out")
    parts, block = [_values(uses[0]).new_zeros(0, dtype=torch.float64)], max(1, min(_BLOCK, _PAIRS // positions**2))
    for first in range(0, len(uses[0].outputs), block):
        g = [f.outputs[first : first + block] for f in uses]
        a = torch.cat([_values(f)[first : first + block].double() for f in uses], 1)
        pairs = torch.cat([torch.cat([_products(u, v) for v in g], 2) for u in g], 1) * (a @ a.mT)
        most = pairs.diagonal(dim1=1, dim2=2).sqrt().sum(1)
        parts.append(pairs.sum((1, 2)).clamp_min(0.0) + _CANCELLED * most.square())
    return torch.cat(parts)


def _products(u: Tensor, v: Tensor) -> Tensor:
    """Products (b, P, Q) of outputs at positions (b, P, width) and (b, Q, width), float64; codes are one-hot rows."""
    if u.is_floating_point() and v.is_floating_point():
        wide = max(1, _PIECE // (len(u) * max(u.shape[1], v.shape[1])))
        total = u.new_zeros(len(u), u.shape[1], v.shape[1], dtype=torch.float64)
        for left, right in zip(u.split(wide, 2), v.split(wide, 2)):
            total.baddbmm_(left := left.double(), left.mT if u is v else right.double().mT)
        return total
    if u.is_floating_point():
        return u.gather(2, v[:, None].expand(-1, u.shape[1], -1)).double()
    return _products(v, u).mT if v.is_floating_point() else (u[:, :, None] == v[:, None]).double()


def _longest(gradients: RecordGradients) -> int:
    """Most entries whose squares meet in one product of norms and are added in float32."""
    widths = [[v.shape[1] for v in (f.outputs, f.inputs) if v is not None] for f in gradients.factors if not _positions(f)]
    return max((sum(width if width <= _WIDE else _LANE for width in pair) for pair in widths), default=0)


def _norms_of_differences(gradients: RecordGradients, offset: Tensor) -> Tensor:
    """Upper bounds of |F_r - O_c|, float64: |F|^2 - 2<F, O> + |O|^2 cancels, so the margin is relative to its terms."""
    if any(_positions(f) for f in gradients.factors):
        raise ValueError("factors of several positions have no offset: multiply them out")
    total: Tensor = offset.new_zeros(())
    for f in gradients.factors:
        square = _squares(f.outputs.double())
        inputs = _squares(f.inputs.double()) if f.inputs is not None else square.new_zeros(())
        total = total + square * (inputs + float(f.bias is not None))
    cross, offset_size = _offset_terms(gradients, offset)
    size = total + offset_size
    lost = 8.0 * (offset.shape[1] + 64) * torch.finfo(torch.float64).eps
    norms = (total - 2.0 * cross + offset_size).clamp_min_(0.0).add_(lost * size).sqrt_()
    return norms.mul_(1.0 + torch.finfo(gradients.factors[0].outputs.dtype).eps * 2)  # for rounding to the dtype of the factors


def _offset_terms(gradients: RecordGradients, offset: Tensor) -> tuple[Tensor, Tensor]:
    """<F_r, O_c> and |O_c|^2 for every record, both (b,)."""
    b = gradients.factors[0].outputs.shape[0]
    cross, size = offset.new_zeros(b), offset.new_zeros(b)
    for c, start, stop in segments(gradients.bounds):
        size[start:stop] = offset[c].square().sum()
        for f in gradients.factors:
            g = f.outputs[start:stop].double()
            if f.inputs is not None and f.weight is not None:
                matrix = offset[c, f.weight].view(g.shape[1], -1)
                cross[start:stop] += ((g @ matrix) * f.inputs[start:stop].double()).sum(1)
            if f.bias is not None:
                cross[start:stop] += (g * offset[c, f.bias]).sum(1)
    return cross, size


@_exactly
def clipped_sums(
    gradients: RecordGradients,
    coefficients: Tensor,
    out: Tensor,
    *,
    accumulate: bool = False,
    drawn: Sequence[int] | None = None,
    short: int = SHORT,
) -> Tensor:
    """Write sum_r coefficients[r] * gradient_r of every cluster into its row of `out` (k, p), and return `out`.

    Coefficients are (b,), or (b, factors) where each factor has its own. With `accumulate` the sums are added to what is there;
    without, no old value matters, not even NaN. A record with coefficient 0 contributes exactly nothing, also where its
    gradient is not finite. `drawn` are the records (k,) of every cluster in the whole draw, if these are a part of it. Clusters
    of more than `short` <= `SHORT` are added up in float64, and `out` must be float64 if they come in several parts, or have
    more than `ROUNDED`.
    """
    if not accumulate and _columns(gradients) < out.shape[1]:
        out.zero_()  # parameters that no factor covers
    sizes = gradients.sizes
    drawn, scaled = sizes if drawn is None else drawn, _scaled(gradients, coefficients, sum(sizes))
    scratch: dict[torch.dtype, Tensor] = {}
    for c, (start, n) in enumerate(zip(gradients.bounds, sizes)):
        dtype = _accumulated_in(gradients, long=drawn[c] > short)
        same, row = dtype == out.dtype, out[c]
        if not same:
            row = scratch.setdefault(dtype, torch.zeros_like(row, dtype=dtype))
        rows, beta = slice(start, start + n), float(accumulate and same)
        _add_factors(row, gradients.factors, scaled, coefficients, rows, beta)
        if gradients.offset is not None:
            row.sub_(gradients.offset[c].to(dtype) * coefficients[rows].to(dtype).sum())
        if not same:
            out[c].add_(row) if accumulate else out[c].copy_(row)
    return out


def _add_factors(
    row: Tensor,
    factors: Sequence[Factor],
    scaled: Sequence[tuple[Tensor, Tensor | None]],
    coefficients: Tensor,
    rows: slice,
    beta: float,
) -> None:
    """Replace `row` (p,) by beta times it plus the weighted sum of the gradients of some records, those of one cluster."""
    for places in _by_weight(factors):
        uses = list[tuple[Tensor, Any, Tensor]]()
        for i in places:
            parts = (*scaled[i], _of_factor(coefficients, i))
            uses.append(tuple(None if v is None else v[rows] for v in parts))  # type: ignore[arg-type]
        f, (g, a, weights) = factors[places[0]], uses[0]
        if _positions(f):
            _add_positions(row[f.weight], uses, beta)
        elif a is None:
            _add_dense(row[f.bias], g, weights, beta)
        else:
            _add_products(row, f, g.to(row.dtype), a.to(row.dtype), beta)


def _accumulated_in(gradients: RecordGradients, *, long: bool) -> torch.dtype:
    """Precision of the sum of a cluster, which may be too `long` for that of the factors, see the table above."""
    return torch.float64 if long or gradients.offset is not None else _values(gradients.factors[0]).dtype


def _scaled(gradients: RecordGradients, coefficients: Tensor, records: int) -> list[tuple[Tensor, Tensor | None]]:
    """Outputs of every factor times the coefficients, and its inputs; rows of coefficient 0 are 0 in both.

    Dense and positional ones are weighed when they are added up, a part at a time.
    """
    factors = gradients.factors
    each = [_of_factor(coefficients, i) for i in range(len(factors))]
    scaled = [(f.outputs if _in_parts(f) else f.outputs * w[:, None], f.inputs) for f, w in zip(factors, each)]
    # A device is not asked whether there are any: it would have to be waited for.
    if coefficients.device.type == "cpu" and int(torch.count_nonzero(coefficients)) >= records * coefficients[:1].numel():
        return scaled

    def without(rows: Tensor, weights: Tensor) -> Tensor:
        return torch.where((weights == 0).view(-1, *[1] * (rows.ndim - 1)), 0.0, rows)

    return [
        (without(g, w) if g.is_floating_point() else g, None if a is None else without(a, w)) for (g, a), w in zip(scaled, each)
    ]


def _of_factor(coefficients: Tensor, i: int) -> Tensor:
    """Coefficients (b,) of one factor."""
    return coefficients if coefficients.ndim == 1 else coefficients[:, i]


def _in_parts(f: Factor) -> bool:
    return _positions(f) or f.inputs is None


def _add_products(row: Tensor, f: Factor, g: Tensor, a: Tensor | None, beta: float) -> None:
    """Replace the factor's part of `row` (p,) by beta times it plus g^T a and the column sums of g."""
    if a is not None and f.weight is not None:
        row[f.weight].view(g.shape[1], -1).addmm_(g.T, a, beta=beta)
    if f.bias is not None:
        total = g.sum(0)
        row[f.bias] = row[f.bias] + total if beta else total


def _add_dense(part: Tensor, g: Tensor, weights: Tensor, beta: float) -> None:
    """Replace `part` (m,) by beta times it plus the weighted sum of gradients (n, m)."""
    total, block = part.new_zeros(g.shape[1]), max(1, _ENTRIES // g.shape[1])
    for rows, w in zip(g.split(block), weights.to(part.dtype).split(block)):
        total.addmv_(rows.to(part.dtype).T, w)
    part.copy_(part + total if beta else total)


def _add_positions(part: Tensor, uses: Sequence[tuple[Tensor, Tensor, Tensor]], beta: float) -> None:
    """Replace `part` (out * in,) by beta times it plus the weighted sum of gradients that are sums over positions.

    Each use has outputs or codes, inputs, and weights (n,). Some rows of a wide map are taken at a time. A product is added
    when it is done, not while it is taken: then what has been added before costs one rounding.
    """
    n, width = len(uses[0][2]), uses[0][1].shape[2]
    positions = sum(g.shape[1] for g, *_ in uses)
    rows, block = part.view(-1, width), max(1, _ROWS // positions)
    tall = max(1, _PIECE // max(width, positions * min(block, n), 1))
    for first in range(0, len(rows), tall):
        own = rows[first : first + tall]
        total = own.new_zeros(own.shape, dtype=torch.float64)
        for start in range(0, n, block):
            some = [tuple(v[start : start + block] for v in use) for use in uses]
            total += _of_rows(some, first, len(own))
        own.copy_(own + total if beta else total)


def _of_rows(uses: Sequence[tuple[Tensor, ...]], first: int, tall: int) -> Tensor:
    """Some rows (tall, in) of the weighted sum of a block, float64."""
    made = uses[0][1].new_zeros(tall + 1, uses[0][1].shape[2], dtype=torch.float64)  # the last one is of codes elsewhere
    for g, a, w in uses:
        weighed = (a.double() * w.double()[:, None, None]).flatten(0, 1)
        if g.is_floating_point():
            made[:tall].addmm_(g[:, :, first : first + tall].double().flatten(0, 1).T, weighed)
        else:
            place = g.flatten() - first
            made.index_add_(0, torch.where((place >= 0) & (place < tall), place, tall), weighed)
    return made[:tall]


def _columns(gradients: RecordGradients) -> int:
    """Number of parameters that the factors cover."""
    owned = {(part.start, part.stop) for f in gradients.factors for part in (f.weight, f.bias) if part is not None}
    return sum(stop - start for start, stop in owned)


def flat_coefficients(norms: Tensor, bound: Tensor) -> Tensor:
    """min(1, C / |g|) / C = 1 / max(|g|, C): clipping at C in units of C, (b,); 0 where the norm is not finite."""
    return torch.where(torch.isfinite(norms), 1.0 / torch.maximum(norms, bound), 0.0)


def automatic_coefficients(norms: Tensor, stability: float) -> Tensor:
    """1 / (|g| + gamma): normalised gradients ("automatic clipping"), (b,); 0 where the norm is not finite."""
    return torch.where(torch.isfinite(norms), 1.0 / (norms + stability), 0.0)
