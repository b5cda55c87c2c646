"""What is wrong is refused in one line that names it, and costs nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dpgen.privacy.ledger import Ledger


@contextmanager
def refused(
    *words: str, error: type[BaseException] | tuple[type[BaseException], ...] = (ValueError, TypeError), paid: bool = False
) -> Iterator[None]:
    """The block ends with an error of one line, in which these words stand: the name of an option, what was meant.

    No ledger is charged in the block, except where `paid`: what is refused there can only be known of a release.
    """
    charged: list[str] = []
    charge = Ledger.charge

    def noted(self: Ledger, *given: Any, note: str, **options: Any) -> None:
        charge(self, *given, note=note, **options)
        charged.append(note)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Ledger, "charge", noted)
        with pytest.raises(error) as raised:
            yield
    said = str(raised.value)
    assert "\n" not in said
    assert [word for word in words if word not in said] == [], said
    assert paid or not charged, f"paid for {', '.join(dict.fromkeys(charged))}, and then refused: {said}"
