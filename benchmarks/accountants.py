"""Epsilon of dpgen beside dp_accounting's PLD and opacus' PRV on random plans, and beside exact values.

python benchmarks/accountants.py [--plans 40] [--seconds 120]

Plans: q log-uniform in [1e-5, 1], sigma in [.3, 50], T in [1, 1e5], half with a Gaussian for k-means, delta 1e-5.
A library is refined until it settles; where it fails or asks for too much memory, it is left out and counted.
"""

import argparse
import json
import math
import time
import warnings
from pathlib import Path

import dp_accounting as dpa
import numpy as np
from dp_accounting.pld import PLDAccountant
from measuring import machine

from dpgen.privacy.accountants import delta as delta_of
from dpgen.privacy.accountants import epsilon
from dpgen.privacy.mechanisms import effective_multiplier, gaussian_event, subsampled_gaussian_event
from dpgen.privacy.moments import general_moments_epsilon

DELTA = 1e-5
RESULTS = Path(__file__).parent / "results" / "accountants.json"


def random_plan(random):
    rate, sigma = 10 ** random.uniform(-5, 0), math.exp(random.uniform(math.log(0.3), math.log(50)))
    count = round(10 ** random.uniform(0, 5))
    kmeans = math.exp(random.uniform(math.log(0.5), math.log(50))) if random.random() < 0.5 else None
    parts = [dpa.SelfComposedDpEvent(subsampled_gaussian_event(rate, sigma), count)]
    if kmeans:
        parts.append(gaussian_event(kmeans))
    return {"q": rate, "sigma": sigma, "T": count, "kmeans": kmeans}, dpa.ComposedDpEvent(parts)


def library_pld(event, about):
    """dp_accounting with the grid at a 1/3000 of epsilon, halved until .1 % or a million cells."""
    step, best = max(min(about / 300, 1e-2), 1e-7), math.inf
    for _ in range(5):
        if about * 4 / step > 2e6:
            break
        value = PLDAccountant(value_discretization_interval=step).compose(event).get_epsilon(DELTA)
        if best - value < 1e-3 * value:
            return min(best, value)
        best, step = min(best, value), step / 3
    return best


def attempt(function):
    start = time.perf_counter()
    try:
        value = float(function())
    except Exception as error:  # a library may fail in its own way
        return None, type(error).__name__
    return (value if math.isfinite(value) else None), time.perf_counter() - start


def compare(plans, seconds, seed):
    random, rows, stop = np.random.default_rng(seed), [], time.monotonic() + seconds
    while len(rows) < plans and time.monotonic() < stop:
        plan, event = random_plan(random)
        start = time.perf_counter()
        ours = epsilon(event, DELTA)
        plan |= {"dpgen": ours, "dpgen_seconds": time.perf_counter() - start}
        # epsilons that nobody would publish, and cells by the million, are left to dpgen alone
        usable = 1e-4 < ours < 200
        plan["pld"], plan["pld_seconds"] = attempt(lambda e=event, o=ours: library_pld(e, o)) if usable else (None, "skipped")
        plan["prv"], plan["prv_seconds"] = (
            attempt(lambda e=event: epsilon(e, DELTA, accountant="prv")) if 1e-2 < ours < 60 else (None, "skipped")
        )
        rows.append(plan)
        print(
            f"q {plan['q']:8.2e} sigma {plan['sigma']:6.2f} T {plan['T']:6d} kmeans {plan['kmeans'] or 0:5.2f}  "
            f"dpgen {ours:12.6g} ({plan['dpgen_seconds']:.2f} s)  pld {plan['pld'] or math.nan:12.6g}  "
            f"prv {plan['prv'] or math.nan:12.6g}",
            flush=True,
        )
    return rows


def ratios(rows, other):
    values = [row["dpgen"] / row[other] for row in rows if row[other]]
    return {"plans": len(values), "highest": max(values), "lowest": min(values)} if values else {"plans": 0}


def against_exact(random):
    """Largest and smallest ratio to closed forms: Gaussian compositions through the grid, and single steps."""
    from dpgen.privacy import pld

    found = []
    for _ in range(60):
        sigma, count = math.exp(random.uniform(math.log(0.3), math.log(50))), round(10 ** random.uniform(0, 5))
        exact = dpa.get_epsilon_gaussian(sigma / math.sqrt(count), DELTA)
        if exact > 1e-9:
            found.append(pld.epsilon({(1.0, sigma): count}, DELTA, "remove") / exact)
    return {"cases": len(found), "highest": max(found), "lowest": min(found)}


def published():
    """The paper's example: k = 10, q = .0017, 20 epochs, sigma 1."""
    steps = 20 * math.ceil(1 / 0.0017)

    def repeated(rate, sigma, count):
        return dpa.SelfComposedDpEvent(subsampled_gaussian_event(rate, sigma), count)

    claimed = epsilon(repeated(0.0017, 1.0, steps), DELTA)
    one_cluster = repeated(0.017, 1.0, steps // 10)
    both = {"sampling_rate": 0.0017, "steps": steps, "sigma_norm": 0.7, "sigma_sgd": 0.7, "delta": DELTA}
    return {
        "one cluster per step, as claimed (.93)": claimed,
        "one cluster per step, true (3.55)": epsilon(one_cluster, DELTA),
        "delta at the claimed epsilon (.063)": delta_of(one_cluster, claimed),
        "general moments, sigma .7 and .7, as published (7.22)": general_moments_epsilon(**both),
        "the same, guaranteed (at least 8.53)": epsilon(repeated(0.0017, effective_multiplier(0.7, 0.7), steps), DELTA),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plans", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = compare(options.plans, options.seconds, options.seed)
    summary = {
        "dpgen / dp_accounting PLD": ratios(rows, "pld"),
        "dpgen / opacus PRV": ratios(rows, "prv"),
        "dpgen / exact Gaussian": against_exact(np.random.default_rng(options.seed)),
        "dpgen seconds": {
            "median": float(np.median([r["dpgen_seconds"] for r in rows])),
            "highest": max(r["dpgen_seconds"] for r in rows),
        },
        "published schedule": published(),
    }
    for name, values in summary.items():
        print(f"{name}: " + ", ".join(f"{k} {v:.6g}" for k, v in values.items()))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps({"machine": machine("dp-accounting", "opacus", "scipy"), "summary": summary, "plans": rows}, indent=1) + "\n"
    )
    print(f"written to {RESULTS}")


if __name__ == "__main__":
    main()
