"""Kinds of data: what each names is there, and every option of every loader is described where the loader is."""

import inspect
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import get_type_hints

import pytest
from docstring_parser import DocstringStyle, parse

from dpgen.data.kinds import KINDS, Loader, evaluator_of, kind_of
from dpgen.systems import SYSTEMS

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


@pytest.mark.parametrize("name", KINDS)
def test_what_a_kind_names_is_there_and_its_containers_are_known(name: str) -> None:
    kind = KINDS[name]
    assert all(callable(resolve_name(path)) for path in (*kind.containers.values(), kind.unscored, kind.pair) if path)
    for path, evaluator in kind.containers.items():
        held = object.__new__(resolve_name(path))
        assert (kind_of(held), evaluator_of(held)) == (name, evaluator)
    assert not kind.usual or name in SYSTEMS[kind.usual].kinds
    assert not kind.reader or kind.reader in kind.loaders


def test_every_system_has_neighbours_for_an_audit() -> None:
    assert [name for name, system in SYSTEMS.items() if not KINDS[system.kinds[0]].pair] == []


def test_what_is_no_container_is_of_no_kind() -> None:
    assert kind_of([1]) is None
    with pytest.raises(ValueError, match="data is list; it must be one of Records, MappedRecords, "):
        evaluator_of([1])


def test_a_run_on_one_kind_of_data_imports_no_other(tmp_path: Path) -> None:
    code = (
        "import sys; from dpgen.cli.main import main\n"
        "assert main('train --model merr --epsilon 1 --n_records 1000 --quiet --run_dir run'.split()) == 0\n"
        "others = {'linked', 'tables', 'raw_tables', 'images', 'records', 'points', 'users', 'stored', 'links'}\n"
        "assert not {f'dpgen.data.{name}' for name in others} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=tmp_path)
