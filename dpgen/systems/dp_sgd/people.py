r"""People as units of a training: gradients of a person's records are added up, and clipped together.

With the records r of a person u, m of which are used at most, and the bound C,

.. math:: g_u = \sum_{r \in u} g_r, \qquad N_u = \max\Big(|g_u|, \frac{1}{m} \sum_{r \in u} |g_r|\Big), \qquad
    \text{term of } u = \frac{g_u}{\max(N_u, C)} .

| case | what holds |
|---|---|
| a person, with any records | a term of norm at most 1, for :math:`|g_u| \le N_u`: one unit of `PrivateSums` |
| a record that others change by :math:`\delta |g_r|` | its person's term moves by :math:`2 m \delta` at most |
| a record without a finite gradient | counts for nothing; the others of its person stay |
| a person with k > m records | m of them are used, evenly spaced in their own order, whatever others have |

**The margin.** Beside others :math:`|g_u' - g_u| \le \delta \sum_r |g_r| \le \delta m N_u`, and so with N. The weight is at
most :math:`1 / N_u`, so each of the two moves the term by :math:`\delta m` at most, where a record by itself is moved by
:math:`2 \delta`: a person stands for m records in `Margin`. Without the second part of N gradients that cancel would be
changed by any multiple of their sum.

Records are positions of a layer: :math:`\sum_r g_r a_r^\top` is one factor, like that of a sequence (`dpgen.nets.per_record`).

Source: McMahan et al. 2018 (clipping by user); Chua et al. 2024 (user-level DP-SGD).
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from dpgen.nets.one_by_one import Singles
from dpgen.nets.uses import joined_uses
from dpgen.privacy.clipping import Factor, RecordGradients, gradient_norms
from dpgen.privacy.sampling import Held


def grouped(records: Held, people: Any, most: int) -> Held:
    """A row for each person, of at most `most` of its records, from a name (n,) for the person of each record."""
    person, _ = pd.factorize(np.asarray(people).reshape(-1) if isinstance(people, Tensor) else pd.array(list(people)))
    if len(person) != len(records):
        raise ValueError(f"people has length {len(person)}; it must be {len(records)}, one for each record")
    if (person < 0).any():
        raise ValueError("people has a missing value; every record must have a person")
    order, counts = np.argsort(person, kind="stable"), np.bincount(person)
    first, slots = np.cumsum(counts) - counts, np.arange(most)
    spaced = np.where(counts[:, None] > most, slots * counts[:, None] // most, slots)
    there = slots < counts[:, None]
    return _of_rows(
        records.values, torch.from_numpy(order[first[:, None] + np.where(there, spaced, 0)]), torch.from_numpy(there)
    )


def each_a_person(records: Held, most: int) -> Held:
    """People with one record each, in the same form."""
    there = (torch.arange(most) < 1).expand(len(records), most).clone()
    return _of_rows(records.values, torch.arange(len(records))[:, None].expand(-1, most), there)


def _of_rows(values: Any, index: Tensor, there: Tensor) -> Held:
    """Values of records by index (people, most), of which only those that are `there` are some."""

    def rows(value: Any) -> Any:
        if not isinstance(value, Singles):
            return value[index]
        own = [[value.records[i] for i in row[used].tolist()] for row, used in zip(index, there)]
        return Singles(own, value.collate, value.device)

    return Held([tree_map(rows, values), there])


def records_of_people(people: Held, unit: int) -> tuple[Held, Tensor]:
    """All records of people, padded to a multiple of `unit` with the first one, and their n places among (people, most)."""
    values, there = people.values
    places = there.flatten().nonzero()[:, 0]
    if isinstance(values, Singles):
        return Held(Singles([row for own in values.records for row in own], values.collate, values.device)), places
    filled = torch.cat([places, places[:1].expand(-len(places) % unit)])
    return Held(tree_map(lambda v: v.flatten(0, 1)[filled], values)), places


def of_people(factors: Sequence[Factor], places: Tensor, there: Tensor, bounds: Sequence[int]) -> RecordGradients:
    """Gradients of people from factors of their records, n of them at their places, and pads behind."""
    n = len(places)
    own = [f._replace(outputs=f.outputs[:n], inputs=None if f.inputs is None else f.inputs[:n]) for f in factors]
    norms = gradient_norms(RecordGradients(own, [0, n])) if n else torch.zeros(0, device=there.device)
    finite = torch.isfinite(norms)

    def at_places(values: Tensor) -> Tensor:  # (n, ...) -> (people, most, ...)
        left = torch.where(finite.view(-1, *[1] * (values.ndim - 1)), values, torch.zeros((), dtype=values.dtype))
        return values.new_zeros(there.numel(), *values.shape[1:]).index_copy(0, places, left).unflatten(0, there.shape)

    found: dict[int, list[Factor]] = {}
    for part in (part for f in own for part in _added_up(f, at_places)):
        found.setdefault(cast(slice, part.weight or part.bias).start, []).append(part)
    made = [f for uses in found.values() for f in joined_uses(uses)]
    return RecordGradients(made, bounds, least=at_places(norms).sum(1) / there.shape[1])


def _added_up(f: Factor, at_places: Callable[[Tensor], Tensor]) -> list[Factor]:
    """Factors of the sums over the records of each person."""
    g = at_places(f.outputs)
    if f.inputs is None:
        return [f._replace(outputs=g.sum(1))]
    a, bias = at_places(f.inputs), f.bias
    if f.inputs.ndim == 3:
        g, a = g.flatten(1, 2), a.flatten(1, 2)
    return [Factor(g, a, f.weight, None), *([] if bias is None else [Factor(g.sum(1), None, None, bias)])]
