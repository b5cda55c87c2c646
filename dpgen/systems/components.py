"""The components of a DPGM mixture by name: networks trained together by DP-SGD, and Gaussians in closed form."""

from collections.abc import Callable

from dpgen.privacy.ledger import Ledger
from dpgen.privacy.noise import PublicRandomness
from dpgen.release import RecordModel
from dpgen.runtime import Runtime
from dpgen.systems import dpgm
from dpgen.systems.dpgm_options import DPGMConfig, DPGMPlan
from dpgen.systems.gaussian import gaussian_fit
from dpgen.systems.private_data import PrivateRecords
from dpgen.systems.warm_start import begin, not_covered, pretrain


def fit_networks(
    records: PrivateRecords, *, plan: DPGMPlan, config: DPGMConfig, ledger: Ledger, runtime: Runtime
) -> RecordModel:
    """DP-SGD on networks, which start from samples of a released model if `config.warm_start` names one.

    Raises:
        ValueError: what `dpgm.fit` or the warm start refuses.
    """
    if config.warm_start is None:
        return dpgm.fit(records, plan=plan, config=config, ledger=ledger, runtime=runtime)
    start, plan = begin(plan, config, ledger, runtime)

    def prepare(module: dpgm.DPGM) -> None:
        pretrain(
            module.bank,
            start,
            categories=module.categories,
            by_label=module.config.clusters == "labels",
            steps=config.warm_start_steps,
            generator=PublicRandomness(runtime.seed).spawn("warm start").generator,
        )

    model = dpgm.fit(records, plan=plan, config=config, ledger=ledger, runtime=runtime, prepare=prepare)
    model.statement = model.statement.extended(not_covered(config, start))
    return model


FITS: dict[str, Callable[..., RecordModel]] = {"vae": fit_networks, "rbm": fit_networks, "gaussian": gaussian_fit.fit}
"""How each component of `DPGMConfig.component` is fitted."""


def module(config: DPGMConfig) -> type[dpgm.DPGM] | None:
    """What is trained by DP-SGD: nothing, where the component has a closed form."""
    return None if config.component == "gaussian" else dpgm.DPGM


def fit(records: PrivateRecords, *, plan: DPGMPlan, config: DPGMConfig, ledger: Ledger, runtime: Runtime) -> RecordModel:
    """Fit a mixture of the configured component and release it with its statement.

    Raises:
        ValueError: what the component's own fit refuses.
    """
    return FITS[config.component](records, plan=plan, config=config, ledger=ledger, runtime=runtime)
