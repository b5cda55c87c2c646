"""`dpgen completion bash|zsh|fish`: a script for the shell that completes commands, options and their choices."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from dpgen.auditing.options import AuditOptions, audited
from dpgen.cli.command import OneLineParser
from dpgen.cli.jobs import CONFIGS, SCRIPT_OPTIONS
from dpgen.cli.main import COMMANDS
from dpgen.cli.options import HIDDEN, hints, keys
from dpgen.data.loaders import LOADERS
from dpgen.runtime import Runtime
from dpgen.systems.registry import System, systems

OTHERS = {
    "sample": ("n", "out", "clusters", "seed", "help"),
    "evaluate": ("out", "seed", "help"),
    "completion": ("help",),
}
"""Options of the commands that have few."""


def main(arguments: list[str]) -> str:
    """The script, for `eval "$(dpgen completion bash)"` in `~/.bashrc`, or the same for another shell."""
    parser = OneLineParser(
        "dpgen completion", description='For ~/.bashrc: eval "$(dpgen completion bash)"; zsh and fish likewise.'
    )
    parser.add_argument("shell", choices=list(_SHELLS), help="whose completion")
    return _SHELLS[parser.parse_args(arguments).shell]()


def options() -> dict[str, dict[str, list[str]]]:
    """By command, its options, and the choices of each where they are few; of training, those of all systems and data."""
    named: dict[str, list[str]] = {name: [] for name in SCRIPT_OPTIONS}
    named |= {"config": sorted(path.stem for path in CONFIGS.glob("*.yaml"))}
    named |= {"model": list(systems()), "data": list(dict.fromkeys(name for of_kind in LOADERS.values() for name in of_kind))}
    named = _with_options(named, _of_training())
    own = {"train": named, "audit": _with_options({"model": list(audited()), "help": []}, _of_audits())}
    few = {name: {key: list[str]() for key in OTHERS.get(name, ("help",))} for name in COMMANDS}
    return {name: dict(sorted(own.get(name, few[name]).items())) for name in COMMANDS}


def _with_options(named: dict[str, list[str]], sources: Iterable[Any]) -> dict[str, list[str]]:
    """Options by name, and those of the sources with their choices."""
    for source in sources:
        types = hints(source)
        for key in keys(source):
            if key not in HIDDEN:
                named[key] = list(dict.fromkeys([*named.get(key, []), *_choices(types.get(key))]))
    return named


def _of_systems(known: Mapping[str, System]) -> Iterator[Any]:
    for system in known.values():
        yield from (system.plan, system.config)


def _of_training() -> Iterator[Any]:
    yield from _of_systems(systems())
    for of_kind in LOADERS.values():
        yield from (loader.options for loader in of_kind.values())
    yield Runtime


def _of_audits() -> Iterator[Any]:
    yield from _of_systems(audited())
    yield AuditOptions


def _choices(hint: Any) -> list[str]:
    if hint is bool:
        return ["true", "false"]
    return [str(choice) for kind in (hint, *get_args(hint)) if get_origin(kind) is Literal for choice in get_args(kind)]


def _bash() -> str:
    lines = [
        "_dpgen() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
        '  if [ "$COMP_CWORD" -eq 1 ]; then',
        f'    words="{" ".join(COMMANDS)} --help --version"',
        "  else",
        '    case "${COMP_WORDS[1]} $before" in',
    ]
    for command, named in options().items():
        lines += [f'      "{command} --{key}") words="{" ".join(choices)}" ;;' for key, choices in named.items() if choices]
    lines += ["    esac", '    if [ -z "$words" ]; then case "${COMP_WORDS[1]}" in']
    lines += [f'      {command}) words="{" ".join(f"--{key}" for key in named)}" ;;' for command, named in options().items()]
    return "\n".join(
        [
            *lines,
            "    esac; fi",
            "  fi",
            '  COMPREPLY=($(compgen -W "$words" -- "$word"))',
            "}",
            "complete -o default -F _dpgen dpgen",
        ]
    )


def _zsh() -> str:
    return "autoload -U +X bashcompinit && bashcompinit\n" + _bash()


def _fish() -> str:
    lines = [f'complete -c dpgen -n __fish_use_subcommand -f -a {name} -d "{what}"' for name, (_, what) in COMMANDS.items()]
    for command, named in options().items():
        for key, choices in named.items():
            values = f' -x -a "{" ".join(choices)}"' if choices else ""
            lines.append(f'complete -c dpgen -n "__fish_seen_subcommand_from {command}" -l {key}{values}')
    return "\n".join(lines)


_SHELLS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
