"""Many small trainings in one process, without Lightning's lines about hardware."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpgen.runtime import Runtime


def quiet_runtime(directory: Path, seed: int) -> Runtime:
    """A run on the CPU that shows nothing and is thrown away."""
    return Runtime(run_dir=directory, seed=seed, accelerator="cpu", progress_bar=False, checkpoint_every=10**6)


@contextmanager
def quiet_training() -> Iterator[None]:
    """Lightning's hints and warnings kept to itself."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        try:
            yield
        finally:
            logger.setLevel(level)
