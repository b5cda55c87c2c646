"""Containers of data in memory - DataFrames, tables, arrays, tensors, sets - as loaders read them, and back for samples."""

from dpgen.containers.forms import Form, as_type, natural
from dpgen.containers.memory import Dtypes, InMemory, Pictures, article, in_memory, is_columns, is_picture

__all__ = [
    "Dtypes",
    "Form",
    "InMemory",
    "Pictures",
    "article",
    "as_type",
    "in_memory",
    "is_columns",
    "is_picture",
    "natural",
]
