r"""One state of a random-walk Metropolis chain, as published: exactly private, slow, and only near its target.

The chain starts at :math:`x_0 \sim Q_0` and runs a fixed, public number of steps. Its kernel keeps :math:`Q \propto Q_0 e^f`
and never widens the range of :math:`dX_n / dQ`, so :math:`dX_n / dQ_0` stays in :math:`[e^{-2B}, e^{2B}]` as Q does. That is
one state. Two states of one chain are NOT private: whether the chain stood still shows a rejection, whose probability is 0
for one data set and not for another. So every draw runs a chain of its own.

The argument needs a start that has exactly the law which the kernel takes for Q0, wherever the chain can go, and a kernel
that keeps Q exactly. So states are points of a finite public lattice, Q0 and e^f have whole numbers there, the start is
drawn by them, and coins compare whole numbers: nothing depends on floats that would run out of digits in the tails.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.limits import require_whole
from dpgen.privacy.mechanisms import Secrets
from dpgen.release import PrivateSampler
from dpgen.systems.continuous.laws import TiltedLaw, evaluated
from dpgen.systems.continuous.references import StandardReference
from dpgen.systems.continuous.rejection import WORD_BITS, acceptance_words

NOTE = "single states of Metropolis chains"
STEP_SIZES = (1e-3, 1e3)
_SPACING = 2.0**-20
_REACH = 6.0
_CHAINS_AT_ONCE = 2**14
_COIN_BITS = 192
_COIN_MARGIN = 1e-9  # of a logarithm; the doubles are good to 1e-12


class ChainLattice:
    """Q0 on a public lattice: whole multiples of a spacing, at most 6 scales from the location, inside the bounds.

    What is cut off has probability 2e-9 in each coordinate. Coordinates are independent, and each has whole weights.

    Arguments:
        reference: Gaussian or uniform.
        spacing: in scales of the reference.
        reach: in scales of the reference.
    """

    def __init__(self, reference: StandardReference, *, spacing: float = _SPACING, reach: float = _REACH) -> None:
        self.reference, self.spacing = reference, spacing
        self.first, self.last = reference.lattice(spacing, reach)
        nearest = torch.zeros_like(self.first).maximum(self.first).minimum(self.last)
        self._peak = reference.coordinate_log_density(nearest * spacing)

    def weights(self, index: Tensor) -> Tensor:
        """Whole weights (k, d), int64, of points (k, d) of the lattice: in [1, 2^62], and 0 outside of it."""
        inside = (index >= self.first) & (index <= self.last)
        share = (self.reference.coordinate_log_density(index * self.spacing) - self._peak).exp()
        return torch.where(inside, (share * 2.0**WORD_BITS).to(torch.int64).clamp(1, 2**WORD_BITS), 0)

    def start(self, k: int, secrets: Secrets) -> Tensor:
        """k points (k, d), int64, with probabilities exactly proportional to the product of their weights.

        By rejection from equally likely points, which looks at nothing private.
        """
        columns = []
        for axis, (first, last) in enumerate(zip(self.first.tolist(), self.last.tolist())):
            found, bits = torch.empty(0, dtype=torch.int64), max(1, (last - first).bit_length())
            while len(found) < k:
                place, coin = secrets.words(2, 16 * (k - len(found)))
                index = first + torch.from_numpy((place >> np.uint64(64 - bits)).astype(np.int64))
                weights = self.weights(index[:, None].expand(-1, len(self.first)))[:, axis]
                accepted = torch.from_numpy((coin >> np.uint64(64 - WORD_BITS)).astype(np.int64)) < weights
                found = torch.cat([found, index[accepted]])
            columns.append(found[:k])
        return torch.stack(columns, 1)


def accepted(old: Tensor, new: Tensor, secrets: Secrets) -> Tensor:
    r"""Coins (k,) that fall with probability :math:`\min(1, \prod_j new_j / \prod_j old_j)`, up to 2^-128.

    Logarithms decide unless they are closer to the coin than 1e-9; whole numbers decide the rest.

    Arguments:
        old: whole weights (k, m), > 0.
        new: whole weights (k, m), >= 0.
        secrets: gives the coins.
    """
    words = secrets.words(_COIN_BITS // 64, len(old))
    log_coin = torch.from_numpy(np.log((words[0] + (words[1] + 0.5) * 2.0**-64) * 2.0**-64))
    gap = log_coin - (new.to(torch.float64).log().sum(1) - old.to(torch.float64).log().sum(1))
    result = gap < 0
    for i in (gap.abs() <= _COIN_MARGIN).nonzero().flatten().tolist():
        coin = int(words[0, i]) << 128 | int(words[1, i]) << 64 | int(words[2, i])
        result[i] = coin * math.prod(old[i].tolist()) < math.prod(new[i].tolist()) << _COIN_BITS
    return result


def walk(
    start: Tensor,
    *,
    length: int,
    step: Callable[[], Tensor],
    weights: Callable[[Tensor], Tensor],
    secrets: Secrets,
) -> Tensor:
    """States (k, d) after `length` symmetric steps of k independent chains; one evaluation of the weights a step.

    Arguments:
        start: first states (k, d), int64.
        length: public number of steps.
        step: draws symmetric increments (k, d), int64.
        weights: whole factors (k, m) of the target, up to a constant, at states (k, d); one of them 0 outside its support.
        secrets: gives the coins.
    """
    state, old = start, weights(start)
    for _ in range(length):
        proposal = state + step()
        new = weights(proposal)
        moves = accepted(old, new, secrets)[:, None]
        state, old = torch.where(moves, proposal, state), torch.where(moves, new, old)
    return state


class MetropolisSampler(PrivateSampler):
    """Private draws as last states of independent chains, for comparison with exact samplers.

    Formal guarantees: every draw is epsilon-private, whatever the tilt and the length, up to 2^-127 in total variation for
    each step, as with all integer draws here. States are points of a `ChainLattice`, so that the low digits of a float do
    not count the accepted steps. Chains need secret randomness throughout: the reference must be standard.

    Arguments:
        law: tilt, reference and bound.
        curator: charges epsilon for each draw.
        length: steps of each chain, public.
        step_size: standard deviation of a step in units of the reference's scale.

    Raises:
        ValueError: a reference without a secure sampler and density, or length or step_size out of range.

    Source: Husain et al. 2018, section 5 (random walk Metropolis-Hastings; length and step are not given there).
    """

    def __init__(self, law: TiltedLaw, *, curator: Curator, length: int = 1000, step_size: float = 0.7) -> None:
        if not isinstance(law.reference, StandardReference):
            raise ValueError(
                f"the reference is a {type(law.reference).__name__}; the Metropolis sampler needs one with a density and a "
                "secure sampler, Gaussian or uniform: use sampler='sir' or 'rejection'"
            )
        require_whole("length", length)
        if not STEP_SIZES[0] <= step_size <= STEP_SIZES[1]:
            raise ValueError(f"step_size is {step_size!r}; it must be in [{STEP_SIZES[0]:g}, {STEP_SIZES[1]:g}]")
        super().__init__(epsilon=law.epsilon, curator=curator, note=NOTE)
        self._law, self._lattice, self._length, self._step_size = law, ChainLattice(law.reference), length, step_size

    def draw(self, secrets: Secrets, count: int) -> Tensor:
        sizes = [min(_CHAINS_AT_ONCE, count - done) for done in range(0, count, _CHAINS_AT_ONCE)]
        return torch.cat([self._part(size, secrets) for size in sizes])

    def _part(self, k: int, secrets: Secrets) -> Tensor:
        lattice, law, shape = self._lattice, self._law, (k, self._law.reference.d)

        def points(index: Tensor) -> Tensor:
            return lattice.reference.units(index * lattice.spacing)

        def weights(index: Tensor) -> Tensor:
            tilt = evaluated(law.function, points(index), law.bound)
            return torch.cat([lattice.weights(index), acceptance_words(tilt, law.bound)[:, None]], 1)

        def step() -> Tensor:
            length, sign = torch.special.ndtri(secrets.uniform(*shape)).abs(), 1 - 2 * (secrets.uniform(*shape) < 0.5).long()
            return sign * (self._step_size / lattice.spacing * length).round().to(torch.int64)  # symmetric to the last bit

        return points(walk(lattice.start(k, secrets), length=self._length, step=step, weights=weights, secrets=secrets))
