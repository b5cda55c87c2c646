"""Private data and their loaders; each loader takes keyword options only and returns the kind of data it is listed under."""

from collections.abc import Callable, Sequence
from typing import Any

from dpgen.data.call_detail import load_call_detail
from dpgen.data.columns import Columns, load_cms, load_columns, load_higgs
from dpgen.data.events import load_events
from dpgen.data.images import load_digits, load_fashion_mnist, load_mnist
from dpgen.data.points import Points, PublicScaling, load_digits_pca, load_points
from dpgen.data.ratings import load_avazu, load_movielens
from dpgen.data.records import Records, load_records
from dpgen.data.sets import load_sets
from dpgen.data.toy import load_mixture, load_mixture_1d, load_random_gaussians, load_ring
from dpgen.data.users import Users, load_synthetic_users

LOADERS: dict[str, dict[str, Callable[..., Any]]] = {
    "records": {
        "digits": load_digits,
        "mnist": load_mnist,
        "fashion_mnist": load_fashion_mnist,
        "sets": load_sets,
        "call_detail": load_call_detail,
        "csv": load_records,
        "parquet": load_records,
        "npy": load_records,
    },
    "users": {
        "synthetic_users": load_synthetic_users,
        "events": load_events,
        "movielens": load_movielens,
        "avazu": load_avazu,
    },
    "columns": {
        "mixture": load_mixture,
        "csv": load_columns,
        "parquet": load_columns,
        "npy": load_columns,
        "cms": load_cms,
        "higgs": load_higgs,
    },
    "points": {
        "ring": load_ring,
        "mixture_1d": load_mixture_1d,
        "random_gaussians": load_random_gaussians,
        "digits_pca": load_digits_pca,
        "csv": load_points,
        "parquet": load_points,
        "npy": load_points,
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
    "Columns",
    "Points",
    "PublicScaling",
    "Records",
    "Users",
    "load_avazu",
    "load_call_detail",
    "load_cms",
    "load_columns",
    "load_digits",
    "load_digits_pca",
    "load_events",
    "load_fashion_mnist",
    "load_higgs",
    "load_mixture",
    "load_mixture_1d",
    "load_mnist",
    "load_movielens",
    "load_points",
    "load_random_gaussians",
    "load_records",
    "load_ring",
    "load_sets",
    "load_synthetic_users",
]
