"""Ends to which the gap between two rows may be moved when rows are put into the calendar, by released laws of gaps alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgen.columns.fields import CategoryField, DensityField, Field
from dpgen.systems.relational.sums import Integers

_PEAK = 3.0  # times as dense as both neighbours: a frequent gap, which stays as it is


@dataclass(frozen=True, eq=False)
class Reach:
    """Range of each gap when rows are moved, by the released law alone: between ends of its part of the law, by whole steps.

    A part is a code of the field, cut where the density has a single frequent value, which stays as it is, or is empty.

    Arguments:
        lows: least gap (r,) for each row.
        highs: largest gap (r,).
        step: of gaps.
        least: of all gaps: the least one that a schema states, else a step, where gaps of zero are not there.
        stated: first and last gap (p,) of each part, where a schema states the domain: no gap is ever outside of them.
    """

    lows: Integers
    highs: Integers
    step: int
    least: int = 0
    stated: tuple[Integers, Integers] | None = None

    @classmethod
    def of(cls, field: Field, gaps: Integers) -> Reach:
        """Of gaps (r,) that a field has."""
        first, last = (np.asarray(ends, np.int64) for ends in field.bounds())
        step = step_of(field)
        if isinstance(field, DensityField):
            first, last = _parts(field, first, last, step)
        elif isinstance(field, CategoryField):
            step = max(1, int(np.gcd.reduce(first)))
        at = np.clip(np.searchsorted(first, gaps, side="right") - 1, 0, len(first) - 1)
        public, least = field.source == "public", max(int(first[0]), 0)
        least = -(-least // step) * step if public else min(step, least)
        return cls(np.minimum(first[at], gaps), np.maximum(last[at], gaps), step, least, (first, last) if public else None)

    @classmethod
    def free(cls, count: int, low: int, high: int) -> Reach:
        """Gaps between two ends, for so many rows."""
        return cls(np.full(count, low), np.full(count, high), 1)

    def of_short(self, gaps: Integers, drawn: Integers) -> tuple[Integers, Integers, Integers]:
        """Gaps (r,) that are shorter than drawn ones, as the schema allows them, and how far each may be moved.

        A gap between two parts is the largest one of the part before it. Where no schema says which gaps there are they stay as
        they are, and rows of two days are on two days.
        """
        if self.stated is None:
            return gaps, np.minimum(drawn, self.step), np.maximum(drawn, 0)
        first, last = self.stated
        at = np.maximum(np.searchsorted(first, gaps, side="right") - 1, 0)
        return np.clip(gaps, first[at], last[at]), first[at], np.minimum(last[at], np.maximum(drawn, first[at]))


def step_of(field: Field) -> int:
    """The step of the values of a field, by its schema."""
    return int(field.axis.rounding().get("dpgen:rounding", 1)) if isinstance(field, DensityField) else 1


def _parts(field: DensityField, first: Integers, last: Integers, step: int) -> tuple[Integers, Integers]:
    """First and last gap of each part of a law."""
    edges: Any = np.asarray(field.axis.values(field.density.edges), np.int64)
    dense = field.density.masses / np.maximum(np.diff(edges), 1)
    around = np.maximum(np.r_[0.0, dense[:-1]], np.r_[dense[1:], 0.0])
    peak = (np.diff(edges) == step) & (dense > _PEAK * around)
    kind = np.where(peak, 1 + np.arange(len(dense)), np.where(dense > 0, -1, 0))
    cuts = edges[:-1][np.diff(kind, prepend=-2) != 0]
    starts = np.unique(np.concatenate([first, cuts[(cuts >= first[0]) & (cuts <= last[-1])]]))
    return starts, np.append(starts[1:] - step, last[-1])
