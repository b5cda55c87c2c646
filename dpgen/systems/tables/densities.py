"""The density of a number through the counts that were bought of it, its tails, and its codes: all of it is post-processing.

The density goes on beyond the last seen part as it falls there, or steeper as the counts say, to where less than half a row is
expected (`_tail`). Zeros beside what is seen, and the other one of 0 and 1, may be hidden by noise: they are there with a
probability that keeps their mean (`surviving`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from dpgen.columns.axes import Floats, Steps
from dpgen.columns.density import Density, Digits, Integers, Reals, beside, expected, fitted, flat
from dpgen.columns.forms import TOLD
from dpgen.systems.simplex_projection import project_to_simplex
from dpgen.systems.tables.domains import LONGEST, MOST_CODES, SURE, Asked, Bought, Flags, Parts, Seen, seen, surviving
from dpgen.systems.tables.marginals import Known

# -- the law of a number -----------------------------------------------------------------------------------------------

_BESIDE, _REACH, _EASE = 4, 0.15, 10.0  # parts beyond the last seen one that a fit knows, and how freely it bends there
_MORE, _STANDS_OUT = 1.5, 3.0  # times, and noise stds, by which a frequent value exceeds its neighbours, else it is one of them
_LARGEST, _MANY = 4.5, 2.0  # stds of the largest of thousands of equal counts; mean length of parts that are not all counted
_BY_NOISE = 1e-4  # probability that noise alone makes a digit frequent
_SELDOM = 1e-3  # of the mean weight of digits: no part holds less
_TELL = 3  # parts that tell a slope, at least
_ENOUGH, _INNER = (
    24.0,
    0.08,
)  # noise stds of the parts that say how a tail falls, and the least share of its distance from the median
_POWERS, _SHAPES, _SPREAD = np.geomspace(1.75, 300.0, 32), np.r_[0.0:2.1:0.25, 2.5, 3, 4, 6, 8, 12, 16], (0.7, 2.0)
_ROUGH, _DOUBT = 0.1, 2.0  # share of a count that no smooth law explains; how much better an end must be than a tail
_FINITE, _RARELY, _MOST = 3.5, 0.3, 300.0
_REACHED = np.log(1e4)  # times the distance of the end from the median that a tail reaches at most
_BEND = 2.0  # of the log density on a part of a tail
_SHORTER, _ALIKE = 0.65, 3  # of likely tails, by their weight, reach less far; steps of a grid of distances
_EVIDENCE = 6.0  # how much better a tail must be than an end beyond values that are counted one by one
_HALF = 0.5  # rows that are expected beyond the end of a tail


@dataclass(frozen=True, eq=False)
class Law:
    """Law of a number: its density in units, `starts` (k + 1,) of codes, and counts of these.

    `known` are noisy ones, values beyond the range in the outermost codes, and those of the density. `beyond` are the noisy
    numbers of values below and above the range that no tail expects, with noise stds.
    """

    density: Density
    starts: Integers
    known: Known
    beyond: tuple[tuple[float, float], tuple[float, float]]


def law(found: Bought, asked: Asked) -> Law | None:
    """The density through the counts of parts, and its codes; None: noise hides all."""
    parts = found.parts
    those = seen(parts, asked.chance, last=True)
    if those is None:
        return None
    if _of_truths(parts, those, asked):
        return _truths(parts, asked)
    parts, those, drawn = _with_zero(parts.shortened(those, asked.limits), those)
    inner = slice(those.first, those.after)
    more, digits = np.ones(len(parts.counts)), None
    alone, left, right = _through(parts, those, more)
    if found.digits is not None:
        digits, more = _weighed(
            *found.digits, Density(parts.starts[inner.start : inner.stop + 1], left, right, asked.axis), parts
        )
        alone, left, right = _through(parts, those, more)
    with np.errstate(divide="ignore"):
        spikes = np.log(np.maximum(parts.counts[inner], 0.0))
        often = np.log(np.where(more[inner] < _SELDOM, 0.0, more[inner]))
    left, right = np.where(alone, spikes, left + often), np.where(alone, spikes, right + often)
    density = Density(parts.starts[inner.start : inner.stop + 1], left, right, asked.axis, digits)
    tails = [_tail(parts, density, alone, those, way, more) for way in (-1, 1)]
    for way, tail, limit in zip((-1, 1), tails, asked.limits):
        if limit is None and not len(tail.edges) and not alone[-1 if way > 0 else 0]:
            density = density.trimmed(way, _HALF)
    return _coded(parts, density, (alone, those, drawn), tails, asked.limits)


def _of_truths(parts: Parts, those: Seen, asked: Asked) -> bool:
    """Whether nothing but 0 and 1 is seen of a whole number without public limits."""
    axis, (first, after) = asked.axis, parts.starts[[those.first, those.after]]
    whole = isinstance(axis, Steps) and axis.whole and axis.step == 1
    apart = np.isin([0, 1, 2], parts.starts).all()
    return bool(whole and apart and asked.limits == (None, None) and first >= 0 and after <= len("01"))


def _truths(parts: Parts, asked: Asked) -> Law:
    """The law of 0 and 1, each of which is there if it is seen or drawn."""
    at = int(np.searchsorted(parts.starts, 0))
    counts, stds = parts.counts[at : at + 2], parts.stds[at : at + 2]
    fitted = np.array([surviving(count, std) for count, std in zip(counts.tolist(), stds.tolist())])
    there = fitted > 0
    starts, logs = np.append(np.flatnonzero(there), np.flatnonzero(there)[-1] + 1), np.log(fitted[there])
    known = Known.of(counts[there], stds[there], fitted[there], (fitted > counts)[there])
    outer = [
        (float(parts.counts[own].sum()), float(parts.variances[own].sum()) ** 0.5) for own in (slice(at), slice(at + 2, None))
    ]
    return Law(Density(starts, logs, logs, asked.axis), starts, known, (outer[0], outer[1]))


def _with_zero(parts: Parts, those: Seen) -> tuple[Parts, Seen, Flags]:
    """Zeros beside what is seen as a value that stands alone, where they are drawn to be there; which parts (m,) are so."""
    at, drawn = int(np.searchsorted(parts.starts, 0)), np.zeros(len(parts.counts), bool)
    first, after = parts.starts[[those.first, those.after]].tolist()
    if not parts.axis.signed or parts.starts[at : at + 2].tolist() != [0, 1] or those.first <= at < those.after:
        return parts, those, drawn
    between = (1, first) if first > 0 else (after, 0)
    near, length = (float(parts.axis.lengths(np.array([low]), np.array([high]))[0]) for low, high in (between, (first, after)))
    if near > length or not (left := surviving(float(parts.counts[at]), float(parts.stds[at]))):
        return parts, those, drawn
    alone, counts, flags = parts.alone.copy(), parts.counts.copy(), those.those.copy()
    drawn[at], counts[at], alone[at], flags[at] = left > parts.counts[at], left, True, True
    return replace(parts, alone=alone, counts=counts), Seen(flags, min(those.first, at), max(those.after, at + 1)), drawn


def unseen(asked: Asked) -> Law:
    """A law where noise hides all: all of the range that is public, or 0."""
    low, high = asked.limits
    known = low if low is not None else high
    first = 0 if known is None else known
    starts = np.array([first, first + 1 if low is None or high is None else high + 1], np.int64)
    logs = np.log(asked.total) - np.log(asked.axis.lengths(starts[:1], starts[1:]))
    total, none = np.array([asked.total]), (0.0, 1.0)
    all_of_them = Known.of(total, np.maximum(total, 1.0), total)
    return Law(Density(starts, logs, logs, asked.axis), starts, all_of_them, (none, none))


def _weighed(digits: Digits, sides: Sequence[Reals], std: float, density: Density, parts: Parts) -> tuple[Digits | None, Reals]:
    """Weights of digits by noisy counts on each side, and their means (m,) in parts; None and ones where these may be noise."""
    share = digits.shares(parts.starts)
    inner = np.searchsorted(parts.starts, density.edges[:-1])
    smooth = (np.where(parts.alone[inner], 0.0, density.masses)[:, None] * share[inner]).sum(0)
    cells = smooth.reshape(digits.sides)
    along = [cells.sum(tuple(other for other in range(cells.ndim) if other != i)) for i in range(cells.ndim)]
    found = [_side(counts, std, own) for counts, own in zip(sides, along)]
    if all(weights is None for weights in found):
        return None, np.ones(len(parts.counts))
    weights: Reals = np.ones(1)
    for own, side in zip(found, digits.sides):
        weights = np.outer(weights, np.ones(side) if own is None else own).ravel()
    digits = replace(digits, weights=weights / max(float(np.average(weights, weights=np.maximum(smooth, 1e-9))), 1e-9))
    return digits, share @ digits.weights


def _side(counts: Reals, std: float, smooth: Reals) -> Reals | None:
    """Weights by noisy counts (k,) beside what the density expects of parts that are no frequent value; None: noise alone.

    Deviations are shrunk as all of them are explained by noise (James, Stein 1961); the nearest counts of the same sum that are
    no less than 0 have little of it where few cells hold all.
    """
    moved, size = (counts - smooth) / std, len(counts)
    apart = float((moved**2).sum())
    if not smooth.sum() > std or (apart <= size + TOLD * (2 * size) ** 0.5 and moved.max() <= norm.isf(_BY_NOISE / size)):
        return None
    told = smooth + max(1.0 - size / apart, 0.5) * (counts - smooth)
    told = project_to_simplex(told, float(smooth.sum()))
    return np.where(smooth > 1e-9 * smooth.sum(), told / np.maximum(smooth, 1e-300), 1.0)


def _stand_out(parts: Parts, those: Seen, more: Reals) -> Flags:
    """Inner parts that hold more than those beside them would have at the same length: of floats each frequent value does."""
    inner = slice(those.first, those.after)
    counts, lengths = parts.counts[inner], (parts.lengths * more)[inner]
    if isinstance(parts.axis, Floats):
        return parts.alone[inner]
    height = np.maximum(counts, 0.0) / np.maximum(lengths, 1e-3)
    even = _beside(height, np.nanmedian) * lengths
    even = np.maximum(_MORE * even, even + _by_chance(parts, those) * np.sqrt(even))
    return parts.alone[inner] & (counts > even + _STANDS_OUT * parts.stds[inner])


def _beside(values: Reals, middle: Callable[..., Reals]) -> Reals:
    """The middle of the values (k,) of the parts beside each, 0 where there are none."""
    padded = np.pad(values, _BESIDE, constant_values=np.nan)
    around = np.stack([np.roll(padded, shift) for shift in range(-_BESIDE, _BESIDE + 1) if shift])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a part alone
        return np.nan_to_num(middle(around, 0)[_BESIDE:-_BESIDE])


def _by_chance(parts: Parts, those: Seen) -> Reals:
    """Sampling stds (k,) by which a frequent value may exceed others: the largest of many, none where each value is counted."""
    inner = slice(those.first, those.after)
    return np.where(_beside(np.minimum(parts.lengths[inner], LONGEST), np.nanmean) > _MANY, _LARGEST, 0.0)


def _through(parts: Parts, those: Seen, more: Reals) -> tuple[Flags, Reals, Reals]:
    """Inner parts (k,) that stand alone, and log densities at both ends of the others as if those were not there.

    `more` (m,) are weights of digits. A few parts beyond the last seen ones have their say, where those are no frequent values:
    they tell a slope.
    """
    inner, alone = slice(those.first, those.after), _stand_out(parts, those, more)
    while True:
        left, right = _around(parts, those, more, alone)
        smooth = expected(parts.lengths[inner], left, right) * np.maximum(more[inner], _SELDOM)
        near = _by_chance(parts, those) * np.sqrt(smooth) + _STANDS_OUT * parts.stds[inner]
        apart = parts.alone[inner] & ~alone & (np.abs(parts.counts[inner] - smooth) > near)
        if not apart.any():
            return alone, left, right
        alone |= apart


def _around(parts: Parts, those: Seen, more: Reals, alone: Flags) -> tuple[Reals, Reals]:
    """Log densities (k,) at both ends of inner parts as if those were not there that stand alone; see `_through`."""
    lengths, free = np.minimum(parts.lengths, LONGEST), np.flatnonzero(~alone) + those.first
    left, right = np.full(len(alone), -np.inf), np.full(len(alone), -np.inf)
    if not len(free):
        return left, right
    reach, before, beyond = _REACH * float(lengths[free].sum()), list[int](), list[int]()
    for outer, way, at in ((before, -1, those.first), (beyond, 1, those.after - 1)):
        while not alone[at - those.first] and not parts.alone[at] and len(outer) < _BESIDE:
            i = (outer or [at])[-1] + way
            if not 0 <= i < len(parts.counts) or parts.alone[i] or lengths[[*outer, i]].sum() > reach:
                break
            outer.append(i)
    run = np.array([*before[::-1], *free, *beyond])
    edge, often = np.arange(1, len(run)), np.maximum(more[run], _SELDOM)
    ease = np.where((edge <= len(before)) | (edge >= len(before) + len(free)), _EASE, 1.0)
    theta = fitted(lengths[run], parts.counts[run] / often, parts.stds[run] / often, ease)[len(before) :]
    ends = theta[: len(free)], theta[1 : len(free) + 1]
    own = (
        lengths[free],
        parts.counts[free] / often[len(before) :][: len(free)],
        parts.stds[free] / often[len(before) :][: len(free)],
    )
    left[free - those.first], right[free - those.first] = beside(*own, *flat(*own, *ends))
    return left, right


@dataclass(frozen=True, eq=False)
class _Tail:
    """Parts beyond the last seen one: edges (k,) outwards, log densities (k + 1,) from its end on, and values beyond them."""

    edges: Integers
    logs: Reals
    beyond: tuple[float, float]


def _tail(parts: Parts, density: Density, alone: Flags, those: Seen, way: int, more: Reals) -> _Tail:
    """The density as it goes on beyond its first (`way` -1) or last part, by `_falling`; `more` (m,) are weights of digits."""
    axis, m, end = parts.axis, len(parts.counts), those.after if way > 0 else those.first
    outer = np.arange(end, m) if way > 0 else np.arange(end - 1, -1, -1)
    sums = float(parts.counts[outer].sum()), float(parts.variances[outer].sum()) ** 0.5
    none = _Tail(np.zeros(0, np.int64), np.zeros(0), sums)
    at, far = int(parts.starts[end]), parts.starts[outer + (way > 0)]
    kept = np.logical_and.accumulate(~parts.alone[outer] & ((far * way <= 0) | (at * way > 0) | (not axis.signed)))
    outer, far = outer[kept], far[kept]  # numbers of the other sign have to be seen
    middle = int(density.quantiles(density.edges[:1], density.edges[-1:], np.array([0.5]))[0])

    def away(units: Integers) -> Reals:
        here = np.full(np.shape(units), middle)
        return np.asarray(axis.lengths(here, units) if way > 0 else axis.lengths(units, here))

    start, reach = float(away(np.array([at]))[0]), away(far)
    if alone[-1 if way > 0 else 0] or (~alone).sum() < _TELL or not len(outer) or not 0 < start < reach[0]:
        return none
    inner = those.first + np.flatnonzero(np.logical_and.accumulate(~alone[::-way])[::-way])[::-way]
    near = away(parts.starts[inner + (way < 0)]) * (parts.starts[inner + (way < 0)] * way >= middle * way)
    sure = parts.counts[inner].cumsum() > _ENOUGH * np.sqrt(parts.variances[inner].cumsum())
    kept = np.logical_and.accumulate(np.r_[True, True, ~sure][: len(inner)] & (near >= _INNER * start))
    inner, near = inner[kept], near[kept]
    if len(inner) < 2:
        return none
    run, ends = np.r_[inner[::-1], outer], np.r_[near[::-1], start, reach]
    often = np.maximum(more[run], _SELDOM)
    with np.errstate(over="ignore"):  # a warning would tell of the records
        ends = ends / start
    doubt = _doubt(parts, density, alone, end, way)
    told = _falling(ends, parts.counts[run] / often, parts.variances[run] / often**2, len(inner), doubt)
    if told is None:
        return none
    grid, falls, level = told
    heights = level - falls
    below = np.r_[0.0, np.cumsum((np.exp(heights + grid)[1:] + np.exp(heights + grid)[:-1]) / 2 * np.diff(grid))]
    left = below[-1] - below
    if left[0] <= _HALF:
        return none
    until = int((left > _HALF).sum())
    count = int(np.ceil(falls[until] / _BEND)) + 1
    distance = np.interp(np.linspace(0.0, falls[until], count + 1)[1:], falls, grid)
    units = np.clip(axis.moved(middle, way * start * np.exp(distance)), min(at, int(far[-1])), max(at, int(far[-1])))
    units = np.unique(units[units != at])[::way]
    if not len(units):
        return none
    logs = level - np.log(start) - np.r_[0.0, np.interp(np.log(away(units) / start), grid, falls)]
    return _Tail(units, logs, (sums[0] - left[0], sums[1]))


def _doubt(parts: Parts, density: Density, alone: Flags, end: int, way: int) -> float:
    """Misfit that is added to a law with an end before it is compared with tails: more where the density is low at its end."""
    nearest = parts.starts[max(end - _TELL, 0) : end + 1] if way > 0 else parts.starts[end : end + _TELL + 1]
    if isinstance(parts.axis, Steps) and bool((np.diff(nearest) == 1).all()):  # each value is counted by itself
        return -_EVIDENCE
    highest = float(np.maximum(density.left, density.right)[~alone].max())
    return -2.0 * (float(density.right[-1] if way > 0 else density.left[0]) - highest)


def _falling(ends: Reals, counts: Reals, variances: Reals, inner: int, doubt: float) -> tuple[Reals, Reals, float] | None:
    r"""Fall of parts between distances `ends` (k + 1,) from the median: log distances, log falls there, and the level at 1.

    The density is :math:`e^{t - p ((d / d_0)^g - 1) / g}` at the distance d, with d_0 the end of what is seen: a power for
    g = 0, exponential for 1, normal for 2. t, p and g have the least sum of squares of the noisy counts (k,) of the last
    `inner` parts that are seen and of all beyond, and of (g - 1) / `_SPREAD`: of few counts a tail falls exponentially. None:
    parts beyond are so empty that the law has an end.
    """
    logs = np.log(np.clip(ends, 1e-3, np.exp(_REACHED)))
    fine = np.linspace(0.0, 1.0, 100) ** 2  # near the end
    grid = np.unique(np.r_[logs[0] * fine, _REACHED * fine, logs])
    rise = np.stack([grid if g == 0 else np.expm1(g * grid) / g for g in _SHAPES])
    falls = np.clip(_POWERS[:, None, None] * rise, -_MOST, _MOST).reshape(-1, len(grid))
    unlikely = np.tile(((_SHAPES - 1.0) / np.where(_SHAPES < 1, *_SPREAD)) ** 2, len(_POWERS))
    unlikely += np.repeat(np.maximum(np.log(_FINITE / _POWERS) / _RARELY, 0.0) ** 2, len(_SHAPES))
    heights = np.exp(grid - falls)
    below = np.zeros_like(heights)
    below[:, 1:] = np.cumsum((heights[:, 1:] + heights[:, :-1]) / 2 * np.diff(grid), axis=1)
    held = np.diff(below[:, np.searchsorted(grid, logs)], axis=1)
    weights = 1.0 / (variances + (_ROUGH * np.maximum(counts, 0.0)) ** 2 + 1.0)

    def worse(held: Reals) -> tuple[Reals, Reals]:
        level = np.maximum((held * counts * weights).sum(1) / np.maximum((held**2 * weights).sum(1), 1e-300), 1e-300)
        return ((counts - level[:, None] * held) ** 2 * weights).sum(1) + unlikely, level

    (tails, levels), cut = worse(held), held.copy()
    cut[:, inner:] = 0.0
    if worse(cut)[0].min() + doubt < tails.min():
        return None
    best, after = _middle(tails, (levels[:, None] * (below[:, -1:] - below) > _HALF).sum(1)), grid >= 0
    return grid[after], falls[best, after], float(np.log(levels[best]))


def _middle(losses: Reals, reaches: Integers) -> int:
    """The likeliest of laws (k,) that reach as far as a quantile of all of them does, each as likely as exp(-loss / 2)."""
    order, likely = np.argsort(reaches, kind="stable"), np.exp((losses.min() - losses) / 2)
    far = reaches[order[np.searchsorted(likely[order].cumsum(), _SHORTER * likely.sum())]]
    return int(np.where(np.abs(reaches - far) <= _ALIKE, losses, np.inf).argmin())


# -- codes -------------------------------------------------------------------------------------------------------------


def _coded(
    parts: Parts,
    density: Density,
    which: tuple[Flags, Seen, Flags],
    tails: Sequence[_Tail],
    limits: tuple[int | None, int | None],
) -> Law:
    """The whole density with its tails, and its codes: values that stand alone, and neighbours of about equal masses.

    `which` parts stand alone among those that are seen, and which of all are drawn to be there. Public limits are those of the
    range, whatever is seen inside of them.
    """
    (low, high), (alone, those, drawn) = tails, which
    edges = np.concatenate([low.edges[::-1], density.edges, high.edges])
    left = np.concatenate([low.logs[:0:-1], density.left, high.logs[:-1]])
    right = np.concatenate([low.logs[:-1][::-1], density.right, high.logs[1:]])
    if limits[0] is not None and limits[0] < edges[0]:
        edges, left, right = np.r_[limits[0], edges], np.r_[-np.inf, left], np.r_[-np.inf, right]
    if limits[1] is not None and limits[1] >= edges[-1]:
        edges, left, right = np.r_[edges, limits[1] + 1], np.r_[left, -np.inf], np.r_[right, -np.inf]
    whole = replace(density, edges=edges, left=left, right=right)
    first, after = those.first, those.after
    counts, variances = parts.counts[first:after].copy(), parts.variances[first:after].copy()
    for end, outer in ((0, slice(first)), (-1, slice(after, None))):
        counts[end] += parts.counts[outer].sum()
        variances[end] += parts.variances[outer].sum()
    masses, least = density.masses, SURE * float(np.sqrt(np.median(variances)))
    least = max(float(masses[~alone].sum()) / 40, least)
    begins = _grouped(masses, alone, least)
    while len(begins) - int(alone.sum()) > MOST_CODES and least < float(masses.sum()):  # what is between values stays apart
        least *= 1.25
        begins = _grouped(masses, alone, least)
    starts = np.append(density.edges[begins], density.edges[-1])
    starts[0], starts[-1] = edges[0], edges[-1]
    found = whole.between(starts)
    for end, (count, std) in zip((0, -1), (low.beyond, high.beyond)):
        found[end] += count if count > TOLD * std else 0.0
    sums, noise = (np.add.reduceat(x, begins) for x in (counts, variances))
    known = Known.of(sums, np.sqrt(noise), found, np.logical_or.reduceat(drawn[first:after], begins))
    return Law(whole, starts, known, (low.beyond, high.beyond))


def _grouped(masses: Reals, alone: Flags, least: float) -> Integers:
    """First part of each code: neighbours of at least so much mass; what is left of a run joins the code before it."""
    first, total = list[int](), np.inf

    def joins(end: int) -> bool:
        """Whether what is left before a part joins the code before it."""
        return total < least and len(first) > 1 and not (alone[end - 1] or alone[first[-1] - 1])

    for i in range(len(masses)):
        breaks = i == 0 or bool(alone[i] or alone[i - 1])
        if breaks or total >= least:
            if breaks and joins(i):
                first.pop()
            first.append(i)
            total = 0.0
        total += masses[i]
    if joins(len(masses)):
        first.pop()
    return np.array(first, np.int64)
