"""Plans and configurations of all systems: a budget, the ledger that enforces it, light modules, and what is refused."""

import math
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from refusals import refused

import dpgen
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.mechanisms import Relation
from dpgen.systems.gaussian.plan import GaussianConfig
from dpgen.systems.kmeans.plan import KMeansPlan
from dpgen.systems.local.plan import LocalPlan
from dpgen.systems.marginals.plan import MWEMConfig, MWEMPlan
from dpgen.systems.mbde.plan import BernsteinConfig, DrawPlan, MBDEConfig
from dpgen.systems.merf.plan import MERFConfig
from dpgen.systems.ordered.plan import OrderedConfig, OrderedPlan
from dpgen.systems.plan import Plan, SumsPlan
from dpgen.systems.registry import SYSTEMS, systems

KMEANS = partial(KMeansPlan, noise_count=1.0, noise_sum=1.0, rounds=3)


HEAVY = ("torch", "lightning", "dp_accounting", "scipy", "pandas", "sklearn", "numba", "matplotlib")
OWN = sorted(f"dpgen.systems.{path.parent.name}.plan" for path in Path(dpgen.__file__).parent.glob("systems/*/plan.py"))
MODULES = ["dpgen.systems.plan", *OWN]


def test_plans_import_nothing_heavy() -> None:
    code = f"import sys, {', '.join(MODULES)}\nassert not {set(HEAVY)!r} & set(sys.modules), set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_every_row_of_the_registry_is_listed_and_planned_by_light_modules() -> None:
    paths = {path.partition(":")[0] for system in SYSTEMS.values() for path in (system.plan_path, system.config_path)}
    assert paths <= set(MODULES)


@pytest.mark.parametrize("name", list(SYSTEMS))
def test_paths_of_the_registry_lead_somewhere(name: str) -> None:
    system = systems()[name]
    assert isinstance(system.plan, type)
    assert isinstance(system.config, type)
    assert callable(system.fit)
    assert all(path.partition(":")[2] for path in (system.plan_path, system.config_path, system.fit_path, *system.model_paths))


@dataclass(frozen=True, kw_only=True)
class Pure(Plan):
    epsilon: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Approximate(Plan):
    epsilon: float | None = 1.0
    delta: float = 1e-5
    relation: Relation = "add_remove"
    gaussian: ClassVar[bool] = True
    reports: ClassVar[bool] = True


def test_a_pure_plan_has_no_options_but_epsilon() -> None:
    ledger = Pure(epsilon=0.5).open_ledger()
    assert ledger.budget == Budget(0.5, 0.0)
    assert (ledger.relation, ledger.unit) == ("replace_one", "one record")


def test_the_ledger_has_the_plans_numbers_and_is_kept(tmp_path: Path) -> None:
    with Approximate(relation="replace_one").open_ledger(tmp_path / "ledger.jsonl") as ledger:
        assert (ledger.budget, ledger.relation) == (Budget(1.0, 1e-5), "replace_one")
    assert Ledger.open(tmp_path / "ledger.jsonl").budget == Budget(1.0, 1e-5)


def test_without_epsilon_the_ledger_only_reports() -> None:
    plan = Approximate(epsilon=None, delta=1e-6)
    assert plan.budget is None
    assert plan.open_ledger().budget is None
    assert plan.open_ledger().delta == 1e-6


REFUSED: list[tuple[Any, dict[str, Any]]] = [
    *((Pure, {"epsilon": value}) for value in (0.0, math.nan, True, None)),
    *((Approximate, {"delta": value}) for value in (0.0, 1.0, math.nan)),
    (Approximate, {"relation": "swap"}),
    *((SumsPlan, {name: 0.0}) for name in ("epsilon", "delta")),
    *((GaussianConfig, {"radius": value}) for value in (0.0, math.nan)),
    *((GaussianConfig, option) for option in ({"k": 0}, {"axes": 0}, {"cut": -0.1}, {"warp": -1.0}, {"frequencies": 3})),
    *((MWEMPlan, option) for option in ({"rounds": 0}, {"epsilon": math.nan})),
    *((MWEMConfig, option) for option in ({"max_items": 0}, {"longest": 0})),
    *((OrderedPlan, {"epsilon": value}) for value in (0.0, -1.0, 2000.0, 1e-5, 0.000999, 1000.1)),
    *((OrderedPlan, option) for option in ({"delta": 1.0}, {"public_n": 1}, {"relation": "swap"})),
    *((OrderedConfig, {"steps": value}) for value in (0, 10_001, "private", True, 2.5, "3")),
    *((OrderedConfig, option) for option in ({"method": "sketch"}, {"degree": 3})),
    *((DrawPlan, {"epsilon": value}) for value in (0.0, math.nan, math.inf, 1000.0, 1e-7)),
    *((DrawPlan, {"draws": value}) for value in (0, True)),
    *((MBDEConfig, {name: 0}) for name in ("rounds", "steps", "batch")),
    *((MBDEConfig, {"codebook": value}) for value in (1, 2**17)),
    *((MBDEConfig, option) for option in ({"reference": "cauchy"}, {"alpha": 1.5})),
    *((BernsteinConfig, {"bandwidth": value}) for value in (0.0, math.nan, 1e-200)),
    *((BernsteinConfig, option) for option in ({"degree": 0}, {"floor": 1.5})),
    *((LocalPlan, {"epsilon": value}) for value in (0.0, 701.0, math.nan, True)),
    *((LocalPlan, {"draws": value}) for value in (0, 1.5)),
    *((KMEANS, option) for option in ({"noise_count": 0.0}, {"noise_sum": math.inf}, {"noise_sum": math.nan})),
    *((KMEANS, {"rounds": value}) for value in (0, 2.5)),
    *((MERFConfig, {"n_features": value}) for value in (0, 3)),
    *((MERFConfig, option) for option in ({"gamma": 0.0}, {"lr": -1.0}, {"steps": 0}, {"latent": 0})),
]


@pytest.mark.parametrize(("kind", "option"), REFUSED, ids=str)
def test_a_number_out_of_its_range_is_refused_by_the_name_of_its_option(kind: Any, option: dict[str, Any]) -> None:
    with refused(*option):
        kind(**option)
