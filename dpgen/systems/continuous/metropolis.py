r"""One state of a random-walk Metropolis chain, as published: exactly private, slow, and only near its target.

The chain starts at :math:`x_0 \sim Q_0` and runs a fixed, public number of steps. Its kernel keeps :math:`Q \propto Q_0 e^f`
and never widens the range of :math:`dX_n / dQ`, so :math:`dX_n / dQ_0` stays in :math:`[e^{-2B}, e^{2B}]` as Q does. That is
one state. Two states of one chain are NOT private: whether the chain stood still shows a rejection, whose probability is 0
for one data set and not for another. So every draw runs a chain of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from dpgen.privacy.ledger import Ledger
from dpgen.privacy.noise import SecureSource
from dpgen.release import PrivateSampler
from dpgen.systems.continuous.laws import TiltedLaw, evaluated
from dpgen.systems.continuous.references import StandardReference

_STEP = 2.0**-20
_CHAINS_AT_ONCE = 2**14


def walk(
    start: Tensor,
    *,
    length: int,
    step: Callable[[], Tensor],
    log_density: Callable[[Tensor], Tensor],
    log_uniform: Callable[[], Tensor],
) -> Tensor:
    """States (k, d) after `length` symmetric steps of k independent chains; one evaluation of the density a step.

    Arguments:
        start: first states (k, d).
        length: public number of steps.
        step: draws symmetric increments (k, d).
        log_density: of the target, up to a constant, (k, d) -> (k,); -inf outside its support, finite at the start.
        log_uniform: draws logarithms of k uniforms in (0, 1).
    """
    state, density = start, log_density(start)
    for _ in range(length):
        proposal = state + step()
        proposed = log_density(proposal)
        accepted = log_uniform() < proposed - density
        state = torch.where(accepted[:, None], proposal, state)
        density = torch.where(accepted, proposed, density)
    return state


class MetropolisSampler(PrivateSampler):
    """Private draws as last states of independent chains, for comparison with exact samplers.

    States are whole multiples of 2^-20 of the reference's scale, so that the low digits of a float do not count the
    accepted steps. Chains need secret randomness throughout: the reference must be standard.

    Arguments:
        law: tilt, reference and bound.
        ledger: is charged epsilon for each draw.
        length: steps of each chain, public.
        step_size: standard deviation of a step in units of the reference's scale.

    Raises:
        ValueError: a reference without a secure sampler and density, or length or step_size out of range.

    Source: Husain et al. 2018, section 5 (random walk Metropolis-Hastings; length and step are not given there).
    """

    def __init__(self, law: TiltedLaw, *, ledger: Ledger, length: int = 1000, step_size: float = 0.7) -> None:
        if not isinstance(law.reference, StandardReference):
            raise ValueError(
                f"the reference is a {type(law.reference).__name__}; the Metropolis sampler needs one with a density and a "
                "secure sampler, Gaussian or uniform: use sampler='sir' or 'rejection'"
            )
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise ValueError(f"length is {length!r}; it must be a whole number >= 1")
        if not 1e-3 <= step_size < math.inf:
            raise ValueError(f"step_size is {step_size!r}; it must be at least 0.001 and finite")
        super().__init__(epsilon=law.epsilon, ledger=ledger, note="single states of Metropolis chains")
        self._law, self._reference, self._length, self._step_size = law, law.reference, length, step_size

    def _draw(self, k: int, source: SecureSource) -> Tensor:
        sizes = [min(_CHAINS_AT_ONCE, k - done) for done in range(0, k, _CHAINS_AT_ONCE)]
        return torch.cat([self._part(size, source) for size in sizes])

    def _part(self, k: int, source: SecureSource) -> Tensor:
        reference, law, shape = self._reference, self._law, (k, self._law.reference.d)

        def log_density(z: Tensor) -> Tensor:
            return reference.log_standard(z) + evaluated(law.function, reference.units(z), law.bound)

        def step() -> Tensor:
            normal = self._step_size * torch.special.ndtri(source.uniform(*shape))
            return (normal / _STEP).round() * _STEP

        def log_uniform() -> Tensor:
            return source.uniform(k).log()

        start = reference.on_lattice(reference.quantile(source.uniform(*shape)), _STEP)
        return reference.units(walk(start, length=self._length, step=step, log_density=log_density, log_uniform=log_uniform))
