"""Trainings without Lightning's lines about hardware: in the scripts, and many small ones in one process."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpgen.runtime import Runtime

_LOGGERS = ("lightning.pytorch", "lightning.fabric")


def quiet_runtime(directory: Path, seed: int) -> "Runtime":
    """A run on the CPU that shows nothing and is thrown away."""
    from dpgen.runtime import Runtime  # here, because planning a budget is quiet too, and needs no torch

    return Runtime(run_dir=directory, seed=seed, accelerator="cpu", progress_bar=False, checkpoint_every=10**6)


@contextmanager
def quiet_training() -> Iterator[None]:
    """Lightning's hints and Python warnings kept to itself; what it logs as a warning or an error is heard."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels):
                logger.setLevel(level)
