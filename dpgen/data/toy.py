"""Synthetic data: draws of mixtures that are known exactly, and simulated patients with their visits."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch

from dpgen.columns.discretized import DiscretizedColumn
from dpgen.data.columns import Columns
from dpgen.data.mixtures import GaussianMixture, MixtureName, Reading, gaussian_ring, mixture_1d, reference_mixture
from dpgen.data.points import Points
from dpgen.facts import Fact

SYNTHETIC_SIZE = 10**18
_GAUSSIAN_REACH = 4.0


def load_ring(*, n_points: int = 10_000, n_test: int = 2_000, data_seed: int = 0) -> Points:
    """Eight Gaussians on a circle, see `gaussian_ring`, the default that needs no file; bounds are 6 stds around.

    Arguments:
        n_points: private points to draw.
        n_test: points for evaluation.
        data_seed: of the draw.

    >>> load_ring(n_points=100)
    Points('ring': 100 private and 2000 test points in 2 dimensions, in a public box)
    """
    return synthetic_points("ring", gaussian_ring(), n_points, n_test, data_seed)


def load_mixture_1d(
    *, n_points: int = 10_000, n_test: int = 2_000, reading: Reading = "variance", data_seed: int = 0
) -> Points:
    """The three Gaussians on a line of Husain et al. 2018, section 5, in either reading of N(m, s).

    Arguments:
        n_points: private points to draw.
        n_test: points for evaluation.
        reading: whether s is the variance or the standard deviation.
        data_seed: of the draw.
    """
    return synthetic_points(f"mixture_1d ({reading})", mixture_1d(reading), n_points, n_test, data_seed)


def synthetic_points(name: str, target: GaussianMixture, n: int, n_test: int, seed: int) -> Points:
    """Points of a known target with the standard Gaussian as public scaling.

    The bounds hold 6 standard deviations of the target and 4 of the standard Gaussian.
    """
    generator = torch.Generator().manual_seed(seed)
    x, test_x = target.sample(n, generator=generator), target.sample(n_test, generator=generator)
    bounds = target.box()
    bounds = torch.stack([bounds[:, 0].clamp_max(-_GAUSSIAN_REACH), bounds[:, 1].clamp_min(_GAUSSIAN_REACH)], dim=1)
    return Points(
        name=name,
        x=x.clamp(bounds[:, 0], bounds[:, 1]),
        test_x=test_x.clamp(bounds[:, 0], bounds[:, 1]),
        bounds=bounds,
        target=target,
        location=torch.zeros(target.d),
        scale=torch.ones(target.d),
        facts=(Fact.KNOWN_TARGET,),
    )


def load_mixture(
    *, mixture: MixtureName = "gaussians", n_records: int = 100_000, size: int = SYNTHETIC_SIZE, data_seed: int = 0
) -> Columns:
    """Draws of a known mixture on [0, 10^18), the default that needs no file; every error against the truth is exact.

    Arguments:
        mixture: "gaussians", "betas", "gammas", "spikes" or "mixed".
        n_records: number of draws.
        size: N, number of values of the domain.
        data_seed: of the draws.

    >>> load_mixture(n_records=100)
    Columns('gaussians': 100 records of x on 1000000000000000000 values)
    """
    known, domain = reference_mixture(mixture), DiscretizedColumn.integers(size)
    if n_records < 2:
        raise ValueError(f"n_records is {n_records}: at least 2 are needed")
    x = known.draw(n_records, size, np.random.default_rng(data_seed))
    return Columns(name=mixture, values={"x": x}, domains={"x": domain}, truth={"x": known}, facts=(Fact.SYNTHETIC,))


_WARDS = ["cardiology", "dialysis", "general", "orthopaedics", "psychiatry", "trauma"]
_REASONS = ["check", "emergency", "infection", "injury", "pain", "surgery", "therapy"]
_MOST = 12


def _field(name: str, kind: str, own: Mapping[str, Any] | None = None, **rules: Any) -> dict[str, Any]:
    keys = {f"dpgen:{key}": value for key, value in (own or {}).items()}
    return {"name": name, "type": kind, "constraints": {"required": True, **rules}, **keys}


PATIENTS: Mapping[str, Any] = {
    "name": "patients",
    "fields": [
        _field("age", "integer", {"bins": {"equal": 12}}, minimum=0, maximum=95),
        _field("sex", "string", enum=["female", "male"]),
        _field("region", "string", enum=["east", "north", "south", "west"]),
        _field("insurance", "string", enum=["basic", "none", "plus"]),
        _field("smoker", "boolean"),
        _field("diabetic", "boolean"),
    ],
    "dpgen:target": "diabetic",
}
"""Schema of the patients."""

VISITS: Mapping[str, Any] = {
    "name": "visits",
    "fields": [
        _field("date", "date", {"bins": {"equal": 12}}, minimum="2020-01-01", maximum="2022-12-31"),
        _field("ward", "string", enum=_WARDS),
        _field("reason", "string", enum=_REASONS),
        _field("severity", "integer", minimum=1, maximum=5),
        _field("cost", "number", {"rounding": 1, "bins": {"log": 24}}, minimum=1, maximum=100_000),
        _field("days since the last", "integer", {"bins": {"log": 24}}, minimum=0, maximum=1095),
    ],
}
"""Schema of their visits, and of the time between two of them, which is no column."""


def simulated_patients(n: int = 20_000, *, seed: int = 0) -> dict[str, pd.DataFrame]:
    """n patients, and up to 12 visits of each, by a public rule: habits and frailty of a patient show in all of the visits.

    >>> {name: list(table.columns)[:3] for name, table in simulated_patients(50).items()}
    {'patients': ['patient', 'age', 'sex'], 'visits': ['patient', 'date', 'ward']}
    """
    rng = np.random.default_rng(seed)
    age = np.clip(np.where(rng.random(n) < 0.2, rng.gamma(2, 6, n), rng.normal(55, 18, n)), 0, 95).astype(int)
    male, smoker = rng.random(n) < 0.48, rng.random(n) < np.where(age < 16, 0.0, 0.26)
    region = rng.choice(4, n, p=[0.4, 0.2, 0.25, 0.15])
    frail = rng.normal(0, 1, n) + 0.025 * (age - 50) + 0.5 * smoker
    weights = np.stack([np.full(n, 1.6), 0.2 + (age / 60) ** 2, 0.15 + age / 160, 0.25 + (age < 45)], 1)
    habit = (weights.cumsum(1) / weights.sum(1, keepdims=True) < rng.random((n, 1))).sum(1)
    insurance = (rng.random(n)[:, None] < np.stack([0.15 + 0.1 * (region == 1), 0.75 - 0.004 * age], 1)).sum(1)
    logit = -2.6 + 0.03 * (age - 50) + 0.5 * frail + 1.8 * (habit == 2) + 0.7 * (habit == 1)
    count = np.minimum(rng.poisson(np.exp(0.55 + 0.33 * frail + 0.25 * (habit == 2))), _MOST)
    owner = np.repeat(np.arange(n), count)
    place = np.arange(len(owner)) - np.repeat(count.cumsum() - count, count)
    ward = np.zeros(len(owner), int)
    usual = np.array([2, 0, 1, 4])[habit][owner]
    for t in range(_MOST):
        rows = np.flatnonzero(place == t)
        drawn, kind = rng.random(len(rows)), usual[rows]
        fresh = np.where(drawn < 0.45, kind, np.where(drawn < 0.7, 2, rng.choice([0, 3, 5], len(rows))))
        stays = (rng.random(len(rows)) < np.array([0.5, 0.75, 0.3, 0.45, 0.6, 0.15])[ward[rows - 1]]) & (t > 0)
        ward[rows] = np.where(stays, ward[rows - 1], fresh)
    table = np.array(
        [
            [0.4, 0.25, 0.02, 0.0, 0.23, 0.1, 0.0],
            [0.05, 0.05, 0.05, 0.0, 0.05, 0.0, 0.8],
            [0.4, 0.05, 0.35, 0.05, 0.15, 0.0, 0.0],
            [0.1, 0.0, 0.0, 0.25, 0.25, 0.3, 0.1],
            [0.1, 0.1, 0.0, 0.0, 0.1, 0.0, 0.7],
            [0.0, 0.45, 0.05, 0.4, 0.1, 0.0, 0.0],
        ]
    )
    reason = (table.cumsum(1)[ward] < rng.random((len(owner), 1))).sum(1)
    strong = 0.8 * frail[owner] + 0.9 * np.isin(ward, [0, 5]) + 1.0 * (reason == 1) - 0.8 * (reason == 0)
    severity = np.clip(np.rint(2.3 + strong + 0.6 * rng.standard_normal(len(owner))), 1, 5).astype(int)
    cost = np.exp(
        4.5 + 0.55 * severity + 1.2 * (reason == 5) + 0.5 * np.isin(ward, [0, 1]) + 0.4 * rng.standard_normal(len(owner))
    )
    wait = np.exp(5.0 - 0.35 * severity - 1.6 * (ward == 1) + 0.7 * rng.standard_normal(len(owner)))
    start = rng.integers(0, 500, n)[owner]
    gaps = np.where(place == 0, 0, np.maximum(1, wait)).astype(int)
    total = gaps.cumsum()
    day = start + total - np.repeat(total[place == 0], count[count > 0])
    kept = day < 1096  # later visits are after the end of the study
    visits = pd.DataFrame(
        {
            "patient": owner + 1,
            "date": np.datetime64("2020-01-01", "s") + day * np.timedelta64(1, "D"),
            "ward": np.array(_WARDS)[ward],
            "reason": np.array(_REASONS)[reason],
            "severity": severity,
            "cost": np.clip(cost, 1, 1e5).round(),
        }
    )
    patients = pd.DataFrame(
        {
            "patient": np.arange(1, n + 1),
            "age": age,
            "sex": np.where(male, "male", "female"),
            "region": np.array(["east", "north", "south", "west"])[region],
            "insurance": np.array(["plus", "basic", "none"])[insurance],
            "smoker": smoker,
            "diabetic": rng.random(n) < 1 / (1 + np.exp(-logit)),
        }
    )
    return {"patients": patients, "visits": visits[kept].reset_index(drop=True)}
