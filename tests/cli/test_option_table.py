"""The table of options: every option with its default, its choices and what it means."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from dpgen.auditing import AuditOptions
from dpgen.cli.options import FIRST, HIDDEN, entries, first_sentence, keys, option_table
from dpgen.data import LOADERS
from dpgen.runtime import Runtime
from dpgen.systems.registry import SYSTEMS

SOURCES: dict[str, Callable[..., Any]] = {
    **{f"plan of {name}": system.plan for name, system in SYSTEMS.items()},
    **{f"config of {name}": system.config for name, system in SYSTEMS.items()},
    **{f"{kind} {name}": loader.options for kind, named in LOADERS.items() for name, loader in named.items()},
    "runtime": Runtime,
    "audit": AuditOptions,
}


@pytest.mark.parametrize("name", list(SOURCES))
def test_every_option_has_its_entry_in_a_docstring(name: str) -> None:
    found = entries(SOURCES[name])
    assert [key for key in keys(SOURCES[name]) if not found.get(key)] == []


@dataclass(kw_only=True)
class Base:
    """What all have.

    Arguments:
        size: of everything. None: the
            usual one.
        share: in (0, 1).
    """

    size: int | None = None
    share: float = 0.5


@dataclass(kw_only=True)
class Own(Base):
    """Some have more.

    Arguments:
        kind: what it is.
        form: "round" or "square".
        loggers: from Python.
    """

    kind: Literal["a", "b"]
    form: Literal["round", "square"] = "round"
    loggers: tuple[Any, ...] = ()
    share: float = 0.25


def load(*, part: float = 0.1, path: str = "x") -> None:
    """Loads.

    Arguments:
        path: to read.
    """


@pytest.mark.parametrize("name", list(SYSTEMS))
def test_a_plan_begins_with_its_budget(name: str) -> None:
    lines = option_table({"plan": "privacy"}, {"plan": SYSTEMS[name].plan})
    known = [line.split()[0].removeprefix("--") for line in lines[2:]]
    first = [key for key in FIRST if key in known]
    assert known[: len(first)] == first
    assert first[0] == "epsilon"


def test_the_table() -> None:
    lines = option_table({"model": "model own", "data": "data x"}, {"model": Own, "data": load}, {"model": {"size": 3}})
    assert lines == [
        "",
        "model own:",
        "  --kind               required     a, b: what it is",
        '  --form               round        "round" or "square"',
        "  --share              0.25         in (0, 1)",
        "  --size               3            of everything",
        "",
        "data x:",
        "  --part               0.1",
        "  --path               x            to read",
    ]


def test_what_no_command_line_can_give_is_not_shown() -> None:
    text = "\n".join(option_table({"runtime": "runtime"}, {"runtime": Runtime}))
    assert "--run_dir            null         directory of the run; null: " in text
    assert all(name in keys(Runtime) and f"--{name} " not in text for name in HIDDEN)


@pytest.mark.parametrize(
    ("text", "first"),
    [("One. Two.", "One"), ("one, i.e. two.", "one, i.e. two"), ("in [0, 1.5]", "in [0, 1.5]"), ("", ""), ("A. B", "A")],
)
def test_first_sentences(text: str, first: str) -> None:
    assert first_sentence(text) == first
