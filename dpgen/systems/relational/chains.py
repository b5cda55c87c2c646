r"""A model of people and their rows: classes of people, chains of classes of rows, and products of columns in each class.

.. math:: z \sim \pi, \quad a_c, k \mid z \sim p_{zc}, \quad w_1 \sim q_1(\cdot \mid z) \propto q(\cdot \mid z) e^{s}, \quad
    w_{t+1} \sim (1 - \rho_z) \, q(\cdot \mid z) + \rho_z R_{w_t}, \quad b_c \mid w \sim p_{wc}

Laws of all measured tables are sums over classes, with the same weights of a person's rows as in `sums`, so a fit never looks
at people. With :math:`\alpha_t` the law of :math:`w_t` given z, the average law of a person's rows is
:math:`u_z = \sum_t c_t(z) \alpha_t(z)`, :math:`c_t(z) = \sum_{k \ge t} P(k \mid z) / k`. The class d rows after :math:`w` is
that of :math:`\rho^d R^d_w` beside a part that does not depend on w: of the last reset before it.

A fit lowers :math:`\tfrac12 \sum_i (n p_i - y_i)^2 / \sigma_i^2` of the measured sums y and :math:`\beta` times the information
of classes about columns (of z about a and q, of w about b and R), which keeps independent what was not measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dpgen.systems.relational.sums import SPANS, Block, Integers, Layout, Reals, Shape
from dpgen.systems.tables.mixture import Mixture

_MOMENTS = (0.9, 0.99)  # Adam's
_RIDGE = 1e-3
_USUAL = 0.25  # of beta: what rows of a person share should come from the person, not from a slow chain


@dataclass(frozen=True, eq=False)
class Chain:
    """The model with its probabilities.

    Arguments:
        people: mixture of K classes over the columns of people.
        rows: products of W classes over the columns of rows; its weights are not used.
        usual: q (K, W), law of the class of a row after a reset.
        first: law (K, W) of the class of the first row.
        steps: R (W, W), law of the class of a row given that of the row before.
        kept: rho (K,), chance of no reset.
    """

    people: Mixture
    rows: Mixture
    usual: npt.NDArray[np.float32]
    first: npt.NDArray[np.float32]
    steps: npt.NDArray[np.float32]
    kept: npt.NDArray[np.float32]

    def blocks(self, shape: Shape) -> dict[Block, Reals]:
        """Laws of the tables of every two columns, for one person."""
        values = (self.people.probabilities, self.people.weights, self.usual, self.first, self.steps, self.kept)
        tensors = [torch.from_numpy(np.ascontiguousarray(x)) for x in (*values, self.rows.probabilities)]
        return {block: law.numpy().astype(np.float64) for block, law in laws(shape, *tensors).items()}

    def seen(self, groups: Integers, place: Integers, spans: Sequence[str]) -> Reals:
        """Log chance (r, W) of groups (r, b) of rows at these places (r,) in each class; those below 0 are not known."""
        found = np.zeros((len(groups), len(self.steps)))
        for c, span in enumerate(spans):
            there = (groups[:, c] >= 0) & {"all": place >= 0, "later": place > 0, "first": place == 0}[span]
            found[there] += np.log(np.maximum(self.rows.block(c), 1e-30))[groups[there, c]]
        return found

    def forward(self, seen: Reals, starts: Integers) -> tuple[Reals, Reals]:
        """Log chance (n, K) of people's rows given their class, and the law (n, K, W) of the class of the last row."""
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


def laws(
    shape: Shape,
    a: Tensor,
    pi: Tensor,
    q: Tensor,
    first: Tensor,
    steps: Tensor,
    rho: Tensor,
    b: Tensor,
    *,
    kinds: Sequence[str] | None = None,
) -> dict[Block, Tensor]:
    """Laws of all blocks: stacked columns a (sum of sizes, K) and b (sum of sizes, W), the other letters as in the module.

    Only those of some `kinds` are made where they are given; others are 0.
    """
    m = shape.most
    k_size = shape.people[-1]
    law_of_k = a[-k_size:]
    chain = [first]
    for _ in range(m - 1):
        chain.append((1 - rho)[:, None] * q + rho[:, None] * (chain[-1] @ steps))
    alphas = torch.stack(chain)  # (m, K, W)
    stacks = dict(zip(SPANS, b.split([sum(shape.sizes(span)) for span in SPANS])))
    shares = {  # (m, K), weight of each position
        "all": _tails(shape, lambda k, t: 1 / k) @ law_of_k,
        "later": _tails(shape, lambda k, t: 1 / (k - 1) if t > 1 else 0.0) @ law_of_k,
        "first": _tails(shape, lambda k, t: float(t == 1)) @ law_of_k,
    }
    means = {span: (share[:, :, None] * alphas).sum(0) for span, share in shares.items()}  # u (K, W) of each span
    weighted = a * pi
    across = {kind: {} for kind in ("pair", "next")}  # type: dict[str, dict[str, Tensor]]
    found: dict[Block, Tensor] = {}
    for kind, left, right in shape.blocks:
        if kinds is not None and kind not in kinds:
            law = torch.zeros(sum(shape.sizes(left)), sum(shape.sizes(right)))
        elif kind == "one":
            law = weighted.sum(1)[:, None] if left == "person" else stacks[left] @ (pi @ means[left])[:, None]
        elif kind == "people":
            law = weighted @ a.T
        elif kind == "both":
            law = torch.cat([weighted[:-k_size] @ means[right], _by_number(shape, right, weighted, alphas)]) @ stacks[right].T
        elif kind == "row":
            span = right if left == "all" else left
            law = (stacks[left] * (pi @ means[span])) @ stacks[right].T
        elif kind == "place":
            law = ((shares["all"] * pi)[:, :, None] * alphas).sum(1) @ stacks[right].T
        else:
            if left not in across[kind]:
                begin = 2 if left == "later" else 1
                joint = _successive if kind == "next" else _any_two
                across[kind][left] = joint(shape, begin, law_of_k, alphas, pi, q, steps, rho)
            law = stacks[left] @ across[kind][left] @ stacks[right].T
        found[kind, left, right] = law
    return found


def _by_number(shape: Shape, span: str, weighted: Tensor, alphas: Tensor) -> Tensor:
    """Law (numbers of rows, W) of the number of rows and the class of one of them: given k, only the first k rows are there."""
    begin, last = int(span == "later"), 1 if span == "first" else shape.most
    total, sums, found = torch.zeros_like(alphas[0]), {0: torch.zeros_like(alphas[0])}, []
    for t in range(begin, last):
        total = total + alphas[t]
        sums[t + 1] = total / (t + 1 - begin)
    for number, chance in enumerate(weighted[-shape.people[-1] :]):
        k = min(number + shape.least, last)
        found.append(chance @ sums[k if k > begin else 0])
    return torch.stack(found)


def _tails(shape: Shape, weight) -> Tensor:  # type: ignore[no-untyped-def]
    """Weights (m, numbers of rows) of position t of k rows, 0 for t > k."""
    found = [[weight(k, t) if k >= t else 0.0 for k in range(shape.least, shape.most + 1)] for t in range(1, shape.most + 1)]
    return torch.tensor(found)


def _successive(
    shape: Shape, begin: int, law_of_k: Tensor, alphas: Tensor, pi: Tensor, q: Tensor, steps: Tensor, rho: Tensor
) -> Tensor:
    """Law (W, W) of the classes of a row from `begin` on and the next one."""
    later = pi * (_tails(shape, lambda k, t: 1 / (k - begin) if t > begin else 0.0) @ law_of_k)  # (m, K), of the later one
    before = (later[1:, :, None] * alphas[:-1]).sum(0)
    return (before * (1 - rho)[:, None]).T @ q + (rho @ before)[:, None] * steps


def _any_two(
    shape: Shape, begin: int, law_of_k: Tensor, alphas: Tensor, pi: Tensor, q: Tensor, steps: Tensor, rho: Tensor
) -> Tensor:
    """Law (W, W) of the classes of an earlier row, from `begin` on, and of a later one."""
    m, w = shape.most, len(steps)

    def weight(k: int, t: int) -> float:
        rows = k - begin + 1
        return 2 / (rows * (rows - 1)) if t > begin else 0.0

    if m == begin:
        return torch.zeros(w, w)
    later = pi * (_tails(shape, weight) @ law_of_k)
    fresh = (1 - rho)[:, None] * q
    apart, power, kept, sums, befores, aparts = fresh, steps, rho[:, None], torch.zeros(w, w), [], []
    for distance in range(1, m - begin + 1):
        before = (later[begin - 1 + distance :, :, None] * alphas[begin - 1 : m - distance]).sum(0)  # (K, W)
        sums = sums + (before * kept).sum(0)[:, None] * power
        befores.append(before)
        aparts.append(apart)
        apart, power, kept = fresh + rho[:, None] * (apart @ steps), power @ steps, kept * rho[:, None]
    return sums + torch.cat(befores).T @ torch.cat(aparts)


class ChainFitter:
    """A chain that is fitted again whenever there are more measurements, by Adam on its logits, from where it was.

    Arguments:
        layout: of the tables.
        people: released shares of the columns of people, above 0.
        rows: the same of rows.
        n: released number of people.
        classes: K and W.
        information: beta.
        generator: public, of the first logits.
        kinds: of the tables that will be measured.
    """

    def __init__(
        self,
        layout: Layout,
        people: Sequence[Reals],
        rows: Sequence[Reals],
        n: float,
        *,
        classes: tuple[int, int],
        information: float,
        generator: torch.Generator,
        kinds: Sequence[str] | None = None,
    ) -> None:
        self._kinds = kinds
        self.layout, self.n, self._information = layout, n, information
        self._priors = [torch.from_numpy(np.concatenate(p)).float().log()[:, None] for p in (people, rows)]
        self._classes, self._generator = classes, generator
        self.restart()
        self._matrices = [
            {stack: torch.from_numpy(level.matrix(stack, layout.shape)) for stack in ("person", "position", "unit", *SPANS)}
            for level in layout.levels
        ]
        self._cells = torch.zeros(0, dtype=torch.int64)
        self._values = self._precisions = torch.zeros(0)

    def restart(self) -> None:
        """Forget all steps and begin at other public logits."""
        k, w = self._classes
        sizes = ((len(self._priors[0]), k), (k,), (k, w), (w,), (w, w), (k,), (len(self._priors[1]), w))
        spreads = (1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0)
        values = [spread * torch.randn(size, generator=self._generator) for size, spread in zip(sizes, spreads)]
        values[0] += self._priors[0]
        values[4] += 2.0 * torch.eye(w)
        values[6] += self._priors[1]
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
            parts = self._parts()
            found = laws(self.layout.shape, *parts, kinds=self._kinds)
            flat = torch.cat([self._grouped(found, own) for own in self._matrices])
            loss = 0.5 * (self._precisions * (flat[self._cells] - self._values) ** 2).sum()
            (loss + self._penalty(*parts)).backward()
            self._adam.step()
        return float(loss.detach()) / max(1, len(self._cells))

    def _grouped(self, found: dict[Block, Tensor], matrices: dict[str, Tensor]) -> Tensor:
        sums = [matrices[left] @ law @ matrices[right].T for (_, left, right), law in found.items()]
        return torch.cat([law.flatten() for law in sums])

    def _parts(self) -> list[Tensor]:
        a, z, q, s, r, h, b = self._logits
        shape = self.layout.shape
        both = ((a, shape.people), (b, shape.rows))
        stacked = [torch.cat([x.softmax(0) for x in logits.split(list(sizes))]) for logits, sizes in both]
        return [stacked[0], z.softmax(0), q.softmax(1), (q + s).softmax(1), r.softmax(1), h.sigmoid(), stacked[1]]

    def _penalty(self, a: Tensor, pi: Tensor, q: Tensor, _first: Tensor, r: Tensor, _rho: Tensor, b: Tensor) -> Tensor:
        mean = pi @ q
        people = (pi * (a * ((a + 1e-30).log() - self._priors[0])).sum(0)).sum()
        usual = (pi[:, None] * q * ((q + 1e-30).log() - (mean + 1e-30).log())).sum()
        rows = (mean * (b * ((b + 1e-30).log() - self._priors[1])).sum(0)).sum()
        steps = (mean[:, None] * r * ((r + 1e-30).log() - (mean + 1e-30).log())).sum()
        flat = [*self._logits[1:6], *(x - prior for x, prior in zip(self._logits[::6], self._priors))]
        ridge = torch.stack([x.square().sum() for x in flat]).sum()
        return self._information * (people + _USUAL * usual + rows + steps) + _RIDGE * ridge

    @property
    def chain(self) -> Chain:
        """The chain as it is now."""
        with torch.no_grad():
            a, pi, q, first, r, rho, b = (part.numpy() for part in self._parts())
        shape = self.layout.shape
        people, rows = Mixture(a, pi, shape.people), Mixture(b, pi @ q, shape.rows)
        return Chain(people, rows, q, first, r, rho)
