"""Local samplers on finite domains: the law of a user's draw."""

from typing import Any

import numpy as np
import torch
from conformance import Law, LawRow, Pair

from dpgen.privacy.curator import Curator
from dpgen.privacy.mechanisms import Relation
from dpgen.systems.local.fit import SAMPLERS
from dpgen.systems.local.model import FiniteSampler
from dpgen.systems.local.plan import LocalPlan

PRIOR = torch.tensor([0.08, 0.12, 0.8], dtype=torch.float64)
EPSILON = 1.0
N = len(PRIOR)


def users(rng: np.random.Generator, u: int) -> np.ndarray:
    """Distributions (u, n): spread out, concentrated, or of one category."""
    return rng.dirichlet(np.full(N, rng.choice([0.02, 0.3, 1.0, 20.0])), u)


def any_users(rng: np.random.Generator, relation: Relation) -> Pair:
    """Any distribution may replace a user's."""
    return users(rng, 1)[0], users(rng, 1)[0]


def rarest(relation: Relation) -> Pair:
    """A user of the rarest category, and one of the commonest."""
    return np.eye(N)[0], np.eye(N)[N - 1]


def drawn(mechanism: FiniteSampler) -> Any:
    """The law of a draw."""

    def law(p: np.ndarray, relation: Relation) -> Law:
        own = torch.from_numpy(p)
        sampler = mechanism.bind(own, Curator(LocalPlan(epsilon=EPSILON).open_ledger()))
        return Law(sampler.event, mechanism.apply(own).log().numpy())

    return law


MECHANISMS: dict[str, FiniteSampler] = {name: make(EPSILON, PRIOR) for name, make in SAMPLERS.items()}


ROWS = [
    *(
        LawRow(name, (f"{name} sampler*",), any_users, rarest, law=drawn(mechanism), relations=("replace_one",))
        for name, mechanism in MECHANISMS.items()
    ),
]
