"""One table by both fitters of the package: `python benchmarks/one_fitter.py --data_root DIR`.

Adult and HIGGS as in `tables.py`. First whole releases: by `tables`, and by `relational` as people who have no rows, each by
its own public rule. Then the same noisy pairs of columns, chosen by `tables` without a target, triples and blocks, fitted once
by the mixture's own gradients (`tables.fitter.Fitter`), and once by a tree of one node (`relational.chains.TreeFitter`), with
as many classes and steps, and the same rates. Scores are of matched rows.
"""

import argparse
import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from measuring import add_data_root, machine, store
from tables import Case, adult, higgs, released, scores, untargeted

from dpgen import Runtime
from dpgen.containers import in_memory
from dpgen.data import load_linked
from dpgen.privacy.curator import Curator
from dpgen.systems.relational.chains import TreeFitter
from dpgen.systems.relational.fit import fit as fit_people
from dpgen.systems.relational.plan import RelationalConfig, RelationalPlan
from dpgen.systems.relational.sums import Layout, Shape, Table
from dpgen.systems.tables import rounds
from dpgen.systems.tables.fitter import Fitter
from dpgen.systems.tables.model import TablesModel
from dpgen.systems.tables.plan import sizes

STEPS, RATE = (700, 300), 0.1
RESULTS = Path(__file__).parent / "results" / "one_fitter.json"


def judged(case: Case, model: TablesModel, seconds: float) -> dict[str, float]:
    """Scores of as many matched rows as were fitted."""
    rows = model.samples(len(case.codes), random_state=0, rows="matched").to_pandas()
    return scores(case, case.schema.encode(rows)) | {"CPU seconds of the fit": round(seconds, 1)}


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result of some work, and its CPU seconds."""
    start = time.process_time()
    return work(), time.process_time() - start


def people(case: Case, epsilon: float, seed: int) -> TablesModel:
    """The table as people without rows, by `relational`."""
    frame = case.schema.decode(case.codes, torch.Generator().manual_seed(0))
    own, rows = in_memory(frame.assign(pid=np.arange(len(frame)))), in_memory(pd.DataFrame({"pid": [0, 1], "x": [1, 2]}))
    own.table, rows.table = "people", "rows"
    schema = untargeted(case).schema.descriptor()
    data = load_linked(path=rows, people_path=own, person="pid", people_schema=schema, max_rows=1, test_fraction=0.0)
    count = data.tables[0].count
    draft = {**data.people_draft, "fields": [given for given in data.people_draft["fields"] if given["name"] != count]}
    alone = {"tables": (), "names": ("people",), "people": data.people.drop(columns=count), "people_draft": draft}
    data = replace(data, **alone, linking=replace(data.linking, rows=()))
    plan, runtime = RelationalPlan(epsilon=epsilon), Runtime(seed=seed, progress_bar=False)
    return fit_people(data, plan=plan, config=RelationalConfig(), curator=Curator(plan.open_ledger()), runtime=runtime).people


def fitters(case: Case, epsilon: float, seed: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Scores of the same pairs by both fitters."""
    rounds.MOST_TRIPLES, rounds.LEAST_ROUNDS = -1, 10**9  # neither triples nor blocks
    model = released(untargeted(case), epsilon, seed)
    rounds.MOST_TRIPLES, rounds.LEAST_ROUNDS = 1_000, 10
    columns, levels, n, classes = model.columns, model.levels, model.columns.n, len(model.mixture.weights)
    pairs = [m for m in model.measurements if len(m.marginal.columns) == 2]
    precision = sum(float(np.min(m.noise_std)) ** -2 for m in model.measurements) ** 0.5
    options: dict[str, Any] = {"information": sizes(precision, n).information}

    def closed() -> Any:
        fitter = Fitter(columns.group_shares, n, components=classes, generator=np.random.default_rng(seed), **options)
        fitter.measure([*columns.smooth, *pairs], levels)
        fitter.run(STEPS[0], RATE, RATE)
        fitter.run(STEPS[1], RATE / 2, RATE / 50)
        return fitter.mixture

    def tree() -> Any:
        layout = Layout(Shape(columns.coarse.sizes, ()), tuple((level,) for level in levels))
        sums = [(Table(("one", "person", "unit"), m.marginal.columns[0], 0, 0), m.values, m.noise_std) for m in columns.smooth]
        sums += [
            (Table(("people", "person", "person"), *m.marginal.columns, m.marginal.level), m.values, m.noise_std) for m in pairs
        ]
        generator = torch.Generator().manual_seed(seed)
        fitter = TreeFitter(layout, [columns.group_shares], n, classes=(classes, 1), generator=generator, **options)
        fitter.measure(sums)
        fitter.run(STEPS[0], RATE, RATE)
        fitter.run(STEPS[1], RATE / 2, RATE / 50)
        return fitter.tree.people

    for name, work in (("mixture", closed), ("tree of one node", tree)):
        mixture, seconds = timed(work)
        found = copy.copy(model)
        found.mixture = mixture
        yield name, judged(case, found, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_data_root(parser, "adult/ and higgs_11k/")
    parser.add_argument("--cases", nargs="+", default=["adult", "higgs"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 10.0])
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.cases:
        case = {"adult": adult, "higgs": higgs}[name](args.data_root)
        for epsilon in args.epsilons:
            found = dict[str, list[dict[str, float]]]()
            for seed in range(args.seeds):
                for label, fit in (("tables", released), ("relational, people alone", people)):
                    model, seconds = timed(partial(fit, case, epsilon, seed))
                    found.setdefault(label, []).append(judged(case, model, seconds))
                for label, own in fitters(case, epsilon, seed):
                    found.setdefault(f"the same pairs, {label}", []).append(own)
            means = {label: pd.DataFrame(rows).mean().round(4).to_dict() for label, rows in found.items()}
            print(name, epsilon, pd.DataFrame(means).T.to_string(), sep="\n", flush=True)
            store(RESULTS, f"{name}, epsilon {epsilon:g}", means, machine=machine())


if __name__ == "__main__":
    main()
