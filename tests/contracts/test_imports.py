"""Who may draw private noise and who may charge: only `dpgen.privacy`; everybody else asks a curator."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpgen

PACKAGE = Path(dpgen.__file__).parent
DOORS = {"SecureSource", "require_secure"}
PARTS = ("systems", "callbacks", "nets", "data")
ASKING = [PACKAGE / "release.py", *(path for part in PARTS for path in sorted(PACKAGE.glob(f"{part}/**/*.py")))]
PRIVACY = sorted(PACKAGE.glob("privacy/*.py"))


def name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def imported(tree: ast.AST) -> Iterator[str]:
    """Full names of all that a module imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def around_the_curator(source: str) -> list[str]:
    """What a module does of what only a curator may: take the secure source, or charge a ledger."""
    tree = ast.parse(source)
    taken = [full for full in imported(tree) if full.rpartition(".")[2] in DOORS]
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [*taken, *(ast.unparse(call) for call in calls if isinstance(call, ast.Attribute) and call.attr == "charge")]


@pytest.mark.parametrize("path", ASKING, ids=name)
def test_nobody_goes_around_the_curator(path: Path) -> None:
    assert around_the_curator(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "from dpgen.privacy.noise import PublicRandomness, SecureSource",
        "def draw():\n    from dpgen.privacy.noise import require_secure",
        "def fit(ledger):\n    ledger.charge(event, note='sums')",
        "self.curator.ledger.charge(event, 3, note='sums')",
    ],
)
def test_the_rule_sees_who_does(source: str) -> None:
    assert len(around_the_curator(source)) == 1


@pytest.mark.parametrize("path", PRIVACY, ids=name)
def test_privacy_stands_on_nothing_of_the_package(path: Path) -> None:
    names = list(imported(ast.parse(path.read_text())))
    assert [full for full in names if full.startswith("dpgen.") and not full.startswith("dpgen.privacy.")] == []
    assert [full for full in names if full.split(".")[0] in ("lightning", "pytorch_lightning")] == []
