"""The systems by name: what each may spend, how it is configured, and how it is fitted."""

from collections.abc import Callable
from typing import Any, NamedTuple

from dpgen.release import Release
from dpgen.release import load_model as load_model  # from here every system's kind of model is known
from dpgen.systems import components, dpgan, independent, mwem
from dpgen.systems.continuous import bernstein, grid_response, interval_laplace, mbde_fit
from dpgen.systems.continuous.bernstein import BernsteinConfig
from dpgen.systems.continuous.draw_plan import DrawPlan, RecordPlan
from dpgen.systems.continuous.grid_response import GridResponseConfig
from dpgen.systems.continuous.interval_laplace import IntervalLaplaceConfig
from dpgen.systems.continuous.mbde_options import MBDEConfig
from dpgen.systems.dpgan_options import DPGANConfig
from dpgen.systems.dpgm_options import DPGMConfig, DPGMPlan
from dpgen.systems.finite.local_draws import FITS
from dpgen.systems.finite.local_plan import LocalConfig, LocalPlan, ParkConfig, PlainConfig
from dpgen.systems.independent import MarginalsConfig, MarginalsPlan
from dpgen.systems.mwem import MWEMConfig, MWEMPlan
from dpgen.systems.ordered import ordered_fit
from dpgen.systems.ordered.ordered_options import OrderedConfig, OrderedPlan


class System(NamedTuple):
    """One row of the contract: `fit(data, plan=, config=, ledger=, runtime=)` pays the ledger and returns a release."""

    plan: type[Any]
    config: type[Any]
    fit: Callable[..., Release]
    kinds: tuple[str, ...]
    """Of data, keys of `dpgen.data.LOADERS`; a loader's name means that of the first kind that has it."""


SYSTEMS: dict[str, System] = {
    "dpgm": System(DPGMPlan, DPGMConfig, components.fit, ("records",)),
    "dpgan": System(DPGMPlan, DPGANConfig, dpgan.fit, ("records", "points")),
    "marginals": System(MarginalsPlan, MarginalsConfig, independent.fit, ("records",)),
    "mwem": System(MWEMPlan, MWEMConfig, mwem.fit, ("records",)),
    "merr": System(OrderedPlan, OrderedConfig, ordered_fit.fit, ("columns",)),
    "mbde": System(DrawPlan, MBDEConfig, mbde_fit.fit, ("points",)),
    "bernstein": System(RecordPlan, BernsteinConfig, bernstein.fit, ("points",)),
    "grid_response": System(DrawPlan, GridResponseConfig, grid_response.fit, ("points",)),
    "interval_laplace": System(DrawPlan, IntervalLaplaceConfig, interval_laplace.fit, ("points",)),
    "minimax": System(LocalPlan, LocalConfig, FITS["minimax"], ("users",)),
    "mollifier": System(LocalPlan, LocalConfig, FITS["mollifier"], ("users",)),
    "projected_kernel": System(LocalPlan, LocalConfig, FITS["projected_kernel"], ("users",)),
    "q_invariant": System(LocalPlan, LocalConfig, FITS["q_invariant"], ("users",)),
    "randomized_response": System(LocalPlan, PlainConfig, FITS["randomized_response"], ("users",)),
    "park": System(LocalPlan, ParkConfig, FITS["park"], ("users",)),
}
