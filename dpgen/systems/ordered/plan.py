"""Public choices of a release of ordered columns: what it may spend, by which estimator, and the limits of both."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from dpgen.privacy.mechanisms import Relation, require_whole, require_within
from dpgen.systems.plan import RowPlan

# -- public limits -----------------------------------------------------------------------------------------------------

EPSILON = (1e-3 * (1 - 1e-9), 1e3 * (1 + 1e-9))
"""Range of epsilon of one column, with room for the rounding of shares: all noise scales of all methods can be drawn."""

PER_COLUMN = " for each column"

STEPS = (1, 10_000)
CELLS = 2**24
"""Values of a domain whose histogram is released, at most."""

# -- ordered options ---------------------------------------------------------------------------------------------------

Method = Literal["partition", "points", "laplace"]

DEFAULT_DELTA = 1e-9
CLAMP_SHARE = 0.02
"""Share of a column's epsilon for the noisy number of clamped values."""


@dataclass(frozen=True, kw_only=True)
class OrderedPlan(RowPlan):
    """Budget of all columns together, which share epsilon and delta equally.

    Without `delta` it is :math:`n^{-1.1}` for a public n, else :math:`10^{-9}`, which is below :math:`n^{-1.1}` up to
    :math:`n = 10^8`. (Diakonikolas et al. 2015 take 1/n, which allows one record to be published.)

    Arguments:
        epsilon: budget in nats, in [0.001, 1000], as the share of each column must be.
        delta: of the guarantee, in [0, 1); 0 for methods that are pure.
        relation: "replace_one" as in Diakonikolas et al. 2015, or "add_remove". The number n of records is public under
            replace_one of single records, unless those with gaps are left out; it is private of people and under add_remove.
        public_n: number of records, if it is declared public where it is private; without it a noisy number is bought.

    Raises:
        ValueError: a number out of its range.

    >>> OrderedPlan(public_n=100_000).resolved_delta
    3.16...e-06
    """

    epsilon: float = 1.0
    delta: float | None = None
    relation: Relation = "replace_one"
    public_n: int | None = None
    several_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.public_n is not None and self.public_n < 2:
            raise ValueError(f"public_n is {self.public_n}; it must be at least 2")
        super().__post_init__()
        require_within("epsilon", self.epsilon, EPSILON, PER_COLUMN)

    @property
    def resolved_delta(self) -> float:
        """The delta that is used."""
        if self.delta is not None:
            return self.delta
        return DEFAULT_DELTA if self.public_n is None else float(self.public_n) ** -1.1

    def share(self, columns: int) -> tuple[float, float]:
        """(epsilon, delta) of each column; rounding must not exceed the budget."""
        total = columns * (1 + 1e-12)
        return self.epsilon / total, self.resolved_delta / total


@dataclass(frozen=True, kw_only=True)
class OrderedConfig:
    """Estimator of the distribution of a column; public choices.

    Arguments:
        method: "partition" (recommended), "points" (the maximum error rule of Diakonikolas et al. 2015, Figure 2, with knots
            selected among all points) or "laplace" (Theorem 3, small domains).
        steps: steps T of the maximum error rule, in [1, 10000].
        degree: None keeps the private cells; 0, 1 or 2 merges them to few pieces of this degree (Theorem 5, step 2).

    Raises:
        ValueError: unknown method, or a number out of its range.
    """

    method: Method = "partition"
    steps: int = 12
    degree: int | None = None

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise ValueError(f"method is {self.method!r}; choose one of {', '.join(get_args(Method))}")
        require_whole("steps", self.steps, *STEPS)
        if self.degree not in (None, 0, 1, 2):
            raise ValueError(f"degree is {self.degree!r}; it must be none, 0, 1 or 2")
