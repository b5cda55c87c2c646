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
of classes about columns (of z about a and q, of w about b and R), which keeps independent what was not measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dpgen.systems.relational.sums import SPANS, Block, Integers, Layout, Reals, Shape, Stack, place_of, stack_of
from dpgen.systems.tables.mixture import Mixture

Weight = Callable[[int, int], float]
"""Weight of position t of k rows."""

_MOMENTS = (0.9, 0.99)  # Adam's
_RIDGE = 1e-3
_USUAL = 0.25  # of beta: what rows of a person share should come from the person, not from a slow chain


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
        return {block: law.numpy().astype(np.float64) for block, law in laws(shape, a, pi, rows).items()}


@dataclass(frozen=True, eq=False)
class _Laws:
    """Laws of one table, some of them by span: over classes of what its rows hang on, K, and of its rows, W."""

    stacks: dict[str, Tensor]  # columns in each class (codes, W)
    occupied: dict[str, Tensor]  # average weight (W,) of the classes of rows, over people
    counts: Tensor  # (numbers of rows, K), how many rows there are
    alphas: Tensor  # (m, K, W), the class of each row
    shares: dict[str, Tensor]  # weight (m, K) of each position
    means: dict[str, Tensor]  # average law (K, W) of the class of rows


def _table(shape: Shape, number: int, above: _Laws, q: Tensor, first: Tensor, steps: Tensor, rho: Tensor, b: Tensor) -> _Laws:
    branch, least = shape.tables[number - 1], shape.least(number)
    begin = sum(shape.of(branch.parent)[: branch.count])
    counts = above.stacks["all"][begin : begin + branch.most + 1 - least]
    chain = [first]
    for _ in range(branch.most - 1):
        chain.append((1 - rho)[:, None] * q + rho[:, None] * (chain[-1] @ steps))
    alphas = torch.stack(chain)
    stacks = dict(zip(SPANS, b.split([sum(shape.sizes(stack)) for stack in shape.stacks(number)])))
    weights: dict[str, Weight] = {
        "all": lambda k, t: 1 / k,
        "later": lambda k, t: 1 / (k - 1) if t > 1 else 0.0,
        "first": lambda k, t: float(t == 1),
    }
    shares = {span: _tails(branch.most, least, weight) @ counts for span, weight in weights.items()}
    means = {span: (share[:, :, None] * alphas).sum(0) for span, share in shares.items()}
    return _Laws(stacks, {span: above.occupied["all"] @ mean for span, mean in means.items()}, counts, alphas, shares, means)


def laws(
    shape: Shape, a: Tensor, pi: Tensor, rows: Sequence[Sequence[Tensor]], *, kinds: Sequence[str] | None = None
) -> dict[Block, Tensor]:
    """Laws of all blocks, of stacked columns a (sum of sizes, K) and pi, and of q, first, R, rho and b of each table of rows.

    Only those of some `kinds` are made where they are given; others are 0.
    """
    tables = [_Laws({"all": a}, {"all": pi}, a, a, {}, {})]
    for number, branch in enumerate(shape.tables, 1):
        tables.append(_table(shape, number, tables[branch.parent], *rows[number - 1]))
    across: dict[tuple[str, Stack], Tensor] = {}
    found: dict[Block, Tensor] = {}
    for kind, left, right in shape.blocks:
        (above, span), (number, other) = place_of(left), place_of(right)
        own, under = tables[above], tables[number]
        if kinds is not None and kind not in kinds:
            law = torch.zeros(sum(shape.sizes(left)), sum(shape.sizes(right)))
        elif kind == "one":
            law = (own.stacks[span] * pi).sum(1)[:, None] if not above else own.stacks[span] @ own.occupied[span][:, None]
        elif kind == "people":
            law = (a * pi) @ a.T
        elif kind == "both":
            law = _given(shape, tables, above, number, span, other) @ under.stacks[other].T
        elif kind == "row":
            law = (own.stacks[span] * own.occupied[other if span == "all" else span]) @ own.stacks[other].T
        else:
            branch = shape.tables[number - 1]
            of_parents = tables[branch.parent].occupied["all"]
            if kind == "place":
                law = ((under.shares["all"] * of_parents)[:, :, None] * under.alphas).sum(1) @ under.stacks[other].T
            else:
                if (kind, left) not in across:
                    joint, begin = _successive if kind == "next" else _any_two, 2 if span == "later" else 1
                    across[kind, left] = joint(branch.most, shape.least(number), begin, under, of_parents, rows[number - 1])
                law = own.stacks[span] @ across[kind, left] @ under.stacks[other].T
        found[kind, left, right] = law
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
    numbers = _by_number(branch.most, shape.least(path[0]), spans[0], weighted[begin:end], tables[path[0]].alphas)
    return torch.cat([_along(weighted[:begin], means), _along(numbers, means[1:]), _along(weighted[end:], means)])


def _along(law: Tensor, means: Sequence[Tensor]) -> Tensor:
    for mean in means:
        law = law @ mean
    return law


def _by_number(most: int, least: int, span: str, weighted: Tensor, alphas: Tensor) -> Tensor:
    """Law (numbers of rows, W) of the number of rows and the class of one of them: given k, only the first k rows are there."""
    begin, last = int(span == "later"), 1 if span == "first" else most
    total, sums, found = torch.zeros_like(alphas[0]), {0: torch.zeros_like(alphas[0])}, []
    for t in range(begin, last):
        total = total + alphas[t]
        sums[t + 1] = total / (t + 1 - begin)
    for number, chance in enumerate(weighted):
        k = min(number + least, last)
        found.append(chance @ sums[k if k > begin else 0])
    return torch.stack(found)


def _tails(most: int, least: int, weight: Weight) -> Tensor:
    """Weights (m, numbers of rows) of position t of k rows, 0 for t > k."""
    found = [[weight(k, t) if k >= t else 0.0 for k in range(least, most + 1)] for t in range(1, most + 1)]
    return torch.tensor(found)


def _successive(most: int, least: int, begin: int, own: _Laws, pi: Tensor, chain: Sequence[Tensor]) -> Tensor:
    """Law (W, W) of the classes of a row from `begin` on and the next one."""
    q, _, steps, rho, _ = chain
    later = pi * (_tails(most, least, lambda k, t: 1 / (k - begin) if t > begin else 0.0) @ own.counts)  # (m, K), of the later
    before = (later[1:, :, None] * own.alphas[:-1]).sum(0)
    return (before * (1 - rho)[:, None]).T @ q + (rho @ before)[:, None] * steps


def _any_two(most: int, least: int, begin: int, own: _Laws, pi: Tensor, chain: Sequence[Tensor]) -> Tensor:
    """Law (W, W) of the classes of an earlier row, from `begin` on, and of a later one."""
    q, _, steps, rho, _ = chain
    w = len(steps)

    def weight(k: int, t: int) -> float:
        rows = k - begin + 1
        return 2 / (rows * (rows - 1)) if t > begin else 0.0

    if most == begin:
        return torch.zeros(w, w)
    later = pi * (_tails(most, least, weight) @ own.counts)
    fresh = (1 - rho)[:, None] * q
    apart, power, kept, sums, befores, aparts = fresh, steps, rho[:, None], torch.zeros(w, w), [], []
    for distance in range(1, most - begin + 1):
        before = (later[begin - 1 + distance :, :, None] * own.alphas[begin - 1 : most - distance]).sum(0)  # (K, W)
        sums = sums + (before * kept).sum(0)[:, None] * power
        befores.append(before)
        aparts.append(apart)
        apart, power, kept = fresh + rho[:, None] * (apart @ steps), power @ steps, kept * rho[:, None]
    return sums + torch.cat(befores).T @ torch.cat(aparts)


class TreeFitter:
    """A tree that is fitted again whenever there are more measurements, by Adam on its logits, from where it was.

    `shares` are released ones of the columns of people, and of each table of rows, above 0; `n` is the released number of
    people, `classes` are K, and W of each table of rows; `information` is beta, `generator` public; `kinds` are of the tables
    that will be measured.
    """

    def __init__(
        self,
        layout: Layout,
        shares: Sequence[Sequence[Reals]],
        n: float,
        *,
        classes: tuple[int, int],
        information: float,
        generator: torch.Generator,
        kinds: Sequence[str] | None = None,
    ) -> None:
        self._kinds = kinds
        self.layout, self.n, self._information = layout, n, information
        self._priors = [torch.from_numpy(np.concatenate(p)).float().log()[:, None] for p in shares]
        self._classes, self._generator = classes, generator
        self.restart()
        stacks = ["unit", "person"]
        for number in range(1, len(shares)):
            stacks += [*layout.shape.stacks(number), stack_of("position", number)]
        self._matrices = [
            {stack: torch.from_numpy(layout.shape.sums(stack, level)) for stack in stacks} for level in layout.levels
        ]
        self._cells = torch.zeros(0, dtype=torch.int64)
        self._values = self._precisions = torch.zeros(0)

    def restart(self) -> None:
        """Forget all steps and begin at other public logits."""
        k, w = self._classes

        def drawn(*size: int) -> Tensor:
            return torch.randn(size, generator=self._generator)

        values = [drawn(len(self._priors[0]), k) + self._priors[0], 0.0 * drawn(k)]
        for branch, prior in zip(self.layout.shape.tables, self._priors[1:]):
            above = w if branch.parent else k
            values += [drawn(above, w), 0.0 * drawn(w), drawn(w, w) + 2.0 * torch.eye(w), 0.0 * drawn(above)]
            values.append(drawn(len(prior), w) + prior)
        self._logits = [value.requires_grad_() for value in values]
        self._adam = torch.optim.Adam(self._logits, betas=_MOMENTS, fused=True)

    def measure(self, cells: Sequence[Integers], values: Sequence[Reals], stds: Sequence[float | Reals]) -> None:
        """Fit these sums of cells of the layout from now on."""
        self._cells = torch.from_numpy(np.concatenate([own.ravel() for own in cells]))
        self._values = torch.from_numpy(np.concatenate([own.ravel() for own in values]) / self.n).float()
        precisions = [np.broadcast_to((self.n / std) ** 2, own.shape).ravel() for own, std in zip(cells, stds)]
        self._precisions = torch.from_numpy(np.concatenate(precisions)).float()

    def run(self, steps: int, rate: float, last: float) -> float:
        """Steps of a rate that falls from `rate` to `last` along half a cosine; the last loss for each measured cell."""
        loss = torch.zeros(())
        for i in range(steps):
            self._adam.param_groups[0]["lr"] = last + (rate - last) * (0.5 + 0.5 * math.cos(math.pi * i / steps))
            self._adam.zero_grad()
            a, pi, rows = self._parts()
            found = laws(self.layout.shape, a, pi, rows, kinds=self._kinds)
            flat = torch.cat([self._grouped(found, own) for own in self._matrices])
            loss = 0.5 * (self._precisions * (flat[self._cells] - self._values) ** 2).sum()
            (loss + self._penalty(a, pi, rows)).backward()
            self._adam.step()
        return float(loss.detach()) / max(1, len(self._cells))

    def _grouped(self, found: dict[Block, Tensor], matrices: dict[str, Tensor]) -> Tensor:
        sums = [matrices[left] @ law @ matrices[right].T for (_, left, right), law in found.items()]
        return torch.cat([law.flatten() for law in sums])

    def _parts(self) -> tuple[Tensor, Tensor, list[list[Tensor]]]:
        """Probabilities as `laws` takes them."""
        shape = self.layout.shape

        def columns(logits: Tensor, number: int) -> Tensor:
            return torch.cat([x.softmax(0) for x in logits.split(list(shape.of(number)))])

        a, z, *rest = self._logits
        found = []
        for number in range(1, len(self._priors)):
            q, s, r, h, b = rest[5 * number - 5 : 5 * number]
            found.append([q.softmax(1), (q + s).softmax(1), r.softmax(1), h.sigmoid(), columns(b, number)])
        return columns(a, 0), z.softmax(0), found

    def _penalty(self, a: Tensor, pi: Tensor, rows: Sequence[Sequence[Tensor]]) -> Tensor:
        total = (pi * (a * ((a + 1e-30).log() - self._priors[0])).sum(0)).sum()
        means, flat = [pi], [self._logits[1]]
        for number, branch in enumerate(self.layout.shape.tables, 1):
            q, _, r, _, b = rows[number - 1]
            above = means[branch.parent]
            mean = above @ q
            means.append(mean)
            usual = (above[:, None] * q * ((q + 1e-30).log() - (mean + 1e-30).log())).sum()
            columns = (mean * (b * ((b + 1e-30).log() - self._priors[number])).sum(0)).sum()
            steps = (mean[:, None] * r * ((r + 1e-30).log() - (mean + 1e-30).log())).sum()
            total = total + _USUAL * usual + columns + steps
            flat += self._logits[5 * number - 3 : 5 * number + 1]
        flat += [x - prior for x, prior in zip([self._logits[0], *self._logits[6::5]], self._priors)]
        return self._information * total + _RIDGE * torch.stack([x.square().sum() for x in flat]).sum()

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
