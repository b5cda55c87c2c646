"""What command lines say of data: every option of every loader is described where the loader is."""

import inspect
import subprocess
import sys
from pkgutil import resolve_name
from typing import get_type_hints

import pytest
from docstring_parser import DocstringStyle, parse

from dpgen.data.kinds import KINDS, Loader

EVERY = [pytest.param(load, id=f"{kind}-{name}") for kind, own in KINDS.items() for name, load in own.loaders.items()]


@pytest.mark.parametrize("load", EVERY)
def test_every_option_is_described(load: Loader) -> None:
    described = {entry.arg_name: entry.description for entry in parse(load.options.__doc__, DocstringStyle.GOOGLE).params}
    assert list(described) == list(inspect.signature(load.options).parameters)
    assert [name for name, text in described.items() if not text or not text.strip().endswith(".")] == []


@pytest.mark.parametrize("load", EVERY)
def test_every_loader_says_what_it_loads(load: Loader) -> None:
    first = parse(load.options.__doc__, DocstringStyle.GOOGLE).short_description or ""
    assert first.endswith("."), "one sentence on one line"


@pytest.mark.parametrize("load", EVERY)
def test_options_are_those_of_the_loader(load: Loader) -> None:
    real = resolve_name(load.path)
    assert load.options.__doc__ == real.__doc__
    hints = {name: hint for name, hint in get_type_hints(real).items() if name != "people"}  # which the plan's options make
    assert get_type_hints(load.options) | {"return": None} == hints | {"return": None}
    defaults = {name: option.default for name, option in inspect.signature(real).parameters.items() if name != "people"}
    assert {name: option.default for name, option in inspect.signature(load.options).parameters.items()} == defaults


def test_options_are_known_without_the_libraries_that_read_the_data() -> None:
    code = (
        "import sys; from dpgen.data.kinds import KINDS; from dpgen.runtime import Runtime; import dpgen.config\n"
        "[load.options for kind in KINDS.values() for load in kind.loaders.values()]\n"
        "assert not {'torch', 'pandas', 'numpy', 'sklearn', 'lightning', 'scipy', 'dp_accounting'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
