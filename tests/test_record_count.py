"""Public and noisy numbers of records."""

import numpy as np
import pytest

from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.privacy.noise import SecureSource
from dpgen.systems.ordered.record_count import released_size, size_is_free

VALUES = np.arange(1000)


def test_replace_one_knows_the_number() -> None:
    ledger = Ledger(Budget(1.0, 1e-6), relation="replace_one")
    assert size_is_free(None, ledger.relation)
    assert released_size(VALUES, None, epsilon=0.1, ledger=ledger, source=SecureSource()) == 1000
    assert ledger.epsilon() == 0
    with pytest.raises(ValueError, match="size is 999; under replace_one the number of records is public and is 1000"):
        released_size(VALUES, 999, epsilon=0.1, ledger=ledger, source=SecureSource())


def test_add_remove_pays_for_it_or_is_told() -> None:
    ledger = Ledger(Budget(1.0, 1e-6))
    assert released_size(VALUES, 5000, epsilon=0.1, ledger=ledger, source=SecureSource()) == 5000
    assert ledger.epsilon() == 0
    noisy = released_size(VALUES, None, epsilon=0.5, ledger=ledger, source=SecureSource())
    assert ledger.epsilon() == pytest.approx(0.5, rel=1e-4)
    assert abs(noisy - 1000) < 100  # e^-50 of the draws miss
    with pytest.raises(BudgetExceeded, match="number of records"):
        released_size(VALUES, None, epsilon=0.6, ledger=ledger, source=SecureSource())


def test_noise_is_there_and_the_result_is_at_least_one() -> None:
    ledger = Ledger(None, delta=1e-6)
    found = {released_size(VALUES[:1], None, epsilon=0.05, ledger=ledger, source=SecureSource()) for _ in range(40)}
    assert len(found) > 3
    assert min(found) == 1.0
    with pytest.raises(ValueError, match="size is 0"):
        released_size(VALUES, 0, epsilon=0.1, ledger=ledger, source=SecureSource())
