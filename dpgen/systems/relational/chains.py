r"""A model of people and their rows: classes of people, chains of classes of rows, and products of columns in each class.

.. math:: z \sim \pi, \quad a_c, k \mid z \sim p_{zc}, \quad w_1 \sim q_1(\cdot \mid z) \propto q(\cdot \mid z) e^{s}, \quad
    w_{t+1} \sim (1 - \rho_z) \, q(\cdot \mid z) + \rho_z R_{w_t}, \quad b_c \mid w \sim p_{wc}

Rows that hang on a row have a chain of their own in the same way, given the class w of that row in place of z, and how many
there are is one of its columns: tables are a tree, and so are the chains.

Laws of all measured tables are sums over classes, with the same weights of a person's rows as in `sums`, so a fit never looks
at people. With :math:`\alpha_t` the law of :math:`w_t` given z, the average law of a person's rows is
:math:`u_z = \sum_t c_t(z) \alpha_t(z)`, :math:`c_t(z) = \sum_{k \ge t} P(k \mid z) / k`, and that of rows two levels below
:math:`u_z u_w`. The class d rows after :math:`w` is that of :math:`\rho^d R^d_w` beside a part that does not depend on w: of
the last reset before it.

A fit lowers :math:`\tfrac12 \sum_i (n p_i - y_i)^2 / \sigma_i^2` of the measured sums y and :math:`\beta` times the information
of classes about columns (of z about a and q, of w about b and R), which keeps independent what was not measured. Sums of all
rows do not tell first rows from later ones, so :math:`3 \beta` times the divergence of :math:`q_1` from q is added: what a
person says of rows is of all rows, unless sums of first rows or of successive ones say otherwise.

What constraints inside a table exclude is driven out of each class by the loss of a mixture, see `tables.mixture`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from dpgen.systems.relational.sums import SPANS, Block, Integers, Layout, Reals, Shape, Table, place_of
from dpgen.systems.tables.fitter import AVOIDED, FORCED, HELD, Zero
from dpgen.systems.tables.mixture import Mixture

Weight = Callable[[int, int], float]
"""Weight of position t of k rows."""

_EARLIER = ("all", "later")  # spans of the earlier of two rows
_MOMENTS = (0.9, 0.99)  # Adam's
_RIDGE = 1e-3
_USUAL = 0.25  # of beta: what rows of a person share should come from the person, not from a slow chain
_FIRST = 3.0  # of beta: nor from the first row alone


@dataclass(frozen=True, eq=False)
class Chain:
    """The rows of one table, given the classes (K) of what they hang on."""

    rows: Mixture  # products of W classes over the columns of rows; its weights are not used
    usual: npt.NDArray[np.float32]  # q (K, W), law of the class of a row after a reset
    first: npt.NDArray[np.float32]  # law (K, W) of the class of the first row
    steps: npt.NDArray[np.float32]  # R (W, W), law of the class of a row given that of the row before
    kept: npt.NDArray[np.float32]  # rho (K,), chance of no reset

    def seen(self, groups: Integers, place: Integers, spans: Sequence[str]) -> Reals:
        """Log chance (r, W) of groups (r, b) of rows at these places (r,) in each class; those below 0 are not known."""
        found = np.zeros((len(groups), len(self.steps)))
        for c, span in enumerate(spans):
            there = (groups[:, c] >= 0) & {"all": place >= 0, "later": place > 0, "first": place == 0}[span]
            found[there] += np.log(np.maximum(self.rows.block(c), 1e-30))[groups[there, c]]
        return found

    def forward(self, seen: Reals, starts: Integers) -> tuple[Reals, Reals]:
        """Log chance (n, K) of rows given the class above, and the law (n, K, W) of the class of the last row."""
        counts, shape = np.diff(starts), (len(starts) - 1, *self.usual.shape)
        logs, last = np.zeros(shape[:2]), np.zeros(shape)
        for t in range(int(counts.max(initial=0))):
            on = np.flatnonzero(counts > t)
            chance = seen[starts[on] + t]
            top = chance.max(1, keepdims=True)
            fresh, kept = (1 - self.kept)[:, None] * self.usual, self.kept[:, None]
            law = self.first[None] if t == 0 else fresh + kept * (last[on] @ self.steps)
            joint = law * np.exp(chance - top)[:, None]
            total = joint.sum(2)
            logs[on] += np.log(total) + top
            last[on] = joint / total[:, :, None]
        return logs, last


@dataclass(frozen=True, eq=False)
class Tree:
    """The model: a mixture of K classes over the columns of people, and a chain of each table of rows."""

    people: Mixture
    chains: tuple[Chain, ...]

    def blocks(self, shape: Shape) -> dict[Block, Reals]:
        """Laws of the tables of every two columns, for one person."""

        def tensors(*arrays: npt.NDArray[np.float32]) -> list[Tensor]:
            return [torch.from_numpy(np.ascontiguousarray(x)) for x in arrays]

        rows = [tensors(own.usual, own.first, own.steps, own.kept, own.rows.probabilities) for own in self.chains]
        a, pi = tensors(self.people.probabilities, self.people.weights)
        found = factors(shape, laws(shape, a, pi, rows))
        return {block: (left @ right.T).numpy().astype(np.float64) for block, (left, right) in found.items()}


@dataclass(frozen=True, eq=False)
class _Laws:
    """Laws of one table, some of them by span: over classes of what its rows hang on, K, and of its rows, W."""

    stacks: dict[str, Tensor]  # columns in each class (codes, W)
    occupied: dict[str, Tensor]  # average weight (W,) of the classes of rows, over people
    alphas: Tensor  # (K, m, W), the class of each row
    shares: Tensor  # weight (m, K) of each position of all rows
    means: dict[str, Tensor]  # average law (K, W) of the class of rows
    across: dict[tuple[str, str], Tensor]  # law (W, W) of two rows by kind, "pair" or "next", and span of the earlier one


_SHARED: dict[str, Weight] = {
    "all": lambda k, t: 1 / k,
    "later": lambda k, t: 1 / (k - 1) if t > 1 else 0.0,
    "first": lambda k, t: float(t == 1),
    "next all": lambda k, t: 1 / (k - 1) if t > 1 else 0.0,
    "next later": lambda k, t: 1 / (k - 2) if t > 2 else 0.0,
    "pair all": lambda k, t: 2 / (k * (k - 1)) if t > 1 else 0.0,
    "pair later": lambda k, t: 2 / ((k - 1) * (k - 2)) if t > 2 else 0.0,
}
"""Weight of position t of k rows, among those of a span, or as the later one of two rows of which the earlier is of a span."""


@cache
def _tails(most: int, least: int, of: str) -> Tensor:
    """Weights (m, numbers of rows) of position t of k rows, 0 for t > k."""
    found = [[_SHARED[of](k, t) if k >= t else 0.0 for k in range(least, most + 1)] for t in range(1, most + 1)]
    return torch.tensor(found)


def _table(shape: Shape, number: int, above: _Laws, parts: Sequence[Tensor], blocks: Collection[Block]) -> _Laws:
    """Laws of a table of rows, of two rows those alone that blocks need."""
    q, first, steps, rho, b = parts
    wanted = {(kind, place_of(left)[1]) for kind, left, _ in blocks if kind in ("next", "pair") and place_of(left)[0] == number}
    two = sorted(wanted, key=lambda own: (_EARLIER.index(own[1]), own[0]))
    branch, least, (k, w) = shape.tables[number - 1], shape.least(number), q.shape
    begin, most = sum(shape.of(branch.parent)[: branch.count]), branch.most
    counts, pi = above.stacks["all"][begin : begin + most + 1 - least], above.occupied["all"]
    fresh, kept = (1 - rho)[:, None] * q, rho[:, None]
    laws = [torch.cat([first, fresh, steps])]  # of each row, and so many rows after a reset, or without one, by one rule
    resets, stays = torch.cat([fresh, fresh, torch.zeros(w, w)]), torch.cat([kept, kept, torch.ones(w, 1)])
    for _ in range(most - 1):
        laws.append(torch.addcmul(resets, stays, laws[-1] @ steps))
    alphas, aparts, powers = torch.stack(laws, 1).split([k, k, w])
    weights = {of: _tails(most, least, of) @ counts for of in (*SPANS, *(f"{kind} {span}" for kind, span in two))}  # (m, K)
    spans, pairs = torch.stack([weights[span] for span in SPANS], 2), list[Tensor]()
    distances = {"next": 1, "pair": most - 1}
    for kind, span in two:
        inside = (torch.arange(most) >= (span == "later"))[None, None].float()
        ahead = pad(weights[f"{kind} {span}"].T, (0, distances[kind])).unfold(1, most, 1)[:, 1:]
        pairs.append(ahead * inside * pi[:, None, None])  # of the earlier row, by the distance to the later one
    every = torch.cat([spans.permute(1, 2, 0), *pairs], 1) @ alphas
    found = every.split([1, 1, 1, *(distances[kind] for kind, _ in two)], 1)
    means: dict[str, Tensor] = {span: mean[:, 0] for span, mean in zip(SPANS, found)}
    across = {}
    for (kind, span), own in zip(two, found[3:]):
        if kind == "next":
            across[kind, span] = own[:, 0].T @ fresh + (rho @ own[:, 0])[:, None] * steps
            continue
        stay = torch.einsum("kd,kdw->wd", rho[:, None].expand(-1, most - 1).cumprod(1), own)
        reset = own.reshape(-1, w).T @ aparts[:, :-1].reshape(-1, w)
        across[kind, span] = torch.einsum("wd,wdv->wv", stay, powers[:, :-1]) + reset
    stacks: dict[str, Tensor] = dict(zip(SPANS, b.split([sum(shape.sizes(stack)) for stack in shape.stacks(number)])))
    occupied = {span: pi @ mean for span, mean in means.items()}
    return _Laws(stacks, occupied, alphas, weights["all"], means, across)


Factors = dict[Block, tuple[Tensor, Tensor]]
"""Matrices (codes, classes) of both sides of blocks: the law of a block is the product of one and the other transposed."""


def laws(
    shape: Shape, a: Tensor, pi: Tensor, rows: Sequence[Sequence[Tensor]], blocks: Collection[Block] | None = None
) -> list[_Laws]:
    """Laws of all tables, of stacked columns a (sum of sizes, K) and pi of people, and q, first, R, rho, b of each of rows."""
    tables = [_Laws({"all": a}, {"all": pi}, a, a, {}, {})]
    for number, branch in enumerate(shape.tables, 1):
        tables.append(
            _table(shape, number, tables[branch.parent], rows[number - 1], shape.blocks if blocks is None else blocks)
        )
    return tables


def factors(shape: Shape, tables: Sequence[_Laws], blocks: Collection[Block] | None = None) -> Factors:
    """Laws of blocks, or of some of them."""
    (a, pi), blocks = (tables[0].stacks["all"], tables[0].occupied["all"]), shape.blocks if blocks is None else blocks
    found: Factors = {}
    for block in blocks:
        kind, left, right = block
        (above, span), (number, other) = place_of(left), place_of(right)
        own, under = tables[above], tables[number]
        if kind == "one":
            found[block] = own.stacks[span] @ own.occupied[span if above else "all"][:, None], torch.ones(1, 1)
            continue
        if kind == "people":
            law = a * pi
        elif kind == "both":
            law = _given(shape, tables, above, number, span, other)
        elif kind == "row":
            law = own.stacks[span] * own.occupied[other if span == "all" else span]
        elif kind == "place":
            of_parents = tables[shape.tables[number - 1].parent].occupied["all"]
            law = torch.einsum("mk,kmw->mw", under.shares * of_parents, under.alphas)
        else:
            law = own.stacks[span] @ own.across[kind, span]
        found[block] = law, under.stacks[other]
    return found


def _given(shape: Shape, tables: Sequence[_Laws], above: int, number: int, span: str, other: str) -> Tensor:
    """Law (codes, W) of the columns of a span of a table, and of the class of a row that hangs on it, of another span."""
    upwards = [number, *shape.above(number)]
    path = upwards[: upwards.index(above)][::-1]
    spans = [*["all"] * (len(path) - 1), other]
    weighted = tables[above].stacks[span] * tables[above].occupied[span]
    means = [tables[i].means[own] for i, own in zip(path, spans)]
    if span != "all":
        return _along(weighted, means)
    branch = shape.tables[path[0] - 1]  # given how many rows there are, only so many of the first ones are there
    begin = sum(shape.of(above)[: branch.count])
    end = begin + shape.of(above)[branch.count]
    alphas = tables[path[0]].alphas
    of_rows = (weighted[begin:end] @ alphas.flatten(1)).view(end - begin, branch.most, -1)
    numbers = (of_rows * _tails(branch.most, shape.least(path[0]), spans[0]).T[:, :, None]).sum(1)
    return torch.cat([_along(weighted[:begin], means), _along(numbers, means[1:]), _along(weighted[end:], means)])


def _along(law: Tensor, means: Sequence[Tensor]) -> Tensor:
    for mean in means:
        law = law @ mean
    return law


class _Measured:
    """Noisy sums of tables whose laws come from classes of one kind; those of one level are padded to one shape.

    Codes of a group are one bag, so that sums over bags of the factors of all blocks are the factors of all tables.
    """

    def __init__(self, layout: Layout, sums: Sequence[tuple[Table, Reals, Any]], n: float) -> None:
        self.blocks = sorted({table.block for table, _, _ in sums})
        self._rights = {block[2]: block for block in self.blocks}
        stacks = [block[1] for block in self.blocks], list(self._rights)
        starts = [np.cumsum([0, *(sum(layout.shape.sizes(stack)) for stack in own)]) for own in stacks]
        bags: list[list[Any]] = [[], []]
        self._shapes, values, precisions = list[tuple[int, int, int]](), list[Tensor](), list[Tensor]()
        for level in sorted({table.level for table, _, _ in sums}):
            own = [
                (table, _wide(noisy), _wide(np.broadcast_to(std, noisy.shape)))
                for table, noisy, std in sums
                if table.level == level
            ]
            rows, columns = (max(noisy.shape[axis] for _, noisy, _ in own) for axis in (0, 1))
            self._shapes.append((len(own), rows, columns))
            aim = torch.zeros(2, *self._shapes[-1])
            for i, (table, noisy, std) in enumerate(own):
                begins = starts[0][self.blocks.index(table.block)], starts[1][stacks[1].index(table.block[2])]
                for side in (0, 1):
                    found = layout.bags(table.block[1 + side], (table.left, table.right)[side], level)
                    bags[side] += [begins[side] + bag for bag in found]
                    bags[side] += [np.empty(0, np.int64)] * ((rows, columns)[side] - len(found))
                part = aim[:, i, : noisy.shape[0], : noisy.shape[1]]
                part[0] = torch.from_numpy(noisy / n)
                part[1] = torch.from_numpy((n / std) ** 2)
            values.append(aim[0].flatten())
            precisions.append(aim[1].flatten())
        self._values, self._precisions = torch.cat(values), torch.cat(precisions)
        self._bags = [
            (torch.from_numpy(np.concatenate(own)), torch.from_numpy(np.cumsum([0, *map(len, own[:-1])]))) for own in bags
        ]

    def loss(self, found: Factors) -> Tensor:
        """Half the sum of squares by their precision."""
        sides = torch.cat([found[b][0] for b in self.blocks]), torch.cat([found[b][1] for b in self._rights.values()])
        left, right = (embedding_bag(own, side, starts, mode="sum") for (own, starts), side in zip(self._bags, sides))
        lefts, rights = (
            side.split([shape[0] * shape[axis] for shape in self._shapes]) for axis, side in ((1, left), (2, right))
        )
        laws = [
            (own.view(size, rows, -1) @ other.view(size, columns, -1).transpose(1, 2)).flatten()
            for (size, rows, columns), own, other in zip(self._shapes, lefts, rights)
        ]
        return 0.5 * (self._precisions * (torch.cat(laws) - self._values) ** 2).sum()


def _wide(values: Reals) -> Reals:
    """Sums of a table as (left groups, right groups)."""
    return values.reshape(len(values), -1)


class _Excluded:
    """Excluded combinations of stacked columns (codes, K) of shares above 0; `held` are codes that constraints are about."""

    def __init__(self, zeros: Sequence[Zero], shares: Tensor) -> None:
        self._zeros = [(zero.rows, [torch.from_numpy(own.astype(np.float32)) for own in zero.factors]) for zero in zeros]
        rows = torch.arange(len(shares))
        self.held = torch.cat([rows[:0], *(rows[own] for zero in zeros for own in zero.rows)]).unique()
        self._shares = shares[self.held]
        self.information = torch.ones(len(shares), 1).index_fill_(0, self.held, FORCED)

    def loss(self, p: Tensor, w: Tensor) -> Tensor:
        """Mass of what is excluded, and how far codes of these columns are from their shares, in classes of weights w (K,)."""
        if not self._zeros:
            return torch.zeros(())
        parts = [[factor @ p[own] for own, factor in zip(rows, factors)] for rows, factors in self._zeros]
        masses = [torch.stack(own).prod(0).sum(0) @ w for own in parts]
        gaps = p[self.held] @ w - self._shares
        return torch.stack(masses).sum() + HELD * (gaps.square() / self._shares).sum()


class TreeFitter:
    """A tree that is fitted again whenever there are more measurements, by Adam on its logits, from where it was.

    `shares` are released ones of the columns of people, and of each table of rows, above 0; `n` is the released number of
    people, `classes` are K, and W of each table of rows; `information` is beta, `zeros` are what constraints exclude in each
    table, `generator` is public.
    """

    def __init__(
        self,
        layout: Layout,
        shares: Sequence[Sequence[Reals]],
        n: float,
        *,
        classes: tuple[int, int],
        information: float,
        zeros: Sequence[Sequence[Zero]] = (),
        generator: torch.Generator,
    ) -> None:
        self.layout, self.n, self._information = layout, n, information
        self._priors = [torch.from_numpy(np.concatenate(p)).float().log()[:, None] for p in shares]
        of_tables = zip(zeros or [()] * len(shares), (p.exp()[:, 0] for p in self._priors))
        self._excluded, self._avoided = [_Excluded(*own) for own in of_tables], AVOIDED
        self._classes, self._generator = classes, generator
        self._measured: list[_Measured] = []
        self._cells = 1
        self.restart()

    def restart(self) -> None:
        """Forget all steps and begin at other public logits."""
        k, w = self._classes

        def drawn(*size: int) -> Tensor:
            return torch.randn(size, generator=self._generator)

        values, usual = [drawn(len(self._priors[0]), k), 0.0 * drawn(k)], [self._priors[0].expand(-1, k), torch.zeros(k)]
        for branch, prior in zip(self.layout.shape.tables, self._priors[1:]):
            above = w if branch.parent else k
            values += [drawn(above, w), 0.0 * drawn(w), drawn(w, w) + 2.0 * torch.eye(w), 0.0 * drawn(above)]
            usual += [torch.zeros_like(x) for x in values[-4:]]
            values.append(drawn(len(prior), w))
            usual.append(prior.expand(-1, w))
        self._shapes = [x.shape for x in values]
        self._usual = torch.cat([x.flatten() for x in usual])  # logits of no information, to which all are held
        self._logits = torch.cat([x.flatten() for x in values]) + self._usual
        self._first, self._second, self._steps = torch.zeros_like(self._logits), torch.zeros_like(self._logits), 0

    def measure(self, sums: Sequence[tuple[Table, Reals, Any]]) -> None:
        """Fit these tables, with their noisy values and noise stds, from now on."""
        kinds: dict[Any, list[Any]] = {}
        for own in sums:
            kind = own[0].block[0]
            kinds.setdefault(kind if kind in ("one", "people") else "rows", []).append(own)
        self._measured = [_Measured(self.layout, own, self.n) for own in kinds.values()]
        self._blocks = sorted({block for own in self._measured for block in own.blocks})
        self._cells = max(1, sum(values.size for _, values, _ in sums))

    def run(self, steps: int, rate: float, last: float, *, avoided: float = AVOIDED) -> float:
        """Steps of a rate that falls from `rate` to `last` along half a cosine; the last loss for each measured cell."""
        self._avoided = avoided
        loss, (b1, b2) = torch.zeros(()), _MOMENTS
        for i in range(steps):
            logits = self._logits.requires_grad_()
            parts = self._parts()
            tables = laws(self.layout.shape, *parts, self._blocks)
            found = factors(self.layout.shape, tables, self._blocks)
            loss = torch.stack([own.loss(found) for own in self._measured]).sum()
            (slope,) = torch.autograd.grad(loss + self._penalty(*parts) + self._excess(tables), logits)
            self._steps += 1
            self._logits = logits.detach()
            self._first.lerp_(slope, 1 - b1)
            self._second.lerp_(slope * slope, 1 - b2)
            scale = (self._second / (1 - b2**self._steps)).sqrt_().add_(1e-8)
            own = last + (rate - last) * (0.5 + 0.5 * math.cos(math.pi * i / steps))
            self._logits.addcdiv_(self._first, scale, value=-own / (1 - b1**self._steps))
        return float(loss.detach()) / self._cells

    def _parts(self) -> tuple[Tensor, Tensor, list[list[Tensor]]]:
        """Probabilities as `factors` takes them."""
        shape = self.layout.shape

        def columns(logits: Tensor, number: int) -> Tensor:
            return torch.cat([x.softmax(0) for x in logits.split(list(shape.of(number)))])

        pieces = self._logits.split([size.numel() for size in self._shapes])
        a, z, *rest = [x.view(size) for x, size in zip(pieces, self._shapes)]
        found = []
        for number in range(1, len(self._priors)):
            q, s, r, h, b = rest[5 * number - 5 : 5 * number]
            found.append([q.softmax(1), (q + s).softmax(1), r.softmax(1), h.sigmoid(), columns(b, number)])
        return columns(a, 0), z.softmax(0), found

    def _penalty(self, a: Tensor, pi: Tensor, rows: Sequence[Sequence[Tensor]]) -> Tensor:
        def of_columns(number: int, p: Tensor) -> Tensor:
            return self._excluded[number].information * (p * ((p + 1e-30).log() - self._priors[number]))

        total, means = (pi * of_columns(0, a).sum(0)).sum(), [pi]
        for number, branch in enumerate(self.layout.shape.tables, 1):
            q, first, r, _, b = rows[number - 1]
            above = means[branch.parent]
            mean = above @ q
            means.append(mean)
            usual = (above[:, None] * q * ((q + 1e-30).log() - (mean + 1e-30).log())).sum()
            columns = (mean * of_columns(number, b).sum(0)).sum()
            steps = (mean[:, None] * r * ((r + 1e-30).log() - (mean + 1e-30).log())).sum()
            begun = (above[:, None] * first * ((first + 1e-30).log() - (q + 1e-30).log())).sum()
            total = total + _USUAL * usual + _FIRST * begun + columns + steps
        return self._information * total + _RIDGE * (self._logits - self._usual).square().sum()

    def _excess(self, tables: Sequence[_Laws]) -> Tensor:
        """The loss of what constraints exclude."""
        found = [
            excluded.loss(torch.cat([*own.stacks.values()]), own.occupied["all"])
            for excluded, own in zip(self._excluded, tables)
        ]
        return self._avoided * self.n * torch.stack(found).sum()

    @property
    def tree(self) -> Tree:
        """The tree as it is now."""
        with torch.no_grad():
            a, pi, rows = self._parts()
        shape, weights, chains = self.layout.shape, [pi.numpy()], list[Chain]()
        for branch, parts in zip(shape.tables, rows):
            q, first, r, rho, b = (part.numpy() for part in parts)
            weights.append(weights[branch.parent] @ q)
            chains.append(Chain(Mixture(b, weights[-1], branch.sizes), q, first, r, rho))
        return Tree(Mixture(a.numpy(), pi.numpy(), shape.people), tuple(chains))
