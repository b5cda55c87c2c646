"""The wheel holds the package with its type information, and nothing else."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.wheel
def test_the_wheel_holds_the_package_alone(tmp_path: Path) -> None:
    tree = tmp_path / "tree"  # setuptools leaves a folder beside what it builds, which a second build would pick up
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "build", "runs", "__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(tree)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    [wheel] = tmp_path.glob("dpgen-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {str(path.relative_to(ROOT)) for end in ("py", "pyi", "typed") for path in (ROOT / "dpgen").rglob(f"*.{end}")}
    assert sources <= names
    others = {name.split("/")[0] for name in names - sources}
    assert others == {f"{wheel.name.rsplit('-', 3)[0]}.dist-info"}, "neither tests nor papers"
