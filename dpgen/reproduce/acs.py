"""Figures 2 to 5 of Acs et al. (2017): what DPGM costs, what it draws, how it clusters, and how it answers counting queries."""

import math
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from tqdm.auto import tqdm

from dpgen.cli.command import quiet_runtime, quiet_training
from dpgen.data.images import load_digits, load_mnist
from dpgen.data.records import Records
from dpgen.figures import new_figure, save_figure
from dpgen.files import write_atomically
from dpgen.metrics.queries import query_errors
from dpgen.reproduce import acs_clustering, acs_queries
from dpgen.reproduce.acs_queries import Effort, fit_system
from dpgen.systems.dpgm.costs import epoch_costs
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

DELTA, EPSILON, RATE, EPOCHS = 1e-5, 1.74, 0.0017, 20
"""Of the paper's MNIST runs: delta, epsilon of Figure 3, sampling rate, epochs."""

SIGMAS = {"rate": RATE, "sigma_kmeans": 40.0, "sigma_sgd": 1.0}
"""Rate and noise with which the paper's accounting gives 1.745 after 20 epochs; it does not say its own."""

PANELS: dict[str, tuple[float, float]] = {"rate": (RATE, 0.005), "sigma_kmeans": (40.0, 20.0), "sigma_sgd": (1.0, 1.5)}
READINGS = {"joint, rigorous": "-", "published, rigorous": "--", "as published, no guarantee": ":"}


def reproduce_acs(out: Path, *, data_root: Path | None = None, quick: bool = False, seed: int = 0) -> str:
    """Figures 2, 3, 4 and 5, each with its table.

    - figure2: epsilon per epoch of the joint schedule and of the published one under rigorous accounting, and as published.
    - figure3: samples at eps 1.74 of one network, of ten on private clusters, and of Gaussians on them.
    - figure4: clustering accuracy against eps; kernel k-means for several d, standard DP k-means for two norm bounds.
    - figure5: counting queries on retail and Gowalla where ``data_root`` has them, and on a simulated city.

    Figures 3 and 4 are of MNIST where ``data_root`` has it, else of scikit-learn's digits.

    Arguments:
        out: directory of pictures (.png), tables (.csv) and the summary.
        data_root: directory with ``mnist/``, ``retail/`` and ``gowalla/``.
        quick: few points, few steps, small data: a minute. In full with all data half an hour on one core, two thirds of
            it figure 5; without ``data_root`` about a third of that.
        seed: of public randomness.

    Returns:
        What was found, in a few lines.
    """
    images = image_data(None if quick else data_root, seed=seed)
    parts = [
        figure2(out, rows=1 if quick else 10, cases=1 if quick else 6),
        figure3(out, images, steps=3 if quick else 300, seed=seed),
        figure4(out, images, epsilons=(1.0,) if quick else acs_clustering.EPSILONS, seeds=1 if quick else 2, seed=seed),
        figure5(out, None if quick else data_root, quick=quick, seed=seed),
    ]
    text = "\n".join([*parts, f"pictures and tables in {out}"])
    write_atomically(out / "summary.txt", text + "\n")
    return text


def image_data(data_root: Path | None, *, seed: int) -> Records:
    """MNIST if it is at hand, else the embedded digits; ten of the records are public."""
    if data_root is not None and (data_root / "mnist").is_dir():
        return load_mnist(data_root=str(data_root), public_records=10, split_seed=seed)
    return load_digits(public_records=10, split_seed=seed)


# -- Figure 2: epsilon per epoch -------------------------------------------------------------------------------------


def epoch_table(*, rows: int = 10, cases: int = 6) -> pd.DataFrame:
    """Epsilon after some epochs for each panel, value of what is varied, and way of accounting; the first ``cases`` lines."""
    varied = [(panel, {**SIGMAS, panel: value}) for panel, values in PANELS.items() for value in values]
    found = []
    for panel, case in tqdm(varied[:cases], desc="figure2", leave=False):
        for schedule in ("joint", "published"):
            plan, config = _paper_plan(schedule, **case)
            for cost in map(asdict, epoch_costs(plan, config, rows=rows)):
                entry = {"panel": panel, **case, "epoch": cost["epoch"]}
                found.append({**entry, "reading": f"{schedule}, rigorous", "epsilon": cost["tight"]})
                if schedule == "published":
                    found.append({**entry, "reading": "as published, no guarantee", "epsilon": cost["general_moments"]})
    return pd.DataFrame(found)


def _paper_plan(schedule: Any, *, rate: float, sigma_kmeans: float, sigma_sgd: float) -> tuple[DPGMPlan, DPGMConfig]:
    config = DPGMConfig(clusters="kmeans", k=10, clipping="dpnorm", schedule=schedule).resolved(n_classes=0)
    plan = DPGMPlan(
        delta=DELTA,
        sampling_rate=rate,
        steps=EPOCHS * math.ceil(1 / rate),
        sigma_norm=4.0,
        sigma_sgd=sigma_sgd,
        kmeans_rounds=20,
        sigma_count=math.sqrt(2) * sigma_kmeans,  # the paper's noise has std sqrt(2) sigma_K
        sigma_sum=math.sqrt(2) * sigma_kmeans,
    )
    return config.calibrate(plan), config


def figure2(out: Path, *, rows: int, cases: int = 6) -> str:
    """Write figure2; say what the paper's setting costs."""
    table = epoch_table(rows=rows, cases=cases)
    _write(table, out / "figure2.csv")
    figure = new_figure(11.0, 3.6)
    for axes, (panel, values) in zip(figure.subplots(1, len(PANELS), sharey=True), PANELS.items()):
        for colour, value in zip(("C0", "C1"), values):
            for reading, style in READINGS.items():
                chosen = (table["panel"] == panel) & (table[panel] == value) & (table["reading"] == reading)
                label = f"{reading}, {value:g}"
                axes.plot(table["epoch"][chosen], table["epsilon"][chosen], style, color=colour, label=label)
        axes.set(title=f"{panel.replace('_', ' ')} {' and '.join(f'{v:g}' for v in values)}", xlabel="epoch")
        axes.set(xlim=(0, EPOCHS), ylim=(0, 1.5 * float(table["epsilon"].max())), xticks=range(0, EPOCHS + 1, 5))
        axes.legend(frameon=False, fontsize=6, loc="upper left")
    figure.supylabel(f"epsilon (delta {DELTA:g})", fontsize=9)
    save_figure(figure, out / "figure2.png")
    last = table[(table["panel"] == "rate") & (table["rate"] == RATE)].groupby("reading")["epsilon"].max()
    return (
        "figure2: 20 epochs at q = .0017, sigma_C 4, sigma_K 40, sigma_G 1 and 10 equal clusters: "
        + ", ".join(f"{reading} {last[reading]:.2f}" for reading in READINGS)
        + ". The published accounting books a step on one cluster as a draw from all records, which it is not; a step for "
        "all clusters at once costs less than it claims."
    )


# -- Figure 3: samples -----------------------------------------------------------------------------------------------

MODELS: dict[str, dict[str, Any]] = {
    "VAE, no clusters": {"component": "vae", "clusters": "none", "latent": 10},
    "VAE, 10 clusters": {"component": "vae", "clusters": "kmeans", "k": 10, "latent": 10, "init": "public"},
    "RBM, 10 clusters": {"component": "rbm", "clusters": "kmeans", "k": 10, "chains": 32, "init": "public"},
    "Gaussian, 10 clusters": {"component": "gaussian", "clusters": "kmeans", "k": 10},
}
"""Networks are trained on 2 % of the records a step at rate .1, which at equal epsilon serves better than the paper's q."""

SHOWN = {"vae": "means", "rbm": "means", "gaussian": "bits"}
"""What `_samples` gives of each component."""


def figure3(out: Path, images: Records, *, steps: int, seed: int) -> str:
    """Write figure3: ten rows of eight samples of every model, without labels, all at eps 1.74; with clusters a row each."""
    records = replace(images, labels=None, test_labels=None, public_labels=None, n_classes=0, class_names=None)
    generator = torch.Generator().manual_seed(seed)
    shown = [records.test_x[torch.randperm(len(records.test_x), generator=generator)[:80]].float()]
    rows = []
    for name, config in tqdm(MODELS.items(), desc="figure3", leave=False):
        plan = {"epsilon": EPSILON, "delta": DELTA}
        if config["component"] != "gaussian":
            config = {**config, "hidden": 100 if config["component"] == "vae" else 50}
            plan |= {"sampling_rate": max(0.02, min(1.0, 100 / records.n)), "steps": steps, "partition_share": 0.3}
        with TemporaryDirectory() as directory, quiet_training():
            model = fit_system("dpgm", records, quiet_runtime(Path(directory), seed), plan=plan, config=config)
        clusters = config.get("k", 1)
        drawn = [_samples(model, 80 // clusters, cluster, seed) for cluster in range(clusters)]
        shown.append(torch.cat(drawn))
        errors = query_errors(records.test_x, model.sample(len(records.test_x), seed=seed).x, seed=seed)
        rows.append({"model": name, "data": images.name, "epsilon": model.statement.epsilon} | _conjunctions(errors))
    table = pd.DataFrame(rows)
    _write(table, out / "figure3.csv")
    titles = ["real (test part)", *(f"{name}: {SHOWN[config['component']]}" for name, config in MODELS.items())]
    _sample_sheets(titles, shown, images.image_shape or (1, images.d), out / "figure3.png")
    measured = ", ".join(f"{row['model']} {row['all_2']:.2f}" for row in rows)
    return f"figure3: {images.name} at eps {EPSILON}; error of conjunctions of two pixels: {measured}"


def _samples(model: Any, n: int, cluster: int, seed: int) -> Tensor:
    """Mean values where a model has them, as the paper shows; bits otherwise."""
    if hasattr(model, "means"):
        return torch.as_tensor(model.means(cluster, n, torch.Generator().manual_seed(seed + cluster)))
    drawn = model.sample(4000, seed=seed)  # by weight, so that a component that vanished leaves its row empty
    found = drawn.x[drawn.cluster == cluster][:n].float()
    return torch.cat([found, found.new_zeros(n - len(found), found.shape[1])])


def _conjunctions(errors: dict[str, float]) -> dict[str, float]:
    return {kind: error for kind, error in errors.items() if kind.startswith("all")}


def _sample_sheets(titles: list[str], sheets: list[Tensor], shape: tuple[int, int], path: Path) -> None:
    figure = new_figure(2.2 * len(sheets), 3.1)
    figure.suptitle(f"eps {EPSILON:g}, delta {DELTA:g}, no labels; with clusters a row is a cluster", fontsize=8)
    for axes, title, sheet in zip(figure.subplots(1, len(sheets)), titles, sheets):
        tiles = sheet.reshape(10, 8, *shape).permute(0, 2, 1, 3).reshape(10 * shape[0], 8 * shape[1])
        axes.imshow(tiles.numpy(), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(title, fontsize=8)
        axes.set(xticks=[], yticks=[])
    save_figure(figure, path)


# -- Figures 4 and 5 -------------------------------------------------------------------------------------------------


def figure4(out: Path, images: Records, *, epsilons: tuple[float, ...], seeds: int, seed: int) -> str:
    """Write figure4; say how far the kernel is ahead."""
    with tqdm(total=seeds * len(acs_clustering.METHODS) * len(epsilons), desc="figure4", leave=False) as bar:
        runs = [acs_clustering.clustering_runs(images, epsilons=epsilons, seed=seed + i, bar=bar) for i in range(seeds)]
    table = pd.concat(runs, ignore_index=True)
    _write(table, out / "figure4.csv")
    acs_clustering.clustering_figure(table, out / "figure4.png")
    return acs_clustering.clustering_verdict(table)


def figure5(out: Path, data_root: Path | None, *, quick: bool, seed: int) -> str:
    """Write figure5 of every data set; say where DPGM wins."""
    effort = acs_queries.QUICK if quick else Effort()
    epsilons = (1.0,) if quick else acs_queries.EPSILONS
    data = list(acs_queries.set_data(data_root, seed=seed, n_users=1000 if quick else 20_000))
    tables, title = [], "figure5" if quick else "figure5 (up to 20 minutes)"
    with tqdm(total=len(data) * acs_queries.job_count(epsilons), desc=title, leave=False) as bar:
        for records in data:
            tables.append(acs_queries.compare(records, epsilons, effort, seed=seed, bar=bar))
            acs_queries.queries_figure(tables[-1], out / f"figure5_{records.name.replace(' ', '_')}.png")
            table = pd.concat(tables, ignore_index=True)
            _write(table, out / "figure5.csv")  # what is done stays when a run of half an hour is stopped
    return "figure5:\n" + acs_queries.verdict(table)


def _write(table: pd.DataFrame, path: Path) -> None:
    write_atomically(path, table.to_csv(index=False))
