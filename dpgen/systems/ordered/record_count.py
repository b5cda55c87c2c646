"""How many records there are: public under replace-one, otherwise a public guess or a noisy count."""

from typing import TYPE_CHECKING

from dpgen.privacy.events import pure_event
from dpgen.privacy.noise import SecureSource
from dpgen.privacy.parallel import Relation
from dpgen.systems.ordered.knots import Integers
from dpgen.systems.ordered.sensitivities import size_l1

if TYPE_CHECKING:
    from dpgen.privacy.ledger import Ledger


def size_is_free(size: int | None, relation: Relation) -> bool:
    """Whether the number of records costs nothing: it was given, or the relation keeps it.

    >>> size_is_free(None, "add_remove"), size_is_free(1000, "add_remove")
    (False, True)
    """
    return size is not None or size_l1(relation) == 0


def size_sentence(size: int | None, relation: Relation) -> str:
    """What a statement says about the number of records.

    >>> size_sentence(1000, "add_remove")
    'the number of records, 1000, was declared public'
    """
    if size_l1(relation) == 0:
        return "the number of records is public: neighbouring data sets have equally many"
    if size is not None:
        return f"the number of records, {size}, was declared public"
    return "the number of records is private; where it is needed a noisy number was paid for"


def released_size(values: Integers, size: int | None, *, epsilon: float, ledger: "Ledger", source: SecureSource) -> float:
    """The number of records to work with, at least 1.

    Arguments:
        values: (n,) the records.
        size: a number that is public anyway, or None.
        epsilon: of the discrete Laplace noise on n, charged only where n is private and no size was given.
        ledger: decides the relation.

    Raises:
        ValueError: size < 1, or, where n is public, a size that is not n.
    """
    if size is not None and size < 1:
        raise ValueError(f"size is {size!r}; the public number of records must be at least 1")
    if size_l1(ledger.relation) == 0:
        if size is not None and size != values.size:
            raise ValueError(f"size is {size}; under replace_one the number of records is public and is {values.size}")
        return float(values.size)
    if size is not None:
        return float(size)
    ledger.charge(pure_event(epsilon), note="number of records, discrete Laplace")
    noise = int(source.discrete_laplace(1, scale=size_l1(ledger.relation) / epsilon))
    return float(max(1, values.size + noise))
