"""Quality of DPGM on MNIST at equal budgets, several seeds: `python benchmarks/quality.py --data_root DIR [--only NAME ...]`.

Each preset trains a mixture, samples as many records as it was trained on, and reports the accuracy on the real test
images of a convolutional network trained on them, and the relative errors of counting queries. Settings were chosen by
hand on seed 0 of these very data, which the budget does not cover.
"""

import argparse
import logging
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from measuring import add_data_root, machine, store
from torch import Tensor

from dpgen import SYSTEMS, Budget, DPGMConfig, DPGMPlan, Runtime, data, metrics
from dpgen.privacy.accountants import calibrate_noise
from dpgen.privacy.curator import Curator
from dpgen.privacy.mechanisms import GaussianMechanism, gaussian_event
from dpgen.privacy.noise import SecureSource

LABELS: dict[str, Any] = {"clusters": "labels", "latent": 10, "lr": 0.1}
PRESETS: dict[str, tuple[dict[str, Any], dict[str, Any], float | None]] = {
    # name: (config, plan, reference accuracy)
    "labels as clusters, eps 1": (LABELS, {"epsilon": 1.0, "sampling_rate": 0.05, "steps": 300}, 0.77),
    "labels as clusters, eps 10": (LABELS, {"epsilon": 10.0, "sampling_rate": 0.05, "steps": 600}, 0.84),
    "RBM, labels as clusters, eps 10": (
        {"component": "rbm", "clusters": "labels"},
        {"epsilon": 10.0, "sampling_rate": 0.05, "steps": 600},
        None,
    ),
    "paper's configuration, eps 1.74": (
        {"clusters": "kmeans", "k": 10, "latent": 2, "lr": 0.02, "centred": False},
        {"epsilon": 1.74, "sampling_rate": 0.0017, "steps": 11765, "kmeans_rounds": 20, "partition_share": 0.3},
        0.70,
    ),
}


def private_marginals(x: Tensor, epsilon: float, n: int) -> Tensor:
    """Records (n, d) with independent items whose frequencies cost (epsilon, 1e-5): sums have sensitivity sqrt(d)."""
    sigma = calibrate_noise(gaussian_event, Budget(epsilon, 1e-5))
    mechanism = GaussianMechanism(sigma, sensitivity=x.shape[1] ** 0.5)
    sums = mechanism.release(x.sum(0, dtype=torch.float64), SecureSource())
    return torch.bernoulli((sums / len(x)).clamp(0, 1).expand(n, -1), generator=torch.Generator().manual_seed(0)).byte()


def one_run(records: Any, config: dict[str, Any], plan: dict[str, Any], seed: int) -> dict[str, float]:
    """Fit, sample, score."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        runtime = Runtime(run_dir=Path(directory), seed=seed, progress_bar=False, checkpoint_every=10**6, accelerator="cpu")
        made = DPGMPlan(**plan)
        model = SYSTEMS["dpgm"].fit(
            records, plan=made, config=DPGMConfig(**config), curator=Curator(made.open_ledger()), runtime=runtime
        )
    seconds = time.perf_counter() - start
    samples = model.samples(records.n, random_state=seed)
    accuracy = metrics.train_on_synthetic_accuracy(
        samples.x, samples.labels, records.test_x, records.test_labels, image_shape=records.image_shape, seed=seed
    )
    clusters = model.assign(records.test_x)
    grouped = {} if clusters is None else {"clustering accuracy": metrics.clustering_accuracy(records.test_labels, clusters)}
    errors = metrics.query_errors(records.test_x, samples.x, seed=seed)
    return {"epsilon": model.statement.epsilon, "accuracy": accuracy, "fit seconds": seconds} | grouped | errors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    add_data_root(parser, "mnist/")
    parser.add_argument("--only", nargs="+", choices=list(PRESETS), help="presets to run")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "quality.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", module="lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    records = data.LOADERS["records"]["mnist"](data_root=options.data_root)
    real = metrics.query_errors(records.test_x, records.x)
    for name in options.only or PRESETS:
        config, plan, reference = PRESETS[name]
        runs = [one_run(records, config, plan, seed) for seed in range(options.seeds)]
        table = {key: [run[key] for run in runs] for key in runs[0]}
        baseline = private_marginals(records.x, plan["epsilon"], records.n)
        marginals = metrics.query_errors(records.test_x, baseline)
        entry = {
            "config": config,
            "plan": plan,
            "threads": options.threads,
            "reference accuracy": reference,
            "independent marginals at this epsilon": marginals,
            "runs": table,
        }
        facts = {"machine": machine("lightning", "opacus"), "queries on real training data": real}
        store(options.out, "presets", {name: entry}, **facts)
        mean, spread = statistics.mean(table["accuracy"]), max(table["accuracy"]) - min(table["accuracy"])
        print(f"{name}: train-on-synthetic accuracy {mean:.3f} (spread {spread:.3f}, reference {reference})", flush=True)
        for key in [key for key in table if key.startswith(("all", "cluster", "fit"))]:
            beside = f"  real {real[key]:.3f}, independent marginals {marginals[key]:.3f}" if key in real else ""
            print(f"    {key}: {statistics.mean(table[key]):.3f}{beside}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
