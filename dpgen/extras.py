"""Packages that are no part of the base installation, and what installs them."""

from collections.abc import Iterator
from contextlib import contextmanager

EXTRAS = dict.fromkeys(("lightning", "opacus", "tensorboard", "torchmetrics", "torchvision"), "train") | {
    "duckdb": "sql",
    "openpyxl": "excel",
    "pyspark": "spark",
    "sdmetrics": "sdmetrics",
}
"""The extra of this distribution that brings a package."""


@contextmanager
def extras() -> Iterator[None]:
    """Refuse, in one line with the command that installs it, what needs a package of an extra that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = str(error.name).partition(".")[0]
        if name not in EXTRAS:
            raise
        raise ValueError(f"{name} is not installed; pip install 'dpgen-lightning[{EXTRAS[name]}]' brings it") from None
