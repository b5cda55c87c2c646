r"""Private draws of a certified density: rejection, sampling importance resampling, Metropolis.

**Rejection** from Q0 in constant work: R proposals, the first accepted one, else a fresh draw of Q0.

Plain rejection draws from :math:`Q \propto Q_0 e^f` exactly, but how many proposals it looks at depends on the data. Here
R + 1 proposals are always made and looked at, in a secret random order; the last one in the order is taken if all others
were rejected. The density of a draw is :math:`(1 - w) Q + w Q_0` with :math:`w \le (1 - e^{-2B})^R`.

Why it is private even when the R + 1 proposals are known: proposal i is taken with probability
:math:`a_i S_i + (1 - a_i) L_i`, where :math:`a_i \in [l, 1]`, :math:`l = e^{-2B}`, is its chance of being accepted,
:math:`S_i` the chance that the order reaches it, and :math:`L_i \le S_i` the chance that it is reached in the last place,
where :math:`a_i` is not asked. This rises with :math:`a_i` and falls with every other :math:`a_j`, so it lies between
:math:`l / (R + 1)` and :math:`(1 - (1 - l)^{R + 1}) / (l (R + 1))`, and two data sets differ by less than
:math:`l^{-2} = e^{4B} \le e^\epsilon`. Without the secret order the second proposal alone would tell them apart.

**Sampling-importance-resampling** inside a public box: exactly private, in constant work, with no normaliser.

A codebook of M points of Q0 is drawn; point i is released with probability w_i / M, where the weights w lie in [a, b] and
have mean 1. Whatever the codebook, two data sets give its points probabilities within a factor b / a <= e^epsilon, and so
also on average over codebooks: the guarantee holds even if the codebook is known.

**One state of a random-walk Metropolis chain**, as published: exactly private, slow, and only near its target.

The chain starts at :math:`x_0 \sim Q_0` and runs a fixed, public number of steps. Its kernel keeps :math:`Q \propto Q_0 e^f`
and never widens the range of :math:`dX_n / dQ`, so :math:`dX_n / dQ_0` stays in :math:`[e^{-2B}, e^{2B}]` as Q does. That is
one state. Two states of one chain are NOT private: whether the chain stood still shows a rejection, whose probability is 0
for one data set and not for another. So every draw runs a chain of its own.

The argument needs a start that has exactly the density which the kernel takes for Q0, wherever the chain can go, and a kernel
that keeps Q exactly. So states are points of a finite public lattice, Q0 and e^f have whole numbers there, the start is
drawn by them, and coins compare whole numbers: nothing depends on floats that would run out of digits in the tails.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.mechanisms import Secrets, require_whole
from dpgen.release import PrivateSampler
from dpgen.systems.mbde.densities import LARGEST_LOGIT, Box, Density, StandardReference, TiltedDensity, evaluated, mollified
from dpgen.systems.mbde.plan import CODEBOOKS, MOST_TRIES

REJECTION_DRAWS = "rejection draws"
WORD_BITS = 62
FALLBACK = 1e-9
_SHRINK = 1e-9
_VALUES_AT_ONCE = 2**17


def tries_for(bound: float, fallback: float = FALLBACK) -> int:
    """Proposals R after which the fallback has probability of about `fallback` at most, (1 - e^(-2B))^R.

    Raises:
        ValueError: more than 2^20 proposals, or `fallback` not in (0, 1).

    >>> tries_for(0.25)
    23
    """
    if not 0 < fallback < 1:
        raise ValueError(f"fallback is {fallback!r}; it must lie in (0, 1)")
    tries = max(1, math.ceil(math.log(fallback) / math.log1p(-math.exp(-2 * bound)) - 1e-9))
    if tries > MOST_TRIES:
        raise ValueError(f"tries would be {tries} at bound {bound:g}; at most {MOST_TRIES} are made: use sampler='sir'")
    return tries


def acceptance_words(tilt: Tensor, bound: float) -> Tensor:
    """Of 2^62 equally likely words, how many accept a proposal of tilt f: e^(f - B) in whole numbers, int64 like `tilt`.

    Never below ceil(e^(-2B) 2^62) nor above 2^62, whatever the tilt.
    """
    bound = bound * (1 - _SHRINK)
    least = math.ceil(math.exp(-2 * bound) * 2**WORD_BITS)
    chance = (tilt.to(torch.float64).clamp(-bound, bound) - bound).exp()
    return (chance * 2.0**WORD_BITS).to(torch.int64).clamp(least, 2**WORD_BITS)


def first_accepted(words: Tensor, secrets: Secrets) -> Tensor:
    """Index (k,) of the first accepted of r proposals in a secret order; the last in the order is always accepted.

    Arguments:
        words: `acceptance_words` (k, r).
        secrets: gives the coins and the order.
    """
    coins, order = (torch.from_numpy(secrets.words(*words.shape, bits=WORD_BITS).astype(np.int64)) for _ in range(2))
    accepted = (coins < words).scatter(1, order.argmax(1, keepdim=True), True)
    return torch.where(accepted, order, 2**63 - 1).argmin(1)


class _DensitySampler(PrivateSampler):
    """Draws of a density, so many at once that memory stays bounded.

    Arguments:
        density: function, reference and what bounds them.
        curator: charges epsilon for each draw.
        note: what the draws are called in the ledger.
        at_once: draws made together.
    """

    def __init__(self, density: Density, *, curator: Curator, note: str, at_once: int) -> None:
        super().__init__(epsilon=density.epsilon, curator=curator, note=note)
        self._density, self._at_once = density, max(1, at_once)

    def draw(self, secrets: Secrets, count: int) -> Tensor:
        sizes = [min(self._at_once, count - done) for done in range(0, count, self._at_once)]
        return torch.cat([self._part(size, secrets) for size in sizes])

    @abstractmethod
    def _part(self, k: int, secrets: Secrets) -> Tensor:
        """k independent draws (k, d)."""

    def _one_of(self, m: int, k: int, secrets: Secrets, choose: Callable[[Tensor], Tensor], limit: float) -> Tensor:
        """k draws (k, d), each out of m fresh points of the reference; `choose` maps their values (k, m) to places (k,)."""
        points = self._density.reference.draw(k * m, secrets)
        values = evaluated(self._density.function, points, limit).reshape(k, m)
        return points.reshape(k, m, -1)[torch.arange(k), choose(values)]


class RejectionSampler(_DensitySampler):
    """Private draws from MBDE's density by constant-work rejection.

    Formal guarantees: every draw is epsilon-private, whatever the tilt (it is clamped to [-B, B], NaN counts as 0). R + 1
    proposals and evaluations a draw, never more nor less.

    Arguments:
        density: tilt, reference and bound B <= epsilon / 4.
        curator: charges epsilon for each draw.
        tries: R; None: so many that the fallback has probability of at most 1e-9.

    Raises:
        ValueError: tries out of range.

    Source: Husain et al. 2020, Theorem 4; the constant work is an addition.
    """

    def __init__(self, density: TiltedDensity, *, curator: Curator, tries: int | None = None) -> None:
        self._proposals = 1 + (tries_for(density.bound) if tries is None else require_whole("tries", tries, 1, MOST_TRIES))
        self._bound = density.bound
        super().__init__(density, curator=curator, note=REJECTION_DRAWS, at_once=_VALUES_AT_ONCE // self._proposals)

    def _part(self, k: int, secrets: Secrets) -> Tensor:
        def choose(tilt: Tensor) -> Tensor:
            return first_accepted(acceptance_words(tilt, self._bound), secrets)

        return self._one_of(self._proposals, k, secrets, choose, self._bound)


SIR_DRAWS = "SIR draws"
TOTAL_BITS = 62


def whole_weights(log_ratio: Tensor, box: Box) -> Tensor:
    r"""Weights (k, m) in whole numbers that sum to exactly 2^62, each within [a, b] 2^62 / m: the density of a SIR draw.

    Formal guarantees, for any finite input:
        - rows sum to 2^62, so a draw needs no normaliser and no rounding;
        - every weight lies between ceil(a 2^62 / m) and floor(b 2^62 / m): two inputs differ by a factor of at most b / a.

    Arguments:
        log_ratio: log density ratio at the m points of each codebook (k, m), finite.
        box: the public box.

    Raises:
        ValueError: m outside [2, 2^16].
    """
    m = log_ratio.shape[1]
    require_whole("codebook", m, *CODEBOOKS)
    unit = 2**TOTAL_BITS / m
    least, most = math.ceil(box.low * unit), math.floor(min(box.high, m) * unit)
    weights = (mollified(log_ratio, box) * unit).to(torch.int64).clamp(least, most)
    missing = 2**TOTAL_BITS - weights.sum(1, keepdim=True)
    weights += _filled(missing.clamp_min(0), most - weights) - _filled((-missing).clamp_min(0), weights - least)
    return weights


def _filled(amount: Tensor, room: Tensor) -> Tensor:
    """Spread `amount` (k, 1) over the first places that have room (k, m)."""
    room = room.minimum(amount)
    before = room.cumsum(1) - room  # at most m * amount, and the amount is a rounding error: no overflow
    return (amount - before).clamp_min(0).minimum(room)


def chosen(weights: Tensor, secrets: Secrets) -> Tensor:
    """An index (k,) for each row of `whole_weights`, with exactly their probabilities."""
    target = torch.from_numpy(secrets.words(len(weights), bits=TOTAL_BITS).astype(np.int64))
    return torch.searchsorted(weights.cumsum(1), target[:, None], right=True).squeeze(1)


class SIRSampler(_DensitySampler):
    """Private draws from a learned density ratio by SIR.

    Formal guarantees: every draw is epsilon-private for any private function, whatever it was learned from, as long as
    the reference and the box are public. Work, network evaluations and memory depend on k and the codebook's size only.

    Arguments:
        density: private function, reference and box; of a `TiltedDensity` the tilt is the log density ratio.
        curator: charges epsilon for each draw.
        codebook: points of Q0 for each draw; the density of a draw comes near the ideal one as 1 / codebook.

    Raises:
        ValueError: codebook out of range, or a box wider than epsilon.

    >>> from dpgen.privacy.curator import Curator
    >>> from dpgen.privacy.ledger import Budget, Ledger
    >>> from dpgen.systems.mbde.densities import ClippedDensity, GaussianReference
    >>> curator = Curator(Ledger(Budget(2.0, 0.0), relation="replace_one", unit="the whole data set"))
    >>> density = ClippedDensity(lambda x: x.sum(1), GaussianReference.standard(2), box=Box.of(1.0), epsilon=1.0)
    >>> SIRSampler(density, curator=curator).sample(2).shape, curator.ledger.epsilon()
    (torch.Size([2, 2]), 2.0)
    """

    def __init__(self, density: Density, *, curator: Curator, codebook: int = 1024) -> None:
        require_whole("codebook", codebook, *CODEBOOKS)
        if density.box.epsilon > density.epsilon * (1 + 1e-12):
            raise ValueError(
                f"box is {density.box}: its log-ratio {density.box.epsilon:.6g} is above epsilon {density.epsilon:g} of a draw"
            )
        super().__init__(density, curator=curator, note=SIR_DRAWS, at_once=_VALUES_AT_ONCE // codebook)
        self._codebook = codebook

    def _part(self, k: int, secrets: Secrets) -> Tensor:
        def choose(log_ratio: Tensor) -> Tensor:
            return chosen(whole_weights(log_ratio, self._density.box), secrets)

        return self._one_of(self._codebook, k, secrets, choose, LARGEST_LOGIT)


METROPOLIS_STATES = "single states of Metropolis chains"
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


class MetropolisSampler(_DensitySampler):
    """Private draws as last states of independent chains, for comparison with exact samplers.

    Formal guarantees: every draw is epsilon-private, whatever the tilt and the length, up to 2^-127 in total variation for
    each step, as with all integer draws here. States are points of a `ChainLattice`, so that the low digits of a float do
    not count the accepted steps. Chains need secret randomness throughout: the reference must be standard.

    Arguments:
        density: tilt, reference and bound.
        curator: charges epsilon for each draw.
        length: steps of each chain, public.
        step_size: standard deviation of a step in units of the reference's scale.

    Raises:
        ValueError: a reference without a secure sampler and density, or length or step_size out of range.

    Source: Husain et al. 2018, section 5 (random walk Metropolis-Hastings; length and step are not given there).
    """

    def __init__(self, density: TiltedDensity, *, curator: Curator, length: int = 1000, step_size: float = 0.7) -> None:
        if not isinstance(density.reference, StandardReference):
            raise ValueError(
                f"the reference is a {type(density.reference).__name__}; the Metropolis sampler needs one with a density and a "
                "secure sampler, Gaussian or uniform: use sampler='sir' or 'rejection'"
            )
        require_whole("length", length)
        if not STEP_SIZES[0] <= step_size <= STEP_SIZES[1]:
            raise ValueError(f"step_size is {step_size!r}; it must be in [{STEP_SIZES[0]:g}, {STEP_SIZES[1]:g}]")
        super().__init__(density, curator=curator, note=METROPOLIS_STATES, at_once=_CHAINS_AT_ONCE)
        self._bound, self._lattice = density.bound, ChainLattice(density.reference)
        self._length, self._step_size = length, step_size

    def _part(self, k: int, secrets: Secrets) -> Tensor:
        lattice, density, shape = self._lattice, self._density, (k, self._density.reference.d)

        def points(index: Tensor) -> Tensor:
            return lattice.reference.units(index * lattice.spacing)

        def weights(index: Tensor) -> Tensor:
            tilt = evaluated(density.function, points(index), self._bound)
            return torch.cat([lattice.weights(index), acceptance_words(tilt, self._bound)[:, None]], 1)

        def step() -> Tensor:
            length, sign = torch.special.ndtri(secrets.uniform(*shape)).abs(), 1 - 2 * (secrets.uniform(*shape) < 0.5).long()
            return sign * (self._step_size / lattice.spacing * length).round().to(torch.int64)  # symmetric to the last bit

        return points(walk(lattice.start(k, secrets), length=self._length, step=step, weights=weights, secrets=secrets))
