"""Kinds of private data: containers, loaders, usual model, evaluation and audit of each, imported when they are used.

Options of loaders are known without the libraries that read the data.
"""

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
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


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of data; a path is `package.module:name`, imported when it is used.

    Arguments:
        containers: classes of such data, each with its evaluator `evaluate(release, data, seed=)`.
        loaders: functions of `dpgen.data` by the name of `--data`; the first needs no file, but of streams.
        usual: name of the model of such data where none is named; empty: there is none.
        reader: name of the loader that reads every form of file; empty: each form has its own.
        unscored: function of a release and a seed, the evaluation without scores; empty: it has nothing.
        classified: whether a network that classifies such data can be released; evaluators of such data take an `effort`.
        pair: the neighbours of an audit, a function of the relation, rows of a person and trials; empty: it has none.
    """

    containers: Mapping[str, str]
    loaders: Mapping[str, Loader]
    usual: str = ""
    reader: str = ""
    unscored: str = ""
    classified: bool = False
    pair: str = ""


def _loaders(**paths: str) -> dict[str, Loader]:
    return {name: Loader(f"dpgen.data.{path}") for name, path in paths.items()}


_RECORDS = dict.fromkeys(("csv", "parquet", "npy"), "records:load_records")
_POINTS = dict.fromkeys(("csv", "parquet", "npy"), "points:load_points")
_COLUMNS = dict.fromkeys(("csv", "parquet", "npy", "sql"), "columns:load_columns")
_STORED = "dpgen.evaluation.records:evaluate_stored"

KINDS = {
    "records": Kind(
        containers={
            "dpgen.data.records:Records": "dpgen.evaluation.records:evaluate",
            "dpgen.data.records:MappedRecords": _STORED,
        },
        loaders=_loaders(
            digits="images:load_digits",
            mnist="images:load_mnist",
            fashion_mnist="images:load_fashion_mnist",
            sets="records:load_sets",
            mapped="records:load_mapped",
            **_RECORDS,
        ),
        usual="gaussian",
        classified=True,
        pair="dpgen.auditing.audits:records_pair",
    ),
    "streams": Kind(
        containers={"dpgen.data.stored:StreamedRecords": _STORED},
        loaders=_loaders(sql="stored:load_streamed"),
        usual="gaussian",
        classified=True,
    ),
    "table": Kind(
        containers=dict.fromkeys(
            ("dpgen.data.tables:Table", "dpgen.data.raw_tables:RawTable"), "dpgen.evaluation.compare:evaluate"
        ),
        loaders=_loaders(table="tables:load_table"),
        usual="tables",
        reader="table",
        unscored="dpgen.evaluation.compare:unscored",
        classified=True,
        pair="dpgen.auditing.audits:table_pair",
    ),
    "linked": Kind(
        containers={"dpgen.data.linked_tables:LinkedTables": "dpgen.evaluation.linked:evaluate"},
        loaders=_loaders(linked="linked:load_linked"),
        usual="relational",
        reader="linked",
        unscored="dpgen.evaluation.linked:unscored",
        pair="dpgen.auditing.audits:linked_pair",
    ),
    "images": Kind(
        containers={"dpgen.data.images:Images": "dpgen.evaluation.records:evaluate_images"},
        loaders=_loaders(images="images:load_images", cifar10="images:load_cifar10"),
        usual="gaussian",
        classified=True,
    ),
    "users": Kind(
        containers={"dpgen.data.users:Users": "dpgen.evaluation.users:evaluate"},
        loaders=_loaders(synthetic_users="users:load_synthetic_users", events="users:load_events"),
        usual="projected_kernel",
        reader="events",
        pair="dpgen.auditing.audits:users_pair",
    ),
    "columns": Kind(
        containers={"dpgen.data.columns:Columns": "dpgen.evaluation.columns:evaluate"},
        loaders=_loaders(mixture="columns:load_mixture", **_COLUMNS),
        usual="merr",
        pair="dpgen.auditing.audits:columns_pair",
    ),
    "points": Kind(
        containers={"dpgen.data.points:Points": "dpgen.evaluation.points:evaluate"},
        loaders=_loaders(ring="points:load_ring", mixture_1d="points:load_mixture_1d", **_POINTS),
        pair="dpgen.auditing.audits:points_pair",
    ),
}
"""Kinds of data by name."""

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip")
"""Endings of archives of images."""
PACKAGE = "datapackage.json"
"""Name of the file that describes linked tables (Data Package)."""

_HELD = {path: (name, evaluator) for name, kind in KINDS.items() for path, evaluator in kind.containers.items()}


def kind_of(data: Any) -> str | None:
    """Name of the kind of data that is loaded already, by its class; None: it is no container of data."""
    return _HELD.get(_path_of(data), (None, ""))[0]


def evaluator_of(data: Any) -> str:
    """Path of the evaluator of loaded data. ValueError: they are in no container of `KINDS`."""
    if (path := _path_of(data)) not in _HELD:
        known = ", ".join(name.partition(":")[2] for name in _HELD)
        raise ValueError(f"data is {type(data).__name__}; it must be one of {known}")
    return _HELD[path][1]


def _path_of(data: Any) -> str:
    return f"{type(data).__module__}:{type(data).__qualname__}"


def loader_of(kinds: Sequence[str], name: str, given: Iterable[str] = ()) -> Loader:
    """The loader of this name: where several kinds have one, that of the first kind that has all options given, else the first.

    >>> loader_of(["records", "points"], "csv", ["bounds"]).path
    'dpgen.data.points:load_points'
    """
    found = [KINDS[kind].loaders[name] for kind in kinds if name in KINDS[kind].loaders]
    if len(found) == 1:
        return found[0]
    known = [set(signature(loader.options).parameters) for loader in found]
    wanted = set().union(*known) & set(given)
    return next((loader for loader, names in zip(found, known) if wanted <= names), found[0])


def loaders(kinds: Sequence[str]) -> dict[str, Loader]:
    """Loaders of several kinds by name; of two with one name, that of the earlier kind."""
    named: dict[str, Loader] = {}
    for kind in kinds:
        named |= {name: loader for name, loader in KINDS[kind].loaders.items() if name not in named}
    return named
