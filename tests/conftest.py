"""Fixtures that several test files share."""

from collections.abc import Iterator

import pytest
import tiny

from dpgen.run import Outcome, run


@pytest.fixture
def quiet() -> Iterator[None]:
    with tiny.quiet():
        yield


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """One finished run on tiny records, with the default budget."""
    with tiny.quiet():
        return run(tiny.job(tmp_path_factory.mktemp("finished")))
