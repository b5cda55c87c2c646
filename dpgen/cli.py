"""From a command line and a YAML file to a job: four blocks, short option names, one-line errors."""

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml
from jsonargparse import ArgumentError, ArgumentParser

from dpgen.data import LOADERS, loaders
from dpgen.runtime import Runtime
from dpgen.systems import SYSTEMS, System

BLOCKS = ("privacy", "model", "data", "runtime")
DEFAULT_MODEL = "dpgm"


@dataclass(frozen=True)
class Job:
    """Everything that a run needs, checked and typed; `settings` is its complete YAML form."""

    model: str
    data: str
    plan: Any
    config: Any
    data_options: dict[str, Any]
    runtime: Runtime
    settings: dict[str, dict[str, Any]]

    @property
    def system(self) -> System:
        return SYSTEMS[self.model]

    def load(self) -> Any:
        """Read the data, of a kind that the system works on."""
        return loaders(self.system.kinds)[self.data](**self.data_options)


def parse_job(arguments: Sequence[str], *, config_root: Path | None = None) -> Job:
    """Read a job from command-line arguments.

    `--model NAME` and `--data NAME` choose a system and a loader. Every other option is `--block.key value`, or `--key
    value` where one block alone has that key. `--config FILE` is a YAML file with the four blocks; without it
    `config_root/<model>_<data>.yaml` is the base if it exists.

    Raises:
        ValueError: in one line, what is wrong and what is allowed.
    """
    given = split_options(arguments)
    path = Path(given.pop("config")) if "config" in given else None
    blocks = _read_blocks(path) if path is not None else {}
    model = choose("model", given.pop("model", "") or blocks.get("model", {}).get("name") or DEFAULT_MODEL, list(SYSTEMS))
    known = loaders(SYSTEMS[model].kinds)
    data = choose("data", given.pop("data", "") or blocks.get("data", {}).get("name") or next(iter(known)), list(known))
    names = {"model": model, "data": data}
    base = config_root / f"{names['model']}_{names['data']}.yaml" if config_root is not None else None
    if path is None and base is not None and base.is_file():
        blocks = _read_blocks(base)
    for block, name in names.items():
        # Options in a file belong to the system or loader that the file names.
        stored = dict(blocks.get(block, {}))
        blocks[block] = stored if stored.pop("name", name) == name else {}
    sources: dict[str, Callable[..., Any]] = {
        "privacy": SYSTEMS[model].plan,
        "model": SYSTEMS[model].config,
        "data": known[data],
        "runtime": Runtime,
    }
    return _build(names, sources, blocks, given)


def split_options(arguments: Sequence[str]) -> dict[str, str]:
    """`--key value`, `--key=value` and `--flag` as a dictionary."""
    given: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        token = rest.pop(0)
        if not token.startswith("--") or token == "--":
            raise ValueError(f"unexpected argument {token!r}: options are written --key value")
        key, equals, value = token[2:].partition("=")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        given[key.replace("-", "_")] = value
    return given


def _read_blocks(path: Path) -> dict[str, dict[str, Any]]:
    if not path.is_file():
        raise ValueError(f"config file {str(path)!r} does not exist")
    try:
        blocks = yaml.safe_load(path.read_text()) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"config file {str(path)!r} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(blocks, dict) or not all(isinstance(value, dict) for value in blocks.values()):
        raise ValueError(f"config file {str(path)!r} must hold the blocks {', '.join(BLOCKS)}")
    for block in blocks:
        choose("block", block, BLOCKS)
    return blocks


def choose(what: str, name: str, choices: Sequence[str]) -> str:
    """`name`, if it is one of `choices`; else a ValueError that lists them and guesses what was meant."""
    if name not in choices:
        close = get_close_matches(str(name), choices, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"{what} must be one of {', '.join(choices)}, got {name!r}{hint}")
    return name


def _keys(source: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(source).parameters if name != "self"]


def _optional(source: Callable[..., Any], key: str) -> bool:
    """Whether an option may be null."""
    hints = get_type_hints(source.__init__ if inspect.isclass(source) else source)
    return type(None) in get_args(hints.get(key)) or hints.get(key) is Any


def full_name(key: str, sources: dict[str, Callable[..., Any]]) -> str:
    """`block.key` of an option that may have been given without its block."""
    block, dot, name = key.partition(".")
    if dot:
        return f"{choose('block', block, BLOCKS)}.{choose(f'option of {block}', name, _keys(sources[block]))}"
    owners = [block for block, source in sources.items() if key in _keys(source)]
    if not owners:
        every = sorted({name for source in sources.values() for name in _keys(source)} | {"config", "model", "data"})
        choose("option", key, every)
    if len(owners) > 1:
        raise ValueError(f"option {key!r} is ambiguous: write {' or '.join(f'--{owner}.{key}' for owner in owners)}")
    return f"{owners[0]}.{key}"


def _build(
    names: dict[str, str],
    sources: dict[str, Callable[..., Any]],
    blocks: dict[str, dict[str, Any]],
    given: dict[str, str],
) -> Job:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--config", action="config")
    for block, source in sources.items():
        if inspect.isclass(source):
            parser.add_class_arguments(source, block)
        else:
            parser.add_function_arguments(source, block)
        for key, value in blocks.get(block, {}).items():
            choose(f"option of {block}", key, _keys(source))
            if value is None and not _optional(source, key):
                raise ValueError(f"{block}.{key} is null; it needs a value")
    options = [f"--{full_name(key, sources)}={value}" for key, value in given.items()]
    try:
        parsed = parser.parse_args(["--config", json.dumps({b: v for b, v in blocks.items() if v}), *options])
        made = parser.instantiate(parsed)
    except ArgumentError as error:
        raise ValueError(" ".join(str(error).split())) from error
    settings = {block: json.loads(json.dumps(parsed[block].as_dict(), default=str)) for block in sources}
    for block, name in names.items():
        settings[block] = {"name": name, **settings[block]}
    return Job(names["model"], names["data"], made.privacy, made.model, vars(made.data), made.runtime, settings)


def usage() -> str:
    """What the command line accepts, for `--help`."""
    lines = ["usage: train.py [--model NAME] [--data NAME] [--config FILE.yaml] [--key value ...]", ""]
    for kind, named in LOADERS.items():
        systems = [name for name, system in SYSTEMS.items() if kind in system.kinds]
        lines += [f"on {kind}:", f"  --model  {', '.join(systems)}", f"  --data   {', '.join(named)}"]
    lines.append("")
    groups: list[tuple[str, Callable[..., Any]]] = [(f"privacy of {name}", system.plan) for name, system in SYSTEMS.items()]
    groups += [(f"model {name}", system.config) for name, system in SYSTEMS.items()]
    groups += [(f"data {name} ({kind})", make) for kind, named in LOADERS.items() for name, make in named.items()]
    groups.append(("runtime", Runtime))
    for title, source in groups:
        lines.append(f"{title}:")
        for name, parameter in inspect.signature(source).parameters.items():
            default = "required" if parameter.default is inspect.Parameter.empty else repr(parameter.default)
            lines.append(f"  --{name:<18} {default}")
    return "\n".join(lines)
