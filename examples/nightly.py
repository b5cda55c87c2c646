"""A job that runs every night: one budget for all nights, a release of each night, and what changed since the last one."""

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pandas as pd

from dpgen.cli.main import main

folder = Path(mkdtemp())
budget, data = folder / "visits.budget", folder / "visits.csv"


def dpgen(*arguments: object) -> dict[str, Any]:
    """The object that `dpgen ... --json --quiet` prints; a job ends where the exit code is not 0."""
    with redirect_stdout(StringIO()) as out:
        code = main([*map(str, arguments), "--json", "--quiet"])
    if code:
        raise SystemExit(code)
    return json.loads(out.getvalue())


def write(seed: int, mean_age: float) -> None:
    """The file of a night, simulated; no row is of a person."""
    rng = np.random.default_rng(seed)
    age = rng.normal(mean_age, 12, 2000).clip(18, 90).round().astype(int)
    ward = np.where(rng.random(2000) < age / 120, "cardiology", "trauma")
    pd.DataFrame({"age": age, "ward": ward, "child": age < 30}).to_csv(data, index=False)


# Once: a budget for 4 runs. Each of them gets its part, and no further run fits.
dpgen("budget", budget, "--create", "--epsilon", 10, "--delta", 1e-5, "--runs", 4)

# Every night the same command, with the budget and a directory of the night. A run that was killed goes on by the same command.
for night, mean_age in [("monday", 50), ("tuesday", 65)]:
    write(len(night), mean_age)
    told = dpgen("train", data, "--ledger", budget, "--run_dir", folder / night, "--evaluation", "none")
    print(f"{night}: epsilon {told['epsilon']:.2f}, delta {told['delta']:.1e}, {[note['code'] for note in told['warnings']]}")

# A monitor asks how many nights are left.
left = dpgen("budget", budget)
print(f"runs left: {left['runs_left']}, epsilon left: {left['epsilon_left']:.2f}")

# What changed between the nights, beyond noise and chance. It reads the two releases only, so nothing is spent.
drift = dpgen("compare", folder / "monday", folder / "tuesday", "--out", folder / "drift.html")
for change in drift["changes"]:
    print(f"changed: {change['column']}, {change['values']}: {change['first']:.3f} -> {change['second']:.3f}")

# The statement, ledger and files of a night fit each other, and the budget has its payment.
print("verified:", dpgen("verify", folder / "tuesday")["fits"])
