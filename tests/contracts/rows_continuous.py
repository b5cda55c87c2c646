"""Samplers and densities on continuous domains: the Bernstein mechanism, MBDE's draws, channels on cells."""

import math
from typing import Any

import numpy as np
import torch
from conformance import Law, LawRow, Neighbours, Pair, SumRow, pairs_of, swapped

from dpgen.privacy.curator import Curator
from dpgen.privacy.mechanisms import Relation
from dpgen.systems.mbde import densities as samplers
from dpgen.systems.mbde.boxes import BernsteinConfig, CellSampler, GridResponse, lattice_sums
from dpgen.systems.mbde.densities import Box, ClippedDensity, GaussianReference
from dpgen.systems.mbde.plan import DrawPlan

WHOLE: tuple[Relation, ...] = ("replace_one",)


# -- Bernstein -----------------------------------------------------------------------------------------------------------


def coefficients(degree: int) -> Any:
    """Lattice sums of records in a box."""
    config = BernsteinConfig(degree=degree, bandwidth=0.05)
    return lambda y: lattice_sums(torch.from_numpy(y), config=config)


def apart(d: int) -> Any:
    """Records on points of the lattice that are ten bandwidths apart."""
    return swapped(np.full((2, d), [[0.4], [0.25]]), np.full((1, d), 0.75))


BERNSTEIN = [
    SumRow("bernstein", ("Bernstein mechanism: *",), pairs_of(lambda rng, n, d=d: rng.random((n, d))), apart(d), sums=made)
    for d, made in ((1, coefficients(20)), (2, coefficients(20)))
]


# -- MBDE: any function may have been learned from any data set --------------------------------------------------------------

M = 24


def functions(scale: float) -> Neighbours:
    """Two functions on M points, as different as can be."""
    return lambda rng, relation: tuple(rng.normal(0.0, scale, (2, M)) * rng.choice([0.01, 1.0, 100.0], (2, 1)))


def spike(relation: Relation) -> Pair:
    """High at the first point and low at all others, and the other way round."""
    values = np.full(M, -1e6)
    values[0] = 1e6
    return values, -values


def curator() -> Curator:
    return Curator(DrawPlan(epsilon=100.0).open_ledger())


def sir_law(alpha: float | None) -> Any:
    """Which point of a known codebook is released."""
    ideal = ClippedDensity(lambda x: x.sum(1), GaussianReference.standard(1), box=Box.of(1.0, alpha), epsilon=1.0)
    event = samplers.SIRSampler(ideal, curator=curator()).event

    def law(values: np.ndarray, relation: Relation) -> Law:
        weights = samplers.whole_weights(torch.from_numpy(values.clip(-50, 50))[None], ideal.box)[0]
        return Law(event, np.log(weights.double().numpy() / 2.0**62))

    return law


MBDE = [
    LawRow("mbde", (samplers.SIR_DRAWS,), functions(3.0), spike, law=sir_law(None), relations=WHOLE, pairs=100),
    LawRow("mbde", (samplers.SIR_DRAWS,), functions(3.0), spike, law=sir_law(1 / M), relations=WHOLE, pairs=100),
]


# -- cells -----------------------------------------------------------------------------------------------------------------

BOX = torch.tensor([[0.0, 1.0]], dtype=torch.float64)


def cells_law(x: np.ndarray, relation: Relation) -> Law:
    """The law of the answered cell of 7; every record may be another one."""
    middles = (torch.arange(7, dtype=torch.float64)[:, None] + 0.5) / 7
    made = GridResponse(torch.from_numpy(x), bounds=BOX, per_axis=7, epsilon=1.0)
    sampler = CellSampler(made, curator=curator(), note="cells")
    return Law(sampler.event, made.log_ratio(middles).numpy() - math.log(7))


def any_points(rng: np.random.Generator, relation: Relation) -> Pair:
    return rng.random((int(rng.integers(0, 5)), 1)), rng.random((int(rng.integers(0, 5)), 1)) ** 8


def ends(relation: Relation) -> Pair:
    return np.zeros((3, 1)), np.ones((5, 1))


ROWS = [
    *BERNSTEIN,
    *MBDE,
    LawRow("grid_response", ("randomised response on a public grid",), any_points, ends, law=cells_law, relations=WHOLE),
]
