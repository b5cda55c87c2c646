"""Packages that import on first use: every public name is the object of its module, and importing loads nothing heavy."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import dpgen
from dpgen import metrics
from dpgen.metrics.fidelity import fidelity
from dpgen.run import Outcome, run


@pytest.mark.parametrize("package", [dpgen, metrics], ids=lambda package: package.__name__)
def test_every_public_name_can_be_imported_and_no_other(package: ModuleType) -> None:
    for name in package.__all__:
        assert hasattr(package, name), name
    with pytest.raises(AttributeError, match=r"dpgen.* attribute nothing"):
        package.nothing  # noqa: B018


def test_importing_and_planning_load_no_torch() -> None:
    code = (
        "import sys, dpgen\n"
        "assert not {'torch', 'lightning', 'numpy', 'sklearn'} & set(sys.modules)\n"
        "config = dpgen.DPGMConfig(clusters='kmeans', clipping='dpnorm').resolved(n_classes=0)\n"
        "dpgen.DPGMPlan(sampling_rate=1.0, steps=2).calibrated(config).event(config)\n"
        "assert not {'torch', 'lightning', 'sklearn'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_function_named_like_its_module_stays_a_function() -> None:
    assert dpgen.run is run
    assert dpgen.Outcome is Outcome
    assert dpgen.metrics.fidelity is fidelity


def test_other_software_of_the_same_name_is_named(tmp_path: Path) -> None:
    shutil.copytree(Path(dpgen.__file__).parent, tmp_path / "dpgen", ignore=shutil.ignore_patterns("systems", "data"))
    command = [sys.executable, "-W", "error", "-c", "import dpgen"]
    assert subprocess.run(command, cwd=tmp_path, timeout=120).returncode == 0
    (tmp_path / "dpgen-0.14.0.dist-info").mkdir()
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "pip uninstall dpgen" in ended.stderr
