"""Options of dataclasses and functions: their table for `--help`, and typed values from `--key value` and YAML blocks."""

import inspect
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import yaml
from docstring_parser import DocstringStyle, parse
from jsonargparse import ArgumentError, ArgumentParser

# -- option table ------------------------------------------------------------------------------------------------------


Sources = Mapping[str, Callable[..., Any]]
"""The owner of each block of options: a class or a function, whose arguments are the options."""


FIRST = ("epsilon", "delta", "relation")
"""Options that a table begins with, in whichever class they stand."""

HIDDEN = ("loggers",)
"""Options for Python alone: no command line can write their values."""


def option_table(
    titles: Mapping[str, str], sources: Sources, defaults: Mapping[str, Mapping[str, Any]] | None = None
) -> list[str]:
    """Lines with all options of some blocks.

    Arguments:
        titles: of the blocks.
        sources: what each block's options belong to.
        defaults: by block and key, values that stand for the defaults of the code.
    """
    lines = []
    for block, title in titles.items():
        lines += ["", f"{title}:"]
        changed, meanings = (defaults or {}).get(block, {}), entries(sources[block])
        for parameter in _parameters(sources[block]):
            key = parameter.name
            default = _text(changed.get(key, parameter.default))
            meaning = first_sentence(meanings.get(key, "")).replace("None", "null")  # as a command line writes it
            meaning = _with_choices(meaning, hints(sources[block])[key])
            lines.append(f"  --{key:<18} {default:<12} {meaning}".rstrip())
    return lines


def entries(source: Callable[..., Any]) -> dict[str, str]:
    """Entries of the docstring for each argument, those of base classes included."""
    found: dict[str, str] = {}
    for owner in reversed(inspect.getmro(source)) if inspect.isclass(source) else (source,):
        entry = parse(owner.__doc__ or "", style=DocstringStyle.GOOGLE)
        found |= {p.arg_name: " ".join((p.description or "").split()) for p in entry.params if p.args[0] == "param"}
    return found


def first_sentence(text: str) -> str:
    """A text up to its first full stop that ends a sentence.

    >>> first_sentence("rows, e.g. of a table; None: all. The rest is public.")
    'rows, e.g. of a table; None: all'
    """
    for end, character in enumerate(text):
        if character == "." and (text[end + 1 :] == "" or (text[end + 1 : end + 2] == " " and text[end + 2].isupper())):
            return text[:end]
    return text


def _parameters(source: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    """Arguments that a command line shows: those of `FIRST`, then a class's own before those of its bases."""
    signature = inspect.signature(source).parameters
    own = vars(source).get("__annotations__", {}) if inspect.isclass(source) else {}
    names = dict.fromkeys(name for name in (*FIRST, *own, *signature) if name in signature)
    return (signature[name] for name in names if name not in HIDDEN)


def _text(default: Any) -> str:
    if default is inspect.Parameter.empty:
        return "required"
    return default if isinstance(default, str) else json.dumps(default, default=str)


def _with_choices(meaning: str, hint: Any) -> str:
    """The meaning, after the choices of a literal that it does not name itself."""
    kinds = [kind for kind in (hint, *get_args(hint)) if get_origin(kind) is Literal]
    choices = [str(choice) for kind in kinds for choice in get_args(kind)]
    if not choices or all(f'"{choice}"' in meaning for choice in choices):
        return meaning
    return f"{', '.join(choices)}: {meaning}" if meaning else ", ".join(choices)


# -- options -----------------------------------------------------------------------------------------------------------


_MOST_LISTED = 20  # choices in an error that can guess what was meant
_KINDS = {
    float: ("a number", "numbers"),
    int: ("a whole number", "whole numbers"),
    bool: ("true or false", "true or false"),
    str: ("a text", "texts"),
    Path: ("a path", "paths"),
    NoneType: ("null", "null"),
    Any: ("a value", "values"),
}


_WARM = "no network was better than the release that it began at, so warm starts were removed"
REMOVED = dict.fromkeys(("warm_start", "warm_start_steps", "warm_start_origin", "warm_start_keep", "start_multiplier"), _WARM)
_OWN_FILES = "papers/data.py reads it for the papers' figures; a table of your own is read by"
REMOVED |= dict.fromkeys(("avazu", "movielens"), f"{_OWN_FILES} --data events")
REMOVED |= dict.fromkeys(("cms", "higgs", "digits_pca"), f"{_OWN_FILES} --data csv, parquet or npy")
REMOVED |= {"call_detail": f"{_OWN_FILES} --data sets or sparse"}
"""What to do instead of options that were removed or renamed, in a sentence, by their names."""


class _Flag(str):
    """The text "true" of an option that was written without a value."""


def split_options(arguments: Sequence[str]) -> dict[str, str]:
    """`--key value`, `--key=value` and `--flag` as a dictionary.

    >>> split_options(["--model", "dpgm", "--sampling-rate=0.1", "--private_logs"])
    {'model': 'dpgm', 'sampling_rate': '0.1', 'private_logs': 'true'}

    Raises:
        ValueError: something that is no option, or an option that is given twice.
    """
    given: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        token = rest.pop(0)
        if not token.startswith("--") or token == "--":
            raise ValueError(f"unexpected argument {token!r}: options are written --key value")
        key, equals, value = token[2:].partition("=")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else _Flag("true")
        key = key.replace("-", "_")
        if key in given:
            raise ValueError(f"{key} is given twice")
        given[key] = value
    return given


def as_argument(key: str, value: str) -> str:
    """An option as one argument, without a value where it had none."""
    return f"--{key}" if isinstance(value, _Flag) else f"--{key}={value}"


def require_value(key: str, value: Any) -> None:
    """Refuse an option that was written without its value.

    Raises:
        ValueError: naming it.
    """
    if isinstance(value, _Flag):
        raise ValueError(f"{key} has no value; write --{key} VALUE")


def list_items(text: str) -> list[str]:
    """The items of a list as a command line writes it, separated by commas; those in brackets are items of their items.

    >>> list_items("1,2"), list_items("[a,b],[c]")
    (['1', '2'], ['[a,b]', '[c]'])
    """
    items, depth = [""], 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0:
            items.append("")
        else:
            items[-1] += character
    return [item.strip() for item in items]


class _Loader(yaml.SafeLoader):
    """Refuses a key that a mapping gives twice."""

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node] | None) -> yaml.MappingNode | None:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value if node is not None else ():
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.YAMLError(f"{key.value} is given twice")
                seen.add(key.value)
        return node


def read_yaml(path: Path, what: str) -> Any:
    """Content of a YAML file, which errors call `what`.

    Raises:
        ValueError: there is no such file, it is not YAML in UTF-8, or a mapping in it gives a key twice.
    """
    if not path.is_file():
        raise ValueError(f"{what} {str(path)!r} {'is a folder' if path.is_dir() else 'does not exist'}")
    try:
        return yaml.load(path.read_bytes().decode(), _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"{what} {str(path)!r} is not valid YAML: {' '.join(str(error).split())}") from error


def require_writable(path: Path, name: str, *, directory: bool = False) -> None:
    """Refuse an output that could not be written after the work: a file, or a directory with all above it.

    Raises:
        ValueError: naming the option `name`.
    """
    target = path if directory else path.parent
    above = next((place for place in (target, *target.parents) if place.exists()), target)
    if not directory and (path.is_dir() or not target.is_dir()):
        problem = "it is a directory" if path.is_dir() else f"there is no directory {target}"
    elif not above.is_dir():
        problem = f"{above} is no directory"
    elif not os.access(above, os.W_OK | os.X_OK):
        problem = f"nothing can be written in {above}"
    else:
        return
    raise ValueError(f"{name} {str(path)!r} cannot be written: {problem}")


def choose(what: str, name: str, choices: Sequence[str]) -> str:
    """`name`, if it is one of `choices`; else a ValueError that guesses what was meant, and lists them where they are few."""
    require_value(what, name)
    if name in choices:
        return name
    if str(name) in REMOVED:
        raise ValueError(f"{name} is no {what} any more: {REMOVED[name]}")
    close = get_close_matches(str(name), choices, n=1)
    if close and len(choices) > _MOST_LISTED:
        raise ValueError(f"unknown {what} {name!r}: did you mean {close[0]!r}? see --help")
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise ValueError(f"{what} must be one of {', '.join(choices)}, got {name!r}{hint}")


def keys(source: Callable[..., Any]) -> list[str]:
    """Names of the options of a class or a function."""
    return list(inspect.signature(source).parameters)


def blocks_of(sources: Sources) -> dict[str, str]:
    """The block of every option, by the option's name.

    Raises:
        ValueError: two blocks have an option of the same name.
    """
    found: dict[str, str] = {}
    for block, source in sources.items():
        for key in keys(source):
            if key in found:
                raise ValueError(f"option {key!r} is in the blocks {found[key]} and {block}: one of the two needs another name")
            found[key] = block
    return found


def full_name(key: str, sources: Sources, *, also: Iterable[str] = ()) -> str:
    """`block.key` of an option that may have been given without its block.

    Raises:
        ValueError: no block has it; `also` are names that may have been meant beside those of the blocks.
    """
    block, dot, name = key.partition(".")
    if dot:
        return f"{choose('block', block, list(sources))}.{choose(f'option of {block}', name, keys(sources[block]))}"
    blocks = blocks_of(sources)
    if key not in blocks:
        choose("option", key, sorted({*blocks, *also}))
        raise ValueError(f"option {key!r} has no place here")
    return f"{blocks[key]}.{key}"


def full_names(given: Mapping[str, str], sources: Sources, *, also: Iterable[str] = ()) -> dict[str, str]:
    """Values by `full_name`.

    Raises:
        ValueError: as `full_name`, or two of the names are one option's.
    """
    spelt: dict[str, str] = {}
    for key in given:
        name = full_name(key, sources, also=also)
        if name in spelt:
            raise ValueError(f"{name.partition('.')[2]} is given twice: --{spelt[name]} and --{key}")
        spelt[name] = key
    return {name: given[key] for name, key in spelt.items()}


def plain(name: str, value: Any) -> Any:
    """A value of Python as a file of settings would hold it: arrays as lists, paths as texts, classes as import paths.

    >>> plain("bounds", ((0, 1.0),)), plain("path", Path("a.csv"))
    ([[0, 1.0]], 'a.csv')

    Raises:
        ValueError: a value that no such file can hold.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(name, item) for item in value]
    if isinstance(value, dict):
        return {key: plain(name, item) for key, item in value.items()}
    if isinstance(value, Path):
        return str(value)
    if name == "network" and value is not None and not isinstance(value, str):
        from dpgen.nets.own import import_path  # here, because reading a command line needs no torch

        return import_path(value)
    _require_json(name, value)
    return value


class Typed(NamedTuple):
    """Checked options: `made`, by block, an instance of a class or the keyword arguments of a function; `settings`, as YAML."""

    made: dict[str, Any]
    settings: dict[str, dict[str, Any]]


def typed(sources: Sources, given: Mapping[str, str], stored: Mapping[str, Mapping[str, Any]] | None = None) -> Typed:
    """Options with the types that their blocks ask for.

    Arguments:
        sources: by block, what the options belong to.
        given: values as text, by `block.key`; they win over `stored`.
        stored: values from a file, by block and key.

    Raises:
        ValueError: in one line, what is wrong and what is allowed.
    """
    kept: dict[str, dict[str, Any]] = {}
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--config", action="config")
    for block, source in sources.items():
        (parser.add_class_arguments if inspect.isclass(source) else parser.add_function_arguments)(source, block)
        inside = dict((stored or {}).get(block, {}))
        for key, value in inside.items():
            choose(f"option of {block}", key, keys(source))
            if value is None and not _optional(source, key):
                raise ValueError(f"{block}.{key} is null; it needs a value")
            _require_json(f"{block}.{key}", value)
        kept[block] = {key: value for key, value in inside.items() if f"{block}.{key}" not in given}
    spelt = {}
    for name, text in given.items():
        block, _, key = name.partition(".")
        hint = hints(sources[block])[key]
        if bool not in (hint, *get_args(hint)):
            require_value(key, text)
        spelt[name] = _listed(text, hint)
    texts = [json.dumps({block: inside for block, inside in kept.items() if inside}), *(f"--{k}={v}" for k, v in spelt.items())]
    try:
        parsed = parser.parse_args(["--config", *texts])
        ready = parser.instantiate(parsed)
    except ArgumentError as error:
        values = {f"{block}.{key}": value for block, inside in kept.items() for key, value in inside.items()} | dict(given)
        raise ValueError(_refusal(" ".join(str(error).split()), sources, values)) from error
    made: dict[str, Any] = {}
    for block, source in sources.items():
        if inspect.isclass(source):
            made[block] = ready[block] if block in ready else source()  # jsonargparse knows no block without options
        else:
            made[block] = ready[block].as_dict() if block in ready else {}
    settings = {b: json.loads(json.dumps(parsed[b].as_dict() if b in parsed else {}, default=str)) for b in sources}
    return Typed(made, settings)


def _listed(text: str, hint: Any) -> str:
    """A text as jsonargparse reads it: `1,2,3` is a list where the option takes one; brackets may stand around it.

    >>> _listed("8,8", tuple[int, int] | None), _listed("[8, 8]", tuple[int, int]), _listed("[0,1],[0,1]", list[list[float]])
    ('[8,8]', '[8, 8]', '[[0,1],[0,1]]')
    >>> _listed("a,b", list[str] | str), _listed("a", list[str] | str), _listed("null", list[str] | None), _listed("a,b", str)
    ('[a,b]', 'a', 'null', 'a,b')
    """
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if not any(get_origin(kind) in (list, tuple) for kind in kinds):
        return text
    single = len(list_items(text)) == 1 and (text[:1] in ("[", "{") or any(kind in (str, float, int) for kind in kinds))
    return text if single or text == "null" else f"[{text}]"


def _require_json(name: str, value: Any) -> None:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{name} is {str(value)!r}; it must be made of numbers, texts, lists and mappings") from error


_NOT_FINITE = re.compile(r"[+-]?\.?(nan|inf|infinity)", re.IGNORECASE)


def _refusal(text: str, sources: Sources, values: Mapping[str, Any]) -> str:
    """An error of jsonargparse in one line: name, what is allowed and value."""
    if found := re.search(r'Parser key "(\w+)\.(\w+)', text):
        block, key = found.groups()
        if _NOT_FINITE.fullmatch(str(values.get(f"{block}.{key}"))):
            return f"{key} is {values[f'{block}.{key}']}; it must be finite"
        return f"{key} must be {expected(hints(sources[block])[key])}, got {values.get(f'{block}.{key}')!r}"
    if found := re.search(r"arguments are required: (.+)", text):
        return f"{' and '.join(name.rpartition('.')[2] for name in found[1].split(', '))} must be given"
    return text


def expected(hint: Any, *, several: bool = False) -> str:
    """Values of this type, in words.

    >>> expected(float | None), expected(Literal["vae", "rbm"]), expected(tuple[int, int])
    ('a number or null', 'one of vae, rbm', '2 whole numbers as in a,b')
    """
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(expected(kind, several=several) for kind in inside)
    if origin is Literal:
        return f"one of {', '.join(map(str, inside))}"
    if origin is tuple and Ellipsis not in inside:
        return f"{len(inside)} {expected(inside[0], several=True)} as in {','.join('abcdefgh'[: len(inside)])}"
    if origin in (tuple, list):
        return f"{'lists of ' * several}{expected(inside[0], several=True)}{'' if several else ' as in a,b'}"
    if inside:
        return f"a mapping of names to {expected(inside[-1], several=True)}"
    return _KINDS[hint][several] if hint in _KINDS else str(hint)


def hints(source: Callable[..., Any]) -> dict[str, Any]:
    """Types of the options of a class or a function."""
    return get_type_hints(source.__init__ if inspect.isclass(source) else source)


def _optional(source: Callable[..., Any], key: str) -> bool:
    """Whether an option may be null."""
    hint = hints(source).get(key)
    return NoneType in get_args(hint) or hint is Any
