"""Packages that import on first use: every public name is the object of its module, and importing loads nothing heavy."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import dpgen
from dpgen import callbacks, metrics, nets
from dpgen.metrics.fidelity import fidelity
from dpgen.run import run

ROOMS = [dpgen, callbacks, dpgen.data, metrics, nets, dpgen.privacy, dpgen.systems]


@pytest.mark.parametrize("package", ROOMS, ids=lambda room: room.__name__)
def test_every_public_name_can_be_imported_and_no_other(package: ModuleType) -> None:
    for name in package.__all__:
        assert hasattr(package, name), name
    with pytest.raises(AttributeError, match=r"dpgen.* attribute nothing"):
        package.nothing  # noqa: B018


def test_importing_and_planning_load_no_torch() -> None:
    code = (
        "import sys, dpgen\n"
        "assert not {'torch', 'lightning', 'numpy', 'sklearn'} & set(sys.modules)\n"
        "config = dpgen.systems.DPGMConfig(clusters='kmeans', clipping='dpnorm').resolved(n_classes=0)\n"
        "dpgen.systems.DPGMPlan(sampling_rate=1.0, steps=2).calibrated(config).event(config)\n"
        "assert not {'torch', 'lightning', 'sklearn'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


BASE = """
import contextlib, io, sys
sys.modules |= dict.fromkeys(["lightning", "torchvision", "tensorboard", "duckdb", "opacus", "torchmetrics"])  # blocked
from dpgen.cli.main import main

for line in {runs}:
    assert main(line.split()) == 0, line
for line, extra in {refused}:
    with contextlib.redirect_stderr(io.StringIO()) as told:
        assert main(("train --run_dir no " + line).split()) == 2, line
    assert told.getvalue().count("\\n") == 1 and f"pip install 'dpgen-lightning[{{extra}}]'" in told.getvalue(), told.getvalue()
"""


def test_the_base_fits_a_table_and_names_the_extra_that_networks_and_engines_need(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("town,age\n" + "Ulm,30\nBern,41\n" * 50)
    runs = (
        "train a.csv --epsilon 1 --run_dir run --quiet",
        "report run",
        "sample run --n 100 --out b.csv",
        "compare a.csv b.csv",
    )
    refused = (("--model dpgm", "train"), ("--model tables --data table --path a.csv --engine --epsilon 1", "sql"))
    code = BASE.format(runs=runs, refused=refused)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=tmp_path)
    assert not (tmp_path / "no").exists()


def test_a_function_named_like_its_module_stays_a_function() -> None:
    assert dpgen.run is run
    assert dpgen.metrics.fidelity is fidelity


def test_other_software_of_the_same_name_is_named(tmp_path: Path) -> None:
    shutil.copytree(Path(dpgen.__file__).parent, tmp_path / "dpgen", ignore=shutil.ignore_patterns("systems", "data"))
    command = [sys.executable, "-W", "error", "-c", "import dpgen"]
    assert subprocess.run(command, cwd=tmp_path, timeout=120).returncode == 0
    (tmp_path / "dpgen-0.14.0.dist-info").mkdir()
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "pip uninstall dpgen" in ended.stderr
