"""Linked tables of SDV's HMASynthesizer, without privacy, in its own environment: `PYTHON tables_of_sdv.py FOLDER`.

FOLDER has `about.json` and one csv file of each table in `in`, as `benchmarks/linked.py` writes them. The synthetic tables, of
as many people, go to `out`, and the CPU seconds of fit and draw, without imports, to `seconds`.
"""

import json
import resource
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sdv.metadata import Metadata
from sdv.multi_table import HMASynthesizer


def used() -> float:
    """CPU seconds of this process."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


warnings.filterwarnings("ignore")
folder = Path(sys.argv[1])
about = json.loads((folder / "about.json").read_text())
person, (people, rows) = about["person"], about["tables"]
tables, described = {}, {}
for name, columns in about["tables"].items():
    texts = {person: str} | {column: str for column, known in columns.items() if known["kind"] in ("categorical", "datetime")}
    table = pd.read_csv(folder / "in" / f"{name}.csv", dtype=texts, keep_default_na=False, na_values=[""])
    dates = [column for column, known in columns.items() if known["kind"] == "datetime"]
    tables[name] = table.assign(**{column: pd.to_datetime(table[column]) for column in dates})
    kinds = {column: {"sdtype": known["kind"]} for column, known in columns.items()}
    kinds |= {column: {"sdtype": "datetime", "datetime_format": "%Y-%m-%d"} for column in dates}
    described[name] = {"columns": {person: {"sdtype": "id"}} | kinds}
described[people]["primary_key"] = person
link = {"parent_table_name": people, "child_table_name": rows, "parent_primary_key": person, "child_foreign_key": person}
metadata = Metadata.load_from_dict({"tables": described, "relationships": [link]})
np.random.seed(about["seed"])  # noqa: NPY002, SDV draws from it
start = used()
model = HMASynthesizer(metadata, verbose=False)
model.fit(tables)
found = model.sample_scale(scale=1.0)
seconds = used() - start
for name, table in found.items():
    table.to_csv(folder / "out" / f"{name}.csv", index=False, date_format="%Y-%m-%d")
(folder / "seconds").write_text(str(seconds))
