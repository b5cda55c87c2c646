"""The systems by name: import paths of their plans, configurations and fits, resolved on first use.

A system of another distribution stands in its entry-point group `dpgen.systems`: a name, and the path of a `System`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from dpgen.privacy.curator import Curator
    from dpgen.release import PublicModel, Release
    from dpgen.systems.dp_sgd.engine import DPSGD
    from dpgen.systems.plan import Plan

ENTRY_POINTS = "dpgen.systems"


@dataclass(frozen=True, kw_only=True)
class System:
    """One row of the registry; every path is `package.module:name`, imported when its property is first used.

    Arguments:
        kinds: of data, keys of `dpgen.data.KINDS`; a loader's name means that of the first kind that has it.
        plan_path: of the frozen dataclass of what may be spent, in a module that imports neither torch nor dp_accounting.
        config_path: of the frozen dataclass of public choices, in such a module.
        fit_path: of `fit(data, *, plan, config, curator, runtime)`, which returns what the curator has released.
        module_path: of what DP-SGD trains: sums over records, which several processes can share, built from d, plan, config,
            n_classes, image_shape and seed. Empty: there is nothing to train so.
        model_paths: of the classes of its public models, which `load` can read.
    """

    kinds: tuple[str, ...]
    plan_path: str
    config_path: str
    fit_path: str
    module_path: str = ""
    model_paths: tuple[str, ...] = ()

    @property
    def plan(self) -> "Callable[..., Plan]":
        return resolve_name(self.plan_path)

    @property
    def config(self) -> type[Any]:
        return resolve_name(self.config_path)

    @property
    def fit(self) -> "Callable[..., Release]":
        return resolve_name(self.fit_path)

    @property
    def module(self) -> "Callable[..., DPSGD]":
        return resolve_name(self.module_path)


_LOCAL = {
    "minimax": "local.plan:LocalConfig",
    "mollifier": "local.plan:MollifierConfig",
    "projected_kernel": "local.plan:LocalConfig",
    "q_invariant": "local.plan:LocalConfig",
    "randomized_response": "plan:NoOptions",
    "park": "plan:NoOptions",
}

SYSTEMS: dict[str, System] = {
    "dpgm": System(
        kinds=("records", "images", "table"),
        plan_path="dpgen.systems.dpgm.plan:DPGMPlan",
        config_path="dpgen.systems.dpgm.plan:DPGMConfig",
        fit_path="dpgen.systems.dpgm.fit:fit",
        module_path="dpgen.systems.dpgm.fit:DPGM",
        model_paths=(
            "dpgen.systems.dpgm.model:MixtureModel",
            "dpgen.systems.dp_sgd.model:NetworkImages",
            "dpgen.systems.dp_sgd.model:NetworkTable",
            "dpgen.systems.dp_sgd.model:ReleasedModule",
        ),
    ),
    "dpgan": System(
        kinds=("records", "points", "images"),
        plan_path="dpgen.systems.dpgan.plan:DPGANPlan",
        config_path="dpgen.systems.dpgan.plan:DPGANConfig",
        fit_path="dpgen.systems.dpgan.fit:fit",
        module_path="dpgen.systems.dpgan.fit:DPGAN",
        model_paths=("dpgen.systems.dpgan.model:GANModel", "dpgen.systems.dpgan.model:PointGANModel"),
    ),
    "gaussian": System(
        kinds=("records", "images", "streams"),
        plan_path="dpgen.systems.gaussian.plan:GaussianPlan",
        config_path="dpgen.systems.gaussian.plan:GaussianConfig",
        fit_path="dpgen.systems.gaussian.fit:fit",
        model_paths=(
            "dpgen.systems.gaussian.model:GaussianMixtureModel",
            "dpgen.systems.gaussian.images:GaussianImages",
            "dpgen.systems.marginals.model:ProductMixture",
        ),
    ),
    "merf": System(
        kinds=("records", "images"),
        plan_path="dpgen.systems.plan:SumsPlan",
        config_path="dpgen.systems.merf.plan:MERFConfig",
        fit_path="dpgen.systems.merf.fit:fit",
        model_paths=("dpgen.systems.dpgan.model:GANModel", "dpgen.systems.dp_sgd.model:NetworkImages"),
    ),
    "marginals": System(
        kinds=("records", "streams"),
        plan_path="dpgen.systems.plan:SumsPlan",
        config_path="dpgen.systems.plan:NoOptions",
        fit_path="dpgen.systems.marginals.fit:fit_marginals",
        model_paths=("dpgen.systems.marginals.model:ProductMixture",),
    ),
    "mwem": System(
        kinds=("records", "streams"),
        plan_path="dpgen.systems.marginals.plan:MWEMPlan",
        config_path="dpgen.systems.marginals.plan:MWEMConfig",
        fit_path="dpgen.systems.marginals.fit:fit_mwem",
        model_paths=("dpgen.systems.marginals.model:ProductMixture", "dpgen.systems.marginals.model:JointModel"),
    ),
    "tables": System(
        kinds=("table",),
        plan_path="dpgen.systems.plan:SumsPlan",
        config_path="dpgen.systems.tables.plan:TablesConfig",
        fit_path="dpgen.systems.tables.fit:fit",
        model_paths=("dpgen.systems.tables.model:TablesModel",),
    ),
    "relational": System(
        kinds=("linked",),
        plan_path="dpgen.systems.relational.plan:RelationalPlan",
        config_path="dpgen.systems.relational.plan:RelationalConfig",
        fit_path="dpgen.systems.relational.fit:fit",
        model_paths=("dpgen.systems.relational.model:RelationalModel",),
    ),
    "merr": System(
        kinds=("columns",),
        plan_path="dpgen.systems.ordered.plan:OrderedPlan",
        config_path="dpgen.systems.ordered.plan:OrderedConfig",
        fit_path="dpgen.systems.ordered.fit:fit",
        model_paths=("dpgen.systems.ordered.model:OrderedDistribution",),
    ),
    "mbde": System(
        kinds=("points",),
        plan_path="dpgen.systems.mbde.plan:DrawPlan",
        config_path="dpgen.systems.mbde.plan:MBDEConfig",
        fit_path="dpgen.systems.mbde.fit:fit",
    ),
    "bernstein": System(
        kinds=("points",),
        plan_path="dpgen.systems.mbde.plan:BernsteinPlan",
        config_path="dpgen.systems.mbde.plan:BernsteinConfig",
        fit_path="dpgen.systems.mbde.boxes:fit_bernstein",
        model_paths=("dpgen.systems.mbde.boxes:BernsteinModel",),
    ),
    "grid_response": System(
        kinds=("points",),
        plan_path="dpgen.systems.mbde.plan:DrawPlan",
        config_path="dpgen.systems.mbde.plan:GridResponseConfig",
        fit_path="dpgen.systems.mbde.boxes:fit_grid_response",
    ),
    **{
        name: System(
            kinds=("users",),
            plan_path="dpgen.systems.local.plan:LocalPlan",
            config_path=f"dpgen.systems.{config}",
            fit_path=f"dpgen.systems.local.fit:fit_{name}",
        )
        for name, config in _LOCAL.items()
    },
}
"""The systems of this package."""


def systems() -> dict[str, System]:
    """All systems by name: `SYSTEMS`, then those of other distributions."""
    return SYSTEMS | installed()


@cache
def installed() -> dict[str, System]:
    found: dict[str, System] = {}
    for point in entry_points(group=ENTRY_POINTS):
        where = f"entry point {point.name!r} of {ENTRY_POINTS} ({point.value})"
        if point.name in SYSTEMS or point.name in found:
            raise ValueError(f"{where} has the name of another system; rename or uninstall it")
        try:
            system = point.load()
        except (ImportError, AttributeError) as error:
            raise ValueError(f"{where} cannot be imported: {error}") from error
        if not isinstance(system, System):
            raise ValueError(f"{where} is {type(system).__name__}; it must be a System")
        found[point.name] = system
    return found


def released(option: str, path: Path | str, curator: "Curator") -> "PublicModel":
    """The released model at the path that an option gives, for a fit that is built on it."""
    from dpgen.systems.built_on import find_release

    try:
        model = load(path)
    except FileNotFoundError as error:
        raise ValueError(f"{option} is {str(path)!r}: {error}") from error
    found = find_release(Path(path))
    if found is None or found.sha256 not in curator.built_on:
        raise ValueError(f"{option} is {str(path)!r}, whose price is no part of this fit: see Curator.build_on")
    return model


def load(directory: Path | str, *, networks: "Sequence[type[nn.Module]]" = ()) -> "PublicModel":
    """A released model, from its own directory or from that of its run; nothing is unpickled, and no code is imported.

    Arguments:
        networks: classes for the models of networks of your own; those whose modules are imported already need none.

    Raises:
        FileNotFoundError: no `model.json` there.
        ValueError: unknown format or kind, files that do not match their checksum, or a network that has not been imported or
            is not the released one.
    """
    from dpgen.nets.own import offered
    from dpgen.release import read_model

    for path in {path for system in systems().values() for path in system.model_paths}:
        resolve_name(path)  # which makes its kind known to `read_model`
    try:
        with offered(networks):
            return read_model(Path(directory))
    except ImportError as error:
        raise ValueError(f"{directory} cannot be loaded: {error}") from error
