"""Data Packages of people and their rows."""

from pathlib import Path

import pandas as pd

from dpgen.containers import Form
from dpgen.samples import LinkedSamples


def saved(directory: Path, tables: dict[str, pd.DataFrame], *, person: str = "patient", order: str = "date") -> Path:
    """Write tables of people and of their rows, which come second, and say where their description is."""
    people, rows = tables
    forms = {name: Form(container="pandas", names=tuple(t), types=tuple(map(str, t.dtypes))) for name, t in tables.items()}
    links, orders = {rows: (person, people)}, {rows: order}
    LinkedSamples(tables=tables, forms=forms, person=person, links=links, orders=orders).save(directory)
    return directory / "datapackage.json"
