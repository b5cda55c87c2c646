"""Known distributions on [0, 1) scaled to [0, N): five reference mixtures with exact CDFs, and draws of them."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy import stats

from dpgen.data.columns import Columns
from dpgen.discretized import DiscretizedColumn

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
MixtureName = Literal["gaussians", "betas", "gammas", "spikes", "mixed"]
SYNTHETIC_SIZE = 10**18


@dataclass(frozen=True)
class OrderedMixture:
    r"""A mixture on [0, 1) whose draws u become the integers :math:`\lfloor u N \rfloor`; mass outside is cut off.

    Arguments:
        name: what it is called.
        weights: of the components, (k,), sum 1.
        parts: frozen scipy.stats distributions.

    >>> mixture = reference_mixture("betas")
    >>> mixture.below(np.array([0, 10**18]), 10**18).tolist()
    [0.0, 1.0]
    """

    name: str
    weights: tuple[float, ...]
    parts: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"OrderedMixture({self.name!r}, {len(self.parts)} parts)"

    def _raw(self, u: Reals) -> Reals:
        return np.asarray(sum(w * part.cdf(u) for w, part in zip(self.weights, self.parts)))

    def below(self, positions: npt.ArrayLike, N: int) -> Reals:
        """Exact P(X < p) at integer positions p of [0, N], in float64."""
        low, high = self._raw(np.array([0.0, 1.0]))
        return (self._raw(np.asarray(positions, np.float64) / N) - low) / (high - low)

    def draw(self, n: int, N: int, rng: np.random.Generator) -> Integers:
        """n independent integers in [0, N), with random low digits below what float64 resolves."""
        out, filled = np.empty(n, np.float64), 0
        while filled < n:
            counts = rng.multinomial(n - filled, self.weights)
            u = np.concatenate([p.rvs(int(c), random_state=rng) for p, c in zip(self.parts, counts)])
            u = u[(u >= 0) & (u < 1)]
            out[filled : filled + len(u)] = u
            filled += len(u)
        rng.shuffle(out)
        x = (out * N).astype(np.int64)
        if N > 2**53:
            x += rng.integers(0, max(1, N >> 53), n)
        return np.minimum(x, N - 1)


def reference_mixture(name: MixtureName) -> OrderedMixture:
    """One of the five sets on which the estimators are compared.

    Gaussian, Beta and Gamma mixtures as in Diakonikolas, Hardt, Schmidt 2015, section 5 (whose parameters are in an
    appendix that is not reproduced here), one with a narrow spike on a broad floor, and one with all three kinds.

    Raises:
        ValueError: unknown name.
    """
    if name not in get_args(MixtureName):
        raise ValueError(f"mixture is {name!r}; it must be one of {', '.join(get_args(MixtureName))}")
    norm, beta, gamma, uniform = stats.norm, stats.beta, stats.gamma, stats.uniform
    sets: dict[str, tuple[tuple[float, ...], tuple[Any, ...]]] = {
        "gaussians": ((0.65, 0.35), (norm(0.45, 0.15), norm(0.75, 0.05))),
        "betas": ((0.4, 0.6), (beta(0.8, 4.0), beta(2.0, 2.0))),
        "gammas": ((0.7, 0.3), (gamma(2.0, scale=0.08), gamma(7.5, scale=0.08))),
        "spikes": ((0.5, 0.3, 0.2), (norm(0.3, 0.1), norm(0.62, 0.002), uniform(0.0, 1.0))),
        "mixed": ((0.3, 0.4, 0.3), (norm(0.2, 0.03), beta(6.0, 3.0), gamma(4.0, scale=0.04))),
    }
    weights, parts = sets[name]
    return OrderedMixture(name, weights, parts)


REFERENCE_MIXTURES: tuple[MixtureName, ...] = get_args(MixtureName)


def load_mixture(
    *, mixture: MixtureName = "gaussians", n_records: int = 100_000, size: int = SYNTHETIC_SIZE, data_seed: int = 0
) -> Columns:
    """Draws of a known mixture on [0, 10^18), the default that needs no file; every error against the truth is exact.

    Arguments:
        mixture: "gaussians", "betas", "gammas", "spikes" or "mixed".
        n_records: number of draws.
        size: N, number of values of the domain.
        data_seed: of the draws.

    Raises:
        ValueError: unknown mixture, fewer than two records, or N out of range.

    Example:
        >>> load_mixture(n_records=100)
        Columns('gaussians': 100 records of x on 1000000000000000000 values)
    """
    known, domain = reference_mixture(mixture), DiscretizedColumn.integers(size)
    if n_records < 2:
        raise ValueError(f"n_records is {n_records}: at least 2 are needed")
    x = known.draw(n_records, size, np.random.default_rng(data_seed))
    return Columns(
        name=mixture, values={"x": x}, domains={"x": domain}, truth={"x": known}, notes=("the records are synthetic",)
    )
