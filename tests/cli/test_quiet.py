"""Trainings that keep quiet, and leave the logger as it was."""

import logging
import warnings
from pathlib import Path

import pytest

from dpgen.runtime import quiet_runtime, quiet_training


def fails() -> None:
    with quiet_training():
        assert not logging.getLogger("lightning.pytorch").isEnabledFor(logging.INFO)
        assert logging.getLogger("lightning.pytorch").isEnabledFor(logging.WARNING)
        warnings.warn_explicit("few workers", UserWarning, "a.py", 1, module="lightning.data")
        raise RuntimeError("inside")


def test_the_logger_is_quiet_inside_and_as_before_outside_even_after_an_error() -> None:
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    heard = [logger.isEnabledFor(logging.INFO) for logger in loggers]
    with pytest.raises(RuntimeError, match="inside"):
        fails()
    assert [logger.isEnabledFor(logging.INFO) for logger in loggers] == heard


def test_warnings_of_others_are_heard() -> None:
    with pytest.warns(UserWarning, match="heard"), quiet_training():
        warnings.warn("heard", stacklevel=1)


def test_a_run_on_the_cpu_without_a_bar(tmp_path: Path) -> None:
    runtime = quiet_runtime(tmp_path, 7)
    assert (runtime.directory, runtime.seed, runtime.accelerator, runtime.progress_bar) == (tmp_path, 7, "cpu", False)
