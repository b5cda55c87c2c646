"""The Gaussian noise that a column's budget buys, with the sensitivity of the relation itself."""

from functools import lru_cache
from typing import TYPE_CHECKING

from dpgen.privacy.calibration import calibrate_noise
from dpgen.privacy.events import pure_event
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Budget
from dpgen.privacy.mechanisms import gaussian_event
from dpgen.privacy.parallel import Relation
from dpgen.systems.ordered.counts import records_moved

if TYPE_CHECKING:
    from dp_accounting import DpEvent


def relation_gaussian(noise_multiplier: float, relation: Relation) -> "DpEvent":
    """The event of a Gaussian whose multiplier is std / L2 sensitivity under `relation` itself.

    Events state the add/remove sensitivity, which the ledger doubles under replace-one.
    """
    return gaussian_event(noise_multiplier * records_moved(relation))


def curator_multiplier(noise_multiplier: float, sums: BoundedSum, relation: Relation) -> float:
    """A multiplier of `relation` itself in the add/remove units that `Curator.gaussian` takes.

    >>> import torch
    >>> moves = BoundedSum(torch.zeros(3, dtype=torch.int64), 1.0, replaced=1.5)
    >>> curator_multiplier(2.0, moves, "add_remove"), curator_multiplier(2.0, moves, "replace_one")
    (2.0, 3.0)
    """
    return noise_multiplier * sums.under(relation) / sums.sensitivity


@lru_cache(maxsize=64)
def gaussian_beside(pure: tuple[float, ...], epsilon: float, delta: float, relation: Relation) -> float:
    """Least multiplier of a Gaussian that, beside mechanisms of these pure epsilons, keeps all within the budget."""
    from dp_accounting import ComposedDpEvent

    def event(multiplier: float) -> "DpEvent":
        return ComposedDpEvent([*map(pure_event, pure), relation_gaussian(multiplier, relation)])

    return calibrate_noise(event, Budget(epsilon, delta), relation=relation, high=1e6)
