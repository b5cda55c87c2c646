"""Loaders of private data by name, with their options, without importing the libraries that read the data."""

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name
from typing import Any


@dataclass(frozen=True)
class Loader:
    """A function of keyword options that returns data, `package.module:name`; it is imported when it is first called.

    >>> from inspect import signature
    >>> signature(Loader("dpgen.data.images:load_digits").options)
    <Signature (*, test_fraction: float = 0.2, split_seed: int = 0)>
    """

    path: str

    @cached_property
    def takes_people(self) -> bool:
        """Whether it chooses the rows of `people`, which stands for the plan's options `unit` and `max_contributions`."""
        return any(argument.arg == "people" for argument in self._function.args.kwonlyargs)

    def __call__(self, **options: Any) -> Any:
        return resolve_name(self.path)(**options)

    @property
    def _function(self) -> ast.FunctionDef:
        module, _, name = self.path.partition(":")
        (function,) = (node for node in _parsed(module).body if isinstance(node, ast.FunctionDef) and node.name == name)
        return function

    @cached_property
    def options(self) -> Callable[..., Any]:
        """A function of the same signature and docstring that does nothing, made from the source of the loader."""
        module, function = self.path.partition(":")[0], self._function
        function.name, function.body, function.returns = "options", function.body[:1], None  # the docstring
        given = zip(function.args.kwonlyargs, function.args.kw_defaults)
        shown = [(argument, default) for argument, default in given if argument.arg != "people"]
        function.args.kwonlyargs, function.args.kw_defaults = [a for a, _ in shown], [d for _, d in shown]
        scope = {"__name__": __name__, **_values(module, _names(function.args))}
        exec(compile(ast.Module([function], []), self.path, "exec", dont_inherit=True), scope)
        made: Callable[..., Any] = scope["options"]
        return made


def _parsed(module: str) -> ast.Module:
    return ast.parse(Path(__file__).parents[2].joinpath(*module.split(".")).with_suffix(".py").read_bytes())


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _values(module: str, names: set[str]) -> dict[str, Any]:
    """Values of types and aliases of types in a module, by name; of the package's own modules only the source is read."""
    found: dict[str, Any] = {}
    for node in _parsed(module).body if names else ():
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in names & {alias.name for alias in node.names}:
                ours = node.module.startswith("dpgen.")
                found |= _values(node.module, {name}) if ours else {name: getattr(import_module(node.module), name)}
        elif isinstance(node, ast.Assign) and (own := names & _names(node.targets[0])):
            code = compile(ast.Expression(node.value), module, "eval")
            found |= dict.fromkeys(own, eval(code, _values(module, _names(node.value))))
    return found


_FILES = ("csv", "parquet", "npy")

_PATHS: dict[str, dict[str, str]] = {
    "records": {
        **{name: f"images:load_{name}" for name in ("digits", "mnist", "fashion_mnist")},
        **{"sets": "sets:load_sets", "mapped": "records:load_mapped", **dict.fromkeys(_FILES, "records:load_records")},
    },
    "streams": {"sql": "stored:load_streamed"},
    "table": {"table": "tables:load_table"},
    "linked": {"linked": "linked:load_linked"},
    "images": {"images": "images:load_images", "cifar10": "images:load_cifar10"},
    "users": {"synthetic_users": "users:load_synthetic_users", "events": "users:load_events"},
    "columns": {
        **{"mixture": "toy:load_mixture", **dict.fromkeys(_FILES, "columns:load_columns")},
        "sql": "columns:load_columns",
    },
    "points": {"ring": "toy:load_ring", "mixture_1d": "toy:load_mixture_1d", **dict.fromkeys(_FILES, "points:load_points")},
}
LOADERS = {k: {name: Loader(f"dpgen.data.{path}") for name, path in named.items()} for k, named in _PATHS.items()}
"""Loaders by kind of data and by the name of `--data`; the first of a kind needs no file, but of streams."""


def loader_of(kinds: Sequence[str], name: str, given: Iterable[str] = ()) -> Loader:
    """The loader of this name: where several kinds have one, that of the first kind that has all options given, else the first.

    >>> loader_of(["records", "points"], "csv", ["bounds"]).path
    'dpgen.data.points:load_points'
    """
    found = [LOADERS[kind][name] for kind in kinds if name in LOADERS[kind]]
    if len(found) == 1:
        return found[0]
    known = [set(signature(loader.options).parameters) for loader in found]
    wanted = set().union(*known) & set(given)
    return next((loader for loader, names in zip(found, known) if wanted <= names), found[0])


def loaders(kinds: Sequence[str]) -> dict[str, Loader]:
    """Loaders of several kinds by name; of two with one name, that of the earlier kind."""
    named: dict[str, Loader] = {}
    for kind in kinds:
        named |= {name: loader for name, loader in LOADERS[kind].items() if name not in named}
    return named
