"""Linked tables: people and their visits. One person, with all of their visits, is protected."""

from pathlib import Path
from tempfile import mkdtemp

import dpgen
from dpgen.data.toy import simulated_patients

tables = simulated_patients(2000)  # {"patients": DataFrame, "visits": DataFrame}; no record is of a person
print(tables["patients"].head(3), tables["visits"].head(3), sep="\n")

# `person` is the column that links the tables, and `order` the time of the visits. `max_rows` is a public choice: of people
# with more visits, a window of three is used. `rounds` and `classes` keep the example short; leave them out.
release = dpgen.fit(tables, epsilon=3.0, person="patient", order={"visits": "date"}, max_rows=3, rounds=1, classes=8)
print(release)

# The same two tables: every visit has its patient, and the dates of a patient ascend.
synthetic = release.sample(200, random_state=0)
patients, visits = synthetic["patients"], synthetic["visits"]
assert visits["patient"].isin(patients["patient"]).all()
assert visits.groupby("patient")["date"].apply(lambda dates: dates.is_monotonic_increasing).all()
print(patients.head(3), visits.head(3), sep="\n")

# People of a kind, with all of their visits.
older = release.sample(50, given={"patients": {"age": {"minimum": 60}}}, random_state=0)
print(f"ages of {len(older['patients'])} drawn patients begin at {older['patients']['age'].min()}")

# What follows on what: the model's table of a ward and the ward of the next visit of the same person.
print(release.marginal(["visits.ward", "visits.ward"], "next").round(3))

folder = Path(mkdtemp())
release.save(folder / "model")  # may be shared
for name, table in synthetic.items():
    table.to_csv(folder / f"{name}.csv", index=False)
print(f"Files are in {folder}")
