"""Generative systems: each with a plan of what it may spend, a configuration, and a fit that returns a release."""

from typing import TYPE_CHECKING

from dpgen.lazy import export

if TYPE_CHECKING:
    from dpgen.systems.dpgm.fit import DPGM as DPGM
    from dpgen.systems.dpgm.model import MixtureModel as MixtureModel
    from dpgen.systems.dpgm.plan import DPGMConfig as DPGMConfig
    from dpgen.systems.dpgm.plan import DPGMPlan as DPGMPlan
    from dpgen.systems.kmeans.fit import DPKMeans as DPKMeans
    from dpgen.systems.registry import SYSTEMS as SYSTEMS
    from dpgen.systems.registry import System as System

__all__ = export(
    __name__,
    {
        "DPGM": "dpgen.systems.dpgm.fit",
        "DPGMConfig": "dpgen.systems.dpgm.plan",
        "DPGMPlan": "dpgen.systems.dpgm.plan",
        "DPKMeans": "dpgen.systems.kmeans.fit",
        "MixtureModel": "dpgen.systems.dpgm.model",
        "SYSTEMS": "dpgen.systems.registry",
        "System": "dpgen.systems.registry",
    },
)
