"""Where records come from: each loader returns `Records` and takes keyword options only."""

from collections.abc import Callable

from dpgen.data.images import load_digits, load_fashion_mnist, load_mnist
from dpgen.data.records import Records
from dpgen.data.sets import load_sets
from dpgen.data.tabular import load_csv, load_npy, load_parquet

LOADERS: dict[str, Callable[..., Records]] = {
    "digits": load_digits,
    "mnist": load_mnist,
    "fashion_mnist": load_fashion_mnist,
    "sets": load_sets,
    "csv": load_csv,
    "parquet": load_parquet,
    "npy": load_npy,
}
"""Loader of each name a command line accepts for ``--data``."""

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
