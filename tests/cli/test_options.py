"""Options: what is typed arrives with its type, and what is wrong is said in one line that says what is allowed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

import pytest

from dpgen.cli.jobs import parse_job
from dpgen.cli.options import (
    blocks_of,
    choose,
    expected,
    full_name,
    full_names,
    hints,
    read_yaml,
    require_writable,
    split_options,
    typed,
)
from dpgen.data.loaders import LOADERS, loaders
from dpgen.runtime import Runtime
from dpgen.systems.registry import SYSTEMS


@dataclass
class Paint:
    """A class of options."""

    colour: Literal["red", "blue"] = "red"
    layers: int = 1
    name: str | None = None


@dataclass
class Nothing:
    """No options."""


def load(path: str, *, shape: tuple[int, int] | None = None, depth: int = 2) -> None:
    """A function of options."""


SOURCES = {"paint": Paint, "data": load, "rest": Nothing}


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ([], {}),
        (["--a", "1", "--b-c=2=3"], {"a": "1", "b_c": "2=3"}),
        (["--a", "--b", "-4"], {"a": "true", "b": "-4"}),
    ],
)
def test_every_way_of_writing(arguments: list[str], given: dict[str, str]) -> None:
    assert split_options(arguments) == given


@pytest.mark.parametrize("argument", ["a", "-a", "--"])
def test_what_is_no_option_is_refused(argument: str) -> None:
    with pytest.raises(ValueError, match=f"unexpected argument '{argument}': options are written --key value"):
        split_options([argument])


@pytest.mark.parametrize("arguments", [["--a-b=1", "--a_b=1"], ["--a_b", "1", "--c", "--a_b", "2"]])
def test_an_option_that_is_given_twice_is_refused(arguments: list[str]) -> None:
    with pytest.raises(ValueError, match=r"^a_b is given twice$"):
        split_options(arguments)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"a: {b: 1, c: 2, b: 3}", "c.yaml' is not valid YAML: b is given twice$"),
        (b"a: [1", "c.yaml' is not valid YAML: while parsing"),
        (b"\xff\xfe", "c.yaml' is not valid YAML: .*decode"),
        (b"a: 2020-13-45", "c.yaml' is not valid YAML: month must be"),
        (b"[" * 5000, "c.yaml' is not valid YAML"),
    ],
    ids=["twice", "broken", "no text", "no date", "deep"],
)
def test_a_file_that_is_no_yaml_is_refused_in_one_line(content: bytes, match: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(content)
    with pytest.raises(ValueError, match=match) as raised:
        read_yaml(tmp_path / "c.yaml", "config file")
    assert "\n" not in str(raised.value)


def test_yaml_is_read() -> None:
    root = Path(__file__).parents[2] / "configs"
    assert all(isinstance(read_yaml(path, "file"), dict) for path in root.glob("*.yaml"))
    with pytest.raises(ValueError, match=r"^file 'absent\.yaml' does not exist$"):
        read_yaml(Path("absent.yaml"), "file")


def test_outputs_that_could_not_be_written_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    require_writable(file, "out")
    require_writable(tmp_path / "new", "out")
    for path in (tmp_path, tmp_path / "a" / "b"):
        require_writable(path, "out", directory=True)
    for path, directory, match in (
        (tmp_path, False, "it is a directory"),
        (tmp_path / "a" / "b", False, "there is no directory"),
        (file / "a", False, "there is no directory"),
        (file, True, "file is no directory"),
        (file / "a" / "b", True, "file is no directory"),
    ):
        with pytest.raises(ValueError, match=f"^out .* cannot be written: .*{match}"):
            require_writable(path, "out", directory=directory)


def test_few_choices_are_listed_and_of_many_the_closest_is_named() -> None:
    few, many = ["red", "green"], [f"colour_{i}" for i in range(21)]
    assert choose("colour", "red", few) == "red"
    with pytest.raises(ValueError, match=r"^colour must be one of red, green, got 'rod' \(did you mean 'red'\?\)$"):
        choose("colour", "rod", few)
    with pytest.raises(ValueError, match=r"^unknown colour 'color_12': did you mean 'colour_12'\? see --help$"):
        choose("colour", "color_12", many)
    with pytest.raises(ValueError, match=r"^colour must be one of colour_0, .*colour_20, got 'x'$"):
        choose("colour", "x", many)


def test_full_names() -> None:
    assert full_name("colour", SOURCES) == full_name("paint.colour", SOURCES) == "paint.colour"
    assert blocks_of(SOURCES) == {
        "colour": "paint",
        "layers": "paint",
        "name": "paint",
        **dict.fromkeys(("path", "shape", "depth"), "data"),
    }
    with pytest.raises(ValueError, match=r"'colour' is in the blocks paint and again: one of the two needs another name"):
        full_name("colour", {"paint": Paint, "again": Paint})
    with pytest.raises(ValueError, match="block must be one of paint, data, rest, got 'pant'"):
        full_name("pant.colour", SOURCES)
    with pytest.raises(ValueError, match=r"option must be one of .*, got 'modle' \(did you mean 'model'"):
        full_name("modle", SOURCES, also={"model"})
    with pytest.raises(ValueError, match="option 'model' has no place here"):
        full_name("model", SOURCES, also={"model"})
    assert full_names({"colour": "red", "paint.layers": "2"}, SOURCES) == {"paint.colour": "red", "paint.layers": "2"}
    with pytest.raises(ValueError, match=r"^colour is given twice: --colour and --paint\.colour$"):
        full_names({"colour": "red", "paint.colour": "red"}, SOURCES)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--path=a.csv"], r"^path is no option of --data digits; it is one of --data .*csv, parquet"),
        (
            ["--model=marginals", "--prior_floor=1"],
            "^prior_floor is no option of --model marginals; it is one of --model minimax",
        ),
        (["--model=randomized_response", "--reference_path=a"], "it is one of --model mbde, minimax, mollifier"),
    ],
)
def test_options_of_other_data_and_systems_say_where_they_belong(arguments: list[str], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        parse_job(arguments)


def test_given_values_win_over_stored_ones_and_all_are_typed() -> None:
    stored = {"paint": {"layers": 3, "name": "x"}, "data": {"path": "there", "shape": [4, 5]}}
    made, settings = typed(SOURCES, {"paint.layers": "7", "paint.name": "null"}, stored)
    assert made["paint"] == Paint(layers=7)
    assert made["data"] == {"path": "there", "shape": (4, 5), "depth": 2}
    assert made["rest"] == Nothing()
    assert settings["paint"] == {"colour": "red", "layers": 7, "name": None}
    assert typed(SOURCES, {}, settings).made == made


@pytest.mark.parametrize(
    ("given", "stored", "match"),
    [
        ({"paint.colour": "green"}, {}, "^colour must be one of red, blue, got 'green'$"),
        ({"data.shape": "3"}, {}, "^shape must be 2 whole numbers as in a,b or null, got '3'$"),
        ({"paint.layers": "many"}, {}, r"^layers must be a whole number, got 'many'$"),
        ({}, {"paint": {"layers": [3]}}, r"^layers must be a whole number, got \[3\]$"),
        ({}, {"paint": {"colour": None}}, r"^paint\.colour is null; it needs a value$"),
        ({}, {"paint": {"name": date(2020, 1, 1)}}, r"^paint\.name is '2020-01-01'; it must be made of numbers, texts"),
        ({}, {"paint": {"color": "red"}}, "option of paint must be one of colour, .*did you mean 'colour'"),
        ({}, {"data": {}}, "^path must be given$"),
    ],
)
def test_what_is_wrong_is_said_in_words(given: dict[str, str], stored: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        typed(SOURCES, given, {"data": {"path": "x"}} | stored)


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (float | Literal["auto"] | None, "a number or one of auto or null"),
        (list[str] | str, "texts as in a,b or a text"),
        (list[list[float]] | str, "lists of numbers as in a,b or a text"),
        (list[str | float], "texts or numbers as in a,b"),
        (tuple[int, ...], "whole numbers as in a,b"),
        (Mapping[str, float] | None, "a mapping of names to numbers or null"),
        (Path | None, "a path or null"),
        (bool, "true or false"),
    ],
)
def test_types_in_words(hint: Any, words: str) -> None:
    assert expected(hint) == words


def test_every_type_that_an_option_has_is_put_in_words() -> None:
    sources = [Runtime, *(source for system in SYSTEMS.values() for source in (system.plan, system.config))]
    sources += [loader.options for named in LOADERS.values() for loader in named.values()]
    for source in sources:
        for name, hint in hints(source).items():
            assert name == "return" or not set("<>[]") & set(expected(hint)), name


def test_no_two_blocks_of_a_run_have_an_option_of_the_same_name() -> None:
    for system in SYSTEMS.values():
        for loader in loaders(system.kinds).values():
            blocks_of({"privacy": system.plan, "model": system.config, "data": loader.options, "runtime": Runtime})
