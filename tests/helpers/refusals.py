"""What is wrong is refused in one line that names it."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refused(
    *words: str, error: type[BaseException] | tuple[type[BaseException], ...] = (ValueError, TypeError)
) -> Iterator[None]:
    """The block ends with an error of one line, in which these words stand: the name of an option, what was meant."""
    with pytest.raises(error) as raised:
        yield
    said = str(raised.value)
    assert "\n" not in said
    assert [word for word in words if word not in said] == [], said
