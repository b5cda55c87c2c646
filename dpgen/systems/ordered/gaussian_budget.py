"""The Gaussian noise that a column's budget buys, with the sensitivity of the relation itself."""

from functools import lru_cache
from typing import TYPE_CHECKING

from dpgen.privacy.calibration import calibrate_noise
from dpgen.privacy.events import pure_event
from dpgen.privacy.ledger import Budget
from dpgen.privacy.mechanisms import gaussian_event
from dpgen.privacy.parallel import Relation
from dpgen.systems.ordered.sensitivities import records_moved

if TYPE_CHECKING:
    from dp_accounting import DpEvent


def relation_gaussian(noise_multiplier: float, relation: Relation) -> "DpEvent":
    """The event of a Gaussian whose multiplier is std / L2 sensitivity under `relation` itself.

    Events state the add/remove sensitivity, which the ledger doubles under replace-one.
    """
    return gaussian_event(noise_multiplier * records_moved(relation))


@lru_cache(maxsize=64)
def gaussian_beside(pure: tuple[float, ...], epsilon: float, delta: float, relation: Relation) -> float:
    """Least multiplier of a Gaussian that, beside mechanisms of these pure epsilons, keeps all within the budget."""
    from dp_accounting import ComposedDpEvent

    def event(multiplier: float) -> "DpEvent":
        return ComposedDpEvent([*map(pure_event, pure), relation_gaussian(multiplier, relation)])

    return calibrate_noise(event, Budget(epsilon, delta), relation=relation, high=1e6)
