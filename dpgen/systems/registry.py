"""The systems by name: what each may spend, how it is configured, and how it is fitted."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dpgen.release import PublicModel, Release, read_model
from dpgen.systems.continuous import bernstein, grid_response, interval_laplace, mbde_fit
from dpgen.systems.continuous.bernstein import BernsteinConfig, BernsteinPlan
from dpgen.systems.continuous.draw_plan import DrawPlan
from dpgen.systems.continuous.grid_response import GridResponseConfig
from dpgen.systems.continuous.interval_laplace import IntervalLaplaceConfig
from dpgen.systems.continuous.mbde_options import MBDEConfig
from dpgen.systems.finite import local_draws
from dpgen.systems.finite.local_plan import LocalConfig, LocalPlan, ParkConfig, RandomizedResponseConfig
from dpgen.systems.marginals import mwem, noisy_marginals
from dpgen.systems.marginals.mwem import MWEMConfig, MWEMPlan
from dpgen.systems.marginals.noisy_marginals import MarginalsConfig, MarginalsPlan
from dpgen.systems.networks import components, dpgan
from dpgen.systems.networks.dp_sgd import DPSGD
from dpgen.systems.networks.dpgan_options import DPGANConfig
from dpgen.systems.networks.dpgm_options import DPGANPlan, DPGMConfig, DPGMPlan
from dpgen.systems.ordered import ordered_fit
from dpgen.systems.ordered.ordered_options import OrderedConfig, OrderedPlan
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
    "dpgm": System(DPGMPlan, DPGMConfig, components.fit, ("records",), components.module),
    "dpgan": System(DPGANPlan, DPGANConfig, dpgan.fit, ("records", "points"), lambda config: dpgan.DPGAN),
    "marginals": System(MarginalsPlan, MarginalsConfig, noisy_marginals.fit, ("records",)),
    "mwem": System(MWEMPlan, MWEMConfig, mwem.fit, ("records",)),
    "merr": System(OrderedPlan, OrderedConfig, ordered_fit.fit, ("columns",)),
    "mbde": System(DrawPlan, MBDEConfig, mbde_fit.fit, ("points",)),
    "bernstein": System(BernsteinPlan, BernsteinConfig, bernstein.fit, ("points",)),
    "grid_response": System(DrawPlan, GridResponseConfig, grid_response.fit, ("points",)),
    "interval_laplace": System(DrawPlan, IntervalLaplaceConfig, interval_laplace.fit, ("points",)),
    **{
        name: System(LocalPlan, config, partial(local_draws.fit, name), ("users",))
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
