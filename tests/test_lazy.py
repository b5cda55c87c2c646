"""Packages that import on first use: their tables are what type checkers read, and names stay what they are."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import dpgen
from dpgen import metrics

PACKAGES = pytest.mark.parametrize("package", [dpgen, metrics], ids=lambda package: package.__name__)


def declared(package: ModuleType) -> Iterator[tuple[str, str]]:
    """Names and modules of the imports under `if TYPE_CHECKING`, each of the explicit form `X as X`."""
    assert package.__file__ is not None
    (block,) = (node for node in ast.parse(Path(package.__file__).read_text()).body if isinstance(node, ast.If))
    for line in block.body:
        assert isinstance(line, ast.ImportFrom)
        for name in line.names:
            assert name.name == name.asname
            yield name.name, f"dpgen.{name.name}" if line.module == "dpgen" else str(line.module)


@PACKAGES
def test_the_table_is_what_type_checkers_read(package: ModuleType) -> None:
    assert dict(declared(package)) == package._home
    assert sorted(package._home) == package.__all__
    assert set(package.__all__) <= set(dir(package))


@PACKAGES
def test_every_name_is_the_object_of_its_module(package: ModuleType) -> None:
    for name, home in package._home.items():
        module = import_module(home)
        expected = module if home == f"{package.__name__}.{name}" and not hasattr(module, name) else getattr(module, name)
        assert getattr(package, name) is expected, name
    with pytest.raises(AttributeError, match=r"module 'dpgen.*' has no attribute 'nothing'"):
        package.nothing  # noqa: B018


def in_a_new_process(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_importing_and_planning_load_no_torch() -> None:
    in_a_new_process(
        "import sys, dpgen\n"
        "assert not {'torch', 'lightning', 'numpy', 'sklearn'} & set(sys.modules)\n"
        "config = dpgen.DPGMConfig(clusters='kmeans', clipping='dpnorm').resolved(n_classes=0)\n"
        "dpgen.epoch_costs(config.calibrate(dpgen.DPGMPlan(sampling_rate=1.0, steps=2)), config)\n"
        "assert not {'torch', 'lightning', 'sklearn'} & set(sys.modules)\n"
    )


def test_a_function_named_like_its_module_stays_a_function() -> None:
    in_a_new_process(
        "import dpgen.run\n"
        "from dpgen.run import Outcome, run\n"
        "assert dpgen.run is run and dpgen.Outcome is Outcome\n"
        "from dpgen import evaluate\n"
        "assert callable(evaluate) and evaluate.__module__ == 'dpgen.evaluation'\n"
    )
