"""Print the support matrix of docs/choose.md, from the plans, loaders and models of all systems: python docs/support.py"""

import sys
from collections.abc import Iterator
from dataclasses import fields
from inspect import signature
from pkgutil import resolve_name

from dpgen.data.kinds import KINDS, Loader
from dpgen.systems import SYSTEMS

HEAD = ("system", "data", "epsilon is paid", "delta", "protected", "neighbours", "engines", "processes", "models answer")
NAMES = ("given", "log_prob", "marginal", "impute")
QUESTIONS = {name: f"`{name}`" for name in NAMES} | {"refitted": "`intervals`"}


def _of_engines(loader: Loader) -> bool:
    """Whether a loader reads tables in DuckDB and Spark."""
    return loader.path.endswith(":load_streamed") or "engine" in signature(loader.options).parameters


def _protected(plan: type, kinds: tuple[str, ...]) -> str:
    names = {field.name for field in fields(plan)}
    if "draws" in names:
        return "a user" if kinds == ("users",) else "the data set"
    if kinds == ("linked",):
        return "a person with all rows"
    several = ", a person with up to m rows" if getattr(plan, "several_rows", False) else ""
    return "a record" + several if "unit" in names else "a record"


def _answers(paths: tuple[str, ...]) -> Iterator[str]:
    models = [resolve_name(path) for path in paths]
    for name, shown in QUESTIONS.items():
        able = [name in signature(model.samples).parameters if name == "given" else hasattr(model, name) for model in models]
        if any(able):
            yield shown if all(able) else f"{shown} (some)"


def rows() -> Iterator[tuple[str, ...]]:
    """A row of the matrix for each system of this package, texts as `HEAD` names them."""
    for name, system in SYSTEMS.items():
        plan = system.plan
        options = {field.name for field in fields(plan)}
        engines = any(_of_engines(loader) for kind in system.kinds for loader in KINDS[kind].loaders.values())
        yield (
            f"`{name}`",
            ", ".join(kind for kind in system.kinds if kind != "streams"),
            "at every draw" if "draws" in options else "once",
            "0" if "delta" not in options else "above 0" if plan.gaussian else "0 or above",
            _protected(plan, system.kinds),
            "both" if "relation" in options else "replace one",
            "DuckDB, Spark" if engines else "",
            "several" if system.module_path else "one",
            ", ".join(_answers(system.model_paths)),
        )


def matrix() -> str:
    """The matrix as a table of Markdown."""
    lines = [HEAD, ("---",) * len(HEAD), *rows()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(matrix() + "\n")
