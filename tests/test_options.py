"""Options: what is typed arrives with its type, and what is wrong is said in one line that says what is allowed."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

import pytest
from refusals import refused

from dpgen.auditing import AuditOptions
from dpgen.data.kinds import KINDS, loaders
from dpgen.options import by_block, choose, keys, meanings, require_writable, split_options, typed
from dpgen.runtime import Runtime
from dpgen.systems.registry import SYSTEMS


@dataclass
class Paint:
    """A class of options."""

    colour: Literal["red", "blue"] = "red"
    layers: int = 1
    name: str | None = None


def load(path: str, *, shape: tuple[int, int] | None = None, depth: int = 2) -> None:
    """A function of options."""


def made(**given: Any) -> dict[str, Any]:
    """All options of both with their values."""
    sources = {"paint": Paint, "data": load}
    own = by_block(sources, given)
    return {name: value for block, source in sources.items() for name, value in typed(source, own[block]).items()}


@pytest.mark.parametrize(
    ("arguments", "given"),
    [([], {}), (["--a", "1", "--b-c=2=3"], {"a": "1", "b_c": "2=3"}), (["--a", "--b", "-4"], {"a": "true", "b": "-4"})],
)
def test_every_way_of_writing(arguments: list[str], given: dict[str, str]) -> None:
    assert split_options(arguments) == given


def test_outputs_that_could_not_be_written_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    require_writable(file, "out")
    require_writable(tmp_path / "new", "out")
    for path in (tmp_path, tmp_path / "a" / "b"):
        require_writable(path, "out", directory=True)
    wrong = ((tmp_path, False), (tmp_path / "a" / "b", False), (file / "a", False), (file, True), (file / "a" / "b", True))
    for path, directory in wrong:
        with refused("out", "cannot be written"):
            require_writable(path, "out", directory=directory)


def test_few_choices_are_listed_and_of_many_the_closest_is_named() -> None:
    few, many = ["red", "green"], [f"colour_{i}" for i in range(21)]
    assert choose("colour", "red", few) == "red"
    for name, choices, said in (("rod", few, "red, green"), ("color_12", many, "'colour_12'"), ("x", many, "colour_1,")):
        with refused("colour", repr(name), said):
            choose("colour", name, choices)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("layers", "7", 7),
        ("layers", 7, 7),
        ("name", "null", None),
        ("name", "7", "7"),
        ("shape", "4,5", (4, 5)),
        ("shape", "[4, 5]", (4, 5)),
        ("shape", [4, 5], (4, 5)),
        ("path", "é\n", "é\n"),
    ],
)
def test_values_are_typed(name: str, value: Any, found: Any) -> None:
    assert made(**{"path": "x", name: value})[name] == found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("colour", "green"),
        ("colour", None),
        ("shape", "3"),
        ("layers", "many"),
        ("layers", [3]),
        ("layers", True),
        ("name", date(2020, 1, 1)),
        ("laiers", 3),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(name: str, value: Any) -> None:
    with refused(name):
        made(**{"path": "x", name: value})


def test_what_has_no_default_must_be_given() -> None:
    with refused("path"):
        made()


OWNERS: dict[str, Callable[..., Any]] = {
    **{f"plan of {name}": system.plan for name, system in SYSTEMS.items()},
    **{f"config of {name}": system.config for name, system in SYSTEMS.items()},
    **{f"{kind} {name}": loader.options for kind, own in KINDS.items() for name, loader in own.loaders.items()},
    "runtime": Runtime,
    "audit": AuditOptions,
}


@pytest.mark.parametrize("name", list(OWNERS))
def test_every_option_has_its_entry_in_a_docstring(name: str) -> None:
    found = meanings(OWNERS[name])
    assert [key for key in keys(OWNERS[name]) if not found.get(key)] == []


def test_no_two_blocks_of_a_run_have_an_option_of_the_same_name() -> None:
    for system in SYSTEMS.values():
        for loader in loaders(system.kinds).values():
            names = [name for source in (system.plan, system.config, loader.options, Runtime) for name in keys(source)]
            assert len(names) == len(set(names))
