"""A csv file: fit it, look at the price and at the rows, write synthetic rows to another csv file."""

from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pandas as pd

import dpgen


def visits(n: int, seed: int) -> pd.DataFrame:
    """Simulated visits to a hospital; no row is of a person."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, n)
    days = rng.poisson(2 + age / 30)
    admitted = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 365, n), unit="D")
    return pd.DataFrame(
        {
            "age": age,
            "ward": np.where(rng.random(n) < age / 120, "cardiology", "trauma"),
            "admitted": admitted.strftime("%d.%m.%Y"),
            "discharged": (admitted + pd.to_timedelta(days, unit="D")).strftime("%d.%m.%Y"),
            "bill": (days * 180 + rng.lognormal(4, 0.5, n)).round(2),
            "insured": pd.Series(rng.random(n) < 0.9, dtype="boolean").mask(rng.random(n) < 0.05),
        }
    )


folder = Path(mkdtemp())
visits(2000, seed=0).to_csv(folder / "visits.csv", index=False)

# A csv file has no types. Types, gaps, categories and bins are bought inside epsilon; each row of the file is protected.
# What is known beforehand costs nothing: nobody leaves before they came.
fields = [{"name": name, "type": "date", "format": "%d.%m.%Y"} for name in ("admitted", "discharged")]
known = {"fields": fields, "dpgen:constraints": [{"less_equal": ["admitted", "discharged"]}]}
release = dpgen.fit(folder / "visits.csv", epsilon=1.0, delta=1e-6, target="ward", schema=known)
print(release)

# Samples are free: they are computed from the release alone. Dates and numbers are written as in the file.
rows = release.sample(1000, random_state=0)
rows.to_csv(folder / "synthetic.csv", index=False)
print(rows.head())

# Rows of one ward only, by the model's law given this value.
print(release.sample(3, given={"ward": "cardiology"}, random_state=0))

# What may be shared: the model with its statement, and a page about it.
release.save(folder / "model")
release.report(folder / "report.html")

# How good the rows are. Scores read the private rows: they are for the owner, not for publication.
found = dpgen.compare(folder / "visits.csv", folder / "synthetic.csv", target="ward")
print(found.columns[["column", "KS or TV", "held-out"]])
print(f"Files are in {folder}")
