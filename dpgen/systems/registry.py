"""The systems by name: what each may spend, how it is configured, and how it is fitted."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dpgen.release import PublicModel, Release, read_model
from dpgen.systems.dp_sgd.engine import DPSGD
from dpgen.systems.dpgan.fit import DPGAN
from dpgen.systems.dpgan.fit import fit as fit_dpgan
from dpgen.systems.dpgan.plan import DPGANConfig
from dpgen.systems.dpgm.fit import fit as fit_dpgm
from dpgen.systems.dpgm.fit import module
from dpgen.systems.dpgm.plan import DPGANPlan, DPGMConfig, DPGMPlan
from dpgen.systems.local.fit import fit as fit_local
from dpgen.systems.local.plan import LocalConfig, LocalPlan, ParkConfig, RandomizedResponseConfig
from dpgen.systems.marginals import mwem, noisy_marginals
from dpgen.systems.marginals.mwem import MWEMConfig, MWEMPlan
from dpgen.systems.marginals.noisy_marginals import MarginalsConfig, MarginalsPlan
from dpgen.systems.mbde import bernstein, grid_response, interval_laplace
from dpgen.systems.mbde.bernstein import BernsteinConfig, BernsteinPlan
from dpgen.systems.mbde.fit import fit as fit_mbde
from dpgen.systems.mbde.grid_response import GridResponseConfig
from dpgen.systems.mbde.interval_laplace import IntervalLaplaceConfig
from dpgen.systems.mbde.plan import DrawPlan, MBDEConfig
from dpgen.systems.ordered.fit import fit as fit_ordered
from dpgen.systems.ordered.plan import OrderedConfig, OrderedPlan
from dpgen.systems.plan import Plan


class System(NamedTuple):
    """One row of the contract: `fit(data, plan=, config=, curator=, runtime=)` returns what the curator has released."""

    plan: Callable[..., Plan]
    config: type[Any]
    fit: Callable[..., Release]
    kinds: tuple[str, ...]
    """Of data, keys of `dpgen.data.LOADERS`; a loader's name means that of the first kind that has it."""
    module: Callable[[Any], Callable[..., DPSGD] | None] = lambda config: None
    """What DP-SGD trains with a configuration, if anything: sums over records, which several processes can share."""


SYSTEMS: dict[str, System] = {
    "dpgm": System(DPGMPlan, DPGMConfig, fit_dpgm, ("records",), module),
    "dpgan": System(DPGANPlan, DPGANConfig, fit_dpgan, ("records", "points"), lambda config: DPGAN),
    "marginals": System(MarginalsPlan, MarginalsConfig, noisy_marginals.fit, ("records",)),
    "mwem": System(MWEMPlan, MWEMConfig, mwem.fit, ("records",)),
    "merr": System(OrderedPlan, OrderedConfig, fit_ordered, ("columns",)),
    "mbde": System(DrawPlan, MBDEConfig, fit_mbde, ("points",)),
    "bernstein": System(BernsteinPlan, BernsteinConfig, bernstein.fit, ("points",)),
    "grid_response": System(DrawPlan, GridResponseConfig, grid_response.fit, ("points",)),
    "interval_laplace": System(DrawPlan, IntervalLaplaceConfig, interval_laplace.fit, ("points",)),
    **{
        name: System(LocalPlan, config, partial(fit_local, name), ("users",))
        for name, config in (
            ("minimax", LocalConfig),
            ("mollifier", LocalConfig),
            ("projected_kernel", LocalConfig),
            ("q_invariant", LocalConfig),
            ("randomized_response", RandomizedResponseConfig),
            ("park", ParkConfig),
        )
    },
}


def load_model(directory: Path | str) -> PublicModel:
    """Load what a system has released, from the directory of the model or of its run; nothing is unpickled.

    Raises:
        FileNotFoundError: no `model.json` there.
        ValueError: unknown format or kind, or files that do not match their checksum.
    """
    return read_model(Path(directory))
