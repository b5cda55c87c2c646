"""Plans and configurations are light: naming, listing and planning runs imports no heavy library."""

import subprocess
import sys
from pathlib import Path

import pytest

import dpgen
from dpgen.systems.registry import SYSTEMS, systems

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
