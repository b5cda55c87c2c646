"""Generative systems: each with a plan of what it may spend, a configuration, and a fit that returns a release."""

from typing import TYPE_CHECKING

from dpgen.lazy import export

if TYPE_CHECKING:
    from dpgen.systems.clusters.kmeans import DPKMeans as DPKMeans
    from dpgen.systems.networks.dpgm import DPGM as DPGM
    from dpgen.systems.networks.dpgm_options import DPGMConfig as DPGMConfig
    from dpgen.systems.networks.dpgm_options import DPGMPlan as DPGMPlan
    from dpgen.systems.networks.mixture import MixtureModel as MixtureModel
    from dpgen.systems.registry import SYSTEMS as SYSTEMS
    from dpgen.systems.registry import System as System

__all__ = export(
    __name__,
    {
        "DPGM": "dpgen.systems.networks.dpgm",
        "DPGMConfig": "dpgen.systems.networks.dpgm_options",
        "DPGMPlan": "dpgen.systems.networks.dpgm_options",
        "DPKMeans": "dpgen.systems.clusters.kmeans",
        "MixtureModel": "dpgen.systems.networks.mixture",
        "SYSTEMS": "dpgen.systems.registry",
        "System": "dpgen.systems.registry",
    },
)
