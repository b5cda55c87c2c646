"""Generative systems: each with a plan of what it may spend, a configuration, and a fit that returns a release."""

from typing import TYPE_CHECKING

from dpgen.lazy import export

if TYPE_CHECKING:
    from dpgen.systems.dpgm import DPGM as DPGM
    from dpgen.systems.dpgm_options import DPGMConfig as DPGMConfig
    from dpgen.systems.dpgm_options import DPGMPlan as DPGMPlan
    from dpgen.systems.kmeans import DPKMeans as DPKMeans
    from dpgen.systems.mixture import MixtureModel as MixtureModel
    from dpgen.systems.registry import SYSTEMS as SYSTEMS
    from dpgen.systems.registry import System as System

__all__ = export(
    __name__,
    {
        "DPGM": "dpgen.systems.dpgm",
        "DPGMConfig": "dpgen.systems.dpgm_options",
        "DPGMPlan": "dpgen.systems.dpgm_options",
        "DPKMeans": "dpgen.systems.kmeans",
        "MixtureModel": "dpgen.systems.mixture",
        "SYSTEMS": "dpgen.systems.registry",
        "System": "dpgen.systems.registry",
    },
)
