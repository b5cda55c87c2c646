"""Synthetic linked tables: people and their rows, as the data came, or as a folder of files."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpgen.containers import Form
from dpgen.files import write_files
from dpgen.release import Arrays, Samples


@dataclass(frozen=True, kw_only=True)
class LinkedSamples(Samples):
    """Synthetic tables whose keys match.

    Arguments:
        tables: by name; people first, where there is a table of them.
        forms: containers, names and types of the data, by table.
        person: column of the key.
        order: column by which the rows of a person are ordered, if any.
    """

    tables: Mapping[str, pd.DataFrame]
    forms: Mapping[str, Form]
    person: str
    order: str | None = None

    @classmethod
    def of(cls, tables: Mapping[str, pd.DataFrame], forms: Mapping[str, dict[str, Any]], **names: Any) -> "LinkedSamples":
        """From all columns of the tables and their forms as JSON, which say those that the data have."""
        made = {name: Form.from_dict(form) for name, form in forms.items()}
        return cls(tables={k: table[[str(c) for c in made[k].names]] for k, table in tables.items()}, forms=made, **names)

    def to_pandas(self) -> pd.DataFrame:
        """One line for each row, with the columns of its person; people without rows have a line of gaps."""
        *people, rows = self.tables.values()
        return people[0].merge(rows, on=self.person, how="left", suffixes=("", "_of_row")) if people else rows

    def restored(self) -> Any:
        """The tables in the containers that the data came in; the rows alone where there was no table of people."""
        found = {name: self.forms[name].restore(table) for name, table in self.tables.items()}
        return found if len(found) > 1 else next(iter(found.values()))

    def arrays(self) -> Arrays:
        columns = {f"{name}.{column}": values for name, table in self.tables.items() for column, values in table.items()}
        return {name: np.asarray(v.astype(str) if v.dtype == object else v.to_numpy()) for name, v in columns.items()}

    def save(self, path: Path | str) -> None:
        """Write a folder with a csv file for each table and its `datapackage.json`; a .npz holds all columns.

        Raises:
            ValueError: a name with another ending.
        """
        path = Path(path)
        if path.suffix == ".npz":
            return super().save(path)
        if path.suffix:
            raise ValueError(f"path is {path.name!r}; it must name a folder, for a csv file of each table, or end in .npz")
        write_files(path, self.package())

    def package(self) -> dict[str, bytes]:
        """The files of a Data Package of the tables, by name."""
        resources, files = [], {}
        first = next(iter(self.tables))
        for name, table in self.tables.items():
            key = {"foreignKeys": [{"fields": self.person, "reference": {"resource": first, "fields": self.person}}]}
            schema = {"primaryKey": self.person} if name == first and len(self.tables) > 1 else key if name != first else {}
            order = {"dpgen:order": self.order} if self.order in table else {}
            listed = [{"name": str(column)} for column in table]
            resources.append({"name": name, "path": f"{name}.csv", "schema": {"fields": listed, **schema, **order}})
            shown = self.forms[name].restore(table)
            shown = shown if isinstance(shown, pd.DataFrame) else shown.to_pandas()
            files[f"{name}.csv"] = shown.to_csv(index=False).encode()
        return {"datapackage.json": json.dumps({"resources": resources}, indent=1).encode()} | files
