"""The components of a DPGM mixture by name: networks trained together by DP-SGD, and Gaussians in closed form."""

from collections.abc import Callable

from dpgen.privacy.curator import Curator
from dpgen.release import RecordModel
from dpgen.runtime import Runtime
from dpgen.systems.gaussian import gaussian_fit
from dpgen.systems.networks import dpgm
from dpgen.systems.networks.dpgm_options import DPGMConfig, DPGMPlan
from dpgen.systems.private_data import PrivateRecords

FITS: dict[str, Callable[..., RecordModel]] = {"vae": dpgm.fit, "rbm": dpgm.fit, "gaussian": gaussian_fit.fit}
"""How each component of `DPGMConfig.component` is fitted."""


def module(config: DPGMConfig) -> type[dpgm.DPGM] | None:
    """What is trained by DP-SGD: nothing, where the component has a closed form."""
    return None if config.component == "gaussian" else dpgm.DPGM


def fit(data: PrivateRecords, *, plan: DPGMPlan, config: DPGMConfig, curator: Curator, runtime: Runtime) -> RecordModel:
    """Fit a mixture of the configured component and release it with its statement.

    Raises:
        ValueError: what the component's own fit refuses.
    """
    return FITS[config.component](data, plan=plan, config=config, curator=curator, runtime=runtime)
