"""Simulated patients, their visits and what is prescribed there: a table below a table."""

from typing import Any

import numpy as np
import pandas as pd

from dpgen.containers import in_memory
from dpgen.data import LinkedTables, load_linked
from dpgen.data.toy import PATIENTS, VISITS, simulated_patients

DRUGS = ["antibiotic", "anticoagulant", "beta blocker", "insulin", "painkiller", "vitamin"]
RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "drug": ("string", {"enum": DRUGS}),
    "days": ("integer", {"minimum": 1, "maximum": 90}),
    "dose": ("integer", {"minimum": 1, "maximum": 4}),
}
PRESCRIPTIONS: dict[str, Any] = {
    "fields": [{"name": n, "type": kind, "constraints": {"required": True, **own}} for n, (kind, own) in RULES.items()]
}


def three_tables(n: int) -> dict[str, pd.DataFrame]:
    """Patients, visits and up to 4 prescriptions of a visit, whose drug goes with the ward and whose days with the severity."""
    tables, rng = simulated_patients(n), np.random.default_rng(1)
    visits = tables["visits"]
    visits.insert(1, "visit", rng.permutation(len(visits)) + 1)
    own = visits.loc[visits.index.repeat(np.minimum(rng.poisson(0.35 * visits["severity"]), 4))].reset_index(drop=True)
    usual = own["ward"].map({"cardiology": 1, "dialysis": 3, "trauma": 4}).fillna(0).to_numpy(int)
    drug = np.where(rng.random(len(own)) < 0.8, usual, rng.integers(0, len(DRUGS), len(own)))
    days = np.clip(np.exp(1.2 + 0.5 * own["severity"] + 0.5 * rng.standard_normal(len(own))), 1, 90).astype(int)
    made = {"visit": own["visit"], "drug": np.array(DRUGS)[drug], "days": days, "dose": own["severity"].clip(1, 4)}
    return tables | {"prescriptions": pd.DataFrame(made)}


def linked_three(n: int, most: Any) -> LinkedTables:
    """The same as a system gets them, with schemas of all tables."""
    tables = {name: in_memory(table, "public") for name, table in three_tables(n).items()}
    for name, table in tables.items():
        table.table = name
    return load_linked(
        path=tables["visits"],
        people_path=tables["patients"],
        tables={"prescriptions": tables["prescriptions"]},
        schema=dict(VISITS),
        people_schema=dict(PATIENTS),
        schemas={"prescriptions": PRESCRIPTIONS},
        person="patient",
        order={"visits": "date"},
        max_rows=most,
        test_fraction=0.0,
    )
