"""Local samplers on a finite domain: one private draw from each user's distribution over n categories."""

from typing import TYPE_CHECKING

from dpgen.lazy import export

if TYPE_CHECKING:
    from dpgen.systems.finite.box_projection import project_to_box as project_to_box
    from dpgen.systems.finite.boxes import ParkSampler as ParkSampler
    from dpgen.systems.finite.boxes import ProjectedKernel as ProjectedKernel
    from dpgen.systems.finite.boxes import QInvariantMinimax as QInvariantMinimax
    from dpgen.systems.finite.boxes import RelativeMollifier as RelativeMollifier
    from dpgen.systems.finite.kernels import MechanismSampler as MechanismSampler
    from dpgen.systems.finite.kernels import MinimaxSampler as MinimaxSampler
    from dpgen.systems.finite.kernels import RandomizedResponse as RandomizedResponse
    from dpgen.systems.finite.local_draws import SAMPLERS as SAMPLERS
    from dpgen.systems.finite.local_plan import LocalConfig as LocalConfig
    from dpgen.systems.finite.local_plan import LocalPlan as LocalPlan
    from dpgen.systems.finite.local_plan import ParkConfig as ParkConfig
    from dpgen.systems.finite.local_plan import RandomizedResponseConfig as RandomizedResponseConfig
    from dpgen.systems.finite.mollifiers import in_convex_hull as in_convex_hull
    from dpgen.systems.finite.mollifiers import in_relative_mollifier as in_relative_mollifier
    from dpgen.systems.finite.mollifiers import is_mollifier as is_mollifier
    from dpgen.systems.finite.mollifiers import mechanism_mollifier as mechanism_mollifier
    from dpgen.systems.finite.mollifiers import mixture as mixture
    from dpgen.systems.finite.mollifiers import mollifier_epsilon as mollifier_epsilon
    from dpgen.systems.finite.mollifiers import mollifier_ranges as mollifier_ranges
    from dpgen.systems.finite.mollifiers import mollify_density as mollify_density
    from dpgen.systems.finite.sampler import BoundSampler as BoundSampler
    from dpgen.systems.finite.sampler import FiniteSampler as FiniteSampler
    from dpgen.systems.finite.sampler import load_mechanism as load_mechanism
    from dpgen.systems.finite.simplex import public_prior as public_prior

_HOME = {
    "box_projection": ("project_to_box",),
    "boxes": ("ParkSampler", "ProjectedKernel", "QInvariantMinimax", "RelativeMollifier"),
    "kernels": ("MechanismSampler", "MinimaxSampler", "RandomizedResponse"),
    "local_draws": ("SAMPLERS",),
    "local_plan": ("LocalConfig", "LocalPlan", "ParkConfig", "RandomizedResponseConfig"),
    "mollifiers": (
        "in_convex_hull",
        "in_relative_mollifier",
        "is_mollifier",
        "mechanism_mollifier",
        "mixture",
        "mollifier_epsilon",
        "mollifier_ranges",
        "mollify_density",
    ),
    "sampler": ("BoundSampler", "FiniteSampler", "load_mechanism"),
    "simplex": ("public_prior",),
}

__all__ = export(__name__, {name: f"{__name__}.{module}" for module, names in _HOME.items() for name in names})
