"""The README and the pages say what is there: examples run, commands parse, files and tests that are named exist."""

import ast
import re
import runpy
import shlex
from pathlib import Path

import pytest

from dpgen.cli.main import COMMANDS
from dpgen.cli.train import split_command, with_file
from dpgen.config import parse_job
from dpgen.data.table_files import is_source

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()
COMMAND_PAGE = (ROOT / "docs" / "commands.md").read_text()
BENCHMARKS = (ROOT / "benchmarks" / "README.md").read_text()
PAGES = [TEXT, BENCHMARKS, *(path.read_text() for path in sorted(ROOT.glob("docs/**/*.md")))]
NAMED = re.compile(r"`((?:dpgen|docs|tests|scripts|notebooks|benchmarks|configs)/[\w./]+)((?:::\w+)*)`")


def blocks(language: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)\n```$", text, re.DOTALL | re.MULTILINE)


def commands() -> list[list[str]]:
    """Of the tables of commands, and of the blocks of all pages: the name of each command with its arguments."""
    rows = re.findall(r"`(?:python scripts/|dpgen )([a-z][^`\n]*)`", f"{TEXT}\n{COMMAND_PAGE}")
    texts = ["\n".join(blocks("sh")), *PAGES[1:]]
    rows += [row for text in texts for row in re.findall(r"^(?:python scripts/|dpgen )(.+)$", text, re.MULTILINE)]
    split = [[word for word in shlex.split(row) if word not in ("--json", "--quiet")] for row in rows]
    return [[name.removesuffix(".py"), *rest] for name, *rest in split]


@pytest.mark.usefixtures("quiet")
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    left = {}
    for number, example in enumerate(blocks("python") + blocks("python", (ROOT / "docs" / "quickstart.md").read_text())[1:]):
        script = tmp_path / f"example{number}.py"
        script.write_text(example)
        left |= runpy.run_path(str(script))
    assert left["rows"].dtypes.tolist() == left["frame"].dtypes.tolist()
    assert len(left["rows"]) == 500
    assert left["samples"].x.shape == (1000, 64)
    assert 0 < left["ledger"].epsilon() <= 3.0
    assert re.search(r"epsilon [\d.]+ of 3.0, 60 steps", capsys.readouterr().out)


def test_the_first_two_commands_are_one_line_each_and_the_second_is_what_ci_runs() -> None:
    train, check = blocks("sh")[:2]
    assert "\n" not in train
    assert train.endswith("scripts/train.py --model dpgm")
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == check


def test_every_training_command_is_understood() -> None:
    training = [command[1:] for command in commands() if command[0] == "train" and "--help" not in command]
    assert len(training) > 20
    seen = set()
    for arguments in training:
        arguments = [str(ROOT / a) if a.startswith("configs/") else a for a in arguments]
        if is_source(arguments[0]) and (options := with_file(arguments)):
            arguments = [f"--{name}={value}" for name, value in options.items()]
        if not arguments[0].startswith("-"):  # a file, which has to be there
            linked = not {"--person", "--links"}.isdisjoint(arguments) or arguments[0] == "datapackage.json"
            chosen = ("--model=relational", "--data=linked") if linked else ("--model=tables", "--data=table")
            arguments = [*chosen, f"--path={arguments[0]}", *arguments[1:]]
        seen.add(parse_job(split_command(arguments)[1], config_root=ROOT / "configs").model.name)
    assert seen >= {"dpgm", "merr", "mbde", "minimax"}


def test_every_command_is_mentioned_and_no_other() -> None:
    assert {command[0] for command in commands()} | {"completion"} == {*COMMANDS, "reproduce"}


def test_every_benchmark_is_mentioned() -> None:
    named = set(re.findall(r"`python (benchmarks/\w+\.py)", BENCHMARKS))
    assert named == {f"benchmarks/{path.name}" for path in ROOT.glob("benchmarks/*.py") if path.stem != "measuring"}


def test_everything_named_exists() -> None:
    named = [found for page in PAGES for found in NAMED.findall(page)]
    assert len(named) > 40
    for path, names in named:
        assert (ROOT / path).exists(), path
        if names:
            scope = ast.parse((ROOT / path).read_text()).body
            for name in names.split("::")[1:]:
                found = [node for node in scope if getattr(node, "name", None) == name]
                assert found, f"{path}{names}"
                scope = found[0].body  # type: ignore[attr-defined]
