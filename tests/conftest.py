"""Fixtures that several test files share."""

from collections.abc import Iterator

import pytest
import tiny
import torch

from dpgen.run import Outcome, run

torch.set_num_threads(1)  # the tensors are tiny: a second thread would only wait


@pytest.fixture
def quiet() -> Iterator[None]:
    with tiny.quiet():
        yield


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """One finished run on tiny records, with the default budget."""
    with tiny.quiet():
        return run(tiny.job(tmp_path_factory.mktemp("finished")))
