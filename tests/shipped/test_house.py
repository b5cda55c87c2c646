"""The shape of the code: cycles of imports, and the page that describes it."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import house  # noqa: E402


def test_no_module_imports_itself_through_others() -> None:
    assert house.cycles() == []


def written(root: Path, **sources: str) -> Path:
    (root / "dpgen").mkdir()
    for name, source in {"__init__": "", **sources}.items():
        (root / "dpgen" / f"{name}.py").write_text(source)
    return root


def test_cycles_are_found_inside_of_functions_but_not_for_type_checkers(tmp_path: Path) -> None:
    lazy = "def f():\n    from dpgen.b import g\n"
    for_types = "if TYPE_CHECKING:\n    from dpgen import a\n"
    for number, (source, found) in enumerate([("from dpgen import a\n", [["dpgen.a", "dpgen.b"]]), (for_types, [])]):
        (tmp_path / str(number)).mkdir()
        root = written(tmp_path / str(number), a=lazy, b=source)
        assert house.cycles(root) == found


def test_what_is_counted(tmp_path: Path) -> None:
    source = 'class A:\n    def f(self):\n        """Two\n        lines."""\n        return 1\n\n\ndef _g():\n    pass\n'
    root = written(tmp_path, a=source, b="import dpgen.a\n")
    (root / "dpgen" / "__init__.pyi").write_text("from dpgen.b import one, two\n")
    (root / "docs").mkdir()
    (root / "docs" / "architecture.md").write_text("| `dpgen.a` | letters |\n")
    counted = house.sizes(root)
    expected = {"modules": 3, "lines": 10, "longest module": 9, "longest function": 2, "public names": 1, "classes": 1}
    assert {name: counted[name] for name in expected} == expected
    assert house.interface(root) == ["one", "two", "A"]
    assert house.reached("dpgen.b", tmp_path) == {"dpgen.a"}


PAGES = [ROOT / name for name in ("docs/architecture.md", "CONTRIBUTING.md", "SECURITY.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    missing = [link for link in links if not link.startswith("http") and not (page.parent / link).exists()]
    assert links
    assert missing == []


def test_the_page_names_the_public_modules() -> None:
    from test_layers import PUBLIC_MODULES

    text = (ROOT / "docs" / "architecture.md").read_text()
    assert set(re.findall(r"^\| `(dpgen\.[\w.]+)` \|", text, re.MULTILINE)) == PUBLIC_MODULES
