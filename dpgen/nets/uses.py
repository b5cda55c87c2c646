r"""Uses of the same parameters in one module, joined: positions side by side, or the gradient that they multiply out to.

| uses of a weight (out, in) by a record | what is kept |
|---|---|
| looked up as an embedding | codes (T,) and slopes (T, in) |
| as a linear map, at S positions | slopes (S, out) and inputs (S, in) |
| both: tied weights | both, two factors of one weight, see `dpgen.privacy.clipping` |
| any of these, where it is cheaper | the gradient itself (out, in), never larger for tied weights than what is kept otherwise |
"""

from typing import cast

import torch
from torch import Tensor

from dpgen.privacy.clipping import Factor

_GHOST = 64
"""Multiple c of T^2 from which on a layer of so many parameters is not multiplied out."""

MOST_POSITIONS = 4096
"""Positions of all uses, at most; more are multiplied out."""


def multiplied_out(positions: int, size: int) -> bool:
    """Whether the gradient of so many parameters, a sum over positions, is cheaper than its factors."""
    return positions > MOST_POSITIONS or _GHOST * positions**2 >= size


def joined_uses(uses: list[Factor]) -> list[Factor]:
    """Factors of all uses of the same parameters: one of the positions of all, and one of codes, or what they multiply out to.

    Codes are multiplied out together with outputs where that is the cheaper way and needs no more memory than they do.
    """
    first, columns = uses[0], cast(slice, uses[0].weight or uses[0].bias)
    if len(uses) == 1 and (first.inputs is None or first.inputs.ndim == 2):
        return uses
    coded, maps, dense = (_of_kind(uses, kind) for kind in ("codes", "positions", "dense"))
    joined = [_side_by_side(kind, columns) for kind in (coded, maps) if kind]
    values = [f.outputs for f in dense]
    if joined and not values and _stay(joined, columns.stop - columns.start, alone=len(uses) == 1, coded=bool(coded)):
        return joined
    values += [_product(f, columns) for f in joined]
    return [Factor(torch.stack(values).sum(0) if len(values) > 1 else values[0], None, None, columns)]


def _of_kind(uses: list[Factor], kind: str) -> list[Factor]:
    """Uses of one kind: "dense" ones, or those whose outputs at "positions" are numbers or "codes"."""
    if kind == "dense":
        return [f for f in uses if f.inputs is None]
    return [f for f in uses if f.inputs is not None and f.outputs.is_floating_point() == (kind == "positions")]


def _stay(joined: list[Factor], size: int, *, alone: bool, coded: bool) -> bool:
    """Whether factors of so many parameters stay factors."""
    positions = sum(f.outputs.shape[1] for f in joined)
    held = sum(v[:1].numel() for f in joined for v in (f.outputs, f.inputs) if v is not None)
    small = not coded or (not alone and size <= held)
    return positions <= MOST_POSITIONS and not (small and multiplied_out(positions, size))


def _side_by_side(uses: list[Factor], columns: slice) -> Factor:
    """One factor of the positions of all."""
    if len(uses) == 1:
        return uses[0]
    return Factor(torch.cat([f.outputs for f in uses], 1), torch.cat([cast(Tensor, f.inputs) for f in uses], 1), columns, None)


def _product(f: Factor, columns: slice) -> Tensor:
    """Gradients (b, out * in) of a factor of positions."""
    g, a = f.outputs, cast(Tensor, f.inputs)
    if g.is_floating_point():
        return (g.mT @ a).flatten(1)
    words = (columns.stop - columns.start) // a.shape[2]
    rows = (g + words * torch.arange(len(g), device=g.device)[:, None]).flatten()
    return a.new_zeros(len(g) * words, a.shape[2]).index_add(0, rows, a.flatten(0, 1)).view(len(g), -1)
