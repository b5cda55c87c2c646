"""Options of dataclasses and functions: from command lines, YAML and keywords, typed by jsonargparse, refused in one line."""

import inspect
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import yaml
from docstring_parser import DocstringStyle, parse
from jsonargparse import ArgumentError, ArgumentParser

Sources = Mapping[str, Callable[..., Any]]
"""The owner of each block of options: a class or a function, whose arguments are the options."""

BLOCKS = ("privacy", "model", "data", "runtime")
"""The blocks of a file of settings."""

FIRST = ("epsilon", "delta", "relation")
"""Options that the help of a block begins with."""

_MOST_LISTED = 20  # choices in an error that can guess what was meant

_GONE = """
warm_start warm_start_steps warm_start_origin warm_start_keep start_multiplier critic critic_hidden critic_depth critics loss
weight_clip schedule chain_length training composition published_noise report_only levels sweep
sweep_jobs sweep_dir sweep_select sweep_runs sweep_noise sweep_epsilon sweep_number avazu movielens cms higgs
digits_pca call_detail codec clip covariance whitening fill shares lr_decay strategy compile logger loggers
label_weight gibbs_steps chains init public_records private_logs tries only_group split_column
ledger_epsilon ledger_delta sampler from_private_values sql_sets prescriptions reference_column prior_epsilon calibration
show_values modes variance pieces ways total_share pairs replays column_shares momentum prior_floor density_bounds
group_size iterations postprocess set_column item_column random_gaussians
"""
REMOVED = frozenset(_GONE.split())
"""Names of options and data sets that 0.4 had; CHANGELOG.md says what to use instead."""

RENAMED = {"rows_per_unit": "max_contributions", "encoder": "component"} | dict.fromkeys(("source", "table"), "path")
RENAMED |= {"people_source": "people_path", "sigma_sgd": "noise_multiplier"}
"""Options that have another name now."""


class _Flag(str):
    """The text "true" of an option that was written without a value."""


def _placed(text: str) -> tuple[str, str]:
    """The option and the value of BLOCK.OPTION=VALUE."""
    place, equals, value = text.partition("=")
    block, _, key = place.partition(".")
    if not (equals and key):
        raise ValueError(f"set is {place!r}; it must be BLOCK.OPTION=VALUE, as in --set privacy.epsilon=1")
    choose("block", block, BLOCKS)
    return block if key == "name" else key, value


def split_options(arguments: Sequence[str]) -> dict[str, str]:
    """`--key value`, `--key=value`, `--set block.key=value` and `--flag` as a dictionary.

    >>> split_options(["--model", "dpgm", "--sampling-rate=0.1", "--progress_bar", "--set", "model.k=3"])
    {'model': 'dpgm', 'sampling_rate': '0.1', 'progress_bar': 'true', 'k': '3'}
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
        if key == "set":  # no two blocks have options of one name, so the block only says where the option stands in a file
            require_value(key, value)
            key, value = _placed(value)
        elif "." in key:
            raise ValueError(f"{key} is no option by itself; write --set {key}=VALUE")
        key = key.replace("-", "_")
        if key in given:
            raise ValueError(f"{key} is given twice")
        given[key] = value
    return given


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
    """Content of a YAML file, which errors call `what`."""
    if not path.is_file():
        raise ValueError(f"{what} {str(path)!r} {'is a folder' if path.is_dir() else 'does not exist'}")
    try:
        return yaml.load(path.read_bytes().decode(), _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"{what} {str(path)!r} is not valid YAML: {' '.join(str(error).split())}") from error


def require_value(key: str, value: Any) -> None:
    """Refuse an option that was written without its value."""
    if isinstance(value, _Flag):
        raise ValueError(f"{key} has no value; write --{key} VALUE")


def choose(what: str, name: str, choices: Sequence[str]) -> str:
    """`name`, if it is one of `choices`; else a ValueError that guesses what was meant, and lists them where they are few."""
    require_value(what, name)
    if name in choices:
        return name
    if RENAMED.get(str(name)) in choices:
        raise ValueError(f"{name} is {RENAMED[name]} now")
    if str(name) in REMOVED:
        raise ValueError(f"{name} is no {what} any more: CHANGELOG.md says what to use instead")
    close = get_close_matches(str(name), choices, n=1)
    if close and len(choices) > _MOST_LISTED:
        raise ValueError(f"unknown {what} {name!r}: did you mean {close[0]!r}? see --help")
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise ValueError(f"{what} must be one of {', '.join(choices)}, got {name!r}{hint}")


def require_writable(path: Path, name: str, *, directory: bool = False) -> None:
    """Refuse an output that could not be written after the work: a file, or a directory with all above it."""
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


def parameters(source: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Options of a class or a function, by name; fields of a plan that are `CALIBRATED` are none."""
    decided = {own.name for own in fields(source) if own.metadata.get("calibrated")} if is_dataclass(source) else set()
    return {name: entry for name, entry in inspect.signature(source).parameters.items() if name not in decided}


def keys(source: Callable[..., Any]) -> list[str]:
    """Names of the options of a class or a function."""
    return list(parameters(source))


def hints(source: Callable[..., Any]) -> dict[str, Any]:
    """Types of the options of a class, whose fields each base names by the imports of its own module, or of a function."""
    found = get_type_hints(source.__init__) if inspect.isclass(source) and not is_dataclass(source) else get_type_hints(source)
    return {name: hint for name, hint in found.items() if name in parameters(source)}


def meanings(source: Callable[..., Any]) -> dict[str, str]:
    """Entries of the docstring for each option, those of base classes included."""
    found: dict[str, str] = {}
    for owner in reversed(inspect.getmro(source)) if inspect.isclass(source) else (source,):
        entry = parse(owner.__doc__ or "", style=DocstringStyle.GOOGLE)
        found |= {p.arg_name: " ".join((p.description or "").split()) for p in entry.params if p.args[0] == "param"}
    return found


def help_text(sources: Sources, *, defaults: Mapping[str, Any] | None = None, **about: Any) -> str:
    """Help of a command on the options of sources by title; `defaults` stand for those of the code, `about` is argparse's."""
    parser = ArgumentParser(add_help=False, **about)
    for title, source in sources.items():
        group, types, texts = parser.add_argument_group(title), hints(source), meanings(source)
        for name, entry in sorted(parameters(source).items(), key=lambda item: item[0] not in FIRST):
            required = entry.default is inspect.Parameter.empty
            default = (defaults or {}).get(name, None if required else entry.default)
            group.add_argument(f"--{name}", type=types[name], default=default, help=texts.get(name, "").replace("%", "%%"))
    return parser.format_help().rstrip()


def by_block(sources: Sources, given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The given options of each block; no two blocks have options of one name."""
    block_of = {name: block for block, source in sources.items() for name in keys(source)}
    for name in given:
        choose("option", name, sorted(block_of))
    return {block: {name: value for name, value in given.items() if block_of[name] == block} for block in sources}


def typed(source: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of all options of a class or a function, with the types that it asks for; wrong ones are refused in one line.

    Values are given as texts of a command line or as a file or Python gives them.
    """
    known, types = parameters(source), hints(source)
    for name, value in given.items():
        choose("option", name, sorted(types))
        _require_json(name, value)
        if bool not in (types[name], *get_args(types[name])):
            require_value(name, value)
    if absent := [name for name, entry in known.items() if entry.default is entry.empty and name not in given]:
        raise ValueError(f"{' and '.join(absent)} must be given")
    return {n: _typed(n, given[n], types[n]) if n in given else entry.default for n, entry in known.items()}


def _typed(name: str, value: Any, hint: Any) -> Any:
    """One value, of the type of its option."""
    if value is None and hint is not Any and NoneType not in get_args(hint):
        raise ValueError(f"{name} is null; it needs a value")
    parser, plain_value = ArgumentParser(exit_on_error=False, add_help=False), value
    parser.add_argument(f"--{name}", type=hint)
    if isinstance(value, str):
        plain_value = _listed(value, hint)
        if value.startswith("{") and hint is not str:
            with suppress(ValueError, RecursionError):
                plain_value = json.loads(value)  # YAML has no pairs of surrogates, which JSON writes emojis as
    try:
        return parser.parse_object({name: plain_value})[name]
    except ArgumentError as error:
        wanted = hint.__name__ if isinstance(hint, type) else re.sub(r"[a-z.]+\.(?=[A-Z])", "", str(hint))
        raise ValueError(f"{name} is {value!r}; it must be {wanted}") from error


def _listed(text: str, hint: Any) -> str:
    """A text as jsonargparse reads it: `1,2,3` is a list where the option takes one; brackets may stand around it.

    >>> _listed("8,8", tuple[int, int] | None), _listed("[8, 8]", tuple[int, int]), _listed("[0,1],[0,1]", list[list[float]])
    ('[8,8]', '[8, 8]', '[[0,1],[0,1]]')
    >>> _listed("a,b", list[str] | str), _listed("a", list[str] | str), _listed("null", list[str] | None), _listed("a,b", str)
    ('[a,b]', 'a', 'null', 'a,b')
    """
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if not any(get_origin(kind) in (list, tuple) for kind in kinds):
        return str(text)
    single = len(list_items(text)) == 1 and (text[:1] in ("[", "{") or any(kind in (str, float, int) for kind in kinds))
    return str(text) if single or text == "null" else f"[{text}]"


def plain(name: str, value: Any) -> Any:
    """A value of Python as a file of settings would hold it: arrays as lists, paths as texts, classes as import paths.

    >>> plain("bounds", ((0, 1.0),)), plain("path", Path("a.csv"))
    ([[0, 1.0]], 'a.csv')
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(name, item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(name, item) for key, item in value.items()}
    if isinstance(value, Path | str):
        return str(value)
    if name == "network" and value is not None:
        from dpgen.nets.own import import_path  # here, because reading a command line needs no torch

        return import_path(value)
    _require_json(name, value)
    return value


def _require_json(name: str, value: Any) -> None:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{name} is {str(value)!r}; it must be made of numbers, texts, lists and mappings") from error
