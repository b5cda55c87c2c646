"""What command lines say of data: every option of every loader is described where the loader is."""

import inspect
from typing import Any

import pytest
from docstring_parser import DocstringStyle, parse

from dpgen.data import LOADERS

EVERY = [pytest.param(load, id=f"{kind}-{name}") for kind, named in LOADERS.items() for name, load in named.items()]


@pytest.mark.parametrize("load", EVERY)
def test_every_option_is_described(load: Any) -> None:
    described = {entry.arg_name: entry.description for entry in parse(load.__doc__, DocstringStyle.GOOGLE).params}
    assert list(described) == list(inspect.signature(load).parameters)
    assert [name for name, text in described.items() if not text or not text.strip().endswith(".")] == []


@pytest.mark.parametrize("load", EVERY)
def test_every_loader_says_what_it_loads(load: Any) -> None:
    first = parse(load.__doc__, DocstringStyle.GOOGLE).short_description or ""
    assert first.endswith("."), "one sentence on one line"
