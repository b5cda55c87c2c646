"""Makes `saved.tar.xz` with dpgen 0.5.0 (see README.md): `python make.py CHECKOUT OUT`, in an empty folder OUT."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

CHECKOUT, OUT = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
sys.path[:0] = [str(CHECKOUT / part) for part in (".", "tests/helpers", "tests/contracts")] + [str(Path(__file__).parent)]

import lightning as L  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import smoke  # noqa: E402
import torch  # noqa: E402
from saved_networks import SavedModule  # noqa: E402
from smoke import Smoke  # noqa: E402
from three_tables import three_tables  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import dpgen  # noqa: E402
from dpgen.cli.main import main  # noqa: E402
from dpgen.data.toy import simulated_patients  # noqa: E402
from dpgen.files import released_files  # noqa: E402
from dpgen.privacy.ledger import Budget, Ledger, Planned  # noqa: E402
from dpgen.privacy.ledger_file import checksum  # noqa: E402
from dpgen.privacy.mechanisms import gaussian_event  # noqa: E402
from dpgen.privacy.noise import SecureSource  # noqa: E402
from dpgen.privacy.shared_budget import SharedBudget  # noqa: E402
from dpgen.release import PublicModel, Release  # noqa: E402

assert dpgen.__version__ == "0.5.0", dpgen.__version__
N, SEED = 6, 7
PLACE = "/saved"
"""Stands in the files for the folder that they are in."""

_NETS, _SGD = smoke._NETS, smoke._SGD
MORE = [
    Smoke("dpgm", _SGD, {"hidden": 3, "latent": 1, "component": "conv_vae"}),
    Smoke("dpgm", _SGD, {"network": "saved_networks:SavedNetwork", "clusters": "none"}),
    Smoke("dpgm", _SGD, {"network": "saved_networks:SavedClassifier", "clusters": "none"}),
    Smoke("dpgm", _SGD, {"network": "saved_networks:SavedNetwork", "clusters": "none"}, smoke.DATA["table"]),
    Smoke("dpgm", _SGD, {"network": "saved_networks:SavedClassifier", "clusters": "none"}, smoke.DATA["table"]),
    Smoke("dpgm", _SGD, {"network": "saved_networks:SavedNetwork"}, smoke.images),
    Smoke("dpgan", _SGD, {"network": "saved_networks:SavedGenerator", "fakes": 8}, smoke.DATA["points"]),
]


LINKED: dict[str, Any] = {"person": "patient", "order": "date", "max_rows": 3, "classes": 4, "row_classes": 3}
SMALL = {"components": 6}


def customers(n: int = 300) -> pd.DataFrame:
    """A table as people have it: amounts with gaps, days, moments, categories, truth values, texts, and people."""
    rng = np.random.default_rng(5)
    spent = pd.Series(rng.lognormal(4, 1, n).round(2)).where(rng.random(n) > 0.2)
    return pd.DataFrame(
        {
            "person": [f"p{i // 3}" for i in range(n)],
            "spent": spent,
            "visits": rng.poisson(2, n),
            "town": pd.Categorical(rng.choice(["Ulm", "Bern", "Graz"], n, p=[0.6, 0.3, 0.1])),
            "member": rng.random(n) < 0.3,
            "born": pd.Timestamp("1950-01-01") + pd.to_timedelta(rng.integers(0, 20000, n), unit="D"),
            "note": [f"text {i}" for i in range(n)],
            "plan": pd.Series(rng.choice(["a", "b"], n)).where(rng.random(n) > 0.3),
        }
    )


def own_module() -> Release:
    torch.manual_seed(0)
    module, loader = SavedModule(), DataLoader(TensorDataset(torch.randn(64, 3)), batch_size=16, shuffle=True)
    off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = L.Trainer(accelerator="cpu", max_steps=3, **dict.fromkeys(off, False))
    made, private, trainer = dpgen.make_private(module, loader, trainer, epsilon=3.0, sampling_rate=0.25)
    trainer.fit(made, private)
    return dpgen.release(made, OUT / "scratch")


def fitted() -> dict[str, Release]:
    """Releases of data in memory, which keep names and types."""
    frame, rng = customers(), np.random.default_rng(0)
    bits = pd.DataFrame(rng.random((80, 4)) < [0.2, 0.5, 0.8, 0.4], columns=["tea", "milk", "rum", "water"])
    two, three = simulated_patients(60), three_tables(60)
    numbers = pd.DataFrame({"weight": rng.normal(70, 9, 200).round(1), "height": rng.normal(170, 9, 200).round(0)})
    return {
        "customers": dpgen.fit(frame.drop(columns="person"), epsilon=4.0, **SMALL),
        "customers_of_people": dpgen.fit(frame, epsilon=4.0, unit="person", max_contributions=3, **SMALL),
        "customers_independent": dpgen.fit(frame.drop(columns="person"), epsilon=4.0, method="independent"),
        "customers_target": dpgen.fit(frame.drop(columns=["person", "note"]), epsilon=4.0, target="member", **SMALL),
        "numbers_polars": dpgen.fit(__import__("polars").from_pandas(numbers), epsilon=4.0, **SMALL),
        "bits_numpy": dpgen.fit(bits.to_numpy(), epsilon=4.0),
        "bits": dpgen.fit(bits, epsilon=4.0),
        "bits_mwem": dpgen.fit(bits, "mwem", epsilon=4.0, rounds=2),
        "sets": dpgen.fit([{"a", "b"}, {"b"}, {"c"}, set()] * 20, epsilon=4.0, items=["a", "b", "c"]),
        "grey_images": dpgen.fit(rng.integers(0, 256, (60, 6, 6), dtype=np.uint8), epsilon=4.0),
        "column": dpgen.fit(pd.DataFrame({"age": rng.integers(0, 64, 300)}), "merr", epsilon=2.0, low=0, high=63),
        "linked_two": dpgen.fit(two, epsilon=4.0, **LINKED),
        "linked_one": dpgen.fit(two["visits"], epsilon=4.0, **LINKED),
        "linked_three": dpgen.fit(three, epsilon=4.0, **LINKED | {"order": {"visits": "date"}, "max_rows": 2}),
        "own_module": own_module(),
    }


KMEANS = ("--clusters=kmeans", "--k=2", "--n_features=8")
RUNS = {
    "gaussian": ["--model=gaussian", "--data=digits", "--epsilon=2"],
    "marginals": ["--model=marginals", "--data=digits", "--epsilon=2"],
    "mwem": ["--model=mwem", "--data=digits", "--epsilon=2", "--rounds=3"],
    "merf": ["--model=merf", "--data=digits", "--epsilon=2", "--n_features=20", "--hidden=3", "--latent=1", "--steps=3"],
    "dpgm": ["--model=dpgm", "--data=digits", "--epsilon=2", "--hidden=3", "--component=vae", "--steps=3"],
    "dpgm_kmeans": ["--model=dpgm", "--data=digits", "--epsilon=2", "--hidden=3", "--steps=3", "--component=rbm", *KMEANS],
    "dpgan": ["--model=dpgan", "--data=ring", "--epsilon=2", "--hidden=4", "--latent=2", "--steps=3"],
    "merr": ["--model=merr", "--epsilon=1", "--size=64"],
    "bernstein": ["--model=bernstein", "--data=ring", "--epsilon=1", "--degree=6"],
    "mbde": ["--model=mbde", "--data=ring", "--epsilon=1", "--draws=4", "--steps=2", "--codebook=16"],
    "grid_response": ["--model=grid_response", "--data=ring", "--epsilon=1", "--draws=4"],
    **{
        name: [f"--model={name}", "--data=synthetic_users", "--epsilon=1", "--draws=3", "--n_users=20", "--n_categories=5"]
        for name in ("minimax", "mollifier", "projected_kernel", "q_invariant", "randomized_response", "park")
    },
    "shared_gaussian": ["--model=gaussian", "--data=digits", "--epsilon=1", f"--ledger={OUT / 'shared.budget'}"],
    "shared_marginals": ["--model=marginals", "--data=digits", "--epsilon=1", f"--ledger={OUT / 'shared.budget'}"],
}


KEPT = ("privacy.json", "ledger.jsonl", "config.yaml", "versions.yaml", "metrics.json")
EVALUATED = ("gaussian", "merr")


def run(name: str, directory: Path) -> None:
    """A whole run by the command line; of tables by `fit`."""
    with contextlib.redirect_stdout(io.StringIO()):
        if name == "relational":
            dpgen.fit(simulated_patients(60), epsilon=2.0, run_dir=directory, **LINKED)
        elif name == "tables":
            dpgen.fit(customers(), epsilon=2.0, run_dir=directory, unit="person", max_contributions=3, **SMALL)
        else:
            options = [*RUNS[name], f"--run_dir={directory}", "--progress_bar=false", "--accelerator=cpu"]
            options += [] if name in EVALUATED else ["--evaluation=none"]
            assert main(["train", *options]) == 0, name


def rows(frame: pd.DataFrame) -> Any:
    """The first rows as JSON, columns included."""
    return json.loads(frame.head(N).to_json(orient="split", date_format="iso", double_precision=15, index=False))


def samples_of(model: PublicModel) -> Any:
    """The first seeded samples; of modules that do not sample the sums of their weights."""
    if model.kind == "module":
        return {name: float(value.double().sum()) for name, value in model.weights.items()}
    made = model.samples(N, random_state=SEED)
    tables = made.tables if hasattr(made, "tables") else {"": made.to_pandas()}
    return {name: rows(table) for name, table in tables.items()}


def guarantee(release: Release) -> dict[str, Any]:
    statement = release.statement
    return {name: getattr(statement, name) for name in ("epsilon", "delta", "relation", "unit", "also")}


def unfinished(options: list[str]) -> None:
    """A training that was killed: its ledger and its settings."""
    directory = OUT / "unfinished"
    command = [sys.executable, "-m", "dpgen", "train", *options, "--steps=100000", f"--run_dir={directory}"]
    child = subprocess.Popen(command, cwd=CHECKOUT, env=os.environ | {"PYTHONPATH": str(CHECKOUT)}, stdout=-3, stderr=-3)
    while True:
        time.sleep(0.1)
        with contextlib.suppress(FileNotFoundError, ValueError):
            if json.loads((directory / "ledger.jsonl").read_bytes())["commits"] > 1:
                break
    child.send_signal(signal.SIGKILL)
    child.wait()


def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """A member of the archive without owner and time."""
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


def keep(directory: Path, names: set[str]) -> None:
    """Remove everything else from a folder."""
    for path in sorted(directory.rglob("*"), reverse=True):
        if path.is_file() and str(path.relative_to(directory)) not in names:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def without_place(path: Path) -> None:
    """Write `PLACE` for this folder into a file of settings, a ledger or a budget."""
    text = path.read_text()
    if str(OUT) in text:
        document = json.loads(text.replace(str(OUT), PLACE)) if path.suffix != ".yaml" else None
        if document is not None:
            document.pop("sha256")
            text = json.dumps(document | {"sha256": checksum(document)}, separators=(",", ":"))
        path.write_text(text.replace(str(OUT), PLACE))


if __name__ == "__main__":
    expected: dict[str, Any] = {"models": {}, "runs": {}}
    for i, case in enumerate(smoke.SMOKE + MORE):
        if "own_networks" in str(case):
            continue
        release, _ = case.fit(case.relations[0], OUT / "scratch" / str(i), SecureSource())
        if isinstance(release, PublicModel):
            name = f"{i:02d}_" + re.sub(r"[^a-z0-9_]+", "-", str(case).lower())[:60]
            expected["models"][name] = release
    expected["models"] |= fitted()
    for name, release in expected["models"].items():
        release.save(OUT / "models" / name)
        expected["models"][name] = guarantee(release) | {"kind": release.kind, "samples": samples_of(release)}

    SharedBudget.create(OUT / "shared.budget", Budget(4.0, 1e-5))
    for name in ("relational", "tables", *RUNS):
        directory = OUT / "runs" / name
        run(name, directory)
        found = dpgen.run.__globals__["released"](directory)
        drawn = isinstance(found, dpgen.Draws)
        expected["runs"][name] = guarantee(found) | {"samples": {"": rows(found.to_pandas())} if drawn else samples_of(found)}
        keep(directory, {*released_files(directory), *KEPT})
    shared = SharedBudget(OUT / "shared.budget")
    abandoned = shared.payer("gaussian", directory=OUT / "abandoned")
    abandoned.pay([Planned(gaussian_event(20.0), "counts", 2)], Budget(1.0, 1e-5))
    shared.give_back(abandoned.run)
    spending = shared.spending()
    expected["shared"] = {"epsilon": spending.epsilon, "runs": spending.runs, "payments": len(spending.payments)}

    unfinished(RUNS["dpgm"][:-1])
    keep(OUT / "unfinished", {"ledger.jsonl", "config.yaml"})
    with Ledger.open(OUT / "unfinished" / "ledger.jsonl") as ledger:
        entries = [[e.note, str(e.event), e.count] for e in ledger.entries()]
        expected["unfinished"] = {"epsilon": ledger.epsilon(), "spent": ledger.spent(), "entries": entries}

    for path in (OUT / "shared.budget", *OUT.rglob("ledger.jsonl"), *OUT.rglob("config.yaml")):
        without_place(path)
    (OUT / "expected.json").write_text(json.dumps(expected))
    with tarfile.open(OUT / "saved.tar.xz", "w:xz", preset=9) as archive:
        for name in ("expected.json", "shared.budget", "models", "runs", "unfinished"):
            archive.add(OUT / name, name, filter=plain)
