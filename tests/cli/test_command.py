"""Scripts end with one line and an exit code that says how."""

import argparse
import errno
import logging
import warnings

import pytest

from dpgen.callbacks.checkpoint import Preempted
from dpgen.cli.command import OneLineParser, exit_code
from dpgen.privacy.distributed import RemoteFailure
from dpgen.privacy.ledger import BudgetExceeded, LedgerError
from dpgen.runtime import quiet_training


def test_a_text_is_printed_and_a_number_is_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(lambda: "done") == 0
    assert capsys.readouterr() == ("done\n", "")
    assert exit_code(lambda: 1) == 1
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ValueError("k is 0;\n  it must be 1"), 2, "error: k is 0; it must be 1\n"),
        (FileNotFoundError("no such file"), 2, "error: no such file\n"),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            2,
            "error: [Errno 28] No space left on device; free some and give the same command again: a run goes on in the same "
            "--run_dir\n",
        ),
        (LedgerError("damaged"), 2, "error: damaged\n"),
        (BudgetExceeded("spent"), 2, "error: spent\n"),
        (Preempted("stopped"), 75, "stopped\n"),
        (KeyboardInterrupt("stopped"), 130, "stopped\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (RemoteFailure("elsewhere"), 0, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_errors_are_one_line(error: Exception, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise error

    assert exit_code(fail) == code
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyError("a bug")], ids=["RuntimeError", "KeyError"])
def test_other_errors_keep_their_traceback(error: Exception) -> None:
    def fail() -> int:
        raise error

    with pytest.raises(type(error), match="a bug"):
        exit_code(fail)


def test_an_option_that_is_given_twice_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    parser = OneLineParser("dpgen sample")
    parser.add_argument("--n", type=int)
    assert exit_code(lambda: parser.parse_args(["--n", "3", "--n=4"]).n) == 2
    assert capsys.readouterr() == ("", "error: n is given twice\n")


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


def test_the_parser_refuses_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    parser = OneLineParser()
    parser.add_argument("--n", type=int)
    assert parser.parse_args(["--n=3"]) == argparse.Namespace(n=3)
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["--n=x"])
    assert capsys.readouterr().err == "error: argument --n: invalid int value: 'x'\n"
