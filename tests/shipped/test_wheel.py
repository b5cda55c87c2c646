"""The wheel holds the package with its type information and configurations, nothing else, and runs by itself."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


pytestmark = pytest.mark.wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    tree = directory / "tree"  # setuptools leaves a folder beside what it builds, which a second build would pick up
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "build", "runs", "__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(directory), str(tree)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    [found] = directory.glob("dpgen_lightning-*.whl")
    return found


def test_the_wheel_holds_the_package_alone(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    ends = (".py", ".pyi", ".typed", ".jinja", ".json")
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "dpgen").rglob("*") if path.suffix in ends}
    assert sources <= names
    configs = {f"dpgen/configs/{path.name}" for path in (ROOT / "configs").glob("*.yaml")}
    assert configs <= names
    others = {name.split("/")[0] for name in names - sources - configs}
    assert others == {f"{wheel.name.rsplit('-', 3)[0]}.dist-info"}, "neither tests nor papers"


@pytest.fixture(scope="module")
def dpgen(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command, from the wheel in an environment of its own that sees the packages which dpgen needs, but not this tree."""
    directory = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True, timeout=120)
    packages = Path(sysconfig.get_paths(vars={"base": str(directory), "platbase": str(directory)})["purelib"])
    command = [sys.executable, "-m", "pip", "--python", str(directory / "bin" / "python"), "install", "-q", "--no-deps"]
    ended = subprocess.run([*command, str(wheel)], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    (packages / "needed.pth").write_text(
        sysconfig.get_paths()["purelib"] + "\n"
    )  # its .pth files, the checkout's too, stay out
    return directory / "bin" / "dpgen"


def test_a_run_from_the_wheel_alone(dpgen: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([dpgen, *arguments], capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300)

    done = command("train", "--model", "gaussian", "--epsilon", "1", "--run_dir", "one")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "one" / "model" / "model.json").is_file()
    assert done.stdout.splitlines()[1] == "settings   configs/gaussian_digits.yaml", "those of the wheel"
    shown = command("report", "one")
    assert shown.returncode == 0, shown.stderr
    assert (tmp_path / "one" / "report.html").is_file()
    wrong = command("train", "--model", "gausian")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)
    assert "did you mean 'gaussian'?" in wrong.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
