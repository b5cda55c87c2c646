"""The import rule, and the other rules of the house that can be read from the source."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import networkx
import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dpgen"
MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES = 800

FORBIDDEN: dict[str, set[str]] = {
    "systems": {"data", "evaluation", "metrics", "api", "auditing", "cli", "config", "run"},
    "data": {"privacy", "nets", "systems", "release", "samples", "statement", "evaluation", "metrics", "cli", "config", "run"},
    "metrics": {"data", "privacy", "nets", "systems", "release", "samples", "evaluation", "cli", "config", "run"},
}
"""Parts of dpgen that a part may not import; `privacy` may import none."""


def part(module: str) -> str:
    """`dpgen.data.images` -> `data`."""
    return module.split(".")[1] if module.count(".") else ""


def imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Modules that a source file imports anywhere in it, names of `from` imports appended, relative ones resolved."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


class WithoutTypes(ast.NodeTransformer):
    """Drops what only type checkers see."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if "TYPE_CHECKING" in ast.unparse(node.test) else self.generic_visit(node)


def imported(path: Path, root: Path = ROOT) -> set[str]:
    package = ".".join(path.relative_to(root).parent.parts)
    tree = ast.parse(path.read_text())
    names = set(imports(tree, package))
    types = names - set(imports(WithoutTypes().visit(tree), package))
    return names - {name for name in types if package.startswith("dpgen.systems") and part(name) == "data"}


def breaches(owner: str, names: set[str]) -> set[str]:
    """Imports of `names` that the part `owner` is not allowed."""
    parts = {part(name) for name in names if name.split(".")[0] == "dpgen"} - {owner}
    if owner == "privacy":
        return parts | {name for name in names if name.split(".")[0] in ("lightning", "pytorch_lightning")}
    return parts & FORBIDDEN.get(owner, set())


def owner(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_import_rule(path: Path) -> None:
    assert breaches(owner(path), imported(path)) == set()


@pytest.mark.parametrize(
    ("name", "source", "caught"),
    [
        ("data/a.py", "from dpgen.privacy.noise import SecureSource", "privacy"),
        ("data/a.py", "from ..privacy import noise", "privacy"),
        ("metrics/a.py", "def f():\n    from dpgen import data", "data"),
        ("privacy/a.py", "import lightning.pytorch as pl", "lightning.pytorch"),
        ("privacy/a.py", "from lightning import Trainer", "lightning.Trainer"),
        ("systems/a.py", "if 1:\n    import dpgen.metrics.queries", "metrics"),
        ("systems/a.py", "from dpgen.data import Records", "data"),
        ("systems/a.py", "if TYPE_CHECKING:\n    from dpgen.evaluation import evaluate", "evaluation"),
    ],
)
def test_the_rule_catches(tmp_path: Path, name: str, source: str, caught: str) -> None:
    path = tmp_path / "dpgen" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    assert breaches(name.split("/")[0].removesuffix(".py"), imported(path, tmp_path)) == {caught}


ASKING = [p for p in MODULES if owner(p) in ("release", "systems", "callbacks", "nets", "data")]


def around_the_curator(source: str) -> list[str]:
    """What a module does of what only a curator may: take the secure source, or charge a ledger."""
    tree = ast.parse(source)
    taken = [name for name in imports(tree, "dpgen") if name.rpartition(".")[2] in ("SecureSource", "require_secure")]
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [*taken, *(ast.unparse(call) for call in calls if isinstance(call, ast.Attribute) and call.attr == "charge")]


@pytest.mark.parametrize("path", ASKING, ids=lambda p: str(p.relative_to(ROOT)))
def test_nobody_goes_around_the_curator(path: Path) -> None:
    assert around_the_curator(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "from dpgen.privacy.noise import PublicRandomness, SecureSource",
        "def draw():\n    from dpgen.privacy.noise import require_secure",
        "self.curator.ledger.charge(event, 3, note='sums')",
    ],
)
def test_the_rule_sees_who_does(source: str) -> None:
    assert len(around_the_curator(source)) == 1


def notebook_source(path: Path) -> str:
    cells = json.loads(path.read_text())["cells"]
    lines = "".join("".join(cell["source"]) + "\n" for cell in cells if cell["cell_type"] == "code").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))


def exported() -> set[str]:
    """Names that `dpgen` and its public rooms export."""
    import dpgen

    rooms = (dpgen, dpgen.callbacks, dpgen.data, dpgen.metrics, dpgen.nets, dpgen.privacy, dpgen.systems)
    return {f"{room.__name__}.{name}" for room in rooms for name in room.__all__}


SCRIPTS = sorted({*ROOT.glob("scripts/*.py"), *ROOT.glob("notebooks/*.ipynb")} - {ROOT / "scripts" / "reproduce.py"})


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_scripts_and_notebooks_use_the_command_or_what_dpgen_exports(path: Path) -> None:
    source = notebook_source(path) if path.suffix == ".ipynb" else path.read_text()
    names = {name for name in imports(ast.parse(source), "") if name.split(".")[0] == "dpgen"}
    assert names, "it uses dpgen"
    assert names <= {"dpgen", "dpgen.cli.main.main", *exported()}


PUBLIC_MODULES = {
    "dpgen.data.toy",
    "dpgen.evaluation.columns",
    "dpgen.evaluation.points",
    "dpgen.figures",
    "dpgen.privacy.accountants",
    "dpgen.privacy.mechanisms",
    "dpgen.cli.main",
    "dpgen.release",
    "dpgen.statement",
    "dpgen.systems.local.model",
    "dpgen.systems.mbde.densities",
}
"""Documented modules (docs/reference), beside what `dpgen` and its rooms export."""


WRITTEN = sorted([*ROOT.glob("papers/*.py"), *ROOT.glob("examples/*.py"), ROOT / "scripts" / "reproduce.py"])


@pytest.mark.parametrize("path", WRITTEN, ids=lambda p: p.name)
def test_papers_and_examples_use_public_names(path: Path) -> None:
    used = {name for name in imported(path) if name.split(".")[0] == "dpgen"} - exported() - {"dpgen"}
    modules = {name.rpartition(".")[0] for name in used}
    assert modules <= PUBLIC_MODULES
    assert not [name for name in used if name.rpartition(".")[2].startswith("_")]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_are_short_and_silent(path: Path) -> None:
    source = path.read_text()
    assert source.count("\n") <= MOST_LINES
    calls = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    assert not [call for call in calls if isinstance(call, ast.Name) and call.id == "print"], "no print in the package"


def cycles(root: Path) -> list[set[str]]:
    """Groups of modules of `root/dpgen` that import each other, directly or through others, also inside of functions."""
    files = (root / "dpgen").rglob("*.py")
    paths = {".".join(p.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): p for p in files}
    graph = networkx.DiGraph()
    for name, path in paths.items():
        tree = WithoutTypes().visit(ast.parse(path.read_text()))
        found = imports(tree, ".".join(path.relative_to(root).parent.parts))
        targets = {target if target in paths else target.rpartition(".")[0] for target in found}
        graph.add_edges_from((name, target) for target in targets & set(paths) - {name})
    return [group for group in networkx.strongly_connected_components(graph) if len(group) > 1]


def test_no_module_of_privacy_names_itself_through_others_types_included() -> None:
    graph = networkx.DiGraph()
    for path in (PACKAGE / "privacy").glob("*.py"):
        names = {".".join(name.split(".")[:3]) for name in imported(path) if name.startswith("dpgen.privacy.")}
        graph.add_edges_from((f"dpgen.privacy.{path.stem}", name) for name in names)
    assert len(graph) > 10
    assert networkx.is_directed_acyclic_graph(graph)


def test_no_module_imports_itself_through_others(tmp_path: Path) -> None:
    assert cycles(ROOT) == []
    (tmp_path / "dpgen").mkdir()
    (tmp_path / "dpgen" / "a.py").write_text("def f():\n    from dpgen.b import g\n")
    (tmp_path / "dpgen" / "b.py").write_text("if TYPE_CHECKING:\n    from dpgen import a\n")
    assert cycles(tmp_path) == []
    (tmp_path / "dpgen" / "b.py").write_text("from dpgen import a\n")
    assert cycles(tmp_path) == [{"dpgen.a", "dpgen.b"}]
