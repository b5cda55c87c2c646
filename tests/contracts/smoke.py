"""The smallest fit of every system in every form that makes other releases, with all that its curator gave out."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tiny
import torch
from conformance import RELATIONS
from three_tables import linked_three

from dpgen.containers import in_memory
from dpgen.data import Images, load_linked, load_mixture, load_ring, load_synthetic_users, load_table
from dpgen.data.toy import PATIENTS, VISITS, simulated_patients
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.mechanisms import Relation
from dpgen.privacy.noise import SecureSource
from dpgen.release import Release
from dpgen.runtime import Runtime
from dpgen.systems.registry import SYSTEMS


@dataclass(frozen=True)
class Smoke:
    """One fit: options of its plan and its model, data if not those of its kind, and the relations that it allows."""

    system: str
    plan: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    data: Callable[[], Any] | None = None
    relations: tuple[Relation, ...] = RELATIONS

    def __str__(self) -> str:
        options = {**self.plan, **self.config}.items()
        return " ".join([self.system, *(f"{k}={getattr(v, '__name__', v)}" for k, v in options if k not in NOT_NAMED)])

    def fit(self, relation: Relation, directory: Path, source: SecureSource) -> tuple[Release, Ledger]:
        """The release, and the ledger that it was paid from."""
        system = SYSTEMS[self.system]
        both = {"relation": relation} if self.relations == RELATIONS else {}
        plan = system.plan(**self.plan, **both)
        ledger = plan.open_ledger()
        runtime = Runtime(run_dir=directory, accelerator="cpu", progress_bar=False)
        data = (self.data or DATA[system.kinds[0]])()
        curator = Curator(ledger, source=source)
        release = system.fit(data, plan=plan, config=system.config(**self.config), curator=curator, runtime=runtime)
        return release, ledger


NOT_NAMED = ("epsilon", "delta", "sampling_rate", "hidden", "latent", "n_features", "steps", "batch")


def grey_records() -> Any:
    """Images with their grey values."""
    records = tiny.records(labelled=False)
    shades = [torch.arange(x.numel()).reshape(x.shape) % 128 + 128 * x for x in (records.x, records.test_x)]
    grey, test_grey = (shade.to(torch.uint8) for shade in shades)
    return replace(records, grey=grey, test_grey=test_grey, grey_threshold=127)


def images() -> Any:
    """Images in colour of two classes."""
    x = torch.randint(0, 256, (40, 6, 6, 3), generator=torch.Generator().manual_seed(0)).byte()
    labels = torch.arange(40) % 2
    return Images("tiny", x, labels, x[:4], labels[:4], class_names=("left", "right"))


def narrow_records() -> Any:
    """Records of few columns."""
    records = tiny.records()
    return replace(records, x=records.x[:, :4], test_x=records.test_x[:, :4], image_shape=None)


def people() -> Any:
    """Records of people with one to three each, some of them in both classes."""
    records = tiny.records()
    return replace(records, people=torch.arange(len(records.x)) * 3 // 7)


def people_of_points() -> Any:
    """Points of people with two or three each."""
    points = DATA["points"]()
    return replace(points, people=torch.arange(len(points.x)) * 3 // 7)


def sets() -> Any:
    """Sparse records."""
    records = tiny.records(labelled=False)
    x = torch.zeros_like(records.x)
    x[torch.arange(len(x)), torch.arange(len(x)) * 7 % tiny.D] = 1
    return replace(records, x=x, image_shape=None)


def clamped_columns() -> Any:
    """A column whose values may lie outside its domain."""
    data = load_mixture(n_records=400)
    return replace(data, clamped=dict.fromkeys(data.values, 3))


def small_columns() -> Any:
    """A column with few values."""
    return load_mixture(n_records=400, size=64)


def small_table() -> Any:
    """A table of few cells."""
    fields = [{"name": name, "type": "boolean", "constraints": {"required": True}} for name in ("a", "b", "c")]
    frame = pd.DataFrame(np.arange(1200).reshape(400, 3) % 7 > 3, columns=["a", "b", "c"])
    return load_table(path=in_memory(frame), schema={"fields": fields}, test_fraction=0.0)


_ASKED = [["ward"], ["spent", "ward"], {"mean": "spent", "by": ["ward"]}]


def raw_table() -> Any:
    """A table of which nothing is known."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "spent": np.where(rng.random(400) < 0.5, 0.0, rng.lognormal(4, 1, 400)).round(2),
            "ward": rng.choice(["a", "b"], 400),
            "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 400), unit="D"),
            "note": [f"text {i}" for i in range(400)],
            "zip": [f"0{i % 40:04d}" for i in range(400)],
        }
    )
    return load_table(path=in_memory(frame), test_fraction=0.0)


def linked_tables(raw: bool = False) -> Any:
    """A few patients and their visits, whose domains are declared, or to be bought."""
    tables = simulated_patients(60)
    patients, visits = in_memory(tables["patients"]), in_memory(tables["visits"])
    patients.table, visits.table = "patients", "visits"
    schemas: dict[str, Any] = {} if raw else {"schema": dict(VISITS), "people_schema": dict(PATIENTS)}
    options: dict[str, Any] = {"person": "patient", "order": "date", "max_rows": 3, "test_fraction": 0.0}
    return load_linked(path=visits, people_path=patients, **schemas, **options)


def tree() -> Any:
    """Patients, their visits and what was prescribed there."""
    return linked_three(60, 2)


def raw_linked_tables() -> Any:
    """The same of which nothing is known."""
    return linked_tables(raw=True)


DATA: dict[str, Callable[[], Any]] = {
    "records": tiny.records,
    "points": lambda: load_ring(n_points=60, n_test=40),
    "columns": lambda: load_mixture(n_records=400),
    "users": lambda: load_synthetic_users(n_users=12, n_categories=5),
    "table": lambda: load_table(test_fraction=0.0),
    "images": images,
    "linked": linked_tables,
}
"""A small data set of each kind."""

_SGD = {"epsilon": 2.0, "steps": 3, "sampling_rate": 0.5}
_NETS = {"hidden": 3, "latent": 1}
_LOCAL: tuple[Relation, ...] = ("replace_one",)
_MERF = {"n_features": 20, "hidden": 3, "latent": 1, "steps": 3, "batch": 10}
PEOPLE = {"unit": "person", "max_contributions": 3}
_LINKED = {"method": "linked", "picks": 4, "steps": 20}
_APART = {"method": "independent", "classes": 2, "row_classes": 2, "steps": 20}


SMOKE = [
    *(Smoke("dpgm", _SGD, _NETS | {"clipping": c}) for c in ("auto", "fixed", "dpnorm")),
    Smoke("dpgm", _SGD | {"kmeans_rounds": 2}, _NETS | {"clusters": "kmeans", "k": 2, "n_features": 8}),
    Smoke("dpgm", _SGD, _NETS | {"clusters": "none"}),
    Smoke("dpgm", _SGD | {"sampling": "allocation"}, _NETS, relations=("add_remove",)),
    Smoke("dpgm", _SGD, {"hidden": 3, "component": "rbm"}),
    *(Smoke("dpgm", _SGD, {"network": "own_networks:Good", "clusters": "none"}, data) for data in (None, DATA["table"])),
    *(
        Smoke("gaussian", {"epsilon": 2.0}, options, data)
        for options, data in (
            ({}, tiny.records),
            ({"clusters": "kmeans", "k": 2}, tiny.records),
            ({"subclusters": 2}, tiny.records),
            ({"form": "latent", "clusters": "none"}, tiny.records),
            ({"form": "sizes", "clusters": "none"}, sets),
            ({"clusters": "none"}, grey_records),
            ({"frequencies": 12}, images),
            ({"frequencies": 8, "mirror": False}, images),
        )
    ),
    Smoke("dpgan", _SGD, _NETS | {"fakes": 8}),
    Smoke("dpgan", _SGD, _NETS | {"fakes": 8, "centred": True}),
    Smoke("dpgan", _SGD, _NETS | {"fakes": 8}, DATA["points"]),
    *(Smoke(system, _SGD, _NETS | options, images) for system, options in (("dpgm", {}), ("dpgan", {"fakes": 8}))),
    *(Smoke("dpgm", _SGD | PEOPLE, _NETS | {"clipping": c}, people) for c in ("auto", "dpnorm")),
    Smoke("dpgm", _SGD | PEOPLE | {"kmeans_rounds": 2}, _NETS | {"clusters": "kmeans", "k": 2, "n_features": 8}, people),
    Smoke("dpgm", _SGD | PEOPLE, {"hidden": 3, "component": "rbm"}, people),
    Smoke("dpgan", _SGD | PEOPLE, _NETS | {"fakes": 8}, people),
    Smoke("dpgan", _SGD | PEOPLE, _NETS | {"fakes": 8}, people_of_points),
    Smoke("merf", {"epsilon": 2.0}, _MERF),
    Smoke("merf", {"epsilon": 2.0}, _MERF, images),
    Smoke("merf", {"epsilon": 2.0} | PEOPLE, _MERF),
    Smoke("marginals", {"epsilon": 2.0}),
    Smoke("mwem", {"epsilon": 2.0, "rounds": 3}, {"queries": 20}),
    Smoke("mwem", {"epsilon": 2.0, "rounds": 3}, {}, narrow_records),
    Smoke("tables", {"epsilon": 2.0}, {"method": "mixture", "components": 4, "rounds": 2, "picks": 4}),
    Smoke("tables", {"epsilon": 2.0}, {"method": "independent"}),
    *(Smoke("tables", {"epsilon": 2.0} | of, {}, small_table) for of in ({}, PEOPLE)),
    *(Smoke("tables", {"epsilon": 2.0} | of, {"method": "independent"}, raw_table) for of in ({}, PEOPLE)),
    *(
        Smoke("tables", {"epsilon": 2.0} | of, {"components": 4, "rounds": 1, "workload": _ASKED}, raw_table)
        for of in ({}, PEOPLE)
    ),
    Smoke("tables", {"epsilon": 2.0} | PEOPLE, {"method": "mixture", "components": 4, "rounds": 2, "picks": 4}),
    Smoke("relational", {"epsilon": 2.0}, {**_LINKED, "classes": 4, "row_classes": 3, "rounds": 2}),
    Smoke("relational", {"epsilon": 2.0}, _APART, raw_linked_tables),
    Smoke("relational", {"epsilon": 2.0}, {**_LINKED, "classes": 3, "row_classes": 2, "rounds": 1}, tree),
    *(
        Smoke("merr", {"delta": 1e-6, "public_n": n}, {"method": method, **options}, data)
        for method, options in (
            ("partition", {}),
            ("points", {"steps": 3}),
        )
        for data, n in ((clamped_columns, None), (DATA["columns"], 400))
    ),
    *(Smoke("merr", {"delta": 1e-6, "public_n": n}, {"method": "laplace"}, small_columns) for n in (None, 400)),
    Smoke("merr", {"delta": 0.0}, {"method": "points", "steps": 3}, small_columns),
    *(Smoke("gaussian", {"epsilon": 2.0} | PEOPLE, options) for options in ({}, {"subclusters": 2})),
    Smoke("marginals", {"epsilon": 2.0} | PEOPLE),
    Smoke("mwem", {"epsilon": 2.0, "rounds": 3} | PEOPLE, {"queries": 20}),
    Smoke("mwem", {"epsilon": 2.0, "rounds": 3} | PEOPLE, {}, narrow_records),
    *(
        Smoke("merr", {"delta": 1e-6} | PEOPLE, {"method": method, **options}, clamped_columns)
        for method, options in (
            ("partition", {}),
            ("points", {"steps": 3}),
        )
    ),
    Smoke("merr", {"delta": 0.0} | PEOPLE, {"method": "points", "steps": 3}, small_columns),
    Smoke("merr", {"delta": 1e-6} | PEOPLE, {"method": "laplace"}, small_columns),
    *(Smoke("mbde", {"draws": 3}, {"steps": 2, "codebook": 16, "rounds": t}, None, _LOCAL) for t in (1, 3)),
    Smoke("bernstein", {}, {"degree": 6}),
    Smoke("bernstein", PEOPLE, {"degree": 6}),
    Smoke("grid_response", {"draws": 3}, {}, None, _LOCAL),
    *(
        Smoke(name, {"draws": 2}, {}, None, _LOCAL)
        for name in ("minimax", "mollifier", "projected_kernel", "q_invariant", "randomized_response", "park")
    ),
]
