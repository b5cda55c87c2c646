"""Where data come from: each loader takes keyword options only and returns the kind of data it is listed under."""

from collections.abc import Callable, Sequence
from typing import Any

from dpgen.data.images import load_digits, load_fashion_mnist, load_mnist
from dpgen.data.records import Records
from dpgen.data.sets import load_sets
from dpgen.data.tabular import load_csv, load_npy, load_parquet

LOADERS: dict[str, dict[str, Callable[..., Any]]] = {
    "records": {
        "digits": load_digits,
        "mnist": load_mnist,
        "fashion_mnist": load_fashion_mnist,
        "sets": load_sets,
        "csv": load_csv,
        "parquet": load_parquet,
        "npy": load_npy,
    },
}
"""Loaders by kind of data and by the name that a command line accepts for ``--data``; the first needs no file."""


def loaders(kinds: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """Loaders of several kinds by name; of two with one name, that of the earlier kind."""
    named: dict[str, Callable[..., Any]] = {}
    for kind in kinds:
        named |= {name: loader for name, loader in LOADERS[kind].items() if name not in named}
    return named


__all__ = [
    "LOADERS",
    "Records",
    "load_csv",
    "load_digits",
    "load_fashion_mnist",
    "load_mnist",
    "load_npy",
    "load_parquet",
    "load_sets",
]
