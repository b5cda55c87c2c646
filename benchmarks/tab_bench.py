"""Tables beside other packages at equal budgets: fidelity, query error, learning, and the xor test, by rules that stand here.

    python benchmarks/tab_bench.py --data_root DIR [--tables adult network xor] [--epsilon 0.2 1 5] [--dpmm PYTHON]

Measures are those of the SIGMOD 2025 benchmark (arXiv 2504.14061): total variation of one, two and three columns from the
private rows (all sets of one and two, 300 of three); mean error of 1,000 queries, each the share of rows in random ranges (of
ordered columns) or random halves of the values of three columns; area under the curve on other rows of boosting and logistic
regression that learn the target from synthetic rows. The xor test is that of Tab-PE (arXiv 2606.08259): the share of rows whose
target is the parity of the columns that it is of; .5 is chance.

Rules, which stood before the first run. No constant of dpgen was chosen with these figures in view, but some were with Adult in
view, long ago.

- All get the same codes in the same public bins, which columns are ordered, and the target; the same epsilon, delta 1e-5, one
  row added or removed; and draw as many rows as there are. One seed each, one thread.
- `adult`: the first 10,000 train rows of UCI Adult in the bins of benchmarks/tables.py, its first 10,000 test rows. `network`:
  10,000 rows, and as many others, of 12 columns of 2 to 6 values, each of which depends on two earlier ones by a table of draws
  from Dirichlet(.3); the target is the last one. `xor`: 10,000 rows of 12 columns of two values, four normal columns in 16
  equal bins of [-4, 4], two of which depend on each other, and the parity of the first 2 to 6 columns as the target, at
  epsilon 1.
- PrivBayes, MST and AIM are those of dpmm, at its defaults and without its own bins. PYTHON is that of an environment
  with dpmm (`pip install dpmm`). A fit that takes more than `--most` CPU seconds is stopped, and said to be.
- Not beside them: dpsynth, which needs Python 3.12, and Tab-PE; neither is on the package index.
- CPU seconds are those of fit and draw, without imports.

Writes benchmarks/results/tab_bench.json.
"""

import argparse
import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from measuring import add_data_root, machine, store
from tables import Case, adult, coded, released

from dpgen.metrics import marginal_errors, train_on_synthetic_auc

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "tab_bench.json"
ROWS, DELTA, WIDTH, QUERIES = 10_000, 1e-5, 12, 1000
ORDERS = (2, 3, 4, 5, 6)
METHODS = ("privbayes", "mst", "aim")
ADAPTER = HERE / "others" / "rows_of_dpmm.py"
Codes = npt.NDArray[np.int64]


def network() -> Case:
    """Rows of a random network of 12 columns."""
    rng = np.random.default_rng(0)
    sizes = [int(size) for size in rng.integers(2, 7, WIDTH - 1)] + [2]
    codes = np.zeros((2 * ROWS, WIDTH), np.int64)
    for c, size in enumerate(sizes):
        parents = rng.choice(c, min(c, 2), replace=False).tolist()
        cells = np.zeros(len(codes), np.int64)
        for parent in parents:
            cells = cells * sizes[parent] + codes[:, parent]
        laws = rng.dirichlet(np.full(size, 0.3), int(np.prod([sizes[parent] for parent in parents])))
        codes[:, c] = (rng.random((len(codes), 1)) > laws[cells].cumsum(1)[:, :-1]).sum(1)
    names = [f"c{i}" for i in range(WIDTH)]
    return coded(codes[:ROWS], codes[ROWS:], names, sizes, ["category"] * WIDTH, names[-1])


def xor(order: int) -> Case:
    """Rows whose target is the parity of so many columns, beside four normal columns."""
    rng = np.random.default_rng(order)
    x, z = rng.integers(0, 2, (2 * ROWS, WIDTH)), rng.normal(size=(2 * ROWS, 4))
    z[:, 1] = 0.8 * z[:, 0] + 0.6 * z[:, 1]
    bins = np.clip(((z + 4) * 2).astype(np.int64), 0, 15)
    codes = np.column_stack([x, bins, x[:, :order].sum(1) % 2])
    names, kinds = [f"c{i}" for i in range(WIDTH + 5)], ["category"] * WIDTH + ["number"] * 4 + ["category"]
    return coded(codes[:ROWS], codes[ROWS:], names, [2] * WIDTH + [16] * 4 + [2], kinds, names[-1])


def cases(root: Path, tables: list[str], epsilons: list[float]) -> dict[str, tuple[Case, float, int]]:
    """All tables with epsilon, and the order of their parity, by name."""
    found: dict[str, tuple[Case, float, int]] = {}
    if "adult" in tables:
        whole = adult(root)
        some = Case(whole.codes[:ROWS], whole.test[:ROWS], whole.schema)
        found |= {f"adult, epsilon {epsilon:g}": (some, epsilon, 0) for epsilon in epsilons}
    if "network" in tables:
        found |= {f"network, epsilon {epsilon:g}": (network(), epsilon, 0) for epsilon in epsilons}
    if "xor" in tables:
        found |= {f"xor of {order}, epsilon 1": (xor(order), 1.0, order) for order in ORDERS}
    return found


def query_error(case: Case, synthetic: torch.Tensor) -> float:
    """Mean error of the shares of rows in random parts of three columns."""
    rng, domain = np.random.default_rng(0), case.schema.domain
    errors = []
    for _ in range(QUERIES):
        inside = [np.ones(len(rows), bool) for rows in (case.codes, synthetic)]
        for c in rng.choice(len(domain.sizes), 3, replace=False).tolist():
            size = domain.sizes[c]
            if domain.ordered[c]:
                low, high = np.sort(rng.integers(0, size, 2)).tolist()
                kept = (np.arange(size) >= low) & (np.arange(size) <= high)
            else:
                kept = np.isin(np.arange(size), rng.choice(size, max(1, size // 2), replace=False))
            inside = [own & kept[rows[:, c].numpy()] for own, rows in zip(inside, (case.codes, synthetic))]
        errors.append(abs(inside[0].mean() - inside[1].mean()))
    return float(np.mean(errors))


def scores(case: Case, synthetic: torch.Tensor, order: int, taught: torch.Tensor | None = None) -> dict[str, float]:
    """All measures of synthetic codes; classifiers learn from these, or from `taught`."""
    domain = case.schema.domain
    assert domain.target is not None
    if order:
        kept = synthetic[:, :order].sum(1) % 2 == synthetic[:, domain.target]
        pairs = float(marginal_errors(case.codes, synthetic, 2, n_sets=100_000).mean())
        return {"rows that keep it": round(float(kept.double().mean()), 3), "TV 2": round(pairs, 4)}
    found = {f"TV {k}": float(marginal_errors(case.codes, synthetic, k, n_sets=300).mean()) for k in (1, 2, 3)}
    found["queries"] = query_error(case, synthetic)
    options: dict[str, Any] = {"sizes": domain.sizes, "ordered": domain.ordered, "seed": 0}
    for judge in ("boosting", "logistic"):
        found[f"AUC {judge}"] = train_on_synthetic_auc(
            synthetic if taught is None else taught, case.test, domain.target, judge=judge, **options
        )
    return {name: round(value, 4) for name, value in found.items()}


def of_dpgen(case: Case, epsilon: float) -> tuple[torch.Tensor, float]:
    """Codes of a release, and CPU seconds of fit and draw."""
    start = time.process_time()
    model = released(case, epsilon, 0)
    rows = model.schema.encode(model.samples(len(case.codes), random_state=0, rows="matched").to_pandas())
    return rows, time.process_time() - start


def of_other(name: str, python: str, case: Case, epsilon: float, most: int) -> tuple[torch.Tensor, float] | str:
    """Codes of another package, and its CPU seconds, or why there are none."""
    domain = case.schema.domain
    with tempfile.TemporaryDirectory() as scratch:
        source, out = Path(scratch) / "in.npz", Path(scratch) / "out.npz"
        np.savez(source, codes=case.codes.numpy(), sizes=domain.sizes)
        command = [python, str(ADAPTER), str(source), str(out), name, str(epsilon), str(DELTA), "0"]

        def limited() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (most, most))

        one = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        ended = subprocess.run(command, capture_output=True, text=True, preexec_fn=limited, env=one)
        if not out.exists():
            last = (ended.stderr.strip().splitlines() or [""])[-1]
            return f"stopped after {most} CPU s" if ended.returncode < 0 else f"failed: {last[:200]}"
        found = np.load(out)
        return torch.from_numpy(found["codes"]), float(found["seconds"])


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_root(parser, "adult/")
    parser.add_argument("--tables", nargs="+", choices=["adult", "network", "xor"], default=["adult", "network", "xor"])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.2, 1.0, 5.0])
    parser.add_argument("--dpmm", help="interpreter of an environment with dpmm; without it dpgen is measured alone")
    parser.add_argument("--most", type=int, default=300, help="CPU seconds of one fit of another package")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for title, (case, epsilon, order) in cases(given.data_root, given.tables, given.epsilon).items():
        rows: dict[str, Any] = {
            "real rows": scores(case, case.test, order, case.codes)
        }  # others, and the private ones to learn
        for name in ["dpgen", *(METHODS if given.dpmm else ())]:
            made = of_dpgen(case, epsilon) if name == "dpgen" else of_other(name, given.dpmm, case, epsilon, given.most)
            rows[name] = made if isinstance(made, str) else scores(case, made[0], order) | {"CPU seconds": round(made[1], 1)}
            print(title, name, rows[name], flush=True)
            store(given.out, title, rows, machine=machine("scikit-learn"))


if __name__ == "__main__":
    main()
