"""The systems by name: what each may spend, how it is configured, and how it is fitted."""

from collections.abc import Callable
from typing import Any, NamedTuple

from dpgen.release import Release
from dpgen.release import load_model as load_model  # from here every system's kind of model is known
from dpgen.systems import dpgm
from dpgen.systems.dpgm_options import DPGMConfig, DPGMPlan


class System(NamedTuple):
    """One row of the contract: `fit(data, plan=, config=, ledger=, runtime=)` pays the ledger and returns a release."""

    plan: type[Any]
    config: type[Any]
    fit: Callable[..., Release]
    kinds: tuple[str, ...]
    """Of data, keys of `dpgen.data.LOADERS`; a loader's name means that of the first kind that has it."""


SYSTEMS: dict[str, System] = {"dpgm": System(DPGMPlan, DPGMConfig, dpgm.fit, ("records",))}
