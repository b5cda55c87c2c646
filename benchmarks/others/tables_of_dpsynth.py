"""Linked tables of `dpsynth.relational`, in its own environment: `PYTHON tables_of_dpsynth.py FOLDER`.

FOLDER has `about.json` and one csv file of each table in `in`, as `benchmarks/linked.py` writes them. The synthetic tables go
to `out`, and the CPU seconds of fit and draw, without imports, to `seconds`. Settings are those of the package's own example:
MST, 100 steps, three slots, rows explored by their number, by which people without rows count as if they had the first value of
each column (read in its code, seen in its tables). Or two slots and an empty value, its defaults, with the same MST. Numbers
are drawn inside their bins, or are midpoints where there are gaps, of which its draws end in an error. Numbers and dates are
given their least and largest value as public, those with logarithmic bins in a schema as logarithms; categories without public
values are bought by the package. Gaps are a value of their own.
"""

import json
import resource
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from dpsynth import CategoricalAttribute, ForeignKeyRelation, MultiTableConfig, NumericalAttribute, OpenSetCategoricalAttribute
from dpsynth.discrete_mechanisms import MSTConfig

GAP, DAY = "(gap)", pd.Timedelta(days=1)


def used() -> float:
    """CPU seconds of this process."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


folder = Path(sys.argv[1])
about = json.loads((folder / "about.json").read_text())
person, (people, rows) = about["person"], about["tables"]
tables, domains = {}, {}
for name, columns in about["tables"].items():
    texts = {person: str} | {column: str for column, known in columns.items() if known["kind"] != "numerical"}
    table = pd.read_csv(folder / "in" / f"{name}.csv", dtype=texts, keep_default_na=False, na_values=[""])
    domains[name] = {}
    for column, known in columns.items():
        if known["kind"] in ("numerical", "datetime"):
            ends, whole = (known["least"], known["largest"]), known["whole"]
            if known["kind"] == "datetime":
                first = pd.Timestamp(ends[0])
                table[column] = (pd.to_datetime(table[column]) - first) / DAY
                ends, whole = (0, (pd.Timestamp(ends[1]) - first) / DAY), True
            if known["log"]:
                table[column], ends, whole = np.log(table[column]), np.log(ends).tolist(), False
            kind, drawn = "int" if whole else "float", "midpoint" if known["gaps"] else "sample"
            limits = {"min_value": ends[0], "max_value": ends[1], "clip_to_range": not known["gaps"]}
            domains[name][column] = NumericalAttribute(**limits, dtype=kind, interval_handling=drawn)
        elif known["values"]:
            domains[name][column] = CategoricalAttribute(known["values"])
        else:
            table[column] = table[column].fillna(GAP)
            domains[name][column] = OpenSetCategoricalAttribute()
    tables[name] = table
link = ForeignKeyRelation(people, person, rows, person, about["max_rows"])
start = used()
config = MultiTableConfig(
    domains=domains,
    foreign_keys=[link],
    discrete_mechanism=MSTConfig(pgm_iters=100),
    **({} if about["settings"] == "defaults" else {"num_permutation_slots": 3, "exploration_strategy": "size_sliced"}),
)
model = config.calibrate(epsilon=about["epsilon"], delta=about["delta"])
found = model(np.random.default_rng(about["seed"]), tables).synthetic_tables
seconds = used() - start
for name, table in found.items():
    for column, known in about["tables"][name].items():
        if known["kind"] == "datetime":
            days = table[column].astype(float).round()
            table[column] = (pd.Timestamp(known["least"]) + days * DAY).dt.strftime("%Y-%m-%d")
        elif known["log"]:
            table[column] = np.exp(table[column])
        elif known["kind"] == "numerical" and known["whole"]:  # bins are open on the left; its own rounding leaves out gaps
            table[column] = np.ceil(table[column].astype(float))
        elif known["kind"] != "numerical":
            table[column] = table[column].replace(GAP, None)
    table.to_csv(folder / "out" / f"{name}.csv", index=False)
(folder / "seconds").write_text(str(seconds))
