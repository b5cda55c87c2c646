"""Command lines that nobody would write: an answer in one line, or a run; never a traceback, nothing spent where refused."""

from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgen.auditing import AuditOptions
from dpgen.cli.main import COMMANDS, main
from dpgen.data.kinds import KINDS
from dpgen.options import keys
from dpgen.run import open_run
from dpgen.runtime import Runtime
from dpgen.systems.registry import SYSTEMS

SOURCES = [source for system in SYSTEMS.values() for source in (system.plan, system.config)] + [AuditOptions, Runtime]
SOURCES += [loader.options for kind in KINDS.values() for loader in kind.loaders.values()]
NAMES = sorted({name for source in SOURCES for name in keys(source)} - {"download", "run_dir", "out"} | {"config", "dry_run"})
NUMBERS = ["0", "1", "2", "-1", "0.5", "1e9", "1e-320", "nan", "inf", "9" * 400, "2020-01-01"]
WORDS = ["null", "true", "false", "auto", "none", "kmeans", "rbm", "gaussian", "cpu", "a,b", "x" * 300, "dpgm_digits"]
SIGNS = ["", " ", "\0", "é\n", "--", "=", "[", "[]", "{}", "{a: 1}", "1,2", "[1,2]", "!!python/object:os", "*a"]
PATHS = ["/dev/null", "/proc/self", "absent.csv"]
VALUES = st.one_of(st.sampled_from([*NUMBERS, *WORDS, *SIGNS, *PATHS]), st.text(max_size=8))
OPTION = st.tuples(
    st.one_of(st.sampled_from(NAMES), st.sampled_from(NAMES).map(lambda name: name[:-1]), st.text(max_size=6)), VALUES
).map(lambda pair: f"--{pair[0]}={pair[1]}")
MODELS = sorted(SYSTEMS)
DATA = sorted({name for kind in KINDS.values() for name in kind.loaders})


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    command = draw(st.sampled_from([*["train"] * 8, "sample", "evaluate", "budget", "report", *COMMANDS, "trian", ""]))
    chosen = [f"--model={draw(st.sampled_from(MODELS))}"] * draw(st.integers(0, 1))
    chosen += [f"--data={draw(st.sampled_from(DATA))}"] * draw(st.integers(0, 1))
    return [command, *chosen, *draw(st.lists(st.one_of(OPTION, OPTION, OPTION, VALUES), max_size=4))]


class Fitted(Exception):
    """Everything was accepted, and the data read: this is where a run would begin to spend."""


def answer(arguments: list[str], directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command; where it fails, it says so in one line and leaves nothing."""
    capsys.readouterr()
    try:
        code = main(arguments)
    except Fitted:
        code = 0
    errors = capsys.readouterr().err
    assert "Traceback" not in errors
    if code:
        assert code == 2, errors
        assert errors.startswith("error: ")
        assert errors.count("\n") == 1
    assert list(directory.iterdir()) == [], "nothing half written, nothing spent"


def fuzzed(arguments: list[str], directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stops(job: object, **_: object) -> None:
        with open_run(job) as (path, _, curator):  # type: ignore[arg-type]
            assert curator.ledger.entries() == []
            if job.data.name in ("csv", "parquet", "npy", "sets", "events"):  # type: ignore[attr-defined]
                job.load(path)  # type: ignore[attr-defined]
            raise Fitted

    with monkeypatch.context() as patch:
        patch.chdir(directory)
        patch.setattr(import_module("dpgen.run"), "run", stops)
        answer(arguments, directory, capsys)


@given(arguments=command_lines())
def test_command_lines_that_nobody_would_write(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fuzzed(arguments, tmp_path, monkeypatch, capsys)
