"""A prior beside none and beside twice the epsilon: `python benchmarks/prior.py --data_root DIR [--csv FILE] [--seeds 1]`.

Adult in the public bins of `tables.py`, or a csv file of R's data sets under the schema of its name in `schemas/`: a third of
the rows is private, a half is the right prior (rows of the same law), the rest judges classifiers. Wrong priors: the right one
with the codes of every column renamed (`moved`), and its rows of the lowest third of the first column (`others`). A `release`
of the right prior's rows at epsilon 1 is another right one. Mean total variation of single columns and of pairs between the
model and the private rows, area under the curve of boosting that learns from the model's rows, and CPU seconds of the fit.
"""

import argparse
import time
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
from measuring import add_data_root, machine, store
from tables import Case, adult, fresh

import dpgen
from dpgen.metrics import train_on_synthetic_auc

EPSILONS = (0.3, 1.0, 3.0)


def parts(case: Case) -> list[torch.Tensor]:
    """Codes of private rows, of the right prior, and of those that judge."""
    codes = torch.cat([case.codes, case.test])
    codes = codes[torch.randperm(len(codes), generator=torch.Generator().manual_seed(5))]
    n = len(codes)
    return [codes[: n // 3], codes[n // 3 : n // 3 + n // 2], codes[n // 3 + n // 2 :]]


def priors(codes: torch.Tensor, sizes: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """Codes of the right prior and of wrong ones."""
    rng = np.random.default_rng(7)
    moved = torch.stack([torch.from_numpy(rng.permutation(size))[own] for own, size in zip(codes.T, sizes)], 1)
    first = codes[:, 0]
    return {"right": codes, "moved": moved, "others": codes[first <= first.float().quantile(1 / 3)]}


def scores(case: Case, frame: pd.DataFrame, test: torch.Tensor, epsilon: float, seed: int, prior: Any) -> dict[str, float]:
    """Errors of one fit."""
    schema, real = case.schema, case.schema.encode(frame).numpy()
    names, sizes, found = schema.domain.names, schema.domain.sizes, dict[str, float]()
    options = {"schema": schema.descriptor(), "seed": seed, "dtypes": "public"} | ({} if prior is None else {"prior": prior})
    start = time.process_time()
    model: Any = dpgen.fit(frame, "tables", epsilon=epsilon, release_origin="public", **options)
    found["CPU seconds"] = time.process_time() - start
    for k in (1, 2):
        errors = []
        for columns in combinations(range(len(names)), k):
            cells = np.ravel_multi_index([real[:, c] for c in columns], [sizes[c] for c in columns])
            law = model.marginal([names[c] for c in columns]).ravel()
            errors.append(np.abs(law - np.bincount(cells, minlength=law.size) / len(real)).sum() / 2)
        found[f"TV {k}"] = float(np.mean(errors))
    drawn = schema.encode(model.samples(len(real), random_state=seed).to_pandas())
    target = schema.domain.target
    assert target is not None
    judged: dict[str, Any] = {"sizes": sizes, "ordered": schema.domain.ordered, "judge": "boosting", "seed": 0}
    found["AUC"] = train_on_synthetic_auc(drawn, test, target, **judged)
    return found


def measured(case: Case, seeds: int) -> dict[str, dict[str, float]]:
    """Mean scores of each kind of fit."""
    (private, public, test), found = parts(case), dict[str, dict[str, float]]()
    decoded = torch.Generator().manual_seed(0)
    frame, kinds = case.schema.decode(private, decoded), priors(public, case.schema.domain.sizes)
    given: dict[str, Any] = {name: case.schema.decode(codes, decoded) for name, codes in kinds.items()}
    with TemporaryDirectory() as scratch:
        last = dpgen.fit(given["right"], "tables", epsilon=1.0, schema=case.schema.descriptor(), seed=9, dtypes="public")
        last.save(Path(scratch) / "last")
        fits = {"none": (1, None), "twice epsilon": (2, None)} | {name: (1, prior) for name, prior in given.items()}
        fits |= {"release": (1, str(Path(scratch) / "last"))}
        for epsilon in EPSILONS:
            for name, (times, prior) in fits.items():
                own = [scores(case, frame, test, times * epsilon, seed, prior) for seed in range(seeds)]
                key = f"epsilon {epsilon:g}, {name}"
                found[key] = {score: round(float(np.mean([one[score] for one in own])), 4) for score in own[0]}
                print(key, found[key], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_root(parser, "adult/")
    parser.add_argument("--csv", type=Path, help="a table in the place of Adult")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "prior.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    case = adult(given.data_root) if given.csv is None else fresh(given.csv)
    name = "Adult" if given.csv is None else given.csv.stem
    store(given.out, name, measured(case, given.seeds), seeds=given.seeds, machine=machine("pandas", "scikit-learn"))


if __name__ == "__main__":
    main()
