"""Options in a table for people: name, default, choices and meaning, read from signatures and docstrings."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from docstring_parser import DocstringStyle, parse

from dpgen.options import Sources, hints, owners

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
            shown = key if len(owners(key, sources)) == 1 else f"{block}.{key}"
            default = _text(changed.get(key, parameter.default))
            meaning = first_sentence(meanings.get(key, "")).replace("None", "null")  # as a command line writes it
            meaning = _with_choices(meaning, hints(sources[block])[key])
            lines.append(f"  --{shown:<18} {default:<12} {meaning}".rstrip())
    return lines


def entries(source: Callable[..., Any]) -> dict[str, str]:
    """What docstrings say about each argument, those of base classes included."""
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
    """Arguments that a command line shows, a class's own before those of its bases."""
    signature = inspect.signature(source).parameters
    own = [name for name in vars(source).get("__annotations__", {}) if name in signature] if inspect.isclass(source) else []
    names = dict.fromkeys([*own, *signature])
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
