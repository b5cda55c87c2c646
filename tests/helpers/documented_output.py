"""The JSON schema of what commands write, as the package has it, and commands that answer by it."""

import json
from importlib.resources import files
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dpgen.cli.main import main

OUTPUT = Draft202012Validator(json.loads(files("dpgen").joinpath("output.schema.json").read_text()))


def answered(capsys: pytest.CaptureFixture[str], *arguments: object, code: int | None = 0) -> dict[str, Any]:
    """The one JSON object of a command, whose exit code is this one, or whichever it is."""
    given = [str(argument) for argument in arguments if argument != "--json"]
    capsys.readouterr()
    ended = main([*given, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    OUTPUT.validate(found)
    assert ended == found["exit_code"]
    assert code in (None, ended), found["problem"]
    return found
